//! Canonical JSON: sorted keys, no spaces, integers only, UTF-8, final newline.
//!
//! `parse` refuses every other spelling of the same value, so a stored record has one encoding and
//! a byte comparison is a value comparison. Specified in `docs/format/keys.md`.

use serde_json::Value;

/// The longest record that is read, in bytes.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// Why bytes are no canonical record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Longer than `RECORD_BYTES_MAX`.
    #[error("record of {actual} bytes, at most {RECORD_BYTES_MAX} are read")]
    TooLong {
        /// Bytes present.
        actual: usize,
    },
    /// Not JSON, or not UTF-8.
    #[error("not JSON: {reason}")]
    NotJson {
        /// What the parser said.
        reason: String,
    },
    /// JSON, but another spelling of its value (spaces, key order, duplicate keys, escapes,
    /// floats).
    #[error("not canonical: byte {offset} differs from the canonical spelling")]
    NotCanonical {
        /// First byte that differs.
        offset: usize,
    },
}

/// Renders a value in canonical form. Objects are sorted by key because `serde_json` keeps them in
/// a `BTreeMap` here; the caller puts no floats in.
pub fn render(value: &Value) -> Vec<u8> {
    render_in(value, Vec::new())
}

/// Renders into an empty buffer, which may have room already.
fn render_in(value: &Value, mut buffer: Vec<u8>) -> Vec<u8> {
    serde_json::to_writer(&mut buffer, value).expect("because a Value always serialises");
    buffer.push(b'\n');
    buffer
}

/// Parses canonical JSON. Errors on anything that `render` would not have written.
pub fn parse(bytes: &[u8]) -> Result<Value, CanonicalError> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(CanonicalError::TooLong {
            actual: bytes.len(),
        });
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| CanonicalError::NotJson {
        reason: error.to_string(),
    })?;
    let canonical = render_in(&value, Vec::with_capacity(bytes.len()));
    if canonical == bytes && integers_only(&value) {
        return Ok(value);
    }
    let offset = canonical
        .iter()
        .zip(bytes)
        .take_while(|(a, b)| a == b)
        .count();
    Err(CanonicalError::NotCanonical { offset })
}

fn integers_only(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.is_u64() || number.is_i64(),
        Value::Array(items) => items.iter().all(integers_only),
        Value::Object(fields) => fields.values().all(integers_only),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_one_spelling() {
        assert!(parse(b"{\"a\":1,\"b\":[\"x\",null]}\n").is_ok());
        let wrong: [&[u8]; 8] = [
            b"{\"a\":1}",
            b"{\"a\": 1}\n",
            b"{\"b\":1,\"a\":1}\n",
            b"{\"a\":1,\"a\":1}\n",
            b"{\"a\":1.0}\n",
            b"{\"a\":\"\\u0041\"}\n",
            b"{\"a\":1e2}\n",
            b"\xff\n",
        ];
        for bytes in wrong {
            assert!(parse(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
