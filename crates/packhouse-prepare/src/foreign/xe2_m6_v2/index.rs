//! The runtime index of the Xe2 pack set: seven head lines and one line per tensor.
//!
//! Invariant: the bytes follow from the arguments alone, so an index is proved by rendering it
//! again.

use super::keys::payload_path;
use super::{ARCHITECTURE, LAYOUT_NAME, LAYOUT_VERSION, TENSOR_TYPE};
use packhouse_base::digest::Digest;
use std::fmt::Write as _;

/// The first line, which is also the index's format name.
pub const INDEX_FORMAT: &str = "qwen27-xe2-m6-runtime-index-v1";

/// One tensor of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRow {
    /// Its slot.
    pub slot: u64,
    /// Its name; no tab and no newline.
    pub name: String,
    /// Its dims, contraction first: K, N.
    pub shape: [u64; 2],
    /// Tensor key.
    pub key: Digest,
    /// The payload's length in bytes.
    pub payload_bytes: u64,
    /// The payload's SHA-256.
    pub payload_sha256: Digest,
}

/// Renders the index of a set; the rows come in slot order.
pub fn runtime_index(
    set_key: Digest,
    target_model_sha256: Digest,
    payload_table_sha256: Digest,
    rows: &[IndexRow],
) -> Vec<u8> {
    let mut text = format!(
        "{INDEX_FORMAT}\n\
         set_key\t{set_key}\n\
         model_sha256\t{target_model_sha256}\n\
         architecture\t{ARCHITECTURE}\n\
         layout\t{LAYOUT_NAME}\t{LAYOUT_VERSION}\n\
         tensor_count\t{}\n\
         payload_table_sha256\t{payload_table_sha256}\n",
        rows.len()
    );
    for row in rows {
        let [ne0, ne1] = row.shape;
        writeln!(
            text,
            "tensor\t{}\t{}\t{ne0}\t{ne1}\t{TENSOR_TYPE}\t{LAYOUT_VERSION}\t{}\t{}\t{}",
            row.slot,
            row.name,
            row.payload_bytes,
            row.payload_sha256,
            payload_path(row.key),
        )
        .expect("because a String takes all");
    }
    text.into_bytes()
}

/// FNV-1a of 64 bits: what the other side's loader has compiled in for its one index. It proves
/// nothing; it tells which index that loader would take.
pub fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(FNV_OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

const FNV_OFFSET: u64 = 14_695_981_039_346_656_037;
const FNV_PRIME: u64 = 1_099_511_628_211;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_has_its_published_values() {
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
