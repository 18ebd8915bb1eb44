//! The component protocol, judged a second time: frames by a reader of the whole stream, JSON by
//! another parser, messages by what they are when they are written again.
//!
//! An input's first byte says what the rest is:
//! - `F`, a stream of frames; the byte behind it is the length of the pieces that it comes in;
//! - `J`, JSON;
//! - `Q` and `R`, a message of a driver and of a program.

use packhouse_component::frame::{FRAME_BYTES_MAX, Frames, encode};
use packhouse_component::json;
use packhouse_component::message::{Reply, Request};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// A judge that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Takes the last of equal keys.
    KeyTwice,
}

type Verdict = Result<(), String>;

/// Gives an input to the readers. Errors, in words, when two of them disagree.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Verdict {
    match input.split_first() {
        Some((b'F', rest)) => frames(rest),
        Some((b'J', rest)) => values(rest, mutant).map(|_| ()),
        Some((b'Q', rest)) => {
            let read = Request::parse(rest).ok().map(|request| request.render());
            messages(rest, read, mutant, |again| {
                Request::parse(again).map(|request| request.render()).ok()
            })
        }
        Some((b'R', rest)) => {
            let read = Reply::parse(rest).ok().map(|reply| reply.render());
            messages(rest, read, mutant, |again| {
                Reply::parse(again).map(|reply| reply.render()).ok()
            })
        }
        Some(_) | None => Ok(()),
    }
}

/// Frames out of pieces of one length, beside those out of the whole.
fn frames(input: &[u8]) -> Verdict {
    let Some((piece, stream)) = input.split_first() else {
        return Ok(());
    };
    let mut frames = Frames::default();
    let (mut found, mut is_refused) = (Vec::new(), false);
    'pieces: for piece in stream.chunks(usize::from(*piece).max(1)) {
        frames.push(piece);
        loop {
            match frames.next_message() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(_) => {
                    is_refused = true;
                    break 'pieces;
                }
            }
        }
    }
    let (mut expected, mut rest, mut is_bad) = (Vec::new(), stream, false);
    while let [a, b, c, d, body @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        is_bad = length == 0 || length > FRAME_BYTES_MAX;
        match body.split_at_checked(length) {
            Some((message, next)) if !is_bad => {
                expected.push(message.to_vec());
                rest = next;
            }
            Some(_) | None => break,
        }
    }
    if found != expected || is_refused != is_bad {
        return Err(format!(
            "{} frames, expected {}",
            found.len(),
            expected.len()
        ));
    }
    let again: Vec<u8> = found
        .iter()
        .filter_map(|message| encode(message).ok())
        .flatten()
        .collect();
    if !stream.starts_with(&again) {
        return Err("frames that are written otherwise".into());
    }
    Ok(())
}

/// A value by our reader, if the other reads the same or both refuse.
fn values(bytes: &[u8], mutant: Option<Mutant>) -> Result<Option<Value>, String> {
    let ours = json::parse(bytes);
    let other = serde_json::from_slice::<Strict>(bytes)
        .ok()
        .filter(|strict| {
            let is_shallow = depth(&strict.value) <= json::DEPTH_MAX;
            let may_repeat = mutant == Some(Mutant::KeyTwice);
            is_shallow && (may_repeat || !strict.has_twice) && !strict.has_float
        });
    match (ours, other) {
        (Ok(ours), Some(other)) if ours == other.value => Ok(Some(ours)),
        (Err(_), None) => Ok(None),
        (Ok(_), Some(_)) => Err("another value".into()),
        (Ok(_), None) => Err("taken, and the other refuses it".into()),
        (Err(error), Some(_)) => Err(format!("refused, and the other takes it: {error}")),
    }
}

/// A message that is read has every field of its JSON and no other, and is written in one way.
fn messages(
    bytes: &[u8],
    written: Option<Vec<u8>>,
    mutant: Option<Mutant>,
    again: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Verdict {
    let value = values(bytes, mutant)?;
    let Some(written) = written else {
        return Ok(());
    };
    if value != serde_json::from_slice(&written).ok() {
        return Err("a message that says something else when it is written".into());
    }
    if again(&written).as_ref() != Some(&written) {
        return Err("a message that is not read back".into());
    }
    Ok(())
}

/// How deep arrays and objects nest.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// A value by the other parser, which tells what it usually passes over.
struct Strict {
    value: Value,
    has_twice: bool,
    has_float: bool,
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Eyes)
    }
}

struct Eyes;

impl Strict {
    fn plain(value: impl Into<Value>) -> Self {
        Self {
            value: value.into(),
            has_twice: false,
            has_float: false,
        }
    }
}

impl<'de> Visitor<'de> for Eyes {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Strict, E> {
        Ok(Strict::plain(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict::plain(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict::plain(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict::plain(value))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Strict, E> {
        let mut strict = Strict::plain(Value::Null);
        strict.has_float = true;
        Ok(strict)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict::plain(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        let mut strict = Strict::plain(Value::Null);
        let mut values = Vec::new();
        while let Some(item) = items.next_element::<Strict>()? {
            strict.has_twice |= item.has_twice;
            strict.has_float |= item.has_float;
            values.push(item.value);
        }
        strict.value = Value::Array(values);
        Ok(strict)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Strict, A::Error> {
        let mut strict = Strict::plain(Value::Null);
        let mut values = Map::new();
        while let Some((name, field)) = fields.next_entry::<String, Strict>()? {
            strict.has_float |= field.has_float;
            strict.has_twice |= field.has_twice | values.insert(name, field.value).is_some();
        }
        strict.value = Value::Object(values);
        Ok(strict)
    }
}
