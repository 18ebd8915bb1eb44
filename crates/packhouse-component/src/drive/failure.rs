//! Why a session broke off.

use crate::fields::MessageError;
use crate::form::FormError;
use crate::frame::FrameError;
use crate::message::PROTOCOL;
use packhouse_base::Blame;
use packhouse_sys::child::{Ended, Exit, StartError, TalkError};
use packhouse_sys::fs::FsError;
use std::fmt;

/// Where in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// At its beginning.
    Hello,
    /// In the case of this number.
    Case(u64),
    /// At its end.
    Bye,
}

/// What a program did that it may not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// It did not answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// It ended.
    #[error("the program ended {}", end_in_words(.0))]
    Ended(Exit),
    /// It closed its stdout, and lives.
    #[error("the program closed its stdout")]
    Closed,
    /// It closed its stdin, and lives.
    #[error("the program no longer reads its stdin")]
    Deaf,
    /// It wrote to stdout without having been asked.
    #[error("{bytes} bytes on stdout that nobody asked for")]
    Unasked {
        /// At least so many.
        bytes: u64,
    },
    /// It did not write a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It did not write a message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// It did not say hello first.
    #[error("the program's first message is no hello")]
    NoHello,
    /// It said hello again.
    #[error("the program says hello again")]
    HelloAgain,
    /// It speaks another protocol.
    #[error("the program speaks {actual:?}, expected {PROTOCOL:?}")]
    Protocol {
        /// Which.
        actual: String,
    },
    /// It did not give the challenge back.
    #[error("the program gives back another challenge: this is no answer of this session")]
    Challenge,
    /// Its pipes could not be used.
    #[error(transparent)]
    Pipes(StartError),
    /// This process was told to end the session.
    #[error("ended because this process was told to end")]
    Interrupted,
}

/// Why a session broke off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriveError {
    /// The program could not be started, or not be followed.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The folders that are shared with it could not be used.
    #[error(transparent)]
    Exchange(#[from] FsError),
    /// The path of the folders is no UTF-8 and can't be told to the program.
    #[error("the folder for its files has a path that is no UTF-8")]
    Folder,
    /// A boundary has no form at the width that was asked.
    #[error(transparent)]
    Form(#[from] FormError),
    /// Cycles were asked of a program that did not say that it times them.
    #[error("the program does not say that it times cycles")]
    Untimed,
    /// The program broke off, and was killed if it still ran.
    #[error("{doing}: {what}")]
    Broke {
        /// Where.
        doing: Doing,
        /// What it did.
        what: What,
        /// Its process.
        pid: u32,
        /// What it wrote to stderr, the first MiB of it.
        log: Vec<u8>,
        /// How it ended.
        exit: Exit,
        /// Nanoseconds from its start to its end.
        elapsed_ns: u64,
    },
}

impl DriveError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Start(error) => error.blame(),
            Self::Exchange(error) => error.blame(),
            Self::Folder | Self::Untimed => Blame::Caller,
            Self::Form(error) => error.blame(),
            Self::Broke { .. } => Blame::Source,
        }
    }

    pub(super) fn ended(doing: Doing, what: What, (pid, ended): (u32, &Ended)) -> Self {
        Self::Broke {
            doing,
            what,
            pid,
            log: ended.stderr.clone(),
            exit: ended.exit,
            elapsed_ns: ended.elapsed_ns,
        }
    }
}

impl From<TalkError> for What {
    fn from(error: TalkError) -> Self {
        match error {
            TalkError::TimedOut => Self::TimedOut,
            TalkError::Closed => Self::Deaf,
            TalkError::Follow(error) => Self::Pipes(error),
        }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello => f.write_str("at hello"),
            Self::Case(index) => write!(f, "in case {index}"),
            Self::Bye => f.write_str("at bye"),
        }
    }
}

/// How it ended, in words.
fn end_in_words(exit: &Exit) -> String {
    match exit {
        Exit::Exited(code) => format!("with code {code}"),
        Exit::Signalled(signal) => format!("by signal {signal}"),
        Exit::TimedOut => "because its time was over".to_owned(),
    }
}
