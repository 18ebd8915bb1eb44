//! A fingerprint as a record: facts, places, digest; and what differs between two of them.
//!
//! Invariants:
//! - the digest is the SHA-256 of the canonical bytes of the facts;
//! - a record whose digest is not that of its facts is refused.

use packhouse_base::Blame;
use packhouse_base::canonical::{self, CanonicalError};
use packhouse_base::digest::Digest;
use packhouse_sys::stat::StatIdentity;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The schema of a record.
pub(super) const FINGERPRINT_SCHEMA: &str = "packhouse/fingerprint/1";

/// The identity of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    facts: Value,
    places: Value,
    digest: Digest,
    files: BTreeMap<PathBuf, Digest>,
    identities: BTreeMap<PathBuf, StatIdentity>,
}

/// One fact in which two builds differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What differs, from the outside in: `libraries`, `bin/libggml-cpu.so`, `sha256`.
    pub fact: Vec<String>,
    /// The fact in the first; `None` where it has none.
    pub one: Option<Value>,
    /// The fact in the second; `None` where it has none.
    pub other: Option<Value>,
}

/// Why bytes are no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not canonical JSON.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// Another schema, or a field that is absent, unknown or of another type.
    #[error("{field}: expected {expected}, found {actual}")]
    Form {
        /// The field.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is, cut short.
        actual: String,
    },
    /// The digest is not that of the facts.
    #[error("sha256 {expected}, its facts have {actual}")]
    Digest {
        /// The digest in the record.
        expected: Digest,
        /// The digest of its facts.
        actual: Digest,
    },
}

impl Fingerprint {
    /// Makes a fingerprint of its facts. `files` are the files that they hold the digests of, by
    /// real path.
    pub fn new(facts: Value, places: Value, files: BTreeMap<PathBuf, Digest>) -> Self {
        let digest = Digest::of(&canonical::render(&facts));
        Self {
            facts,
            places,
            digest,
            files,
            identities: BTreeMap::new(),
        }
    }

    /// Adds what each file was that was hashed for it, by path: no fact, and in no record.
    #[must_use]
    pub fn with_identities(mut self, identities: BTreeMap<PathBuf, StatIdentity>) -> Self {
        self.identities = identities;
        self
    }

    /// Reads a record back. Its files are not known then. Errors on any bytes that `render` would
    /// not have written.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let Value::Object(mut fields) = canonical::parse(bytes)? else {
            return Err(form("record", "an object", "another value"));
        };
        let schema = text(&mut fields, "schema")?;
        if schema != FINGERPRINT_SCHEMA {
            return Err(form("schema", FINGERPRINT_SCHEMA, &schema));
        }
        let sha256 = text(&mut fields, "sha256")?;
        let expected =
            Digest::parse(&sha256).map_err(|_| form("sha256", "64 hex digits", &sha256))?;
        let facts = object(&mut fields, "facts")?;
        let places = object(&mut fields, "places")?;
        if let Some(name) = fields.keys().next() {
            return Err(form("record", "no other field", name));
        }
        let fingerprint = Self::new(facts, places, BTreeMap::new());
        match fingerprint.digest == expected {
            true => Ok(fingerprint),
            false => Err(RecordError::Digest {
                expected,
                actual: fingerprint.digest,
            }),
        }
    }

    /// The digest of all facts: the identity of the build.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The facts, as `docs/format/fingerprint.md` has them.
    pub fn facts(&self) -> &Value {
        &self.facts
    }

    /// Where things are; no part of the identity.
    pub fn places(&self) -> &Value {
        &self.places
    }

    /// Whether a file is a part of the identity: under this real path, with this content. A file
    /// of the same content elsewhere is not, as it may change while the build stays the same.
    pub fn covers(&self, real_path: &Path, digest: &Digest) -> bool {
        self.files.get(real_path) == Some(digest)
    }

    /// The files whose digests are facts, by real path. A fingerprint that was read back has none.
    pub fn files(&self) -> &BTreeMap<PathBuf, Digest> {
        &self.files
    }

    /// The files that were hashed for either of two fingerprints and are not the very files that
    /// they were for the other, in order: another inode or time, though the content be the same. A
    /// file that was swapped in between and put back is among them. Those of a fingerprint that was
    /// read back are not known: all of the other's are named then.
    pub fn touched_since(&self, earlier: &Self) -> Vec<PathBuf> {
        let paths = self.identities.keys().chain(earlier.identities.keys());
        let paths: BTreeSet<&PathBuf> = paths.collect();
        let touched = paths.into_iter().filter(|path| {
            let (then, now) = (earlier.identities.get(*path), self.identities.get(*path));
            then != now
        });
        touched.cloned().collect()
    }

    /// The record: canonical JSON.
    pub fn render(&self) -> Vec<u8> {
        canonical::render(&json!({
            "facts": self.facts,
            "places": self.places,
            "schema": FINGERPRINT_SCHEMA,
            "sha256": self.digest.to_string(),
        }))
    }
}

/// The facts in which two builds differ, in order. None: they are the same.
pub fn explain(one: &Fingerprint, other: &Fingerprint) -> Vec<Difference> {
    let mut differences = Vec::new();
    compare(
        &mut Vec::new(),
        Some(&one.facts),
        Some(&other.facts),
        &mut differences,
    );
    differences
}

fn compare(
    fact: &mut Vec<String>,
    one: Option<&Value>,
    other: Option<&Value>,
    differences: &mut Vec<Difference>,
) {
    if one == other {
        return;
    }
    let (Some(Value::Object(left)), Some(Value::Object(right))) = (one, other) else {
        differences.push(Difference {
            fact: fact.clone(),
            one: one.cloned(),
            other: other.cloned(),
        });
        return;
    };
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for name in names {
        fact.push(name.clone());
        compare(fact, left.get(name), right.get(name), differences);
        fact.pop();
    }
}

fn text(fields: &mut Map<String, Value>, field: &'static str) -> Result<String, RecordError> {
    match fields.remove(field) {
        Some(Value::String(text)) => Ok(text),
        other => Err(form(field, "text", &shown(other.as_ref()))),
    }
}

fn object(fields: &mut Map<String, Value>, field: &'static str) -> Result<Value, RecordError> {
    match fields.remove(field) {
        Some(value @ Value::Object(_)) => Ok(value),
        other => Err(form(field, "an object", &shown(other.as_ref()))),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

fn form(field: &'static str, expected: &'static str, actual: &str) -> RecordError {
    RecordError::Form {
        field,
        expected,
        actual: actual.chars().take(ACTUAL_CHARS).collect(),
    }
}

/// Characters of a wrong value that an error shows.
const ACTUAL_CHARS: usize = 80;

impl RecordError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Canonical(_) | Self::Form { .. } | Self::Digest { .. } => Blame::Source,
        }
    }
}
