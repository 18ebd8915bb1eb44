//! The one run of a packet.
//!
//! Each step is one line of `run`, durable before the next; what a kill between two of them leaves
//! is finished by `recovery`. Specified in `docs/format/evidence.md`, section 6.

use super::finish::{Finished, finish};
use super::frozen::{authority, standing};
use super::legs::{LegEnd, LiveLeg, RunEnd, Running};
use super::recorder::Recorder;
use super::{Campaign, CampaignError, EVIDENCE, Fault, Frozen, cause, checks, instants};
use crate::analysis::{Kind, Status};
use crate::evidence::{ClockRecord, HostRecord, Instants, LegStatus, RunLeg, RunRecord};
use crate::marker::MarkerError;
use crate::prereg::Stop;
use crate::recovery::aborted;
use crate::schedule::{LegPlan, schedule};
use packhouse_bag::{BagInfo, DATA_DIR, OPEN_DIR, OpenBag};
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Consumed, Nonce, Released, SPENT};
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Ledger, Stage, Writer};
use packhouse_sys::fs::Dir;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It ended before the marker: the packet may be armed again.
    Released(Fault),
    /// It is sealed.
    Sealed(Box<Finished>),
}

impl Ran {
    fn sealed(finished: Finished) -> Self {
        Self::Sealed(Box::new(finished))
    }
}

/// A run in its bag, before `run.json`.
pub(crate) struct ClosedRun {
    pub(crate) kind: Kind,
    pub(crate) packet: Digest,
    pub(crate) nonce: Digest,
    pub(crate) status: Status,
    pub(crate) fault: Option<Fault>,
    pub(crate) started: Option<Instants>,
    pub(crate) legs: Vec<RunLeg>,
    pub(crate) removed: Vec<String>,
}

/// A run before its marker.
pub(super) struct Opened {
    recorder: Recorder,
    legs: Vec<LegPlan>,
    first: LiveLeg,
    started: Instants,
    deadline_ns: u64,
}

/// Runs an armed packet, once. The marker is taken between the first program's hello and its first
/// case.
///
/// # Errors
/// Before the nonce: when something that must hold does not, and nothing was written. After the
/// marker: when ledger, bag or seal can't be written; `recovery` finishes what is there.
pub fn run(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    frozen: &Frozen,
) -> Result<Ran, CampaignError> {
    let _hold = writer.hold_packet(frozen.digest, campaign.lab.clock)?;
    armed(writer.ledger(), frozen.digest)?;
    let markers = checks::before_run(campaign, writer.ledger(), frozen);
    let markers = markers.map_err(CampaignError::Refused)?;
    let folder = markers.identify(campaign.lab.fs);
    let folder =
        folder.map_err(|error| CampaignError::Refused(Fault::new(Stage::FileSystem, error)))?;
    let nonce = campaign.nonce()?;
    let packet = frozen.digest;
    cause::reserve(campaign, packet).map_err(CampaignError::Refused)?;
    let act = Nonce {
        packet,
        nonce,
        markers: Some(folder),
    };
    campaign.append(writer, act)?;
    let opened = campaign
        .home(EVIDENCE, packet)
        .map_err(|error| Fault::new(Stage::FileSystem, error))
        .and_then(|home| Ok((open(campaign, frozen, &home, nonce, Kind::Run)?, home)));
    let (opened, home) = match opened {
        Ok(opened) => opened,
        Err(fault) => return released(campaign, writer, packet, fault),
    };
    let (salt, marker) = match checks::consume(campaign, writer.ledger(), &markers, (packet, nonce))
    {
        Ok(taken) => taken,
        Err(error) => {
            drop(opened);
            return unmarked(campaign, writer, (packet, nonce), error);
        }
    };
    let act = Consumed {
        packet,
        nonce,
        marker: Digest::of(&marker),
    };
    campaign.append(writer, act).inspect_err(|error| {
        cause::note(campaign, (packet, nonce), &Fault::new(Stage::Marker, error));
    })?;
    let lines = authority(writer.ledger(), packet);
    // Others may append for as long as programs are asked.
    writer.rest();
    let ran = execute(
        campaign,
        frozen,
        (nonce, salt),
        Kind::Run,
        opened,
        &[("marker.json", &marker), ("authority.jsonl", &lines)],
    );
    let closed = ran.and_then(|(recorder, run)| {
        // Why it broke off comes before why that can't be written.
        let first = run.fault.clone();
        let first = first.filter(|_| run.status == Status::Aborted);
        let closed = close(campaign, &home, recorder, &run);
        closed.map_err(|fault| first.unwrap_or(fault))
    });
    match closed {
        Ok(_) => finish(campaign, writer, packet).map(Ran::sealed),
        Err(fault) => sealed_abort(campaign, writer, (packet, nonce), fault),
    }
}

/// Seals an abort, whose reason is noted first: there may be no room for anything else.
fn sealed_abort(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    (packet, nonce): (Digest, Digest),
    fault: Fault,
) -> Result<Ran, CampaignError> {
    cause::note(campaign, (packet, nonce), &fault);
    aborted(campaign, writer, packet, Some(fault)).map(Ran::sealed)
}

/// What a run comes to whose marker could not be taken, or is perhaps not kept.
fn unmarked(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    (packet, nonce): (Digest, Digest),
    error: MarkerError,
) -> Result<Ran, CampaignError> {
    let was_taken = matches!(error, MarkerError::Taken { .. });
    let fault = Fault::new(Stage::Marker, error);
    let Some(taken) = checks::taken(campaign, packet)? else {
        return released(campaign, writer, packet, fault);
    };
    // Another run was faster, of another copy of the lab: this one consumed nothing.
    let other = taken.of_another(writer.ledger(), packet);
    let damaged = || was_taken.then(|| format!("{SPENT}: {}", fault.reason));
    if let Some(reason) = other.or_else(damaged) {
        let fault = Fault::new(Stage::Marker, reason);
        return released(campaign, writer, packet, fault);
    }
    sealed_abort(campaign, writer, (packet, nonce), fault)
}

/// Makes the bag with all that is known before the first case, and starts the first leg.
pub(super) fn open(
    campaign: &Campaign<'_>,
    frozen: &Frozen,
    home: &Dir,
    nonce: Digest,
    kind: Kind,
) -> Result<Opened, Fault> {
    let written = |error: packhouse_bag::WriteError| Fault::new(Stage::FileSystem, error);
    let bag = OpenBag::create(home).map_err(written)?;
    let recorder = Recorder::new(bag, campaign.interrupted);
    documents(campaign, frozen, &recorder).map_err(written)?;
    let legs = schedule(frozen.prereg(), campaign.recipes);
    let Some(plan) = legs.first() else {
        return Err(Fault::new(
            Stage::Discovery,
            "the preregistration has no leg",
        ));
    };
    let started = instants(campaign.lab.clock);
    let budget_ns = frozen.prereg().time_budget_s.saturating_mul(1_000_000_000);
    let deadline_ns = started.steady_ns.saturating_add(budget_ns);
    let running = Running {
        campaign,
        frozen,
        recorder: &recorder,
        nonce,
        // Nothing is drawn before the marker.
        source: nonce,
        is_rehearsal: kind == Kind::Rehearsal,
        deadline_ns,
        legs: legs.len(),
    };
    checks::unchanged(campaign, frozen)?;
    let first = running.begin(plan)?;
    if recorder.is_interrupted() {
        return Err(Fault::new(Stage::Hello, super::legs::INTERRUPTED));
    }
    running.are_frozen(&first)?;
    recorder.good()?;
    Ok(Opened {
        recorder,
        legs,
        first,
        started,
        deadline_ns,
    })
}

/// Asks all cases of all legs. Inputs are drawn from `source`: the marker's salt, and of a
/// rehearsal the nonce, which is in no ledger.
pub(super) fn execute(
    campaign: &Campaign<'_>,
    frozen: &Frozen,
    (nonce, source): (Digest, Digest),
    kind: Kind,
    opened: Opened,
    files: &[(&str, &[u8])],
) -> Result<(Recorder, ClosedRun), Fault> {
    let Opened {
        recorder,
        legs,
        first,
        started,
        deadline_ns,
    } = opened;
    for (path, bytes) in files {
        let put = recorder.put(path, bytes);
        put.map_err(|error| Fault::new(Stage::Marker, error))?;
    }
    let synced = recorder.sync();
    synced.map_err(|error| Fault::new(Stage::Marker, error))?;
    let running = Running {
        campaign,
        frozen,
        recorder: &recorder,
        nonce,
        source,
        is_rehearsal: kind == Kind::Rehearsal,
        deadline_ns,
        legs: legs.len(),
    };
    let (legs, end) = all_legs(&running, &legs, first)?;
    let mut end = match end {
        Some(RunEnd::Aborted(fault)) => Some(RunEnd::Aborted(fault)),
        // A program that was swapped is not what the packet says ran.
        end => checks::unchanged(campaign, frozen)
            .err()
            .map(RunEnd::Aborted)
            .or(end),
    };
    if let Err(error) = recorder.put_held() {
        // What was not written is told where the bag is closed, if nothing was before.
        let fault = Fault::new(Stage::Leg, error);
        end = end
            .filter(RunEnd::is_abort)
            .or(Some(RunEnd::Aborted(fault)));
    }
    let (status, fault) = match end {
        None => (Status::Complete, None),
        Some(RunEnd::Stopped(fault)) => (Status::Stopped, Some(fault)),
        Some(RunEnd::Aborted(fault)) => (Status::Aborted, Some(fault)),
    };
    let run = ClosedRun {
        kind,
        packet: frozen.digest,
        nonce,
        status,
        fault,
        started: Some(started),
        legs,
        removed: Vec::new(),
    };
    Ok((recorder, run))
}

fn all_legs(
    running: &Running<'_>,
    plans: &[LegPlan],
    first: LiveLeg,
) -> Result<(Vec<RunLeg>, Option<RunEnd>), Fault> {
    let mut first = Some(first);
    let mut legs = Vec::new();
    for (plan, left) in plans.iter().zip((0..plans.len()).rev()) {
        if first.is_none()
            && let Err(fault) = checks::unchanged(running.campaign, running.frozen)
        {
            // What was swapped since the last leg would be run in this one.
            return Ok((legs, Some(RunEnd::Aborted(fault))));
        }
        let ended = match first.take().map_or_else(|| running.begin(plan), Ok) {
            Ok(live) => running.run(live)?,
            Err(fault) => {
                running.recorder.good()?;
                LegEnd {
                    status: LegStatus::Broken,
                    ends_run: Some(RunEnd::Aborted(fault)),
                }
            }
        };
        legs.push(RunLeg {
            number: plan.number,
            leg: plan.leg,
            device: plan.device.clone(),
            status: ended.status,
        });
        if ended.ends_run.is_some() {
            return Ok((legs, ended.ends_run));
        }
        let is_over = running.frozen.prereg().stop == Stop::FirstFailedLeg;
        if ended.status == LegStatus::Failed && is_over && left > 0 {
            let reason = format!("leg {} failed, and {left} more are not begun", plan.number);
            let end = RunEnd::Stopped(Fault::new(Stage::Leg, reason));
            return Ok((legs, Some(end)));
        }
    }
    Ok((legs, None))
}

/// Writes `run.json` and closes the bag.
pub(super) fn close(
    campaign: &Campaign<'_>,
    home: &Dir,
    recorder: Recorder,
    run: &ClosedRun,
) -> Result<Digest, Fault> {
    let fault = |error: packhouse_bag::WriteError| Fault::new(Stage::Closing, error);
    let record =
        closed_record(campaign, home, run).map_err(|error| Fault::new(Stage::Closing, error))?;
    recorder.put("run.json", &record.render()).map_err(fault)?;
    let info = BagInfo {
        software: campaign.software.to_owned(),
        packet: run.packet,
    };
    recorder.close(&info).map_err(fault)
}

/// `run.json` of a run that ends now.
pub(crate) fn closed_record(
    campaign: &Campaign<'_>,
    home: &Dir,
    run: &ClosedRun,
) -> Result<RunRecord, CampaignError> {
    let host = campaign.lab.host;
    let ended = instants(campaign.lab.clock);
    Ok(RunRecord {
        kind: run.kind,
        packet: run.packet,
        nonce: run.nonce,
        status: run.status,
        stage: run.fault.as_ref().map(|fault| fault.stage),
        reason: run.fault.as_ref().map(|fault| fault.reason.clone()),
        boot: host.boot_id()?,
        host: HostRecord {
            kernel: host.kernel()?,
            cpu: host.cpu()?,
            file_system: checks::file_system(home)?,
        },
        started: run.started,
        ended,
        clock: run
            .started
            .map_or(ClockRecord::default(), |started| clock(started, ended)),
        legs: run.legs.clone(),
        removed: run.removed.clone(),
    })
}

/// How far the wall clock went another way than the steady one.
fn clock(started: Instants, ended: Instants) -> ClockRecord {
    let wall = i128::from(ended.wall_ns) - i128::from(started.wall_ns);
    let steady = i128::from(ended.steady_ns) - i128::from(started.steady_ns);
    let count = |difference: i128| u64::try_from(difference.max(0)).unwrap_or(u64::MAX);
    ClockRecord {
        forward_ns: count(wall - steady),
        back_ns: count(steady - wall),
    }
}

fn documents(
    campaign: &Campaign<'_>,
    frozen: &Frozen,
    recorder: &Recorder,
) -> Result<(), packhouse_bag::WriteError> {
    for (path, bytes) in frozen.files() {
        recorder.put(path, bytes)?;
    }
    for id in frozen.prereg().fixtures() {
        if let Some(made) = campaign.recipes.published(id) {
            recorder.put_fixture(&super::fixture_folder(id, 0), &made)?;
        }
    }
    recorder.sync()
}

fn armed(ledger: &Ledger, packet: Digest) -> Result<(), CampaignError> {
    let actual = standing(ledger, packet)?.standing;
    if actual == Standing::Armed {
        return Ok(());
    }
    Err(CampaignError::Standing {
        packet,
        expected: "armed",
        actual: actual.as_str(),
    })
}

fn released(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    packet: Digest,
    fault: Fault,
) -> Result<Ran, CampaignError> {
    release(campaign, writer, packet, fault.clone())?;
    Ok(Ran::Released(fault))
}

/// Gives a packet back that nothing irreversible was done with. An open bag that has a marker or
/// the ledger's lines is of a run that asked cases: it is evidence, of whose run ever, and stays.
pub(crate) fn release(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    packet: Digest,
    fault: Fault,
) -> Result<(), CampaignError> {
    let home = campaign.home(EVIDENCE, packet)?;
    if !is_evidence(&home) {
        packhouse_bag::open::discard(&home)?;
    }
    let nonce = standing(writer.ledger(), packet)?.nonce;
    let act = Released {
        packet,
        nonce: nonce.unwrap_or(Digest::from_bytes([0; 32])),
        stage: fault.stage,
        reason: fault.reason,
    };
    campaign.append(writer, act)?;
    cause::forget(campaign, packet);
    Ok(())
}

fn is_evidence(home: &Dir) -> bool {
    let data = home
        .open_dir(OPEN_DIR)
        .and_then(|bag| bag.open_dir(DATA_DIR));
    let names = ["marker.json", "authority.jsonl", "run.json"];
    data.is_ok_and(|data| names.iter().any(|name| data.stat_entry(name).is_ok()))
}
