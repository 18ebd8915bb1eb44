//! Why a packet was not executed, or its evidence not finished.

use crate::freeze::FreezeError;
use crate::marker::MarkerError;
use crate::world::{HostError, Mapped};
use packhouse_bag::{ReadError, WriteError, WriteNewError};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_ledger::{Stage, WriterError};
use packhouse_sys::fs::FsError;
use std::fmt;
use std::path::PathBuf;

/// Where a run broke off, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {reason}")]
pub struct Fault {
    /// Where.
    pub stage: Stage,
    /// Why; never empty.
    pub reason: String,
    /// Files that a program has mapped and that are not frozen, where that is why. They are told to
    /// whoever started it, and no record has their paths.
    pub unfrozen: Vec<Mapped>,
}

/// Why a command on a packet came to nothing, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// Something that must hold before a run does not; nothing was written.
    #[error(transparent)]
    Refused(Fault),
    /// The packet is not where it must be for this.
    #[error("packet {packet} is {actual}, and has to be {expected}")]
    Standing {
        /// The packet.
        packet: Digest,
        /// Where it has to be.
        expected: &'static str,
        /// Where it is.
        actual: &'static str,
    },
    /// The ledger knows no such packet.
    #[error("packet {packet}: not in this lab's ledger")]
    Unknown {
        /// The packet.
        packet: Digest,
    },
    /// This user's marker says that the packet was run, and this ledger knows nothing of it.
    #[error("packet {packet} is consumed: its marker is here, and this ledger has no nonce of it")]
    Consumed {
        /// The packet.
        packet: Digest,
    },
    /// A document is another one than was registered.
    #[error("{path}: SHA-256 {actual}, registered was {expected}")]
    Changed {
        /// Its path below the lab's folder.
        path: String,
        /// When it was registered.
        expected: Digest,
        /// Now.
        actual: Digest,
    },
    /// The closed bag is another one than the ledger says.
    #[error("{}: the bag's digest is {actual}, the ledger closed {expected}", path.display())]
    OtherBag {
        /// The bag.
        path: PathBuf,
        /// In the ledger.
        expected: Digest,
        /// Now.
        actual: Digest,
    },
    /// The closed bag does not verify.
    #[error("{}: {why}", path.display())]
    BrokenBag {
        /// The bag.
        path: PathBuf,
        /// The first thing that is wrong.
        why: String,
    },
    /// A seal is there that is not of this run.
    #[error("{}: not the seal of this bag and analysis: {why}", path.display())]
    OtherSeal {
        /// The seal.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An analysis is there that is not the one that the ledger cites, or that this program makes.
    #[error("{}: not as it must be: {why}", path.display())]
    OtherAnalysis {
        /// The analysis.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The first verdict is that of the program that the packet froze, and this is another one.
    #[error(
        "packet {packet} froze the program that seals it: SHA-256 {expected}; this program is \
         {actual}"
    )]
    OtherAnalyzer {
        /// The packet.
        packet: Digest,
        /// What the packet froze.
        expected: Digest,
        /// This program.
        actual: Digest,
    },
    /// The documents can't be read.
    #[error(transparent)]
    Freeze(#[from] FreezeError),
    /// The folder of markers can't be used.
    #[error(transparent)]
    Marker(#[from] MarkerError),
    /// The ledger can't be read or appended to.
    #[error(transparent)]
    Ledger(#[from] WriterError),
    /// The host can't say something.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A file can't be used.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The bag can't be written.
    #[error(transparent)]
    Bag(#[from] WriteError),
    /// A folder of evidence can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An analysis or seal can't be written.
    #[error(transparent)]
    WriteNew(#[from] WriteNewError),
}

impl Fault {
    /// A fault at a stage. A reason has at least a word, and at most `REASON_BYTES_MAX` bytes: a
    /// program's own words may be in it, and it has to fit a line of the ledger.
    pub fn new(stage: Stage, reason: impl fmt::Display) -> Self {
        let mut reason = reason.to_string();
        if reason.trim().is_empty() {
            reason = "no reason was told".to_owned();
        }
        cut(&mut reason, REASON_BYTES_MAX);
        Self {
            stage,
            reason,
            unfrozen: Vec::new(),
        }
    }
}

impl CampaignError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Refused(_) | Self::Standing { .. } | Self::Unknown { .. } => Blame::Caller,
            Self::Consumed { .. } | Self::OtherAnalyzer { .. } => Blame::Caller,
            Self::Freeze(error) => error.blame(),
            Self::Marker(error) => error.blame(),
            Self::Changed { .. } => Blame::Source,
            Self::OtherBag { .. } | Self::BrokenBag { .. } => Blame::Store,
            Self::OtherSeal { .. } | Self::OtherAnalysis { .. } => Blame::Store,
            Self::Ledger(error) => error.blame(),
            Self::Host(error) => error.blame(),
            Self::Fs(error) => error.blame(),
            Self::Bag(error) => error.blame(),
            Self::Read(error) => error.blame(),
            Self::WriteNew(error) => error.blame(),
        }
    }
}

/// Most bytes of a reason in `run.json` and in the ledger.
pub const REASON_BYTES_MAX: usize = 1024;

/// Cuts a text that is longer, and says so at its end.
pub(crate) fn cut(text: &mut String, bytes_max: usize) {
    if text.len() <= bytes_max {
        return;
    }
    let mut end = bytes_max - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(CUT);
}

const CUT: &str = " ...";
