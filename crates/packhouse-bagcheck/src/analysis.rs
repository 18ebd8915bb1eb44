//! Stored analyses against what the bag gives: `docs/format/evidence.md`, sections 7 to 12.

use crate::content::{Content, Source};
use crate::gates::{Gate, Judgement};
use crate::json::{Json, Map};
use crate::report::{Finding, Report};
use crate::shape::{Record, record};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// What a seal or an entry of the ledger is held against.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Its verdict.
    pub(crate) verdict: String,
    /// Digest of its analyzer.
    pub(crate) analyzer: String,
}

const FIELDS: [&str; 11] = [
    "schema", "bag", "packet", "analyzer", "kind", "status", "verdict", "gates", "rows", "timing",
    "says",
];

/// Texts of section 12: what no bag can prove. After them come [`drawn_says`] and what is said of
/// mapped files.
const SAYS: [&str; 3] = [
    "when the preregistration was written: the ledger's chain and its copies elsewhere say \
     that",
    "that no other run was made: the marker and the ledger's nonce say that, on the hosts \
     that share them",
    "addresses, witnesses, capture state, warnings, denials, poison and timed nanoseconds \
     are attested by the program",
];
const SAYS_MAPPED: &str = "mapped files are those of a program and of what it had started when it \
                           was looked at: what came and went between, code without a file and \
                           who computes elsewhere are not seen";
const SAYS_MAPPED_FIRST: &str = "mapped files are those of a program and of what it had started \
                                 when it was looked at: a process that came and went between is \
                                 not seen";
const SAYS_DRAWN_NONCE: &str = "drawn inputs follow from the nonce by the fixture's recipe, which \
                                a reader without the recipes can't repeat";
const SAYS_DRAWN_SALT: &str = "drawn inputs follow from the marker's salt by the fixture's recipe, \
                               which a reader without the recipes can't repeat";
const SAYS_NONE_DRAWN: &str = "no input was drawn: a program that has the published answers and \
                               computes nothing would pass";
const SAYS_DEVICES: &str = "that a case was computed on its device is attested by the program; \
                            that the host had it, and who held it, by the controller";
const SAYS_REHEARSAL: &str = "this was a rehearsal: a null program played the candidate";
const SAYS_ABORTED: &str = "the run did not end by itself: nothing after its end was judged";

/// Judges one `analysis.json`. Failures of the bag that it does not have are findings.
pub(crate) fn judge(
    report: &mut Report,
    tree: &Tree,
    path: &str,
    bag: &str,
    content: &Content,
    judgement: &Judgement,
) -> Option<Stored> {
    let value = record(report, tree, path)?;
    let mut record = Record::new(report, path);
    let map = record.fields(&value, "", &FIELDS, &[])?;
    record.schema(map, "packhouse/analysis/1");
    let other = |record: &mut Record<'_>, name: &str, code: &'static str, is: &str| {
        let said = record.text(map, name)?;
        if said != is {
            record.find(code, format!("`{name}` is {said:?}, the bag gives {is:?}"));
        }
        Some(said)
    };
    // As what it can't be, it is no analysis at all.
    record.word(map, "kind", &["run", "rehearsal"])?;
    record.word(map, "status", &["complete", "stopped", "aborted"])?;
    record.word(map, "verdict", &["pass", "fail", "abort"])?;
    other(&mut record, "bag", "analysis.bag", bag);
    other(&mut record, "packet", "analysis.packet", &content.digest);
    let kind = if content.is_rehearsal() {
        "rehearsal"
    } else {
        "run"
    };
    let status = content.run.as_ref().map_or("aborted", |run| &run.status);
    other(&mut record, "kind", "analysis.verdict", kind);
    other(&mut record, "status", "analysis.verdict", status);
    let verdict = judgement.verdict.name();
    let verdict = other(&mut record, "verdict", "analysis.verdict", verdict);
    let analyzer = record.digest(map, "analyzer");
    says(&mut record, map, content);
    gates(&mut record, map, content, judgement);
    rows(&mut record, map, judgement);
    timing(&mut record, map, judgement);
    Some(Stored {
        verdict: verdict?,
        analyzer: analyzer?,
    })
}

/// Whether a run's marker is of the first schema.
fn is_first(content: &Content) -> bool {
    !content.is_rehearsal() && matches!(content.source, Source::Nonce(_))
}

/// What is said of drawn inputs.
fn drawn_says(content: &Content) -> &'static str {
    match (content.source, content.has_drawn || is_first(content)) {
        (_, false) => SAYS_NONE_DRAWN,
        (Source::Salt(_), true) => SAYS_DRAWN_SALT,
        (Source::Nonce(_) | Source::Unknown, true) => SAYS_DRAWN_NONCE,
    }
}

fn says(record: &mut Record<'_>, map: &Map, content: &Content) -> Option<()> {
    let said = record.texts(map, "says")?;
    let mut expected: Vec<&str> = SAYS.to_vec();
    expected.push(drawn_says(content));
    expected.push(match is_first(content) {
        true => SAYS_MAPPED_FIRST,
        false => SAYS_MAPPED,
    });
    let prereg = content.prereg.as_ref().filter(|_| !is_first(content));
    if prereg.is_some_and(|prereg| prereg.devices.iter().any(|name| name != "cpu")) {
        expected.push(SAYS_DEVICES);
    }
    if content.is_rehearsal() {
        expected.push(SAYS_REHEARSAL);
    }
    if content.is_aborted() {
        expected.push(SAYS_ABORTED);
    }
    if said != expected {
        record.find("analysis.verdict", "`says` has other texts than section 12");
    }
    Some(())
}

const GATE: [&str; 8] = [
    "gate",
    "basis",
    "decides",
    "passed",
    "threshold",
    "measured",
    "failures",
    "failure_count",
];

/// What a stored gate says.
struct Said {
    name: String,
    basis: String,
    decides: bool,
    passed: Option<bool>,
    threshold: String,
    measured: String,
    failures: Vec<String>,
    count: u64,
}

fn gates(
    record: &mut Record<'_>,
    map: &Map,
    content: &Content,
    judgement: &Judgement,
) -> Option<()> {
    let mut said = Vec::new();
    for item in record.list(map, "gates")? {
        let own = record.fields(item, "gates", &GATE, &[])?;
        said.push(Said {
            name: record.text(own, "gate")?,
            basis: record.word(own, "basis", &["verified", "attested", "mixed"])?,
            decides: record.boolean(own, "decides")?,
            passed: match own.get("passed") {
                Some(Json::Null) => None,
                _ => Some(record.boolean(own, "passed")?),
            },
            threshold: record.text(own, "threshold")?,
            measured: record.text(own, "measured")?,
            failures: record.texts(own, "failures")?,
            count: record.integer(own, "failure_count")?,
        });
    }
    let names = said.iter().map(|gate| gate.name.as_str());
    if !names.eq(judgement.gates.iter().map(|gate| gate.name)) {
        record.find("analysis.gate", "has other gates, or in another order");
    }
    // Of a bag that is broken as records, two readers need not count the same failures.
    let is_readable = judgement
        .gates
        .first()
        .is_some_and(|gate| gate.failures.is_empty());
    for gate in &judgement.gates {
        let own = said.iter().find(|said| {
            let is_witness = gate.name != "witness" || said.threshold == gate.threshold;
            said.name == gate.name && is_witness
        });
        let Some(own) = own else {
            record.find("analysis.gate", format!("has no gate {}", gate.name));
            continue;
        };
        one(record, own, gate, is_readable);
        unsaid(record, own, gate, content);
    }
    Some(())
}

/// Holds one stored gate against what the bag gives.
fn one(record: &mut Record<'_>, said: &Said, gate: &Gate, is_readable: bool) {
    let words = |passed: Option<bool>| match passed {
        Some(true) => "passed",
        Some(false) => "not passed",
        None => "not judged",
    };
    let mut differ = |what: &str, said: &str, is: &str| {
        let name = gate.name;
        let words = format!("{name}: {what} is {said:?}, the bag gives {is:?}");
        record.find("analysis.gate", words);
    };
    if said.passed != gate.passed {
        differ("passed", words(said.passed), words(gate.passed));
    }
    if said.basis != gate.basis || said.decides != gate.decides {
        differ("basis or decides", &said.basis, gate.basis);
    }
    if said.threshold != gate.threshold {
        differ("threshold", &said.threshold, &gate.threshold);
    }
    let is_counted = is_readable || (gate.name != "records" && gate.failures.is_empty());
    if is_counted && said.measured != gate.measured {
        differ("measured", &said.measured, &gate.measured);
    }
    let is = gate.failures.len() as u64;
    // Of what need not be counted alike, the gate's own numbers still have to be one.
    let measured = gate
        .measured
        .replacen(&format!(" = {is}"), &format!(" = {}", said.count), 1);
    let is_of_faults = gate.threshold.ends_with(" = 0");
    if !is_counted && is_of_faults && said.measured != measured {
        differ("measured", &said.measured, &measured);
    }
    if is_counted && said.count != is {
        differ("failure_count", &said.count.to_string(), &is.to_string());
    }
    if said.failures.len() as u64 != said.count.min(20) {
        differ("the list of failures", "of another length", "the first 20");
    }
    let codes: BTreeSet<&str> = gate.failures.iter().map(|(code, _)| *code).collect();
    for failure in &said.failures {
        let (code, path) = code_and_path(failure);
        if is_readable && (!codes.contains(code) || path.is_empty()) {
            differ("a failure", failure, "none of this code");
        }
    }
}

/// Splits a stored failure: `code: path: words`.
fn code_and_path(failure: &str) -> (&str, &str) {
    let (code, rest) = failure.split_once(": ").unwrap_or((failure, ""));
    (code, rest.split_once(": ").map_or("", |(path, _)| path))
}

/// Makes findings of the failures that a stored gate does not have.
fn unsaid(record: &mut Record<'_>, said: &Said, gate: &Gate, content: &Content) {
    let all = said.failures.iter();
    let told: BTreeSet<(&str, &str)> = all.map(|failure| code_and_path(failure)).collect();
    let own = gate.failures.iter();
    let own: BTreeSet<(&str, &str)> = own.map(|(code, path)| (*code, &**path)).collect();
    let is_unsaid = |finding: &&Finding| {
        let is_own = own.contains(&(finding.code, finding.path.as_str()));
        let is_told = told.contains(&(finding.code, finding.path.as_str()));
        is_own && !is_told && said.count <= 20
    };
    let found: Vec<Finding> = content
        .report
        .findings
        .iter()
        .filter(is_unsaid)
        .cloned()
        .collect();
    for finding in found {
        let path = format!("bag/data/{}", finding.path);
        record.report.find(finding.code, &path, finding.words);
    }
}

fn rows(record: &mut Record<'_>, map: &Map, judgement: &Judgement) -> Option<()> {
    let said = record.list(map, "rows")?;
    let fields = [
        "leg",
        "device",
        "treatment",
        "fixture",
        "arm",
        "index",
        "width",
        "repeat",
        "boundary",
        "sha256",
        "equal",
    ];
    for row in said {
        if let Some(own) = record.fields(row, "rows", &fields, &[]) {
            for name in ["leg", "index", "width", "repeat"] {
                record.integer(own, name);
            }
            for name in ["device", "treatment", "fixture", "arm", "boundary"] {
                record.text(own, name);
            }
            record.digest(own, "sha256");
            record.boolean(own, "equal");
        }
    }
    if said != judgement.rows {
        let differs = said.iter().zip(&judgement.rows).position(|(a, b)| a != b);
        let at = differs.unwrap_or(said.len().min(judgement.rows.len()));
        let (a, b) = (said.len(), judgement.rows.len());
        let words = format!("row {at} is another; {a} rows, the bag gives {b}");
        record.find("analysis.row", words);
    }
    Some(())
}

fn timing(record: &mut Record<'_>, map: &Map, judgement: &Judgement) -> Option<()> {
    let said = record.list(map, "timing")?;
    let fields = [
        "leg",
        "device",
        "blocks",
        "wins",
        "savings",
        "median",
        "sign_test_p",
        "hodges_lehmann",
        "bootstrap_lower_95",
    ];
    for item in said {
        if let Some(own) = record.fields(item, "timing", &fields, &[]) {
            for name in ["leg", "blocks", "wins"] {
                record.integer(own, name);
            }
            for name in ["device", "sign_test_p"] {
                record.text(own, name);
            }
            let savings = record.list(own, "savings").unwrap_or_default();
            let single = ["median", "hodges_lehmann", "bootstrap_lower_95"];
            for value in savings
                .iter()
                .chain(single.iter().filter_map(|name| own.get(*name)))
            {
                fraction(record, value);
            }
        }
    }
    let expected: Vec<Json> = judgement
        .timing
        .iter()
        .map(|figures| figures.json())
        .collect();
    if said != expected {
        for (said, is) in said.iter().zip(&expected) {
            if let (Json::Object(said), Json::Object(is)) = (said, is) {
                for (name, value) in is
                    .iter()
                    .filter(|(name, value)| said.get(*name) != Some(value))
                {
                    let words = format!("`{name}`: the bag gives {}", value.render());
                    record.find("analysis.timing", words);
                }
            }
        }
        if said.len() != expected.len() {
            let words = format!("{} legs, the bag gives {}", said.len(), expected.len());
            record.find("analysis.timing", words);
        }
    }
    Some(())
}

/// Reads a fraction: its numerator is text, for it may be too long for an integer.
fn fraction(record: &mut Record<'_>, value: &Json) -> Option<()> {
    let map = record.fields(value, "timing", &["numerator", "denominator"], &[])?;
    let is = |text: &str| {
        text.parse::<i128>()
            .is_ok_and(|number| number.to_string() == text)
    };
    record.formed(map, "numerator", "an integer in decimal", is)?;
    record.within(map, "denominator", 1, u64::MAX).map(|_| ())
}
