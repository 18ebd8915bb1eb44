//! Rows of activations in binary32: drawn ones, and rows made for an edge.

use crate::kernels::blocks::Activations;
use crate::mersenne::Draws;

/// What is special about a row of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    /// Nothing: no value is near zero, so that every code of the weights counts.
    Drawn,
    /// As drawn, but that quotients decide in its first blocks, which products do not give.
    First,
    /// Zeros of both signs.
    Zeros,
    /// Each second block is the negative of the one before; one that is left over is zeros.
    Cancellation,
    /// Every value but the largest lies between two codes, or beside that; the largest is there
    /// with both signs.
    Midpoints,
    /// All codes are 127, the first of each block 126: the largest sums, and odd ones.
    LargestCodes,
    /// The largest scale; for `Q8_K`, whose scales are binary32, one of about 2^58.
    LargestMagnitudes,
    /// Scales that are subnormal, or zero once stored, though their codes are not.
    SubnormalScales,
    /// One value of each block is so large that the codes of all others are 0 or 1.
    Outliers,
}

impl RowKind {
    /// What an edge row says; `None` of drawn ones.
    pub(super) const fn label(self) -> Option<&'static str> {
        match self {
            Self::Drawn | Self::First => None,
            Self::Zeros => Some("zeros"),
            Self::Cancellation => Some("cancellation"),
            Self::Midpoints => Some("midpoints"),
            Self::LargestCodes => Some("largest codes"),
            Self::LargestMagnitudes => Some("largest magnitudes"),
            Self::SubnormalScales => Some("subnormal scales"),
            Self::Outliers => Some("outliers"),
        }
    }
}

/// The kinds of the rows of a width without edges.
pub(super) fn drawn_kinds(width: u64) -> Vec<RowKind> {
    let kinds = std::iter::once(RowKind::First).chain(std::iter::repeat(RowKind::Drawn));
    (0..width).zip(kinds).map(|(_, kind)| kind).collect()
}

/// The kinds of the rows of a width. The first has no zeros, so that it sees every change of the
/// weights.
pub(super) fn kinds(width: u64, is_edges: bool) -> Vec<RowKind> {
    let kinds: &[RowKind] = match is_edges {
        true => &[RowKind::First, RowKind::LargestCodes],
        false => &[
            RowKind::First,
            RowKind::Zeros,
            RowKind::Cancellation,
            RowKind::Midpoints,
            RowKind::LargestCodes,
            RowKind::LargestMagnitudes,
            RowKind::SubnormalScales,
            RowKind::Outliers,
        ],
    };
    let kinds = kinds
        .iter()
        .copied()
        .chain(std::iter::repeat(RowKind::Drawn));
    (0..width).zip(kinds).map(|(_, kind)| kind).collect()
}

/// The values of one row. Every kind takes the same draws.
pub(super) fn row(
    activations: Activations,
    kind: RowKind,
    block_count: usize,
    draws: &mut Draws,
) -> Vec<f32> {
    let mut row: Vec<f32> = Vec::with_capacity(block_count * activations.elements());
    for index in 0..block_count {
        let drawn = drawn(activations.elements(), draws);
        let is_odd = index % 2 == 1;
        let block: Vec<f32> = match kind {
            RowKind::Drawn => drawn,
            RowKind::First => first(activations, &drawn, index),
            RowKind::Zeros => drawn.iter().map(|value| value * 0.0).collect(),
            RowKind::Cancellation if is_odd => {
                let before = &row[row.len() - activations.elements()..];
                before.iter().map(|value| -value).collect()
            }
            RowKind::Cancellation if index + 1 == block_count => vec![0.0; drawn.len()],
            RowKind::Cancellation => drawn,
            RowKind::Midpoints => midpoints(&drawn, is_odd),
            RowKind::LargestCodes => led(&vec![0.6; drawn.len()], 0.6 / 127.0 * 126.0),
            RowKind::LargestMagnitudes => match activations {
                Activations::Q8_0 => led(&times(&drawn, HALF_MAX), 127.0 * HALF_MAX),
                Activations::Q8K => times(&drawn, 18_446_744_073_709_551_616.0),
            },
            RowKind::SubnormalScales => subnormal(activations, &drawn, is_odd),
            RowKind::Outliers => led(
                &times(&drawn, 1.0 / 1024.0),
                if is_odd { 3.0 } else { -3.0 },
            ),
        };
        row.extend(block);
    }
    row
}

/// A block of values from a sixteenth to one, or to a half or two, of both signs.
fn drawn(count: usize, draws: &mut Draws) -> Vec<f32> {
    let unit = [0.5, 1.0, 2.0][draws.below(3) as usize];
    let value = |draws: &mut Draws| {
        let magnitude = unit * (0.0625 + 0.9375 * draws.unit());
        let value = if draws.bits() & 1 == 1 {
            -magnitude
        } else {
            magnitude
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded once, to nearest even"
        )]
        let value = value as f32;
        value
    };
    (0..count).map(|_| value(draws)).collect()
}

/// `Q8_K`: block 0 has values beside those between two codes, so that a code by another quotient or
/// product than the rule's is another. `Q8_0`, whose kernels differ there: the scale of block 1 is
/// a step above the middle of two halves, the product with the reciprocal of 127 is that middle.
fn first(activations: Activations, drawn: &[f32], index: usize) -> Vec<f32> {
    match (activations, index) {
        (Activations::Q8K, 0) => {
            let half = |value: &f32| (value * 60.0).trunc() + 0.5;
            let halves: Vec<f32> = drawn.iter().map(half).collect();
            led(&times(&halves, 2.63 / 127.0), 2.63)
        }
        (Activations::Q8_0, 1) => led(drawn, f32::from_bits(0x407e_9ec1)),
        _ => drawn.to_vec(),
    }
}

/// Halves from -126.5 to 126.5, behind 127 and -127; in odd blocks all of that times 0.95 / 127, in
/// the other order, so that a value is beside a half and the inverse's last bit decides.
fn midpoints(drawn: &[f32], is_odd: bool) -> Vec<f32> {
    let half = |value: &f32| (value * 63.0).trunc() + 0.5;
    let (unit, first) = if is_odd {
        (0.95 / 127.0, -0.95)
    } else {
        (1.0, 127.0)
    };
    let mut block: Vec<f32> = drawn.iter().map(|value| half(value) * unit).collect();
    block[0] = first;
    block[1] = -first;
    block
}

/// `Q8_0`: a scale between the first two subnormals, then one that is zero once stored. `Q8_K`: a
/// scale below the smallest normal binary32, whose inverse is still finite.
fn subnormal(activations: Activations, drawn: &[f32], is_odd: bool) -> Vec<f32> {
    let largest = match (activations, is_odd) {
        (Activations::Q8_0, false) => 127.0 * 1.5 / 16_777_216.0,
        (Activations::Q8_0, true) => 127.0 / 67_108_864.0,
        // 2^-120.
        (Activations::Q8K, _) => f32::from_bits(7 << 23),
    };
    led(&times(drawn, largest / 4.0), largest)
}

/// The block with another first value.
fn led(block: &[f32], first: f32) -> Vec<f32> {
    let mut block = block.to_vec();
    block[0] = first;
    block
}

fn times(block: &[f32], factor: f32) -> Vec<f32> {
    block.iter().map(|value| value * factor).collect()
}

/// The largest binary16.
const HALF_MAX: f32 = 65504.0;
