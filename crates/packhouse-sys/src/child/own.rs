//! Which children of this process it started itself, and which became its own.

use rustix::process::{Pid, getpid, set_child_subreaper};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From here on whoever is left behind by a child, or by one of its children, becomes a child of
/// this process instead of init's, unless a process between takes it in: nobody leaves the family.
/// Who of them ended is kept by the kernel until a [`super::Family`] or this process ends.
///
/// # Errors
/// As prctl does.
pub fn take_in_orphans() -> std::io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Ids of the children that this module's callers started and that nobody has waited for yet,
/// watchers too.
pub fn own_children() -> BTreeSet<u32> {
    let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    own.iter()
        .filter_map(|pid| u32::try_from(*pid).ok())
        .collect()
}

/// Held while a child is started, until it is on the list of our own: who looks for children that
/// are not holds it too.
pub(super) fn starting() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether one that began at a tick of the kernel's is in a process group that a child of ours led,
/// living or not: such a group is killed when its leader ends, and who began later is in another's
/// group of the same number.
pub(super) fn is_group_of_ours(group: i32, start: u64) -> bool {
    let led = LED.lock().unwrap_or_else(PoisonError::into_inner);
    led.get(&group).is_some_and(|end| start <= *end)
}

/// The kernel's tick now, as it counts them for the starts of processes.
fn tick() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ticks = rustix::param::clock_ticks_per_second();
    let part = u64::try_from(now.tv_nsec).unwrap_or(0) * ticks / 1_000_000_000;
    u64::try_from(now.tv_sec).unwrap_or(0) * ticks + part
}

/// A child of ours for as long as it is here.
pub(super) struct Own(i32);

impl Own {
    pub(super) fn new(pid: Pid) -> Self {
        let pid = pid.as_raw_nonzero().get();
        let mut led = LED.lock().unwrap_or_else(PoisonError::into_inner);
        led.insert(pid, u64::MAX);
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        own.insert(pid);
        Self(pid)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut led = LED.lock().unwrap_or_else(PoisonError::into_inner);
        led.insert(self.0, tick());
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        own.remove(&self.0);
    }
}

static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
/// Leaders of groups, and the tick in which each was over.
static LED: Mutex<BTreeMap<i32, u64>> = Mutex::new(BTreeMap::new());
static STARTING: Mutex<()> = Mutex::new(());
