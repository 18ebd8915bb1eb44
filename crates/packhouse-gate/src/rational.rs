//! Exact fractions: what decides is compared as integers, and rounded once where it is shown.
//!
//! - Always in lowest terms, with a denominator above zero: equal values are equal.
//! - Comparison never overflows and never rounds.

use std::cmp::Ordering;
use std::fmt;

/// An exact fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    /// Zero.
    pub const ZERO: Self = Self {
        numerator: 0,
        denominator: 1,
    };

    /// Makes `numerator / denominator`; `None` where the denominator is not above zero, or the
    /// numerator is the one value that has no opposite.
    pub fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator <= 0 || numerator == i128::MIN {
            return None;
        }
        let divisor = gcd(numerator.unsigned_abs(), denominator.unsigned_abs());
        let divisor = i128::try_from(divisor).expect("because it divides an i128");
        Some(Self {
            numerator: numerator / divisor,
            denominator: denominator / divisor,
        })
    }

    /// Makes a whole number.
    pub fn whole(value: i64) -> Self {
        Self {
            numerator: i128::from(value),
            denominator: 1,
        }
    }

    /// Takes a binary64 for exactly what it is; `None` for an infinity, a NaN, and numbers so small
    /// or large that they need more than 127 bits above or below the line.
    pub fn of_binary64(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let bits = value.to_bits();
        let field = i32::try_from(bits >> 52 & 0x7ff).expect("because it is 11 bits");
        let fraction = i128::from(bits & ((1 << 52) - 1));
        let (mut mantissa, mut exponent) = match field {
            0 => (fraction, -1074),
            _ => (fraction | 1 << 52, field - 1075),
        };
        if mantissa == 0 {
            return Some(Self::ZERO);
        }
        let zeros = i32::try_from(mantissa.trailing_zeros()).expect("because 53 bits have few");
        mantissa >>= zeros;
        exponent += zeros;
        let signed = if value < 0.0 { -mantissa } else { mantissa };
        match exponent {
            0..=73 => Self::new(signed << exponent, 1),
            -126..=-1 => Self::new(signed, 1 << -exponent),
            _ => None,
        }
    }

    /// What is above the line; its sign is the fraction's.
    pub fn numerator(self) -> i128 {
        self.numerator
    }

    /// What is below the line, above zero.
    pub fn denominator(self) -> i128 {
        self.denominator
    }

    /// Rounds once to the nearest binary64, halves to even.
    pub fn to_binary64(self) -> f64 {
        let size = nearest(
            self.numerator.unsigned_abs(),
            self.denominator.unsigned_abs(),
        );
        if self.numerator < 0 { -size } else { size }
    }

    /// The greatest whole number that is not above it.
    pub fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    /// The least whole number that is not below it.
    pub fn ceiling(self) -> i128 {
        self.floor() + i128::from(self.numerator.rem_euclid(self.denominator) != 0)
    }

    /// The sum; `None` where it needs more than 127 bits above or below the line.
    pub fn plus(self, other: Self) -> Option<Self> {
        let shared = gcd(
            self.denominator.unsigned_abs(),
            other.denominator.unsigned_abs(),
        );
        let shared = i128::try_from(shared).expect("because it divides an i128");
        let left = self.numerator.checked_mul(other.denominator / shared)?;
        let right = other.numerator.checked_mul(self.denominator / shared)?;
        let denominator = (self.denominator / shared).checked_mul(other.denominator)?;
        Self::new(left.checked_add(right)?, denominator)
    }

    /// The difference; `None` where it needs more than 127 bits above or below the line.
    pub fn minus(self, other: Self) -> Option<Self> {
        self.plus(other.opposite())
    }

    /// The product; `None` where it needs more than 127 bits above or below the line.
    pub fn times(self, other: Self) -> Option<Self> {
        // What is in both is divided out first, so that nothing larger than the product is made.
        let left = Self::new(self.numerator, other.denominator)?;
        let right = Self::new(other.numerator, self.denominator)?;
        let numerator = left.numerator.checked_mul(right.numerator)?;
        let denominator = left.denominator.checked_mul(right.denominator)?;
        Self::new(numerator, denominator)
    }

    /// The same size with the other sign.
    pub fn opposite(self) -> Self {
        Self {
            numerator: -self.numerator,
            denominator: self.denominator,
        }
    }

    /// Its size without a sign.
    pub fn size(self) -> Self {
        Self {
            numerator: self.numerator.abs(),
            denominator: self.denominator,
        }
    }

    /// A half of it; `None` where that needs more than 127 bits below the line.
    pub fn half(self) -> Option<Self> {
        if self.numerator % 2 == 0 {
            return Self::new(self.numerator / 2, self.denominator);
        }
        Self::new(self.numerator, self.denominator.checked_mul(2)?)
    }
}

impl fmt::Display for Rational {
    /// Writes `numerator/denominator`, or only the numerator of a whole number.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(formatter, "{}", self.numerator),
            below => write!(formatter, "{}/{below}", self.numerator),
        }
    }
}

impl PartialOrd for Rational {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rational {
    /// Compares whole parts, then the rests upside down: no product, so nothing overflows.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (*self, *other);
        let mut is_turned = false;
        loop {
            let wholes = (
                left.numerator.div_euclid(left.denominator),
                right.numerator.div_euclid(right.denominator),
            );
            let rests = (
                left.numerator.rem_euclid(left.denominator),
                right.numerator.rem_euclid(right.denominator),
            );
            let order = wholes.0.cmp(&wholes.1);
            let order = match (order, rests) {
                (Ordering::Equal, (0, 0)) => return Ordering::Equal,
                (Ordering::Equal, (0, _)) => Ordering::Less,
                (Ordering::Equal, (_, 0)) => Ordering::Greater,
                (order, _) => order,
            };
            if order != Ordering::Equal {
                return if is_turned { order.reverse() } else { order };
            }
            left = upside_down(rests.0, left.denominator);
            right = upside_down(rests.1, right.denominator);
            is_turned = !is_turned;
        }
    }
}

/// Fractions as whole numbers of one unit, and what is below its line; `None` where one needs more
/// than 103 bits: sums of a million stay within an i128.
pub(crate) fn in_one_unit(values: &[Rational]) -> Option<(Vec<i128>, i128)> {
    let mut below = 1_i128;
    for value in values {
        let shared = gcd(below.unsigned_abs(), value.denominator.unsigned_abs());
        let shared = i128::try_from(shared).expect("because it divides an i128");
        below = below.checked_mul(value.denominator / shared)?;
    }
    let whole = values.iter().map(|value| {
        let whole = value.numerator.checked_mul(below / value.denominator)?;
        (whole.abs() < i128::MAX >> 24).then_some(whole)
    });
    Some((whole.collect::<Option<_>>()?, below))
}

fn upside_down(rest: i128, denominator: i128) -> Rational {
    Rational {
        numerator: denominator,
        denominator: rest,
    }
}

/// The greatest common divisor; `right` is not zero.
fn gcd(left: u128, right: u128) -> u128 {
    let (mut left, mut right) = (left, right);
    while left != 0 {
        (left, right) = (right % left, left);
    }
    right
}

/// `above / below`, rounded once: both are below 2^127, `below` is not zero. The quotient gets 55
/// bits or more, and a rest sets one bit below them, so that the conversion rounds as if it saw
/// every bit.
fn nearest(above: u128, below: u128) -> f64 {
    let (mut quotient, mut rest) = (above / below, above % below);
    if quotient == 0 && rest == 0 {
        return 0.0;
    }
    let mut halvings = 0_u64;
    while quotient < 1 << 55 {
        rest *= 2;
        quotient = quotient << 1 | u128::from(rest >= below);
        rest %= below;
        halvings += 1;
    }
    let rounded = with_sticky(quotient, rest != 0);
    rounded * f64::from_bits((1023 - halvings) << 52)
}

/// Rounds a whole number, and a bit of something smaller still, to the nearest binary64.
fn with_sticky(quotient: u128, is_more: bool) -> f64 {
    // The conversion of an integer rounds to nearest even; the last bit of 56 or more is below what
    // is kept, so setting it breaks a tie and changes nothing else.
    (quotient | u128::from(is_more)) as f64
}
