//! Canonical JSON (`docs/format/keys.md`, section 4), read without tolerance.
//!
//! * One spelling per value: whatever else it could be read as, another spelling is refused.
//! * Numbers are integers of u64 or i64. Objects are sorted by the bytes of their keys.

use std::collections::BTreeMap;
use std::fmt::Write;

/// An object's fields.
pub(crate) type Map = BTreeMap<String, Json>;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer of u64 or i64.
    Integer(i128),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object.
    Object(Map),
}

impl Json {
    /// Returns the word for what kind of value it is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Makes text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Makes an object.
    pub(crate) fn object<const N: usize>(fields: [(&str, Self); N]) -> Self {
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        Self::Object(fields.into_iter().collect())
    }

    /// Renders the one spelling, without the final newline.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        self.render_to(&mut out);
        out
    }

    fn render_to(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Integer(value) => out.push_str(&value.to_string()),
            Self::Text(text) => quote(text, out),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.render_to(out);
                }
                out.push(']');
            }
            Self::Object(map) => {
                out.push('{');
                for (index, (key, value)) in map.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    quote(key, out);
                    out.push(':');
                    value.render_to(out);
                }
                out.push('}');
            }
        }
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if u32::from(c) < 0x20 => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("because text takes all text");
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Parses a record: one value and a final newline. Errors with words that say where another
/// spelling than the canonical one begins.
pub(crate) fn parse(bytes: &[u8]) -> Result<Json, String> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(format!("{} bytes, more than 64 MiB", bytes.len()));
    }
    match bytes.split_last() {
        Some((b'\n', value)) => parse_value(value),
        Some(_) => Err("no newline at the end".to_owned()),
        None => Err("empty".to_owned()),
    }
}

/// Parses one value with nothing before or behind it.
pub(crate) fn parse_value(bytes: &[u8]) -> Result<Json, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))?;
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    if parser.at < bytes.len() {
        return Err(parser.refuse("something follows the value"));
    }
    Ok(value)
}

/// Longest record.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// Deepest nesting that is read: no record of ours comes near it.
const DEPTH_MAX: usize = 64;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn refuse(&self, words: &str) -> String {
        format!("byte {}: {words}", self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, expected: u8) -> Result<(), String> {
        if self.peek() != Some(expected) {
            return Err(self.refuse(&format!("expected `{}`", char::from(expected))));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > DEPTH_MAX {
            return Err(self.refuse("nested too deep"));
        }
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.integer(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => Err(self.refuse("no value begins so")),
            None => Err(self.refuse("a value is missing")),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, String> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.refuse(&format!("expected `{word}`")));
        }
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        self.take(b'{')?;
        let mut map = Map::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(map));
        }
        loop {
            let key = self.string()?;
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(self.refuse(&format!("key {key:?} is out of order or there twice")));
            }
            self.take(b':')?;
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(Json::Object(map));
            }
            self.take(b',')?;
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, String> {
        self.take(b'[')?;
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(Json::List(items));
            }
            self.take(b',')?;
        }
    }

    fn integer(&mut self) -> Result<Json, String> {
        let rest = &self.text[self.at..];
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        let literal = &rest[..rest.len() - digits.len() + count];
        let value: i128 = literal
            .parse()
            .map_err(|_| self.refuse("no integer of 64 bits"))?;
        let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
        if !range.contains(&value) || value.to_string() != literal {
            return Err(self.refuse(&format!("{literal} is no integer in its shortest form")));
        }
        self.at += literal.len();
        Ok(Json::Integer(value))
    }

    fn string(&mut self) -> Result<String, String> {
        self.take(b'"')?;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(c) = rest.chars().next() else {
                return Err(self.refuse("a text without an end"));
            };
            match c {
                '"' => {
                    self.at += 1;
                    return Ok(text);
                }
                '\\' => text.push(self.escape()?),
                c if u32::from(c) < 0x20 => return Err(self.refuse("a raw control character")),
                c => {
                    text.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
    }

    /// Reads an escape; only the one that `quote` would write is taken.
    fn escape(&mut self) -> Result<char, String> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let (c, length) = match rest.get(1) {
            Some(b'"') => ('"', 2),
            Some(b'\\') => ('\\', 2),
            Some(b'b') => ('\u{8}', 2),
            Some(b't') => ('\t', 2),
            Some(b'n') => ('\n', 2),
            Some(b'f') => ('\u{c}', 2),
            Some(b'r') => ('\r', 2),
            Some(b'u') => {
                let digits = rest.get(2..6).and_then(|hex| std::str::from_utf8(hex).ok());
                let code = digits.and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let c = code.filter(|code| *code < 0x20).and_then(char::from_u32);
                (c.ok_or_else(|| self.refuse("another escape"))?, 6)
            }
            _ => return Err(self.refuse("an unknown escape")),
        };
        let mut canonical = String::new();
        quote(&c.to_string(), &mut canonical);
        let written = canonical.as_bytes().get(1..canonical.len() - 1);
        if written != rest.get(..length) {
            return Err(self.refuse("another escape than the canonical one"));
        }
        self.at += length;
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_canonical_comes_back_and_nothing_else_is_read() {
        for text in [
            "null",
            "[]",
            "{}",
            "[true,false,null]",
            "18446744073709551615",
            "-9223372036854775808",
            r#"{"":0,"A":[{}],"a":"\"\\\b\t\n\f\r\u0000\u001f/"}"#,
            "\"\u{7f}\u{e9}\u{1f600}\"",
        ] {
            let value = parse(format!("{text}\n").as_bytes()).expect("because it is canonical");
            assert_eq!(value.render(), text);
        }
        for text in [
            "",
            " null",
            "null ",
            "nul",
            "[1,]",
            "[,]",
            "[1 ,2]",
            "{\"a\" :1}",
            "{\"b\":1,\"a\":1}",
            "{\"a\":1,\"a\":1}",
            "1.0",
            "1e3",
            "-0",
            "01",
            "+1",
            "18446744073709551616",
            "-9223372036854775809",
            r#""\/""#,
            r#""\u0041""#,
            r#""\u000a""#,
            r#""\u001F""#,
            "\"a",
            "\"\\",
            "\"\\u00",
            "\"\t\"",
            "1 2",
            "1\n",
            "{",
            "[",
            "{\"a\"",
            "-",
            "\u{feff}1",
            r#""\u+0f1""#,
        ] {
            assert!(parse(format!("{text}\n").as_bytes()).is_err(), "{text:?}");
        }
        assert!(parse(b"1").is_err(), "no newline");
        assert!(parse(b"").is_err(), "nothing");
        assert!(parse(b"\"\xff\"\n").is_err(), "no UTF-8");
        let deep = format!("{}{}\n", "[".repeat(100), "]".repeat(100));
        assert!(parse(deep.as_bytes()).is_err(), "deep");
    }
}
