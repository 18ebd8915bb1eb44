//! Marker and lines of the ledger that gave a run its right: `docs/format/evidence.md`, section 11.

use crate::documents::{Packet, Prereg};
use crate::ledger::{self, Entry, State};
use crate::report::Report;
use crate::run::{Marker, Run};
use crate::shape::{file, hex, sha256};
use crate::tree::Tree;

const PATH: &str = "authority.jsonl";

/// What the lines are held against.
pub(crate) struct Against<'a> {
    /// Digest of the packet.
    pub(crate) digest: &'a str,
    /// The packet.
    pub(crate) packet: Option<&'a Packet>,
    /// The preregistration.
    pub(crate) prereg: Option<&'a Prereg>,
    /// The run.
    pub(crate) run: &'a Run,
    /// The marker.
    pub(crate) marker: Option<&'a Marker>,
}

/// Judges the lines and the marker, and returns the lines that could be read.
pub(crate) fn judge(report: &mut Report, payload: &Tree, against: &Against<'_>) -> Vec<Entry> {
    let Some(bytes) = file(payload, PATH) else {
        report.find(
            "record.missing",
            PATH,
            "the lines of the ledger are not there",
        );
        return Vec::new();
    };
    let entries = match ledger::read_extract(bytes) {
        Ok(entries) => entries,
        Err((line, (code, words))) => {
            let path = format!("{PATH}:{line}");
            report.find(as_record(code), &path, words);
            return Vec::new();
        }
    };
    chain(report, &entries);
    let state = act(report, &entries, against);
    if !against.run.is_rehearsal {
        rehearsed(report, &entries, against);
        noise(report, &entries, against);
    }
    nonce(report, payload, &state, against);
    marker(report, &entries, &state, against);
    entries
}

/// Returns the code of a record for a line's.
fn as_record(code: &str) -> &'static str {
    match code {
        "ledger.unknown-field" => "record.unknown-field",
        "ledger.missing-field" => "record.missing-field",
        "ledger.not-canonical" | "ledger.too-long" => "record.not-canonical",
        _ => "record.type",
    }
}

fn chain(report: &mut Report, entries: &[Entry]) {
    let zeros = "0".repeat(64);
    let first = entries.first();
    let is_genesis =
        |entry: &Entry| entry.kind == "genesis" && entry.index == 0 && entry.previous == zeros;
    if !first.is_some_and(is_genesis) {
        report.find("authority.chain", PATH, "the first line is no genesis");
    }
    for (number, pair) in (2..).zip(entries.windows(2)) {
        let path = format!("{PATH}:{number}");
        if pair[1].index <= pair[0].index {
            let words = format!("index {} behind {}", pair[1].index, pair[0].index);
            report.find("authority.chain", &path, words);
        }
        if pair[1].index == pair[0].index + 1 && pair[1].previous != pair[0].digest {
            report.find(
                "authority.chain",
                &path,
                "`previous` is not the line before",
            );
        }
    }
}

/// Applies the lines, and judges that the act is there which must be.
fn act(report: &mut Report, entries: &[Entry], against: &Against<'_>) -> State {
    let mut state = State::default();
    let lane = against.packet.map(|packet| packet.lane.0.as_str());
    let mut refuse = |line: usize, words: String| {
        report.find("authority.state", &format!("{PATH}:{line}"), words);
    };
    for (number, entry) in (1..).zip(entries) {
        let body = &entry.body;
        let is_own = match entry.kind.as_str() {
            "genesis" => true,
            "lane" | "note" => Some(body.text("lane")) == lane,
            _ => body.text("packet") == against.digest,
        };
        // Lines that name this lane may register other packets of it.
        let is_other = entry.kind == "registered" && Some(body.text("lane")) == lane;
        if is_own && against.run.is_rehearsal && entry.kind == "consumed" {
            refuse(number, "nobody rehearses what was run".to_owned());
        }
        if !is_own && !is_other {
            refuse(number, format!("{} of another lane or packet", entry.kind));
        }
        if is_own && let Err((code, words)) = state.apply(entry) {
            refuse(number, format!("{code}: {words}"));
        }
    }
    let mut is_of_another_boot = false;
    let mut refuse = |words: String| report.find("authority.state", PATH, words);
    if let Some(packet) = against.packet {
        let (id, document) = &packet.lane;
        if state.documents.get(id) != Some(document) {
            refuse(format!(
                "lane {id:?} was not opened with the packet's document"
            ));
        }
        let is_registered = state.packets.get(against.digest).is_some_and(|own| {
            own.experiment == packet.experiment && own.lane == *id && own.prereg == packet.prereg
        });
        if !is_registered {
            refuse("the packet is not registered as it is".to_owned());
        }
    }
    if !against.run.is_rehearsal {
        let is_last = entries.last().is_some_and(|entry| {
            entry.kind == "consumed" && entry.body.text("packet") == against.digest
        });
        if !is_last {
            refuse("the last line does not consume the packet".to_owned());
        }
        let is_aborted = against.run.status == "aborted";
        let booted = entries.last().filter(|_| is_last && !is_aborted);
        if booted.is_some_and(|entry| entry.boot != against.run.boot) {
            is_of_another_boot = true;
        }
        let approvals = state
            .packets
            .get(against.digest)
            .map_or(0, |own| own.approvals);
        let needed = against.prereg.map_or(0, |prereg| prereg.reviewers);
        if (approvals as u64) < needed {
            refuse(format!(
                "approvals that are needed: {needed}; that it was armed by: {approvals}"
            ));
        }
    }
    if is_of_another_boot {
        let words = "another boot than that in which the packet was consumed";
        report.find("run.clock", "run.json", words);
    }
    state
}

/// Finds arming or a nonce that does not stand on a fresh rehearsal: the newest before it, green,
/// of the packet's analyzer, in the same boot, and not too old.
fn rehearsed(report: &mut Report, entries: &[Entry], against: &Against<'_>) {
    let its = |kind: &'static str| {
        let all = (1..).zip(entries);
        all.filter(move |(_, entry)| {
            entry.kind == kind && entry.body.text("packet") == against.digest
        })
    };
    for kind in ["armed", "nonce"] {
        let Some((_, act)) = its(kind).last() else {
            continue;
        };
        let before = its("rehearsed").filter(|(_, entry)| entry.index < act.index);
        let Some((line, entry)): Option<(u64, &Entry)> = before.last() else {
            let words = format!("{kind} without a rehearsal before it");
            report.find("authority.state", PATH, words);
            continue;
        };
        let analyzer = against.packet.map(|packet| packet.analyzer.as_str());
        let age_ns = i128::from(act.at_ns) - i128::from(entry.at_ns);
        let is_old = against.prereg.is_some_and(|prereg| {
            age_ns > (i128::from(prereg.rehearsal_max_age_s) + ENTERING_S) * 1_000_000_000
        });
        let is_fresh = entry.body.flag("green")
            && analyzer.is_none_or(|analyzer| analyzer == entry.body.text("analyzer"))
            && entry.boot == act.boot
            && age_ns >= 0
            && !is_old;
        if !is_fresh {
            let words = format!("is no fresh rehearsal for `{kind}`, {age_ns} ns later");
            report.find("authority.state", &format!("{PATH}:{line}"), words);
        }
    }
}

/// Finds each rehearsal that told a saving from none only above what the timing gate of a run asks
/// for: a packet that is rehearsed until it looks quiet is no better for it.
fn noise(report: &mut Report, entries: &[Entry], against: &Against<'_>) {
    let Some(timing) = against.prereg.and_then(|prereg| prereg.timing.as_ref()) else {
        return;
    };
    let asked = timing.minimum_saving_ns;
    for (line, entry) in (1..).zip(entries) {
        let is_own = entry.kind == "rehearsed" && entry.body.text("packet") == against.digest;
        let least = entry
            .body
            .count("detectable_ns")
            .filter(|least| is_own && *least > asked);
        if let Some(least) = least {
            let words = format!("told savings from {least} ns on, the gate asks for {asked} ns");
            let line: u64 = line;
            report.find("authority.state", &format!("{PATH}:{line}"), words);
        }
    }
}

/// Seconds that an act may be entered after it was looked whether its rehearsal is fresh.
const ENTERING_S: i128 = 600;

fn nonce(report: &mut Report, payload: &Tree, state: &State, against: &Against<'_>) {
    if against.run.is_rehearsal {
        return;
    }
    let own = state.packets.get(against.digest);
    let nonce = own.and_then(|packet| packet.nonce.as_deref());
    if nonce != Some(hex(&against.run.nonce).as_str()) {
        let words = format!("the nonce of the run is not the consumed one {nonce:?}");
        report.find("authority.nonce", PATH, words);
    }
    // Of a run whose marker nobody could read `consumed` cites no bytes.
    let bytes = file(payload, "marker.json").map_or(&[][..], |bytes| bytes);
    if Some(sha256(bytes)) != own.and_then(|packet| packet.marker.clone()) {
        report.find("authority.nonce", PATH, "`consumed` cites another marker");
    }
}

fn marker(report: &mut Report, entries: &[Entry], state: &State, against: &Against<'_>) {
    let Some(marker) = against.marker else {
        return;
    };
    let mut differ = |code: &'static str, words: &str| report.find(code, "marker.json", words);
    if marker.packet != against.digest {
        differ("marker.packet", "of another packet");
    }
    if marker.nonce != hex(&against.run.nonce) {
        differ("marker.nonce", "has another nonce than the run");
    }
    if state.lab.as_ref() != Some(&marker.lab) {
        differ("marker.ledger", "of another lab");
    }
    let given = entries
        .iter()
        .rev()
        .find(|entry| entry.kind == "nonce" && entry.body.text("packet") == against.digest);
    if given.map(|entry| &entry.digest) != Some(&marker.ledger) {
        differ(
            "marker.ledger",
            "the ledger's head is not the entry that gave the nonce",
        );
    }
}
