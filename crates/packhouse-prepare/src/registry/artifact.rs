//! What an artifact is, by content: a file, or a folder with all that is in it, and its digest.
//!
//! Invariants:
//! - it has bytes: no artifact is empty, and none consists of empty files;
//! - every folder on the way to an entry is an entry, and every link leads to one;
//! - modes, owners and times take no part, nor does the name of the artifact itself.
//!
//! Never: touches a file. What was seen of one is the caller's.

use super::links::{self, LinkFault};
use super::look::ArtifactKind;
use super::survey::{Seen, Survey};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_base::encode::Sequence;
use packhouse_base::shown::Shown;
use packhouse_sys::fs::FsError;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// An artifact by content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    kind: ArtifactKind,
    entries: BTreeMap<OsString, What>,
}

/// What is at one path of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A folder, by its name only.
    Folder,
    /// A file.
    File(FileEntry),
    /// A symlink, by what it says.
    Link {
        /// Its target, as it is.
        target: PathBuf,
    },
}

/// A file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub digest: Digest,
}

/// A path below the artifact, empty for a file that is the artifact itself, and what is there.
pub type Entry<'a> = (&'a OsStr, &'a What);

/// Why something is no artifact that can be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactRefusal {
    /// A folder in which there is no file.
    #[error("{} has no file in it", path.display())]
    NoFile {
        /// The artifact.
        path: PathBuf,
    },
    /// All its files are empty.
    #[error("{} has no byte in it", path.display())]
    NoBytes {
        /// The artifact.
        path: PathBuf,
    },
    /// A device, socket or pipe.
    #[error("{} is a device, socket or pipe", path.display())]
    Special {
        /// What it is about.
        path: PathBuf,
    },
    /// A symlink that does not lead to something in the folder.
    #[error("{} is a link to {}, {fault}", path.display(), Shown(&target.to_string_lossy()))]
    Link {
        /// The link.
        path: PathBuf,
        /// Its target.
        target: PathBuf,
        /// What is wrong with it.
        fault: LinkFault,
    },
    /// It changed while it was read.
    #[error("{} changed while it was read: its {field} differs", path.display())]
    Changed {
        /// What it is about.
        path: PathBuf,
        /// What differs.
        field: &'static str,
    },
    /// It could not be read.
    #[error(transparent)]
    Unread(#[from] FsError),
}

impl Artifact {
    /// Takes what was seen. Errors on the first thing that has no place in a pack.
    pub fn of(survey: &Survey) -> Result<Self, ArtifactRefusal> {
        let at = |path: &OsStr| place(&survey.path, path);
        let mut entries = BTreeMap::new();
        for (path, seen) in &survey.entries {
            let what = match seen {
                Seen::Folder => What::Folder,
                Seen::File(file) => What::File(file.content),
                Seen::Link { target } => What::Link {
                    target: target.clone(),
                },
                Seen::Special => return Err(ArtifactRefusal::Special { path: at(path) }),
                Seen::Unread(error) => return Err(error.clone().into()),
                Seen::Changed { field } => {
                    let path = at(path);
                    return Err(ArtifactRefusal::Changed { path, field });
                }
            };
            entries.insert(path.clone(), what);
        }
        let artifact = Self {
            kind: survey.kind,
            entries,
        };
        artifact.judge(&survey.path)?;
        Ok(artifact)
    }

    /// Takes what a record says. Errors as `of` does; paths are judged by the caller.
    pub(super) fn recorded(
        path: &Path,
        kind: ArtifactKind,
        entries: BTreeMap<OsString, What>,
    ) -> Result<Self, ArtifactRefusal> {
        let artifact = Self { kind, entries };
        artifact.judge(path)?;
        Ok(artifact)
    }

    /// Whether it is a file or a folder.
    pub fn kind(&self) -> ArtifactKind {
        self.kind
    }

    /// All that is in it, rising by path.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries.iter().map(|(path, what)| (&**path, what))
    }

    /// What is at a path of it.
    pub fn entry(&self, path: &OsStr) -> Option<&What> {
        self.entries.get(path)
    }

    /// Its files' lengths together.
    pub fn bytes(&self) -> u64 {
        self.files().map(|file| file.bytes).sum()
    }

    /// How many files it has.
    pub fn file_count(&self) -> u64 {
        self.files().count() as u64
    }

    /// SHA-256 of {`packhouse/registry-artifact/1`, kind, list of {path, kind of entry, and what
    /// that has: nothing, length and SHA-256, or the target}}.
    pub fn digest(&self) -> Digest {
        let mut sequence = Sequence::new(ARTIFACT_TAG);
        sequence.text(self.kind.word());
        let entries: Vec<Entry<'_>> = self.entries().collect();
        sequence.list(&entries, |sequence, (path, what)| {
            sequence.bytes(path.as_bytes()).text(what.word());
            match what {
                What::Folder => {}
                What::File(file) => {
                    sequence.integer(file.bytes).digest(&file.digest);
                }
                What::Link { target } => {
                    sequence.bytes(target.as_os_str().as_bytes());
                }
            }
        });
        sequence.finish()
    }

    fn files(&self) -> impl Iterator<Item = &FileEntry> {
        self.entries.values().filter_map(|what| match what {
            What::File(file) => Some(file),
            What::Folder | What::Link { .. } => None,
        })
    }

    fn judge(&self, at: &Path) -> Result<(), ArtifactRefusal> {
        for (path, what) in &self.entries {
            let What::Link { target } = what else {
                continue;
            };
            links::judge(&self.entries, path, target).map_err(|fault| ArtifactRefusal::Link {
                path: place(at, path),
                target: target.clone(),
                fault,
            })?;
        }
        if self.files().next().is_none() {
            return Err(ArtifactRefusal::NoFile { path: at.into() });
        }
        if self.bytes() == 0 {
            return Err(ArtifactRefusal::NoBytes { path: at.into() });
        }
        Ok(())
    }
}

impl What {
    /// The word for it in records.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::File(_) => "file",
            Self::Link { .. } => "link",
        }
    }
}

impl ArtifactRefusal {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NoFile { .. }
            | Self::NoBytes { .. }
            | Self::Special { .. }
            | Self::Link { .. }
            | Self::Changed { .. } => Blame::Source,
            Self::Unread(error) => error.blame(),
        }
    }
}

/// A path below the artifact as a path of the system.
pub(super) fn place(artifact: &Path, path: &OsStr) -> PathBuf {
    match path.is_empty() {
        true => artifact.to_owned(),
        false => artifact.join(path),
    }
}

/// A path below the artifact with one more component.
pub(super) fn join(folder: &OsStr, name: &OsStr) -> OsString {
    let mut path = folder.to_owned();
    if !path.is_empty() {
        path.push("/");
    }
    path.push(name);
    path
}

const ARTIFACT_TAG: &str = "packhouse/registry-artifact/1";
