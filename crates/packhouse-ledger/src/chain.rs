//! A whole ledger: lines, chain and state, read once and together.
//!
//! Invariants: a `Ledger` has at least its genesis; each entry is chained to the one before and
//! contradicts none; its bytes are those that were read.
//!
//! Format: `docs/format/ledger.md`, sections 2 and 5.

use crate::act::{Act, is_spent};
use crate::entry::{Entry, EntryFault, NO_ENTRY};
use crate::heads::HeadError;
use crate::state::{Contradiction, State};
use crate::{Heads, LEDGER_BYTES_MAX, LEDGER_FILE};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};

/// A ledger that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    entries: Vec<Entry>,
    state: State,
    torn_bytes: u64,
}

/// Why a ledger can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The file can't be read.
    #[error("{0}")]
    Fs(FsError),
    /// Not a single whole line: the lab was never begun, or its beginning was cut short.
    #[error("no ledger: {bytes} bytes without a whole line")]
    NoEntries {
        /// Bytes there.
        bytes: u64,
    },
    /// An entry is wrong, or contradicts those before it.
    #[error("entry {index}: {fault}")]
    Entry {
        /// Its place, from 0; its line is one more.
        index: u64,
        /// What is wrong.
        fault: EntryFault,
    },
    /// It is not the ledger that this user saw last, or that can't be told.
    #[error("{0}")]
    Head(HeadError),
}

impl Ledger {
    /// Parses a ledger's bytes. What follows the last newline is a torn append and is left out.
    /// Errors without a whole line, and at the first entry that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, LedgerError> {
        if bytes.len() as u64 > LEDGER_BYTES_MAX {
            let (index, fault) = (0, EntryFault::TooLong);
            return Err(LedgerError::Entry { index, fault });
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |newline| newline + 1);
        if whole == 0 {
            let bytes = bytes.len() as u64;
            return Err(LedgerError::NoEntries { bytes });
        }
        let mut ledger = Self::empty();
        ledger.torn_bytes = (bytes.len() - whole) as u64;
        for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
            let index = ledger.entries.len() as u64;
            let next = ledger.next(line);
            let next = next.map_err(|fault| LedgerError::Entry { index, fault })?;
            ledger.push(line, next);
        }
        Ok(ledger)
    }

    /// Reads the ledger of a lab's folder, and demands that it goes on from the head that this user
    /// saw last; then notes the new one. Errors as `parse`, and as `Heads::admit`.
    pub fn read(lab: &Dir, heads: Option<&Heads>) -> Result<Self, LedgerError> {
        let ledger = Self::parse(&read_bytes(lab)?)?;
        if let Some(heads) = heads {
            heads.admit(&ledger)?;
        }
        Ok(ledger)
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The state that the entries make.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The entry that released a packet because another run has its marker ([`is_spent`]), and its
    /// reason.
    pub fn spent(&self, packet: Digest) -> Option<(u64, &str)> {
        self.entries.iter().find_map(|entry| match &entry.act {
            Act::Released(body) if body.packet == packet && is_spent(body.stage, &body.reason) => {
                Some((entry.index, body.reason.as_str()))
            }
            _ => None,
        })
    }

    /// Digest of the last entry.
    pub fn head(&self) -> Digest {
        self.entries.last().map_or(NO_ENTRY, |entry| entry.digest)
    }

    /// The bytes of the entries, without a torn append.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of a torn append behind the entries.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// The line of an entry as it lies in the file, with its newline.
    pub fn line(&self, index: u64) -> Option<&[u8]> {
        let index = usize::try_from(index).ok()?;
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// Whether an act could be appended now: what a command asks before it does anything. It is
    /// asked with the longest time and boot id, so that an append has room for any.
    pub fn accepts(&self, act: &Act) -> Result<(), EntryFault> {
        let boot = "0".repeat(BOOT_BYTES);
        self.rendered(act, i64::MIN, &boot).map(|_| ())
    }

    /// A ledger without entries, before its genesis.
    pub(crate) fn empty() -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            entries: Vec::new(),
            state: State::default(),
            torn_bytes: 0,
        }
    }

    /// The ledger after its torn append was cut off.
    pub(crate) fn without_torn(self) -> Self {
        let torn_bytes = 0;
        Self { torn_bytes, ..self }
    }

    /// Renders an act as the next line, and reads that back as a reader would.
    pub(crate) fn rendered(
        &self,
        act: &Act,
        at_ns: i64,
        boot: &str,
    ) -> Result<(Vec<u8>, Next), EntryFault> {
        let index = self.entries.len() as u64;
        let line = Entry::render(act, index, self.head(), at_ns, boot);
        if self.bytes.len() as u64 + line.len() as u64 > LEDGER_BYTES_MAX {
            return Err(EntryFault::TooLong);
        }
        let next = self.next(&line)?;
        Ok((line, next))
    }

    /// Adds a line that `next` or `rendered` judged.
    pub(crate) fn push(&mut self, line: &[u8], next: Next) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
        self.state.apply(&next.0);
        self.entries.push(next.0);
    }

    /// Judges a line as the next entry.
    fn next(&self, line: &[u8]) -> Result<Next, EntryFault> {
        let entry = Entry::parse(line)?;
        let (expected, actual) = (self.entries.len() as u64, entry.index);
        if actual != expected {
            return Err(EntryFault::Index { expected, actual });
        }
        let (expected, actual) = (self.head(), entry.previous);
        if actual != expected {
            return Err(EntryFault::Previous { expected, actual });
        }
        self.state.judge(&entry)?;
        Ok(Next(entry))
    }
}

/// An entry that was judged as the next one of a ledger.
pub(crate) struct Next(Entry);

impl LedgerError {
    /// Whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Fs(error) => error.blame(),
            Self::NoEntries { .. } | Self::Entry { .. } => Blame::Source,
            Self::Head(error) => error.blame(),
        }
    }

    /// The reason code of `docs/format/ledger.md`, section 6; `None` where nothing could be read.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Fs(error) => {
                matches!(error.kind, FsErrorKind::TooLong { .. }).then_some("ledger.too-long")
            }
            Self::NoEntries { .. } => Some("ledger.no-entries"),
            Self::Entry { fault, .. } => Some(fault.code()),
            Self::Head(_) => None,
        }
    }

    /// What it contradicts, where it does.
    pub fn contradiction(&self) -> Option<&Contradiction> {
        match self {
            Self::Entry {
                fault: EntryFault::Contradiction(contradiction),
                ..
            } => Some(contradiction),
            Self::Fs(_) | Self::NoEntries { .. } | Self::Entry { .. } | Self::Head(_) => None,
        }
    }
}

impl From<FsError> for LedgerError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

impl From<HeadError> for LedgerError {
    fn from(error: HeadError) -> Self {
        Self::Head(error)
    }
}

/// Length of a boot id.
const BOOT_BYTES: usize = 36;

/// The bytes of the file.
fn read_bytes(lab: &Dir) -> Result<Vec<u8>, FsError> {
    lab.read_small(LEDGER_FILE, LEDGER_BYTES_MAX)
}
