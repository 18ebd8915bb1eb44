//! What a run left that did not come to its end: released, aborted and sealed, or finished.
//!
//! Invariants:
//! - no program is started, and no case is asked: a packet is run once, whatever became of it;
//! - a nonce without a marker of its own is released where that marker would be seen, and an abort
//!   where it would not; a marker is an abort, a closed bag is finished;
//! - what is told of a run that ended is what it noted itself, or what was seen of it: then nobody
//!   saw why;
//! - every step may be killed and done again.
//!
//! Specified in `docs/format/evidence.md`, section 6.

use crate::analysis::{Kind, Status};
use crate::campaign::{
    Campaign, CampaignError, ClosedRun, EVIDENCE, Fault, Finished, Frozen, Taken, asked, authority,
    closed_record, finish, forget, noted, own_analyzer, put_asked, standing, taken,
};
use crate::evidence::{Instants, LegRecord, LegStatus, RunLeg, RunRecord};
use crate::marker::{Marker, Markers};
use crate::prereg::Prereg;
use crate::schedule::{LegPlan, schedule};
use packhouse_bag::open::look;
use packhouse_bag::{BAG_DIR, BagInfo, DATA_DIR, Found, OPEN_DIR, OpenBag, Resumed, WriteError};
use packhouse_base::digest::Digest;
use packhouse_component::name::CPU;
use packhouse_ledger::act::Consumed;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Ledger, Stage, Writer};
use packhouse_sys::fs::Dir;
use std::collections::{BTreeMap, BTreeSet};

/// What there was to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Nothing: no run was begun, or it is sealed.
    Nothing(Standing),
    /// A nonce without a marker was released.
    Released(Fault),
    /// A run is sealed now.
    Sealed(Box<Finished>),
}

/// Finishes what a killed run of a packet left.
///
/// # Errors
/// When this user's marker is there and the ledger knows no nonce, when a verdict is due and this
/// is not the program that the packet froze, when the bag is not the one that was closed, and when
/// something can't be read or written; it may be called again then.
pub fn recover(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    packet: Digest,
) -> Result<Recovered, CampaignError> {
    let _hold = writer.hold_packet(packet, campaign.lab.clock)?;
    let state = standing(writer.ledger(), packet)?.clone();
    let taken = taken(campaign, packet)?;
    let is_marked = taken.is_some();
    let unmarked = unmarked(campaign, taken.as_ref(), writer.ledger(), packet)?;
    match (state.standing, unmarked) {
        (Standing::Nonce, Some(Unmarked::Released(reason))) => {
            let fault = Fault::new(Stage::Marker, reason);
            crate::campaign::release(campaign, writer, packet, fault.clone())?;
            Ok(Recovered::Released(fault))
        }
        (Standing::Nonce | Standing::Consumed, lost) => {
            let fault = match lost {
                Some(Unmarked::Lost(reason)) => Some(Fault::new(Stage::Marker, reason)),
                Some(Unmarked::Released(_)) | None => {
                    state.nonce.and_then(|nonce| noted(campaign, packet, nonce))
                }
            };
            // Before anything is written: `finish` would find it only when the bag is closed.
            own_analyzer(campaign, writer.ledger(), packet)?;
            let sealed = aborted(campaign, writer, packet, fault)?;
            Ok(Recovered::Sealed(Box::new(sealed)))
        }
        (Standing::Closed, _) => {
            let sealed = finish(campaign, writer, packet)?;
            Ok(Recovered::Sealed(Box::new(sealed)))
        }
        (Standing::Registered | Standing::Rehearsed | Standing::Reviewed | Standing::Armed, _)
            if is_marked =>
        {
            Err(CampaignError::Consumed { packet })
        }
        (
            Standing::Registered
            | Standing::Rehearsed
            | Standing::Reviewed
            | Standing::Armed
            | Standing::Withdrawn
            | Standing::SealedPass
            | Standing::SealedFail
            | Standing::SealedAbort,
            _,
        ) => {
            // Who ended before it gave its room back left it here.
            forget(campaign, packet);
            Ok(Recovered::Nothing(state.standing))
        }
    }
}

/// A nonce that has no marker of its own here, and why.
pub(crate) enum Unmarked {
    /// Its marker would be here: it was not taken, and nothing was asked.
    Released(String),
    /// Its marker would be elsewhere: nobody can say here what became of the run.
    Lost(String),
}

/// Whether an open nonce has no marker of its own, and what that comes to.
pub(crate) fn unmarked(
    campaign: &Campaign<'_>,
    taken: Option<&Taken>,
    ledger: &Ledger,
    packet: Digest,
) -> Result<Option<Unmarked>, CampaignError> {
    let state = standing(ledger, packet)?;
    if state.standing != Standing::Nonce {
        return Ok(None);
    }
    let reason = match taken {
        None => "it ended before its marker".to_owned(),
        Some(taken) => match taken.of_another(ledger, packet) {
            Some(reason) => reason,
            None => return Ok(None),
        },
    };
    let lost = match state.markers {
        None => "its nonce names no folder of markers",
        Some(named) if markers_id(campaign)? == Some(named) => {
            return Ok(Some(Unmarked::Released(reason)));
        }
        Some(_) => "its nonce was taken with another folder of markers (another host, user, home)",
    };
    Ok(Some(Unmarked::Lost(format!(
        "{lost}: whether its run began can't be seen from here"
    ))))
}

/// Seals a consumed packet from what is there. Without a fault nobody saw why it ended.
///
/// # Errors
/// When something can't be read or written.
pub(crate) fn aborted(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    packet: Digest,
    fault: Option<Fault>,
) -> Result<Finished, CampaignError> {
    writer.wake(campaign.lab.clock)?;
    consume(campaign, writer, packet)?;
    let home = campaign.home(EVIDENCE, packet)?;
    let (bag, removed) = match look(&home)? {
        Found::Closed => return finish(campaign, writer, packet),
        Found::Open => resumed(Resumed::open(&home)?)?,
        Found::Absent => (OpenBag::create(&home)?, Left::default()),
    };
    close(campaign, writer, packet, (bag, removed, &home), fault)?;
    finish(campaign, writer, packet)
}

/// What a killed run left in its bag.
#[derive(Default)]
struct Left {
    run: Option<RunRecord>,
    prereg: Option<Prereg>,
    legs: BTreeMap<u64, Option<LegRecord>>,
    /// Fixture and repeat of each case that was asked.
    asked: BTreeSet<(String, u64)>,
    removed: Vec<String>,
}

/// Enters `consumed` where only the marker says it.
fn consume(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    packet: Digest,
) -> Result<(), CampaignError> {
    let state = standing(writer.ledger(), packet)?;
    let (Standing::Nonce, Some(nonce)) = (state.standing, state.nonce) else {
        return Ok(());
    };
    let marker = Digest::of(&own_marker(campaign, writer.ledger(), packet)?.bytes);
    campaign.append(
        writer,
        Consumed {
            packet,
            nonce,
            marker,
        },
    )
}

/// The packet's marker, of this user or in its bag, as far as it has any that is this run's.
fn own_marker(
    campaign: &Campaign<'_>,
    ledger: &Ledger,
    packet: Digest,
) -> Result<Taken, CampaignError> {
    let is_own = |taken: &Taken| taken.of_another(ledger, packet).is_none();
    let taken = taken(campaign, packet)?.filter(is_own);
    // The bag's is whole: a damaged one says neither its nonce nor what was drawn from.
    let (whole, damaged) = match taken {
        Some(taken) if taken.marker.is_some() => (Some(taken), None),
        other => (None, other),
    };
    let whole = whole.or_else(|| in_bag(campaign, packet).filter(is_own));
    Ok(whole.or(damaged).unwrap_or_else(|| Taken {
        bytes: Vec::new(),
        marker: None,
    }))
}

/// A packet's marker as its bag has it, open or closed, where it can be read.
fn in_bag(campaign: &Campaign<'_>, packet: Digest) -> Option<Taken> {
    let evidence = campaign.lab.root.open_dir(EVIDENCE).ok()?;
    let home = evidence.open_dir(packet.to_string()).ok()?;
    let bag = home.open_dir(BAG_DIR).or_else(|_| home.open_dir(OPEN_DIR));
    let data = bag.and_then(|bag| bag.open_dir(DATA_DIR)).ok()?;
    let bytes = data.read_small(MARKER, MARKER_BYTES_MAX).ok()?;
    let marker = Marker::parse(&bytes).ok()?;
    (marker.packet == packet).then_some(Taken {
        bytes,
        marker: Some(marker),
    })
}

/// The id of this user's folder of markers, if it has one.
fn markers_id(campaign: &Campaign<'_>) -> Result<Option<Digest>, CampaignError> {
    match Markers::look(campaign.lab.fs, &campaign.lab.state)? {
        Some(markers) => Ok(markers.id()?),
        None => Ok(None),
    }
}

/// Takes up the bag, and reads what says how far the run came. Its `run.json` is written anew.
fn resumed(mut resumed: Resumed) -> Result<(OpenBag, Left), WriteError> {
    let mut left = Left::default();
    if resumed.paths().any(|path| path == RUN) {
        left.run = RunRecord::parse(&resumed.read(RUN)?).ok();
        resumed.remove(RUN)?;
    }
    if resumed.paths().any(|path| path == PREREG) {
        left.prereg = Prereg::parse(&resumed.read(PREREG)?).ok();
    }
    let numbers: BTreeSet<u64> = resumed.paths().filter_map(leg_number).collect();
    for number in numbers {
        let path = format!("{}/leg.json", crate::campaign::leg_folder(number));
        let record = match resumed.paths().any(|there| there == path) {
            true => LegRecord::parse(&resumed.read(&path)?).ok(),
            false => None,
        };
        left.legs.insert(number, record);
        let path = format!("{}/exchange.jsonl", crate::campaign::leg_folder(number));
        if resumed.paths().any(|there| there == path) {
            left.asked.append(&mut asked(&resumed.read(&path)?));
        }
    }
    left.removed = resumed.removed().to_vec();
    Ok((resumed.into_bag(), left))
}

/// Writes what is still missing, and closes the bag.
fn close(
    campaign: &Campaign<'_>,
    writer: &Writer,
    packet: Digest,
    (mut bag, mut left, home): (OpenBag, Left, &Dir),
    fault: Option<Fault>,
) -> Result<(), CampaignError> {
    let ledger = writer.ledger();
    let Taken { bytes, marker } = own_marker(campaign, ledger, packet)?;
    if !bag.has(PREREG) {
        let frozen = Frozen::load(campaign, ledger, packet)?;
        for (path, bytes) in frozen.files() {
            if !bag.has(path) {
                bag.put(path, bytes)?;
            }
        }
        left.prereg = Some(frozen.documents.prereg);
    }
    // Nothing of the run may have come as far as its published fixtures.
    let published = left.prereg.iter().flat_map(Prereg::fixtures);
    left.asked.extend(published.map(|id| (id.to_owned(), 0)));
    if !bytes.is_empty() && !bag.has(MARKER) {
        bag.put(MARKER, &bytes)?;
    }
    if !bag.has(AUTHORITY) {
        bag.put(AUTHORITY, &authority(ledger, packet))?;
    }
    let nonce = standing(ledger, packet)?.nonce;
    let nonce = nonce.unwrap_or(Digest::from_bytes([0; 32]));
    let source = marker.and_then(|marker| marker.salt).unwrap_or(nonce);
    put_asked(campaign, &mut bag, source, &left.asked)?;
    let fault = fault.unwrap_or_else(|| ended(&left));
    let started = left.run.as_ref().and_then(|run| same_boot(campaign, run));
    let run = ClosedRun {
        kind: Kind::Run,
        packet,
        nonce,
        status: Status::Aborted,
        fault: Some(fault),
        started,
        legs: legs(campaign, &left),
        removed: left.removed,
    };
    let record = closed_record(campaign, home, &run)?;
    bag.put(RUN, &record.render())?;
    bag.close(&BagInfo {
        software: campaign.software.to_owned(),
        packet,
    })?;
    Ok(())
}

/// The legs that have a folder. One without its whole record was cut short.
fn legs(campaign: &Campaign<'_>, left: &Left) -> Vec<RunLeg> {
    let plans = left.prereg.as_ref();
    let plans = plans.map_or_else(Vec::new, |prereg| schedule(prereg, campaign.recipes));
    let planned = |number: u64| plans.iter().find(|plan: &&LegPlan| plan.number == number);
    let legs = left.legs.iter().map(|(number, record)| {
        let plan = planned(*number);
        RunLeg {
            number: *number,
            leg: plan.map_or(0, |plan| plan.leg),
            device: plan.map_or_else(|| CPU.to_owned(), |plan| plan.device.clone()),
            status: record
                .as_ref()
                .map_or(LegStatus::Broken, |record| record.status),
        }
    });
    legs.collect()
}

/// How far a run came of which nobody told why it ended.
fn ended(left: &Left) -> Fault {
    if left.run.is_some() {
        return Fault::new(Stage::Closing, "it ended while its bag was closed");
    }
    match left.legs.is_empty() {
        true => Fault::new(Stage::Marker, "it ended after its marker"),
        false => Fault::new(Stage::Leg, "it ended before its bag was closed"),
    }
}

/// When a run of this boot began: another boot's steady clock says nothing here.
fn same_boot(campaign: &Campaign<'_>, run: &RunRecord) -> Option<Instants> {
    let boot = campaign.lab.host.boot_id().ok()?;
    run.started.filter(|_| run.boot == boot)
}

fn leg_number(path: &str) -> Option<u64> {
    let (number, _) = path.strip_prefix("legs/")?.split_once('/')?;
    number.parse().ok()
}

const MARKER_BYTES_MAX: u64 = 4096;
const RUN: &str = "run.json";
const PREREG: &str = "prereg.toml";
const MARKER: &str = "marker.json";
const AUTHORITY: &str = "authority.jsonl";
