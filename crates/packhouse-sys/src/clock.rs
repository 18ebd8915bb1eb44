//! Time as an argument: a wall clock to compare with file times, a steady clock for waits.

/// The clocks, and waiting.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the Unix epoch by the wall clock that file systems stamp with, which may
    /// jump: once it has passed a stamp, a later change gets another one.
    fn wall_ns(&self) -> i64;

    /// Nanoseconds since some fixed instant; never goes back.
    fn steady_ns(&self) -> u64;

    /// Returns after at least this many nanoseconds, by the wall clock too unless that is set back.
    fn sleep_ns(&self, duration_ns: u64);
}

/// The system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    fn wall_ns(&self) -> i64 {
        // The kernel stamps with its last tick, not with the time now.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
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
        let end_ns = self
            .wall_ns()
            .saturating_add(i64::try_from(duration_ns).unwrap_or(i64::MAX));
        std::thread::sleep(std::time::Duration::from_nanos(duration_ns));
        // A tick is late where the host runs other machines.
        for _ in 0..TICK_TRIES {
            if self.wall_ns() >= end_ns {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Milliseconds that a sleep waits for the wall clock's tick at most.
const TICK_TRIES: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_over_by_both_clocks() {
        let clock = RealClock;
        for duration_ns in [0, 1, 3_000_000] {
            let (wall_ns, steady_ns) = (clock.wall_ns(), clock.steady_ns());
            clock.sleep_ns(duration_ns);
            assert!(clock.steady_ns() - steady_ns >= duration_ns);
            assert!(clock.wall_ns() - wall_ns >= i64::try_from(duration_ns).unwrap_or(0));
        }
    }
}
