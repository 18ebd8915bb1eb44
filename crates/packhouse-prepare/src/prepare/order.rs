//! What is to be made: the tensors that a plan chose, each with the recipe of its pack.

use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_store::ledger::SourceRange;
use packhouse_store::record::SampleGeometry;
use std::sync::Arc;

/// The packs of one model under one plan, not made yet.
#[derive(Clone)]
pub struct Order {
    /// The plan's name.
    pub plan: String,
    /// SHA-256 of the plan's bytes.
    pub plan_digest: Digest,
    /// The tensors, in any order.
    pub items: Vec<Item>,
}

/// One tensor to pack.
#[derive(Clone)]
pub struct Item {
    /// The plan's fixed integer for it.
    pub slot: u64,
    /// Its name in the container.
    pub tensor: String,
    /// The index of its file in the container.
    pub shard: usize,
    /// Its bytes in that file.
    pub range: SourceRange,
    /// How its pack is made.
    pub recipe: Arc<dyn Recipe>,
}

/// How the pack of one tensor is made and named.
///
/// `pack` is called by one thread per tensor, many at once.
pub trait Recipe: Send + Sync {
    /// The pack's identity, given the digest of the tensor's bytes.
    fn identity(&self, source: TensorDigest) -> PackIdentity;

    /// How the payload is sampled.
    fn sample(&self) -> SampleGeometry;

    /// The payload's length.
    fn payload_bytes(&self) -> u64;

    /// Writes every byte of the payload.
    fn pack(&self, source: &[u8], target: &mut [u8]);
}
