//! The lines of an output, one after another, without colours.

use super::ProofFault;

/// Lines with a cursor.
pub(super) struct Lines {
    lines: Vec<String>,
    next: usize,
}

impl Lines {
    /// Splits an output. Errors when it is empty, no text, or ends within a line.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, ProofFault> {
        if bytes.is_empty() {
            return Err(ProofFault::Empty);
        }
        let mut lines = Vec::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let text =
                std::str::from_utf8(line).map_err(|_| ProofFault::NotText { line: index + 1 })?;
            lines.push(without_colours(text.strip_suffix('\r').unwrap_or(text)));
        }
        let last = lines.pop().expect("because a split has a part");
        if last.is_empty() {
            return Ok(Self { lines, next: 0 });
        }
        Err(ProofFault::EndsEarly {
            line: lines.len(),
            expected: "the end of a line",
        })
    }

    /// The next line, which stays the next.
    pub(super) fn peek(&self) -> Option<&str> {
        self.lines.get(self.next).map(String::as_str)
    }

    /// Takes the next line. Errors at the end.
    pub(super) fn take(&mut self, expected: &'static str) -> Result<String, ProofFault> {
        let line = self.lines.get(self.next).ok_or(ProofFault::EndsEarly {
            line: self.next,
            expected,
        })?;
        self.next += 1;
        Ok(line.clone())
    }

    /// Passes over the next line if it is this.
    pub(super) fn skip(&mut self, text: &str) -> bool {
        let is_it = self.peek() == Some(text);
        self.next += usize::from(is_it);
        is_it
    }

    /// Passes over the next line if it begins like this.
    pub(super) fn skip_prefix(&mut self, prefix: &str) -> bool {
        let is_it = self.peek().is_some_and(|line| line.starts_with(prefix));
        self.next += usize::from(is_it);
        is_it
    }

    /// Takes a line that must be this.
    pub(super) fn expect(&mut self, text: &'static str) -> Result<(), ProofFault> {
        let line = self.take(text)?;
        if line == text {
            return Ok(());
        }
        Err(self.unlike(text))
    }

    /// Errors unless all lines were taken.
    pub(super) fn end(&mut self) -> Result<(), ProofFault> {
        if self.peek().is_none() {
            return Ok(());
        }
        self.next += 1;
        Err(self.unlike("the end"))
    }

    /// The number of the line that was taken last, from 1.
    pub(super) fn number(&self) -> usize {
        self.next
    }

    /// The fault of the line that was taken last.
    pub(super) fn unlike(&self, expected: &'static str) -> ProofFault {
        let actual = self.next.checked_sub(1).and_then(|at| self.lines.get(at));
        ProofFault::Line {
            line: self.next,
            expected,
            actual: cut(actual.map_or("", String::as_str)),
        }
    }
}

/// What is between a prefix and a suffix.
pub(super) fn between<'l>(line: &'l str, prefix: &str, suffix: &str) -> Option<&'l str> {
    line.strip_prefix(prefix)?.strip_suffix(suffix)
}

/// Parses `7/8`.
pub(super) fn ratio(text: &str) -> Option<(u64, u64)> {
    let (part, whole) = text.split_once('/')?;
    Some((number(part)?, number(whole)?))
}

/// Parses digits, and nothing else.
pub(super) fn number(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

/// Cuts a foreign text to what an error line can hold.
pub(super) fn cut(text: &str) -> String {
    if text.chars().count() <= TEXT_CHARS {
        return text.to_owned();
    }
    text.chars().take(TEXT_CHARS).collect::<String>() + "..."
}

/// Leaves out what sets a colour: ESC, `[`, digits and semicolons, `m`. Any other escape stays.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ';');
        plain.push_str(before);
        match end {
            Some(end) if after.as_bytes()[end] == b'm' => rest = &after[end + 1..],
            Some(_) | None => {
                plain.push_str("\u{1b}[");
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

const TEXT_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_and_all_else_stays() {
        for (line, plain) in [
            ("\u{1b}[1;32mOK\u{1b}[0m", "OK"),
            ("a \u{1b}[m b", "a  b"),
            ("\u{1b}[2J", "\u{1b}[2J"),
            ("\u{1b}[1;32", "\u{1b}[1;32"),
            ("\u{1b}", "\u{1b}"),
        ] {
            assert_eq!(without_colours(line), plain);
        }
    }

    #[test]
    fn numbers_are_digits_alone() {
        assert_eq!(ratio("7/8"), Some((7, 8)));
        for wrong in ["+7/8", "7/", "/8", "7", "7 /8", "7/8/9", "-1/2"] {
            assert_eq!(ratio(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_output_ends_with_its_line() {
        assert!(Lines::of(b"a\nb\n").is_ok());
        let fault = Lines::of(b"a\nb").err().map(|fault| fault.to_string());
        let expected = "its output ends after line 1, expected the end of a line";
        assert_eq!(fault.as_deref(), Some(expected));
        assert_eq!(Lines::of(b"").err(), Some(ProofFault::Empty));
        let fault = Lines::of(b"a\n\xff\n").err();
        assert_eq!(fault, Some(ProofFault::NotText { line: 2 }));
    }
}
