//! Types whose codes name points of a grid: IQ1_S and IQ1_M, IQ2_XXS to IQ2_S, IQ3_XXS and IQ3_S.
//!
//! Blocks have 256 elements in runs of 32, which are four points of eight levels or eight points of
//! four. Grids of IQ2 and IQ3 have no negative levels; signs lie beside the codes.

use super::float::half;
use super::grids;

/// IQ1_S: scale, 32 bytes of codes, a word per run: four upper code triples, scale, shift.
#[inline]
pub(super) fn iq1_s(block: &[u8; 50], values: &mut [f32; 256]) {
    let scale = half(block, 0);
    for (point, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = word(block, 34 + 2 * (point / 4));
        let scale = scale * odd(word >> 12 & 7);
        let upper = word >> (3 * (point % 4)) & 7;
        shifted(
            scale,
            upper << 8 | u16::from(block[2 + point]),
            word >> 15 == 1,
            values,
        );
    }
}

/// IQ1_M: 32 bytes of codes, a nibble per point (upper code triple, shift), four words that hold
/// four scales of two points each, and a nibble of the block's scale.
#[inline]
pub(super) fn iq1_m(block: &[u8; 56], values: &mut [f32; 256]) {
    let words: [u16; 4] = std::array::from_fn(|index| word(block, 48 + 2 * index));
    let nibbles = (0..4).map(|index| (words[index] >> 12) << (4 * index));
    let scale = half(
        &nibbles.fold(0, |all, nibble| all | nibble).to_le_bytes(),
        0,
    );
    for (point, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = scale * odd(words[point / 8] >> (3 * (point / 2 % 4)) & 7);
        let nibble = block[32 + point / 2] >> (4 * (point % 2)) & 15;
        let code = u16::from(nibble & 7) << 8 | u16::from(block[point]);
        shifted(scale, code, nibble >> 3 == 1, values);
    }
}

/// IQ2_XXS: scale; per run four bytes of codes and a word: four signs of seven bits, scale.
#[inline]
pub(super) fn iq2_xxs(block: &[u8; 66], values: &mut [f32; 256]) {
    let scale = half(block, 0);
    for (run, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let codes = &block[2 + 8 * run..][..4];
        let word = double_word(block, 6 + 8 * run);
        let scale = scale * (0.5 + (word >> 28) as f32) * 0.25;
        for (point, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let levels = &grids::IQ2_XXS[usize::from(codes[point])];
            signed(scale, levels, even_signs(word >> (7 * point)), values);
        }
    }
}

/// IQ2_XS: scale, 32 words (code of nine bits, signs of seven), a nibble per two points: scale.
#[inline]
pub(super) fn iq2_xs(block: &[u8; 74], values: &mut [f32; 256]) {
    let scale = half(block, 0);
    for (point, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = word(block, 2 + 2 * point);
        let scale = scale * fraction(nibble(&block[66..], point / 2)) * 0.25;
        let levels = &grids::IQ2_XS[usize::from(word & 511)];
        signed(scale, levels, even_signs(u32::from(word >> 9)), values);
    }
}

/// IQ2_S: scale, 32 bytes of codes, 32 bytes of signs, a bit pair per point: the code's upper bits,
/// a nibble per two points: scale.
#[inline]
pub(super) fn iq2_s(block: &[u8; 82], values: &mut [f32; 256]) {
    let scale = half(block, 0);
    for (point, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let upper = block[66 + point / 4] >> (2 * (point % 4)) & 3;
        let scale = scale * fraction(nibble(&block[74..], point / 2)) * 0.25;
        let code = usize::from(upper) << 8 | usize::from(block[2 + point]);
        signed(scale, &grids::IQ2_S[code], block[34 + point], values);
    }
}

/// IQ3_XXS: scale, 64 bytes of codes, a word per run: four signs of seven bits, scale.
#[inline]
pub(super) fn iq3_xxs(block: &[u8; 98], values: &mut [f32; 256]) {
    let scale = half(block, 0);
    for (run, values) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let codes = &block[2 + 8 * run..][..8];
        let word = double_word(block, 66 + 4 * run);
        let scale = scale * (0.5 + (word >> 28) as f32) * 0.5;
        for (pair, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let levels = two_points(
                &grids::IQ3_XXS[usize::from(codes[2 * pair])],
                &grids::IQ3_XXS[usize::from(codes[2 * pair + 1])],
            );
            signed(scale, &levels, even_signs(word >> (7 * pair)), values);
        }
    }
}

/// IQ3_S: scale, 64 bytes of codes, a bit per point: the code's upper bit, 32 bytes of signs, a
/// nibble per run: scale.
#[inline]
pub(super) fn iq3_s(block: &[u8; 110], values: &mut [f32; 256]) {
    let scale = half(block, 0);
    let point = |index: usize| {
        let upper = block[66 + index / 8] >> (index % 8) & 1;
        &grids::IQ3_S[usize::from(upper) << 8 | usize::from(block[2 + index])]
    };
    for (pair, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = scale * odd(u16::from(nibble(&block[106..], pair / 4)));
        let levels = two_points(point(2 * pair), point(2 * pair + 1));
        signed(scale, &levels, block[74 + pair], values);
    }
}

/// A point of the IQ1 grid, all levels shifted by an eighth up or down.
#[inline]
fn shifted(scale: f32, code: u16, is_down: bool, values: &mut [f32; 8]) {
    let shift = if is_down { -0.125 } else { 0.125 };
    let levels = &grids::IQ1[usize::from(code)];
    for (value, level) in values.iter_mut().zip(levels) {
        *value = scale * (f32::from(*level) + shift);
    }
}

/// Levels times a scale; a set bit negates, the lowest bit the first.
#[inline]
fn signed(scale: f32, levels: &[i8; 8], signs: u8, values: &mut [f32; 8]) {
    for (place, (value, level)) in values.iter_mut().zip(levels).enumerate() {
        let sign = if signs >> place & 1 == 1 { -1.0 } else { 1.0 };
        *value = scale * f32::from(*level) * sign;
    }
}

/// Seven signs, and an eighth that makes the number of set bits even.
#[inline]
fn even_signs(bits: u32) -> u8 {
    let seven = (bits & 127) as u8;
    seven | ((seven.count_ones() & 1) as u8) << 7
}

/// Two points of four levels.
#[inline]
fn two_points(first: &[i8; 4], second: &[i8; 4]) -> [i8; 8] {
    std::array::from_fn(|place| {
        if place < 4 {
            first[place]
        } else {
            second[place - 4]
        }
    })
}

/// A scale's code as the odd number of that rank.
#[inline]
fn odd(code: u16) -> f32 {
    f32::from(2 * code + 1)
}

/// A scale's code and a half.
#[inline]
fn fraction(code: u8) -> f32 {
    0.5 + f32::from(code)
}

/// The nibble of an index, low halves first.
#[inline]
fn nibble(bytes: &[u8], index: usize) -> u8 {
    bytes[index / 2] >> (4 * (index % 2)) & 15
}

#[inline]
fn word(block: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([block[offset], block[offset + 1]])
}

#[inline]
fn double_word(block: &[u8], offset: usize) -> u32 {
    u32::from(word(block, offset)) | u32::from(word(block, offset + 2)) << 16
}
