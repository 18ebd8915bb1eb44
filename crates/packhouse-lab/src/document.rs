//! Strict reading of a lab's TOML documents: each field exactly once, none left over, none made up.
//!
//! Invariants: text is UTF-8 and TOML 1.0; numbers are integers; a date or a fraction is of no type
//! that a document has. Specified in `docs/format/lab.md`.

use crate::nearest::nearest;
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Why bytes are no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Longer than [`DOCUMENT_BYTES_MAX`].
    #[error("document of {actual} bytes, at most {DOCUMENT_BYTES_MAX} are read")]
    TooLong {
        /// Bytes present.
        actual: usize,
    },
    /// Not UTF-8.
    #[error("line {line}: not UTF-8")]
    NotText {
        /// The line, from 1.
        line: usize,
    },
    /// Not TOML, or not the JSON of a packet or marker.
    #[error("not {form}: {reason}")]
    Syntax {
        /// What it should be.
        form: &'static str,
        /// What the parser said.
        reason: String,
    },
    /// A field is absent.
    #[error("{field}: absent{}", said_strangers(.strangers))]
    Absent {
        /// Path of the field.
        field: String,
        /// Fields of the same table that no document has: one of them may be it, misspelt.
        strangers: Vec<Stranger>,
    },
    /// A field that the document does not have.
    #[error("{}: unknown field{}", .0.field, meant(.0))]
    Unknown(Stranger),
    /// A field of another type, or with a value that it can't have.
    #[error("{field}: expected {expected}, found {actual}")]
    Wrong {
        /// Path of the field.
        field: String,
        /// What it can be.
        expected: String,
        /// What it is, cut to 80 characters.
        actual: String,
    },
    /// A list has something twice.
    #[error("{field}: {value} twice")]
    Twice {
        /// Path of the field.
        field: String,
        /// What is there twice.
        value: String,
    },
    /// Fields that contradict each other.
    #[error("{field}: {why}")]
    Rule {
        /// Path of the field.
        field: String,
        /// What it contradicts.
        why: String,
    },
}

/// A field that no document has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Its path.
    pub field: String,
    /// The field of its table that it may be, misspelt.
    pub meant: Option<&'static str>,
}

/// The longest document that is read, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;

impl DocumentError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::TooLong { .. }
            | Self::NotText { .. }
            | Self::Syntax { .. }
            | Self::Absent { .. }
            | Self::Unknown(_)
            | Self::Wrong { .. }
            | Self::Twice { .. }
            | Self::Rule { .. } => Blame::Source,
        }
    }
}

/// The fields of one table that are not taken yet.
pub(crate) struct Fields {
    path: String,
    left: Table,
    known: &'static [&'static str],
}

impl Fields {
    /// Reads a whole document that can have these fields. Errors on what is no TOML and on another
    /// schema.
    pub(crate) fn parse(
        bytes: &[u8],
        schema: &str,
        known: &'static [&'static str],
    ) -> Result<Self, DocumentError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLong {
                actual: bytes.len(),
            });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| DocumentError::NotText {
            line: 1 + count_lines(&bytes[..error.valid_up_to()]),
        })?;
        let left: Table = text
            .parse()
            .map_err(|error: toml::de::Error| DocumentError::Syntax {
                form: "TOML",
                reason: said(text, &error),
            })?;
        let mut fields = Self {
            path: String::new(),
            left,
            known,
        };
        fields.word("schema", schema, |found| found == schema)?;
        Ok(fields)
    }

    /// Reads a whole record in canonical JSON. Errors on another spelling, null and another schema.
    pub(crate) fn parse_json(bytes: &[u8], schema: &str) -> Result<Self, DocumentError> {
        let syntax = |reason: String| DocumentError::Syntax {
            form: "canonical JSON",
            reason,
        };
        let json = canonical::parse(bytes).map_err(|error| syntax(error.to_string()))?;
        let value = Value::try_from(json).map_err(|error| syntax(error.to_string()))?;
        let mut fields = Self::of(String::new(), value)?;
        fields.word("schema", schema, |found| found == schema)?;
        Ok(fields)
    }

    /// Says which fields the table can have, so that what is misspelt is told by its name where a
    /// field is absent.
    pub(crate) fn can_be(&mut self, known: &'static [&'static str]) {
        self.known = known;
    }

    /// A digest.
    pub(crate) fn digest(&mut self, field: &str) -> Result<Digest, DocumentError> {
        self.one_of(field, "64 lower-case hex digits", |text| {
            Digest::parse(text).ok()
        })
    }

    /// A text that says something.
    pub(crate) fn text(&mut self, field: &str) -> Result<String, DocumentError> {
        self.word(field, "a text that is not empty", is_said)
    }

    /// A text that `is_good` holds of.
    pub(crate) fn word(
        &mut self,
        field: &str,
        expected: &str,
        is_good: impl Fn(&str) -> bool,
    ) -> Result<String, DocumentError> {
        let path = self.path_of(field);
        word_of(&path, self.take(field)?, expected, is_good)
    }

    /// A text that `read` makes something of.
    pub(crate) fn one_of<T>(
        &mut self,
        field: &str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, DocumentError> {
        let value = self.take(field)?;
        let found = value.as_str().and_then(&read);
        found.ok_or_else(|| wrong(&self.path_of(field), expected, &value))
    }

    /// An integer within bounds, both included.
    pub(crate) fn integer(
        &mut self,
        field: &str,
        (least, most): (u64, u64),
    ) -> Result<u64, DocumentError> {
        let value = self.take(field)?;
        integer_of(&self.path_of(field), &value, (least, most))
    }

    /// An integer within bounds, or `None` where it is absent.
    pub(crate) fn optional_integer(
        &mut self,
        field: &str,
        bounds: (u64, u64),
    ) -> Result<Option<u64>, DocumentError> {
        match self.left.contains_key(field) {
            true => self.integer(field, bounds).map(Some),
            false => Ok(None),
        }
    }

    /// A list of integers within bounds, none of them twice.
    pub(crate) fn integers(
        &mut self,
        field: &str,
        bounds: (u64, u64),
    ) -> Result<Vec<u64>, DocumentError> {
        let list = self.list(field, |path, value| integer_of(&path, &value, bounds))?;
        self.distinct(field, list)
    }

    /// A list of texts that `is_good` holds of.
    pub(crate) fn words(
        &mut self,
        field: &str,
        expected: &str,
        is_good: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, DocumentError> {
        self.list(field, |path, value| {
            word_of(&path, value, expected, &is_good)
        })
    }

    /// A list of texts that `is_good` holds of, none of them twice.
    pub(crate) fn distinct_words(
        &mut self,
        field: &str,
        expected: &str,
        is_good: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, DocumentError> {
        let list = self.words(field, expected, is_good)?;
        self.distinct(field, list)
    }

    /// A table of names, each with a text.
    pub(crate) fn word_map(
        &mut self,
        field: &str,
        (name, is_name): (&str, impl Fn(&str) -> bool),
        (expected, is_good): (&str, impl Fn(&str) -> bool),
    ) -> Result<BTreeMap<String, String>, DocumentError> {
        let path = self.path_of(field);
        let value = self.take(field)?;
        let fields = Self::of(path.clone(), value)?;
        let mut map = BTreeMap::new();
        for (key, value) in fields.left {
            if !is_name(&key) {
                return Err(wrong(&path, name, &Value::String(key)));
            }
            let at = format!("{path}.{key}");
            map.insert(key, word_of(&at, value, expected, &is_good)?);
        }
        Ok(map)
    }

    /// One table, read whole.
    pub(crate) fn table<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Fields) -> Result<T, DocumentError>,
    ) -> Result<T, DocumentError> {
        let path = self.path_of(field);
        read_whole(path, self.take(field)?, &read)
    }

    /// One table, read whole, or `None` where it is absent.
    pub(crate) fn optional_table<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Fields) -> Result<T, DocumentError>,
    ) -> Result<Option<T>, DocumentError> {
        match self.left.contains_key(field) {
            true => self.table(field, read).map(Some),
            false => Ok(None),
        }
    }

    /// A list of tables, each read whole; it must be there.
    pub(crate) fn all_tables<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Fields) -> Result<T, DocumentError>,
    ) -> Result<Vec<T>, DocumentError> {
        self.list(field, |path, value| read_whole(path, value, &read))
    }

    /// A list of tables, each read whole; empty where it is absent.
    pub(crate) fn tables<T>(
        &mut self,
        field: &str,
        read: impl Fn(&mut Fields) -> Result<T, DocumentError>,
    ) -> Result<Vec<T>, DocumentError> {
        match self.left.contains_key(field) {
            true => self.list(field, |path, value| read_whole(path, value, &read)),
            false => Ok(Vec::new()),
        }
    }

    /// Refuses what is left over.
    pub(crate) fn finish(self) -> Result<(), DocumentError> {
        match self.left.keys().next() {
            Some(field) => Err(DocumentError::Unknown(self.stranger(field))),
            None => Ok(()),
        }
    }

    /// The path of a field, for messages.
    pub(crate) fn path_of(&self, field: &str) -> String {
        match self.path.as_str() {
            "" => field.to_owned(),
            path => format!("{path}.{field}"),
        }
    }

    fn of(path: String, value: Value) -> Result<Self, DocumentError> {
        match value {
            Value::Table(left) => Ok(Self {
                path,
                left,
                known: &[],
            }),
            other => Err(wrong(&path, "a table", &other)),
        }
    }

    fn list<T>(
        &mut self,
        field: &str,
        read: impl Fn(String, Value) -> Result<T, DocumentError>,
    ) -> Result<Vec<T>, DocumentError> {
        let path = self.path_of(field);
        match self.take(field)? {
            Value::Array(items) if items.len() > ITEMS_MAX => Err(wrong(
                &path,
                &format!("at most {ITEMS_MAX} entries"),
                &Value::Integer(i64::try_from(items.len()).unwrap_or(i64::MAX)),
            )),
            Value::Array(items) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| read(format!("{path}[{index}]"), item))
                .collect(),
            other => Err(wrong(&path, "a list", &other)),
        }
    }

    fn distinct<T: ToString>(&self, field: &str, list: Vec<T>) -> Result<Vec<T>, DocumentError> {
        let texts = list.iter().map(ToString::to_string);
        distinct(&self.path_of(field), texts)?;
        Ok(list)
    }

    fn take(&mut self, field: &str) -> Result<Value, DocumentError> {
        let value = self.left.remove(field);
        value.ok_or_else(|| {
            // Without a list of them every field could be read later.
            let strangers = self
                .left
                .keys()
                .filter(|name| !self.known.is_empty() && !self.known.contains(&name.as_str()));
            DocumentError::Absent {
                field: self.path_of(field),
                strangers: strangers.map(|name| self.stranger(name)).collect(),
            }
        })
    }

    fn stranger(&self, name: &str) -> Stranger {
        Stranger {
            field: self.path_of(name),
            meant: nearest(name, self.known.iter().copied()),
        }
    }
}

fn said_strangers(strangers: &[Stranger]) -> String {
    let all = strangers.iter().take(STRANGERS_MAX);
    let said = all.map(|one| format!("; {} is no field{}", one.field, meant(one)));
    said.collect()
}

fn meant(stranger: &Stranger) -> String {
    let meant = stranger
        .meant
        .map(|meant| format!(", did you mean {meant}?"));
    meant.unwrap_or_default()
}

/// Refuses a list that has something twice.
pub(crate) fn distinct<T: Ord + ToString>(
    field: &str,
    list: impl Iterator<Item = T>,
) -> Result<(), DocumentError> {
    let mut sorted: Vec<T> = list.collect();
    sorted.sort();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(DocumentError::Twice {
            field: field.to_owned(),
            value: pair[0].to_string(),
        }),
        None => Ok(()),
    }
}

/// Whether a text says something.
pub(crate) fn is_said(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= TEXT_BYTES_MAX
}

pub(crate) fn rule(field: impl Into<String>, why: impl Into<String>) -> DocumentError {
    DocumentError::Rule {
        field: field.into(),
        why: why.into(),
    }
}

fn read_whole<T>(
    path: String,
    value: Value,
    read: &impl Fn(&mut Fields) -> Result<T, DocumentError>,
) -> Result<T, DocumentError> {
    let mut fields = Fields::of(path, value)?;
    let result = read(&mut fields)?;
    fields.finish()?;
    Ok(result)
}

fn word_of(
    path: &str,
    value: Value,
    expected: &str,
    is_good: impl Fn(&str) -> bool,
) -> Result<String, DocumentError> {
    match value {
        Value::String(word) if is_good(&word) => Ok(word),
        other => Err(wrong(path, expected, &other)),
    }
}

fn integer_of(path: &str, value: &Value, (least, most): (u64, u64)) -> Result<u64, DocumentError> {
    let integer = value
        .as_integer()
        .and_then(|value| u64::try_from(value).ok());
    let within = integer.filter(|integer| (least..=most).contains(integer));
    within.ok_or_else(|| wrong(path, &format!("an integer from {least} to {most}"), value))
}

fn wrong(path: &str, expected: &str, value: &Value) -> DocumentError {
    DocumentError::Wrong {
        field: path.to_owned(),
        expected: expected.to_owned(),
        actual: shown(value).chars().take(80).collect(),
    }
}

/// A value in a few words.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(integer) => integer.to_string(),
        Value::Float(float) => format!("{float:?}"),
        Value::Boolean(boolean) => boolean.to_string(),
        Value::Datetime(datetime) => datetime.to_string(),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Table(fields) => format!("a table of {}", fields.len()),
    }
}

fn count_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// What the parser said, in one line, with the line that it said it of.
fn said(text: &str, error: &toml::de::Error) -> String {
    let reason = error.message().replace('\n', ", ");
    match error.span() {
        Some(span) => {
            let before = text.as_bytes().get(..span.start).unwrap_or_default();
            format!("line {}: {reason}", 1 + count_lines(before))
        }
        None => reason,
    }
}

const TEXT_BYTES_MAX: usize = 4096;
const ITEMS_MAX: usize = 1024;
const STRANGERS_MAX: usize = 8;
