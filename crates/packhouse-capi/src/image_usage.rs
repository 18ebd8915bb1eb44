//! What goes wrong with images of head tiles, as the numbers that C sees.
//!
//! A number is never given another meaning, and one that is no longer used is not used again.

use crate::columns::ColumnError;
use crate::usage::{BUFFER, INDEX, Status};
use packhouse_image::{DtypeError, NotWrittenCode, Off, RefusalCode, RequestRefusal, TileError};
use packhouse_layout::int8_tile::GeometryError;
use std::ffi::CStr;

/// Why a request about tiles was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TileFailure {
    /// The sizes make no tile.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The dtype is no type's name.
    #[error(transparent)]
    Dtype(#[from] DtypeError),
    /// The head, the depth, the tile or a buffer does not fit.
    #[error(transparent)]
    Request(#[from] RequestRefusal),
    /// The engine's callback failed.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// A second call while one runs.
    #[error("another call is using the serve")]
    Busy,
}

macro_rules! codes {
    ($($code:ident = $number:literal, $name:literal, $meaning:literal;)*) => {
        /// Why a request about tiles was refused, why images are off, or why a file was not used.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum ImageCode {
            $(#[doc = $meaning] $code = $number,)*
        }

        impl ImageCode {
            /// All codes, rising.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// The number that C sees.
            pub const fn number(self) -> i32 {
                self as i32
            }

            /// The name in `packhouse.h`.
            pub const fn name(self) -> &'static CStr {
                match self {
                    $(Self::$code => $name,)*
                }
            }

            /// What it means, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$code => $meaning,)*
                }
            }
        }
    };
}

codes! {
    Geometry = 200, c"PACKHOUSE_TILE_GEOMETRY",
        "The sizes make no tile, or the layout needs others.";
    Head = 201, c"PACKHOUSE_TILE_HEAD",
        "The head has no tiles in this geometry.";
    Dtype = 202, c"PACKHOUSE_TILE_DTYPE",
        "A dtype is no name of a stored type.";
    Depth = 203, c"PACKHOUSE_TILE_DEPTH",
        "The kernel's depth is not the one that the tiles are packed for.";
    Column = 204, c"PACKHOUSE_TILE_COLUMN",
        "The column callback returned an error.";
    Busy = 205, c"PACKHOUSE_SERVE_BUSY",
        "Another call is using the serve.";
    OffAsked = 210, c"PACKHOUSE_IMAGES_OFF_ASKED",
        "Images are off because the caller said so.";
    OffNoRoot = 211, c"PACKHOUSE_IMAGES_OFF_NO_ROOT",
        "Images are off because no folder was given for them.";
    OffAbsent = 212, c"PACKHOUSE_IMAGES_OFF_ABSENT",
        "Images are off because their folder is not there, and they are only read.";
    OffRoot = 213, c"PACKHOUSE_IMAGES_OFF_ROOT",
        "Images are off because their folder can't be used.";
    NotRegular = 220, c"PACKHOUSE_IMAGE_NOT_REGULAR",
        "An image is not a regular file.";
    Owner = 221, c"PACKHOUSE_IMAGE_OWNER",
        "An image belongs to somebody else.";
    Writable = 222, c"PACKHOUSE_IMAGE_WRITABLE",
        "An image can be changed by others.";
    Unreadable = 223, c"PACKHOUSE_IMAGE_UNREADABLE",
        "An image could not be read.";
    Length = 224, c"PACKHOUSE_IMAGE_LENGTH",
        "An image is too short, or bytes follow it.";
    Magic = 225, c"PACKHOUSE_IMAGE_MAGIC",
        "An image's file is none.";
    Version = 226, c"PACKHOUSE_IMAGE_VERSION",
        "An image is of another version of the format.";
    HeaderHash = 227, c"PACKHOUSE_IMAGE_HEADER_HASH",
        "An image's header is damaged.";
    Header = 228, c"PACKHOUSE_IMAGE_HEADER",
        "An image's header contradicts itself or the format.";
    OtherLayout = 229, c"PACKHOUSE_IMAGE_LAYOUT",
        "An image is in another layout.";
    OtherGeometry = 230, c"PACKHOUSE_IMAGE_GEOMETRY",
        "An image is of other sizes.";
    OtherTile = 231, c"PACKHOUSE_IMAGE_TILE",
        "An image is of another tile.";
    OtherHead = 232, c"PACKHOUSE_IMAGE_HEAD",
        "An image is of another head.";
    OtherFingerprint = 233, c"PACKHOUSE_IMAGE_FINGERPRINT",
        "An image was made by another packer.";
    PayloadHash = 234, c"PACKHOUSE_IMAGE_PAYLOAD_HASH",
        "An image's codes or scales are damaged.";
    Changed = 235, c"PACKHOUSE_IMAGE_CHANGED",
        "An image changed while it was read.";
    SampleScale = 236, c"PACKHOUSE_IMAGE_SAMPLE_SCALE",
        "A scale of an intact image is not what the packer makes of the weights held now.";
    SampleCode = 237, c"PACKHOUSE_IMAGE_SAMPLE_CODE",
        "A code of an intact image is not what the packer makes of the weights held now.";
    ReadOnly = 240, c"PACKHOUSE_IMAGE_READ_ONLY",
        "An image was not written because images are only read.";
    NoRoom = 241, c"PACKHOUSE_IMAGE_NO_ROOM",
        "An image was not written because it fits no bound, or others kept room from being made.";
    WriteFailed = 242, c"PACKHOUSE_IMAGE_WRITE_FAILED",
        "An image could not be written, or room for it could not be made.";
    NoMemory = 243, c"PACKHOUSE_IMAGE_NO_MEMORY",
        "An image was not written because there is no private memory to pack it in.";
}

impl ImageCode {
    pub(crate) fn status(self) -> Status {
        Status {
            number: self.number(),
            name: self.name(),
            meaning: self.meaning(),
        }
    }
}

impl TileFailure {
    /// The number that C sees.
    pub fn number(&self) -> i32 {
        let code = match self {
            Self::Geometry(_) => ImageCode::Geometry,
            Self::Dtype(_) => ImageCode::Dtype,
            Self::Column(_) => ImageCode::Column,
            Self::Busy => ImageCode::Busy,
            Self::Request(RequestRefusal::Head(_) | RequestRefusal::Digest) => ImageCode::Head,
            Self::Request(RequestRefusal::Depth { .. }) => ImageCode::Depth,
            Self::Request(RequestRefusal::Tile { .. }) => return INDEX,
            Self::Request(RequestRefusal::Codes { .. } | RequestRefusal::Scales { .. }) => {
                return BUFFER;
            }
        };
        code.number()
    }
}

impl From<TileError<ColumnError>> for TileFailure {
    fn from(error: TileError<ColumnError>) -> Self {
        match error {
            TileError::Request(refusal) => Self::Request(refusal),
            TileError::Gather(error) => Self::Column(error),
        }
    }
}

impl From<&Off> for ImageCode {
    fn from(off: &Off) -> Self {
        match off {
            Off::Switch => Self::OffAsked,
            Off::NoFolder => Self::OffNoRoot,
            Off::Absent { .. } => Self::OffAbsent,
            Off::Folder(_) => Self::OffRoot,
        }
    }
}

impl ImageCode {
    /// Why a packed tile was not written; `off` is why images are off, if they are.
    pub(crate) fn of_not_written(code: NotWrittenCode, off: Option<&Off>) -> Self {
        match code {
            NotWrittenCode::Off => off.map_or(Self::OffAsked, Self::from),
            NotWrittenCode::ReadOnly => Self::ReadOnly,
            NotWrittenCode::NoRoom => Self::NoRoom,
            NotWrittenCode::NoMemory => Self::NoMemory,
            NotWrittenCode::Failed => Self::WriteFailed,
        }
    }
}

impl From<RefusalCode> for ImageCode {
    fn from(code: RefusalCode) -> Self {
        match code {
            RefusalCode::NotRegular => Self::NotRegular,
            RefusalCode::Owner => Self::Owner,
            RefusalCode::Writable => Self::Writable,
            RefusalCode::Unreadable => Self::Unreadable,
            RefusalCode::Length => Self::Length,
            RefusalCode::Magic => Self::Magic,
            RefusalCode::Version => Self::Version,
            RefusalCode::HeaderHash => Self::HeaderHash,
            RefusalCode::Header => Self::Header,
            RefusalCode::Layout => Self::OtherLayout,
            RefusalCode::Geometry => Self::OtherGeometry,
            RefusalCode::Tile => Self::OtherTile,
            RefusalCode::Head => Self::OtherHead,
            RefusalCode::Fingerprint => Self::OtherFingerprint,
            RefusalCode::PayloadHash => Self::PayloadHash,
            RefusalCode::Changed => Self::Changed,
            RefusalCode::SampleScale => Self::SampleScale,
            RefusalCode::SampleCode => Self::SampleCode,
        }
    }
}
