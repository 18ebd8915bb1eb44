//! What lies beside the bag: analysis, seal, ledger. Nothing is closed again.

use super::Tamper;
use super::agree::say;
use super::edit::{Change, bytes, split, value};
use super::records::{Form, newest_analysis};
use crate::verify::Evidence;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// All of it.
pub(super) fn tampers(evidence: &Evidence) -> Vec<Tamper> {
    let mut tampers = analysis(evidence);
    tampers.extend(seal(evidence));
    tampers.extend(ledger(evidence));
    tampers
}

fn analysis(evidence: &Evidence) -> Vec<Tamper> {
    let path = newest_analysis(evidence);
    let Some(record) = evidence.files.get(&path).and_then(value) else {
        return Vec::new();
    };
    let form = Form::record("analysis.json", |place| match place {
        "schema" => &["record.type"],
        "bag" => &["analysis.bag"],
        "packet" => &["analysis.packet"],
        "analyzer" => &["analysis.analyzer", "seal.head"],
        "kind" | "verdict" | "says" | "says[]" => &["analysis.verdict"],
        "status" => &["record.type", "analysis.verdict"],
        "gates[].passed" => &["record.type", "analysis.gate"],
        "rows" | "timing" => &["record.type"],
        place if place.starts_with("gates") => &["analysis.gate"],
        place if place.starts_with("rows") => &["analysis.row"],
        place if place.starts_with("timing") => &["analysis.timing"],
        _ => &["analysis.verdict"],
    });
    let mut tampers = form.tampers(&record, false, &|bytes| Change::put(&path, bytes));
    let mut push = |what: &str, code: &'static str, edit: &dyn Fn(&mut Value)| {
        let mut record = record.clone();
        edit(&mut record);
        let changes = vec![Change::put(&path, bytes(&record))];
        tampers.push(Tamper::beside(
            format!("analysis.json: {what}"),
            &[code],
            changes,
        ));
    };
    push("a gate removed", "analysis.gate", &|record| {
        pop(&mut record["gates"])
    });
    push("a gate doubled", "analysis.gate", &|record| {
        double(&mut record["gates"])
    });
    push("a gate that did not pass", "analysis.gate", &|record| {
        record["gates"][0]["passed"] = json!(false);
    });
    push("stopped", "analysis.verdict", &|record| {
        record["status"] = json!("stopped")
    });
    push("another verdict", "analysis.verdict", &|record| {
        let is_pass = record["verdict"] == "pass";
        record["verdict"] = json!(if is_pass { "fail" } else { "pass" });
    });
    push("a row removed", "analysis.row", &|record| {
        pop(&mut record["rows"])
    });
    push("a row doubled", "analysis.row", &|record| {
        double(&mut record["rows"])
    });
    push("two rows swapped", "analysis.row", &|record| {
        if let Some([one, other, ..]) = record["rows"].as_array_mut().map(Vec::as_mut_slice) {
            std::mem::swap(one, other);
        }
    });
    if record["rows"].as_array().is_none_or(|rows| rows.len() < 2) {
        tampers.pop();
    }
    tampers.extend(analysis_file(evidence, &path));
    tampers
}

/// An analysis that is not there, and one too many.
fn analysis_file(evidence: &Evidence, path: &str) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let removed = vec![Change::Remove(path.to_owned())];
    let name = "analysis.json removed".to_owned();
    tampers.push(Tamper::beside(name, &["analysis.missing"], removed));
    if let Some(analysis) = evidence.files.get(path) {
        let changes = vec![Change::put("analysis-7/analysis.json", analysis.to_vec())];
        let name = "analysis.json: a number left out".to_owned();
        tampers.push(Tamper::beside(name, &["analysis.number"], changes));
    }
    tampers
}

fn seal(evidence: &Evidence) -> Vec<Tamper> {
    let path = "seal-1.json";
    let Some(record) = evidence.files.get(path).and_then(value) else {
        return Vec::new();
    };
    let form = Form {
        missing: &["record.missing-field"],
        other_type: &["record.type", "seal.subject", "seal.verdict", "seal.type"],
        ..Form::record("seal-1.json", |place| match place {
            "_type" | "predicateType" => &["seal.type"],
            "predicate.verdict" => &["seal.verdict"],
            "predicate.ledger_head" | "predicate.lab" | "predicate.analyzer" => &["seal.head"],
            _ => &["seal.subject"],
        })
    };
    let mut tampers = form.tampers(&record, false, &|bytes| Change::put(path, bytes));
    // What the head was before `sealed`, only the ledger itself can tell.
    let is_known = evidence.ledger.is_some();
    tampers.retain(|tamper| is_known || tamper.name != HEAD_CHANGED);
    let edits: [(&str, Edit); 4] = [
        ("a subject removed", |record| pop(&mut record["subject"])),
        ("a subject doubled", |record| double(&mut record["subject"])),
        ("another bag", |record| {
            record["subject"][1]["digest"] = other_digest()
        }),
        ("another analysis", |record| {
            record["subject"][2]["digest"] = other_digest()
        }),
    ];
    for (what, edit) in edits {
        let mut record = record.clone();
        edit(&mut record);
        let changes = vec![Change::put(path, bytes(&record))];
        let codes = &["seal.subject", "record.type"];
        tampers.push(Tamper::beside(
            format!("seal-1.json: {what}"),
            codes,
            changes,
        ));
    }
    let removed = vec![Change::Remove(path.to_owned())];
    tampers.push(Tamper::beside(
        "seal-1.json removed".to_owned(),
        &["seal.missing"],
        removed,
    ));
    let signed = vec![Change::put("seal-1.dsse.json", b"{}\n".to_vec())];
    let name = "seal-1.dsse.json: no signature".to_owned();
    tampers.push(Tamper::beside(name, &["seal.signature"], signed));
    tampers
}

const HEAD_CHANGED: &str = "seal-1.json: predicate.ledger_head changed";

fn other_digest() -> Value {
    json!({ "sha256": packhouse_base::digest::Digest::of(b"tampered").to_string() })
}

/// What is done to one entry of a ledger.
type Edit = fn(&mut Value);

fn ledger(evidence: &Evidence) -> Vec<Tamper> {
    let lines = match &evidence.ledger {
        Some(ledger) => split(ledger),
        None => return Vec::new(),
    };
    let mut tampers = Vec::new();
    let mut push = |what: &str, codes: &[&'static str], lines: &[Vec<u8>]| {
        let changes = vec![Change::Ledger(lines.concat().into())];
        tampers.push(Tamper::beside(format!("ledger: {what}"), codes, changes));
    };
    push("no entry", &["ledger.no-entries"], &[]);
    if let [_, second, ..] = lines.as_slice() {
        push(
            "genesis removed",
            &["ledger.index", "ledger.genesis"],
            &lines[1..],
        );
        for (what, code, edit) in ENTRY_EDITS {
            push(what, &[code], &edited(&lines, 1, edit));
        }
        let mut spaced = lines.clone();
        spaced[1].insert(1, b' ');
        push("a blank", &["ledger.not-canonical"], &spaced);
        let mut doubled = lines.clone();
        doubled.insert(2, second.clone());
        push("a line doubled", &["ledger.index"], &doubled);
    }
    if let Some(sealed) = sealed_of(evidence, &lines) {
        push("sealed removed", &["ledger.sealed"], &lines[..sealed]);
        for (what, code, edit) in SEALED_EDITS {
            // Without the lines behind it, whose links it would break.
            push(what, &[code], &edited(&lines, sealed, edit)[..=sealed]);
        }
    }
    tampers
}

/// The line that sealed this packet: a ledger has those of others too.
fn sealed_of(evidence: &Evidence, lines: &[Vec<u8>]) -> Option<usize> {
    let packet = Digest::of(evidence.files.get("bag/data/packet.json")?).to_string();
    let is_it = |entry: Value| entry["kind"] == "sealed" && entry["body"]["packet"] == packet;
    lines.iter().position(|line| value(line).is_some_and(is_it))
}

/// The lines, with one entry otherwise.
fn edited(lines: &[Vec<u8>], number: usize, edit: Edit) -> Vec<Vec<u8>> {
    let mut lines = lines.to_vec();
    if let Some(mut entry) = lines.get(number).and_then(|line| value(line)) {
        edit(&mut entry);
        lines[number] = bytes(&entry);
    }
    lines
}

const ENTRY_EDITS: [(&str, &str, Edit); 7] = [
    ("a field unknown", "ledger.unknown-field", |entry| {
        entry["tampered"] = json!(1);
    }),
    ("a field missing", "ledger.missing-field", |entry| {
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("boot");
        }
    }),
    ("a field of another type", "ledger.type", |entry| {
        entry["at_ns"] = json!("tampered");
    }),
    ("another schema", "ledger.schema", |entry| {
        entry["schema"] = json!("x")
    }),
    ("another kind", "ledger.kind", |entry| {
        entry["kind"] = json!("x")
    }),
    ("another index", "ledger.index", |entry| {
        entry["index"] = json!(7)
    }),
    ("another time", "ledger.previous", |entry| {
        entry["at_ns"] = json!(7)
    }),
];

const SEALED_EDITS: [(&str, &str, Edit); 4] = [
    ("another verdict", "ledger.sealed", |entry| {
        let is_pass = entry["body"]["verdict"] == "pass";
        let other = json!(if is_pass { "fail" } else { "pass" });
        say(&mut entry["body"], &other, &Value::Null);
    }),
    ("another analysis", "ledger.sealed", |entry| {
        entry["body"]["analysis"] = other_digest()["sha256"].clone();
    }),
    ("another seal", "ledger.sealed", |entry| {
        entry["body"]["seal"] = other_digest()["sha256"].clone();
    }),
    ("another bag", "ledger.bag", |entry| {
        entry["body"]["bag"] = other_digest()["sha256"].clone();
    }),
];

fn pop(list: &mut Value) {
    if let Some(items) = list.as_array_mut() {
        items.pop();
    }
}

fn double(list: &mut Value) {
    if let Some(items) = list.as_array_mut() {
        items.extend(items.last().cloned());
    }
}
