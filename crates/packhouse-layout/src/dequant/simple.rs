//! Types with one scale, and at most one offset, for all codes of a block: Q1_0 to Q8_0.
//!
//! A nibble's byte holds two elements that lie half a block apart: the low half first.

use super::float::half;

/// Q1_0: scale, 128 bits; a set bit is the scale, a clear one its negative.
#[inline]
pub(super) fn q1_0(block: &[u8; 18], values: &mut [f32; 128]) {
    let scale = half(block, 0);
    for (eight, byte) in values.as_chunks_mut::<8>().0.iter_mut().zip(&block[2..]) {
        for (bit, value) in eight.iter_mut().enumerate() {
            *value = if byte >> bit & 1 == 1 { scale } else { -scale };
        }
    }
}

/// Q2_0: scale, 64 codes of two bits less one.
#[inline]
pub(super) fn q2_0(block: &[u8; 18], values: &mut [f32; 64]) {
    let scale = half(block, 0);
    for (four, byte) in values.as_chunks_mut::<4>().0.iter_mut().zip(&block[2..]) {
        for (place, value) in four.iter_mut().enumerate() {
            *value = less(byte >> (2 * place) & 3, 1) * scale;
        }
    }
}

/// Q4_0: scale, nibbles less eight.
#[inline]
pub(super) fn q4_0(block: &[u8; 18], values: &mut [f32; 32]) {
    let scale = half(block, 0);
    let (low, high) = values.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(&block[2..]) {
        *low = less(byte & 15, 8) * scale;
        *high = less(byte >> 4, 8) * scale;
    }
}

/// Q4_1: scale, offset, nibbles.
#[inline]
pub(super) fn q4_1(block: &[u8; 20], values: &mut [f32; 32]) {
    let (scale, offset) = (half(block, 0), half(block, 2));
    let (low, high) = values.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(&block[4..]) {
        *low = f32::from(byte & 15) * scale + offset;
        *high = f32::from(byte >> 4) * scale + offset;
    }
}

/// Q5_0: scale, a fifth bit for each nibble, nibbles; all five bits less sixteen.
#[inline]
pub(super) fn q5_0(block: &[u8; 22], values: &mut [f32; 32]) {
    let scale = half(block, 0);
    for (value, code) in values.iter_mut().zip(five_bits(&block[2..])) {
        *value = less(code, 16) * scale;
    }
}

/// Q5_1: scale, offset, a fifth bit for each nibble, nibbles.
#[inline]
pub(super) fn q5_1(block: &[u8; 24], values: &mut [f32; 32]) {
    let (scale, offset) = (half(block, 0), half(block, 2));
    for (value, code) in values.iter_mut().zip(five_bits(&block[4..])) {
        *value = f32::from(code) * scale + offset;
    }
}

/// Q8_0: scale, signed bytes.
#[inline]
pub(super) fn q8_0(block: &[u8; 34], values: &mut [f32; 32]) {
    let scale = half(block, 0);
    for (value, byte) in values.iter_mut().zip(&block[2..]) {
        *value = f32::from(byte.cast_signed()) * scale;
    }
}

/// A code of few bits, less an offset.
#[inline]
pub(super) fn less(code: u8, offset: i8) -> f32 {
    f32::from(code.cast_signed() - offset)
}

/// Codes of five bits: a little-endian word with bit `k` for element `k`, then nibbles.
#[inline]
fn five_bits(bytes: &[u8]) -> [u8; 32] {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    std::array::from_fn(|k| {
        let nibble = bytes[4 + k % 16] >> (4 * (k / 16)) & 15;
        let bit = if fifth >> k & 1 == 1 { 16 } else { 0 };
        nibble | bit
    })
}
