//! What state a worker is in: a pure function of what was observed.
//!
//! Invariants:
//! - `judge` has no input but the snapshot, and answers every snapshot;
//! - what could not be observed makes `unverifiable`, never `absent`, `exited` or `stale`;
//! - while a process of the worker's may live, no state says that it is over;
//! - `ready` needs all of: identity recorded, process proven, port its own, health good.
//!
//! Never: looks at the system (`state::observe` does), decides what to do about it. The states and
//! what each proves are described in `docs/design/workers.md`.

pub mod observe;

use std::fmt;

/// What was observed of one worker, each thing by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Snapshot {
    /// How far the newest run's records go.
    pub records: RecordsSeen,
    /// How the main process ended, by the keeper's record.
    pub exit: ExitSeen,
    /// Whether a stop was begun or proven.
    pub stop: StopSeen,
    /// Whether another command works on this worker now.
    pub controller: ControllerSeen,
    /// Whether the records are of this boot.
    pub boot: BootSeen,
    /// The keeper.
    pub keeper: ProcessSeen,
    /// The main process: the engine.
    pub main: ProcessSeen,
    /// Other processes that are proven to be the worker's.
    pub others: OthersSeen,
    /// Who listens where the worker should.
    pub port: PortSeen,
    /// What the health path answered.
    pub health: HealthSeen,
}

/// How far a run's records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordsSeen {
    /// There is no run.
    NoRun,
    /// A record that is there can't be read or parsed.
    Unreadable,
    /// `order.json`: a start was begun.
    Ordered,
    /// `launched.json` too: keeper and worker are named.
    Launched,
    /// `identity.json` too: the worker counts as started.
    Identified,
}

/// How a main process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// The engine never ran.
    NotStarted,
    /// It ended, and nobody was there to learn how.
    Unknown,
}

/// What the keeper recorded of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitSeen {
    /// No `exit.json`.
    Unrecorded,
    /// It says this.
    Known(Outcome),
}

/// What is recorded of stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopSeen {
    /// Nobody began to stop this run.
    NotBegun,
    /// `stop.json`: signals may have been sent.
    Begun,
    /// `released.json`: everything was proven gone.
    Released,
}

/// Whether another command holds the worker's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerSeen {
    /// Nobody does.
    Idle,
    /// A start or a stop is at work.
    Working,
    /// The lock could not be asked.
    Unknown,
}

/// Whether the records are of this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BootSeen {
    /// They are.
    Same,
    /// The host was started again since.
    Earlier,
    /// They are of another machine, which shares the folder.
    OtherMachine,
    /// The boot id could not be read.
    Unknown,
}

/// What became of a recorded process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessSeen {
    /// It lives: boot, pid namespace, pid and start time are as recorded.
    Alive,
    /// No process has that pid, or only a zombie.
    Gone,
    /// Another process has that pid.
    Reused,
    /// It could not be looked at.
    Unknown,
}

/// Whether more processes live that are proven to be the worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OthersSeen {
    /// None.
    None,
    /// One or more.
    Some,
    /// The process table could not be read.
    Unknown,
}

/// Who listens where the worker should, on any interface that it would bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortSeen {
    /// Nobody.
    Free,
    /// The worker.
    Ours,
    /// A process that is not the worker's.
    Other,
    /// Somebody whose process can't be seen.
    Unattributed,
    /// The listeners could not be read.
    Unknown,
}

/// What the health path answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthSeen {
    /// It was not asked, because nobody of ours listens or lives.
    NotAsked,
    /// Well.
    Good,
    /// An answer, but not a good one.
    Bad,
    /// No answer in time.
    Silent,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It was never started, as far as records go.
    Absent,
    /// A start is under way, or was cut short while its process lives.
    Starting,
    /// It answers, and is proven to be what was started.
    Ready,
    /// It lives, and does not serve.
    Unhealthy,
    /// It is being ended.
    Stopping,
    /// It ended so.
    Exited(Outcome),
    /// Records without a process and without its end.
    Stale,
    /// Something else has its pid or port.
    Foreign,
    /// What is there can't be told.
    Unverifiable,
}

/// Why a worker is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No run is recorded.
    NoRun,
    /// A record can't be read.
    RecordUnreadable,
    /// The boot id can't be read.
    BootUnknown,
    /// The records are of an earlier boot.
    EarlierBoot,
    /// The records are of another machine.
    OtherMachine,
    /// A start is before the launch.
    BeforeLaunch,
    /// A start was cut short before it launched anything.
    NothingLaunched,
    /// The engine loads.
    Loading,
    /// The engine answers; its identity is being recorded.
    Identifying,
    /// The start was cut short or its time was up: nobody waits for the engine.
    NobodyWaits,
    /// All is well.
    Serving,
    /// Nobody listens on its port.
    PortClosed,
    /// Its health path gives a bad answer.
    HealthBad,
    /// Its health path gives no answer.
    HealthSilent,
    /// The health path was not asked.
    HealthNotAsked,
    /// Who listens on its port can't be told.
    PortUnknown,
    /// Something else listens on its port.
    PortTaken,
    /// Something else has its pid.
    PidReused,
    /// A stop is at work.
    BeingStopped,
    /// A stop was cut short while processes lived.
    StopCutShort,
    /// The main process has ended; what it left is being ended.
    LeftBehindEnding,
    /// The main process has ended, and others of the run live on.
    LeftBehind,
    /// The keeper is about to end.
    KeeperFinishing,
    /// It ended by itself.
    Ended,
    /// It is over, and all was proven to be given back.
    Released,
    /// It ended, and a stop was cut short before it proved that all was given back.
    ReleaseUnproven,
    /// It ended without a record of its end.
    NoExitRecord,
    /// The main process can't be looked at.
    MainUnknown,
    /// The keeper can't be looked at.
    KeeperUnknown,
    /// Whether others of the run live can't be told.
    GroupUnknown,
    /// Whether a start is at work can't be told.
    ControllerUnknown,
    /// Two observations exclude each other: something changed between them.
    Contradiction,
}

/// A state with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verdict {
    /// The state.
    pub state: State,
    /// Why.
    pub reason: Reason,
}

impl Verdict {
    fn of(state: State, reason: Reason) -> Self {
        Self { state, reason }
    }

    /// The reason in words for people, with what the state adds to it.
    pub fn sentence(&self) -> String {
        match (self.state, self.reason) {
            (State::Exited(Outcome::Signal(signal)), Reason::Ended) => {
                format!("ended by signal {signal}, which no stop sent")
            }
            (State::Exited(Outcome::NotStarted), Reason::Ended) => "the engine never ran".into(),
            (State::Exited(Outcome::Unknown), Reason::Ended) => "ended, and nobody saw how".into(),
            (_, reason) => reason.sentence().to_owned(),
        }
    }
}

impl State {
    /// The one word for it in tables and documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Unhealthy => "unhealthy",
            Self::Stopping => "stopping",
            Self::Exited(_) => "exited",
            Self::Stale => "stale",
            Self::Foreign => "foreign",
            Self::Unverifiable => "unverifiable",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(outcome) => write!(f, "exited({outcome})"),
            Self::Absent
            | Self::Starting
            | Self::Ready
            | Self::Unhealthy
            | Self::Stopping
            | Self::Stale
            | Self::Foreign
            | Self::Unverifiable => f.write_str(self.word()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::NotStarted => f.write_str("never ran"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl Reason {
    /// The name of it in documents.
    pub fn word(self) -> &'static str {
        self.words().0
    }

    /// The words of it for people.
    pub fn sentence(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::NoRun => ("no_run", "never started"),
            Self::RecordUnreadable => ("record_unreadable", "a record can't be read"),
            Self::BootUnknown => ("boot_unknown", "the boot id can't be read"),
            Self::EarlierBoot => ("earlier_boot", "the host was started again since"),
            Self::OtherMachine => ("other_machine", "it was started on another machine"),
            Self::BeforeLaunch => ("before_launch", "nothing is launched yet"),
            Self::NothingLaunched => ("nothing_launched", "a start ended before the launch"),
            Self::Loading => ("loading", "the engine loads"),
            Self::Identifying => ("identifying", "its identity is being recorded"),
            Self::NobodyWaits => ("nobody_waits", "no start waits for it"),
            Self::Serving => ("serving", "health is good"),
            Self::PortClosed => ("port_closed", "nobody listens on its port"),
            Self::HealthBad => ("health_bad", "its health path gives a bad answer"),
            Self::HealthSilent => ("health_silent", "its health path gives no answer"),
            Self::HealthNotAsked => ("health_not_asked", "its health path was not asked"),
            Self::PortUnknown => ("port_unknown", "who listens on its port can't be told"),
            Self::PortTaken => ("port_taken", "something else listens on its port"),
            Self::PidReused => ("pid_reused", "another process has its pid"),
            Self::BeingStopped => ("being_stopped", "a stop is at work"),
            Self::StopCutShort => ("stop_cut_short", "a stop was cut short; stop resumes it"),
            Self::LeftBehindEnding => ("left_behind_ending", "what the engine left is being ended"),
            Self::LeftBehind => (
                "left_behind",
                "the engine ended, and processes of it live on",
            ),
            Self::KeeperFinishing => ("keeper_finishing", "the engine ended; its keeper will"),
            Self::Ended => ("ended", "ended by itself"),
            Self::Released => ("released", "over, and all was given back"),
            Self::ReleaseUnproven => (
                "release_unproven",
                "over; that all was given back is unproven",
            ),
            Self::NoExitRecord => ("no_exit_record", "ended, and nobody recorded how"),
            Self::MainUnknown => ("main_unknown", "its process can't be looked at"),
            Self::KeeperUnknown => ("keeper_unknown", "its keeper can't be looked at"),
            Self::GroupUnknown => ("group_unknown", "the process table can't be read"),
            Self::ControllerUnknown => ("controller_unknown", "its lock can't be asked"),
            Self::Contradiction => ("contradiction", "it changed while it was looked at"),
        }
    }
}

/// Judges a snapshot.
pub fn judge(seen: &Snapshot) -> Verdict {
    match seen.records {
        RecordsSeen::NoRun => unowned(seen, State::Absent, Reason::NoRun),
        RecordsSeen::Unreadable => unverifiable(Reason::RecordUnreadable),
        RecordsSeen::Ordered | RecordsSeen::Launched | RecordsSeen::Identified => match seen.boot {
            BootSeen::Unknown => unverifiable(Reason::BootUnknown),
            BootSeen::OtherMachine => unverifiable(Reason::OtherMachine),
            BootSeen::Earlier => earlier(seen),
            BootSeen::Same => now(seen),
        },
    }
}

/// A run of this boot.
fn now(seen: &Snapshot) -> Verdict {
    if seen.records == RecordsSeen::Ordered {
        return ordered(seen);
    }
    match (seen.main, seen.exit) {
        (ProcessSeen::Unknown, ExitSeen::Unrecorded) => unverifiable(Reason::MainUnknown),
        (ProcessSeen::Alive, ExitSeen::Known(_)) => unverifiable(Reason::Contradiction),
        (ProcessSeen::Alive, ExitSeen::Unrecorded) => alive(seen),
        // Its keeper waited for it: whoever has the pid now is hidden, and another one.
        (ProcessSeen::Unknown, ExitSeen::Known(_))
        | (ProcessSeen::Gone | ProcessSeen::Reused, _) => gone(seen),
    }
}

/// A run of an earlier boot: nothing of it can live.
fn earlier(seen: &Snapshot) -> Verdict {
    let main_lives = seen.records != RecordsSeen::Ordered && seen.main == ProcessSeen::Alive;
    if main_lives || seen.keeper == ProcessSeen::Alive || seen.others == OthersSeen::Some {
        return unverifiable(Reason::Contradiction);
    }
    over(seen, Reason::EarlierBoot)
}

/// The main process is proven to live.
fn alive(seen: &Snapshot) -> Verdict {
    match seen.stop {
        StopSeen::Released => return unverifiable(Reason::Contradiction),
        StopSeen::Begun => return stopping(seen),
        StopSeen::NotBegun => {}
    }
    if seen.port == PortSeen::Other {
        return Verdict::of(State::Foreign, Reason::PortTaken);
    }
    match seen.records {
        RecordsSeen::Identified => serving(seen),
        RecordsSeen::NoRun
        | RecordsSeen::Unreadable
        | RecordsSeen::Ordered
        | RecordsSeen::Launched => starting(seen),
    }
}

/// It lives and its identity is not recorded.
fn starting(seen: &Snapshot) -> Verdict {
    let reason = match (seen.controller, seen.health) {
        (ControllerSeen::Idle, _) => Reason::NobodyWaits,
        (ControllerSeen::Working | ControllerSeen::Unknown, HealthSeen::Good) => {
            Reason::Identifying
        }
        (
            ControllerSeen::Working | ControllerSeen::Unknown,
            HealthSeen::NotAsked | HealthSeen::Bad | HealthSeen::Silent,
        ) => Reason::Loading,
    };
    Verdict::of(State::Starting, reason)
}

/// It lives, counts as started, and nobody else has its port.
fn serving(seen: &Snapshot) -> Verdict {
    match (seen.port, seen.health) {
        (PortSeen::Free, _) => Verdict::of(State::Unhealthy, Reason::PortClosed),
        (PortSeen::Other, _) => Verdict::of(State::Foreign, Reason::PortTaken),
        (PortSeen::Unattributed | PortSeen::Unknown, _) => unverifiable(Reason::PortUnknown),
        (PortSeen::Ours, HealthSeen::Good) => Verdict::of(State::Ready, Reason::Serving),
        (PortSeen::Ours, HealthSeen::Bad) => Verdict::of(State::Unhealthy, Reason::HealthBad),
        (PortSeen::Ours, HealthSeen::Silent) => Verdict::of(State::Unhealthy, Reason::HealthSilent),
        (PortSeen::Ours, HealthSeen::NotAsked) => unverifiable(Reason::HealthNotAsked),
    }
}

/// Nothing is recorded but the order.
fn ordered(seen: &Snapshot) -> Verdict {
    match (seen.keeper, seen.others) {
        (ProcessSeen::Unknown, _) => unverifiable(Reason::KeeperUnknown),
        (_, OthersSeen::Unknown) => unverifiable(Reason::GroupUnknown),
        (ProcessSeen::Alive, OthersSeen::None | OthersSeen::Some)
        | (ProcessSeen::Gone | ProcessSeen::Reused, OthersSeen::Some) => before_launch(seen),
        (ProcessSeen::Gone | ProcessSeen::Reused, OthersSeen::None) => match (seen.exit, seen.stop)
        {
            (ExitSeen::Known(_), _) | (_, StopSeen::Released) => {
                over(seen, Reason::NothingLaunched)
            }
            (ExitSeen::Unrecorded, StopSeen::NotBegun | StopSeen::Begun) => match seen.controller {
                ControllerSeen::Working => before_launch(seen),
                ControllerSeen::Unknown => unverifiable(Reason::ControllerUnknown),
                ControllerSeen::Idle => over(seen, Reason::NothingLaunched),
            },
        },
    }
}

/// Something may still come of the order.
fn before_launch(seen: &Snapshot) -> Verdict {
    match (seen.stop, seen.exit) {
        (StopSeen::Released, _) => unverifiable(Reason::Contradiction),
        (StopSeen::Begun, _) => stopping(seen),
        (StopSeen::NotBegun, ExitSeen::Unrecorded) => {
            Verdict::of(State::Starting, Reason::BeforeLaunch)
        }
        (StopSeen::NotBegun, ExitSeen::Known(_)) => {
            Verdict::of(State::Stopping, Reason::KeeperFinishing)
        }
    }
}

/// The main process is proven gone.
fn gone(seen: &Snapshot) -> Verdict {
    match seen.others {
        OthersSeen::Unknown => return unverifiable(Reason::GroupUnknown),
        OthersSeen::Some => return left(seen),
        OthersSeen::None => {}
    }
    match (seen.keeper, seen.exit) {
        (ProcessSeen::Alive, _) => {
            return Verdict::of(State::Stopping, Reason::KeeperFinishing);
        }
        (ProcessSeen::Unknown, ExitSeen::Unrecorded) => {
            return unverifiable(Reason::KeeperUnknown);
        }
        (ProcessSeen::Unknown, ExitSeen::Known(_))
        | (ProcessSeen::Gone | ProcessSeen::Reused, _) => {}
    }
    if seen.stop == StopSeen::Begun && seen.controller == ControllerSeen::Working {
        return Verdict::of(State::Stopping, Reason::BeingStopped);
    }
    match seen.main {
        ProcessSeen::Reused => over(seen, Reason::PidReused),
        ProcessSeen::Gone | ProcessSeen::Alive | ProcessSeen::Unknown => {
            over(seen, Reason::NoExitRecord)
        }
    }
}

/// The main process is proven gone, and others of the run live.
fn left(seen: &Snapshot) -> Verdict {
    match (seen.stop, seen.keeper, seen.controller) {
        (StopSeen::Begun, _, ControllerSeen::Working) | (_, ProcessSeen::Alive, _) => {
            Verdict::of(State::Stopping, Reason::LeftBehindEnding)
        }
        (
            StopSeen::NotBegun | StopSeen::Begun | StopSeen::Released,
            ProcessSeen::Gone | ProcessSeen::Reused | ProcessSeen::Unknown,
            ControllerSeen::Idle | ControllerSeen::Unknown | ControllerSeen::Working,
        ) => Verdict::of(State::Unhealthy, Reason::LeftBehind),
    }
}

/// Nothing of the run lives. `why` is the reason where neither end nor release is recorded.
fn over(seen: &Snapshot, why: Reason) -> Verdict {
    let (state, reason) = match (seen.exit, seen.stop) {
        (ExitSeen::Known(outcome), StopSeen::NotBegun) => (State::Exited(outcome), Reason::Ended),
        (ExitSeen::Known(outcome), StopSeen::Begun) => {
            (State::Exited(outcome), Reason::ReleaseUnproven)
        }
        (ExitSeen::Known(outcome), StopSeen::Released) => {
            (State::Exited(outcome), Reason::Released)
        }
        (ExitSeen::Unrecorded, StopSeen::Released) => {
            (State::Exited(Outcome::Unknown), Reason::Released)
        }
        (ExitSeen::Unrecorded, StopSeen::NotBegun | StopSeen::Begun) => match why {
            Reason::PidReused => (State::Foreign, why),
            other => (State::Stale, other),
        },
    };
    unowned(seen, state, reason)
}

/// Nothing of the worker lives: whoever has its port is somebody else.
fn unowned(seen: &Snapshot, state: State, reason: Reason) -> Verdict {
    match seen.port {
        PortSeen::Free | PortSeen::Unknown => Verdict::of(state, reason),
        PortSeen::Other | PortSeen::Unattributed => Verdict::of(State::Foreign, Reason::PortTaken),
        PortSeen::Ours => unverifiable(Reason::Contradiction),
    }
}

/// A stop was begun and processes live.
fn stopping(seen: &Snapshot) -> Verdict {
    let reason = match seen.controller {
        ControllerSeen::Working | ControllerSeen::Unknown => Reason::BeingStopped,
        ControllerSeen::Idle => Reason::StopCutShort,
    };
    Verdict::of(State::Stopping, reason)
}

fn unverifiable(reason: Reason) -> Verdict {
    Verdict::of(State::Unverifiable, reason)
}

#[cfg(test)]
mod tests;
