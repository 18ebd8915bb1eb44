//! Bytes to a tensor directory: GGUF files and their shards; a GGUF writer and seeded synthetic
//! models.
//!
//! Invariants:
//! - what parsing returns was proved consistent with itself and with the length of its source;
//! - memory is bounded by the bytes read, never by a count that a file declares;
//! - metadata is kept as typed values and never run, opened or followed.
//!
//! This crate opens no file: the caller hands over bytes, or a file that it opened (`ReadAt`).
//! Format, what is accepted and refused, limits: `docs/format/gguf.md`.

#![forbid(unsafe_code)]

pub mod container;
pub mod gguf;
pub mod shard_name;
pub mod source;
pub mod synth;

pub use container::{Container, ContainerError};
pub use gguf::{GgufError, Metadata, Split, Tensor, TensorDirectory, Value};
pub use source::{FileSource, ReadAt};
