//! Programs under test, as a campaign sees them: started, asked one case after the other, ended.
//!
//! Invariants:
//! - every message and everything seen goes to the tap when it happens;
//! - a session that broke off is over: its program is dead;
//! - nothing of the caller's environment reaches a program but what the preregistration names.

use crate::campaign::REASON_BYTES_MAX;
use crate::world::Launch;
use packhouse_base::digest::Digest;
use packhouse_component::drive::{Ask, DriveError, Farewell, Limits, Outcome, Program, Tap};
use packhouse_component::exchange::Exchange;
use packhouse_component::message::Introduction;
use packhouse_sys::child::{Exit, Order};
use packhouse_sys::fs::{Dir, Fs};

/// What a program must do when it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What it must give back.
    pub challenge: Digest,
    /// How long it may take for each answer, in nanoseconds.
    pub case_ns: u64,
}

/// Who starts programs.
pub trait Sessions {
    /// Starts a program and greets it.
    ///
    /// # Errors
    /// When it can't be started, or does not introduce itself.
    fn start(
        &self,
        launch: &Launch,
        terms: Terms,
        tap: Box<dyn Tap>,
    ) -> Result<Box<dyn Session>, Broken>;
}

/// A program that said hello. Dropped, it is killed.
pub trait Session {
    /// Who it says it is.
    fn introduction(&self) -> &Introduction;

    /// Its process.
    fn pid(&self) -> u32;

    /// Asks for one case.
    ///
    /// # Errors
    /// When it does not answer by the protocol in time; it is dead then.
    fn ask(&mut self, ask: &Ask<'_>) -> Result<Outcome, Broken>;

    /// Says bye and waits for the end.
    ///
    /// # Errors
    /// When it does not end as it should.
    fn bye(self: Box<Self>) -> Result<Gone, Broken>;

    /// Ends it without a word.
    fn stop(self: Box<Self>) -> Gone;
}

/// Bytes that are kept of what a program writes to stderr: the first.
pub const LOG_BYTES_MAX: usize = 1 << 20;

/// A program that is no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Its process; 0 where it was not followed to its end.
    pub pid: u32,
    /// How it ended, as `leg.json` has it; `killed` where it was not followed to its end.
    pub exit: Ending,
    /// What it wrote to stderr, the first MiB of it.
    pub log: Vec<u8>,
    /// Nanoseconds from its start to its end.
    pub elapsed_ns: u64,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with a code.
    Code(i32),
    /// By a signal that was not ours.
    Signal(i32),
    /// It was killed: its time was over, or its session broke off.
    #[default]
    Killed,
}

/// A session that broke off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Broken {
    /// Why.
    pub reason: String,
    /// How the program ended; none where there never was one.
    pub gone: Option<Gone>,
}

/// Programs that speak the component protocol, with their files below one folder.
pub struct Components<'a> {
    /// The file system.
    pub fs: &'a dyn Fs,
    /// The folder that the folders of files are made in; the caller may write it.
    pub exchange: Dir,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Killed => f.write_str("killed"),
        }
    }
}

impl Sessions for Components<'_> {
    fn start(
        &self,
        launch: &Launch,
        terms: Terms,
        tap: Box<dyn Tap>,
    ) -> Result<Box<dyn Session>, Broken> {
        let exchange = Exchange::make(self.fs, self.exchange.clone()).map_err(|error| Broken {
            reason: format!("the folders for its files: {error}"),
            gone: None,
        })?;
        let order = Order {
            program: &launch.program,
            arguments: &launch.arguments,
            environment: &launch.environment,
            folder: &launch.folder,
            timeout_ns: u64::MAX,
        };
        let limits = Limits {
            hello_ns: terms.case_ns,
            case_ns: terms.case_ns,
            bye_ns: terms.case_ns,
        };
        let started = Program::start(&order, exchange, terms.challenge, limits, tap);
        let program = started.map_err(|error| Broken::of(&error))?;
        Ok(Box::new(Running {
            introduction: program.introduction().clone(),
            pid: program.pid(),
            program: Some(program),
        }))
    }
}

/// A program; none after it broke off.
struct Running {
    introduction: Introduction,
    pid: u32,
    program: Option<Program>,
}

impl Session for Running {
    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn ask(&mut self, ask: &Ask<'_>) -> Result<Outcome, Broken> {
        let program = self.program.take().ok_or_else(over)?;
        let (program, outcome) = program.ask(ask).map_err(|error| Broken::of(&error))?;
        self.program = Some(program);
        Ok(outcome)
    }

    fn bye(mut self: Box<Self>) -> Result<Gone, Broken> {
        let program = self.program.take().ok_or_else(over)?;
        let farewell = program.bye().map_err(|error| Broken::of(&error))?;
        Ok(Gone::of(self.pid, farewell))
    }

    fn stop(mut self: Box<Self>) -> Gone {
        let stopped = self.program.take().map(Program::stop);
        stopped
            .and_then(Result::ok)
            .map(|farewell| Gone::of(self.pid, farewell))
            .unwrap_or_default()
    }
}

impl Gone {
    fn of(pid: u32, farewell: Farewell) -> Self {
        Self {
            pid,
            exit: Ending::of(farewell.exit),
            log: farewell.log,
            elapsed_ns: farewell.elapsed_ns,
        }
    }
}

impl Ending {
    fn of(exit: Exit) -> Self {
        match exit {
            Exit::Exited(code) => Self::Code(code),
            Exit::Signalled(signal) => Self::Signal(signal),
            Exit::TimedOut => Self::Killed,
        }
    }
}

impl Broken {
    fn of(error: &DriveError) -> Self {
        let gone = match error {
            DriveError::Broke {
                pid,
                log,
                exit,
                elapsed_ns,
                ..
            } => Some(Gone {
                pid: *pid,
                exit: Ending::of(*exit),
                log: log.clone(),
                elapsed_ns: *elapsed_ns,
            }),
            DriveError::Start(_)
            | DriveError::Exchange(_)
            | DriveError::Folder
            | DriveError::Form(_)
            | DriveError::Untimed => None,
        };
        let mut reason = error.to_string();
        crate::campaign::cut(&mut reason, REASON_BYTES_MAX);
        Self { reason, gone }
    }
}

fn over() -> Broken {
    Broken {
        reason: "the session is over".to_owned(),
        gone: None,
    }
}
