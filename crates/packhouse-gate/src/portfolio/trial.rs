//! The one load that a portfolio's admission allows: candidate, control, candidate of one binary.
//!
//! - The order is B, A, B and nothing else, so that a drift that is linear in time gains nothing.
//! - Every leg is of one binary, whose flags alone make the arms, and each is a fresh start.
//! - The figure over the control is of the mean; only the lower start may be published.

use crate::suite::is_figure;
use packhouse_base::Blame;
use std::fmt;

/// Which arm a leg ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// A: no part is on.
    Control,
    /// B: every part is on.
    Candidate,
}

impl Arm {
    /// The order of a trial's legs.
    pub const ORDER: [Self; 3] = [Self::Candidate, Self::Control, Self::Candidate];
}

impl fmt::Display for Arm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Control => "control",
            Self::Candidate => "candidate",
        })
    }
}

/// One leg of a trial, in the order that they were run.
#[derive(Clone, Debug, PartialEq)]
pub struct Leg {
    /// Its arm.
    pub arm: Arm,
    /// The binary, by its digest.
    pub binary: String,
    /// The start, by what tells it from every other: no two legs have the same.
    pub start: String,
    /// Its headline, tokens per second.
    pub headline: f64,
    /// Why it is no evidence. Empty where it is.
    pub faults: Vec<String>,
}

/// What a trial shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// `(B1 + B2) / 2 - A`, tokens per second.
    pub mean_delta: f64,
    /// `100 ((B1 + B2) / 2 - A) / A`.
    pub mean_percent: f64,
    /// The lower start of the candidate: no other figure may be published.
    pub publishable: f64,
    /// Whether both starts of the candidate are above the control.
    pub is_reproduced: bool,
}

/// Why legs are no trial.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoTrial {
    /// There are not three legs.
    #[error("there are {legs} legs, expected 3: candidate, control, candidate")]
    Count {
        /// Legs there are.
        legs: usize,
    },
    /// A leg is not of the arm whose turn it was.
    #[error("leg {leg} is of the {actual}, expected the {expected}")]
    Order {
        /// The leg, counted from 0.
        leg: usize,
        /// The arm whose turn it was.
        expected: Arm,
        /// The arm that it is of.
        actual: Arm,
    },
    /// A leg ran another binary than the first one.
    #[error("leg {leg} ran binary {actual}, leg 0 ran {expected}")]
    Binary {
        /// The leg, counted from 0.
        leg: usize,
        /// The first leg's.
        expected: String,
        /// Its own.
        actual: String,
    },
    /// Two legs are of one start.
    #[error("leg {leg} is of start {start}, which an earlier one is of")]
    Start {
        /// The later leg, counted from 0.
        leg: usize,
        /// The start.
        start: String,
    },
    /// A leg is no evidence.
    #[error("leg {leg} is no evidence: {fault}")]
    Fault {
        /// The leg, counted from 0.
        leg: usize,
        /// The first reason.
        fault: String,
    },
    /// A headline is not above zero, or no number.
    #[error("the headline of leg {leg} is {value}, expected a number above 0")]
    Headline {
        /// The leg, counted from 0.
        leg: usize,
        /// Its headline.
        value: f64,
    },
}

impl NoTrial {
    /// Whose side it is on: whoever ran it.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Count { .. }
            | Self::Order { .. }
            | Self::Binary { .. }
            | Self::Start { .. }
            | Self::Fault { .. }
            | Self::Headline { .. } => Blame::Caller,
        }
    }
}

impl Trial {
    /// Takes the legs of a trial, in the order that they were run.
    pub fn of(legs: &[Leg]) -> Result<Self, NoTrial> {
        let [first, control, second] = legs else {
            let legs = legs.len();
            return Err(NoTrial::Count { legs });
        };
        for (leg, (one, expected)) in legs.iter().zip(Arm::ORDER).enumerate() {
            in_order(leg, one, expected, first)?;
            if legs[..leg].iter().any(|before| before.start == one.start) {
                let start = one.start.clone();
                return Err(NoTrial::Start { leg, start });
            }
        }
        let [first, control, second] = [first, control, second].map(|leg| leg.headline);
        let mean_delta = (first + second) / 2.0 - control;
        Ok(Self {
            mean_delta,
            mean_percent: 100.0 * mean_delta / control,
            publishable: first.min(second),
            is_reproduced: first.min(second) > control,
        })
    }

    /// Whether the lower start is above the record: the mean is never held against it.
    pub fn is_above(&self, record: f64) -> bool {
        record.is_finite() && record > 0.0 && self.publishable > record
    }
}

fn in_order(leg: usize, one: &Leg, expected: Arm, first: &Leg) -> Result<(), NoTrial> {
    if one.arm != expected {
        let actual = one.arm;
        return Err(NoTrial::Order {
            leg,
            expected,
            actual,
        });
    }
    if one.binary != first.binary {
        let (expected, actual) = (first.binary.clone(), one.binary.clone());
        return Err(NoTrial::Binary {
            leg,
            expected,
            actual,
        });
    }
    if let Some(fault) = one.faults.first().cloned() {
        return Err(NoTrial::Fault { leg, fault });
    }
    let value = one.headline;
    match value > 0.0 && is_figure(value) {
        true => Ok(()),
        false => Err(NoTrial::Headline { leg, value }),
    }
}
