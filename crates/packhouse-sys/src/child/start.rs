//! The start of a child, and its end: the only place that forks, waits and kills.

use super::own::{Own, starting};
use super::pump::{Pump, PumpError};
use super::watch::{self, Watcher};
use super::{Ended, Exit, Order, StartError};
use crate::clock::{Clock as _, RealClock};
use crate::{signal, spawn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group,
    pidfd_open, set_child_subreaper, set_parent_process_death_signal, setsid, waitid,
};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A child that has been started and not been reaped.
pub(super) struct Started {
    child: Child,
    pid: Pid,
    pub(super) pidfd: OwnedFd,
    program: PathBuf,
    start_ns: u64,
    /// When its time is over, by the steady clock.
    pub(super) deadline_ns: u64,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    is_reaped: bool,
    /// Go last: until the child is reaped it is ours, and watched.
    _own: Own,
    _watcher: Watcher,
}

impl Started {
    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts the program with a pipe for each stream that is asked for, and `/dev/null` else. Our
    /// ends of the pipes don't block.
    pub(super) fn start(
        order: &Order<'_>,
        stdin: bool,
        stdout: bool,
        stderr: bool,
    ) -> Result<Self, StartError> {
        let program = order.program.to_path_buf();
        if !program.is_absolute() {
            return Err(StartError::Relative { program });
        }
        is_folder(order)?;
        let mut command = Command::new(&program);
        command
            .args(order.arguments)
            .env_clear()
            .envs(order.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(order.folder)
            .stdin(stream(stdin))
            .stdout(stream(stdout))
            .stderr(stream(stderr));
        let _starting = starting();
        let watcher = Watcher::start().map_err(|errno| followed(&program, errno))?;
        let (parent, line) = (getpid(), watcher.line());
        // SAFETY: `isolate` makes system calls only (setsid, prctl, getppid, write, rt_sigaction,
        // close_range, fcntl), all async-signal-safe, allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || isolate(parent, line)) };
        let start_ns = RealClock.steady_ns();
        let child = command.spawn().map_err(|error| StartError::Program {
            program: program.clone(),
            reason: error.to_string(),
        })?;
        Self::follow((child, watcher), program, start_ns, order.timeout_ns)
    }

    fn follow(
        (mut child, watcher): (Child, Watcher),
        program: PathBuf,
        start_ns: u64,
        timeout_ns: u64,
    ) -> Result<Self, StartError> {
        let pid = Pid::from_child(&child);
        let ends = (|| {
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            let stdin = child.stdin.take().map(OwnedFd::from).map(unblocked);
            let stdout = child.stdout.take().map(OwnedFd::from).map(unblocked);
            let stderr = child.stderr.take().map(OwnedFd::from).map(unblocked);
            Ok((
                pidfd,
                stdin.transpose()?,
                stdout.transpose()?,
                stderr.transpose()?,
            ))
        })();
        let (pidfd, stdin, stdout, stderr) = match ends {
            Ok(ends) => ends,
            Err(errno) => {
                let _ = kill_process_group(pid, Signal::KILL);
                let _ = child.wait();
                return Err(followed(&program, errno));
            }
        };
        Ok(Self {
            child,
            pid,
            pidfd,
            program,
            start_ns,
            deadline_ns: start_ns.saturating_add(timeout_ns),
            stdin,
            stdout,
            stderr,
            is_reaped: false,
            _own: Own::new(pid),
            _watcher: watcher,
        })
    }

    /// Waits for the end with stdin closed, keeps what comes until then, and reaps.
    pub(super) fn finish(
        mut self,
        stdout: &mut Pump,
        stderr: &mut Pump,
    ) -> Result<Ended, StartError> {
        self.stdin = None;
        let mut in_time = true;
        while in_time && !self.has_ended()? {
            let pidfd = Some(PollFd::new(&self.pidfd, PollFlags::IN));
            let mut fds: Vec<PollFd<'_>> = [pidfd, stdout.poll_fd(), stderr.poll_fd()]
                .into_iter()
                .flatten()
                .collect();
            in_time = wait(&mut fds, self.deadline_ns).map_err(|e| followed(&self.program, e))?;
            self.drained(stdout)?;
            self.drained(stderr)?;
        }
        let in_time = self.has_ended()?;
        self.kill_group();
        let status = self.reap()?;
        let elapsed_ns = RealClock.steady_ns().saturating_sub(self.start_ns);
        // Whoever left the group may hold the pipes: what is there is read, an end not waited for.
        self.drained(stdout)?;
        self.drained(stderr)?;
        let exit = match (in_time, status.code(), status.signal()) {
            (false, _, _) => Exit::TimedOut,
            (true, Some(code), _) => Exit::Exited(code),
            (true, None, signal) => Exit::Signalled(signal.unwrap_or(0)),
        };
        Ok(Ended {
            exit,
            stdout: stdout.take(),
            stderr: stderr.take(),
            elapsed_ns,
            was_cut: stdout.was_cut || stderr.was_cut,
        })
    }

    /// Brings the end of its time forward to `timeout_ns` from now.
    pub(super) fn shorten(&mut self, timeout_ns: u64) {
        let deadline_ns = RealClock.steady_ns().saturating_add(timeout_ns);
        self.deadline_ns = self.deadline_ns.min(deadline_ns);
    }

    /// A failure of a call on its pipes.
    pub(super) fn followed(&self, errno: Errno) -> StartError {
        followed(&self.program, errno)
    }

    /// Reads what a stream has.
    pub(super) fn drained(&self, stream: &mut Pump) -> Result<(), StartError> {
        stream.drain().map_err(|error| match error {
            PumpError::Read(errno) => followed(&self.program, errno),
            PumpError::Write(errno) => StartError::Keep {
                program: self.program.clone(),
                errno: errno.raw_os_error(),
            },
        })
    }

    /// Whether the leader is a zombie. It stays one.
    pub(super) fn has_ended(&self) -> Result<bool, StartError> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        retry_on_intr(|| waitid(WaitId::PidFd(self.pidfd.as_fd()), options))
            .map(|status| status.is_some())
            .map_err(|errno| followed(&self.program, errno))
    }

    /// Ends the leader and whoever is in its group. It is not reaped yet, so its number names our
    /// group and no other.
    fn kill_group(&self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    fn reap(&mut self) -> Result<std::process::ExitStatus, StartError> {
        let status = self.child.wait();
        self.is_reaped = true;
        status.map_err(|error| StartError::Follow {
            program: self.program.clone(),
            errno: error.raw_os_error().unwrap_or(0),
        })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill_group();
            let _ = self.child.wait();
        }
    }
}

/// Waits for one of the descriptors; false when the time is over. A time that is over already still
/// sees what is there.
pub(super) fn wait(fds: &mut [PollFd<'_>], deadline_ns: u64) -> Result<bool, Errno> {
    loop {
        let left_ns = deadline_ns.saturating_sub(RealClock.steady_ns());
        let timeout = Timespec {
            tv_sec: i64::try_from(left_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(left_ns % 1_000_000_000).unwrap_or(0),
        };
        match poll(fds, Some(&timeout)) {
            Ok(0) if RealClock.steady_ns() >= deadline_ns => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(RealClock.steady_ns() < deadline_ns),
            Err(errno) => return Err(errno),
        }
    }
}

/// Runs between fork and exec.
fn isolate(parent: Pid, line: RawFd) -> std::io::Result<()> {
    watch::name_group(line, setsid()?)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Whom it leaves behind becomes its own child again, and not somebody's out of sight.
    set_child_subreaper(Some(parent))?;
    // A parent that died before the line above sends nothing any more.
    if getppid() != Some(parent) {
        return Err(Errno::SRCH.into());
    }
    signal::reset_all();
    spawn::close_on_exec()
}

fn stream(is_piped: bool) -> Stdio {
    if is_piped {
        Stdio::piped()
    } else {
        Stdio::null()
    }
}

fn unblocked(end: OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = rustix::fs::fcntl_getfl(&end)?;
    rustix::fs::fcntl_setfl(&end, flags | OFlags::NONBLOCK)?;
    Ok(end)
}

/// Told apart from a program that is missing, which exec reports with the same number.
fn is_folder(order: &Order<'_>) -> Result<(), StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(order.folder, flags, rustix::fs::Mode::empty())
        .map(|_| ())
        .map_err(|errno| StartError::Folder {
            folder: order.folder.to_path_buf(),
            errno: errno.raw_os_error(),
        })
}

fn followed(program: &std::path::Path, errno: Errno) -> StartError {
    StartError::Follow {
        program: program.to_path_buf(),
        errno: errno.raw_os_error(),
    }
}
