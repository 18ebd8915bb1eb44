//! `scrub`: hashes again what stat can't see change (bit rot), oldest first, within a budget of
//! bytes.
//!
//! Invariants:
//! - the order is by the time of the last hash in this user's receipts; an object without a receipt
//!   comes first, so repeated scrubs go round the whole store;
//! - a damaged object goes to quarantine, its receipt is forgotten, and it is reported;
//! - the budget is kept, but one object is always hashed, or a small budget would never end.
//!
//! Never: repairs.

use crate::object::ObjectRefusal;
use crate::root::Store;
use crate::small::SmallRefusal;
use packhouse_base::digest::ObjectDigest;
use std::num::NonZeroUsize;

/// What a scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Objects in the store.
    pub object_count: u64,
    /// Objects hashed.
    pub hashed_count: u64,
    /// Bytes hashed.
    pub hashed_bytes: u64,
    /// Objects that were refused, with the reason and where they went.
    pub refused: Vec<ObjectRefusal>,
    /// Objects left for the next scrub.
    pub left_count: u64,
    /// Bytes left for the next scrub.
    pub left_bytes: u64,
    /// Time of the oldest hash that is left, in nanoseconds since the Unix epoch; `None` when one
    /// is left that was never hashed here, or when nothing is left.
    pub oldest_left_ns: Option<i64>,
    /// Whether this user has private state to remember the hashes; without it each scrub begins
    /// anew.
    pub remembered: bool,
}

impl Store {
    /// Hashes objects, oldest first, until the next one would pass `budget_bytes`. `progress` is
    /// told bytes as they are hashed. Errors when the store can't be listed.
    pub fn scrub(
        &self,
        budget_bytes: u64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<ScrubReport, SmallRefusal> {
        let mut report = ScrubReport {
            remembered: self.state().is_ok(),
            ..ScrubReport::default()
        };
        let mut queue: Vec<(Option<i64>, ObjectDigest, u64)> = self
            .inventory()?
            .objects
            .into_iter()
            .map(|(digest, stat)| (self.last_hash_ns(digest), digest, stat.size))
            .collect();
        queue.sort();
        report.object_count = queue.len() as u64;
        let mut wanted = Vec::new();
        let mut wanted_bytes: u64 = 0;
        let mut left = queue.into_iter().peekable();
        while let Some((_, digest, length)) = left.next_if(|(_, _, length)| {
            wanted.is_empty() || wanted_bytes.saturating_add(*length) <= budget_bytes
        }) {
            wanted.push((digest, length));
            wanted_bytes = wanted_bytes.saturating_add(length);
        }
        let refusals = self.hash_objects(&wanted, NonZeroUsize::MIN, progress);
        for ((digest, length), refusal) in wanted.into_iter().zip(refusals) {
            match refusal {
                None => {}
                // Removed since it was listed: a gc ran.
                Some(ObjectRefusal::Missing { .. }) => continue,
                Some(refusal) => {
                    self.forget_receipt(digest);
                    report.refused.push(refusal);
                }
            }
            report.hashed_count += 1;
            report.hashed_bytes = report.hashed_bytes.saturating_add(length);
        }
        report.oldest_left_ns = left.peek().and_then(|(time_ns, _, _)| *time_ns);
        for (_, _, length) in left {
            report.left_count += 1;
            report.left_bytes = report.left_bytes.saturating_add(length);
        }
        Ok(report)
    }

    fn last_hash_ns(&self, digest: ObjectDigest) -> Option<i64> {
        let receipts = self.receipts().ok()?;
        receipts
            .find(digest)
            .ok()
            .map(|receipt| receipt.verified_ns)
    }

    fn forget_receipt(&self, digest: ObjectDigest) {
        if let Ok(receipts) = self.receipts() {
            // A receipt that stays is stale: its object is in quarantine and any new one differs in
            // stat.
            let _ = receipts.forget(digest);
        }
    }
}
