//! The record of one registered pack: canonical JSON with a checksum. Pure bytes in, values out.
//!
//! Invariants:
//! - it is believed only under the key that its binding and its list of entries make, so that no
//!   edit of either passes; the rest (where the artifact lies, and what its files' stats were) is
//!   guarded by the checksum, and proves nothing by itself;
//! - a path is a list of plain components, every folder on the way is listed, none leads out.
//!
//! Format: `docs/format/registry.md`.

use super::artifact::{Artifact, ArtifactRefusal, FileEntry, What};
use super::binding::{Binding, BindingError, RegistryKey};
use super::look::ArtifactKind;
use super::survey::{Seen, Survey};
use packhouse_base::Blame;
use packhouse_base::canonical::{self, RECORD_BYTES_MAX};
use packhouse_base::digest::{Digest, Hasher};
use packhouse_store::fields::{FieldError, Fields};
use packhouse_store::percent::{decode_path, encode_path};
use packhouse_store::state::{render_stat, take_stat};
use packhouse_sys::stat::StatIdentity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The schema of a record.
pub const REGISTRY_SCHEMA: &str = "packhouse/registry/1";

/// A registered pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    binding: Binding,
    artifact: Artifact,
    path: PathBuf,
    model_path: Option<PathBuf>,
    stats: BTreeMap<OsString, StatIdentity>,
}

/// Why bytes are no record, or no record can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not a record of this schema.
    #[error("{0}")]
    Form(#[from] FieldError),
    /// Torn or edited.
    #[error("checksum {expected}, content has {actual}")]
    Checksum {
        /// The checksum in the record.
        expected: Digest,
        /// The checksum of its content.
        actual: Digest,
    },
    /// A text of the binding.
    #[error("binding: {0}")]
    Binding(#[from] BindingError),
    /// A path that is no path, or not in its order, or in no folder that is listed.
    #[error("{field}: {why}, found {actual:?}")]
    Path {
        /// The field.
        field: String,
        /// What is wrong.
        why: &'static str,
        /// The text there.
        actual: String,
    },
    /// A word that is none of the known.
    #[error("{field}: expected {expected}, found {actual:?}")]
    Word {
        /// The field.
        field: String,
        /// The words that are known.
        expected: &'static str,
        /// The text there.
        actual: String,
    },
    /// Its list of entries is no artifact.
    #[error("pack.entries: {0}")]
    Artifact(Box<ArtifactRefusal>),
    /// The digest in it is not that of its entries.
    #[error("pack.sha256: {expected}, its entries have {actual}")]
    Digest {
        /// The digest in the record.
        expected: Digest,
        /// The digest of its entries.
        actual: Digest,
    },
    /// The key in it, or its file's name, is another than its fields make.
    #[error("key: {expected}, its fields have {actual}")]
    Key {
        /// The key in the record, or its name.
        expected: RegistryKey,
        /// The key that its fields make.
        actual: RegistryKey,
    },
    /// It would be longer than a record may be.
    #[error("a record of {actual} bytes, at most {RECORD_BYTES_MAX} are kept")]
    TooLong {
        /// Its length.
        actual: usize,
    },
}

impl Record {
    /// Binds an artifact that was seen. Errors when the record would be too long.
    pub fn new(
        binding: Binding,
        artifact: Artifact,
        survey: &Survey,
        model_path: Option<PathBuf>,
    ) -> Result<Self, RecordError> {
        let stats = survey.entries.iter().filter_map(|(path, seen)| match seen {
            Seen::File(file) => Some((path.clone(), file.stat?)),
            _ => None,
        });
        let record = Self {
            binding,
            artifact,
            path: survey.path.clone(),
            model_path,
            stats: stats.collect(),
        };
        match record.render().len() {
            actual if actual > RECORD_BYTES_MAX => Err(RecordError::TooLong { actual }),
            _ => Ok(record),
        }
    }

    /// The key that binding and artifact make.
    pub fn key(&self) -> RegistryKey {
        self.binding.key(&self.artifact.digest())
    }

    /// What it is bound to.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// What it is.
    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the model lay that was hashed; `None` where only its digest was given.
    pub fn model_path(&self) -> Option<&Path> {
        self.model_path.as_deref()
    }

    /// The stat identity that a file had when it was hashed; `None` where it proved nothing.
    pub fn stat(&self, path: &OsStr) -> Option<&StatIdentity> {
        self.stats.get(path)
    }

    /// The same pack with the model's path of an earlier record, where it has none itself.
    pub(super) fn with_model_path_of(mut self, earlier: &Self) -> Self {
        if self.model_path.is_none() {
            self.model_path.clone_from(&earlier.model_path);
        }
        self
    }

    /// Parses the record filed under `key`. Errors on any byte that `render` would not have
    /// written for that key.
    pub fn parse(key: RegistryKey, bytes: &[u8]) -> Result<Self, RecordError> {
        let mut fields = Fields::parse(bytes, REGISTRY_SCHEMA)?;
        let expected = fields.digest("checksum")?;
        let actual = checksum_of(bytes);
        if actual != expected {
            return Err(RecordError::Checksum { expected, actual });
        }
        let named = RegistryKey(fields.digest("key")?);
        let (record, digest) = Self::take(&mut fields)?;
        fields.finish()?;
        let actual = record.artifact.digest();
        if actual != digest {
            let expected = digest;
            return Err(RecordError::Digest { expected, actual });
        }
        let actual = record.key();
        match [named, key].into_iter().find(|named| *named != actual) {
            Some(expected) => Err(RecordError::Key { expected, actual }),
            None => Ok(record),
        }
    }

    /// Renders the record as canonical JSON; its first field is the checksum of the rest.
    pub fn render(&self) -> Vec<u8> {
        let entries: Vec<Value> = self
            .artifact
            .entries()
            .map(|(path, what)| self.entry_document(path, what))
            .collect();
        let mut model = json!({ "key": self.binding.model().to_string() });
        if let Some(path) = &self.model_path {
            model["path"] = encode_path(path.as_os_str()).into();
        }
        seal(json!({
            "schema": REGISTRY_SCHEMA,
            "key": self.key().to_string(),
            "model": model,
            "packer_revision": self.binding.packer_revision(),
            "layout": self.binding.layout(),
            "kernel_abi": self.binding.kernel_abi(),
            "pack": {
                "kind": self.artifact.kind().word(),
                "path": encode_path(self.path.as_os_str()),
                "sha256": self.artifact.digest().to_string(),
                "entries": entries,
            },
        }))
    }

    fn entry_document(&self, path: &OsStr, what: &What) -> Value {
        let mut entry = json!({ "kind": what.word() });
        if !path.is_empty() {
            entry["path"] = encode_path(path).into();
        }
        match what {
            What::Folder => {}
            What::File(file) => {
                entry["bytes"] = file.bytes.into();
                entry["sha256"] = file.digest.to_string().into();
                if let Some(stat) = self.stats.get(path) {
                    entry["stat"] = render_stat(stat);
                }
            }
            What::Link { target } => entry["target"] = encode_path(target.as_os_str()).into(),
        }
        entry
    }

    /// All fields but schema, checksum and key; and the digest that the record claims.
    fn take(fields: &mut Fields) -> Result<(Self, Digest), RecordError> {
        let mut model = fields.object("model")?;
        let binding = Binding::new(
            model.digest("key")?,
            fields.text("packer_revision")?,
            fields.text("layout")?,
            fields.text("kernel_abi")?,
        )?;
        let model_path = optional(&model.path_of("path"), model.text("path"))?;
        let model_path = model_path
            .map(|text| absolute(model.path_of("path"), text))
            .transpose()?;
        model.finish()?;
        let mut pack = fields.object("pack")?;
        let path = pack.text("path")?;
        let path = absolute(pack.path_of("path"), path)?;
        let word = pack.text("kind")?;
        let kind = ArtifactKind::from_word(&word).ok_or_else(|| RecordError::Word {
            field: pack.path_of("kind"),
            expected: "file or folder",
            actual: word,
        })?;
        let digest = pack.digest("sha256")?;
        let mut entries = Entries::default();
        for mut entry in pack.objects("entries")? {
            entries.take(kind, &mut entry)?;
            entry.finish()?;
        }
        pack.finish()?;
        let artifact = Artifact::recorded(&path, kind, entries.whats);
        let artifact = artifact.map_err(|refusal| RecordError::Artifact(Box::new(refusal)))?;
        let record = Self {
            binding,
            artifact,
            path,
            model_path,
            stats: entries.stats,
        };
        Ok((record, digest))
    }
}

/// Entries of a record as far as they were read.
#[derive(Default)]
struct Entries {
    whats: BTreeMap<OsString, What>,
    stats: BTreeMap<OsString, StatIdentity>,
}

impl Entries {
    fn take(&mut self, kind: ArtifactKind, entry: &mut Fields) -> Result<(), RecordError> {
        let field = entry.path_of("path");
        let text = optional(&field, entry.text("path"))?;
        let path = self.place(kind, field, text)?;
        let word = entry.text("kind")?;
        let what = match word.as_str() {
            "folder" => What::Folder,
            "link" => {
                let (field, text) = (entry.path_of("target"), entry.text("target")?);
                let target = path_of(&field, &text)?.into();
                What::Link { target }
            }
            "file" => {
                let stat = entry.path_of("stat");
                if let Some(stat) = optional(&stat, take_stat(entry))? {
                    self.stats.insert(path.clone(), stat);
                }
                What::File(FileEntry {
                    bytes: entry.integer("bytes")?,
                    digest: entry.digest("sha256")?,
                })
            }
            _ => {
                return Err(RecordError::Word {
                    field: entry.path_of("kind"),
                    expected: "file, folder or link",
                    actual: word,
                });
            }
        };
        self.whats.insert(path, what);
        Ok(())
    }

    /// The path of the next entry: plain, after the one before, in a folder that is listed.
    fn place(
        &self,
        kind: ArtifactKind,
        field: String,
        text: Option<String>,
    ) -> Result<OsString, RecordError> {
        let refuse = |why, actual: &str| {
            let actual = actual.chars().take(80).collect();
            Err(RecordError::Path {
                field: field.clone(),
                why,
                actual,
            })
        };
        let text = match (kind, text) {
            (ArtifactKind::File, None) if self.whats.is_empty() => return Ok(OsString::new()),
            (ArtifactKind::File, None) => return refuse("a file is one entry", ""),
            (ArtifactKind::File, Some(text)) => return refuse("a file has no path below", &text),
            (ArtifactKind::Folder, None) => return refuse("expected a path", ""),
            (ArtifactKind::Folder, Some(text)) => text,
        };
        let path = path_of(&field, &text)?;
        let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
        if !path.as_bytes().split(|byte| *byte == b'/').all(is_plain) {
            return refuse("expected plain names with / between them", &text);
        }
        if self
            .whats
            .last_key_value()
            .is_some_and(|(last, _)| *last >= path)
        {
            return refuse("expected a path after the one before", &text);
        }
        match Path::new(&path).parent().map(Path::as_os_str) {
            Some(parent) if !parent.is_empty() && self.whats.get(parent) != Some(&What::Folder) => {
                refuse("expected a path in a folder that is listed", &text)
            }
            Some(_) | None => Ok(path),
        }
    }
}

impl RecordError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Form(_)
            | Self::Checksum { .. }
            | Self::Binding(_)
            | Self::Path { .. }
            | Self::Word { .. }
            | Self::Artifact(_)
            | Self::Digest { .. }
            | Self::Key { .. } => Blame::Store,
            Self::TooLong { .. } => Blame::Source,
        }
    }
}

/// A field that may be absent.
fn optional<T>(field: &str, taken: Result<T, FieldError>) -> Result<Option<T>, FieldError> {
    match taken {
        Ok(value) => Ok(Some(value)),
        Err(FieldError::Absent { field: absent }) if absent == field => Ok(None),
        Err(error) => Err(error),
    }
}

fn path_of(field: &str, text: &str) -> Result<OsString, RecordError> {
    let path = decode_path(text).filter(|path| !path.is_empty());
    path.ok_or_else(|| RecordError::Path {
        field: field.to_owned(),
        why: "expected a path, percent-encoded",
        actual: text.chars().take(80).collect(),
    })
}

fn absolute(field: String, text: String) -> Result<PathBuf, RecordError> {
    let path = PathBuf::from(path_of(&field, &text)?);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(RecordError::Path {
        field,
        why: "expected an absolute path",
        actual: text.chars().take(80).collect(),
    })
}

/// Renders a record with the checksum of the rest, which must sort first.
fn seal(mut record: Value) -> Vec<u8> {
    let checksum = Digest::of(&canonical::render(&record));
    record["checksum"] = checksum.to_string().into();
    canonical::render(&record)
}

/// SHA-256 of a canonical record without its checksum, which sorts first: the field is cut out.
fn checksum_of(bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::default();
    hasher.update(b"{");
    hasher.update(bytes.get(CHECKSUM_FIELD_BYTES..).unwrap_or_default());
    hasher.finish()
}

/// `{"checksum":"`, 64 digits, `",`.
const CHECKSUM_FIELD_BYTES: usize = 13 + 64 + 2;

#[cfg(test)]
mod tests;
