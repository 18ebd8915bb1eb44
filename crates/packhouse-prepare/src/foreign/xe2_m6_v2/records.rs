//! The set's records as values, and how they are written: tensor manifests, set manifest, receipt,
//! stage.
//!
//! Invariants:
//! - what is written follows from the set alone, but for the receipt's stat table;
//! - dates and durations are zero and counters say that every pack was there before: nothing else
//!   would stay the same from one export to the next, and a manifest that changes makes the other
//!   side's receipts and stages stale.

use super::index::{INDEX_FORMAT, IndexRow, runtime_index};
use super::json::{canon_sha256, pretty};
use super::keys::{
    PayloadRow, TensorIdentity, payload_path, payload_table_sha256, set_identity, tensor_key,
};
use super::{ARCHITECTURE, LAYOUT_NAME, LAYOUT_VERSION};
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// Which revision of the other side's tool a set is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// Tensors by name, no runtime index.
    Two,
    /// Tensors by slot, with a runtime index.
    Three,
}

/// A set, as its records have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignSet {
    /// Its revision.
    pub revision: Revision,
    /// The model it was made of.
    pub model: SourceModel,
    /// Its tensors, in the order of its revision.
    pub tensors: Vec<ForeignTensor>,
}

/// The model file that a set was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceModel {
    /// Its path when the set was made.
    pub path: String,
    /// SHA-256 of the whole file.
    pub sha256: Digest,
    /// Its length.
    pub size_bytes: u64,
    /// Whether the hash was computed then, or adopted.
    pub hash_validated: bool,
}

/// What the other side's reader found in the model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgufSummary {
    /// GGUF version.
    pub version: u32,
    /// Tensors of the file.
    pub tensor_count: u64,
    /// Metadata entries of the file.
    pub metadata_count: u64,
    /// Alignment of tensors.
    pub alignment: u64,
    /// Where tensor bytes begin.
    pub data_offset: u64,
    /// The file's length.
    pub file_size: u64,
}

/// What a stage's record says of its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSummary {
    /// Path of the manifest on disk.
    pub source_manifest: String,
    /// Bytes free before the copies.
    pub available_bytes_before: u64,
    /// Bytes free after them.
    pub available_bytes_after_copy: u64,
}

/// One tensor of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignTensor {
    /// What its key names.
    pub identity: TensorIdentity,
    /// Where its bytes are in the model file.
    pub gguf_offset: u64,
    /// How many they are.
    pub source_bytes: u64,
    /// Their SHA-256.
    pub source_sha256: Digest,
    /// The payload's length.
    pub payload_bytes: u64,
    /// The payload's SHA-256.
    pub payload_sha256: Digest,
}

impl ForeignTensor {
    /// Its key.
    pub fn key(&self) -> Digest {
        tensor_key(&self.identity)
    }

    fn to_json(&self) -> Value {
        let key = self.key();
        json!({
            "schema_version": 1,
            "format": TENSOR_FORMAT,
            "status": "ready",
            "key": key.to_string(),
            "identity": self.identity.to_json(),
            "source_tensor": {
                "gguf_offset": self.gguf_offset,
                "size_bytes": self.source_bytes,
                "sha256": self.source_sha256.to_string(),
            },
            "payload": {
                "path": payload_path(key),
                "size_bytes": self.payload_bytes,
                "sha256": self.payload_sha256.to_string(),
            },
            "pack_seconds": NO_SECONDS,
            "created_unix": 0,
        })
    }

    /// The bytes of its own file.
    pub fn render(&self) -> Vec<u8> {
        pretty(&self.to_json())
    }
}

impl ForeignSet {
    /// Its key.
    pub fn key(&self) -> Digest {
        canon_sha256(&self.identity())
    }

    /// The bytes of all payloads.
    pub fn payload_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.payload_bytes).sum()
    }

    /// The hash of its payload table.
    pub fn payload_table_sha256(&self) -> Digest {
        let rows: Vec<PayloadRow> = self
            .tensors
            .iter()
            .map(|tensor| PayloadRow {
                key: tensor.key(),
                size_bytes: tensor.payload_bytes,
                sha256: tensor.payload_sha256,
            })
            .collect();
        payload_table_sha256(&rows)
    }

    /// Its runtime index; `slot_of` every name, which a valid set has.
    pub fn index(&self) -> Vec<u8> {
        let rows: Vec<IndexRow> = self
            .tensors
            .iter()
            .filter_map(|tensor| {
                Some(IndexRow {
                    slot: super::slot_of(&tensor.identity.tensor_name)?,
                    name: tensor.identity.tensor_name.clone(),
                    shape: tensor.identity.tensor_shape,
                    key: tensor.key(),
                    payload_bytes: tensor.payload_bytes,
                    payload_sha256: tensor.payload_sha256,
                })
            })
            .collect();
        let table = self.payload_table_sha256();
        runtime_index(self.key(), self.model.sha256, table, &rows)
    }

    /// The bytes of its manifest, as revision 3 writes it.
    pub fn render_manifest(&self, gguf: &GgufSummary) -> Vec<u8> {
        let index = self.index();
        let tensors: Vec<Value> = self.tensors.iter().map(ForeignTensor::to_json).collect();
        let count = tensors.len();
        pretty(&json!({
            "schema_version": 1,
            "format": SET_FORMAT,
            "status": "ready",
            "evidence_class": "development-initialization-cache-only",
            "promotion_eligible": false,
            "key": self.key().to_string(),
            "identity": self.identity(),
            "source_model": {
                "path": self.model.path,
                "sha256": self.model.sha256.to_string(),
                "size_bytes": self.model.size_bytes,
                "hash_validated": self.model.hash_validated,
            },
            "gguf": {
                "version": gguf.version,
                "tensor_count": gguf.tensor_count,
                "metadata_count": gguf.metadata_count,
                "alignment": gguf.alignment,
                "data_offset": gguf.data_offset,
                "file_size": gguf.file_size,
            },
            "layout": layout_json(),
            "tool": {"path": "packhouse", "revision": 3},
            "tensor_count": count,
            "packed_count_this_run": 0,
            "reused_count_this_run": count,
            "imported_count_this_run": 0,
            "payload_size_bytes": self.payload_bytes(),
            "model_hash_seconds_this_run": NO_SECONDS,
            "pack_seconds_this_run": NO_SECONDS,
            "tensors": tensors,
            "runtime_index": {
                "format": INDEX_FORMAT,
                "path": INDEX_NAME,
                "size_bytes": index.len(),
                "sha256": Digest::of(&index).to_string(),
            },
            "loader_contract": {
                "lookup_fields": LOOKUP_FIELDS,
                "required_validation": [
                    "set-key", "tensor-key", "payload-size", "payload-sha256",
                ],
                "mmap_safe": true,
            },
            "created_unix": 0,
        }))
    }

    /// The receipt of payload files with this stat table, for a manifest of these bytes.
    pub fn render_receipt(&self, manifest: &[u8], stat_table_sha256: Digest) -> Vec<u8> {
        pretty(&json!({
            "schema_version": 1,
            "format": RECEIPT_FORMAT,
            "status": "trusted",
            "set_key": self.key().to_string(),
            "manifest_sha256": Digest::of(manifest).to_string(),
            "manifest_size_bytes": manifest.len(),
            "payload_table_sha256": self.payload_table_sha256().to_string(),
            "payload_stat_table_sha256": stat_table_sha256.to_string(),
            "validated_bytes": self.payload_bytes(),
            "deep_validation_seconds": NO_SECONDS,
            "created_unix": 0,
            "trust_boundary": TRUST_BOUNDARY,
        }))
    }

    /// The record of a stage that holds copies of these payloads.
    pub fn render_stage(&self, manifest: &[u8], stage: &StageSummary) -> Vec<u8> {
        pretty(&json!({
            "schema_version": 1,
            "format": STAGE_FORMAT,
            "status": "ready",
            "set_key": self.key().to_string(),
            "source_manifest": stage.source_manifest,
            "source_manifest_sha256": Digest::of(manifest).to_string(),
            "payload_table_sha256": self.payload_table_sha256().to_string(),
            "payload_size_bytes": self.payload_bytes(),
            "tensor_count": self.tensors.len(),
            "source_deep_trust_reused": false,
            "source_deep_validation_seconds": NO_SECONDS,
            "trust_lookup_seconds_this_run": NO_SECONDS,
            "copy_seconds": NO_SECONDS,
            "available_bytes_before": stage.available_bytes_before,
            "available_bytes_after_copy": stage.available_bytes_after_copy,
            "created_unix": 0,
        }))
    }

    pub(super) fn identity(&self) -> Value {
        let keys: Vec<Digest> = self.tensors.iter().map(ForeignTensor::key).collect();
        set_identity(self.model.sha256, &keys)
    }
}

/// The format names of the records, and the paths in a set's folder.
pub(super) const SET_FORMAT: &str = "qwen27-xe2-m6-pack-set-v2";
pub(super) const TENSOR_FORMAT: &str = "qwen27-xe2-m6-tensor-pack-v2";
const STAGE_FORMAT: &str = "qwen27-xe2-m6-ram-stage-v1";
const RECEIPT_FORMAT: &str = "qwen27-xe2-m6-deep-validation-v1";
pub(super) const MANIFEST_NAME: &str = "manifest.json";
pub(super) const INDEX_NAME: &str = "runtime-index.tsv";
pub(super) const RECEIPT_NAME: &str = "deep-validation.json";
pub(super) const STAGE_NAME: &str = "ram-stage.json";
pub(super) const TENSORS_NAME: &str = "tensors";

/// Durations are floats on the other side.
const NO_SECONDS: f64 = 0.0;

const LOOKUP_FIELDS: [&str; 6] = [
    "target_model_sha256",
    "tensor_name",
    "tensor_shape",
    "tensor_type",
    "pack_layout_version",
    "target_architecture",
];

const TRUST_BOUNDARY: &str = "Written by packhouse export: each payload was hashed as it was \
copied here, and its stat taken after. Later changes that keep size, mtime, device and inode are \
not seen.";

/// The layout object, which a reader compares whole.
pub(super) fn layout_json() -> Value {
    json!({
        "name": LAYOUT_NAME,
        "version": LAYOUT_VERSION,
        "architecture": ARCHITECTURE,
        "quant_region": "[k_block][n16_tile][k8_group][n_lane][8 signed-s4 nibbles]",
        "scale_region": "fp16 [k_block][n_row]",
        "q4_zero_point_transform": "stored_nibble_xor_0x8",
        "endianness": "little",
    })
}
