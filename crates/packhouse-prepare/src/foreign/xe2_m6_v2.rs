//! The pack set of the Xe2 M-row verifier: keys, runtime index, manifest, receipt, directory.
//!
//! - `json` is its canonical and its pretty JSON, `keys` its keys and table hashes, `index` its
//!   runtime index: pure functions;
//! - `records` renders its records, `parse` reads them by `strict`, its JSON without doubled keys;
//! - `export` writes a set of the store in it, `import` reads one into the store.
//!
//! Invariants:
//! - keys, hashes and index are byte for byte what the other side computes;
//! - whatever it leaves to the writer (dates, durations, counters) is a constant here, so that one
//!   set gives one manifest.
//!
//! Never: a hard link, a path that a foreign file names outside its grammar. Format:
//! `docs/format/xe2-m6-v2.md`.

mod export;
mod import;
mod index;
mod json;
mod keys;
mod parse;
mod records;
mod source;
mod strict;

pub use export::{ExportTargets, ForeignExport, ForeignExportError, export};
pub use import::{ForeignImport, ForeignImportError, import, model_of};
pub use index::{INDEX_FORMAT, IndexRow, fnv1a_64, runtime_index};
pub use json::{canon, canon_sha256, pretty};
pub use keys::{
    PayloadRow, StatRow, TensorIdentity, payload_table_sha256, set_key, slot_of, stat_table_sha256,
    tensor_key,
};
pub use parse::{ForeignRecordError, parse_manifest, parse_tensor};
pub use records::{ForeignSet, ForeignTensor, GgufSummary, Revision, SourceModel, StageSummary};

/// The name of the payload order in manifests and indexes.
pub const LAYOUT_NAME: &str = "q4_0-xe2-dpas-v2";
/// Its version.
pub const LAYOUT_VERSION: u64 = 2;
/// The architecture that every identity names.
pub const ARCHITECTURE: &str = "bmg-g31";
/// The type that every identity names.
pub const TENSOR_TYPE: &str = "GGML_TYPE_Q4_0";
