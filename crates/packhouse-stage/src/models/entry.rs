//! One published copy of a model, read: its folder, its receipts, its files.
//!
//! Invariants:
//! - folders belong to this user alone, and receipts are read from the opened folder;
//! - a file is handed out for the descriptor that its receipt holds for.
//!
//! Never: repairs, hashes unasked, calls a damaged copy absent.

use crate::condemn::is_condemned;
use crate::models::key::{EntryName, ModelKey};
use crate::models::receipts::{FileReceipt, ModelReceipts, ModelReceiptsError};
use crate::name::{FILES_NAME, MODELS_NAME, RECEIPTS_NAME};
use crate::root::StageRoot;
use crate::staged::FOLDER_MODE;
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_store::object::{ReceiptDoubt, VerifiedObject};
use packhouse_store::set::MANIFEST_BYTES_MAX;
use packhouse_store::small::{SmallRefusal, read_trusted};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, FsKind, StatIdentity, Volume};
use std::path::PathBuf;

/// A published copy whose receipts hold.
pub(crate) struct Entry {
    pub(crate) name: EntryName,
    pub(crate) receipts: ModelReceipts,
    pub(crate) folder: Dir,
    pub(crate) files: Dir,
    volume: Volume,
}

/// What is wrong with a copy of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyProblem {
    /// Its folder, or the one of its files, is no folder or can't be opened.
    #[error("folder: {0}")]
    Folder(FsError),
    /// Its folder can be changed by others or is not this user's.
    #[error("{} has mode {mode:04o} and uid {uid}, expected 0700 and {expected}", path.display())]
    Access {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// This process's effective user.
        expected: u32,
    },
    /// It was hashed and found to have other bytes than its receipts said.
    #[error("{} was found to have other bytes than were copied, and is out of service",
        path.display())]
    Condemned {
        /// The folder.
        path: PathBuf,
    },
    /// Its receipts are absent or can't be trusted.
    #[error("receipts: {0}")]
    File(SmallRefusal),
    /// Its receipts prove nothing.
    #[error(transparent)]
    Receipts(#[from] ModelReceiptsError),
    /// A file of it.
    #[error(transparent)]
    Refusal(#[from] CopyRefusal),
}

/// Why a file of a copy is not handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyRefusal {
    /// It is gone.
    #[error("{} is not there", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A symlink, folder or device in its place.
    #[error("{} is a {kind}, expected a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// Another owner.
    #[error("{} belongs to uid {actual}, expected {expected}", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// The owner in the receipt.
        expected: u32,
        /// The owner now.
        actual: u32,
    },
    /// Other permission bits: somebody made it writable, or wanted to.
    #[error("{} has mode {actual:04o}, expected {expected:04o}", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// The mode in the receipt.
        expected: u32,
        /// The mode now.
        actual: u32,
    },
    /// Another length.
    #[error("{} has {actual} bytes, expected {expected}", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// The length in the receipt.
        expected: u64,
        /// Length there.
        actual: u64,
    },
    /// A second name, through which it could be changed.
    #[error("{} has {count} names, expected 1", path.display())]
    Linked {
        /// The file.
        path: PathBuf,
        /// Names now.
        count: u64,
    },
    /// Changed, or replaced, since it was hashed.
    #[error("{} changed since it was hashed: its {field} differs", path.display())]
    Stale {
        /// The file.
        path: PathBuf,
        /// The first field that differs.
        field: &'static str,
    },
    /// Some process can write to it: it has it open so, or mapped.
    #[error("{} is open for writing by some process", path.display())]
    Writer {
        /// The file.
        path: PathBuf,
    },
    /// On a file system whose stat proves nothing.
    #[error("{} is on {kind}, whose stat proves nothing", path.display())]
    Remote {
        /// The file.
        path: PathBuf,
        /// The file system.
        kind: FsKind,
    },
    /// Other bytes.
    #[error("{} hashes to {actual}, expected {expected}", path.display())]
    Bytes {
        /// The file.
        path: PathBuf,
        /// Its digest by the receipt.
        expected: Digest,
        /// Digest of the bytes there.
        actual: Digest,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Entry {
    /// Opens a published copy; `None` where it is gone.
    pub(crate) fn open(root: &StageRoot, name: EntryName) -> Result<Option<Self>, CopyProblem> {
        let Some(models) = models_dir(root).map_err(CopyProblem::Folder)? else {
            return Ok(None);
        };
        judge_folder(root, &models)?;
        let dir = match models.open_dir(name.to_string()) {
            Ok(dir) => dir,
            Err(error) if error.kind == FsErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CopyProblem::Folder(error)),
        };
        judge_folder(root, &dir)?;
        let bytes = read_trusted(&dir, RECEIPTS_NAME, MANIFEST_BYTES_MAX, &root.own);
        let bytes = bytes.map_err(|refusal| match refusal {
            SmallRefusal::Absent { .. } if is_condemned(&dir) => CopyProblem::Condemned {
                path: dir.path().to_owned(),
            },
            other => CopyProblem::File(other),
        })?;
        let receipts = ModelReceipts::parse(name.key, name.generation, &bytes)?;
        let files = dir.open_dir(FILES_NAME).map_err(CopyProblem::Folder)?;
        judge_folder(root, &files)?;
        let volume = dir.open_file(RECEIPTS_NAME).and_then(|file| file.volume());
        Ok(Some(Self {
            name,
            receipts,
            folder: dir,
            files,
            volume: volume.map_err(CopyProblem::Folder)?,
        }))
    }

    /// Opens a file. Errors unless its receipt holds for the descriptor, and while some process can
    /// write to it: a write through a mapping changes no time on tmpfs.
    pub(crate) fn file(&self, receipt: &FileReceipt) -> Result<VerifiedObject, CopyRefusal> {
        let object = self.file_to_hash(receipt)?;
        match object.file().has_writer() {
            Some(true) => Err(CopyRefusal::Writer {
                path: object.file().path().to_owned(),
            }),
            Some(false) | None => Ok(object),
        }
    }

    /// Opens a file, whoever may write to it. Errors unless its receipt holds for the descriptor.
    pub(crate) fn file_to_hash(
        &self,
        receipt: &FileReceipt,
    ) -> Result<VerifiedObject, CopyRefusal> {
        let file = self.open_named(&receipt.name)?;
        let path = file.path().to_owned();
        let identity = self.receipts.identity_of(receipt);
        VerifiedObject::by_receipt(ObjectDigest(receipt.digest), file, &identity, &self.volume)
            .map_err(|doubt| refusal(path, doubt))
    }

    /// Opens a file whatever it is like.
    pub(crate) fn open_named(&self, name: &str) -> Result<File, CopyRefusal> {
        self.files.open_file(name).map_err(|error| {
            let path = self.files.path().join(name);
            match error.kind {
                FsErrorKind::NotFound => CopyRefusal::Missing { path },
                FsErrorKind::Symlink => CopyRefusal::NotRegular {
                    path,
                    kind: FileKind::Symlink,
                },
                _ => CopyRefusal::Fs(error),
            }
        })
    }
}

impl CopyProblem {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Folder(error) => error.blame(),
            Self::Access { .. } => Blame::Host,
            Self::Condemned { .. } => Blame::Store,
            Self::File(refusal) => refusal.blame(),
            Self::Receipts(error) => error.blame(),
            Self::Refusal(refusal) => refusal.blame(),
        }
    }

    /// The system's error, where it says nothing of the copy and may pass: no descriptor is left,
    /// say. Nobody may take such a copy for a bad one and remove it.
    pub(crate) fn passing(&self) -> Option<&FsError> {
        let error = match self {
            Self::Folder(error)
            | Self::File(SmallRefusal::Fs(error))
            | Self::Refusal(CopyRefusal::Fs(error)) => error,
            Self::Access { .. }
            | Self::Condemned { .. }
            | Self::File(_)
            | Self::Receipts(_)
            | Self::Refusal(_) => return None,
        };
        match error.kind {
            FsErrorKind::Io | FsErrorKind::TooManyFiles | FsErrorKind::Errno(_) => Some(error),
            FsErrorKind::BadName
            | FsErrorKind::ForeignHandle
            | FsErrorKind::EndsEarly
            | FsErrorKind::TooLong { .. }
            | FsErrorKind::NotFound
            | FsErrorKind::Exists
            | FsErrorKind::NotDirectory
            | FsErrorKind::IsDirectory
            | FsErrorKind::Symlink
            | FsErrorKind::Permission
            | FsErrorKind::ReadOnly
            | FsErrorKind::NoSpace
            | FsErrorKind::TooLarge
            | FsErrorKind::Quota
            | FsErrorKind::Unsupported
            | FsErrorKind::NotEmpty
            | FsErrorKind::CrossDevice
            | FsErrorKind::Poisoned
            | FsErrorKind::Stopped => None,
        }
    }

    /// One word for reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Folder(_) => "folder",
            Self::Access { .. } => "access",
            Self::Condemned { .. } => "condemned",
            Self::File(_) | Self::Receipts(_) => "receipts",
            Self::Refusal(refusal) => refusal.reason(),
        }
    }
}

impl CopyRefusal {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Missing { .. }
            | Self::NotRegular { .. }
            | Self::Owner { .. }
            | Self::Mode { .. }
            | Self::Length { .. }
            | Self::Linked { .. }
            | Self::Stale { .. }
            | Self::Bytes { .. } => Blame::Store,
            Self::Writer { .. } | Self::Remote { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }

    /// One word for reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::NotRegular { .. } => "not_regular",
            Self::Owner { .. } => "owner",
            Self::Mode { .. } => "mode",
            Self::Length { .. } => "length",
            Self::Linked { .. } => "linked",
            Self::Stale { .. } => "stale",
            Self::Writer { .. } => "writer",
            Self::Remote { .. } => "remote",
            Self::Bytes { .. } => "bytes",
            Self::Fs(_) => "host",
        }
    }
}

/// The folder of copies; `None` where nobody made one.
pub(crate) fn models_dir(root: &StageRoot) -> Result<Option<Dir>, FsError> {
    match root.dir.open_dir(MODELS_NAME) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The folder of copies, made where it is absent, and durable.
pub(crate) fn make_models_dir(root: &StageRoot) -> Result<Dir, FsError> {
    match root.dir.make_dir(MODELS_NAME, FOLDER_MODE) {
        Err(error) if error.kind == FsErrorKind::Exists => {}
        other => other?,
    }
    // Also where a dead process made it and got no further.
    root.dir.sync()?;
    root.dir.open_dir(MODELS_NAME)
}

/// The published copies, by key and rising generation. Other names are left out.
pub(crate) fn entries(root: &StageRoot) -> Result<Vec<EntryName>, FsError> {
    let Some(models) = models_dir(root)? else {
        return Ok(Vec::new());
    };
    let names = models.list()?;
    let mut entries: Vec<EntryName> = names
        .iter()
        .filter_map(|name| EntryName::parse(name.to_str()?))
        .collect();
    entries.sort_unstable();
    Ok(entries)
}

/// The copies of one model, rising by generation.
pub(crate) fn entries_of(root: &StageRoot, key: ModelKey) -> Result<Vec<EntryName>, FsError> {
    let mut entries = entries(root)?;
    entries.retain(|name| name.key == key);
    Ok(entries)
}

fn judge_folder(root: &StageRoot, dir: &Dir) -> Result<(), CopyProblem> {
    let stat = dir.stat().map_err(CopyProblem::Folder)?;
    if stat.mode == FOLDER_MODE && root.own.trusts(stat.uid) {
        return Ok(());
    }
    Err(CopyProblem::Access {
        path: dir.path().to_owned(),
        mode: stat.mode,
        uid: stat.uid,
        expected: root.fs.effective_uid(),
    })
}

/// Names what a doubt is about; the fields that an owner can set come before the times.
fn refusal(path: PathBuf, doubt: ReceiptDoubt) -> CopyRefusal {
    match doubt {
        ReceiptDoubt::NotRegular { kind } => CopyRefusal::NotRegular { path, kind },
        ReceiptDoubt::Linked { count } => CopyRefusal::Linked { path, count },
        ReceiptDoubt::Remote { kind } => CopyRefusal::Remote { path, kind },
        ReceiptDoubt::Differs {
            field,
            expected,
            actual,
        } => differing(path, field, &expected, &actual),
        ReceiptDoubt::Fs(error) => CopyRefusal::Fs(error),
    }
}

pub(crate) fn differing(
    path: PathBuf,
    field: &'static str,
    expected: &StatIdentity,
    actual: &StatIdentity,
) -> CopyRefusal {
    if expected.uid != actual.uid {
        return CopyRefusal::Owner {
            path,
            expected: expected.uid,
            actual: actual.uid,
        };
    }
    if expected.mode != actual.mode {
        return CopyRefusal::Mode {
            path,
            expected: expected.mode,
            actual: actual.mode,
        };
    }
    if expected.size != actual.size {
        return CopyRefusal::Length {
            path,
            expected: expected.size,
            actual: actual.size,
        };
    }
    CopyRefusal::Stale { path, field }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_sys::fs::Operation;

    #[test]
    fn only_an_error_that_says_nothing_of_the_copy_may_pass() {
        let error = |kind| FsError {
            operation: Operation::Open,
            path: PathBuf::from("/stage/models"),
            kind,
        };
        let problems = |kind| {
            [
                CopyProblem::Folder(error(kind)),
                CopyProblem::File(SmallRefusal::Fs(error(kind))),
                CopyProblem::Refusal(CopyRefusal::Fs(error(kind))),
            ]
        };
        for kind in [
            FsErrorKind::TooManyFiles,
            FsErrorKind::Io,
            FsErrorKind::Errno(12),
        ] {
            for problem in problems(kind) {
                assert_eq!(problem.passing(), Some(&error(kind)), "{problem}");
            }
        }
        for kind in [
            FsErrorKind::NotFound,
            FsErrorKind::Symlink,
            FsErrorKind::NotDirectory,
        ] {
            for problem in problems(kind) {
                assert_eq!(problem.passing(), None, "{problem}");
            }
        }
        let path = PathBuf::from("/stage/models");
        let missing = CopyProblem::Refusal(CopyRefusal::Missing { path });
        assert_eq!(missing.passing(), None);
    }
}
