//! What the user is told when a command could not do its work, in one form for all commands:
//! `error: <what>: <value>`, `cause:` lines, a blank line, `hint:` with one command.

use packhouse_base::shown::Shown;
use std::error::Error;
use std::fmt;

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
