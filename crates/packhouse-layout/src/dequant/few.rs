//! Types of few levels: ternary TQ1_0 and TQ2_0, four-bit floats MXFP4 and NVFP4, and the uneven
//! levels of IQ4_NL and IQ4_XS.

use super::float::half;
use super::k::two_bits;
use super::simple::less;

/// TQ1_0: 48 bytes of five digits, 4 bytes of four digits, scale. A digit is less one.
#[inline]
pub(super) fn tq1_0(block: &[u8; 54], values: &mut [f32; 256]) {
    let scale = half(block, 52);
    let (fives, rest) = values.split_at_mut(160);
    digits(&block[..32], scale, fives);
    let (fives, fours) = rest.split_at_mut(80);
    digits(&block[32..48], scale, fives);
    digits(&block[48..52], scale, fours);
}

/// The first digit of each byte, then the second of each ... A byte is a fraction of 256 in base
/// three, so that the next digit is what carries out of a multiplication by three.
#[inline]
fn digits(bytes: &[u8], scale: f32, values: &mut [f32]) {
    let mut power = 1u8;
    for values in values.chunks_exact_mut(bytes.len()) {
        for (value, byte) in values.iter_mut().zip(bytes) {
            let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
            *value = (f32::from(digit) - 1.0) * scale;
        }
        power = power.wrapping_mul(3);
    }
}

/// TQ2_0: 64 bytes of codes, scale. A code is less one.
#[inline]
pub(super) fn tq2_0(block: &[u8; 66], values: &mut [f32; 256]) {
    let scale = half(block, 64);
    for (s, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        for (value, code) in values.iter_mut().zip(two_bits(&block[..64], s)) {
            *value = less(code, 1) * scale;
        }
    }
}

/// MXFP4: exponent, nibbles that name levels.
#[inline]
pub(super) fn mxfp4(block: &[u8; 17], values: &mut [f32; 32]) {
    named(&FLOAT_4, half_power(block[0]), &block[1..], values);
}

/// NVFP4: four scales of runs of 16, nibbles that name levels.
#[inline]
pub(super) fn nvfp4(block: &[u8; 36], values: &mut [f32; 64]) {
    for (s, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = half_unsigned(block[s]);
        named(&FLOAT_4, scale, &block[4 + 8 * s..][..8], values);
    }
}

/// IQ4_NL: scale, nibbles that name levels.
#[inline]
pub(super) fn iq4_nl(block: &[u8; 18], values: &mut [f32; 32]) {
    named(&UNEVEN, half(block, 0), &block[2..], values);
}

/// IQ4_XS: scale, upper bit pairs and nibbles of eight scales of runs of 32, nibbles that name
/// levels. A run's scale is less 32.
#[inline]
pub(super) fn iq4_xs(block: &[u8; 136], values: &mut [f32; 256]) {
    let scale = half(block, 0);
    for (s, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let low = block[4 + s / 2] >> (4 * (s % 2)) & 15;
        let high = block[2 + s / 4] >> (2 * (s % 4)) & 3;
        let scale = scale * less(low | high << 4, 32);
        named(&UNEVEN, scale, &block[8 + 16 * s..][..16], values);
    }
}

/// Levels by nibbles: the low halves of all bytes, then the high ones.
#[inline]
fn named(levels: &[i8; 16], scale: f32, nibbles: &[u8], values: &mut [f32]) {
    let (low, high) = values.split_at_mut(nibbles.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(nibbles) {
        *low = f32::from(levels[usize::from(byte & 15)]) * scale;
        *high = f32::from(levels[usize::from(byte >> 4)]) * scale;
    }
}

/// An E8M0 exponent as half the power of two that it is: 2^(e - 128). There is no NaN: 255 is as
/// any other.
#[inline]
fn half_power(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 => 1 << 21,
        1 => 1 << 22,
        _ => u32::from(exponent - 1) << 23,
    })
}

/// An E4M3 number without a sign, halved. Bit 7 is not read, but that 0x7f is 0 and 0xff is not.
#[inline]
fn half_unsigned(bits: u8) -> f32 {
    if bits == 0x7f {
        return 0.0;
    }
    let (exponent, fraction) = (bits >> 3 & 15, f32::from(bits & 7));
    if exponent == 0 {
        return fraction / 1024.0;
    }
    let power = f32::from_bits((u32::from(exponent) + 119) << 23);
    (1.0 + fraction / 8.0) * power
}

/// The E2M1 numbers, doubled; bit 3 is the sign.
const FLOAT_4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The levels of IQ4_NL and IQ4_XS.
const UNEVEN: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];
