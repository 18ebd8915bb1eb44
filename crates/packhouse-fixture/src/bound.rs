//! How far a number that was rounded n times can be from the exact one.
//!
//! Source: Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2.

/// `n u / (1 - n u)` with `u = 2^-24`: what n roundings to binary32 make of one.
pub(crate) fn gamma(roundings: u32) -> f64 {
    let roundings = f64::from(roundings) * UNIT;
    roundings / (1.0 - roundings)
}

/// The binary32 after the nearest one, so that nothing is lost; zero stays zero.
pub(crate) fn rounded_up(bound: f64) -> f32 {
    if bound == 0.0 {
        return 0.0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "to the nearest, then to the next above it"
    )]
    let nearest = bound as f32;
    nearest.next_up()
}

/// Half the distance from one to the next binary32.
const UNIT: f64 = 1.0 / 16_777_216.0;
