//! Looking at many packs and objects: each two-digit folder is opened once, each entry asked one
//! stat.
//!
//! Invariants: owner and mode of every folder and entry are judged as in single look-ups, with the
//! same refusals; a folder that is refused refuses each of its entries.

use crate::object::ObjectRefusal;
use crate::pack::PackRefusal;
use crate::record::PackRecord;
use crate::root::{Base, OpenError, Store};
use packhouse_base::digest::{ObjectDigest, PackKey};
use packhouse_sys::fs::Dir;
use std::num::NonZeroUsize;

/// The folder of the prefix looked at last.
struct Prefix<'s> {
    store: &'s Store,
    base: Base,
    last: Option<(u8, Result<Option<Dir>, OpenError>)>,
}

/// What a look found: records in the order of their keys, refusals in the order of the objects.
pub(crate) struct Looked {
    pub(crate) packs: Vec<Result<PackRecord, PackRefusal>>,
    pub(crate) objects: Vec<Option<ObjectRefusal>>,
}

impl Store {
    /// Finds the records of many packs, and asks the descriptors of many objects everything but
    /// their bytes; in even parts over a few threads.
    pub(crate) fn look_at(&self, keys: &[PackKey], objects: &[(ObjectDigest, u64)]) -> Looked {
        let (keys, objects) = (Sorted::of(keys), Sorted::of(objects));
        let every = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let fit = (keys.items.len() + objects.items.len()) / ITEMS_PER_THREAD;
        let threads = every.min(THREADS_MAX).min(fit).max(1);
        let work = |part: usize| {
            let packs = self.lookup_packs(keys.part(part, threads));
            (packs, self.look_at_objects(objects.part(part, threads)))
        };
        let parts: Vec<_> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|part| {
                    let other = std::thread::Builder::new();
                    let other = other.spawn_scoped(scope, move || work(part));
                    other.map_err(|_| part)
                })
                .collect();
            let others = others.into_iter().map(|other| match other {
                Ok(other) => other
                    .join()
                    .expect("because errors are handed back, not thrown"),
                // The system starts no more threads: this one does it.
                Err(part) => work(part),
            });
            std::iter::once(work(0)).chain(others).collect()
        });
        let (packs, looked): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        Looked {
            packs: keys.unsorted(packs.into_iter().flatten()),
            objects: objects.unsorted(looked.into_iter().flatten()),
        }
    }

    fn lookup_packs(&self, keys: &[&PackKey]) -> Vec<Result<PackRecord, PackRefusal>> {
        let mut prefix = Prefix::new(self, Base::Packs);
        let found = keys.iter().map(|key| match prefix.of(key.as_bytes()[0]) {
            Ok(Some(folder)) => self.lookup_pack_in(folder, key),
            Ok(None) => Err(PackRefusal::Missing { key: **key }),
            Err(error) => Err(PackRefusal::Folder {
                key: **key,
                error: Box::new(error.clone()),
            }),
        });
        found.collect()
    }

    fn look_at_objects(&self, objects: &[&(ObjectDigest, u64)]) -> Vec<Option<ObjectRefusal>> {
        let mut prefix = Prefix::new(self, Base::Objects);
        let looked = objects
            .iter()
            .map(|(digest, length)| match prefix.of(digest.as_bytes()[0]) {
                Ok(Some(folder)) => self.open_judged(folder, digest, *length).err(),
                Ok(None) => Some(ObjectRefusal::Missing { digest: *digest }),
                Err(error) => Some(ObjectRefusal::Folder {
                    digest: *digest,
                    error: Box::new(error.clone()),
                }),
            });
        looked.collect()
    }
}

impl<'s> Prefix<'s> {
    fn new(store: &'s Store, base: Base) -> Self {
        Self {
            store,
            base,
            last: None,
        }
    }

    fn of(&mut self, prefix: u8) -> Result<Option<&Dir>, &OpenError> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != prefix) {
            let opened = self.store.open_prefix(self.base, &format!("{prefix:02x}"));
            self.last = Some((prefix, opened));
        }
        let (_, opened) = self.last.as_ref().expect("because it was just set");
        opened.as_ref().map(Option::as_ref)
    }
}

/// Items in the order of their names, and their places before that.
struct Sorted<'i, T> {
    items: Vec<&'i T>,
    places: Vec<usize>,
}

impl<'i, T: Ord> Sorted<'i, T> {
    fn of(items: &'i [T]) -> Self {
        let mut places: Vec<usize> = (0..items.len()).collect();
        places.sort_by_key(|place| &items[*place]);
        let items = places.iter().map(|place| &items[*place]).collect();
        Self { items, places }
    }

    /// One of several even parts.
    fn part(&self, part: usize, parts: usize) -> &[&'i T] {
        let bound = |part: usize| self.items.len() * part / parts;
        &self.items[bound(part)..bound(part + 1)]
    }

    /// Puts the items' answers, which come sorted, where the items were.
    fn unsorted<A>(&self, answers: impl Iterator<Item = A>) -> Vec<A> {
        let mut placed: Vec<(usize, A)> = self.places.iter().copied().zip(answers).collect();
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, answer)| answer).collect()
    }
}

/// More threads wait for each other in the kernel.
const THREADS_MAX: usize = 4;
/// Fewer are looked at before a thread is started.
const ITEMS_PER_THREAD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_the_order_of_their_items_in_however_many_parts() {
        for count in [0, 1, 31, 64, 187, 1000] {
            let items: Vec<u64> = (0..count).map(|index| index * 7919 % 1009).collect();
            let sorted = Sorted::of(&items);
            for parts in 1..=4 {
                let answers = (0..parts).flat_map(|part| sorted.part(part, parts));
                let answers: Vec<u64> = answers.map(|item| **item * 2).collect();
                assert!(answers.is_sorted());
                let expected: Vec<u64> = items.iter().map(|item| item * 2).collect();
                assert_eq!(sorted.unsorted(answers.into_iter()), expected, "{count}");
            }
        }
    }
}
