//! Strict reading of the fields of one canonical JSON record.
//!
//! Invariants:
//! - every field is taken exactly once, by name and type; what is left over is refused by `finish`;
//! - an error names the field by its path (`entries[3].slot`), what was expected and what is there.
//!
//! Never: a default for an absent field, a number from a text, a second spelling. The formats are
//! specified in `docs/format/`.

use packhouse_base::canonical::{self, CanonicalError};
use packhouse_base::digest::{Digest, DigestError};
use serde_json::{Map, Value};

/// Why bytes are no record of the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Not canonical JSON at all.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// The record names another schema or version.
    #[error("schema: expected {expected:?}, found {actual:?}")]
    Schema {
        /// The schema that this reader knows.
        expected: &'static str,
        /// The schema in the record.
        actual: String,
    },
    /// A field is absent.
    #[error("{field}: absent")]
    Absent {
        /// Path of the field.
        field: String,
    },
    /// A field that the schema does not have.
    #[error("{field}: unknown field, value {actual}")]
    Unknown {
        /// Path of the field.
        field: String,
        /// Its value, cut to 80 characters.
        actual: String,
    },
    /// A field of the wrong type.
    #[error("{field}: expected {expected}, found {actual}")]
    WrongType {
        /// Path of the field.
        field: String,
        /// The type or value wanted.
        expected: &'static str,
        /// The value present, cut to 80 characters.
        actual: String,
    },
    /// A text that should be a digest.
    #[error("{field}: {source}")]
    Digest {
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        source: DigestError,
    },
}

/// The fields of one JSON object that are not taken yet.
pub struct Fields {
    path: String,
    left: Map<String, Value>,
}

impl Fields {
    /// Parses a whole record. Errors on non-canonical bytes, on anything but an object, and on a
    /// `schema` field other than the one given.
    pub fn parse(bytes: &[u8], schema: &'static str) -> Result<Self, FieldError> {
        let mut fields = Self::of(String::new(), canonical::parse(bytes)?)?;
        let actual = fields.text("schema")?;
        if actual == schema {
            return Ok(fields);
        }
        Err(FieldError::Schema {
            expected: schema,
            actual: cut(actual),
        })
    }

    /// Takes a text field.
    pub fn text(&mut self, field: &str) -> Result<String, FieldError> {
        match self.take(field)? {
            Value::String(text) => Ok(text),
            other => Err(self.wrong_type(field, "text", &other)),
        }
    }

    /// Takes a non-negative integer.
    pub fn integer(&mut self, field: &str) -> Result<u64, FieldError> {
        let value = self.take(field)?;
        integer_of(&self.path_of(field), &value)
    }

    /// Takes a signed integer.
    pub fn signed(&mut self, field: &str) -> Result<i64, FieldError> {
        let value = self.take(field)?;
        value
            .as_i64()
            .ok_or_else(|| self.wrong_type(field, "a signed 64-bit integer", &value))
    }

    /// Takes a 32-bit integer.
    pub fn integer32(&mut self, field: &str) -> Result<u32, FieldError> {
        let value = self.take(field)?;
        value
            .as_u64()
            .and_then(|wide| u32::try_from(wide).ok())
            .ok_or_else(|| self.wrong_type(field, "a 32-bit integer", &value))
    }

    /// Takes a 32-bit integer, or null for none.
    pub fn optional_integer32(&mut self, field: &str) -> Result<Option<u32>, FieldError> {
        if self.left.get(field) == Some(&Value::Null) {
            self.left.remove(field);
            return Ok(None);
        }
        self.integer32(field).map(Some)
    }

    /// Takes a digest of 64 hex digits.
    pub fn digest(&mut self, field: &str) -> Result<Digest, FieldError> {
        let text = self.text(field)?;
        Digest::parse(&text).map_err(|source| FieldError::Digest {
            field: self.path_of(field),
            source,
        })
    }

    /// Takes a nested object.
    pub fn object(&mut self, field: &str) -> Result<Self, FieldError> {
        let value = self.take(field)?;
        Self::of(self.path_of(field), value)
    }

    /// Takes a list of objects.
    pub fn objects(&mut self, field: &str) -> Result<Vec<Self>, FieldError> {
        let path = self.path_of(field);
        self.list(field)?
            .into_iter()
            .enumerate()
            .map(|(index, item)| Self::of(format!("{path}[{index}]"), item))
            .collect()
    }

    /// Takes a list of non-negative integers.
    pub fn integers(&mut self, field: &str) -> Result<Vec<u64>, FieldError> {
        let path = self.path_of(field);
        self.list(field)?
            .iter()
            .enumerate()
            .map(|(index, item)| integer_of(&format!("{path}[{index}]"), item))
            .collect()
    }

    /// Takes every field that is left, each as a non-negative integer, sorted by name.
    pub(crate) fn rest_as_integers(self) -> Result<Vec<(String, u64)>, FieldError> {
        let path = self.path;
        self.left
            .into_iter()
            .map(|(name, value)| {
                let integer = integer_of(&join(&path, &name), &value)?;
                Ok((name, integer))
            })
            .collect()
    }

    /// Ends the record. Errors on the first field that nobody took.
    pub fn finish(self) -> Result<(), FieldError> {
        match self.left.iter().next() {
            None => Ok(()),
            Some((name, value)) => Err(FieldError::Unknown {
                field: self.path_of(name),
                actual: cut(value.to_string()),
            }),
        }
    }

    /// The path of a field, for an error of the caller's own.
    pub fn path_of(&self, field: &str) -> String {
        join(&self.path, field)
    }

    fn of(path: String, value: Value) -> Result<Self, FieldError> {
        match value {
            Value::Object(left) => Ok(Self { path, left }),
            other => {
                let field = if path.is_empty() {
                    "record".into()
                } else {
                    path
                };
                Err(wrong_type(field, "an object", &other))
            }
        }
    }

    fn list(&mut self, field: &str) -> Result<Vec<Value>, FieldError> {
        match self.take(field)? {
            Value::Array(items) => Ok(items),
            other => Err(self.wrong_type(field, "a list", &other)),
        }
    }

    fn take(&mut self, field: &str) -> Result<Value, FieldError> {
        self.left.remove(field).ok_or_else(|| FieldError::Absent {
            field: self.path_of(field),
        })
    }

    fn wrong_type(&self, field: &str, expected: &'static str, actual: &Value) -> FieldError {
        wrong_type(self.path_of(field), expected, actual)
    }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

fn integer_of(field: &str, value: &Value) -> Result<u64, FieldError> {
    value
        .as_u64()
        .ok_or_else(|| wrong_type(field.to_owned(), "a non-negative integer", value))
}

fn wrong_type(field: String, expected: &'static str, actual: &Value) -> FieldError {
    FieldError::WrongType {
        field,
        expected,
        actual: cut(actual.to_string()),
    }
}

/// Cuts a foreign text to what an error line can hold.
pub(crate) fn cut(text: String) -> String {
    if text.chars().count() <= ERROR_TEXT_CHARS {
        return text;
    }
    text.chars().take(ERROR_TEXT_CHARS).collect::<String>() + "..."
}

const ERROR_TEXT_CHARS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "packhouse/test/1";

    fn parse(text: &str) -> Result<(u64, Vec<u64>), FieldError> {
        let mut fields = Fields::parse(text.as_bytes(), SCHEMA)?;
        let mut inner = fields.object("inner")?;
        let values = (inner.integer("a")?, inner.integers("list")?);
        inner.finish()?;
        fields.finish()?;
        Ok(values)
    }

    #[test]
    fn each_wrong_form_is_refused_with_its_path_and_value() {
        let good = r#"{"inner":{"a":1,"list":[2]},"schema":"packhouse/test/1"}"#;
        assert_eq!(parse(&format!("{good}\n")), Ok((1, vec![2])));
        let wrong = [
            (r#"[1]"#, "record: expected an object, found [1]"),
            (
                r#"{"inner":{"a":1,"list":[]},"schema":"packhouse/test/2"}"#,
                r#"schema: expected "packhouse/test/1", found "packhouse/test/2""#,
            ),
            (r#"{"schema":"packhouse/test/1"}"#, "inner: absent"),
            (
                r#"{"inner":{"a":-1,"list":[]},"schema":"packhouse/test/1"}"#,
                "inner.a: expected a non-negative integer, found -1",
            ),
            (
                r#"{"inner":{"a":1,"list":["x"]},"schema":"packhouse/test/1"}"#,
                r#"inner.list[0]: expected a non-negative integer, found "x""#,
            ),
            (
                r#"{"inner":{"a":1,"b":7,"list":[]},"schema":"packhouse/test/1"}"#,
                "inner.b: unknown field, value 7",
            ),
        ];
        for (text, message) in wrong {
            let error = parse(&format!("{text}\n")).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }
}
