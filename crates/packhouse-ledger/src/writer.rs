//! The one writer of a ledger.
//!
//! Invariants:
//! - exclusive OFD locks on `ledger.lock` and on the ledger itself are held from before the ledger
//!   is read to the end;
//! - what is written is read back by the reader's own code first, so nothing is ever appended that
//!   a reader would refuse;
//! - an append goes behind the entries that were read, in the file that has the ledger's name, and
//!   is durable before it is reported;
//! - after a failed write or sync nothing more is written: the next writer reads what is there.
//!
//! Never: changes a byte of an entry; cuts a torn append before the remembered head was found.
//!
//! Format: `docs/format/ledger.md`, sections 1, 2 and 7.

use crate::act::{Act, Genesis};
use crate::chain::{Ledger, LedgerError};
use crate::entry::{Entry, EntryFault};
use crate::heads::HeadError;
use crate::{Heads, LEDGER_BYTES_MAX, LEDGER_FILE, LOCK_FILE};
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, LockKind};
use std::path::PathBuf;

/// The right to append, and the ledger so far.
#[derive(Debug)]
pub struct Writer {
    lab: Dir,
    file: File,
    _lock: File,
    heads: Option<Heads>,
    ledger: Ledger,
    cut_bytes: u64,
    is_poisoned: bool,
}

/// Why nothing could be appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriterError {
    /// The ledger can't be read.
    #[error("{0}")]
    Ledger(LedgerError),
    /// A file operation failed.
    #[error("{0}")]
    Fs(FsError),
    /// Somebody else writes this ledger.
    #[error("another process writes this ledger: {} is locked", path.display())]
    Busy {
        /// The lock's file.
        path: PathBuf,
    },
    /// A lab begins where there is one already.
    #[error("there is a ledger already: {}", path.display())]
    Exists {
        /// The ledger.
        path: PathBuf,
    },
    /// The act is malformed, or contradicts the entries.
    #[error("{0}")]
    Refused(EntryFault),
    /// The file is not as it was read under the lock.
    #[error("{} changed while we hold its lock: {what}", path.display())]
    Moved {
        /// The ledger.
        path: PathBuf,
        /// What is not as it was.
        what: &'static str,
    },
    /// An earlier write or sync failed.
    #[error("an earlier append failed, so nothing is known of the end of the file")]
    Poisoned,
}

impl Writer {
    /// Begins a lab: makes the ledger with its genesis. Errors with `Exists` where a ledger has a
    /// whole line; the rest of a beginning that was cut short is written over.
    pub fn init(
        lab: &Dir,
        clock: &dyn Clock,
        genesis: Genesis,
        at_ns: i64,
        boot: &str,
    ) -> Result<Self, WriterError> {
        let lock = lock(lab, clock)?;
        let file = open_or_make(lab, LEDGER_FILE, 0o644)?;
        hold(&file, clock)?;
        if file.read_small(LEDGER_BYTES_MAX)?.contains(&b'\n') {
            let path = file.path().to_owned();
            return Err(WriterError::Exists { path });
        }
        file.set_length(0)?;
        let mut writer = Self {
            lab: lab.clone(),
            file,
            _lock: lock,
            heads: None,
            ledger: Ledger::empty(),
            cut_bytes: 0,
            is_poisoned: false,
        };
        writer.append(genesis, at_ns, boot)?;
        lab.sync()?;
        Ok(writer)
    }

    /// Takes the lock, reads the ledger, demands the head that this user saw last, and cuts off a
    /// torn append. Errors with `Busy` where somebody else writes for longer than a second.
    pub fn open(lab: &Dir, heads: Option<&Heads>, clock: &dyn Clock) -> Result<Self, WriterError> {
        let lock = lock(lab, clock)?;
        let file = lab.open_file_writable(LEDGER_FILE)?;
        hold(&file, clock)?;
        let ledger = Ledger::parse(&file.read_small(LEDGER_BYTES_MAX)?)?;
        if let Some(heads) = heads {
            heads.admit(&ledger)?;
        }
        let cut_bytes = ledger.torn_bytes();
        if cut_bytes > 0 {
            file.set_length(ledger.bytes().len() as u64)?;
            file.sync()?;
        }
        Ok(Self {
            lab: lab.clone(),
            file,
            _lock: lock,
            heads: heads.cloned(),
            ledger: ledger.without_torn(),
            cut_bytes,
            is_poisoned: false,
        })
    }

    /// Appends an act and makes it durable. Errors with `Refused` where the act is malformed or
    /// contradicts, before anything is written; with `Moved` where somebody changed the file; and
    /// where it can't be written, after which nothing more can.
    pub fn append(
        &mut self,
        act: impl Into<Act>,
        at_ns: i64,
        boot: &str,
    ) -> Result<&Entry, WriterError> {
        if self.is_poisoned {
            return Err(WriterError::Poisoned);
        }
        let (line, next) = self.ledger.rendered(&act.into(), at_ns, boot)?;
        self.is_as_read()?;
        self.is_poisoned = true;
        self.file
            .write_all_at(self.ledger.bytes().len() as u64, &line)?;
        self.file.sync()?;
        self.ledger.push(&line, next);
        self.is_as_read()?;
        self.is_poisoned = false;
        let entry = self.ledger.entries().last();
        Ok(entry.expect("because an entry was pushed"))
    }

    /// The ledger so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Bytes of a torn append that were cut off when the ledger was opened.
    pub fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    /// Notes the present head as seen. A command does so when it is done; the next reading would.
    pub fn remember(&self) -> Result<(), WriterError> {
        match &self.heads {
            Some(heads) => Ok(heads.admit(&self.ledger)?),
            None => Ok(()),
        }
    }

    /// The file that has the ledger's name is the one that is held, has the length that was read,
    /// and ends with the line that was read last.
    fn is_as_read(&self) -> Result<(), WriterError> {
        let moved = |what| {
            let path = self.file.path().to_owned();
            Err(WriterError::Moved { path, what })
        };
        if !is_named(&self.lab, &self.file, LEDGER_FILE)? {
            return moved("another file has its name");
        }
        let bytes = self.ledger.bytes();
        if self.file.stat()?.size != bytes.len() as u64 {
            return moved("its length");
        }
        let index = self.ledger.entries().len() as u64;
        let line = index.checked_sub(1).and_then(|last| self.ledger.line(last));
        let line = line.unwrap_or(&[]);
        let mut last = vec![0; line.len()];
        let read = self
            .file
            .read_full_at((bytes.len() - line.len()) as u64, &mut last)?;
        if read != line.len() || last != line {
            return moved("its last entry");
        }
        Ok(())
    }
}

impl WriterError {
    /// Whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Ledger(error) => error.blame(),
            Self::Fs(error) => error.blame(),
            Self::Busy { .. } | Self::Moved { .. } | Self::Poisoned => Blame::Host,
            Self::Exists { .. } | Self::Refused(_) => Blame::Caller,
        }
    }

    /// The reason code of `docs/format/ledger.md`, section 6, where there is one.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Ledger(error) => error.code(),
            Self::Refused(fault) => Some(fault.code()),
            Self::Fs(_)
            | Self::Busy { .. }
            | Self::Exists { .. }
            | Self::Moved { .. }
            | Self::Poisoned => None,
        }
    }
}

impl From<FsError> for WriterError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

impl From<LedgerError> for WriterError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

impl From<HeadError> for WriterError {
    fn from(error: HeadError) -> Self {
        Self::Ledger(LedgerError::Head(error))
    }
}

impl From<EntryFault> for WriterError {
    fn from(fault: EntryFault) -> Self {
        Self::Refused(fault)
    }
}

/// How long a writer waits for another one's append. A run holds the lock for minutes, and nobody
/// waits for that.
const LOCK_WAIT_NS: u64 = 1_000_000_000;

/// Takes the lock on the file that has its name when the lock is had: one that was removed
/// meanwhile excludes nobody.
fn lock(lab: &Dir, clock: &dyn Clock) -> Result<File, WriterError> {
    loop {
        let file = open_or_make(lab, LOCK_FILE, 0o644)?;
        hold(&file, clock)?;
        if is_named(lab, &file, LOCK_FILE)? {
            return Ok(file);
        }
    }
}

/// Locks a file's first byte. Of the ledger too: a lock's file can be removed while it is held (it
/// is no part of a commit, and `git clean` takes it), and then its name leads to another one.
fn hold(file: &File, clock: &dyn Clock) -> Result<(), WriterError> {
    if file.lock_within(clock, LockKind::Exclusive, (0, 1), LOCK_WAIT_NS)? {
        return Ok(());
    }
    let path = file.path().to_owned();
    Err(WriterError::Busy { path })
}

fn open_or_make(lab: &Dir, name: &str, mode: u32) -> Result<File, FsError> {
    match lab.create_new(name, mode) {
        Err(error) if error.kind == FsErrorKind::Exists => lab.open_file_writable(name),
        other => other,
    }
}

/// Whether a name leads to this very file.
fn is_named(lab: &Dir, file: &File, name: &str) -> Result<bool, FsError> {
    let named = match lab.stat_entry(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let held = file.stat()?;
    Ok((named.device, named.inode) == (held.device, held.inode))
}
