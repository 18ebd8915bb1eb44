//! When tests run, when a recorded pass will do, and what is left for whom.

use crate::focused_world::{FakeHost, PROGRAM, ended, prints, run, tap};
use packhouse_base::digest::Digest;
use packhouse_build::focused::{
    KEYS_KEPT, NotReused, Outcome, RUNS_KEPT, Runs, Test, Verdict, named_file,
};
use packhouse_sys::child::Exit;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use serde_json::json;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A private state folder of its own, and a host.
struct Bench {
    folder: tempfile::TempDir,
    host: FakeHost,
    tests: Vec<Test>,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("because tests have a temporary folder"),
            host: FakeHost::new(),
            tests: vec![tap("it", &[PROGRAM])],
        }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn try_run(&self, reuse_pass: bool) -> Result<Outcome, String> {
        let state = self.state();
        let world = (&RealFs as _, &RealClock as _, state.as_path());
        run(&self.host, world, &self.tests, reuse_pass)
    }

    fn run(&self) -> Outcome {
        self.try_run(false).expect("because nothing is in the way")
    }

    fn reuse(&self) -> Outcome {
        self.try_run(true).expect("because nothing is in the way")
    }

    /// Says why a recorded result was not taken, and sees that the tests ran instead.
    fn refusal(&self) -> NotReused {
        let before = self.host.started.get();
        let outcome = self.reuse();
        assert!(!outcome.was_reused && self.host.started.get() > before);
        outcome.not_reused.expect("because it was asked for")
    }

    fn key_folder(&self, outcome: &Outcome) -> PathBuf {
        self.state().join("focused/v1").join(&outcome.result.key)
    }
}

#[test]
fn a_pass_is_taken_only_where_it_is_asked_for() {
    let bench = Bench::new();
    assert_eq!(bench.refusal(), NotReused::Absent);
    let first = bench.run();
    assert_eq!((bench.host.started.get(), first.was_reused), (2, false));
    let second = bench.run();
    assert_eq!(bench.host.started.get(), 3);
    assert_eq!(first.result.key, second.result.key);
    assert_ne!(first.result.run, second.result.run);
    let reused = bench.reuse();
    assert_eq!((bench.host.started.get(), reused.was_reused), (3, true));
    assert_eq!((reused.result, reused.logs), (second.result, second.logs));
}

#[test]
fn whatever_changes_under_a_pass_makes_the_tests_run() {
    type Change = fn(&mut Bench);
    let changes: [(&str, Change); 6] = [
        ("build", |bench| {
            bench.host.facts.borrow_mut()["build"] = json!(2);
        }),
        ("device", |bench| {
            bench.host.facts.borrow_mut()["host"]["devices"]["cpu:1"] = json!({});
        }),
        ("fixture", |bench| {
            let mut fixtures = bench.host.fixtures.borrow_mut();
            let fixtures = fixtures.as_mut().expect("because none is damaged");
            fixtures.insert("fixture".to_owned(), Digest::of(b"other"));
        }),
        ("a fixture more", |bench| {
            let mut fixtures = bench.host.fixtures.borrow_mut();
            let fixtures = fixtures.as_mut().expect("because none is damaged");
            fixtures.insert("more".to_owned(), Digest::of(b"more"));
        }),
        ("argument", |bench| {
            bench.tests = vec![tap("it", &[PROGRAM, "more"])]
        }),
        ("test", |bench| bench.tests.push(tap("other", &[PROGRAM]))),
    ];
    for (what, change) in changes {
        let mut bench = Bench::new();
        bench.run();
        assert!(bench.reuse().was_reused, "{what}");
        change(&mut bench);
        assert_eq!(bench.refusal(), NotReused::Absent, "{what}");
    }
    let bench = Bench::new();
    bench.run();
    bench.host.are_fixtures_known.set(false);
    assert_eq!(bench.refusal(), NotReused::Fixtures);
}

#[test]
fn a_result_that_is_no_pass_is_never_taken() {
    let bench = Bench::new();
    bench.run();
    bench.host.does(prints("not ok 1 - it\n1..1\n"));
    let failed = bench.run();
    assert_eq!(failed.result.verdict, Verdict::Fail);
    assert_eq!(failed.result.tests[0].why, "1 of 1 cases failed, first it");
    let verdict = Verdict::Fail;
    assert_eq!(bench.refusal(), NotReused::NoPass { verdict });
    bench.host.does(prints("1..0 # SKIP no card\n"));
    let nothing = bench.run().result;
    assert_eq!(nothing.verdict, Verdict::NotExecuted);
    assert_eq!(nothing.tests[0].why, "no case ran");
    bench.host.does(Box::new(|_| Ok(ended(Exit::TimedOut))));
    assert_eq!(bench.run().result.verdict, Verdict::TimedOut);
    bench
        .host
        .does(Box::new(|_| Ok(ended(Exit::Signalled(11)))));
    let crashed = bench.run().result;
    assert_eq!(crashed.verdict, Verdict::Crashed);
    let words = (
        crashed.tests[0].exit.as_str(),
        crashed.tests[0].why.as_str(),
    );
    assert_eq!(words, ("signal 11", "ended by signal 11"));
}

/// What somebody did to the folder of a key.
type Tamper = Box<dyn Fn(&Path)>;

/// Each must be noticed for its own reason, and the run that is made instead must hold.
fn notice(tampers: Vec<(Tamper, &str)>) {
    for (index, (tamper, said)) in tampers.into_iter().enumerate() {
        let bench = Bench::new();
        let outcome = bench.run();
        tamper(&bench.key_folder(&outcome));
        let why = bench.refusal();
        assert!(why.to_string().contains(said), "{index}: {why}");
        assert_ne!(why, NotReused::Absent, "{index}: damage is not absence");
        assert!(bench.reuse().was_reused, "{index}");
    }
}

/// The log of standard output.
fn log(key: &Path) -> PathBuf {
    let only = |path: PathBuf| {
        let mut all: Vec<PathBuf> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        all.sort();
        all.pop().unwrap()
    };
    only(only(key.join("runs")))
}

fn edit(path: PathBuf, old: &str, new: &str) {
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{old}");
    fs::write(&path, text.replacen(old, new, 1)).unwrap();
}

fn allow(path: PathBuf, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn each_way_to_tamper_with_logs_is_noticed() {
    notice(vec![
        (
            Box::new(|key| edit(log(key), "ok 1", "ok 2")),
            "has SHA-256",
        ),
        (
            Box::new(|key| fs::write(log(key), "").unwrap()),
            "has SHA-256",
        ),
        (
            Box::new(|key| fs::remove_file(log(key)).unwrap()),
            "is not there",
        ),
        (
            Box::new(|key| allow(log(key), 0o622)),
            "others than its owner can change it",
        ),
        (
            Box::new(|key| fs::remove_dir_all(key.join("runs")).unwrap()),
            "its logs are gone",
        ),
    ]);
}

#[test]
fn each_way_to_tamper_with_a_record_is_noticed() {
    let record = |old: &'static str, new: &'static str| -> Tamper {
        Box::new(move |key| edit(key.join("result.json"), old, new))
    };
    let whole = |bytes: &'static str| -> Tamper {
        Box::new(move |key| fs::write(key.join("result.json"), bytes).unwrap())
    };
    notice(vec![
        (
            record("\"passed\":1", "\"passed\":2"),
            "its logs no longer prove test \"it\"",
        ),
        (
            record("\"passed\":1", "\"passed\":0"),
            "0 cases that passed",
        ),
        (record("\"cpu:0\"", "\"cpu:9\""), "its facts have"),
        (
            record("\"name\":\"it\",\"ver", "\"name\":\"at\",\"ver"),
            "no longer prove test \"at\"",
        ),
        (
            record("\"file\":\"000", "\"file\":\"../000"),
            "is no name of a log",
        ),
        (
            record(
                "\"verdict\":\"pass\",\"why\"",
                "\"verdict\":\"fail\",\"why\"",
            ),
            "verdict pass",
        ),
        (whole("{}\n"), "missing field"),
        (whole(""), "not JSON"),
        (
            Box::new(|key| allow(key.join("result.json"), 0o666)),
            "others than its owner can change it",
        ),
        (
            Box::new(|key| {
                let path = key.join("result.json");
                fs::rename(&path, key.join("aside")).unwrap();
                std::os::unix::fs::symlink("aside", path).unwrap();
            }),
            "expected a regular file",
        ),
    ]);
}

#[test]
fn the_result_of_another_key_is_no_result() {
    let mut bench = Bench::new();
    let one = bench.run();
    bench.tests.push(tap("other", &[PROGRAM]));
    let other = bench.run();
    let from = bench.key_folder(&one).join("result.json");
    fs::copy(from, bench.key_folder(&other).join("result.json")).unwrap();
    let recorded = one.result.key;
    assert_eq!(bench.refusal(), NotReused::OtherKey { recorded });
}

#[test]
fn what_was_not_verified_is_not_run_and_loses_nothing() {
    let mut bench = Bench::new();
    bench.run();
    let intact = bench
        .host
        .fixtures
        .replace(Err("mmvq is damaged".to_owned()));
    let error = bench
        .try_run(false)
        .expect_err("because a fixture is damaged");
    assert_eq!(
        (error.as_str(), bench.host.started.get()),
        ("mmvq is damaged", 1)
    );
    *bench.host.fixtures.borrow_mut() = intact;
    assert!(bench.reuse().was_reused, "the old pass is still there");
    bench.tests[0].command[0] = "nowhere".into();
    let error = bench
        .try_run(false)
        .expect_err("because there is no such program");
    let said = "test \"it\": nowhere: no such program in the search path";
    assert_eq!(error, said);
}

#[test]
fn a_build_that_changes_under_its_tests_has_no_result() {
    let bench = Bench::new();
    let bench: &'static Bench = Box::leak(Box::new(bench));
    bench.host.does(Box::new(|launch| {
        bench.host.facts.borrow_mut()["build"] = json!("rebuilt");
        prints("ok 1 - it\n1..1\n")(launch)
    }));
    let result = bench.run().result;
    assert_eq!(result.verdict, Verdict::NotExecuted);
    assert_eq!(result.tests[0].verdict, Verdict::Pass);
    let said = ["the build changed while its tests ran: build"];
    assert_eq!(result.not_reusable, said);
    bench.host.facts.borrow_mut()["build"] = json!(1);
    let verdict = Verdict::NotExecuted;
    assert_eq!(bench.refusal(), NotReused::NoPass { verdict });
    fs::remove_dir_all(bench.folder.path()).unwrap();
}

#[test]
fn a_file_that_is_swapped_under_its_tests_and_put_back_takes_their_pass() {
    let bench: &'static Bench = Box::leak(Box::new(Bench::new()));
    let identity = |bytes: &str| {
        let path = bench.folder.path().join("file");
        fs::write(&path, bytes).unwrap();
        let file = named_file(&path, &|_| Ok(Digest::of(b""))).unwrap();
        file.and_then(|file| file.identity)
            .expect("because it is there")
    };
    let touch = move |bytes: &str| {
        let mut identities = bench.host.identities.borrow_mut();
        identities.insert(PathBuf::from("/build/libk.so"), identity(bytes));
        identities.insert(PathBuf::from("/build/libl.so"), identity(bytes));
    };
    touch("1");
    assert_eq!(bench.run().result.verdict, Verdict::Pass);
    bench.host.does(Box::new(move |launch| {
        touch("22");
        prints("ok 1 - it\n1..1\n")(launch)
    }));
    let result = bench.run().result;
    assert_eq!(result.verdict, Verdict::NotExecuted);
    let said = ["touched while its tests ran: /build/libk.so and 1 more"];
    assert_eq!(result.not_reusable, said);
    let verdict = Verdict::NotExecuted;
    assert_eq!(bench.refusal(), NotReused::NoPass { verdict });
    fs::remove_dir_all(bench.folder.path()).unwrap();
}

#[test]
fn one_process_at_a_time_runs_a_key() {
    let bench = Bench::new();
    let outcome = bench.run();
    let key = Digest::parse(&outcome.result.key).unwrap();
    let state = bench.state();
    let runs = Runs::make(&RealFs, &RealClock, &state).unwrap();
    let lock = runs.lock(key, 0).unwrap();
    let error = bench.try_run(false).expect_err("because somebody runs it");
    assert!(
        error.ends_with("another process runs the same tests of the same build"),
        "{error}"
    );
    assert_eq!(bench.host.started.get(), 1);
    drop(lock);
    bench.run();
}

#[test]
fn old_runs_and_keys_go_and_what_counts_stays() {
    let mut bench = Bench::new();
    let mut last = bench.run();
    for _ in 0..RUNS_KEPT + 2 {
        last = bench.run();
    }
    let count = |path: PathBuf| fs::read_dir(path).unwrap().count();
    assert_eq!(count(bench.key_folder(&last).join("runs")), RUNS_KEPT);
    assert_eq!(last.runs_removed, 1);
    assert!(bench.reuse().was_reused);
    let mut removed = 0;
    for index in 0..KEYS_KEPT + 1 {
        bench.tests = vec![tap(&index.to_string(), &[PROGRAM])];
        removed += bench.run().keys_removed;
    }
    assert_eq!(removed, 2);
    // And the lock of whoever removes.
    assert_eq!(count(bench.state().join("focused/v1")), KEYS_KEPT + 1);
    assert!(bench.reuse().was_reused);
    assert!(!bench.key_folder(&last).exists());
}

#[test]
fn the_oldest_logs_of_all_keys_go_where_they_are_too_long() {
    let mut bench = Bench::new();
    let mut logs = Vec::new();
    for name in ["first", "first", "second", "it"] {
        bench.tests = vec![tap(name, &[PROGRAM])];
        let outcome = bench.run();
        // Longer than any log, and no space on the disk.
        let long = fs::File::create(outcome.logs.join("long")).unwrap();
        long.set_len(100 << 20).unwrap();
        logs.push(outcome.logs);
        assert_eq!(outcome.runs_removed, usize::from(name == "it"));
    }
    let key = |run: usize| logs[run].parent().and_then(Path::parent).unwrap();
    let are_there = || logs.iter().map(|path| path.is_dir()).collect::<Vec<_>>();
    assert_eq!(are_there(), [false, true, true, true]);
    assert!(key(0).join("result.json").is_file());
    let state = bench.state();
    let runs = Runs::make(&RealFs, &RealClock, &state).unwrap();
    // One that is in use stays; the next ones go, the last of a key with its result.
    let lock = Digest::parse(key(0).file_name().unwrap().to_str().unwrap()).unwrap();
    let lock = runs.lock(lock, 0).unwrap();
    assert_eq!(runs.prune_bytes(250 << 20), Ok(1));
    assert_eq!(are_there(), [false, true, false, true]);
    assert!(!key(2).exists());
    drop(lock);
    assert_eq!(runs.prune_bytes(0), Ok(1));
    assert_eq!(are_there(), [false, false, false, true]);
    assert!(!key(0).exists() && bench.reuse().was_reused);
}

#[test]
fn a_pass_that_is_reused_is_no_old_one() {
    let mut bench = Bench::new();
    let first = bench.run();
    bench.tests = vec![tap("second", &[PROGRAM])];
    let second = bench.run();
    bench.tests = vec![tap("it", &[PROGRAM])];
    assert!(bench.reuse().was_reused);
    let state = bench.state();
    let runs = Runs::make(&RealFs, &RealClock, &state).unwrap();
    assert_eq!(runs.prune(1), Ok(1));
    assert!(bench.key_folder(&first).exists() && !bench.key_folder(&second).exists());
}

#[test]
fn many_that_remove_old_keys_at_once_are_in_nobodys_way() {
    let folder = tempfile::tempdir().expect("because tests have a temporary folder");
    let state = folder.path().join("state");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let state = state.as_path();
            scope.spawn(move || {
                let runs = Runs::make(&RealFs, &RealClock, state).unwrap();
                for index in 0..40 {
                    let key = Digest::of(format!("{} {index}", thread / 2).as_bytes());
                    let locked = runs.lock(key, 60_000_000_000).unwrap();
                    locked.begin().unwrap();
                    drop(locked);
                    runs.prune(1).unwrap();
                }
            });
        }
    });
}

/// As somebody does who opened the folder before its name went, and is about to lock it.
#[test]
fn a_lock_that_is_made_in_a_folder_on_its_way_out_is_in_nobodys_way() {
    let folder = tempfile::tempdir().expect("because tests have a temporary folder");
    let state = folder.path().join("state");
    let runs = Runs::make(&RealFs, &RealClock, &state).unwrap();
    for index in 0..50 {
        let key = Digest::of(format!("{index}").as_bytes());
        drop(runs.lock(key, 60_000_000_000).unwrap());
        let path = state.join("focused/v1").join(key.to_string());
        let opened = fs::File::open(path).expect("because it was made");
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let lock = format!("/proc/self/fd/{}/lock", opened.as_raw_fd());
                // Nothing can be made in a folder that is gone.
                while fs::write(&lock, "").is_ok() {}
            });
            let pruned = runs.prune(0);
            // Before what is asserted, which would leave it at work.
            let left = fs::read_dir(state.join("focused/v1")).unwrap().flatten();
            for entry in left.filter(|entry| entry.path().is_dir()) {
                while entry.path().is_dir() {
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
            maker.join().unwrap();
            assert_eq!(pruned, Ok(1), "{index}");
        });
    }
}

#[test]
fn what_old_runs_leave_in_the_way_costs_no_verdict() {
    let bench = Bench::new();
    let outcome = bench.run();
    // A folder where files are removed, under the name of one that is being written.
    let temp = bench.key_folder(&outcome).join(".tmp-x");
    fs::create_dir(&temp).unwrap();
    let outcome = bench.run();
    assert_eq!(outcome.result.verdict, Verdict::Pass);
    let said = outcome
        .not_pruned
        .expect("because a folder can't be unlinked");
    assert!(said.to_string().contains(".tmp-x"), "{said}");
    assert!(bench.reuse().was_reused);
}

#[test]
fn names_of_tests_lead_nowhere() {
    let mut bench = Bench::new();
    let long = "n".repeat(200);
    let names = ["../../x", "a/b", "..", "A", "a", long.as_str()];
    bench.tests = names.iter().map(|name| tap(name, &[PROGRAM])).collect();
    let outcome = bench.run();
    let logs: Vec<&str> = outcome
        .result
        .tests
        .iter()
        .flat_map(|test| &test.logs)
        .map(|log| log.file.as_str())
        .collect();
    let mut there: Vec<String> = fs::read_dir(&outcome.logs)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    there.sort();
    let mut expected = logs.clone();
    expected.sort_unstable();
    assert_eq!(there, expected);
    assert_eq!(there.len(), names.len() * 3);
    assert!(bench.reuse().was_reused);
}

#[test]
fn what_is_not_covered_is_named_and_the_pass_is_not_taken() {
    let bench = Bench::new();
    bench.host.is_static.set(true);
    let result = bench.run().result;
    assert_eq!(result.verdict, Verdict::Pass);
    let said = ["it: it is a static program: what it loads and starts is not seen"];
    assert_eq!(result.not_reusable, said);
    let first = said[0].to_owned();
    assert_eq!(bench.refusal(), NotReused::NotReusable { first });
    bench.host.is_static.set(false);
    assert!(bench.run().result.not_reusable.is_empty());
    bench.host.covered.borrow_mut().clear();
    let result = bench.run().result;
    let said = ["it: /build/program was loaded, and the fingerprint does not cover it"];
    assert_eq!(result.not_reusable, said);
}
