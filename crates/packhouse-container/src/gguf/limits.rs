//! The limits of what is read; each is far above any real file and keeps work and memory bounded.

/// Most bytes from the start of a file to the end of its directory (real ones stay below 40 MiB).
pub const DIRECTORY_BYTES_MAX: u64 = 256 << 20;
/// Most metadata keys.
pub const METADATA_KEYS_MAX: u64 = 1 << 16;
/// Most tensors in one file.
pub const TENSORS_MAX: u64 = 1 << 20;
/// Most bytes of a key; the format's own limit.
pub const KEY_BYTES_MAX: u64 = 65_535;
/// Most bytes of a tensor's name: ggml keeps it in 64 with a final NUL.
pub const TENSOR_NAME_BYTES_MAX: u64 = 63;
/// Most bytes of one string value.
pub const STRING_BYTES_MAX: u64 = 64 << 20;
/// Most elements of one array.
pub const ARRAY_ELEMENTS_MAX: u64 = 1 << 26;
/// Most dimensions of a tensor.
pub const DIMENSIONS_MAX: u32 = 4;
/// Largest alignment.
pub const ALIGNMENT_MAX: u64 = 1 << 20;
/// Most shards of one model.
pub const SHARDS_MAX: u32 = 4096;

// Ends of strings in an array are kept as u32.
const _: () = assert!(DIRECTORY_BYTES_MAX <= u32::MAX as u64);
// Keys and tensors are indexed by u32.
const _: () = assert!(METADATA_KEYS_MAX <= u32::MAX as u64);
const _: () = assert!(TENSORS_MAX <= u32::MAX as u64);
