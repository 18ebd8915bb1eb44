//! `prepare`: a verified copy of a model in RAM, made once.
//!
//! The hot way reads the path's record and the copy's receipts and asks each descriptor for its
//! stat: nothing is hashed, written or locked. The cold way holds the path's turn; see `work`.
//!
//! Invariants:
//! - two processes that prepare one model copy once: the second waits, and finds the first one's;
//! - every step before the rename is undone on failure; what a dead one left is removed by the
//!   next.
//!
//! Never: keeps a copy whose source changed while it was read.

use crate::models::digests::{FileDigestError, FileDigests};
use crate::models::entry::CopyProblem;
use crate::models::find::{AdmittedModel, ModelMiss};
use crate::models::key::ModelKey;
use crate::models::work::Work;
use crate::room::RoomError;
use crate::root::StageRoot;
use crate::stage::MIN_FREE_BYTES;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{File, FsError};
use packhouse_sys::memory::MemoryRoom;
use packhouse_sys::stat::FileKind;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// How a model is copied.
#[derive(Clone, Copy, Debug)]
pub struct ModelOptions {
    /// Bytes that stay free in the file system, in the host's memory and in the control group.
    pub min_free_bytes: u64,
    /// With more than one, hashing has threads of its own.
    pub threads: NonZeroUsize,
    /// How long another process that copies the same is waited for.
    pub wait_ns: u64,
    /// Asks the host for its memory.
    pub memory: fn() -> MemoryRoom,
}

/// The model to copy.
#[derive(Clone, Copy)]
pub struct ModelFiles<'a> {
    /// The path by which it will be found: absolute, the first file's.
    pub path: &'a Path,
    /// Its open files, shards in order.
    pub files: &'a [File],
    /// SHA-256 that each file must have; empty for any.
    pub expected: &'a [Digest],
}

/// Where preparing tells and asks.
#[derive(Clone, Copy)]
pub struct ModelWatcher<'a> {
    /// Is told how far it is.
    pub tell: &'a dyn Fn(ModelEvent),
    /// Is asked before each piece whether to stop.
    pub cancel: &'a (dyn Fn() -> bool + Sync),
}

/// What preparing tells while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// Another process copies the same and is waited for.
    Waits,
    /// So many bytes will be hashed, as a copy with their content may be there.
    Hash {
        /// All bytes.
        bytes: u64,
    },
    /// So many bytes will be copied.
    Copy {
        /// All bytes.
        bytes: u64,
    },
    /// So many more are done.
    Done {
        /// Bytes since the last word.
        bytes: u64,
    },
    /// Times must get old enough to be believed.
    Settle {
        /// How long that takes.
        wait_ns: u64,
    },
}

/// A copy that is there and holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedModel {
    /// The copy.
    pub model: AdmittedModel,
    /// How it came to be there.
    pub outcome: ModelOutcome,
    /// The model that the path was before, whose copy is still there.
    pub previous: Option<ModelKey>,
}

/// How a copy came to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelOutcome {
    /// It was there and holds; nothing was hashed.
    Reused,
    /// A copy of the same content was there, made from another path or of other times.
    Found {
        /// Bytes of the source that were hashed to know.
        hashed_bytes: u64,
    },
    /// The copy's stat identity had changed; it was hashed, and its bytes are the right ones.
    Rehashed {
        /// Bytes of the copy that were hashed.
        bytes: u64,
        /// What was wrong with it.
        why: CopyProblem,
    },
    /// It was copied now.
    Copied {
        /// Bytes copied.
        bytes: u64,
    },
    /// It was copied now, because the one before it failed.
    Replaced {
        /// Bytes copied.
        bytes: u64,
        /// What was wrong with the one before.
        why: CopyProblem,
    },
}

/// Why a model was not copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelPrepareError {
    /// There is no file.
    #[error("no file to copy")]
    NoFiles,
    /// Something else than a regular file.
    #[error("{} is a {kind}, expected a regular file", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// A shard whose name a record can't hold.
    #[error("{}: the names of shards must be UTF-8", path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// Other than one digest for each file.
    #[error("{actual} digests given for {expected} files")]
    ExpectedCount {
        /// Files.
        expected: usize,
        /// Digests.
        actual: usize,
    },
    /// Not the content that is wanted.
    #[error("{} has SHA-256 {actual}, expected {expected}", path.display())]
    WrongDigest {
        /// The file.
        path: PathBuf,
        /// The digest wanted.
        expected: Digest,
        /// The digest of what was read.
        actual: Digest,
    },
    /// Somebody may be writing the source.
    #[error("{} is open for writing by some process", path.display())]
    Writer {
        /// The file.
        path: PathBuf,
    },
    /// The source could not be hashed, or changed meanwhile.
    #[error(transparent)]
    Source(#[from] FileDigestError),
    /// The copy is not what was read.
    #[error(
        "{} was read as {source_digest}, its copy reads back as {copy_digest}", path.display()
    )]
    Differs {
        /// The source.
        path: PathBuf,
        /// SHA-256 of what was read from it.
        source_digest: Digest,
        /// SHA-256 of what is in the copy.
        copy_digest: Digest,
    },
    /// A file of the copy changed while its times got old enough to be believed.
    #[error("{} changed before it was published: its {field} differs", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The first field of the stat identity that differs.
        field: &'static str,
    },
    /// Another process that copies the same had its turn for all of the timeout.
    #[error("another process works on {what} for more than {} s", timeout_ns / 1_000_000_000)]
    Busy {
        /// The path or the model.
        what: String,
        /// How long was waited.
        timeout_ns: u64,
    },
    /// There is no room.
    #[error("no room: {0}")]
    Room(#[from] RoomError),
    /// The clock was set back behind the files' times.
    #[error("the clock is {} ms behind the files' ctime", behind_ns / 1_000_000)]
    Clock {
        /// How far.
        behind_ns: u64,
    },
    /// The copy that was made is not admitted.
    #[error(transparent)]
    Miss(Box<ModelMiss>),
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            min_free_bytes: MIN_FREE_BYTES,
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            wait_ns: 600_000_000_000,
            memory: MemoryRoom::now,
        }
    }
}

/// Makes sure that a whole and verified copy of a model is there.
///
/// Errors leave what was there before, but for a failed copy that was hashed in vain or whose room
/// was needed. `digests` saves hashing, and learns what was hashed.
pub fn prepare(
    root: &StageRoot,
    digests: Option<&FileDigests>,
    files: ModelFiles<'_>,
    options: &ModelOptions,
    watcher: ModelWatcher<'_>,
) -> Result<PreparedModel, ModelPrepareError> {
    let work = Work {
        root,
        digests,
        files,
        options,
        watcher,
    };
    work.judge_request()?;
    if let Some(model) = work.standing()? {
        return Ok(reused(model));
    }
    let _turn = work.turn_of_path()?;
    // Whoever had the turn may have copied it.
    match work.standing()? {
        Some(model) => Ok(reused(model)),
        None => work.make(),
    }
}

fn reused(model: AdmittedModel) -> PreparedModel {
    PreparedModel {
        model,
        outcome: ModelOutcome::Reused,
        previous: None,
    }
}

impl ModelPrepareError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NoFiles | Self::ExpectedCount { .. } | Self::Cancelled => Blame::Caller,
            Self::Kind { .. }
            | Self::Name { .. }
            | Self::WrongDigest { .. }
            | Self::Writer { .. } => Blame::Source,
            Self::Source(error) => error.blame(),
            Self::Differs { .. }
            | Self::Changed { .. }
            | Self::Busy { .. }
            | Self::Clock { .. } => Blame::Host,
            Self::Room(error) => error.blame(),
            Self::Miss(miss) => miss.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}
