//! Binary16 and bfloat16 bits, to and from binary32 and binary64, rounded once to nearest even.
//!
//! A conversion from binary64 by way of binary32 rounds twice and is wrong at midpoints; so is what
//! some libraries do on CPUs that have F16C. These round the exact value once, by integers alone.
//!
//! - IEEE 754-2019 section 4.3.1: to nearest, ties to even; half a unit past the largest: infinity;
//! - subnormals are kept in both directions, and so is the sign of zero;
//! - a NaN keeps its sign and its uppermost payload bits, and is quiet afterwards when narrowed.

/// Binary16 bits of a binary64 value.
pub fn f16_from_f64(value: f64) -> u16 {
    narrow_f64(value, &BINARY16)
}

/// Binary16 bits of a binary32 value.
pub fn f16_from_f32(value: f32) -> u16 {
    narrow_f32(value, &BINARY16)
}

/// Bfloat16 bits of a binary64 value.
pub fn bf16_from_f64(value: f64) -> u16 {
    narrow_f64(value, &BFLOAT16)
}

/// Bfloat16 bits of a binary32 value.
pub fn bf16_from_f32(value: f32) -> u16 {
    narrow_f32(value, &BFLOAT16)
}

/// The binary32 value of binary16 bits; exact.
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match (exponent, fraction) {
        (0, 0) => 0,
        (0, _) => {
            // The leading bit of the fraction becomes the hidden one.
            let up = fraction.leading_zeros() - 21;
            ((127 - 14 - up) << 23) | ((fraction << (13 + up)) & 0x7f_ffff)
        }
        (31, _) => (255 << 23) | (fraction << 13),
        _ => ((exponent + 127 - 15) << 23) | (fraction << 13),
    };
    f32::from_bits(sign | magnitude)
}

/// The binary64 value of binary16 bits; exact. A NaN becomes some NaN.
pub fn f16_to_f64(bits: u16) -> f64 {
    f64::from(f16_to_f32(bits))
}

/// The binary32 value of bfloat16 bits; exact, NaNs with all their bits.
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The binary64 value of bfloat16 bits; exact. A NaN becomes some NaN.
pub fn bf16_to_f64(bits: u16) -> f64 {
    f64::from(bf16_to_f32(bits))
}

/// A 16-bit format: a sign, an exponent, and `precision - 1` bits of fraction.
struct Narrow {
    /// Bits of the significand, the hidden one included.
    precision: u32,
    /// Exponent of the smallest normal number.
    min_exponent: i32,
}

impl Narrow {
    /// The bits of infinity.
    const fn infinity(&self) -> u16 {
        0x7fff & !((1 << (self.precision - 1)) - 1)
    }

    /// A NaN with the uppermost bits of a payload whose top is bit 63.
    fn nan(&self, payload: u64) -> u16 {
        let quiet = 1 << (self.precision - 2);
        let kept = payload >> (65 - self.precision);
        self.infinity() | quiet | u16::try_from(kept).expect("because it has ten bits at most")
    }

    /// Rounds `significand * 2^exponent` to nearest even; the significand has its 64th bit set, or
    /// is zero.
    fn round(&self, significand: u64, exponent: i32) -> u16 {
        if significand == 0 {
            return 0;
        }
        let fraction_bits = self.precision.cast_signed() - 1;
        let leading = exponent + 63;
        let normal = leading.max(self.min_exponent);
        let shift = normal - fraction_bits - exponent;
        let kept = significand.checked_shr(shift.cast_unsigned()).unwrap_or(0);
        // The dropped bits, from the top: 53 at least, and more than 64 are below half a unit.
        let above = u32::try_from(64 - shift).ok();
        let rest = above.map_or(0, |above| significand << above);
        let is_up = rest > HALF || (rest == HALF && kept & 1 == 1);
        let steps = u64::from((normal - self.min_exponent).cast_unsigned());
        let magnitude = (steps << fraction_bits) + kept + u64::from(is_up);
        u16::try_from(magnitude.min(u64::from(self.infinity())))
            .expect("because infinity has sixteen bits")
    }
}

fn narrow_f64(value: f64, target: &Narrow) -> u16 {
    let bits = value.to_bits();
    let (exponent, fraction) = (bits >> 52 & 2047, bits << 12);
    let magnitude = match exponent {
        2047 if fraction == 0 => target.infinity(),
        2047 => target.nan(fraction),
        // Far below half the smallest subnormal of either target.
        0 => 0,
        _ => {
            let exponent = i32::try_from(exponent).expect("because it has eleven bits");
            target.round(HALF | fraction >> 1, exponent - 1023 - 63)
        }
    };
    sign(bits >> 63 == 1) | magnitude
}

fn narrow_f32(value: f32, target: &Narrow) -> u16 {
    let bits = value.to_bits();
    let (exponent, fraction) = (bits >> 23 & 255, u64::from(bits << 9) << 32);
    let magnitude = match exponent {
        255 if fraction == 0 => target.infinity(),
        255 => target.nan(fraction),
        0 if fraction == 0 => 0,
        0 => {
            let up = fraction.leading_zeros();
            target.round(fraction << up, -126 - 64 - up.cast_signed())
        }
        _ => {
            let exponent = i32::try_from(exponent).expect("because it has eight bits");
            target.round(HALF | fraction >> 1, exponent - 127 - 63)
        }
    };
    sign(bits >> 31 == 1) | magnitude
}

const fn sign(is_negative: bool) -> u16 {
    if is_negative { 0x8000 } else { 0 }
}

const BINARY16: Narrow = Narrow {
    precision: 11,
    min_exponent: -14,
};

const BFLOAT16: Narrow = Narrow {
    precision: 8,
    min_exponent: -126,
};

const HALF: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    type Format = (fn(f64) -> u16, fn(f32) -> u16, fn(u16) -> f32, u16);

    const FORMATS: [Format; 2] = [
        (f16_from_f64, f16_from_f32, f16_to_f32, 0x7c00),
        (bf16_from_f64, bf16_from_f32, bf16_to_f32, 0x7f80),
    ];

    #[test]
    fn every_pattern_comes_back() {
        for (from_f64, from_f32, to_f32, infinity) in FORMATS {
            for bits in 0..=u16::MAX {
                let is_nan = bits & 0x7fff > infinity;
                let value = to_f32(bits);
                assert_eq!(value.is_nan(), is_nan, "{bits:#x}");
                // A signalling NaN becomes quiet.
                let quiet = infinity & !(infinity << 1) & !(1 << 15);
                let quiet = if is_nan { quiet >> 1 } else { 0 };
                let lowest = 1 << (infinity.trailing_zeros() - 1);
                assert!(quiet == 0 || quiet == lowest);
                assert_eq!(from_f32(value), bits | quiet, "{bits:#x}");
                if !is_nan {
                    assert_eq!(from_f64(f64::from(value)), bits, "{bits:#x}");
                }
            }
        }
    }

    /// Between any two neighbours everything below the middle goes down, everything above it up,
    /// and the middle to the even one.
    #[test]
    fn every_midpoint_goes_to_even_and_all_else_to_the_nearest() {
        for (from_f64, from_f32, to_f32, infinity) in FORMATS {
            for low in 0..infinity {
                let high = low + 1;
                let low_value = f64::from(to_f32(low));
                let high_value = if high == infinity {
                    // Where the next number would be.
                    low_value + (low_value - f64::from(to_f32(low - 1)))
                } else {
                    f64::from(to_f32(high))
                };
                let middle = f64::midpoint(low_value, high_value);
                let even = if low & 1 == 0 { low } else { high };
                for (value, expected) in [
                    (middle.next_down(), low),
                    (middle, even),
                    (middle.next_up(), high),
                ] {
                    assert_eq!(from_f64(value), expected, "{value:e} above {low:#x}");
                    assert_eq!(from_f64(-value), expected | 0x8000, "-{value:e}");
                }
                // The middle of two 16-bit numbers is a binary32 number, beyond the largest too.
                #[expect(clippy::cast_possible_truncation, reason = "exact")]
                let middle = middle as f32;
                for (value, expected) in [
                    (middle.next_down(), low),
                    (middle, even),
                    (middle.next_up(), high),
                ] {
                    assert_eq!(from_f32(value), expected, "{value:e} above {low:#x}");
                    assert_eq!(from_f32(-value), expected | 0x8000, "-{value:e}");
                }
            }
        }
    }

    #[test]
    fn a_value_that_two_roundings_get_wrong_is_rounded_once() {
        // 1 + 2^-11 is the midpoint of two binary16 numbers; 2^-40 above it binary32 sees none.
        let value = 1.0 + 2.0_f64.powi(-11) + 2.0_f64.powi(-40);
        assert_eq!(f16_from_f64(value), 0x3c01);
        #[expect(clippy::cast_possible_truncation, reason = "what two roundings do")]
        let twice = f16_from_f32(value as f32);
        assert_eq!(twice, 0x3c00);
    }

    #[test]
    fn values_at_the_ends_and_nans_keep_what_they_can() {
        assert_eq!(f16_from_f64(0.0), 0);
        assert_eq!(f16_from_f64(-0.0), 0x8000);
        assert_eq!(f16_from_f64(f64::MAX), 0x7c00);
        assert_eq!(f16_from_f64(f64::NEG_INFINITY), 0xfc00);
        assert_eq!(bf16_from_f64(f64::from_bits(1)), 0);
        assert_eq!(bf16_from_f32(-f32::from_bits(1)), 0x8000);
        assert_eq!(f16_from_f32(f32::from_bits(0xff80_0001)), 0xfe00);
        assert_eq!(bf16_from_f32(f32::from_bits(0x7fab_0000)), 0x7feb);
        assert_eq!(f16_from_f64(f64::from_bits(0x7ffa_bc00_0000_0000)), 0x7eaf);
    }
}
