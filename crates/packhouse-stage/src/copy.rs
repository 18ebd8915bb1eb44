//! Copying the objects of a set into a stage that nobody sees yet.
//!
//! Invariants:
//! - what is written is what is hashed: one buffer is read, hashed and written;
//! - a copy whose digest is not its object's name ends everything, and the store's object is judged
//!   by the store, which moves a damaged one to quarantine;
//! - the stat identity is taken on the descriptor that was written, after its last change.
//!
//! Never: reads an object twice, but one that proved wrong.

use crate::room::Reservation;
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_store::hash_many::{Hashable, LANES_MAX, hash_many};
use packhouse_store::object::{ObjectRefusal, ObjectTrust, UnverifiedObject};
use packhouse_store::root::Store;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, Operation};
use packhouse_sys::stat::{StatIdentity, Volume};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why a set could not be copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The store's object is missing, damaged or not trusted.
    #[error(transparent)]
    Source(Box<ObjectRefusal>),
    /// The store's object gave other bytes than its digest's once, and its own the next time.
    #[error("object {object} read as {actual} while it was copied, and as itself afterwards")]
    Unstable {
        /// The object.
        object: ObjectDigest,
        /// The digest of the bytes that were copied.
        actual: Digest,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The copy could not be written.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// What all copies of one stage share.
pub(crate) struct Copier<'a> {
    pub(crate) store: &'a Store,
    pub(crate) objects: &'a Dir,
    pub(crate) volume: &'a Volume,
    pub(crate) room: &'a Reservation,
    pub(crate) copied: &'a (dyn Fn(u64) + Sync),
    pub(crate) cancel: &'a (dyn Fn() -> bool + Sync),
}

/// One object on its way.
struct Copying<'c> {
    object: ObjectDigest,
    length: u64,
    source: UnverifiedObject,
    target: File,
    cancel: &'c (dyn Fn() -> bool + Sync),
    stop: &'c AtomicBool,
}

impl Hashable for Copying<'_> {
    fn file(&self) -> &File {
        self.source.file()
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn take(&self, offset: u64, piece: &[u8]) -> Result<(), FsError> {
        if self.stop.load(Ordering::Relaxed) || (self.cancel)() {
            return Err(FsError {
                operation: Operation::Write,
                path: self.target.path().to_owned(),
                kind: FsErrorKind::Stopped,
            });
        }
        self.target.write_all_at(offset, piece)
    }
}

/// Objects by falling length, so that the last ones to end are small.
pub(crate) fn largest_first(mut objects: Vec<(ObjectDigest, u64)>) -> Vec<(ObjectDigest, u64)> {
    objects.sort_unstable_by_key(|(object, length)| (std::cmp::Reverse(*length), *object));
    objects
}

impl Copier<'_> {
    /// Copies all objects over `threads` cores, many side by side on each, and answers their
    /// copies' identities in any order. The first error ends the others at their next piece.
    pub(crate) fn copy_all(
        &self,
        objects: &[(ObjectDigest, u64)],
        threads: NonZeroUsize,
    ) -> Result<Vec<(ObjectDigest, StatIdentity)>, CopyError> {
        let lanes = objects.len().div_ceil(threads.get()).clamp(1, LANES_MAX);
        let queue = Mutex::new(objects.iter());
        let stop = AtomicBool::new(false);
        let results = Mutex::new((Vec::with_capacity(objects.len()), None));
        let fail = |error: CopyError| {
            stop.store(true, Ordering::Relaxed);
            lock(&results).1.get_or_insert(error);
        };
        let work = || {
            let next = || {
                let (object, length) = match stop.load(Ordering::Relaxed) {
                    true => return None,
                    false => lock(&queue).next()?,
                };
                self.open(object, *length, &stop).map_err(&fail).ok()
            };
            let done = |copy: Copying<'_>, actual: Result<Digest, FsError>| {
                let object = copy.object;
                match self.finish(&copy, actual) {
                    Ok(identity) => lock(&results).0.push((object, identity)),
                    Err(error) => fail(error),
                }
            };
            hash_many(lanes, next, done, self.copied);
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.get().min(objects.len()) {
                // A thread that is not to be had leaves its work to the others.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let (identities, error) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        match error {
            None => Ok(identities),
            Some(error) => Err(error),
        }
    }

    fn open<'c>(
        &'c self,
        object: &ObjectDigest,
        length: u64,
        stop: &'c AtomicBool,
    ) -> Result<Copying<'c>, CopyError> {
        let source = self
            .store
            .object_for_sample(object, length)
            .map_err(|refusal| CopyError::Source(Box::new(refusal)))?;
        Ok(Copying {
            object: *object,
            length,
            source,
            target: self.objects.create_new(object.to_string(), 0o600)?,
            cancel: self.cancel,
            stop,
        })
    }

    /// Ends a copy whose bytes are all written, or failed to be.
    fn finish(
        &self,
        copy: &Copying<'_>,
        actual: Result<Digest, FsError>,
    ) -> Result<StatIdentity, CopyError> {
        let actual = match actual {
            Err(error) if error.kind == FsErrorKind::Stopped && (self.cancel)() => {
                return Err(CopyError::Cancelled);
            }
            other => other?,
        };
        if actual != copy.object.0 {
            return Err(self.blame_source(&copy.object, copy.length, actual));
        }
        copy.target.set_mode(COPY_MODE)?;
        copy.target.sync()?;
        self.room.written(rounded(copy.length));
        let (_, identity) = copy.target.identity_on(self.volume)?;
        Ok(identity)
    }

    /// The bytes were not the object's: the store finds out whether its object is damaged.
    fn blame_source(&self, object: &ObjectDigest, length: u64, actual: Digest) -> CopyError {
        match self.store.object(object, length, ObjectTrust::Deep) {
            Err(refusal) => CopyError::Source(Box::new(refusal)),
            Ok(_) => CopyError::Unstable {
                object: *object,
                actual,
            },
        }
    }
}

impl CopyError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Source(refusal) => refusal.blame(),
            Self::Unstable { .. } => Blame::Host,
            Self::Cancelled => Blame::Caller,
            Self::Fs(error) => error.blame(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a file of this length takes of a file system in RAM.
pub(crate) fn rounded(length: u64) -> u64 {
    length
        .checked_next_multiple_of(PAGE_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(INODE_BYTES)
}

/// Permission bits of all copies.
pub(crate) const COPY_MODE: u32 = 0o444;

const PAGE_BYTES: u64 = 4096;
/// The kernel's own memory for one file.
const INODE_BYTES: u64 = 1024;
