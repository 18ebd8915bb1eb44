//! The keeper: one small process per run, which starts the engine, waits for it, and records how it
//! ended.
//!
//! Invariants:
//! - it holds the lock on its run's order for as long as it lives;
//! - `launched.json` is durable before the gate may become the engine, so no engine ever runs
//!   unrecorded; a keeper that ends before takes the gate with it;
//! - it is a subreaper: what the engine leaves behind becomes its child, is ended and named;
//! - it signals only its own child and processes that are proven to be the run's.
//!
//! Never: starts an engine twice; decides that a run is ready. The order of steps, and what each
//! crash leaves, is in `docs/format/workers.md`.

mod end;
pub mod gate;

use crate::identity::ProcessKey;
use crate::logs::{LiveLog, LogError};
use crate::procfs::{Presence, Procfs, ProcfsError};
use crate::records::{Launched, Order, Outcome, Released, RunExit, Stop, Timestamp};
use crate::runs::{KEEPER_LOG, Run, RunsError, open_or_create};
use end::Ending;
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Fs, FsErrorKind};
use packhouse_sys::signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitStatus};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What a keeper works with.
pub struct Keeper<'a> {
    /// The file system of the records.
    pub fs: Arc<dyn Fs>,
    /// Time.
    pub clock: &'a dyn Clock,
    /// Processes.
    pub procfs: &'a Procfs,
    /// The program that knows the word `gate`: this one.
    pub program: &'a Path,
}

/// Why a keeper did not keep.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The run can't be read or written.
    #[error(transparent)]
    Run(#[from] RunsError),
    /// Another keeper has it, or a start gave it up at this moment.
    #[error("{}: another process has this run", folder.display())]
    Claimed {
        /// The run's folder.
        folder: PathBuf,
    },
    /// The run is launched or over.
    #[error("{}: this run was launched or given up before", folder.display())]
    Over {
        /// The run's folder.
        folder: PathBuf,
    },
    /// The order is of an earlier boot.
    #[error("{}: ordered in an earlier boot", folder.display())]
    EarlierBoot {
        /// The run's folder.
        folder: PathBuf,
    },
    /// The engine did not begin.
    #[error("the engine never ran: {why}")]
    NotStarted {
        /// Why.
        why: String,
    },
    /// Processes can't be read.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
    /// The log can't be had.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The system said no.
    #[error("{what}: {source}")]
    Call {
        /// To what.
        what: &'static str,
        /// Why.
        source: Errno,
    },
}

impl KeepError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Run(error) => error.blame(),
            Self::Claimed { .. } | Self::Over { .. } | Self::EarlierBoot { .. } => Blame::Caller,
            Self::NotStarted { .. } => Blame::Source,
            Self::Procfs(error) => error.blame(),
            Self::Log(error) => error.blame(),
            Self::Call { .. } => Blame::Host,
        }
    }
}

/// A run whose engine was launched.
struct Kept<'a> {
    keeper: &'a Keeper<'a>,
    run: &'a Run,
    order: &'a Order,
    launched: Launched,
    log: LiveLog,
    /// What the gate has to say, where a signal came before the engine began.
    unheard: Option<UnixStream>,
}

impl Keeper<'_> {
    /// Launches a run's engine and waits for its end. Answers with the end as recorded.
    pub fn keep(&self, folder: &Path) -> Result<RunExit, KeepError> {
        let run = Run::open(self.fs.clone(), folder)?;
        let owned = || folder.to_owned();
        let claim = run.claim(self.clock, CLAIM_TIMEOUT_NS)?;
        let _claim = claim.ok_or_else(|| KeepError::Claimed { folder: owned() })?;
        let was_launched = run.read::<RunExit>()?.is_some() || run.read::<Launched>()?.is_some();
        let was_stopped = run.read::<Stop>()?.is_some() || run.read::<Released>()?.is_some();
        if was_launched || was_stopped {
            return Err(KeepError::Over { folder: owned() });
        }
        let order = run.order()?;
        if order.at.boot != self.procfs.boot_id() {
            return Err(KeepError::EarlierBoot { folder: owned() });
        }
        match self.launch(&run, &order) {
            Ok(kept) => kept.watch(),
            Err(error) => {
                let why = match &error {
                    KeepError::NotStarted { why } => why.clone(),
                    other => other.to_string(),
                };
                run.write(&RunExit {
                    run: order.run,
                    outcome: Outcome::NotStarted { why },
                    at: self.now(),
                    left_behind: Vec::new(),
                    log_freed_bytes: 0,
                })?;
                Err(error)
            }
        }
    }

    /// Starts the gate, puts it on record, and lets it become the engine.
    fn launch<'a>(&'a self, run: &'a Run, order: &'a Order) -> Result<Kept<'a>, KeepError> {
        // Only what lists of processes call it.
        let _ = rustix::thread::set_name(c"packhouse-keep");
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|source| call("cannot take in what an engine leaves behind", source))?;
        signal::catch_once().map_err(|error| call_io("cannot take signals", &error))?;
        let log = LiveLog::open(run, order.log_max_bytes)?;
        let (mut stream, theirs) =
            UnixStream::pair().map_err(|error| call_io("cannot make a socket pair", &error))?;
        let child = self.gate(order, &log, theirs)?;
        let mut word = [0];
        let stands = matches!(heard(&mut stream, &mut word), Ok(1)) && word == [gate::READY];
        if !stands {
            return Err(refused(&word, &mut stream));
        }
        let worker = self.procfs.key_of(child)?;
        let worker = worker.ok_or_else(|| KeepError::NotStarted {
            why: "the gate ended".to_owned(),
        })?;
        let launched = Launched {
            run: order.run,
            keeper: self.procfs.own_key()?,
            session: session_of(&worker),
            worker,
            cgroup: self.cgroup(order)?,
            at: self.now(),
        };
        // From here on whoever looks finds the engine.
        run.write(&launched)?;
        let begun = stream.write_all(&[gate::GO]);
        begun.map_err(|error| KeepError::NotStarted {
            why: format!("the gate ended: {error}"),
        })?;
        // Whatever comes before the gate's word, it may become the engine at any moment now.
        let unheard = match stream.read(&mut word) {
            Ok(0) => None,
            Ok(_) => return Err(refused(&word, &mut stream)),
            Err(_) => Some(stream),
        };
        Ok(Kept {
            keeper: self,
            run,
            order,
            launched,
            log,
            unheard,
        })
    }

    /// Starts the gate; answers its pid. It is waited for by the loop, not by its handle.
    fn gate(&self, order: &Order, log: &LiveLog, stream: UnixStream) -> Result<u32, KeepError> {
        let folder = order.working_folder.as_deref().unwrap_or(Path::new("/"));
        let mut command = Command::new(self.program);
        command.arg0("packhouse").arg("gate");
        if let Some(cores) = &order.cores {
            command.arg("--cores").arg(cores.to_string());
        }
        command
            .arg("--")
            .args(&order.command)
            .env_clear()
            .envs(&order.environment)
            .current_dir(folder)
            .stdin(Stdio::from(OwnedFd::from(stream)))
            .stdout(Stdio::from(log.descriptor()?))
            .stderr(Stdio::from(log.descriptor()?));
        let child = command.spawn().map_err(|error| KeepError::NotStarted {
            why: format!("cannot start a process in {}: {error}", folder.display()),
        })?;
        Ok(child.id())
    }

    fn cgroup(&self, order: &Order) -> Result<Option<PathBuf>, KeepError> {
        match order.backend {
            crate::records::Backend::Plain => Ok(None),
            crate::records::Backend::Systemd => {
                let own = self.procfs.process(std::process::id())?;
                // Unknown is as good as none: the other proofs of descent stay.
                Ok(own.and_then(|own| own.cgroup().ok().flatten()))
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::now(&self.procfs.boot_id(), self.clock)
    }
}

impl Kept<'_> {
    /// Waits for the engine's end, ends what it left behind, and records both. Does not return
    /// while something of the run lives that it could end.
    fn watch(mut self) -> Result<RunExit, KeepError> {
        let main = hold(&self.launched.worker);
        let mut ending = Ending::new(self.order.stop_timeouts);
        let mut is_bounded = true;
        let mut outcome = loop {
            if let Some(outcome) = self.reap() {
                break outcome;
            }
            // A log that can't be bounded is no reason to leave the engine alone.
            if let Err(error) = self.log.bound()
                && std::mem::take(&mut is_bounded)
            {
                self.say(&format!("the log is not kept within its bound: {error}\n"));
            }
            if signal::was_caught() {
                ending.step(self.keeper, self.order, &self.launched);
            }
            match &main {
                Some(main) => wait_or_signal(main, self.log.pause_ns()),
                None => self.keeper.clock.sleep_ns(self.log.pause_ns()),
            }
        };
        if let Some(mut stream) = self.unheard.take()
            && let Some(why) = said(&[], &mut stream)
        {
            outcome = Outcome::NotStarted { why };
        }
        let _ = self.log.bound();
        let mut exit = RunExit {
            run: self.order.run,
            outcome,
            at: self.keeper.now(),
            left_behind: end::left_behind(self.keeper.procfs, self.order, &self.launched),
            log_freed_bytes: self.log.freed_bytes(),
        };
        // Whether it was written or not, nothing is left behind.
        let written = self.run.write(&exit);
        if exit.left_behind.is_empty() && written.is_ok() {
            return Ok(exit);
        }
        end::end_all(self.keeper, self.order, &self.launched, &mut exit);
        self.record(&exit)?;
        Ok(exit)
    }

    /// Records the end, as soon as that can be done: until then this lives, and holds the run.
    /// Gives up when it is asked to end, and when the run's folder is gone.
    fn record(&self, exit: &RunExit) -> Result<(), KeepError> {
        let begun_ns = self.keeper.clock.steady_ns();
        loop {
            let Err(error) = self.run.write(exit) else {
                return Ok(());
            };
            let waited_ns = self.keeper.clock.steady_ns().saturating_sub(begun_ns);
            let is_over = signal::was_caught() || waited_ns > RECORD_TIMEOUT_NS;
            if is_over || has_no_folder(&error) {
                return Err(error.into());
            }
            self.keeper.clock.sleep_ns(PAUSE_NS);
        }
    }

    /// Adds a line to this keeper's own log. One that can't be written is not worth an engine.
    fn say(&self, line: &str) {
        let _ = open_or_create(self.run.dir(), KEEPER_LOG).and_then(|log| {
            let end = log.stat()?.size;
            log.write_all_at(end, line.as_bytes())
        });
    }

    /// Takes the status of every child that ended; answers the engine's.
    fn reap(&self) -> Option<Outcome> {
        let mut outcome = None;
        loop {
            match end::next_ended() {
                Ok(Some((pid, status))) => {
                    if u32::try_from(pid.as_raw_pid()) == Ok(self.launched.worker.pid) {
                        outcome = Some(outcome_of(status));
                    }
                }
                Ok(None) => return outcome,
                // Children that can't be waited for are looked at.
                Err(_) => {
                    let presence = self.keeper.procfs.presence(&self.launched.worker);
                    let is_gone = matches!(presence, Ok(Presence::Gone | Presence::Reused { .. }));
                    return outcome.or(is_gone.then_some(Outcome::Unseen));
                }
            }
        }
    }
}

/// Whether a record found no folder to be in: somebody removed it, and nobody will ever read there.
fn has_no_folder(error: &RunsError) -> bool {
    matches!(error, RunsError::Fs(error) if matches!(error.kind, FsErrorKind::NotFound))
}

/// A hold on the engine; none where the kernel has no such thing. It is this process' child that
/// nobody waited for yet, so its pid is nobody else's.
fn hold(worker: &ProcessKey) -> Option<OwnedFd> {
    let pid = Pid::from_raw(session_of(worker))?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Returns when the engine ended, a signal came, or a while has passed.
fn wait_or_signal(main: &OwnedFd, pause_ns: u64) {
    let pause = Timespec {
        tv_sec: i64::try_from(pause_ns / 1_000_000_000).unwrap_or(1),
        tv_nsec: i64::try_from(pause_ns % 1_000_000_000).unwrap_or(0),
    };
    // Whatever it says, the caller looks.
    let _ = poll(&mut [PollFd::new(main, PollFlags::IN)], Some(&pause));
}

fn outcome_of(status: WaitStatus) -> Outcome {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Outcome::Code(code),
        (None, Some(signal)) => Outcome::Signal(signal),
        // Stops are not asked for.
        (None, None) => Outcome::Unseen,
    }
}

/// The session that a gate made leads it, so it has the gate's number.
fn session_of(worker: &ProcessKey) -> i32 {
    i32::try_from(worker.pid).expect("because the kernel's pids are positive i32")
}

/// Reads, whatever signals come.
fn heard(stream: &mut UnixStream, word: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(word) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// What a gate said instead of what was wanted.
fn refused(first: &[u8], stream: &mut UnixStream) -> KeepError {
    let why = said(first, stream);
    KeepError::NotStarted {
        why: why.unwrap_or_else(|| "the gate ended without a word".to_owned()),
    }
}

/// All that a gate said until it ended.
fn said(first: &[u8], stream: &mut UnixStream) -> Option<String> {
    let mut text = first.to_vec();
    // A text cut short is still the best word there is.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let text = text.trim_matches('\0');
    (!text.is_empty()).then(|| text.to_owned())
}

fn call(what: &'static str, source: Errno) -> KeepError {
    KeepError::Call { what, source }
}

fn call_io(what: &'static str, error: &io::Error) -> KeepError {
    call(what, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Whoever looks whether a keeper lives holds the lock for a moment.
const CLAIM_TIMEOUT_NS: u64 = 10_000_000_000;
/// Between two tries to write an end down.
const PAUSE_NS: u64 = 1_000_000_000;
/// How long an end that can't be written down is held on to: somebody may free the disk.
const RECORD_TIMEOUT_NS: u64 = 3600 * PAUSE_NS;
