//! Whose turn it is: one byte of the lock file for each thing that is worked on.
//!
//! Never: leaves anything to clean up; the kernel gives a lock back at death.

use crate::room::ROOM_OFFSET;
use crate::root::StageRoot;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{File, FsError, LockKind};

/// What came of waiting for a turn.
pub(crate) enum Turn {
    /// It is had for as long as the file lives.
    Had(File),
    /// Another process had it for all of the timeout.
    TimedOut,
    /// The caller cancelled.
    Cancelled,
}

/// Tries to get the turn on what a digest names. `None`: another process has it.
pub(crate) fn try_turn(root: &StageRoot, digest: &Digest) -> Result<Option<File>, FsError> {
    let file = root.lock_file()?;
    let held = file.try_lock(LockKind::Exclusive, offset(digest), 1)?;
    Ok(held.then_some(file))
}

/// Waits for the turn on what a digest names in short steps, between which it asks whether to stop.
/// `waits` is called once, when the turn is not had at once.
pub(crate) fn take_turn(
    root: &StageRoot,
    digest: &Digest,
    timeout_ns: u64,
    waits: &dyn Fn(),
    cancel: &(dyn Fn() -> bool + Sync),
) -> Result<Turn, FsError> {
    if let Some(held) = try_turn(root, digest)? {
        return Ok(Turn::Had(held));
    }
    waits();
    let file = root.lock_file()?;
    let (clock, range) = (root.clock.as_ref(), (offset(digest), 1));
    let deadline_ns = clock.steady_ns().saturating_add(timeout_ns);
    loop {
        if cancel() {
            return Ok(Turn::Cancelled);
        }
        let left_ns = deadline_ns.saturating_sub(clock.steady_ns());
        if file.lock_within(clock, LockKind::Exclusive, range, left_ns.min(STEP_NS))? {
            return Ok(Turn::Had(file));
        }
        if left_ns == 0 {
            return Ok(Turn::TimedOut);
        }
    }
}

/// 62 bits of the digest, above the room's byte and below the largest file offset.
fn offset(digest: &Digest) -> u64 {
    let first: [u8; 8] = std::array::from_fn(|index| digest.as_bytes()[index]);
    (u64::from_be_bytes(first) >> 2) + ROOM_OFFSET + 1
}

const STEP_NS: u64 = 200_000_000;
