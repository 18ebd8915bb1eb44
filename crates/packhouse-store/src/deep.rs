//! Hashing many objects: several side by side on one core, over as many cores as are given.

use crate::hash_many::{Hashable, LANES_MAX, hash_many};
use crate::lock_mutex;
use crate::object::{HowVerified, ObjectRefusal, VerifiedObject};
use crate::root::Store;
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_sys::fs::{File, FsError};
use std::num::NonZeroUsize;
use std::sync::Mutex;

impl Store {
    /// Opens and hashes every object of `wanted` and answers each with what is wrong with it, in
    /// their order. What is damaged goes to quarantine. `progress` is told the bytes as they are
    /// hashed.
    pub(crate) fn hash_objects(
        &self,
        wanted: &[(ObjectDigest, u64)],
        threads: NonZeroUsize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Vec<Option<ObjectRefusal>> {
        // The longest first, so that no core ends with one of them.
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|index| (std::cmp::Reverse(wanted[*index].1), *index));
        let queue = Mutex::new(order.into_iter());
        let refusals = Mutex::new(vec![None; wanted.len()]);
        let lanes = wanted.len().div_ceil(threads.get()).clamp(1, LANES_MAX);
        let put = |index: usize, refusal| lock_mutex(&refusals)[index] = refusal;
        let work = || {
            let next = || {
                loop {
                    let index = lock_mutex(&queue).next()?;
                    let (digest, length) = &wanted[index];
                    let before_ns = self.clock.wall_ns();
                    match self.open_sound(digest, *length) {
                        Ok(object) => {
                            return Some(Opened {
                                index,
                                object,
                                before_ns,
                            });
                        }
                        Err(refusal) => put(index, Some(refusal)),
                    }
                }
            };
            let done = |opened: Opened, actual| {
                let how = HowVerified::Deep;
                let verified = self.conclude(opened.object, how, opened.before_ns, actual);
                put(opened.index, verified.err());
            };
            hash_many(lanes, next, done, progress);
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.get().min(wanted.len()) {
                // A thread that is not to be had leaves its work to the others.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        refusals
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Hashes verified objects, or copies, anew: what `next` gives until it gives no more, many side by
/// side on this core. Each is handed over as `VerifiedObject::hashed_now` would; nothing is moved.
pub fn hash_now<K>(
    lanes: usize,
    mut next: impl FnMut() -> Option<(K, VerifiedObject)>,
    mut done: impl FnMut(K, Result<VerifiedObject, ObjectRefusal>),
    progress: &dyn Fn(u64),
) {
    let next = || next().map(|(key, object)| Keyed { key, object });
    let done = |keyed: Keyed<K>, actual: Result<Digest, FsError>| {
        let digest = keyed.object.digest();
        let actual = actual.map_err(|error| ObjectRefusal::Fs { digest, error });
        let hashed = actual.and_then(|actual| keyed.object.hashed_to(actual));
        done(keyed.key, hashed);
    };
    hash_many(lanes, next, done, progress);
}

/// A verified object that is hashed anew.
struct Keyed<K> {
    key: K,
    object: VerifiedObject,
}

impl<K> Hashable for Keyed<K> {
    fn file(&self) -> &File {
        self.object.file()
    }

    fn length(&self) -> u64 {
        self.object.length()
    }
}

/// An object that is being hashed.
struct Opened {
    index: usize,
    object: VerifiedObject,
    before_ns: i64,
}

impl Hashable for Opened {
    fn file(&self) -> &File {
        self.object.file()
    }

    fn length(&self) -> u64 {
        self.object.length()
    }
}
