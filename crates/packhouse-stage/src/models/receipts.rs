//! The receipts of a model's copies: one canonical record with a checksum. Pure bytes in, values
//! out.
//!
//! Invariants:
//! - it names key and generation, so that it is believed in its own folder only;
//! - the key follows from the files' digests;
//! - file names are single plain components, none twice.
//!
//! Format: `docs/format/model-copies.md`.

use crate::models::key::ModelKey;
use crate::receipts::{checksum_of, seal};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_store::fields::{FieldError, Fields};
use packhouse_store::state::{file_system_text, parse_file_system};
use packhouse_sys::stat::{FsId, StatIdentity};
use serde_json::{Value, json};

/// The schema of the receipts of a model's copies.
pub const MODEL_SCHEMA: &str = "packhouse/model/1";

/// What a model's copies were when they were hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReceipts {
    /// The model.
    pub key: ModelKey,
    /// Which copy of it.
    pub generation: u64,
    /// The file system of all files.
    pub file_system: FsId,
    /// Owner of all files.
    pub uid: u32,
    /// Permission bits of all files.
    pub mode: u32,
    /// The files, shards in order.
    pub files: Vec<FileReceipt>,
}

/// Proof that one file was hashed while its stat identity was this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReceipt {
    /// Its name, as the source's was.
    pub name: String,
    /// SHA-256 of its bytes.
    pub digest: Digest,
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

/// Why bytes are no receipts of a model's copies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelReceiptsError {
    /// Not a record of this schema.
    #[error("receipts: {0}")]
    Form(#[from] FieldError),
    /// The file system is named in no known way.
    #[error("receipts: file_system: expected uuid: or device: and a value, found {actual:?}")]
    FileSystem {
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
    /// The receipts of another copy.
    #[error("receipts: of copy {actual}, expected {expected}")]
    OtherCopy {
        /// The folder's name.
        expected: String,
        /// The copy in the record.
        actual: String,
    },
    /// The files' digests make another key.
    #[error("receipts: the files' digests make key {actual}, expected {expected}")]
    Key {
        /// The key in the record.
        expected: ModelKey,
        /// The key that follows.
        actual: ModelKey,
    },
    /// A name that is no file's.
    #[error("receipts: files[{index}].name: expected a new, plain file name, found {name:?}")]
    Name {
        /// Place of the file.
        index: usize,
        /// The name.
        name: String,
    },
}

impl ModelReceipts {
    /// Parses the receipts in the folder of this key and generation. Errors on any byte that
    /// `render` would not have written for them.
    pub fn parse(key: ModelKey, generation: u64, bytes: &[u8]) -> Result<Self, ModelReceiptsError> {
        let mut fields = Fields::parse(bytes, MODEL_SCHEMA)?;
        let expected = fields.digest("checksum")?;
        let actual = checksum_of(bytes);
        if actual != expected {
            return Err(ModelReceiptsError::Checksum { expected, actual });
        }
        let receipts = Self::take(&mut fields)?;
        fields.finish()?;
        if (receipts.key, receipts.generation) != (key, generation) {
            return Err(ModelReceiptsError::OtherCopy {
                expected: format!("{key}.{generation}"),
                actual: format!("{}.{}", receipts.key, receipts.generation),
            });
        }
        for (index, file) in receipts.files.iter().enumerate() {
            let is_new = receipts.files[..index]
                .iter()
                .all(|other| other.name != file.name);
            if !is_new || !is_plain(&file.name) {
                let name = file.name.clone();
                return Err(ModelReceiptsError::Name { index, name });
            }
        }
        let digests: Vec<Digest> = receipts.files.iter().map(|file| file.digest).collect();
        let actual = ModelKey::of(&digests);
        if actual != key || digests.is_empty() {
            let expected = key;
            return Err(ModelReceiptsError::Key { expected, actual });
        }
        Ok(receipts)
    }

    /// Renders the record as canonical JSON; its first field is the checksum of the rest.
    pub fn render(&self) -> Vec<u8> {
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|file| {
                json!({
                    "name": file.name,
                    "sha256": file.digest.to_string(),
                    "inode": file.inode,
                    "inode_generation": file.inode_generation,
                    "size": file.size,
                    "mtime_ns": file.mtime_ns,
                    "ctime_ns": file.ctime_ns,
                })
            })
            .collect();
        seal(json!({
            "schema": MODEL_SCHEMA,
            "key": self.key.to_string(),
            "generation": self.generation,
            "file_system": file_system_text(&self.file_system),
            "uid": self.uid,
            "mode": self.mode,
            "files": files,
        }))
    }

    /// The stat identity that a file had.
    pub fn identity_of(&self, file: &FileReceipt) -> StatIdentity {
        StatIdentity {
            file_system: self.file_system,
            inode: file.inode,
            generation: file.inode_generation,
            size: file.size,
            mtime_ns: file.mtime_ns,
            ctime_ns: file.ctime_ns,
            uid: self.uid,
            mode: self.mode,
        }
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    fn take(fields: &mut Fields) -> Result<Self, ModelReceiptsError> {
        let text = fields.text("file_system")?;
        let file_system =
            parse_file_system(&text).ok_or(ModelReceiptsError::FileSystem { actual: text })?;
        let mut files = Vec::new();
        for mut inner in fields.objects("files")? {
            files.push(FileReceipt {
                name: inner.text("name")?,
                digest: inner.digest("sha256")?,
                inode: inner.integer("inode")?,
                inode_generation: inner.optional_integer32("inode_generation")?,
                size: inner.integer("size")?,
                mtime_ns: inner.signed("mtime_ns")?,
                ctime_ns: inner.signed("ctime_ns")?,
            });
            inner.finish()?;
        }
        Ok(Self {
            key: ModelKey(fields.digest("key")?),
            generation: fields.integer("generation")?,
            file_system,
            uid: fields.integer32("uid")?,
            mode: fields.integer32("mode")?,
            files,
        })
    }
}

impl ModelReceiptsError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Form(_)
            | Self::FileSystem { .. }
            | Self::Checksum { .. }
            | Self::OtherCopy { .. }
            | Self::Key { .. }
            | Self::Name { .. } => Blame::Store,
        }
    }
}

/// Whether a name is one component that a file can have.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_odd = name.is_empty() || name == "." || name == "..";
    !is_odd && name.len() <= NAME_BYTES_MAX && !name.contains(['/', '\0'])
}

/// What Linux file systems allow.
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn receipts() -> ModelReceipts {
        let file = |name: &str, inode| FileReceipt {
            name: name.to_owned(),
            digest: Digest::of(name.as_bytes()),
            inode,
            inode_generation: None,
            size: 3,
            mtime_ns: -4,
            ctime_ns: 5,
        };
        let files = vec![
            file("m-00001-of-00002.gguf", 1),
            file("m-00002-of-00002.gguf", 2),
        ];
        let digests: Vec<Digest> = files.iter().map(|file| file.digest).collect();
        ModelReceipts {
            key: ModelKey::of(&digests),
            generation: 7,
            file_system: FsId::Device(9),
            uid: 6,
            mode: 0o444,
            files,
        }
    }

    #[test]
    fn receipts_round_trip() {
        let good = receipts();
        let parsed = ModelReceipts::parse(good.key, 7, &good.render());
        assert_eq!(parsed, Ok(good.clone()));
        assert_eq!(good.bytes(), 6);
        assert_eq!(good.identity_of(&good.files[1]).inode, 2);
    }

    #[test]
    fn each_edit_is_refused_for_its_own_reason() {
        let good = receipts();
        let text = String::from_utf8(good.render()).expect("because JSON is UTF-8");
        let refusal = |text: &str| {
            ModelReceipts::parse(good.key, 7, text.as_bytes())
                .expect_err("because it was edited")
                .to_string()
        };
        assert!(refusal(&text.replacen("\"size\":3", "\"size\":4", 1)).contains("checksum"));
        assert!(refusal(&text.replacen("model/1", "model/2", 1)).contains("schema: expected"));
        assert!(refusal(&text[..text.len() / 2]).contains("not JSON"));
        // Edits by somebody who makes the checksum fit.
        let sealed = |edit: &dyn Fn(&mut ModelReceipts)| {
            let mut edited = receipts();
            edit(&mut edited);
            refusal(&String::from_utf8(edited.render()).expect("because JSON is UTF-8"))
        };
        assert!(sealed(&|edited| edited.generation = 8).contains(".8, expected"));
        assert!(sealed(&|edited| edited.files.reverse()).contains("digests make key"));
        assert!(sealed(&|edited| edited.files.clear()).contains("digests make key"));
        for name in [
            "",
            "..",
            "a/b",
            "a\0b",
            "m-00001-of-00002.gguf",
            &"x".repeat(256),
        ] {
            let said = sealed(&|edited| name.clone_into(&mut edited.files[1].name));
            assert!(said.contains("files[1].name"), "{said}");
        }
    }

    #[test]
    fn no_changed_byte_and_no_cut_passes() {
        let good = receipts();
        let bytes = good.render();
        for at in 0..bytes.len() {
            for flip in [1, 0x10, 0x20] {
                let mut edited = bytes.clone();
                edited[at] ^= flip;
                let parsed = ModelReceipts::parse(good.key, 7, &edited);
                assert!(parsed.is_err(), "byte {at} of {}", bytes.len());
            }
            assert!(ModelReceipts::parse(good.key, 7, &bytes[..at]).is_err());
        }
        let longer = [&bytes[..], b"\n"].concat();
        assert!(ModelReceipts::parse(good.key, 7, &longer).is_err());
    }
}
