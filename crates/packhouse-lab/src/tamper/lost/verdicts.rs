//! Another verdict: in what says it, and in what it follows from.

use super::{Lost, as_if_passed};
use crate::tamper::Tamper;
use crate::tamper::edit::{Change, bytes, value};
use serde_json::{Value, json};
use std::slice::from_ref;

/// All of it.
pub(super) fn tampers(lost: &Lost<'_>) -> Vec<Tamper> {
    let is = lost.analysis["verdict"].as_str().unwrap_or_default();
    let mut tampers = Vec::new();
    let words = ["pass", "fail", "abort"].into_iter();
    for other in words.filter(|word| *word != is) {
        tampers.extend(said(lost, is, other));
    }
    let as_pass = |analysis: &mut Value| {
        as_if_passed(analysis);
        analysis["verdict"] = json!("pass");
        analysis["status"] = json!("complete");
        analysis["says"] = json!(without_the_end(&analysis["says"]));
    };
    let what = format!("{is} to pass: the whole analysis");
    tampers.extend(lost.wish(&what, &["analysis.gate"], &[lost.analysed(as_pass)]));
    if lost.is_abort() {
        tampers.extend(ended(lost, "complete", &lost.analysed(as_pass)));
        let as_fail = lost.analysed(|analysis| {
            analysis["verdict"] = json!("fail");
            analysis["status"] = json!("stopped");
            analysis["says"] = json!(without_the_end(&analysis["says"]));
        });
        tampers.extend(ended(lost, "stopped", &as_fail));
    } else {
        tampers.extend(broke_off(lost));
    }
    tampers
}

/// Another word, in the seal and in the analysis.
fn said(lost: &Lost<'_>, is: &str, other: &str) -> Vec<Tamper> {
    let what = format!("{is} to {other}: the analysis");
    let analysed = lost.analysed(|analysis| analysis["verdict"] = json!(other));
    let mut tampers = lost.wish(&what, &["analysis.verdict"], &[analysed]);
    let path = lost.seal();
    if let Some(mut seal) = lost.evidence.files.get(&path).and_then(value) {
        seal["predicate"]["verdict"] = json!(other);
        let what = format!("{is} to {other}: the seal");
        let changes = vec![Change::put(&path, bytes(&seal))];
        tampers.push(Tamper::beside(what, &["seal.verdict"], changes));
    }
    tampers
}

/// A run that broke off and says that it ended.
fn ended(lost: &Lost<'_>, status: &str, analysed: &Change) -> Vec<Tamper> {
    let is_complete = status == "complete";
    let mut changes = vec![lost.recorded(|run| {
        run["status"] = json!(status);
        run["removed"] = json!([]);
        if run["started"].is_null() {
            run["started"] = run["ended"].clone();
        }
        if is_complete {
            run["stage"] = Value::Null;
            run["reason"] = Value::Null;
            let legs = run["legs"].as_array_mut().into_iter().flatten();
            legs.for_each(|leg| leg["status"] = json!("complete"));
        }
    })];
    let paths = lost.evidence.files.paths();
    let legs = paths.filter(|path| is_complete && path.ends_with("/leg.json"));
    for path in legs {
        if let Some(mut leg) = lost.evidence.files.get(path).and_then(value) {
            leg["status"] = json!("complete");
            changes.push(Change::put(path, bytes(&leg)));
        }
    }
    changes.push(analysed.clone());
    let what = format!("abort to {status}: the run's record and the analysis");
    // Of the last case that was asked only the answer may be missing, and of a stopped run a
    // session's end; its gates are judged then, and were not.
    let codes: &[&'static str] = match is_complete {
        true => &["rows.missing", "run.legs", "leg.end"],
        false => &["rows.missing", "run.legs", "analysis.gate"],
    };
    match lost.is_whole() {
        // Nothing is missing but its end, and that is what was put there.
        true => lost.whole(&what, &changes),
        false => lost.wish(&what, codes, &changes),
    }
}

/// A run that ended and says that it broke off.
fn broke_off(lost: &Lost<'_>) -> Vec<Tamper> {
    let recorded = lost.recorded(|run| {
        run["status"] = json!("aborted");
        run["stage"] = json!("leg");
        run["reason"] = json!("tampered");
    });
    let analysed = lost.analysed(|analysis| {
        analysis["verdict"] = json!("abort");
        analysis["status"] = json!("aborted");
    });
    let codes = &["analysis.verdict"];
    let mut tampers = lost.wish(
        "fail to abort: the run's record",
        codes,
        from_ref(&recorded),
    );
    let what = "fail to abort: the run's record and the analysis";
    tampers.extend(lost.wish(what, codes, &[recorded, analysed]));
    tampers
}

/// What a bag can't prove, without that it did not end by itself.
fn without_the_end(says: &Value) -> Vec<Value> {
    let mut says = says.as_array().cloned().unwrap_or_default();
    says.retain(|text| {
        !text
            .as_str()
            .is_some_and(|text| text.starts_with("the run did not end"))
    });
    says
}
