//! How near a kernel's row must come to the expected one. Judged row by row, never once for all.

/// A bound on one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Every bit.
    BitEqual,
    /// Each element at most this many representable values away.
    Ulp {
        /// Largest distance.
        max: u32,
    },
    /// Sum of squared errors over sum of squared expected values, at most 2 to this power. A row
    /// of zeros must be zeros.
    Nmse {
        /// The exponent, negative.
        max_log2: i32,
    },
}
