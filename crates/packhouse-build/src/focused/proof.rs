//! How the output of a test program proves which cases ran: one strict reader for each form.
//!
//! Invariants:
//! - counts come from the lines of single cases and must agree with the program's own summary;
//! - what does not fit is a fault that names the line, never a pass.
//!
//! Never: takes an exit code for a proof. The forms are described in `docs/format/focused.md`.

mod backend_ops;
mod gtest;
mod libtest;
mod lines;
mod tap;

use crate::focused::verdict::Counts;
use serde::{Deserialize, Serialize};

/// The form in which a program says what it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Proof {
    /// `test-backend-ops` of ggml, on its console.
    BackendOps {
        /// The back end that must have run; all others must have been skipped. Null: any.
        backend: Option<String>,
        /// The operation that every case must be of. Null: any.
        op: Option<String>,
    },
    /// GoogleTest.
    Gtest,
    /// Rust's test harness.
    Libtest,
    /// Test Anything Protocol, version 12 to 14.
    Tap,
    /// The component protocol, on our fixtures.
    Component {
        /// The fixtures that are sent; empty: all.
        fixtures: Vec<String>,
    },
}

/// What an output says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Cases counted, up to the fault if there is one.
    pub counts: Counts,
    /// The first case that failed, as the program names it.
    pub first_failed: Option<String>,
    /// What does not fit; then the counts prove no pass.
    pub fault: Option<ProofFault>,
}

/// Why an output proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofFault {
    /// Nothing was printed.
    #[error("it printed nothing on stdout")]
    Empty,
    /// Bytes that are no text.
    #[error("line {line} of its output is not UTF-8")]
    NotText {
        /// From 1.
        line: usize,
    },
    /// A line that this form does not have there.
    #[error("line {line} of its output is {actual:?}, expected {expected}")]
    Line {
        /// From 1.
        line: usize,
        /// What the form has there.
        expected: &'static str,
        /// What is there, cut.
        actual: String,
    },
    /// The output ends before its form does.
    #[error("its output ends after line {line}, expected {expected}")]
    EndsEarly {
        /// The last line.
        line: usize,
        /// What the form has there.
        expected: &'static str,
    },
    /// The lines of cases and the program's own summary do not agree.
    #[error("{what}: its summary says {summary}, its lines say {lines}")]
    Sum {
        /// What is counted.
        what: &'static str,
        /// By the summary.
        summary: u64,
        /// By the lines.
        lines: u64,
    },
    /// The back end asked for is not there.
    #[error("no back end {asked}; there are {}", there.join(", "))]
    NoBackend {
        /// The one asked for.
        asked: String,
        /// Those that the program has.
        there: Vec<String>,
    },
    /// The back end asked for was skipped.
    #[error("back end {backend} was skipped")]
    BackendSkipped {
        /// Which.
        backend: String,
    },
    /// Another back end ran.
    #[error("back end {actual} ran, asked was {asked}")]
    OtherBackend {
        /// The one asked for.
        asked: String,
        /// The one that ran.
        actual: String,
    },
    /// A case of another operation ran.
    #[error("line {line} of its output is a case of {actual}, asked was {asked}")]
    OtherOp {
        /// From 1.
        line: usize,
        /// The operation asked for.
        asked: String,
        /// The one that ran.
        actual: String,
    },
    /// The program gave up.
    #[error("it gave up: {why}")]
    GaveUp {
        /// In its words, cut.
        why: String,
    },
}

impl Proof {
    /// The word in a file of tests.
    pub fn word(&self) -> &'static str {
        match self {
            Self::BackendOps { .. } => "backend-ops",
            Self::Gtest => "gtest",
            Self::Libtest => "libtest",
            Self::Tap => "tap",
            Self::Component { .. } => "component",
        }
    }

    /// Reads an output. Of the component protocol it is the driver's account, in the form of TAP.
    pub fn read(&self, stdout: &[u8]) -> Reading {
        let mut reading = Reading::default();
        let result = match self {
            Self::BackendOps { backend, op } => {
                backend_ops::read(stdout, backend.as_deref(), op.as_deref(), &mut reading)
            }
            Self::Gtest => gtest::read(stdout, &mut reading),
            Self::Libtest => libtest::read(stdout, &mut reading),
            Self::Tap | Self::Component { .. } => tap::read(stdout, &mut reading),
        };
        reading.fault = result.err();
        reading
    }
}

impl Reading {
    fn passed(&mut self) {
        self.counts.passed += 1;
    }

    fn failed(&mut self, name: &str) {
        self.counts.failed += 1;
        if self.first_failed.is_none() {
            self.first_failed = Some(lines::cut(name));
        }
    }

    fn skipped(&mut self) {
        self.counts.skipped += 1;
    }
}

/// Errors unless a summary's number is what the lines say.
fn agree(what: &'static str, summary: u64, lines: u64) -> Result<(), ProofFault> {
    if summary == lines {
        return Ok(());
    }
    Err(ProofFault::Sum {
        what,
        summary,
        lines,
    })
}

#[cfg(test)]
mod tests;
