//! Locks: one byte range each in one file of the private state.
//!
//! Invariants:
//! - a lock is an OFD lock, so the kernel releases it at death and no file needs cleaning up;
//! - a try never waits: a holder that is stopped (SIGSTOP) costs others a private pack, no time;
//! - each lock has a descriptor of its own, so that two locks of one process exclude each other.
//!
//! Never: stands in for a reservation, or guards the store's content, which needs no lock.

use crate::root::{OpenError, Store};
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, PackKey};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, LockKind};

/// The right to make one pack; others make other packs, or wait.
#[derive(Debug)]
pub struct PackLock {
    _held: File,
}

/// The right to do a piece of work that a digest names.
#[derive(Debug)]
pub struct WorkLock {
    _held: File,
}

/// Why a lock could be neither had nor refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// There is no private state to hold locks.
    #[error("no private state: {0}")]
    NoState(Box<OpenError>),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Store {
    /// Tries to get the right to make a pack. `None`: somebody else has it.
    pub fn try_lock_pack(&self, key: &PackKey) -> Result<Option<PackLock>, LockError> {
        self.lock_pack_within(key, 0)
    }

    /// Waits for the right to make a pack. `None`: somebody else still has it after that time.
    pub fn lock_pack_within(
        &self,
        key: &PackKey,
        timeout_ns: u64,
    ) -> Result<Option<PackLock>, LockError> {
        let held = self.lock_range(pack_offset(key), timeout_ns)?;
        Ok(held.map(|file| PackLock { _held: file }))
    }

    /// Waits for the right to do what a digest names, a whole prepare, say. `None`: somebody else
    /// still has it after that time.
    pub fn lock_work_within(
        &self,
        work: &Digest,
        timeout_ns: u64,
    ) -> Result<Option<WorkLock>, LockError> {
        let held = self.lock_range(pack_offset(&PackKey(*work)), timeout_ns)?;
        Ok(held.map(|file| WorkLock { _held: file }))
    }

    pub(crate) fn lock_range(
        &self,
        offset: u64,
        timeout_ns: u64,
    ) -> Result<Option<File>, LockError> {
        let state = self
            .state()
            .map_err(|error| LockError::NoState(Box::new(error.clone())))?;
        let file = open_lock_file(state.dir())?;
        let range = (offset, 1);
        let clock = self.clock.as_ref();
        let had = file.lock_within(clock, LockKind::Exclusive, range, timeout_ns)?;
        Ok(had.then_some(file))
    }
}

impl LockError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NoState(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

/// The byte of the lock that guards reservations.
pub(crate) const ROOM_OFFSET: u64 = 0;

const LOCK_FILE: &str = "locks";

/// 62 bits of the key, above the fixed offsets and below the largest file offset.
fn pack_offset(key: &PackKey) -> u64 {
    let first: [u8; 8] = std::array::from_fn(|index| key.as_bytes()[index]);
    (u64::from_be_bytes(first) >> 2) + ROOM_OFFSET + 1
}

fn open_lock_file(dir: &Dir) -> Result<File, FsError> {
    match dir.open_file_writable(LOCK_FILE) {
        Err(error) if error.kind == FsErrorKind::NotFound => {}
        other => return other,
    }
    match dir.create_new(LOCK_FILE, 0o600) {
        Err(error) if error.kind == FsErrorKind::Exists => dir.open_file_writable(LOCK_FILE),
        other => other,
    }
}
