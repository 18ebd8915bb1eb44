//! A hold on one process, through which a signal reaches that process or nobody.
//!
//! Invariants:
//! - the hold is taken first, and the key is read after it: a pid that was given to another process
//!   before the hold is seen, and one that is given later does not concern it;
//! - a process that has ended is `Gone`, whether or not its parent has waited for it.
//!
//! Never: a signal by pid.

use crate::identity::ProcessKey;
use crate::procfs::{Presence, Procfs, ProcfsError};
use packhouse_base::Blame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use std::fmt;

/// A hold on the process of a key.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    key: ProcessKey,
}

/// What a worker is asked to end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The process has it.
    Sent,
    /// The process has ended.
    Gone,
}

/// Why a process is not held, or was not signalled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PidFdError {
    /// The process has ended.
    #[error("{key}: the process has ended")]
    Gone {
        /// Whose hold was asked for.
        key: ProcessKey,
    },
    /// Another process has the pid.
    #[error("{key}: the process has ended, and {found} is another one")]
    Reused {
        /// Whose hold was asked for.
        key: ProcessKey,
        /// Who has the pid.
        found: ProcessKey,
    },
    /// The process is of another pid namespace, so that its pid is no pid here.
    #[error("{key}: of another pid namespace")]
    OtherNamespace {
        /// Whose hold was asked for.
        key: ProcessKey,
    },
    /// The process is another user's, or has rights that we lack.
    #[error("{key}: permission denied")]
    Permission {
        /// Whose hold was asked for.
        key: ProcessKey,
    },
    /// The kernel has no holds on processes: it is older than 5.3, or they are forbidden here.
    #[error("{key}: this kernel has no process descriptors: {source}")]
    Unsupported {
        /// Whose hold was asked for.
        key: ProcessKey,
        /// What the kernel said.
        source: Errno,
    },
    /// The kernel refused for another reason.
    #[error("{key}: {source}")]
    Refused {
        /// Whose hold was asked for.
        key: ProcessKey,
        /// What the kernel said.
        source: Errno,
    },
    /// The process could not be read.
    #[error("{key}: {source}")]
    Procfs {
        /// Whose hold was asked for.
        key: ProcessKey,
        /// Why.
        source: ProcfsError,
    },
}

impl PidFdError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        Blame::Host
    }
}

impl PidFd {
    /// Takes hold of a process, then proves that it is the one of the key. Errors when that has
    /// ended, however its pid is used by now.
    pub fn open(procfs: &Procfs, key: &ProcessKey) -> Result<Self, PidFdError> {
        let key = *key;
        let pid = i32::try_from(key.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(PidFdError::Gone { key })?;
        let held = pidfd_open(pid, PidfdFlags::empty());
        let presence = procfs
            .presence(&key)
            .map_err(|source| PidFdError::Procfs { key, source })?;
        match presence {
            Presence::Gone | Presence::EarlierBoot => return Err(PidFdError::Gone { key }),
            Presence::Reused { found } => return Err(PidFdError::Reused { key, found }),
            Presence::OtherNamespace => return Err(PidFdError::OtherNamespace { key }),
            Presence::Alive => {}
        }
        match held {
            Ok(fd) => Ok(Self { fd, key }),
            // It was born after the attempt: not the process that was meant.
            Err(Errno::SRCH) => Err(PidFdError::Gone { key }),
            Err(Errno::PERM | Errno::ACCESS) => Err(PidFdError::Permission { key }),
            Err(source @ Errno::NOSYS) => Err(PidFdError::Unsupported { key, source }),
            Err(source) => Err(PidFdError::Refused { key, source }),
        }
    }

    /// Whose hold this is.
    pub fn key(&self) -> ProcessKey {
        self.key
    }

    /// Sends a signal to the held process, and to no other.
    pub fn send(&self, signal: Signal) -> Result<Delivery, PidFdError> {
        let key = self.key;
        // The kernel takes a signal for a process that has ended and was not waited for.
        if self.has_ended()? {
            return Ok(Delivery::Gone);
        }
        match pidfd_send_signal(&self.fd, signal.number()) {
            Ok(()) => Ok(Delivery::Sent),
            Err(Errno::SRCH) => Ok(Delivery::Gone),
            Err(Errno::PERM) => Err(PidFdError::Permission { key }),
            Err(source @ Errno::NOSYS) => Err(PidFdError::Unsupported { key, source }),
            Err(source) => Err(PidFdError::Refused { key, source }),
        }
    }

    /// Whether the held process has ended, all its threads with it.
    pub fn has_ended(&self) -> Result<bool, PidFdError> {
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
        loop {
            match poll(&mut polled, Some(&Timespec::default())) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(source) => {
                    let key = self.key;
                    return Err(PidFdError::Refused { key, source });
                }
            }
        }
    }
}

impl Signal {
    fn number(self) -> rustix::process::Signal {
        match self {
            Self::Interrupt => rustix::process::Signal::INT,
            Self::Terminate => rustix::process::Signal::TERM,
            Self::Kill => rustix::process::Signal::KILL,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        })
    }
}
