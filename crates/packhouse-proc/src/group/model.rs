//! A model of how a kernel gives pids, sessions and parents, against which the proofs are held: no
//! stranger is ever taken for a worker's, whatever forked, ended and was numbered again before.
//!
//! The model knows the truth: who descends from the start. It follows these rules of Linux: a
//! number is free when no process has it as pid or session, a zombie counts; children of one that
//! ends go to the nearest living reaper above, or to init; an environment is inherited until an
//! exec.

use super::{Doubt, Ownership, Proof, members};
use crate::identity::{ProcessKey, RUN_ID_VARIABLE, RunId};
use crate::procfs::Procfs;
use crate::procfs::tree::{BOOT, Fake, PID_NAMESPACE, Tree};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const KEEPER: u32 = 2000;
const MAIN: u32 = 2001;
const ORDERED: u64 = 9000;
/// Few numbers, so that they are given again.
const PIDS: std::ops::Range<u32> = 2000..2012;

#[derive(Clone, Debug)]
struct Modelled {
    start_ticks: u64,
    parent: u32,
    session: u32,
    run: Option<RunId>,
    is_zombie: bool,
    /// The truth that is to be found out.
    is_ours: bool,
    /// Whether orphans below it come to it.
    is_reaper: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Fork { who: usize, pid: usize },
    Bare { who: usize },
    NewSession { who: usize },
    End { who: usize },
    Reap { who: usize },
}

struct Kernel {
    processes: BTreeMap<u32, Modelled>,
    now: u64,
}

fn ours() -> RunId {
    RunId::new([7; 16])
}

impl Kernel {
    fn new() -> Self {
        let stranger = |session: u32, start_ticks: u64| Modelled {
            start_ticks,
            parent: 1,
            session,
            run: None,
            is_zombie: false,
            is_ours: false,
            is_reaper: false,
        };
        let keeper = Modelled {
            is_ours: true,
            is_reaper: true,
            ..stranger(KEEPER, 9001)
        };
        let main = Modelled {
            parent: KEEPER,
            run: Some(ours()),
            is_ours: true,
            ..stranger(MAIN, 9002)
        };
        let other_worker = Modelled {
            run: Some(RunId::new([8; 16])),
            ..stranger(2003, 9003)
        };
        let processes = [
            (KEEPER, keeper),
            (MAIN, main),
            (2002, stranger(2002, ORDERED - 1)),
            (2003, other_worker),
            (2004, stranger(2004, 9004)),
        ];
        Self {
            processes: processes.into(),
            now: 9005,
        }
    }

    fn step(&mut self, step: &Step) {
        self.now += 1;
        match *step {
            Step::Fork { who, pid } => self.fork(who, pid),
            Step::Bare { who } => {
                if let Some((_, process)) = self.living(who) {
                    process.run = None;
                }
            }
            Step::NewSession { who } => {
                if let Some((pid, process)) = self.living(who) {
                    process.session = pid;
                }
            }
            Step::End { who } => {
                if let Some((pid, process)) = self.living(who) {
                    process.is_zombie = true;
                    let heir = self.reaper_above(pid);
                    for child in self.processes.values_mut() {
                        if child.parent == pid {
                            child.parent = heir;
                        }
                    }
                }
            }
            Step::Reap { who } => {
                let zombies = self.processes.iter().filter(|(_, one)| one.is_zombie);
                let zombies: Vec<u32> = zombies.map(|(pid, _)| *pid).collect();
                if !zombies.is_empty() {
                    self.processes.remove(&zombies[who % zombies.len()]);
                }
            }
        }
    }

    fn living(&mut self, who: usize) -> Option<(u32, &mut Modelled)> {
        let count = self.processes.values().filter(|one| !one.is_zombie).count();
        let mut living = self.processes.iter_mut().filter(|(_, one)| !one.is_zombie);
        living
            .nth(who.checked_rem(count)?)
            .map(|(pid, process)| (*pid, process))
    }

    fn fork(&mut self, who: usize, pid: usize) {
        let start_ticks = self.now;
        let Some((parent, process)) = self.living(who) else {
            return;
        };
        let child = Modelled {
            start_ticks,
            parent,
            is_reaper: false,
            ..process.clone()
        };
        let sessions = self.processes.values().map(|one| one.session);
        let taken: BTreeSet<u32> = self.processes.keys().copied().chain(sessions).collect();
        let free: Vec<u32> = PIDS.filter(|pid| !taken.contains(pid)).collect();
        if !free.is_empty() {
            self.processes.insert(free[pid % free.len()], child);
        }
    }

    fn reaper_above(&self, pid: u32) -> u32 {
        let mut above = self.processes[&pid].parent;
        while let Some(process) = self.processes.get(&above) {
            if process.is_reaper && !process.is_zombie {
                return above;
            }
            above = process.parent;
        }
        1
    }

    fn write(&self, tree: &Tree) {
        for pid in PIDS {
            tree.end(pid);
        }
        for (pid, process) in &self.processes {
            let run = process.run.map(|run| format!("{RUN_ID_VARIABLE}={run}\0"));
            tree.put(&Fake {
                state: if process.is_zombie { 'Z' } else { 'S' },
                parent: process.parent,
                session: i32::try_from(process.session).expect("because numbers are small"),
                environment: run.unwrap_or_default().into_bytes(),
                program: None,
                ..Fake::new(*pid, process.start_ticks)
            });
        }
    }

    /// Who can be known to be the worker's, from what the model knows and a look does not: the
    /// truth of each, and whether the recorded processes are still the ones recorded.
    fn provable(&self) -> BTreeMap<u32, Proof> {
        let is = |pid: u32, start_ticks: u64| {
            let found = self.processes.get(&pid);
            found.filter(|one| one.start_ticks == start_ticks)
        };
        let main = is(MAIN, 9002);
        let mut provable = BTreeMap::new();
        let living = || self.processes.iter().filter(|(_, one)| !one.is_zombie);
        for (pid, one) in living().filter(|(_, one)| one.is_ours && !one.is_reaper) {
            if one.start_ticks == 9002 {
                provable.insert(*pid, Proof::Recorded);
            } else if one.run.is_some() {
                provable.insert(*pid, Proof::Environment);
            } else if main.is_some() && one.session == MAIN {
                provable.insert(*pid, Proof::Session);
            }
        }
        let keeper_lives = is(KEEPER, 9001).is_some_and(|keeper| !keeper.is_zombie);
        for _ in PIDS {
            for (pid, one) in living().filter(|(_, one)| one.is_ours && !one.is_reaper) {
                let by_keeper = one.parent == KEEPER && keeper_lives;
                if by_keeper || provable.contains_key(&one.parent) {
                    provable.entry(*pid).or_insert(Proof::Descent);
                }
            }
        }
        provable
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..PIDS.len();
    let step = prop_oneof![
        4 => (who.clone(), who.clone()).prop_map(|(who, pid)| Step::Fork { who, pid }),
        2 => who.clone().prop_map(|who| Step::Bare { who }),
        2 => who.clone().prop_map(|who| Step::NewSession { who }),
        4 => who.clone().prop_map(|who| Step::End { who }),
        4 => who.prop_map(|who| Step::Reap { who }),
    ];
    prop::collection::vec(step, 0..80)
}

fn ownership() -> Ownership {
    let boot = BOOT.parse().expect("because it is an id");
    let key = |pid, start_ticks| ProcessKey {
        boot,
        pid_namespace: PID_NAMESPACE,
        pid,
        start_ticks,
    };
    Ownership {
        boot,
        pid_namespace: PID_NAMESPACE,
        main: Some(key(MAIN, 9002)),
        keeper: Some(key(KEEPER, 9001)),
        run: ours(),
        session: i32::try_from(MAIN).ok(),
        cgroup: None,
        started_after_ticks: ORDERED,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn who_is_taken_descends_from_the_start_and_who_can_be_proven_is_taken(steps in steps()) {
        let mut kernel = Kernel::new();
        for step in &steps {
            kernel.step(step);
        }
        let tree = Tree::new();
        kernel.write(&tree);
        let procfs = Procfs::new(tree.root()).expect("because the tree is whole");
        let found = members(&procfs, &ownership()).expect("because it can be read");
        for member in &found.ours {
            prop_assert!(kernel.processes[&member.key.pid].is_ours, "{member:?} {kernel:?}");
        }
        let taken: BTreeMap<u32, Proof> = (found.ours.iter())
            .map(|member| (member.key.pid, member.proof))
            .collect();
        prop_assert_eq!(taken, kernel.provable(), "{:?}", kernel);
        for one in &found.unproven {
            let modelled = &kernel.processes[&one.key.pid];
            let expected = match one.why {
                Doubt::MainPid => one.key.pid == MAIN && modelled.start_ticks != 9002,
                Doubt::KeeperPid => one.key.pid == KEEPER && modelled.start_ticks != 9001,
                Doubt::SessionNumber => modelled.session == MAIN && modelled.run.is_none(),
                Doubt::Older
                | Doubt::OtherSession
                | Doubt::AnotherRun
                | Doubt::NoRunId
                | Doubt::NotAKeeper => false,
            };
            prop_assert!(expected, "{one:?} {kernel:?}");
        }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(&self.processes).finish()
    }
}
