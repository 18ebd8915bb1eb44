//! Reading the store's small files: packs, manifests, indexes, container records, pins.
//!
//! Invariants:
//! - owner, mode and kind are judged on the descriptor that is read;
//! - an absent file, a file that can't be trusted and one that can't be read are three answers.
//!
//! Never: believes content; that is each format's own work.

use crate::quarantine::Moved;
use crate::root::{OpenError, Owners, Store};
use packhouse_base::Blame;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;
use std::path::PathBuf;

/// Why a small file of the store was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmallRefusal {
    /// It isn't there.
    #[error("{} is not there", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to somebody who isn't trusted.
    #[error("{} belongs to uid {uid}; trusted are {trusted:?}", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// The owners trusted.
        trusted: Vec<u32>,
    },
    /// Others than its owner can change it.
    #[error("{} has mode {mode:04o}: others than its owner can change it", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It isn't a regular file.
    #[error("{} is a {kind}, expected a regular file", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// Its folder can't be trusted or opened.
    #[error(transparent)]
    Folder(Box<OpenError>),
    /// The system said no.
    #[error(transparent)]
    Fs(FsError),
}

/// A file that proved wrong and can't be moved out of the way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is wrong: {moved}", path.display())]
pub struct StuckError {
    /// The file.
    pub path: PathBuf,
    /// Why it stays.
    pub moved: Moved,
}

impl SmallRefusal {
    /// The file that it is about; `None` where a folder is in the way.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Self::Absent { path }
            | Self::Owner { path, .. }
            | Self::Writable { path, .. }
            | Self::Kind { path, .. } => Some(path),
            Self::Fs(error) => Some(&error.path),
            Self::Folder(_) => None,
        }
    }

    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } | Self::Kind { .. } => Blame::Store,
            Self::Owner { .. } | Self::Writable { .. } => Blame::Host,
            Self::Folder(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

impl From<OpenError> for SmallRefusal {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Fs(error) => error.into(),
            other => Self::Folder(Box::new(other)),
        }
    }
}

impl From<FsError> for SmallRefusal {
    fn from(error: FsError) -> Self {
        match error.kind {
            FsErrorKind::NotFound => Self::Absent { path: error.path },
            FsErrorKind::Symlink => Self::Kind {
                path: error.path,
                kind: FileKind::Symlink,
            },
            _ => Self::Fs(error),
        }
    }
}

impl Store {
    /// Reads a small file of a store's folder, at most `limit_bytes`. Errors when it is absent, not
    /// a regular file, of a foreign owner, or may be changed by others.
    pub(crate) fn read_trusted(
        &self,
        dir: &Dir,
        name: &str,
        limit_bytes: u64,
    ) -> Result<Vec<u8>, SmallRefusal> {
        read_trusted(dir, name, limit_bytes, self.owners())
    }

    /// Moves a small file that proved wrong to quarantine, so that its name is free.
    pub(crate) fn move_wrong_aside(&self, dir: &Dir, name: &str) -> Result<(), StuckError> {
        let moved = self.quarantine_entry(dir, name, None);
        if moved.name_is_free() {
            return Ok(());
        }
        Err(StuckError {
            path: dir.path().join(name),
            moved,
        })
    }
}

/// Reads a small file, at most `limit_bytes`. Errors when it is absent, not a regular file, of a
/// foreign owner, or may be changed by others.
pub fn read_trusted(
    dir: &Dir,
    name: &str,
    limit_bytes: u64,
    owners: &Owners,
) -> Result<Vec<u8>, SmallRefusal> {
    let file = dir.open_file(name)?;
    let stat = file.stat()?;
    let path = || file.path().to_owned();
    if stat.kind != FileKind::Regular {
        return Err(SmallRefusal::Kind {
            path: path(),
            kind: stat.kind,
        });
    }
    if !owners.trusts(stat.uid) {
        return Err(SmallRefusal::Owner {
            path: path(),
            uid: stat.uid,
            trusted: owners.uids().to_vec(),
        });
    }
    if stat.mode & GROUP_OTHER_WRITE != 0 {
        return Err(SmallRefusal::Writable {
            path: path(),
            mode: stat.mode,
        });
    }
    Ok(file.read_stated(&stat, limit_bytes)?)
}

const GROUP_OTHER_WRITE: u32 = 0o022;
