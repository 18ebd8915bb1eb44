//! Bootstraps: what else the same pairs could have shown, by resampling with pinned draws.

use crate::random::Xoshiro;
use crate::suite::is_figure;
use packhouse_base::Blame;

/// Resamples of every bootstrap here: with 9999, the least 5 % end exactly at the 500th.
pub const RESAMPLES: usize = 9999;

/// The seed of every bootstrap that takes none: the letters `packhous`. It is no choice of whoever
/// measures.
pub const SEED: u64 = 0x7061_636b_686f_7573;

/// The rank, counted from 1, whose resample bounds 5 % from below.
const RANK_OF_5: usize = 500;
/// The rank that bounds 80 % from below.
const RANK_OF_80: usize = 8000;
/// The rank that bounds 95 % from below.
const RANK_OF_95: usize = 9500;

/// What a resample's values are brought down to, on both levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Their sum, from the first drawn to the last, over their number.
    Mean,
    /// The middle one, or the mean of the middle two.
    Median,
}

/// Why there is nothing to draw from.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NothingDrawn {
    /// There is no start.
    #[error("there is no start")]
    Empty,
    /// A start has no row.
    #[error("start {start} has no row")]
    NoRow {
        /// The start.
        start: usize,
    },
    /// A row is no number, or of a size that no figure has: sums of such could be no number.
    #[error("row {row} of start {start} is {value}, expected 0 or a size of 1e-60 to 1e60")]
    Size {
        /// The start.
        start: usize,
        /// The row.
        row: usize,
        /// Its value.
        value: f64,
    },
}

impl NothingDrawn {
    /// Whose side it is on: whoever measured.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty | Self::NoRow { .. } | Self::Size { .. } => Blame::Caller,
        }
    }
}

/// The one-sided 95 % lower percentile bound of paired differences, by start and by prompt within
/// it: starts are drawn first, then as many rows of each as it has. `starts[i]` holds the paired
/// differences of the i-th pair of starts, one per prompt.
///
/// With few starts it knows little of how starts differ, and can't know more: say how many there
/// were beside it.
pub fn hierarchical_lower_95(
    starts: &[Vec<f64>],
    statistic: Statistic,
) -> Result<f64, NothingDrawn> {
    if starts.is_empty() {
        return Err(NothingDrawn::Empty);
    }
    for (start, rows) in starts.iter().enumerate() {
        if rows.is_empty() {
            return Err(NothingDrawn::NoRow { start });
        }
        if let Some(row) = rows.iter().position(|value| !is_figure(*value)) {
            let value = rows[row];
            return Err(NothingDrawn::Size { start, row, value });
        }
    }
    let mut random = Xoshiro::seeded(SEED);
    let figure = |_| {
        let mut figures: Vec<f64> = starts
            .iter()
            .map(|_| {
                let rows = drawn_of(&mut random, starts);
                // A zero below zero is made one that is not.
                let mut drawn: Vec<f64> = rows
                    .iter()
                    .map(|_| *drawn_of(&mut random, rows) + 0.0)
                    .collect();
                statistic.of(&mut drawn)
            })
            .collect();
        statistic.of(&mut figures)
    };
    let mut figures: Vec<f64> = (0..RESAMPLES).map(figure).collect();
    figures.sort_unstable_by(f64::total_cmp);
    Ok(figures[RANK_OF_5 - 1])
}

impl Statistic {
    /// Of values that are numbers, at least one.
    fn of(self, values: &mut [f64]) -> f64 {
        match self {
            Self::Mean => values.iter().fold(0.0, |sum, value| sum + value) / values.len() as f64,
            Self::Median => {
                values.sort_unstable_by(f64::total_cmp);
                let upper = values.len() / 2;
                match values.len().is_multiple_of(2) {
                    true => (values[upper - 1] + values[upper]) / 2.0,
                    false => values[upper],
                }
            }
        }
    }
}

/// One of some, each as likely.
fn drawn_of<'a, T>(random: &mut Xoshiro, some: &'a [T]) -> &'a T {
    let index = random.below(some.len() as u64);
    &some[usize::try_from(index).expect("because it is an index")]
}

/// The 95 % lower percentile bound of the median of integers, twice: the doubled median keeps the
/// mean of the middle two whole. `None` without values.
pub(crate) fn lower_95_of_doubled_median(values: &[i128]) -> Option<i128> {
    let mut medians = resampled(values, |_, value| value)?;
    medians.sort_unstable();
    Some(medians[RANK_OF_5 - 1])
}

/// Of medians whose values got a sign at random, doubled: the size that 95 % stay within, and what
/// 80 % stay below. `None` without values.
pub(crate) fn null_of_doubled_median(values: &[i128]) -> Option<(i128, i128)> {
    let mut medians = resampled(values, |random, value| match random.word() >> 63 {
        0 => value,
        _ => -value,
    })?;
    medians.sort_unstable();
    let eighty = medians[RANK_OF_80 - 1];
    let mut sizes: Vec<i128> = medians.iter().map(|median| median.abs()).collect();
    sizes.sort_unstable();
    Some((sizes[RANK_OF_95 - 1], eighty))
}

/// The doubled median of each resample, in the order they were drawn.
fn resampled(values: &[i128], drawn: impl Fn(&mut Xoshiro, i128) -> i128) -> Option<Vec<i128>> {
    if values.is_empty() {
        return None;
    }
    let mut random = Xoshiro::seeded(SEED);
    let mut sample = vec![0; values.len()];
    let medians = (0..RESAMPLES).map(|_| {
        for value in &mut sample {
            let one = *drawn_of(&mut random, values);
            *value = drawn(&mut random, one);
        }
        doubled_median(&mut sample)
    });
    Some(medians.collect())
}

/// Twice the median: the sum of the middle two, which are the same one where there is one.
pub(crate) fn doubled_median(values: &mut [i128]) -> i128 {
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable(middle);
    let upper = *upper;
    let lower = match is_even {
        true => below.iter().max().copied().unwrap_or(upper),
        false => upper,
    };
    lower + upper
}
