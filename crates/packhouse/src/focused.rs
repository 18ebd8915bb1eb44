//! `focused`: named tests of a build, run under a key, or a recorded pass of that very key.

use crate::answer::{Answer, Column, fitted_table};
use crate::bar::note;
use crate::failure::{Exit, Failure, quoted};
use crate::files::read_at_most;
use crate::fixture::Place;
use crate::fixture_words::FixtureSelectArgs;
use crate::focused_component;
use crate::focused_fixtures::Fixtures;
use crate::focused_words::FocusedArgs;
use crate::hints;
use crate::places::{self, Lookup};
use crate::worker_devices;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_build::fingerprint::{
    self, Fingerprint, FingerprintError, Request, World, content_of, is_static,
};
use packhouse_build::focused::{
    Environment, FocusedError, Host, Launch, NamedFile, Order, Outcome, Proof, RunResult, Runs,
    RunsError, TESTS_BYTES_MAX, Test, TestResult, TestsError, Verdict, backend_ops_tests,
    find_program, focused, head_of, named_file, parse_tests, run_child,
};
use packhouse_fixture::families;
use packhouse_proc::devices::Roots;
use packhouse_proc::devices::host_tools::HostTools;
use packhouse_stage::models::{FileDigests, digest_of};
use packhouse_sys::child::{Ended, StartError};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Answers the command.
pub(crate) fn execute(args: &FocusedArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let environment = Environment::new(&places::whole_environment(), &args.env);
    let environment = environment.map_err(|error| {
        Failure::usage("not a variable for tests", &error)
            .hint("packhouse focused DIR --env LD_LIBRARY_PATH=/opt/lib")
    })?;
    let tests = tests(args)?;
    let build = real_folder(&args.build)?;
    let state = places::state(lookup)?;
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let digests = FileDigests::make(Arc::clone(&fs), Arc::clone(&clock), &state).ok();
    let of_fixtures =
        FileDigests::make_for_fixtures(Arc::clone(&fs), Arc::clone(&clock), &state).ok();
    let select = FixtureSelectArgs {
        ids: Vec::new(),
        fixtures: args.fixtures.clone(),
    };
    let place = Place::of(&select, lookup)?;
    let host = ThisHost {
        args,
        build: &build,
        environment: environment.variables(),
        own: places::whole_environment(),
        fixtures: Fixtures::new(place, of_fixtures.as_ref()),
        digests: digests.as_ref(),
        tools: worker_devices::tools(lookup),
        roots: Roots::default(),
        state: &state,
        fs: &fs,
        clock: &clock,
    };
    let runs = Runs::make(fs.as_ref(), clock.as_ref(), &state);
    let runs = runs.map_err(|error| no_state(&state, &error))?;
    let order = Order {
        build: &build,
        tests: &tests,
        environment: &environment,
        reuse_pass: args.reuse_pass,
        lock_timeout_ns: args.lock_timeout.saturating_mul(1_000_000_000),
    };
    let progress = |test: &Test| note(&format!("running {}", Shown(&test.name)));
    let outcome = focused(&order, &host, &runs, clock.as_ref(), &progress);
    note("");
    let outcome = outcome.map_err(|error| not_executed(args, &state, error))?;
    Ok(answer(&outcome, &host.fixtures.made()))
}

/// This machine, for a run.
struct ThisHost<'a> {
    args: &'a FocusedArgs,
    build: &'a Path,
    environment: Vec<(OsString, OsString)>,
    own: Vec<(OsString, OsString)>,
    fixtures: Fixtures<'a>,
    digests: Option<&'a FileDigests>,
    tools: HostTools,
    roots: Roots,
    state: &'a Path,
    fs: &'a Arc<dyn Fs>,
    clock: &'a Arc<dyn Clock>,
}

impl ThisHost<'_> {
    fn world(&self) -> World<'_> {
        World {
            fs: self.fs,
            clock: self.clock,
            state: Some(self.state),
            tools: &self.tools,
            roots: &self.roots,
            own: &self.own,
        }
    }
}

impl Host for ThisHost<'_> {
    type Refusal = Failure;

    fn fixtures_known(&self) -> Option<BTreeMap<String, Digest>> {
        self.fixtures.known()
    }

    fn fixtures(&self) -> Result<BTreeMap<String, Digest>, Failure> {
        self.fixtures.verified()
    }

    fn fingerprint(&self) -> Result<Fingerprint, FingerprintError> {
        let request = Request {
            build: self.build,
            source: self.args.source.as_deref(),
            with: &self.args.with,
            environment: &self.environment,
        };
        fingerprint::fingerprint(&request, &self.world())
    }

    fn content_of(&self, path: &Path) -> Result<(PathBuf, Digest), FingerprintError> {
        content_of(path, &self.world())
    }

    fn named(&self, path: &Path) -> Result<Option<NamedFile>, FingerprintError> {
        named_file(path, &|file| {
            let digest = digest_of(self.digests, file, &|_| {}, &|| false);
            digest
                .map(|found| found.digest)
                .map_err(|error| error.to_string())
        })
    }

    fn head(&self, program: &Path) -> Vec<u8> {
        head_of(program)
    }

    fn is_static(&self, program: &Path) -> bool {
        is_static(program)
    }

    fn find(&self, test: &Test) -> Result<PathBuf, StartError> {
        let path = self.environment.iter().find(|(name, _)| name == "PATH");
        find_program(test, self.build, path.map(|(_, value)| value.as_os_str()))
    }

    fn run(&self, launch: &Launch<'_>) -> Result<Ended, StartError> {
        match launch.test.proof {
            Proof::Component { .. } => focused_component::run(launch),
            Proof::BackendOps { .. } | Proof::Gtest | Proof::Libtest | Proof::Tap => {
                run_child(launch)
            }
        }
    }
}

fn tests(args: &FocusedArgs) -> Result<Vec<Test>, Failure> {
    let Some(path) = &args.tests else {
        let ops = match args.op.is_empty() {
            true => vec![DEFAULT_OP.to_owned()],
            false => args.op.clone(),
        };
        let backend = args.backend.as_deref().unwrap_or(DEFAULT_BACKEND);
        let params = args.params.as_deref();
        let tests = backend_ops_tests(OPS_PROGRAM, &ops, backend, params, args.timeout);
        return tests.map_err(|error| no_tests(&args.build, &error));
    };
    let limit = usize::try_from(TESTS_BYTES_MAX).unwrap_or(usize::MAX);
    let bytes = read_at_most(path, limit).map_err(|error| {
        Failure::new("cannot read the file of tests", path.display())
            .because(&error)
            .hint(format!("ls -l {}", quoted(path)))
    })?;
    if bytes.len() > limit {
        let cause = format!("longer than {TESTS_BYTES_MAX} bytes");
        return Err(Failure::new("not a file of tests", path.display()).cause(cause));
    }
    let tests = parse_tests(&bytes, args.timeout).map_err(|error| {
        Failure::usage("not a file of tests", path.display())
            .because(&error)
            .hint("packhouse focused --help")
    })?;
    for test in &tests {
        let Proof::Component { fixtures } = &test.proof else {
            continue;
        };
        if let Some(id) = fixtures.iter().find(|id| families::find(id).is_none()) {
            return Err(Failure::usage("not a file of tests", path.display())
                .cause(format!("test {:?}: no such fixture: {id}", test.name))
                .hint("packhouse fixture ls"));
        }
    }
    Ok(tests)
}

fn no_tests(build: &Path, error: &TestsError) -> Failure {
    Failure::usage("no such tests", error)
        .hint(format!("packhouse focused {} --op MUL_MAT", quoted(build)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the CLI resolves what the user names"
)]
fn real_folder(build: &Path) -> Result<PathBuf, Failure> {
    let real = build.canonicalize().and_then(|real| match real.is_dir() {
        true => Ok(real),
        false => Err(std::io::Error::from(std::io::ErrorKind::NotADirectory)),
    });
    real.map_err(|error| {
        Failure::new("cannot open the build", build.display())
            .because(&error)
            .hint(format!("ls -ld {}", quoted(build)))
    })
}

fn no_state(state: &Path, error: &RunsError) -> Failure {
    Failure::new("cannot use the private state", state.display())
        .because(error)
        .hint(hints::of(error, state))
}

fn not_executed(args: &FocusedArgs, state: &Path, error: FocusedError<Failure>) -> Failure {
    let build = quoted(&args.build);
    match error {
        FocusedError::Fixtures(failure) => failure,
        FocusedError::Fingerprint(error) => {
            Failure::new("cannot identify the build", args.build.display())
                .because(&error)
                .hint(format!("packhouse fingerprint {build}"))
        }
        FocusedError::Program { name, source } => {
            Failure::new("cannot find the program of the test", name)
                .because(&source)
                .hint(format!("ls {build}"))
        }
        FocusedError::Runs(error) => {
            let failure = no_state(state, &error);
            match error {
                RunsError::Busy { .. } => {
                    failure.hint(format!("packhouse focused {build} --lock-timeout 3600"))
                }
                RunsError::Folder(_) | RunsError::Mode { .. } | RunsError::Fs(_) => failure,
            }
        }
        FocusedError::Fs(error) => no_state(state, &error.into()),
    }
}

fn answer(outcome: &Outcome, made: &[String]) -> Answer {
    let result = &outcome.result;
    let json = json!({
        "fixtures_made": made,
        "key": result.key,
        "keys_removed": outcome.keys_removed,
        "logs": outcome.logs.display().to_string(),
        "not_pruned": outcome.not_pruned.as_ref().map(ToString::to_string),
        "not_reused": outcome.not_reused.as_ref().map(ToString::to_string),
        "result": serde_json::to_value(result).unwrap_or(Value::Null),
        "reused": outcome.was_reused,
        "runs_removed": outcome.runs_removed,
        "verdict": result.verdict.word(),
    });
    let exit = match result.verdict {
        Verdict::Pass => Exit::Done,
        Verdict::Fail | Verdict::TimedOut | Verdict::Crashed => Exit::Negative,
        Verdict::NotExecuted => Exit::NotExecuted,
    };
    let text = text(outcome, made);
    Answer { text, json, exit }
}

fn text(outcome: &Outcome, made: &[String]) -> String {
    let result = &outcome.result;
    let words = ["test", "verdict", "passed", "failed", "skipped", "time"];
    let mut rows = vec![words.map(str::to_owned).to_vec()];
    rows.extend(result.tests.iter().map(|test| {
        vec![
            test.name.clone(),
            test.verdict.to_string(),
            test.counts.passed.to_string(),
            test.counts.failed.to_string(),
            test.counts.skipped.to_string(),
            seconds(test.elapsed_ns),
        ]
    }));
    let mut text = fitted_table(&COLUMNS, &rows);
    for test in result.tests.iter().filter(|test| !test.why.is_empty()) {
        let _ = writeln!(text, "{}: {}", Shown(&test.name), Shown(&test.why));
        text += &log_end(test, &outcome.logs);
    }
    if let Some(why) = &outcome.not_reused {
        let _ = writeln!(text, "nothing was reused: {}", Shown(&why.to_string()));
    }
    for id in made {
        let _ = writeln!(text, "fixture made: {id}");
    }
    let passed = result
        .tests
        .iter()
        .filter(|test| test.verdict == Verdict::Pass);
    let (passed, count) = (passed.count(), result.tests.len());
    let how = match outcome.was_reused {
        true => ", recorded before: nothing was run",
        false => "",
    };
    let _ = writeln!(
        text,
        "{}: {passed} of {count} tests passed{how}",
        result.verdict
    );
    if result.verdict == Verdict::Pass && result.not_reusable.is_empty() && !outcome.was_reused {
        text += "reusable by the same key; a program with an environment of its own is not seen\n";
    }
    text += &doubts(result);
    let _ = writeln!(text, "key {}", result.key);
    let _ = writeln!(
        text,
        "logs in {}",
        Shown(&outcome.logs.display().to_string())
    );
    match outcome.runs_removed + outcome.keys_removed {
        0 => {}
        1 => text += "the logs of the oldest run went\n",
        count => {
            let _ = writeln!(text, "the logs of the {count} oldest runs went");
        }
    }
    if let Some(why) = &outcome.not_pruned {
        let why = why.to_string();
        let _ = writeln!(text, "not all old logs could be removed: {}", Shown(&why));
    }
    text
}

/// Why nobody may reuse a pass. What is no pass is never reused, but what was not executed may be
/// so for these reasons.
fn doubts(result: &RunResult) -> String {
    let doubts = match result.verdict {
        Verdict::Pass | Verdict::NotExecuted => result.not_reusable.as_slice(),
        Verdict::Fail | Verdict::TimedOut | Verdict::Crashed => &[],
    };
    let mut text = String::new();
    for doubt in doubts.iter().take(DOUBTS_SHOWN) {
        let _ = writeln!(text, "not reusable: {}", Shown(doubt));
    }
    match doubts.len().saturating_sub(DOUBTS_SHOWN) {
        0 => {}
        more => {
            let _ = writeln!(text, "not reusable: and {more} more; --json has all");
        }
    }
    text
}

/// The last line that a test without a pass wrote to stderr, and where the rest of it is.
fn log_end(test: &TestResult, logs: &Path) -> String {
    let log = test.logs.iter().find(|log| log.file.ends_with(STDERR));
    let Some(log) = log.filter(|_| test.verdict != Verdict::Pass) else {
        return String::new();
    };
    let path = logs.join(&log.file);
    let bytes = read_at_most(&path, LOG_BYTES_MAX).unwrap_or_default();
    let said = String::from_utf8_lossy(&bytes);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let mut text = String::new();
    if let Some(last) = last {
        let last: String = last.chars().take(LINE_CHARS_MAX).collect();
        let _ = writeln!(text, "  stderr: {}", Shown(&last));
    }
    let _ = writeln!(text, "  log: {}", Shown(&path.display().to_string()));
    text
}

/// `12.3 s`.
fn seconds(ns: u64) -> String {
    let tenths = ns / 100_000_000;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

const COLUMNS: [Column; 6] = [
    Column::Left,
    Column::Left,
    Column::Right,
    Column::Right,
    Column::Right,
    Column::Right,
];
const DOUBTS_SHOWN: usize = 5;
const LOG_BYTES_MAX: usize = 64 << 20;
const LINE_CHARS_MAX: usize = 300;
const STDERR: &str = ".stderr";
const OPS_PROGRAM: &str = "test-backend-ops";
const DEFAULT_OP: &str = "MUL_MAT";
const DEFAULT_BACKEND: &str = "CPU";
