//! Every field of the records of a bag: removed, of another type, changed, and one too many.

use super::Tamper;
use super::edit::{
    Change, Place, at, bytes, changed, in_words, places, split, value, with, with_field, without,
};
use crate::analysis::{Analysis, Kind};
use crate::verify::Evidence;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// A kind of record, and what is found when it is tampered with.
pub(super) struct Form {
    /// What it is called.
    pub(super) name: String,
    /// Codes of a field that is missing.
    pub(super) missing: &'static [&'static str],
    /// Codes of a field that is unknown.
    pub(super) unknown: &'static [&'static str],
    /// Codes of a field of another type.
    pub(super) other_type: &'static [&'static str],
    /// Places that may be absent, and objects that may have any field.
    pub(super) free: &'static [&'static str],
    /// Place to the codes of another value there; none where nothing but the bag's digest tells.
    pub(super) changed: fn(&str) -> &'static [&'static str],
}

/// How a changed record is put in its place.
pub(super) type Placed<'a> = &'a dyn Fn(Vec<u8>) -> Change;

impl Form {
    /// A record of the lab's own.
    pub(super) fn record(
        name: impl Into<String>,
        changed: fn(&str) -> &'static [&'static str],
    ) -> Self {
        Self {
            name: name.into(),
            missing: &["record.missing-field"],
            unknown: &["record.unknown-field"],
            other_type: &["record.type"],
            free: &[],
            changed,
        }
    }

    /// Every tampering with one record. Of an object that may have any field, the first one is
    /// tampered with.
    pub(super) fn tampers(&self, record: &Value, closes: bool, placed: Placed<'_>) -> Vec<Tamper> {
        let mut tampers = Vec::new();
        let mut push = |what: String, expected: &[&'static str], value: Value| {
            let changes = vec![placed(bytes(&value))];
            let name = format!("{}: {what}", self.name);
            tampers.push(match closes {
                true => Tamper::within(name, expected, changes),
                false => Tamper::beside(name, expected, changes),
            });
        };
        let mut objects: Vec<Place> = vec![Vec::new()];
        for place in places(record, self.free) {
            let words = in_words(&place);
            let Some(inner) = at(record, &place) else {
                continue;
            };
            if let Value::Object(_) = inner {
                objects.push(place.clone());
            }
            if let Some(Value::Object(_)) = inner.get(0) {
                let mut first = place.clone();
                first.push(super::edit::Step::Index(0));
                objects.push(first);
            }
            if !self.is_free(&words) && !self.is_in_free(&words) {
                push(
                    format!("{words} removed"),
                    self.missing,
                    without(record, &place),
                );
            }
            let other = match inner {
                Value::Object(_) => json!("tampered"),
                // It may be an object, where it is not null.
                Value::Null => json!(["tampered"]),
                _ => json!({ "tampered": 1 }),
            };
            push(
                format!("{words} of another type"),
                self.other_type,
                with(record, &place, other),
            );
            let is_leaf = !matches!(inner, Value::Object(_)) && inner.get(0).is_none();
            if is_leaf {
                let expected = match (self.changed)(&words) {
                    [] => &["analysis.bag"],
                    codes => codes,
                };
                push(
                    format!("{words} changed"),
                    expected,
                    with(record, &place, changed(inner)),
                );
            }
        }
        for place in objects {
            let words = in_words(&place);
            if !self.is_free(&words) {
                let what = format!("{words}: an unknown field");
                let what = what.trim_start_matches(": ").to_owned();
                let other = with_field(record, &place, "tampered", json!(1));
                push(what, self.unknown, other);
            }
        }
        tampers
    }

    fn is_free(&self, words: &str) -> bool {
        self.free.contains(&words)
    }

    /// Whether a place is a field of an object that may have any. Such names have dots.
    fn is_in_free(&self, words: &str) -> bool {
        let is_it = |free: &&str| {
            let rest = words
                .strip_prefix(*free)
                .and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|rest| self.is_direct(free, rest))
        };
        self.free.iter().any(is_it)
    }

    /// Whether what follows an object's place is one name: files of `seen` have dots in theirs.
    fn is_direct(&self, free: &str, rest: &str) -> bool {
        let is_file = free.starts_with("seen.");
        if is_file {
            rest.ends_with(".bin")
        } else {
            !rest.contains('.')
        }
    }
}

/// Everything but exchanges.
pub(super) fn tampers(evidence: &Evidence) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let is_run = is_run(evidence);
    let mut records: Vec<(String, Form)> = vec![
        ("bag/data/run.json".to_owned(), run(is_run)),
        ("bag/data/packet.json".to_owned(), packet()),
    ];
    if is_run {
        records.push(("bag/data/marker.json".to_owned(), marker()));
    }
    let legs = evidence
        .files
        .paths()
        .filter(|path| path.ends_with("/leg.json"));
    let mut kinds = Vec::new();
    for path in legs {
        let record = evidence.files.get(path).and_then(value);
        let kind = record.and_then(|record| record["kind"].as_str().map(str::to_owned));
        if !kinds.contains(&kind) {
            records.push((path.to_owned(), leg(kind.as_deref().unwrap_or("unknown"))));
            kinds.push(kind);
        }
    }
    for (path, form) in records {
        let Some(record) = evidence.files.get(&path).and_then(value) else {
            continue;
        };
        tampers.extend(form.tampers(&record, true, &|bytes| Change::put(&path, bytes)));
    }
    tampers.extend(lists(evidence));
    tampers.extend(authority(evidence, is_run));
    tampers.extend(documents(evidence));
    tampers
}

/// Whether the evidence is of the one run.
pub(super) fn is_run(evidence: &Evidence) -> bool {
    let run = evidence.files.get("bag/data/run.json").and_then(value);
    run.is_none_or(|run| run["kind"] != Kind::Rehearsal.id())
}

/// Whether a gate of the newest analysis passed, so that its failures would be new.
pub(super) fn has_passed(evidence: &Evidence, gate: &str) -> bool {
    let path = newest_analysis(evidence);
    let bytes = evidence.files.get(&path).unwrap_or_default();
    let analysis = Analysis::parse(bytes).ok();
    let gate = analysis.as_ref().and_then(|analysis| analysis.gate(gate));
    gate.is_some_and(|gate| gate.passed == Some(true))
}

/// The failures that the newest analysis tells.
pub(super) fn failures(evidence: &Evidence) -> Vec<String> {
    let path = newest_analysis(evidence);
    let bytes = evidence.files.get(&path).unwrap_or_default();
    let gates = Analysis::parse(bytes).map_or_else(|_| Vec::new(), |analysis| analysis.gates);
    gates.into_iter().flat_map(|gate| gate.failures).collect()
}

/// The path of the newest analysis.
pub(super) fn newest_analysis(evidence: &Evidence) -> String {
    let numbers = evidence.files.paths().filter_map(|path| {
        let digits = path
            .strip_prefix("analysis-")?
            .strip_suffix("/analysis.json")?;
        digits.parse::<u64>().ok()
    });
    format!("analysis-{}/analysis.json", numbers.max().unwrap_or(1))
}

fn run(is_run: bool) -> Form {
    let of_run = |place: &str| -> &'static [&'static str] {
        match place {
            "schema" => &["record.type"],
            "kind" => &["marker.unexpected"],
            "nonce" => &["authority.nonce"],
            place => of_any(place),
        }
    };
    let of_rehearsal = |place: &str| -> &'static [&'static str] {
        match place {
            "schema" => &["record.type"],
            "kind" => &["marker.missing"],
            "nonce" => &["case.challenge"],
            place => of_any(place),
        }
    };
    fn of_any(place: &str) -> &'static [&'static str] {
        match place {
            "packet" => &["packet.digest"],
            "stage" => &["record.type"],
            "status" => &["record.type", "run.status"],
            "reason" => &["run.status"],
            "started.wall_ns" | "started.steady_ns" | "ended.wall_ns" | "ended.steady_ns"
            | "clock.forward_ns" | "clock.back_ns" => &["run.clock"],
            "legs[].number" | "legs[].leg" | "legs[].device" => &["run.legs"],
            // One that was cut short may be without its record, and only that.
            "legs[].status" => &["run.legs", "record.missing"],
            _ => &[],
        }
    }
    Form::record("run.json", if is_run { of_run } else { of_rehearsal })
}

fn packet() -> Form {
    Form {
        free: &[
            "programs.candidate.environment",
            "programs.control.environment",
            "programs.null.environment",
        ],
        missing: &["record.missing-field"],
        // Whatever is another text of a packet is another packet.
        ..Form::record("packet.json", |place| match place {
            "schema" | "kind" => &["record.type"],
            "prereg" => &["packet.prereg"],
            "experiment" => &["packet.prereg"],
            "lane.sha256" | "lane.id" => &["packet.lane"],
            "fixtures[].sha256" | "fixtures[].id" => &["packet.fixture"],
            "commits[].commit" => &["record.type"],
            _ => &["packet.digest"],
        })
    }
}

fn marker() -> Form {
    Form::record("marker.json", |place| match place {
        "schema" => &["record.type"],
        "packet" => &["marker.packet"],
        "nonce" => &["marker.nonce"],
        "ledger" | "lab" => &["marker.ledger"],
        _ => &["authority.nonce"],
    })
}

fn leg(kind: &str) -> Form {
    Form::record(format!("leg.json ({kind})"), |place| match place {
        "schema" => &["record.type"],
        "number" | "kind" => &["leg.number"],
        "leg" | "device" | "status" => &["run.legs"],
        "programs[].treatment" => &["leg.program"],
        "programs[].objects[].sha256" => &["identity"],
        "programs[].exit" | "programs[].stderr_bytes" => &["leg.end"],
        _ => &[],
    })
}

/// Entries of lists that are removed, doubled or invented, and times that go back.
fn lists(evidence: &Evidence) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let path = "bag/data/run.json";
    if let Some(run) = evidence.files.get(path).and_then(value) {
        let legs = run["legs"].as_array().cloned().unwrap_or_default();
        let mut fewer = legs.clone();
        fewer.pop();
        let mut more = legs.clone();
        more.extend(legs.last().cloned());
        for (what, legs) in [("a leg removed", fewer), ("a leg doubled", more)] {
            let mut run = run.clone();
            run["legs"] = Value::Array(legs);
            let changes = vec![Change::put(path, bytes(&run))];
            tampers.push(Tamper::within(
                format!("run.json: {what}"),
                &["run.legs"],
                changes,
            ));
        }
        let mut stopped = run.clone();
        stopped["status"] = json!("stopped");
        let changes = vec![Change::put(path, bytes(&stopped))];
        let name = "run.json: status stopped without a stage".to_owned();
        tampers.push(Tamper::within(name, &["run.status"], changes));
        let mut late = run.clone();
        late["ended"]["steady_ns"] = json!(0);
        let changes = vec![Change::put(path, bytes(&late))];
        let name = "run.json: ended before it started".to_owned();
        tampers.push(Tamper::within(name, &["run.clock"], changes));
    }
    tampers.extend(leg_lists(evidence));
    tampers
}

/// What is done to a record.
type Edit = fn(&mut Value);

/// The same of a leg.
fn leg_lists(evidence: &Evidence) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let path = evidence
        .files
        .paths()
        .find(|path| path.ends_with("/leg.json"));
    if let Some((path, leg)) = path.and_then(|path| Some((path, evidence.files.get(path)?))) {
        let Some(leg) = value(leg) else {
            return tampers;
        };
        let edits: [(&str, &'static str, Edit); 5] = [
            ("no program", "leg.program", |leg| {
                leg["programs"] = json!([])
            }),
            ("no mapped object", "identity", |leg| {
                leg["programs"][0]["objects"] = json!([]);
            }),
            ("an object that is not frozen", "identity", |leg| {
                let sha256 = packhouse_base::digest::Digest::of(b"tampered").to_string();
                let stranger = json!({ "name": "zzz", "sha256": sha256 });
                if let Some(objects) = leg["programs"][0]["objects"].as_array_mut() {
                    objects.push(stranger);
                }
            }),
            ("it ends after its run", "run.clock", |leg| {
                leg["ended"]["steady_ns"] = json!(u64::MAX);
            }),
            ("it starts after it ends", "run.clock", |leg| {
                leg["started"]["steady_ns"] = json!(u64::MAX);
            }),
        ];
        for (what, code, edit) in edits {
            let mut leg = leg.clone();
            edit(&mut leg);
            let changes = vec![Change::put(path, bytes(&leg))];
            tampers.push(Tamper::within(
                format!("leg.json: {what}"),
                &[code],
                changes,
            ));
        }
    }
    tampers
}

/// Lines of the authority: each field of each kind, and lines removed, swapped and invented.
fn authority(evidence: &Evidence, is_run: bool) -> Vec<Tamper> {
    let path = "bag/data/authority.jsonl";
    let lines = split(evidence.files.get(path).unwrap_or_default());
    let mut tampers = Vec::new();
    let mut kinds = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(entry) = value(line) else {
            continue;
        };
        let kind = entry["kind"].as_str().unwrap_or_default().to_owned();
        if kinds.contains(&kind) {
            continue;
        }
        let form = Form {
            missing: &["record.missing-field", "record.type"],
            other_type: &["record.type", "record.missing-field"],
            free: &[
                "body.detectable_ns",
                "body.markers",
                "body.document",
                "body.bag",
                "body.analysis",
            ],
            ..Form::record(format!("authority.jsonl ({kind})"), of_authority)
        };
        let mut all = form.tampers(&entry, true, &|bytes| Change::line(path, number, bytes));
        // What stands behind it shows another line by its link, else the ledger does.
        let is_linked = lines.get(number + 1).and_then(|next| value(next));
        let is_linked = is_linked.is_some_and(|next| next["previous"] == digest_of(line));
        if !is_linked && evidence.ledger.is_none() {
            let changed = all
                .iter_mut()
                .filter(|tamper| tamper.name.ends_with(" changed"));
            changed.for_each(|tamper| tamper.expected.push("analysis.bag"));
        }
        // What all kinds have in common, of the first one only.
        all.retain(|tamper| kinds.is_empty() || tamper.name.contains(": body"));
        tampers.extend(all);
        kinds.push(kind);
    }
    tampers.extend(authority_lines(path, &lines, is_run));
    tampers
}

/// What the next line of a ledger says of one.
fn digest_of(line: &[u8]) -> Value {
    json!(Digest::of(line.strip_suffix(b"\n").unwrap_or(line)).to_string())
}

/// Lines of the authority that are removed, swapped and doubled.
fn authority_lines(path: &str, lines: &[Vec<u8>], is_run: bool) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let mut push = |what: &str, codes: &[&'static str], changes: Vec<Change>| {
        tampers.push(Tamper::within(
            format!("authority.jsonl: {what}"),
            codes,
            changes,
        ));
    };
    let mut required = vec![
        ("genesis", "authority.chain"),
        ("lane", "authority.state"),
        ("registered", "authority.state"),
    ];
    if is_run {
        let more = [
            ("reviewed", "authority.state"),
            ("armed", "authority.state"),
            ("nonce", "authority.nonce"),
            ("consumed", "authority.state"),
        ];
        required.extend(more);
    }
    for (kind, code) in required {
        if let Some(number) = of_kind(lines, kind) {
            let changes = vec![Change::lines(path, number, 1, Vec::new())];
            push(&format!("{kind} removed"), &[code], changes);
        }
    }
    if let [first, second, ..] = lines {
        let swapped = vec![second.clone(), first.clone()];
        push(
            "lines swapped",
            &["authority.chain"],
            vec![Change::lines(path, 0, 2, swapped)],
        );
        let doubled = vec![second.clone(), second.clone()];
        push(
            "a line doubled",
            &["authority.chain"],
            vec![Change::lines(path, 1, 1, doubled)],
        );
    }
    tampers
}

/// The first line of a kind.
fn of_kind(lines: &[Vec<u8>], kind: &str) -> Option<usize> {
    let is_it = |line: &Vec<u8>| value(line).is_some_and(|entry| entry["kind"] == kind);
    lines.iter().position(is_it)
}

/// What another value in a line of the authority is found by. What is there for people only is
/// found by the next line's link, where there is one.
fn of_authority(place: &str) -> &'static [&'static str] {
    match place {
        "at_ns" | "boot" | "body.reason" | "body.treatment" | "body.note" | "body.lab" => {
            &["authority.chain", "ledger.authority", "analysis.bag"]
        }
        _ => &[
            "authority.chain",
            "authority.state",
            "authority.nonce",
            "marker.ledger",
            "ledger.authority",
            "record.type",
        ],
    }
}

/// Lane and preregistration: another text is another document, and no document is none.
fn documents(evidence: &Evidence) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    for (file, code) in [
        ("lane.toml", "packet.lane"),
        ("prereg.toml", "packet.prereg"),
    ] {
        let path = format!("bag/data/{file}");
        let Some(document) = evidence.files.get(&path) else {
            continue;
        };
        let edits: [(&str, &'static str, &[u8]); 3] = [
            ("a comment added", code, b"# tampered\n"),
            ("no TOML", "record.not-canonical", b"= tampered\n"),
            (
                "an unknown field",
                "record.unknown-field",
                b"tampered = 1\n",
            ),
        ];
        for (what, code, before) in edits {
            let changes = vec![Change::put(&path, [before, document].concat())];
            tampers.push(Tamper::within(format!("{file}: {what}"), &[code], changes));
        }
    }
    tampers
}
