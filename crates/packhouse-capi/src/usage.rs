//! What goes wrong at the edge, as the numbers that C sees.

use crate::image_usage::{ImageCode, TileFailure};
use packhouse_loader::set::{Code, Refusal};
use std::ffi::CStr;

/// The call did what it says.
pub const OK: i32 = 0;

/// A call that breaks the interface's rules, or our own defect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Usage {
    /// A pointer that must not be NULL is.
    #[error("argument {argument} is NULL")]
    NullPointer {
        /// The argument.
        argument: &'static str,
    },
    /// A struct is smaller than its first version, or larger than any.
    #[error("{name}.struct_size is {actual}, this library knows {expected}")]
    StructSize {
        /// The struct.
        name: &'static str,
        /// The size that the library has.
        expected: usize,
        /// The size that the caller gave.
        actual: u32,
    },
    /// A struct of a later version has a field set that this library doesn't know.
    #[error("{name} has a field set at byte {offset} that this library doesn't know")]
    UnknownField {
        /// The struct.
        name: &'static str,
        /// Where.
        offset: usize,
    },
    /// A text is not UTF-8.
    #[error("argument {argument} is not UTF-8 at byte {offset}")]
    Text {
        /// The argument.
        argument: &'static str,
        /// Where.
        offset: usize,
    },
    /// A number is none of those that mean something.
    #[error("argument {argument} is {actual}, expected {expected}")]
    Value {
        /// The argument.
        argument: &'static str,
        /// The number given.
        actual: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// An index is past the end.
    #[error("index {index} is past the end: there are {count}")]
    Index {
        /// The index given.
        index: u64,
        /// How many there are.
        count: u64,
    },
    /// A buffer has the wrong length.
    #[error("argument {argument} has {actual} bytes, expected {expected}")]
    Buffer {
        /// The buffer.
        argument: &'static str,
        /// The length it must have.
        expected: u64,
        /// The length it has.
        actual: u64,
    },
    /// Two buffers of a call overlap, one of which is written.
    #[error("{first} and {second} overlap")]
    Overlap {
        /// One of them.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A panic was caught; please report it.
    #[error("a defect in packhouse, please report it: {panic}")]
    Bug {
        /// The panic's words.
        panic: String,
    },
}

/// Why a call did not do what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The call was wrong, or we are.
    #[error(transparent)]
    Usage(#[from] Usage),
    /// What was asked for is not used.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request about tiles can't be served.
    #[error(transparent)]
    Tile(#[from] TileFailure),
}

/// One status of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The number.
    pub number: i32,
    /// The name in `packhouse.h`.
    pub name: &'static CStr,
    /// What it means, in one sentence.
    pub meaning: &'static str,
}

impl Usage {
    /// The number that C sees.
    pub const fn number(&self) -> i32 {
        match self {
            Self::NullPointer { .. } => 1,
            Self::StructSize { .. } => 2,
            Self::UnknownField { .. } => 3,
            Self::Text { .. } => 4,
            Self::Value { .. } => 5,
            Self::Index { .. } => INDEX,
            Self::Buffer { .. } => BUFFER,
            Self::Overlap { .. } => 8,
            Self::Bug { .. } => 99,
        }
    }
}

impl Failure {
    /// The number that C sees.
    pub fn number(&self) -> i32 {
        match self {
            Self::Usage(usage) => usage.number(),
            Self::Refused(refusal) => refusal.code().number(),
            Self::Tile(failure) => failure.number(),
        }
    }
}

/// Every status, by rising number.
pub fn statuses() -> impl Iterator<Item = Status> {
    let refusals = Code::ALL.iter().map(|code| Status {
        number: code.number(),
        name: c_name(*code),
        meaning: code.meaning(),
    });
    let images = ImageCode::ALL.iter().map(|code| code.status());
    USAGES.iter().copied().chain(refusals).chain(images)
}

/// An index is past the end.
pub(crate) const INDEX: i32 = 6;

/// A buffer has the wrong length.
pub(crate) const BUFFER: i32 = 7;

static USAGES: &[Status] = &[
    status(OK, c"PACKHOUSE_OK", "Done."),
    status(
        1,
        c"PACKHOUSE_NULL_POINTER",
        "A pointer that must not be NULL is.",
    ),
    status(
        2,
        c"PACKHOUSE_STRUCT_SIZE",
        "A struct_size is less than the struct's first version has, or more than 4096.",
    ),
    status(
        3,
        c"PACKHOUSE_UNKNOWN_FIELD",
        "A field is set that this library doesn't know.",
    ),
    status(4, c"PACKHOUSE_TEXT", "A text is not UTF-8."),
    status(
        5,
        c"PACKHOUSE_VALUE",
        "A number is none of those that mean something.",
    ),
    status(INDEX, c"PACKHOUSE_INDEX", "An index is past the end."),
    status(
        BUFFER,
        c"PACKHOUSE_BUFFER",
        "A buffer has the wrong length.",
    ),
    status(8, c"PACKHOUSE_OVERLAP", "Two buffers of a call overlap."),
    status(
        99,
        c"PACKHOUSE_BUG",
        "A defect in this library; please report it.",
    ),
];

const fn status(number: i32, name: &'static CStr, meaning: &'static str) -> Status {
    Status {
        number,
        name,
        meaning,
    }
}

const fn c_name(code: Code) -> &'static CStr {
    match code {
        Code::SetName => c"PACKHOUSE_SET_NAME",
        Code::StrictSample => c"PACKHOUSE_STRICT_SAMPLE",
        Code::StoreMissing => c"PACKHOUSE_STORE_MISSING",
        Code::StoreUntrusted => c"PACKHOUSE_STORE_UNTRUSTED",
        Code::NoSet => c"PACKHOUSE_NO_SET",
        Code::ManySets => c"PACKHOUSE_MANY_SETS",
        Code::ManifestCorrupt => c"PACKHOUSE_MANIFEST_CORRUPT",
        Code::IndexCorrupt => c"PACKHOUSE_INDEX_CORRUPT",
        Code::SetUntrusted => c"PACKHOUSE_SET_UNTRUSTED",
        Code::NoSlot => c"PACKHOUSE_NO_SLOT",
        Code::NoTensor => c"PACKHOUSE_NO_TENSOR",
        Code::ManySlots => c"PACKHOUSE_MANY_SLOTS",
        Code::OtherEntry => c"PACKHOUSE_OTHER_ENTRY",
        Code::PackMissing => c"PACKHOUSE_PACK_MISSING",
        Code::PackCorrupt => c"PACKHOUSE_PACK_CORRUPT",
        Code::PackUntrusted => c"PACKHOUSE_PACK_UNTRUSTED",
        Code::PackDisagrees => c"PACKHOUSE_PACK_DISAGREES",
        Code::Layout => c"PACKHOUSE_LAYOUT",
        Code::LayoutVersion => c"PACKHOUSE_LAYOUT_VERSION",
        Code::Type => c"PACKHOUSE_TYPE",
        Code::Dims => c"PACKHOUSE_DIMS",
        Code::Parameters => c"PACKHOUSE_PARAMETERS",
        Code::Source => c"PACKHOUSE_SOURCE",
        Code::Fingerprint => c"PACKHOUSE_FINGERPRINT",
        Code::FingerprintNeeded => c"PACKHOUSE_FINGERPRINT_NEEDED",
        Code::ObjectMissing => c"PACKHOUSE_OBJECT_MISSING",
        Code::ObjectCorrupt => c"PACKHOUSE_OBJECT_CORRUPT",
        Code::ObjectUntrusted => c"PACKHOUSE_OBJECT_UNTRUSTED",
        Code::ObjectChanged => c"PACKHOUSE_OBJECT_CHANGED",
        Code::NotSampled => c"PACKHOUSE_NOT_SAMPLED",
        Code::NoMemory => c"PACKHOUSE_NO_MEMORY",
        Code::LiveWeights => c"PACKHOUSE_LIVE_WEIGHTS",
        Code::SampleDiffers => c"PACKHOUSE_SAMPLE_DIFFERS",
        Code::OtherPacker => c"PACKHOUSE_OTHER_PACKER",
        Code::LayoutUnknown => c"PACKHOUSE_LAYOUT_UNKNOWN",
        Code::TooMany => c"PACKHOUSE_TOO_MANY",
        Code::NoPacker => c"PACKHOUSE_NO_PACKER",
        Code::NotInvertible => c"PACKHOUSE_NOT_INVERTIBLE",
        Code::NotAdmitted => c"PACKHOUSE_NOT_ADMITTED",
        Code::StateRefused => c"PACKHOUSE_STATE_REFUSED",
        Code::StageRefused => c"PACKHOUSE_STAGE_REFUSED",
        Code::SetFailed => c"PACKHOUSE_SET_FAILED",
        Code::Host => c"PACKHOUSE_HOST",
    }
}
