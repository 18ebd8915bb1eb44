//! The gate: the process that becomes the engine, once its keeper has it on record.
//!
//! Standard input is one end of a socket pair. The gate makes its session, binds itself to its
//! cores, says `READY`, and waits for `GO`. Its keeper's death, whenever it comes, ends the stream,
//! and then nothing is executed. After `GO` the stream stays open until exec closes it, so that its
//! end is the word that the engine runs; any text on it says why it does not.
//!
//! Never: becomes the engine without `GO`; leaves the engine a descriptor, an ignored signal or a
//! terminal.

use crate::cores::{CoresError, CpuSet};
use packhouse_base::Blame;
use packhouse_sys::signal;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// What the gate says when it stands.
pub(crate) const READY: u8 = b'R';
/// What the keeper says when the gate is on record.
pub(crate) const GO: u8 = b'G';

/// Why the engine did not begin.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// Standard input is no stream of a keeper.
    #[error("standard input is no keeper: {0}")]
    Keeper(io::Error),
    /// The keeper ended before it said that this process is on record.
    #[error("the keeper ended before the engine was on record")]
    Unrecorded,
    /// No session of its own.
    #[error("cannot begin a session: {0}")]
    Session(Errno),
    /// The cores can't be had.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// Standard input can't be emptied.
    #[error("cannot open /dev/null: {0}")]
    Null(Errno),
    /// The engine can't be executed.
    #[error("cannot execute {}: {source}", program.display())]
    Execute {
        /// The engine.
        program: OsString,
        /// Why.
        source: io::Error,
    },
}

impl GateError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Keeper(_) => Blame::Caller,
            Self::Unrecorded | Self::Session(_) | Self::Null(_) => Blame::Host,
            Self::Cores(error) => error.blame(),
            Self::Execute { .. } => Blame::Source,
        }
    }
}

/// Waits for leave and becomes the engine. Returns only the reason why it did not, which its keeper
/// has been told too.
pub fn pass(cores: Option<&CpuSet>, program: OsString, words: &[OsString]) -> GateError {
    let stream = io::stdin().as_fd().try_clone_to_owned();
    let mut stream = match stream {
        Ok(descriptor) => UnixStream::from(descriptor),
        Err(error) => return GateError::Keeper(error),
    };
    let error = match enter(&mut stream, cores) {
        Ok(()) => execute(program, words),
        Err(error) => error,
    };
    // A keeper that is gone needs no answer.
    let _ = stream.write_all(error.to_string().as_bytes());
    error
}

fn enter(stream: &mut UnixStream, cores: Option<&CpuSet>) -> Result<(), GateError> {
    rustix::process::setsid().map_err(GateError::Session)?;
    if let Some(cores) = cores {
        cores.bind_this_thread()?;
    }
    stream.write_all(&[READY]).map_err(GateError::Keeper)?;
    let mut word = [0];
    match stream.read(&mut word) {
        Ok(1) if word == [GO] => {}
        Ok(_) => return Err(GateError::Unrecorded),
        Err(error) => return Err(GateError::Keeper(error)),
    }
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    null.and_then(rustix::stdio::dup2_stdin)
        .map_err(GateError::Null)
}

fn execute(program: OsString, words: &[OsString]) -> GateError {
    signal::reset_all();
    let source = Command::new(&program).args(words).exec();
    GateError::Execute { program, source }
}
