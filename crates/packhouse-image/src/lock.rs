//! The lock of the folder: who writes owner records or removes anything holds it.
//!
//! Invariants:
//! - it is an OFD lock, so the kernel gives it back at death;
//! - a wait has a bound: a holder that is stopped costs others an eviction, no more.
//!
//! Never: guards images themselves, which need no lock; a reader has its descriptor.

use crate::folder::Folder;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{File, FsError, FsErrorKind, LockKind};

/// The right to write owner records and to remove; given back when dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    _held: File,
}

/// Waits for the lock. `None`: somebody else still has it after `LOCK_WAIT_NS`.
pub(crate) fn lock(folder: &Folder, clock: &dyn Clock) -> Result<Option<Guard>, FsError> {
    let file = lock_file(folder)?;
    let had = file.lock_within(clock, LockKind::Exclusive, (0, 1), LOCK_WAIT_NS)?;
    Ok(had.then_some(Guard { _held: file }))
}

/// The file whose first byte is locked, below `v1`.
pub(crate) const LOCK_FILE: &str = "locks";

/// How long a lock is waited for: a second, in which many evictions fit.
pub(crate) const LOCK_WAIT_NS: u64 = 1_000_000_000;

fn lock_file(folder: &Folder) -> Result<File, FsError> {
    let dir = folder.images();
    match dir.open_file_writable(LOCK_FILE) {
        Err(error) if error.kind == FsErrorKind::NotFound => {}
        other => return other,
    }
    match dir.create_new(LOCK_FILE, 0o600) {
        Err(error) if error.kind == FsErrorKind::Exists => dir.open_file_writable(LOCK_FILE),
        other => other,
    }
}
