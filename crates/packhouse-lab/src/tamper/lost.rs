//! What whoever lost would wish for: a fail or an abort that is told as something better. Each is
//! tried alone, the bag closed again, then with seals that fit, then with a ledger that does.
//!
//! - A wish that is left in the bag, or in what the bag gives, is found at each of these steps.
//! - One that is complete in itself is found by the first that still tells of it, seal or ledger;
//!   with all of them made again nothing in the evidence is left that could tell, so no such copy
//!   is made.

mod numbers;
mod rows;
mod verdicts;
mod words;

use super::Tamper;
use super::agree::Agrees;
use super::edit::{Change, bytes, value};
use super::records::{is_run, newest_analysis};
use crate::verify::Evidence;
use serde_json::{Value, json};

/// A run that did not pass.
struct Lost<'a> {
    evidence: &'a Evidence,
    /// Path of its newest analysis.
    path: String,
    analysis: Value,
    run: Value,
}

/// All of it; nothing of a run that passed, and of a rehearsal, which has no seal.
pub(super) fn tampers(evidence: &Evidence) -> Vec<Tamper> {
    let Some(lost) = Lost::of(evidence) else {
        return Vec::new();
    };
    let mut tampers = verdicts::tampers(&lost);
    tampers.extend(rows::tampers(&lost));
    tampers.extend(numbers::tampers(&lost));
    tampers.extend(words::tampers(&lost));
    tampers
}

impl<'a> Lost<'a> {
    fn of(evidence: &'a Evidence) -> Option<Self> {
        let path = newest_analysis(evidence);
        let analysis = evidence.files.get(&path).and_then(value)?;
        let run = evidence.files.get(RUN).and_then(value)?;
        let has_lost = analysis["verdict"] == "fail" || analysis["verdict"] == "abort";
        (has_lost && is_run(evidence)).then_some(Self {
            evidence,
            path,
            analysis,
            run,
        })
    }

    fn is_abort(&self) -> bool {
        self.analysis["verdict"] == "abort"
    }

    /// Whether every planned case was answered: then only its end is missing.
    fn is_whole(&self) -> bool {
        let gate = self.gates().find(|gate| gate["gate"] == "complete");
        gate.is_some_and(|gate| gate["threshold"] == gate["measured"])
    }

    fn gates(&self) -> impl Iterator<Item = &Value> {
        self.analysis["gates"].as_array().into_iter().flatten()
    }

    /// The analysis as something else.
    fn analysed(&self, edit: impl Fn(&mut Value)) -> Change {
        let mut analysis = self.analysis.clone();
        edit(&mut analysis);
        Change::put(&self.path, bytes(&analysis))
    }

    /// The run's record as something else.
    fn recorded(&self, edit: impl Fn(&mut Value)) -> Change {
        let mut run = self.run.clone();
        edit(&mut run);
        Change::put(RUN, bytes(&run))
    }

    /// A wish that what the bag gives belies, whatever cites it.
    fn wish(&self, what: &str, codes: &[&'static str], changes: &[Change]) -> Vec<Tamper> {
        let mut steps = vec![(Agrees::Bag, ""), (Agrees::Seal, SEALED)];
        if self.evidence.ledger.is_some() {
            steps.push((Agrees::Ledger, ENTERED));
        }
        let steps = steps.into_iter();
        steps
            .map(|(agrees, how)| {
                let tamper = Tamper::within(format!("{what}{how}"), codes, changes.to_vec());
                tamper.agreeing(agrees)
            })
            .collect()
    }

    /// A wish that is complete in itself: the seal tells, and where that was made again the ledger.
    fn whole(&self, what: &str, changes: &[Change]) -> Vec<Tamper> {
        let all = changes.to_vec();
        let mut tampers = vec![Tamper::within(
            what.to_owned(),
            &["seal.subject"],
            all.clone(),
        )];
        if self.evidence.ledger.is_some() {
            let sealed = Tamper::within(format!("{what}{SEALED}"), &["ledger.sealed"], all);
            tampers.push(sealed.agreeing(Agrees::Seal));
        }
        tampers
    }
}

/// Makes every gate one that passed, and every row equal.
fn as_if_passed(analysis: &mut Value) {
    for gate in analysis["gates"].as_array_mut().into_iter().flatten() {
        if gate["passed"] != true {
            pass(gate);
        }
    }
    for row in analysis["rows"].as_array_mut().into_iter().flatten() {
        row["equal"] = json!(true);
    }
}

/// A gate that found nothing.
fn pass(gate: &mut Value) {
    gate["passed"] = json!(true);
    gate["failures"] = json!([]);
    gate["failure_count"] = json!(0);
    let threshold = gate["threshold"].as_str().unwrap_or_default();
    let of = gate["measured"]
        .as_str()
        .and_then(|text| text.split_once(" of "));
    if threshold.ends_with(" = 0") {
        let of = of.map_or_else(String::new, |(_, rows)| format!(" of {rows}"));
        gate["measured"] = json!(format!("{threshold}{of}"));
    }
    if gate["gate"] == "complete" {
        gate["measured"] = gate["threshold"].clone();
    }
}

const RUN: &str = "bag/data/run.json";
const SEALED: &str = ", and what seals it agrees";
const ENTERED: &str = ", and all that cites it agrees";
