//! Which children of this process it started itself, and which became its own.

use rustix::process::{Pid, getpid, set_child_subreaper};
use std::collections::BTreeSet;
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

/// Whether a process group is one that a child of ours led, living or not: such a group is killed
/// when its leader ends.
pub(super) fn is_group_of_ours(group: i32) -> bool {
    let led = LED.lock().unwrap_or_else(PoisonError::into_inner);
    led.contains(&group)
}

/// A child of ours for as long as it is here.
pub(super) struct Own(i32);

impl Own {
    pub(super) fn new(pid: Pid) -> Self {
        let pid = pid.as_raw_nonzero().get();
        for list in [&OWN, &LED] {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            list.insert(pid);
        }
        Self(pid)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        OWN.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.0);
    }
}

static OWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
static LED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
static STARTING: Mutex<()> = Mutex::new(());
