//! What is told of a run beside its verdict: why it broke off, and whether it was run at all.

use super::Lost;
use crate::tamper::Tamper;
use crate::tamper::agree::{Agrees, packet_of, say};
use crate::tamper::edit::{Change, bytes, split, value};
use serde_json::{Value, json};

/// All of it.
pub(super) fn tampers(lost: &Lost<'_>) -> Vec<Tamper> {
    let mut tampers = sealed(lost);
    if lost.is_abort() {
        tampers.extend(recorded(lost));
    }
    tampers.extend(released(lost));
    tampers.push(rehearsed(lost));
    tampers
}

/// What is done to the body of `sealed`.
type Edit<'a> = &'a dyn Fn(&mut Value);

/// Verdict, stage and reason of the entry that sealed it.
fn sealed(lost: &Lost<'_>) -> Vec<Tamper> {
    let Some((lines, number)) = line_of(lost, "sealed") else {
        return Vec::new();
    };
    let mut tampers = Vec::new();
    let mut push = |what: String, edit: Edit<'_>| {
        let mut entry = value(&lines[number]).unwrap_or_default();
        edit(&mut entry["body"]);
        let mut all = lines[..number].to_vec();
        all.push(bytes(&entry));
        let changes = vec![Change::Ledger(all.concat().into())];
        tampers.push(Tamper::beside(what, &["ledger.sealed"], changes));
    };
    let is = value(&lines[number]).unwrap_or_default()["body"]["verdict"].clone();
    for other in ["pass", "fail", "abort"].map(Value::from) {
        if other != is {
            let word = |word: &Value| word.as_str().unwrap_or_default().to_owned();
            let what = format!("{} to {}: the ledger", word(&is), word(&other));
            push(what, &|body| say(body, &other, &lost.run));
        }
    }
    let other_reason = |body: &mut Value| body["reason"] = json!("tampered");
    push("sealed: another reason".to_owned(), &other_reason);
    if lost.is_abort() {
        push("sealed: another stage".to_owned(), &|body| {
            body["stage"] = json!(other_stage(&body["stage"]));
        });
    }
    tampers
}

/// Stage and reason of the run's own record. Nothing follows from them, so the bag's digest alone
/// tells, and where that was made again the entry that sealed it.
fn recorded(lost: &Lost<'_>) -> Vec<Tamper> {
    let other_stage = |run: &mut Value| run["stage"] = json!(other_stage(&run["stage"]));
    let other_reason = |run: &mut Value| run["reason"] = json!("tampered");
    let cases = [
        ("run.json: another stage", lost.recorded(other_stage)),
        ("run.json: another reason", lost.recorded(other_reason)),
    ];
    let mut tampers = Vec::new();
    for (what, change) in cases {
        let changes = vec![change];
        tampers.push(Tamper::within(
            what.to_owned(),
            &["analysis.bag"],
            changes.clone(),
        ));
        if lost.evidence.ledger.is_some() {
            let what = format!("{what}, and digests that agree");
            let tamper = Tamper::within(what, &["ledger.sealed"], changes);
            tampers.push(tamper.agreeing(Agrees::Ledger));
        }
    }
    tampers
}

/// A run that is told as never having been one.
fn released(lost: &Lost<'_>) -> Vec<Tamper> {
    let Some((mut lines, number)) = line_of(lost, "consumed") else {
        return Vec::new();
    };
    let entry = value(&lines[number]).unwrap_or_default();
    let mut body = entry["body"].clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("marker");
    }
    body["stage"] = json!("hello");
    body["reason"] = json!("tampered");
    let mut released = entry.clone();
    released["kind"] = json!("released");
    released["body"] = body;
    let released = bytes(&released);
    lines.truncate(number);
    lines.push(released.clone());
    let ledger = Change::Ledger(lines.concat().into());
    let mut tampers = vec![Tamper::beside(
        "to released: the ledger".to_owned(),
        &["ledger.authority"],
        vec![ledger.clone()],
    )];
    let authority = "bag/data/authority.jsonl";
    let own = split(lost.evidence.files.get(authority).unwrap_or_default());
    let Some(last) = own.len().checked_sub(1) else {
        return tampers;
    };
    let mut changes = vec![ledger, Change::line(authority, last, released)];
    let codes = &["authority.state"];
    let push = |what: &str, changes: &[Change]| {
        let tamper = Tamper::within(what.to_owned(), codes, changes.to_vec());
        tamper.agreeing(Agrees::Seal)
    };
    tampers.push(push(
        "to released: the ledger and its lines in the bag",
        &changes,
    ));
    changes.push(Change::Remove("bag/data/marker.json".to_owned()));
    tampers.push(push(
        "to released: the ledger, its lines in the bag, and no marker",
        &changes,
    ));
    tampers
}

/// A run that is told as a rehearsal of it, which has no marker and no seal.
fn rehearsed(lost: &Lost<'_>) -> Tamper {
    let kind = |record: &mut Value| record["kind"] = json!("rehearsal");
    let seals = lost.evidence.files.paths();
    let seals = seals.filter(|path| path.starts_with("seal-"));
    let mut changes: Vec<Change> = seals.map(|path| Change::Remove(path.to_owned())).collect();
    changes.push(Change::Remove("bag/data/marker.json".to_owned()));
    changes.push(lost.recorded(kind));
    changes.push(lost.analysed(kind));
    let name = "to a rehearsal: the run's record and the analysis, no marker and no seal";
    let tamper = Tamper::within(name.to_owned(), &["authority.state"], changes);
    tamper.agreeing(Agrees::Seal)
}

/// The lines of the ledger, and which of them is this packet's of a kind.
fn line_of(lost: &Lost<'_>, kind: &str) -> Option<(Vec<Vec<u8>>, usize)> {
    let lines = split(lost.evidence.ledger.as_ref()?);
    let packet = packet_of(lost.evidence);
    let is_it = |entry: Value| entry["kind"] == kind && entry["body"]["packet"] == packet;
    let number = lines
        .iter()
        .position(|line| value(line).is_some_and(is_it))?;
    Some((lines, number))
}

fn other_stage(stage: &Value) -> &'static str {
    if stage == "marker" { "leg" } else { "marker" }
}
