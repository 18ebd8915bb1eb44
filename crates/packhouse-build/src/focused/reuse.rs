//! Whether a recorded result will do instead of a run.
//!
//! Invariants:
//! - only a pass, only of the identical key, only if the logs that it names still hash, and only if
//!   it says of itself that it is reusable;
//! - the logs of standard output still prove what was counted.

use super::folder::{KeyFolder, LogError};
use super::key::Key;
use super::record::{ResultError, RunResult, TestResult};
use super::test::Test;
use super::verdict::{Verdict, judge};
use packhouse_base::Blame;
use packhouse_store::folders::Owners;
use packhouse_store::small::SmallRefusal;
use packhouse_sys::child::Exit;
use packhouse_sys::fs::FsError;
use std::path::PathBuf;

/// Why a recorded result does not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReused {
    /// A fixture is missing, or was not hashed since it changed.
    #[error("a fixture is missing, or has to be verified anew")]
    Fixtures,
    /// There is none for this key.
    #[error("no result is recorded for this build, these tests and this environment")]
    Absent,
    /// The record can't be read.
    #[error(transparent)]
    Unread(SmallRefusal),
    /// The record is none.
    #[error("the recorded result is damaged: {0}")]
    Damaged(#[from] ResultError),
    /// The record is of another key than its folder.
    #[error("the recorded result is of another key: {recorded}")]
    OtherKey {
        /// The key in it.
        recorded: String,
    },
    /// What is recorded is no pass.
    #[error("what is recorded is no pass: {verdict}")]
    NoPass {
        /// What it is.
        verdict: Verdict,
    },
    /// The pass can't be reused.
    #[error("the recorded pass is not reusable: {first}")]
    NotReusable {
        /// The first reason.
        first: String,
    },
    /// The folder of its logs can't be opened.
    #[error("its logs are gone: {0}")]
    NoLogs(FsError),
    /// A log is not what was recorded.
    #[error("a log is not what was recorded: {0}")]
    Log(#[from] LogError),
    /// What a test printed does not prove what is recorded.
    #[error("its logs no longer prove test {name:?}")]
    Unproven {
        /// The test.
        name: String,
    },
}

impl NotReused {
    /// Says whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unread(error) => error.blame(),
            Self::NoLogs(error) => error.blame(),
            Self::Fixtures
            | Self::Absent
            | Self::Damaged(_)
            | Self::OtherKey { .. }
            | Self::NoPass { .. }
            | Self::NotReusable { .. }
            | Self::Unproven { .. }
            | Self::Log(_) => Blame::Store,
        }
    }
}

/// Finds the pass of a key, which has these tests; answers it and the folder of its logs.
pub(super) fn find(
    folder: &KeyFolder<'_>,
    key: &Key,
    tests: &[Test],
) -> Result<(RunResult, PathBuf), NotReused> {
    let bytes = folder.result().map_err(|error| match error {
        SmallRefusal::Absent { .. } => NotReused::Absent,
        other => NotReused::Unread(other),
    })?;
    let result = RunResult::parse(&bytes)?;
    if result.key != key.digest().to_string() {
        let recorded = result.key;
        return Err(NotReused::OtherKey { recorded });
    }
    if result.verdict != Verdict::Pass {
        let verdict = result.verdict;
        return Err(NotReused::NoPass { verdict });
    }
    if let Some(first) = result.not_reusable.first() {
        let first = first.clone();
        return Err(NotReused::NotReusable { first });
    }
    let run = folder.run(&result.run).map_err(NotReused::NoLogs)?;
    let owners = Owners::only(folder.uid());
    for recorded in &result.tests {
        let mut logs = Vec::new();
        for log in &recorded.logs {
            logs.push(run.verify(log, &owners)?);
        }
        let test = tests.iter().find(|test| test.name == recorded.name);
        if !test.is_some_and(|test| proves(test, &logs, recorded)) {
            let name = recorded.name.clone();
            return Err(NotReused::Unproven { name });
        }
    }
    if result.tests.len() != tests.len() {
        let found = |test: &&Test| !result.tests.iter().any(|other| other.name == test.name);
        let name = tests.iter().find(found).map(|test| test.name.clone());
        return Err(NotReused::Unproven {
            name: name.unwrap_or_default(),
        });
    }
    let logs = run.dir().path().to_owned();
    Ok((result, logs))
}

/// Whether what a test printed says what was recorded of it.
fn proves(test: &Test, logs: &[Vec<u8>], recorded: &TestResult) -> bool {
    let Some(stdout) = logs.first() else {
        return false;
    };
    let reading = test.proof.read(stdout);
    reading.counts == recorded.counts
        && judge(Exit::Exited(0), false, &reading).verdict == Verdict::Pass
}
