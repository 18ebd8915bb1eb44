//! A strict reader of JSON (RFC 8259): what the usual readers let pass is refused here.
//!
//! Invariants: a number is an integer of 64 bits without fraction, exponent or `-0`; no object has
//! a key twice; text is UTF-8 without lone surrogates; nothing is nested deeper than `DEPTH_MAX`.
//! Blanks, the order of keys and escapes are free, so that any language's writer will do.

use packhouse_base::Blame;
use serde_json::{Map, Number, Value};

/// How deep arrays and objects nest at most.
pub const DEPTH_MAX: usize = 16;

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not JSON of this protocol at byte {offset}: {reason}")]
pub struct JsonError {
    /// Where.
    pub offset: usize,
    /// What is wrong there.
    pub reason: JsonReason,
}

/// What is wrong at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonReason {
    /// The bytes end, or go on, where they must not, or are something else than is expected there.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A fraction, an exponent, a leading zero or `-0`.
    #[error("a number that is no plain integer")]
    NotInteger,
    /// An integer below -2^63 or above 2^64 - 1.
    #[error("an integer that 64 bits can't hold")]
    TooLarge,
    /// An object has the key before.
    #[error("a key that stands there twice")]
    KeyTwice,
    /// Arrays and objects in each other, more than `DEPTH_MAX`.
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,
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
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError {
        offset: error.valid_up_to(),
        reason: JsonReason::Expected("UTF-8"),
    })?;
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.blanks();
    if reader.at < text.len() {
        return Err(reader.expected("nothing more"));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.blanks();
        match self.peek() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => Err(self.refused(JsonReason::TooDeep)),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) | None => Err(self.expected("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.at += 1;
        let mut fields = Map::new();
        self.blanks();
        if self.took(b'}') {
            return Ok(Value::Object(fields));
        }
        loop {
            self.blanks();
            let offset = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.expected("a key"));
            }
            let key = self.string()?;
            self.blanks();
            if !self.took(b':') {
                return Err(self.expected("a colon"));
            }
            let value = self.value(depth + 1)?;
            if fields.insert(key, value).is_some() {
                let reason = JsonReason::KeyTwice;
                return Err(JsonError { offset, reason });
            }
            self.blanks();
            if self.took(b'}') {
                return Ok(Value::Object(fields));
            }
            if !self.took(b',') {
                return Err(self.expected("a comma or the object's end"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.took(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.took(b']') {
                return Ok(Value::Array(items));
            }
            if !self.took(b',') {
                return Err(self.expected("a comma or the array's end"));
            }
        }
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let length = self.rest().iter().take_while(|byte| is_part(byte)).count();
        let text = &self.text[start..start + length];
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_plain = !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'))
            && text != "-0";
        if !is_plain {
            return Err(self.refused(JsonReason::NotInteger));
        }
        let number = match text.parse::<u64>() {
            Ok(number) => Ok(Number::from(number)),
            Err(_) => text.parse::<i64>().map(Number::from),
        };
        let number = number.map_err(|_| self.refused(JsonReason::TooLarge))?;
        self.at += length;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..=0x1f);
            let length = self.rest().iter().take_while(|byte| is_plain(byte)).count();
            string.push_str(&self.text[self.at..self.at + length]);
            self.at += length;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                Some(_) => return Err(self.expected("a control character to be escaped")),
                None => return Err(self.expected("a text's end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        self.at += 1;
        let letter = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            Some(_) | None => return Err(self.expected("an escape")),
        };
        self.at += 1;
        Ok(letter)
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.unit()?;
        let code = match first {
            0xd800..=0xdbff => {
                if self.peek() != Some(b'\\') {
                    return Err(self.expected("the second half of a surrogate pair"));
                }
                self.at += 1;
                match self.unit()? {
                    second @ 0xdc00..=0xdfff => {
                        0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    _ => return Err(self.expected("the second half of a surrogate pair")),
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.expected("no lone surrogate"))
    }

    /// Four hex digits behind a `u`.
    fn unit(&mut self) -> Result<u32, JsonError> {
        let digits = match self.rest() {
            [b'u', digits @ ..] => digits.get(..4),
            _ => None,
        };
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else {
            return Err(self.expected("four hex digits"));
        };
        let unit = digits.iter().fold(0, |unit, digit| {
            unit << 4 | char::from(*digit).to_digit(16).unwrap_or(0)
        });
        self.at += 5;
        Ok(unit)
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, JsonError> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn blanks(&mut self) {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.rest().iter().take_while(|byte| is_blank(byte)).count();
    }

    fn took(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn expected(&self, what: &'static str) -> JsonError {
        self.refused(JsonReason::Expected(what))
    }

    fn refused(&self, reason: JsonReason) -> JsonError {
        JsonError {
            offset: self.at,
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
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
    fn what_usual_readers_let_pass_is_refused_at_its_byte() {
        let cases: [(&str, usize, JsonReason); 27] = [
            ("", 0, JsonReason::Expected("a value")),
            ("1.0", 0, JsonReason::NotInteger),
            ("[1e3]", 1, JsonReason::NotInteger),
            ("-0", 0, JsonReason::NotInteger),
            ("01", 0, JsonReason::NotInteger),
            ("-", 0, JsonReason::NotInteger),
            ("1-2", 0, JsonReason::NotInteger),
            ("18446744073709551616", 0, JsonReason::TooLarge),
            ("-9223372036854775809", 0, JsonReason::TooLarge),
            ("{\"a\":1,\"\\u0061\":2}", 7, JsonReason::KeyTwice),
            ("1 2", 2, JsonReason::Expected("nothing more")),
            ("{\"a\":1,}", 7, JsonReason::Expected("a key")),
            ("{\"a\" 1}", 5, JsonReason::Expected("a colon")),
            (
                "{\"a\":1 \"b\":2}",
                7,
                JsonReason::Expected("a comma or the object's end"),
            ),
            (
                "[1 2]",
                3,
                JsonReason::Expected("a comma or the array's end"),
            ),
            ("[1,]", 3, JsonReason::Expected("a value")),
            ("NaN", 0, JsonReason::Expected("a value")),
            ("nul", 0, JsonReason::Expected("a value")),
            ("\"a", 2, JsonReason::Expected("a text's end")),
            (
                "\"\t\"",
                1,
                JsonReason::Expected("a control character to be escaped"),
            ),
            ("\"\\x\"", 2, JsonReason::Expected("an escape")),
            ("\"\\u12g4\"", 2, JsonReason::Expected("four hex digits")),
            ("\"\\u12\"", 2, JsonReason::Expected("four hex digits")),
            ("\"\\udc00\"", 7, JsonReason::Expected("no lone surrogate")),
            (
                "\"\\ud800x\"",
                7,
                JsonReason::Expected("the second half of a surrogate pair"),
            ),
            ("\"\\ud800\\n\"", 8, JsonReason::Expected("four hex digits")),
            (
                "\"\\ud800\\u0061\"",
                13,
                JsonReason::Expected("the second half of a surrogate pair"),
            ),
        ];
        for (text, offset, reason) in cases {
            assert_eq!(
                parse(text.as_bytes()),
                Err(JsonError { offset, reason }),
                "{text}"
            );
        }
        let deep = format!("{}1", "[".repeat(DEPTH_MAX + 1));
        let error = parse(deep.as_bytes()).expect_err("because it is deep");
        assert_eq!(
            (error.offset, error.reason),
            (DEPTH_MAX, JsonReason::TooDeep)
        );
        let error = parse(b"\"a\xff\"").expect_err("because it is no text");
        assert_eq!(
            error.to_string(),
            "not JSON of this protocol at byte 2: expected UTF-8"
        );
    }

    proptest! {
        #[test]
        fn a_second_reader_reads_the_same(text in "[\\[\\]{},:\"\\\\u0-9a-f.e+ntrusl\\- ]{0,24}") {
            // The other reader takes the last of equal keys; else it only reads more numbers.
            if let Ok(value) = parse(text.as_bytes()) {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value));
            } else if let Ok(Value::String(other)) = serde_json::from_str::<Value>(&text) {
                prop_assert!(false, "a text was refused: {}", other);
            }
        }
    }
}
