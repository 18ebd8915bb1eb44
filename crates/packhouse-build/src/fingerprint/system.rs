//! The build system: which one made the build, of what source, with which compilers.
//!
//! Invariants:
//! - it is found by the file that it leaves in every build, not by names of folders;
//! - a compiler that can't be asked is unknown, with the reason.

use super::ask;
use super::digests::Digests;
use super::disk;
use super::error::FingerprintError;
use super::tree::{CACHE_TAG_NAME, is_cache_tag};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Which system made a build.
pub(super) enum System {
    /// CMake, with its cache's path and the compilers that it names, by language.
    CMake {
        cache: PathBuf,
        source: Option<PathBuf>,
        compilers: BTreeMap<String, PathBuf>,
    },
    /// Cargo, with its lock's path.
    Cargo { lock: PathBuf },
    /// None that is known.
    None,
}

/// The folder that a build is, whichever of its folders was named, and what made it. Errors when a
/// file of the build system can't be read.
pub(super) fn find(build: &Path) -> Result<(PathBuf, System), FingerprintError> {
    // The folder itself; for an installation-like folder, where its `bin` leads; for a `bin`, the
    // folder it is in.
    let bin = disk::real(&build.join(BIN)).ok().flatten();
    let outside = bin.as_deref().and_then(Path::parent);
    let above = build
        .parent()
        .filter(|_| build.file_name() == Some(OsStr::new(BIN)));
    for root in [Some(build), outside, above].into_iter().flatten() {
        let cache = root.join(CMAKE_CACHE);
        let read = disk::read(&cache, CACHE_BYTES_MAX);
        if let Some(bytes) = read.map_err(|error| wrong(&cache, &error))? {
            return Ok((root.to_owned(), cmake(cache, &bytes)));
        }
    }
    for target in build.ancestors().take(CARGO_LEVELS) {
        let is_tagged = is_cache_tag(&target.join(CACHE_TAG_NAME));
        if is_tagged || disk::is_there(&target.join(RUSTC_INFO)) {
            let lock = target.parent().map(|source| source.join(CARGO_LOCK));
            if let Some(lock) = lock.filter(|lock| disk::is_there(lock)) {
                return Ok((build.to_owned(), System::Cargo { lock }));
            }
        }
    }
    Ok((build.to_owned(), System::None))
}

impl System {
    /// Where the source is, by the build's own record.
    pub(super) fn source(&self) -> Option<&Path> {
        match self {
            Self::CMake { source, .. } => source.as_deref(),
            Self::Cargo { lock } => lock.parent(),
            Self::None => None,
        }
    }

    /// The facts: the system's own file, and the compilers.
    pub(super) fn facts(
        &self,
        own: &[(OsString, OsString)],
        digests: &Digests<'_>,
    ) -> Result<Value, FingerprintError> {
        let environment = ask::environment(own, &[("LC_ALL", "C"), ("RUSTUP_AUTO_INSTALL", "0")]);
        match self {
            Self::CMake {
                cache, compilers, ..
            } => {
                let (mut named, mut asked) = (Map::new(), BTreeMap::new());
                for (language, path) in compilers {
                    // One program may be the compiler of several languages.
                    let facts = match asked.get(path) {
                        Some(facts) => Value::clone(facts),
                        None => compiler(path, &environment, digests)?,
                    };
                    named.insert(language.clone(), facts.clone());
                    asked.insert(path, facts);
                }
                Ok(json!({
                    "cache": digests.of(cache)?.facts(),
                    "compilers": named,
                    "kind": "cmake",
                }))
            }
            Self::Cargo { lock } => {
                let source = lock.parent().unwrap_or(Path::new("/"));
                let version = match ask::find(OsStr::new("rustc"), &environment) {
                    Ok(rustc) => version(&rustc, "-vV", &environment, source),
                    Err(error) => unknown(error.to_string()),
                };
                Ok(json!({
                    "compilers": { "rustc": { "version": version } },
                    "kind": "cargo",
                    "lock": digests.of(lock)?.facts(),
                }))
            }
            Self::None => Ok(json!({ "kind": "none" })),
        }
    }

    /// The files of the system itself, for the list of places.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::CMake { cache, .. } => vec![cache.clone()],
            Self::Cargo { lock } => vec![lock.clone()],
            Self::None => Vec::new(),
        }
    }
}

/// Reads `NAME:TYPE=VALUE` lines.
fn cmake(cache: PathBuf, bytes: &[u8]) -> System {
    let (mut source, mut compilers) = (None, BTreeMap::new());
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(equals) = line.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = (&line[..equals], &line[equals + 1..]);
        let name = name.split(|byte| *byte == b':').next().unwrap_or_default();
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        let path = PathBuf::from(OsStr::from_bytes(value));
        if name == "CMAKE_HOME_DIRECTORY" {
            source = Some(path);
        } else if let Some(language) = language(name)
            && !value.is_empty()
        {
            compilers.insert(language.to_owned(), path);
        }
    }
    System::CMake {
        cache,
        source,
        compilers,
    }
}

/// The language of `CMAKE_<LANGUAGE>_COMPILER`, as long as it is one word.
fn language(name: &str) -> Option<&str> {
    let language = name.strip_prefix("CMAKE_")?.strip_suffix("_COMPILER")?;
    let is_word = !language.is_empty() && language.bytes().all(|byte| byte.is_ascii_uppercase());
    is_word.then_some(language)
}

fn compiler(
    path: &Path,
    environment: &[(OsString, OsString)],
    digests: &Digests<'_>,
) -> Result<Value, FingerprintError> {
    let found = match ask::find(path.as_os_str(), environment) {
        Ok(found) => found,
        Err(error) => return Ok(unknown(error.to_string())),
    };
    let real = disk::real(&found).map_err(|error| wrong(&found, &error))?;
    let content = digests.of(&real.unwrap_or_else(|| found.clone()))?;
    Ok(json!({
        "bytes": content.bytes,
        "sha256": content.sha256.to_string(),
        "version": version(&found, "--version", environment, Path::new("/")),
    }))
}

fn version(
    program: &Path,
    question: &str,
    environment: &[(OsString, OsString)],
    folder: &Path,
) -> Value {
    match ask::ask(program, &[OsString::from(question)], environment, folder) {
        Ok(ended) => match ask::why(&ended) {
            None => {
                let words = String::from_utf8_lossy(&ended.stdout);
                Value::from(words.trim().chars().take(VERSION_CHARS).collect::<String>())
            }
            Some(why) => unknown(why),
        },
        Err(error) => unknown(error.to_string()),
    }
}

/// A fact that could not be had.
pub(super) fn unknown(why: impl Into<String>) -> Value {
    let why: String = why.into();
    json!({ "unknown": why })
}

fn wrong(path: &Path, error: &io::Error) -> FingerprintError {
    FingerprintError::File {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

const CMAKE_CACHE: &str = "CMakeCache.txt";
const CACHE_BYTES_MAX: u64 = 64 << 20;
const CARGO_LOCK: &str = "Cargo.lock";
/// What cargo notes of its compiler in a target folder, where others made that before it.
const RUSTC_INFO: &str = ".rustc_info.json";
const BIN: &str = "bin";
/// `target/<triple>/<profile>/deps` is the deepest folder of programs that cargo has.
const CARGO_LEVELS: usize = 4;
const VERSION_CHARS: usize = 4096;
