//! What is no longer as it was registered.
//!
//! Invariants:
//! - `verify` hashes every file, whatever its stat says; `glance` hashes none and proves nothing;
//! - what could not be read or did not hold still is no difference: it is said to be unread;
//! - every difference is named, and none of a folder hides those of another.
//!
//! Never: opens a path that only the record names: the artifact is looked at, then compared.

use super::artifact::{FileEntry, What};
use super::look::{ArtifactKind, Look, LookError, Looked};
use super::record::Record;
use super::survey::{Seen, Survey};
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Fs, FsError};
use packhouse_sys::stat::{FsKind, FsTrust};
use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// What a hash of everything found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// All that differs or could not be read, rising by path.
    pub findings: Vec<Finding>,
}

/// One thing that is not as it was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Below the artifact; empty for the artifact itself.
    pub path: OsString,
    /// What is with it.
    pub what: Difference,
}

/// How something differs from what was registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// It isn't there.
    #[error("missing")]
    Missing,
    /// It is there and was not.
    #[error("{kind} that was not there")]
    Extra {
        /// What it is.
        kind: &'static str,
    },
    /// It is something else.
    #[error("{actual}, expected a {expected}")]
    Kind {
        /// What was registered.
        expected: &'static str,
        /// What it is.
        actual: &'static str,
    },
    /// It has another length.
    #[error("{actual} bytes, expected {expected}")]
    Length {
        /// Its length when it was registered.
        expected: u64,
        /// Its length.
        actual: u64,
    },
    /// It has other bytes.
    #[error("SHA-256 {actual}, expected {expected}")]
    Bytes {
        /// Its digest when it was registered.
        expected: Digest,
        /// Its digest.
        actual: Digest,
    },
    /// It is a link to something else.
    #[error(
        "link to {}, expected {}",
        Shown(&actual.to_string_lossy()),
        Shown(&expected.to_string_lossy())
    )]
    Target {
        /// Its target when it was registered.
        expected: PathBuf,
        /// Its target.
        actual: PathBuf,
    },
    /// Its stat identity is another; its bytes may be the same.
    #[error("its {field} differs")]
    Stat {
        /// The first field that differs.
        field: &'static str,
    },
    /// The artifact as a whole is no artifact any more.
    #[error("{0}")]
    NoArtifact(LookError),
    /// It could not be read.
    #[error("{0}")]
    Unread(FsError),
    /// The artifact as a whole could not be looked at.
    #[error("{0}")]
    NotLooked(LookError),
    /// It changed while it was read.
    #[error("changed while it was read: its {field} differs")]
    Changing {
        /// What differs.
        field: &'static str,
    },
}

/// What stat alone says of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Glance {
    /// Every file has the stat identity that it was hashed with.
    Same,
    /// This is not as it was.
    Changed(Finding),
    /// It isn't there.
    Gone,
    /// Stat proves nothing on this file system.
    Remote {
        /// The file.
        path: OsString,
        /// The kind of its file system.
        kind: FsKind,
    },
    /// Stat proved nothing when this file was registered, or it was young or being written.
    Unproven {
        /// The file.
        path: OsString,
    },
    /// It could not be looked at.
    Unread(LookError),
}

impl Verification {
    /// Whether everything is as it was registered.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether something certainly differs.
    pub fn has_difference(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.what.is_certain())
    }
}

impl Difference {
    /// Whether it is an answer. What could not be read is none.
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Missing
            | Self::Extra { .. }
            | Self::Kind { .. }
            | Self::Length { .. }
            | Self::Bytes { .. }
            | Self::Target { .. }
            | Self::NoArtifact(_) => true,
            Self::Stat { .. } | Self::Unread(_) | Self::NotLooked(_) | Self::Changing { .. } => {
                false
            }
        }
    }
}

/// Hashes a registered artifact where it lies and compares it with its record. `progress` is told
/// the bytes as they are hashed.
pub fn verify(
    fs: &dyn Fs,
    clock: &dyn Clock,
    record: &Record,
    threads: NonZeroUsize,
    progress: &(dyn Fn(u64) + Sync),
) -> Verification {
    let survey =
        Look::take(fs, record.path()).and_then(|look| look.hash(fs, clock, threads, progress));
    let findings = match survey {
        Ok(survey) => differences(record, &survey),
        Err(error) => {
            let what = match error.is_answer() {
                true => Difference::NoArtifact(error),
                false => Difference::NotLooked(error),
            };
            vec![Finding {
                path: OsString::new(),
                what,
            }]
        }
    };
    Verification { findings }
}

/// Compares a registered artifact's stats with those of its record. Nothing is hashed.
pub fn glance(fs: &dyn Fs, record: &Record) -> Glance {
    let look = match Look::take(fs, record.path()) {
        Ok(look) => look,
        Err(LookError::Absent { .. }) => return Glance::Gone,
        Err(error) if error.is_answer() => {
            return Glance::Changed(Finding {
                path: OsString::new(),
                what: Difference::NoArtifact(error),
            });
        }
        Err(error) => return Glance::Unread(error),
    };
    if let Some(what) = other_kind(record, look.kind()) {
        let path = OsString::new();
        return Glance::Changed(Finding { path, what });
    }
    let mut doubt = None;
    for (path, what) in record.artifact().entries() {
        let what = match look.entries.get(path) {
            Some(looked) => unlike(&look, record, path, what, looked),
            // Of a folder that can't be read it is said that it can't be.
            None if hides(&look, path) => Ok(None),
            None => Err(Difference::Missing),
        };
        match what {
            Ok(None) => {}
            Ok(Some(why)) => doubt = doubt.or(Some(why)),
            Err(what) => {
                let path = path.to_owned();
                return Glance::Changed(Finding { path, what });
            }
        }
    }
    let extra = |(path, _): &(&OsString, &Looked)| record.artifact().entry(path).is_none();
    if let Some((path, looked)) = look.entries.iter().find(extra) {
        let what = Difference::Extra {
            kind: looked_kind(looked),
        };
        let path = path.clone();
        return Glance::Changed(Finding { path, what });
    }
    doubt.unwrap_or(Glance::Same)
}

/// Whether stat speaks for one entry: yes, yes but for a doubt, or no.
fn unlike(
    look: &Look,
    record: &Record,
    path: &OsStr,
    what: &What,
    looked: &Looked,
) -> Result<Option<Glance>, Difference> {
    match (what, looked) {
        (What::Folder, Looked::Folder(_)) => Ok(None),
        (What::Link { target }, Looked::Link(_, actual)) => {
            same_target(target, actual).map(|()| None)
        }
        (What::File(file), Looked::File(stat)) => {
            same_length(file.bytes, stat.size)?;
            let unread = |error| Some(Glance::Unread(LookError::Fs(error)));
            let Some(was) = record.stat(path) else {
                let path = path.to_owned();
                return Ok(Some(Glance::Unproven { path }));
            };
            let file = match look.place.open_file(path) {
                Ok(file) => file,
                Err(error) => return Ok(unread(error)),
            };
            let kind = match file.fs_stat() {
                Ok(system) => system.kind,
                Err(error) => return Ok(unread(error)),
            };
            if kind.trust() == FsTrust::Remote {
                let path = path.to_owned();
                return Ok(Some(Glance::Remote { path, kind }));
            }
            match file.identity().map(|now| was.difference(&now)) {
                Ok(None) => Ok(None),
                Ok(Some(field)) => Err(Difference::Stat { field }),
                Err(error) => Ok(unread(error)),
            }
        }
        (_, Looked::Gone) => Err(Difference::Missing),
        (_, Looked::Unread(error)) => Ok(Some(Glance::Unread(LookError::Fs(error.clone())))),
        (_, looked) => Err(Difference::Kind {
            expected: what.word(),
            actual: looked_kind(looked),
        }),
    }
}

fn differences(record: &Record, survey: &Survey) -> Vec<Finding> {
    if let Some(what) = other_kind(record, survey.kind) {
        let path = OsString::new();
        return vec![Finding { path, what }];
    }
    let mut findings = Vec::new();
    let mut find = |path: &OsStr, what| {
        let path = path.to_owned();
        findings.push(Finding { path, what });
    };
    for (path, what) in record.artifact().entries() {
        match survey.entries.get(path) {
            // Nobody knows what is in a folder that can't be read.
            None if is_hidden(survey, path) => {}
            None => find(path, Difference::Missing),
            Some(seen) => {
                if let Err(what) = same(what, seen) {
                    find(path, what);
                }
            }
        }
    }
    for (path, seen) in &survey.entries {
        if record.artifact().entry(path).is_some() {
            continue;
        }
        find(
            path,
            match seen {
                Seen::Unread(error) => Difference::Unread(error.clone()),
                Seen::Changed { field } => Difference::Changing { field },
                seen => Difference::Extra {
                    kind: seen_kind(seen),
                },
            },
        );
    }
    findings.sort_by(|one, other| one.path.cmp(&other.path));
    findings
}

fn hides(look: &Look, path: &OsStr) -> bool {
    let mut above = Path::new(path).ancestors().skip(1);
    above.any(|folder| {
        matches!(
            look.entries.get(folder.as_os_str()),
            Some(Looked::Unread(_))
        )
    })
}

/// Whether a folder above it could not be read.
fn is_hidden(survey: &Survey, path: &OsStr) -> bool {
    let mut above = Path::new(path).ancestors().skip(1);
    above.any(|folder| {
        matches!(
            survey.entries.get(folder.as_os_str()),
            Some(Seen::Unread(_))
        )
    })
}

fn other_kind(record: &Record, actual: ArtifactKind) -> Option<Difference> {
    let expected = record.artifact().kind();
    (actual != expected).then_some(Difference::Kind {
        expected: expected.word(),
        actual: actual.word(),
    })
}

fn same(what: &What, seen: &Seen) -> Result<(), Difference> {
    match (what, seen) {
        (What::Folder, Seen::Folder) => Ok(()),
        (What::Link { target }, Seen::Link { target: actual }) => same_target(target, actual),
        (What::File(file), Seen::File(seen)) => same_content(file, &seen.content),
        (_, Seen::Unread(error)) => Err(Difference::Unread(error.clone())),
        (_, Seen::Changed { field }) => Err(Difference::Changing { field }),
        (what, seen) => Err(Difference::Kind {
            expected: what.word(),
            actual: seen_kind(seen),
        }),
    }
}

fn same_content(expected: &FileEntry, actual: &FileEntry) -> Result<(), Difference> {
    same_length(expected.bytes, actual.bytes)?;
    match expected.digest == actual.digest {
        true => Ok(()),
        false => Err(Difference::Bytes {
            expected: expected.digest,
            actual: actual.digest,
        }),
    }
}

fn same_length(expected: u64, actual: u64) -> Result<(), Difference> {
    match expected == actual {
        true => Ok(()),
        false => Err(Difference::Length { expected, actual }),
    }
}

fn same_target(expected: &PathBuf, actual: &PathBuf) -> Result<(), Difference> {
    match expected == actual {
        true => Ok(()),
        false => Err(Difference::Target {
            expected: expected.clone(),
            actual: actual.clone(),
        }),
    }
}

fn seen_kind(seen: &Seen) -> &'static str {
    match seen {
        Seen::Folder => "folder",
        Seen::File(_) => "file",
        Seen::Link { .. } => "link",
        Seen::Special => SPECIAL,
        Seen::Unread(_) | Seen::Changed { .. } => "entry",
    }
}

fn looked_kind(looked: &Looked) -> &'static str {
    match looked {
        Looked::Folder(_) => "folder",
        Looked::File(_) => "file",
        Looked::Link(..) => "link",
        Looked::Special(_) => SPECIAL,
        Looked::Gone | Looked::Unread(_) => "entry",
    }
}

const SPECIAL: &str = "device, socket or pipe";

#[cfg(test)]
mod tests {
    use super::super::artifact::Artifact;
    use super::super::binding::Binding;
    use super::super::survey::SeenFile;
    use super::*;
    use packhouse_sys::fs::{FsErrorKind, Operation};

    fn survey(entries: &[(&str, Seen)]) -> Survey {
        let entries = entries.iter().cloned();
        Survey {
            path: "/p".into(),
            kind: ArtifactKind::Folder,
            entries: entries.map(|(path, seen)| (path.into(), seen)).collect(),
        }
    }

    fn file() -> Seen {
        Seen::File(SeenFile {
            content: FileEntry {
                bytes: 1,
                digest: Digest::of(b"x"),
            },
            stat: None,
        })
    }

    fn unread() -> FsError {
        FsError {
            operation: Operation::List,
            path: "/p/a".into(),
            kind: FsErrorKind::Permission,
        }
    }

    /// Corrupt is never missing, and neither is what nobody may look at.
    #[test]
    fn what_is_in_a_folder_that_can_not_be_read_is_not_said_to_be_missing() {
        let whole = survey(&[
            ("a", Seen::Folder),
            ("a/b", Seen::Folder),
            ("a/b/f", file()),
            ("ab", file()),
        ]);
        let texts = || "x".to_owned();
        let binding = Binding::new(Digest::of(b""), texts(), texts(), texts());
        let binding = binding.expect("because these are plain texts");
        let artifact = Artifact::of(&whole).expect("because it is one");
        let record = Record::new(binding, artifact, &whole, None).expect("because it is short");
        assert_eq!(differences(&record, &whole), []);
        let shut = survey(&[("a", Seen::Unread(unread())), ("ab", file())]);
        let found = differences(&record, &shut);
        let expected = Finding {
            path: "a".into(),
            what: Difference::Unread(unread()),
        };
        assert_eq!(found, [expected]);
        assert!(!Verification { findings: found }.has_difference());
        // Beside it everything is still compared.
        let shut = survey(&[("a", Seen::Unread(unread()))]);
        let found = differences(&record, &shut);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(Verification { findings: found }.has_difference());
    }
}
