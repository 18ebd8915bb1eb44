//! Asks a program of the host one question, with bounds on its time and its words.

use packhouse_sys::child::{self, Ended, Exit, Keep, Order, StartError};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Variables of the user's own environment that git and compilers get.
const INHERITED: [&str; 5] = [
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "RUSTUP_HOME",
    "CARGO_HOME",
];

/// The environment of git and compilers: few variables of the user's own, and those given.
pub(super) fn environment(
    own: &[(OsString, OsString)],
    given: &[(&str, &str)],
) -> Vec<(OsString, OsString)> {
    let inherited = own.iter().filter(|(name, _)| {
        INHERITED
            .iter()
            .any(|inherited| name == OsStr::new(inherited))
    });
    let given = given
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    inherited.cloned().chain(given).collect()
}

/// Finds a program in the environment's `PATH`.
pub(super) fn find(
    program: &OsStr,
    environment: &[(OsString, OsString)],
) -> Result<PathBuf, StartError> {
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(SEARCH), |(_, value)| value.as_os_str());
    child::find(program, path, Path::new("/"))
}

/// Asks, and waits for the end of the answer.
pub(super) fn ask(
    program: &Path,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    folder: &Path,
) -> Result<Ended, StartError> {
    let order = Order {
        program,
        arguments,
        environment,
        folder,
        timeout_ns: TIMEOUT_NS,
    };
    let keep = |max_bytes| Keep::Memory { max_bytes };
    child::run(&order, keep(WORDS_BYTES_MAX), keep(ERRORS_BYTES_MAX))
}

/// Why an answer is none: how the program ended, and the last thing it said.
pub(super) fn why(ended: &Ended) -> Option<String> {
    let end = match ended.exit {
        Exit::Exited(0) if !ended.was_cut => return None,
        Exit::Exited(0) => "said more than is read".to_owned(),
        Exit::Exited(code) => format!("exit code {code}"),
        Exit::Signalled(signal) => format!("ended by signal {signal}"),
        Exit::TimedOut => format!("no answer within {} s", TIMEOUT_NS / 1_000_000_000),
    };
    let words = String::from_utf8_lossy(&ended.stderr);
    let words: Vec<&str> = words.lines().filter(|line| !line.is_empty()).collect();
    let words = words.iter().take(LINES_SHOWN).copied();
    let words: Vec<&str> = words.collect();
    Some(
        format!("{end}: {}", words.join("; "))
            .trim_end_matches(": ")
            .to_owned(),
    )
}

/// Where programs are where the user has no `PATH`.
const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";
const TIMEOUT_NS: u64 = 120_000_000_000;
const WORDS_BYTES_MAX: u64 = 256 << 20;
const ERRORS_BYTES_MAX: u64 = 64 << 10;
const LINES_SHOWN: usize = 2;
