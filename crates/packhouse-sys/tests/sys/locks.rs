//! OFD locks: between descriptors, by range, in time, and released by closing.

use crate::files::open;
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::{File, LockKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock on which only waiting takes time.
#[derive(Default)]
struct WaitClock(AtomicU64);

impl Clock for WaitClock {
    fn wall_ns(&self) -> i64 {
        0
    }

    fn steady_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.0.fetch_add(duration_ns, Ordering::Relaxed);
    }
}

fn two() -> (tempfile::TempDir, File, File) {
    let folder = tempfile::tempdir().expect("because a temporary folder can be made");
    let path = std::fs::canonicalize(folder.path()).expect("because it is there");
    let dir = open(&path);
    let one = dir.create_new("lock", 0o600).expect("because it is new");
    let other = dir.open_file_writable("lock").expect("because it is there");
    (folder, one, other)
}

#[test]
fn two_descriptors_of_one_process_exclude_each_other_by_range() {
    let (_folder, one, other) = two();
    assert_eq!(one.try_lock(LockKind::Exclusive, 10, 1), Ok(true));
    assert_eq!(one.try_lock(LockKind::Exclusive, 10, 1), Ok(true));
    assert_eq!(other.try_lock(LockKind::Exclusive, 10, 1), Ok(false));
    assert_eq!(other.try_lock(LockKind::Shared, 0, 11), Ok(false));
    assert_eq!(other.try_lock(LockKind::Exclusive, 11, 1), Ok(true));
    let far = (1 << 62) + 5;
    assert_eq!(other.try_lock(LockKind::Exclusive, far, 1), Ok(true));
    drop(other);
    assert_eq!(one.try_lock(LockKind::Exclusive, 0, 1000), Ok(true));
}

#[test]
fn a_range_beyond_any_file_is_an_error() {
    let (_folder, one, _other) = two();
    assert!(one.try_lock(LockKind::Exclusive, u64::MAX, 1).is_err());
}

#[test]
fn a_wait_ends_at_its_deadline_and_a_try_at_once() {
    let (_folder, one, other) = two();
    assert_eq!(one.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    let clock = WaitClock::default();
    let wait = |timeout_ns| other.lock_within(&clock, LockKind::Exclusive, (0, 1), timeout_ns);
    assert_eq!(wait(0), Ok(false));
    assert_eq!(clock.steady_ns(), 0);
    assert_eq!(wait(123_456_789), Ok(false));
    assert_eq!(clock.steady_ns(), 123_456_789);
    one.unlock(0, 1).expect("because it is held");
    assert_eq!(wait(0), Ok(true));
}

#[test]
fn a_wait_sees_a_release() {
    let (_folder, one, other) = two();
    assert_eq!(one.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    std::thread::scope(|scope| {
        let waiter = scope
            .spawn(|| other.lock_within(&RealClock, LockKind::Exclusive, (0, 1), 60_000_000_000));
        RealClock.sleep_ns(5_000_000);
        drop(one);
        let had = waiter.join().expect("because it doesn't panic");
        assert_eq!(had, Ok(true));
    });
}
