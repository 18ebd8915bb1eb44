//! Registration: an experiment's documents and all that they hang on become a packet.
//!
//! Specified in `docs/format/lab.md`, section 4.

use crate::freeze::{self, Documents, FreezeError};
use crate::marker::{Found, Markers};
use crate::packet::Packet;
use crate::recipes::Recipes;
use crate::world::Lab;
use packhouse_bag::write_new::{WriteNewError, write_new};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Name, NameError, Registered};
use packhouse_ledger::{Act, EntryFault, Ledger};
use packhouse_sys::fs::FsError;
use std::path::PathBuf;

/// What is to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The documents.
    pub documents: Documents,
    /// The packet.
    pub packet: Packet,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What is entered.
    pub act: Registered,
    /// Digest of a `packet.json` of other content, which an earlier attempt left and no ledger
    /// entry names: it is replaced.
    pub replaces: Option<Digest>,
}

/// Why nothing was registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The documents, or what they hang on.
    #[error(transparent)]
    Freeze(#[from] FreezeError),
    /// The lane's document is not the one that the lane was opened with.
    #[error("{path}: the lane was opened with {opened}, and it is {now} now")]
    LaneChanged {
        /// The document.
        path: String,
        /// Its digest in the ledger.
        opened: Digest,
        /// Its digest now.
        now: Digest,
    },
    /// A packet of the experiment is there already.
    #[error("experiment {experiment} is registered as packet {packet}")]
    Registered {
        /// The experiment.
        experiment: String,
        /// Its packet.
        packet: Digest,
    },
    /// This user has the marker of such a packet: it can't be rehearsed or run any more.
    #[error("packet {packet} is consumed: {} is there", marker.display())]
    Consumed {
        /// The packet.
        packet: Digest,
        /// The marker.
        marker: PathBuf,
    },
    /// The lane was never opened.
    #[error("lane {lane} is not open")]
    NoLane {
        /// The lane.
        lane: String,
    },
    /// The ledger can't have such a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The ledger does not take it.
    #[error(transparent)]
    Ledger(#[from] EntryFault),
    /// The packet can't be written.
    #[error(transparent)]
    Write(#[from] WriteNewError),
    /// The packet can't be written.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl RegisterError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Freeze(error) => error.blame(),
            Self::LaneChanged { .. } => Blame::Source,
            Self::Registered { .. } | Self::NoLane { .. } | Self::Name(_) | Self::Ledger(_) => {
                Blame::Caller
            }
            Self::Consumed { .. } => Blame::Caller,
            Self::Write(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Measures an experiment and says what would be registered; writes nothing.
///
/// # Errors
/// When the experiment can't be frozen, is registered already, or the ledger would not take it.
pub fn plan(
    lab: &Lab<'_>,
    ledger: &Ledger,
    experiment: &str,
    recipes: &Recipes,
) -> Result<Registration, RegisterError> {
    let state = ledger.state();
    let name = Name::parse(experiment)?;
    if let Some(packet) = state.experiments().get(&name) {
        return Err(RegisterError::Registered {
            experiment: experiment.to_owned(),
            packet: *packet,
        });
    }
    let documents = freeze::documents(lab, experiment)?;
    let lane = Name::parse(&documents.lane.id)?;
    let opened = state
        .lanes()
        .get(&lane)
        .ok_or_else(|| RegisterError::NoLane {
            lane: documents.lane.id.clone(),
        })?;
    let now = Digest::of(&documents.lane_bytes);
    if opened.document != now {
        return Err(RegisterError::LaneChanged {
            path: freeze::lane_path(&documents.lane.id),
            opened: opened.document,
            now,
        });
    }
    let packet = freeze::freeze(lab, &documents, recipes)?;
    let bytes = packet.render();
    let act = Registered {
        packet: packet.digest(),
        experiment: name,
        lane,
        prereg: packet.prereg,
        treatment: documents.prereg.difference.clone(),
    };
    ledger.accepts(&Act::from(act.clone()))?;
    unconsumed(lab, act.packet)?;
    let left = freeze::file(lab, &freeze::packet_path(experiment))?;
    let replaces = left
        .filter(|left| *left != bytes)
        .map(|left| Digest::of(&left));
    Ok(Registration {
        documents,
        packet,
        bytes,
        act,
        replaces,
    })
}

/// Demands that this user ran no such packet, of whichever lab. A folder of markers that can't be
/// used is refused where markers are needed, and nothing else hangs on it here.
fn unconsumed(lab: &Lab<'_>, packet: Digest) -> Result<(), RegisterError> {
    let Ok(Some(markers)) = Markers::look(lab.fs, &lab.state) else {
        return Ok(());
    };
    match markers.find(packet) {
        Ok(Found::Nothing) | Err(_) => Ok(()),
        Ok(Found::Marker(..) | Found::Damaged { .. }) => Err(RegisterError::Consumed {
            packet,
            marker: markers.path(packet),
        }),
    }
}

/// Writes the packet durably beside its preregistration: the last step before it is entered.
///
/// # Errors
/// When it can't be written.
pub fn write(lab: &Lab<'_>, registration: &Registration) -> Result<(), RegisterError> {
    let experiments = lab.root.open_dir("experiments")?;
    let folder = experiments.open_dir(registration.act.experiment.as_str())?;
    if registration.replaces.is_some() {
        folder.unlink(PACKET_FILE)?;
    }
    write_new(&folder, PACKET_FILE, &registration.bytes)?;
    Ok(())
}

const PACKET_FILE: &str = "packet.json";
