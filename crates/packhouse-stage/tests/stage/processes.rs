//! Processes that stage one set at once, and such as are killed in the middle.
//!
//! A test that needs another process starts this binary again for itself alone, with its task in
//! the environment.

use crate::fixture::{DEEP, options, publish_set};
use crate::real::{folder_in_ram, open_root, open_store};
use packhouse_base::digest::SetKey;
use packhouse_stage::{
    StageEvent, StageMiss, StageOptions, StageOutcome, Watcher, collect, stage, validate,
};
use packhouse_sys::clock::{Clock, RealClock};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FOLDER: &str = "PACKHOUSE_TEST_FOLDER";
const ROUND: &str = "PACKHOUSE_TEST_ROUND";

fn payloads() -> Vec<Vec<u8>> {
    (0..12usize)
        .map(|index| vec![index as u8 + 1; 1000 + index * 700_000])
        .collect()
}

fn publish(folder: &Path) -> SetKey {
    let payloads = payloads();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    publish_set(&open_store(folder), &payloads).key()
}

fn start(test: &str, folder: &Path, round: usize) -> Child {
    // Not by its path, where a build may have put another binary by now.
    Command::new("/proc/self/exe")
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("because this binary runs")
}

fn task() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn patient() -> StageOptions {
    StageOptions {
        wait_ns: 60_000_000_000,
        threads: 2.try_into().expect("because it is not 0"),
        ..options()
    }
}

/// Stages the store's only set; `tell` sees each event.
fn stage_only_set(folder: &Path, tell: &(dyn Fn(StageEvent) + Sync)) -> StageOutcome {
    let store = open_store(folder);
    let sets = store.list_sets().expect("because it can be listed");
    let root = open_root(&folder.join("stage"));
    let watcher = Watcher {
        tell,
        cancel: &|| false,
    };
    let staged = stage(&store, &root, sets[0], &patient(), watcher);
    staged.expect("because nothing is in the way").outcome
}

/// Waits for a line of a child, and gives its output back: a child whose output nobody reads ends.
fn wait_for(child: &mut Child, wanted: &str) -> BufReader<ChildStdout> {
    let output = child.stdout.take().expect("because it is piped");
    let mut output = BufReader::new(output);
    let mut lines = output.by_ref().lines().map_while(Result::ok);
    let seen = lines.any(|line| line == wanted);
    assert!(seen, "the child never said {wanted:?}");
    output
}

#[test]
fn two_processes_that_stage_one_set_at_once_copy_it_once() {
    if let Some(folder) = task() {
        let held = std::sync::Once::new();
        let outcome = stage_only_set(&folder, &|event| {
            if matches!(event, StageEvent::Begin { .. }) {
                held.call_once(|| {
                    println!("\nbegun");
                    // Goes on when the parent closes the pipe: the other one waits by then.
                    let _ = std::io::stdin().read_to_end(&mut Vec::new());
                });
            }
        });
        assert!(matches!(outcome, StageOutcome::Copied { .. }));
        return;
    }
    let test = "processes::two_processes_that_stage_one_set_at_once_copy_it_once";
    let folder = folder_in_ram();
    publish(folder.path());
    let mut child = start(test, folder.path(), 0);
    let _output = wait_for(&mut child, "begun");
    // Closed when the second one waits: then the first goes on.
    let stdin = Mutex::new(child.stdin.take());
    let waited = AtomicBool::new(false);
    let second = stage_only_set(folder.path(), &|event| {
        assert_eq!(event, StageEvent::Waits);
        waited.store(true, Ordering::Relaxed);
        drop(stdin.lock().expect("because nobody panicked").take());
    });
    assert!(waited.load(Ordering::Relaxed));
    assert_eq!(second, StageOutcome::Reused);
    assert!(child.wait().expect("because it is ours").success());
    let names = names(&folder.path().join("stage"));
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_killed_stager_leaves_no_half_stage_and_the_next_one_clears_up() {
    if let Some(folder) = task() {
        let round: u64 = std::env::var(ROUND)
            .ok()
            .and_then(|round| round.parse().ok())
            .expect("because the parent sets it");
        let events = AtomicU64::new(0);
        stage_only_set(&folder, &|_| {
            if events.fetch_add(1, Ordering::Relaxed) == round {
                println!("\nreached");
                let _ = std::io::stdout().flush();
                // Until the parent kills this process.
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
            }
        });
        return;
    }
    let test = "processes::a_killed_stager_leaves_no_half_stage_and_the_next_one_clears_up";
    let folder = folder_in_ram();
    let set = publish(folder.path());
    let stage_path = folder.path().join("stage");
    // Begin, and some of the copied pieces: 44 MiB in pieces of 64 KiB.
    for round in [0, 1, 7, 20, 40] {
        let mut child = start(test, folder.path(), round);
        let _output = wait_for(&mut child, "reached");
        child.kill().expect("because the child is ours");
        child.wait().expect("because the child is ours");
        let root = open_root(&stage_path);
        let found = validate(&root, set, DEEP, &|_| ());
        assert!(
            matches!(found.miss, Some(StageMiss::Absent { .. })),
            "round {round}: {found:?}"
        );
        let left = names(&stage_path);
        assert!(
            left.iter().any(|name| name.starts_with(".tmp-")) || round == 0,
            "{left:?}"
        );
    }
    let before_ns = RealClock.steady_ns();
    let outcome = stage_only_set(folder.path(), &|_| ());
    assert!(matches!(outcome, StageOutcome::Copied { .. }));
    let took_ns = RealClock.steady_ns() - before_ns;
    assert!(
        took_ns < 60_000_000_000,
        "a dead stager's lock was waited for"
    );
    let root = open_root(&stage_path);
    assert!(validate(&root, set, DEEP, &|_| ()).is_good());
    assert_eq!(names(&stage_path).len(), 2, "{:?}", names(&stage_path));
    let collected = collect(&root, open_store(folder.path()).id(), &|_| true, false)
        .expect("because the lock is free");
    assert_eq!(collected.temps.count, 0);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("because it is ours");
    let names = entries.map(|entry| entry.expect("because it is ours").file_name());
    names
        .map(|name| name.into_string().expect("because names are ASCII"))
        .collect()
}
