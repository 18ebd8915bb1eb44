//! What every arm of a held-out pack must show before any speed of it counts.
//!
//! - Parity is complete: every request of both speculations has the ids of the target alone, and
//!   one that differs is a failure whatever the speed.
//! - A property that nobody states is missing: there is no default that passes.

use crate::exact::{Exactness, Row};
use packhouse_base::Blame;
use std::collections::BTreeSet;

/// The rows of the three arms, request by request in one order.
#[derive(Clone, Copy, Debug)]
pub struct Arms<'a> {
    /// The target without a draft: what all others are held against.
    pub target_only: &'a [Row],
    /// The speculation that there is.
    pub current: &'a [Row],
    /// The speculation that is tried.
    pub candidate: &'a [Row],
}

/// One capture of a cycle, in the order that they were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The position of the cycle's first token.
    pub position: u64,
    /// The digest of what was captured.
    pub digest: String,
}

/// What else is shown of the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Whether every accepted token is known to come from the verifier.
    pub is_provenance_verified: Option<bool>,
    /// Whether every reuse between requests was off.
    pub is_reuse_off: Option<bool>,
    /// The ids of the requests: random ones, so no two are the same.
    pub request_ids: Vec<String>,
    /// How often a service hung.
    pub hangs: Option<u64>,
    /// How often one was started again.
    pub restarts: Option<u64>,
    /// Captures, in the order that they were taken.
    pub captures: Vec<Capture>,
    /// Tests of the service that passed, by name.
    pub passed: BTreeSet<String>,
    /// Positions whose log probabilities were compared.
    pub logprob_positions: u64,
}

/// What is asked for, declared before the packs are revealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hard {
    /// Captures, at least.
    pub captures: u64,
    /// Positions that the captures cross: from below to it, or above.
    pub crossings: BTreeSet<u64>,
    /// Tests of the service that must pass, by name.
    pub tests: BTreeSet<String>,
    /// Positions whose log probabilities are compared, at least.
    pub logprob_positions: u64,
}

/// All arms of one repetition answered alike, and all else that is asked for is shown: only
/// `Hard::judge` says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Equal(());

/// Why speeds of a pack don't count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unequal {
    /// An arm has not every request exact.
    #[error("the {arm} arm has {exact} of {rows} requests exact{first}")]
    Parity {
        /// `target-only`, `current` or `candidate`.
        arm: &'static str,
        /// Requests that are exact.
        exact: usize,
        /// Requests of the longer of both arms.
        rows: usize,
        /// The first difference, after a colon; empty where there is no request at all.
        first: String,
    },
    /// A property is not shown, or shown not to be.
    #[error("{property} is {value}, expected {expected}")]
    Property {
        /// Which.
        property: &'static str,
        /// What is shown.
        value: String,
        /// What is asked for.
        expected: String,
    },
    /// Two requests have one id.
    #[error("request {request} has the id {id}, which an earlier one has")]
    RequestId {
        /// The later request, counted from 0.
        request: usize,
        /// Its id.
        id: String,
    },
    /// A capture is what the one before it was: nothing changed between them.
    #[error("capture {capture} is what capture {before} is")]
    Unchanged {
        /// The later one, counted from 0.
        capture: usize,
        /// The one before it.
        before: usize,
    },
    /// No two captures, one after the other, cross a position.
    #[error("no capture crosses position {position}")]
    Uncrossed {
        /// The position.
        position: u64,
    },
    /// A test of the service did not pass, or was not made.
    #[error("the test {test} did not pass")]
    Test {
        /// Its name.
        test: String,
    },
}

impl Unequal {
    /// Whose side it is on: the candidate's, or whoever measured.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Parity { .. }
            | Self::Property { .. }
            | Self::RequestId { .. }
            | Self::Unchanged { .. }
            | Self::Uncrossed { .. }
            | Self::Test { .. } => Blame::Caller,
        }
    }
}

impl Hard {
    /// What the reference lab asked for.
    pub fn usual() -> Self {
        let tests = ["early-eos", "cancel", "reset", "alternating"];
        Self {
            captures: 128,
            crossings: [28, 58].into(),
            tests: tests.map(str::to_owned).into(),
            logprob_positions: 64,
        }
    }

    /// Holds the arms of one repetition of one pack, and what else is shown, against all that is
    /// asked for; lists every reason against it.
    pub fn judge(&self, arms: Arms<'_>, shown: &Shown) -> Result<Equal, Vec<Unequal>> {
        let mut reasons = parity(arms);
        reasons.extend(self.properties(arms, shown));
        reasons.extend(unique(&shown.request_ids));
        reasons.extend(self.captured(&shown.captures));
        let missing = self.tests.difference(&shown.passed);
        reasons.extend(missing.cloned().map(|test| Unequal::Test { test }));
        match reasons.is_empty() {
            true => Ok(Equal(())),
            false => Err(reasons),
        }
    }

    fn properties(&self, arms: Arms<'_>, shown: &Shown) -> Vec<Unequal> {
        let said = |value: Option<String>| value.unwrap_or("absent".to_owned());
        let truth = |value: Option<bool>| said(value.map(|it| it.to_string()));
        let count = |value: Option<u64>| said(value.map(|it| it.to_string()));
        let yes = || "true".to_owned();
        let none = || "0".to_owned();
        let exact = [
            (
                "verified provenance",
                truth(shown.is_provenance_verified),
                yes(),
            ),
            ("reuse off", truth(shown.is_reuse_off), yes()),
            ("hangs", count(shown.hangs), none()),
            ("restarts", count(shown.restarts), none()),
            (
                "request ids",
                shown.request_ids.len().to_string(),
                arms.candidate.len().to_string(),
            ),
        ];
        let exact = exact
            .into_iter()
            .filter(|(_, value, expected)| value != expected);
        let least = [
            ("captures", shown.captures.len() as u64, self.captures),
            (
                "log probability positions",
                shown.logprob_positions,
                self.logprob_positions,
            ),
        ];
        let least = least.into_iter().filter(|(_, value, least)| value < least);
        let least = least.map(|(property, value, least)| {
            (property, value.to_string(), format!("{least} or more"))
        });
        let all = exact.chain(least);
        let refused = all.map(|(property, value, expected)| Unequal::Property {
            property,
            value,
            expected,
        });
        refused.collect()
    }

    fn captured(&self, captures: &[Capture]) -> Vec<Unequal> {
        let pairs = || captures.windows(2).enumerate();
        let same = pairs().filter(|(_, pair)| pair[0].digest == pair[1].digest);
        let same = same.map(|(before, _)| Unequal::Unchanged {
            capture: before + 1,
            before,
        });
        let is_crossed = |position: u64| {
            pairs().any(|(_, pair)| pair[0].position < position && position <= pair[1].position)
        };
        let crossings = self.crossings.iter().copied();
        let crossings = crossings.filter(|position| !is_crossed(*position));
        let crossings = crossings.map(|position| Unequal::Uncrossed { position });
        same.chain(crossings).collect()
    }
}

/// The target alone is held against itself too: it must have rows, and none that was cached.
fn parity(arms: Arms<'_>) -> Vec<Unequal> {
    let target = arms.target_only;
    let named = [
        ("target-only", target),
        ("current", arms.current),
        ("candidate", arms.candidate),
    ];
    let held = named.map(|(arm, rows)| (arm, Exactness::of(target, rows)));
    let failed = held
        .into_iter()
        .filter(|(_, exactness)| !exactness.is_exact());
    let failed = failed.map(|(arm, exactness)| {
        let rows = exactness.rows.iter().enumerate();
        let first = rows
            .filter_map(|(row, reasons)| Some((row, reasons.first()?)))
            .next();
        Unequal::Parity {
            arm,
            exact: exactness.exact_rows(),
            rows: exactness.rows.len(),
            first: first.map_or(String::new(), |(row, reason)| {
                format!(": row {row}: {reason}")
            }),
        }
    });
    failed.collect()
}

fn unique(ids: &[String]) -> Option<Unequal> {
    let mut seen = BTreeSet::new();
    let again = ids.iter().enumerate().find(|(_, id)| !seen.insert(*id));
    again.map(|(request, id)| Unequal::RequestId {
        request,
        id: id.clone(),
    })
}
