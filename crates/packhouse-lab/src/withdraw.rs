//! Withdrawal: a packet is given up before its one run, and the ledger says why.
//!
//! Invariants:
//! - only what was not run is withdrawn: an open nonce, a marker of this user and evidence each
//!   stand against it, whatever the ledger says of the packet;
//! - nothing is removed: preregistration, packet, rehearsals and entries stay where they are.
//!
//! Never: undoes a run; whoever could withdraw one that went badly would choose a verdict.
//!
//! Specified in `docs/format/lab.md`, section 6.

use crate::campaign::EVIDENCE;
use crate::marker::{Found, MarkerError, Markers};
use crate::world::Lab;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_base::shown::is_hidden;
use packhouse_ledger::Ledger;
use packhouse_ledger::act::Withdrawn;
use packhouse_ledger::page::utc;
use packhouse_ledger::state::{PacketState, Standing};
use packhouse_sys::fs::{FsError, FsErrorKind};
use std::path::PathBuf;

/// Why a packet is not withdrawn.
#[derive(Debug, thiserror::Error)]
pub enum WithdrawError {
    /// A reason without a word.
    #[error("there must be a reason: it stays in the ledger and is shown with the packet")]
    Empty,
    /// A reason with a character that a terminal obeys, or that nobody sees.
    #[error(
        "the reason has {hidden:?}, which a terminal does not draw: it is to be one line of words"
    )]
    Hidden {
        /// The first of them.
        hidden: char,
    },
    /// The ledger does not know it.
    #[error("packet {packet} is not registered here")]
    Unknown {
        /// The packet.
        packet: Digest,
    },
    /// It was withdrawn before.
    #[error("it was withdrawn by entry {entry} ({}): {reason}", utc(*at_ns))]
    Again {
        /// The entry.
        entry: u64,
        /// That entry's time.
        at_ns: i64,
        /// Why.
        reason: String,
    },
    /// A run of it was announced, and nobody said yet what became of it.
    #[error(
        "a run of it was announced (nonce {nonce}): it is under way, or was killed, and sealing it \
         says which; once it is released the packet can be withdrawn"
    )]
    Announced {
        /// The open nonce.
        nonce: Digest,
    },
    /// It was run.
    #[error("it is {}: what was run is not withdrawn", standing.as_str())]
    Run {
        /// Where it stands.
        standing: Standing,
    },
    /// Another run of it has its marker.
    #[error("entry {entry} says that {reason}: what was run is not withdrawn")]
    Spent {
        /// The entry that released it here.
        entry: u64,
        /// Its reason.
        reason: String,
    },
    /// It was run, whatever this ledger says.
    #[error("{} is there: what was run is not withdrawn", marker.display())]
    Consumed {
        /// Its marker.
        marker: PathBuf,
    },
    /// There is evidence of a run, or something in its place.
    #[error("{path} is there: evidence of a run, which is not withdrawn, or none of ours")]
    Evidence {
        /// Its path below the lab's folder.
        path: String,
    },
    /// Whether it has a marker can't be told.
    #[error(transparent)]
    Marker(#[from] MarkerError),
    /// Whether there is evidence can't be told.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl WithdrawError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty
            | Self::Hidden { .. }
            | Self::Unknown { .. }
            | Self::Again { .. }
            | Self::Announced { .. }
            | Self::Run { .. }
            | Self::Spent { .. }
            | Self::Consumed { .. }
            | Self::Evidence { .. } => Blame::Caller,
            Self::Marker(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Judges whether a packet may be withdrawn now, and what is entered then; writes nothing. Whether
/// a process executes it is its lock's to say, which whoever appends the entry holds.
///
/// # Errors
/// When the reason says nothing, or the packet was withdrawn, announced or run.
pub fn withdrawal(
    lab: &Lab<'_>,
    ledger: &Ledger,
    packet: Digest,
    reason: &str,
) -> Result<Withdrawn, WithdrawError> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(WithdrawError::Empty);
    }
    if let Some(hidden) = reason.chars().find(|letter| is_hidden(*letter)) {
        return Err(WithdrawError::Hidden { hidden });
    }
    let state = ledger.state().packets().get(&packet);
    let state = state.ok_or(WithdrawError::Unknown { packet })?;
    waits(ledger, packet, state)?;
    unmarked(lab, packet)?;
    no_evidence(lab, packet)?;
    let reason = reason.to_owned();
    Ok(Withdrawn { packet, reason })
}

/// Whether the packet waits for its run, as the ledger has it.
fn waits(ledger: &Ledger, packet: Digest, state: &PacketState) -> Result<(), WithdrawError> {
    if let Some(withdrawn) = &state.withdrawn {
        return Err(WithdrawError::Again {
            entry: withdrawn.entry,
            at_ns: withdrawn.at_ns,
            reason: withdrawn.reason.clone(),
        });
    }
    match (state.standing, state.nonce) {
        (Standing::Nonce, Some(nonce)) => return Err(WithdrawError::Announced { nonce }),
        (
            standing @ (Standing::Nonce
            | Standing::Consumed
            | Standing::Closed
            | Standing::SealedPass
            | Standing::SealedFail
            | Standing::SealedAbort),
            _,
        ) => return Err(WithdrawError::Run { standing }),
        (
            Standing::Registered
            | Standing::Rehearsed
            | Standing::Reviewed
            | Standing::Armed
            | Standing::Withdrawn,
            _,
        ) => {}
    }
    match ledger.spent(packet) {
        None => Ok(()),
        Some((entry, reason)) => Err(WithdrawError::Spent {
            entry,
            reason: reason.to_owned(),
        }),
    }
}

/// Refuses a packet that has a marker. Where no marker would be kept, none was ever taken.
fn unmarked(lab: &Lab<'_>, packet: Digest) -> Result<(), WithdrawError> {
    let markers = match Markers::look(lab.fs, &lab.state) {
        Ok(Some(markers)) => markers,
        Ok(None) | Err(MarkerError::FileSystem { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match markers.find(packet)? {
        Found::Nothing => Ok(()),
        Found::Marker(..) | Found::Damaged { .. } => Err(WithdrawError::Consumed {
            marker: markers.path(packet),
        }),
    }
}

/// Refuses a packet that has evidence here: of a run in a copy of the lab, for instance.
fn no_evidence(lab: &Lab<'_>, packet: Digest) -> Result<(), WithdrawError> {
    let home = lab.root.open_dir(EVIDENCE);
    let home = home.and_then(|all| all.open_dir(packet.to_string()));
    let names = match home.and_then(|home| home.list()) {
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    match names.first() {
        None => Ok(()),
        Some(name) => Err(WithdrawError::Evidence {
            path: format!("{EVIDENCE}/{packet}/{}", name.display()),
        }),
    }
}
