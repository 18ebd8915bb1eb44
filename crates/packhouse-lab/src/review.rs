//! Reviews, and arming by them.
//!
//! Specified in `docs/format/lab.md`, section 6.

use crate::campaign::{self, REHEARSALS};
use crate::freeze::{self, FreezeError};
use crate::marker::{Found, MarkerError, Markers};
use crate::noise::{self, WithinNoise};
use crate::recipes::Recipes;
use crate::rehearsal::{Now, Stale, fresh};
use crate::world::{HostError, Lab};
use packhouse_bag::seal::{ANALYSIS_FILE, analysis_dir};
use packhouse_bag::{BAG_DIR, Contents, check};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Armed, REVIEWER, Reviewed, is_reviewer};
use packhouse_ledger::state::{PacketState, Standing};
use packhouse_ledger::{Ledger, Review};
use packhouse_sys::fs::FsErrorKind;
use std::path::PathBuf;

/// Why a review is not entered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// A reviewer or a note without a word.
    #[error("{field}: there must be a word")]
    Empty {
        /// Which.
        field: &'static str,
    },
    /// The packet is not at a point where reviews are taken.
    #[error("the packet is {}, and a review follows a green rehearsal", standing.as_str())]
    Standing {
        /// Where it stands.
        standing: Standing,
    },
    /// A reviewer who could be read as another one, or counted twice.
    #[error("{given:?} is not {REVIEWER}")]
    Reviewer {
        /// As given.
        given: String,
    },
}

/// Why a packet is not armed.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The packet is not at a point where it is armed.
    #[error("the packet is {}, and only a rehearsed and reviewed one is armed", standing.as_str())]
    Standing {
        /// Where it stands.
        standing: Standing,
    },
    /// The ledger does not know it.
    #[error("packet {packet} is not registered here")]
    Unknown {
        /// The packet.
        packet: Digest,
    },
    /// The rehearsal does not count.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The timing gate asks for no more than a rehearsal has shown of a null program.
    #[error(transparent)]
    Noise(#[from] WithinNoise),
    /// What is kept of the rehearsal is not what the reviewers could see.
    #[error("{path}: {why}")]
    Rehearsal {
        /// Its path below the lab's folder.
        path: String,
        /// What is not as it was.
        why: String,
    },
    /// A reviewer's latest word is a rejection.
    #[error("{reviewer} rejected it (entry {entry}): {note}")]
    Rejected {
        /// Who.
        reviewer: String,
        /// Their word's entry.
        entry: u64,
        /// Why.
        note: String,
    },
    /// Too few approve.
    #[error("reviewers who must approve: {needed}; who did: {have}")]
    Reviewers {
        /// As the preregistration has it.
        needed: u64,
        /// Distinct reviewers with a standing approval.
        have: u64,
    },
    /// Something is not what was frozen.
    #[error(transparent)]
    Freeze(#[from] FreezeError),
    /// The marker could not be relied on.
    #[error(transparent)]
    Marker(#[from] MarkerError),
    /// It was run already, whatever this ledger says.
    #[error("packet {packet} is consumed: {} is there", marker.display())]
    Consumed {
        /// The packet.
        packet: Digest,
        /// Its marker.
        marker: PathBuf,
    },
    /// The host can't say something.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl ReviewError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty { .. } | Self::Standing { .. } | Self::Reviewer { .. } => Blame::Caller,
        }
    }
}

impl ArmError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Standing { .. }
            | Self::Unknown { .. }
            | Self::Noise(_)
            | Self::Rejected { .. }
            | Self::Reviewers { .. }
            | Self::Consumed { .. } => Blame::Caller,
            Self::Stale(stale) => stale.blame(),
            Self::Rehearsal { .. } => Blame::Store,
            Self::Freeze(error) => error.blame(),
            Self::Marker(error) => error.blame(),
            Self::Host(error) => error.blame(),
        }
    }
}

/// What a reviewer's word becomes in the ledger.
///
/// # Errors
/// When reviewer or note say nothing, the reviewer is not of the one form that there is for them,
/// or the packet's newest rehearsal is not green or it has gone further.
pub fn word(
    packet: Digest,
    state: &PacketState,
    reviewer: &str,
    verdict: Review,
    note: &str,
) -> Result<Reviewed, ReviewError> {
    let reviewer = reviewer.trim();
    for (field, text) in [("reviewer", reviewer), ("note", note.trim())] {
        if text.is_empty() {
            return Err(ReviewError::Empty { field });
        }
    }
    if !is_reviewer(reviewer) {
        let given = reviewer.to_owned();
        return Err(ReviewError::Reviewer { given });
    }
    let rehearsal = match (state.standing, &state.green) {
        (Standing::Rehearsed | Standing::Reviewed | Standing::Armed, Some((entry, _))) => *entry,
        (standing, _) => return Err(ReviewError::Standing { standing }),
    };
    Ok(Reviewed {
        packet,
        reviewer: reviewer.to_owned(),
        verdict,
        note: note.trim().to_owned(),
        rehearsal,
    })
}

/// Judges whether a packet may be armed now, and what is entered then; writes nothing.
///
/// # Errors
/// When anything that must hold does not: state, identities, marker, rehearsal, reviews.
pub fn arm(
    lab: &Lab<'_>,
    ledger: &Ledger,
    packet: Digest,
    recipes: &Recipes,
) -> Result<Armed, ArmError> {
    let state = ledger.state().packets().get(&packet);
    let state = state.ok_or(ArmError::Unknown { packet })?;
    match state.standing {
        Standing::Rehearsed | Standing::Reviewed => {}
        // That there is no green rehearsal has a reason of its own, below.
        Standing::Registered => {}
        standing @ (Standing::Armed
        | Standing::Withdrawn
        | Standing::Nonce
        | Standing::Consumed
        | Standing::Closed
        | Standing::SealedPass
        | Standing::SealedFail
        | Standing::SealedAbort) => return Err(ArmError::Standing { standing }),
    }
    unmarked(lab, packet)?;
    let frozen = freeze::registered(lab, state.experiment.as_str(), packet)?;
    let documents = freeze::unchanged(lab, &frozen, recipes)?;
    campaign::devices_here(lab, &documents.prereg)?;
    let max_age_s = documents.prereg.rehearsal_max_age_s;
    let rehearsal = fresh(ledger, packet, &Now::of(lab)?, max_age_s)?;
    noise::is_above(ledger, (packet, &documents.prereg), None)?;
    is_kept(lab, ledger, packet)?;
    let reviews = approvals(state, documents.prereg.reviewers)?;
    Ok(Armed {
        packet,
        rehearsal,
        reviews,
    })
}

/// Whether the packet's newest green rehearsal is still kept here; it need not be.
///
/// # Errors
/// When what is kept has another bag or analysis than the ledger says.
pub fn is_kept(lab: &Lab<'_>, ledger: &Ledger, packet: Digest) -> Result<bool, ArmError> {
    let path = format!("{REHEARSALS}/{packet}");
    let changed = |why: String| ArmError::Rehearsal {
        path: path.clone(),
        why,
    };
    let state = ledger.state().packets().get(&packet);
    let Some((_, green)) = state.and_then(|state| state.green.as_ref()) else {
        return Ok(false);
    };
    let home = lab.root.open_dir(REHEARSALS);
    let home = match home.and_then(|all| all.open_dir(packet.to_string())) {
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(false),
        home => home.map_err(|error| changed(error.to_string()))?,
    };
    let bag = home
        .open_dir(BAG_DIR)
        .map_err(|error| changed(error.to_string()))?;
    let bag = Contents::read(&bag).map_err(|error| changed(error.to_string()))?;
    if let Err(faults) = check(&bag) {
        return Err(changed(
            faults.first().map_or_else(String::new, ToString::to_string),
        ));
    }
    let analysis = home.open_dir(analysis_dir(1));
    let analysis = analysis.and_then(|dir| dir.read_small(ANALYSIS_FILE, ANALYSIS_BYTES_MAX));
    let analysis = analysis.map_err(|error| changed(error.to_string()))?;
    let analysis = Some(Digest::of(&analysis));
    for (what, now, entered) in [
        ("bag", bag.digest(), green.bag),
        ("analysis", analysis, green.analysis),
    ] {
        if now != entered {
            let why = format!("its {what} is another one than was entered: rehearse again");
            return Err(changed(why));
        }
    }
    Ok(true)
}

/// Refuses a packet that has a marker, or whose marker could not be relied on.
fn unmarked(lab: &Lab<'_>, packet: Digest) -> Result<(), ArmError> {
    Markers::outside(&lab.state, &lab.root)?;
    let Some(markers) = Markers::look(lab.fs, &lab.state)? else {
        return Ok(());
    };
    match markers.find(packet)? {
        Found::Nothing => Ok(()),
        Found::Marker(..) | Found::Damaged { .. } => Err(ArmError::Consumed {
            packet,
            marker: markers.path(packet),
        }),
    }
}

/// Entries of the standing approvals, of as many reviewers as are needed.
fn approvals(state: &PacketState, needed: u64) -> Result<Vec<u64>, ArmError> {
    if let Some((reviewer, word)) = state.rejection() {
        return Err(ArmError::Rejected {
            reviewer: reviewer.to_owned(),
            entry: word.entry,
            note: word.note.clone(),
        });
    }
    let have = state.words.len() as u64;
    if have < needed {
        return Err(ArmError::Reviewers { needed, have });
    }
    let mut entries: Vec<u64> = state.words.values().map(|word| word.entry).collect();
    entries.sort_unstable();
    Ok(entries)
}

/// More than an analysis of all that a packet may ask has.
const ANALYSIS_BYTES_MAX: u64 = 1 << 28;
