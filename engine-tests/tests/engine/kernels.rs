//! The stock engine's own kernels against the fixtures of packed blocks, by the component protocol.
//!
//! A program loads the engine's libraries and calls the functions that a multiplication of packed
//! weights ends in. So the fixtures are about what an engine does: its quantisers give the same
//! bits, and its kernels, whose sums have other orders, are near.

use engine_tests::places;
use std::path::Path;
use std::process::{Command, Output};

const FIXTURES: [&str; 4] = [
    "mul-q4_k-ggml-cpu-repack-v1",
    "mul-q2_k-ggml-cpu-repack-v1",
    "mul-iq4_nl-ggml-cpu-repack-v1",
    "mul-mxfp4-ggml-cpu-repack-v1",
];

fn run(promise: &str, mode: &str) -> (Option<i32>, String) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/stock_kernels.py");
    let mut command = Command::new(places::packhouse());
    command.args(["fixture", "run", "--promise", promise]);
    command.args(FIXTURES).args(["--", "python3"]);
    command.arg(program).arg(places::engine_bin()).arg(mode);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("because packhouse is built");
    let said = [stdout, stderr].concat();
    let said = String::from_utf8(said).expect("because it says text");
    (status.code(), said)
}

/// What each line about a failing row says.
fn failed_rows(said: &str) -> Vec<&str> {
    let lines = said.lines().filter(|line| line.starts_with("failed: mul-"));
    lines.collect()
}

#[test]
fn the_engines_kernels_are_near_and_its_quantisers_bit_equal() {
    for mode in ["gemv", "gemm"] {
        let (code, said) = run("near", mode);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("near, not bit-equal: 48 cases"), "{said}");
    }
    let (code, said) = run("exact", "gemv");
    assert_eq!(code, Some(1), "{said}");
    let failed = failed_rows(&said);
    assert!(!failed.is_empty(), "{said}");
    let is_output = |line: &&str| line.contains(" output row ");
    assert!(failed.iter().all(is_output), "{said}");
}

/// The SIMD quantiser of `Q8_0` rounds halves to even: that shows where values lie on halves, and
/// nowhere else; `Q8_K` has no such form.
#[test]
fn codes_that_the_engine_rounds_otherwise_fail_in_the_row_of_midpoints() {
    let (code, said) = run("near", "simd");
    assert_eq!(code, Some(1), "{said}");
    let failed = failed_rows(&said);
    for fixture in &FIXTURES[2..] {
        let of_fixture = |line: &&&str| line.contains(fixture);
        // Activations and output of widths 4, 6, 8 and 16.
        assert_eq!(failed.iter().filter(of_fixture).count(), 8, "{said}");
    }
    assert_eq!(failed.len(), 16, "{said}");
    assert!(
        failed
            .iter()
            .all(|line| line.contains(" row 3 (midpoints): ")),
        "{said}"
    );
}
