//! Blocks of 256 elements whose sub-blocks have scales of their own: Q2_K to Q6_K; and Q8_K.
//!
//! In all of them a code's parts lie in planes: 32 bytes (or the two halves of a sub-block pair)
//! hold the same few bits of several runs of 32 elements.

use super::float::half;
use super::simple::less;
use super::six_bits::decode;

/// Q2_K: a byte per sub-block of 16 (scale low, minimum high), 64 bytes of codes, scale, minimum.
#[inline]
pub(super) fn q2_k(block: &[u8; 84], values: &mut [f32; 256]) {
    let (scale, minimum) = (half(block, 80), half(block, 82));
    for (s, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = scale * f32::from(block[s] & 15);
        let minimum = minimum * f32::from(block[s] >> 4);
        let codes = two_bits(&block[16..80], s);
        for (value, code) in values.iter_mut().zip(codes) {
            *value = scale * f32::from(code) - minimum;
        }
    }
}

/// Q3_K: 32 bytes of third bits, 64 bytes of codes, 12 bytes of 6-bit scales, scale. A code without
/// its third bit is less four, a sub-block's scale is less 32.
#[inline]
pub(super) fn q3_k(block: &[u8; 110], values: &mut [f32; 256]) {
    let scale = half(block, 108);
    for (s, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let low = block[96 + s % 8] >> (4 * (s / 8)) & 15;
        let high = block[104 + s % 4] >> (2 * (s / 4)) & 3;
        let scale = scale * less(low | high << 4, 32);
        let codes = two_bits(&block[32..96], s);
        let thirds = &block[16 * (s % 2)..][..16];
        for ((value, code), third) in values.iter_mut().zip(codes).zip(thirds) {
            *value = scale * less(code | (third >> (s / 2) & 1) << 2, 4);
        }
    }
}

/// Q4_K: scale, minimum, 12 bytes of 6-bit scales and minima of sub-blocks of 32, nibbles.
#[inline]
pub(super) fn q4_k(block: &[u8; 144], values: &mut [f32; 256]) {
    let scales = sub_blocks_of_32(block);
    for (s, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scales[s];
        let nibbles = &block[16 + 32 * (s / 2)..][..32];
        for (value, byte) in values.iter_mut().zip(nibbles) {
            *value = scale * f32::from(byte >> (4 * (s % 2)) & 15) - minimum;
        }
    }
}

/// Q5_K: as Q4_K, with 32 bytes of fifth bits before the nibbles.
#[inline]
pub(super) fn q5_k(block: &[u8; 176], values: &mut [f32; 256]) {
    let scales = sub_blocks_of_32(block);
    for (s, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, minimum) = scales[s];
        let nibbles = &block[48 + 32 * (s / 2)..][..32];
        for ((value, byte), fifth) in values.iter_mut().zip(nibbles).zip(&block[16..48]) {
            let code = byte >> (4 * (s % 2)) & 15 | (fifth >> s & 1) << 4;
            *value = scale * f32::from(code) - minimum;
        }
    }
}

/// Q6_K: 128 bytes of nibbles, 64 bytes of upper bit pairs, 16 signed scales of sub-blocks of 16,
/// scale. A code is less 32.
#[inline]
pub(super) fn q6_k(block: &[u8; 210], values: &mut [f32; 256]) {
    let scale = half(block, 208);
    for (s, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = scale * f32::from(block[192 + s].cast_signed());
        // Half of the block, run of 32 in it, half of the run.
        let (part, run, side) = (s / 8, s / 2 % 4, s % 2);
        let nibbles = &block[64 * part + 32 * (run % 2) + 16 * side..][..16];
        let pairs = &block[128 + 32 * part + 16 * side..][..16];
        for ((value, nibble), pair) in values.iter_mut().zip(nibbles).zip(pairs) {
            let code = nibble >> (4 * (run / 2)) & 15 | (pair >> (2 * run) & 3) << 4;
            *value = scale * less(code, 32);
        }
    }
}

/// Q8_K: f32 scale, 256 signed bytes; then their sums, which are not read.
#[inline]
pub(super) fn q8_k(block: &[u8; 292], values: &mut [f32; 256]) {
    let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    for (value, byte) in values.iter_mut().zip(&block[4..260]) {
        *value = scale * f32::from(byte.cast_signed());
    }
}

/// The codes of two bits of a sub-block of 16: of each 32 bytes the lowest bits belong to the first
/// 32 elements, the next to the next 32 ...
#[inline]
pub(super) fn two_bits(codes: &[u8], sub_block: usize) -> [u8; 16] {
    let bytes = &codes[32 * (sub_block / 8) + 16 * (sub_block % 2)..][..16];
    std::array::from_fn(|index| bytes[index] >> (2 * (sub_block / 2 % 4)) & 3)
}

/// Scales and minima of Q4_K and Q5_K.
#[inline]
fn sub_blocks_of_32(block: &[u8]) -> [(f32, f32); 8] {
    let (scale, minimum) = (half(block, 0), half(block, 2));
    let bytes = block[4..16].try_into();
    let code = decode(bytes.expect("because the range has that length"));
    std::array::from_fn(|s| {
        let (sub_scale, sub_minimum) = (f32::from(code.scales[s]), f32::from(code.minima[s]));
        (scale * sub_scale, minimum * sub_minimum)
    })
}
