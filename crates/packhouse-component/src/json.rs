//! JSON as this protocol has it: what serde_json reads, less what it would pass over.
//!
//! Invariants: a number is an integer of 64 bits without fraction, exponent or `-0`; no object has
//! a key twice; nothing is nested deeper than `DEPTH_MAX`. Blanks, the order of keys and escapes
//! are free, so that any language's writer will do.

use packhouse_base::Blame;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// How deep arrays and objects nest at most.
pub const DEPTH_MAX: usize = 16;

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not JSON of this protocol: {reason}")]
pub struct JsonError {
    /// What is wrong, and in which line and column.
    pub reason: String,
}

impl JsonError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        Blame::Source
    }
}

/// Reads one value.
///
/// # Errors
/// At the first byte that no message of this protocol has there.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let strict = Strict {
        depth_left: DEPTH_MAX,
    };
    let value = strict.deserialize(&mut reader);
    let value = value.and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| JsonError {
        reason: error.to_string(),
    })
}

/// A value at some depth.
#[derive(Clone, Copy)]
struct Strict {
    depth_left: usize,
}

impl Strict {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1);
        let depth_left =
            depth_left.ok_or_else(|| E::custom(format_args!("nested deeper than {DEPTH_MAX}")))?;
        Ok(Self { depth_left })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        Err(E::custom("a number that is no integer of 64 bits"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                let key: String = key.chars().take(80).collect();
                return Err(A::Error::custom(format_args!("the key {key:?} twice")));
            }
            object.insert(key, entries.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn any_writers_spelling_is_read() {
        let text = " {\"b\" : [1, -2,\n18446744073709551615, -9223372036854775808, 0, true, \
                    false, null, {}, [ ]],\t\"\\u0061\\n\\ud83d\\ude00\\/\": \"\u{fc}\" }\r\n";
        let value = json!({
            "b": [1, -2, u64::MAX, i64::MIN, 0, true, false, null, {}, []],
            "a\n\u{1f600}/": "\u{fc}",
        });
        assert_eq!(parse(text.as_bytes()), Ok(value));
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert!(parse(deep.as_bytes()).is_ok());
    }

    #[test]
    fn what_usual_readers_let_pass_is_refused_at_its_place() {
        let not_integer = "a number that is no integer of 64 bits";
        let too_deep = format!("{}1", "[".repeat(DEPTH_MAX + 1));
        let cases: [(&str, &str); 14] = [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("1.0", not_integer),
            ("[1e3]", not_integer),
            ("-0", not_integer),
            ("18446744073709551616", not_integer),
            ("-9223372036854775809", not_integer),
            ("01", "invalid number at line 1 column 2"),
            (
                "{\"a\":1,\"\\u0061\":2}",
                "the key \"a\" twice at line 1 column 15",
            ),
            ("1 2", "trailing characters at line 1 column 3"),
            ("[1,]", "trailing comma at line 1 column 4"),
            ("NaN", "expected value at line 1 column 1"),
            ("\"\t\"", "control character"),
            ("\"\\udc00\"", "lone leading surrogate"),
            (&too_deep, "nested deeper than 16 at line 1 column 17"),
        ];
        for (text, reason) in cases {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.reason.contains(reason), "{text}: {error}");
        }
        assert!(parse(b"\"a\xff\"").is_err());
    }
}
