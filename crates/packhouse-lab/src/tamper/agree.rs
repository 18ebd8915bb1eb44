//! What cites a changed file is made again, as a forger would: lists, analyses, seals, ledger.

use super::edit::{bytes, split, value};
use crate::verify::Evidence;
use packhouse_bag::seal::{ANALYSIS_FILE, analysis_dir, envelope_name, seal_name};
use packhouse_bag::{BAG_DIR, Contents, closed};
use packhouse_base::digest::Digest;
use serde_json::{Value, json};

/// How far a copy agrees with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Agrees {
    /// Nothing is made again.
    Nothing,
    /// The bag is closed again, with lists that fit.
    Bag,
    /// Its analyses name it, and its seals both and their verdict.
    Seal,
    /// The ledger has the digests and verdicts of all of them, chained anew, and nothing behind.
    Ledger,
}

/// Makes again what cites what was changed.
pub(super) fn agree(evidence: &mut Evidence, agrees: Agrees) {
    if agrees >= Agrees::Bag {
        close(evidence);
    }
    if agrees >= Agrees::Seal {
        cite(evidence);
    }
    if agrees >= Agrees::Ledger {
        enter(evidence);
    }
}

/// Closes the bag again, with lists that fit.
fn close(evidence: &mut Evidence) {
    let bag = evidence.files.below(BAG_DIR);
    let Ok((info, _)) = bag.info() else {
        return;
    };
    let again = closed(&bag.payload(), &info);
    let others = evidence.files.files().iter();
    let others = others.filter(|(path, _)| !path.starts_with("bag/"));
    let mut files = Contents::new(
        others
            .map(|(path, bytes)| (path.clone(), bytes.clone()))
            .collect(),
    );
    for (path, bytes) in again.files() {
        files.insert(format!("{BAG_DIR}/{path}"), bytes.clone());
    }
    evidence.files = files;
}

/// The bag's digest, in words.
fn bag_of(evidence: &Evidence) -> String {
    let digest = evidence.files.below(BAG_DIR).digest();
    digest.map_or_else(String::new, |digest| digest.to_string())
}

/// The packet's digest, in words.
pub(super) fn packet_of(evidence: &Evidence) -> String {
    let packet = evidence.files.get("bag/data/packet.json");
    Digest::of(packet.unwrap_or_default()).to_string()
}

fn digest_at(evidence: &Evidence, path: &str) -> String {
    Digest::of(evidence.files.get(path).unwrap_or_default()).to_string()
}

/// Every analysis names the bag, and every seal what lies there.
fn cite(evidence: &mut Evidence) {
    let bag = bag_of(evidence);
    for number in 1.. {
        let path = format!("{}/{ANALYSIS_FILE}", analysis_dir(number));
        let Some(mut analysis) = evidence.files.get(&path).and_then(value) else {
            return;
        };
        analysis["bag"] = json!(bag);
        evidence.files.insert(path.clone(), bytes(&analysis));
        let digest = digest_at(evidence, &path);
        let seal = evidence.files.get(&seal_name(number)).and_then(value);
        let Some(mut seal) = seal else {
            return;
        };
        seal["subject"][1]["digest"]["sha256"] = json!(bag);
        seal["subject"][2]["name"] = json!(path);
        seal["subject"][2]["digest"]["sha256"] = json!(digest);
        seal["predicate"]["number"] = json!(number);
        seal["predicate"]["verdict"] = analysis["verdict"].clone();
        seal["predicate"]["analyzer"] = analysis["analyzer"].clone();
        put_seal(evidence, number, &seal);
    }
}

/// Puts a seal there. Who has not the key can't sign it, and leaves the signature away.
fn put_seal(evidence: &mut Evidence, number: u64, seal: &Value) {
    evidence.files.insert(seal_name(number), bytes(seal));
    evidence.files.remove(&envelope_name(number));
}

/// Enters what lies there in the place of what lay there, and chains the lines anew. The seals get
/// the heads that they cited under their new digests.
fn enter(evidence: &mut Evidence) {
    let Some(ledger) = evidence.ledger.clone() else {
        return;
    };
    let (packet, bag) = (packet_of(evidence), bag_of(evidence));
    let is_cited = |entry: &Value| {
        let is_kind = ["closed", "sealed", "analysed"].map(|kind| entry["kind"] == kind);
        is_kind.contains(&true) && entry["body"]["packet"] == packet
    };
    let lines: Vec<Value> = split(&ledger)
        .iter()
        .filter_map(|line| value(line))
        .collect();
    let Some(last) = lines.iter().rposition(is_cited) else {
        return;
    };
    let mut renamed: Vec<(String, String)> = Vec::new();
    let mut head: Option<String> = None;
    let mut all = Vec::new();
    for line in &lines[..=last] {
        let mut entry = line.clone();
        if let Some(head) = &head {
            entry["previous"] = json!(head);
        }
        if is_cited(&entry) {
            entry["body"]["bag"] = json!(bag);
            if entry["kind"] != "closed" {
                seal(evidence, &mut entry, &renamed);
            }
        }
        let digest = line_digest(&bytes(&entry));
        renamed.push((line_digest(&bytes(line)), digest.clone()));
        head = Some(digest);
        all.extend(bytes(&entry));
    }
    evidence.ledger = Some(all.into());
}

/// One entry of an analysis, and its seal.
fn seal(evidence: &mut Evidence, entry: &mut Value, renamed: &[(String, String)]) {
    let number = entry["body"]["number"].as_u64().unwrap_or(1);
    let path = format!("{}/{ANALYSIS_FILE}", analysis_dir(number));
    let own = evidence.files.get(&seal_name(number)).and_then(value);
    let analysis = evidence.files.get(&path).and_then(value);
    let (Some(mut own), Some(analysis)) = (own, analysis) else {
        return;
    };
    let head = own["predicate"]["ledger_head"].clone();
    let new = renamed.iter().find(|(old, _)| head == old.as_str());
    if let Some((_, new)) = new {
        own["predicate"]["ledger_head"] = json!(new);
    }
    put_seal(evidence, number, &own);
    let body = &mut entry["body"];
    body["analysis"] = json!(digest_at(evidence, &path));
    body["seal"] = json!(digest_at(evidence, &seal_name(number)));
    if number > 1 {
        body["verdict"] = analysis["verdict"].clone();
        body["analyzer"] = analysis["analyzer"].clone();
    } else {
        let run = evidence.files.get("bag/data/run.json").and_then(value);
        say(body, &analysis["verdict"], &run.unwrap_or_default());
    }
}

/// Says a verdict in the body of `sealed`. Words of an abort stay what they were.
pub(super) fn say(body: &mut Value, verdict: &Value, run: &Value) {
    let was = std::mem::replace(&mut body["verdict"], verdict.clone());
    let (is_abort, was_abort) = (verdict == "abort", was == "abort");
    if is_abort && !was_abort {
        let words = |word: &Value, other: &str| match word {
            Value::Null => json!(other),
            word => word.clone(),
        };
        body["stage"] = words(&run["stage"], "leg");
        body["reason"] = words(&run["reason"], "tampered");
    }
    if !is_abort {
        body["stage"] = Value::Null;
        body["reason"] = json!("");
    }
}

/// What the next line of a ledger says of one.
pub(super) fn line_digest(line: &[u8]) -> String {
    Digest::of(line.strip_suffix(b"\n").unwrap_or(line)).to_string()
}
