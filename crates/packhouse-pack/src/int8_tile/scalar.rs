//! The kernels of every CPU: plain loops that compilers make vectors of, and words of eight codes.

use crate::int8_tile::columns::{COLUMNS, CodeColumns};
use crate::int8_tile::quantiser::{
    CODE_MAX, HALF, INFINITY_BITS, MAGNITUDE_BITS, scale_and_inverse,
};
use std::ops::Range;

/// Quantises one column; returns its scale.
pub(crate) fn quantise(_: (), values: &[f32], codes: &mut [i8]) -> f32 {
    assert_eq!(values.len(), codes.len(), "codes of a column");
    let magnitudes = values.iter().map(|value| value.to_bits() & MAGNITUDE_BITS);
    let finite = magnitudes.map(|bits| if bits < INFINITY_BITS { bits } else { 0 });
    let (scale, inverse) = scale_and_inverse(finite.fold(0, u32::max));
    for (value, code) in values.iter().zip(codes) {
        let is_finite = value.to_bits() & MAGNITUDE_BITS < INFINITY_BITS;
        let scaled = if is_finite { *value } else { 0.0 } * inverse;
        let rounded = scaled + HALF.copysign(scaled);
        *code = rounded.clamp(-CODE_MAX, CODE_MAX) as i8;
    }
    scale
}

/// Writes the first columns as those of row-major rows, one row per code of a column.
pub(crate) fn row_major(
    _: (),
    columns: &CodeColumns,
    target: Range<usize>,
    rows: &mut [&mut [i8]],
    _streamed: bool,
) {
    assert_eq!(rows.len(), columns.depth(), "rows");
    assert!(target.len() <= COLUMNS, "columns");
    let (bytes, stride) = (columns.bytes(), columns.stride());
    for (band, rows) in rows.chunks_mut(8).enumerate() {
        for first in (0..target.len()).step_by(8) {
            let words = transposed(&bytes[first * stride + band * 8..], stride);
            let count = (target.len() - first).min(8);
            for (row, word) in rows.iter_mut().zip(words) {
                let codes = word.to_le_bytes().map(u8::cast_signed);
                row[target.start + first..][..count].copy_from_slice(&codes[..count]);
            }
        }
    }
}

/// Writes all columns as a band of 8 by 8 microtiles.
pub(crate) fn blocked(_: (), columns: &CodeColumns, band: &mut [i8], _streamed: bool) {
    let rows = columns.depth().next_multiple_of(64);
    assert_eq!(band.len(), rows * COLUMNS, "band");
    let (bytes, stride) = (columns.bytes(), columns.stride());
    for (group, microtiles) in band.chunks_exact_mut(8 * COLUMNS).enumerate() {
        for (index, microtile) in microtiles.chunks_exact_mut(64).enumerate() {
            let words = transposed(&bytes[index * 8 * stride + group * 8..], stride);
            for (row, word) in microtile.chunks_exact_mut(8).zip(words) {
                row.copy_from_slice(&word.to_le_bytes().map(u8::cast_signed));
            }
        }
    }
}

/// Eight codes of each of eight columns; word `i` of the answer has code `i` of every column.
fn transposed(codes: &[i8], stride: usize) -> [u64; 8] {
    let word = |column: usize| {
        let codes = codes[column * stride..].first_chunk::<8>();
        let codes = codes.expect("because columns end with whole words");
        u64::from_le_bytes(codes.map(i8::cast_unsigned))
    };
    let mut words: [u64; 8] = std::array::from_fn(word);
    // Exchanges the upper codes of one word with the lower ones of another: 4, then 2, then 1.
    for (distance, shift, mask) in [
        (4, 32, 0x0000_0000_ffff_ffff),
        (2, 16, 0x0000_ffff_0000_ffff),
        (1, 8, 0x00ff_00ff_00ff_00ff),
    ] {
        for low in (0..8).filter(|low| low & distance == 0) {
            let high = low + distance;
            let exchanged = (words[low] >> shift ^ words[high]) & mask;
            words[low] ^= exchanged << shift;
            words[high] ^= exchanged;
        }
    }
    words
}
