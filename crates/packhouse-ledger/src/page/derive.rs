//! A page's values from a ledger and the documents that it names.

use super::marks;
use super::values::{
    Documents, Doubt, Evidence, Found, Lane, LaneState, LaneText, Note, Packet, PacketState, Page,
    Plan, Record, Rehearsals, Review, Sealed,
};
use crate::act::{Act, Rehearsed, Review as Word, Verdict, is_spent};
use crate::state::{LanePhase, LaneState as LaneOf, PacketState as PacketOf, Standing};
use crate::{Entry, Ledger};
use packhouse_base::digest::Digest;
use packhouse_base::units::age;

impl Page {
    /// The page of a ledger. The documents are those that the ledger names by digest: whoever reads
    /// them compares their digests first.
    pub fn of(ledger: &Ledger, documents: &Documents) -> Self {
        let (state, entries) = (ledger.state(), ledger.entries());
        let mut lanes: Vec<_> = state.lanes().iter().collect();
        lanes.sort_by_key(|(_, lane)| lane.opened);
        let mut packets: Vec<_> = state.packets().iter().collect();
        packets.sort_by_key(|(_, packet)| packet.registered);
        let packets = packets.into_iter();
        Self {
            lab: state.lab().to_owned(),
            lab_id: state.id().to_string(),
            entry_count: entries.len() as u64,
            head: ledger.head().to_string(),
            last_at_ns: entries.last().map_or(0, |entry| entry.at_ns),
            lanes: lanes
                .into_iter()
                .map(|(name, lane)| self::lane(entries, name.as_str(), lane, documents))
                .collect(),
            records: records(ledger),
            packets: packets
                .map(|(packet, of)| self::packet(entries, *packet, of, documents))
                .collect(),
            notes: notes(entries),
            doubts: doubts(ledger, documents),
            marks: marks::of(ledger),
            live: None,
        }
    }
}

fn entry(entries: &[Entry], index: u64) -> Option<&Entry> {
    entries.get(usize::try_from(index).ok()?)
}

fn at_ns(entries: &[Entry], index: u64) -> i64 {
    entry(entries, index).map_or(0, |entry| entry.at_ns)
}

fn lane(entries: &[Entry], name: &str, lane: &LaneOf, documents: &Documents) -> Lane {
    let (state, until) = match &lane.phase {
        LanePhase::Open => (LaneState::Open, None),
        LanePhase::Paused { until } => (LaneState::Paused, Some(until)),
        LanePhase::Blocked { until } => (LaneState::Blocked, Some(until)),
        LanePhase::Closed => (LaneState::Closed, None),
    };
    Lane {
        lane: name.to_owned(),
        state,
        reason: lane.reason.clone(),
        until: until.map(|day| day.as_str().to_owned()),
        since_ns: at_ns(entries, lane.since),
        entry: lane.since,
        text: documents.lanes.get(name).and_then(Found::here).cloned(),
    }
}

fn packet(entries: &[Entry], packet: Digest, of: &PacketOf, documents: &Documents) -> Packet {
    let (state, mut reason) = packet_state(entries, of);
    let plan = documents.plans.get(of.experiment.as_str());
    let first = documents.analyses.get(&(packet, 1));
    if let (PacketState::SealedFail, Some(Found::Here(found))) = (state, first) {
        reason = found.failed();
    }
    let green = |index: &&u64| {
        let act = entry(entries, **index).map(|entry| &entry.act);
        matches!(act, Some(Act::Rehearsed(body)) if body.green)
    };
    let reviews = of.words.iter().map(|(reviewer, word)| Review {
        reviewer: reviewer.clone(),
        approves: word.verdict == Word::Approve,
        note: word.note.clone(),
    });
    Packet {
        packet: packet.to_string(),
        experiment: of.experiment.as_str().to_owned(),
        lane: of.lane.as_str().to_owned(),
        treatment: of.treatment.clone(),
        state,
        reason,
        entry: of.since,
        since_ns: at_ns(entries, of.since),
        rehearsals: Rehearsals {
            green_count: of.rehearsals.iter().filter(green).count() as u64,
            count: of.rehearsals.len() as u64,
            tampers: of.green.as_ref().map_or(0, |(_, body)| body.rejected),
            detectable_ns: told_savings(entries, of, |_| true).fold(Vec::new(), largest),
            red_ns: told_savings(entries, of, |body| !body.green).collect(),
        },
        reviews: reviews.collect(),
        released: released(entries, of),
        plan: plan.cloned().unwrap_or_default(),
        seals: of
            .analyses
            .iter()
            .map(|analysis| {
                let body = entry(entries, analysis.entry).map(|entry| &entry.act);
                let key = (packet, analysis.number);
                Sealed {
                    number: analysis.number,
                    verdict: analysis.verdict,
                    entry: analysis.entry,
                    at_ns: at_ns(entries, analysis.entry),
                    seal: analysis.seal.to_string(),
                    bag: of.bag.map_or(String::new(), |bag| bag.to_string()),
                    why: match body {
                        Some(Act::Analysed(body)) => body.why.clone(),
                        Some(_) | None => String::new(),
                    },
                    reading: documents.analyses.get(&key).cloned().unwrap_or_default(),
                }
            })
            .collect(),
        ran: None,
    }
}

/// What the rehearsals of a packet could have told of each device, those that are asked for.
fn told_savings<'a>(
    entries: &'a [Entry],
    of: &'a PacketOf,
    is_asked: fn(&Rehearsed) -> bool,
) -> impl Iterator<Item = (String, u64)> + 'a {
    let all = of.rehearsals.iter().filter_map(move |index| {
        match entry(entries, *index).map(|entry| &entry.act) {
            Some(Act::Rehearsed(body)) if is_asked(body) => body.detectable_ns.as_ref(),
            Some(_) | None => None,
        }
    });
    all.flatten().map(|(device, ns)| (device.clone(), *ns))
}

/// Keeps the largest figure of each device.
fn largest(mut all: Vec<(String, u64)>, (device, ns): (String, u64)) -> Vec<(String, u64)> {
    match all.iter_mut().find(|(name, _)| *name == device) {
        Some((_, most)) => *most = ns.max(*most),
        None => all.push((device, ns)),
    }
    all
}

/// Why a packet was released, each time, oldest first.
fn released(entries: &[Entry], of: &PacketOf) -> Vec<String> {
    let reason = |index: &u64| match entry(entries, *index).map(|entry| &entry.act) {
        Some(Act::Released(body)) => Some(marks::staged(Some(body.stage), &body.reason)),
        Some(_) | None => None,
    };
    of.entries.iter().filter_map(reason).collect()
}

/// How often a packet was released before its marker, and why, if it ever was: whoever could choose
/// among runs would choose a verdict.
pub fn told_releases(ledger: &Ledger, packet: Digest) -> Option<String> {
    let of = ledger.state().packets().get(&packet)?;
    count_and_reasons(&released(ledger.entries(), of))
}

/// The same, of the reasons.
pub(super) fn count_and_reasons(released: &[String]) -> Option<String> {
    let count = match released.len() {
        0 => return None,
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    };
    Some(format!(
        "{count} before the marker: {}",
        released.join("; ")
    ))
}

/// A packet's state as people see it, and why it is in it.
fn packet_state(entries: &[Entry], of: &PacketOf) -> (PacketState, String) {
    let since = entry(entries, of.since).map(|entry| &entry.act);
    let none = String::new;
    match of.standing {
        Standing::Registered => match since {
            Some(Act::Rehearsed(body)) => (
                PacketState::RehearsedRed,
                marks::staged(body.stage, &body.reason),
            ),
            Some(_) | None => (PacketState::Registered, none()),
        },
        Standing::Rehearsed => (PacketState::RehearsedGreen, none()),
        Standing::Reviewed => match of.rejection() {
            Some((reviewer, word)) => (PacketState::Rejected, format!("{reviewer}: {}", word.note)),
            None => (PacketState::Reviewed, none()),
        },
        Standing::Armed => match since {
            Some(Act::Released(body)) => (
                match is_spent(body.stage, &body.reason) {
                    true => PacketState::Spent,
                    false => PacketState::Released,
                },
                marks::staged(Some(body.stage), &body.reason),
            ),
            Some(_) | None => (PacketState::Armed, none()),
        },
        Standing::Withdrawn => {
            let reason = of.withdrawn.as_ref().map(|one| one.reason.clone());
            (PacketState::Withdrawn, reason.unwrap_or_default())
        }
        Standing::Nonce => (PacketState::Nonce, none()),
        Standing::Consumed => (PacketState::Consumed, none()),
        Standing::Closed => (PacketState::Closed, none()),
        Standing::SealedPass => (PacketState::SealedPass, none()),
        Standing::SealedFail => (PacketState::SealedFail, none()),
        Standing::SealedAbort => match since {
            Some(Act::Sealed(body)) => (
                PacketState::SealedAbort,
                marks::staged(body.stage, &body.reason),
            ),
            Some(_) | None => (PacketState::SealedAbort, none()),
        },
    }
}

fn records(ledger: &Ledger) -> Vec<Record> {
    let (state, entries) = (ledger.state(), ledger.entries());
    let mut records = Vec::new();
    for entry in entries {
        if let Act::Record(body) = &entry.act {
            records.push((entry, body));
        }
    }
    let made = records.iter().map(|(entry, body)| {
        let after = records
            .iter()
            .find(|(_, after)| after.supersedes == Some(entry.index));
        let analyses = state
            .packets()
            .get(&body.packet)
            .map(|packet| &packet.analyses);
        let cited = analyses.and_then(|all| all.iter().find(|one| one.seal == body.seal));
        let current = state.records().get(&body.key);
        let current = current.filter(|current| current.entry == entry.index);
        Record {
            key: body.key.clone(),
            claim: body.claim.clone(),
            widths: body.widths.clone(),
            packet: body.packet.to_string(),
            seal_number: cited.map_or(1, |analysis| analysis.number),
            entry: entry.index,
            at_ns: entry.at_ns,
            superseded_by: after.map(|(after, _)| after.index),
            disputed_by: current.and_then(|current| current.disputed),
            corrections: corrections(ledger, entry.index),
        }
    });
    made.collect()
}

/// What is to be read with an entry.
fn corrections(ledger: &Ledger, index: u64) -> Vec<String> {
    let mut texts = Vec::new();
    for index in ledger
        .state()
        .corrections()
        .get(&index)
        .into_iter()
        .flatten()
    {
        let act = entry(ledger.entries(), *index).map(|entry| &entry.act);
        if let Some(Act::Corrected(body)) = act {
            texts.push(body.text.clone());
        }
    }
    texts
}

fn notes(entries: &[Entry]) -> Vec<Note> {
    let mut notes = Vec::new();
    for entry in entries.iter().rev() {
        if let Act::Note(body) = &entry.act
            && notes.len() < NOTES_MAX
        {
            notes.push(Note {
                entry: entry.index,
                at_ns: entry.at_ns,
                lane: body.lane.as_ref().map(|lane| lane.as_str().to_owned()),
                text: body.text.clone(),
            });
        }
    }
    notes
}

/// A page shows what is new; the rest is in the ledger.
const NOTES_MAX: usize = 10;

fn doubts(ledger: &Ledger, documents: &Documents) -> Vec<Doubt> {
    let (state, entries) = (ledger.state(), ledger.entries());
    let mut doubts = Vec::new();
    let mut add = |what: &str, text: String, entry: Option<u64>| {
        let what = what.to_owned();
        doubts.push(Doubt { what, text, entry });
    };
    if ledger.torn_bytes() > 0 {
        let bytes = ledger.torn_bytes();
        let text = format!(
            "{bytes} bytes after the last entry are no line; the next writer takes them away"
        );
        add("torn append", text, None);
    }
    for index in state.clock_went_back() {
        let before = at_ns(entries, index.saturating_sub(1));
        let back_ns = before.saturating_sub(at_ns(entries, *index)).unsigned_abs();
        let text = format!(
            "entry {index} is dated {} before entry {}; their order is the ledger's",
            match back_ns / 1_000_000_000 {
                0 => "less than a second".to_owned(),
                seconds => age(seconds),
            },
            index.saturating_sub(1)
        );
        add("clock went back", text, Some(*index));
    }
    for index in state.corrections().keys() {
        let texts = corrections(ledger, *index).join("; ");
        add("corrected", format!("entry {index}: {texts}"), Some(*index));
    }
    for (key, record) in state.records() {
        if let Some(index) = record.disputed {
            let text = format!("{key}: the analysis of entry {index} of its packet does not pass");
            add("record disputed", text, Some(record.entry));
        }
    }
    for packet in state.packets().values() {
        let changed = packet
            .analyses
            .iter()
            .filter(|one| Some(one.verdict) != first(packet));
        for one in changed {
            let name = packet.experiment.as_str();
            let (number, verdict) = (one.number, one.verdict.as_str());
            let text = format!("{name}: analysis {number} says {verdict}; the first stays");
            add("verdict changed", text, Some(one.entry));
        }
    }
    missing(ledger, documents, &mut add);
    doubts
}

fn first(packet: &PacketOf) -> Option<Verdict> {
    packet.analyses.first().map(|one| one.verdict)
}

/// Documents and analyses that the ledger names and that are not here, or are others.
fn missing(
    ledger: &Ledger,
    documents: &Documents,
    add: &mut impl FnMut(&str, String, Option<u64>),
) {
    let state = ledger.state();
    for (name, lane) in state.lanes() {
        let found: Option<&Found<LaneText>> = documents.lanes.get(name.as_str());
        if let Some(why) = lacking(found) {
            let text = format!("the lane {}: {why}", name.as_str());
            add("document", text, Some(lane.opened));
        }
    }
    for packet in state.packets().values() {
        let found: Option<&Found<Plan>> = documents.plans.get(packet.experiment.as_str());
        if let Some(why) = lacking(found) {
            let text = format!(
                "the preregistration of {}: {why}",
                packet.experiment.as_str()
            );
            add("document", text, Some(packet.registered));
        }
    }
    for (digest, packet) in state.packets() {
        for one in &packet.analyses {
            let found: Option<&Found<Evidence>> = documents.analyses.get(&(*digest, one.number));
            if let Some(why) = lacking(found) {
                let name = packet.experiment.as_str();
                let text = format!("analysis {} of {name}: {why}", one.number);
                add("evidence", text, Some(one.entry));
            }
        }
    }
}

fn lacking<T>(found: Option<&Found<T>>) -> Option<String> {
    let absent = Found::Absent;
    found.unwrap_or(&absent).why_not().map(str::to_owned)
}
