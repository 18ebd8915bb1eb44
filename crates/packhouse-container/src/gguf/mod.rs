//! GGUF versions 2 and 3, little-endian: reader of the directory, typed metadata, writer.
//!
//! Specified in `docs/format/gguf.md`.

mod cursor;
mod directory;
mod error;
pub mod limits;
mod parse;
mod value;
mod write;

pub use directory::{Split, Tensor, TensorDirectory};
pub use error::{Field, GgufError};
pub use value::{Array, Entry, Metadata, StringArray, Value, ValueType};
pub use write::{Draft, DraftTensor, WriteError, Writer};

/// The first four bytes of a GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// The versions that are read.
pub const VERSIONS: [u32; 2] = [2, 3];
/// The alignment of a file that names none.
pub const DEFAULT_ALIGNMENT: u64 = 32;
/// The key that names the alignment.
pub const ALIGNMENT_KEY: &str = "general.alignment";
/// The key with a shard's number, from 0.
pub const SPLIT_NO_KEY: &str = "split.no";
/// The key with the number of shards.
pub const SPLIT_COUNT_KEY: &str = "split.count";
/// The key with the number of tensors in all shards together.
pub const SPLIT_TENSORS_COUNT_KEY: &str = "split.tensors.count";

const _: () = assert!(VERSIONS[0] < VERSIONS[1]);
