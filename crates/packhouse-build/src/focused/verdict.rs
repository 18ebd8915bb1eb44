//! What came of a test, from how its process ended and what it printed.
//!
//! Invariants:
//! - a pass needs an exit code of 0, at least one case that ran and passed, none that failed, and
//!   output that adds up;
//! - no case that ran is `not executed`, which is neither a pass nor a fail.

use crate::focused::proof::Reading;
use packhouse_sys::child::Exit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What came of one test, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Cases ran, and all passed.
    Pass,
    /// A case failed, or the exit code says so.
    Fail,
    /// Its time was over and it was killed.
    TimedOut,
    /// A signal ended it.
    Crashed,
    /// No case ran, or what ran can't be told.
    NotExecuted,
}

/// How many cases did what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Cases that ran and passed.
    pub passed: u64,
    /// Cases that ran and failed.
    pub failed: u64,
    /// Cases that did not run: skipped, ignored or not supported.
    pub skipped: u64,
}

/// A verdict with its reason in words; a pass has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Why; empty for a pass.
    pub why: String,
}

impl Verdict {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::TimedOut => "timed out",
            Self::Crashed => "crashed",
            Self::NotExecuted => "not executed",
        }
    }

    /// The verdict of a whole: pass only if there is a test and every one passed. What failed
    /// outweighs what was not executed. Of nothing: not executed.
    pub fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        let weigh = |verdict: &Self| match verdict {
            Self::Pass => 0,
            Self::NotExecuted => 1,
            Self::TimedOut => 2,
            Self::Crashed => 3,
            Self::Fail => 4,
        };
        let worst = verdicts.into_iter().max_by_key(weigh);
        worst.unwrap_or(Self::NotExecuted)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Judges one test by how it ended and what its output says. `was_cut`: output was dropped because
/// it was too long.
pub fn judge(exit: Exit, was_cut: bool, reading: &Reading) -> Judged {
    let judged = |verdict, why: String| Judged { verdict, why };
    let early = |verdict, why: String| {
        let failed = failed(reading, &format!("; {why}"));
        failed.unwrap_or_else(|| judged(verdict, why))
    };
    let code = match exit {
        Exit::TimedOut => return early(Verdict::TimedOut, "its time was over".to_owned()),
        Exit::Signalled(signal) => {
            return early(Verdict::Crashed, format!("ended by signal {signal}"));
        }
        Exit::Exited(code) => code,
    };
    if let Some(failed) = failed(reading, "") {
        return failed;
    }
    let counts = reading.counts;
    let exit = match code {
        0 => String::new(),
        code => format!("; exit code {code}"),
    };
    if was_cut {
        let why = format!("it printed more than is kept{exit}");
        return judged(Verdict::NotExecuted, why);
    }
    if let Some(fault) = &reading.fault {
        return judged(Verdict::NotExecuted, format!("{fault}{exit}"));
    }
    if counts.passed == 0 {
        let skipped = match counts.skipped {
            0 => String::new(),
            skipped => format!("; {skipped} were skipped"),
        };
        let why = format!("no case ran{skipped}{exit}");
        return judged(Verdict::NotExecuted, why);
    }
    if code != 0 {
        let why = format!("exit code {code}, though every case passed");
        return judged(Verdict::Fail, why);
    }
    judged(Verdict::Pass, String::new())
}

/// A case that failed is a failure whatever else is wrong; what else there was, is said.
fn failed(reading: &Reading, end: &str) -> Option<Judged> {
    let counts = reading.counts;
    let first = match &reading.first_failed {
        Some(name) => format!(", first {name}"),
        None => String::new(),
    };
    let of = counts.passed + counts.failed;
    (counts.failed > 0).then(|| Judged {
        verdict: Verdict::Fail,
        why: format!("{} of {of} cases failed{first}{end}", counts.failed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::focused::proof::ProofFault;

    fn reading(passed: u64, failed: u64, skipped: u64) -> Reading {
        let first_failed = (failed > 0).then(|| "MUL_MAT(m=16)".to_owned());
        Reading {
            counts: Counts {
                passed,
                failed,
                skipped,
            },
            first_failed,
            fault: None,
        }
    }

    #[test]
    fn each_end_has_its_verdict_and_its_words() {
        let faulty = |passed, failed| Reading {
            fault: Some(ProofFault::Empty),
            ..reading(passed, failed, 0)
        };
        let exit = Exit::Exited;
        let one = "1 of 4 cases failed, first MUL_MAT(m=16)";
        let no_pass = "exit code 3, though every case passed";
        let none = "no case ran; 7 were skipped; exit code 1";
        let said = [
            (exit(0), reading(3, 0, 2), Verdict::Pass, ""),
            (exit(1), reading(3, 1, 0), Verdict::Fail, one),
            (exit(0), reading(3, 1, 0), Verdict::Fail, one),
            (exit(1), faulty(3, 1), Verdict::Fail, one),
            (exit(3), reading(3, 0, 0), Verdict::Fail, no_pass),
            (
                exit(0),
                reading(0, 0, 0),
                Verdict::NotExecuted,
                "no case ran",
            ),
            (exit(1), reading(0, 0, 7), Verdict::NotExecuted, none),
            (
                exit(0),
                faulty(3, 0),
                Verdict::NotExecuted,
                "it printed nothing on stdout",
            ),
            (
                Exit::Signalled(11),
                reading(3, 0, 0),
                Verdict::Crashed,
                "ended by signal 11",
            ),
            (
                Exit::TimedOut,
                reading(3, 0, 0),
                Verdict::TimedOut,
                "its time was over",
            ),
            (
                Exit::Signalled(11),
                faulty(3, 1),
                Verdict::Fail,
                "1 of 4 cases failed, first MUL_MAT(m=16); ended by signal 11",
            ),
            (
                Exit::TimedOut,
                faulty(3, 1),
                Verdict::Fail,
                "1 of 4 cases failed, first MUL_MAT(m=16); its time was over",
            ),
        ];
        for (exit, reading, verdict, why) in said {
            let why = why.to_owned();
            let judged = judge(exit, false, &reading);
            assert_eq!(judged, Judged { verdict, why }, "{exit:?} {reading:?}");
        }
        let cut = judge(exit(0), true, &reading(3, 0, 0));
        let words = (cut.verdict, cut.why.as_str());
        assert_eq!(
            words,
            (Verdict::NotExecuted, "it printed more than is kept")
        );
    }

    #[test]
    fn a_whole_passes_only_if_there_is_a_test_and_every_one_passed() {
        use Verdict::*;
        assert_eq!(Verdict::of_all([]), NotExecuted);
        assert_eq!(Verdict::of_all([Pass, Pass]), Pass);
        assert_eq!(Verdict::of_all([Pass, NotExecuted]), NotExecuted);
        assert_eq!(Verdict::of_all([NotExecuted, TimedOut, Pass]), TimedOut);
        assert_eq!(Verdict::of_all([Fail, NotExecuted, Pass]), Fail);
        assert_eq!(Verdict::of_all([Crashed, Pass]), Crashed);
    }
}
