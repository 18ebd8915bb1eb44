//! Time as an argument: a wall clock to compare with file times, a steady clock for waits.

/// The clocks, and waiting.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the Unix epoch by the wall clock, which may jump.
    fn wall_ns(&self) -> i64;

    /// Nanoseconds since some fixed instant; never goes back.
    fn steady_ns(&self) -> u64;

    /// Returns after at least this many nanoseconds.
    fn sleep_ns(&self, duration_ns: u64);
}

/// The system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    fn wall_ns(&self) -> i64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        crate::stat::time_ns(now.tv_sec, now.tv_nsec)
    }

    fn steady_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        u64::try_from(crate::stat::time_ns(now.tv_sec, now.tv_nsec)).unwrap_or(0)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that others must use"
    )]
    fn sleep_ns(&self, duration_ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(duration_ns));
    }
}
