//! Which processes are a worker's: the proof that a process descends from a start.
//!
//! A process is ours when one of these holds, and it did not start before the start was ordered:
//! - it is the main process: the key is the recorded one, it leads its session, and its environment
//!   holds the run id; one that can't be read or was overwritten speaks neither for nor against it;
//!   where it holds settings and no run id, it must be the keeper's child or in the control group;
//! - its parent is the keeper, the main process or another of ours. The parent's key is read again
//!   after the child's `stat`, so the parent had its pid for all that time;
//! - its environment holds the run id, 128 random bits that only what the gate started inherits;
//! - it is in the main process' session while the main process has its pid;
//! - it is in the start's own control group.
//!
//! A session's number alone proves nothing once the main process has ended: it may be given again.
//! What has such half a proof is listed as unproven, and nobody signals it. A process whose
//! environment holds the id of another start, or says that it is a keeper, is of another start:
//! workers may be started from a worker.
//!
//! Never: this process itself, a name, a command line, a pid without its start time.

#[cfg(test)]
mod model;
mod recorded;
pub mod strays;
#[cfg(test)]
mod tests;

use crate::identity::{BootId, KEEPER_VARIABLE, ProcessKey, RUN_ID_VARIABLE, RunId};
use crate::procfs::{Process, Processes, Procfs, ProcfsError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What the records of a start say about its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The boot in which it was ordered.
    pub boot: BootId,
    /// The pid namespace in which it was ordered.
    pub pid_namespace: u64,
    /// The main process, once there is one.
    pub main: Option<ProcessKey>,
    /// The keeper.
    pub keeper: Option<ProcessKey>,
    /// The start's name, which its processes have in their environment.
    pub run: RunId,
    /// The main process' session.
    pub session: Option<i32>,
    /// The start's own control group, from the root that this process sees.
    pub cgroup: Option<PathBuf>,
    /// Clock ticks from boot to the order: what started before is not of this start.
    pub started_after_ticks: u64,
}

/// The processes of a start that live now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The keeper, which ends by itself after the others.
    pub keeper: Option<Member>,
    /// Those proven to be the worker's, by pid.
    pub ours: Vec<Member>,
    /// Those that may be, and are not proven to be, by pid.
    pub unproven: Vec<Unproven>,
    /// How many processes there are that this user may not see at all.
    pub hidden_count: u32,
}

/// A process of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What names it.
    pub key: ProcessKey,
    /// Its name.
    pub name: String,
    /// How it is known to be of this start.
    pub proof: Proof,
}

/// How a process is known to be of a start; the first that holds, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// Its key is recorded.
    Recorded,
    /// Its environment holds the run id.
    Environment,
    /// Its parent is of this start.
    Descent,
    /// It is in the session of the main process, which lives.
    Session,
    /// It is in the start's own control group.
    ControlGroup,
}

/// A process that may be of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproven {
    /// What names it.
    pub key: ProcessKey,
    /// Its name.
    pub name: String,
    /// Why it is listed.
    pub why: Doubt,
}

/// Why a process may be, and is not proven to be, of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It has the pid of the recorded main process, which has ended.
    MainPid,
    /// It has the pid of the recorded keeper, which has ended.
    KeeperPid,
    /// It is in a session of the recorded number, whose leader has ended.
    SessionNumber,
    /// A record names it, and it started before the order.
    Older,
    /// A record names it as the engine, and it leads no session, or not the recorded one.
    OtherSession,
    /// A record names it, and its environment holds another start's id.
    AnotherRun,
    /// A record names it as the engine; its environment holds no run id, and no keeper vouches.
    NoRunId,
    /// A record names it as the keeper, and its environment is no keeper's.
    NotAKeeper,
}

impl Unproven {
    /// Whether a record names this very process, and something speaks against the record.
    pub fn is_on_record(&self) -> bool {
        match self.why {
            Doubt::Older
            | Doubt::OtherSession
            | Doubt::AnotherRun
            | Doubt::NoRunId
            | Doubt::NotAKeeper => true,
            Doubt::MainPid | Doubt::KeeperPid | Doubt::SessionNumber => false,
        }
    }
}

/// Finds the processes of a start. They fork and end while this looks, so it looks until it finds
/// the same ones twice, and never says that there are none after one look alone. After a boot there
/// are none. Errors where their pids are not those here.
pub fn members(procfs: &Procfs, ownership: &Ownership) -> Result<Members, ProcfsError> {
    if ownership.boot != procfs.boot_id() {
        return Ok(Members::default());
    }
    if ownership.pid_namespace != procfs.pid_namespace() {
        return Err(ProcfsError::OtherNamespace {
            own: procfs.pid_namespace(),
            found: ownership.pid_namespace,
        });
    }
    let own = procfs.own_key()?;
    let mut before = look(procfs, ownership, &own)?;
    for _ in 1..LOOKS_MAX {
        let found = look(procfs, ownership, &own)?;
        if found == before {
            return Ok(found);
        }
        before = found;
    }
    // They change faster than they are looked at: who was missed is there the next time.
    if before.ours.is_empty() && before.keeper.is_none() {
        return look(procfs, ownership, &own);
    }
    Ok(before)
}

/// Why a process that was proven to be a run's before, by the record of it, is not taken for one
/// now; `None` when nothing speaks against it. Its proof may have gone with its parent.
pub(crate) fn later_doubt(
    procfs: &Procfs,
    ownership: &Ownership,
    key: &ProcessKey,
) -> Result<Option<Doubt>, ProcfsError> {
    if key.boot != procfs.boot_id() || key.pid_namespace != procfs.pid_namespace() {
        return Ok(None);
    }
    if key.start_ticks < ownership.started_after_ticks {
        return Ok(Some(Doubt::Older));
    }
    let found = procfs.process(key.pid)?;
    let Some(process) = found.filter(|process| process.key == *key) else {
        return Ok(None);
    };
    Ok(match named_start(&process, &ownership.run) {
        NamedStart::Another => Some(Doubt::AnotherRun),
        NamedStart::Ours | NamedStart::None | NamedStart::Blank => None,
    })
}

/// One pass over all processes.
fn look(procfs: &Procfs, ownership: &Ownership, own: &ProcessKey) -> Result<Members, ProcfsError> {
    let Processes {
        shown,
        hidden_count,
    } = procfs.processes()?;
    let seen: BTreeMap<u32, Process> = (shown.into_iter())
        .map(|process| (process.key.pid, process))
        .collect();
    let at = |key: Option<ProcessKey>| {
        let key = key.filter(|key| key != own)?;
        seen.get(&key.pid).filter(|process| process.key == key)
    };
    let mut doubts: BTreeMap<ProcessKey, Doubt> = BTreeMap::new();
    let mut keeper = at(ownership.keeper);
    if let Some(process) = keeper
        && let Some(doubt) = recorded::keeper_doubt(ownership, process, &seen)
    {
        doubts.insert(process.key, doubt);
        keeper = None;
    }
    // The keeper itself asks who is left.
    let parent = keeper.or_else(|| {
        seen.get(&own.pid)
            .filter(|_| ownership.keeper == Some(*own))
    });
    let mut proven = Proven::default();
    if let Some(main) = at(ownership.main) {
        match recorded::main_proof(procfs, ownership, main, parent)? {
            Ok(proof) => proven.add(main, proof),
            Err(doubt) => {
                doubts.insert(main.key, doubt);
            }
        }
    }
    let is_doubted = ownership
        .main
        .is_some_and(|main| doubts.contains_key(&main));
    let session = match is_doubted {
        true => None,
        false => session_of(procfs, ownership)?,
    };
    let mut members = Members {
        hidden_count,
        ..Members::default()
    };
    members.keeper = keeper.map(|keeper| member(keeper, Proof::Recorded));
    for process in seen.values() {
        let is_keeper = ownership.keeper == Some(process.key);
        if process.key == *own || process.is_kernel_thread || is_keeper {
            continue;
        }
        if let Some(proof) = direct_proof(ownership, process, session) {
            proven.add(process, proof);
        }
    }
    descend(procfs, ownership, &seen, own, parent, &mut proven)?;
    members.unproven = seen
        .values()
        .filter(|process| process.key != *own && !proven.has(process))
        .filter(|process| keeper.is_none_or(|keeper| keeper.key != process.key))
        .filter_map(|process| {
            let recorded = doubts.get(&process.key).copied();
            let why = recorded.or_else(|| doubt(ownership, process, &seen));
            Some(unproven(process, why?))
        })
        .collect();
    members.ours = proven.members;
    members.ours.sort_by_key(|member| member.key.pid);
    Ok(members)
}

/// The session that is still the start's: its leader, the main process, has its pid after all
/// processes were read, so it had it while each was read.
fn session_of(procfs: &Procfs, ownership: &Ownership) -> Result<Option<i32>, ProcfsError> {
    let Some(main) = ownership.main else {
        return Ok(None);
    };
    let leads = |session: &i32| u32::try_from(*session) == Ok(main.pid);
    match ownership.session.filter(leads) {
        Some(session) if procfs.has_its_pid(&main)? => Ok(Some(session)),
        Some(_) | None => Ok(None),
    }
}

#[derive(Default)]
struct Proven {
    keys: BTreeSet<ProcessKey>,
    members: Vec<Member>,
}

impl Proven {
    fn add(&mut self, process: &Process, proof: Proof) {
        if self.keys.insert(process.key) {
            self.members.push(member(process, proof));
        }
    }

    fn has(&self, process: &Process) -> bool {
        self.keys.contains(&process.key)
    }
}

fn member(process: &Process, proof: Proof) -> Member {
    Member {
        key: process.key,
        name: process.name.clone(),
        proof,
    }
}

/// The proofs that need no other process.
fn direct_proof(ownership: &Ownership, process: &Process, session: Option<i32>) -> Option<Proof> {
    if process.key.start_ticks < ownership.started_after_ticks {
        return None;
    }
    match named_start(process, &ownership.run) {
        NamedStart::Ours => return Some(Proof::Environment),
        NamedStart::Another => return None,
        NamedStart::None | NamedStart::Blank => {}
    }
    if session == Some(process.session) {
        return Some(Proof::Session);
    }
    is_in_unit(process, ownership).then_some(Proof::ControlGroup)
}

/// Whose id a process' environment holds.
enum NamedStart {
    Ours,
    Another,
    /// Nobody's, and it holds other settings.
    None,
    /// It can't be read, or holds nothing that has a value: the process wrote over it.
    Blank,
}

fn named_start(process: &Process, run: &RunId) -> NamedStart {
    let environment = process.environment().unwrap_or_default();
    let has_values = environment.iter().any(|(_, value)| !value.is_empty());
    let mut named = match has_values {
        true => NamedStart::None,
        false => NamedStart::Blank,
    };
    for (name, value) in &environment {
        if name == KEEPER_VARIABLE {
            named = NamedStart::Another;
        }
        if name != RUN_ID_VARIABLE {
            continue;
        }
        match value.to_str().map(str::parse::<RunId>) {
            Some(Ok(found)) if found == *run => return NamedStart::Ours,
            Some(Ok(_)) => named = NamedStart::Another,
            Some(Err(_)) | None => {}
        }
    }
    named
}

/// Whether a process is in the start's own control group, which has the run id in its name: one
/// that many share would make strangers ours.
fn is_in_unit(process: &Process, ownership: &Ownership) -> bool {
    let Some(cgroup) = &ownership.cgroup else {
        return false;
    };
    let name = cgroup.file_name().unwrap_or_default().to_string_lossy();
    let found = process.cgroup().ok().flatten();
    name.contains(&ownership.run.to_string()) && found.is_some_and(|at| at.starts_with(cgroup))
}

/// Adds what descends from the keeper and from what is proven, generation by generation.
fn descend(
    procfs: &Procfs,
    ownership: &Ownership,
    seen: &BTreeMap<u32, Process>,
    own: &ProcessKey,
    keeper: Option<&Process>,
    proven: &mut Proven,
) -> Result<(), ProcfsError> {
    loop {
        let mut grown = false;
        for child in seen.values() {
            if child.key == *own
                || proven.has(child)
                || ownership.keeper == Some(child.key)
                || child.key.start_ticks < ownership.started_after_ticks
            {
                continue;
            }
            let Some(parent) = seen.get(&child.parent) else {
                continue;
            };
            let is_keeper = keeper.is_some_and(|keeper| keeper.key == parent.key);
            let is_ours = proven.has(parent) || is_keeper;
            if is_ours && is_child(procfs, child, parent, &ownership.run)? {
                proven.add(child, Proof::Descent);
                grown = true;
            }
        }
        if !grown {
            return Ok(());
        }
    }
}

/// Whether one process is the other's child now, neither pid is another's, and the child is not of
/// another start.
fn is_child(
    procfs: &Procfs,
    child: &Process,
    parent: &Process,
    run: &RunId,
) -> Result<bool, ProcfsError> {
    let now = procfs.process(child.key.pid)?;
    let is_same = now.is_some_and(|now| now.key == child.key && now.parent == parent.key.pid);
    if !is_same || procfs.key_of(parent.key.pid)? != Some(parent.key) {
        return Ok(false);
    }
    Ok(match named_start(child, run) {
        NamedStart::Ours | NamedStart::None | NamedStart::Blank => true,
        NamedStart::Another => false,
    })
}

/// Half a proof.
fn doubt(ownership: &Ownership, process: &Process, seen: &BTreeMap<u32, Process>) -> Option<Doubt> {
    let has_pid_of = |key: &Option<ProcessKey>| {
        key.is_some_and(|key| key.pid == process.key.pid && key != process.key)
    };
    if has_pid_of(&ownership.main) {
        return Some(Doubt::MainPid);
    }
    if has_pid_of(&ownership.keeper) {
        return Some(Doubt::KeeperPid);
    }
    let session = ownership.session.filter(|id| *id == process.session)?;
    // A new leader of that number says that the old session had no process left.
    let leader = u32::try_from(session).ok()?;
    let is_older = process.key.start_ticks < ownership.started_after_ticks;
    (!seen.contains_key(&leader) && !is_older).then_some(Doubt::SessionNumber)
}

fn unproven(process: &Process, why: Doubt) -> Unproven {
    Unproven {
        key: process.key,
        name: process.name.clone(),
        why,
    }
}

const LOOKS_MAX: u32 = 8;
