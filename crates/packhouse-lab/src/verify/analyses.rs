//! Analyses beside a bag, each against what the bag gives.

use super::{Evidence, Finding, Read};
use crate::analysis::{Analysis, Kind};
use crate::gates::{Judgement, judge_read as gates};
use crate::recipes::Recipes;
use packhouse_bag::BAG_DIR;
use packhouse_bag::seal::{ANALYSIS_FILE, analysis_dir, envelope_name, seal_name};
use packhouse_base::digest::Digest;
use std::collections::BTreeSet;

/// An analysis that lies there.
pub(crate) struct Stored {
    /// Its number.
    pub(crate) number: u64,
    /// SHA-256 of its bytes.
    pub(crate) digest: Digest,
    /// What it says; none where it is broken.
    pub(crate) analysis: Option<Analysis>,
}

/// All that lies beside the bag.
pub(crate) struct Beside {
    /// The analyses, by rising number.
    pub(crate) stored: Vec<Stored>,
    /// The numbers of seals.
    pub(crate) seals: BTreeSet<u64>,
    /// Whether the bag is a rehearsal's, which has no seal.
    pub(crate) is_rehearsal: bool,
}

/// The numbers of what lies beside the bag.
pub(crate) struct Numbers {
    analyses: BTreeSet<u64>,
    seals: BTreeSet<u64>,
}

/// Sorts what lies beside the bag; what has no place there is a finding.
pub(crate) fn numbers(evidence: &Evidence, findings: &mut Vec<Finding>) -> Numbers {
    let mut numbers = Numbers {
        analyses: BTreeSet::new(),
        seals: BTreeSet::new(),
    };
    for path in evidence.files.paths() {
        let top = path.split('/').next().unwrap_or_default();
        if top == BAG_DIR {
            continue;
        }
        let analysis = number(top, "analysis-", "");
        let seal = number(path, "seal-", ".json");
        let envelope = number(path, "seal-", ".dsse.json");
        let is_analysis = analysis
            .is_some_and(|number| path == format!("{}/{ANALYSIS_FILE}", analysis_dir(number)));
        match (analysis, seal, envelope) {
            (Some(number), ..) if is_analysis => {
                numbers.analyses.insert(number);
            }
            (_, Some(number), _) => {
                numbers.seals.insert(number);
            }
            (_, _, Some(number)) => {
                if evidence.files.get(&seal_name(number)).is_none() {
                    let words = format!("{} without its seal", envelope_name(number));
                    findings.push(Finding::new("seal.missing", path, words));
                }
            }
            (Some(_) | None, None, None) => {
                findings.push(Finding::new("bag.unlisted", path, "has no place here"));
            }
        }
    }
    numbers
}

/// Compares each analysis with the bag: all of it that every analyzer must agree about, and of the
/// newest one everything. What an earlier analyzer found stays as it was found.
pub(crate) fn judge(
    evidence: &Evidence,
    read: &Read,
    numbers: &Numbers,
    recipes: &Recipes,
    findings: &mut Vec<Finding>,
) -> Beside {
    let newest = numbers.analyses.last().copied();
    let mut stored = Vec::new();
    let mut analyzers = BTreeSet::new();
    for number in &numbers.analyses {
        let path = format!("{}/{ANALYSIS_FILE}", analysis_dir(*number));
        let bytes = evidence.files.get(&path).unwrap_or_default();
        let analysis = match Analysis::parse(bytes) {
            Ok(analysis) => Some(analysis),
            Err(error) => {
                findings.push(Finding::new(error.code(), &path, error));
                None
            }
        };
        if let Some(analysis) = &analysis {
            if !analyzers.insert(analysis.analyzer) {
                let words = format!("analyzer {} is that of an earlier one", analysis.analyzer);
                findings.push(Finding::new("analysis.number", &path, words));
            }
            // The first verdict is by what the packet froze, or builds could be tried in secret.
            let frozen = read.reading.packet.as_ref().map(|packet| packet.analyzer);
            if *number == 1 && frozen.is_some_and(|frozen| frozen != analysis.analyzer) {
                let words = format!("{}, the packet froze another", analysis.analyzer);
                findings.push(Finding::new("analysis.analyzer", &path, words));
            }
            let is_newest = Some(*number) == newest;
            let judged = gates(&read.bag, &read.reading, analysis.analyzer, recipes);
            compare(&path, analysis, &judged, is_newest, findings);
        }
        stored.push(Stored {
            number: *number,
            digest: Digest::of(bytes),
            analysis,
        });
    }
    let is_rehearsal = read.reading.kind() == Kind::Rehearsal;
    gaps(&numbers.analyses, findings);
    if stored.is_empty() {
        // Without an analysis, nothing else says what the bag lacks.
        findings.push(Finding::new(
            "analysis.missing",
            analysis_dir(1),
            "not there",
        ));
        let judged = gates(
            &read.bag,
            &read.reading,
            Digest::from_bytes([0; 32]),
            recipes,
        );
        tell(&judged, None, findings);
    }
    Beside {
        stored,
        seals: numbers.seals.clone(),
        is_rehearsal,
    }
}

fn compare(
    path: &str,
    stored: &Analysis,
    judged: &Judgement,
    is_newest: bool,
    findings: &mut Vec<Finding>,
) {
    let made = &judged.analysis;
    let mut other = |code: &'static str, is_equal: bool, words: String| {
        if !is_equal {
            findings.push(Finding::new(code, path, words));
        }
    };
    let words = |stored: Digest, made: Digest| format!("{stored}, is {made}");
    other(
        "analysis.bag",
        stored.bag == made.bag,
        words(stored.bag, made.bag),
    );
    other(
        "analysis.packet",
        stored.packet == made.packet,
        words(stored.packet, made.packet),
    );
    if !is_newest {
        return;
    }
    let verdict = format!(
        "{}, the bag gives {}",
        stored.verdict.as_str(),
        made.verdict.as_str()
    );
    other("analysis.verdict", stored.verdict == made.verdict, verdict);
    let is_same =
        (stored.kind, stored.status, &stored.says) == (made.kind, made.status, &made.says);
    other(
        "analysis.verdict",
        is_same,
        "kind, status or says are others".to_owned(),
    );
    let gates = made
        .gates
        .iter()
        .zip(&stored.gates)
        .find(|(made, stored)| made != stored);
    let gate = gates.map_or("other gates".to_owned(), |(made, _)| {
        format!("gate {}", made.gate)
    });
    other("analysis.gate", stored.gates == made.gates, gate);
    other(
        "analysis.row",
        stored.rows == made.rows,
        "the bag gives other rows".to_owned(),
    );
    other(
        "analysis.timing",
        stored.timing == made.timing,
        "the bag gives another".to_owned(),
    );
    if stored != made {
        tell(judged, Some(stored), findings);
    }
}

/// Tells the failures of a bag that the stored analysis does not have.
fn tell(judged: &Judgement, stored: Option<&Analysis>, findings: &mut Vec<Finding>) {
    let gates = stored.into_iter().flat_map(|stored| &stored.gates);
    let told: BTreeSet<&str> = gates
        .flat_map(|gate| &gate.failures)
        .filter_map(|failure| code_and_path(failure))
        .collect();
    for failure in &judged.failures {
        let text = failure.to_string();
        let is_told = code_and_path(&text).is_some_and(|text| told.contains(text));
        if !is_told {
            let path = format!("{BAG_DIR}/data/{}", failure.path);
            findings.push(Finding::new(failure.code, path, &failure.words));
        }
    }
}

/// The code and path of a failure's text.
fn code_and_path(text: &str) -> Option<&str> {
    let code = text.find(": ")?;
    let path = text[code + 2..].find(": ")?;
    Some(&text[..code + 2 + path])
}

/// Numbers begin at 1 and have no gap.
fn gaps(numbers: &BTreeSet<u64>, findings: &mut Vec<Finding>) {
    for (expected, number) in (1..).zip(numbers) {
        if expected != *number {
            let words = format!("number {number}, expected {expected}");
            findings.push(Finding::new(
                "analysis.number",
                analysis_dir(*number),
                words,
            ));
            return;
        }
    }
}

fn number(text: &str, before: &str, behind: &str) -> Option<u64> {
    let digits = text.strip_prefix(before)?.strip_suffix(behind)?;
    let number: u64 = digits.parse().ok()?;
    (number > 0 && number.to_string() == digits).then_some(number)
}
