//! The receipts of a stage's copies: one canonical record with a checksum. Pure bytes in, values
//! out.
//!
//! Invariants:
//! - it names set and generation, so that it is believed in its own folder only;
//! - it holds the digests of manifest and index, whose bytes the set key does not cover in full;
//! - copies are listed by rising digest, none twice.
//!
//! Format: `docs/format/stage.md`.

use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::{Digest, Hasher, ObjectDigest, SetKey};
use packhouse_store::fields::{FieldError, Fields};
use packhouse_store::root::StoreId;
use packhouse_store::state::{file_system_text, parse_file_system};
use packhouse_sys::stat::{FsId, StatIdentity};
use serde_json::{Value, json};

/// The schema of a stage's receipts.
pub const STAGE_SCHEMA: &str = "packhouse/stage/1";

/// What a stage's files were when they were hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageReceipts {
    /// The set.
    pub set: SetKey,
    /// The stage's generation.
    pub generation: u64,
    /// The store that the copies were made of; its gc decides how long they stay.
    pub store: StoreId,
    /// SHA-256 of the manifest's bytes.
    pub manifest: Digest,
    /// SHA-256 of the runtime index's bytes.
    pub index: Digest,
    /// The file system of all copies.
    pub file_system: FsId,
    /// Owner of all copies.
    pub uid: u32,
    /// Permission bits of all copies.
    pub mode: u32,
    /// One per object, by rising digest.
    pub copies: Vec<CopyReceipt>,
}

/// Proof that one copy was hashed while its stat identity was this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyReceipt {
    /// The object that was copied.
    pub object: ObjectDigest,
    /// Inode number.
    pub inode: u64,
    /// Inode generation where the file system has one.
    pub inode_generation: Option<u32>,
    /// Length in bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime_ns: i64,
    /// Last change of the inode.
    pub ctime_ns: i64,
}

/// Why bytes are no receipts of a stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptsError {
    /// Not a record of this schema.
    #[error("receipts: {0}")]
    Form(#[from] FieldError),
    /// The file system is named in no known way.
    #[error("receipts: file_system: expected uuid: or device: and a value, found {actual:?}")]
    FileSystem {
        /// The text present.
        actual: String,
    },
    /// The store is named in no known way.
    #[error("receipts: store: expected 32 hex digits, found {actual:?}")]
    Store {
        /// The text present.
        actual: String,
    },
    /// Torn or edited.
    #[error("receipts: checksum {expected}, content has {actual}")]
    Checksum {
        /// The checksum in the record.
        expected: Digest,
        /// The checksum of its content.
        actual: Digest,
    },
    /// The receipts of another stage.
    #[error("receipts: of stage {actual}, expected {expected}")]
    OtherStage {
        /// The folder's name.
        expected: String,
        /// The stage in the record.
        actual: String,
    },
    /// The copies are not in rising order of digest.
    #[error("receipts: object {object} does not follow object {previous}")]
    Order {
        /// The object before.
        previous: ObjectDigest,
        /// The one that does not follow.
        object: ObjectDigest,
    },
}

impl StageReceipts {
    /// Parses the receipts in the folder of this set and generation. Errors on any byte that
    /// `render` would not have written for them.
    pub fn parse(set: SetKey, generation: u64, bytes: &[u8]) -> Result<Self, ReceiptsError> {
        let mut fields = Fields::parse(bytes, STAGE_SCHEMA)?;
        let expected = fields.digest("checksum")?;
        let actual = checksum_of(bytes);
        if actual != expected {
            return Err(ReceiptsError::Checksum { expected, actual });
        }
        let receipts = Self::take(&mut fields)?;
        fields.finish()?;
        if (receipts.set, receipts.generation) != (set, generation) {
            return Err(ReceiptsError::OtherStage {
                expected: format!("{set}.{generation}"),
                actual: format!("{}.{}", receipts.set, receipts.generation),
            });
        }
        let mut pairs = receipts.copies.windows(2);
        if let Some(pair) = pairs.find(|pair| pair[0].object >= pair[1].object) {
            return Err(ReceiptsError::Order {
                previous: pair[0].object,
                object: pair[1].object,
            });
        }
        Ok(receipts)
    }

    /// Renders the record as canonical JSON; its first field is the checksum of the rest.
    pub fn render(&self) -> Vec<u8> {
        let copies: Vec<Value> = self
            .copies
            .iter()
            .map(|copy| {
                json!({
                    "object": copy.object.to_string(),
                    "inode": copy.inode,
                    "inode_generation": copy.inode_generation,
                    "size": copy.size,
                    "mtime_ns": copy.mtime_ns,
                    "ctime_ns": copy.ctime_ns,
                })
            })
            .collect();
        seal(json!({
            "schema": STAGE_SCHEMA,
            "set": self.set.to_string(),
            "generation": self.generation,
            "store": self.store.to_string(),
            "manifest": self.manifest.to_string(),
            "index": self.index.to_string(),
            "file_system": file_system_text(&self.file_system),
            "uid": self.uid,
            "mode": self.mode,
            "copies": copies,
        }))
    }

    /// The stat identity that the copy of an object had; `None` where there is no such copy.
    pub fn identity_of(&self, object: &ObjectDigest) -> Option<StatIdentity> {
        let found = self.copies.binary_search_by(|copy| copy.object.cmp(object));
        let copy = self.copies.get(found.ok()?)?;
        Some(StatIdentity {
            file_system: self.file_system,
            inode: copy.inode,
            generation: copy.inode_generation,
            size: copy.size,
            mtime_ns: copy.mtime_ns,
            ctime_ns: copy.ctime_ns,
            uid: self.uid,
            mode: self.mode,
        })
    }

    fn take(fields: &mut Fields) -> Result<Self, ReceiptsError> {
        let text = fields.text("file_system")?;
        let file_system =
            parse_file_system(&text).ok_or(ReceiptsError::FileSystem { actual: text })?;
        let text = fields.text("store")?;
        let store = StoreId::parse(&text).ok_or(ReceiptsError::Store { actual: text })?;
        let mut copies = Vec::new();
        for mut inner in fields.objects("copies")? {
            copies.push(CopyReceipt {
                object: ObjectDigest(inner.digest("object")?),
                inode: inner.integer("inode")?,
                inode_generation: inner.optional_integer32("inode_generation")?,
                size: inner.integer("size")?,
                mtime_ns: inner.signed("mtime_ns")?,
                ctime_ns: inner.signed("ctime_ns")?,
            });
            inner.finish()?;
        }
        Ok(Self {
            set: SetKey(fields.digest("set")?),
            generation: fields.integer("generation")?,
            store,
            manifest: fields.digest("manifest")?,
            index: fields.digest("index")?,
            file_system,
            uid: fields.integer32("uid")?,
            mode: fields.integer32("mode")?,
            copies,
        })
    }
}

impl ReceiptsError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Form(_)
            | Self::FileSystem { .. }
            | Self::Store { .. }
            | Self::Checksum { .. }
            | Self::OtherStage { .. }
            | Self::Order { .. } => Blame::Store,
        }
    }
}

/// Renders a record as canonical JSON with the checksum of the rest, which must sort first.
pub(crate) fn seal(mut record: Value) -> Vec<u8> {
    let checksum = Digest::of(&canonical::render(&record));
    record["checksum"] = Value::from(checksum.to_string());
    canonical::render(&record)
}

/// SHA-256 of a canonical record without its checksum, which sorts first: the field is cut out of
/// the bytes, so nothing is rendered again.
pub(crate) fn checksum_of(bytes: &[u8]) -> Digest {
    let rest = bytes.get(CHECKSUM_FIELD_BYTES..).unwrap_or_default();
    let mut hasher = Hasher::default();
    hasher.update(b"{");
    hasher.update(rest);
    hasher.finish()
}

/// `{"checksum":"`, 64 digits, `",`.
const CHECKSUM_FIELD_BYTES: usize = 13 + 64 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn receipts() -> StageReceipts {
        let copy = |name: &[u8], inode| CopyReceipt {
            object: ObjectDigest(Digest::of(name)),
            inode,
            inode_generation: None,
            size: 3,
            mtime_ns: -4,
            ctime_ns: 5,
        };
        let mut copies = vec![copy(b"a", 1), copy(b"b", 2)];
        copies.sort_by_key(|copy| copy.object);
        StageReceipts {
            set: SetKey(Digest::of(b"set")),
            generation: 7,
            store: StoreId::parse(&"0a".repeat(16)).expect("because it is 32 digits"),
            manifest: Digest::of(b"manifest"),
            index: Digest::of(b"index"),
            file_system: FsId::Device(9),
            uid: 6,
            mode: 0o444,
            copies,
        }
    }

    #[test]
    fn receipts_round_trip_and_answer_by_object() {
        let receipts = receipts();
        let bytes = receipts.render();
        let parsed = StageReceipts::parse(receipts.set, 7, &bytes);
        assert_eq!(parsed, Ok(receipts.clone()));
        let identity = receipts.identity_of(&ObjectDigest(Digest::of(b"b")));
        assert_eq!(identity.map(|identity| identity.inode), Some(2));
        assert_eq!(receipts.identity_of(&ObjectDigest(Digest::of(b"c"))), None);
    }

    #[test]
    fn each_edit_is_refused_for_its_own_reason() {
        let good = receipts();
        let text = String::from_utf8(good.render()).expect("because JSON is UTF-8");
        let refusal = |text: &str| {
            StageReceipts::parse(good.set, 7, text.as_bytes())
                .expect_err("because it was edited")
                .to_string()
        };
        assert!(refusal(&text.replacen("\"size\":3", "\"size\":4", 1)).contains("checksum"));
        assert!(refusal(&text.replacen("stage/1", "stage/2", 1)).contains("schema: expected"));
        assert!(refusal(&text.replacen("\"uid\"", "\"aid\"", 1)).contains("not canonical"));
        assert!(refusal(&text[..text.len() / 2]).contains("not JSON"));
        // Edits by somebody who makes the checksum fit.
        let sealed = |edit: &dyn Fn(&mut StageReceipts)| {
            let mut edited = receipts();
            edit(&mut edited);
            refusal(&String::from_utf8(edited.render()).expect("because JSON is UTF-8"))
        };
        let other = sealed(&|edited| edited.generation = 8);
        assert!(
            other.contains("of stage") && other.contains(".8, expected"),
            "{other}"
        );
        assert!(sealed(&|edited| edited.copies.reverse()).contains("does not follow"));
        let twice = sealed(&|edited| edited.copies[1] = edited.copies[0]);
        assert!(twice.contains("does not follow"), "{twice}");
    }

    #[test]
    fn no_changed_byte_and_no_cut_passes() {
        let good = receipts();
        let bytes = good.render();
        for at in 0..bytes.len() {
            for flip in [1, 0x10, 0x20] {
                let mut edited = bytes.clone();
                edited[at] ^= flip;
                let parsed = StageReceipts::parse(good.set, 7, &edited);
                assert!(parsed.is_err(), "byte {at} of {}", bytes.len());
            }
            assert!(StageReceipts::parse(good.set, 7, &bytes[..at]).is_err());
        }
        let longer = [&bytes[..], b"\n"].concat();
        assert!(StageReceipts::parse(good.set, 7, &longer).is_err());
    }
}
