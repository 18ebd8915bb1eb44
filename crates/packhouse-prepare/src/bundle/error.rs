//! Why a bundle is not written or not taken.

use super::contents::ContentsError;
use crate::proof::Wrong;
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, ObjectDigest, PackKey, SetKey};
use packhouse_store::container_record::ContainerRecordError;
use packhouse_store::manifest::{IndexError, ManifestError};
use packhouse_store::object::ObjectRefusal;
use packhouse_store::pack::{PackRefusal, PublishPackError};
use packhouse_store::publish::PublishError;
use packhouse_store::record::RecordError;
use packhouse_store::reserve::RoomError;
use packhouse_store::set::{SetError, SetMiss};
use packhouse_store::small::SmallRefusal;
use std::io;

/// Why a bundle is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It can't be read.
    #[error("cannot read the bundle at byte {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// It ends early.
    #[error("the bundle ends at byte {offset}, within {member}")]
    Truncated {
        /// Where it ends.
        offset: u64,
        /// The member that is cut.
        member: String,
    },
    /// Its first member is no table of contents.
    #[error("byte 0: expected the header of a packhouse bundle, found {actual}")]
    NoBundle {
        /// What is there.
        actual: String,
    },
    /// Its table of contents is longer than any.
    #[error("packhouse-bundle.json: {actual} bytes, at most {limit} are read")]
    ContentsTooLong {
        /// The most that is read.
        limit: u64,
        /// The length in its header.
        actual: u64,
    },
    /// Its table of contents is wrong.
    #[error("packhouse-bundle.json: {0}")]
    Contents(#[from] ContentsError),
    /// Another member than the table of contents promises, or one with another header.
    #[error("byte {offset}: expected {expected}, found {actual}")]
    Member {
        /// Where its header is.
        offset: u64,
        /// The member expected.
        expected: String,
        /// What is there.
        actual: String,
    },
    /// Bytes between members that are not zero.
    #[error("byte {offset}: the padding after {member} is not zero")]
    Padding {
        /// Where the padding begins.
        offset: u64,
        /// The member before.
        member: String,
    },
    /// Bytes after the end.
    #[error("byte {offset}: bytes after the end of the bundle")]
    Trailing {
        /// Where the bundle should end.
        offset: u64,
    },
    /// A file whose content is fixed has another.
    #[error("{path}: not the content that every bundle of this set has")]
    Fixed {
        /// The member.
        path: String,
    },
    /// A pack record is wrong.
    #[error(transparent)]
    Pack(#[from] RecordError),
    /// The manifest is wrong.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The runtime index is not that of the manifest.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A container record is wrong.
    #[error(transparent)]
    Container(#[from] ContainerRecordError),
    /// The manifest names a pack that the bundle lacks, or with another object or length.
    #[error("slot {slot} ({tensor:?}): pack {pack} is not in the bundle as the manifest has it")]
    Lacks {
        /// The slot.
        slot: u64,
        /// Its tensor.
        tensor: String,
        /// The pack.
        pack: PackKey,
    },
    /// A pack that no slot of the set names.
    #[error("pack {pack} is in the bundle, but no slot of the set names it")]
    StrayPack {
        /// The pack.
        pack: PackKey,
    },
    /// The objects listed are not those of the packs.
    #[error("object {object} is not listed once with the length that its packs name")]
    Objects {
        /// The first object that differs.
        object: ObjectDigest,
    },
    /// An object's bytes are others.
    #[error("object {expected}: its bytes in the bundle hash to {actual}")]
    Object {
        /// The digest expected.
        expected: ObjectDigest,
        /// The digest of the bytes.
        actual: Digest,
    },
    /// A payload is whole, and not what the source in its pack key packs to.
    #[error("slot {slot} ({tensor:?}): pack {pack}: {wrong}")]
    Wrong {
        /// The slot.
        slot: u64,
        /// Its tensor.
        tensor: String,
        /// The pack.
        pack: PackKey,
        /// What shows it.
        wrong: Wrong,
    },
    /// An object that was stored can't be read again.
    #[error(transparent)]
    Unread(Box<ObjectRefusal>),
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
    /// The set could not be published.
    #[error(transparent)]
    PublishSet(#[from] Box<SetError>),
}

/// Why a bundle was not written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// There is no such set, or its manifest is damaged.
    #[error(transparent)]
    Set(#[from] SetMiss),
    /// A pack of it can't be read.
    #[error("slot {slot} ({tensor:?}): {source}")]
    Pack {
        /// The slot.
        slot: u64,
        /// Its tensor.
        tensor: String,
        /// Why.
        source: Box<PackRefusal>,
    },
    /// Its container records can't be read.
    #[error(transparent)]
    Containers(#[from] SmallRefusal),
    /// It has no good container record.
    #[error("set {set} has no container record that can be read")]
    NoContainer {
        /// The set.
        set: SetKey,
    },
    /// An object of it is missing or damaged.
    #[error(transparent)]
    Object(#[from] Box<ObjectRefusal>),
    /// Its records are longer than a bundle's may be.
    #[error("set {set}: {source}")]
    Contents {
        /// The set.
        set: SetKey,
        /// What is too long.
        source: ContentsError,
    },
    /// The bundle can't be written.
    #[error("cannot write the bundle at byte {offset}: {source}")]
    Write {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
}

impl BundleError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Read { .. } => Blame::Host,
            Self::Truncated { .. }
            | Self::NoBundle { .. }
            | Self::ContentsTooLong { .. }
            | Self::Contents(_)
            | Self::Member { .. }
            | Self::Padding { .. }
            | Self::Trailing { .. }
            | Self::Fixed { .. }
            | Self::Pack(_)
            | Self::Manifest(_)
            | Self::Index(_)
            | Self::Container(_)
            | Self::Lacks { .. }
            | Self::StrayPack { .. }
            | Self::Objects { .. }
            | Self::Object { .. }
            | Self::Wrong { .. } => Blame::Source,
            Self::Unread(refusal) => refusal.blame(),
            Self::Room { source, .. } => source.blame(),
            Self::Publish(error) => error.blame(),
            Self::PublishPack(error) => error.blame(),
            Self::PublishSet(error) => error.blame(),
        }
    }
}

impl ExportError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Set(error) => error.blame(),
            Self::Pack { source, .. } => source.blame(),
            Self::Containers(error) => error.blame(),
            Self::NoContainer { .. } | Self::Contents { .. } => Blame::Store,
            Self::Object(refusal) => refusal.blame(),
            Self::Write { .. } => Blame::Host,
        }
    }
}
