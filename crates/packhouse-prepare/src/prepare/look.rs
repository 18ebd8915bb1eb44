//! What is there already: packs whose object is proven, and what is wrong with the others.
//!
//! Invariants:
//! - a pack is reused on a receipt, or on a hash made now; never on a length;
//! - its record says the length and sample geometry that its recipe says;
//! - what is damaged is out of the way when this returns, so that it can be made again.

use super::PrepareError;
use super::order::Item;
use packhouse_base::digest::TensorDigest;
use packhouse_store::object::{
    HowVerified, ObjectRefusal, ObjectTrust, PendingReceipt, VerifiedObject,
};
use packhouse_store::pack::PackRefusal;
use packhouse_store::record::PackRecord;
use packhouse_store::root::Store;

/// What was found of one pack.
pub(super) enum Look {
    /// It is there and proven.
    Ready(Box<Found>),
    /// It was never there, or is gone.
    Missing,
    /// It was damaged; it is in quarantine now, or about to be replaced.
    Damaged(String),
}

/// A pack that is there.
pub(super) struct Found {
    pub(super) record: PackRecord,
    /// The object was hashed now, for want of a receipt.
    pub(super) reverified: bool,
    pub(super) receipt: Option<PendingReceipt>,
}

/// Looks for the pack of a tensor with this digest. Errors when the store can't be asked.
pub(super) fn look(store: &Store, item: &Item, source: TensorDigest) -> Result<Look, PrepareError> {
    let identity = item.recipe.identity(source);
    let key = identity.key();
    let record = match store.lookup_pack(&key) {
        Ok(record) => record,
        Err(PackRefusal::Missing { .. }) => return Ok(Look::Missing),
        Err(
            refusal @ (PackRefusal::Untrusted { .. }
            | PackRefusal::TooLong { .. }
            | PackRefusal::Corrupt { .. }),
        ) => return Ok(Look::Damaged(refusal.to_string())),
        Err(refusal @ (PackRefusal::Folder { .. } | PackRefusal::Fs { .. })) => {
            return Err(PrepareError::Record {
                tensor: item.tensor.clone(),
                source: Box::new(refusal),
            });
        }
    };
    let (length, sample) = (item.recipe.payload_bytes(), item.recipe.sample());
    if (record.length, record.sample) != (length, sample) {
        let moved = store.distrust_pack(&key);
        return Ok(Look::Damaged(format!(
            "pack {key} says {} bytes in groups of {} rows, expected {length} in groups of {}; \
             {moved}",
            record.length, record.sample.unit_rows, sample.unit_rows
        )));
    }
    match store.object(&record.object, length, ObjectTrust::Receipt) {
        Ok(object) => Ok(Look::Ready(Box::new(Found::new(record, &object)))),
        Err(refusal @ (ObjectRefusal::Folder { .. } | ObjectRefusal::Fs { .. })) => {
            Err(PrepareError::Object {
                tensor: item.tensor.clone(),
                source: Box::new(refusal),
            })
        }
        Err(
            refusal @ (ObjectRefusal::Missing { .. }
            | ObjectRefusal::NotRegular { .. }
            | ObjectRefusal::Owner { .. }
            | ObjectRefusal::Writable { .. }
            | ObjectRefusal::Length { .. }
            | ObjectRefusal::Corrupt { .. }
            | ObjectRefusal::Changed { .. }
            | ObjectRefusal::Buffer { .. }),
        ) => Ok(Look::Damaged(refusal.to_string())),
    }
}

impl Found {
    fn new(record: PackRecord, object: &VerifiedObject) -> Self {
        Self {
            record,
            reverified: object.how() == HowVerified::Reverified,
            receipt: object.pending_receipt(),
        }
    }
}
