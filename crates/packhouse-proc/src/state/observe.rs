//! Looks at one worker: its records, its processes, its port, its health path.
//!
//! Invariants:
//! - what can't be read is noted with its reason and is `Unknown` in the snapshot;
//! - two observations that exclude each other are made again before they are told;
//! - the health path is asked only where a process of the worker's listens.
//!
//! Never: changes anything; needs a fleet file, a model or an engine.

use super::{
    BootSeen, ControllerSeen, ExitSeen, HealthSeen, OthersSeen, Outcome, PortSeen, ProcessSeen,
    Reason, RecordsSeen, Snapshot, StopSeen, Verdict, judge,
};
use crate::group::{Members, members};
use crate::identity::ProcessKey;
use crate::listeners::{Listener, conflicts, listeners, owners_of};
use crate::procfs::{Presence, Procfs, ProcfsError};
use crate::records::{self, Identity, Launched, Order, Record, Released, RunExit, Stop};
use crate::runs::{Run, Runs, RunsError};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Where a worker should answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address that it binds.
    pub host: IpAddr,
    /// The port.
    pub port: u16,
    /// The path that answers when it is ready.
    pub health_path: String,
}

/// Asks a health path; tests bring their own answer.
pub type AskHealth<'a> = &'a dyn Fn(&Place) -> HealthSeen;

/// All that was seen of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The observations.
    pub snapshot: Snapshot,
    /// What they mean.
    pub verdict: Verdict,
    /// The number of the run that counts.
    pub number: Option<u32>,
    /// Its records, as far as they are there and can be read.
    pub records: RunRecords,
    /// Its processes, where the process table could be read.
    pub members: Option<Members>,
    /// Who listens where the worker should.
    pub listening: Vec<Listening>,
    /// What could not be observed, and why.
    pub faults: Vec<String>,
}

/// The records of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRecords {
    /// `order.json`.
    pub order: Option<Order>,
    /// `launched.json`.
    pub launched: Option<Launched>,
    /// `identity.json`.
    pub identity: Option<Identity>,
    /// `exit.json`.
    pub exit: Option<RunExit>,
    /// `stop.json`.
    pub stop: Option<Stop>,
    /// `released.json`.
    pub released: Option<Released>,
}

impl RunRecords {
    /// Whether they are of another machine, and do not say that nothing is left of the run.
    fn are_of_another_machine(&self, procfs: &Procfs) -> bool {
        let is_over = self.released.is_some() || self.exit.as_ref().is_some_and(RunExit::is_final);
        let order = self.order.as_ref();
        !is_over && order.is_some_and(|order| order.is_of_another_machine(procfs))
    }
}

/// A socket that listens where the worker should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The socket.
    pub listener: Listener,
    /// The processes that are seen to hold it.
    pub owners: Vec<ProcessKey>,
    /// Whether one of them is the worker's.
    pub is_ours: bool,
    /// Whether it has holders that can't be seen.
    pub is_hidden: bool,
}

/// Looks at a worker. `place` is where it should be by the fleet file; its own order counts more.
pub fn observe(
    procfs: &Procfs,
    runs: Option<&Runs>,
    place: Option<&Place>,
    ask_health: AskHealth<'_>,
) -> Observed {
    let mut observed = look(procfs, runs, place, ask_health);
    for _ in 1..LOOKS_MAX {
        if !is_doubtful(observed.verdict.reason) {
            break;
        }
        let before = std::mem::replace(&mut observed, look(procfs, runs, place, ask_health));
        if observed.verdict == before.verdict && observed.verdict.reason != Reason::Contradiction {
            break;
        }
    }
    observed
}

/// Whether a record that was written between two observations of one look would explain this.
fn is_doubtful(reason: Reason) -> bool {
    match reason {
        Reason::Contradiction
        | Reason::NoExitRecord
        | Reason::NothingLaunched
        | Reason::PidReused
        | Reason::ReleaseUnproven => true,
        Reason::NoRun
        | Reason::RecordUnreadable
        | Reason::BootUnknown
        | Reason::EarlierBoot
        | Reason::OtherMachine
        | Reason::BeforeLaunch
        | Reason::Loading
        | Reason::Identifying
        | Reason::NobodyWaits
        | Reason::Serving
        | Reason::PortClosed
        | Reason::HealthBad
        | Reason::HealthSilent
        | Reason::HealthNotAsked
        | Reason::PortUnknown
        | Reason::PortTaken
        | Reason::BeingStopped
        | Reason::StopCutShort
        | Reason::LeftBehindEnding
        | Reason::LeftBehind
        | Reason::KeeperFinishing
        | Reason::Ended
        | Reason::Released
        | Reason::MainUnknown
        | Reason::KeeperUnknown
        | Reason::GroupUnknown
        | Reason::ControllerUnknown => false,
    }
}

/// One look.
fn look(
    procfs: &Procfs,
    runs: Option<&Runs>,
    place: Option<&Place>,
    ask_health: AskHealth<'_>,
) -> Observed {
    let mut look = Look {
        procfs,
        faults: Vec::new(),
    };
    let run = match runs.map(Runs::newest) {
        None => Ok(None),
        Some(found) => found,
    };
    let run = look.told("the newest run", run);
    let controller = look.controller(runs);
    let (seen, records) = match &run {
        None => (RecordsSeen::Unreadable, RunRecords::default()),
        Some(None) => (RecordsSeen::NoRun, RunRecords::default()),
        Some(Some(run)) => look.records(run),
    };
    let run = run.flatten();
    let alive = look.processes(run.as_ref(), &records);
    let own_place = records.order.as_ref().map(place_of);
    let listening = own_place.as_ref().or(place).map(|place| {
        let own = alive.own();
        look.port(place, &own)
    });
    let port = match &listening {
        None => PortSeen::Free,
        Some(None) => PortSeen::Unknown,
        Some(Some(listening)) => port_of(listening),
    };
    let health = match (&own_place, port, alive.main) {
        (Some(place), PortSeen::Ours, ProcessSeen::Alive) => ask_health(place),
        (Some(_) | None, _, _) => HealthSeen::NotAsked,
    };
    let snapshot = Snapshot {
        records: seen,
        exit: records.exit.as_ref().map_or(ExitSeen::Unrecorded, exit_of),
        stop: match (&records.stop, &records.released) {
            (_, Some(_)) => StopSeen::Released,
            (Some(_), None) => StopSeen::Begun,
            (None, None) => StopSeen::NotBegun,
        },
        controller,
        boot: match &records.order {
            Some(_) if records.are_of_another_machine(procfs) => BootSeen::OtherMachine,
            Some(order) if order.at.boot != procfs.boot_id() => BootSeen::Earlier,
            Some(_) | None => BootSeen::Same,
        },
        keeper: alive.keeper,
        main: alive.main,
        others: alive.others,
        port,
        health,
    };
    Observed {
        snapshot,
        verdict: judge(&snapshot),
        number: run.as_ref().map(Run::number),
        records,
        members: alive.members,
        listening: listening.flatten().unwrap_or_default(),
        faults: look.faults,
    }
}

/// What is seen of a run's processes.
struct Alive {
    keeper: ProcessSeen,
    main: ProcessSeen,
    others: OthersSeen,
    members: Option<Members>,
}

impl Alive {
    fn nothing() -> Self {
        Self {
            keeper: ProcessSeen::Gone,
            main: ProcessSeen::Gone,
            others: OthersSeen::None,
            members: None,
        }
    }

    fn own(&self) -> BTreeSet<ProcessKey> {
        let members = self.members.iter();
        members
            .flat_map(|members| members.ours.iter().chain(&members.keeper))
            .map(|member| member.key)
            .collect()
    }
}

/// A look under way, with what went wrong in it.
struct Look<'a> {
    procfs: &'a Procfs,
    faults: Vec<String>,
}

impl Look<'_> {
    /// Asked before the records are read: who gives the lock back has written them before.
    fn controller(&mut self, runs: Option<&Runs>) -> ControllerSeen {
        match runs.map(|runs| self.told("the worker's lock", runs.is_locked())) {
            None | Some(Some(false)) => ControllerSeen::Idle,
            Some(Some(true)) => ControllerSeen::Working,
            Some(None) => ControllerSeen::Unknown,
        }
    }

    /// Passes on what could be had, and notes what not.
    fn told<T, E: std::fmt::Display>(&mut self, what: &str, found: Result<T, E>) -> Option<T> {
        found
            .map_err(|error| self.faults.push(format!("{what}: {error}")))
            .ok()
    }

    fn records(&mut self, run: &Run) -> (RecordsSeen, RunRecords) {
        let faults_before = self.faults.len();
        let order = self.told("the order", run.order());
        let records = RunRecords {
            order,
            // An end, and what a stop proved, are read before what is proven by looking later.
            exit: self.record(run),
            stop: self.record(run),
            released: self.record(run),
            launched: self.record(run),
            identity: self.record(run),
        };
        let seen = if self.faults.len() > faults_before {
            RecordsSeen::Unreadable
        } else if records.launched.is_none() {
            RecordsSeen::Ordered
        } else if records.identity.is_none() {
            RecordsSeen::Launched
        } else {
            RecordsSeen::Identified
        };
        (seen, records)
    }

    fn record<R: Record>(&mut self, run: &Run) -> Option<R> {
        let found: Result<Option<R>, RunsError> = run.read();
        self.told(R::FILE, found).flatten()
    }

    fn processes(&mut self, run: Option<&Run>, records: &RunRecords) -> Alive {
        let (Some(run), Some(order)) = (run, &records.order) else {
            return Alive::nothing();
        };
        if records.are_of_another_machine(self.procfs) {
            return self.unseen();
        }
        if order.at.boot != self.procfs.boot_id() {
            return Alive::nothing();
        }
        if order.controller.pid_namespace != self.procfs.pid_namespace() {
            return self.elsewhere(run);
        }
        let launched = records.launched.as_ref();
        let keeper = match launched {
            Some(launched) => self.presence("the keeper", &launched.keeper),
            None => match self.told("the keeper's lock", run.keeper_lives()) {
                Some(true) => ProcessSeen::Alive,
                Some(false) => ProcessSeen::Gone,
                None => ProcessSeen::Unknown,
            },
        };
        let main = launched.map(|launched| launched.worker);
        let main_seen = match &main {
            Some(main) => self.presence("the engine", main),
            None => ProcessSeen::Gone,
        };
        let found = members(self.procfs, &order.ownership(launched));
        let members = self.told("the processes", found);
        let doubted = members.iter().flat_map(|members| &members.unproven);
        let doubted: BTreeSet<ProcessKey> = doubted
            .filter(|unproven| unproven.is_on_record())
            .map(|unproven| unproven.key)
            .collect();
        let or_unknown = |key: Option<ProcessKey>, seen| match key {
            Some(key) if doubted.contains(&key) => ProcessSeen::Unknown,
            Some(_) | None => seen,
        };
        let keeper = or_unknown(launched.map(|launched| launched.keeper), keeper);
        let main_seen = or_unknown(main, main_seen);
        let others = match &members {
            None => OthersSeen::Unknown,
            Some(members) if members.ours.iter().all(|member| Some(member.key) == main) => {
                OthersSeen::None
            }
            Some(_) => OthersSeen::Some,
        };
        Alive {
            keeper,
            main: main_seen,
            others,
            members,
        }
    }

    /// A run of another machine: nothing of it can be seen.
    fn unseen(&mut self) -> Alive {
        let why = "its processes are on another machine, and are not proven gone";
        self.faults.push(why.to_owned());
        Alive {
            keeper: ProcessSeen::Unknown,
            main: ProcessSeen::Unknown,
            others: OthersSeen::Unknown,
            members: None,
        }
    }

    /// A run whose processes have no pids here: all that can be told is that it is over.
    fn elsewhere(&mut self, run: &Run) -> Alive {
        if self.told("who has the run", run.is_held()) == Some(Some(false)) {
            return Alive::nothing();
        }
        let why = "its processes are of another pid namespace, and are not proven gone";
        self.faults.push(why.to_owned());
        Alive {
            keeper: ProcessSeen::Unknown,
            main: ProcessSeen::Unknown,
            others: OthersSeen::Unknown,
            members: None,
        }
    }

    fn presence(&mut self, what: &str, key: &ProcessKey) -> ProcessSeen {
        match self.told(what, self.procfs.presence(key)) {
            Some(Presence::Alive) => ProcessSeen::Alive,
            Some(Presence::Gone | Presence::EarlierBoot) => ProcessSeen::Gone,
            Some(Presence::Reused { .. }) => ProcessSeen::Reused,
            Some(Presence::OtherNamespace) => {
                self.faults
                    .push(format!("{what}: {key} is of another pid namespace"));
                ProcessSeen::Unknown
            }
            None => ProcessSeen::Unknown,
        }
    }

    /// Who listens at a place; `None` when that can't be told.
    fn port(&mut self, place: &Place, own: &BTreeSet<ProcessKey>) -> Option<Vec<Listening>> {
        let found = listening_at(self.procfs, place, own);
        self.told("the listeners", found)
    }
}

/// Where a run's order put it.
pub fn place_of(order: &Order) -> Place {
    Place {
        host: order.host,
        port: order.port,
        health_path: order.health_path.clone(),
    }
}

/// Who listens at a place, and whether a process of `own` is among them.
pub fn listening_at(
    procfs: &Procfs,
    place: &Place,
    own: &BTreeSet<ProcessKey>,
) -> Result<Vec<Listening>, ProcfsError> {
    let all = listeners(procfs)?;
    let mut found = Vec::new();
    for listener in conflicts(&all, place.host, place.port) {
        let owners = owners_of(procfs, listener.inode)?;
        if owners.known.is_empty() && owners.unreadable_count == 0 {
            // It was closed meanwhile.
            continue;
        }
        let is_ours = owners.known.iter().any(|owner| own.contains(owner));
        found.push(Listening {
            listener: listener.clone(),
            is_hidden: owners.known.is_empty(),
            owners: owners.known,
            is_ours,
        });
    }
    found.sort_by(|one, other| one.listener.cmp(&other.listener));
    Ok(found)
}

/// What the sockets at a place mean; the worst counts.
pub fn port_of(listening: &[Listening]) -> PortSeen {
    let is_other = |seen: &Listening| !seen.is_ours && !seen.is_hidden;
    if listening.is_empty() {
        PortSeen::Free
    } else if listening.iter().any(is_other) {
        PortSeen::Other
    } else if listening.iter().any(|seen| seen.is_hidden) {
        PortSeen::Unattributed
    } else {
        PortSeen::Ours
    }
}

fn exit_of(exit: &RunExit) -> ExitSeen {
    ExitSeen::Known(match &exit.outcome {
        records::Outcome::Code(code) => Outcome::Code(*code),
        records::Outcome::Signal(signal) => Outcome::Signal(*signal),
        records::Outcome::NotStarted { .. } => Outcome::NotStarted,
        records::Outcome::Unseen => Outcome::Unknown,
    })
}

const LOOKS_MAX: u32 = 4;
