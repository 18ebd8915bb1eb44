//! Records of a run: `docs/format/evidence.md`, sections 3 and 4, and the marker of `lab.md`.

use crate::bagit;
use crate::documents::forms::is_device_name;
use crate::json::{Json, Map};
use crate::report::Report;
use crate::shape::{Record, record, short};
use crate::tree::Tree;

/// Stages at which a run can end.
const STAGES: [&str; 10] = [
    "discovery",
    "identities",
    "file-system",
    "rehearsal",
    "hello",
    "marker",
    "leg",
    "closing",
    "analysis",
    "seal",
];

/// Times of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instant {
    /// Nanoseconds since 1970.
    pub(crate) wall_ns: i64,
    /// Nanoseconds since some instant of this boot.
    pub(crate) steady_ns: u64,
}

/// `run.json`.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Whether it was a rehearsal.
    pub(crate) is_rehearsal: bool,
    /// The packet that it says.
    pub(crate) packet: String,
    /// Its nonce.
    pub(crate) nonce: [u8; 32],
    /// The host's boot id.
    pub(crate) boot: String,
    /// `complete`, `stopped` or `aborted`.
    pub(crate) status: String,
    /// Stage and reason of its end, where it has them.
    pub(crate) words: Option<(String, String)>,
    /// When it began, where that is known.
    pub(crate) started: Option<Instant>,
    /// When it ended.
    pub(crate) ended: Instant,
    /// Its legs.
    pub(crate) legs: Vec<RunLeg>,
}

/// A leg as `run.json` has it.
#[derive(Clone, Debug)]
pub(crate) struct RunLeg {
    /// Its number.
    pub(crate) number: u64,
    /// Its index in the preregistration.
    pub(crate) leg: u64,
    /// Its device.
    pub(crate) device: String,
    /// `complete`, `failed` or `broken`.
    pub(crate) status: String,
}

/// `leg.json`.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    /// What `run.json` has too.
    pub(crate) own: RunLeg,
    /// `exact` or `timing`.
    pub(crate) kind: String,
    /// When it began.
    pub(crate) started: Instant,
    /// When it ended.
    pub(crate) ended: Instant,
    /// Its programs.
    pub(crate) programs: Vec<Program>,
}

/// One program of a leg.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// `control` or `candidate`.
    pub(crate) treatment: String,
    /// Digests of what it had mapped.
    pub(crate) objects: Vec<String>,
    /// How it ended.
    pub(crate) exit: String,
    /// Bytes of its log that are kept.
    pub(crate) stderr_bytes: u64,
    /// From its start to its end.
    pub(crate) elapsed_ns: u64,
}

/// `marker.json`.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    /// Its packet.
    pub(crate) packet: String,
    /// Its nonce.
    pub(crate) nonce: String,
    /// The ledger's head before `consumed`.
    pub(crate) ledger: String,
    /// The lab.
    pub(crate) lab: String,
    /// What inputs were drawn from; none in the first schema.
    pub(crate) salt: Option<[u8; 32]>,
}

const RUN: [&str; 14] = [
    "schema", "kind", "packet", "nonce", "status", "stage", "reason", "boot", "host", "started",
    "ended", "clock", "legs", "removed",
];

/// Reads `run.json`.
pub(crate) fn run(report: &mut Report, payload: &Tree) -> Option<Run> {
    let value = record(report, payload, "run.json")?;
    let mut record = Record::new(report, "run.json");
    let map = record.fields(&value, "", &RUN, &[])?;
    record.schema(map, "packhouse/run/1")?;
    let boot = record.text(map, "boot")?;
    let removed = record.texts(map, "removed")?;
    record.distinct("removed", &removed, is_removed)?;
    let host = record.fields(
        map.get("host")?,
        "host",
        &["kernel", "cpu", "file_system"],
        &[],
    )?;
    for name in host.keys() {
        record.text(host, name)?;
    }
    let status = record.word(map, "status", &["complete", "stopped", "aborted"])?;
    let is_null = |name: &str| matches!(map.get(name), Some(Json::Null));
    let is_complete = status == "complete";
    if is_null("stage") != is_complete || is_null("reason") != is_complete {
        let words = format!("{status}, with a stage or reason that does not fit it");
        record.find("run.status", words);
    }
    let stage = match is_null("stage") {
        true => None,
        false => Some(record.word(map, "stage", &STAGES)?),
    };
    let reason = match is_null("reason") {
        true => None,
        false => Some(record.some_text(map, "reason")?),
    };
    if !removed.is_empty() && status != "aborted" {
        record.find("run.status", format!("{status}, and files were removed"));
    }
    let is_there = |path: &&String| is_of_programs(path) && payload.contains_key(*path);
    if let Some(path) = removed.iter().find(is_there) {
        record.find(
            "run.status",
            format!("{} was removed and is there", short(path)),
        );
    }
    let kind = record.word(map, "kind", &["run", "rehearsal"])?;
    let nonce = record.digest(map, "nonce")?;
    let run = Run {
        is_rehearsal: kind == "rehearsal",
        packet: record.digest(map, "packet")?,
        nonce: crate::shape::unhex(&nonce)?,
        boot,
        words: stage.zip(reason),
        started: started(&mut record, map)?,
        ended: instant(&mut record, map, "ended")?,
        legs: legs(&mut record, map)?,
        status,
    };
    clock(&mut record, map, &run)?;
    if is_complete && run.legs.iter().any(|leg| leg.status == "broken") {
        record.find("run.status", "complete, with a broken leg");
    }
    Some(run)
}

/// Returns whether a text is the path of a payload file, from the payload's folder.
fn is_removed(text: &str) -> bool {
    bagit::is_path(&format!("data/{text}"))
}

/// Returns whether a file is of what programs made: no one writes it anew after them.
fn is_of_programs(path: &str) -> bool {
    path.starts_with("legs/") || path.starts_with("outputs/")
}

/// Reads the two times of a record.
fn instant(record: &mut Record<'_>, map: &Map, name: &str) -> Option<Instant> {
    let own = record.fields(map.get(name)?, name, &["wall_ns", "steady_ns"], &[])?;
    Some(Instant {
        wall_ns: record.signed(own, "wall_ns")?,
        steady_ns: record.integer(own, "steady_ns")?,
    })
}

/// Reads `started`, which nobody may know.
fn started(record: &mut Record<'_>, map: &Map) -> Option<Option<Instant>> {
    match map.get("started")? {
        Json::Null => Some(None),
        _ => instant(record, map, "started").map(Some),
    }
}

fn legs(record: &mut Record<'_>, map: &Map) -> Option<Vec<RunLeg>> {
    let mut legs = Vec::new();
    for item in record.list(map, "legs")? {
        let fields = ["number", "leg", "device", "status"];
        let own = record.fields(item, "legs", &fields, &[])?;
        legs.push(leg_of(record, own)?);
    }
    Some(legs)
}

fn leg_of(record: &mut Record<'_>, map: &Map) -> Option<RunLeg> {
    Some(RunLeg {
        number: record.integer(map, "number")?,
        leg: record.integer(map, "leg")?,
        device: record.formed(map, "device", "a device", is_device_name)?,
        status: record.word(map, "status", &["complete", "failed", "broken"])?,
    })
}

fn clock(record: &mut Record<'_>, map: &Map, run: &Run) -> Option<()> {
    let clock = record.fields(map.get("clock")?, "clock", &["forward_ns", "back_ns"], &[])?;
    let forward = record.integer(clock, "forward_ns")?;
    let back = record.integer(clock, "back_ns")?;
    let is_aborted = run.status == "aborted";
    let Some(started) = run.started else {
        if !is_aborted {
            record.find("run.clock", "nobody knows when it began");
        }
        return Some(());
    };
    if !is_aborted && run.ended.steady_ns < started.steady_ns {
        record.find("run.clock", "it ended before it began");
    }
    let span = |end: u64, start: u64| i128::from(end) - i128::from(start);
    let wall = i128::from(run.ended.wall_ns) - i128::from(started.wall_ns);
    let difference = wall - span(run.ended.steady_ns, started.steady_ns);
    let said = i128::from(forward) - i128::from(back);
    if !is_aborted && (said != difference || (forward > 0 && back > 0)) {
        let words = format!("`clock` is {said} ns, the times are {difference} ns apart");
        record.find("run.clock", words);
    }
    Some(())
}

const LEG: [&str; 9] = [
    "schema", "number", "leg", "kind", "device", "status", "started", "ended", "programs",
];
const PROGRAM: [&str; 6] = [
    "treatment",
    "pid",
    "objects",
    "exit",
    "stderr_bytes",
    "elapsed_ns",
];

/// Reads the `leg.json` of a folder.
pub(crate) fn leg(report: &mut Report, payload: &Tree, path: &str) -> Option<Leg> {
    let value = record(report, payload, path)?;
    let mut record = Record::new(report, path);
    let map = record.fields(&value, "", &LEG, &["host_device"])?;
    record.schema(map, "packhouse/leg/1")?;
    if let Some(device) = map.get("host_device") {
        host_device(&mut record, device)?;
    }
    let mut programs = Vec::new();
    for item in record.list(map, "programs")? {
        let own = record.fields(item, "programs", &PROGRAM, &[])?;
        record.within(own, "pid", 1, u64::MAX)?;
        programs.push(Program {
            treatment: record.word(own, "treatment", &["control", "candidate"])?,
            objects: crate::documents::objects(&mut record, own)?,
            exit: record.formed(own, "exit", "`code N`, `signal N` or `killed`", is_exit)?,
            stderr_bytes: record.integer(own, "stderr_bytes")?,
            elapsed_ns: record.integer(own, "elapsed_ns")?,
        });
    }
    Some(Leg {
        own: leg_of(&mut record, map)?,
        kind: record.word(map, "kind", &["exact", "timing"])?,
        started: instant(&mut record, map, "started")?,
        ended: instant(&mut record, map, "ended")?,
        programs,
    })
}

/// What the host said of the leg's device: read, and judged by nobody.
fn host_device(record: &mut Record<'_>, device: &Json) -> Option<()> {
    let map = record.fields(
        device,
        "host_device",
        &["model", "driver", "before", "after"],
        &[],
    )?;
    record.text(map, "model")?;
    record.text(map, "driver")?;
    for when in ["before", "after"] {
        let held = map.get(when)?;
        let held = record.fields(held, when, &["holders", "unknown"], &[])?;
        for list in ["holders", "unknown"] {
            record.texts(held, list)?;
        }
    }
    Some(())
}

fn is_exit(text: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok_and(|n| n.to_string() == text);
    let number = text.strip_prefix("code ").or(text.strip_prefix("signal "));
    text == "killed" || number.is_some_and(is_number)
}

/// File systems that are known to keep what was synced.
const DURABLE: [&str; 7] = [
    "ext4",
    "xfs",
    "btrfs",
    "f2fs",
    "zfs",
    "bcachefs",
    "overlayfs",
];

const FIRST_MARKER: &str = "packhouse/marker/1";

/// Reads `marker.json`.
pub(crate) fn marker(report: &mut Report, payload: &Tree) -> Option<Marker> {
    let value = record(report, payload, "marker.json")?;
    let mut record = Record::new(report, "marker.json");
    let fields = ["schema", "packet", "nonce", "ledger", "lab", "file_system"];
    let map = record.fields(&value, "", &fields, &["salt"])?;
    let schema = record.word(map, "schema", &[FIRST_MARKER, "packhouse/marker/2"])?;
    // The first schema has no salt: inputs were drawn from the nonce.
    let is_first = schema == FIRST_MARKER;
    match (is_first, map.contains_key("salt")) {
        (true, true) => record.find("record.unknown-field", "a first marker with `salt`"),
        (false, false) => record.find("record.missing-field", "the record has no `salt`"),
        (true, false) | (false, true) => {}
    }
    record.word(map, "file_system", &DURABLE)?;
    Some(Marker {
        packet: record.digest(map, "packet")?,
        nonce: record.digest(map, "nonce")?,
        ledger: record.digest(map, "ledger")?,
        lab: record.digest(map, "lab")?,
        salt: match is_first {
            true => None,
            false => Some(crate::shape::unhex(&record.digest(map, "salt")?)?),
        },
    })
}
