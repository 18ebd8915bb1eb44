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
use packhouse_base::digest::{Digest, Hasher, ObjectDigest};
use packhouse_store::object::{ObjectRefusal, ObjectTrust};
use packhouse_store::root::Store;
use packhouse_sys::fs::{Dir, File, FsError};
use packhouse_sys::stat::{StatIdentity, Volume};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

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
    #[error("cancelled after {copied_bytes} bytes")]
    Cancelled {
        /// Bytes copied by then.
        copied_bytes: u64,
    },
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

/// Objects by falling length, so that the last ones to end are small.
pub(crate) fn largest_first(mut objects: Vec<(ObjectDigest, u64)>) -> Vec<(ObjectDigest, u64)> {
    objects.sort_unstable_by_key(|(object, length)| (std::cmp::Reverse(*length), *object));
    objects
}

impl Copier<'_> {
    /// Copies all objects, `threads` at a time, and answers their copies' identities in any order.
    /// The first error ends the others at their next chunk.
    pub(crate) fn copy_all(
        &self,
        objects: &[(ObjectDigest, u64)],
        threads: NonZeroUsize,
    ) -> Result<Vec<(ObjectDigest, StatIdentity)>, CopyError> {
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let results = Mutex::new((Vec::with_capacity(objects.len()), None));
        let work = || {
            let mut buffer = vec![0; CHUNK_BYTES];
            while let Some((object, length)) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                let copied = self.copy_one(object, *length, &stop, &mut buffer);
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                match copied {
                    Ok(identity) => results.0.push((*object, identity)),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        results.1.get_or_insert(error);
                        return;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.get().min(objects.len()) {
                scope.spawn(work);
            }
            work();
        });
        let (identities, error) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        match error {
            None => Ok(identities),
            Some(error) => Err(error),
        }
    }

    fn copy_one(
        &self,
        object: &ObjectDigest,
        length: u64,
        stop: &AtomicBool,
        buffer: &mut [u8],
    ) -> Result<StatIdentity, CopyError> {
        let source = self
            .store
            .object_for_sample(object, length)
            .map_err(|refusal| CopyError::Source(Box::new(refusal)))?;
        let target = self.objects.create_new(object.to_string(), 0o600)?;
        let actual = self.copy_bytes(source.file(), &target, (stop, length), buffer)?;
        if actual != object.0 {
            return Err(self.blame_source(object, length, actual));
        }
        target.set_mode(COPY_MODE)?;
        target.sync()?;
        self.room.written(rounded(length));
        let (_, identity) = target.identity_on(self.volume)?;
        Ok(identity)
    }

    fn copy_bytes(
        &self,
        source: &File,
        target: &File,
        (stop, length): (&AtomicBool, u64),
        buffer: &mut [u8],
    ) -> Result<Digest, CopyError> {
        let mut hasher = Hasher::default();
        let mut offset = 0;
        while offset < length {
            if stop.load(Ordering::Relaxed) || (self.cancel)() {
                return Err(CopyError::Cancelled {
                    copied_bytes: offset,
                });
            }
            let left = usize::try_from(length - offset).unwrap_or(buffer.len());
            let wanted = left.min(buffer.len());
            let filled = source.read_full_at(offset, &mut buffer[..wanted])?;
            let chunk = &buffer[..filled];
            if filled == 0 {
                break;
            }
            hasher.update(chunk);
            target.write_all_at(offset, chunk)?;
            (self.copied)(filled as u64);
            offset += filled as u64;
        }
        Ok(hasher.finish())
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
            Self::Cancelled { .. } => Blame::Caller,
            Self::Fs(error) => error.blame(),
        }
    }
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

const CHUNK_BYTES: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// The kernel's own memory for one file.
const INODE_BYTES: u64 = 1024;
