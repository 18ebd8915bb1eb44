//! Words with placeholders: `{port}` stands for a worker's port, `{{` and `}}` for braces.

use super::nearest::nearest;
use std::ffi::{OsStr, OsString};
use std::fmt;
use thiserror::Error;

/// Something that differs from worker to worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placeholder {
    /// The model's path, in RAM where a verified copy is there.
    Model,
    /// The address to listen on.
    Host,
    /// The port to listen on.
    Port,
    /// The worker's name.
    Name,
    /// The cores of its `cpu:` and `numa:` devices, as `0-3,8`.
    Cores,
    /// Its setting `threads`, else how many cores it has.
    Threads,
    /// The ids of its devices, with commas.
    Device,
}

impl Placeholder {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Model,
        Self::Host,
        Self::Port,
        Self::Name,
        Self::Cores,
        Self::Threads,
        Self::Device,
    ];

    /// The word between braces.
    pub fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Host => "host",
            Self::Port => "port",
            Self::Name => "name",
            Self::Cores => "cores",
            Self::Threads => "threads",
            Self::Device => "device",
        }
    }
}

/// A text and the placeholders in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

impl Template {
    /// Parses a text. Errors on braces that hold no placeholder and on lone ones.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
            if let Some(after) = after.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let lone = || TemplateError::LoneBrace {
                text: text.to_owned(),
            };
            let end = after.find(['{', '}']).filter(|_| brace == "{");
            let end = end.filter(|end| after[*end..].starts_with('}'));
            let (word, after) = after.split_at(end.ok_or_else(lone)?);
            let known = Placeholder::ALL.iter().find(|known| known.word() == word);
            let known = known.ok_or_else(|| TemplateError::Unknown {
                word: word.to_owned(),
                nearest: nearest(word, &Placeholder::ALL.map(Placeholder::word)),
            })?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Placeholder(*known));
            rest = &after[1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// The text, where no placeholder is in it.
    pub fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            [Piece::Placeholder(_)] | [_, _, ..] => None,
        }
    }

    /// The placeholders in it.
    pub fn placeholders(&self) -> impl Iterator<Item = Placeholder> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Placeholder(placeholder) => Some(*placeholder),
        })
    }

    /// The text with values in place of placeholders. Errors with the first one that has none.
    pub fn fill<'v>(
        &self,
        value: impl Fn(Placeholder) -> Option<&'v OsStr>,
    ) -> Result<OsString, Placeholder> {
        let mut filled = OsString::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push(text),
                Piece::Placeholder(placeholder) => {
                    filled.push(value(*placeholder).ok_or(*placeholder)?);
                }
            }
        }
        Ok(filled)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => {
                    target.write_str(&text.replace('{', "{{").replace('}', "}}"))?;
                }
                Piece::Placeholder(placeholder) => write!(target, "{{{}}}", placeholder.word())?,
            }
        }
        Ok(())
    }
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum TemplateError {
    /// Braces around something else.
    #[error(
        "{{{word}}} is no placeholder{}; there are {}; for a brace itself write it twice",
        similar(*nearest), all()
    )]
    Unknown {
        /// What is between the braces.
        word: String,
        /// The placeholder that it looks like.
        nearest: Option<&'static str>,
    },
    /// A brace without its other.
    #[error("a lone brace in {text:?}; for a brace itself write it twice")]
    LoneBrace {
        /// The whole text.
        text: String,
    },
}

fn similar(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(", {{{nearest}}} is"))
}

fn all() -> String {
    let words = Placeholder::ALL.map(Placeholder::word);
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(text: &str) -> Result<String, String> {
        let template = Template::parse(text).map_err(|error| error.to_string())?;
        let value = |placeholder: Placeholder| match placeholder {
            Placeholder::Cores => None,
            Placeholder::Port => Some(OsStr::new("8081")),
            Placeholder::Host => Some(OsStr::new("::1")),
            Placeholder::Model | Placeholder::Name | Placeholder::Threads | Placeholder::Device => {
                Some(OsStr::new("{port}"))
            }
        };
        match template.fill(value) {
            Ok(text) => Ok(text.into_string().expect("because all is UTF-8")),
            Err(missing) => Err(format!("no {}", missing.word())),
        }
    }

    #[test]
    fn placeholders_are_filled_once_and_braces_stand_doubled() {
        for (text, expected) in [
            ("", ""),
            ("--port={port}", "--port=8081"),
            ("{host}:{port}", "::1:8081"),
            ("{{\"a\": {port}}}", "{\"a\": 8081}"),
            ("{{port}}", "{port}"),
            ("{model}", "{port}"),
            ("}}{{", "}{"),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(filled("-t {cores}"), Err("no cores".to_owned()));
    }

    #[test]
    fn what_is_no_placeholder_is_named() {
        assert_eq!(
            filled("{prot}").expect_err("because it is misspelled"),
            "{prot} is no placeholder, {port} is; there are model host port name cores threads \
             device; for a brace itself write it twice"
        );
        for (text, part) in [
            ("{}", "{} is no placeholder"),
            ("{PORT}", "{PORT} is no placeholder"),
            ("a{", "a lone brace in \"a{\""),
            ("a}b", "a lone brace in \"a}b\""),
            ("{a{port}", "a lone brace"),
            ("{{port}", "a lone brace"),
        ] {
            let said = filled(text).expect_err("because it is no template");
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_parsed_to_the_same(
            text in "[a{}prt]{0,24}|(\\{port\\}|\\{\\{|x){0,9}",
        ) {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(Template::parse(&template.to_string()), Ok(template));
            }
        }
    }
}
