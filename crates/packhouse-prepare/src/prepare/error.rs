//! Why a set was not made.

use crate::model::ModelError;
use packhouse_base::digest::{Digest, PackKey};
use packhouse_base::{Blame, units};
use packhouse_store::container_record::ContainerRecordError;
use packhouse_store::lock::LockError;
use packhouse_store::manifest::ManifestError;
use packhouse_store::object::ObjectRefusal;
use packhouse_store::pack::{PackRefusal, PublishPackError};
use packhouse_store::publish::PublishError;
use packhouse_store::quarantine::Moved;
use packhouse_store::reserve::RoomError;
use packhouse_store::set::SetError;
use std::path::PathBuf;

/// Why a set was not made. What was published by then stays, and the next run uses it.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The model can't be read, or changed while it was read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A file is not the one that the caller named.
    #[error("{} has SHA-256 {actual}, expected {expected}", path.display())]
    SourceDigest {
        /// The file.
        path: PathBuf,
        /// What the caller said.
        expected: Digest,
        /// What its bytes hash to.
        actual: Digest,
    },
    /// A digest was given for another number of files than the model has.
    #[error("{given} digests given for a model of {files} files")]
    DigestCount {
        /// Digests given.
        given: usize,
        /// Files of the model.
        files: usize,
    },
    /// The plan chose nothing.
    #[error("plan {plan:?} chooses no tensor of {}", path.display())]
    NothingChosen {
        /// The plan.
        plan: String,
        /// The model's first file.
        path: PathBuf,
    },
    /// The choice contradicts itself.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The name of a file can't stand in a container record.
    #[error(transparent)]
    Container(#[from] ContainerRecordError),
    /// Something must be written, and the store was opened read-only.
    #[error("{count} packs are to be made, and {} was opened read-only", path.display())]
    ReadOnly {
        /// Packs to make.
        count: usize,
        /// The store's root.
        path: PathBuf,
    },
    /// There is no room for what is to be written.
    #[error("no room for {} of packs", units::bytes(*wanted_bytes))]
    Room {
        /// Bytes to write.
        wanted_bytes: u64,
        /// What there is.
        source: RoomError,
    },
    /// The memory at hand does not hold one tensor and its pack.
    #[error(
        "tensor {tensor:?} and its pack need {}, the memory budget is {}",
        units::bytes(*needed_bytes), units::bytes(*budget_bytes)
    )]
    Memory {
        /// The tensor.
        tensor: String,
        /// Bytes needed at once.
        needed_bytes: u64,
        /// Bytes that may be used.
        budget_bytes: u64,
    },
    /// Another process makes the same for longer than the caller waits.
    #[error("another process makes {what}; waited {}", units::duration_ns(*timeout_ns))]
    LockTimeout {
        /// What is made.
        what: String,
        /// How long was waited.
        timeout_ns: u64,
    },
    /// The system gives no thread for a part of the work that nobody else can do.
    #[error("the system starts no thread: {source}")]
    Threads {
        /// Why.
        source: std::io::Error,
    },
    /// No lock could be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The packer makes different bytes of the same source.
    #[error("tensor {tensor:?}: layout {layout} is not deterministic: two packs of it differ")]
    NotDeterministic {
        /// The tensor.
        tensor: String,
        /// The layout.
        layout: String,
    },
    /// An object can't be used, and can't be moved out of the way.
    #[error("tensor {tensor:?}: {source}")]
    Object {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        source: Box<ObjectRefusal>,
    },
    /// A pack's record can't be used, and can't be moved out of the way.
    #[error("tensor {tensor:?}: {source}")]
    Record {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        source: Box<PackRefusal>,
    },
    /// A record is wrong, and can't be moved out of the way.
    #[error("tensor {tensor:?}: the record of pack {key} names another object; {moved}")]
    Stuck {
        /// The tensor.
        tensor: String,
        /// The pack.
        key: PackKey,
        /// Why it stays.
        moved: Moved,
    },
    /// A tensor has no pack after all were made.
    #[error("tensor {tensor:?} has no pack after all were made")]
    Unfinished {
        /// The tensor.
        tensor: String,
    },
    /// A payload was not published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A pack was not published.
    #[error(transparent)]
    Pack(#[from] PublishPackError),
    /// The set was not published.
    #[error(transparent)]
    Set(#[from] SetError),
    /// The caller cancelled.
    #[error("cancelled: {done} of {total} tensors are ready")]
    Cancelled {
        /// Tensors whose packs are in the store.
        done: usize,
        /// Tensors of the set.
        total: usize,
    },
}

impl PrepareError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Model(error) => error.blame(),
            Self::SourceDigest { .. } | Self::NothingChosen { .. } | Self::Container(_) => {
                Blame::Source
            }
            Self::DigestCount { .. }
            | Self::Manifest(_)
            | Self::ReadOnly { .. }
            | Self::Cancelled { .. } => Blame::Caller,
            Self::Room { source, .. } => source.blame(),
            Self::Memory { .. }
            | Self::LockTimeout { .. }
            | Self::Threads { .. }
            | Self::Stuck { .. } => Blame::Host,
            Self::Lock(error) => error.blame(),
            Self::NotDeterministic { .. } | Self::Unfinished { .. } => Blame::Bug,
            Self::Object { source, .. } => source.blame(),
            Self::Record { source, .. } => source.blame(),
            Self::Publish(error) => error.blame(),
            Self::Pack(error) => error.blame(),
            Self::Set(error) => error.blame(),
        }
    }
}
