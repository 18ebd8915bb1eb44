//! Container records: which files a set was made of, and how each was admitted.
//!
//! Invariants:
//! - a record's name is the SHA-256 of its bytes, so it is never edited, only added beside others;
//! - `hashed` is only said where every file's digest is there;
//! - a file's name is one path component: a record can't point out of a folder.
//!
//! Never: a full path, a date, an owner; those are private (`use_log`). Format:
//! `docs/format/store.md`.

use crate::fields::{FieldError, Fields, cut};
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// The schema of a container record.
pub const CONTAINER_SCHEMA: &str = "packhouse/container/1";

/// One container as it was when a set was made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRecord {
    files: Vec<ContainerFile>,
    admission: Admission,
}

/// One file of a container, shards in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFile {
    /// The file's name, without folders.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// SHA-256 of the whole file, if somebody computed it.
    pub digest: Option<Digest>,
}

/// How the container's files were admitted, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Admission {
    /// The whole files were not hashed; each tensor was.
    Skipped,
    /// Each file was hashed as a whole.
    Hashed,
}

/// Why values or bytes are no container record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerRecordError {
    /// Not a record of this schema.
    #[error("container record: {0}")]
    Form(#[from] FieldError),
    /// The bytes hash to another name.
    #[error("container record {expected}: its content hashes to {actual}")]
    Name {
        /// The name the record is filed under.
        expected: Digest,
        /// SHA-256 of its bytes.
        actual: Digest,
    },
    /// The admission is neither `hashed` nor `skipped`.
    #[error("container record: admission: expected hashed or skipped, found {actual:?}")]
    Admission {
        /// The text present.
        actual: String,
    },
    /// Says `hashed`, but a file has no digest.
    #[error("container record: admission is hashed, but {file:?} has no digest")]
    NotHashed {
        /// Name of that file.
        file: String,
    },
    /// A file name that is empty, a folder, or more than one path component.
    #[error("container record: not a plain file name: {name:?}")]
    FileName {
        /// The name present.
        name: String,
    },
    /// A container without files.
    #[error("container record: no files")]
    NoFiles,
}

impl ContainerRecord {
    /// Makes a record. Errors without files, on a name that is no plain file name, and when
    /// `Hashed` is said of a file without a digest.
    pub fn new(
        files: Vec<ContainerFile>,
        admission: Admission,
    ) -> Result<Self, ContainerRecordError> {
        if files.is_empty() {
            return Err(ContainerRecordError::NoFiles);
        }
        for file in &files {
            if !is_plain_name(&file.name) {
                return Err(ContainerRecordError::FileName {
                    name: cut(file.name.clone()),
                });
            }
            if admission == Admission::Hashed && file.digest.is_none() {
                return Err(ContainerRecordError::NotHashed {
                    file: file.name.clone(),
                });
            }
        }
        Ok(Self { files, admission })
    }

    /// Parses the record filed under `name`. Errors when the bytes hash to another name, and on any
    /// byte that `render` would not have written.
    pub fn parse(name: Digest, bytes: &[u8]) -> Result<Self, ContainerRecordError> {
        let actual = Digest::of(bytes);
        if actual != name {
            return Err(ContainerRecordError::Name {
                expected: name,
                actual,
            });
        }
        Self::parse_content(bytes)
    }

    /// The files, shards in order.
    pub fn files(&self) -> &[ContainerFile] {
        &self.files
    }

    /// How the files were admitted.
    pub fn admission(&self) -> Admission {
        self.admission
    }

    /// SHA-256 of the record's bytes: its name.
    pub fn name(&self) -> Digest {
        Digest::of(&self.render())
    }

    /// Renders the record as canonical JSON.
    pub fn render(&self) -> Vec<u8> {
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|file| {
                let digest = file.digest.map_or(ABSENT.into(), |d| d.to_string());
                json!({"name": file.name, "size": file.size, "sha256": digest})
            })
            .collect();
        canonical::render(&json!({
            "schema": CONTAINER_SCHEMA,
            "admission": self.admission.name(),
            "files": files,
        }))
    }

    /// Whether this record speaks of the container at hand: as many files, each of the same size,
    /// and of the same digest where both are known, else of the same name.
    pub fn describes(&self, at_hand: &[ContainerFile]) -> bool {
        self.files.len() == at_hand.len()
            && self.files.iter().zip(at_hand).all(|(ours, theirs)| {
                ours.size == theirs.size
                    && match (ours.digest, theirs.digest) {
                        (Some(a), Some(b)) => a == b,
                        (None, _) | (_, None) => ours.name == theirs.name,
                    }
            })
    }

    /// Whether beside this record another one adds nothing: it is the same, or of a container by
    /// the same names and sizes that was not hashed, and this one's was.
    pub fn covers(&self, other: &Self) -> bool {
        let is_stronger = self.admission > other.admission && self.describes(&other.files);
        self == other || is_stronger
    }

    fn parse_content(bytes: &[u8]) -> Result<Self, ContainerRecordError> {
        let mut fields = Fields::parse(bytes, CONTAINER_SCHEMA)?;
        let admission = fields.text("admission")?;
        let mut files = Vec::new();
        for mut inner in fields.objects("files")? {
            let name = inner.text("name")?;
            let size = inner.integer("size")?;
            files.push(ContainerFile {
                name,
                size,
                digest: optional_digest(&mut inner)?,
            });
            inner.finish()?;
        }
        fields.finish()?;
        let admission =
            Admission::parse(&admission).ok_or_else(|| ContainerRecordError::Admission {
                actual: cut(admission),
            })?;
        Self::new(files, admission)
    }
}

impl Admission {
    /// The word in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Hashed => "hashed",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Skipped, Self::Hashed]
            .into_iter()
            .find(|admission| admission.name() == word)
    }
}

impl ContainerRecordError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Form(_) | Self::Name { .. } | Self::Admission { .. } => Blame::Store,
            Self::NotHashed { .. } | Self::FileName { .. } | Self::NoFiles => Blame::Caller,
        }
    }
}

/// The best of the records that describe the container at hand: `Hashed` before `Skipped`, then
/// more file digests, then the smaller name, so that the answer does not depend on the order given.
pub fn best_record<'a>(
    records: &'a [ContainerRecord],
    at_hand: &[ContainerFile],
) -> Option<&'a ContainerRecord> {
    records
        .iter()
        .filter(|record| record.describes(at_hand))
        .max_by_key(|record| {
            let digests = record.files.iter().filter(|f| f.digest.is_some()).count();
            (record.admission, digests, std::cmp::Reverse(record.name()))
        })
}

fn optional_digest(fields: &mut Fields) -> Result<Option<Digest>, FieldError> {
    let text = fields.text("sha256")?;
    if text == ABSENT {
        return Ok(None);
    }
    let digest = Digest::parse(&text).map_err(|source| FieldError::Digest {
        field: fields.path_of("sha256"),
        source,
    })?;
    Ok(Some(digest))
}

fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

const ABSENT: &str = "absent";

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, digest: Option<&[u8]>) -> ContainerFile {
        ContainerFile {
            name: name.into(),
            size: 10,
            digest: digest.map(Digest::of),
        }
    }

    fn record(files: Vec<ContainerFile>, admission: Admission) -> ContainerRecord {
        ContainerRecord::new(files, admission).expect("because the test gives good values")
    }

    #[test]
    fn a_record_round_trips_under_its_own_name_only() {
        let record = record(
            vec![file("a.gguf", Some(b"a")), file("b.gguf", None)],
            Admission::Skipped,
        );
        let bytes = record.render();
        assert_eq!(ContainerRecord::parse(record.name(), &bytes), Ok(record));
        let other = ContainerRecord::parse(Digest::of(b"x"), &bytes);
        assert!(matches!(other, Err(ContainerRecordError::Name { .. })));
    }

    #[test]
    fn each_wrong_content_is_refused_for_its_own_reason_even_under_its_own_name() {
        let text =
            String::from_utf8(record(vec![file("a.gguf", Some(b"a"))], Admission::Hashed).render())
                .expect("because JSON is UTF-8");
        let digest = Digest::of(b"a").to_string();
        let wrong = [
            (
                "hashed",
                "trusted",
                "expected hashed or skipped, found \"trusted\"",
            ),
            (digest.as_str(), "absent", "\"a.gguf\" has no digest"),
            (digest.as_str(), "none", "files[0].sha256: not 64"),
            ("a.gguf", "../a", "not a plain file name: \"../a\""),
            ("a.gguf", "", "not a plain file name: \"\""),
            (
                "\"size\":10",
                "\"size\":10,\"zone\":1",
                "files[0].zone: unknown field",
            ),
            ("container/1", "container/9", "schema: expected"),
        ];
        for (from, to, reason) in wrong {
            let edited = text.replacen(from, to, 1);
            assert_ne!(text, edited, "{from}");
            let name = Digest::of(edited.as_bytes());
            let error = ContainerRecord::parse(name, edited.as_bytes()).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert_eq!(
            ContainerRecord::new(Vec::new(), Admission::Skipped),
            Err(ContainerRecordError::NoFiles)
        );
    }

    #[test]
    fn the_best_record_is_of_this_container_and_the_strongest() {
        let skipped = record(vec![file("a.gguf", None)], Admission::Skipped);
        let hashed = record(vec![file("a.gguf", Some(b"a"))], Admission::Hashed);
        let renamed = record(vec![file("z.gguf", Some(b"a"))], Admission::Hashed);
        let records = [skipped.clone(), hashed.clone(), renamed.clone()];
        let at_hand = [file("a.gguf", None)];
        assert_eq!(best_record(&records, &at_hand), Some(&hashed));
        let same_bytes = [file("other.gguf", Some(b"a"))];
        let best = best_record(&records, &same_bytes).expect("because digests agree");
        assert_eq!(best.admission(), Admission::Hashed);
        let changed = [file("a.gguf", Some(b"b"))];
        assert_eq!(best_record(&records, &changed), Some(&skipped));
        assert_eq!(best_record(&records, &[file("b.gguf", None)]), None);
    }

    #[test]
    fn a_hashed_record_covers_an_unhashed_one_of_the_same_files() {
        let record = |name, digest, admission| {
            ContainerRecord::new(vec![file(name, digest)], admission)
                .expect("because the file is plain")
        };
        let hashed = record("a.gguf", Some(b"a"), Admission::Hashed);
        let skipped = record("a.gguf", None, Admission::Skipped);
        let renamed = record("b.gguf", None, Admission::Skipped);
        let other = record("a.gguf", Some(b"b"), Admission::Hashed);
        assert!(hashed.covers(&hashed) && skipped.covers(&skipped));
        assert!(hashed.covers(&skipped) && !skipped.covers(&hashed));
        assert!(!hashed.covers(&renamed) && !hashed.covers(&other));
    }
}
