//! The output of Rust's test harness: one part per test program, each with its own summary.
//!
//! Output of tests is captured by the harness unless it is told otherwise; of a test that prints
//! between its name and its result the result is not seen, and then the sums do not agree.

use super::lines::{Lines, between, number};
use super::{ProofFault, Reading, agree};

/// Reads the output; counts as far as it is read.
pub(super) fn read(stdout: &[u8], reading: &mut Reading) -> Result<(), ProofFault> {
    let mut lines = Lines::of(stdout)?;
    let mut parts = 0;
    while lines.peek().is_some() {
        let line = lines.take(START)?;
        let planned = between(&line, "running ", " tests")
            .or_else(|| between(&line, "running ", " test"))
            .and_then(number);
        if let Some(planned) = planned {
            part(planned, &mut lines, reading)?;
            parts += 1;
        } else if line.starts_with("test ") {
            return Err(lines.unlike(START));
        }
    }
    if parts > 0 {
        return Ok(());
    }
    Err(ProofFault::EndsEarly {
        line: lines.number(),
        expected: START,
    })
}

fn part(planned: u64, lines: &mut Lines, reading: &mut Reading) -> Result<(), ProofFault> {
    let before = reading.counts;
    let mut is_listing = false;
    let summary = loop {
        let line = lines.take(SUMMARY)?;
        // What failing tests printed follows, which may look like anything.
        is_listing |= line == "failures:" || line == "successes:";
        if let Some(rest) = line.strip_prefix("test result: ") {
            break rest.to_owned();
        }
        let Some((name, result)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
        else {
            continue;
        };
        if is_listing {
            continue;
        }
        match result {
            "ok" => reading.passed(),
            "FAILED" => reading.failed(name),
            _ if result == "ignored" || result.starts_with("ignored, ") => reading.skipped(),
            _ => return Err(lines.unlike("ok, FAILED or ignored")),
        }
    };
    let counts = reading.counts;
    let (passed, failed, skipped) = (
        counts.passed - before.passed,
        counts.failed - before.failed,
        counts.skipped - before.skipped,
    );
    let (status, numbers) = summary
        .split_once(". ")
        .ok_or_else(|| lines.unlike(SUMMARY))?;
    let mut fields = numbers.split("; ");
    let mut field = |suffix| {
        let text = fields.next().and_then(|field| field.strip_suffix(suffix));
        text.and_then(number).ok_or_else(|| lines.unlike(SUMMARY))
    };
    agree("tests that passed", field(" passed")?, passed)?;
    agree("tests that failed", field(" failed")?, failed)?;
    agree("tests that were ignored", field(" ignored")?, skipped)?;
    agree("tests that were measured", field(" measured")?, 0)?;
    agree("tests", planned, passed + failed + skipped)?;
    match (status, failed) {
        ("ok", 0) => Ok(()),
        ("FAILED", failed) if failed > 0 => Ok(()),
        _ => Err(lines.unlike("a status that its numbers have")),
    }
}

const START: &str = "`running N tests`";
const SUMMARY: &str = "`test result: ...`";
