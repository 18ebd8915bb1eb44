//! What a run asks of the host, as a trait: tests bring their own.

use super::loaded::{DEBUG, DEBUG_FILES, DEBUG_OUTPUT};
use super::named::NamedFile;
use super::test::Test;
use crate::fingerprint::{Fingerprint, FingerprintError};
use packhouse_base::digest::Digest;
use packhouse_sys::child::{self, Ended, Keep, Order, StartError};
use packhouse_sys::fs::{Dir, File};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The host of a run.
pub trait Host {
    /// Why fixtures could not be verified.
    type Refusal;

    /// The digest of each fixture, as far as nothing has to be hashed or made for it; `None` where
    /// something has. Enough to find a recorded pass, which was verified in full.
    fn fixtures_known(&self) -> Option<BTreeMap<String, Digest>>;

    /// Verifies every fixture in full, makes those that are missing, and gives their digests.
    fn fixtures(&self) -> Result<BTreeMap<String, Digest>, Self::Refusal>;

    /// The identity of the build as it is now.
    fn fingerprint(&self) -> Result<Fingerprint, FingerprintError>;

    /// The real path of a file and the digest of its content as it is now.
    fn content_of(&self, path: &Path) -> Result<(PathBuf, Digest), FingerprintError>;

    /// The regular file to which a path leads, as it is now; `None` where there is none.
    fn named(&self, path: &Path) -> Result<Option<NamedFile>, FingerprintError>;

    /// The beginning of a program's file; empty where it can't be read.
    fn head(&self, program: &Path) -> Vec<u8>;

    /// Whether a program loads nothing: it has no dynamic section.
    fn is_static(&self, program: &Path) -> bool;

    /// Finds a test's program.
    fn find(&self, test: &Test) -> Result<PathBuf, StartError>;

    /// Runs a test to its end, or to the end of its time; output goes to the two files.
    fn run(&self, launch: &Launch<'_>) -> Result<Ended, StartError>;
}

/// A test to start.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The test.
    pub test: &'a Test,
    /// Its program, by the path at which it was found.
    pub program: &'a Path,
    /// All of its environment.
    pub environment: &'a [(OsString, OsString)],
    /// The folder it works in.
    pub folder: &'a Path,
    /// The folder into which its loader writes.
    pub loading: &'a Dir,
    /// What keeps its standard output.
    pub stdout: &'a File,
    /// What keeps its standard error.
    pub stderr: &'a File,
    /// Bytes of each that are kept.
    pub max_bytes: u64,
}

/// Runs a test as a child process of this one.
///
/// # Errors
/// When it can't be started or followed, or its output can't be kept.
pub fn run_child(launch: &Launch<'_>) -> Result<Ended, StartError> {
    let arguments = launch.test.command.get(1..).unwrap_or_default();
    let order = Order {
        program: launch.program,
        arguments,
        environment: launch.environment,
        folder: launch.folder,
        timeout_ns: launch.test.timeout_s.saturating_mul(NS_PER_SECOND),
    };
    let keep = |file: &File| {
        let copy = file.as_fd().map(|fd| fd.try_clone_to_owned());
        match copy {
            Some(Ok(file)) => Ok(Keep::File {
                file,
                max_bytes: launch.max_bytes,
            }),
            Some(Err(error)) => Err(StartError::Keep {
                program: launch.program.to_owned(),
                errno: error.raw_os_error().unwrap_or(0),
            }),
            None => Ok(Keep::Nothing),
        }
    };
    child::run(&order, keep(launch.stdout)?, keep(launch.stderr)?)
}

/// Finds a program: a name with a slash from the build's folder, any other in the build, its `bin`
/// and `build/bin`, then in the search path of the environment.
pub fn find_program(
    test: &Test,
    build: &Path,
    search: Option<&std::ffi::OsStr>,
) -> Result<PathBuf, StartError> {
    let folders = [build.join("bin"), build.to_owned(), build.join("build/bin")];
    let mut path = OsString::new();
    for folder in folders {
        path.push(folder);
        path.push(":");
    }
    path.push(search.unwrap_or_default());
    let program = test.command.first().map(OsString::as_os_str);
    child::find(program.unwrap_or_default(), &path, build)
}

/// An environment with what makes the loader write into a folder.
pub(super) fn watched(
    environment: &[(OsString, OsString)],
    folder: &Path,
) -> Vec<(OsString, OsString)> {
    let mut all = environment.to_vec();
    all.push((DEBUG.into(), DEBUG_FILES.into()));
    all.push((DEBUG_OUTPUT.into(), folder.join("process").into()));
    all
}

const NS_PER_SECOND: u64 = 1_000_000_000;
