//! The output of GoogleTest, 1.8 and later.
//!
//! What tests print stands between its lines; a line of its own begins at the line's start. One
//! that is glued to a test's output is not seen, and then the sums do not agree.

use super::lines::{Lines, number};
use super::{ProofFault, Reading, agree};

/// Reads the output; counts as far as it is read.
pub(super) fn read(stdout: &[u8], reading: &mut Reading) -> Result<(), ProofFault> {
    let mut lines = Lines::of(stdout)?;
    let planned = loop {
        let line = lines.take(START)?;
        if let Some(rest) = line.strip_prefix("[==========] Running ") {
            break count(rest).ok_or_else(|| lines.unlike(START))?;
        }
    };
    let mut begun = 0;
    let ran = loop {
        let line = lines.take(END)?;
        if line.starts_with("[ RUN      ] ") {
            begun += 1;
        } else if line.starts_with("[       OK ] ") {
            reading.passed();
        } else if let Some(name) = line.strip_prefix("[  FAILED  ] ") {
            reading.failed(name);
        } else if line.starts_with("[  SKIPPED ] ") {
            reading.skipped();
        } else if let Some(rest) = line.strip_prefix("[==========] ") {
            let count = count(rest).filter(|_| rest.contains(" ran."));
            break count.ok_or_else(|| lines.unlike(END))?;
        }
    };
    let counts = reading.counts;
    agree("tests begun", planned, begun)?;
    agree("tests that ran", ran, begun)?;
    let ended = counts.passed + counts.failed + counts.skipped;
    agree("tests ended", begun, ended)?;
    let line = lines.take(PASSED)?;
    let passed = line.strip_prefix("[  PASSED  ] ").and_then(count);
    let passed = passed.ok_or_else(|| lines.unlike(PASSED))?;
    agree("tests that passed", passed, counts.passed)?;
    let (mut failed, mut skipped) = (0, 0);
    while lines.peek().is_some() {
        let line = lines.take(PASSED)?;
        let listed = |prefix| {
            let rest = line.strip_prefix(prefix)?;
            rest.contains(", listed below:")
                .then(|| count(rest))
                .flatten()
        };
        failed += listed("[  FAILED  ] ").unwrap_or(0);
        skipped += listed("[  SKIPPED ] ").unwrap_or(0);
        if line.starts_with("[==========] ") || line.starts_with("[ RUN      ] ") {
            return Err(lines.unlike("the end: a second round is not read"));
        }
    }
    agree("tests that failed", failed, counts.failed)?;
    agree("tests that were skipped", skipped, counts.skipped)
}

/// Parses the number of `3 tests...` or `1 test...`.
fn count(text: &str) -> Option<u64> {
    let (digits, rest) = text.split_once(' ')?;
    rest.starts_with("test").then(|| number(digits)).flatten()
}

const START: &str = "`[==========] Running N tests`";
const END: &str = "`[==========] N tests ... ran.`";
const PASSED: &str = "`[  PASSED  ] N tests.`";
