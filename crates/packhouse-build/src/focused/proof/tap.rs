//! Test Anything Protocol, versions 12 to 14: the top level alone.
//!
//! Subtests and diagnostics are indented and not counted. A test that is to do, or skipped, proves
//! nothing in either way.

use super::lines::{Lines, number};
use super::{ProofFault, Reading, agree};

/// Reads the output; counts as far as it is read.
pub(super) fn read(stdout: &[u8], reading: &mut Reading) -> Result<(), ProofFault> {
    let mut lines = Lines::of(stdout)?;
    let mut planned = None;
    let mut seen = 0;
    while lines.peek().is_some() {
        let line = lines.take(PLAN)?;
        if let Some(why) = line.strip_prefix("Bail out!") {
            return Err(ProofFault::GaveUp {
                why: super::lines::cut(why.trim()),
            });
        }
        if let Some(rest) = line.strip_prefix("1..") {
            let count = number(rest.split(' ').next().unwrap_or(""));
            let count = count.ok_or_else(|| lines.unlike(PLAN))?;
            if planned.replace(count).is_some() {
                return Err(lines.unlike("one plan only"));
            }
        } else if let Some((is_ok, rest)) = test_line(&line) {
            seen += 1;
            test(seen, is_ok, rest, &lines, reading)?;
        }
    }
    let planned = planned.ok_or(ProofFault::EndsEarly {
        line: lines.number(),
        expected: PLAN,
    })?;
    agree("tests", planned, seen)
}

/// `ok` or `not ok`, alone or before a blank.
fn test_line(line: &str) -> Option<(bool, &str)> {
    let (is_ok, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    (rest.is_empty() || rest.starts_with(' ')).then_some((is_ok, rest.trim_start()))
}

fn test(
    seen: u64,
    is_ok: bool,
    rest: &str,
    lines: &Lines,
    reading: &mut Reading,
) -> Result<(), ProofFault> {
    let (first, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let name = match number(first) {
        Some(number) if number == seen => name,
        Some(_) => return Err(lines.unlike("the next number")),
        None => rest,
    };
    if has_directive(name) {
        reading.skipped();
    } else if is_ok {
        reading.passed();
    } else {
        reading.failed(name.trim_start_matches("- "));
    }
    Ok(())
}

/// Whether a `#` that no backslash escapes is followed by `skip` or `todo`, with blanks between or
/// without, whatever stands behind it.
fn has_directive(name: &str) -> bool {
    let mut is_escaped = false;
    name.bytes().enumerate().any(|(at, byte)| {
        let is_begun = byte == b'#' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        let rest = name.get(at + 1..).filter(|_| is_begun);
        let head = rest.and_then(|rest| rest.trim_start().get(..4));
        head.is_some_and(|head| WORDS.iter().any(|word| head.eq_ignore_ascii_case(word)))
    })
}

const WORDS: [&str; 2] = ["skip", "todo"];
const PLAN: &str = "a plan `1..N`";
