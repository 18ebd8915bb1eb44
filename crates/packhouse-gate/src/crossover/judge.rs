//! The gates of a crossover, all of them listed, and what they come to.

use super::{Bound, Detectable, Leg, NoPair, Pair, SameWork, Thresholds};
use crate::text::shortest;
use packhouse_base::Blame;
use std::fmt;

/// The gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// The legs are evidence: none has a fault.
    Quality,
    /// The candidate's headline against the control's.
    Headline,
    /// Rows won.
    RowWins,
    /// The median of the rows' percents.
    MedianPercent,
    /// What a cycle saves.
    CycleSaving,
    /// How alike the draft's work is.
    Work,
    /// How far the control is from the record.
    ControlHealth,
    /// The candidate's lower start against the control's lower.
    Reproducibility,
    /// The candidate's lower start against the record.
    Floor,
}

impl fmt::Display for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Quality => "quality",
            Self::Headline => "headline",
            Self::RowWins => "row-wins",
            Self::MedianPercent => "median-percent",
            Self::CycleSaving => "cycle-saving",
            Self::Work => "work",
            Self::ControlHealth => "control-health",
            Self::Reproducibility => "reproducibility",
            Self::Floor => "floor",
        })
    }
}

/// What a gate came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Which.
    pub gate: Gate,
    /// The pair that it is of, 1 or 2; none where it is of all legs.
    pub pair: Option<u8>,
    /// Whether it was met.
    pub passed: bool,
    /// What was measured.
    pub measured: String,
    /// What was asked for.
    pub threshold: String,
}

/// What a crossover comes to. Nothing of it allows a next step by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Disposition {
    /// The first pair failed: the second is never run.
    PhaseOneStop,
    /// The first pair passed: the second is due.
    PhaseOnePassed,
    /// All four were run, and a gate is failed.
    NegativeOrInconclusive,
    /// All gates but the floor are passed.
    BelowFloor,
    /// All gates are passed.
    RecordCandidate {
        /// The lower start of the candidate: no other figure may be published.
        publishable: f64,
    },
}

/// All gates, and what they come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Every gate that was reached, in order.
    pub outcomes: Vec<Outcome>,
    /// What they come to.
    pub disposition: Disposition,
}

/// Why a crossover can't be judged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Misjudged {
    /// Two legs are no pair.
    #[error("pair {pair}: {reason}")]
    NoPair {
        /// The pair, 1 or 2.
        pair: u8,
        /// Why.
        reason: NoPair,
    },
    /// The second pair was run though the first had failed.
    #[error("the first pair failed at {gate}, and a second was run")]
    RunAfterStop {
        /// The first gate that was failed.
        gate: Gate,
    },
}

impl Misjudged {
    /// Whose side it is on: whoever ran it.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NoPair { .. } | Self::RunAfterStop { .. } => Blame::Caller,
        }
    }
}

/// Judges a crossover: A1 and B1, and B2 and A2 where they were run.
pub fn judge(
    thresholds: &Detectable,
    first: [&Leg; 2],
    second: Option<[&Leg; 2]>,
) -> Result<Judged, Misjudged> {
    let thresholds = thresholds.thresholds();
    let [a1, b1] = first;
    let mut outcomes = pair_gates(thresholds, 1, a1, b1)?;
    let failed = outcomes
        .iter()
        .find(|outcome| !outcome.passed)
        .map(|it| it.gate);
    let [b2, a2] = match (failed, second) {
        (Some(_), None) => {
            let disposition = Disposition::PhaseOneStop;
            return Ok(Judged {
                outcomes,
                disposition,
            });
        }
        (None, None) => {
            let disposition = Disposition::PhaseOnePassed;
            return Ok(Judged {
                outcomes,
                disposition,
            });
        }
        (Some(gate), Some(_)) => return Err(Misjudged::RunAfterStop { gate }),
        (None, Some(second)) => second,
    };
    outcomes.extend(pair_gates(thresholds, 2, a2, b2)?);
    let lower = b1.headline.min(b2.headline);
    let control = a1.headline.min(a2.headline);
    outcomes.push(Outcome {
        gate: Gate::Reproducibility,
        pair: None,
        passed: lower > control,
        measured: shortest(lower),
        threshold: format!("above {}", shortest(control)),
    });
    let is_causal = outcomes.iter().all(|outcome| outcome.passed);
    let floor = thresholds.record * thresholds.floor_ratio;
    outcomes.push(Outcome {
        gate: Gate::Floor,
        pair: None,
        passed: lower > floor,
        measured: shortest(lower),
        threshold: format!("above {}", shortest(floor)),
    });
    let disposition = match (is_causal, lower > floor) {
        (false, _) => Disposition::NegativeOrInconclusive,
        (true, false) => Disposition::BelowFloor,
        (true, true) => Disposition::RecordCandidate { publishable: lower },
    };
    Ok(Judged {
        outcomes,
        disposition,
    })
}

fn pair_gates(
    thresholds: &Thresholds,
    pair: u8,
    control: &Leg,
    candidate: &Leg,
) -> Result<Vec<Outcome>, Misjudged> {
    let figures = Pair::of(control, candidate);
    let figures = figures.map_err(|reason| Misjudged::NoPair { pair, reason })?;
    let outcome = |gate, passed, measured: String, threshold: String| {
        let pair = Some(pair);
        Outcome {
            gate,
            pair,
            passed,
            measured,
            threshold,
        }
    };
    let bound = |gate, bound: Bound, figure: f64| {
        outcome(
            gate,
            bound.is_met_by(figure),
            shortest(figure),
            shown(bound),
        )
    };
    let faults = control.faults.iter().chain(&candidate.faults);
    let faults: Vec<&str> = faults.map(String::as_str).collect();
    let mut outcomes = vec![
        outcome(
            Gate::Quality,
            faults.is_empty(),
            faults.join("; "),
            "no fault".to_owned(),
        ),
        headline(thresholds, pair, control, candidate),
        outcome(
            Gate::RowWins,
            figures.wins >= thresholds.row_wins,
            format!("{} of {}", figures.wins, control.rows.len()),
            format!("at least {}", thresholds.row_wins),
        ),
        bound(
            Gate::MedianPercent,
            thresholds.median_percent,
            figures.median_percent,
        ),
        bound(
            Gate::CycleSaving,
            thresholds.cycle_saving_ms,
            figures.cycle_saving_ms,
        ),
        work(thresholds.work, pair, &figures),
    ];
    if let Some(share) = thresholds.control_health {
        let distance = (control.headline - thresholds.record).abs() / thresholds.record;
        let passed = distance <= share;
        let threshold = format!("at most {}", shortest(share));
        outcomes.push(outcome(
            Gate::ControlHealth,
            passed,
            shortest(distance),
            threshold,
        ));
    }
    Ok(outcomes)
}

/// The candidate's headline against the control's times the ratio: a product, not a quotient, as it
/// was declared.
fn headline(thresholds: &Thresholds, pair: u8, control: &Leg, candidate: &Leg) -> Outcome {
    let bound = match thresholds.headline_ratio {
        Bound::Above(ratio) => Bound::Above(control.headline * ratio),
        Bound::AtLeast(ratio) => Bound::AtLeast(control.headline * ratio),
    };
    Outcome {
        gate: Gate::Headline,
        pair: Some(pair),
        passed: bound.is_met_by(candidate.headline),
        measured: shortest(candidate.headline),
        threshold: shown(bound),
    }
}

fn work(threshold: SameWork, pair: u8, figures: &Pair) -> Outcome {
    let (passed, measured, threshold) = match (threshold, figures.work) {
        (SameWork::NoDraft, None) => (true, "no draft".to_owned(), "no draft".to_owned()),
        (SameWork::NoDraft, Some(_)) => (false, "a draft".to_owned(), "no draft".to_owned()),
        (SameWork::Identical | SameWork::AcceptanceWithin(_), None) => {
            (false, "no draft".to_owned(), "a draft".to_owned())
        }
        (SameWork::Identical, Some(drafts)) => {
            let measured = if drafts.is_same {
                "identical"
            } else {
                "different"
            };
            (drafts.is_same, measured.to_owned(), "identical".to_owned())
        }
        (SameWork::AcceptanceWithin(most), Some(drafts)) => {
            let delta = drafts.acceptance_delta.abs();
            let threshold = format!("at most {}", shortest(most));
            (delta <= most, shortest(delta), threshold)
        }
    };
    Outcome {
        gate: Gate::Work,
        pair: Some(pair),
        passed,
        measured,
        threshold,
    }
}

fn shown(bound: Bound) -> String {
    match bound {
        Bound::Above(bound) => format!("above {}", shortest(bound)),
        Bound::AtLeast(bound) => format!("at least {}", shortest(bound)),
    }
}
