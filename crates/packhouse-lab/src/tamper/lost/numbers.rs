//! Gates that failed, and the numbers of analyses.

use super::{ENTERED, Lost, SEALED, as_if_passed, pass};
use crate::tamper::Tamper;
use crate::tamper::agree::{Agrees, line_digest, packet_of};
use crate::tamper::edit::{Change, bytes, split, value};
use packhouse_bag::seal::{ANALYSIS_FILE, analysis_dir, seal_name};
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// All of it.
pub(super) fn tampers(lost: &Lost<'_>) -> Vec<Tamper> {
    let mut tampers = Vec::new();
    let gates = lost.gates().enumerate();
    for (number, gate) in gates.filter(|(_, gate)| gate["passed"] == false) {
        tampers.extend(failed(lost, number, gate));
    }
    tampers.extend(another_number(lost));
    tampers.extend(later(lost));
    tampers
}

/// What is done to a gate.
type Edit = fn(&mut Value);

/// A gate that failed: gone, passed, or not so bad.
fn failed(lost: &Lost<'_>, number: usize, gate: &Value) -> Vec<Tamper> {
    let name = gate["gate"].as_str().unwrap_or_default();
    let what = |what: &str| format!("failed gate {name}: {what}");
    let codes = &["analysis.gate"];
    let removed = lost.analysed(|analysis| {
        if let Some(gates) = analysis["gates"].as_array_mut() {
            gates.remove(number);
        }
    });
    let mut tampers = lost.wish(&what("removed"), codes, &[removed]);
    let edits: [(&str, Edit); 5] = [
        ("passed", pass),
        ("not judged", |gate| gate["passed"] = Value::Null),
        ("decides nothing", |gate| gate["decides"] = json!(false)),
        ("another count of its failures", |gate| {
            let count = gate["failure_count"].as_u64().unwrap_or_default();
            gate["failure_count"] = json!(count + 1);
        }),
        ("another number", |gate| {
            gate["measured"] = json!(another(gate))
        }),
    ];
    for (word, edit) in edits {
        let edited = lost.analysed(|analysis| edit(&mut analysis["gates"][number]));
        tampers.extend(lost.wish(&what(word), codes, &[edited]));
    }
    tampers
}

/// What a gate measured, with another last digit of its first number.
fn another(gate: &Value) -> String {
    let measured = gate["measured"].as_str().unwrap_or_default();
    let mut text = measured.to_owned();
    let from = measured.find(" = ").map_or(0, |at| at + 3);
    let digits = measured[from..].find(|c: char| c.is_ascii_digit());
    match digits {
        Some(at) => {
            let at = from + at;
            let digit = if &measured[at..=at] == "7" { "8" } else { "7" };
            text.replace_range(at..=at, digit);
            text
        }
        None => format!("{measured} = 7"),
    }
}

/// The only analysis has another number, and its seal too.
fn another_number(lost: &Lost<'_>) -> Vec<Tamper> {
    let first = path_of(1);
    let seal = lost.evidence.files.get(&seal_name(1)).and_then(value);
    let (true, Some(mut seal)) = (lost.path == first, seal) else {
        return Vec::new();
    };
    seal["subject"][2]["name"] = json!(path_of(2));
    seal["predicate"]["number"] = json!(2);
    let analysis = lost.evidence.files.get(&first).unwrap_or_default();
    let changes = vec![
        Change::Remove(first),
        Change::Remove(seal_name(1)),
        Change::put(&path_of(2), analysis.to_vec()),
        Change::put(&seal_name(2), bytes(&seal)),
    ];
    let name = "the analysis: another number, and its seal".to_owned();
    vec![Tamper::beside(name, &["analysis.number"], changes)]
}

/// A later analysis by another program, which says that the run passed.
fn later(lost: &Lost<'_>) -> Option<Tamper> {
    let (number, new) = (lost.number(), lost.number() + 1);
    let analyzer = json!(Digest::of(b"tampered").to_string());
    let mut analysis = lost.analysis.clone();
    as_if_passed(&mut analysis);
    analysis["verdict"] = json!("pass");
    analysis["analyzer"] = analyzer.clone();
    let seal = lost.evidence.files.get(&seal_name(number))?;
    let mut changes = vec![
        Change::put(&path_of(new), bytes(&analysis)),
        Change::put(&seal_name(new), seal.to_vec()),
    ];
    let mut agrees = Agrees::Seal;
    if let Some(ledger) = &lost.evidence.ledger {
        let mut lines = split(ledger);
        let packet = packet_of(lost.evidence);
        let last = lines.iter().rposition(|line| {
            let entry = value(line).unwrap_or_default();
            let is_kind = entry["kind"] == "sealed" || entry["kind"] == "analysed";
            is_kind && entry["body"]["packet"] == packet
        })?;
        lines.truncate(last + 1);
        let mut entry = value(&lines[last])?;
        let mut body = entry["body"].clone();
        for name in ["stage", "reason"] {
            body.as_object_mut()?.remove(name);
        }
        body["number"] = json!(new);
        body["analyzer"] = analyzer;
        body["why"] = json!("tampered");
        entry["kind"] = json!("analysed");
        entry["body"] = body;
        entry["index"] = json!(last + 1);
        entry["previous"] = json!(line_digest(&lines[last]));
        lines.push(bytes(&entry));
        changes.push(Change::Ledger(lines.concat().into()));
        agrees = Agrees::Ledger;
    }
    let how = match agrees {
        Agrees::Ledger => ENTERED,
        Agrees::Nothing | Agrees::Bag | Agrees::Seal => SEALED,
    };
    let name = format!("a later analysis: pass{how}");
    Some(Tamper::within(name, &["analysis.gate"], changes).agreeing(agrees))
}

fn path_of(number: u64) -> String {
    format!("{}/{ANALYSIS_FILE}", analysis_dir(number))
}

impl Lost<'_> {
    /// The number of its newest analysis.
    fn number(&self) -> u64 {
        let mut numbers = 1..;
        let is_it = |number: &u64| path_of(*number) == self.path;
        numbers.find(is_it).unwrap_or(1)
    }

    /// The path of the seal of its newest analysis.
    pub(super) fn seal(&self) -> String {
        seal_name(self.number())
    }
}
