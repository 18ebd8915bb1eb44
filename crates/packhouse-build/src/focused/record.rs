//! `result.json`: what came of a run, and what it hangs on.
//!
//! Invariants:
//! - canonical JSON, every field there, none unknown;
//! - a record that contradicts itself is no record: its key is the digest of its facts, its verdict
//!   that of its tests, a pass has passing cases, and what is not reusable says why.

use super::folder::Log;
use super::key::Key;
use super::verdict::{Counts, Verdict};
use packhouse_base::canonical::{self, CanonicalError};
use packhouse_base::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The schema of a record.
pub const RESULT_SCHEMA: &str = "packhouse/focused-result/1";

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// `RESULT_SCHEMA`.
    pub schema: String,
    /// The key: 64 hex digits.
    pub key: String,
    /// The facts of the key.
    pub facts: Value,
    /// The run's id: 32 hex digits, the name of its folder of logs.
    pub run: String,
    /// When it began, in nanoseconds since the Unix epoch; for people.
    pub begun_wall_ns: i64,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// What came of all tests.
    pub verdict: Verdict,
    /// Why a pass is not reused, in words; empty where it is.
    pub not_reusable: Vec<String>,
    /// The tests, in the order in which they ran.
    pub tests: Vec<TestResult>,
}

/// What came of one test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestResult {
    /// Its name.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why; empty for a pass.
    pub why: String,
    /// Its cases.
    pub counts: Counts,
    /// How its process ended, in words.
    pub exit: String,
    /// How long it ran, in nanoseconds.
    pub elapsed_ns: u64,
    /// Its logs.
    pub logs: Vec<Log>,
    /// What its processes loaded.
    pub loaded: Vec<LoadedFile>,
}

/// A file that a test loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadedFile {
    /// Its real path.
    pub path: String,
    /// SHA-256 of its content; null where it could not be hashed any more.
    pub sha256: Option<String>,
    /// Whether the fingerprint holds this very file with this content.
    pub covered: bool,
}

/// Why bytes are no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// Not canonical JSON.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// A field that is absent, unknown or of another type.
    #[error("{reason}")]
    Form {
        /// What the reader said.
        reason: String,
    },
    /// Another schema.
    #[error("schema {actual:?}, expected {RESULT_SCHEMA:?}")]
    Schema {
        /// The one present.
        actual: String,
    },
    /// The key is not that of the facts.
    #[error("key {recorded}, its facts have {actual}")]
    Key {
        /// As recorded.
        recorded: String,
        /// Of its facts.
        actual: Digest,
    },
    /// The verdict is not that of the tests.
    #[error("verdict {recorded}, its tests have {actual}")]
    Verdict {
        /// As recorded.
        recorded: Verdict,
        /// Of its tests.
        actual: Verdict,
    },
    /// A test that passed without a case that did, or with one that failed.
    #[error("test {name:?} passed, with {passed} cases that passed and {failed} that failed")]
    Counts {
        /// The test.
        name: String,
        /// Cases that passed.
        passed: u64,
        /// Cases that failed.
        failed: u64,
    },
    /// A file that is not covered, in a result without a word on it.
    #[error("{path} is not covered, and nothing says that the result is not reusable")]
    Uncovered {
        /// The file.
        path: String,
    },
}

impl RunResult {
    /// Renders it as it is stored.
    pub fn render(&self) -> Vec<u8> {
        let value = serde_json::to_value(self).expect("because all its keys are texts");
        canonical::render(&value)
    }

    /// Parses what `render` wrote. Errors on anything else, and on a result that contradicts
    /// itself.
    pub fn parse(bytes: &[u8]) -> Result<Self, ResultError> {
        let value = canonical::parse(bytes)?;
        let result: Self = serde_json::from_value(value).map_err(|error| ResultError::Form {
            reason: error.to_string(),
        })?;
        if result.schema != RESULT_SCHEMA {
            return Err(ResultError::Schema {
                actual: result.schema,
            });
        }
        result.judge()?;
        Ok(result)
    }

    fn judge(&self) -> Result<(), ResultError> {
        let actual = Key::of(self.facts.clone()).digest();
        if self.key != actual.to_string() {
            let recorded = self.key.clone();
            return Err(ResultError::Key { recorded, actual });
        }
        for test in &self.tests {
            let (passed, failed) = (test.counts.passed, test.counts.failed);
            if test.verdict == Verdict::Pass && (passed == 0 || failed > 0) {
                return Err(ResultError::Counts {
                    name: test.name.clone(),
                    passed,
                    failed,
                });
            }
            let uncovered = test.loaded.iter().find(|file| !file.covered);
            if let (Some(file), true) = (uncovered, self.not_reusable.is_empty()) {
                return Err(ResultError::Uncovered {
                    path: file.path.clone(),
                });
            }
        }
        let of_tests = Verdict::of_all(self.tests.iter().map(|test| test.verdict));
        // A build that changed under passing tests takes the pass away.
        let is_taken = of_tests == Verdict::Pass && self.verdict == Verdict::NotExecuted;
        if self.verdict == of_tests || (is_taken && !self.not_reusable.is_empty()) {
            return Ok(());
        }
        Err(ResultError::Verdict {
            recorded: self.verdict,
            actual: of_tests,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result() -> RunResult {
        let key = Key::of(json!({"fingerprint": "x"}));
        RunResult {
            schema: RESULT_SCHEMA.to_owned(),
            key: key.digest().to_string(),
            facts: key.facts().clone(),
            run: "0".repeat(32),
            begun_wall_ns: 7,
            elapsed_ns: 8,
            verdict: Verdict::Pass,
            not_reusable: Vec::new(),
            tests: vec![TestResult {
                name: "a".to_owned(),
                verdict: Verdict::Pass,
                why: String::new(),
                counts: Counts {
                    passed: 1,
                    failed: 0,
                    skipped: 0,
                },
                exit: "exit code 0".to_owned(),
                elapsed_ns: 5,
                logs: Vec::new(),
                loaded: vec![LoadedFile {
                    path: "/lib/x".to_owned(),
                    sha256: Some("0".repeat(64)),
                    covered: true,
                }],
            }],
        }
    }

    #[test]
    fn what_is_rendered_is_parsed_and_nothing_else() {
        let bytes = result().render();
        assert_eq!(RunResult::parse(&bytes), Ok(result()));
        let text = String::from_utf8(bytes).expect("because it is JSON");
        for (old, new, said) in [
            (
                "\"verdict\":\"pass\",\"why\"",
                "\"verdict\":\"fail\",\"why\"",
                "verdict pass",
            ),
            (
                "\"fingerprint\":\"x\"",
                "\"fingerprint\":\"y\"",
                "its facts have",
            ),
            (
                "\"passed\":1",
                "\"passed\":0",
                "0 cases that passed and 0 that failed",
            ),
            (
                "\"failed\":0",
                "\"failed\":1",
                "1 cases that passed and 1 that failed",
            ),
            (
                "result/1",
                "result/2",
                "expected \"packhouse/focused-result/1\"",
            ),
            (
                "\"covered\":true",
                "\"covered\":false",
                "/lib/x is not covered",
            ),
            ("\"elapsed_ns\":8,", "", "not canonical"),
            ("\"begun_wall_ns\":7,", "", "missing field `begun_wall_ns`"),
            (
                "\"begun_wall_ns\":7,",
                "\"a\":1,\"begun_wall_ns\":7,",
                "unknown field `a`",
            ),
            ("\"elapsed_ns\":8", "\"elapsed_ns\":\"8\"", "invalid type"),
        ] {
            let edited = text.replacen(old, new, 1);
            assert_ne!(edited, text, "{old}");
            // One of two equal texts: the edit must say for itself what is wrong.
            let Err(error) = RunResult::parse(edited.as_bytes()) else {
                panic!("{new} was read");
            };
            let error = error.to_string();
            let is_form = said == "not canonical" && error.contains("missing field");
            assert!(error.contains(said) || is_form, "{new}: {error}");
        }
    }

    #[test]
    fn a_pass_can_be_taken_away_and_not_given() {
        let mut taken = result();
        taken.verdict = Verdict::NotExecuted;
        let error = RunResult::parse(&taken.render()).expect_err("because nothing says why");
        assert_eq!(
            error.to_string(),
            "verdict not executed, its tests have pass"
        );
        taken.not_reusable = vec!["the build changed".to_owned()];
        assert_eq!(RunResult::parse(&taken.render()), Ok(taken));
        let mut given = result();
        given.tests[0].verdict = Verdict::Crashed;
        given.not_reusable = vec!["a test did not pass".to_owned()];
        let error = RunResult::parse(&given.render()).expect_err("because its test crashed");
        assert_eq!(error.to_string(), "verdict pass, its tests have crashed");
    }
}
