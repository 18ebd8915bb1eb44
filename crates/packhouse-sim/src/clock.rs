//! The simulated clock: time passes only by operations and by waiting.

use packhouse_sys::clock::Clock;
use std::sync::atomic::{AtomicI64, Ordering};

/// A clock that a test sets; waiting on it takes no time.
#[derive(Debug)]
pub struct SimClock {
    wall_ns: AtomicI64,
}

impl SimClock {
    /// A clock at some instant of the year 2026.
    pub fn new() -> Self {
        Self {
            wall_ns: AtomicI64::new(START_NS),
        }
    }

    /// Lets time pass, or goes back.
    pub fn advance_ns(&self, duration_ns: i64) {
        self.wall_ns.fetch_add(duration_ns, Ordering::AcqRel);
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn wall_ns(&self) -> i64 {
        self.wall_ns.load(Ordering::Acquire)
    }

    fn steady_ns(&self) -> u64 {
        u64::try_from(self.wall_ns()).unwrap_or(0)
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.advance_ns(i64::try_from(duration_ns).unwrap_or(i64::MAX));
    }
}

const START_NS: i64 = 1_780_000_000_000_000_000;
