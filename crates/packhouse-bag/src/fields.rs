//! Canonical records read field by field: all of them, and no other.

use packhouse_base::canonical::{self, CanonicalError};
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use serde_json::{Map, Value};

/// Why a record is not of its form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// Not canonical JSON, or longer than such a record may be.
    #[error(transparent)]
    NotCanonical(#[from] CanonicalError),
    /// Longer than such a record may be.
    #[error("{actual} bytes, at most {most} are read")]
    TooLong {
        /// Bytes present.
        actual: usize,
        /// The limit.
        most: usize,
    },
    /// A field that the format does not have.
    #[error("unknown field {}", Shown(field))]
    UnknownField {
        /// Its place in the record.
        field: String,
    },
    /// A field that the format has is not there.
    #[error("missing field {field}")]
    MissingField {
        /// Its place in the record.
        field: String,
    },
    /// A value of another kind than the field has.
    #[error("field {field}: not {expected}")]
    Type {
        /// Its place in the record.
        field: String,
        /// What belongs there.
        expected: &'static str,
    },
}

impl RecordFault {
    /// The reason code, as in `docs/format/evidence.md`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotCanonical(_) => "record.not-canonical",
            Self::UnknownField { .. } => "record.unknown-field",
            Self::MissingField { .. } => "record.missing-field",
            Self::TooLong { .. } | Self::Type { .. } => "record.type",
        }
    }
}

/// An object whose fields are taken one by one, and its place in the record.
pub(crate) struct Fields<'v> {
    place: String,
    fields: &'v Map<String, Value>,
}

/// Parses a record of at most `most` bytes.
pub(crate) fn parse(bytes: &[u8], most: usize) -> Result<Value, RecordFault> {
    if bytes.len() > most {
        let actual = bytes.len();
        return Err(RecordFault::TooLong { actual, most });
    }
    Ok(canonical::parse(bytes)?)
}

/// The beginning of a text of others, for messages.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

impl<'v> Fields<'v> {
    /// Takes an object of exactly these fields; the record itself has the empty place.
    pub(crate) fn new(value: &'v Value, place: &str, names: &[&str]) -> Result<Self, RecordFault> {
        let place = place.to_owned();
        let Value::Object(fields) = value else {
            let field = if place.is_empty() {
                "(all)".to_owned()
            } else {
                place
            };
            let expected = "an object";
            return Err(RecordFault::Type { field, expected });
        };
        let record = Self { place, fields };
        if let Some(name) = fields.keys().find(|name| !names.contains(&name.as_str())) {
            let field = record.at(&cut(name));
            return Err(RecordFault::UnknownField { field });
        }
        match names.iter().find(|name| !fields.contains_key(**name)) {
            None => Ok(record),
            Some(name) => Err(RecordFault::MissingField {
                field: record.at(name),
            }),
        }
    }

    /// The place of a field in the record.
    pub(crate) fn at(&self, name: &str) -> String {
        if self.place.is_empty() {
            return name.to_owned();
        }
        format!("{}.{name}", self.place)
    }

    /// A field's value.
    pub(crate) fn value(&self, name: &str) -> &'v Value {
        &self.fields[name]
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'v str, RecordFault> {
        self.value(name)
            .as_str()
            .ok_or_else(|| self.wrong(name, "a text"))
    }

    pub(crate) fn list(&self, name: &str) -> Result<&'v [Value], RecordFault> {
        let list = self.value(name).as_array();
        list.map(Vec::as_slice)
            .ok_or_else(|| self.wrong(name, "a list"))
    }

    /// A number from 1 to 2^63 - 1.
    pub(crate) fn count(&self, name: &str) -> Result<u64, RecordFault> {
        let count = self
            .value(name)
            .as_u64()
            .filter(|count| (1..=COUNT_MAX).contains(count));
        count.ok_or_else(|| self.wrong(name, "a number from 1 to 2^63 - 1"))
    }

    pub(crate) fn digest(&self, name: &str) -> Result<Digest, RecordFault> {
        let digest = Digest::parse(self.text(name)?).ok();
        digest.ok_or_else(|| self.wrong(name, "64 lower-case hex digits"))
    }

    fn wrong(&self, name: &str, expected: &'static str) -> RecordFault {
        RecordFault::Type {
            field: self.at(name),
            expected,
        }
    }
}

const COUNT_MAX: u64 = i64::MAX as u64;
