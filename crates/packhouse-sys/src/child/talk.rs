//! A child that is talked to through its stdin and stdout.

use super::pump::Pump;
use super::start::{Started, wait};
use super::{Ended, Keep, Order, StartError};
use packhouse_base::Blame;
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, retry_on_intr};

/// A child with both pipes in hand. Dropped, it and its group are killed.
///
/// What it writes to stderr is kept while it is written to, read from and ended.
pub struct Talk {
    started: Started,
    stderr: Pump,
}

/// Why nothing could be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TalkError {
    /// The time for it was over, or the child's own.
    #[error("its time was over")]
    TimedOut,
    /// It reads no more: it closed its stdin, or is dead.
    #[error("it no longer reads its stdin")]
    Closed,
    /// The pipes could not be used, or its stderr not be kept.
    #[error(transparent)]
    Follow(#[from] StartError),
}

impl TalkError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::TimedOut | Self::Closed => Blame::Source,
            Self::Follow(error) => error.blame(),
        }
    }
}

impl Talk {
    /// Starts a program to talk to. The order's time is for the whole talk.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(order: &Order<'_>, stderr: Keep) -> Result<Self, StartError> {
        let mut started = Started::start(order, true, true, !stderr.is_nothing())?;
        let stderr = Pump::new(started.stderr.take(), stderr);
        Ok(Self { started, stderr })
    }

    /// The child's process id, which is its group's and session's too.
    pub fn pid(&self) -> u32 {
        self.started.pid()
    }

    /// When its time is over, by the steady clock.
    pub fn deadline_ns(&self) -> u64 {
        self.started.deadline_ns
    }

    /// Writes all bytes to its stdin before `deadline_ns` (steady clock).
    ///
    /// # Errors
    /// When the time is over, or it reads no more.
    pub fn write_all(&mut self, mut bytes: &[u8], deadline_ns: u64) -> Result<(), TalkError> {
        while !bytes.is_empty() {
            let has_ended = self.started.has_ended()?;
            let stdin = self.started.stdin.as_ref();
            let Some(stdin) = stdin.filter(|_| !has_ended) else {
                return Err(TalkError::Closed);
            };
            match retry_on_intr(|| rustix::io::write(stdin, bytes)) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::AGAIN) => self.wait_for(true, deadline_ns)?,
                Err(Errno::PIPE) => return Err(TalkError::Closed),
                Err(errno) => return Err(self.started.followed(errno).into()),
            }
        }
        Ok(())
    }

    /// Reads some bytes of its stdout before `deadline_ns` (steady clock). 0 is the end: it closed
    /// its stdout, or it is dead and all that it wrote has been read.
    ///
    /// # Errors
    /// When the time is over.
    pub fn read(&mut self, target: &mut [u8], deadline_ns: u64) -> Result<usize, TalkError> {
        loop {
            // Asked before the read: what a dead child wrote is in the pipe by then.
            let has_ended = self.started.has_ended()?;
            let Some(stdout) = &self.started.stdout else {
                return Ok(0);
            };
            match retry_on_intr(|| rustix::io::read(stdout, &mut *target)) {
                Ok(length) => return Ok(length),
                Err(Errno::AGAIN) if has_ended => return Ok(0),
                Err(Errno::AGAIN) => self.wait_for(false, deadline_ns)?,
                Err(errno) => return Err(self.started.followed(errno).into()),
            }
        }
    }

    /// Closes its stdin, and gives it `timeout_ns` to end by itself.
    ///
    /// # Errors
    /// When it can't be followed, or its stderr not be kept.
    pub fn end(mut self, timeout_ns: u64) -> Result<Ended, StartError> {
        self.started.shorten(timeout_ns);
        let max_bytes = UNREAD_BYTES_MAX;
        let mut stdout = Pump::new(self.started.stdout.take(), Keep::Memory { max_bytes });
        let Self {
            started,
            mut stderr,
        } = self;
        started.finish(&mut stdout, &mut stderr)
    }

    /// Waits until a pipe can be used or the child is dead, keeping stderr meanwhile: another
    /// process may hold a dead child's ends of the pipes.
    fn wait_for(&mut self, writing: bool, deadline_ns: u64) -> Result<(), TalkError> {
        let deadline_ns = deadline_ns.min(self.started.deadline_ns);
        let pipe = if writing {
            self.started.stdin.as_ref().map(|fd| (fd, PollFlags::OUT))
        } else {
            self.started.stdout.as_ref().map(|fd| (fd, PollFlags::IN))
        };
        let pipe = pipe.map(|(fd, flags)| PollFd::new(fd, flags));
        let pidfd = Some(PollFd::new(&self.started.pidfd, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = [pidfd, pipe, self.stderr.poll_fd()]
            .into_iter()
            .flatten()
            .collect();
        let in_time = wait(&mut fds, deadline_ns).map_err(|e| self.started.followed(e))?;
        self.started.drained(&mut self.stderr)?;
        if in_time {
            Ok(())
        } else {
            Err(TalkError::TimedOut)
        }
    }
}

/// Bytes kept of what it wrote after the last read.
const UNREAD_BYTES_MAX: u64 = 64 << 10;
