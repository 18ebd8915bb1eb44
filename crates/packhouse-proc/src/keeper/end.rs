//! Ends a run's processes: what the engine left behind, and, when the keeper itself is asked to
//! end, the engine too.
//!
//! Never: signals a process that is not proven to be the run's.

use super::{KeepError, Keeper, call};
use crate::group::{Member, members};
use crate::pidfd::{PidFd, Signal};
use crate::procfs::{Presence, Procfs};
use crate::records::{Launched, LeftBehind, Order, RunExit, StopTimeouts};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};

/// The end of a whole run, as far as it is.
pub(super) struct Ending {
    timeouts: StopTimeouts,
    /// The signal sent last, and when.
    last: Option<(Signal, u64)>,
}

impl Ending {
    /// Nothing is sent yet.
    pub(super) fn new(timeouts: StopTimeouts) -> Self {
        Self {
            timeouts,
            last: None,
        }
    }

    /// Sends the next signal when its time has come.
    pub(super) fn step(&mut self, keeper: &Keeper<'_>, order: &Order, launched: &Launched) {
        let now_ns = keeper.clock.steady_ns();
        let (next, wait_s) = match self.last {
            None => (Signal::Interrupt, 0),
            Some((Signal::Interrupt, _)) => (Signal::Terminate, self.timeouts.interrupt_s),
            Some((Signal::Terminate, _)) => (Signal::Kill, self.timeouts.terminate_s),
            Some((Signal::Kill, _)) => (Signal::Kill, self.timeouts.kill_s.max(1)),
        };
        let since_ns = self.last.map_or(now_ns, |(_, at_ns)| at_ns);
        if now_ns.saturating_sub(since_ns) < wait_s.saturating_mul(SECOND_NS) {
            return;
        }
        if next == Signal::Interrupt {
            send(keeper.procfs, &launched.worker, next);
        } else {
            for member in ours(keeper.procfs, order, launched) {
                send(keeper.procfs, &member.key, next);
            }
        }
        self.last = Some((next, now_ns));
    }
}

/// The processes of a run whose engine is gone.
pub(super) fn left_behind(procfs: &Procfs, order: &Order, launched: &Launched) -> Vec<LeftBehind> {
    let members = ours(procfs, order, launched).into_iter();
    members
        .map(|member| LeftBehind {
            key: member.key,
            name: member.name,
            is_gone: false,
        })
        .collect()
}

/// Ends what an engine left behind: SIGTERM, then SIGKILL. Notes who came to light meanwhile, and
/// who is gone.
pub(super) fn end_all(keeper: &Keeper<'_>, order: &Order, launched: &Launched, exit: &mut RunExit) {
    let steps = [
        (Signal::Terminate, order.stop_timeouts.terminate_s),
        (Signal::Kill, order.stop_timeouts.kill_s),
    ];
    for (signal, wait_s) in steps {
        let begun_ns = keeper.clock.steady_ns();
        let mut told = Vec::new();
        loop {
            // Children that ended are zombies of this process until it takes their status.
            while let Ok(Some(_)) = next_ended() {}
            let left = ours(keeper.procfs, order, launched);
            for member in &left {
                if !told.contains(&member.key) {
                    send(keeper.procfs, &member.key, signal);
                    told.push(member.key);
                }
                note(exit, member);
            }
            if left.is_empty()
                || keeper.clock.steady_ns() - begun_ns > wait_s.saturating_mul(SECOND_NS)
            {
                break;
            }
            keeper.clock.sleep_ns(PAUSE_NS);
        }
    }
    for left in &mut exit.left_behind {
        let presence = keeper.procfs.presence(&left.key);
        left.is_gone = matches!(presence, Ok(Presence::Gone | Presence::Reused { .. }));
    }
}

/// The next child that ended, or none.
pub(super) fn next_ended() -> Result<Option<(Pid, WaitStatus)>, KeepError> {
    match rustix::io::retry_on_intr(|| rustix::process::wait(WaitOptions::NOHANG)) {
        Ok(ended) => Ok(ended),
        Err(Errno::CHILD) => Ok(None),
        Err(source) => Err(call("cannot wait for the engine", source)),
    }
}

fn note(exit: &mut RunExit, member: &Member) {
    if exit.left_behind.iter().all(|left| left.key != member.key) {
        exit.left_behind.push(LeftBehind {
            key: member.key,
            name: member.name.clone(),
            is_gone: false,
        });
    }
}

/// All that is proven to be the run's, but its keeper. Where processes can't be read, nobody is.
fn ours(procfs: &Procfs, order: &Order, launched: &Launched) -> Vec<Member> {
    members(procfs, &order.ownership(Some(launched)))
        .map_or_else(|_| Vec::new(), |found| found.ours)
}

fn send(procfs: &Procfs, key: &crate::identity::ProcessKey, signal: Signal) {
    if let Ok(held) = PidFd::open(procfs, key) {
        // One that can't be signalled is still there afterwards, and recorded so.
        let _ = held.send(signal);
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const PAUSE_NS: u64 = 20_000_000;
