//! Int8 tiles by AVX2: 32 values of a column at a time, then 64 codes of each row of the tile.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::int8_tile::columns::{COLUMNS, CodeColumns};
use crate::int8_tile::quantiser::{HALF, INFINITY_BITS, MAGNITUDE_BITS, scale_and_inverse};
use crate::isa::Avx2;
use crate::x86_64::traffic::LINE_BYTES;
use std::arch::x86_64::*;
use std::ops::Range;

/// Quantises one column; returns its scale.
pub(crate) fn quantise(_: Avx2, values: &[f32], codes: &mut [i8]) -> f32 {
    assert_eq!(values.len(), codes.len(), "codes of a column");
    // SAFETY: the token proves the features.
    unsafe { quantise_column(values, codes) }
}

/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx2")]
unsafe fn quantise_column(values: &[f32], codes: &mut [i8]) -> f32 {
    let all = largest::<false>(values);
    let is_finite = all < INFINITY_BITS;
    let largest = if is_finite {
        all
    } else {
        largest::<true>(values)
    };
    let (scale, inverse) = scale_and_inverse(largest);
    if is_finite {
        round::<false>(values, inverse, codes);
    } else {
        round::<true>(values, inverse, codes);
    }
    scale
}

/// The largest magnitude; with `MASKED`, of finite values only.
#[target_feature(enable = "avx2")]
fn largest<const MASKED: bool>(values: &[f32]) -> u32 {
    let magnitude = _mm256_set1_epi32(MAGNITUDE_BITS.cast_signed());
    let mut most = [_mm256_setzero_si256(); 4];
    let mut take = |values: &[f32; FOUR]| {
        for (most, values) in most.iter_mut().zip(vectors(values)) {
            let values = if MASKED { finite(values) } else { values };
            *most = _mm256_max_epi32(*most, _mm256_and_si256(values, magnitude));
        }
    };
    let (fours, rest) = values.as_chunks::<FOUR>();
    for four in fours {
        take(four);
    }
    if !rest.is_empty() {
        take(&padded(rest));
    }
    let [a, b, c, d] = most;
    let most = _mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d));
    let mut lanes = [0u32; 8];
    // SAFETY: eight words are one vector.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), most) }
    lanes.into_iter().fold(0, u32::max)
}

/// Values to codes; with `MASKED`, those that are not finite count as 0.
#[target_feature(enable = "avx2")]
fn round<const MASKED: bool>(values: &[f32], inverse: f32, codes: &mut [i8]) {
    let inverse = _mm256_set1_ps(inverse);
    // Of each two words, that of the first 8 values, then of the second, and so on.
    let by_vector = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let least = _mm256_set1_epi8(-127);
    let rounded = |values: &[f32; FOUR], target: &mut [i8; FOUR]| {
        let [a, b, c, d] = vectors(values).map(|values| {
            let values = if MASKED { finite(values) } else { values };
            whole(_mm256_castsi256_ps(values), inverse)
        });
        let codes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        let codes = _mm256_max_epi8(_mm256_permutevar8x32_epi32(codes, by_vector), least);
        // SAFETY: 32 codes are one vector.
        unsafe { _mm256_storeu_si256(target.as_mut_ptr().cast(), codes) }
    };
    let (fours, rest) = values.as_chunks::<FOUR>();
    let (targets, last) = codes.as_chunks_mut::<FOUR>();
    for (four, target) in fours.iter().zip(targets) {
        rounded(four, target);
    }
    if !rest.is_empty() {
        let mut codes = [0; FOUR];
        rounded(&padded(rest), &mut codes);
        last.copy_from_slice(&codes[..last.len()]);
    }
}

/// Values of four vectors, and codes of one.
const FOUR: usize = 32;

#[target_feature(enable = "avx2")]
#[inline]
fn vectors(values: &[f32; FOUR]) -> [__m256i; 4] {
    // SAFETY: 32 values are four vectors.
    let load = |index: usize| unsafe { _mm256_loadu_si256(values.as_ptr().add(index * 8).cast()) };
    [load(0), load(1), load(2), load(3)]
}

fn padded(rest: &[f32]) -> [f32; FOUR] {
    let mut values = [0.0; FOUR];
    values[..rest.len()].copy_from_slice(rest);
    values
}

/// Values, with 0 for those that are not finite.
#[target_feature(enable = "avx2")]
#[inline]
fn finite(values: __m256i) -> __m256i {
    let magnitudes = _mm256_and_si256(values, _mm256_set1_epi32(MAGNITUDE_BITS.cast_signed()));
    let infinity = _mm256_set1_epi32(INFINITY_BITS.cast_signed());
    _mm256_and_si256(values, _mm256_cmpgt_epi32(infinity, magnitudes))
}

/// Values, scaled and rounded to whole numbers.
#[target_feature(enable = "avx2")]
#[inline]
fn whole(values: __m256, inverse: __m256) -> __m256i {
    let sign = _mm256_castsi256_ps(_mm256_set1_epi32(!MAGNITUDE_BITS.cast_signed()));
    let scaled = _mm256_mul_ps(values, inverse);
    let signed = _mm256_or_ps(_mm256_and_ps(scaled, sign), _mm256_set1_ps(HALF));
    _mm256_cvttps_epi32(_mm256_add_ps(scaled, signed))
}

/// Writes the first columns as those of row-major rows.
pub(crate) fn row_major(
    _: Avx2,
    columns: &CodeColumns,
    target: Range<usize>,
    rows: &mut [&mut [i8]],
    streamed: bool,
) {
    assert_eq!(rows.len(), columns.depth(), "rows");
    assert!(target.len() <= COLUMNS, "columns");
    // SAFETY: the token proves the features; the lengths were asserted.
    unsafe { put_rows(columns, target, rows, streamed) }
}

/// # Safety
/// The CPU has the features; there are as many rows as a column has codes, and at most `COLUMNS`
/// target columns.
#[target_feature(enable = "avx2")]
unsafe fn put_rows(
    columns: &CodeColumns,
    target: Range<usize>,
    rows: &mut [&mut [i8]],
    streamed: bool,
) {
    let (bytes, stride) = (columns.bytes().as_ptr(), columns.stride());
    let mut lines = Lines([[0; LINE_BYTES]; 16]);
    for (band, rows) in rows.chunks_mut(16).enumerate() {
        for first in (0..target.len()).step_by(64) {
            for half in [0, 32] {
                let column = first + half;
                // SAFETY: `CodeColumns` has whole 64 columns, and 16 bytes of each at any multiple
                // of 16 below its depth; each half line is 32 bytes.
                unsafe {
                    let halves = transposed_32(bytes.add(column * stride + band * 16), stride);
                    for (line, codes) in lines.0.iter_mut().zip(halves) {
                        _mm256_store_si256(line.as_mut_ptr().add(half).cast(), codes);
                    }
                }
            }
            let from = target.start + first;
            let to = target.end.min(from + 64);
            for (row, line) in rows.iter_mut().zip(&lines.0) {
                put(&mut row[from..to], line, streamed);
            }
        }
    }
    // Streamed stores are ordered before whatever tells other threads of the tile.
    _mm_sfence();
}

/// Cache lines on their way to rows.
#[repr(align(64))]
struct Lines([[i8; LINE_BYTES]; 16]);

#[target_feature(enable = "avx2")]
#[inline]
fn put(target: &mut [i8], line: &[i8; LINE_BYTES], streamed: bool) {
    let Some(whole) = target.as_mut_array::<LINE_BYTES>() else {
        return target.copy_from_slice(&line[..target.len()]);
    };
    if !streamed || !whole.as_ptr().addr().is_multiple_of(LINE_BYTES) {
        *whole = *line;
        return;
    }
    // SAFETY: both have 64 bytes, and the target begins at a line.
    unsafe {
        let halves: [__m256i; 2] = [
            _mm256_loadu_si256(line.as_ptr().cast()),
            _mm256_loadu_si256(line.as_ptr().add(32).cast()),
        ];
        _mm256_stream_si256(whole.as_mut_ptr().cast(), halves[0]);
        _mm256_stream_si256(whole.as_mut_ptr().add(32).cast(), halves[1]);
    }
}

/// 16 codes of each of 32 columns; vector `i` of the answer has code `i` of every column.
///
/// # Safety
/// The CPU has the features; 16 bytes of each of 32 columns are readable, `stride` apart.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn transposed_32(codes: *const i8, stride: usize) -> [__m256i; 16] {
    let load = |column: usize| {
        // SAFETY: the caller's 32 columns.
        unsafe { _mm_loadu_si128(codes.add(column * stride).cast()) }
    };
    // Lane `g` of vector `c` is column `16 g + c`.
    let mut vectors = [_mm256_setzero_si256(); 16];
    for (column, vector) in vectors.iter_mut().enumerate() {
        *vector = _mm256_setr_m128i(load(column), load(column + 16));
    }
    // Each turn moves one bit of the number of a vector into that of a byte, and one back.
    for _ in 0..4 {
        let from = vectors;
        for k in 0..8 {
            vectors[2 * k] = _mm256_unpacklo_epi8(from[k], from[k + 8]);
            vectors[2 * k + 1] = _mm256_unpackhi_epi8(from[k], from[k + 8]);
        }
    }
    vectors
}

/// Writes all columns as a band of 8 by 8 microtiles.
pub(crate) fn blocked(_: Avx2, columns: &CodeColumns, band: &mut [i8], streamed: bool) {
    let rows = columns.depth().next_multiple_of(64);
    assert_eq!(band.len(), rows * COLUMNS, "band");
    let streamed = streamed && band.as_ptr().addr().is_multiple_of(LINE_BYTES);
    // SAFETY: the token proves the features; the band's length was asserted, and its alignment is
    // known.
    unsafe { put_band(columns, rows, band.as_mut_ptr(), streamed) }
}

/// # Safety
/// The CPU has the features; `rows` is the depth rounded up to a multiple of 64; the band has
/// `rows` times `COLUMNS` bytes, from the beginning of a line if it is streamed.
#[target_feature(enable = "avx2")]
unsafe fn put_band(columns: &CodeColumns, rows: usize, band: *mut i8, streamed: bool) {
    let (bytes, stride) = (columns.bytes().as_ptr(), columns.stride());
    for row in (0..rows).step_by(32) {
        for column in (0..COLUMNS).step_by(8) {
            // SAFETY: `CodeColumns` has 32 bytes of each column at any multiple of 32 below its
            // rounded depth; a row of microtiles is `8 * COLUMNS` bytes, a microtile 64.
            unsafe {
                let microtiles = microtiles(bytes.add(column * stride + row), stride);
                for (group, halves) in microtiles.into_iter().enumerate() {
                    let place = band.add((row / 8 + group) * 8 * COLUMNS + column * 8);
                    for (half, codes) in halves.into_iter().enumerate() {
                        let place = place.add(half * 32).cast();
                        if streamed {
                            _mm256_stream_si256(place, codes);
                        } else {
                            _mm256_storeu_si256(place, codes);
                        }
                    }
                }
            }
        }
    }
    // Streamed stores are ordered before whatever tells other threads of the tile.
    _mm_sfence();
}

/// 32 codes of each of eight columns, as the halves of four microtiles down the depth.
///
/// # Safety
/// The CPU has the features; 32 bytes of each of 8 columns are readable, `stride` apart.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn microtiles(codes: *const i8, stride: usize) -> [[__m256i; 2]; 4] {
    let mut vectors = [_mm256_setzero_si256(); 8];
    for (column, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: the caller's 8 columns.
        *vector = unsafe { _mm256_loadu_si256(codes.add(column * stride).cast()) };
    }
    // As in `transposed_32`; then lane `l` of vector `r` has rows `16 l + 2 r` and the next.
    for _ in 0..3 {
        let from = vectors;
        for k in 0..4 {
            vectors[2 * k] = _mm256_unpacklo_epi8(from[k], from[k + 4]);
            vectors[2 * k + 1] = _mm256_unpackhi_epi8(from[k], from[k + 4]);
        }
    }
    let [a, b, c, d, e, f, g, h] = vectors;
    let low = |one, two| _mm256_permute2x128_si256::<0x20>(one, two);
    let high = |one, two| _mm256_permute2x128_si256::<0x31>(one, two);
    [
        [low(a, b), low(c, d)],
        [low(e, f), low(g, h)],
        [high(a, b), high(c, d)],
        [high(e, f), high(g, h)],
    ]
}
