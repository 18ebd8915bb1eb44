//! Why a directory of the other side was not imported.

use super::super::parse::ForeignRecordError;
use super::super::records::INDEX_NAME;
use crate::model::ModelError;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_layout::Refusal;
use packhouse_pack::NoKernel;
use packhouse_store::container_record::ContainerRecordError;
use packhouse_store::manifest::ManifestError;
use packhouse_store::pack::PublishPackError;
use packhouse_store::publish::PublishError;
use packhouse_store::reserve::RoomError;
use packhouse_store::set::SetError;
use packhouse_sys::fs::FsError;
use std::path::PathBuf;

/// Why a directory was not imported.
#[derive(Debug, thiserror::Error)]
pub enum ForeignImportError {
    /// A file of it is missing.
    #[error("{} is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Something else than a regular file, or than a folder.
    #[error("{} is not a {expected}; links are not followed", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// What it must be.
        expected: &'static str,
    },
    /// A record is longer than any.
    #[error("{} has {actual} bytes, at most {limit} are read", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most.
        limit: u64,
        /// Its length.
        actual: u64,
    },
    /// A record is wrong.
    #[error(transparent)]
    Record(#[from] ForeignRecordError),
    /// The directory has another name than its set's key.
    #[error("the folder is named {name:?}, its set has key {key}")]
    Name {
        /// The folder's name.
        name: String,
        /// The key derived from its manifest.
        key: Digest,
    },
    /// The runtime index is not the one of the manifest.
    #[error("{INDEX_NAME}: line {line}: expected {expected:?}, found {actual:?}")]
    Index {
        /// The first line that differs, from 1.
        line: usize,
        /// What the manifest gives.
        expected: String,
        /// What the file has.
        actual: String,
    },
    /// A set of nothing.
    #[error("manifest.json: tensors: empty")]
    Empty,
    /// A tensor that the layout does not take.
    #[error("{tensor}: {source}")]
    Layout {
        /// The tensor.
        tensor: String,
        /// Why.
        source: Refusal,
    },
    /// No packer for the layout on this CPU.
    #[error(transparent)]
    NoKernel(#[from] NoKernel),
    /// A payload of another length.
    #[error("{tensor}: {} has {actual} bytes, expected {expected}", path.display())]
    Length {
        /// The tensor.
        tensor: String,
        /// The payload.
        path: PathBuf,
        /// The length of its shape.
        expected: u64,
        /// Its length.
        actual: u64,
    },
    /// A payload whose bytes are not the recorded ones.
    #[error("{tensor}: {} hashes to {actual}, recorded is {expected}", path.display())]
    Payload {
        /// The tensor.
        tensor: String,
        /// The payload.
        path: PathBuf,
        /// The digest recorded.
        expected: Digest,
        /// The digest of its bytes.
        actual: Digest,
    },
    /// A payload that was not made of the recorded source tensor by this layout.
    #[error(
        "{tensor}: {} unpacked hashes to {actual}, the source tensor is recorded as {expected}",
        path.display()
    )]
    Source {
        /// The tensor.
        tensor: String,
        /// The payload.
        path: PathBuf,
        /// The source tensor's digest recorded.
        expected: Digest,
        /// The digest of the payload's inverse transform.
        actual: Digest,
    },
    /// The model at hand has several files.
    #[error("{} is one of {count} files, and xe2-m6-v2 knows models of one", path.display())]
    Shards {
        /// The first file.
        path: PathBuf,
        /// How many there are.
        count: usize,
    },
    /// The model at hand is not the one that is recorded.
    #[error("{} has SHA-256 {actual}, the set was made of {expected}", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The hash recorded.
        expected: Digest,
        /// The file's.
        actual: Digest,
    },
    /// The model at hand has other bytes where the set has a tensor.
    #[error("{tensor}: {}: not the recorded tensor at byte {offset}", path.display())]
    OtherTensor {
        /// The tensor.
        tensor: String,
        /// The file.
        path: PathBuf,
        /// The offset recorded.
        offset: u64,
    },
    /// The model at hand can't be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There is no room for its objects.
    #[error("{wanted_bytes} bytes are new to this store: {source}")]
    Room {
        /// Bytes of the objects that the store lacks.
        wanted_bytes: u64,
        /// Why there is no room.
        source: Box<RoomError>,
    },
    /// An object could not be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A pack could not be published.
    #[error(transparent)]
    PublishPack(#[from] Box<PublishPackError>),
    /// The set is none that can be filed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// No container record can be made of the recorded model.
    #[error(transparent)]
    Container(#[from] ContainerRecordError),
    /// The set could not be published.
    #[error(transparent)]
    PublishSet(#[from] Box<SetError>),
    /// The system said no.
    #[error(transparent)]
    Fs(FsError),
}

impl ForeignImportError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Missing { .. }
            | Self::Kind { .. }
            | Self::TooLong { .. }
            | Self::Name { .. }
            | Self::Index { .. }
            | Self::Empty
            | Self::Layout { .. }
            | Self::Length { .. }
            | Self::Payload { .. }
            | Self::Source { .. }
            | Self::OtherModel { .. }
            | Self::OtherTensor { .. }
            | Self::Manifest(_)
            | Self::Container(_) => Blame::Source,
            Self::Shards { .. } => Blame::Caller,
            Self::Model(error) => error.blame(),
            Self::Record(error) => error.blame(),
            Self::NoKernel(error) => error.blame(),
            Self::Room { source, .. } => source.blame(),
            Self::Publish(error) => error.blame(),
            Self::PublishPack(error) => error.blame(),
            Self::PublishSet(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}
