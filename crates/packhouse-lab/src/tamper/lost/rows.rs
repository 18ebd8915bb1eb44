//! Rows that were not equal: left out, called equal, and made so.

use super::{Lost, pass};
use crate::tamper::Tamper;
use crate::tamper::edit::{Change, bytes, value};
use crate::tamper::exchange::{Turn, lines, turns};
use crate::verify::Evidence;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};
use std::slice::from_ref;

/// All of it, of the first row that is not equal.
pub(super) fn tampers(lost: &Lost<'_>) -> Vec<Tamper> {
    let rows = lost.analysis["rows"].as_array().into_iter().flatten();
    let mut rows = rows.enumerate();
    let Some((number, row)) = rows.find(|(_, row)| row["equal"] == false) else {
        return Vec::new();
    };
    let left_out = lost.analysed(|analysis| {
        if let Some(rows) = analysis["rows"].as_array_mut() {
            rows.remove(number);
        }
        equality(analysis);
    });
    let called_equal = lost.analysed(|analysis| {
        analysis["rows"][number]["equal"] = json!(true);
        equality(analysis);
    });
    let codes = &["analysis.row"];
    let mut tampers = lost.wish("a failed row: left out", codes, from_ref(&left_out));
    tampers.extend(lost.wish("a failed row: called equal", codes, &[called_equal]));
    tampers.extend(complete(lost, row));
    let Some(turn) = turn_of(lost.evidence, row) else {
        return tampers;
    };
    tampers.extend(not_asked(lost, &turn, &left_out));
    tampers.extend(made_equal(lost, &turn, row, number));
    tampers
}

/// The gate of a row that is gone or called equal; nothing else was wrong.
fn equality(analysis: &mut Value) {
    let gates = analysis["gates"].as_array_mut().into_iter().flatten();
    gates
        .filter(|gate| gate["gate"] == "equality")
        .for_each(pass);
}

/// Its leg says that nothing in it was wrong.
fn complete(lost: &Lost<'_>, row: &Value) -> Vec<Tamper> {
    let number = &row["leg"];
    let path = format!(
        "bag/data/legs/{:02}/leg.json",
        number.as_u64().unwrap_or_default()
    );
    let record = lost.evidence.files.get(&path).and_then(value);
    let Some(mut record) = record.filter(|record| record["status"] == "failed") else {
        return Vec::new();
    };
    record["status"] = json!("complete");
    let recorded = lost.recorded(|run| {
        let legs = run["legs"].as_array_mut().into_iter().flatten();
        legs.filter(|leg| leg["number"] == *number)
            .for_each(|leg| leg["status"] = json!("complete"));
    });
    let changes = [recorded, Change::put(&path, bytes(&record))];
    lost.wish("a failed leg: complete", &["run.legs"], &changes)
}

/// The case, answer and look that a row was made from.
fn turn_of(evidence: &Evidence, row: &Value) -> Option<Turn> {
    let leg = row["leg"].as_u64()?;
    let path = format!("bag/data/legs/{leg:02}/exchange.jsonl");
    let turns = turns(&lines(evidence));
    turns.into_iter().find(|turn| {
        let is_its = turn.case.path == path && turn.case.value["treatment"] == row["treatment"];
        is_its && turn.case.message()["index"] == row["index"]
    })
}

/// Its case was never asked, and its outputs are not there.
fn not_asked(lost: &Lost<'_>, turn: &Turn, left_out: &Change) -> Vec<Tamper> {
    let cut = Change::lines(&turn.case.path, turn.case.number, 3, Vec::new());
    let others = turns(&lines(lost.evidence)).into_iter();
    let others: Vec<Turn> = others
        .filter(|other| {
            (&other.case.path, other.case.number) != (&turn.case.path, turn.case.number)
        })
        .collect();
    let mut changes = vec![cut];
    for boundary in turn.boundaries() {
        let sha256 = &boundary["sha256"];
        let mut all = others.iter().flat_map(Turn::boundaries);
        if !all.any(|other| other["sha256"] == *sha256) {
            let sha256 = sha256.as_str().unwrap_or_default();
            changes.push(Change::Remove(format!("bag/data/outputs/{sha256}")));
        }
    }
    // What was never asked is missing, but of a run that broke off.
    let codes: &[&'static str] = match lost.is_abort() {
        true => &["analysis.row"],
        false => &["rows.missing"],
    };
    let mut tampers = lost.wish("a failed case: not asked", codes, &changes);
    changes.push(left_out.clone());
    let what = "a failed case: not asked, and no row of it";
    tampers.extend(match lost.is_abort() {
        true => lost.whole(what, &changes),
        false => lost.wish(what, codes, &changes),
    });
    tampers
}

/// Its output is what it should have been.
fn made_equal(lost: &Lost<'_>, turn: &Turn, row: &Value, number: usize) -> Vec<Tamper> {
    let Some(right) = right(lost, row) else {
        return Vec::new();
    };
    let was = row["sha256"].as_str().unwrap_or_default();
    let path = format!("bag/data/outputs/{was}");
    let swapped = Change::put(&path, right.clone());
    let what = "a failed output: the right bytes under its name";
    let mut tampers = lost.wish(what, &["output.digest"], &[swapped]);
    let sha256 = Digest::of(&right).to_string();
    let mut boundaries = turn.boundaries().iter();
    let Some(at) = boundaries.position(|boundary| boundary["name"] == row["boundary"]) else {
        return tampers;
    };
    let file = turn.boundaries()[at]["file"].as_str().unwrap_or_default();
    let length = right.len();
    let mut changes = vec![
        Change::put(&format!("bag/data/outputs/{sha256}"), right),
        turn.reply
            .edited(|line| line["message"]["boundaries"][at]["sha256"] = json!(sha256)),
        turn.seen.edited(|line| {
            line["seen"]["outputs"][file] = json!({ "bytes": length, "sha256": sha256 });
        }),
    ];
    if !is_named_elsewhere(lost.evidence, was) {
        changes.push(Change::Remove(path));
    }
    let what = "a failed output: the right bytes, with every digest";
    tampers.extend(lost.wish(what, &["analysis.row"], &changes));
    changes.push(lost.analysed(|analysis| {
        analysis["rows"][number]["sha256"] = json!(sha256);
        analysis["rows"][number]["equal"] = json!(true);
        equality(analysis);
    }));
    let what = "a failed output: the right bytes, with every digest and its row";
    tampers.extend(lost.whole(what, &changes));
    tampers
}

/// Whether an output is in more than one line of answers.
fn is_named_elsewhere(evidence: &Evidence, sha256: &str) -> bool {
    let turns = turns(&lines(evidence));
    let named = turns.iter().flat_map(Turn::boundaries);
    named
        .filter(|boundary| boundary["sha256"] == sha256)
        .count()
        > 1
}

/// The bytes that a row should have had: those of another program that was asked the same, else
/// the fixture's own.
fn right(lost: &Lost<'_>, row: &Value) -> Option<Vec<u8>> {
    let mut rows = lost.analysis["rows"].as_array()?.iter();
    let is_same = |other: &&Value| {
        let same = ["fixture", "arm", "width", "repeat", "boundary"];
        other["equal"] == true && same.iter().all(|name| other[*name] == row[*name])
    };
    let other = rows.find(is_same).and_then(|other| {
        let sha256 = other["sha256"].as_str()?;
        lost.evidence
            .files
            .get(&format!("bag/data/outputs/{sha256}"))
    });
    let right = other.or_else(|| expected(lost.evidence, row))?;
    Some(right.to_vec())
}

/// What a fixture expects at a row's boundary.
fn expected<'a>(evidence: &'a Evidence, row: &Value) -> Option<&'a [u8]> {
    let id = row["fixture"].as_str()?;
    let folder = match row["repeat"].as_u64()? {
        0 => format!("bag/data/fixtures/{id}"),
        repeat => format!("bag/data/drawn/{id}-{repeat}"),
    };
    let record = evidence
        .files
        .get(&format!("{folder}/fixture.json"))
        .and_then(value)?;
    let mut cases = record["cases"].as_array()?.iter();
    let case = cases.find(|case| case["arm"] == row["arm"] && case["width"] == row["width"])?;
    let mut expected = case["expected"].as_array()?.iter();
    let expected = expected.find(|expected| expected["boundary"] == row["boundary"])?;
    let tensor = expected["tensor"].as_str()?;
    evidence.files.get(&format!("{folder}/data/{tensor}"))
}
