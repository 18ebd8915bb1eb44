//! What serving a tile came to, and why a request is not served.

use crate::head::HeadDigest;
use crate::header::HeadError;
use crate::owners::ClaimProblem;
use crate::publish::PublishError;
use crate::refusal::Refusal;
use crate::removed::Removed;
use crate::room::NoRoom;
use packhouse_base::Blame;
use std::fmt;

/// What was done for one tile.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Where the tile is from.
    pub outcome: Outcome,
    /// The sum of all `nd` scales, added in f64 in the order of the columns.
    pub scale_sum: f64,
    /// Files that were removed on the way.
    pub removed: Vec<Removed>,
    /// What was in the way of noting the owner, or of removing what it left.
    pub owner_problems: Vec<ClaimProblem>,
}

/// Where a tile is from.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Its image.
    Hit,
    /// The packer.
    Packed {
        /// The file that was there and not used.
        refused: Option<Refusal>,
        /// What became of its image.
        written: Written,
    },
}

/// What became of a packed tile's image.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// It is there for the next start.
    Yes {
        /// Bytes of its file.
        bytes: u64,
    },
    /// It is not; the next start packs again.
    No(NotWritten),
}

/// Why an image was not written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotWritten {
    /// Images are off.
    #[error("off")]
    Off,
    /// Images are only read.
    #[error("read-only")]
    ReadOnly,
    /// Its bytes fit no bound.
    #[error(transparent)]
    NoRoom(NoRoom),
    /// There is no private memory to pack it in, and the caller's is never read.
    #[error("there is no memory of {bytes} bytes to pack it in")]
    NoMemory {
        /// A tile's codes.
        bytes: u64,
    },
    /// It could not be written.
    #[error(transparent)]
    Publish(PublishError),
}

/// Why an image was not written, without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotWrittenCode {
    /// Images are off.
    Off,
    /// Images are only read.
    ReadOnly,
    /// Its bytes fit no bound.
    NoRoom,
    /// There is no private memory to pack it in.
    NoMemory,
    /// It could not be written, or room could not be made.
    Failed,
}

/// Why a request is not served: nothing was packed, and no file was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// The head has no tiles in this geometry.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The head was never hashed, and images are on.
    #[error("the head's digest is {}, and images are on", HeadDigest::NONE)]
    Digest,
    /// Another packed depth than the geometry's.
    #[error("k is {k}, and kpad is {kpad}")]
    Depth {
        /// The depth asked for.
        k: u64,
        /// The geometry's packed depth.
        kpad: u64,
    },
    /// A tile that the head has not.
    #[error("tile is {tile}, and the head has {count}")]
    Tile {
        /// The tile asked for.
        tile: u64,
        /// Tiles of the head.
        count: u64,
    },
    /// A buffer that is not a tile's.
    #[error("codes are {actual}, expected kd * nd, which is {expected}")]
    Codes {
        /// What the geometry takes.
        expected: u64,
        /// The buffer's length.
        actual: u64,
    },
    /// A buffer that is not a tile's.
    #[error("scales are {actual}, expected nd, which is {expected}")]
    Scales {
        /// What the geometry takes.
        expected: u64,
        /// The buffer's length.
        actual: u64,
    },
}

/// Why a tile was not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TileError<E> {
    /// The request can't be right.
    #[error(transparent)]
    Request(RequestRefusal),
    /// The caller's own error, from a column; codes and scales are of no value then.
    #[error("{0}")]
    Gather(E),
}

impl NotWritten {
    /// The reason without its values.
    pub fn code(&self) -> NotWrittenCode {
        match self {
            Self::Off => NotWrittenCode::Off,
            Self::ReadOnly => NotWrittenCode::ReadOnly,
            Self::NoRoom(NoRoom::Cap { .. } | NoRoom::Free { .. } | NoRoom::Busy { .. }) => {
                NotWrittenCode::NoRoom
            }
            Self::NoMemory { .. } => NotWrittenCode::NoMemory,
            Self::NoRoom(NoRoom::Fs(_)) | Self::Publish(_) => NotWrittenCode::Failed,
        }
    }

    /// Says whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Off | Self::ReadOnly => Blame::Caller,
            Self::NoRoom(error) => error.blame(),
            Self::NoMemory { .. } => Blame::Host,
            Self::Publish(error) => error.blame(),
        }
    }
}

impl NotWrittenCode {
    /// The code's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::ReadOnly => "read_only",
            Self::NoRoom => "no_room",
            Self::NoMemory => "no_memory",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for NotWrittenCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl RequestRefusal {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Head(error) => error.blame(),
            Self::Digest
            | Self::Depth { .. }
            | Self::Tile { .. }
            | Self::Codes { .. }
            | Self::Scales { .. } => Blame::Caller,
        }
    }
}

impl<E> TileError<E> {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Request(refusal) => refusal.blame(),
            Self::Gather(_) => Blame::Caller,
        }
    }
}
