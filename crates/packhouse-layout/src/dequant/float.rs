//! Types that store numbers: F32, F16, BF16, F64.

/// F32: the bits as they are, those of a NaN too.
#[inline]
pub(super) fn f32(bytes: &[u8; 4], value: &mut [f32; 1]) {
    *value = [f32::from_le_bytes(*bytes)];
}

/// F16: widened exactly.
#[inline]
pub(super) fn f16(bytes: &[u8; 2], value: &mut [f32; 1]) {
    *value = [widen(u16::from_le_bytes(*bytes))];
}

/// BF16: the upper half of an F32's bits.
#[inline]
pub(super) fn bf16(bytes: &[u8; 2], value: &mut [f32; 1]) {
    let upper = u32::from(u16::from_le_bytes(*bytes));
    *value = [f32::from_bits(upper << 16)];
}

/// F64: rounded to the nearest, halves to the even one; beyond the range that is an infinity.
#[inline]
pub(super) fn f64(bytes: &[u8; 8], value: &mut [f32; 1]) {
    *value = [f64::from_le_bytes(*bytes) as f32];
}

/// The f16 at an offset of a block.
#[inline]
pub(super) fn half(block: &[u8], offset: usize) -> f32 {
    widen(u16::from_le_bytes([block[offset], block[offset + 1]]))
}

/// Widens the bits of an f16, which is exact. A NaN keeps its sign and its payload and is quiet.
///
/// Works on integers, and its one product is of normal numbers, so a thread that flushes subnormals
/// to zero gets the same. It has no branch, so that it is done in lanes.
#[inline]
pub(super) fn widen(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    let subnormal = (f32::from(bits & 0x7fff) * SUBNORMAL_UNIT).to_bits();
    let exponent = if magnitude < INFINITY { 112 } else { 224 };
    let quiet = if magnitude > INFINITY { QUIET } else { 0 };
    let normal = ((magnitude << 13) + (exponent << 23)) | quiet;
    let is_subnormal = magnitude < SMALLEST_NORMAL;
    f32::from_bits(sign | if is_subnormal { subnormal } else { normal })
}

/// An f16's infinity.
const INFINITY: u32 = 0x7c00;
/// The smallest f16 that is not subnormal.
const SMALLEST_NORMAL: u32 = 0x0400;
/// What a subnormal f16 counts: 2^-24.
const SUBNORMAL_UNIT: f32 = 1.0 / 16_777_216.0;
/// The bit of an f32 that makes a NaN quiet.
const QUIET: u32 = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    /// All of them, against the definition in f64: sign, exponent, fraction.
    #[test]
    fn every_half_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let magnitude = match exponent {
                0 => fraction * 2f64.powi(-24),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
            };
            let value = widen(bits);
            assert_eq!(value.is_sign_negative(), bits & 0x8000 != 0, "{bits:#06x}");
            assert_eq!(value.is_nan(), magnitude.is_nan(), "{bits:#06x}");
            if value.is_nan() {
                let payload = (bits & 1023) | 0x200;
                assert_eq!(
                    value.to_bits() >> 13 & 1023,
                    u32::from(payload),
                    "{bits:#06x}"
                );
            } else {
                assert_eq!(f64::from(value.abs()), magnitude, "{bits:#06x}");
            }
        }
    }
}
