//! What records of a run excuse that did not come to its end, or tell already: another value there
//! is known by the digest of the bag alone.

use super::Tamper;
use super::edit::{split, value};
use super::records::failures;
use crate::verify::Evidence;
use serde_json::Value;

/// Adds the bag's digest to what a tampering is known by, where all of that may be excused.
pub(super) fn excuse(evidence: &Evidence, tampers: &mut [Tamper]) {
    let excused = excused(evidence);
    let told = failures(evidence);
    let is_told = |code: &str| {
        let mut told = told.iter().filter_map(|failure| failure.split_once(": "));
        told.any(|(own, _)| own == code)
    };
    for tamper in tampers {
        let mut codes = tamper.expected.iter();
        if codes.all(|code| excused.contains(code) || is_told(code)) {
            tamper.expected.push("analysis.bag");
        }
    }
}

/// Codes that evidence need not have new failures of.
fn excused(evidence: &Evidence) -> Vec<&'static str> {
    let run = evidence.files.get("bag/data/run.json").and_then(value);
    let run = run.unwrap_or_default();
    let is_aborted = run["status"] == "aborted";
    let mut excused = Vec::new();
    if is_aborted {
        excused.extend(["run.clock", "rows.missing", "leg.end", "output.missing"]);
        excused.extend(["answer.file-absent", "answer.file-extra"]);
    }
    if run["status"] != "complete" {
        excused.extend(["run.status", "leg.end"]);
    }
    let is_broken = |leg: &Value| leg["status"] == "broken";
    let has_broken = run["legs"]
        .as_array()
        .is_some_and(|legs| legs.iter().any(is_broken));
    if has_broken {
        excused.extend(["leg.program", "identity", "rows.missing"]);
    }
    if has_broken && is_aborted {
        excused.push("record.missing");
    }
    if evidence.files.get("bag/data/marker.json").is_none() {
        excused.push("marker.unexpected");
    }
    if !has_answer(evidence) {
        excused.extend(["answer.capture-not-said", "answer.capture-not-offered"]);
    }
    excused
}

/// Whether in each leg something was answered, which a program's hello can belie.
fn has_answer(evidence: &Evidence) -> bool {
    let paths = evidence.files.paths();
    let mut legs = paths
        .filter(|path| path.ends_with("/exchange.jsonl"))
        .peekable();
    let is_answered = |path| {
        let lines = split(evidence.files.get(path).unwrap_or_default());
        let lines = lines.iter().filter_map(|line| value(line));
        lines
            .map(|line| line["message"]["type"].clone())
            .any(|kind| kind == "answer")
    };
    legs.peek().is_some() && legs.all(is_answered)
}
