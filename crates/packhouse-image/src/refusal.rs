//! Why a file that is there was not used: the file, what is wrong, and the values.
//!
//! Never: a reason without values; damage that is called absence.

use crate::header::{Difference, HeaderError, HeaderField, PayloadHash};
use packhouse_base::Blame;
use packhouse_sys::fs::FsError;
use packhouse_sys::stat::FileKind;
use std::fmt;
use std::path::PathBuf;

/// A file that was not used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("image {} not used: {why}", .file.display())]
pub struct Refusal {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub why: RefusalWhy,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RefusalWhy {
    /// A folder, a symlink, a device.
    #[error("it is a {actual}, expected a regular file")]
    NotRegular {
        /// What it is.
        actual: FileKind,
    },
    /// Somebody else's.
    #[error("it belongs to uid {actual}, expected {expected}")]
    Owner {
        /// This process's effective user.
        expected: u32,
        /// The file's owner.
        actual: u32,
    },
    /// Others than its owner can change it.
    #[error("it has mode {actual:04o}: others than its owner can change it")]
    Writable {
        /// Its permission bits.
        actual: u32,
    },
    /// The system would not let it be read.
    #[error("{0}")]
    Unreadable(FsError),
    /// Too short, or bytes follow the scales.
    #[error("it has {actual} bytes, expected {expected}")]
    Length {
        /// What its geometry, or a header, takes.
        expected: u64,
        /// Its length.
        actual: u64,
    },
    /// Its first bytes are no header.
    #[error("{0}")]
    Header(HeaderError),
    /// An image, but of something else.
    #[error("{} is {}, expected {}", .0.field, .0.actual, .0.expected)]
    Differs(Difference),
    /// Its bytes are not those that were written.
    #[error("the payload hashes to {actual}, and the header says {expected}")]
    PayloadHash {
        /// What the header says.
        expected: PayloadHash,
        /// What the bytes hash to.
        actual: PayloadHash,
    },
    /// Its length changed while it was read.
    #[error("it had {before} bytes before it was read, and {after} afterwards")]
    Changed {
        /// Length before.
        before: u64,
        /// Length afterwards.
        after: u64,
    },
    /// Intact, and a column's scale is not what the packer makes of the weights held now.
    #[error(
        "the scale of column {column} is {image:.8e}, and the packer makes {packed:.8e} of the \
         weights held now: it was made of other head weights, or by another packer"
    )]
    Scale {
        /// The column, counted from the start of the head.
        column: u64,
        /// The image's.
        image: f32,
        /// The packer's.
        packed: f32,
    },
    /// Intact, and a code is not what the packer makes of the weights held now.
    #[error(
        "the code of column {column}, depth row {row}, is {image}, and the packer makes {packed} \
         of the weights held now: it was made of other head weights, or by another packer"
    )]
    Code {
        /// The column, counted from the start of the head.
        column: u64,
        /// The depth row.
        row: u64,
        /// The image's.
        image: i8,
        /// The packer's.
        packed: i8,
    },
}

/// A refusal's reason without its values: what is counted, and what programs compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    /// Not a regular file.
    NotRegular,
    /// Somebody else's file.
    Owner,
    /// Others can change it.
    Writable,
    /// The system would not let it be read.
    Unreadable,
    /// Too short or too long.
    Length,
    /// Not an image.
    Magic,
    /// Another format version.
    Version,
    /// The header is damaged.
    HeaderHash,
    /// The header contradicts itself or the format.
    Header,
    /// Another layout.
    Layout,
    /// Other sizes: kd, nd, kpad or t.
    Geometry,
    /// Another tile.
    Tile,
    /// Another head: vocabulary, width, tied, dtype or content.
    Head,
    /// Another packer.
    Fingerprint,
    /// The payload is damaged.
    PayloadHash,
    /// Its length changed while it was read.
    Changed,
    /// A scale is not the packer's.
    SampleScale,
    /// A code is not the packer's.
    SampleCode,
}

impl Refusal {
    /// The reason without its values.
    pub fn code(&self) -> RefusalCode {
        self.why.code()
    }

    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match &self.why {
            RefusalWhy::Unreadable(error) => error.blame(),
            RefusalWhy::NotRegular { .. }
            | RefusalWhy::Owner { .. }
            | RefusalWhy::Writable { .. }
            | RefusalWhy::Length { .. }
            | RefusalWhy::Header(_)
            | RefusalWhy::Differs(_)
            | RefusalWhy::PayloadHash { .. }
            | RefusalWhy::Changed { .. }
            | RefusalWhy::Scale { .. }
            | RefusalWhy::Code { .. } => Blame::Store,
        }
    }
}

impl RefusalWhy {
    /// The reason without its values.
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::NotRegular { .. } => RefusalCode::NotRegular,
            Self::Owner { .. } => RefusalCode::Owner,
            Self::Writable { .. } => RefusalCode::Writable,
            Self::Unreadable(_) => RefusalCode::Unreadable,
            Self::Length { .. } => RefusalCode::Length,
            Self::Header(error) => header_code(error),
            Self::Differs(difference) => field_code(difference.field),
            Self::PayloadHash { .. } => RefusalCode::PayloadHash,
            Self::Changed { .. } => RefusalCode::Changed,
            Self::Scale { .. } => RefusalCode::SampleScale,
            Self::Code { .. } => RefusalCode::SampleCode,
        }
    }
}

fn header_code(error: &HeaderError) -> RefusalCode {
    match error {
        HeaderError::Length { .. } => RefusalCode::Length,
        HeaderError::Magic { .. } => RefusalCode::Magic,
        HeaderError::Version { .. } => RefusalCode::Version,
        HeaderError::Hash { .. } => RefusalCode::HeaderHash,
        HeaderError::Reserved { .. }
        | HeaderError::Layout { .. }
        | HeaderError::Geometry(_)
        | HeaderError::Head(_)
        | HeaderError::Tied { .. }
        | HeaderError::Dtype { .. }
        | HeaderError::Tile { .. }
        | HeaderError::Derived { .. } => RefusalCode::Header,
    }
}

fn field_code(field: HeaderField) -> RefusalCode {
    match field {
        HeaderField::Layout => RefusalCode::Layout,
        HeaderField::Kd | HeaderField::Nd | HeaderField::Kpad | HeaderField::T => {
            RefusalCode::Geometry
        }
        HeaderField::Tile | HeaderField::TileCount | HeaderField::Columns => RefusalCode::Tile,
        HeaderField::Vocabulary
        | HeaderField::Width
        | HeaderField::Tied
        | HeaderField::Dtype
        | HeaderField::HeadDigest => RefusalCode::Head,
        HeaderField::Fingerprint => RefusalCode::Fingerprint,
        HeaderField::PayloadBytes => RefusalCode::Header,
    }
}

impl RefusalCode {
    /// All codes, in the order of the checks.
    pub const ALL: [Self; 18] = [
        Self::NotRegular,
        Self::Owner,
        Self::Writable,
        Self::Unreadable,
        Self::Length,
        Self::Magic,
        Self::Version,
        Self::HeaderHash,
        Self::Header,
        Self::Layout,
        Self::Geometry,
        Self::Tile,
        Self::Head,
        Self::Fingerprint,
        Self::PayloadHash,
        Self::Changed,
        Self::SampleScale,
        Self::SampleCode,
    ];

    /// The code's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotRegular => "not_regular",
            Self::Owner => "owner",
            Self::Writable => "writable",
            Self::Unreadable => "unreadable",
            Self::Length => "length",
            Self::Magic => "magic",
            Self::Version => "version",
            Self::HeaderHash => "header_hash",
            Self::Header => "header",
            Self::Layout => "layout",
            Self::Geometry => "geometry",
            Self::Tile => "tile",
            Self::Head => "head",
            Self::Fingerprint => "fingerprint",
            Self::PayloadHash => "payload_hash",
            Self::Changed => "changed",
            Self::SampleScale => "sample_scale",
            Self::SampleCode => "sample_code",
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
