//! Strict reading of one record of a run: canonical JSON, every field taken once by name and type.
//!
//! Invariants:
//! - what is left over is refused by `finish`; nothing has a default;
//! - an error names the field by its path (`devices[1].id`), what was expected and what is there.
//!
//! Never: a float, a second spelling. The formats are in `docs/format/workers.md`.

use crate::cores::CpuSet;
use crate::identity::{BootId, ProcessKey, RunId};
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_store::fields::FieldError;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// The fields of one JSON object that are not taken yet.
#[derive(Debug)]
pub struct Table {
    path: String,
    left: Map<String, Value>,
}

impl Table {
    /// Parses a whole record. Errors on bytes that are not canonical, on anything but an object,
    /// and on another schema.
    pub(crate) fn parse(bytes: &[u8], schema: &'static str) -> Result<Self, FieldError> {
        let mut table = Self::of(String::new(), canonical::parse(bytes)?)?;
        let actual = table.text("schema")?;
        if actual == schema {
            return Ok(table);
        }
        Err(FieldError::Schema {
            expected: schema,
            actual: cut(actual),
        })
    }

    /// Takes a text.
    pub(crate) fn text(&mut self, field: &str) -> Result<String, FieldError> {
        match self.take(field)? {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(field, "text", &other)),
        }
    }

    /// Takes a text, or null for none.
    pub(crate) fn optional_text(&mut self, field: &str) -> Result<Option<String>, FieldError> {
        self.optional(field, Self::text)
    }

    /// Takes a text that reads as something else, in the one spelling that this has.
    pub(crate) fn parsed<T: FromStr + Display>(
        &mut self,
        field: &str,
        expected: &'static str,
    ) -> Result<T, FieldError> {
        let text = self.text(field)?;
        let read = text.parse().ok();
        read.filter(|read: &T| read.to_string() == text)
            .ok_or_else(|| self.wrong(field, expected, &Value::String(text)))
    }

    /// Takes a non-negative integer.
    pub(crate) fn integer(&mut self, field: &str) -> Result<u64, FieldError> {
        let value = self.take(field)?;
        let integer = value.as_u64();
        integer.ok_or_else(|| self.wrong(field, "a non-negative integer", &value))
    }

    /// Takes a non-negative integer that fits a narrower type.
    pub(crate) fn narrow<T: TryFrom<u64>>(
        &mut self,
        field: &str,
        expected: &'static str,
    ) -> Result<T, FieldError> {
        let wide = self.integer(field)?;
        T::try_from(wide).map_err(|_| self.wrong(field, expected, &json!(wide)))
    }

    /// Takes a signed integer.
    pub(crate) fn signed(&mut self, field: &str) -> Result<i64, FieldError> {
        let value = self.take(field)?;
        let integer = value.as_i64();
        integer.ok_or_else(|| self.wrong(field, "a signed 64-bit integer", &value))
    }

    /// Takes a signed 32-bit integer.
    pub(crate) fn signed32(&mut self, field: &str) -> Result<i32, FieldError> {
        let wide = self.signed(field)?;
        i32::try_from(wide).map_err(|_| self.wrong(field, "a signed 32-bit integer", &json!(wide)))
    }

    /// Whether a field is there and was not taken yet.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.left.contains_key(field)
    }

    /// Takes a yes or no.
    pub(crate) fn boolean(&mut self, field: &str) -> Result<bool, FieldError> {
        let value = self.take(field)?;
        value
            .as_bool()
            .ok_or_else(|| self.wrong(field, "true or false", &value))
    }

    /// Takes a SHA-256.
    pub(crate) fn digest(&mut self, field: &str) -> Result<Digest, FieldError> {
        let text = self.text(field)?;
        Digest::parse(&text).map_err(|source| FieldError::Digest {
            field: self.path_of(field),
            source,
        })
    }

    /// Takes what identifies a process.
    pub(crate) fn key(&mut self, field: &str) -> Result<ProcessKey, FieldError> {
        let mut inner = self.table(field)?;
        let key = ProcessKey {
            boot: inner.boot("boot")?,
            pid_namespace: inner.integer("pid_namespace")?,
            pid: inner.narrow("pid", "a pid")?,
            start_ticks: inner.integer("start_ticks")?,
        };
        // Pid 0 would be this process's own group to a signal, and beyond i32 it would be negative.
        if key.pid == 0 || i32::try_from(key.pid).is_err() {
            return Err(inner.wrong("pid", "a pid", &json!(key.pid)));
        }
        inner.finish()?;
        Ok(key)
    }

    /// Takes a boot id.
    pub(crate) fn boot(&mut self, field: &str) -> Result<BootId, FieldError> {
        self.parsed(field, "a boot id")
    }

    /// Takes a run id.
    pub(crate) fn run(&mut self, field: &str) -> Result<RunId, FieldError> {
        self.parsed(field, "a run id of 32 hex digits")
    }

    /// Takes a set of cores.
    pub(crate) fn cores(&mut self, field: &str) -> Result<CpuSet, FieldError> {
        self.parsed(field, "a set of cores")
    }

    /// Takes null as none, anything else as `take` does.
    pub(crate) fn optional<T>(
        &mut self,
        field: &str,
        take: impl FnOnce(&mut Self, &str) -> Result<T, FieldError>,
    ) -> Result<Option<T>, FieldError> {
        if self.left.get(field) == Some(&Value::Null) {
            self.left.remove(field);
            return Ok(None);
        }
        take(self, field).map(Some)
    }

    /// Takes a nested object.
    pub(crate) fn table(&mut self, field: &str) -> Result<Self, FieldError> {
        let value = self.take(field)?;
        Self::of(self.path_of(field), value)
    }

    /// Takes a list of objects.
    pub(crate) fn tables(&mut self, field: &str) -> Result<Vec<Self>, FieldError> {
        let path = self.path_of(field);
        let items = self.list(field)?.into_iter().enumerate();
        items
            .map(|(index, item)| Self::of(format!("{path}[{index}]"), item))
            .collect()
    }

    /// Takes a list of texts.
    pub(crate) fn texts(&mut self, field: &str) -> Result<Vec<String>, FieldError> {
        let path = self.path_of(field);
        let items = self.list(field)?.into_iter().enumerate();
        items
            .map(|(index, item)| match item {
                Value::String(text) => Ok(text),
                other => Err(wrong_type(format!("{path}[{index}]"), "text", &other)),
            })
            .collect()
    }

    /// Takes an object whose fields are all texts.
    pub(crate) fn text_map(&mut self, field: &str) -> Result<BTreeMap<String, String>, FieldError> {
        let inner = self.table(field)?;
        let path = inner.path;
        let fields = inner.left.into_iter();
        fields
            .map(|(name, value)| match value {
                Value::String(text) => Ok((name, text)),
                other => Err(wrong_type(format!("{path}.{name}"), "text", &other)),
            })
            .collect()
    }

    /// Ends the object. Errors on the first field that nobody took.
    pub(crate) fn finish(self) -> Result<(), FieldError> {
        match self.left.iter().next() {
            None => Ok(()),
            Some((name, value)) => Err(FieldError::Unknown {
                field: self.path_of(name),
                actual: cut(value.to_string()),
            }),
        }
    }

    /// An error about a field that was taken and is not what it should be.
    pub(crate) fn wrong(&self, field: &str, expected: &'static str, actual: &Value) -> FieldError {
        wrong_type(self.path_of(field), expected, actual)
    }

    fn of(path: String, value: Value) -> Result<Self, FieldError> {
        match value {
            Value::Object(left) => Ok(Self { path, left }),
            other if path.is_empty() => Err(wrong_type("record".into(), "an object", &other)),
            other => Err(wrong_type(path, "an object", &other)),
        }
    }

    fn list(&mut self, field: &str) -> Result<Vec<Value>, FieldError> {
        match self.take(field)? {
            Value::Array(items) => Ok(items),
            other => Err(self.wrong(field, "a list", &other)),
        }
    }

    fn take(&mut self, field: &str) -> Result<Value, FieldError> {
        self.left.remove(field).ok_or_else(|| FieldError::Absent {
            field: self.path_of(field),
        })
    }

    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() {
            field.to_owned()
        } else {
            format!("{}.{field}", self.path)
        }
    }
}

fn wrong_type(field: String, expected: &'static str, actual: &Value) -> FieldError {
    FieldError::WrongType {
        field,
        expected,
        actual: cut(actual.to_string()),
    }
}

/// Cuts a foreign text to what an error line can hold.
fn cut(text: String) -> String {
    if text.chars().count() <= ERROR_TEXT_CHARS {
        return text;
    }
    text.chars().take(ERROR_TEXT_CHARS).collect::<String>() + "..."
}

const ERROR_TEXT_CHARS: usize = 80;
