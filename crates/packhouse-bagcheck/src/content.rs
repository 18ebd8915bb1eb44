//! What a bag's payload says, and whether it holds: `docs/format/evidence.md`, part 1 and section
//! 8.
//!
//! * Nothing that a record says of itself decides: everything is compared with raw files.
//! * Every failure is a finding of the report that is given back; which gate it is of follows from
//!   its code.

use crate::authority;
use crate::documents::{self, Packet, Prereg};
use crate::exchange::{self, Exchange};
use crate::fixture::{self, Fixture};
use crate::json::Json;
use crate::ledger::Entry;
use crate::legs::{self, Leg};
use crate::plan::{self, Fixtures};
use crate::report::Report;
use crate::run::{self, Run};
use crate::shape::{file, is_digest, sha256};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that was read of a payload.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// What does not hold.
    pub(crate) report: Report,
    /// Digest of `packet.json`.
    pub(crate) digest: String,
    /// The preregistration.
    pub(crate) prereg: Option<Prereg>,
    /// The packet.
    pub(crate) packet: Option<Packet>,
    /// The run.
    pub(crate) run: Option<Run>,
    /// What inputs were drawn from.
    pub(crate) source: Source,
    /// Whether the payload has a drawn fixture.
    pub(crate) has_drawn: bool,
    /// Lines of the ledger.
    pub(crate) authority: Vec<Entry>,
    /// Fixtures of which anything was drawn.
    pub(crate) drawing: BTreeSet<String>,
    /// Legs of the plan, with what was asked.
    pub(crate) legs: Vec<Leg>,
}

/// What inputs of a run were drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nobody can say: the run or its marker can't be read.
    #[default]
    Unknown,
    /// The nonce of a rehearsal, or of a run with a marker of the first schema.
    Nonce([u8; 32]),
    /// The marker's salt.
    Salt([u8; 32]),
}

impl Content {
    /// Returns whether the run was aborted, which an unreadable one counts as.
    pub(crate) fn is_aborted(&self) -> bool {
        self.run.as_ref().is_none_or(|run| run.status == "aborted")
    }

    /// Returns whether it was a rehearsal.
    pub(crate) fn is_rehearsal(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_rehearsal)
    }
}

/// Reads and judges a payload; `named` is the packet that `bag-info.txt` names.
pub(crate) fn read(payload: &Tree, named: Option<&str>) -> Content {
    let mut content = Content::default();
    content.records(payload, named);
    let fixtures = content.fixtures(payload);
    content.exchanges(payload, fixtures);
    let is_aborted = content.is_aborted();
    outputs(&mut content.report, payload, &content.legs, is_aborted);
    unexpected(&mut content.report, payload);
    content
}

impl Content {
    fn records(&mut self, payload: &Tree, named: Option<&str>) {
        let report = &mut self.report;
        let document = |name: &str| file(payload, name).map(|bytes| bytes.to_vec());
        let lane = document("lane.toml");
        let prereg = document("prereg.toml");
        for (name, bytes) in [("lane.toml", &lane), ("prereg.toml", &prereg)] {
            if bytes.is_none() {
                report.find("record.missing", name, "the document is not there");
            }
        }
        let lane_id = lane
            .as_deref()
            .and_then(|bytes| documents::lane(report, "lane.toml", bytes));
        self.prereg = prereg
            .as_deref()
            .and_then(|bytes| documents::prereg(report, "prereg.toml", bytes));
        self.packet = documents::packet(report, payload, "packet.json", self.prereg.as_ref());
        self.digest = file(payload, "packet.json").map_or_else(String::new, |bytes| sha256(bytes));
        self.run = run::run(report, payload);
        if let Some(packet) = &self.packet {
            let is_other = |bytes: &Option<Vec<u8>>, frozen: &String| {
                bytes
                    .as_deref()
                    .is_some_and(|bytes| sha256(bytes) != *frozen)
            };
            if is_other(&prereg, &packet.prereg) {
                let words = "the packet froze another preregistration";
                report.find("packet.prereg", "prereg.toml", words);
            }
            if is_other(&lane, &packet.lane.1) {
                report.find("packet.lane", "lane.toml", "the packet froze another lane");
            }
            let is_lane = |id: &String| *id == packet.lane.0;
            if !lane_id.as_ref().is_none_or(is_lane)
                || !self
                    .prereg
                    .as_ref()
                    .is_none_or(|prereg| is_lane(&prereg.lane))
            {
                let words = "the preregistration is of another lane";
                report.find("packet.lane", "packet.json", words);
            }
        }
        if named.is_some_and(|named| named != self.digest) {
            report.find("packet.digest", "bag-info.txt", "names another packet");
        }
        if let Some(run) = self.run.clone() {
            self.right(payload, &run);
        }
    }

    /// Judges what gave the run its right: packet, marker, lines of the ledger.
    fn right(&mut self, payload: &Tree, run: &Run) {
        let report = &mut self.report;
        if run.packet != self.digest {
            report.find("packet.digest", "run.json", "names another packet");
        }
        let has_marker = payload.contains_key("marker.json");
        let marker = match (run.is_rehearsal, has_marker) {
            (true, true) => {
                report.find("marker.unexpected", "marker.json", "in a rehearsal");
                None
            }
            (true, false) => None,
            (false, false) => {
                report.find("marker.missing", "marker.json", "a run without a marker");
                None
            }
            (false, true) => run::marker(report, payload),
        };
        let against = authority::Against {
            digest: &self.digest,
            packet: self.packet.as_ref(),
            prereg: self.prereg.as_ref(),
            run,
            marker: marker.as_ref(),
        };
        self.authority = authority::judge(report, payload, &against);
        let salt = marker.as_ref().map(|marker| marker.salt);
        self.source = match (run.is_rehearsal, salt) {
            (true, _) | (false, Some(None)) => Source::Nonce(run.nonce),
            (false, Some(Some(salt))) => Source::Salt(salt),
            (false, None) => Source::Unknown,
        };
    }

    /// Reads published and drawn fixtures.
    fn fixtures(&mut self, payload: &Tree) -> Fixtures {
        let mut fixtures = Fixtures::default();
        let report = &mut self.report;
        for id in folders(payload, "fixtures") {
            let folder = format!("fixtures/{id}");
            let read = fixture::read(report, payload, &folder);
            let tags = file(payload, &format!("{folder}/tagmanifest-sha256.txt"));
            let digest = tags.map(|bytes| sha256(bytes));
            let frozen = self.packet.as_ref().map(|packet| packet.fixtures.get(&id));
            if frozen.is_some_and(|frozen| frozen != digest.as_ref()) {
                let words = "another fixture than the packet froze";
                report.find("packet.fixture", &folder, words);
            }
            if let Some(fixture) = read {
                if fixture.id != id {
                    report.find("packet.fixture", &folder, format!("is {:?}", fixture.id));
                }
                fixtures.published.insert(id, fixture);
            }
        }
        for name in folders(payload, "drawn") {
            self.has_drawn = true;
            let folder = format!("drawn/{name}");
            let parts = name.rsplit_once('-').and_then(|(id, repeat)| {
                let number: u64 = repeat.parse().ok()?;
                (number > 0 && number.to_string() == repeat).then(|| (id.to_owned(), number))
            });
            let Some((id, repeat)) = parts else {
                report.find("record.unexpected", &folder, "no drawn fixture's name");
                continue;
            };
            fixtures.drawing.insert(id.clone());
            if let Some(drawn) = fixture::read(report, payload, &folder) {
                if let Some(published) = fixtures.published.get(&id) {
                    drawn_like(report, &folder, published, &drawn);
                }
                drawn_from(report, &folder, self.source, (&id, repeat), &drawn);
                fixtures.drawn.insert((id, repeat), drawn);
            }
        }
        fixtures
    }

    fn exchanges(&mut self, payload: &Tree, mut fixtures: Fixtures) {
        let is_aborted = self.is_aborted();
        let mut exchanges: BTreeMap<u64, Exchange> = BTreeMap::new();
        let mut has_lines = BTreeSet::new();
        for name in folders(payload, "legs") {
            let number: Option<u64> = name.parse().ok();
            let number = number.filter(|number| format!("{number:02}") == name);
            let Some(number) = number else {
                let folder = format!("legs/{name}");
                self.report
                    .find("record.unexpected", &folder, "no leg's number");
                continue;
            };
            let path = format!("legs/{name}/exchange.jsonl");
            let exchange = match file(payload, &path) {
                Some(bytes) => {
                    has_lines.insert(number);
                    exchange::read(&mut self.report, &path, bytes, is_aborted)
                }
                None => Exchange::default(),
            };
            exchanges.insert(number, exchange);
        }
        // A fixture of which some case was not asked as published is one that is drawn.
        let sessions = exchanges
            .values()
            .flat_map(|exchange| exchange.sessions.values());
        for asked in sessions.flat_map(|session| &session.asked) {
            let key = &asked.case.key;
            let published = fixtures.published.get(&key.fixture);
            let case = published.and_then(|fixture| fixture.case(key.width, &key.arm));
            if key.repeat > 0 && case.is_some_and(|case| !is_asked_so(published, case, asked)) {
                fixtures.drawing.insert(key.fixture.clone());
            }
        }
        let Some(prereg) = self.prereg.clone() else {
            return;
        };
        let legs = plan::legs(&prereg, &fixtures);
        needed(&mut self.report, payload, &prereg, &legs);
        self.legs = legs
            .into_iter()
            .map(|plan| {
                let exchange = exchanges.remove(&plan.number).unwrap_or_default();
                Leg {
                    has_lines: has_lines.contains(&plan.number),
                    plan,
                    exchange,
                    answers: Vec::new(),
                }
            })
            .collect();
        for number in exchanges.keys() {
            let folder = format!("legs/{number:02}");
            self.report
                .find("run.legs", &folder, "a leg that nobody planned");
        }
        legs::judge(self, payload, &fixtures, &prereg);
        self.drawing = fixtures.drawing;
    }
}

/// Returns whether a case was asked with the inputs of a fixture's case.
fn is_asked_so(fixture: Option<&Fixture>, case: &fixture::Case, asked: &exchange::Asked) -> bool {
    let inputs = &asked.case.inputs;
    let is_so = |(role, name): (&String, &String)| {
        let tensor = fixture.and_then(|fixture| fixture.tensor(name));
        let input = inputs.get(role);
        tensor.map(|tensor| &tensor.sha256) == input.map(|input| &input.sha256)
    };
    inputs.len() == case.inputs.len() && case.inputs.iter().all(is_so)
}

/// Holds what a drawn fixture can't choose against the published one.
fn drawn_like(report: &mut Report, folder: &str, published: &Fixture, drawn: &Fixture) {
    if drawn.layout != published.layout || drawn.boundaries != published.boundaries {
        let words = "another layout, or other boundaries, than the published fixture";
        report.find("fixture.drawn", folder, words);
    }
}

/// Holds the seed of a drawn fixture against what it must have been drawn from.
fn drawn_from(
    report: &mut Report,
    folder: &str,
    source: Source,
    (id, repeat): (&str, u64),
    drawn: &Fixture,
) {
    let source = match source {
        Source::Unknown => return,
        Source::Nonce(bytes) | Source::Salt(bytes) => bytes,
    };
    let seed = Json::Integer(i128::from(plan::seed(&source, id, repeat)));
    if drawn.seed.as_ref() != Some(&seed) {
        let words = "its seed is not the one that follows from the marker";
        report.find("fixture.drawn", folder, words);
    }
}

/// Finds fixtures that a planned case needs and that are not there, and those that none needs. That
/// a drawn one is missing is found where its case is judged.
fn needed(report: &mut Report, payload: &Tree, prereg: &Prereg, legs: &[plan::Leg]) {
    let rejected = prereg.rejections.iter().map(|case| &case.fixture);
    let asked: BTreeSet<&String> = prereg.fixtures.iter().chain(rejected).collect();
    let there = folders(payload, "fixtures");
    for id in &asked {
        if !there.contains(*id) {
            let path = format!("fixtures/{id}");
            report.find("fixture.missing", &path, "a planned case needs it");
        }
    }
    for id in there.iter().filter(|id| !asked.contains(id)) {
        report.find(
            "fixture.unused",
            &format!("fixtures/{id}"),
            "no case needs it",
        );
    }
    let planned: BTreeSet<(&String, u64)> = legs
        .iter()
        .flat_map(|leg| leg.cases.iter())
        .map(|(_, planned)| (&planned.key.fixture, planned.key.repeat))
        .filter(|(_, repeat)| *repeat > 0)
        .collect();
    let names = planned.iter().map(|(id, repeat)| format!("{id}-{repeat}"));
    let names: BTreeSet<String> = names.collect();
    for name in folders(payload, "drawn").difference(&names) {
        report.find(
            "fixture.unused",
            &format!("drawn/{name}"),
            "no case needs it",
        );
    }
}

/// Returns the names of folders directly in a folder of the payload.
pub(crate) fn folders(payload: &Tree, folder: &str) -> BTreeSet<String> {
    let prefix = format!("{folder}/");
    let below = payload.keys().filter_map(|path| path.strip_prefix(&prefix));
    below
        .filter_map(|path| path.split_once('/'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Holds the stored outputs against what was seen. A killed run loses those of its control.
fn outputs(report: &mut Report, payload: &Tree, legs: &[Leg], is_aborted: bool) {
    let mut named: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for leg in legs {
        for session in leg.exchange.sessions.values() {
            let seen = session.asked.iter().filter_map(|asked| asked.seen.as_ref());
            for found in seen.flat_map(|(_, seen)| seen.outputs.values()) {
                if let Ok((bytes, sha256)) = found
                    && *bytes > 0
                {
                    named.entry(sha256).or_default().insert(*bytes);
                }
            }
        }
    }
    for (digest, lengths) in &named {
        let path = format!("outputs/{digest}");
        match file(payload, &path) {
            None if is_aborted => {}
            None => report.find("output.missing", &path, "was seen and is not there"),
            Some(bytes) if lengths.iter().any(|length| *length != bytes.len() as u64) => {
                report.find("output.digest", &path, "has another length than was seen");
            }
            Some(_) => {}
        }
    }
    for path in payload.keys() {
        let Some(name) = path.strip_prefix("outputs/") else {
            continue;
        };
        if !is_digest(name) {
            report.find("record.unexpected", path, "no digest");
        } else if file(payload, path).is_some_and(|bytes| sha256(bytes) != name) {
            report.find("output.digest", path, "its digest is not its name");
        } else if !named.contains_key(name) {
            report.find("output.unused", path, "no line names it");
        }
    }
}

/// Finds files that section 1 does not have.
fn unexpected(report: &mut Report, payload: &Tree) {
    let top = [
        "lane.toml",
        "prereg.toml",
        "packet.json",
        "marker.json",
        "authority.jsonl",
        "run.json",
    ];
    let of_leg = [
        "leg.json",
        "exchange.jsonl",
        "control.stderr",
        "candidate.stderr",
    ];
    for path in payload.keys() {
        let parts: Vec<&str> = path.split('/').collect();
        let is_expected = match parts.as_slice() {
            [name] => top.contains(name),
            ["legs", _, name] => of_leg.contains(name),
            ["fixtures" | "drawn", _, _, ..] | ["outputs", _] => true,
            _ => false,
        };
        if !is_expected {
            report.find("record.unexpected", path, "no file of a payload");
        }
    }
}
