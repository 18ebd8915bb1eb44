//! Which processes are a worker's, on real ones: what a worker forks, orphans and daemonises.

use crate::started::{Held, Started, procfs, wait_for};
use packhouse_proc::group::{Doubt, Member, Members, Ownership, Proof, members};
use packhouse_proc::identity::{ProcessKey, RUN_ID_VARIABLE, RunId};
use packhouse_proc::pidfd::{Delivery, PidFd, Signal};
use packhouse_proc::procfs::Presence;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A keeper with its worker, all held to be ended with the test.
struct Family {
    keys: BTreeMap<String, ProcessKey>,
    ownership: Ownership,
    keeper: Started,
    /// The end of what all of the family print to, but those without it.
    stdout: BufReader<ChildStdout>,
    _held: Held,
}

impl Family {
    fn new(run: RunId) -> Self {
        Self::of("main", run)
    }

    fn of(role: &str, run: RunId) -> Self {
        // Who is left without a keeper comes to this test, which reaps where an init may not.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .expect("because any process may");
        let procfs = procfs();
        let started_after_ticks = procfs.now_ticks().expect("because it can be read");
        let mut keeper = Started::new(
            Command::new("python3")
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proc/family.py"))
                .args(["keeper", role])
                .env(RUN_ID_VARIABLE, run.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::piped()),
        );
        let stdout = keeper.0.stdout.take().expect("because it is piped");
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout);
        stdout
            .read_line(&mut line)
            .expect("because a pipe can be read");
        let pids: BTreeMap<String, u32> =
            serde_json::from_str(&line).expect("because it prints its pids");
        let mut held = Held::default();
        let mut keys = BTreeMap::new();
        for (name, pid) in pids {
            let key = procfs.key_of(pid).expect("because it can be read");
            let key = key.unwrap_or_else(|| panic!("{name} has ended"));
            held.hold(&key);
            keys.insert(name, key);
        }
        let main = keys["main"];
        Self {
            ownership: Ownership {
                boot: procfs.boot_id(),
                pid_namespace: procfs.pid_namespace(),
                main: Some(main),
                keeper: Some(keys["keeper"]),
                run,
                session: i32::try_from(main.pid).ok(),
                cgroup: None,
                started_after_ticks,
            },
            keys,
            keeper,
            stdout,
            _held: held,
        }
    }

    fn members(&self) -> Members {
        members(&procfs(), &self.ownership).expect("because it can be read")
    }

    /// The names of the family with their proofs; who is a stranger shows as `?`.
    fn ours(&self) -> Vec<(&str, Proof)> {
        let mut found: Vec<(&str, Proof)> = (self.members().ours.iter())
            .map(|member| (self.name(&member.key), member.proof))
            .collect();
        found.sort_unstable();
        found
    }

    fn unproven(&self) -> Vec<(&str, Doubt)> {
        let found = self.members().unproven;
        found
            .iter()
            .map(|one| (self.name(&one.key), one.why))
            .collect()
    }

    fn name(&self, key: &ProcessKey) -> &str {
        let found = self.keys.iter().find(|(_, known)| *known == key);
        found.map_or("?", |(name, _)| name)
    }

    fn kill(&self, name: &str) {
        kill(&self.keys[name]);
    }
}

fn kill(key: &ProcessKey) {
    let held = PidFd::open(&procfs(), key).expect("because it runs");
    assert_eq!(held.send(Signal::Kill), Ok(Delivery::Sent));
    wait_for(&Ok(true), || held.has_ended());
}

fn reap(key: &ProcessKey) {
    let pid = i32::try_from(key.pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())
        .expect("because it is our child by now");
}

#[test]
fn a_worker_is_found_whole_and_ended_whole_whatever_it_forked() {
    let family = Family::new(RunId::new([7; 16]));
    // One of the same program, name and user, and of the session that the tests run in. The other
    // keeper is below this one, as when a worker was started from inside this one.
    let stranger = Started::waiting();
    let whole = vec![
        ("bare_daemon", Proof::Descent),
        ("bare_orphan", Proof::Session),
        ("child", Proof::Environment),
        ("daemon", Proof::Environment),
        ("main", Proof::Recorded),
    ];
    wait_for(&whole, || family.ours());
    assert_eq!(family.unproven(), []);
    let keeper = family.members().keeper.map(|keeper: Member| keeper.key);
    assert_eq!(keeper, Some(family.keys["keeper"]));

    // The keeper gets what the main process leaves.
    family.kill("main");
    let left = vec![
        ("bare_daemon", Proof::Descent),
        ("bare_orphan", Proof::Descent),
        ("child", Proof::Environment),
        ("daemon", Proof::Environment),
    ];
    wait_for(&left, || family.ours());
    assert_eq!(family.unproven(), []);

    for member in family.members().ours {
        kill(&member.key);
    }
    wait_for(&vec![], || family.ours());
    assert_eq!(family.unproven(), []);
    for other in [stranger.key(), family.keys["other_keeper"]] {
        assert_eq!(procfs().presence(&other), Ok(Presence::Alive));
    }
}

#[test]
fn without_keeper_and_main_only_the_environment_proves_and_a_session_is_told() {
    let mut family = Family::new(RunId::new([8; 16]));
    family.kill("keeper");
    family.keeper.0.wait().expect("because it is our child");
    let main = &family.keys["main"];
    // It has no keeper now, and its session is still its own.
    let whole = vec![
        ("bare_orphan", Proof::Session),
        ("child", Proof::Environment),
        ("daemon", Proof::Environment),
        ("main", Proof::Recorded),
    ];
    wait_for(&whole, || family.ours());
    assert_eq!(family.unproven(), []);
    assert_eq!(family.members().keeper, None);

    family.kill("main");
    assert_eq!(procfs().has_its_pid(main), Ok(true));
    let left = vec![
        ("bare_orphan", Proof::Session),
        ("child", Proof::Environment),
        ("daemon", Proof::Environment),
    ];
    wait_for(&left, || family.ours());
    reap(main);
    assert_eq!(procfs().has_its_pid(main), Ok(false));
    let left = vec![
        ("child", Proof::Environment),
        ("daemon", Proof::Environment),
    ];
    wait_for(&left, || family.ours());
    assert_eq!(family.unproven(), [("bare_orphan", Doubt::SessionNumber)]);
}

#[test]
fn two_workers_of_one_program_are_two_groups() {
    let one = Family::new(RunId::new([1; 16]));
    let other = Family::new(RunId::new([2; 16]));
    for family in [&one, &other] {
        wait_for(&5, || family.ours().len());
        assert!(family.ours().iter().all(|(name, _)| *name != "?"));
    }
    for member in one.members().ours {
        kill(&member.key);
    }
    wait_for(&0, || one.ours().len());
    assert_eq!(other.ours().len(), 5);
}

/// The pipe that each of them holds is the witness: it ends when the last one has.
#[test]
fn nobody_is_left_of_a_worker_that_starts_daemons_faster_than_they_are_ended() {
    let mut family = Family::of("breeder", RunId::new([3; 16]));
    let mut ended: BTreeSet<ProcessKey> = BTreeSet::new();
    // Some are there before the first one is ended.
    wait_for(&true, || family.members().ours.len() > 5);
    loop {
        let ours = family.members().ours;
        if ours.is_empty() {
            break;
        }
        for member in ours {
            // One that ended by itself needs no signal.
            if let Ok(held) = PidFd::open(&procfs(), &member.key) {
                held.send(Signal::Kill).expect("because it is ours");
            }
            ended.insert(member.key);
        }
    }
    assert!(ended.len() > 5, "{}", ended.len());
    family.keeper.0.kill().expect("because it is our child");
    let mut rest = String::new();
    let begun = Instant::now();
    family
        .stdout
        .read_to_string(&mut rest)
        .expect("because a pipe can be read");
    // Whoever was missed would hold it for a minute.
    assert!(begun.elapsed() < Duration::from_secs(30));
}
