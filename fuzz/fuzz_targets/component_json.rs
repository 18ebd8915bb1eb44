//! A reader of JSON that is written apart from the one it judges: no library, byte by byte.

use packhouse_component::json::DEPTH_MAX;
use serde_json::{Map, Number, Value};

type Read<T> = Result<T, &'static str>;

/// Reads one value; one that may repeat keys takes the last of them.
pub fn parse(bytes: &[u8], may_repeat: bool) -> Read<Value> {
    let text = std::str::from_utf8(bytes).map_err(|_| "no UTF-8")?;
    let mut reader = Reader {
        text,
        at: 0,
        may_repeat,
    };
    let value = reader.value(0)?;
    reader.blanks();
    if reader.at < text.len() {
        return Err("something more");
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    may_repeat: bool,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Read<Value> {
        self.blanks();
        match self.peek() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => Err("nested too deep"),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) | None => Err("a value"),
        }
    }

    fn object(&mut self, depth: usize) -> Read<Value> {
        self.at += 1;
        let mut fields = Map::new();
        self.blanks();
        if self.took(b'}') {
            return Ok(Value::Object(fields));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err("a key");
            }
            let key = self.string()?;
            self.blanks();
            if !self.took(b':') {
                return Err("a colon");
            }
            let value = self.value(depth + 1)?;
            if fields.insert(key, value).is_some() && !self.may_repeat {
                return Err("a key twice");
            }
            self.blanks();
            if self.took(b'}') {
                return Ok(Value::Object(fields));
            }
            if !self.took(b',') {
                return Err("a comma or the object's end");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Read<Value> {
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
                return Err("a comma or the array's end");
            }
        }
    }

    fn number(&mut self) -> Read<Value> {
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
            return Err("no plain integer");
        }
        let number = match text.parse::<u64>() {
            Ok(number) => Ok(Number::from(number)),
            Err(_) => text.parse::<i64>().map(Number::from),
        };
        let number = number.map_err(|_| "too large an integer")?;
        self.at += length;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Read<String> {
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
                Some(_) => return Err("a control character to be escaped"),
                None => return Err("a text's end"),
            }
        }
    }

    fn escape(&mut self) -> Read<char> {
        self.at += 1;
        let letter = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            Some(_) | None => return Err("an escape"),
        };
        self.at += 1;
        Ok(letter)
    }

    fn unicode(&mut self) -> Read<char> {
        let first = self.unit()?;
        let code = match first {
            0xd800..=0xdbff => {
                if self.peek() != Some(b'\\') {
                    return Err("the second half of a surrogate pair");
                }
                self.at += 1;
                match self.unit()? {
                    second @ 0xdc00..=0xdfff => {
                        0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    _ => return Err("the second half of a surrogate pair"),
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| "no lone surrogate")
    }

    /// Four hex digits behind a `u`.
    fn unit(&mut self) -> Read<u32> {
        let digits = match self.rest() {
            [b'u', digits @ ..] => digits.get(..4),
            _ => None,
        };
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else {
            return Err("four hex digits");
        };
        let unit = digits.iter().fold(0, |unit, digit| {
            unit << 4 | char::from(*digit).to_digit(16).unwrap_or(0)
        });
        self.at += 5;
        Ok(unit)
    }

    fn word(&mut self, word: &'static str, value: Value) -> Read<Value> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err("a value");
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
}
