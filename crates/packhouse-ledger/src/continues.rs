//! Whether a ledger goes on from an earlier one: the earlier one's bytes are a prefix of its own.
//!
//! Format: `docs/format/ledger.md`, section 7.

use crate::chain::{Ledger, LedgerError};
use crate::entry::Entry;
use packhouse_base::canonical;
use std::collections::BTreeSet;

/// Why a ledger does not go on from an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discontinuity {
    /// The earlier bytes are no ledger.
    #[error("the earlier ledger: {0}")]
    Earlier(LedgerError),
    /// It is a shorter prefix of the earlier one.
    #[error("truncated: {count} entries, where the earlier ledger has {earlier}")]
    Truncated {
        /// Entries now.
        count: u64,
        /// Entries then.
        earlier: u64,
    },
    /// An entry was edited, removed or inserted, and what follows chained anew.
    #[error("rewritten at entry {index}: later entries are chained anew")]
    Rewritten {
        /// The first entry that differs.
        index: u64,
    },
    /// Both went on differently.
    #[error("forked at entry {index}: both ledgers go on from there, each in its own way")]
    Forked {
        /// The first entry that differs.
        index: u64,
    },
}

impl Ledger {
    /// Demands that this ledger goes on from an earlier one's bytes. A torn append of the earlier
    /// one was never reported, and is left out. Errors with the first entry that differs.
    pub fn continues(&self, earlier: &[u8]) -> Result<(), Discontinuity> {
        let earlier = Ledger::parse(earlier).map_err(Discontinuity::Earlier)?;
        let (before, now) = (earlier.entries(), self.entries());
        let same = before
            .iter()
            .zip(now)
            .take_while(|(one, other)| one.digest == other.digest);
        let same = same.count();
        let (before_rest, now_rest) = (&before[same..], &now[same..]);
        let index = same as u64;
        if before_rest.is_empty() {
            return Ok(());
        }
        if now_rest.is_empty() {
            return Err(Discontinuity::Truncated {
                count: now.len() as u64,
                earlier: before.len() as u64,
            });
        }
        let now_says: BTreeSet<_> = now_rest.iter().map(said).collect();
        if before_rest
            .iter()
            .any(|entry| now_says.contains(&said(entry)))
        {
            return Err(Discontinuity::Rewritten { index });
        }
        Err(Discontinuity::Forked { index })
    }
}

/// What an entry says, wherever it stands in a chain.
fn said(entry: &Entry) -> (i64, &'static str, Vec<u8>) {
    let body = canonical::render(&entry.act.body());
    (entry.at_ns, entry.act.kind(), body)
}
