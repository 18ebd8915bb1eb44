//! Reads records into fields: exactly those that the format has, each of its type.
//!
//! Whatever is wrong becomes a finding, and the reader gets `None`.

use crate::json::{Json, Map, parse};
use crate::report::Report;
use crate::tree::{Entry, Tree};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the SHA-256 in 64 lower-case hex digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns bytes in lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads 64 lower-case hex digits.
pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    if !is_digest(text) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Returns whether a text is a digest.
pub(crate) fn is_digest(text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(is_hex)
}

/// Returns a text of at most some characters, for words.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A record that is being read: its path, and where findings go.
pub(crate) struct Record<'r> {
    /// The report that gets the findings.
    pub(crate) report: &'r mut Report,
    /// The file, with a line where it has several.
    pub(crate) path: String,
}

impl<'r> Record<'r> {
    /// Begins to read a record.
    pub(crate) fn new(report: &'r mut Report, path: impl Into<String>) -> Self {
        Self {
            report,
            path: path.into(),
        }
    }

    /// Adds a finding about this record.
    pub(crate) fn find(&mut self, code: &'static str, words: impl Into<String>) {
        self.report.find(code, &self.path, words);
    }

    /// Takes an object that has all required fields and no other but optional ones.
    pub(crate) fn fields<'a>(
        &mut self,
        value: &'a Json,
        at: &str,
        required: &[&str],
        optional: &[&str],
    ) -> Option<&'a Map> {
        let at = if at.is_empty() { "the record" } else { at };
        let Json::Object(map) = value else {
            self.find(
                "record.type",
                format!("{at} is {}, not an object", value.kind()),
            );
            return None;
        };
        let mut is_whole = true;
        for name in required.iter().filter(|name| !map.contains_key(**name)) {
            self.find("record.missing-field", format!("{at} has no `{name}`"));
            is_whole = false;
        }
        for name in map.keys() {
            if !required.contains(&name.as_str()) && !optional.contains(&name.as_str()) {
                let words = format!("{at} has an unknown field {}", short(name));
                self.find("record.unknown-field", words);
                is_whole = false;
            }
        }
        is_whole.then_some(map)
    }

    fn wrong(&mut self, name: &str, expected: &str, value: Option<&Json>) {
        let is = match value {
            Some(Json::Text(text)) => short(text),
            Some(Json::Integer(integer)) => integer.to_string(),
            Some(other) => other.kind().to_owned(),
            None => "missing".to_owned(),
        };
        self.find("record.type", format!("`{name}` is {is}, not {expected}"));
    }

    /// Takes a text.
    pub(crate) fn text(&mut self, map: &Map, name: &str) -> Option<String> {
        match map.get(name) {
            Some(Json::Text(text)) => Some(text.clone()),
            other => {
                self.wrong(name, "text", other);
                None
            }
        }
    }

    /// Takes a text that isn't empty.
    pub(crate) fn some_text(&mut self, map: &Map, name: &str) -> Option<String> {
        let text = self.text(map, name)?;
        if text.is_empty() {
            self.find("record.type", format!("`{name}` is empty"));
            return None;
        }
        Some(text)
    }

    /// Takes a text of a form.
    pub(crate) fn formed(
        &mut self,
        map: &Map,
        name: &str,
        form: &str,
        is: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let text = self.text(map, name)?;
        if is(&text) {
            return Some(text);
        }
        self.wrong(name, form, map.get(name));
        None
    }

    /// Takes an integer of a range.
    pub(crate) fn within(&mut self, map: &Map, name: &str, least: u64, most: u64) -> Option<u64> {
        let integer = self.integer(map, name)?;
        if (least..=most).contains(&integer) {
            return Some(integer);
        }
        self.wrong(name, &format!("from {least} to {most}"), map.get(name));
        None
    }

    /// Refuses texts that are not of a form, or there twice, or too many.
    pub(crate) fn distinct(
        &mut self,
        name: &str,
        texts: &[String],
        is: impl Fn(&str) -> bool,
    ) -> Option<()> {
        let distinct: BTreeSet<&String> = texts.iter().collect();
        let is_list = distinct.len() == texts.len() && texts.len() <= 1024;
        if is_list && texts.iter().all(|text| is(text)) {
            return Some(());
        }
        let words = format!("`{name}` has what is not of its form, or something twice");
        self.find("record.type", words);
        None
    }

    /// Takes a list of texts of a form, not empty, none twice.
    pub(crate) fn names(
        &mut self,
        map: &Map,
        name: &str,
        is: impl Fn(&str) -> bool,
    ) -> Option<Vec<String>> {
        let texts = self.texts(map, name)?;
        if texts.is_empty() {
            self.find("record.type", format!("`{name}` is an empty list"));
            return None;
        }
        self.distinct(name, &texts, is)?;
        Some(texts)
    }

    /// Takes a text that must be one of some words.
    pub(crate) fn word(&mut self, map: &Map, name: &str, words: &[&str]) -> Option<String> {
        let text = self.text(map, name)?;
        if words.contains(&text.as_str()) {
            return Some(text);
        }
        self.wrong(name, &format!("one of {}", words.join(", ")), map.get(name));
        None
    }

    /// Takes a digest.
    pub(crate) fn digest(&mut self, map: &Map, name: &str) -> Option<String> {
        match map.get(name) {
            Some(Json::Text(text)) if is_digest(text) => Some(text.clone()),
            other => {
                self.wrong(name, "a digest", other);
                None
            }
        }
    }

    /// Takes an integer of u64.
    pub(crate) fn integer(&mut self, map: &Map, name: &str) -> Option<u64> {
        let integer = match map.get(name) {
            Some(Json::Integer(integer)) => u64::try_from(*integer).ok(),
            _ => None,
        };
        if integer.is_none() {
            self.wrong(name, "an integer from 0", map.get(name));
        }
        integer
    }

    /// Takes an integer of i64.
    pub(crate) fn signed(&mut self, map: &Map, name: &str) -> Option<i64> {
        let integer = match map.get(name) {
            Some(Json::Integer(integer)) => i64::try_from(*integer).ok(),
            _ => None,
        };
        if integer.is_none() {
            self.wrong(name, "an integer of 64 bits with a sign", map.get(name));
        }
        integer
    }

    /// Takes a boolean.
    pub(crate) fn boolean(&mut self, map: &Map, name: &str) -> Option<bool> {
        match map.get(name) {
            Some(Json::Bool(value)) => Some(*value),
            other => {
                self.wrong(name, "a boolean", other);
                None
            }
        }
    }

    /// Takes a list.
    pub(crate) fn list<'a>(&mut self, map: &'a Map, name: &str) -> Option<&'a [Json]> {
        match map.get(name) {
            Some(Json::List(items)) => Some(items),
            other => {
                self.wrong(name, "a list", other);
                None
            }
        }
    }

    /// Takes an object with any keys.
    pub(crate) fn object<'a>(&mut self, map: &'a Map, name: &str) -> Option<&'a Map> {
        match map.get(name) {
            Some(Json::Object(map)) => Some(map),
            other => {
                self.wrong(name, "an object", other);
                None
            }
        }
    }

    /// Takes a list of texts.
    pub(crate) fn texts(&mut self, map: &Map, name: &str) -> Option<Vec<String>> {
        let items = self.list(map, name)?;
        let texts: Option<Vec<String>> = items
            .iter()
            .map(|item| match item {
                Json::Text(text) => Some(text.clone()),
                _ => None,
            })
            .collect();
        if texts.is_none() {
            self.wrong(name, "a list of texts", map.get(name));
        }
        texts
    }

    /// Takes a list of integers of u64.
    pub(crate) fn integers(&mut self, map: &Map, name: &str) -> Option<Vec<u64>> {
        let items = self.list(map, name)?;
        let integers: Option<Vec<u64>> = items
            .iter()
            .map(|item| match item {
                Json::Integer(integer) => u64::try_from(*integer).ok(),
                _ => None,
            })
            .collect();
        if integers.is_none() {
            self.wrong(name, "a list of integers from 0", map.get(name));
        }
        integers
    }

    /// Takes the field `schema`, which must be this one.
    pub(crate) fn schema(&mut self, map: &Map, schema: &str) -> Option<()> {
        self.word(map, "schema", &[schema]).map(|_| ())
    }
}

/// Returns the bytes of a file of the tree.
pub(crate) fn file<'t>(tree: &'t Tree, path: &str) -> Option<&'t Arc<[u8]>> {
    match tree.get(path) {
        Some(Entry::File(bytes)) => Some(bytes),
        Some(Entry::Link(_) | Entry::EmptyFolder | Entry::Other(_)) | None => None,
    }
}

/// Parses a file that is one canonical record.
pub(crate) fn record(report: &mut Report, tree: &Tree, path: &str) -> Option<Json> {
    let Some(bytes) = file(tree, path) else {
        report.find("record.missing", path, "the record is not there");
        return None;
    };
    match parse(bytes) {
        Ok(value) => Some(value),
        Err(words) => {
            report.find("record.not-canonical", path, words);
            None
        }
    }
}
