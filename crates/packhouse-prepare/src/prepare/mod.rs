//! `prepare`: the packs of one model under one plan, made of one read of it.
//!
//! 1. What the source ledger and the store know already is looked up: a tensor whose digest is
//!    known, and whose pack and object are there with a receipt, costs no byte.
//! 2. The rest is read in file order, once. The buffer that was read is hashed and packed, and the
//!    same buffers feed the hash of the whole file.
//! 3. Objects are written while others are packed, synced in batches, then linked; records follow
//!    their objects, and what was learnt of the source is noted with each batch.
//! 4. The set is published last, and receipts are settled once.
//!
//! Invariants:
//! - a digest and a pack of one tensor are of the same buffer;
//! - a source that changes while it is read leaves no ledger entry of it and no set;
//! - a run that is stopped at any point leaves what it published, and the next makes the rest;
//! - the same model and plan give the same bytes of the set.
//!
//! Never: reads a payload that a receipt speaks for; believes a source without its stat identity.
//! Design: `docs/design/prepare.md`.

mod budget;
mod chosen;
mod commit;
mod error;
mod finish;
mod learn;
mod look;
mod order;
mod progress;
mod reader;
mod round;
mod run;
mod segments;
mod state;
mod whole;
mod worker;

pub use error::PrepareError;
pub(crate) use learn::known;
pub use order::{Item, Order, Recipe};
pub use progress::{Event, Phase, Progress, Quiet};
pub use run::prepare;
pub(crate) use run::{Made, foretell, make_packs};
pub(crate) use state::Reason;

use packhouse_base::digest::{Digest, SetKey};
use packhouse_store::container_record::Admission;
use packhouse_store::set::SetOutcome;
use std::num::NonZeroUsize;

/// The schema of the run logs of `prepare` and `repair`.
pub const RUN_SCHEMA: &str = "packhouse/run/1";

/// How a prepare works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that hash and pack.
    pub threads: NonZeroUsize,
    /// Whether whole files are hashed beside their tensors.
    pub source_hash: SourceHash,
    /// Digests that the files must have, in the order of shards; empty: none is demanded.
    pub expected: Vec<Digest>,
    /// How long another process that makes the same is waited for.
    pub lock_timeout_ns: u64,
    /// Bytes of sources and payloads in memory at once; one tensor alone may need more.
    pub memory_bytes: u64,
    /// Bytes that one tensor and its payload may need at most.
    pub memory_max_bytes: u64,
    /// This process, for the name of its run log.
    pub process_id: u32,
}

/// Whether whole files are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceHash {
    /// They are: the container record says `hashed`.
    Whole,
    /// They are not, unless the ledger knows already: the container record says `skipped`.
    Skip,
}

/// A set that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The set.
    pub set: SetKey,
    /// How it came to be there.
    pub outcome: SetOutcome,
    /// How its container was admitted.
    pub admission: Admission,
    /// Its tensors, by rising slot.
    pub tensors: Vec<PreparedTensor>,
    /// What it cost.
    pub cost: Cost,
    /// What could not be noted beside the set: the next run costs more for it.
    pub complaints: Vec<String>,
}

/// A tensor of a set that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedTensor {
    /// Its slot.
    pub slot: u64,
    /// Its name.
    pub tensor: String,
    /// Its payload's length.
    pub payload_bytes: u64,
    /// How its pack came to be there.
    pub how: How,
}

/// How a pack came to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// It was there.
    Reused,
    /// It was made now.
    Packed,
    /// What was there was damaged, and it was made again.
    Healed {
        /// What was wrong.
        was: String,
    },
}

/// What a prepare cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of the model read, but for its directory.
    pub source_bytes: u64,
    /// Bytes of payloads written.
    pub written_bytes: u64,
    /// Objects hashed because no receipt spoke for them.
    pub reverified_count: u64,
    /// Their bytes.
    pub reverified_bytes: u64,
    /// From begin to end.
    pub duration_ns: u64,
    /// The part of it at the end in which receipts were waited for, everything being published.
    pub settle_ns: u64,
}
