//! Reading a record straight through, in the one order that canonical JSON gives its fields.
//!
//! The strict readers (`fields`) build a value, spell it again and compare, which takes most of the
//! time that a look at a set takes. Almost all records are plain: known fields, texts without
//! escapes. Those are read here; on anything else the scan gives up, and the strict reader says
//! what is wrong, or reads what is only unusual.
//!
//! Invariant: what is read here, the strict reader reads to the same value. The tests of both
//! records hold it over every edit of one byte.

use packhouse_base::canonical::RECORD_BYTES_MAX;
use packhouse_base::digest::Digest;

/// What is left of a record's bytes.
pub(crate) struct Scan<'b> {
    rest: &'b [u8],
}

impl<'b> Scan<'b> {
    /// Begins, unless the record is longer than any that is read.
    pub(crate) fn new(bytes: &'b [u8]) -> Option<Self> {
        (bytes.len() <= RECORD_BYTES_MAX).then_some(Self { rest: bytes })
    }

    /// Takes exactly these bytes.
    pub(crate) fn literal(&mut self, expected: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(expected.as_bytes())?;
        Some(())
    }

    /// Takes a decimal integer in its shortest form.
    pub(crate) fn integer(&mut self) -> Option<u64> {
        let count = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = self.rest.split_at(count);
        if count == 0 || (digits[0] == b'0' && count > 1) {
            return None;
        }
        let value = std::str::from_utf8(digits).ok()?.parse().ok()?;
        self.rest = rest;
        Some(value)
    }

    /// Takes the inside of a text up to its closing quote: printable ASCII without escapes.
    pub(crate) fn text(&mut self) -> Option<&'b str> {
        let count = self.rest.iter().position(|byte| *byte == b'"')?;
        let (text, rest) = self.rest.split_at(count);
        if !text
            .iter()
            .all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\')
        {
            return None;
        }
        self.rest = &rest[1..];
        std::str::from_utf8(text).ok()
    }

    /// Takes the inside of a text that is a digest.
    pub(crate) fn digest(&mut self) -> Option<Digest> {
        Digest::parse(self.text()?).ok()
    }

    /// Takes elements that commas part, up to the closing byte.
    pub(crate) fn list<T>(
        &mut self,
        close: &str,
        mut element: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut elements = Vec::new();
        if self.literal(close).is_some() {
            return Some(elements);
        }
        loop {
            elements.push(element(self)?);
            if self.literal(close).is_some() {
                return Some(elements);
            }
            self.literal(",")?;
        }
    }

    /// Ends the record with its newline.
    pub(crate) fn end(self) -> Option<()> {
        (self.rest == b"\n").then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_spelling_is_scanned() {
        let integer = |text: &str| Scan::new(text.as_bytes()).and_then(|mut scan| scan.integer());
        assert_eq!(integer("18446744073709551615,"), Some(u64::MAX));
        for wrong in ["", "-1", "+1", "01", "18446744073709551616", "x"] {
            assert_eq!(integer(wrong), None, "{wrong}");
        }
        assert_eq!(integer("0"), Some(0));
        let text = |text: &'static str| Scan::new(text.as_bytes()).and_then(|mut scan| scan.text());
        assert_eq!(text("a b~\""), Some("a b~"));
        for wrong in ["a", "a\\n\"", "a\\\"\"", "\u{e9}\"", "\u{7f}\"", "\n\""] {
            assert_eq!(text(wrong), None, "{wrong:?}");
        }
        let list = |text: &str| Scan::new(text.as_bytes())?.list("]", Scan::integer);
        assert_eq!(list("]"), Some(vec![]));
        assert_eq!(list("1,2]"), Some(vec![1, 2]));
        for wrong in ["", "1", "1,]", ",1]", "1 ,2]", "1;2]"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
        let end = |text: &str| Scan::new(text.as_bytes())?.end();
        assert_eq!(end(""), None);
        assert_eq!(end("\n\n"), None);
        assert_eq!(end("\n"), Some(()));
    }
}
