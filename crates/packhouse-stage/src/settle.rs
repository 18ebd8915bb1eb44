//! Waiting until stat identities are old enough to prove a later change.

use packhouse_store::state::{STAT_SETTLE_NS, settle_wait_ns};
use packhouse_sys::clock::Clock;
use packhouse_sys::stat::StatIdentity;

/// Waits once until all are settled; `settles` is told for how long. Errors with how far the clock
/// is behind, where it was set back behind their times.
pub(crate) fn wait_settled<'i>(
    clock: &dyn Clock,
    identities: impl Iterator<Item = &'i StatIdentity> + Clone,
    settles: &dyn Fn(u64),
) -> Result<(), u64> {
    let wait_ns = || {
        let now_ns = clock.wall_ns();
        let waits = identities
            .clone()
            .filter_map(|identity| settle_wait_ns(identity, now_ns));
        waits.max().unwrap_or(0)
    };
    let first_ns = wait_ns();
    if first_ns > 2 * STAT_SETTLE_NS {
        return Err(first_ns - STAT_SETTLE_NS);
    }
    if first_ns > 0 {
        settles(first_ns);
        clock.sleep_ns(first_ns);
    }
    match wait_ns() {
        0 => Ok(()),
        left_ns => Err(left_ns),
    }
}
