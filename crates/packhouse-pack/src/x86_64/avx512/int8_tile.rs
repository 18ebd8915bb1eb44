//! Int8 tiles by AVX-512: 64 values of a column at a time, then 64 codes of each row of the tile.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::int8_tile::columns::{COLUMNS, CodeColumns};
use crate::int8_tile::quantiser::{HALF, INFINITY_BITS, MAGNITUDE_BITS, scale_and_inverse};
use crate::isa::Avx512;
use crate::x86_64::traffic::LINE_BYTES;
use std::arch::x86_64::*;
use std::ops::Range;

/// Quantises one column; returns its scale.
pub(crate) fn quantise(_: Avx512, values: &[f32], codes: &mut [i8]) -> f32 {
    assert_eq!(values.len(), codes.len(), "codes of a column");
    // SAFETY: the token proves the features; the lengths are equal.
    unsafe { quantise_column(values, codes) }
}

/// # Safety
/// The CPU has the features; codes are as many as values.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn quantise_column(values: &[f32], codes: &mut [i8]) -> f32 {
    // SAFETY: the slice's own length.
    let all = unsafe { largest::<false>(values) };
    let is_finite = all < INFINITY_BITS;
    let largest = if is_finite {
        all
    } else {
        // SAFETY: the slice's own length.
        unsafe { largest::<true>(values) }
    };
    let (scale, inverse) = scale_and_inverse(largest);
    // SAFETY: the caller's lengths.
    unsafe {
        if is_finite {
            round::<false>(values, inverse, codes);
        } else {
            round::<true>(values, inverse, codes);
        }
    }
    scale
}

/// The largest magnitude; with `MASKED`, of finite values only.
///
/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn largest<const MASKED: bool>(values: &[f32]) -> u32 {
    let magnitude = _mm512_set1_epi32(MAGNITUDE_BITS.cast_signed());
    let mut most = [_mm512_setzero_si512(); 4];
    let take = |most: &mut __m512i, values: __m512i| {
        let bits = _mm512_and_si512(values, magnitude);
        *most = if MASKED {
            _mm512_mask_max_epi32(*most, is_finite(bits), *most, bits)
        } else {
            _mm512_max_epi32(*most, bits)
        };
    };
    let fours = values.chunks_exact(FOUR);
    let rest = fours.remainder();
    for four in fours {
        for (most, index) in most.iter_mut().zip(0..4) {
            // SAFETY: a chunk has four vectors.
            let values = unsafe { _mm512_loadu_si512(four.as_ptr().add(index * 16).cast()) };
            take(most, values);
        }
    }
    for ones in rest.chunks(16) {
        // SAFETY: only as many values as the chunk has are read.
        let values = unsafe { _mm512_maskz_loadu_epi32(first(ones.len()), ones.as_ptr().cast()) };
        take(&mut most[0], values);
    }
    let [a, b, c, d] = most;
    let most = _mm512_max_epi32(_mm512_max_epi32(a, b), _mm512_max_epi32(c, d));
    _mm512_reduce_max_epi32(most).cast_unsigned()
}

/// Values to codes; with `MASKED`, those that are not finite count as 0.
///
/// # Safety
/// The CPU has the features; codes are as many as values.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn round<const MASKED: bool>(values: &[f32], inverse: f32, codes: &mut [i8]) {
    let inverse = _mm512_set1_ps(inverse);
    // Of each four words, that of the first 16 values, then of the second, and so on.
    let by_vector = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let least = _mm512_set1_epi8(-127);
    let packed = |vectors: [__m512i; 4]| {
        let [a, b, c, d] = vectors.map(|values| whole::<MASKED>(values, inverse));
        let halves = [_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d)];
        let codes = _mm512_packs_epi16(halves[0], halves[1]);
        _mm512_max_epi8(_mm512_permutexvar_epi32(by_vector, codes), least)
    };
    let fours = values.chunks_exact(FOUR);
    let rest = fours.remainder();
    let mut targets = codes.chunks_exact_mut(FOUR);
    for (four, target) in fours.zip(&mut targets) {
        // SAFETY: a chunk has four vectors of values, its target one of codes.
        unsafe {
            let load = |index: usize| _mm512_loadu_si512(four.as_ptr().add(index * 16).cast());
            let codes = packed([load(0), load(1), load(2), load(3)]);
            _mm512_storeu_si512(target.as_mut_ptr().cast(), codes);
        }
    }
    let target = targets.into_remainder();
    let load = |index: usize| {
        let ones = &rest[(index * 16).min(rest.len())..];
        // SAFETY: only as many values as are left are read.
        unsafe { _mm512_maskz_loadu_epi32(first(ones.len().min(16)), ones.as_ptr().cast()) }
    };
    let codes = packed([load(0), load(1), load(2), load(3)]);
    let is_target = u64::MAX.checked_shr(64 - target.len() as u32).unwrap_or(0);
    // SAFETY: only as many codes as are left are written.
    unsafe { _mm512_mask_storeu_epi8(target.as_mut_ptr(), is_target, codes) }
}

/// Values, scaled and rounded to whole numbers.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn whole<const MASKED: bool>(values: __m512i, inverse: __m512) -> __m512i {
    let sign = _mm512_set1_epi32(!MAGNITUDE_BITS.cast_signed());
    let half = _mm512_castps_si512(_mm512_set1_ps(HALF));
    let magnitude = _mm512_set1_epi32(MAGNITUDE_BITS.cast_signed());
    let values = if MASKED {
        _mm512_maskz_mov_epi32(is_finite(_mm512_and_si512(values, magnitude)), values)
    } else {
        values
    };
    let scaled = _mm512_mul_ps(_mm512_castsi512_ps(values), inverse);
    // (scaled & sign) | half
    let signed = _mm512_ternarylogic_epi32::<0xea>(_mm512_castps_si512(scaled), sign, half);
    _mm512_cvttps_epi32(_mm512_add_ps(scaled, _mm512_castsi512_ps(signed)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn is_finite(magnitudes: __m512i) -> __mmask16 {
    _mm512_cmplt_epi32_mask(magnitudes, _mm512_set1_epi32(INFINITY_BITS.cast_signed()))
}

/// Values of four vectors, and codes of one.
const FOUR: usize = 64;

/// A mask of the first lanes, at most 16.
fn first(count: usize) -> __mmask16 {
    ((1u32 << count) - 1) as __mmask16
}

/// Writes the first columns as those of row-major rows.
pub(crate) fn row_major(
    _: Avx512,
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn put_rows(
    columns: &CodeColumns,
    target: Range<usize>,
    rows: &mut [&mut [i8]],
    streamed: bool,
) {
    let (bytes, stride) = (columns.bytes().as_ptr(), columns.stride());
    for (band, rows) in rows.chunks_mut(16).enumerate() {
        for first in (0..target.len()).step_by(64) {
            // SAFETY: `CodeColumns` has whole 64 columns, and 16 bytes of each at any multiple of
            // 16 below its depth.
            let lines = unsafe { transposed_64(bytes.add(first * stride + band * 16), stride) };
            let from = target.start + first;
            let to = target.end.min(from + 64);
            for (row, line) in rows.iter_mut().zip(lines) {
                // SAFETY: a line of codes is for a row's 64 bytes or fewer.
                unsafe { put(&mut row[from..to], line, streamed) }
            }
        }
    }
    // Streamed stores are ordered before whatever tells other threads of the tile.
    _mm_sfence();
}

/// # Safety
/// The CPU has the features; the target has at most 64 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn put(target: &mut [i8], line: __m512i, streamed: bool) {
    let place = target.as_mut_ptr();
    // SAFETY: the target's own length, and its alignment where that matters.
    unsafe {
        if target.len() < LINE_BYTES {
            _mm512_mask_storeu_epi8(place, (1 << target.len()) - 1, line);
        } else if streamed && place.addr().is_multiple_of(LINE_BYTES) {
            _mm512_stream_si512(place.cast(), line);
        } else {
            _mm512_storeu_si512(place.cast(), line);
        }
    }
}

/// 16 codes of each of 64 columns; vector `i` of the answer has code `i` of every column.
///
/// # Safety
/// The CPU has the features; 16 bytes of each of 64 columns are readable, `stride` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn transposed_64(codes: *const i8, stride: usize) -> [__m512i; 16] {
    let load = |column: usize| {
        // SAFETY: the caller's 64 columns.
        unsafe { _mm_loadu_si128(codes.add(column * stride).cast()) }
    };
    // Lane `g` of vector `c` is column `16 g + c`.
    let mut vectors = [_mm512_setzero_si512(); 16];
    for (column, vector) in vectors.iter_mut().enumerate() {
        let lanes = _mm512_castsi128_si512(load(column));
        let lanes = _mm512_inserti32x4::<1>(lanes, load(column + 16));
        let lanes = _mm512_inserti32x4::<2>(lanes, load(column + 32));
        *vector = _mm512_inserti32x4::<3>(lanes, load(column + 48));
    }
    // Each turn moves one bit of the number of a vector into that of a byte, and one back.
    for _ in 0..4 {
        let from = vectors;
        for k in 0..8 {
            vectors[2 * k] = _mm512_unpacklo_epi8(from[k], from[k + 8]);
            vectors[2 * k + 1] = _mm512_unpackhi_epi8(from[k], from[k + 8]);
        }
    }
    vectors
}

/// Writes all columns as a band of 8 by 8 microtiles.
pub(crate) fn blocked(_: Avx512, columns: &CodeColumns, band: &mut [i8], streamed: bool) {
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn put_band(columns: &CodeColumns, rows: usize, band: *mut i8, streamed: bool) {
    let (bytes, stride) = (columns.bytes().as_ptr(), columns.stride());
    for row in (0..rows).step_by(64) {
        for column in (0..COLUMNS).step_by(8) {
            // SAFETY: `CodeColumns` has 64 bytes of each column at any multiple of 64 below its
            // rounded depth; eight rows of microtiles are `8 * COLUMNS` bytes each, a microtile 64.
            unsafe {
                let microtiles = microtiles(bytes.add(column * stride + row), stride);
                for (group, microtile) in microtiles.into_iter().enumerate() {
                    let place = band.add((row / 8 + group) * 8 * COLUMNS + column * 8);
                    if streamed {
                        _mm512_stream_si512(place.cast(), microtile);
                    } else {
                        _mm512_storeu_si512(place.cast(), microtile);
                    }
                }
            }
        }
    }
    // Streamed stores are ordered before whatever tells other threads of the tile.
    _mm_sfence();
}

/// 64 codes of each of eight columns, as eight microtiles down the depth.
///
/// # Safety
/// The CPU has the features; 64 bytes of each of 8 columns are readable, `stride` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn microtiles(codes: *const i8, stride: usize) -> [__m512i; 8] {
    let mut vectors = [_mm512_setzero_si512(); 8];
    for (column, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: the caller's 8 columns.
        *vector = unsafe { _mm512_loadu_si512(codes.add(column * stride).cast()) };
    }
    // As in `transposed_64`; then lane `l` of vector `r` has rows `16 l + 2 r` and the next.
    for _ in 0..3 {
        let from = vectors;
        for k in 0..4 {
            vectors[2 * k] = _mm512_unpacklo_epi8(from[k], from[k + 4]);
            vectors[2 * k + 1] = _mm512_unpackhi_epi8(from[k], from[k + 4]);
        }
    }
    let [a, b, c, d, e, f, g, h] = vectors;
    let even = lanes_transposed([a, b, c, d]);
    let odd = lanes_transposed([e, f, g, h]);
    [
        even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3],
    ]
}

/// Vector `l` of the answer has lane `l` of each vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn lanes_transposed([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (low_ab, low_cd) = (
        _mm512_shuffle_i32x4::<0x44>(a, b),
        _mm512_shuffle_i32x4::<0x44>(c, d),
    );
    let (high_ab, high_cd) = (
        _mm512_shuffle_i32x4::<0xee>(a, b),
        _mm512_shuffle_i32x4::<0xee>(c, d),
    );
    [
        _mm512_shuffle_i32x4::<0x88>(low_ab, low_cd),
        _mm512_shuffle_i32x4::<0xdd>(low_ab, low_cd),
        _mm512_shuffle_i32x4::<0x88>(high_ab, high_cd),
        _mm512_shuffle_i32x4::<0xdd>(high_ab, high_cd),
    ]
}
