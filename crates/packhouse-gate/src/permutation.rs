//! The exact permutation test of two arms, by start: which of the starts were the candidate's?
//!
//! - The unit is the start, and the type says so: rows go in only as what one start shows.
//! - All choices are counted, none is drawn.

use crate::rational::{Rational, in_one_unit};
use crate::sign::least_attainable;
use packhouse_base::Blame;

/// Choices that are counted at most.
const MOST_CHOICES: u64 = 1_000_000;
/// Starts of one arm at most.
const MOST_STARTS: usize = 64;

/// What one start of a service shows: the median of its rows. Rows of one start are no independent
/// starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start(Rational);

/// Why rows show nothing of a start.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoStart {
    /// There is no row.
    #[error("the start has no row")]
    Empty,
    /// A row is no number.
    #[error("row {row} is {value}, expected a number")]
    NoNumber {
        /// The row, counted from 0.
        row: usize,
        /// Its value.
        value: f64,
    },
    /// A row is so small or large that no fraction of 127 bits is it.
    #[error("row {row} is {value}, which needs more than 127 bits")]
    TooFine {
        /// The row, counted from 0.
        row: usize,
        /// Its value.
        value: f64,
    },
    /// The mean of the middle two needs more than 127 bits.
    #[error("the mean of the middle two rows needs more than 127 bits")]
    Middle,
}

impl NoStart {
    /// Whose side it is on: whoever measured.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty | Self::NoNumber { .. } | Self::TooFine { .. } | Self::Middle => {
                Blame::Caller
            }
        }
    }
}

impl Start {
    /// Takes the median of a start's rows, of which there is one, exactly.
    pub fn of_rows(rows: &[f64]) -> Result<Self, NoStart> {
        let exact = |(row, value): (usize, &f64)| {
            let value = *value;
            let reason = match value.is_finite() {
                true => NoStart::TooFine { row, value },
                false => NoStart::NoNumber { row, value },
            };
            Rational::of_binary64(value).ok_or(reason)
        };
        let rows = rows.iter().enumerate().map(exact);
        let mut rows: Vec<Rational> = rows.collect::<Result<_, _>>()?;
        rows.sort();
        let upper = *rows.get(rows.len() / 2).ok_or(NoStart::Empty)?;
        let lower = rows[(rows.len() - 1) / 2];
        let middle = lower.plus(upper).and_then(Rational::half);
        middle.map(Self).ok_or(NoStart::Middle)
    }

    /// The median of its rows.
    pub fn figure(self) -> Rational {
        self.0
    }
}

/// The outcome of a permutation test over starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Permuted {
    /// P(a difference of means at least this large), if the arms differ in nothing; rounded once.
    pub one_sided: f64,
    /// Twice the smaller tail, at most 1; rounded once.
    pub two_sided: f64,
    /// The least one-sided value that so many starts can give.
    pub least_attainable: Rational,
}

/// Why nothing was permuted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpermuted {
    /// An arm has no start.
    #[error("{control} starts of the control and {candidate} of the candidate: each needs one")]
    Empty {
        /// Starts of the control.
        control: usize,
        /// Starts of the candidate.
        candidate: usize,
    },
    /// There are more starts, or more choices of them, than are counted.
    #[error(
        "{control} and {candidate} starts are more than {MOST_STARTS} of an arm, or than \
         {MOST_CHOICES} choices"
    )]
    TooMany {
        /// Starts of the control.
        control: usize,
        /// Starts of the candidate.
        candidate: usize,
    },
    /// Sums of the figures need more than 127 bits.
    #[error("sums of the figures need more than 127 bits")]
    TooFine,
}

impl Unpermuted {
    /// Whose side it is on: whoever chose the starts.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty { .. } | Self::TooMany { .. } | Self::TooFine => Blame::Caller,
        }
    }
}

/// Tests whether the candidate's starts are above the control's.
pub fn permutation(control: &[Start], candidate: &[Start]) -> Result<Permuted, Unpermuted> {
    let sizes = (control.len(), candidate.len());
    let (control_count, candidate_count) = sizes;
    if control.is_empty() || candidate.is_empty() {
        let (control, candidate) = sizes;
        return Err(Unpermuted::Empty { control, candidate });
    }
    let least = least_attainable(control_count as u64, candidate_count as u64);
    let few = |least: &Rational| {
        control_count.max(candidate_count) <= MOST_STARTS
            && least.denominator() <= i128::from(MOST_CHOICES)
    };
    let Some(least_attainable) = least.ok().filter(few) else {
        let (control, candidate) = sizes;
        return Err(Unpermuted::TooMany { control, candidate });
    };
    let all = control.iter().chain(candidate).map(|start| start.0);
    let all: Vec<Rational> = all.collect();
    let (values, _) = in_one_unit(&all).ok_or(Unpermuted::TooFine)?;
    // With the sizes fixed, the difference of means rises with the candidate's sum alone.
    let observed: i128 = values[control_count..].iter().sum();
    let mut tails = Tails {
        at_least: 0,
        at_most: 0,
    };
    choose(&values, candidate_count, 0, observed, &mut tails);
    let outcomes = least_attainable.denominator();
    let share = |ways: i128| Rational::new(ways.min(outcomes), outcomes);
    let share = |ways| {
        share(ways)
            .expect("because there is an outcome")
            .to_binary64()
    };
    Ok(Permuted {
        one_sided: share(tails.at_least),
        two_sided: share(2 * tails.at_least.min(tails.at_most)),
        least_attainable,
    })
}

struct Tails {
    at_least: i128,
    at_most: i128,
}

/// Counts the choices of `count` values whose sum, with `sum`, is at least or at most `observed`.
fn choose(values: &[i128], count: usize, sum: i128, observed: i128, tails: &mut Tails) {
    if count == 0 {
        tails.at_least += i128::from(sum >= observed);
        tails.at_most += i128::from(sum <= observed);
        return;
    }
    for index in 0..=values.len() - count {
        let rest = &values[index + 1..];
        choose(rest, count - 1, sum + values[index], observed, tails);
    }
}
