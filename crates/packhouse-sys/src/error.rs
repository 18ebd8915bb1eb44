//! Why a file operation failed: the reasons that callers tell apart, with operation and path.
//!
//! Never: a text of the system; a reason that nobody asks for is its number.

use packhouse_base::Blame;
use std::path::PathBuf;

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Open a file or folder.
    Open,
    /// Make a file.
    Create,
    /// Make a folder.
    MakeDir,
    /// Write.
    Write,
    /// Read.
    Read,
    /// Make durable.
    Sync,
    /// Give a name.
    Link,
    /// Move.
    Rename,
    /// Remove a name.
    Remove,
    /// List a folder.
    List,
    /// Ask for stat or statfs.
    Stat,
    /// Set length or mode.
    Change,
    /// Lock or unlock.
    Lock,
    /// Draw random bytes.
    Random,
}

/// Why a system call failed: the reasons that a caller tells apart, and the rest by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FsErrorKind {
    /// ENOENT.
    #[error("not found")]
    NotFound,
    /// EEXIST.
    #[error("exists already")]
    Exists,
    /// ENOTDIR.
    #[error("not a folder")]
    NotDirectory,
    /// EISDIR.
    #[error("is a folder")]
    IsDirectory,
    /// ELOOP: a symlink where none is followed.
    #[error("is a symlink")]
    Symlink,
    /// EACCES, EPERM.
    #[error("permission denied")]
    Permission,
    /// EROFS.
    #[error("read-only file system")]
    ReadOnly,
    /// ENOSPC.
    #[error("no space left on device")]
    NoSpace,
    /// EFBIG: past what the process (RLIMIT_FSIZE) or the file system lets a file be.
    #[error("longer than a file may be here (ulimit -f)")]
    TooLarge,
    /// EDQUOT.
    #[error("quota exceeded")]
    Quota,
    /// EIO.
    #[error("input/output error")]
    Io,
    /// EOPNOTSUPP, ENOSYS, ENOTTY, EINVAL where the call is optional.
    #[error("not supported by this file system")]
    Unsupported,
    /// ENOTEMPTY.
    #[error("folder not empty")]
    NotEmpty,
    /// EXDEV.
    #[error("on another file system")]
    CrossDevice,
    /// EMFILE, ENFILE.
    #[error("too many open files")]
    TooManyFiles,
    /// The name is empty, `.`, `..`, or has a slash.
    #[error("not a plain name")]
    BadName,
    /// A handle of another backend.
    #[error("handle of another file system backend")]
    ForeignHandle,
    /// A write or sync on this file failed before; nothing more is believed of it.
    #[error("an earlier write or sync of this file failed")]
    Poisoned,
    /// The simulated machine stopped before this operation.
    #[error("stopped")]
    Stopped,
    /// Fewer bytes than expected were there.
    #[error("ends early")]
    EndsEarly,
    /// Longer than the caller's limit.
    #[error("longer than the limit of {limit} bytes")]
    TooLong {
        /// The caller's limit.
        limit: u64,
    },
    /// Any other errno.
    #[error("errno {0}")]
    Errno(i32),
}

/// A failed file operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {}: {kind}", path.display())]
pub struct FsError {
    /// What failed.
    pub operation: Operation,
    /// On which path, as opened.
    pub path: PathBuf,
    /// Why.
    pub kind: FsErrorKind,
}

impl FsError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self.kind {
            FsErrorKind::BadName | FsErrorKind::ForeignHandle => Blame::Bug,
            FsErrorKind::EndsEarly | FsErrorKind::TooLong { .. } => Blame::Store,
            FsErrorKind::NotFound
            | FsErrorKind::Exists
            | FsErrorKind::NotDirectory
            | FsErrorKind::IsDirectory
            | FsErrorKind::Symlink
            | FsErrorKind::Permission
            | FsErrorKind::ReadOnly
            | FsErrorKind::NoSpace
            | FsErrorKind::TooLarge
            | FsErrorKind::Quota
            | FsErrorKind::Io
            | FsErrorKind::Unsupported
            | FsErrorKind::NotEmpty
            | FsErrorKind::CrossDevice
            | FsErrorKind::TooManyFiles
            | FsErrorKind::Poisoned
            | FsErrorKind::Stopped
            | FsErrorKind::Errno(_) => Blame::Host,
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::MakeDir => "make folder",
            Self::Write => "write",
            Self::Read => "read",
            Self::Sync => "sync",
            Self::Link => "link",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::List => "list",
            Self::Stat => "stat",
            Self::Change => "change",
            Self::Lock => "lock",
            Self::Random => "random bytes for",
        })
    }
}
