//! Receipts of young files: recorded once their ctime is old enough to prove a later change.
//!
//! A kernel's clock for file times is coarse, so a file that was changed right after it was hashed
//! may show the same times. After two seconds it can't.
//!
//! Invariants:
//! - a receipt is recorded for the very stat identity that was verified, asked again of a
//!   descriptor;
//! - a command waits once for all its objects; background work asks what is due and goes on.
//!
//! Never: waits for a ctime that lies ahead of the clock.

use crate::receipt::Receipt;
use crate::root::{OpenError, Store};
use crate::state::{Recorded, STAT_SETTLE_NS, StateError};
use packhouse_base::Blame;
use packhouse_base::digest::ObjectDigest;
use packhouse_sys::stat::StatIdentity;

/// A receipt that can't be recorded yet because the object's ctime is too young.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingReceipt {
    pub(crate) digest: ObjectDigest,
    pub(crate) identity: StatIdentity,
}

/// What came of pending receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Receipts recorded.
    pub recorded_count: u64,
    /// Objects that changed or went since; they will be hashed at their next use.
    pub changed_count: u64,
    /// Objects too young still, or whose ctime lies ahead of the clock.
    pub young: Vec<PendingReceipt>,
    /// How long until the youngest can be recorded.
    pub wait_ns: u64,
    /// The first failure to record.
    pub failure: Option<SettleError>,
}

/// Why a receipt was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// There is no private state.
    #[error("no private state: {0}")]
    NoState(Box<OpenError>),
    /// It could not be written.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Store {
    /// Records the receipts that are due and waits, in all, until the youngest is.
    pub fn settle(&self, pending: &[PendingReceipt]) -> Settled {
        let mut settled = self.settle_due(pending);
        if settled.young.is_empty() || settled.wait_ns > SETTLE_WAIT_MAX_NS {
            return settled;
        }
        self.clock.sleep_ns(settled.wait_ns);
        let rest = self.settle_due(&settled.young);
        settled.recorded_count += rest.recorded_count;
        settled.changed_count += rest.changed_count;
        settled.young = rest.young;
        settled.wait_ns = rest.wait_ns;
        settled.failure = settled.failure.or(rest.failure);
        settled
    }

    /// Records the receipts that are due, and answers which are not and how long they need.
    pub fn settle_due(&self, pending: &[PendingReceipt]) -> Settled {
        let mut settled = Settled::default();
        for receipt in pending {
            match self.settle_one(receipt) {
                Ok(Some(Recorded::Written)) => settled.recorded_count += 1,
                Ok(Some(Recorded::NotYet { wait_ns })) => {
                    settled.wait_ns = settled.wait_ns.max(wait_ns);
                    settled.young.push(*receipt);
                }
                Ok(None) => settled.changed_count += 1,
                Err(error) => {
                    settled.failure.get_or_insert(error);
                }
            }
        }
        settled
    }

    /// `None`: the file is not the one that was verified.
    fn settle_one(&self, pending: &PendingReceipt) -> Result<Option<Recorded>, SettleError> {
        let now_ns = self.clock.wall_ns();
        let Ok(object) = self.open_sound(&pending.digest, pending.identity.size) else {
            return Ok(None);
        };
        if object.identity != pending.identity || object.link_count != 1 {
            return Ok(None);
        }
        let receipts = self
            .receipts()
            .map_err(|error| SettleError::NoState(Box::new(error.clone())))?;
        let receipt = Receipt {
            object: pending.digest,
            stat: pending.identity,
            verified_ns: now_ns,
        };
        Ok(Some(receipts.record(&receipt)?))
    }
}

impl PendingReceipt {
    /// The object.
    pub fn digest(&self) -> ObjectDigest {
        self.digest
    }
}

impl SettleError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NoState(error) => error.blame(),
            Self::State(error) => error.blame(),
        }
    }
}

/// A ctime further ahead than the settling time is a clock that was set back; nobody waits for it.
const SETTLE_WAIT_MAX_NS: u64 = 2 * STAT_SETTLE_NS;
