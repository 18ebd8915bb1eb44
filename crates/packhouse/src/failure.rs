//! What the user is told when a command could not do its work, in one form for all commands:
//! `error: <what>: <value>`, `cause:` lines, a blank line, `hint:` with one command.

use packhouse_base::shown::Shown;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

/// The four ways in which the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, or the answer is yes.
    Done = 0,
    /// Done, and the answer is no.
    Negative = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Could not be executed: a guard refused, or I/O, space, permission.
    NotExecuted = 3,
}

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    what: String,
    value: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Failure {
    /// Says what could not be executed, on which value.
    pub(crate) fn new(what: impl Into<String>, value: impl fmt::Display) -> Self {
        Self {
            exit: Exit::NotExecuted,
            what: what.into(),
            value: value.to_string(),
            causes: Vec::new(),
            hint: None,
        }
    }

    /// Says what is wrong with the command line.
    pub(crate) fn usage(what: impl Into<String>, value: impl fmt::Display) -> Self {
        Self {
            exit: Exit::Usage,
            ..Self::new(what, value)
        }
    }

    /// Says that the answer is no, where there is nothing else to print.
    pub(crate) fn negative(what: impl Into<String>, value: impl fmt::Display) -> Self {
        Self {
            exit: Exit::Negative,
            ..Self::new(what, value)
        }
    }

    /// The same, when it was not the command line's fault.
    pub(crate) fn not_executed(self) -> Self {
        Self {
            exit: Exit::NotExecuted,
            ..self
        }
    }

    /// Adds an error and its sources as causes, leaving out what the last one said already.
    pub(crate) fn because(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            if !self.causes.last().is_some_and(|last| last.contains(&text)) {
                self.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    /// Adds one cause in words.
    pub(crate) fn cause(mut self, text: impl Into<String>) -> Self {
        self.causes.push(text.into());
        self
    }

    /// Names the one command that helps.
    pub(crate) fn hint(mut self, command: impl Into<String>) -> Self {
        self.hint = Some(command.into());
        self
    }

    /// The first line without the word before it.
    pub(crate) fn headline(&self) -> String {
        format!("{}: {}", self.what, self.value)
    }

    /// The first cause, or else the first line: what a table has room for.
    pub(crate) fn reason(&self) -> String {
        let first = self.causes.first().cloned();
        first.unwrap_or_else(|| self.headline())
    }

    /// How the program ends.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", Shown(&self.headline()))?;
        for cause in &self.causes {
            writeln!(f, "cause: {}", Shown(cause))?;
        }
        match &self.hint {
            Some(hint) => writeln!(f, "\nhint: {}", Shown(hint)),
            None => Ok(()),
        }
    }
}

/// A path or word as a shell takes it in a hint: bare, in quotes, or in `$'...'` where a terminal
/// would do something else with a character than to draw it.
pub(crate) fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    let bytes = word.as_bytes();
    // A word that begins with a dash would be an option.
    let prefix = if bytes.starts_with(b"-") { "./" } else { "" };
    match word.to_str() {
        Some(text) if !bytes.is_empty() && bytes.iter().all(is_plain) => format!("{prefix}{text}"),
        Some(text) if Shown(text).to_string() == text => {
            format!("'{prefix}{}'", text.replace('\'', "'\\''"))
        }
        Some(_) | None => {
            let mut escaped = String::new();
            for byte in bytes {
                match byte {
                    b'\'' | b'\\' => escaped.extend(['\\', char::from(*byte)]),
                    b' '..=b'~' => escaped.push(char::from(*byte)),
                    byte => {
                        let _ = write!(escaped, "\\x{byte:02x}");
                    }
                }
            }
            format!("$'{prefix}{escaped}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_so_that_a_shell_gives_them_back() {
        let words: [(&[u8], &str); 10] = [
            (b"/models/a-1.Q4_0.gguf", "/models/a-1.Q4_0.gguf"),
            (b"", "''"),
            (b"-", "./-"),
            (b"-m x", "'./-m x'"),
            (b"~", "'~'"),
            (b"it's $(x) `y` \"z\"", "'it'\\''s $(x) `y` \"z\"'"),
            ("gr\u{fc}n".as_bytes(), "'gr\u{fc}n'"),
            (b"a\n'b\\", "$'a\\x0a\\'b\\\\'"),
            (b"\xff \x1b", "$'\\xff \\x1b'"),
            ("\u{202e}x".as_bytes(), "$'\\xe2\\x80\\xaex'"),
        ];
        for (word, expected) in words {
            assert_eq!(quoted(OsStr::from_bytes(word)), expected);
        }
    }
}
