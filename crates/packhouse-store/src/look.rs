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

impl Store {
    /// Finds the records of many packs, in the order of `keys`.
    pub(crate) fn lookup_packs(&self, keys: &[PackKey]) -> Vec<Result<PackRecord, PackRefusal>> {
        let answer = |keys: &[&PackKey]| {
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
        };
        in_order(keys, answer)
    }

    /// Asks the descriptors of many objects everything but their bytes, in the order of `objects`.
    pub(crate) fn look_at_objects(
        &self,
        objects: &[(ObjectDigest, u64)],
    ) -> Vec<Option<ObjectRefusal>> {
        let answer = |objects: &[&(ObjectDigest, u64)]| {
            let mut prefix = Prefix::new(self, Base::Objects);
            let found =
                objects
                    .iter()
                    .map(|(digest, length)| match prefix.of(digest.as_bytes()[0]) {
                        Ok(Some(folder)) => self.open_judged(folder, digest, *length).err(),
                        Ok(None) => Some(ObjectRefusal::Missing { digest: *digest }),
                        Err(error) => Some(ObjectRefusal::Folder {
                            digest: *digest,
                            error: Box::new(error.clone()),
                        }),
                    });
            found.collect()
        };
        in_order(objects, answer)
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

/// Answers items that are sorted by their names, in even parts over a few threads, and gives the
/// answers back in the order of `items`.
fn in_order<T: Ord + Sync, A: Send>(
    items: &[T],
    answer: impl Fn(&[&T]) -> Vec<A> + Sync,
) -> Vec<A> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|index| &items[*index]);
    let sorted: Vec<&T> = order.iter().map(|index| &items[*index]).collect();
    let every = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = every
        .min(THREADS_MAX)
        .min(items.len() / ITEMS_PER_THREAD)
        .max(1);
    let mut parts = sorted.chunks(sorted.len().div_ceil(threads).max(1));
    let first = parts.next().unwrap_or_default();
    let answers = std::thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(|| answer(part))).collect();
        let mut answers = answer(first);
        for other in others {
            answers.extend(other.join().expect("because it hands errors back"));
        }
        answers
    });
    let mut placed: Vec<(usize, A)> = order.into_iter().zip(answers).collect();
    placed.sort_by_key(|(index, _)| *index);
    placed.into_iter().map(|(_, answer)| answer).collect()
}

/// More threads wait for each other in the kernel.
const THREADS_MAX: usize = 4;
/// Fewer are looked at before a thread is started.
const ITEMS_PER_THREAD: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_the_order_of_their_items_however_many_there_are() {
        for count in [0, 1, 31, 63, 64, 65, 187, 1000] {
            let items: Vec<u64> = (0..count).map(|index| index * 7919 % 1009).collect();
            let answers = in_order(&items, |part| {
                assert!(part.is_sorted());
                part.iter().map(|item| **item * 2).collect()
            });
            let expected: Vec<u64> = items.iter().map(|item| item * 2).collect();
            assert_eq!(answers, expected, "{count}");
        }
    }
}
