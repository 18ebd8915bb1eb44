//! Byte-identical copies of whole model files in RAM.
//!
//! - `key` names a model by its content; `receipts` and `source` are the records that a copy is
//!   believed and found by; `entry` reads one copy;
//! - `find` admits, by path or digest; `digests` remembers the SHA-256 of files that were hashed;
//! - `prepare` makes sure of a copy; `work`, `copy`, `hash` and `temp` are its
//!   cold way;
//! - `verify` hashes copies and brings them to memory; `collect` lists and removes them.
//!
//! Invariants:
//! - a copy is visible when it is whole: one rename of its folder is the last step;
//! - both were hashed, the source as it was read and the copy as it was read back, to one digest;
//! - a copy is handed out only for descriptors whose stat identities are the receipts';
//! - nothing in a published copy is ever edited, and no receipt is renewed without a hash.
//!
//! Never: needs the source to admit a good copy; follows a symlink below the stage root.
//! Format: `docs/format/model-copies.md`.

mod collect;
mod copy;
mod digests;
mod entry;
mod find;
mod hash;
mod key;
mod prepare;
mod receipts;
mod source;
mod temp;
mod verify;
mod work;

pub use collect::{CollectedModels, DropError, ModelListing, collect, drop_model, list, strangers};
pub use digests::{
    DigestsError, FILE_DIGEST_SCHEMA, FileDigest, FileDigestError, FileDigests, HowKnown, digest_of,
};
pub(crate) use entry::models_dir;
pub use entry::{CopyProblem, CopyRefusal};
pub use find::{
    AdmittedFile, AdmittedModel, ModelMiss, ModelQuery, find, find_content, find_key, key_of,
};
pub use key::ModelKey;
pub use prepare::{
    ModelEvent, ModelFiles, ModelOptions, ModelOutcome, ModelPrepareError, ModelWatcher,
    PreparedModel, prepare,
};
pub use receipts::{FileReceipt, MODEL_SCHEMA, ModelReceipts, ModelReceiptsError};
pub use source::{
    SOURCE_RECORD_SCHEMA, SeenStat, SourceFile, SourceRecord, SourceRecordError, SourceState,
};
pub use verify::{ModelVerification, VerifiedFile, verify, warm};
