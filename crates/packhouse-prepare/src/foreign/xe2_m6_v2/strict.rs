//! JSON of others as a value in which every key of an object is there once.
//!
//! Two readers may take different ones of two equal keys, and then what was proven is not what is
//! used.
//!
//! Never: takes the first or the last of two.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::RefCell;

/// Why a text is no such value.
pub(super) enum StrictError {
    /// Not JSON, in the parser's words.
    NotJson(String),
    /// A key that an object has twice.
    Doubled(String),
}

/// Parses a text.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, StrictError> {
    let doubled = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let parsed = Strict(&doubled).deserialize(&mut reader);
    let parsed = parsed.and_then(|value| reader.end().map(|()| value));
    parsed.map_err(|error| match doubled.take() {
        Some(key) => StrictError::Doubled(key),
        None => StrictError::NotJson(error.to_string()),
    })
}

/// Where the first key that is there twice is left.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if object.contains_key(&key) {
                *self.0.borrow_mut() = Some(key);
                return Err(A::Error::custom("a key is there twice"));
            }
            let value = fields.next_value_seed(self)?;
            object.insert(key, value);
        }
        Ok(object.into())
    }
}
