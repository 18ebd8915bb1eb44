//! Strict reading of a record's fields: each exactly once, none left over, none made up.
//!
//! Never: guesses a value, or lets an unknown field pass. Forms: `docs/format/evidence.md`.

use packhouse_base::Blame;
use packhouse_base::canonical::{self, CanonicalError};
use packhouse_base::digest::Digest;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Why bytes are not the record that they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not canonical JSON.
    #[error(transparent)]
    NotCanonical(#[from] CanonicalError),
    /// A field is absent.
    #[error("{field}: missing field")]
    Missing {
        /// Path of the field.
        field: String,
    },
    /// A field that the record does not have.
    #[error("{field}: unknown field")]
    Unknown {
        /// Path of the field.
        field: String,
    },
    /// A field of another type, or with a value that it can't have.
    #[error("{field}: expected {expected}, found {actual}")]
    Type {
        /// Path of the field.
        field: String,
        /// What it can be.
        expected: &'static str,
        /// What it is, cut to 80 characters.
        actual: String,
    },
}

impl RecordError {
    /// Its reason code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotCanonical(_) => "record.not-canonical",
            Self::Missing { .. } => "record.missing-field",
            Self::Unknown { .. } => "record.unknown-field",
            Self::Type { .. } => "record.type",
        }
    }

    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotCanonical(_)
            | Self::Missing { .. }
            | Self::Unknown { .. }
            | Self::Type { .. } => Blame::Source,
        }
    }
}

/// The fields of one object that are not taken yet.
#[derive(Debug)]
pub(crate) struct Fields {
    path: String,
    left: Map<String, Value>,
}

impl Fields {
    /// Reads a whole record and every field of it.
    pub(crate) fn whole<T>(
        bytes: &[u8],
        read: impl FnOnce(&mut Self) -> Result<T, RecordError>,
    ) -> Result<T, RecordError> {
        let mut fields = Self::of(String::new(), canonical::parse(bytes)?)?;
        let made = read(&mut fields)?;
        fields.finish()?;
        Ok(made)
    }

    /// Whether a field is there and not taken yet.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.left.contains_key(field)
    }

    /// Any value.
    pub(crate) fn value(&mut self, field: &str) -> Result<Value, RecordError> {
        self.left.remove(field).ok_or_else(|| RecordError::Missing {
            field: self.path_of(field),
        })
    }

    /// A text.
    pub(crate) fn text(&mut self, field: &str) -> Result<String, RecordError> {
        match self.value(field)? {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(field, "a text", &other)),
        }
    }

    /// A text or null.
    pub(crate) fn optional_text(&mut self, field: &str) -> Result<Option<String>, RecordError> {
        match self.value(field)? {
            Value::String(text) => Ok(Some(text)),
            Value::Null => Ok(None),
            other => Err(self.wrong(field, "a text or null", &other)),
        }
    }

    /// A text that `read` makes something of.
    pub(crate) fn one_of<T>(
        &mut self,
        field: &str,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, RecordError> {
        let text = self.text(field)?;
        read(&text).ok_or_else(|| self.wrong(field, expected, &Value::String(text)))
    }

    /// A text that can only be this one.
    pub(crate) fn exactly(&mut self, field: &str, only: &'static str) -> Result<(), RecordError> {
        self.one_of(field, only, |text| (text == only).then_some(()))
    }

    /// A digest.
    pub(crate) fn digest(&mut self, field: &str) -> Result<Digest, RecordError> {
        let parse = |text: &str| Digest::parse(text).ok();
        self.one_of(field, "64 lower-case hex digits", parse)
    }

    /// An integer of 0 or more.
    pub(crate) fn count(&mut self, field: &str) -> Result<u64, RecordError> {
        let value = self.value(field)?;
        let count = value.as_u64();
        count.ok_or_else(|| self.wrong(field, "an integer of 0 or more", &value))
    }

    /// An integer.
    pub(crate) fn integer(&mut self, field: &str) -> Result<i64, RecordError> {
        let value = self.value(field)?;
        let integer = value.as_i64();
        integer.ok_or_else(|| self.wrong(field, "an integer of 64 bits", &value))
    }

    /// True or false.
    pub(crate) fn boolean(&mut self, field: &str) -> Result<bool, RecordError> {
        let value = self.value(field)?;
        let boolean = value.as_bool();
        boolean.ok_or_else(|| self.wrong(field, "true or false", &value))
    }

    /// True, false or null.
    pub(crate) fn optional_boolean(&mut self, field: &str) -> Result<Option<bool>, RecordError> {
        match self.value(field)? {
            Value::Bool(boolean) => Ok(Some(boolean)),
            Value::Null => Ok(None),
            other => Err(self.wrong(field, "true, false or null", &other)),
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, field: &str) -> Result<Vec<String>, RecordError> {
        self.list(field, |path, value| match value {
            Value::String(text) => Ok(text),
            other => Err(wrong(path, "a text", &other)),
        })
    }

    /// An object.
    pub(crate) fn object<T>(
        &mut self,
        field: &str,
        read: impl FnOnce(&mut Self) -> Result<T, RecordError>,
    ) -> Result<T, RecordError> {
        let value = self.value(field)?;
        read_whole(self.path_of(field), value, read)
    }

    /// An object or null.
    pub(crate) fn optional_object<T>(
        &mut self,
        field: &str,
        read: impl FnOnce(&mut Self) -> Result<T, RecordError>,
    ) -> Result<Option<T>, RecordError> {
        match self.value(field)? {
            Value::Null => Ok(None),
            value => read_whole(self.path_of(field), value, read).map(Some),
        }
    }

    /// A list of objects.
    pub(crate) fn objects<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Self) -> Result<T, RecordError>,
    ) -> Result<Vec<T>, RecordError> {
        self.list(field, |path, value| read_whole(path, value, &read))
    }

    /// An object of any names, each with a value that `read` makes something of.
    pub(crate) fn map<T>(
        &mut self,
        field: &str,
        read: impl Fn(String, Value) -> Result<T, RecordError>,
    ) -> Result<BTreeMap<String, T>, RecordError> {
        let value = self.value(field)?;
        let fields = Self::of(self.path_of(field), value)?;
        let path = fields.path;
        let entries = fields.left.into_iter();
        let read_one = |(name, value): (String, Value)| {
            let made = read(format!("{path}.{name}"), value)?;
            Ok((name, made))
        };
        entries.map(read_one).collect()
    }

    /// Refuses what is left over.
    pub(crate) fn finish(self) -> Result<(), RecordError> {
        match self.left.keys().next() {
            Some(field) => Err(RecordError::Unknown {
                field: self.path_of(field),
            }),
            None => Ok(()),
        }
    }

    /// Says that a field has a value that it can't have.
    pub(crate) fn wrong(&self, field: &str, expected: &'static str, value: &Value) -> RecordError {
        wrong(self.path_of(field), expected, value)
    }

    fn of(path: String, value: Value) -> Result<Self, RecordError> {
        match value {
            Value::Object(left) => Ok(Self { path, left }),
            other => Err(wrong(path, "an object", &other)),
        }
    }

    fn list<T>(
        &mut self,
        field: &str,
        read: impl Fn(String, Value) -> Result<T, RecordError>,
    ) -> Result<Vec<T>, RecordError> {
        match self.value(field)? {
            Value::Array(items) => {
                let path = self.path_of(field);
                let items = items.into_iter().enumerate();
                let made = items.map(|(index, item)| read(format!("{path}[{index}]"), item));
                made.collect()
            }
            other => Err(self.wrong(field, "a list", &other)),
        }
    }

    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() {
            return field.to_owned();
        }
        format!("{}.{field}", self.path)
    }
}

/// Reads an object at a path, and every field of it.
pub(crate) fn read_whole<T>(
    path: String,
    value: Value,
    read: impl FnOnce(&mut Fields) -> Result<T, RecordError>,
) -> Result<T, RecordError> {
    let mut fields = Fields::of(path, value)?;
    let made = read(&mut fields)?;
    fields.finish()?;
    Ok(made)
}

/// Says that the value at a path is another than it can be.
pub(crate) fn wrong(path: String, expected: &'static str, value: &Value) -> RecordError {
    let field = if path.is_empty() {
        "the record".to_owned()
    } else {
        path
    };
    RecordError::Type {
        field,
        expected,
        actual: value.to_string().chars().take(80).collect(),
    }
}
