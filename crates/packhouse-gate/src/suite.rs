//! Figures of a suite: what its rows say together.
//!
//! - Values are sorted once; the median and the percentile are of the sorted list.
//! - A mean and a standard deviation are of the exact sums, rounded once each: no order of the rows
//!   can change them.
//! - Rows of one start are no independent starts: nothing here is a probability.

use crate::natural::Natural;
use packhouse_base::Blame;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The most values that a summary takes: sums over them stay exact.
const MOST_VALUES: usize = 1 << 15;
/// Sizes outside these, but for 0, are refused: no step of any figure leaves the normal range.
const SIZES: std::ops::RangeInclusive<f64> = 1e-60..=1e60;

/// What the values of one metric say together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many there are.
    pub count: u64,
    /// The 10th percentile.
    pub p10: f64,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The exact sum, rounded, over the count.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The standard deviation of a sample: rounded once; 0 for one value.
    pub stdev: f64,
}

/// Why values say nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoSummary {
    /// There are none.
    #[error("there is no value")]
    Empty,
    /// There are more than sums stay exact for.
    #[error("there are {count} values, at most {MOST_VALUES} are taken")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// A value is no number, or of a size that no figure has.
    #[error("value {index} is {value}, expected 0 or a size of 1e-60 to 1e60")]
    Size {
        /// Its index.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A percentile isn't between the least and the greatest value.
    #[error("a percentile at {share}, expected 0 to 1")]
    Share {
        /// Where it was asked for.
        share: f64,
    },
}

impl NoSummary {
    /// Whose side it is on: whoever measured.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Empty | Self::TooMany { .. } | Self::Size { .. } | Self::Share { .. } => {
                Blame::Caller
            }
        }
    }
}

impl Summary {
    /// Sums up values, in any order.
    pub fn of(values: &[f64]) -> Result<Self, NoSummary> {
        let sorted = sorted(values)?;
        let sums = Sums::of(&sorted);
        let (min, max) = (sorted[0], sorted[sorted.len() - 1]);
        Ok(Self {
            count: sorted.len() as u64,
            p10: interpolated(&sorted, 0.1),
            median: middle(&sorted),
            mean: sums.mean(),
            min,
            max,
            stdev: sums.stdev(),
        })
    }
}

/// The median of values in any order.
pub fn median(values: &[f64]) -> Result<f64, NoSummary> {
    Ok(middle(&sorted(values)?))
}

/// The percentile at `share`, from 0 to 1: linear between the two values around `(n - 1) share` of
/// the sorted list.
pub fn percentile(values: &[f64], share: f64) -> Result<f64, NoSummary> {
    if !(0.0..=1.0).contains(&share) {
        return Err(NoSummary::Share { share });
    }
    Ok(interpolated(&sorted(values)?, share))
}

/// The summary of the classes' medians: each class counts once, however many rows it has. Rows are
/// a class's name and a value.
pub fn class_balanced<'a>(
    rows: impl IntoIterator<Item = (&'a str, f64)>,
) -> Result<Summary, NoSummary> {
    let mut classes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (class, value) in rows {
        classes.entry(class).or_default().push(value);
    }
    let medians: Result<Vec<f64>, NoSummary> = classes.values().map(|it| median(it)).collect();
    Summary::of(&medians?)
}

/// Whether a value is 0 or of a size that figures have.
pub(crate) fn is_figure(value: f64) -> bool {
    value == 0.0 || SIZES.contains(&value.abs())
}

/// In order. A zero below zero is made one that is not: their order would be one of signs.
fn sorted(values: &[f64]) -> Result<Vec<f64>, NoSummary> {
    if values.is_empty() {
        return Err(NoSummary::Empty);
    }
    if values.len() > MOST_VALUES {
        let count = values.len();
        return Err(NoSummary::TooMany { count });
    }
    let is_bad = |value: &f64| !is_figure(*value);
    if let Some((index, value)) = values.iter().enumerate().find(|(_, value)| is_bad(value)) {
        let value = *value;
        return Err(NoSummary::Size { index, value });
    }
    let mut sorted: Vec<f64> = values.iter().map(|value| value + 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted)
}

/// The median of a sorted list that is not empty.
fn middle(sorted: &[f64]) -> f64 {
    let upper = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[upper - 1] + sorted[upper]) / 2.0,
        _ => sorted[upper],
    }
}

/// The percentile of a sorted list that is not empty.
fn interpolated(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len() - 1;
    let position = last as f64 * share;
    let whole = position.floor();
    // A position is within the list, so its whole part is an index.
    let lower = whole as usize;
    let upper = (lower + 1).min(last);
    let part = position - whole;
    sorted[lower] * (1.0 - part) + sorted[upper] * part
}

/// Exact sums: of the values, and of their squares, in units of 2^exponent.
struct Sums {
    count: u64,
    positive: Natural,
    negative: Natural,
    squares: Natural,
    exponent: i64,
}

impl Sums {
    /// Values are finite, and of sizes that a figure has.
    fn of(values: &[f64]) -> Self {
        let parts = values.iter().map(|value| parts(*value));
        let exponents = parts.clone().map(|(_, exponent)| exponent);
        let exponent = exponents.min().expect("because there is a value");
        let mut sums = Self {
            count: values.len() as u64,
            positive: Natural::ZERO,
            negative: Natural::ZERO,
            squares: Natural::ZERO,
            exponent,
        };
        for (value, (mantissa, own)) in values.iter().zip(parts) {
            let mut whole = Natural::of(mantissa);
            whole.shift_left((own - exponent).unsigned_abs());
            sums.squares.add(&whole.times(&whole));
            match *value < 0.0 {
                true => sums.negative.add(&whole),
                false => sums.positive.add(&whole),
            }
        }
        sums
    }

    /// The size of the sum, and whether it is below 0.
    fn total(&self) -> (Natural, bool) {
        let is_negative = self.positive.compare(&self.negative) == Ordering::Less;
        let (larger, smaller) = match is_negative {
            true => (&self.negative, &self.positive),
            false => (&self.positive, &self.negative),
        };
        let mut total = larger.clone();
        total.subtract(smaller);
        (total, is_negative)
    }

    fn mean(&self) -> f64 {
        let (total, is_negative) = self.total();
        let size = total.scaled(self.exponent);
        let sum = if is_negative { -size } else { size };
        sum / self.count as f64
    }

    /// The root of `(n squares - total^2) / (n (n - 1))`, rounded once.
    fn stdev(&self) -> f64 {
        if self.count == 1 {
            return 0.0;
        }
        let (total, _) = self.total();
        let mut above = self.squares.clone();
        above.multiply_small(self.count);
        above.subtract(&total.times(&total));
        root(above, self.count * (self.count - 1), 2 * self.exponent)
    }
}

/// A value is `mantissa 2^exponent`, with its sign.
fn parts(value: f64) -> (u64, i64) {
    let bits = value.to_bits();
    let field = bits >> 52 & 0x7ff;
    let mantissa = bits & ((1 << 52) - 1);
    match field {
        // Only zero is that small here; it is 0 of any unit.
        0 => (0, 971),
        _ => (mantissa | 1 << 52, field.cast_signed() - 1075),
    }
}

/// `sqrt(above 2^exponent / below)`, rounded once. `below` is below 2^32, `exponent` even. The
/// quotient gets 110 bits or more before its root is taken, so the root has 55 or more, and a rest
/// of either sets one bit beneath.
fn root(mut above: Natural, below: u64, mut exponent: i64) -> f64 {
    if above.is_zero() {
        return 0.0;
    }
    let short = 144_u64.saturating_sub(above.bits()).next_multiple_of(2);
    above.shift_left(short);
    exponent -= short.cast_signed();
    let mut is_more = above.divide_small(below) != 0;
    // Of 112 bits or more: the highest 111 to 126, of an even unit.
    let drop = above.bits().saturating_sub(125).next_multiple_of(2);
    let mut square = 0_u128;
    for bit in (drop..above.bits()).rev() {
        square = square << 1 | u128::from(above.has_bit(bit));
    }
    is_more |= (0..drop).any(|bit| above.has_bit(bit));
    exponent += drop.cast_signed();
    let root = square.isqrt();
    is_more |= root * root != square;
    let rounded = (root << 1 | u128::from(is_more)) as f64;
    let halved = i32::try_from(exponent / 2 - 1).expect("because sizes are bounded");
    libm::ldexp(rounded, halved)
}
