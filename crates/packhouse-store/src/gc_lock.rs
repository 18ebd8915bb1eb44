//! The lock between publishing packs and gc, in one user's private state.
//!
//! A publisher holds it shared from "the object is there" to "the record that names it is linked";
//! gc holds it exclusive while it decides and moves away. Invariants:
//! - it is an OFD lock: the kernel releases it at death;
//! - nobody waits longer than a bound: a stopped gc delays a publish by it, never a start;
//! - without private state nothing is locked: the two may then meet, which costs one more pack,
//!   since a pack whose object is gone is a miss and is published again.
//!
//! Never: guards readers; what they have open stays.

use crate::root::Store;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, LockKind};

/// What became of the wish for the lock.
#[derive(Debug)]
pub(crate) enum GcLock {
    /// Held until this value is dropped.
    Held(#[expect(dead_code, reason = "kept only for its drop")] File),
    /// Another process has it.
    Busy,
    /// There is no private state to hold locks.
    NoState,
}

impl Store {
    /// Holds a gc off while a name is published. A publish never fails for want of the lock: a gc
    /// that meets it unlocked costs one more pack.
    pub(crate) fn hold_off_gc(&self) -> Option<GcLock> {
        self.lock_against_gc(LockKind::Shared, GC_LOCK_WAIT_NS).ok()
    }

    /// Tries the lock for at most `timeout_ns`.
    pub(crate) fn lock_against_gc(
        &self,
        kind: LockKind,
        timeout_ns: u64,
    ) -> Result<GcLock, FsError> {
        let Ok(state) = self.state() else {
            return Ok(GcLock::NoState);
        };
        let file = open_lock_file(state.dir())?;
        if file.lock_within(self.clock(), kind, (0, 1), timeout_ns)? {
            return Ok(GcLock::Held(file));
        }
        Ok(GcLock::Busy)
    }
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

/// How long a publisher waits for a gc, and a gc for publishers.
pub(crate) const GC_LOCK_WAIT_NS: u64 = 2_000_000_000;

const LOCK_FILE: &str = "gc-lock";
