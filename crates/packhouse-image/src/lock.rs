//! The lock of the folder: who writes owner records or removes anything holds it.
//!
//! Invariants:
//! - it is an OFD lock, so the kernel gives it back at death;
//! - a wait has a bound: a holder that is stopped costs others an eviction, no more;
//! - whoever waited in vain does not wait again on the same folder until the lock is had: a start
//!   with many tiles waits once.
//!
//! Never: guards images themselves, which need no lock; a reader has its descriptor.

use crate::folder::Folder;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{File, FsError, FsErrorKind, LockKind};

/// The right to write owner records and to remove; given back when dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    held: File,
}

impl Drop for Guard {
    /// Closing the file would do, but for a child that the host forked meanwhile: it has the same
    /// open file.
    fn drop(&mut self) {
        let _ = self.held.unlock(0, 1);
    }
}

/// Waits for the lock. `None`: somebody else still has it after `LOCK_WAIT_NS`.
pub(crate) fn lock(folder: &Folder, clock: &dyn Clock) -> Result<Option<Guard>, FsError> {
    let file = lock_file(folder)?;
    let wait_ns = if folder.was_busy() { 0 } else { LOCK_WAIT_NS };
    let had = file.lock_within(clock, LockKind::Exclusive, (0, 1), wait_ns)?;
    folder.note_busy(!had);
    Ok(had.then_some(Guard { held: file }))
}

/// The file whose first byte is locked, below `v1`.
pub(crate) const LOCK_FILE: &str = "locks";

/// How long a lock is waited for: a second, in which many evictions fit.
pub(crate) const LOCK_WAIT_NS: u64 = 1_000_000_000;

/// Opens the file to lock, or makes it.
pub(crate) fn lock_file(folder: &Folder) -> Result<File, FsError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_sys::clock::RealClock;
    use packhouse_sys::real::RealFs;

    /// A child that the host forked has the same open file, as a second descriptor of it has:
    /// closing one of the two gives nothing back.
    #[test]
    fn the_lock_is_given_back_while_a_forked_child_still_has_its_file_open() {
        let temp = tempfile::tempdir().expect("because there is a folder for it");
        let folder = Folder::open(&RealFs, temp.path(), true);
        let folder = folder.expect("because it is this user's");
        let folder = folder.expect("because it is made");
        let guard = lock(&folder, &RealClock).expect("because the file can be made");
        let guard = guard.expect("because nobody else is there");
        let forked = guard.held.as_fd().map(|fd| fd.try_clone_to_owned());
        let forked = forked.expect("because it is real");
        drop(guard);
        let again = lock(&folder, &RealClock).expect("because the file is there");
        assert!(again.is_some(), "the child has the lock");
        drop(forked);
    }
}
