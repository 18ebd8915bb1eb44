//! Tensor keys, set keys and table hashes of the Xe2 pack set, and the slots of its names.
//!
//! Invariants:
//! - a key is the SHA-256 of the compact JSON of exactly the fields that the other side hashes;
//! - the order of what is hashed is the caller's: slot order in revision 3, order of tensor names
//!   in revision 2.

use super::json::canon_sha256;
use super::{ARCHITECTURE, LAYOUT_VERSION, TENSOR_TYPE};
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// What names one pack there: the model, the tensor and the layout, but not the tensor's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorIdentity {
    /// SHA-256 of the whole model file.
    pub target_model_sha256: Digest,
    /// The tensor's name.
    pub tensor_name: String,
    /// Its dims, contraction first: K, N.
    pub tensor_shape: [u64; 2],
}

/// One payload of a set, as the payload table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadRow {
    /// Tensor key.
    pub key: Digest,
    /// Length in bytes.
    pub size_bytes: u64,
    /// SHA-256 of the payload.
    pub sha256: Digest,
}

/// One payload file, as the stat table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatRow {
    /// Tensor key.
    pub key: Digest,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl TensorIdentity {
    /// The object that is hashed and that manifests hold.
    pub fn to_json(&self) -> Value {
        json!({
            "target_model_sha256": self.target_model_sha256.to_string(),
            "tensor_name": self.tensor_name,
            "tensor_shape": self.tensor_shape,
            "tensor_type": TENSOR_TYPE,
            "pack_layout_version": LAYOUT_VERSION,
            "target_architecture": ARCHITECTURE,
        })
    }
}

/// The key of one tensor's pack.
pub fn tensor_key(identity: &TensorIdentity) -> Digest {
    canon_sha256(&identity.to_json())
}

/// The identity object of a set, with its tensor keys in the order given.
pub(super) fn set_identity(target_model_sha256: Digest, tensor_keys: &[Digest]) -> Value {
    let keys: Vec<String> = tensor_keys.iter().map(Digest::to_string).collect();
    json!({
        "target_model_sha256": target_model_sha256.to_string(),
        "target_architecture": ARCHITECTURE,
        "pack_layout_version": LAYOUT_VERSION,
        "tensor_keys": keys,
    })
}

/// The key of a set; `tensor_keys` in slot order (revision 3) or by tensor name (revision 2).
pub fn set_key(target_model_sha256: Digest, tensor_keys: &[Digest]) -> Digest {
    canon_sha256(&set_identity(target_model_sha256, tensor_keys))
}

/// The hash of what a set's payloads should be.
pub fn payload_table_sha256(rows: &[PayloadRow]) -> Digest {
    let table: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "key": row.key.to_string(),
                "path": payload_path(row.key),
                "size_bytes": row.size_bytes,
                "sha256": row.sha256.to_string(),
            })
        })
        .collect();
    canon_sha256(&Value::Array(table))
}

/// The hash of what stat says of a set's payload files.
pub fn stat_table_sha256(rows: &[StatRow]) -> Digest {
    let table: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "key": row.key.to_string(),
                "size_bytes": row.size_bytes,
                "mtime_ns": row.mtime_ns,
                "device": row.device,
                "inode": row.inode,
            })
        })
        .collect();
    canon_sha256(&Value::Array(table))
}

/// The path of a payload in its set, the only one that is written or read.
pub(super) fn payload_path(key: Digest) -> String {
    format!("tensors/{key}.bin")
}

/// The slot of a tensor name, or `None` where the name has none: gate and up of layer L in slots
/// 2L and 2L + 1, for L up to 64; down of layer L in slot 122 + L, for L from 8 to 64.
pub fn slot_of(tensor_name: &str) -> Option<u64> {
    let rest = tensor_name.strip_prefix("blk.")?;
    let (digits, rest) = rest.split_once('.')?;
    let family = rest.strip_suffix(".weight")?;
    let layer: u64 = digits.parse().ok()?;
    // One spelling of a layer, or two names would fill one slot.
    if layer.to_string() != digits || layer > LAYER_MAX {
        return None;
    }
    match family {
        "ffn_gate" => Some(2 * layer),
        "ffn_up" => Some(2 * layer + 1),
        "ffn_down" => Some(DOWN_SLOT_MIN + layer.checked_sub(DOWN_LAYER_MIN)?),
        _ => None,
    }
}

const LAYER_MAX: u64 = 64;
const DOWN_LAYER_MIN: u64 = 8;
const DOWN_SLOT_MIN: u64 = 2 * (LAYER_MAX + 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_grammar_and_of_nothing_else() {
        let some = [
            ("blk.0.ffn_gate.weight", 0),
            ("blk.0.ffn_up.weight", 1),
            ("blk.64.ffn_gate.weight", 128),
            ("blk.64.ffn_up.weight", 129),
            ("blk.8.ffn_down.weight", 130),
            ("blk.64.ffn_down.weight", 186),
        ];
        for (name, slot) in some {
            assert_eq!(slot_of(name), Some(slot), "{name}");
        }
        for name in [
            "blk.7.ffn_down.weight",
            "blk.65.ffn_up.weight",
            "blk..ffn_up.weight",
            "blk.+1.ffn_up.weight",
            "blk.01.ffn_up.weight",
            "blk.1.ffn_up.weight2",
            "xblk.1.ffn_up.weight",
            "blk.1.ffn_up_exps.weight",
            "blk.99999999999999999999.ffn_up.weight",
            "output.weight",
        ] {
            assert_eq!(slot_of(name), None, "{name}");
        }
    }
}
