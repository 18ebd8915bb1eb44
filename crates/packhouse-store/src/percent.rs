//! Percent-encoding of texts that go into one field of one line.
//!
//! Tab, newline and `%` become `%09`, `%0A` and `%25`; nothing else is encoded and no other escape
//! is read, so that one text has one encoding. Bytes that are not UTF-8 (in paths) become `%XX` by
//! `encode_path`, with the same rule.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Encodes a text for one field of a tab-separated line.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => encoded.push_str("%09"),
            '\n' => encoded.push_str("%0A"),
            '%' => encoded.push_str("%25"),
            other => encoded.push(other),
        }
    }
    encoded
}

/// Decodes a field. `None` for an escape that `encode` does not write, or a raw tab or newline.
pub fn decode(field: &str) -> Option<String> {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find(['%', '\t', '\n']) {
        text.push_str(&rest[..at]);
        text.push(match rest.get(at..at + 3)? {
            "%09" => '\t',
            "%0A" => '\n',
            "%25" => '%',
            _ => return None,
        });
        rest = &rest[at + 3..];
    }
    text.push_str(rest);
    Some(text)
}

/// Encodes a path as UTF-8 text: `%` and bytes that are not UTF-8 as `%XX` with upper-case digits.
pub fn encode_path(path: &OsStr) -> String {
    let mut encoded = String::new();
    for chunk in path.as_bytes().utf8_chunks() {
        encoded.push_str(&chunk.valid().replace('%', "%25"));
        for byte in chunk.invalid() {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Decodes a path. `None` for any text that `encode_path` does not write.
pub fn decode_path(text: &str) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let digits = rest.get(at + 1..at + 3)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[at + 3..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    let path = OsString::from_vec(bytes);
    (encode_path(&path) == text).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_round_trips_and_has_one_spelling() {
        for text in ["", "blk.0.ffn_up.weight", "a\tb\nc%d", "%25", "\u{e9}%"] {
            let field = encode(text);
            assert!(!field.contains(['\t', '\n']));
            assert_eq!(decode(&field).as_deref(), Some(text));
        }
        for wrong in ["%", "%0", "%0a", "%41", "a\tb", "x%2", "%\u{e9}9"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_path_of_any_bytes_round_trips() {
        for path in [&b"/m/a.gguf"[..], b"/m/\xff\xfe%.gguf", b"/m/\xc3\xa9", b""] {
            let path = OsStr::from_bytes(path);
            assert_eq!(decode_path(&encode_path(path)).as_deref(), Some(path));
        }
        for wrong in ["%41", "%ff", "%", "%+1", "%C3%A9"] {
            assert_eq!(decode_path(wrong), None, "{wrong}");
        }
    }
}
