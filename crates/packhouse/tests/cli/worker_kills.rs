//! Start and stop, with a process of ours killed just before each of its state-changing calls: the
//! command, the keeper, the gate, or all of them at once.
//!
//! Whatever the kill left, the next command explains it, and the one after resolves it: the worker
//! is ready exactly once, or everything is gone. Nothing runs that no record names, nothing has to
//! be cleaned up by hand, and a stranger's server of the same program lives through all of it.

use crate::stop_at::{self, Call, Plan, Role, Stopped};
use crate::worker_world::{Part, World, wait_until, worker_words};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What follows a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Start,
    Stop,
}

impl Then {
    fn other(self) -> Self {
        match self {
            Self::Start => Self::Stop,
            Self::Stop => Self::Start,
        }
    }
}

/// Calls that others see at once, so that what stands before one may differ from what stands after
/// it. The others lock, or write what is not named yet.
const SEEN: [&str; 11] = [
    "clone",
    "clone3",
    "execve",
    "exit_group",
    "fsync",
    "mkdirat",
    "pidfd_send_signal",
    "renameat",
    "renameat2",
    "sendto",
    "setsid",
];

/// Follows a kill at k by a start or a stop, turn by turn, and by both where others see the call.
/// Answers whether there was a call to stop.
fn both_where_seen(k: usize, kill: impl Fn(Then) -> Stopped) -> bool {
    let first = if k.is_multiple_of(2) {
        Then::Start
    } else {
        Then::Stop
    };
    let stopped = kill(first);
    let last = stopped.calls.last();
    if stopped.killed && last.is_some_and(|call| SEEN.contains(&call.name.as_str())) {
        kill(first.other());
    }
    stopped.killed
}

/// More calls than any command makes here; a walk that gets there does not end.
const CALLS_MAX: usize = 400;

/// Walks k from 1 until nothing was left to kill, a few at once as most of it is waiting. Answers
/// how many were killed.
fn every_k(kill_at: impl Fn(usize) -> bool + Sync) -> usize {
    let (next, killed) = (AtomicUsize::new(1), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while kill_at(next.fetch_add(1, Ordering::Relaxed)) {
                    killed.fetch_add(1, Ordering::Relaxed);
                    assert!(next.load(Ordering::Relaxed) < CALLS_MAX, "no end");
                }
            });
        }
    });
    killed.into_inner()
}

/// A start in a world of its own, killed at k, then what follows. Answers whether it was killed.
fn start_killed(k: usize, role: Role, all: bool, then: Then) -> Stopped {
    let world = World::quick(k);
    let plan = Plan {
        role,
        k,
        attached: &[],
        all,
    };
    let words = worker_words(&["start", "--execute"]);
    let stopped = stop_at::run(world.sandbox(), &words, plan);
    let why = story("start", k, role, &stopped);
    must_have_answered(&world, role, all, &stopped, &why);
    must_be_explained(&world, &why);
    resolve(&world, then, &why);
    stopped
}

/// A worker that is ready, and a stop of it that is killed at k, then what follows.
fn stop_killed(k: usize, role: Role, then: Then) -> Stopped {
    let world = World::quick(k);
    world.done(&["start", "--execute"], "before a stop");
    let running = world.running().into_iter();
    let keepers: Vec<u32> = running
        .filter(|running| running.part == Part::Keeper)
        .map(|running| running.pid)
        .collect();
    let plan = Plan {
        role,
        k,
        attached: if role == Role::Keep { &keepers } else { &[] },
        all: false,
    };
    let words = worker_words(&["stop", "--execute"]);
    let stopped = stop_at::run(world.sandbox(), &words, plan);
    let why = story("stop", k, role, &stopped);
    must_have_answered(&world, role, false, &stopped, &why);
    must_be_explained(&world, &why);
    if then == Then::Start && world.status(&why)["state"] == "stopping" {
        // While its engine lives, only a stop ends a stop that was cut short, and a start says so.
        let output = world.worker(&["start", "--execute"]);
        if output.status.code() != Some(0) {
            let said = both(&output);
            assert_eq!(output.status.code(), Some(3), "{why}: {said}");
            assert!(
                said.contains("packhouse worker stop --execute"),
                "{why}: {said}"
            );
            must_stop(&world, &why);
        }
    }
    resolve(&world, then, &why);
    stopped
}

fn story(command: &str, k: usize, role: Role, stopped: &Stopped) -> String {
    let last = stopped.calls.last().map(|call| (&call.name, &call.detail));
    let killed = if stopped.killed {
        "killed"
    } else {
        "not killed"
    };
    format!("{command}, {role:?} {killed} at {k}: {last:?}")
}

/// A command that was not killed itself answers: yes, or not executed with a cause.
fn must_have_answered(world: &World, role: Role, all: bool, stopped: &Stopped, why: &str) {
    let code = stopped.output.status.code();
    let pid_of = |call: Option<&Call>| call.map(|call| call.pid);
    // What it forked was killed alone, where that made the call.
    let own = pid_of(stopped.calls.first()) == pid_of(stopped.calls.last());
    if all && stopped.killed || role == Role::Command && own {
        let expected = if stopped.killed { 137 } else { 0 };
        assert_eq!(code, Some(expected), "{why}: {:?}", stopped.output);
        return;
    }
    let said = both(&stopped.output);
    match code {
        Some(0) => {}
        Some(1 | 3) => assert!(said.contains("w0: "), "{why}: {said}"),
        _ => panic!("{why}: {code:?}: {said}{}", world.files()),
    }
}

fn both(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// `status` has a word for it, and no engine runs that is not on record.
fn must_be_explained(world: &World, why: &str) {
    let seen = world.status(why);
    let state = seen["state"].as_str().unwrap_or_default();
    assert_ne!(state, "unverifiable", "{why}: {seen}\n{}", world.files());
    for pid in world.servers() {
        let launched = world.record("launched.json").unwrap_or_default();
        assert_eq!(
            launched["worker"]["pid"],
            pid,
            "{why}: {seen}\n{}",
            world.files()
        );
    }
}

/// Then a start makes it ready and a stop ends that, or a stop ends what there is.
fn resolve(world: &World, then: Then, why: &str) {
    match then {
        Then::Start => {
            must_start(world, why);
            must_stop(world, why);
        }
        Then::Stop => {
            must_stop(world, why);
            let seen = world.status(why);
            let state = seen["state"].as_str().unwrap_or_default();
            let is_over = ["absent", "exited", "stale"].contains(&state);
            assert!(is_over, "{why}: {seen}\n{}", world.files());
        }
    }
}

/// A start makes it ready, or says that it is already; and one engine runs.
fn must_start(world: &World, why: &str) {
    let output = world.worker(&["start", "--execute"]);
    let said = both(&output);
    let seen = world.status(why);
    let state = &seen["state"];
    assert_eq!(state, "ready", "{why}: {seen}\n{said}{}", world.files());
    // A worker that lives is not started again.
    let is_fine = output.status.code() == Some(0) || said.contains("already");
    assert!(is_fine, "{why}: {said}");
    let launched = world.record("launched.json").unwrap_or_default();
    let servers = world.servers();
    assert_eq!(servers.len(), 1, "{why}: {:?}", world.running());
    assert_eq!(launched["worker"]["pid"], servers[0], "{why}: {launched}");
}

/// A stop leaves nothing.
fn must_stop(world: &World, why: &str) {
    world.done(&["stop", "--execute"], why);
    world.must_be_over(why);
}

/// A server of the same program that nobody here started.
struct Stranger {
    world: World,
    child: Child,
}

impl Stranger {
    fn new() -> Self {
        let world = World::quick(0);
        let child = Command::new(stop_at::built("quick_server"))
            .args([
                "--host",
                "127.0.0.1",
                "--port",
                &world.port().to_string(),
                "--starts",
            ])
            .arg(world.path("starts"))
            .stdin(Stdio::null())
            .spawn()
            .expect("because it was built");
        wait_until("the stranger's start", || world.path("starts").exists());
        Self { world, child }
    }

    fn must_live(mut self) {
        let ended = self.child.try_wait().expect("because it is our child");
        assert_eq!(ended, None, "the stranger was ended");
        assert_eq!(self.world.servers().len(), 1);
        self.child.kill().expect("because it lives");
        self.child.wait().expect("because it is our child");
    }
}

/// Walks with a stranger beside, and says how long the walk was.
fn walk(least: usize, kill_at: impl Fn(usize) -> bool + Sync) {
    let stranger = Stranger::new();
    let killed = every_k(kill_at);
    assert!(killed >= least, "only {killed} calls were walked");
    stranger.must_live();
}

/// Walks a start, in two tests so that a machine with two cores has both.
fn walk_start(least: usize, role: Role, all: bool, part: usize) {
    walk(least, |at| {
        let k = 2 * at - part;
        both_where_seen(k, |then| start_killed(k, role, all, then))
    });
}

#[test]
fn a_start_killed_at_any_even_call_is_resolved_by_the_next_command() {
    walk_start(10, Role::Command, false, 0);
}

#[test]
fn a_start_killed_at_any_odd_call_is_resolved_by_the_next_command() {
    walk_start(10, Role::Command, false, 1);
}

#[test]
fn a_keeper_killed_anywhere_in_a_start_leaves_what_start_and_stop_resolve() {
    walk(10, |k| {
        both_where_seen(k, |then| start_killed(k, Role::Keep, false, then))
    });
}

#[test]
fn a_gate_killed_anywhere_leaves_what_start_and_stop_resolve() {
    walk(3, |k| {
        both_where_seen(k, |then| start_killed(k, Role::Gate, false, then))
    });
}

#[test]
fn command_and_keeper_killed_together_leave_what_start_and_stop_resolve() {
    for role in [Role::Keep, Role::Gate] {
        walk(3, |k| {
            both_where_seen(k, |then| start_killed(k, role, true, then))
        });
    }
}

#[test]
fn a_stop_killed_anywhere_is_ended_by_the_next_stop_and_names_it_to_a_start() {
    walk(5, |k| {
        both_where_seen(k, |then| stop_killed(k, Role::Command, then))
    });
}

#[test]
fn a_keeper_killed_anywhere_in_a_stop_hinders_neither_stop_nor_start() {
    walk(3, |k| {
        both_where_seen(k, |then| stop_killed(k, Role::Keep, then))
    });
}
