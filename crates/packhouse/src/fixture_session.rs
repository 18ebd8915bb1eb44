//! What came of a session with an external program, and how it is told.

use crate::answer::Answer;
use crate::failure::{Exit, Failure, quoted};
use crate::fixture_program::title;
use crate::fixture_report::{Asked, Trial, document, is_near, told};
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_component::drive::{DriveError, What};
use packhouse_component::message::Introduction;
use packhouse_fixture::{Case, Fixture};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A session.
#[derive(Debug)]
pub(crate) struct Told {
    /// The program's file.
    pub(crate) path: PathBuf,
    /// What the program had to give back, and what the drawn cases come from.
    pub(crate) challenge: Digest,
    /// Whether the challenge is new.
    pub(crate) is_fresh: bool,
    /// Who the program says it is.
    pub(crate) introduction: Introduction,
    /// What was judged, or found to have faults.
    pub(crate) trials: Vec<Trial>,
    /// What was not executed.
    pub(crate) unrun: Vec<Unrun>,
    /// Why the session did not end as it should.
    pub(crate) broken: Option<DriveError>,
    /// Nanoseconds from the program's start to its end.
    pub(crate) elapsed_ns: Option<u64>,
}

/// A case that was not executed.
#[derive(Debug)]
pub(crate) struct Unrun {
    trial: Trial,
    reason: String,
}

impl Unrun {
    /// A case, and why it was not executed.
    pub(crate) fn new(fixture: &Fixture, case: &Case, asked: Asked, reason: String) -> Self {
        let trial = Trial {
            fixture: fixture.id.clone(),
            kernel: String::new(),
            width: case.width,
            arm: case.arm.clone(),
            asked: Some(asked),
            outcome: Err(Vec::new()),
        };
        Self { trial, reason }
    }

    fn document(&self) -> Value {
        let asked = self.trial.asked.as_ref();
        json!({
            "fixture": self.trial.fixture,
            "width": self.trial.width,
            "arm": self.trial.arm,
            "device": asked.map(|asked| &asked.device),
            "repeat": asked.map(|asked| asked.repeat),
            "drawn": asked.map(|asked| asked.is_drawn),
            "reason": self.reason,
        })
    }
}

impl Told {
    /// Cases that failed.
    pub(crate) fn failed_count(&self) -> usize {
        self.trials.iter().filter(|trial| !trial.passed()).count()
    }

    fn exit(&self) -> Exit {
        if self.failed_count() > 0 || self.broken.is_some() {
            Exit::Negative
        } else if self.trials.is_empty() || !self.unrun.is_empty() {
            Exit::NotExecuted
        } else {
            Exit::Done
        }
    }

    fn drawn_count(&self) -> usize {
        let asked = self.trials.iter().filter_map(|trial| trial.asked.as_ref());
        asked.filter(|asked| asked.is_drawn).count()
    }
}

/// The answer to a session: a table, faults, what was not executed, and one line that sums up.
pub(crate) fn answer(session: &Told) -> Answer {
    let mut text = String::new();
    if !session.trials.is_empty() {
        text += &told(&session.trials);
    }
    let program = title(&session.introduction);
    text += &warnings(&session.trials);
    text += &unrun(&session.unrun);
    if let Some(error) = &session.broken {
        let _ = writeln!(text, "failed: {}", Shown(&error.to_string()));
        for line in log_end(error) {
            let _ = writeln!(text, "log: {}", Shown(&line));
        }
    }
    let (cases, failed) = (session.trials.len(), session.failed_count());
    let drawn = session.drawn_count();
    let passed = if is_near(&session.trials) {
        "near, not bit-equal"
    } else {
        "passed"
    };
    let summary = match (session.exit(), failed) {
        (Exit::Done, _) => {
            let whence = if session.is_fresh {
                "drawn for this session"
            } else {
                "drawn from the challenge that was given"
            };
            let cases = counted(cases);
            format!("{passed}: {cases} by {program}, {drawn} of them {whence}")
        }
        (Exit::Negative, 0) => format!("failed: {program} did not end as it should"),
        (Exit::Negative, _) => {
            let (cases, challenge) = (counted(cases), session.challenge);
            format!("failed: {failed} of {cases} by {program}; challenge {challenge}")
        }
        (Exit::NotExecuted | Exit::Usage, _) => {
            let (missing, cases) = (counted(session.unrun.len()), counted(cases));
            format!("not executed: {missing}; {passed}: {cases} by {program}")
        }
    };
    let _ = writeln!(text, "{}", Shown(&summary));
    Answer {
        text,
        json: json!({
            "passed": session.exit() == Exit::Done,
            "cases": cases,
            "failed_cases": failed,
            "near": is_near(&session.trials),
            "trials": session.trials.iter().map(document).collect::<Vec<_>>(),
            "not_executed": session.unrun.iter().map(Unrun::document).collect::<Vec<_>>(),
            "drawn_cases": drawn,
            "challenge": session.challenge.to_string(),
            "fresh": session.is_fresh,
            "broken": session.broken.as_ref().map(ToString::to_string),
            "elapsed_ns": session.elapsed_ns,
            "program": {
                "path": session.path.to_string_lossy(),
                "name": session.introduction.name,
                "version": session.introduction.version,
                "devices": session.introduction.devices,
            },
        }),
        exit: session.exit(),
    }
}

/// A session that broke off before anything was found out.
pub(crate) fn broke(path: &Path, error: &DriveError, timeout_s: u64) -> Failure {
    let failure = Failure::new("the program was not run to its end", path.display());
    let mut failure = failure.because(error);
    let is_late = |error: &DriveError| {
        let DriveError::Broke { what, .. } = error else {
            return false;
        };
        matches!(what, What::TimedOut)
    };
    if is_late(error) {
        let longer_s = timeout_s.saturating_mul(10).min(TIMEOUT_S_MAX);
        failure = failure
            .cause(format!("--timeout is {timeout_s} s for each answer"))
            .hint(format!(
                "packhouse fixture run --timeout {longer_s} -- {}",
                quoted(path)
            ));
    }
    let lines = log_end(error).into_iter();
    lines.fold(failure, |failure, line| {
        failure.cause(format!("log: {line}"))
    })
}

/// The last lines that a program wrote to stderr.
fn log_end(error: &DriveError) -> Vec<String> {
    let DriveError::Broke { log, .. } = error else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(LINES_SHOWN);
    let cut = |line: &&str| line.chars().take(CHARS_SHOWN).collect();
    lines[first..].iter().map(cut).collect()
}

/// What the program had to say, each text once.
fn warnings(trials: &[Trial]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for trial in trials {
        let attested = trial.asked.as_ref().map(|asked| &asked.attested);
        let list = attested.and_then(|attested| attested["warnings"].as_array());
        for text in list.into_iter().flatten().filter_map(Value::as_str) {
            let line = format!("warning: {}\n", Shown(text));
            if !texts.contains(&line) {
                texts.push(line);
            }
        }
    }
    let more = texts.len().saturating_sub(LINES_SHOWN);
    texts.truncate(LINES_SHOWN);
    if more > 0 {
        texts.push(format!("warning: {more} more\n"));
    }
    texts.concat()
}

fn unrun(cases: &[Unrun]) -> String {
    let same = |one: &Unrun, other: &Unrun| {
        (&one.trial.fixture, &one.reason) == (&other.trial.fixture, &other.reason)
    };
    let mut text = String::new();
    let groups: Vec<&[Unrun]> = cases.chunk_by(same).collect();
    for group in groups.iter().take(LINES_SHOWN) {
        let (case, count) = (&group[0], group.len());
        let (fixture, reason) = (&case.trial.fixture, &case.reason);
        let line = match count {
            1 => {
                let width = case.trial.case();
                format!("not executed: {fixture} at width {width}: {reason}")
            }
            count => format!("not executed: {count} cases of {fixture}: {reason}"),
        };
        let _ = writeln!(text, "{}", Shown(&line));
    }
    let rest = groups.iter().skip(LINES_SHOWN);
    match rest.map(|group| group.len()).sum::<usize>() {
        0 => {}
        more => {
            let _ = writeln!(text, "not executed: {more} more");
        }
    }
    text
}

fn counted(cases: usize) -> String {
    let word = if cases == 1 { "case" } else { "cases" };
    format!("{cases} {word}")
}

const LINES_SHOWN: usize = 16;
const CHARS_SHOWN: usize = 200;
const TIMEOUT_S_MAX: u64 = 604_800;
