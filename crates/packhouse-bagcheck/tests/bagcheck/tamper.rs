//! Each way to tamper with evidence is found, for its own reason. What is changed within the bag
//! is closed again, so that no manifest gives it away.

mod asked;
mod beside;
mod offered;
mod records;

use crate::sample::{self, FIXTURE, Sample, bytes, close, line, put, sha256};
use packhouse_bagcheck::{Entry, check};
use serde_json::{Value, json};

/// Judges tampered evidence and demands a code, in a report that is not valid.
fn rejects(sample: &Sample, what: &str, codes: &[&str]) {
    let report = check(&sample.tree, Some(&sample.ledger), None);
    let is_found = codes.iter().any(|code| report.has(code));
    assert!(!report.is_valid(), "{what}: nothing was found");
    let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(is_found, "{what}: none of {codes:?} in {found:#?}");
}

/// Changes a record of the bag and closes the bag again.
fn edit(sample: &Sample, path: &str, change: impl FnOnce(&mut Value)) -> Sample {
    let mut copy = sample.clone();
    let mut value = parse(&bytes(&copy.tree, path));
    change(&mut value);
    put(&mut copy.tree, path, line(&value));
    reclose(&mut copy, path);
    copy
}

/// Changes the lines of a file of the bag.
fn edit_lines(sample: &Sample, path: &str, change: impl FnOnce(&mut Vec<Value>)) -> Sample {
    let mut copy = sample.clone();
    let all = bytes(&copy.tree, path);
    let mut lines: Vec<Value> = all
        .split_inclusive(|byte| *byte == b'\n')
        .map(parse)
        .collect();
    change(&mut lines);
    let all: Vec<u8> = lines.iter().flat_map(line).collect();
    put(&mut copy.tree, path, all);
    reclose(&mut copy, path);
    copy
}

fn reclose(sample: &mut Sample, path: &str) {
    if path.starts_with("bag/") {
        close(&mut sample.tree);
    }
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("because the sample is JSON")
}

/// Replaces a file of the bag, or removes it.
fn replace(sample: &Sample, path: &str, with: Option<&[u8]>) -> Sample {
    let mut copy = sample.clone();
    match with {
        Some(bytes) => put(&mut copy.tree, path, bytes),
        None => drop(copy.tree.remove(path)),
    }
    reclose(&mut copy, path);
    copy
}

const CONTROL: &str = "bag/data/legs/00/exchange.jsonl";
const CANDIDATE: &str = "bag/data/legs/01/exchange.jsonl";
const TIMED: &str = "bag/data/legs/02/exchange.jsonl";
const RUN: &str = "bag/data/run.json";
const LEG: &str = "bag/data/legs/01/leg.json";
const ANALYSIS: &str = "analysis-1/analysis.json";

/// Pointers to every field of a value, in objects in lists too.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                out.push(at.clone());
                pointers(value, &at, out);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate().take(1) {
                pointers(value, &format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
}

/// The object that a pointer's field is in, and the field's name.
fn parent<'v>(value: &'v mut Value, pointer: &str) -> Option<(&'v mut Value, String)> {
    let (at, name) = pointer.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    Some((value.pointer_mut(at)?, name))
}

/// Removes every field of a record in turn, then makes it another type.
fn every_field(value: &Value, judge: &mut dyn FnMut(&str, &Value)) {
    let mut all = Vec::new();
    pointers(value, "", &mut all);
    for pointer in all {
        let mut without = value.clone();
        let (object, name) = parent(&mut without, &pointer).expect("because it was listed");
        object
            .as_object_mut()
            .expect("because it has fields")
            .remove(&name);
        judge(&format!("without {pointer}"), &without);
        let mut other = value.clone();
        let field = other.pointer_mut(&pointer).expect("because it was listed");
        *field = if field.is_array() {
            json!({})
        } else {
            json!([])
        };
        judge(&format!("another type of {pointer}"), &other);
    }
    let mut extra = value.clone();
    extra["unknown"] = json!(1);
    judge("an unknown field", &extra);
}

#[test]
fn every_field_of_every_record_is_demanded_and_no_other_is_taken() {
    let sample = sample::run();
    let marker = "bag/data/marker.json";
    let packet = "bag/data/packet.json";
    for path in [packet, marker, RUN, LEG, ANALYSIS, "seal-1.json"] {
        let value = parse(&bytes(&sample.tree, path));
        every_field(&value, &mut |what, value| {
            let tampered = replace(&sample, path, Some(&line(value)));
            rejects(&tampered, &format!("{path} {what}"), &RECORD);
        });
    }
}

/// Codes of a record that is not of its form; a list of arguments may also be another one than was
/// frozen.
const RECORD: [&str; 4] = [
    "record.missing-field",
    "record.unknown-field",
    "record.type",
    "packet.prereg",
];

#[test]
fn every_field_of_every_line_is_demanded_and_no_other_is_taken() {
    let sample = sample::run();
    // Hello of both, a case, its answer, what was seen; further on a refusal; at last bye and the
    // end.
    for (path, numbers) in [
        (CANDIDATE, &[0, 1, 2, 3, 4, 15, 17, 18][..]),
        (TIMED, &[11, 12]),
    ] {
        let all = bytes(&sample.tree, path);
        let lines: Vec<Value> = all
            .split_inclusive(|byte| *byte == b'\n')
            .map(parse)
            .collect();
        for number in numbers {
            every_field(&lines[*number], &mut |what, value| {
                // What the case's maps name is not a field of the format: another role is another
                // case.
                let tampered = edit_lines(&sample, path, |lines| lines[*number] = value.clone());
                let codes = match what {
                    // Nothing was timed in this leg: only another bag shows it.
                    "without /message/times" => vec!["analysis.bag"],
                    // No gate asks the control for its counters.
                    _ if what.contains("/counters/") => {
                        vec!["witness", "record.type", "analysis.bag"]
                    }
                    _ => [&RECORD[..], &CONTENT].concat(),
                };
                rejects(&tampered, &format!("{path}:{} {what}", number + 1), &codes);
            });
        }
    }
}

/// Codes of a line whose maps have lost an entry, or that lost what makes it an answer with time.
const CONTENT: [&str; 11] = [
    "witness",
    "denial",
    "leg.message",
    "case.inputs",
    "case.parameters",
    "case.poison",
    "answer.input-missing",
    "answer.file-absent",
    "answer.input-changed",
    "answer.not-timed",
    "poison",
];

fn edited(ledger: &[u8], number: usize, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut lines: Vec<Value> = ledger
        .split_inclusive(|byte| *byte == b'\n')
        .map(parse)
        .collect();
    change(&mut lines[number]);
    lines.iter().flat_map(line).collect()
}

fn set(value: &mut Value, pointer: &str, to: Value) {
    let (object, name) = parent(value, pointer).expect("because the place is there");
    match object {
        Value::Array(items) => items[name.parse::<usize>().expect("because it is an index")] = to,
        object => object[name] = to,
    }
}
