//! Tampered copies of evidence, generated from its records: each must be rejected by every judge,
//! for its own reason.
//!
//! - Every field of every kind of record is removed, made another type, and changed; every object
//!   gets a field that it does not have;
//! - what is changed within the bag is closed again with right lists, so that it is not rejected
//!   for a digest in a manifest;
//! - what a run that failed or broke off would rather be is tried too, also so that all that cites
//!   it agrees;
//! - a judge that finds only something else has not rejected the tampered copy.
//!
//! Specified in `docs/format/evidence.md`, section 13.

mod agree;
mod beside;
mod edit;
mod exchange;
mod excused;
mod files;
mod lost;
mod records;

use crate::recipes::Recipes;
use crate::verify::{Evidence, findings};
use agree::{Agrees, agree};
use edit::Change;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One way to tamper with evidence.
#[derive(Clone, Debug)]
pub struct Tamper {
    /// What is done, in words.
    pub name: String,
    /// Reason codes; a judge that finds one of them has rejected it.
    pub expected: Vec<&'static str>,
    changes: Vec<Change>,
    agrees: Agrees,
}

/// Who judges evidence.
pub trait Judge: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The reason codes that it finds.
    fn codes(&self, evidence: &Evidence) -> BTreeSet<String>;
}

/// Our own analyzer.
pub struct OwnJudge<'a>(pub &'a Recipes);

/// What became of one tampered copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was done.
    pub name: String,
    /// Codes of which each judge must find one.
    pub expected: Vec<&'static str>,
    /// Judge to the codes that it found.
    pub found: Vec<(&'static str, BTreeSet<String>)>,
}

impl Tamper {
    fn within(name: String, expected: &[&'static str], changes: Vec<Change>) -> Self {
        Self {
            name,
            expected: expected.to_vec(),
            changes,
            agrees: Agrees::Bag,
        }
    }

    fn beside(name: String, expected: &[&'static str], changes: Vec<Change>) -> Self {
        Self {
            agrees: Agrees::Nothing,
            ..Self::within(name, expected, changes)
        }
    }

    fn agreeing(self, agrees: Agrees) -> Self {
        Self { agrees, ..self }
    }

    /// The tampered copy.
    pub fn apply(&self, evidence: &Evidence) -> Evidence {
        let mut copy = evidence.clone();
        for change in &self.changes {
            change.apply(&mut copy);
        }
        agree(&mut copy, self.agrees);
        copy
    }
}

impl Judge for OwnJudge<'_> {
    fn name(&self) -> &'static str {
        "lab"
    }

    fn codes(&self, evidence: &Evidence) -> BTreeSet<String> {
        findings(evidence, self.0)
            .into_iter()
            .map(|finding| finding.code.to_owned())
            .collect()
    }
}

impl Outcome {
    /// Whether every judge found an expected reason.
    pub fn is_rejected(&self) -> bool {
        !self.found.is_empty() && self.missed_by().next().is_none()
    }

    /// The judges that found none of the expected reasons.
    pub fn missed_by(&self) -> impl Iterator<Item = &(&'static str, BTreeSet<String>)> {
        self.found.iter().filter(|(_, codes)| {
            let mut expected = self.expected.iter();
            !expected.any(|expected| codes.contains(*expected))
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}", self.name, self.expected.join(" or "))?;
        for (judge, codes) in self.missed_by() {
            let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
            let codes = if codes.is_empty() {
                "nothing".to_owned()
            } else {
                codes.join(", ")
            };
            write!(f, "; {judge} found {codes}")?;
        }
        Ok(())
    }
}

/// Every way to tamper with this evidence, in a fixed order.
pub fn tampers(evidence: &Evidence) -> Vec<Tamper> {
    let mut tampers = records::tampers(evidence);
    tampers.extend(exchange::tampers(evidence));
    tampers.extend(files::tampers(evidence));
    tampers.extend(beside::tampers(evidence));
    tampers.extend(lost::tampers(evidence));
    tampers.retain(|tamper| tamper.changes.iter().any(|one| one.changes(evidence)));
    excused::excuse(evidence, &mut tampers);
    tampers
}

/// Tampers in every way, and has each copy judged by all, on as many cores as there are; or nothing
/// where `is_over` says before some copy that this process has to end. `progress` hears after each
/// copy how many of how many were judged.
pub fn run_unless(
    evidence: &Evidence,
    judges: &[&dyn Judge],
    is_over: fn() -> bool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Option<Vec<Outcome>> {
    let tampers = tampers(evidence);
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
    let share = tampers.len().div_ceil(workers).max(1);
    let judged = |tamper: &Tamper| {
        let copy = tamper.apply(evidence);
        let found = judges
            .iter()
            .map(|judge| (judge.name(), judge.codes(&copy)));
        Outcome {
            found: found.collect(),
            name: tamper.name.clone(),
            expected: tamper.expected.clone(),
        }
    };
    let done = AtomicUsize::new(0);
    let each = |tamper: &Tamper| {
        let outcome = (!is_over()).then(|| judged(tamper))?;
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, tampers.len());
        Some(outcome)
    };
    let all = |share: &[Tamper]| share.iter().map(&each).collect::<Option<Vec<Outcome>>>();
    std::thread::scope(|scope| {
        let shares = tampers.chunks(share);
        let workers: Vec<_> = shares.map(|share| scope.spawn(|| all(share))).collect();
        let outcomes = workers.into_iter().map(|worker| {
            let outcomes = worker.join();
            outcomes.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        // Every worker is joined, also those behind one that was told to end.
        let outcomes: Vec<Option<Vec<Outcome>>> = outcomes.collect();
        let outcomes: Option<Vec<Vec<Outcome>>> = outcomes.into_iter().collect();
        outcomes.map(|shares| shares.into_iter().flatten().collect())
    })
}
