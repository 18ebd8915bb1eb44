//! One entry: a line of canonical JSON, chained to the line before.
//!
//! Invariants: an `Entry` was read from a line, also when we wrote it; its digest is that of the
//! line's bytes, never of a value that was rendered again.
//!
//! Format: `docs/format/ledger.md`, section 2.

use crate::act::{Act, FieldFault, FieldValue, Fields, Written};
use crate::state::Contradiction;
use crate::{LEDGER_BYTES_MAX, LINE_BYTES_MAX};
use packhouse_base::canonical::{self, CanonicalError};
use packhouse_base::digest::Digest;
use serde_json::{Map, Value};

/// The schema of an entry.
pub const SCHEMA: &str = "packhouse/ledger/1";

/// What `previous` is at index 0, and the head of a ledger without entries.
pub const NO_ENTRY: Digest = Digest::from_bytes([0; 32]);

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place, from 0.
    pub index: u64,
    /// Wall clock, nanoseconds since the Unix epoch; for people.
    pub at_ns: i64,
    /// Boot id of the machine that wrote it.
    pub boot: String,
    /// Digest of the entry before.
    pub previous: Digest,
    /// What it says.
    pub act: Act,
    /// Its own digest: SHA-256 of its line without the newline.
    pub digest: Digest,
}

/// Why a line is no entry, or not the next one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// The line or the whole ledger is too long.
    #[error("too long: a line has at most {LINE_BYTES_MAX} bytes, a ledger {LEDGER_BYTES_MAX}")]
    TooLong,
    /// Not canonical JSON.
    #[error("{0}")]
    NotCanonical(CanonicalError),
    /// Canonical JSON, but no object.
    #[error("not a JSON object")]
    NoObject,
    /// A field is absent, unknown, of another form, or does not go with the others.
    #[error("{0}")]
    Field(FieldFault),
    /// Another schema.
    #[error("schema {actual:?}, not {SCHEMA:?}")]
    Schema {
        /// What is there.
        actual: String,
    },
    /// A kind that this format does not have.
    #[error("kind {actual:?} is not known")]
    Kind {
        /// What is there.
        actual: String,
    },
    /// Another index than the next.
    #[error("index {actual}, where {expected} is next")]
    Index {
        /// The next.
        expected: u64,
        /// What is there.
        actual: u64,
    },
    /// Chained to another line than the one before.
    #[error("previous {actual}, but the entry before has digest {expected}")]
    Previous {
        /// Digest of the entry before.
        expected: Digest,
        /// What is there.
        actual: Digest,
    },
    /// It contradicts the entries before it.
    #[error("{0}")]
    Contradiction(Contradiction),
}

impl Entry {
    /// Reads a line, with its newline. Errors on anything that `render` would not have written.
    pub fn parse(line: &[u8]) -> Result<Self, EntryFault> {
        if line.len() > LINE_BYTES_MAX {
            return Err(EntryFault::TooLong);
        }
        let value = canonical::parse(line).map_err(EntryFault::NotCanonical)?;
        let Value::Object(object) = value else {
            return Err(EntryFault::NoObject);
        };
        let mut fields = Fields::new(object);
        let schema: String = fields.required("schema")?;
        if schema != SCHEMA {
            return Err(EntryFault::Schema { actual: schema });
        }
        let kind: String = fields.required("kind")?;
        let body: Body = fields.required("body")?;
        let (index, at_ns) = (fields.required("index")?, fields.required("at_ns")?);
        let (boot, previous) = (fields.required("boot")?, fields.required("previous")?);
        fields.finish()?;
        let act = match Act::read(&kind, body.0) {
            Some(act) => act?,
            None => return Err(EntryFault::Kind { actual: kind }),
        };
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        Ok(Self {
            index,
            at_ns,
            boot,
            previous,
            act,
            digest: Digest::of(bare),
        })
    }

    /// Renders the line of an entry, with its newline.
    pub fn render(act: &Act, index: u64, previous: Digest, at_ns: i64, boot: &str) -> Vec<u8> {
        let mut written = Written::default();
        written.required("at_ns", &at_ns);
        written.required("boot", &boot.to_owned());
        written.required("index", &index);
        written.required("kind", &act.kind().to_owned());
        written.required("previous", &previous);
        written.required("schema", &SCHEMA.to_owned());
        let Value::Object(mut object) = written.finish() else {
            unreachable!("because fields make an object")
        };
        object.insert("body".to_owned(), act.body());
        canonical::render(&Value::Object(object))
    }
}

impl EntryFault {
    /// The reason code of `docs/format/ledger.md`, section 6.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLong => "ledger.too-long",
            Self::NotCanonical(_) | Self::NoObject => "ledger.not-canonical",
            Self::Field(fault) => fault.code(),
            Self::Schema { .. } => "ledger.schema",
            Self::Kind { .. } => "ledger.kind",
            Self::Index { .. } => "ledger.index",
            Self::Previous { .. } => "ledger.previous",
            Self::Contradiction(contradiction) => contradiction.code(),
        }
    }
}

impl From<FieldFault> for EntryFault {
    fn from(fault: FieldFault) -> Self {
        Self::Field(fault)
    }
}

impl From<Contradiction> for EntryFault {
    fn from(contradiction: Contradiction) -> Self {
        Self::Contradiction(contradiction)
    }
}

/// A body before its kind is known.
struct Body(Map<String, Value>);

impl FieldValue for Body {
    const EXPECTED: &'static str = "an object";

    fn read(value: &Value) -> Option<Self> {
        value.as_object().cloned().map(Self)
    }

    fn write(&self) -> Value {
        Value::Object(self.0.clone())
    }
}
