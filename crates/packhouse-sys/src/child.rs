//! A child process with bounds: a tool that is asked once, a test, a program that is talked to.
//!
//! Invariants:
//! - it has a session and process group of its own (no terminal), the environment of the order and
//!   nothing else, no descriptor but the three standard ones, every signal at its default;
//! - when it ends, when its time is over, and when its owner is dropped, the whole group gets
//!   SIGKILL while the leader's number is still ours; a process that left the group is not ended,
//!   and not waited for either, though it may hold the pipes;
//! - when this process dies, whatever it dies of, the whole group gets SIGKILL: a watcher, a
//!   process of its own that holds nothing but a pipe of ours, sees it. The kernel kills the leader
//!   besides (PR_SET_PDEATHSIG), and means the *thread* that started it: a thread that starts a
//!   child must outlive it;
//! - whom it leaves behind becomes its own child again (PR_SET_CHILD_SUBREAPER), unless it undoes
//!   that itself; whoever outlives it is ended by a [`Family`], where its owner has one;
//! - what is kept of its output is bounded; the rest is read and dropped, so that no child waits
//!   for a reader.
//!
//! Never: searches for a program, except in `find`, with a search path that is given.

mod family;
mod find;
mod own;
mod pump;
#[expect(
    unsafe_code,
    reason = "what runs between fork and exec has no safe form"
)]
mod start;
mod talk;
#[expect(
    unsafe_code,
    reason = "a copy of this process that only waits has no safe form"
)]
mod watch;

pub use family::{Ending, Family, Outlived};
pub use find::find;
pub use own::{own_children, take_in_orphans};
pub use talk::{Talk, TalkError};

use packhouse_base::Blame;
use pump::Pump;
use start::Started;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What to start.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The program: an absolute path.
    pub program: &'a Path,
    /// Its arguments, without its own name.
    pub arguments: &'a [OsString],
    /// All of its environment.
    pub environment: &'a [(OsString, OsString)],
    /// The folder it works in.
    pub folder: &'a Path,
    /// Nanoseconds from its start, by the steady clock, until it is killed.
    pub timeout_ns: u64,
}

/// What becomes of an output stream.
#[derive(Debug)]
pub enum Keep {
    /// It is kept in memory.
    Memory {
        /// Bytes kept at most; the rest is dropped.
        max_bytes: u64,
    },
    /// It is written to a file as it comes, at the file's own position.
    File {
        /// The file, open for writing.
        file: OwnedFd,
        /// Bytes written at most; the rest is dropped.
        max_bytes: u64,
    },
    /// It goes to `/dev/null`.
    Nothing,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal, which was not ours.
    Signalled(i32),
    /// Its time was over, and it was killed.
    TimedOut,
}

/// A child that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub exit: Exit,
    /// What it wrote to stdout, where that was kept in memory; of a `Talk`: what was not read.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr, where that was kept in memory.
    pub stderr: Vec<u8>,
    /// Nanoseconds from its start to its end.
    pub elapsed_ns: u64,
    /// Whether output was dropped because it was more than was to be kept.
    pub was_cut: bool,
}

/// Why a child was not run to its end. It is killed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The program's path is not absolute.
    #[error("{}: not an absolute path", program.display())]
    Relative {
        /// As given.
        program: PathBuf,
    },
    /// No such program in any folder of the search path.
    #[error("{}: no such program in the search path", program.display())]
    NotFound {
        /// As given.
        program: PathBuf,
    },
    /// The working folder can't be opened.
    #[error("working folder {}: errno {errno}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the kernel said.
        errno: i32,
    },
    /// The program can't be executed.
    #[error("{}: {reason}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Its output could not be read or its end not waited for.
    #[error("{}: cannot follow it: errno {errno}", program.display())]
    Follow {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        errno: i32,
    },
    /// The file that keeps its output could not be written.
    #[error("output of {} could not be kept: errno {errno}", program.display())]
    Keep {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        errno: i32,
    },
}

impl StartError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Relative { .. } | Self::NotFound { .. } => Blame::Caller,
            Self::Folder { .. }
            | Self::Program { .. }
            | Self::Follow { .. }
            | Self::Keep { .. } => Blame::Host,
        }
    }
}

/// Runs a program to its end, or to the end of its time. Its stdin is `/dev/null`.
///
/// # Errors
/// When it can't be started or followed, or its output can't be kept. However it ends is no error.
pub fn run(order: &Order<'_>, stdout: Keep, stderr: Keep) -> Result<Ended, StartError> {
    let mut started = Started::start(order, false, !stdout.is_nothing(), !stderr.is_nothing())?;
    let mut stdout = Pump::new(started.stdout.take(), stdout);
    let mut stderr = Pump::new(started.stderr.take(), stderr);
    started.finish(&mut stdout, &mut stderr)
}

impl Keep {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

#[cfg(test)]
mod tests;
