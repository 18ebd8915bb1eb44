//! Programs under test, as a campaign sees them: started, asked one case after the other, ended.
//!
//! Invariants:
//! - every message and everything seen goes to the tap when it happens;
//! - a session that broke off is over: its program is dead;
//! - whoever a program left behind is ended with its leg, of whatever session and environment;
//! - nothing of the caller's environment reaches a program but what the preregistration names.

use crate::campaign::{REASON_BYTES_MAX, cut};
use crate::world::Launch;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_component::drive::{Ask, DriveError, Farewell, Limits, Outcome, Program, Tap};
use packhouse_component::exchange::Exchange;
use packhouse_component::message::Introduction;
use packhouse_sys::child::{self, Exit, Order, Outlived};
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

    /// Begins a family: all that programs which are started from now on will leave behind.
    fn family(&self) -> Box<dyn Family>;
}

/// What the programs of a leg started and left behind. Dropped, it is ended.
pub trait Family {
    /// Ends all that programs which are over left behind, and waits for its end. Answers with who
    /// lived until now, each in words.
    ///
    /// # Errors
    /// With who lives on, in words.
    fn end(&mut self) -> Result<Vec<String>, String>;
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

    fn family(&self) -> Box<dyn Family> {
        let family = child::Family::begin().map_err(|error| unseen(&error));
        Box::new(Descendants {
            family,
            timeout_ns: FAMILY_NS,
        })
    }
}

/// Descendants of this process.
struct Descendants {
    family: Result<child::Family, String>,
    timeout_ns: u64,
}

impl Family for Descendants {
    fn end(&mut self) -> Result<Vec<String>, String> {
        let family = self.family.as_ref().map_err(Clone::clone)?;
        // Who did not end in that time is not waited for again.
        let timeout_ns = std::mem::take(&mut self.timeout_ns);
        let ending = family.end(timeout_ns).map_err(|error| unseen(&error))?;
        let few = |few: &[Outlived]| few.iter().take(NAMED_MAX).map(named).collect::<Vec<_>>();
        if !ending.left.is_empty() {
            let left = few(&ending.left).join(", ");
            return Err(format!("{left} outlived its program and can't be ended"));
        }
        if !ending.untold.is_empty() {
            let untold = few(&ending.untold).join(", ");
            return Err(format!(
                "{untold} is a child of this process that it did not start, and whose it is can't \
                 be told: this process had such children before the leg, or is the host's first"
            ));
        }
        self.timeout_ns = timeout_ns;
        let mut lived = few(&ending.ended);
        let more = ending.ended_count.saturating_sub(lived.len() as u64);
        if more > 0 {
            lived.push(format!("{more} more"));
        }
        Ok(lived)
    }
}

impl Drop for Descendants {
    fn drop(&mut self) {
        // Of what was given up nobody is told; the next leg's look finds who lives on.
        let _ = self.end();
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
    /// Adds to the log who outlived the program, and was ended: on a line of the controller's own.
    pub fn outlived(&mut self, lived: &[String]) {
        let mut line = format!(
            "packhouse: {} outlived it, and was ended\n",
            lived.join(", ")
        );
        cut(&mut line, LOG_BYTES_MAX / 2);
        self.log.truncate(LOG_BYTES_MAX - 1 - line.len());
        if self.log.last().is_some_and(|last| *last != b'\n') {
            self.log.push(b'\n');
        }
        self.log.extend(line.bytes());
    }

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
        cut(&mut reason, REASON_BYTES_MAX);
        Self { reason, gone }
    }
}

fn over() -> Broken {
    Broken {
        reason: "the session is over".to_owned(),
        gone: None,
    }
}

fn named(one: &Outlived) -> String {
    format!("process {} ({})", one.pid, Shown(&one.name))
}

fn unseen(error: &std::io::Error) -> String {
    format!("what its programs left behind can't be seen: {error}")
}

/// How long who was killed may take to be gone: an exit that waits for a disk or a card.
const FAMILY_NS: u64 = 10_000_000_000;
/// How many are named.
const NAMED_MAX: usize = 8;
