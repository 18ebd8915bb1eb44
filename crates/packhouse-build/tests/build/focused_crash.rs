//! A run stopped and failed at every operation: what is found afterwards is no pass that its logs
//! do not show, and once a test has started, no older one either.

use crate::focused_world::{FakeHost, PROGRAM, prints, run, tap};
use packhouse_build::focused::{NotReused, Outcome, Verdict};
use packhouse_sim::{Crash, Fault, SimClock, SimFs, Skip};
use packhouse_sys::fs::FsErrorKind;
use std::path::Path;
use std::sync::Arc;

const STATE: &str = "/home/state";
const CRASHES: [(Crash, u64); 5] = [
    (Crash::Lost, 1),
    (Crash::Torn, 2),
    (Crash::Reordered, 3),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];

fn go(sim: &SimFs, host: &FakeHost, reuse_pass: bool) -> Result<Outcome, String> {
    let clock = sim.clock();
    let tests = [tap("it", &[PROGRAM]), tap("other", &[PROGRAM, "2"])];
    let world = (sim as _, clock.as_ref() as _, Path::new(STATE));
    run(host, world, &tests, reuse_pass)
}

/// A disk with a recorded pass, and as many older runs as are kept.
fn recorded() -> (SimFs, String) {
    let sim = SimFs::new(7, Arc::new(SimClock::new()));
    let host = FakeHost::new();
    let mut last = String::new();
    for _ in 0..5 {
        let outcome = go(&sim, &host, false).expect("because nothing is in the way");
        last = outcome.result.run;
    }
    sim.settle();
    let outcome = go(&sim, &host, true).expect("because nothing is in the way");
    assert!(outcome.was_reused && outcome.result.run == last);
    (sim, last)
}

fn at_every_operation(second: &'static str, fault: fn(u64) -> Fault, skip: Option<Skip>) {
    let (base, old) = recorded();
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        let host = FakeHost::new();
        host.does(prints(second));
        go(&sim, &host, false).expect("because nothing is in the way");
        sim.operation_count()
    };
    assert!(count > 30, "only {count} operations were counted");
    for at in 0..count {
        let sim = base.crash(Crash::Kept, 0);
        let host = FakeHost::new();
        host.does(prints(second));
        sim.restart_count();
        sim.set_skip(skip);
        sim.set_fault(Some(fault(at)));
        let reported = go(&sim, &host, false);
        sim.set_fault(None);
        sim.set_skip(None);
        for (crash, seeds) in CRASHES {
            for seed in 100..100 + seeds {
                let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                let seen = Seen {
                    had_started: host.started.get() > 0,
                    reported: reported.as_ref().ok(),
                    old: &old,
                };
                judge(&sim.crash(crash, seed), &seen, second, &context);
            }
        }
    }
}

struct Seen<'a> {
    had_started: bool,
    reported: Option<&'a Outcome>,
    old: &'a str,
}

fn judge(sim: &SimFs, seen: &Seen<'_>, second: &str, context: &str) {
    let host = FakeHost::new();
    let outcome = go(sim, &host, true).unwrap_or_else(|error| panic!("{context}: {error}"));
    if outcome.was_reused {
        let run = &outcome.result.run;
        assert!(
            !seen.had_started || run != seen.old,
            "{context}: an old pass"
        );
        assert!(
            run == seen.old || second == PASS,
            "{context}: a pass of a failure"
        );
        return;
    }
    // Whatever was cut short is absent, never damaged, and never without its logs.
    let expected = match &outcome.not_reused {
        Some(NotReused::Absent) => seen.reported.is_none(),
        Some(NotReused::NoPass { verdict }) => *verdict == Verdict::Fail && second != PASS,
        _ => false,
    };
    assert!(expected, "{context}: {:?}", outcome.not_reused);
    assert_eq!(outcome.result.verdict, Verdict::Pass, "{context}");
    // The next run finds its way whatever was left, and its own pass holds.
    let again = go(sim, &host, true).expect("because nothing is in the way");
    assert!(again.was_reused, "{context}: {:?}", again.not_reused);
}

const PASS: &str = "ok 1 - it\n1..1\n";
const FAIL: &str = "not ok 1 - it\n1..1\n";
const STOP: fn(u64) -> Fault = |at| Fault::Stop { at };

#[test]
fn a_failing_run_that_is_stopped_anywhere_leaves_no_pass() {
    at_every_operation(FAIL, STOP, None);
}

#[test]
fn a_passing_run_that_is_stopped_anywhere_leaves_its_pass_whole_or_none() {
    at_every_operation(PASS, STOP, None);
}

#[test]
fn a_run_whose_disk_fails_or_is_full_leaves_no_pass_of_a_failure() {
    let io: fn(u64) -> Fault = |at| Fault::Error {
        at,
        kind: FsErrorKind::Io,
    };
    at_every_operation(FAIL, io, None);
    at_every_operation(FAIL, |at| Fault::Full { at }, None);
}

#[test]
fn a_run_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught = std::panic::catch_unwind(|| at_every_operation(FAIL, STOP, Some(skip)));
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}
