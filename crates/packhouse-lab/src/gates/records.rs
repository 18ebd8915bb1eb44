//! Whether the records of a bag agree with each other: packet, marker, authority, run, legs.

use super::sessions::Session;
use crate::analysis::{Kind, Status};
use crate::evidence::reading::{AUTHORITY, MARKER, PACKET, PREREG, RUN};
use crate::evidence::{
    Failure, LegKind, LegReading, LegRecord, LegStatus, Reading, RunRecord, leg_folder,
};
use crate::packet::{FrozenProgram, Packet};
use crate::prereg::{Leg, Prereg, Program, Treatment};
use crate::schedule::LegPlan;
use packhouse_bag::Contents;
use packhouse_base::digest::Digest;
use std::fmt;

/// Judges packet, preregistration and lane against each other.
pub(crate) fn packet(bag: &Contents, reading: &Reading, failures: &mut Vec<Failure>) {
    let mut fail = |code, path: &str, words: String| {
        failures.push(Failure::new(code, path, words));
    };
    if let Ok((info, _)) = bag.info()
        && info.packet != reading.packet_digest
    {
        let words = format!("bag-info.txt names {}", info.packet);
        fail("packet.digest", packhouse_bag::INFO_FILE, words);
    }
    if let Some(run) = &reading.run
        && run.packet != reading.packet_digest
    {
        fail("packet.digest", RUN, format!("packet {}", run.packet));
    }
    let Some(packet) = &reading.packet else {
        return;
    };
    let files = [
        ("packet.prereg", PREREG, packet.prereg),
        (
            "packet.lane",
            crate::evidence::reading::LANE,
            packet.lane.sha256,
        ),
    ];
    for (code, path, frozen) in files {
        let actual = reading.payload.get(path).map(Digest::of);
        if let Some(actual) = actual.filter(|actual| *actual != frozen) {
            fail(code, path, format!("SHA-256 {actual}, frozen was {frozen}"));
        }
    }
    let Some(prereg) = &reading.prereg else {
        return;
    };
    let lane = reading
        .lane
        .as_ref()
        .map_or(&packet.lane.id, |lane| &lane.id);
    if *lane != packet.lane.id || prereg.lane != packet.lane.id {
        let words = format!(
            "lane {}, of the preregistration {}",
            packet.lane.id, prereg.lane
        );
        fail("packet.lane", PACKET, words);
    }
    for words in other_than_prereg(packet, prereg) {
        fail("packet.prereg", PACKET, words);
    }
}

/// What a packet has otherwise than its preregistration.
fn other_than_prereg(packet: &Packet, prereg: &Prereg) -> Vec<String> {
    let mut other = Vec::new();
    if packet.experiment != prereg.id {
        let words = format!(
            "experiment {}, of the preregistration {}",
            packet.experiment, prereg.id
        );
        other.push(words);
    }
    let null = Program::null();
    let null = prereg.control.is_none().then_some(&null);
    let programs = [
        (
            "control",
            packet.programs.control.as_ref(),
            prereg.control.as_ref(),
        ),
        (
            "candidate",
            Some(&packet.programs.candidate),
            Some(&prereg.candidate),
        ),
        ("null", packet.programs.null.as_ref(), null),
    ];
    for (word, frozen, registered) in programs {
        if !is_same_command(frozen, registered) {
            other.push(format!("programs.{word}: not the preregistered command"));
        }
    }
    if !packet
        .commits
        .iter()
        .map(|commit| &commit.path)
        .eq(&prereg.commits)
    {
        other.push("commits: not the preregistered folders".to_owned());
    }
    let is_below = |path: &str, root: &str| {
        let rest = path.strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let stranger = packet.frozen.iter().find(|file| {
        let mut roots = prereg.frozen.iter();
        !roots.any(|root| is_below(&file.path, root))
    });
    let empty = prereg.frozen.iter().find(|root| {
        let mut files = packet.frozen.iter();
        !files.any(|file| is_below(&file.path, root))
    });
    if let Some(path) = stranger.map(|file| &file.path).or(empty) {
        other.push(format!("frozen {path}: not as preregistered"));
    }
    other
}

fn is_same_command(frozen: Option<&FrozenProgram>, registered: Option<&Program>) -> bool {
    match (frozen, registered) {
        (None, None) => true,
        (Some(frozen), Some(registered)) => {
            frozen.arguments == registered.arguments && frozen.environment == registered.environment
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Judges the marker against packet, nonce and authority.
pub(crate) fn marker(reading: &Reading, failures: &mut Vec<Failure>) {
    let Some(marker) = &reading.marker else {
        return;
    };
    let mut fail = |code, words: String| failures.push(Failure::new(code, MARKER, words));
    if marker.packet != reading.packet_digest {
        fail("marker.packet", format!("packet {}", marker.packet));
    }
    if let Some(run) = &reading.run
        && marker.nonce != run.nonce
    {
        fail("marker.nonce", format!("nonce {}", marker.nonce));
    }
    let before = super::authority::before_consumed(reading);
    if before.is_some_and(|head| marker.ledger != head) {
        fail("marker.ledger", format!("ledger {}", marker.ledger));
    }
    let lab = super::authority::lab(reading);
    if lab.is_some_and(|lab| marker.lab != lab) {
        fail("marker.ledger", format!("lab {}", marker.lab));
    }
    if marker.file_system.is_empty() {
        fail(
            "record.type",
            "file_system: expected a text that says something".to_owned(),
        );
    }
}

/// Judges the run's own record, and the legs that it names.
pub(crate) fn run(reading: &Reading, plans: &[LegPlan], failures: &mut Vec<Failure>) {
    let Some(run) = &reading.run else {
        return;
    };
    let mut fail = |code, words: String| failures.push(Failure::new(code, RUN, words));
    let is_complete = run.status == Status::Complete;
    if run.stage.is_none() != is_complete || run.reason.is_none() != is_complete {
        let status = run.status.id();
        fail(
            "run.status",
            format!("{status}: stage and reason say otherwise"),
        );
    }
    let broken = run.legs.iter().find(|leg| leg.status == LegStatus::Broken);
    if let Some(leg) = broken.filter(|_| is_complete) {
        fail(
            "run.status",
            format!("complete, but leg {} is broken", leg.number),
        );
    }
    clock(run, &mut fail);
    removed(reading, run, &mut fail);
    if is_complete && run.legs.len() != plans.len() {
        let (actual, planned) = (run.legs.len(), plans.len());
        fail("run.legs", format!("{actual} legs, planned are {planned}"));
    }
    for (position, leg) in run.legs.iter().enumerate() {
        let is_planned = plans.get(position).is_some_and(|plan| {
            (plan.number, plan.leg, &plan.device) == (leg.number, leg.leg, &leg.device)
        });
        let folder = reading.legs.get(&leg.number);
        if !is_planned || folder.is_none() {
            fail(
                "run.legs",
                format!("leg {}: not the next one planned, or no folder", leg.number),
            );
        }
        let record = folder.and_then(|folder| folder.record.as_ref());
        let is_same = record.is_none_or(|record| {
            (record.number, record.leg, &record.device, record.status)
                == (leg.number, leg.leg, &leg.device, leg.status)
        });
        if !is_same {
            fail(
                "run.legs",
                format!("leg {}: its record says otherwise", leg.number),
            );
        }
    }
    let is_listed = |number: &u64| run.legs.iter().any(|leg| leg.number == *number);
    for number in reading.legs.keys().filter(|number| !is_listed(number)) {
        fail(
            "run.legs",
            format!("leg {number}: a folder, and not in the list"),
        );
    }
}

/// A leg that came to its end is complete where no answer of it is wrong, else failed. What a null
/// program makes of rejections decides nothing; of a run that broke off the wrong output may be
/// lost; and a program that told more time than its answer took is no matter of its leg here.
pub(crate) fn ends_as_answered(reading: &Reading, plans: &[LegPlan], failures: &mut Vec<Failure>) {
    let Some(run) = &reading.run else {
        return;
    };
    let mut others = Vec::new();
    for leg in &run.legs {
        let lines = format!("{}/exchange.jsonl:", leg_folder(leg.number));
        let own = failures.iter().filter(|own| own.path.starts_with(&lines));
        let codes: Vec<&str> = own.map(|own| own.code).collect();
        let is_wrong = |code: &&str| match *code {
            "equality" | "rejection" => true,
            code => code.starts_with("answer."),
        };
        let is_sure = |code: &&str| match *code {
            "rejection" => run.kind == Kind::Run,
            "answer.timed-longer" => false,
            _ => is_wrong(code),
        };
        let mut timing = plans.iter().filter(|plan| plan.kind == Leg::Timing);
        let is_timing = timing.any(|plan| plan.number == leg.number);
        let may_be_lost = is_timing || run.status == Status::Aborted;
        let words = match leg.status {
            LegStatus::Complete if codes.iter().any(is_sure) => "complete, with a wrong answer",
            LegStatus::Failed if !may_be_lost && !codes.iter().any(is_wrong) => {
                "failed, and no answer is wrong"
            }
            LegStatus::Complete | LegStatus::Failed | LegStatus::Broken => continue,
        };
        let words = format!("leg {}: {words}", leg.number);
        others.push(Failure::new("run.legs", RUN, words));
    }
    failures.append(&mut others);
}

/// Only a killed run leaves files without bytes; what programs made is not written anew after them.
fn removed(reading: &Reading, run: &RunRecord, fail: &mut impl FnMut(&'static str, String)) {
    if !run.removed.is_empty() && run.status != Status::Aborted {
        let status = run.status.id();
        fail("run.status", format!("{status}, and files were removed"));
    }
    let is_of_programs = |path: &str| path.starts_with("legs/") || path.starts_with("outputs/");
    let is_there =
        |path: &&String| is_of_programs(path) && reading.payload.get(path.as_str()).is_some();
    if let Some(path) = run.removed.iter().find(is_there) {
        fail("run.status", format!("{path} was removed and is there"));
    }
}

/// Times do not go back, and the clock is their difference.
fn clock(run: &RunRecord, fail: &mut impl FnMut(&'static str, String)) {
    if run.status == Status::Aborted {
        return;
    }
    let Some(started) = run.started else {
        fail(
            "run.clock",
            "started: null, and the run was not aborted".to_owned(),
        );
        return;
    };
    let ended = run.ended;
    if ended.steady_ns < started.steady_ns {
        fail("run.clock", "ended before it started".to_owned());
        return;
    }
    let steady = i128::from(ended.steady_ns) - i128::from(started.steady_ns);
    let wall = i128::from(ended.wall_ns) - i128::from(started.wall_ns);
    let told = i128::from(run.clock.forward_ns) - i128::from(run.clock.back_ns);
    let is_one = run.clock.forward_ns == 0 || run.clock.back_ns == 0;
    if wall - steady != told || !is_one {
        fail(
            "run.clock",
            format!("clock: {told} ns, the times differ by {} ns", wall - steady),
        );
    }
}

/// Judges a leg's record against the plan and its sessions.
pub(crate) fn leg(
    reading: &Reading,
    leg: &LegReading,
    plan: &LegPlan,
    sessions: &[(Treatment, Session); 2],
    failures: &mut Vec<Failure>,
) {
    let path = format!("{}/leg.json", leg_folder(plan.number));
    let mut fail = |code, words: String| failures.push(Failure::new(code, &path, words));
    let status = reading.status();
    ends(status, plan, sessions, &mut fail);
    let Some(record) = &leg.record else {
        return;
    };
    let kind = match plan.kind {
        Leg::Exact { .. } => LegKind::Exact,
        Leg::Timing => LegKind::Timing,
    };
    if (record.number, record.kind) != (plan.number, kind) {
        fail(
            "leg.number",
            format!("number {}, kind {}", record.number, record.kind.id()),
        );
    }
    let programs = record.programs.iter().map(|program| &program.treatment);
    let is_cut = record.status == LegStatus::Broken && is_part(record, plan);
    if !programs.eq(plan.treatments()) && !is_cut {
        fail(
            "leg.program",
            "not the programs of this leg, in order".to_owned(),
        );
    }
    told_programs(reading, plan, record, sessions, &mut fail);
    let (started, ended) = (record.started.steady_ns, record.ended.steady_ns);
    let run = reading.run.as_ref();
    let run_started = run.and_then(|run| run.started).map_or(0, |at| at.steady_ns);
    let run_ended = run.map_or(u64::MAX, |run| run.ended.steady_ns);
    let is_within = run_started <= started && started <= ended && ended <= run_ended;
    if status != Status::Aborted && !is_within {
        fail(
            "run.clock",
            "its times go back, or are not within the run's".to_owned(),
        );
    }
    // Spans bound what a program tells of its time: the leg bounds the spans.
    let last_ns = leg.lines.iter().map(|(_, line)| line.at_ns).max();
    let lasted_ns = ended.saturating_sub(started);
    if status != Status::Aborted && last_ns.is_some_and(|last_ns| last_ns > lasted_ns) {
        let words = format!("lasted {lasted_ns} ns, and its exchange is longer");
        fail("run.clock", words);
    }
    let mut programs = record.programs.iter();
    let longer = programs.find(|program| program.elapsed_ns > lasted_ns);
    if let Some(program) = longer.filter(|_| status != Status::Aborted) {
        let (word, elapsed_ns) = (program.treatment.word(), program.elapsed_ns);
        let words = format!("lasted {lasted_ns} ns, and {word} {elapsed_ns} ns");
        fail("run.clock", words);
    }
}

/// Whether a leg's programs are some of those that are planned, in order.
fn is_part(record: &LegRecord, plan: &LegPlan) -> bool {
    let mut planned = plan.treatments().iter();
    let mut programs = record.programs.iter();
    programs.all(|program| planned.any(|treatment| *treatment == program.treatment))
}

/// How each session of a leg ended.
fn ends(
    status: Status,
    plan: &LegPlan,
    sessions: &[(Treatment, Session); 2],
    fail: &mut impl FnMut(&'static str, String),
) {
    for (treatment, session) in sessions {
        let word = treatment.word();
        let is_planned = plan.treatments().contains(treatment);
        if !is_planned && session.has_begun() {
            fail(
                "leg.program",
                format!("a session of {word}, which is not of this leg"),
            );
        }
        if is_planned && status != Status::Aborted && session.end.is_none() {
            fail("leg.end", format!("{word}: no end"));
        }
        if is_planned && status == Status::Complete && session.end.is_some() && !session.said_bye()
        {
            fail("leg.end", format!("{word}: ended otherwise than by bye"));
        }
    }
}

/// What a leg's record says of its programs.
fn told_programs(
    reading: &Reading,
    plan: &LegPlan,
    record: &LegRecord,
    sessions: &[(Treatment, Session); 2],
    fail: &mut impl FnMut(&'static str, String),
) {
    for program in &record.programs {
        let word = program.treatment.word();
        let session = sessions
            .iter()
            .find(|(treatment, _)| *treatment == program.treatment);
        let said_bye = session.is_some_and(|(_, session)| session.said_bye());
        if said_bye && program.exit != "code 0" {
            fail("leg.end", format!("{word}: bye, but exit {}", program.exit));
        }
        let log = format!("{}/{word}.stderr", leg_folder(plan.number));
        let actual = reading.payload.get(&log).map_or(0, <[u8]>::len) as u64;
        if program.stderr_bytes != actual {
            let said = program.stderr_bytes;
            fail(
                "leg.end",
                format!("{word}: stderr_bytes {said}, kept are {actual}"),
            );
        }
        if !program.objects.is_sorted() {
            fail("record.type", format!("{word}: objects are not in order"));
        }
    }
}

/// Judges the mapped objects of each program that said bye.
pub(crate) fn identities(
    reading: &Reading,
    leg: &LegReading,
    number: u64,
    sessions: &[(Treatment, Session); 2],
    failures: &mut Vec<Failure>,
) {
    let (Some(packet), Some(record)) = (&reading.packet, &leg.record) else {
        return;
    };
    let path = format!("{}/leg.json", leg_folder(number));
    for program in &record.programs {
        let word = program.treatment.word();
        let mut fail = |words: fmt::Arguments<'_>| {
            let words = format!("{word}: {words}");
            failures.push(Failure::new("identity", &path, words));
        };
        let session = sessions
            .iter()
            .find(|(treatment, _)| *treatment == program.treatment);
        if !session.is_some_and(|(_, session)| session.said_bye()) {
            continue;
        }
        let frozen = match (program.treatment, reading.kind()) {
            (Treatment::Control, _) => packet.programs.control.as_ref(),
            (Treatment::Candidate, Kind::Run) => Some(&packet.programs.candidate),
            (Treatment::Candidate, Kind::Rehearsal) => Some(packet.programs.rehearsed()),
        };
        let Some(frozen) = frozen else {
            fail(format_args!("the packet froze no such program"));
            continue;
        };
        if program.objects.is_empty() {
            fail(format_args!("no mapped object"));
        }
        for object in &program.objects {
            let mut known = frozen.objects.iter().map(|object| object.sha256);
            let mut files = packet.frozen.iter().map(|file| file.sha256);
            let is_frozen = object.sha256 == frozen.program.sha256
                || known.any(|sha256| sha256 == object.sha256)
                || files.any(|sha256| sha256 == object.sha256);
            if !is_frozen {
                let (name, sha256) = (&object.name, object.sha256);
                fail(format_args!(
                    "{name}, SHA-256 {sha256}, was mapped and is not frozen"
                ));
            }
        }
    }
}

/// The path of a line of the authority.
pub(crate) fn path_of_authority(line: usize) -> String {
    format!("{AUTHORITY}:{}", line + 1)
}
