//! Stops a run: signals in steps, to what is proven to be the run's, until nothing of it lives and
//! what it held is free.
//!
//! Invariants:
//! - `stop.json` is durable before the first signal, and says again after each step what was sent:
//!   a stop that was cut short is continued, no step gets its time twice;
//! - a signal goes through a hold whose key was read after it was taken, so never to a stranger;
//! - a record that is damaged holds nothing up but the order: what the others and the processes
//!   themselves prove is stopped, and it is set aside where it must be written or all is over;
//! - what was proven to be the run's once stays so by its key, as descent can't be proven any more
//!   when a parent has ended; what is not proven is listed and left alone;
//! - `released.json` is written when no process of the run lives, its port is not held, and no
//!   device is known to keep its memory.
//!
//! Never: needs a fleet file, a model, an engine or a device to be there; signals by pid or name.
//! Design: `docs/design/workers.md`; records: `docs/format/workers.md`.

mod escalate;
mod given;
mod prove;

use crate::group::Unproven;
use crate::identity::ProcessKey;
use crate::pidfd::PidFdError;
use crate::procfs::{Procfs, ProcfsError};
use crate::records::{
    EndedProcess, Identity, Launched, Order, Outcome, Record as _, Released, ReleasedDevice,
    ReleasedMemory, ReleasedPort, RunExit, Step, Stop, StopMember, StopTimeouts, Timestamp,
};
use crate::release::{self, Readings};
use crate::runs::{Run, RunsError};
use escalate::Group;
pub use given::Damaged;
use given::Given;
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;

/// What a stop works with.
pub struct Scene<'a> {
    /// Processes.
    pub procfs: &'a Procfs,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Devices.
    pub readings: &'a dyn Readings,
    /// The host's available memory, for people.
    pub available_bytes: &'a (dyn Fn() -> Option<u64> + Sync),
}

/// How long things are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// After SIGINT to the main process.
    pub interrupt_ns: u64,
    /// After SIGTERM to all.
    pub terminate_ns: u64,
    /// After SIGKILL to all.
    pub kill_ns: u64,
    /// For a keeper to record what it is about to launch.
    pub launch_ns: u64,
    /// For a keeper to end after all others.
    pub keeper_ns: u64,
    /// For the memory of devices.
    pub release: release::Pace,
}

/// What a stop tells while it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A signal was sent.
    Signalled {
        /// Which.
        step: Step,
        /// To whom.
        member: StopMember,
    },
    /// A process has ended.
    Ended {
        /// Which.
        process: EndedProcess,
    },
    /// All processes are gone; memory of devices is waited for.
    Releasing,
}

/// What a stop would do, or has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The order.
    pub order: Order,
    /// A stop that was begun before.
    pub begun: Option<Stop>,
    /// The main process, while it lives.
    pub main: Option<StopMember>,
    /// Other processes that would be signalled.
    pub others: Vec<StopMember>,
    /// The keeper, which ends by itself after them.
    pub keeper: Option<StopMember>,
    /// Processes that are not proven to be the run's, and would be left alone.
    pub unproven: Vec<Unproven>,
    /// The proof that nothing is left, where it was given before.
    pub released: Option<Released>,
    /// Records that can't be read, which would be set aside.
    pub damaged: Vec<Damaged>,
}

/// What a stop came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Processes that ended.
    pub ended: Vec<EndedProcess>,
    /// Processes that are not proven to be the run's, and were left alone.
    pub unproven: Vec<Unproven>,
    /// How the engine ended.
    pub outcome: Option<Outcome>,
    /// Its port.
    pub port: ReleasedPort,
    /// Its devices.
    pub devices: Vec<ReleasedDevice>,
    /// Private memory of its processes before the first signal.
    pub private_bytes: Option<u64>,
    /// The host's available memory, before the first signal and now.
    pub available_bytes: (Option<u64>, Option<u64>),
    /// Whether it was proven that all was given back, now or before.
    pub is_released: bool,
    /// Whether there was nothing to do.
    pub was_over: bool,
    /// Records that could not be read, and were set aside.
    pub damaged: Vec<Damaged>,
}

/// Why a stop did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// The run's records can't be read or written.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// Processes can't be read.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
    /// The run's processes have no pids here, and are not proven gone.
    #[error("{key} is of another pid namespace and may live: it can only be stopped from there")]
    OtherNamespace {
        /// The recorded process.
        key: ProcessKey,
    },
    /// The folder is shared with another machine, and the run is of that one.
    #[error(
        "run {number} was started on another machine: it can only be stopped there; where that \
         machine is no more, remove {}", folder.display()
    )]
    OtherMachine {
        /// The run.
        number: u32,
        /// Its folder.
        folder: std::path::PathBuf,
    },
    /// Processes live on after SIGKILL, or could not be signalled.
    #[error("still alive after SIGKILL: {}", shown(members))]
    StillAlive {
        /// Which.
        members: Vec<StopMember>,
        /// Why those that could not be signalled were not.
        refused: Vec<PidFdError>,
    },
    /// A process is on record as the run's, lives, and is not proven to be.
    #[error(
        "on record as its process, and not proven to be: {}",
        doubted(processes)
    )]
    Doubted {
        /// Which.
        processes: Vec<Unproven>,
    },
    /// Its keeper neither ends nor says what it does.
    #[error("the keeper of the run lives, and did not end in time")]
    KeeperStays,
}

impl StopError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Runs(error) => error.blame(),
            Self::Procfs(error) => error.blame(),
            Self::Doubted { .. } => Blame::Store,
            Self::OtherNamespace { .. }
            | Self::OtherMachine { .. }
            | Self::StillAlive { .. }
            | Self::KeeperStays => Blame::Host,
        }
    }
}

impl Timeouts {
    /// The times of an order.
    pub fn of(timeouts: &StopTimeouts) -> Self {
        let ns = |seconds: u64| seconds.saturating_mul(1_000_000_000);
        Self {
            interrupt_ns: ns(timeouts.interrupt_s),
            terminate_ns: ns(timeouts.terminate_s),
            kill_ns: ns(timeouts.kill_s),
            launch_ns: ns(5),
            keeper_ns: ns(10),
            release: release::Pace::default(),
        }
    }

    pub(crate) fn of_step(&self, step: Step) -> u64 {
        match step {
            Step::Interrupt => self.interrupt_ns,
            Step::Terminate => self.terminate_ns,
            Step::Kill => self.kill_ns,
        }
    }
}

impl Stopped {
    /// Whether something is known to be held still.
    pub fn is_held(&self) -> bool {
        let held = |device: &ReleasedDevice| matches!(device.memory, ReleasedMemory::Held { .. });
        matches!(self.port, ReleasedPort::Taken { .. }) || self.devices.iter().any(held)
    }
}

/// Says what a stop of this run would do. Changes nothing.
pub fn preview(scene: &Scene<'_>, run: &Run) -> Result<Preview, StopError> {
    let order = run.order()?;
    is_of_this_machine(scene, run, &order)?;
    let launched = given::launched(run);
    let Given {
        begun,
        exit,
        released,
        damaged,
        mut group,
    } = given::all(scene, run, &order, launched)?;
    group.remember(begun.as_ref(), exit.as_ref())?;
    let live = group.look(&mut |_| {})?;
    let main = group.main();
    let (mains, others): (Vec<StopMember>, Vec<StopMember>) = live
        .into_iter()
        .partition(|member| Some(member.key) == main);
    Ok(Preview {
        begun,
        main: mains.into_iter().next(),
        others,
        keeper: group.keeper()?,
        unproven: group.unproven.clone(),
        released,
        damaged,
        order,
    })
}

/// Stops a run, and proves that nothing of it is left. The caller holds the worker's lock.
pub fn stop(
    scene: &Scene<'_>,
    run: &Run,
    me: &ProcessKey,
    timeouts: &Timeouts,
    progress: &mut dyn FnMut(Progress),
) -> Result<Stopped, StopError> {
    let order = run.order()?;
    is_of_this_machine(scene, run, &order)?;
    let launched = wait_launched(scene, run, timeouts)?;
    let Given {
        begun,
        exit,
        released: before,
        damaged,
        mut group,
    } = given::all(scene, run, &order, launched)?;
    group.remember(begun.as_ref(), exit.as_ref())?;
    let live = group.look(progress)?;
    let was_over = live.is_empty() && group.keeper()?.is_none() && group.doubted().is_empty();
    if was_over && let Some(released) = before {
        given::set_aside(run, &damaged, |_| true)?;
        return Ok(over_before(released, &group, exit, damaged));
    }
    // Whoever writes one of these finds no damaged one in its place; the keeper writes one too.
    let is_written = |file: &str| file != Launched::FILE && file != Identity::FILE;
    given::set_aside(run, &damaged, is_written)?;
    let before_bytes = (scene.available_bytes)();
    let mut record = begun;
    if !live.is_empty() {
        let mut begun = begin(scene, run, &order, me, live, record)?;
        escalate::end_all(scene, run, timeouts, &mut group, &mut begun, progress)?;
        record = Some(begun);
    }
    group.end_keeper(timeouts)?;
    // Whoever the keeper held back from us is its parent's child now, and looked for once more.
    let left = group.look(progress)?;
    if !left.is_empty() {
        let mut begun = begin(scene, run, &order, me, left, record)?;
        escalate::end_all(scene, run, timeouts, &mut group, &mut begun, progress)?;
        record = Some(begun);
    }
    let processes = group.doubted();
    if !processes.is_empty() {
        return Err(StopError::Doubted { processes });
    }
    given::set_aside(run, &damaged, |file| file == RunExit::FILE)?;
    let exit = prove::complete_exit(scene, run, &order, timeouts.keeper_ns)?;
    given::set_aside(run, &damaged, |_| true)?;
    progress(Progress::Releasing);
    let devices = prove::devices(scene, &order, record.as_ref(), &timeouts.release);
    let available_bytes = (scene.available_bytes)();
    let mut stopped = Stopped {
        ended: group.ended.clone(),
        unproven: group.unproven.clone(),
        outcome: Some(exit.outcome),
        port: prove::port(scene, &order),
        devices,
        private_bytes: record.as_ref().and_then(|record| record.private_bytes),
        available_bytes: (before_bytes, available_bytes),
        is_released: false,
        was_over,
        damaged,
    };
    if !stopped.is_held() {
        run.write(&released(scene, &order, me, &stopped))?;
        stopped.is_released = true;
    }
    Ok(stopped)
}

/// Errors on a run of another machine, unless it was proven there that nothing of it is left.
fn is_of_this_machine(scene: &Scene<'_>, run: &Run, order: &Order) -> Result<(), StopError> {
    if !order.is_of_another_machine(scene.procfs) || run.is_recorded_over()? {
        return Ok(());
    }
    Err(StopError::OtherMachine {
        number: run.number(),
        folder: run.dir().path().to_owned(),
    })
}

/// A keeper that lives and has not said what it launches yet is given a moment to say so.
fn wait_launched(
    scene: &Scene<'_>,
    run: &Run,
    timeouts: &Timeouts,
) -> Result<Result<Option<Launched>, RunsError>, StopError> {
    let deadline_ns = scene.clock.steady_ns().saturating_add(timeouts.launch_ns);
    loop {
        // The lock is asked first: a keeper that ends after it has written all that it will.
        let lives = run.keeper_lives()?;
        let launched = given::launched(run);
        let is_over = scene.clock.steady_ns() >= deadline_ns;
        if !matches!(launched, Ok(None)) || !lives || is_over {
            return Ok(launched);
        }
        scene.clock.sleep_ns(LAUNCH_PAUSE_NS);
    }
}

/// Makes the intent to stop durable, or adds to one that was begun before.
fn begin(
    scene: &Scene<'_>,
    run: &Run,
    order: &Order,
    me: &ProcessKey,
    live: Vec<StopMember>,
    begun: Option<Stop>,
) -> Result<Stop, StopError> {
    let record = match begun {
        None => Stop {
            run: order.run,
            begun: Timestamp::now(&scene.procfs.boot_id(), scene.clock),
            controller: *me,
            devices: prove::devices_before(scene, order, &live),
            private_bytes: prove::private_bytes(scene, &live),
            members: live,
            steps: Vec::new(),
        },
        Some(mut begun) => {
            begun.controller = *me;
            begun
        }
    };
    run.write(&record)?;
    Ok(record)
}

fn over_before(
    released: Released,
    group: &Group<'_>,
    exit: Option<RunExit>,
    damaged: Vec<Damaged>,
) -> Stopped {
    Stopped {
        ended: Vec::new(),
        unproven: group.unproven.clone(),
        outcome: exit.map(|exit| exit.outcome),
        port: released.port,
        devices: released.devices,
        private_bytes: released.private_bytes,
        available_bytes: (None, None),
        is_released: true,
        was_over: true,
        damaged,
    }
}

fn released(scene: &Scene<'_>, order: &Order, me: &ProcessKey, stopped: &Stopped) -> Released {
    Released {
        run: order.run,
        at: Timestamp::now(&scene.procfs.boot_id(), scene.clock),
        controller: *me,
        ended: stopped.ended.clone(),
        port: stopped.port.clone(),
        devices: stopped.devices.clone(),
        private_bytes: stopped.private_bytes,
        available_bytes: stopped.available_bytes.1,
    }
}

fn doubted(processes: &[Unproven]) -> String {
    let shown = |one: &Unproven| format!("pid {} ({})", one.key.pid, one.name);
    processes.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn shown(members: &[StopMember]) -> String {
    let shown = |member: &StopMember| format!("pid {} ({})", member.key.pid, member.name);
    members.iter().map(shown).collect::<Vec<_>>().join(", ")
}

const LAUNCH_PAUSE_NS: u64 = 10_000_000;
