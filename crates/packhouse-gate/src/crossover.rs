//! Crossovers A1, B1, (stop?), B2, A2 of fresh starts: their figures, gates and disposition.
//!
//! - Thresholds are declared; none is built in, and one below the noise of the controls is refused.
//! - Every gate is judged and listed; the conjunction decides. A gate that can't be judged is
//!   failed.
//! - After a first pair that failed there is no second: figures of one are refused.
//! - Only the lower start of the candidate can be published.
//! - Rows of one pair of starts say nothing of starts: their sign test is labelled with its unit.

mod judge;

pub use judge::{Disposition, Gate, Judged, Misjudged, Outcome, judge};

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
    /// Milliseconds of one cycle of draft and verify, over the suite.
    pub cycle_ms: f64,
    /// What the draft did.
    pub work: Work,
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
    /// `accepted / drafted` of the candidate, less the control's.
    pub acceptance_delta: f64,
    /// Whether every counter is the same in both.
    pub is_same_work: bool,
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
            sign: sign_test(wins, losses).ok_or(NoPair::TooMany { rows })?,
            median_delta: median(&only(|it| it.absolute))?,
            median_percent: median(&only(|it| it.percent))?,
            cycle_percent: percent("cycle", control.cycle_ms, candidate.cycle_ms)?,
            cycle_saving_ms: control.cycle_ms - candidate.cycle_ms,
            acceptance_delta: candidate.work.acceptance()? - control.work.acceptance()?,
            is_same_work: control.work == candidate.work,
        })
    }
}

impl Work {
    fn acceptance(&self) -> Result<f64, NoPair> {
        let Self {
            accepted, drafted, ..
        } = *self;
        match drafted {
            0 => Err(NoPair::NoWork),
            _ if accepted > drafted => Err(NoPair::Accepted { accepted, drafted }),
            _ => Ok(accepted as f64 / drafted as f64),
        }
    }
}

/// What two controls, or starts of one arm, differ by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlNoise {
    /// The greatest difference of two controls of one crossover.
    pub absolute: f64,
    /// The greatest `100 difference / lower` of two controls of one crossover: no gate below it can
    /// tell a candidate from a control.
    pub percent: f64,
}

impl ControlNoise {
    /// Takes the noise from pairs of controls, each pair's headlines in any order; `None` without a
    /// pair.
    pub fn of(pairs: &[[f64; 2]]) -> Result<Option<Self>, NoPair> {
        let mut noise: Option<Self> = None;
        for [first, second] in pairs {
            let (lower, higher) = (first.min(*second), first.max(*second));
            above_zero("control", *first)?;
            above_zero("control", *second)?;
            let absolute = higher - lower;
            let percent = 100.0 * absolute / lower;
            noise = Some(match noise {
                Some(noise) => Self {
                    absolute: noise.absolute.max(absolute),
                    percent: noise.percent.max(percent),
                },
                None => Self { absolute, percent },
            });
        }
        Ok(noise)
    }
}

/// A bound that a figure must be above, or at least at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Equal is not enough.
    Above(f64),
    /// Equal is enough.
    AtLeast(f64),
}

impl Bound {
    /// Whether a figure meets it; no number meets none.
    pub fn is_met_by(self, figure: f64) -> bool {
        match self {
            Self::Above(bound) => figure > bound,
            Self::AtLeast(bound) => figure >= bound,
        }
    }

    /// The number itself.
    pub fn value(self) -> f64 {
        match self {
            Self::Above(bound) | Self::AtLeast(bound) => bound,
        }
    }
}

/// How alike the draft's work must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SameWork {
    /// Every counter, and every position.
    Identical,
    /// The acceptance rates differ by this much at most, either way.
    AcceptanceWithin(f64),
}

/// What a crossover must show. Every number is declared before it is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// The candidate's headline against the control's times this ratio.
    pub headline_ratio: Bound,
    /// Rows that the candidate must win.
    pub row_wins: u64,
    /// The median of the rows' percents.
    pub median_percent: Bound,
    /// Milliseconds that a cycle must save.
    pub cycle_saving_ms: Bound,
    /// How alike the draft's work must be.
    pub work: SameWork,
    /// How far each control may be from the record, as a share of it; none where that is not asked.
    pub control_health: Option<f64>,
    /// The record, tokens per second.
    pub record: f64,
    /// Each start of the candidate must be above the record times this.
    pub floor_ratio: f64,
}

/// Why thresholds can't be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Undetectable {
    /// A threshold is below what the controls differ by.
    #[error("the {gate} gate asks for {asked} %, controls differ by {noise} %")]
    BelowNoise {
        /// Which gate.
        gate: Gate,
        /// What it asks for, in percent.
        asked: f64,
        /// What the controls differ by, in percent.
        noise: f64,
    },
    /// A threshold is no number.
    #[error("the {gate} gate's threshold is no number")]
    NoNumber {
        /// Which gate.
        gate: Gate,
    },
}

impl Undetectable {
    /// Whose side it is on: whoever declared the thresholds.
    pub fn blame(&self) -> Blame {
        match self {
            Self::BelowNoise { .. } | Self::NoNumber { .. } => Blame::Caller,
        }
    }
}

impl Thresholds {
    /// Refuses gates of effect that are below the noise of the controls: they would pass or fail by
    /// chance.
    pub fn detectable(&self, noise: &ControlNoise) -> Result<(), Undetectable> {
        let effects = [
            (Gate::Headline, 100.0 * (self.headline_ratio.value() - 1.0)),
            (Gate::MedianPercent, self.median_percent.value()),
        ];
        for (gate, asked) in effects {
            let noise = noise.percent;
            if asked.is_nan() || noise.is_nan() {
                return Err(Undetectable::NoNumber { gate });
            }
            if asked < noise {
                return Err(Undetectable::BelowNoise { gate, asked, noise });
            }
        }
        Ok(())
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
