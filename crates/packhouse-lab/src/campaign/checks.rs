//! What must hold before a packet is executed, and the marker.

use super::{Campaign, CampaignError, Fault, Frozen, before, devices};
use crate::freeze::{self, FreezeError};
use crate::marker::{Found, Marker, MarkerError, Markers, file_system_name};
use crate::rehearsal::{Now, fresh};
use packhouse_base::digest::Digest;
use packhouse_ledger::act::SPENT;
use packhouse_ledger::{Ledger, Stage};
use packhouse_sys::fs::{Dir, FsError};

/// A marker as it is found: its bytes, empty where it has none that can be read.
pub(crate) struct Taken {
    pub(crate) bytes: Vec<u8>,
    /// What it says, where it is one.
    pub(crate) marker: Option<Marker>,
}

impl Taken {
    /// Why it is not the marker of this ledger's open nonce, where that can be told: then another
    /// run took it, of another copy of the lab. A damaged one may be ours.
    pub(crate) fn of_another(&self, ledger: &Ledger, packet: Digest) -> Option<String> {
        let marker = self.marker.as_ref()?;
        let state = ledger.state();
        let nonce = state.packets().get(&packet).and_then(|state| state.nonce);
        let is_known = |head| ledger.entries().iter().any(|entry| entry.digest == head);
        let what = match () {
            () if marker.lab != state.id() => format!("of the lab {}", marker.lab),
            () if Some(marker.nonce) != nonce => format!("of the nonce {}", marker.nonce),
            () if !is_known(marker.ledger) => format!("of the ledger's head {}", marker.ledger),
            () => return None,
        };
        Some(format!("{SPENT}: its marker is {what}"))
    }
}

/// Everything that can be known before a nonce: identities, devices, approvals, evidence, marker's
/// folder, marker, rehearsal.
pub(super) fn before_run(
    campaign: &Campaign<'_>,
    ledger: &Ledger,
    frozen: &Frozen,
) -> Result<Markers, Fault> {
    unchanged(campaign, frozen)?;
    devices::free(campaign, frozen)?;
    before::approved(ledger, frozen)?;
    let markers = markers(campaign)?;
    let found = markers.find(frozen.digest).map_err(file_system_fault)?;
    if found != Found::Nothing {
        let path = markers.path(frozen.digest);
        let reason = format!("{} is there: the packet is consumed", path.display());
        return Err(Fault::new(Stage::Marker, reason));
    }
    before::no_evidence(campaign, frozen.digest)?;
    is_fresh(campaign, ledger, frozen)?;
    Ok(markers)
}

/// Whether all is what the packet froze, measured now, and nobody touched it since it was first
/// measured: what a program read between was frozen too.
pub(super) fn unchanged(campaign: &Campaign<'_>, frozen: &Frozen) -> Result<(), Fault> {
    measured(campaign, frozen).map_err(|error| Fault::new(Stage::Identities, error))
}

fn measured(campaign: &Campaign<'_>, frozen: &Frozen) -> Result<(), FreezeError> {
    let held = || freeze::held(campaign.lab, &frozen.packet, frozen.prereg());
    let first = match frozen.held.get() {
        Some(first) => first,
        // Before the content: a change while that is measured shows at the next measure.
        None => {
            let now = held()?;
            frozen.held.get_or_init(|| now)
        }
    };
    freeze::unchanged(campaign.lab, &frozen.packet, campaign.recipes)?;
    let differences = first.touched(&held()?);
    match differences.is_empty() {
        true => Ok(()),
        false => Err(FreezeError::Changed { differences }),
    }
}

/// The folder of markers, if it is ours, keeps them, and is not put back with a copy of the lab.
pub(super) fn markers(campaign: &Campaign<'_>) -> Result<Markers, Fault> {
    let lab = campaign.lab;
    let is_outside = Markers::outside(&lab.state, &lab.root);
    let markers = is_outside.and_then(|()| Markers::open(lab.fs, &lab.state));
    markers.map_err(file_system_fault)
}

/// Takes the marker: from here the packet is consumed. What its inputs are drawn from is drawn
/// now: as long as the packet can be released nobody knows what will be asked.
pub(super) fn consume(
    campaign: &Campaign<'_>,
    ledger: &Ledger,
    markers: &Markers,
    (packet, nonce): (Digest, Digest),
) -> Result<(Digest, Vec<u8>), MarkerError> {
    let mut random = [0; 32];
    campaign.lab.fs.random(&mut random)?;
    let salt = Digest::from_bytes(random);
    let marker = Marker {
        packet,
        nonce,
        ledger: ledger.head(),
        lab: ledger.state().id(),
        file_system: markers.file_system().to_owned(),
        salt: Some(salt),
    };
    let bytes = markers.take(campaign.lab.fs, &marker)?;
    Ok((salt, bytes))
}

/// A packet's marker, if this user has one here, whatever it looks like.
pub(crate) fn taken(
    campaign: &Campaign<'_>,
    packet: Digest,
) -> Result<Option<Taken>, CampaignError> {
    let markers = Markers::look(campaign.lab.fs, &campaign.lab.state)?;
    let Some(markers) = markers else {
        return Ok(None);
    };
    match markers.find(packet)? {
        Found::Nothing => Ok(None),
        Found::Marker(marker, bytes) => Ok(Some(Taken {
            bytes,
            marker: Some(marker),
        })),
        Found::Damaged { .. } => {
            let name = format!("{packet}.json");
            let read = markers.dir().read_small(name, DAMAGED_BYTES_MAX);
            let bytes = read.unwrap_or_default();
            Ok(Some(Taken {
                bytes,
                marker: None,
            }))
        }
    }
}

/// The name of a folder's file system.
pub(super) fn file_system(dir: &Dir) -> Result<String, FsError> {
    Ok(file_system_name(dir.fs_stat()?.kind))
}

fn is_fresh(campaign: &Campaign<'_>, ledger: &Ledger, frozen: &Frozen) -> Result<(), Fault> {
    let fault = |reason: String| Fault::new(Stage::Rehearsal, reason);
    let now = Now::of(campaign.lab).map_err(|error| fault(error.to_string()))?;
    let max_age_s = frozen.prereg().rehearsal_max_age_s;
    let rehearsal = fresh(ledger, frozen.digest, &now, max_age_s);
    rehearsal.map_err(|error| fault(error.to_string()))?;
    Ok(())
}

fn file_system_fault(error: MarkerError) -> Fault {
    Fault::new(Stage::FileSystem, error)
}

const DAMAGED_BYTES_MAX: u64 = 1 << 20;
