//! Readiness: waits until a launched worker serves on a socket of its own, and records what runs.
//!
//! Invariants:
//! - the health path is asked, never a prompt;
//! - an answer counts only when the socket that gave it is held by the worker's own processes, and
//!   by nobody who is not;
//! - program and libraries are hashed through what the process itself has open and mapped;
//! - the worker's lock is free for the wait, so that a stop need not wait for it, and had again for
//!   the moment in which the identity is written: never after a stop was begun;
//! - `identity.json` is written last: a worker counts as started from then on.
//!
//! Never: signals, or gives up a worker that lives: at the end of the wait it is left as it is.

pub mod health;
mod loaded;

use crate::group::members;
use crate::identity::ProcessKey;
use crate::listeners::{Listener, Owners, conflicts, listeners, owners_of};
use crate::procfs::{Presence, Procfs, ProcfsError};
use crate::records::{
    Identity, Launched, LeftBehind, Order, Outcome, ReadyListener, RunExit, Stop, Timestamp,
};
use crate::runs::{Run, Runs, RunsError, WorkerLock};
use health::Health;
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;
use std::net::SocketAddr;
use std::time::Duration;

/// Where a worker is on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It lives, and nobody listens yet.
    Starting,
    /// It listens and loads, or does not answer well yet.
    Loading {
        /// What its health path says.
        health: Health,
    },
    /// It serves.
    Serving {
        /// On which socket.
        listener: ReadyListener,
        /// When it answered.
        at: Timestamp,
    },
}

/// Why a worker is not ready, and will not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// It ended.
    #[error(
        "it ended before it was ready: {outcome}{}",
        shown_left(outcome, left_behind)
    )]
    Ended {
        /// How.
        outcome: Outcome,
        /// What it left behind, which its keeper ends.
        left_behind: Vec<LeftBehind>,
    },
    /// It lives, and was not ready in time.
    #[error(
        "it was not ready within {timeout_s} s and is left running: {last}; `packhouse worker \
         start --execute` waits on, `packhouse worker stop --execute` ends it"
    )]
    Timeout {
        /// How long was waited.
        timeout_s: u64,
        /// What was seen last.
        last: String,
    },
    /// The user asked the wait to end.
    #[error(
        "the wait was ended, and it goes on loading: pid {pid}; `packhouse worker status` says how \
         far it is, `packhouse worker stop --execute` ends it"
    )]
    Interrupted {
        /// The engine's.
        pid: u32,
    },
    /// Another process answers where it should.
    #[error("{address} is held by {holders}, which is not this worker's")]
    Foreign {
        /// The socket.
        address: SocketAddr,
        /// Who holds it.
        holders: String,
    },
    /// Somebody asked for the stop of this worker.
    #[error("it was stopped while it was waited for")]
    Stopping,
    /// Processes can't be read.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
    /// Records can't be read or written.
    #[error(transparent)]
    Runs(#[from] RunsError),
}

impl NotReady {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Ended { .. } | Self::Timeout { .. } => Blame::Source,
            Self::Foreign { .. } | Self::Stopping | Self::Interrupted { .. } => Blame::Host,
            Self::Procfs(error) => error.blame(),
            Self::Runs(error) => error.blame(),
        }
    }
}

/// A launched run that is waited for.
pub struct Waiting<'a> {
    /// Processes.
    pub procfs: &'a Procfs,
    /// Time.
    pub clock: &'a dyn Clock,
    /// This process, for whoever wants the worker's lock.
    pub me: &'a ProcessKey,
    /// The worker.
    pub runs: &'a Runs,
    /// The run.
    pub run: &'a Run,
    /// Its order.
    pub order: &'a Order,
    /// Its processes.
    pub launched: &'a Launched,
    /// Whether the user asked the wait to end.
    pub cancel: &'a dyn Fn() -> bool,
}

impl Waiting<'_> {
    /// Waits until the worker serves, then records its identity. `tell` hears of each look, with
    /// the nanoseconds since the wait began.
    pub fn wait(&self, tell: &mut dyn FnMut(&Progress, u64)) -> Result<Identity, NotReady> {
        let begun_ns = self.clock.steady_ns();
        let timeout_ns = self.order.ready_timeout_s.saturating_mul(SECOND_NS);
        let mut pause_ns = PAUSE_MIN_NS;
        loop {
            let progress = self.look()?;
            let waited_ns = self.clock.steady_ns().saturating_sub(begun_ns);
            tell(&progress, waited_ns);
            let last = match progress {
                Progress::Serving { listener, at } => return self.identify(listener, at),
                Progress::Starting => "nobody listens on its port".to_owned(),
                Progress::Loading { health } => {
                    let order = self.order;
                    let url = health::url(order.host, order.port, &order.health_path);
                    format!("GET {url}: {health}")
                }
            };
            if (self.cancel)() {
                let pid = self.launched.worker.pid;
                return Err(NotReady::Interrupted { pid });
            }
            if waited_ns >= timeout_ns {
                return Err(NotReady::Timeout {
                    timeout_s: self.order.ready_timeout_s,
                    last,
                });
            }
            self.clock.sleep_ns(pause_ns.min(timeout_ns - waited_ns));
            pause_ns = (pause_ns * 2).min(PAUSE_MAX_NS);
        }
    }

    /// Looks once.
    pub fn look(&self) -> Result<Progress, NotReady> {
        self.still_lives()?;
        let (host, port) = (self.order.host, self.order.port);
        let found = listeners(self.procfs)?;
        let there = conflicts(&found, host, port);
        if there.is_empty() {
            return Ok(Progress::Starting);
        }
        let path = &self.order.health_path;
        let health = health::ask(host, port, path, ASK_TIMEOUT);
        if health != Health::Good {
            return Ok(Progress::Loading { health });
        }
        let at = Timestamp::now(&self.procfs.boot_id(), self.clock);
        // The socket is looked at again after it answered: one that was replaced meanwhile has
        // another inode, and is judged by its own holders.
        let found = listeners(self.procfs)?;
        let there = conflicts(&found, host, port);
        let Some(first) = there.first() else {
            return Ok(Progress::Starting);
        };
        for listener in &there {
            if !self.is_own(listener)? {
                return Ok(Progress::Starting);
            }
        }
        Ok(Progress::Serving {
            listener: ReadyListener {
                address: first.address.to_string(),
                inode: first.inode,
            },
            at,
        })
    }

    /// Whether a socket is held by the worker's processes and by no others. One that nobody holds
    /// any more proves nothing; one that others hold is an error.
    fn is_own(&self, listener: &Listener) -> Result<bool, NotReady> {
        let ownership = self.order.ownership(Some(self.launched));
        let ours = members(self.procfs, &ownership)?.ours;
        let owners = owners_of(self.procfs, listener.inode)?;
        let is_ours = |key: &ProcessKey| ours.iter().any(|member| member.key == *key);
        if !owners.known.is_empty() && owners.known.iter().all(is_ours) {
            return Ok(true);
        }
        // It was closed between the two looks, by the worker's end or by a stranger's.
        if owners == Owners::default() {
            self.still_lives()?;
            return Ok(false);
        }
        let strangers = owners.known.iter().filter(|key| !is_ours(key));
        let mut holders: Vec<String> = strangers.map(|key| format!("pid {}", key.pid)).collect();
        if holders.is_empty() {
            holders.push(format!("a process of user {}", listener.uid));
        }
        Err(NotReady::Foreign {
            address: listener.address,
            holders: holders.join(", "),
        })
    }

    /// Errors when the worker ended, or a stop of it was begun.
    fn still_lives(&self) -> Result<(), NotReady> {
        let is_alive = self.procfs.presence(&self.launched.worker)? == Presence::Alive;
        // Looked for after its process: a stop is on record before its first signal.
        if self.run.read::<Stop>()?.is_some() {
            return Err(NotReady::Stopping);
        }
        if is_alive {
            return Ok(());
        }
        // The keeper writes the end down right after it.
        let begun_ns = self.clock.steady_ns();
        loop {
            if let Some(exit) = self.run.read::<RunExit>()? {
                return Err(ended(Some(exit)));
            }
            let waited_ns = self.clock.steady_ns().saturating_sub(begun_ns);
            if !self.run.keeper_lives()? || waited_ns > EXIT_TIMEOUT_NS {
                // It may have written it just before it ended.
                return Err(ended(self.run.read::<RunExit>()?));
            }
            self.clock.sleep_ns(PAUSE_MIN_NS);
        }
    }

    /// Hashes what runs and records it.
    fn identify(&self, listener: ReadyListener, at: Timestamp) -> Result<Identity, NotReady> {
        let is_same_boot = at.boot == self.order.at.boot;
        let ready_after_ns =
            is_same_boot.then(|| at.steady_ns.saturating_sub(self.order.at.steady_ns));
        let Some(process) = self.procfs.process(self.launched.worker.pid)? else {
            self.still_lives()?;
            return Err(ended(None));
        };
        let (executable, libraries) = loaded::files(&process);
        let _turn = self.turn()?;
        // What was hashed is the worker's only if it is still there.
        self.still_lives()?;
        if let Some(identity) = self.run.read::<Identity>()? {
            // Another start waited for it too.
            return Ok(identity);
        }
        let identity = Identity {
            run: self.order.run,
            worker: self.launched.worker,
            command: self.order.command.clone(),
            inherit: self.order.inherit.clone(),
            executable,
            libraries,
            model: self.order.model.clone(),
            listener,
            ready_after_ns,
            at,
        };
        self.run.write(&identity)?;
        Ok(identity)
    }

    /// Takes the worker's lock for the moment of a record, unless a stop has it.
    fn turn(&self) -> Result<WorkerLock, NotReady> {
        let begun_ns = self.clock.steady_ns();
        loop {
            self.still_lives()?;
            match self.runs.lock(self.clock, self.me, PAUSE_MAX_NS) {
                Err(RunsError::Busy { .. })
                    if self.clock.steady_ns().saturating_sub(begun_ns) < TURN_TIMEOUT_NS => {}
                other => return Ok(other?),
            }
        }
    }
}

fn ended(exit: Option<RunExit>) -> NotReady {
    match exit {
        None => NotReady::Ended {
            outcome: Outcome::Unseen,
            left_behind: Vec::new(),
        },
        Some(exit) => NotReady::Ended {
            outcome: exit.outcome,
            left_behind: exit.left_behind,
        },
    }
}

fn shown_left(outcome: &Outcome, left: &[LeftBehind]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let names = left
        .iter()
        .map(|left| format!("pid {} ({})", left.key.pid, left.name));
    let names = names.collect::<Vec<_>>().join(", ");
    let rule = match outcome {
        Outcome::Code(0) => ": an engine must stay in the foreground",
        Outcome::Code(_) | Outcome::Signal(_) | Outcome::NotStarted { .. } | Outcome::Unseen => "",
    };
    format!("; it left {names} behind, which its keeper ends{rule}")
}

const SECOND_NS: u64 = 1_000_000_000;
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE_MIN_NS: u64 = 20_000_000;
const PAUSE_MAX_NS: u64 = 250_000_000;
/// How long another command may have the worker's lock; a stop says so before.
const TURN_TIMEOUT_NS: u64 = 60 * SECOND_NS;
/// How long the keeper of an engine that ended may take to write that down, on a busy disk.
const EXIT_TIMEOUT_NS: u64 = 20 * SECOND_NS;
