//! One run: fixtures, fingerprint, key, lock, then either a recorded pass or the tests.
//!
//! Invariants:
//! - the old result is gone before the first test starts, the new one appears after the last log
//!   is durable;
//! - the fingerprint is taken again after the tests: a build that changed under them has no result
//!   but `not executed`, though it be the same again after them;
//! - a pass is reusable only if everything that its tests loaded was seen, and is a part of the
//!   fingerprint.

use super::environment::Environment;
use super::folder::{
    KEPT_BYTES_MAX, KEYS_KEPT, LOG_BYTES_MAX, RUNS_KEPT, RunFolder, Runs, RunsError,
};
use super::host::Host;
use super::key::{Bound, Key};
use super::named;
use super::one::{Scene, run_test};
use super::record::{RESULT_SCHEMA, RunResult, TestResult};
use super::reuse::{self, NotReused};
use super::test::Test;
use super::verdict::Verdict;
use super::words::lossless;
use crate::fingerprint::{Fingerprint, FingerprintError};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::child::StartError;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::FsError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The build's folder, an absolute path; tests work in it.
    pub build: &'a Path,
    /// The tests.
    pub tests: &'a [Test],
    /// Their environment.
    pub environment: &'a Environment,
    /// Whether a recorded pass of the same key will do.
    pub reuse_pass: bool,
    /// How long to wait for another process that runs the same, in nanoseconds.
    pub lock_timeout_ns: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result, now or as it was recorded.
    pub result: RunResult,
    /// Whether it was recorded before, and nothing ran.
    pub was_reused: bool,
    /// Why a recorded result did not do, where one was asked for.
    pub not_reused: Option<NotReused>,
    /// The folder of its logs.
    pub logs: PathBuf,
    /// Older runs of this key whose logs went.
    pub runs_removed: usize,
    /// Keys used longest ago whose results went.
    pub keys_removed: usize,
    /// Why not all that is old could be removed; the result is none the worse for it.
    pub not_pruned: Option<RunsError>,
}

/// Why a run could not be executed.
#[derive(Debug, thiserror::Error)]
pub enum FocusedError<R> {
    /// A fixture is damaged, or can't be made or read.
    #[error("fixtures could not be verified")]
    Fixtures(R),
    /// The build has no identity.
    #[error(transparent)]
    Fingerprint(#[from] FingerprintError),
    /// A test's program can't be found.
    #[error("test {name:?}: {source}")]
    Program {
        /// The test.
        name: String,
        /// Why.
        source: StartError,
    },
    /// The state of runs can't be read or changed.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// A log can't be written.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl<R> FocusedError<R> {
    /// Says whose side the failure is on. Of fixtures: `None`, as the refusal says it.
    pub fn blame(&self) -> Option<Blame> {
        match self {
            Self::Fixtures(_) => None,
            Self::Fingerprint(error) => Some(error.blame()),
            Self::Program { source, .. } => Some(source.blame()),
            Self::Runs(error) => Some(error.blame()),
            Self::Fs(error) => Some(error.blame()),
        }
    }
}

/// Everything that a key is made of.
struct Plan<'a> {
    fingerprint: Fingerprint,
    key: Key,
    bound: Vec<Bound<'a>>,
}

/// Runs tests, or finds their recorded pass. `progress` is told each test before it starts.
///
/// # Errors
/// When fixtures, build, programs or state can't be had. What tests do is no error.
pub fn focused<H: Host>(
    order: &Order<'_>,
    host: &H,
    runs: &Runs<'_>,
    clock: &dyn Clock,
    progress: &dyn Fn(&Test),
) -> Result<Outcome, FocusedError<H::Refusal>> {
    // Before anything that takes time.
    for test in order.tests {
        find(host, test)?;
    }
    let mut not_reused = None;
    if order.reuse_pass {
        match recorded(order, host, runs)? {
            Ok(outcome) => return Ok(outcome),
            Err(why) => not_reused = Some(why),
        }
    }
    let fixtures = host.fixtures().map_err(FocusedError::Fixtures)?;
    let plan = plan(order, host, &fixtures)?;
    let folder = runs.lock(plan.key.digest(), order.lock_timeout_ns)?;
    folder.invalidate()?;
    let run = folder.begin()?;
    let result = execute(order, host, clock, (&plan, &run), progress)?;
    folder.publish(&result.render())?;
    let of_key = folder.prune(RUNS_KEPT, run.id());
    let logs = run.dir().path().to_owned();
    drop(folder);
    let of_all = runs.prune(KEYS_KEPT);
    let of_bytes = runs.prune_bytes(KEPT_BYTES_MAX);
    let removed = |pruned: &Result<usize, RunsError>| *pruned.as_ref().unwrap_or(&0);
    Ok(Outcome {
        result,
        was_reused: false,
        not_reused,
        logs,
        runs_removed: removed(&of_key) + removed(&of_bytes),
        keys_removed: removed(&of_all),
        not_pruned: of_key.and(of_all).and(of_bytes).err(),
    })
}

/// Looks for a recorded pass of the key that these tests have now.
fn recorded<H: Host>(
    order: &Order<'_>,
    host: &H,
    runs: &Runs<'_>,
) -> Result<Result<Outcome, NotReused>, FocusedError<H::Refusal>> {
    let Some(fixtures) = host.fixtures_known() else {
        return Ok(Err(NotReused::Fixtures));
    };
    let plan = plan(order, host, &fixtures)?;
    let folder = runs.lock(plan.key.digest(), order.lock_timeout_ns)?;
    let found = reuse::find(&folder, &plan.key, order.tests);
    Ok(found.map(|(result, logs)| Outcome {
        result,
        was_reused: true,
        not_reused: None,
        logs,
        runs_removed: 0,
        keys_removed: 0,
        not_pruned: folder.refresh().err(),
    }))
}

fn plan<'a, H: Host>(
    order: &Order<'a>,
    host: &H,
    fixtures: &BTreeMap<String, Digest>,
) -> Result<Plan<'a>, FocusedError<H::Refusal>> {
    let fingerprint = host.fingerprint()?;
    let mut programs = Vec::new();
    for test in order.tests {
        let program = find(host, test)?;
        let (real, program_digest) = match fingerprint.files().get(&program) {
            Some(digest) => (program.clone(), *digest),
            None => host.content_of(&program)?,
        };
        programs.push(Bound {
            test,
            interpreters: named::interpreters(host, &real, order.build)?,
            files: named::words(host, test, order.build)?,
            program,
            real,
            program_digest,
        });
    }
    let devices = devices(&fingerprint);
    let key = Key::new(
        order.build,
        fingerprint.digest(),
        fixtures,
        &devices,
        &programs,
        order.environment,
    );
    Ok(Plan {
        fingerprint,
        key,
        bound: programs,
    })
}

fn find<H: Host>(host: &H, test: &Test) -> Result<PathBuf, FocusedError<H::Refusal>> {
    host.find(test).map_err(|source| FocusedError::Program {
        name: test.name.clone(),
        source,
    })
}

/// The ids of the host's devices, which the fingerprint has by name.
fn devices(fingerprint: &Fingerprint) -> BTreeSet<String> {
    let devices = &fingerprint.facts()["host"]["devices"];
    let ids = devices.as_object().into_iter().flat_map(|ids| ids.keys());
    ids.cloned().collect()
}

fn execute<H: Host>(
    order: &Order<'_>,
    host: &H,
    clock: &dyn Clock,
    (plan, run): (&Plan<'_>, &RunFolder),
    progress: &dyn Fn(&Test),
) -> Result<RunResult, FocusedError<H::Refusal>> {
    let (begun_wall_ns, begun_ns) = (clock.wall_ns(), clock.steady_ns());
    let mut tests: Vec<TestResult> = Vec::new();
    let mut not_reusable = BTreeSet::new();
    let variables = order.environment.variables();
    for (index, bound) in plan.bound.iter().enumerate() {
        progress(bound.test);
        let scene = Scene {
            index,
            bound,
            variables: &variables,
            folder: order.build,
            max_bytes: LOG_BYTES_MAX,
            fingerprint: &plan.fingerprint,
        };
        let (result, doubts) = run_test(&scene, host, run)?;
        let name = &bound.test.name;
        not_reusable.extend(doubts.into_iter().map(|doubt| format!("{name}: {doubt}")));
        tests.push(result);
    }
    run.sync()?;
    let mut verdict = Verdict::of_all(tests.iter().map(|test| test.verdict));
    for bound in &plan.bound {
        // A test may write what its command names: that is no fault of it.
        if named::words(host, bound.test, order.build)? != bound.files {
            let name = &bound.test.name;
            not_reusable.insert(format!(
                "{name}: a file that it names was touched meanwhile"
            ));
        }
    }
    let after = host.fingerprint()?;
    if let Some(what) = changed(&plan.fingerprint, &after) {
        not_reusable.insert(what);
        if verdict == Verdict::Pass {
            verdict = Verdict::NotExecuted;
        }
    }
    Ok(RunResult {
        schema: RESULT_SCHEMA.to_owned(),
        key: plan.key.digest().to_string(),
        facts: plan.key.facts().clone(),
        run: run.id().to_owned(),
        begun_wall_ns,
        elapsed_ns: clock.steady_ns().saturating_sub(begun_ns),
        verdict,
        not_reusable: not_reusable.into_iter().collect(),
        tests,
    })
}

/// What shows that a build is not what it was: the first fact in which it differs, or the first
/// file that was touched, though its content be the same again.
fn changed(before: &Fingerprint, after: &Fingerprint) -> Option<String> {
    if after.digest() != before.digest() {
        let differences = crate::fingerprint::explain(before, after);
        let first = differences
            .first()
            .map(|difference| difference.fact.join(", "));
        let what = first.unwrap_or_else(|| after.digest().to_string());
        return Some(format!("the build changed while its tests ran: {what}"));
    }
    let touched = after.touched_since(before);
    let first = lossless(touched.first()?);
    let more = match touched.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("touched while its tests ran: {first}{more}"))
}
