//! What all kernels of the quantiser share: its two divisions, and its rounding as an addition.
//!
//! Rounding halves away from zero is `trunc(x + HALF.copysign(x))`, `HALF` being the value before
//! 0.5, which is 0.5 - 2^-25. Let `x` be positive and `n` the whole number below it. From n + 0.5
//! on the sum is at least n + 1 - 2^-25, which rounds to n + 1: the values before 1 lie 2^-24
//! apart, where it is a tie that goes to the even 1, and the others farther apart. Before n + 0.5
//! the sum stays before n + 1: the value before 0.5 gives 1 - 2^-24, which is exact, and others end
//! farther from n + 1. A test says so for every value that the quantiser can meet.
//!
//! Nothing here or in the kernels depends on whether the CPU flushes subnormals to zero, which a
//! host may have asked for: a largest value below 1e-12 counts as 1, so both divisions are of
//! normal values and give such; a subnormal value, or a product that is one, has code 0 either way;
//! and magnitudes are compared as integers. The rounding mode must be the default one, as
//! everywhere in Rust.

/// Scale of a column and what its values are multiplied by, from the bits of its largest finite
/// magnitude. The inverse is a second division, not 1 / scale.
pub(crate) const fn scale_and_inverse(largest_bits: u32) -> (f32, f32) {
    let largest = f32::from_bits(largest_bits);
    let largest = if largest < LARGEST_MIN { 1.0 } else { largest };
    (largest / CODE_MAX, CODE_MAX / largest)
}

/// The largest code, as what values are scaled to.
const CODE_MAX: f32 = 127.0;

/// A column whose largest value is less than this counts as one whose largest value is 1.
const LARGEST_MIN: f32 = 1e-12;

/// The largest value below 0.5.
pub(crate) const HALF: f32 = f32::from_bits(0x3eff_ffff);

/// All bits of a value but its sign. As integers they are ordered as the magnitudes are.
pub(crate) const MAGNITUDE_BITS: u32 = 0x7fff_ffff;

/// Infinity. Magnitudes from here on are not finite.
pub(crate) const INFINITY_BITS: u32 = 0x7f80_0000;
