//! The gates that a preregistration declares, but timing.

use super::answers::Good;
use super::sessions::Session;
use crate::analysis::{Basis, Gate};
use crate::evidence::Failure;
use crate::prereg::{GateRule, Treatment};
use packhouse_component::check::Place;
use packhouse_component::message::{Capture, CaseOrder, Witness};
use std::collections::BTreeMap;

/// A session, and its answers without a fault.
pub(crate) struct Judged<'a> {
    /// Path of its leg's exchange.
    pub(crate) path: String,
    /// Whose it is.
    pub(crate) treatment: Treatment,
    /// The session.
    pub(crate) session: &'a Session,
    /// Its answers without a fault.
    pub(crate) good: Vec<Good<'a>>,
}

/// A gate that was judged, before it is known whether it passed.
pub(crate) struct Measure {
    /// Its name.
    pub(crate) gate: &'static str,
    /// Where its measure comes from.
    pub(crate) basis: Basis,
    /// Whether it asks something of the candidate itself.
    pub(crate) is_of_candidate: bool,
    /// Whether there was something to ask.
    pub(crate) was_asked: bool,
    /// What it demands.
    pub(crate) threshold: String,
    /// What was found.
    pub(crate) measured: String,
    /// What is not so.
    pub(crate) failures: Vec<Failure>,
}

impl Measure {
    /// The gate of an analysis.
    pub(crate) fn gate(&self, is_rehearsal: bool, is_aborted: bool) -> Gate {
        let passed = match (self.failures.is_empty(), self.was_asked && !is_aborted) {
            (false, _) => Some(false),
            (true, true) => Some(true),
            (true, false) => None,
        };
        let told = self.failures.iter().take(crate::analysis::FAILURES_MAX);
        Gate {
            gate: self.gate.to_owned(),
            basis: self.basis,
            decides: !(is_rehearsal && self.is_of_candidate),
            passed,
            threshold: self.threshold.clone(),
            measured: self.measured.clone(),
            failures: told.map(ToString::to_string).collect(),
            failure_count: self.failures.len() as u64,
        }
    }
}

/// Judges one declared gate.
pub(crate) fn measure(rule: &GateRule, sessions: &[Judged<'_>]) -> Measure {
    let mine = || {
        sessions
            .iter()
            .filter(|one| one.treatment == Treatment::Candidate)
    };
    let has_answers = mine().any(|one| !one.good.is_empty());
    let has_hello = mine().any(|one| one.session.introduction.is_some());
    let counted = |word: &str, was_asked, basis, failures: Vec<Failure>| Measure {
        gate: rule.word(),
        basis,
        is_of_candidate: true,
        was_asked,
        threshold: format!("{word} = 0"),
        measured: format!("{word} = {}", failures.len()),
        failures,
    };
    match rule {
        GateRule::FreshInputs => Measure {
            is_of_candidate: false,
            ..counted(
                "stale",
                sessions
                    .iter()
                    .any(|one| one.session.turns.iter().any(is_answered)),
                Basis::Verified,
                sessions.iter().flat_map(stale).collect(),
            )
        },
        GateRule::StablePointers => {
            let failures = mine().flat_map(moved).collect();
            counted("moved", has_answers, Basis::Attested, failures)
        }
        GateRule::Poisoned => {
            let failures = mine().filter_map(unpoisoned).collect();
            counted("unpoisoned", has_hello, Basis::Attested, failures)
        }
        GateRule::NoWarnings => {
            let failures = mine().flat_map(warnings).collect();
            counted("warnings", has_answers, Basis::Attested, failures)
        }
        GateRule::CaptureIdle => {
            let failures = mine().flat_map(not_idle).collect();
            counted("not idle", has_answers, Basis::Attested, failures)
        }
        GateRule::Witness {
            path,
            counter,
            minimum,
        } => witness(path, counter, *minimum, &mine().collect::<Vec<_>>()),
        GateRule::Denial { denies } => denial(denies, &mine().collect::<Vec<_>>()),
    }
}

fn is_answered(turn: &super::sessions::Turn) -> bool {
    use super::sessions::Said;
    let reply = turn.reply.as_ref();
    reply.is_some_and(|reply| matches!(reply.said, Said::Answer(_)))
}

/// Cases with the inputs of an earlier one that is another case.
fn stale(judged: &Judged<'_>) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut seen: BTreeMap<Vec<String>, &CaseOrder> = BTreeMap::new();
    for good in &judged.good {
        let order = &good.case.turn.order;
        let inputs = order.inputs.iter();
        let inputs = inputs.map(|(role, input)| format!("{role} {}", input.sha256));
        let key = [order.fixture.clone(), order.arm.clone()]
            .into_iter()
            .chain(inputs)
            .collect();
        match seen.get(&key) {
            None => {
                seen.insert(key, order);
            }
            Some(earlier) if (earlier.width, earlier.repeat) == (order.width, order.repeat) => {}
            Some(earlier) => {
                let words = format!(
                    "case {} has the inputs of case {}",
                    order.index, earlier.index
                );
                failures.push(judged.failure("inputs.stale", good.case.turn.line, words));
            }
        }
    }
    failures
}

/// Boundaries that lie elsewhere than in the first case of their fixture, arm and width.
fn moved(judged: &Judged<'_>) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut first: BTreeMap<(&str, &str, u64, &str), (&Place, u64)> = BTreeMap::new();
    for good in &judged.good {
        let order = &good.case.turn.order;
        for (boundary, place) in &good.checked.attested().boundaries {
            let key = (
                order.fixture.as_str(),
                order.arm.as_str(),
                order.width,
                boundary.as_str(),
            );
            let (before, index) = first.entry(key).or_insert((place, order.index));
            if *before != place {
                let words = format!(
                    "boundary {boundary} of case {} at {:#x}, of case {index} at {:#x}",
                    order.index, place.start, before.start,
                );
                failures.push(judged.failure("pointers.moved", reply_line(good), words));
            }
        }
    }
    failures
}

fn unpoisoned(judged: &Judged<'_>) -> Option<Failure> {
    let (line, hello) = judged.session.introduction.as_ref()?;
    let words = format!("{} does not say that it poisons", hello.name);
    (!hello.poisons).then(|| judged.failure("poison", *line, words))
}

fn warnings<'a>(judged: &'a Judged<'_>) -> impl Iterator<Item = Failure> + 'a {
    judged.good.iter().flat_map(|good| {
        let warnings = good.checked.attested().warnings.iter();
        warnings.map(|warning| judged.failure("warning", reply_line(good), warning.clone()))
    })
}

fn not_idle<'a>(judged: &'a Judged<'_>) -> impl Iterator<Item = Failure> + 'a {
    judged.good.iter().filter_map(|good| {
        let capture = good.checked.attested().capture;
        let words = format!("capture {}", capture.id());
        (capture != Capture::Idle).then(|| judged.failure("capture", reply_line(good), words))
    })
}

fn witness(path: &str, counter: &str, minimum: u64, sessions: &[&Judged<'_>]) -> Measure {
    let name = format!("{path}.{counter}");
    let (mut least, mut failures) = (None, Vec::new());
    for judged in sessions {
        for good in &judged.good {
            let counted = counted(&good.checked.attested().witnesses, path, counter);
            least = Some(least.unwrap_or(u64::MAX).min(counted));
            if counted < minimum {
                let words = format!("{name} = {counted}, expected {minimum} or more");
                failures.push(judged.failure("witness", reply_line(good), words));
            }
        }
    }
    Measure {
        gate: "witness",
        basis: Basis::Attested,
        is_of_candidate: true,
        was_asked: least.is_some(),
        threshold: format!("{name} >= {minimum}"),
        measured: format!("{name} = {}", least.unwrap_or(0)),
        failures,
    }
}

/// The largest count of a path; 0 where it has none.
fn counted(witnesses: &[Witness], path: &str, counter: &str) -> u64 {
    let of_path = witnesses.iter().filter(|witness| witness.path == path);
    let counts = of_path.filter_map(|witness| witness.counters.get(counter).copied());
    counts.max().unwrap_or(0)
}

fn denial(denies: &[String], sessions: &[&Judged<'_>]) -> Measure {
    let mut failures = Vec::new();
    let mut denied: Vec<&str> = denies.iter().map(String::as_str).collect();
    let mut was_asked = false;
    for judged in sessions {
        let Some((line, hello)) = &judged.session.introduction else {
            continue;
        };
        was_asked = true;
        for name in denies.iter().filter(|name| !hello.denies.contains(name)) {
            let words = format!("{} does not deny {name}", hello.name);
            failures.push(judged.failure("denial", *line, words));
            denied.retain(|denied| denied != name);
        }
    }
    let measured = match (was_asked, denied.is_empty()) {
        (true, false) => denied.join(", "),
        (true, true) | (false, _) => "nothing".to_owned(),
    };
    Measure {
        gate: "denial",
        basis: Basis::Attested,
        is_of_candidate: true,
        was_asked,
        threshold: format!("denies {}", denies.join(", ")),
        measured: format!("denies {measured}"),
        failures,
    }
}

fn reply_line(good: &Good<'_>) -> u64 {
    let reply = good.case.turn.reply.as_ref();
    reply.map_or(good.case.turn.line, |reply| reply.line)
}

impl Judged<'_> {
    fn failure(&self, code: &'static str, line: u64, words: String) -> Failure {
        Failure::new(code, format!("{}:{line}", self.path), words)
    }
}
