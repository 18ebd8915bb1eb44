//! Values of activations and of the columns of a head: drawn ones, and those made for an edge.

use crate::mersenne::Draws;

/// What is special about a row of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    /// Nothing: no value is near zero, so that every code of the other side counts.
    Drawn,
    /// As `BesideMidpoints`, by another largest value: scale and codes of another quotient or
    /// product than the rule's are others.
    First,
    /// Zeros of both signs.
    Zeros,
    /// The second half is the first half again.
    Repeated,
    /// The second half is the negative of the first: times a repeated one, all cancels.
    Opposed,
    /// Every value but the largest, 127, lies between two codes.
    Midpoints,
    /// Values beside those between two codes, so that the last bit of the inverse decides.
    BesideMidpoints,
    /// All codes are 127, the first 126: sums that are odd and beyond 2^24.
    LargestCodes,
    /// The largest value is 2^60.
    LargestMagnitudes,
    /// The largest value is 2^-60.
    SmallestMagnitudes,
    /// All values are below 1e-12, where a column counts as zeros.
    Vanishing,
    /// One value is so large that the codes of all others are 0 or 1.
    Outlier,
}

impl RowKind {
    /// What an edge row says; `None` of drawn ones.
    pub(super) const fn label(self) -> Option<&'static str> {
        match self {
            Self::Drawn | Self::First => None,
            Self::Zeros => Some("zeros"),
            Self::Repeated | Self::Opposed => Some("cancellation"),
            Self::Midpoints => Some("midpoints"),
            Self::BesideMidpoints => Some("beside midpoints"),
            Self::LargestCodes => Some("largest codes"),
            Self::LargestMagnitudes => Some("largest magnitudes"),
            Self::SmallestMagnitudes => Some("smallest magnitudes"),
            Self::Vanishing => Some("vanishing"),
            Self::Outlier => Some("outlier"),
        }
    }
}

/// The values of one row. Every kind takes the same draws.
pub(super) fn values(kind: RowKind, count: usize, draws: &mut Draws) -> Vec<f32> {
    let drawn: Vec<f32> = (0..count).map(|_| value(draws)).collect();
    let (first, _) = drawn.split_at(count / 2);
    match kind {
        RowKind::Drawn => drawn,
        RowKind::First => led(&times(&halves(&drawn), 1.413 / 127.0), 1.413),
        RowKind::Zeros => times(&drawn, 0.0),
        RowKind::Repeated => [first, first].concat(),
        RowKind::Opposed => [first, &times(first, -1.0)].concat(),
        RowKind::Midpoints => led(&halves(&drawn), 127.0),
        RowKind::BesideMidpoints => led(&times(&halves(&drawn), 0.95 / 127.0), 0.95),
        RowKind::LargestCodes => led(&vec![0.6; count], 0.6 / 127.0 * 126.0),
        RowKind::LargestMagnitudes => led(&times(&drawn, POWER_60), POWER_60),
        RowKind::SmallestMagnitudes => led(&times(&drawn, 1.0 / POWER_60), 1.0 / POWER_60),
        RowKind::Vanishing => times(&drawn, 0.9e-12),
        RowKind::Outlier => led(&times(&drawn, 1.0 / 1024.0), -3.0),
    }
}

/// A value from a sixteenth to one, of either sign.
fn value(draws: &mut Draws) -> f32 {
    let magnitude = 0.0625 + 0.9375 * draws.unit();
    let is_negative = draws.bits() & 1 == 1;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded once, to nearest even"
    )]
    let magnitude = magnitude as f32;
    if is_negative { -magnitude } else { magnitude }
}

/// Halves from -126.5 to 126.5.
fn halves(drawn: &[f32]) -> Vec<f32> {
    let halves = drawn.iter().map(|value| (value * 126.0).trunc() + 0.5);
    halves.collect()
}

/// The values with another first one.
fn led(values: &[f32], first: f32) -> Vec<f32> {
    let mut values = values.to_vec();
    values[0] = first;
    values
}

fn times(values: &[f32], factor: f32) -> Vec<f32> {
    values.iter().map(|value| value * factor).collect()
}

const POWER_60: f32 = 1_152_921_504_606_846_976.0;
