//! Launches a worker's next run: the order, then a detached keeper, then the record of who runs.
//!
//! Invariants:
//! - a run is launched only where the one before it is over, or is proven over and recorded so;
//! - the order is durable before the keeper is started, and the keeper records the engine before it
//!   lets it begin;
//! - a run whose keeper does not come is given up under its own lock, so that a keeper that comes
//!   later finds it over.
//!
//! Never: judges ports or devices, which the caller does under their locks; waits for readiness.
//! The order of steps, and what each crash leaves, is in `docs/format/workers.md`.

use crate::group::{Member, members};
use crate::identity::{AgedKey, KEEPER_VARIABLE, ProcessKey, RunId};
use crate::procfs::{Presence, Procfs, ProcfsError};
use crate::records::{
    Backend, Identity, Launched, LeftBehind, Order, Outcome, RunExit, Stop, Timestamp,
};
use crate::runs::{KEEPER_LOG, Run, Runs, RunsError, WorkerLock, open_or_create};
use crate::systemd::{KeeperCommand, Manager, SystemdError, Unit};
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Fs, FsError};
use packhouse_sys::spawn::spawn_detached;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a launch works with.
pub struct Launcher<'a> {
    /// The file system of the records.
    pub fs: &'a dyn Fs,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Processes.
    pub procfs: &'a Procfs,
    /// This program: what a keeper is started from.
    pub program: &'a Path,
}

/// What a worker's newest run is to a start.
#[derive(Debug)]
pub enum Before {
    /// None, or one that is over: a new run may be launched.
    Free,
    /// One that was launched and whose identity was never recorded: its wait goes on.
    Unfinished(Box<Underway>),
}

/// A run that was launched.
#[derive(Debug)]
pub struct Underway {
    /// The run.
    pub run: Run,
    /// Its order.
    pub order: Order,
    /// Its processes.
    pub launched: Launched,
}

/// Why a worker's next run was not launched.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The worker runs.
    #[error(
        "it runs already: {worker}, started as run {number}; `packhouse worker status` says how it \
         is, `packhouse worker stop --execute` ends it"
    )]
    Runs {
        /// Its process.
        worker: AgedKey,
        /// Its run.
        number: u32,
    },
    /// A keeper of a start before is on its way, and does not get on.
    #[error("run {number} is being launched by a keeper that does not get on")]
    Launching {
        /// The run.
        number: u32,
    },
    /// It is being stopped.
    #[error(
        "run {number} is being stopped, and not all of it is gone: `packhouse worker stop \
         --execute` goes on with it"
    )]
    Stopping {
        /// The run.
        number: u32,
    },
    /// The engine is gone, and processes that it started are not.
    #[error("run {number} left processes behind: {processes}")]
    LeftBehind {
        /// The run.
        number: u32,
        /// Which.
        processes: String,
    },
    /// The run before was recorded where its processes can't be seen.
    #[error("run {number} is of another pid namespace: whether it lives can't be told here")]
    OtherNamespace {
        /// The run.
        number: u32,
    },
    /// The folder is shared with another machine, and the run before is of that one.
    #[error(
        "run {number} was started on another machine, and whether it lives can't be told here: \
         stop it there; where that machine is no more, remove {}", folder.display()
    )]
    OtherMachine {
        /// The run.
        number: u32,
        /// Its folder.
        folder: PathBuf,
    },
    /// The engine did not begin.
    #[error("the engine never ran: {why}")]
    NotStarted {
        /// Why.
        why: String,
    },
    /// The keeper did not come, or ended before the engine began.
    #[error("the keeper ended without a record; {} says more", log.display())]
    NoKeeper {
        /// Its own log.
        log: PathBuf,
    },
    /// The keeper could not be started.
    #[error("cannot start the keeper: {0}")]
    Keeper(io::Error),
    /// The unit could not be started.
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    /// Processes can't be read.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
    /// Records can't be read or written.
    #[error(transparent)]
    Records(#[from] RunsError),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl LaunchError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Runs { .. }
            | Self::Launching { .. }
            | Self::Stopping { .. }
            | Self::LeftBehind { .. }
            | Self::OtherNamespace { .. }
            | Self::OtherMachine { .. } => Blame::Caller,
            Self::NotStarted { .. } => Blame::Source,
            Self::NoKeeper { .. } | Self::Keeper(_) => Blame::Host,
            Self::Systemd(error) => error.blame(),
            Self::Procfs(error) => error.blame(),
            Self::Records(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

impl Launcher<'_> {
    /// What the newest run is. Records the end of one that is over and was not seen to end. The
    /// caller holds the worker's lock.
    pub fn before(&self, runs: &Runs, _lock: &WorkerLock) -> Result<Before, LaunchError> {
        let Some(run) = runs.newest()? else {
            return Ok(Before::Free);
        };
        let order = run.order()?;
        self.is_of_this_machine(&run, &order)?;
        if order.at.boot != self.procfs.boot_id() {
            // Nothing survives a boot.
            if let Some(_claim) = run.claim(self.clock, 0)? {
                self.record_unseen(&run, &order)?;
            }
            return Ok(Before::Free);
        }
        if order.controller.pid_namespace != self.procfs.pid_namespace() {
            return self.elsewhere(&run, &order);
        }
        self.settle_launch(&run, &order)?;
        let launched: Option<Launched> = run.read()?;
        if let Some(launched) = &launched {
            self.settle_gate(&run, launched)?;
        }
        if let Some(launched) = launched
            && self.procfs.presence(&launched.worker)? == Presence::Alive
        {
            return self.living(run, order, launched);
        }
        self.settle_end(&run, &order)?;
        Ok(Before::Free)
    }

    /// What the newest run is to a start, without waiting for or writing anything.
    pub fn look(&self, runs: &Runs) -> Result<Before, LaunchError> {
        let Some(run) = runs.newest()? else {
            return Ok(Before::Free);
        };
        let (order, number) = (run.order()?, run.number());
        self.is_of_this_machine(&run, &order)?;
        if order.at.boot != self.procfs.boot_id() {
            return Ok(Before::Free);
        }
        if order.controller.pid_namespace != self.procfs.pid_namespace() {
            return match run.is_held()? {
                Some(false) => Ok(Before::Free),
                Some(true) | None => Err(LaunchError::OtherNamespace { number }),
            };
        }
        let launched: Option<Launched> = run.read()?;
        match launched {
            Some(launched) if self.procfs.presence(&launched.worker)? == Presence::Alive => {
                return self.living(run, order, launched);
            }
            None if run.keeper_lives()? => return Err(LaunchError::Launching { number }),
            Some(_) | None => {}
        }
        self.nothing_left(&run, &order)?;
        Ok(Before::Free)
    }

    /// Errors on a run of another machine, unless it was proven there that nothing of it is left.
    fn is_of_this_machine(&self, run: &Run, order: &Order) -> Result<(), LaunchError> {
        if !order.is_of_another_machine(self.procfs) || run.is_recorded_over()? {
            return Ok(());
        }
        Err(LaunchError::OtherMachine {
            number: run.number(),
            folder: run.dir().path().to_owned(),
        })
    }

    /// Judges a run of another pid namespace, as of a container that is gone: it is over when no
    /// process of any namespace has it.
    fn elsewhere(&self, run: &Run, order: &Order) -> Result<Before, LaunchError> {
        let number = run.number();
        let claim = run.claim(self.clock, 0)?;
        let _claim = claim.ok_or(LaunchError::OtherNamespace { number })?;
        match run.has_writer()? {
            Some(false) => {}
            Some(true) | None => return Err(LaunchError::OtherNamespace { number }),
        }
        if run.read::<RunExit>()?.is_none() {
            let outcome = unseen(run.read()?.as_ref());
            self.record_end(run, order, outcome, Vec::new())?;
        }
        Ok(Before::Free)
    }

    /// Judges a run whose engine lives.
    fn living(&self, run: Run, order: Order, launched: Launched) -> Result<Before, LaunchError> {
        let number = run.number();
        if run.read::<Stop>()?.is_some() {
            return Err(LaunchError::Stopping { number });
        }
        if run.read::<Identity>()?.is_some() {
            let worker = self.procfs.aged(launched.worker);
            return Err(LaunchError::Runs { worker, number });
        }
        Ok(Before::Unfinished(Box::new(Underway {
            run,
            order,
            launched,
        })))
    }

    /// Waits until a run is launched or will never be: a start that was ended may have left a
    /// keeper on its way.
    fn settle_launch(&self, run: &Run, order: &Order) -> Result<(), LaunchError> {
        let begun_ns = self.clock.steady_ns();
        loop {
            if run.read::<Launched>()?.is_some() || run.read::<RunExit>()?.is_some() {
                return Ok(());
            }
            if let Some(_claim) = run.claim(self.clock, 0)? {
                return self.record_unseen(run, order);
            }
            if self.clock.steady_ns().saturating_sub(begun_ns) > KEEPER_TIMEOUT_NS {
                let number = run.number();
                return Err(LaunchError::Launching { number });
            }
            self.clock.sleep_ns(PAUSE_NS);
        }
    }

    /// Waits for a gate whose keeper was killed before it gave leave: it ends by itself. One that
    /// had leave becomes the engine.
    fn settle_gate(&self, run: &Run, launched: &Launched) -> Result<(), LaunchError> {
        let begun_ns = self.clock.steady_ns();
        let waited_ns = || self.clock.steady_ns().saturating_sub(begun_ns);
        while self.is_gate(&launched.worker)?
            && !run.keeper_lives()?
            && waited_ns() < GATE_TIMEOUT_NS
        {
            self.clock.sleep_ns(PAUSE_NS);
        }
        Ok(())
    }

    fn is_gate(&self, key: &ProcessKey) -> Result<bool, LaunchError> {
        let process = self.procfs.process(key.pid)?;
        let process = process.filter(|process| process.key == *key);
        // A process without words is about to become another program.
        let command = process.and_then(|process| process.command().ok());
        Ok(command.is_some_and(|command| {
            let words = command.get(..2);
            words.is_some_and(|words| words[0] == "packhouse" && words[1] == "gate")
        }))
    }

    /// Waits until a run whose engine is gone is over, and records it where nobody did. Errors when
    /// something of it lives.
    fn settle_end(&self, run: &Run, order: &Order) -> Result<(), LaunchError> {
        let number = run.number();
        // A keeper that still ends what its engine left behind is waited for.
        let timeouts = &order.stop_timeouts;
        let keeper_s = timeouts.terminate_s.saturating_add(timeouts.kill_s);
        let keeper_ns = keeper_s.saturating_add(1).saturating_mul(SECOND_NS);
        let claim = run.claim(self.clock, keeper_ns)?;
        let _claim = claim.ok_or(LaunchError::Stopping { number })?;
        self.record_unseen(run, order)?;
        self.nothing_left(run, order)
    }

    /// Errors with what lives of a run whose engine is gone.
    fn nothing_left(&self, run: &Run, order: &Order) -> Result<(), LaunchError> {
        let left = self.left(run, order)?;
        if left.is_empty() {
            return Ok(());
        }
        let (left, number) = (left.iter(), run.number());
        let names = left.map(|member| format!("pid {} ({})", member.key.pid, member.name));
        Err(LaunchError::LeftBehind {
            number,
            processes: names.collect::<Vec<_>>().join(", "),
        })
    }

    /// What lives of a run, its keeper apart.
    fn left(&self, run: &Run, order: &Order) -> Result<Vec<Member>, LaunchError> {
        let launched: Option<Launched> = run.read()?;
        Ok(members(self.procfs, &order.ownership(launched.as_ref()))?.ours)
    }

    /// Makes the next run and starts its engine. Returns once it is on record and has begun. The
    /// caller holds the worker's lock and the locks of its devices.
    pub fn launch(
        &self,
        runs: &Runs,
        lock: &WorkerLock,
        order: &Order,
    ) -> Result<Underway, LaunchError> {
        let run = runs.create(lock, order)?;
        let started = match order.backend {
            Backend::Plain => self.spawn_plain(&run).map(Some),
            Backend::Systemd => self.spawn_unit(&run, order).map(|()| None),
        };
        let life = match started {
            Ok(life) => life,
            Err(error) => {
                self.give_up(&run, order, &error.to_string())?;
                return Err(error);
            }
        };
        let launched = self.await_launch(&run, order, life.as_ref())?;
        Ok(Underway {
            run,
            order: order.clone(),
            launched,
        })
    }

    /// A run id that nobody has.
    pub fn new_run_id(&self) -> Result<RunId, LaunchError> {
        let mut bytes = [0; 16];
        self.fs.random(&mut bytes)?;
        Ok(RunId::new(bytes))
    }

    /// Answers a pipe that ends when the keeper does: it has the other end, and gives it to nobody.
    fn spawn_plain(&self, run: &Run) -> Result<io::PipeReader, LaunchError> {
        let (life, held) = io::pipe().map_err(LaunchError::Keeper)?;
        let log = open_or_create(run.dir(), KEEPER_LOG)?;
        let log = append_to(log.as_fd()).map_err(LaunchError::Keeper)?;
        let mut command = Command::new(self.program);
        command
            .arg0("packhouse")
            .arg("keep")
            .arg(run.dir().path())
            .env_clear()
            .env(KEEPER_VARIABLE, run.dir().path())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::from(held))
            .stderr(Stdio::from(log));
        spawn_detached(&mut command).map_err(LaunchError::Keeper)?;
        Ok(life)
    }

    fn spawn_unit(&self, run: &Run, order: &Order) -> Result<(), LaunchError> {
        let timeouts = &order.stop_timeouts;
        let whole_s = [timeouts.interrupt_s, timeouts.terminate_s, timeouts.kill_s];
        let keeper = KeeperCommand {
            program: self.program,
            folder: run.dir().path(),
        };
        let stop_timeout_s = whole_s
            .iter()
            .fold(10, |sum: u64, part| sum.saturating_add(*part));
        let unit = Unit::new(
            &order.fleet,
            &order.worker,
            &order.run,
            &keeper,
            stop_timeout_s,
        )?;
        Ok(Manager::default().start(&unit)?)
    }

    /// Waits for the keeper's record.
    fn await_launch(
        &self,
        run: &Run,
        order: &Order,
        life: Option<&io::PipeReader>,
    ) -> Result<Launched, LaunchError> {
        let begun_ns = self.clock.steady_ns();
        let mut was_there = false;
        loop {
            // Asked before the records are read: a keeper that is gone has written all it will.
            let is_gone = life.is_some_and(has_ended);
            let is_there = run.keeper_lives()?;
            if let Some(exit) = run.read::<RunExit>()?
                && let Outcome::NotStarted { why } = exit.outcome
            {
                return Err(LaunchError::NotStarted { why });
            }
            if let Some(launched) = run.read::<Launched>()? {
                return Ok(launched);
            }
            let waited_ns = self.clock.steady_ns().saturating_sub(begun_ns);
            let is_late = !is_there && waited_ns > KEEPER_TIMEOUT_NS;
            if is_gone || (was_there && !is_there) || is_late {
                self.give_up(run, order, "its keeper ended before it launched anything")?;
                if let Some(launched) = run.read::<Launched>()? {
                    return Ok(launched);
                }
                return Err(LaunchError::NoKeeper {
                    log: run.dir().path().join(KEEPER_LOG),
                });
            }
            // The locks of its devices are others' to have, whatever holds the keeper up.
            if waited_ns > LAUNCH_TIMEOUT_NS {
                let number = run.number();
                return Err(LaunchError::Launching { number });
            }
            was_there |= is_there;
            self.clock.sleep_ns(PAUSE_NS);
        }
    }

    /// Records that a run will not be launched, if no keeper has it by now.
    fn give_up(&self, run: &Run, order: &Order, why: &str) -> Result<(), LaunchError> {
        let Some(_claim) = run.claim(self.clock, SECOND_NS)? else {
            return Ok(());
        };
        if run.read::<Launched>()?.is_some() || run.read::<RunExit>()?.is_some() {
            return Ok(());
        }
        self.record_end(
            run,
            order,
            Outcome::NotStarted { why: why.into() },
            Vec::new(),
        )
    }

    /// Records the end of a run that nobody saw. The caller has its claim, so no keeper lives.
    fn record_unseen(&self, run: &Run, order: &Order) -> Result<(), LaunchError> {
        // What it left may be there though its end is on record.
        self.await_left(run, order)?;
        if run.read::<RunExit>()?.is_some() {
            return Ok(());
        }
        let launched: Option<Launched> = run.read()?;
        let left = self.left(run, order)?.into_iter().map(|member| LeftBehind {
            key: member.key,
            name: member.name,
            is_gone: false,
        });
        let outcome = unseen(launched.as_ref());
        self.record_end(run, order, outcome, left.collect())
    }

    /// Waits a while for what lives of a run without a keeper: many a child without parent ends by
    /// itself. Where nothing was launched it is a gate, which always does.
    fn await_left(&self, run: &Run, order: &Order) -> Result<(), LaunchError> {
        let timeout_ns = match run.read::<Launched>()? {
            Some(_) => LEFT_TIMEOUT_NS,
            None => GATE_TIMEOUT_NS,
        };
        let begun_ns = self.clock.steady_ns();
        let waited_ns = || self.clock.steady_ns().saturating_sub(begun_ns);
        while !self.left(run, order)?.is_empty() && waited_ns() < timeout_ns {
            self.clock.sleep_ns(PAUSE_NS);
        }
        Ok(())
    }

    fn record_end(
        &self,
        run: &Run,
        order: &Order,
        outcome: Outcome,
        left_behind: Vec<LeftBehind>,
    ) -> Result<(), LaunchError> {
        Ok(run.write(&RunExit {
            run: order.run,
            outcome,
            at: Timestamp::now(&self.procfs.boot_id(), self.clock),
            left_behind,
            log_freed_bytes: 0,
        })?)
    }
}

/// How a run ended that nobody saw end.
fn unseen(launched: Option<&Launched>) -> Outcome {
    match launched {
        Some(_) => Outcome::Unseen,
        None => Outcome::NotStarted {
            why: "its start was ended before it launched anything".to_owned(),
        },
    }
}

/// Whether nobody has the other end of a pipe any more.
fn has_ended(life: &io::PipeReader) -> bool {
    let mut polled = [PollFd::new(life, PollFlags::IN)];
    // What can't be asked is not known to have ended.
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().contains(PollFlags::HUP)
}

/// A descriptor of a log for a process that appends to it.
fn append_to(fd: Option<std::os::fd::BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let fd = fd.ok_or_else(|| io::Error::other("a simulated file has no descriptor"))?;
    rustix::fs::fcntl_setfl(fd, OFlags::APPEND)?;
    fd.try_clone_to_owned()
}

const SECOND_NS: u64 = 1_000_000_000;
/// How long a keeper may take to get its lock; a loaded machine needs some of it.
const KEEPER_TIMEOUT_NS: u64 = 20 * SECOND_NS;
/// How long a keeper that has its lock may take to launch an engine.
const LAUNCH_TIMEOUT_NS: u64 = 60 * SECOND_NS;
/// How long what is on its way out may take.
const LEFT_TIMEOUT_NS: u64 = 2 * SECOND_NS;
/// How long a gate without a keeper may take to see that it has none; a loaded machine needs some
/// of it.
const GATE_TIMEOUT_NS: u64 = 20 * SECOND_NS;
const PAUSE_NS: u64 = 5_000_000;
