//! Files that a test hangs on beside its build: those that its command names, and the programs
//! that the kernel starts for a script.
//!
//! Invariants:
//! - a word that names a regular file is that file's content, not its name alone;
//! - a script is never taken for the program that runs it.

#![expect(
    clippy::disallowed_methods,
    reason = "what a command names is found through links, as its program finds it"
)]

use super::host::Host;
use super::test::Test;
use crate::fingerprint::FingerprintError;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::File;
use packhouse_sys::real::file_of_fd;
use packhouse_sys::stat::StatIdentity;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A regular file, as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Its real path.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
    /// What shows that it was changed and put back; `None` where nothing does.
    pub identity: Option<StatIdentity>,
}

/// What the kernel takes a program for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ELF object.
    Object,
    /// A script for this program.
    Script(PathBuf),
    /// Neither.
    Other,
}

/// Looks at the regular file to which a path leads; `None` where there is none. `hash` gives the
/// content of an open file.
///
/// # Errors
/// When it is there and can't be read.
pub fn named_file(
    path: &Path,
    hash: &dyn Fn(&File) -> Result<Digest, String>,
) -> Result<Option<NamedFile>, FingerprintError> {
    // A word that can't be looked at as a path is no path of a file.
    let Ok(real) = fs::canonicalize(path) else {
        return Ok(None);
    };
    if !fs::metadata(&real).is_ok_and(|stat| stat.is_file()) {
        return Ok(None);
    }
    let wrong = |why: String| FingerprintError::File {
        path: real.clone(),
        why,
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(O_NONBLOCK).open(&real);
    let file = file.map_err(|error| wrong(error.to_string()))?;
    let file = file_of_fd(OwnedFd::from(file), real.clone());
    let identity = file.identity().ok();
    let sha256 = hash(&file).map_err(wrong)?;
    Ok(Some(NamedFile {
        path: real,
        sha256,
        identity,
    }))
}

/// The beginning of a program's file, as much as the kernel reads of it; empty where it can't be
/// read.
pub fn head_of(program: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(program);
    if let Ok(file) = file {
        // What can't be read is told by its run.
        let _ = file.take(HEAD_BYTES).read_to_end(&mut head);
    }
    head
}

/// What the kernel takes a file with this beginning for.
pub(super) fn kind(head: &[u8]) -> Kind {
    if head.starts_with(b"\x7fELF") {
        return Kind::Object;
    }
    let Some(line) = head.strip_prefix(b"#!") else {
        return Kind::Other;
    };
    let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | 0);
    let begin = line.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    let line = &line[begin.unwrap_or(line.len())..];
    let end = line.iter().position(is_end).unwrap_or(line.len());
    Kind::Script(PathBuf::from(OsStr::from_bytes(&line[..end])))
}

/// The program that runs a script, and the one that runs that, as far as they are there.
pub(super) fn interpreters<H: Host>(
    host: &H,
    program: &Path,
    folder: &Path,
) -> Result<Vec<NamedFile>, FingerprintError> {
    let mut all = Vec::new();
    let mut script = program.to_owned();
    while let Kind::Script(next) = kind(&host.head(&script)) {
        let next = host.named(&folder.join(next))?;
        let (Some(next), true) = (next, all.len() < SCRIPTS_MAX) else {
            break;
        };
        script.clone_from(&next.path);
        all.push(next);
    }
    Ok(all)
}

/// The files that the words of a command name behind its program: as a whole, or behind a `=`.
pub(super) fn words<H: Host>(
    host: &H,
    test: &Test,
    folder: &Path,
) -> Result<Vec<NamedFile>, FingerprintError> {
    let mut all = Vec::new();
    for word in test.command.iter().skip(1).map(|word| word.as_bytes()) {
        let equals = word.iter().position(|byte| *byte == b'=');
        let value = equals.map(|at| &word[at + 1..]);
        for name in [Some(word), value].into_iter().flatten() {
            let name = Path::new(OsStr::from_bytes(name));
            all.extend(host.named(&folder.join(name))?);
        }
    }
    Ok(all)
}

const O_NONBLOCK: i32 = 0o4000;
/// As much as Linux looks at.
const HEAD_BYTES: u64 = 256;
/// Scripts that run each other, as many as Linux follows.
const SCRIPTS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_what_the_kernel_takes_it_for() {
        let script = |path: &str| Kind::Script(PathBuf::from(path));
        for (head, expected) in [
            (&b"\x7fELF\x02"[..], Kind::Object),
            (b"#!/bin/sh", script("/bin/sh")),
            (b"#! \t/bin/a -e\n", script("/bin/a")),
            (b"#!/bin/a\n/bin/b", script("/bin/a")),
            (b"#!bin/a\0", script("bin/a")),
            (b"#!", script("")),
            (b"echo ok", Kind::Other),
            (b"", Kind::Other),
        ] {
            assert_eq!(kind(head), expected, "{head:?}");
        }
    }
}
