//! Strict reading of the fields of one message: each exactly once, none left over, none made up.

use crate::json::{self, JsonError};
use packhouse_base::{Blame, digest::Digest};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not JSON, or not as this protocol has it.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A field is absent.
    #[error("{field}: absent")]
    Absent {
        /// Path of the field.
        field: String,
    },
    /// A field that the message does not have.
    #[error("{field}: unknown field")]
    Unknown {
        /// Path of the field, whose own name is cut to 80 characters.
        field: String,
    },
    /// A field of another type, or with a value that it can't have.
    #[error("{field}: expected {expected}, found {actual}")]
    Wrong {
        /// Path of the field.
        field: String,
        /// What it can be.
        expected: &'static str,
        /// What it is, cut to 80 characters.
        actual: String,
    },
    /// A list is longer than this message may have it.
    #[error("{field}: {actual} entries, at most {max}")]
    TooMany {
        /// Path of the field.
        field: String,
        /// Entries that there are.
        actual: usize,
        /// Entries that there may be.
        max: usize,
    },
    /// A list has something twice.
    #[error("{field}: {value} twice")]
    Twice {
        /// Path of the field.
        field: String,
        /// What is there twice, cut to 80 characters.
        value: String,
    },
}

impl MessageError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Json(error) => error.blame(),
            Self::Absent { .. }
            | Self::Unknown { .. }
            | Self::Wrong { .. }
            | Self::TooMany { .. }
            | Self::Twice { .. } => Blame::Source,
        }
    }
}

/// The fields of one object that are not taken yet.
pub(crate) struct Fields {
    path: String,
    left: Map<String, Value>,
}

impl Fields {
    /// Reads a whole message.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        Self::of(String::new(), json::parse(bytes)?)
    }

    pub(crate) fn text(&mut self, field: &str) -> Result<String, MessageError> {
        let value = self.take(field)?;
        text_of(&self.path_of(field), value)
    }

    /// A text that `is_good` holds of.
    pub(crate) fn word(
        &mut self,
        field: &str,
        expected: &'static str,
        is_good: impl Fn(&str) -> bool,
    ) -> Result<String, MessageError> {
        let text = self.text(field)?;
        if is_good(&text) {
            return Ok(text);
        }
        Err(wrong(&self.path_of(field), expected, &Value::String(text)))
    }

    /// A text that `read` makes something of.
    pub(crate) fn one_of<T>(
        &mut self,
        field: &str,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, MessageError> {
        let text = self.text(field)?;
        read(&text).ok_or_else(|| wrong(&self.path_of(field), expected, &Value::String(text)))
    }

    /// As `word`, or null.
    pub(crate) fn optional_word(
        &mut self,
        field: &str,
        expected: &'static str,
        is_good: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, MessageError> {
        if self.left.get(field) == Some(&Value::Null) {
            self.left.remove(field);
            return Ok(None);
        }
        self.word(field, expected, is_good).map(Some)
    }

    pub(crate) fn integer(&mut self, field: &str) -> Result<u64, MessageError> {
        let value = self.take(field)?;
        integer_of(&self.path_of(field), &value)
    }

    /// An integer that `read` makes something of, or no such field.
    pub(crate) fn optional_integer<T>(
        &mut self,
        field: &str,
        expected: &'static str,
        read: impl Fn(u64) -> Option<T>,
    ) -> Result<Option<T>, MessageError> {
        if !self.left.contains_key(field) {
            return Ok(None);
        }
        let value = self.integer(field)?;
        let made = read(value).ok_or_else(|| self.wrong_integer(field, expected, value))?;
        Ok(Some(made))
    }

    /// What to say of an integer that the field can't have.
    pub(crate) fn wrong_integer(
        &self,
        field: &str,
        expected: &'static str,
        value: u64,
    ) -> MessageError {
        wrong(&self.path_of(field), expected, &Value::from(value))
    }

    /// Whether the field is there, as `true`: what is not so is not said.
    pub(crate) fn optional_true(&mut self, field: &str) -> Result<bool, MessageError> {
        match self.left.remove(field) {
            None => Ok(false),
            Some(Value::Bool(true)) => Ok(true),
            Some(other) => Err(wrong(
                &self.path_of(field),
                "true, or no such field",
                &other,
            )),
        }
    }

    /// As `words`, one at least, or no such field and none.
    pub(crate) fn optional_words(
        &mut self,
        field: &str,
        expected: &'static str,
        is_good: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, MessageError> {
        if !self.left.contains_key(field) {
            return Ok(Vec::new());
        }
        let words = self.words(field, expected, is_good)?;
        if words.is_empty() {
            let empty = Value::Array(Vec::new());
            return Err(wrong(
                &self.path_of(field),
                "one or more, or no such field",
                &empty,
            ));
        }
        Ok(words)
    }

    /// An object, or no such field.
    pub(crate) fn optional_object<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Fields) -> Result<T, MessageError>,
    ) -> Result<Option<T>, MessageError> {
        let Some(value) = self.left.remove(field) else {
            return Ok(None);
        };
        read_whole(self.path_of(field), value, &read).map(Some)
    }

    pub(crate) fn boolean(&mut self, field: &str) -> Result<bool, MessageError> {
        let value = self.take(field)?;
        value
            .as_bool()
            .ok_or_else(|| wrong(&self.path_of(field), "true or false", &value))
    }

    pub(crate) fn digest(&mut self, field: &str) -> Result<Digest, MessageError> {
        self.one_of(field, "64 lower-case hex digits", |text| {
            Digest::parse(text).ok()
        })
    }

    pub(crate) fn integers(&mut self, field: &str) -> Result<Vec<u64>, MessageError> {
        self.list(field, |path, value| integer_of(&path, &value))
    }

    pub(crate) fn texts(&mut self, field: &str) -> Result<Vec<String>, MessageError> {
        self.list(field, |path, value| text_of(&path, value))
    }

    /// Refuses a list that is longer; what is no list is refused where it is read.
    pub(crate) fn at_most(&self, field: &str, max: usize) -> Result<(), MessageError> {
        match self.left.get(field) {
            Some(Value::Array(items)) if items.len() > max => Err(MessageError::TooMany {
                field: self.path_of(field),
                actual: items.len(),
                max,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// A list of texts that `is_good` holds of, none of them twice.
    pub(crate) fn words(
        &mut self,
        field: &str,
        expected: &'static str,
        is_good: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, MessageError> {
        let words = self.list(field, |path, value| match value {
            Value::String(word) if is_good(&word) => Ok(word),
            other => Err(wrong(&path, expected, &other)),
        })?;
        self.distinct(field, words)
    }

    /// The list, if it has nothing twice.
    pub(crate) fn distinct<T: Ord + ToString>(
        &self,
        field: &str,
        list: Vec<T>,
    ) -> Result<Vec<T>, MessageError> {
        let mut sorted: Vec<&T> = list.iter().collect();
        sorted.sort();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(MessageError::Twice {
                field: self.path_of(field),
                value: shortened(&pair[0].to_string()),
            }),
            None => Ok(list),
        }
    }

    pub(crate) fn objects<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Fields) -> Result<T, MessageError>,
    ) -> Result<Vec<T>, MessageError> {
        self.list(field, |path, value| read_whole(path, value, &read))
    }

    /// An object of names, each with an integer.
    pub(crate) fn integer_map(
        &mut self,
        field: &str,
    ) -> Result<BTreeMap<String, u64>, MessageError> {
        self.map(field, |path, value| integer_of(&path, &value))
    }

    /// An object of names, each with an object.
    pub(crate) fn object_map<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Fields) -> Result<T, MessageError>,
    ) -> Result<BTreeMap<String, T>, MessageError> {
        self.map(field, |path, value| read_whole(path, value, &read))
    }

    /// Refuses what is left over.
    pub(crate) fn finish(self) -> Result<(), MessageError> {
        match self.left.keys().next() {
            Some(field) => Err(MessageError::Unknown {
                field: self.path_of(&shortened(field)),
            }),
            None => Ok(()),
        }
    }

    fn of(path: String, value: Value) -> Result<Self, MessageError> {
        match value {
            Value::Object(left) => Ok(Self { path, left }),
            other => Err(wrong(&path, "an object", &other)),
        }
    }

    fn map<T>(
        &mut self,
        field: &str,
        read: impl Fn(String, Value) -> Result<T, MessageError>,
    ) -> Result<BTreeMap<String, T>, MessageError> {
        let value = self.take(field)?;
        let fields = Self::of(self.path_of(field), value)?;
        let mut map = BTreeMap::new();
        for (name, value) in fields.left {
            let path = format!("{}.{name}", fields.path);
            if !crate::name::is_name(&name) {
                return Err(wrong(&fields.path, "plain names", &Value::String(name)));
            }
            map.insert(name, read(path, value)?);
        }
        Ok(map)
    }

    fn list<T>(
        &mut self,
        field: &str,
        read: impl Fn(String, Value) -> Result<T, MessageError>,
    ) -> Result<Vec<T>, MessageError> {
        let path = self.path_of(field);
        match self.take(field)? {
            Value::Array(items) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| read(format!("{path}[{index}]"), item))
                .collect(),
            other => Err(wrong(&path, "a list", &other)),
        }
    }

    fn take(&mut self, field: &str) -> Result<Value, MessageError> {
        self.left.remove(field).ok_or_else(|| MessageError::Absent {
            field: self.path_of(field),
        })
    }

    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() {
            return field.to_owned();
        }
        format!("{}.{field}", self.path)
    }
}

fn read_whole<T>(
    path: String,
    value: Value,
    read: &impl Fn(&mut Fields) -> Result<T, MessageError>,
) -> Result<T, MessageError> {
    let mut fields = Fields::of(path, value)?;
    let result = read(&mut fields)?;
    fields.finish()?;
    Ok(result)
}

fn text_of(path: &str, value: Value) -> Result<String, MessageError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(path, "a text", &other)),
    }
}

fn integer_of(path: &str, value: &Value) -> Result<u64, MessageError> {
    value
        .as_u64()
        .ok_or_else(|| wrong(path, "an integer of 0 or more", value))
}

fn wrong(path: &str, expected: &'static str, value: &Value) -> MessageError {
    let field = if path.is_empty() { "message" } else { path };
    MessageError::Wrong {
        field: field.to_owned(),
        expected,
        actual: shortened(&value.to_string()),
    }
}

/// A text of the other side, as far as a message of ours has it.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}
