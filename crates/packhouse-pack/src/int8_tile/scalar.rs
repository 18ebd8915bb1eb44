//! The kernels of every CPU: plain loops that compilers make vectors of, and words of eight codes.

use crate::int8_tile::columns::{BAND_COLUMNS, CHUNK, CodeColumns, assert_room};
use crate::int8_tile::quantiser::{HALF, INFINITY_BITS, MAGNITUDE_BITS, scale_and_inverse};
use crate::kernels::TileKernels;

/// The kernels of this level.
pub(crate) const KERNELS: TileKernels<()> = TileKernels {
    quantise,
    row_major,
    blocked,
};

/// Quantises one column into chunks `distance` apart; returns its scale.
fn quantise(_: (), values: &[f32], codes: &mut [i8], distance: usize) -> f32 {
    assert_room(values.len(), codes, distance);
    let (scale, inverse) = scale_and_inverse(largest(values));
    for (values, codes) in values.chunks(CHUNK).zip(codes.chunks_mut(distance)) {
        for (value, code) in values.iter().zip(codes) {
            *code = rounded(finite(*value) * inverse);
        }
    }
    scale
}

/// Rounds to a code. Magnitudes are at most 127 and a bit, so that nothing is left to be clamped.
///
/// Converting a value to an integer is slow where compilers must mind what no integer holds. So
/// the whole part is had from the low bits of a sum with 1.5 * 2^23, which is one too many where
/// the sum rounded up.
fn rounded(scaled: f32) -> i8 {
    let magnitude = scaled.abs() + HALF;
    let sum = magnitude + WHOLE;
    let whole = sum.to_bits().cast_signed() - WHOLE.to_bits().cast_signed();
    let whole = whole - i32::from(sum - WHOLE > magnitude);
    // All ones for negative values: the complement, and one more, is the negative.
    let sign = scaled.to_bits().cast_signed() >> 31;
    ((whole ^ sign) - sign) as i8
}

/// Values from here on to twice as much are whole numbers.
const WHOLE: f32 = 12_582_912.0;

/// The bits of the largest finite magnitude.
fn largest(values: &[f32]) -> u32 {
    let mut most = [0i32; 16];
    for values in values.chunks(16) {
        for (most, value) in most.iter_mut().zip(values) {
            let magnitude = finite(*value).to_bits() & MAGNITUDE_BITS;
            *most = magnitude.cast_signed().max(*most);
        }
    }
    most.into_iter().fold(0, i32::max).cast_unsigned()
}

fn finite(value: f32) -> f32 {
    let is_finite = value.to_bits() & MAGNITUDE_BITS < INFINITY_BITS;
    if is_finite { value } else { 0.0 }
}

/// Writes the first columns as row-major rows, one row per code of a column.
fn row_major(_: (), columns: &CodeColumns, rows: &mut [&mut [i8]], _: bool) {
    let count = columns.row_length(rows);
    let chunks = columns.bytes().chunks_exact(columns.distance());
    for (rows, chunk) in rows.chunks_mut(CHUNK).zip(chunks) {
        for (band, rows) in rows.chunks_mut(8).enumerate() {
            for first in (0..count).step_by(8) {
                let words = transposed(&chunk[first * CHUNK + band * 8..]);
                let last = count.min(first + 8);
                for (row, word) in rows.iter_mut().zip(words) {
                    let codes = word.to_le_bytes().map(u8::cast_signed);
                    row[first..last].copy_from_slice(&codes[..last - first]);
                }
            }
        }
    }
}

/// Writes all columns as a band of 8 by 8 microtiles.
fn blocked(_: (), columns: &CodeColumns, band: &mut [i8], _: bool) {
    columns.assert_band(band);
    let chunks = columns.bytes().chunks_exact(columns.distance());
    for (blocks, chunk) in band.chunks_exact_mut(CHUNK * BAND_COLUMNS).zip(chunks) {
        for (group, microtiles) in blocks.chunks_exact_mut(8 * BAND_COLUMNS).enumerate() {
            for (index, microtile) in microtiles.chunks_exact_mut(64).enumerate() {
                let words = transposed(&chunk[index * 8 * CHUNK + group * 8..]);
                for (row, word) in microtile.chunks_exact_mut(8).zip(words) {
                    row.copy_from_slice(&word.to_le_bytes().map(u8::cast_signed));
                }
            }
        }
    }
}

/// Eight codes of each of eight columns; word `i` of the answer has code `i` of every column.
fn transposed(chunks: &[i8]) -> [u64; 8] {
    let word = |column: usize| {
        let codes = chunks[column * CHUNK..].first_chunk::<8>();
        let codes = codes.expect("because chunks are whole words");
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
