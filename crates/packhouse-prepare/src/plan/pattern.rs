//! Name patterns of rules, and the templates that say which names must be there.
//!
//! Invariants:
//! - a pattern matches a whole name or nothing: no prefix, no line of it;
//! - its compiled size and depth are bounded, and matching is linear in the name's length.

use super::limits::{PATTERN_BYTES_MAX, PATTERN_DEPTH_MAX, PATTERN_MEMORY_MAX};
use super::slot::{Capture, INDEX, decimal};
use regex_lite::{Regex, RegexBuilder};

/// A regular expression that matches whole tensor names.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    whole: Regex,
    work: u64,
}

/// One name that a pattern matched.
#[derive(Debug)]
pub struct Matched<'n> {
    captures: regex_lite::Captures<'n>,
}

/// A name with captures in braces, e.g. `blk.{layer}.ffn_up.weight`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Longer than the limit, or empty.
    #[error("{bytes} bytes, where 1 to {PATTERN_BYTES_MAX} are read")]
    Length {
        /// Its length.
        bytes: usize,
    },
    /// No regular expression within the limits.
    #[error("no regular expression that is read: {reason}")]
    Regex {
        /// What the parser said.
        reason: String,
    },
    /// A capture named like the formula's own variable.
    #[error("a capture may not be named {INDEX}: that is the tensor's place in its container")]
    Reserved,
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Empty, or longer than a pattern may be.
    #[error("{bytes} bytes, where 1 to {PATTERN_BYTES_MAX} are read")]
    Length {
        /// Its length.
        bytes: usize,
    },
    /// A brace that is not part of `{capture}`.
    #[error("at byte {offset}: braces hold one capture, like {{layer}}")]
    Brace {
        /// Where, from 0.
        offset: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Capture(Capture),
}

impl Pattern {
    /// Parses a pattern. Errors when it is no regular expression, or beyond a limit.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::Length { bytes: text.len() });
        }
        // Compiled alone first, so that no parenthesis of it can pair with those put around it.
        compile(text, PATTERN_MEMORY_MAX, PATTERN_DEPTH_MAX)?;
        // Under the flag x the newline is nothing but the end of a comment.
        let wrapped = format!("^(?:{text}(?x)\n)$");
        let depth = PATTERN_DEPTH_MAX + WRAPPED_DEPTH;
        let whole = compile(&wrapped, PATTERN_MEMORY_MAX, depth)?;
        // The compiler tells its bytes only by whether they are within a limit.
        let (mut short, mut bytes) = (0, PATTERN_MEMORY_MAX);
        while bytes - short > MEMORY_STEP {
            let middle = short.midpoint(bytes);
            if compile(&wrapped, middle, depth).is_ok() {
                bytes = middle;
            } else {
                short = middle;
            }
        }
        if whole.capture_names().any(|name| name == Some(INDEX)) {
            return Err(PatternError::Reserved);
        }
        Ok(Self {
            text: text.to_owned(),
            work: (bytes as u64).saturating_mul(whole.captures_len() as u64),
            whole,
        })
    }

    /// Bounds the steps that matching takes for one byte of a name: the matcher visits each state
    /// of the compiled pattern at most once per byte, and copies where groups begin and end.
    pub(super) const fn work(&self) -> u64 {
        self.work
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern has the capture.
    pub fn has(&self, capture: &Capture) -> bool {
        match capture {
            Capture::Named(name) => self.whole.capture_names().any(|n| n == Some(name)),
            Capture::Numbered(number) => *number < self.whole.captures_len(),
        }
    }

    /// Matches a whole name.
    pub fn matched<'n>(&self, name: &'n str) -> Option<Matched<'n>> {
        let captures = self.whole.captures(name)?;
        Some(Matched { captures })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Matched<'_> {
    /// The text of a capture; `None` when its group took no part in the match.
    pub fn text(&self, capture: &Capture) -> Option<&str> {
        let found = match capture {
            Capture::Named(name) => self.captures.name(name),
            Capture::Numbered(number) => self.captures.get(*number),
        };
        found.map(|found| found.as_str())
    }

    /// The number of a capture. Errors with its text when that is no decimal number in its
    /// shortest form.
    pub fn number(&self, capture: &Capture) -> Result<u64, String> {
        let text = self.text(capture).unwrap_or_default();
        decimal(text).ok_or_else(|| text.to_owned())
    }
}

impl Template {
    /// Parses a template. Errors on a brace that is not part of `{capture}`.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX {
            return Err(TemplateError::Length { bytes: text.len() });
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            let offset = text.len() - rest.len() + open;
            let (literal, braced) = rest.split_at(open);
            let close = braced.find('}').ok_or(TemplateError::Brace { offset })?;
            let capture = braced.get(1..close).and_then(Capture::parse);
            let capture = capture.ok_or(TemplateError::Brace { offset })?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            parts.push(Part::Capture(capture));
            rest = &braced[close + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// The template as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The captures in it, each once, by name.
    pub fn captures(&self) -> Vec<&Capture> {
        let captures = self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Capture(capture) => Some(capture),
        });
        let mut captures: Vec<_> = captures.collect();
        captures.sort();
        captures.dedup();
        captures
    }

    /// The name that these values give.
    pub fn name(&self, value: &dyn Fn(&Capture) -> u64) -> String {
        let mut name = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => name += text,
                Part::Capture(capture) => name += &value(capture).to_string(),
            }
        }
        name
    }
}

/// Levels of what is put around a pattern.
const WRAPPED_DEPTH: u32 = 3;
/// How exactly the bytes of compiled patterns are told; `PATTERN_MEMORY_MAX` is a power of two
/// times it.
const MEMORY_STEP: usize = 64;

fn compile(pattern: &str, memory: usize, depth: u32) -> Result<Regex, PatternError> {
    RegexBuilder::new(pattern)
        .dot_matches_new_line(true)
        .size_limit(memory)
        .nest_limit(depth)
        .build()
        .map_err(|error| PatternError::Regex {
            reason: error.to_string(),
        })
}
