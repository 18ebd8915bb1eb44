//! Receipts: what this user verified, object by object.
//!
//! A receipt says that an object was hashed while its stat identity was this. Invariants:
//! - it is believed only for the very stat identity it holds, compared field by field;
//! - a receipt that is damaged, of another object, or of another schema is refused by its own
//!   reason, and the object is hashed again;
//! - an identity that is not settled (`STAT_SETTLE_NS`) is not recorded.
//!
//! Never: a receipt of somebody else (`State` is private), one from a file system whose stat can't
//! be trusted (the caller asks `FsStat` first). Format: `docs/format/state.md`.

use crate::fields::{FieldError, Fields};
use crate::state::{Durability, Recorded, State, StateError};
use crate::state::{list_names, remove_name, render_stat, settle_wait_ns, take_stat};
use packhouse_base::canonical;
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_sys::fs::{FsError, FsErrorKind};
use packhouse_sys::stat::StatIdentity;
use serde_json::{Value, json};

/// The schema of a receipt.
pub const RECEIPT_SCHEMA: &str = "packhouse/receipt/1";

/// Proof that an object was hashed while its stat identity was this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The object, whose digest the bytes had.
    pub object: ObjectDigest,
    /// The stat identity before and after hashing.
    pub stat: StatIdentity,
    /// Wall-clock time of the hashing, in nanoseconds since the Unix epoch.
    pub verified_ns: i64,
}

/// Why there is no receipt to believe; each costs one hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptMiss {
    /// This user never verified the object.
    #[error("no receipt for object {object}")]
    Absent {
        /// The object.
        object: ObjectDigest,
    },
    /// The file changed since, or is another one.
    #[error("receipt for object {object} is stale: {field} differs")]
    Stale {
        /// The object.
        object: ObjectDigest,
        /// The first field of the stat identity that differs.
        field: &'static str,
        /// The identity in the receipt.
        expected: Box<StatIdentity>,
        /// The identity now.
        actual: Box<StatIdentity>,
    },
    /// The receipt isn't of the schema.
    #[error("receipt for object {object}: {source}")]
    Form {
        /// The object.
        object: ObjectDigest,
        /// What is wrong with its bytes.
        source: FieldError,
    },
    /// The receipt's checksum doesn't fit: torn by a crash or edited.
    #[error("receipt for object {object}: checksum {expected}, content has {actual}")]
    Checksum {
        /// The object.
        object: ObjectDigest,
        /// The checksum in the receipt.
        expected: Digest,
        /// The checksum of its content.
        actual: Digest,
    },
    /// The receipt is of another object.
    #[error("receipt filed under object {object} is of object {actual}")]
    OtherObject {
        /// The object asked for.
        object: ObjectDigest,
        /// The object in the receipt.
        actual: ObjectDigest,
    },
    /// The receipt can't be read.
    #[error("receipt for object {object}: {source}")]
    Unreadable {
        /// The object.
        object: ObjectDigest,
        /// Why.
        source: FsError,
    },
}

/// The receipts of one user for one store.
#[derive(Clone)]
pub struct Receipts {
    state: State,
}

impl Receipts {
    /// The receipts in a private state.
    pub fn new(state: State) -> Self {
        Self { state }
    }

    /// Finds the receipt of an object, whatever the object's file looks like now. Misses are named.
    pub fn find(&self, object: ObjectDigest) -> Result<Receipt, ReceiptMiss> {
        let unreadable = |source| ReceiptMiss::Unreadable { object, source };
        let name = object.to_string();
        let folder = self.state.folder(&[FOLDER, &name[..2]]);
        let Some(dir) = folder.map_err(unreadable)? else {
            return Err(ReceiptMiss::Absent { object });
        };
        match dir.read_small(&name, RECEIPT_BYTES_MAX) {
            Ok(bytes) => parse(object, &bytes),
            Err(error) if error.kind == FsErrorKind::NotFound => {
                Err(ReceiptMiss::Absent { object })
            }
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Finds a receipt that holds for the live stat identity of the descriptor in use.
    pub fn find_for(
        &self,
        object: ObjectDigest,
        live: &StatIdentity,
    ) -> Result<Receipt, ReceiptMiss> {
        let receipt = self.find(object)?;
        match receipt.stat.difference(live) {
            None => Ok(receipt),
            Some(field) => Err(ReceiptMiss::Stale {
                object,
                field,
                expected: Box::new(receipt.stat),
                actual: Box::new(*live),
            }),
        }
    }

    /// Records a receipt over any earlier one, unless its identity is not settled at `verified_ns`.
    /// Errors as the file system does; nothing is left behind then.
    pub fn record(&self, receipt: &Receipt) -> Result<Recorded, StateError> {
        if let Some(wait_ns) = settle_wait_ns(&receipt.stat, receipt.verified_ns) {
            return Ok(Recorded::NotYet { wait_ns });
        }
        let name = receipt.object.to_string();
        let dir = self.state.folder_made(&[FOLDER, &name[..2]])?;
        let bytes = receipt.render();
        self.state.replace(&dir, &name, &bytes, Durability::Cheap)?;
        Ok(Recorded::Written)
    }

    /// Forgets an object's receipt; an absent one is fine.
    pub fn forget(&self, object: ObjectDigest) -> Result<(), StateError> {
        let name = object.to_string();
        match self.state.folder(&[FOLDER, &name[..2]])? {
            None => Ok(()),
            Some(dir) => Ok(remove_name(&dir, &name)?),
        }
    }

    /// Lists the objects that have a receipt file, good or not.
    pub fn objects(&self) -> Result<Vec<ObjectDigest>, StateError> {
        let mut objects = Vec::new();
        let Some(root) = self.state.folder(&[FOLDER])? else {
            return Ok(objects);
        };
        for prefix in list_names(&root)? {
            let dir = root.open_dir(&prefix)?;
            let names = list_names(&dir)?;
            objects.extend(
                names
                    .iter()
                    .filter_map(|name| ObjectDigest::parse(name).ok()),
            );
        }
        Ok(objects)
    }
}

impl Receipt {
    /// Renders the receipt as canonical JSON.
    pub fn render(&self) -> Vec<u8> {
        let mut record = self.content();
        record["checksum"] = Value::from(self.checksum().to_string());
        canonical::render(&record)
    }

    fn content(&self) -> Value {
        json!({
            "schema": RECEIPT_SCHEMA,
            "object": self.object.to_string(),
            "stat": render_stat(&self.stat),
            "verified_ns": self.verified_ns,
        })
    }

    /// SHA-256 of the record without its checksum.
    fn checksum(&self) -> Digest {
        Digest::of(&canonical::render(&self.content()))
    }
}

fn parse(object: ObjectDigest, bytes: &[u8]) -> Result<Receipt, ReceiptMiss> {
    let (receipt, expected) =
        read_fields(bytes).map_err(|source| ReceiptMiss::Form { object, source })?;
    let actual = receipt.checksum();
    if actual != expected {
        return Err(ReceiptMiss::Checksum {
            object,
            expected,
            actual,
        });
    }
    if receipt.object != object {
        return Err(ReceiptMiss::OtherObject {
            object,
            actual: receipt.object,
        });
    }
    Ok(receipt)
}

fn read_fields(bytes: &[u8]) -> Result<(Receipt, Digest), FieldError> {
    let mut fields = Fields::parse(bytes, RECEIPT_SCHEMA)?;
    let checksum = fields.digest("checksum")?;
    let receipt = Receipt {
        object: ObjectDigest(fields.digest("object")?),
        stat: take_stat(&mut fields)?,
        verified_ns: fields.signed("verified_ns")?,
    };
    fields.finish()?;
    Ok((receipt, checksum))
}

/// The folder of receipts in a private state.
pub(crate) const FOLDER: &str = "receipts";

const RECEIPT_BYTES_MAX: u64 = 4096;
