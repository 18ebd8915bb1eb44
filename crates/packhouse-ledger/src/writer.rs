//! The one writer of a ledger.
//!
//! Invariants:
//! - exclusive OFD locks on `ledger.lock` and on the ledger itself are held from before the ledger
//!   is read to the end, or to [`Writer::rest`]; what others append while it rests is read when it
//!   wakes, and must go on from what was read before;
//! - a packet is executed by one process at a time, whoever has the ledger meanwhile;
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
use crate::continues::Discontinuity;
use crate::entry::{Entry, EntryFault};
use crate::heads::HeadError;
use crate::{Heads, LEDGER_BYTES_MAX, LEDGER_FILE, LOCK_FILE};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, LockKind};
use std::path::PathBuf;

/// The right to append, and the ledger so far.
#[derive(Debug)]
pub struct Writer {
    lab: Dir,
    /// Absent while it rests.
    held: Option<Held>,
    heads: Option<Heads>,
    ledger: Ledger,
    cut_bytes: u64,
    is_poisoned: bool,
}

/// The ledger's file, and both locks.
#[derive(Debug)]
struct Held {
    file: File,
    _lock: File,
}

/// The right to execute one packet: of all processes that know the lab's folder one has it.
#[derive(Debug)]
pub struct PacketHold {
    _files: [File; 2],
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
    /// Somebody else executes this packet.
    #[error("another process executes packet {packet}")]
    PacketBusy {
        /// The packet.
        packet: Digest,
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
    /// What others did to the ledger while its lock was given back.
    #[error("{} changed while a packet was executed: {why}", path.display())]
    Replaced {
        /// The ledger.
        path: PathBuf,
        /// How it does not go on from what was read before.
        why: Discontinuity,
    },
    /// An earlier write or sync failed.
    #[error("an earlier append failed, so nothing is known of the end of the file")]
    Poisoned,
    /// The lock was given back.
    #[error("the ledger's lock was given back")]
    Resting,
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
        let lock = lock(lab, clock, LOCK_WAIT_NS)?;
        let file = open_or_make(lab, LEDGER_FILE, 0o644)?;
        hold(&file, clock, LOCK_WAIT_NS)?;
        if file.read_small(LEDGER_BYTES_MAX)?.contains(&b'\n') {
            let path = file.path().to_owned();
            return Err(WriterError::Exists { path });
        }
        file.set_length(0)?;
        let mut writer = Self {
            lab: lab.clone(),
            held: Some(Held { file, _lock: lock }),
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
        let (held, ledger) = taken(lab, clock, LOCK_WAIT_NS)?;
        if let Some(heads) = heads {
            heads.admit(&ledger)?;
        }
        let cut_bytes = held.cut(&ledger)?;
        Ok(Self {
            lab: lab.clone(),
            held: Some(held),
            heads: heads.cloned(),
            ledger: ledger.without_torn(),
            cut_bytes,
            is_poisoned: false,
        })
    }

    /// The right to execute a packet, which does not need the ledger's lock. Errors with
    /// `PacketBusy` where another process has it for longer than a second.
    pub fn hold_packet(
        &self,
        packet: Digest,
        clock: &dyn Clock,
    ) -> Result<PacketHold, WriterError> {
        let range = (packet_byte(packet), 1);
        let hold =
            |file: File| match file.lock_within(clock, LockKind::Exclusive, range, LOCK_WAIT_NS)? {
                true => Ok(file),
                false => Err(WriterError::PacketBusy { packet }),
            };
        // Of both files, as the ledger's own lock.
        let lock = hold(open_or_make(&self.lab, LOCK_FILE, 0o644)?)?;
        let ledger = hold(self.lab.open_file_writable(LEDGER_FILE)?)?;
        Ok(PacketHold {
            _files: [lock, ledger],
        })
    }

    /// Gives the ledger's lock back while nothing is to be appended. The ledger stays as it
    /// was read until [`Writer::wake`].
    pub fn rest(&mut self) {
        self.held = None;
    }

    /// Takes the lock again after a rest, and reads what others appended. Errors with `Busy` where
    /// somebody else writes for longer than a minute, and with `Replaced` where the ledger does not
    /// go on from what was read before.
    pub fn wake(&mut self, clock: &dyn Clock) -> Result<(), WriterError> {
        if self.held.is_some() {
            return Ok(());
        }
        let (held, ledger) = taken(&self.lab, clock, WAKE_WAIT_NS)?;
        ledger.continues(self.ledger.bytes()).map_err(|why| {
            let path = held.file.path().to_owned();
            WriterError::Replaced { path, why }
        })?;
        self.cut_bytes += held.cut(&ledger)?;
        self.ledger = ledger.without_torn();
        self.held = Some(held);
        Ok(())
    }

    /// Appends an act, makes it durable, and notes it as seen where that can be. Errors with
    /// `Refused` where the act is malformed or contradicts, before anything is written; with
    /// `Moved` where somebody changed the file; with `Resting` where the lock was given back; and
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
        self.file()?;
        let (line, next) = self.ledger.rendered(&act.into(), at_ns, boot)?;
        self.is_as_read()?;
        self.is_poisoned = true;
        let ours = self.file()?;
        ours.write_all_at(self.ledger.bytes().len() as u64, &line)?;
        ours.sync()?;
        self.ledger.push(&line, next);
        self.is_as_read()?;
        self.is_poisoned = false;
        // What a kill leaves is known too. Why it can't be noted is told at the end.
        let _ = self.remember();
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

    /// Notes the present head as seen. Each append does so too; a command asks again when it is
    /// done, and says why it can't be noted.
    pub fn remember(&self) -> Result<(), WriterError> {
        match &self.heads {
            Some(heads) => Ok(heads.admit(&self.ledger)?),
            None => Ok(()),
        }
    }

    /// The file that has the ledger's name is the one that is held, has the length that was read,
    /// and ends with the line that was read last.
    fn is_as_read(&self) -> Result<(), WriterError> {
        let file = self.file()?;
        let moved = |what| {
            let path = file.path().to_owned();
            Err(WriterError::Moved { path, what })
        };
        if !is_named(&self.lab, file, LEDGER_FILE)? {
            return moved("another file has its name");
        }
        let bytes = self.ledger.bytes();
        if file.stat()?.size != bytes.len() as u64 {
            return moved("its length");
        }
        let index = self.ledger.entries().len() as u64;
        let line = index.checked_sub(1).and_then(|last| self.ledger.line(last));
        let line = line.unwrap_or(&[]);
        let mut last = vec![0; line.len()];
        let read = file.read_full_at((bytes.len() - line.len()) as u64, &mut last)?;
        if read != line.len() || last != line {
            return moved("its last entry");
        }
        Ok(())
    }

    fn file(&self) -> Result<&File, WriterError> {
        let held = self.held.as_ref();
        held.map(|held| &held.file).ok_or(WriterError::Resting)
    }
}

impl Held {
    /// Cuts off a torn append. Returns its bytes.
    fn cut(&self, ledger: &Ledger) -> Result<u64, WriterError> {
        let cut_bytes = ledger.torn_bytes();
        if cut_bytes > 0 {
            self.file.set_length(ledger.bytes().len() as u64)?;
            self.file.sync()?;
        }
        Ok(cut_bytes)
    }
}

/// Both locks, and the ledger as it is under them.
fn taken(lab: &Dir, clock: &dyn Clock, wait_ns: u64) -> Result<(Held, Ledger), WriterError> {
    let lock = lock(lab, clock, wait_ns)?;
    let file = lab.open_file_writable(LEDGER_FILE)?;
    hold(&file, clock, wait_ns)?;
    let ledger = Ledger::parse(&file.read_small(LEDGER_BYTES_MAX)?)?;
    Ok((Held { file, _lock: lock }, ledger))
}

/// The byte whose lock is a packet's: behind the ledger's own.
fn packet_byte(packet: Digest) -> u64 {
    let first = packet.as_bytes().first_chunk().copied();
    1 + (u64::from_be_bytes(first.expect("because a digest has 32 bytes")) >> 2)
}

impl WriterError {
    /// Whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Ledger(error) => error.blame(),
            Self::Fs(error) => error.blame(),
            Self::Busy { .. }
            | Self::PacketBusy { .. }
            | Self::Moved { .. }
            | Self::Replaced { .. }
            | Self::Poisoned
            | Self::Resting => Blame::Host,
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
            | Self::PacketBusy { .. }
            | Self::Exists { .. }
            | Self::Moved { .. }
            | Self::Replaced { .. }
            | Self::Poisoned
            | Self::Resting => None,
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

/// Whether some process executes a packet now: asked, and not taken.
///
/// # Errors
/// When the ledger can't be opened, or its file system has no locks.
pub fn is_packet_held(lab: &Dir, packet: Digest) -> Result<bool, FsError> {
    let is_held = |name| {
        let file = lab.open_file(name)?;
        Ok(!file.try_lock(LockKind::Shared, packet_byte(packet), 1)?)
    };
    // One of the two may have been put in the place of the one that is locked.
    match is_held(LOCK_FILE) {
        Err(FsError {
            kind: FsErrorKind::NotFound,
            ..
        })
        | Ok(false) => is_held(LEDGER_FILE),
        other => other,
    }
}

/// How long a writer waits for another one's append.
const LOCK_WAIT_NS: u64 = 1_000_000_000;

/// How long one waits that has something to enter which can't be had again.
const WAKE_WAIT_NS: u64 = 60_000_000_000;

/// Takes the lock on the file that has its name when the lock is had: one that was removed
/// meanwhile excludes nobody.
fn lock(lab: &Dir, clock: &dyn Clock, wait_ns: u64) -> Result<File, WriterError> {
    loop {
        let file = open_or_make(lab, LOCK_FILE, 0o644)?;
        hold(&file, clock, wait_ns)?;
        if is_named(lab, &file, LOCK_FILE)? {
            return Ok(file);
        }
    }
}

/// Locks a file's first byte. Of the ledger too: a lock's file can be removed while it is held (it
/// is no part of a commit, and `git clean` takes it), and then its name leads to another one.
fn hold(file: &File, clock: &dyn Clock, wait_ns: u64) -> Result<(), WriterError> {
    if file.lock_within(clock, LockKind::Exclusive, (0, 1), wait_ns)? {
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
