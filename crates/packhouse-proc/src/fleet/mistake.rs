//! What can be wrong with a fleet file, where it stands, and which commands and workers it blocks.

use super::name::NameError;
use super::template::{Placeholder, TemplateError};
use crate::devices::SpecError;
use packhouse_base::Blame;
use std::collections::BTreeSet;
use std::fmt;
use thiserror::Error;

/// One mistake in a fleet file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key that is concerned, as people would say it: `worker w0, port`. Empty for the file.
    pub key: String,
    /// What is wrong.
    pub what: Wrong,
    /// What can't be done because of it.
    pub blocks: Blocks,
}

impl Mistake {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        Blame::Source
    }

    /// Whether it is the fleet's name that is wrong, missing or misspelt.
    pub(super) fn is_of_name(&self) -> bool {
        let means = |nearest: Option<&str>| nearest == Some("name") && !self.key.contains(' ');
        self.key == "name"
            || matches!(self.what, Wrong::UnknownKey { nearest, .. } if means(nearest))
    }

    /// Whether keys may be there that were not read.
    pub(super) fn hides_keys(&self) -> bool {
        matches!(self.what, Wrong::TooLong { .. } | Wrong::Syntax { .. })
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(target, "{}:{}: ", self.line, self.column)?;
        if !self.key.is_empty() {
            write!(target, "{}: ", self.key)?;
        }
        write!(target, "{} [{}]", self.what, self.blocks)
    }
}

/// What a mistake or a problem blocks. `status`, `stop` and `logs` are never blocked: they work
/// from what starts recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Which commands.
    pub commands: Commands,
    /// For which workers.
    pub workers: Reach,
}

impl Blocks {
    /// Whether a command on a worker is blocked.
    pub fn include(&self, command: FleetCommand, worker: &str) -> bool {
        let is_command = match (self.commands, command) {
            (Commands::None, _) => false,
            (Commands::Start, FleetCommand::Start) => true,
            (Commands::Start, FleetCommand::Render) => false,
            (Commands::RenderAndStart, FleetCommand::Start | FleetCommand::Render) => true,
        };
        is_command && self.workers.has(worker)
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = match self.commands {
            Commands::None => return target.write_str("blocks nothing"),
            Commands::Start => "start",
            Commands::RenderAndStart => "render and start",
        };
        match &self.workers {
            Reach::All => write!(target, "blocks {commands} of every worker"),
            Reach::These(workers) if workers.is_empty() => target.write_str("blocks nothing"),
            Reach::These(workers) => {
                let workers: Vec<&str> = workers.iter().map(String::as_str).collect();
                write!(target, "blocks {commands} of {}", workers.join(", "))
            }
        }
    }
}

/// The commands that a mistake blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Commands {
    /// None: it is a note.
    None,
    /// Only `start`.
    Start,
    /// `render`, and with it `start`.
    RenderAndStart,
}

/// A command that needs a sound fleet file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetCommand {
    /// `worker render`.
    Render,
    /// `worker start`.
    Start,
}

/// The workers that a mistake concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of the fleet.
    All,
    /// These, by name; one whose name is no name by its place, as `#3`.
    These(BTreeSet<String>),
}

impl Reach {
    /// One worker.
    pub fn one(worker: &str) -> Self {
        Self::These(BTreeSet::from([worker.to_owned()]))
    }

    /// Whether a worker is among them.
    pub fn has(&self, worker: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(workers) => workers.contains(worker),
        }
    }

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::These(mut left), Self::These(right)) => {
                left.extend(right);
                Self::These(left)
            }
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum Wrong {
    /// The file is longer than any fleet needs.
    #[error("the file has {bytes} bytes, at most {max} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most there may be.
        max: usize,
    },
    /// Bytes that are no UTF-8.
    #[error("byte {offset} is no UTF-8")]
    NotUtf8 {
        /// Where.
        offset: usize,
    },
    /// No TOML.
    #[error("no TOML: {message}")]
    Syntax {
        /// The parser's words.
        message: String,
    },
    /// More mistakes than are told.
    #[error("{count} more mistakes")]
    More {
        /// How many.
        count: usize,
    },
    /// More workers than are read.
    #[error("{count} workers, at most {max} are read")]
    Workers {
        /// How many there are.
        count: usize,
        /// The most there may be.
        max: usize,
    },
    /// A key that nothing reads.
    #[error("unknown key{}; known here: {}", similar(*nearest), known.join(" "))]
    UnknownKey {
        /// The known one that it looks like.
        nearest: Option<&'static str>,
        /// The keys that may be here.
        known: &'static [&'static str],
    },
    /// A key that must be there.
    #[error("missing")]
    Missing,
    /// A value of another type.
    #[error("expected {expected}, found {found}")]
    Type {
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A number that is too small or too large.
    #[error("{found} is not from {min} to {max}")]
    Range {
        /// The number as written.
        found: String,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A text that is none of those there are.
    #[error("{found:?} is none of {}", known.join(" "))]
    Word {
        /// What is written.
        found: String,
        /// What could be.
        known: &'static [&'static str],
    },
    /// A text that has another form.
    #[error("{found:?} is {why}")]
    Form {
        /// What is written.
        found: String,
        /// What is wrong with it.
        why: FormFault,
    },
    /// No name.
    #[error(transparent)]
    Name(NameError),
    /// A word with wrong placeholders.
    #[error(transparent)]
    Template(TemplateError),
    /// No device.
    #[error("{message}")]
    Device {
        /// The words of `SpecError`.
        message: String,
    },
    /// Nothing where something must be.
    #[error("must not be empty")]
    Empty,
    /// Two of one kind.
    #[error("{value} is also {what} of {other}, line {line}")]
    Doubled {
        /// What it is of the other.
        what: &'static str,
        /// The doubled value.
        value: String,
        /// Who has it too.
        other: String,
        /// Where.
        line: usize,
    },
    /// A profile that the file has not.
    #[error("no profile {name:?}; {}", profiles(known))]
    Profile {
        /// What is written.
        name: String,
        /// Those of the file.
        known: Vec<String>,
    },
    /// A checksum without its file.
    #[error("without `model` beside it, in the same table")]
    DigestWithoutModel,
    /// No word tells the engine something that it must be told.
    #[error("no argument and no variable has {{{}}}: {}", .0.word(), untold(*.0))]
    NotTold(Placeholder),
    /// A placeholder that has no value for a worker.
    #[error("{{{}}} has no value: {}", .0.word(), valueless(*.0))]
    NoValue(Placeholder),
    /// A variable that belongs to Packhouse.
    #[error("belongs to packhouse: {0} sets it")]
    Reserved(Owner),
    /// A mask that says something else than the worker's devices.
    #[error(
        "{value:?} contradicts the worker's devices, which {}; leave it out",
        made(expected)
    )]
    Mask {
        /// The value as written.
        value: String,
        /// The value that the devices make it.
        expected: Option<String>,
    },
}

impl From<NameError> for Wrong {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}

impl From<TemplateError> for Wrong {
    fn from(error: TemplateError) -> Self {
        Self::Template(error)
    }
}

impl From<SpecError> for Wrong {
    fn from(error: SpecError) -> Self {
        let hint = match error {
            SpecError::Ordinal { .. } => "; packhouse worker devices lists them",
            SpecError::Form { .. } | SpecError::Value { .. } => "",
        };
        Self::Device {
            message: format!("{error}{hint}"),
        }
    }
}

/// How a text can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum FormFault {
    /// A path from nowhere.
    #[error("a relative path: it must begin with /, and nothing stands for ~")]
    RelativePath,
    /// A program that is neither a path nor a name.
    #[error("a relative path: give an absolute one, or a bare name that is found on PATH")]
    RelativeProgram,
    /// A program whose name differs by worker.
    #[error("a program with a placeholder")]
    ProgramTemplate,
    /// No address.
    #[error("no IP address, as 127.0.0.1, ::1 or 0.0.0.0")]
    Address,
    /// No digest.
    #[error("no SHA-256: 64 digits of 0-9 and a-f")]
    Digest,
    /// No path of a request.
    #[error("no path of a request: it begins with / and has printable ASCII and no blank or #")]
    HealthPath,
    /// No variable.
    #[error("no name of a variable: letters, digits and _, no digit first")]
    Variable,
    /// A zero byte, which no argument, variable or path can have.
    #[error("a text with a zero byte")]
    Zero,
}

/// Who sets a variable that a fleet file must not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum Owner {
    /// The keeper of a worker.
    #[error("the start of a worker")]
    Start,
    /// The worker's devices.
    #[error("the worker's `device`")]
    Device,
}

fn similar(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| {
        format!(", did you mean `{nearest}`?")
    })
}

fn profiles(known: &[String]) -> String {
    if known.is_empty() {
        return "the file has none".to_owned();
    }
    format!("the file has {}", known.join(" "))
}

fn made(expected: &Option<String>) -> String {
    match expected {
        Some(value) => format!("make it {value:?}"),
        None => "leave it unset".to_owned(),
    }
}

fn untold(placeholder: Placeholder) -> &'static str {
    match placeholder {
        Placeholder::Model => "the engine would not load the `model` of this file",
        Placeholder::Host => "the engine would choose the address itself",
        Placeholder::Port => "the engine would choose the port itself",
        Placeholder::Name | Placeholder::Cores | Placeholder::Threads | Placeholder::Device => {
            "the engine would not know it"
        }
    }
}

fn valueless(placeholder: Placeholder) -> &'static str {
    match placeholder {
        Placeholder::Model => "the worker has no `model`",
        Placeholder::Cores => "the worker has no cpu: or numa: device",
        Placeholder::Threads => "the worker has no `threads` and no cpu: or numa: device",
        Placeholder::Host | Placeholder::Port | Placeholder::Name | Placeholder::Device => {
            "the worker lacks it"
        }
    }
}
