//! Prepares of one head at once, killed, interrupted.

use crate::image_world::{done, folder, images, must_be_tidy, names};
use crate::model;
use crate::sandbox::Sandbox;
use serde_json::json;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

const TILES: usize = 60;
const ROWS: u64 = 128 * TILES as u64 - 5;

/// A prepare into tiles of 32 KiB, many enough to be met on the way.
const WORDS: [&str; 11] = [
    "image",
    "prepare",
    "model.gguf",
    "--kd",
    "256",
    "--t",
    "128",
    "--layout",
    "int8-tile-b8-v1",
    "--min-free",
    "0",
];

fn write_model(sandbox: &Sandbox, seed: u64) {
    let tensors: [(&str, &str, &[u64]); 1] = [("output.weight", "Q8_0", &[256, ROWS])];
    model::write_seeded(&sandbox.path("model.gguf"), &tensors, seed);
}

fn start(sandbox: &Sandbox, more: &[&str]) -> Child {
    let words = [WORDS.as_slice(), more].concat();
    sandbox
        .command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("because it can be run")
}

/// Waits until there are so many tiles, or the process has ended.
fn wait_for(sandbox: &Sandbox, child: &mut Child, count: usize) {
    while images(sandbox).len() < count && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
}

fn temps(sandbox: &Sandbox) -> Vec<PathBuf> {
    let v1 = folder(sandbox).join("v1");
    let all = [names(&v1), names(&v1.join("owners"))].concat();
    let is_temp = |path: &PathBuf| path.extension().is_some_and(|end| end == "tmp");
    all.into_iter().filter(is_temp).collect()
}

/// Every tile that is there is whole, and is what the model packs to.
fn must_be_sound(sandbox: &Sandbox, count: usize) {
    let found = done(sandbox, &["image", "verify", "--model", "model.gguf"]);
    assert_eq!(found["good"], true, "{found}");
    assert_eq!(found["images"][0]["good_count"], count, "{found}");
    assert_eq!(done(sandbox, &["image", "verify"])["good"], true);
}

#[test]
fn two_processes_make_one_head_at_once_and_both_have_it() {
    let sandbox = Sandbox::new();
    for round in 0..6 {
        write_model(&sandbox, 1 + round);
        // The same owner, and two owners; every second round begins with nothing.
        let second: &[&str] = if round % 3 == 2 {
            &["--owner", "another"]
        } else {
            &[]
        };
        if round % 2 == 0 {
            done(&sandbox, &["image", "rm", "--all"]);
        }
        let children = [start(&sandbox, &[]), start(&sandbox, second)];
        for child in children {
            let output = child.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "round {round}: {errors}");
            assert!(!errors.contains("refused"), "round {round}: {errors}");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains("60 of 60 stored"), "round {round}: {said}");
        }
        must_be_sound(&sandbox, TILES);
        must_be_tidy(&folder(&sandbox));
        assert_eq!(done(&sandbox, &WORDS)["hit_count"], TILES, "round {round}");
    }
}

#[test]
fn kills_at_any_time_leave_whole_tiles_and_the_last_run_has_them_all() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, 1);
    let (mut killed, mut runs, mut stored) = (0, 0, 0);
    while killed < 6 {
        runs += 1;
        assert!(runs < 60, "only {killed} runs were killed before their end");
        let mut child = start(&sandbox, &[]);
        wait_for(&sandbox, &mut child, stored + 3);
        child.kill().unwrap();
        killed += usize::from(child.wait().unwrap().code().is_none());
        let now = images(&sandbox).len();
        assert!(now >= stored, "a tile went: {now} of {stored}");
        stored = now;
        if stored > 0 {
            must_be_sound(&sandbox, stored);
        }
        // A run that was done before its kill came leaves nothing to do for the next ones.
        if stored == TILES {
            done(&sandbox, &["image", "rm", "--all"]);
            stored = 0;
        }
    }
    let last = done(&sandbox, &WORDS);
    assert_eq!(
        (&last["hit_count"], &last["stored_count"]),
        (&json!(stored), &json!(TILES))
    );
    assert_eq!(last["refused"], json!([]));
    must_be_sound(&sandbox, TILES);
    // What a dead writer left goes, once it is too old to be one that has not locked it yet.
    for path in temps(&sandbox) {
        let then = SystemTime::now() - Duration::from_secs(120);
        std::fs::File::open(path)
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
    done(&sandbox, &["image", "gc"]);
    must_be_tidy(&folder(&sandbox));
    assert_eq!(images(&sandbox).len(), TILES);
}

/// A prepare that is told to end on its way. One that was done before it was told makes the next
/// one begin anew.
fn interrupted(sandbox: &Sandbox, signal: &str) -> Output {
    for _ in 0..50 {
        let mut child = start(sandbox, &["--threads", "1"]);
        let before = images(sandbox).len();
        wait_for(sandbox, &mut child, before + 1);
        // One that was waited for has no process any more that the signal could mean.
        if child.try_wait().unwrap().is_none() {
            let pid = child.id().to_string();
            let killed = Command::new("kill").args([signal, &pid]).status().unwrap();
            assert!(killed.success(), "nobody waited for it yet");
        }
        let output = child.wait_with_output().unwrap();
        if output.status.code() != Some(0) {
            return output;
        }
        done(sandbox, &["image", "rm", "--all"]);
    }
    panic!("{signal} came after the end each time");
}

#[test]
fn an_interrupt_between_tiles_ends_it_cleanly_and_the_next_run_makes_the_rest() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, 1);
    for signal in ["-INT", "-TERM"] {
        let output = interrupted(&sandbox, signal);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{errors}");
        let stored = images(&sandbox).len();
        assert!(errors.contains("error: stopped: model.gguf\n"), "{errors}");
        let cause =
            format!("cause: stopped at tile {stored} of 0 to 59: {stored} stored before it, ");
        assert!(errors.contains(&cause), "{stored}: {errors}");
        must_be_tidy(&folder(&sandbox));
        must_be_sound(&sandbox, stored);
        // The hint is the command that goes on.
        let hint = errors
            .lines()
            .find_map(|line| line.strip_prefix("hint: packhouse "));
        let words = "image prepare model.gguf --kd 256 --t 128 --min-free 0 --layout \
                     int8-tile-b8-v1";
        assert_eq!(hint, Some(words));
    }
    let stored = images(&sandbox).len();
    let rest = done(&sandbox, &WORDS);
    assert_eq!(
        (&rest["hit_count"], &rest["stored_count"]),
        (&json!(stored), &json!(TILES))
    );
    must_be_sound(&sandbox, TILES);
}
