//! What kernels of another order must be near: the exact output, and how far from it any sound
//! order can be.
//!
//! Such a kernel may cut each dot product into exact integer sums of four or more elements, and
//! the minima into one for each sub-block; it makes a binary32 term of each (one rounding to
//! binary32 and three products, so four roundings) and adds all T terms in any order, T - 1
//! roundings each at most. With u = 2^-24 and A the sum of the magnitudes of all products of
//! elements, its error is at most g A with g = n u / (1 - n u) and n = T + 3 (Higham, Accuracy and
//! Stability of Numerical Algorithms, section 4.2). The exact output is itself rounded once, which
//! adds u A: n = T + 4. A product with an integer is never below the least binary32; the one of two
//! scales may be, so it can be off by half of that, times the integers that it is multiplied with.

use crate::bound::{gamma, rounded_up};
use crate::kernels::blocks::{Blocks, Term};

/// An output in binary64.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    /// The sum, block after block.
    pub(super) value: f64,
    /// The sum of the magnitudes of all that it is the sum of.
    pub(super) magnitude: f64,
    /// The sum of the magnitudes of the integers that a product of scales is multiplied with, and
    /// one for the result; zero where there is no product but zero.
    pub(super) vanishing: f64,
}

impl Exact {
    /// Sums in binary64, block after block: products and minima apart, as the kernel does.
    pub(super) fn of(terms: &[Term]) -> Self {
        let (mut products, mut minima) = (0.0f64, 0.0f64);
        let (mut magnitude, mut vanishing) = (0.0f64, 0.0f64);
        for term in terms {
            let (scale, minimum) = (f64::from(term.scale), f64::from(term.minimum));
            let activation = f64::from(term.activation_scale);
            products += f64::from(term.dot) * scale * activation;
            minima += f64::from(term.minimum_dot) * minimum * activation;
            let [product, minimum_product] = term.magnitudes.map(f64::from);
            let parts = [(product, scale), (minimum_product, minimum)];
            for (integer, factor) in parts {
                let part = integer * factor.abs() * activation.abs();
                magnitude += part;
                vanishing += if part > 0.0 { integer } else { 0.0 };
            }
        }
        Self {
            value: products - minima,
            magnitude,
            vanishing: vanishing + f64::from(u8::from(vanishing > 0.0)),
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

/// The bound of each output, for rows of `k` elements.
pub(super) fn bounds(blocks: Blocks, k: usize, outputs: &[Exact]) -> Vec<f32> {
    let sums_of_minima = match blocks {
        Blocks::Q4K | Blocks::Q2K => k / 16,
        Blocks::Iq4Nl | Blocks::Mxfp4 => 0,
    };
    let roundings = k / 4 + sums_of_minima + 4;
    let gamma = gamma(u32::try_from(roundings).expect("because a row is short"));
    let bounds = outputs.iter();
    let bounds = bounds.map(|y| rounded_up(gamma * y.magnitude + LEAST_HALF * y.vanishing));
    bounds.collect()
}

/// Half the smallest binary32: 2^-150.
const LEAST_HALF: f64 = f64::from_bits((1023 - 150) << 52);
