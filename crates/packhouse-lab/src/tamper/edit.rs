//! Changes of evidence, and edits of the records in it.

use crate::verify::Evidence;
use packhouse_base::canonical::render;
use serde_json::{Value, json};
use std::sync::Arc;

/// One change of a copy.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A file has these bytes.
    Put(String, Arc<[u8]>),
    /// A file is not there.
    Remove(String),
    /// A link is in a file's place.
    Link(String),
    /// Lines of a file are others.
    Lines {
        /// The file.
        path: String,
        /// The first line, from 0.
        first: usize,
        /// How many go.
        count: usize,
        /// What comes.
        lines: Vec<Vec<u8>>,
    },
    /// The ledger has these bytes.
    Ledger(Arc<[u8]>),
}

impl Change {
    /// A record in the place of another.
    pub(super) fn put(path: &str, bytes: Vec<u8>) -> Self {
        Self::Put(path.to_owned(), bytes.into())
    }

    /// A line in the place of another.
    pub(super) fn line(path: &str, number: usize, line: Vec<u8>) -> Self {
        Self::lines(path, number, 1, vec![line])
    }

    /// Lines in the place of others.
    pub(super) fn lines(path: &str, first: usize, count: usize, lines: Vec<Vec<u8>>) -> Self {
        Self::Lines {
            path: path.to_owned(),
            first,
            count,
            lines,
        }
    }

    /// Whether evidence is another one with it.
    pub(super) fn changes(&self, evidence: &Evidence) -> bool {
        match self {
            Self::Put(path, bytes) => evidence.files.get(path) != Some(&**bytes),
            Self::Remove(path) => evidence.files.get(path).is_some(),
            Self::Link(_) => true,
            Self::Lines {
                path,
                first,
                count,
                lines,
            } => {
                let all = split(evidence.files.get(path).unwrap_or_default());
                let old = all.iter().skip(*first).take(*count);
                !old.eq(lines)
            }
            Self::Ledger(bytes) => evidence.ledger.as_ref() != Some(bytes),
        }
    }

    /// Makes the change.
    pub(super) fn apply(&self, evidence: &mut Evidence) {
        match self {
            Self::Put(path, bytes) => evidence.files.insert(path.clone(), Arc::clone(bytes)),
            Self::Remove(path) => {
                evidence.files.remove(path);
            }
            Self::Link(path) => {
                evidence.files.remove(path);
                evidence.links.insert(path.clone());
            }
            Self::Lines {
                path,
                first,
                count,
                lines,
            } => {
                let bytes = evidence.files.get(path).unwrap_or_default();
                let mut all = split(bytes);
                let end = (first + count).min(all.len());
                all.splice((*first).min(end)..end, lines.iter().cloned());
                evidence.files.insert(path.clone(), all.concat());
            }
            Self::Ledger(bytes) => evidence.ledger = Some(Arc::clone(bytes)),
        }
    }
}

/// The lines of a file, each with its LF.
pub(super) fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

/// A place in a record: names and indexes from the outside in.
pub(super) type Place = Vec<Step>;

/// One step into a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A field.
    Field(String),
    /// An entry of a list.
    Index(usize),
}

/// Every field of a record; of the first entry only of each list, and of each object at a place of
/// `free`, which may have any field.
pub(super) fn places(value: &Value, free: &[&str]) -> Vec<Place> {
    let mut places = Vec::new();
    walk(value, free, &mut Vec::new(), &mut places);
    places
}

fn walk(value: &Value, free: &[&str], at: &mut Place, places: &mut Vec<Place>) {
    match value {
        Value::Object(fields) => {
            let is_free = free.contains(&in_words(at).as_str());
            let most = if is_free { 1 } else { fields.len() };
            for (name, inner) in fields.iter().take(most) {
                at.push(Step::Field(name.clone()));
                places.push(at.clone());
                walk(inner, free, at, places);
                at.pop();
            }
        }
        Value::Array(items) => {
            if let Some(first) = items.first() {
                at.push(Step::Index(0));
                walk(first, free, at, places);
                at.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A place in words, `programs[].objects[].sha256`.
pub(super) fn in_words(place: &[Step]) -> String {
    let mut words = String::new();
    for step in place {
        match step {
            Step::Field(name) if words.is_empty() => words.push_str(name),
            Step::Field(name) => {
                words.push('.');
                words.push_str(name);
            }
            Step::Index(_) => words.push_str("[]"),
        }
    }
    words
}

/// What is at a place.
pub(super) fn at<'v>(value: &'v Value, place: &[Step]) -> Option<&'v Value> {
    place.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Index(index) => value.get(index),
    })
}

/// The record with another value at a place.
pub(super) fn with(value: &Value, place: &[Step], new: Value) -> Value {
    let mut copy = value.clone();
    let found = place.iter().try_fold(&mut copy, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Index(index) => value.get_mut(index),
    });
    if let Some(found) = found {
        *found = new;
    }
    copy
}

/// The record without a field.
pub(super) fn without(value: &Value, place: &[Step]) -> Value {
    let Some((Step::Field(name), above)) = place.split_last() else {
        return value.clone();
    };
    let mut inner = at(value, above).cloned().unwrap_or_default();
    if let Value::Object(fields) = &mut inner {
        fields.remove(name);
    }
    with(value, above, inner)
}

/// The record with a field more in an object.
pub(super) fn with_field(value: &Value, place: &[Step], name: &str, new: Value) -> Value {
    let mut inner = at(value, place).cloned().unwrap_or_default();
    if let Value::Object(fields) = &mut inner {
        fields.insert(name.to_owned(), new);
    }
    with(value, place, inner)
}

/// Another value of the same type, as near as can be.
pub(super) fn changed(value: &Value) -> Value {
    match value {
        Value::Null => json!("tampered"),
        Value::Bool(is_so) => json!(!is_so),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => json!(number.wrapping_add(1)),
            (None, Some(number)) => json!(number.wrapping_add(1)),
            (None, None) => json!(0),
        },
        Value::String(text) => json!(other_text(text)),
        Value::Array(items) => {
            let mut items = items.clone();
            if items.pop().is_none() {
                items.push(json!("tampered"));
            }
            Value::Array(items)
        }
        Value::Object(fields) => {
            let mut fields = fields.clone();
            let first = fields.keys().next().cloned();
            match first {
                Some(first) => {
                    fields.remove(&first);
                }
                None => {
                    fields.insert("tampered".to_owned(), json!(1));
                }
            }
            Value::Object(fields)
        }
    }
}

/// A digest with another last digit, a closed word's neighbour, or a text that goes on.
fn other_text(text: &str) -> String {
    let is_digest = packhouse_base::digest::Digest::parse(text).is_ok();
    if is_digest {
        let (front, last) = text.split_at(text.len() - 1);
        return format!("{front}{}", if last == "0" { "1" } else { "0" });
    }
    let pairs = [
        ("run", "rehearsal"),
        ("complete", "failed"),
        ("exact", "timing"),
        ("control", "candidate"),
        ("pass", "fail"),
        ("abort", "fail"),
        ("broken", "failed"),
        ("killed", "code 0"),
        ("verified", "attested"),
        ("mixed", "verified"),
        ("code 0", "code 1"),
        ("idle", "capturing"),
        ("f32", "i32"),
        ("bf16", "f16"),
        ("u8", "i8"),
        ("component", "controller"),
        ("ext4", "xfs"),
        ("overlayfs", "ext4"),
    ];
    for (one, other) in pairs {
        if text == one {
            return other.to_owned();
        }
        if text == other {
            return one.to_owned();
        }
    }
    format!("{text}-tampered")
}

/// The bytes of a record.
pub(super) fn bytes(value: &Value) -> Vec<u8> {
    render(value)
}

/// A record's value; none where it is none.
pub(super) fn value(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok()
}
