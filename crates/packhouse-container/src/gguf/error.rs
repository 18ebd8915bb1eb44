//! Why a file is no GGUF file that we read: each refusal names the field, its offset and the value.

use packhouse_base::Blame;
use packhouse_base::ggml_type::TypeError;
use std::fmt;
use std::io;

/// A field of the directory, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// The four magic bytes.
    Magic,
    /// The version.
    Version,
    /// The number of tensors.
    TensorCount,
    /// The number of metadata keys.
    MetadataCount,
    /// The name of the key with this index.
    Key {
        /// Index from 0 in file order.
        index: u64,
    },
    /// A key's value or the type before it.
    Value {
        /// The key.
        key: String,
    },
    /// The name of the tensor with this index.
    TensorName {
        /// Index from 0 in file order.
        index: u64,
    },
    /// The dimensions, type or offset of a tensor.
    TensorEntry {
        /// The tensor.
        tensor: String,
    },
}

/// Why a GGUF file is refused.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The source could not be read, or shrank while it was read.
    #[error("reading {bytes} bytes at offset {offset} failed")]
    Read {
        /// Where the read began.
        offset: u64,
        /// How much was asked for.
        bytes: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// The first bytes are not the magic.
    #[error("magic at offset 0 is {found:02x?}, not \"GGUF\"")]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The file was written for a big-endian machine.
    #[error("version at offset 4 is {version:#010x}: a big-endian file, which is not read")]
    BigEndian {
        /// The version as little-endian.
        version: u32,
    },
    /// The version is none that is read.
    #[error("version at offset 4 is {version}; versions 2 and 3 are read")]
    Version {
        /// The version.
        version: u32,
    },
    /// The file ends inside a field.
    #[error("{field} at offset {offset} needs {needed} bytes, and {present} are left in the file")]
    Truncated {
        /// The field.
        field: Field,
        /// Where it begins.
        offset: u64,
        /// How many bytes it needs.
        needed: u64,
        /// How many are there.
        present: u64,
    },
    /// The directory goes on past our limit.
    #[error("{field} at offset {offset} goes past the limit of {limit} bytes for a directory")]
    DirectoryTooLong {
        /// The field.
        field: Field,
        /// Where it begins.
        offset: u64,
        /// `limits::DIRECTORY_BYTES_MAX`.
        limit: u64,
    },
    /// A count is negative as a signed number, past our limit, or more than the file has room for.
    #[error("{field} at offset {offset} counts {count}; at most {limit} are possible here")]
    Count {
        /// The field.
        field: Field,
        /// Where the count is.
        offset: u64,
        /// The count as stored.
        count: u64,
        /// The smaller of our limit and the room.
        limit: u64,
    },
    /// A string is longer than allowed.
    #[error("{field} at offset {offset} is a string of {length} bytes; the limit is {limit}")]
    StringTooLong {
        /// The field.
        field: Field,
        /// Where the length is.
        offset: u64,
        /// The length as stored.
        length: u64,
        /// The limit of this kind of string.
        limit: u64,
    },
    /// A string is not UTF-8.
    #[error("{field} is not UTF-8 at offset {offset}")]
    NotUtf8 {
        /// The field.
        field: Field,
        /// Where the first wrong byte is.
        offset: u64,
    },
    /// A key, a name or a string value has a NUL in it.
    #[error("{field} has a NUL at offset {offset}")]
    Nul {
        /// The field.
        field: Field,
        /// Where the NUL is.
        offset: u64,
    },
    /// A key or a tensor's name is empty.
    #[error("{field} at offset {offset} is empty")]
    Empty {
        /// The field.
        field: Field,
        /// Where its length is.
        offset: u64,
    },
    /// A key is there twice.
    #[error("key {key:?} is there twice, as number {first} and {second}")]
    KeyDoubled {
        /// The key.
        key: String,
        /// Index of the first.
        first: usize,
        /// Index of the second.
        second: usize,
    },
    /// A tensor is there twice.
    #[error("tensor {tensor:?} is there twice, as number {first} and {second}")]
    TensorDoubled {
        /// The name.
        tensor: String,
        /// Index of the first.
        first: usize,
        /// Index of the second.
        second: usize,
    },
    /// A value's type is none of GGUF's.
    #[error("key {key:?} has value type {type_id} at offset {offset}, which does not exist")]
    ValueType {
        /// The key.
        key: String,
        /// Where the type is.
        offset: u64,
        /// The id as stored.
        type_id: u32,
    },
    /// An array has arrays as elements.
    #[error("key {key:?} is an array of arrays at offset {offset}")]
    NestedArray {
        /// The key.
        key: String,
        /// Where the element type is.
        offset: u64,
    },
    /// A bool is neither 0 nor 1.
    #[error("key {key:?} has a bool of {value} at offset {offset}")]
    Bool {
        /// The key.
        key: String,
        /// Where the byte is.
        offset: u64,
        /// The byte.
        value: u8,
    },
    /// The alignment is not a u32.
    #[error("general.alignment at offset {offset} has value type {type_id}, not 4 (u32)")]
    AlignmentType {
        /// Where the entry is.
        offset: u64,
        /// The type id found.
        type_id: u32,
    },
    /// The alignment is 0, no power of two, or past our limit.
    #[error("general.alignment at offset {offset} is {value}, not a power of two up to {limit}")]
    Alignment {
        /// Where the entry is.
        offset: u64,
        /// The value.
        value: u32,
        /// `limits::ALIGNMENT_MAX`.
        limit: u64,
    },
    /// A tensor has too many dimensions.
    #[error("tensor {tensor:?} at offset {offset} has {count} dimensions, more than {limit}")]
    DimensionCount {
        /// The tensor.
        tensor: String,
        /// Where the count is.
        offset: u64,
        /// The count as stored.
        count: u32,
        /// `limits::DIMENSIONS_MAX`.
        limit: u32,
    },
    /// A dimension is negative as a signed number.
    #[error(
        "tensor {tensor:?} has dimension {index} of {value} at offset {offset}, above 2^63 - 1"
    )]
    Dimension {
        /// The tensor.
        tensor: String,
        /// Where the dimension is.
        offset: u64,
        /// Which one, from 0.
        index: usize,
        /// The value as unsigned.
        value: u64,
    },
    /// The type of a tensor is unknown or was removed.
    #[error("tensor {tensor:?} at offset {offset}")]
    TensorType {
        /// The tensor.
        tensor: String,
        /// Where the type is.
        offset: u64,
        /// Which id, and whether it was ever one.
        source: TypeError,
    },
    /// A row is no whole number of blocks.
    #[error(
        "tensor {tensor:?} at offset {offset} has rows of {row}, not of whole blocks of {block}"
    )]
    RowBlocks {
        /// The tensor.
        tensor: String,
        /// Where its entry ends.
        offset: u64,
        /// Elements of a row.
        row: u64,
        /// Elements of a block.
        block: u64,
    },
    /// The elements or bytes of a tensor don't fit in 63 bits.
    #[error(
        "tensor {tensor:?} at offset {offset} with dimensions {dims:?} is larger than 2^63 - 1"
    )]
    TensorTooLarge {
        /// The tensor.
        tensor: String,
        /// Where its entry ends.
        offset: u64,
        /// Its dimensions.
        dims: Vec<u64>,
    },
    /// A tensor's data offset is no multiple of the alignment.
    #[error(
        "tensor {tensor:?} has data offset {found} (at {offset}), not a multiple of {alignment}"
    )]
    TensorMisaligned {
        /// The tensor.
        tensor: String,
        /// Where the data offset is stored.
        offset: u64,
        /// The data offset.
        found: u64,
        /// The alignment.
        alignment: u64,
    },
    /// A tensor begins before the one before it ends: overlapping or out of order.
    #[error(
        "tensor {tensor:?} has data offset {found} (at {offset}); the one before ends at {expected}"
    )]
    TensorOverlap {
        /// The tensor.
        tensor: String,
        /// Where the data offset is stored.
        offset: u64,
        /// The data offset.
        found: u64,
        /// Where it must be.
        expected: u64,
    },
    /// There is a hole between a tensor and the one before it.
    #[error("tensor {tensor:?} has data offset {found} (at {offset}); a hole begins at {expected}")]
    TensorHole {
        /// The tensor.
        tensor: String,
        /// Where the data offset is stored.
        offset: u64,
        /// The data offset.
        found: u64,
        /// Where it must be.
        expected: u64,
    },
    /// The sum of all tensors' bytes and padding, or the file offset of a tensor, passes 2^64.
    #[error("tensor {tensor:?} would end past 2^64 bytes")]
    DataTooLarge {
        /// The tensor.
        tensor: String,
    },
    /// A tensor ends past the end of the file.
    #[error("tensor {tensor:?} is at {offset} to {end}, past the file's {file_bytes} bytes")]
    TensorPastEnd {
        /// The tensor.
        tensor: String,
        /// Where it begins in the file.
        offset: u64,
        /// Where it ends.
        end: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// The file goes on after the last tensor and its padding.
    #[error("{bytes} bytes after the last tensor's padding, from offset {offset}")]
    Trailing {
        /// Where the file should have ended.
        offset: u64,
        /// How many bytes are too many.
        bytes: u64,
    },
    /// A key about shards has another type than it must.
    #[error("{key} has value type {found}, not {expected}")]
    SplitType {
        /// The key.
        key: &'static str,
        /// The type id found.
        found: u32,
        /// The type id that it must have.
        expected: u32,
    },
    /// The file names a number of shards, and another key about them is absent.
    #[error("{key} is absent, and split.count is {count}")]
    SplitAbsent {
        /// The key.
        key: &'static str,
        /// Value of split.count.
        count: u16,
    },
    /// A key about shards has an impossible value.
    #[error("{key} is {value}; with {tensors} tensors here and split.count {count} it can't be")]
    SplitValue {
        /// The key.
        key: &'static str,
        /// Its value.
        value: i64,
        /// Tensors in this file.
        tensors: usize,
        /// Value of split.count.
        count: u16,
    },
}

impl GgufError {
    /// Whose side the failure is on.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Read { .. } => Blame::Host,
            Self::Magic { .. }
            | Self::BigEndian { .. }
            | Self::Version { .. }
            | Self::Truncated { .. }
            | Self::DirectoryTooLong { .. }
            | Self::Count { .. }
            | Self::StringTooLong { .. }
            | Self::NotUtf8 { .. }
            | Self::Nul { .. }
            | Self::Empty { .. }
            | Self::KeyDoubled { .. }
            | Self::TensorDoubled { .. }
            | Self::ValueType { .. }
            | Self::NestedArray { .. }
            | Self::Bool { .. }
            | Self::AlignmentType { .. }
            | Self::Alignment { .. }
            | Self::DimensionCount { .. }
            | Self::Dimension { .. }
            | Self::TensorType { .. }
            | Self::RowBlocks { .. }
            | Self::TensorTooLarge { .. }
            | Self::TensorMisaligned { .. }
            | Self::TensorOverlap { .. }
            | Self::TensorHole { .. }
            | Self::DataTooLarge { .. }
            | Self::TensorPastEnd { .. }
            | Self::Trailing { .. }
            | Self::SplitType { .. }
            | Self::SplitAbsent { .. }
            | Self::SplitValue { .. } => Blame::Source,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(f, "magic"),
            Self::Version => write!(f, "version"),
            Self::TensorCount => write!(f, "tensor count"),
            Self::MetadataCount => write!(f, "metadata count"),
            Self::Key { index } => write!(f, "key number {index}"),
            Self::Value { key } => write!(f, "value of {key:?}"),
            Self::TensorName { index } => write!(f, "name of tensor number {index}"),
            Self::TensorEntry { tensor } => write!(f, "entry of tensor {tensor:?}"),
        }
    }
}
