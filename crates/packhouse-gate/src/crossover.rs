//! Crossovers A1, B1, (stop?), B2, A2 of fresh starts: their figures, gates and disposition.
//!
//! - Thresholds are declared; none is built in. One that can't be, or is below the noise of the
//!   controls, is refused, and only those that were held against it judge anything.
//! - Every gate is judged and listed; the conjunction decides. A gate that can't be judged is
//!   failed.
//! - After a first pair that failed there is no second: figures of one are refused.
//! - Only the lower start of the candidate can be published.
//! - Rows of one pair of starts say nothing of starts: their sign test is labelled with its unit.

mod judge;
mod thresholds;

pub use judge::{Disposition, Gate, Judged, Misjudged, Outcome, judge};

pub use thresholds::{Bound, Detectable, SameWork, Thresholds, Undetectable};

use crate::rational::Rational;
use crate::sign::{SignTest, sign_test};
use crate::suite::{NoSummary, median};
use packhouse_base::Blame;

/// What one fresh start shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Leg {
    /// Its headline, tokens per second.
    pub headline: f64,
    /// Its rows, in the suite's order.
    pub rows: Vec<Row>,
    /// Milliseconds of one cycle, over the suite: of draft and verify where there is a draft.
    pub cycle_ms: f64,
    /// What the draft did; none without speculation.
    pub work: Option<Work>,
    /// Why it is no evidence: inexact rows, cached tokens, unclean ends. Empty where it is.
    pub faults: Vec<String>,
}

/// One row of a start.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The prompt, by its digest.
    pub prompt: String,
    /// Tokens per second.
    pub per_second: f64,
}

/// What the draft did over a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Cycles of draft and verify.
    pub cycles: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Tokens accepted.
    pub accepted: u64,
    /// Accepted tokens by position.
    pub positions: Vec<u64>,
}

/// The figures of a control and a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// `100 (B / A - 1)` of the headlines.
    pub headline_percent: f64,
    /// Rows that the candidate is faster in.
    pub wins: u64,
    /// Rows that it is slower in.
    pub losses: u64,
    /// The coin's word on wins and losses. Its unit is the row of one pair of starts.
    pub sign: SignTest,
    /// The median of the rows' `B - A`, tokens per second.
    pub median_delta: f64,
    /// The median of the rows' `100 (B - A) / A`.
    pub median_percent: f64,
    /// `A - B` of the cycles, milliseconds.
    pub cycle_saving_ms: f64,
    /// `100 (B / A - 1)` of the cycles.
    pub cycle_percent: f64,
    /// What the drafts of both did; none where neither speculates.
    pub work: Option<Drafts>,
}

/// What the drafts of a control and a candidate did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drafts {
    /// `accepted / drafted` of the candidate, less the control's.
    pub acceptance_delta: f64,
    /// Whether every counter is the same in both.
    pub is_same: bool,
}

/// Why two starts are no pair.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoPair {
    /// They have not as many rows.
    #[error("the control has {control} rows, the candidate {candidate}")]
    RowCount {
        /// Rows of the control.
        control: usize,
        /// Rows of the candidate.
        candidate: usize,
    },
    /// A row answers two prompts.
    #[error("row {row} is of prompt {control} in the control, of {candidate} in the candidate")]
    Prompt {
        /// The row.
        row: usize,
        /// The control's prompt.
        control: String,
        /// The candidate's.
        candidate: String,
    },
    /// A figure is not above zero, or no number.
    #[error("{figure} is {value}, expected a number above 0")]
    Figure {
        /// Which figure.
        figure: &'static str,
        /// Its value.
        value: f64,
    },
    /// Nothing was drafted.
    #[error("nothing was drafted")]
    NoWork,
    /// One start speculates, and the other doesn't.
    #[error("one start speculates and the other doesn't")]
    OneSpeculates,
    /// More tokens were accepted than drafted.
    #[error("{accepted} tokens were accepted of {drafted} drafted")]
    Accepted {
        /// Tokens accepted.
        accepted: u64,
        /// Tokens drafted.
        drafted: u64,
    },
    /// There are more rows than a sign test takes.
    #[error("there are {rows} rows, more than a sign test takes")]
    TooMany {
        /// Rows there are.
        rows: usize,
    },
    /// The rows say nothing together.
    #[error("rows: {0}")]
    Rows(#[from] NoSummary),
}

impl NoPair {
    /// Whose side it is on: whoever measured.
    pub fn blame(&self) -> Blame {
        match self {
            Self::RowCount { .. }
            | Self::Prompt { .. }
            | Self::Figure { .. }
            | Self::NoWork
            | Self::OneSpeculates
            | Self::Accepted { .. }
            | Self::TooMany { .. }
            | Self::Rows(_) => Blame::Caller,
        }
    }
}

impl Pair {
    /// Compares a candidate's start with its control's.
    pub fn of(control: &Leg, candidate: &Leg) -> Result<Self, NoPair> {
        let deltas = deltas(control, candidate)?;
        let only = |take: fn(&Delta) -> f64| deltas.iter().map(take).collect::<Vec<f64>>();
        let count = |is: fn(&Delta) -> bool| deltas.iter().filter(|it| is(it)).count() as u64;
        let (wins, losses) = (count(|it| it.absolute > 0.0), count(|it| it.absolute < 0.0));
        let rows = deltas.len();
        Ok(Self {
            headline_percent: percent("headline", control.headline, candidate.headline)?,
            wins,
            losses,
            sign: sign_test(wins, losses).map_err(|_| NoPair::TooMany { rows })?,
            median_delta: median(&only(|it| it.absolute))?,
            median_percent: median(&only(|it| it.percent))?,
            cycle_percent: percent("cycle", control.cycle_ms, candidate.cycle_ms)?,
            cycle_saving_ms: control.cycle_ms - candidate.cycle_ms,
            work: Drafts::of(control.work.as_ref(), candidate.work.as_ref())?,
        })
    }
}

impl Drafts {
    fn of(control: Option<&Work>, candidate: Option<&Work>) -> Result<Option<Self>, NoPair> {
        match (control, candidate) {
            (None, None) => Ok(None),
            (Some(control), Some(candidate)) => Ok(Some(Self {
                acceptance_delta: candidate.acceptance()? - control.acceptance()?,
                is_same: control == candidate,
            })),
            (None, Some(_)) | (Some(_), None) => Err(NoPair::OneSpeculates),
        }
    }
}

impl Work {
    /// `accepted / drafted`, rounded once: counts above 2^53 would be rounded before they are
    /// divided.
    fn acceptance(&self) -> Result<f64, NoPair> {
        let Self {
            accepted, drafted, ..
        } = *self;
        let share = Rational::new(i128::from(accepted), i128::from(drafted));
        match share.ok_or(NoPair::NoWork)? {
            _ if accepted > drafted => Err(NoPair::Accepted { accepted, drafted }),
            share => Ok(share.to_binary64()),
        }
    }
}

/// What the starts of one arm show together. Of fewer than five the median says little of an arm;
/// only the lowest may be published, however many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starts {
    /// How many there are.
    pub count: u64,
    /// The lowest headline.
    pub lowest: f64,
    /// The median of the headlines.
    pub median: f64,
}

impl Starts {
    /// Takes the headlines of an arm's starts.
    pub fn of(headlines: &[f64]) -> Result<Self, NoPair> {
        for headline in headlines {
            above_zero("headline", *headline)?;
        }
        Ok(Self {
            count: headlines.len() as u64,
            lowest: headlines.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(headlines)?,
        })
    }

    /// Whether there are enough for the median to tell an effect of a percent.
    pub fn is_enough(&self) -> bool {
        self.count >= 5
    }
}

/// What one start of a control shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// Its headline, tokens per second.
    pub headline: f64,
    /// Milliseconds of one cycle.
    pub cycle_ms: f64,
}

/// What two controls, or starts of one arm, differ by: no gate below it can tell a candidate from a
/// control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlNoise {
    /// The greatest difference of the headlines of two controls of one crossover.
    pub absolute: f64,
    /// The greatest `100 difference / lower` of them.
    pub percent: f64,
    /// The greatest difference of their cycles, milliseconds.
    pub cycle_ms: f64,
}

impl ControlNoise {
    /// Takes the noise from pairs of controls, those of a pair in any order; `None` without a pair.
    pub fn of(pairs: &[[Control; 2]]) -> Result<Option<Self>, NoPair> {
        let mut noise: Option<Self> = None;
        for [first, second] in pairs {
            for control in [first, second] {
                above_zero("control", control.headline)?;
                above_zero("cycle", control.cycle_ms)?;
            }
            let (one, other) = (first.headline, second.headline);
            let absolute = one.max(other) - one.min(other);
            let percent = 100.0 * absolute / one.min(other);
            let cycle_ms = (first.cycle_ms - second.cycle_ms).abs();
            let before = noise.unwrap_or(Self {
                absolute,
                percent,
                cycle_ms,
            });
            noise = Some(Self {
                absolute: before.absolute.max(absolute),
                percent: before.percent.max(percent),
                cycle_ms: before.cycle_ms.max(cycle_ms),
            });
        }
        Ok(noise)
    }
}

struct Delta {
    absolute: f64,
    percent: f64,
}

fn deltas(control: &Leg, candidate: &Leg) -> Result<Vec<Delta>, NoPair> {
    let counts = (control.rows.len(), candidate.rows.len());
    if counts.0 != counts.1 {
        let (control, candidate) = counts;
        return Err(NoPair::RowCount { control, candidate });
    }
    let pairs = control.rows.iter().zip(&candidate.rows).enumerate();
    let delta = |(row, (control, candidate)): (usize, (&Row, &Row))| {
        if control.prompt != candidate.prompt {
            let (control, candidate) = (control.prompt.clone(), candidate.prompt.clone());
            return Err(NoPair::Prompt {
                row,
                control,
                candidate,
            });
        }
        above_zero("a row", control.per_second)?;
        above_zero("a row", candidate.per_second)?;
        let absolute = candidate.per_second - control.per_second;
        let percent = 100.0 * absolute / control.per_second;
        Ok(Delta { absolute, percent })
    };
    pairs.map(delta).collect()
}

fn percent(figure: &'static str, control: f64, candidate: f64) -> Result<f64, NoPair> {
    above_zero(figure, control)?;
    above_zero(figure, candidate)?;
    Ok(100.0 * (candidate / control - 1.0))
}

fn above_zero(figure: &'static str, value: f64) -> Result<(), NoPair> {
    match value.is_finite() && value > 0.0 {
        true => Ok(()),
        false => Err(NoPair::Figure { figure, value }),
    }
}
