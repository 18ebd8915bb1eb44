//! The arithmetic of the M-row contract: one product of a block, and the order of their sum.
//!
//! Specified in `docs/format/kernels.md`, section 2.2. Integers are exact; every operation on
//! numbers is binary32 and rounded once, in the order that is written. Nothing is fused: the
//! compiler doesn't, and must not be asked to.

use super::activations::{Activations, Quantised};
use super::packed::{Block, Packed};
use crate::half::f16_to_f32;

/// Sums that the blocks are dealt to.
pub(crate) const SPLITS: usize = 8;

/// The product of a block of a weight's row with a block of activations.
pub(crate) fn term(weight: &Block, activation: &Quantised) -> f32 {
    let dot = dot(weight, activation) as f32;
    (dot * activation.d() + activation.c()) * f16_to_f32(weight.scale)
}

/// The exact sum of products of signed nibbles and quants; 32,512 at most.
pub(crate) fn dot(weight: &Block, activation: &Quantised) -> i32 {
    let pairs = weight.nibbles.iter().zip(&activation.quants);
    pairs.map(|(w, q)| i32::from(*w) * i32::from(*q)).sum()
}

/// The sum of a row's terms: block b goes to sum `b mod 8`, then the eight sums are added.
pub(crate) fn strided_sum(terms: &[f32]) -> f32 {
    let mut sums = [0.0; SPLITS];
    for (block, term) in terms.iter().enumerate() {
        sums[block % SPLITS] += term;
    }
    let mut y = 0.0;
    for sum in sums {
        y += sum;
    }
    y
}

/// The output, row-major `[M][N]`.
pub(crate) fn output(weight: &Packed<'_>, activations: &Activations) -> Vec<f32> {
    output_by(weight, activations, term, strided_sum)
}

/// The output by some term and some sum.
pub(crate) fn output_by(
    weight: &Packed<'_>,
    activations: &Activations,
    term: impl Fn(&Block, &Quantised) -> f32,
    sum: impl Fn(&[f32]) -> f32,
) -> Vec<f32> {
    let column_count = weight.row_count();
    let mut output = vec![0.0; activations.rows().len() * column_count];
    for column in 0..column_count {
        let blocks: Vec<Block> = weight.row(column).collect();
        for (row, quantised) in activations.rows().enumerate() {
            let pairs = blocks.iter().zip(quantised);
            let terms: Vec<f32> = pairs.map(|(w, a)| term(w, a)).collect();
            output[row * column_count + column] = sum(&terms);
        }
    }
    output
}
