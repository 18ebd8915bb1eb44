//! A host whose build, fixtures and test programs are what a test says they are.

use packhouse_base::digest::Digest;
use packhouse_build::fingerprint::{Fingerprint, FingerprintError};
use packhouse_build::focused::{
    Environment, FocusedError, Host, Launch, NamedFile, Order, Outcome, Proof, Runs, Test, focused,
    head_of, named_file,
};
use packhouse_sys::child::{Ended, Exit, StartError};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::Fs;
use packhouse_sys::stat::StatIdentity;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a test program does.
pub(crate) type Program = Box<dyn Fn(&Launch<'_>) -> Result<Ended, StartError>>;

/// The host.
pub(crate) struct FakeHost {
    /// The files of the fingerprint.
    pub(crate) covered: RefCell<BTreeMap<PathBuf, Digest>>,
    /// What these files are to the file system.
    pub(crate) identities: RefCell<BTreeMap<PathBuf, StatIdentity>>,
    /// Its facts.
    pub(crate) facts: RefCell<Value>,
    /// The fixtures; `Err` when one is damaged.
    pub(crate) fixtures: RefCell<Result<BTreeMap<String, Digest>, String>>,
    /// Whether they are known without work.
    pub(crate) are_fixtures_known: Cell<bool>,
    /// How often a test was started.
    pub(crate) started: Cell<u32>,
    /// What happens then.
    pub(crate) program: RefCell<Program>,
    /// Whether the program loads nothing.
    pub(crate) is_static: Cell<bool>,
}

impl FakeHost {
    /// A build of one program, which is covered, loads nothing more and passes.
    pub(crate) fn new() -> Self {
        let fixtures = BTreeMap::from([("fixture".to_owned(), Digest::of(b"fixture"))]);
        let covered = BTreeMap::from([(PathBuf::from(PROGRAM), Digest::of(PROGRAM.as_bytes()))]);
        Self {
            covered: RefCell::new(covered),
            identities: RefCell::default(),
            facts: RefCell::new(json!({"build": 1, "host": {"devices": {"cpu:0": {}}}})),
            fixtures: RefCell::new(Ok(fixtures)),
            are_fixtures_known: Cell::new(true),
            started: Cell::new(0),
            program: RefCell::new(prints("ok 1 - it\n1..1\n")),
            is_static: Cell::new(false),
        }
    }

    /// From now on tests do this.
    pub(crate) fn does(&self, program: Program) {
        *self.program.borrow_mut() = program;
    }
}

/// A program that prints this and ends well, as its loader says too.
pub(crate) fn prints(text: &'static str) -> Program {
    Box::new(move |launch| {
        let written = launch.stdout.write_all_at(0, text.as_bytes());
        let written = written.and_then(|()| {
            let told = launch.loading.create_new("process.7", 0o600)?;
            told.write_all_at(0, b"7:\tinitialize program: it\n7:\tcalling fini:  [0]\n")
        });
        written.map_err(|_| StartError::Keep {
            program: launch.program.to_owned(),
            errno: 5,
        })?;
        Ok(ended(Exit::Exited(0)))
    })
}

/// An end without output in memory.
pub(crate) fn ended(exit: Exit) -> Ended {
    Ended {
        exit,
        stdout: Vec::new(),
        stderr: Vec::new(),
        elapsed_ns: 7,
        was_cut: false,
    }
}

impl Host for FakeHost {
    type Refusal = String;

    fn fixtures_known(&self) -> Option<BTreeMap<String, Digest>> {
        let known = self.are_fixtures_known.get();
        known.then(|| self.fixtures.borrow().clone().ok()).flatten()
    }

    fn fixtures(&self) -> Result<BTreeMap<String, Digest>, String> {
        self.fixtures.borrow().clone()
    }

    fn fingerprint(&self) -> Result<Fingerprint, FingerprintError> {
        let facts = self.facts.borrow().clone();
        let fingerprint = Fingerprint::new(facts, json!({}), self.covered.borrow().clone());
        Ok(fingerprint.with_identities(self.identities.borrow().clone()))
    }

    fn content_of(&self, path: &Path) -> Result<(PathBuf, Digest), FingerprintError> {
        let bytes = match path.starts_with(BUILD) {
            true => path.as_os_str().as_encoded_bytes().to_vec(),
            false => std::fs::read(path).unwrap_or_default(),
        };
        let real = std::fs::canonicalize(path).unwrap_or(path.to_owned());
        Ok((real, Digest::of(&bytes)))
    }

    fn named(&self, path: &Path) -> Result<Option<NamedFile>, FingerprintError> {
        match path.starts_with(BUILD) {
            true => Ok(None),
            false => named_file(path, &|file| {
                let bytes = file
                    .read_small(1 << 20)
                    .map_err(|error| error.to_string())?;
                Ok(Digest::of(&bytes))
            }),
        }
    }

    fn head(&self, program: &Path) -> Vec<u8> {
        match program.starts_with(BUILD) {
            true => b"\x7fELF".to_vec(),
            false => head_of(program),
        }
    }

    fn is_static(&self, _program: &Path) -> bool {
        self.is_static.get()
    }

    fn find(&self, test: &Test) -> Result<PathBuf, StartError> {
        let program = PathBuf::from(&test.command[0]);
        match program.is_absolute() {
            true => Ok(program),
            false => Err(StartError::NotFound { program }),
        }
    }

    fn run(&self, launch: &Launch<'_>) -> Result<Ended, StartError> {
        self.started.set(self.started.get() + 1);
        (self.program.borrow())(launch)
    }
}

/// A test that prints TAP.
pub(crate) fn tap(name: &str, command: &[&str]) -> Test {
    Test {
        name: name.to_owned(),
        command: command.iter().map(OsString::from).collect(),
        proof: Proof::Tap,
        timeout_s: 60,
    }
}

/// Runs tests.
pub(crate) fn run(
    host: &FakeHost,
    (fs, clock, state): (&dyn Fs, &dyn Clock, &Path),
    tests: &[Test],
    reuse_pass: bool,
) -> Result<Outcome, String> {
    let environment = Environment::new(&[], &["A=1".into()]).expect("because it is one");
    run_in(
        host,
        (fs, clock, state),
        tests,
        reuse_pass,
        (Path::new("/"), &environment),
    )
}

/// Runs tests in a folder, with an environment.
pub(crate) fn run_in(
    host: &FakeHost,
    (fs, clock, state): (&dyn Fs, &dyn Clock, &Path),
    tests: &[Test],
    reuse_pass: bool,
    (build, environment): (&Path, &Environment),
) -> Result<Outcome, String> {
    let runs = Runs::make(fs, clock, state).map_err(|error| error.to_string())?;
    let order = Order {
        build,
        tests,
        environment,
        reuse_pass,
        lock_timeout_ns: 0,
    };
    focused(&order, host, &runs, clock, &|_| {}).map_err(|error| match error {
        FocusedError::Fixtures(refusal) => refusal,
        other => other.to_string(),
    })
}

/// The folder of a build that is only in the test's mind.
pub(crate) const BUILD: &str = "/build";
/// Its program.
pub(crate) const PROGRAM: &str = "/build/program";
