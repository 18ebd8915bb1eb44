//! The plug-in's buffer against the real engine's own: every entry, and 500 loads and unloads.
//!
//! The scenarios are those that the plug-in's own tests run on a mock ggml, see
//! `crates/packhouse-ggml/tests/host/entries.c`, here in a C host linked to the engine's libraries.
//! Each compares every byte in a buffer of the plug-in with what a stock CPU_REPACK buffer holds.
#![forbid(unsafe_code)]

use engine_tests::{Mode, Sandbox, places};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the host against the headers of the engine that it is linked to.
fn host(sandbox: &Sandbox) -> PathBuf {
    let bin = places::engine_bin();
    let include = bin
        .ancestors()
        .map(|folder| folder.join("src/ggml/include"))
        .find(|folder| folder.is_dir())
        .expect("the engine's sources lie beside its libraries: bash scripts/engine.sh");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/packhouse-ggml/tests/host");
    let program = sandbox.path().join("engine_host");
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-g",
            "-O1",
            "-DREAL_GGML",
        ])
        .arg("-I")
        .arg(include)
        .args(["engine_host.c", "entries.c", "-o"])
        .arg(&program)
        .arg("-L")
        .arg(&bin)
        .arg(format!("-Wl,-rpath,{}", bin.display()))
        .args(["-lggml", "-lggml-base", "-lpthread"])
        .current_dir(sources)
        .output()
        .expect("a C compiler is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the host was not compiled: {said}");
    program
}

/// Runs a scenario; returns the plug-in's lines.
fn run(words: &[&str]) -> Vec<String> {
    let sandbox = Sandbox::new();
    let (mut command, _) = sandbox.command(&host(&sandbox), Mode::Packs);
    let output = command
        .arg(places::engine_bin())
        .args(words)
        .current_dir(sandbox.path())
        .output()
        .expect("the host was compiled");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{words:?}: {}: {stderr}",
        output.status
    );
    assert_eq!(output.stdout, b"ok\n", "{words:?}");
    let lines = stderr
        .lines()
        .filter(|line| line.starts_with("packhouse: "));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    for line in &lines {
        let is_load = line.contains(" tensors mapped");
        assert!(!is_load || line.contains(" 0 refused"), "{line}");
        for word in ["defect", "no memory", "differs", "not written", "stopped:"] {
            assert!(!line.contains(word), "{line}");
        }
    }
    lines
}

#[test]
fn every_entry_leaves_the_bytes_of_the_engines_own_packer() {
    let lines = run(&["entries"]);
    let mapped = lines.iter().filter(|line| line.contains(" 0 packed"));
    assert!(
        mapped.count() >= 8,
        "each operation met mapped tensors: {lines:#?}"
    );
}

#[test]
fn views_and_placements_are_those_of_a_stock_buffer() {
    for scenario in ["views", "by-hand", "again", "over-waiting", "nothing"] {
        run(&[scenario]);
    }
}

#[test]
fn five_hundred_loads_and_unloads_during_fills() {
    let lines = run(&["cycles", "500"]);
    let stored = lines
        .iter()
        .filter(|line| line.contains("packhouse: stored "));
    assert!(stored.count() >= 3, "fills went on meanwhile: {lines:#?}");
}

#[test]
fn several_models_on_several_threads() {
    run(&["threads", "12"]);
}
