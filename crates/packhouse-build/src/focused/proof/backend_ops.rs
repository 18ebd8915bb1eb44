//! The console of ggml's `test-backend-ops test`, as of b11434 and before.
//!
//! A back end that is skipped counts there as one that passed, no case at all is `0/0 tests passed`
//! and OK, and the exit code of both is 0: so only lines of cases prove anything.

use super::lines::{Lines, between, cut, ratio};
use super::{ProofFault, Reading, agree};

/// What a program has to have run.
struct Asked<'a> {
    backend: Option<&'a str>,
    op: Option<&'a str>,
}

/// One back end's part.
struct Part {
    name: String,
    was_skipped: bool,
    all_passed: bool,
}

/// Reads the console; counts as far as it is read.
pub(super) fn read(
    stdout: &[u8],
    backend: Option<&str>,
    op: Option<&str>,
    reading: &mut Reading,
) -> Result<(), ProofFault> {
    let asked = Asked { backend, op };
    let mut lines = Lines::of(stdout)?;
    let line = lines.take(DEVICES)?;
    let count = between(&line, "Testing ", " devices").and_then(super::lines::number);
    let count = count.ok_or_else(|| lines.unlike(DEVICES))?;
    lines.expect("")?;
    let mut parts = Vec::new();
    for index in 1..=count {
        parts.push(part(&mut lines, index, count, &asked, reading)?);
    }
    let line = lines.take(BACKENDS)?;
    let (passed, total) = line
        .strip_suffix(" backends passed")
        .and_then(ratio)
        .ok_or_else(|| lines.unlike(BACKENDS))?;
    agree("back ends", total, count)?;
    let passing = parts.iter().filter(|part| part.all_passed).count() as u64;
    agree("back ends that passed", passed, passing)?;
    let is_ok = status(&mut lines, "", "OK or FAIL")?;
    if is_ok != (passed == total) {
        return Err(lines.unlike("what the back ends say"));
    }
    lines.end()?;
    judge_parts(&parts, &asked)
}

fn judge_parts(parts: &[Part], asked: &Asked<'_>) -> Result<(), ProofFault> {
    let Some(backend) = asked.backend else {
        return Ok(());
    };
    for part in parts {
        if part.name == backend && part.was_skipped {
            return Err(ProofFault::BackendSkipped {
                backend: backend.to_owned(),
            });
        }
        if part.name != backend && !part.was_skipped {
            return Err(ProofFault::OtherBackend {
                asked: backend.to_owned(),
                actual: part.name.clone(),
            });
        }
    }
    if parts.iter().any(|part| part.name == backend) {
        return Ok(());
    }
    Err(ProofFault::NoBackend {
        asked: backend.to_owned(),
        there: parts.iter().map(|part| part.name.clone()).collect(),
    })
}

fn part(
    lines: &mut Lines,
    index: u64,
    count: u64,
    asked: &Asked<'_>,
    reading: &mut Reading,
) -> Result<Part, ProofFault> {
    let line = lines.take(BACKEND)?;
    let (number, name) = line
        .strip_prefix("Backend ")
        .and_then(|rest| rest.split_once(": "))
        .ok_or_else(|| lines.unlike(BACKEND))?;
    if ratio(number) != Some((index, count)) {
        return Err(lines.unlike(BACKEND));
    }
    if lines.skip("  Skipping") || lines.skip("  Skipping CPU backend") {
        return Ok(Part {
            name: cut(name),
            was_skipped: true,
            all_passed: true,
        });
    }
    lines.skip_prefix("  Device description: ");
    lines.skip_prefix("  Device memory: ");
    lines.expect("")?;
    let all_passed = cases(lines, asked, reading)?;
    if status(lines, "  Backend ", BACKEND_STATUS)? != all_passed {
        return Err(lines.unlike("what its cases say"));
    }
    Ok(Part {
        name: cut(name),
        was_skipped: false,
        all_passed,
    })
}

/// Reads the cases of one back end with their summary; says whether all passed.
fn cases(lines: &mut Lines, asked: &Asked<'_>, reading: &mut Reading) -> Result<bool, ProofFault> {
    let before = reading.counts;
    let (passed, total) = loop {
        let line = lines.take(CASE)?;
        if let Some(sum) = between(&line, "  ", " tests passed").and_then(ratio) {
            break sum;
        }
        case(&line, lines, asked, reading)?;
    };
    let lines_passed = reading.counts.passed - before.passed;
    let lines_failed = reading.counts.failed - before.failed;
    agree("cases", total, lines_passed + lines_failed)?;
    agree("cases that passed", passed, lines_passed)?;
    if lines_failed > 0 && lines.skip("") {
        lines.expect("Failing tests:")?;
        for _ in 0..lines_failed {
            if !lines.skip_prefix("  ") {
                return Err(lines.unlike("the name of a case that failed"));
            }
        }
    }
    Ok(passed == total)
}

/// Counts one case: `  OP(PARAMETERS): STATUS`. What a comparison found stands before the case or
/// before FAIL, and a tensor without room is a case that failed and has no line of its own.
fn case(
    line: &str,
    lines: &Lines,
    asked: &Asked<'_>,
    reading: &mut Reading,
) -> Result<(), ProofFault> {
    let mut line = line;
    while let Some((_, rest)) = line
        .strip_prefix("failed to allocate ")
        .and_then(|rest| rest.split_once("] "))
    {
        reading.failed("tensors that could not be allocated");
        line = rest;
    }
    if line.is_empty() {
        return Ok(());
    }
    if let Some(name) = line.strip_suffix("FAIL") {
        reading.failed(name.trim().trim_end_matches(':'));
        return Ok(());
    }
    let unlike = || lines.unlike(CASE);
    let text = line.strip_prefix("  ").ok_or_else(unlike)?;
    let (name, status) = text.split_once("): ").ok_or_else(unlike)?;
    let (op, _) = name.split_once('(').ok_or_else(unlike)?;
    if let Some(expected) = asked.op
        && op != expected
    {
        return Err(ProofFault::OtherOp {
            line: lines.number(),
            asked: expected.to_owned(),
            actual: cut(op),
        });
    }
    match status {
        "OK" => reading.passed(),
        _ if status.starts_with("not supported [") => reading.skipped(),
        "skipping large tensors for speed " => reading.skipped(),
        _ => return Err(unlike()),
    }
    Ok(())
}

/// Takes a line that ends with OK or FAIL; with a prefix there is a name before.
fn status(lines: &mut Lines, prefix: &str, expected: &'static str) -> Result<bool, ProofFault> {
    let line = lines.take(expected)?;
    let status = match line.strip_prefix(prefix) {
        Some(rest) if prefix.is_empty() => Some(rest),
        Some(rest) => rest.rsplit_once(": ").map(|(_, status)| status),
        None => None,
    };
    match status {
        Some("OK") => Ok(true),
        Some("FAIL") => Ok(false),
        Some(_) | None => Err(lines.unlike(expected)),
    }
}

const DEVICES: &str = "`Testing N devices`";
const BACKEND: &str = "`Backend I/N: NAME`";
const BACKENDS: &str = "`P/N backends passed`";
const BACKEND_STATUS: &str = "`  Backend NAME: OK` or `FAIL`";
const CASE: &str = "a case, or `  P/T tests passed`";
