//! What kernels of another order must be near: the exact output, and how far from it any sound
//! order can be.
//!
//! Such a kernel may cut each dot product into exact integer sums of four or more elements, and
//! the minima into one for each sub-block; it makes a binary32 term of each (one rounding to
//! binary32 and three products, so four roundings) and adds all T terms in any order, T - 1
//! roundings each at most. With u = 2^-24 and A the sum of the magnitudes of all products of
//! elements, its error is at most g A with g = n u / (1 - n u) and n = T + 3 (Higham, Accuracy and
//! Stability of Numerical Algorithms, section 4.2). The exact output is itself rounded once, which
//! adds u A: n = T + 4.

use crate::kernels::blocks::{Blocks, Term};

/// An output in binary64.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    /// The sum, block after block.
    pub(super) value: f64,
    /// The sum of the magnitudes of all that it is the sum of.
    pub(super) magnitude: f64,
}

impl Exact {
    /// Sums in binary64, block after block: products and minima apart, as the kernel does.
    pub(super) fn of(terms: &[Term]) -> Self {
        let (mut products, mut minima, mut magnitude) = (0.0f64, 0.0f64, 0.0f64);
        for term in terms {
            let (scale, minimum) = (f64::from(term.scale), f64::from(term.minimum));
            let activation = f64::from(term.activation_scale);
            products += f64::from(term.dot) * scale * activation;
            minima += f64::from(term.minimum_dot) * minimum * activation;
            let [product, minimum_product] = term.magnitudes.map(f64::from);
            let both = product * scale.abs() + minimum_product * minimum.abs();
            magnitude += both * activation.abs();
        }
        Self {
            value: products - minima,
            magnitude,
        }
    }

    /// Rounded once.
    pub(super) fn rounded(self) -> f32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded once, to nearest even"
        )]
        let rounded = self.value as f32;
        rounded
    }
}

/// The exponent of the smallest power of two that bounds the squared error over the squared output
/// of every row, for rows of `n` outputs of `k` elements each.
pub(super) fn max_log2(blocks: Blocks, k: usize, outputs: &[Exact], n: usize) -> i32 {
    let sums_of_minima = match blocks {
        Blocks::Q4K | Blocks::Q2K => k / 16,
        Blocks::Iq4Nl | Blocks::Mxfp4 => 0,
    };
    let roundings = (k / 4 + sums_of_minima + 4) as f64;
    let gamma = roundings * UNIT / (1.0 - roundings * UNIT);
    let rows = outputs.chunks_exact(n).map(|row| {
        let squares = |of: fn(&Exact) -> f64| row.iter().map(of).map(|x| x * x).sum::<f64>();
        let (errors, values) = (squares(|y| y.magnitude), squares(|y| y.value));
        // A row of zeros must be zeros.
        if values > 0.0 {
            gamma * gamma * errors / values
        } else {
            0.0
        }
    });
    above(rows.fold(0.0, f64::max))
}

/// The exponent of the smallest power of two that is more than a positive normal value.
fn above(value: f64) -> i32 {
    i32::from((value.to_bits() >> 52) as u16) - 1023 + 1
}

/// Half the distance from one to the next binary32: 2^-24.
const UNIT: f64 = 1.0 / 16_777_216.0;
