//! Int8 tiles by AVX-512: 64 values of a column at a time, then 64 codes of each row of the tile.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::int8_tile::bound::Bound;
use crate::int8_tile::columns::{BAND_COLUMNS, CHUNK, CodeColumns, assert_room};
use crate::int8_tile::head;
use crate::int8_tile::quantiser::{HALF, INFINITY_BITS, MAGNITUDE_BITS, scale_and_inverse};
use crate::isa::Avx512;
use crate::kernels::TileKernels;
use crate::x86_64::int8_tile::{Lines, as_codes};
use crate::x86_64::traffic::LINE_BYTES;
use packhouse_layout::Admitted;
use std::arch::x86_64::*;
use std::num::NonZeroUsize;

/// The kernels of this level.
pub(crate) const KERNELS: TileKernels<Avx512> = TileKernels {
    quantise,
    row_major,
    blocked,
};

/// Packs a whole head.
pub(crate) fn pack_head(
    token: Avx512,
    admitted: &Admitted,
    source: &[u8],
    target: &mut [u8],
    thread_count: NonZeroUsize,
) {
    let bound = Bound::Avx512(token, KERNELS);
    head::pack_head(bound, admitted, source, target, thread_count, as_codes);
}

/// Quantises one column into chunks `distance` apart; returns its scale.
fn quantise(_: Avx512, values: &[f32], codes: &mut [i8], distance: usize) -> f32 {
    assert_room(values.len(), codes, distance);
    // SAFETY: the token proves the features; there is room for the codes.
    unsafe { quantise_column(values, codes.as_mut_ptr(), distance) }
}

/// # Safety
/// The CPU has the features; codes, in chunks `distance` apart, have room for as many as values.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn quantise_column(values: &[f32], codes: *mut i8, distance: usize) -> f32 {
    let all = largest::<false>(values);
    let is_finite = all < INFINITY_BITS;
    let largest = if is_finite {
        all
    } else {
        largest::<true>(values)
    };
    let (scale, inverse) = scale_and_inverse(largest);
    // SAFETY: the caller's room.
    unsafe {
        if is_finite {
            round::<false>(values, inverse, codes, distance);
        } else {
            round::<true>(values, inverse, codes, distance);
        }
    }
    scale
}

/// The bits of the largest magnitude; with `MASKED`, of the largest finite one.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn largest<const MASKED: bool>(values: &[f32]) -> u32 {
    let magnitude = _mm512_set1_epi32(MAGNITUDE_BITS.cast_signed());
    let more = |most: __m512i, values: __m512i| {
        let values = if MASKED { finite(values) } else { values };
        _mm512_max_epi32(most, _mm512_and_si512(values, magnitude))
    };
    let (chunks, rest) = values.as_chunks::<CHUNK>();
    let mut most = [_mm512_setzero_si512(); 4];
    for chunk in chunks {
        let [a, b, c, d] = vectors(chunk);
        most = [
            more(most[0], a),
            more(most[1], b),
            more(most[2], c),
            more(most[3], d),
        ];
    }
    for (most, values) in most.iter_mut().zip(first_vectors(rest)) {
        *most = more(*most, values);
    }
    let [a, b, c, d] = most;
    let most = _mm512_max_epi32(_mm512_max_epi32(a, b), _mm512_max_epi32(c, d));
    _mm512_reduce_max_epi32(most).cast_unsigned()
}

/// Values to codes; with `MASKED`, those that are not finite count as 0.
///
/// # Safety
/// The CPU has the features; codes, in chunks `distance` apart, have room for as many as values.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn round<const MASKED: bool>(values: &[f32], inverse: f32, codes: *mut i8, distance: usize) {
    let inverse = _mm512_set1_ps(inverse);
    let (chunks, rest) = values.as_chunks::<CHUNK>();
    let mut target = codes;
    for chunk in chunks {
        let codes = rounded::<MASKED>(vectors(chunk), inverse);
        // SAFETY: the caller's room for a chunk of codes. The next one need not be there.
        unsafe { _mm512_storeu_si512(target.cast(), codes) }
        target = target.wrapping_add(distance);
    }
    if !rest.is_empty() {
        let codes = rounded::<MASKED>(first_vectors(rest), inverse);
        // SAFETY: the caller's room for the rest of the codes.
        unsafe { _mm512_mask_storeu_epi8(target, (1 << rest.len()) - 1, codes) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn vectors(values: &[f32; CHUNK]) -> [__m512i; 4] {
    // SAFETY: 64 values are four vectors.
    let load = |at: usize| unsafe { _mm512_loadu_si512(values.as_ptr().add(at).cast()) };
    [load(0), load(16), load(32), load(48)]
}

/// Fewer than 64 values, then zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn first_vectors(values: &[f32]) -> [__m512i; 4] {
    let mut padded = [0.0; CHUNK];
    padded[..values.len()].copy_from_slice(values);
    vectors(&padded)
}

/// Codes of 64 values.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn rounded<const MASKED: bool>([a, b, c, d]: [__m512i; 4], inverse: __m512) -> __m512i {
    let whole = |values: __m512i| {
        let values = if MASKED { finite(values) } else { values };
        let scaled = _mm512_mul_ps(_mm512_castsi512_ps(values), inverse);
        let sign = _mm512_set1_epi32(!MAGNITUDE_BITS.cast_signed());
        let half = _mm512_castps_si512(_mm512_set1_ps(HALF));
        // (scaled & sign) | half
        let signed = _mm512_ternarylogic_epi32::<0xea>(_mm512_castps_si512(scaled), sign, half);
        _mm512_cvttps_epi32(_mm512_add_ps(scaled, _mm512_castsi512_ps(signed)))
    };
    let low = _mm512_packs_epi32(whole(a), whole(b));
    let high = _mm512_packs_epi32(whole(c), whole(d));
    let codes = _mm512_packs_epi16(low, high);
    // Of each four words, that of the first 16 values, then of the second, and so on.
    let by_vector = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let codes = _mm512_permutexvar_epi32(by_vector, codes);
    _mm512_max_epi8(codes, _mm512_set1_epi8(-127))
}

/// Values, with 0 for those that are not finite.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn finite(values: __m512i) -> __m512i {
    let magnitude = _mm512_set1_epi32(MAGNITUDE_BITS.cast_signed());
    let infinity = _mm512_set1_epi32(INFINITY_BITS.cast_signed());
    let is_finite = _mm512_cmplt_epi32_mask(_mm512_and_si512(values, magnitude), infinity);
    _mm512_maskz_mov_epi32(is_finite, values)
}

/// Writes the first columns as row-major rows, one row per code of a column.
fn row_major(_: Avx512, columns: &CodeColumns, rows: &mut [&mut [i8]], streamed: bool) {
    let count = columns.row_length(rows);
    // SAFETY: the token proves the features; `row_length` asserted that there are as many rows as a
    // column has codes, and at least `count` columns.
    unsafe { put_rows(columns, count, rows, streamed) }
}

/// # Safety
/// The CPU has the features; there are as many rows as a column has codes, and at least `count`
/// columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn put_rows(columns: &CodeColumns, count: usize, rows: &mut [&mut [i8]], streamed: bool) {
    let mut lines = Lines::new();
    let chunks = columns.bytes().chunks_exact(columns.distance());
    for (rows, chunk) in rows.chunks_mut(CHUNK).zip(chunks) {
        for (band, rows) in rows.chunks_mut(Lines::ROWS).enumerate() {
            for first in (0..count).step_by(64) {
                // SAFETY: `CodeColumns` has whole 64 columns, and 64 codes of each in a chunk.
                let codes =
                    unsafe { transposed(chunk.as_ptr().add(first * CHUNK + band * Lines::ROWS)) };
                for (row, codes) in lines.0.iter_mut().zip(codes) {
                    // SAFETY: a line's rows have room for the columns of `CodeColumns`.
                    unsafe { _mm512_store_si512(row.as_mut_ptr().add(first).cast(), codes) }
                }
            }
            for (row, codes) in rows.iter_mut().zip(&lines.0) {
                put_row(&mut row[..count], codes, streamed);
            }
        }
    }
    // Streamed stores are ordered before whatever tells other threads of the tile.
    _mm_sfence();
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn put_row(row: &mut [i8], codes: &[i8; Lines::COLUMNS], streamed: bool) {
    let streamed = streamed && row.as_ptr().addr().is_multiple_of(LINE_BYTES);
    for (row, codes) in row
        .chunks_mut(LINE_BYTES)
        .zip(codes.as_chunks::<LINE_BYTES>().0)
    {
        let place = row.as_mut_ptr();
        // SAFETY: a whole line, aligned where that matters, or as many codes as the row has left.
        unsafe {
            let codes = _mm512_load_si512(codes.as_ptr().cast());
            if row.len() < LINE_BYTES {
                _mm512_mask_storeu_epi8(place, (1 << row.len()) - 1, codes);
            } else if streamed {
                _mm512_stream_si512(place.cast(), codes);
            } else {
                _mm512_storeu_si512(place.cast(), codes);
            }
        }
    }
}

/// 16 codes of each of 64 columns; vector `i` of the answer has code `i` of every column.
///
/// # Safety
/// The CPU has the features; 16 codes of each of 64 columns are readable, `CHUNK` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn transposed(codes: *const i8) -> [__m512i; 16] {
    let load = |column: usize| {
        // SAFETY: the caller's 64 columns.
        unsafe { _mm_loadu_si128(codes.add(column * CHUNK).cast()) }
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
    turned_16(turned_16(turned_16(turned_16(vectors))))
}

/// Interleaves the bytes of each vector of the first half with one of the second.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn turned_16(from: [__m512i; 16]) -> [__m512i; 16] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = from;
    let low = |one, two| _mm512_unpacklo_epi8(one, two);
    let high = |one, two| _mm512_unpackhi_epi8(one, two);
    [
        low(a, i),
        high(a, i),
        low(b, j),
        high(b, j),
        low(c, k),
        high(c, k),
        low(d, l),
        high(d, l),
        low(e, m),
        high(e, m),
        low(f, n),
        high(f, n),
        low(g, o),
        high(g, o),
        low(h, p),
        high(h, p),
    ]
}

/// Writes all columns as a band of 8 by 8 microtiles.
fn blocked(_: Avx512, columns: &CodeColumns, band: &mut [i8], streamed: bool) {
    columns.assert_band(band);
    let streamed = streamed && band.as_ptr().addr().is_multiple_of(LINE_BYTES);
    // SAFETY: the token proves the features; `assert_band` asserted the band's length and that
    // there are its columns, and its alignment is known.
    unsafe { put_band(columns, band, streamed) }
}

/// # Safety
/// The CPU has the features; the band is as long as one of these columns, of which there are
/// enough, and begins at a line if it is streamed.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn put_band(columns: &CodeColumns, band: &mut [i8], streamed: bool) {
    let chunks = columns.bytes().chunks_exact(columns.distance());
    for (blocks, chunk) in band.chunks_exact_mut(CHUNK * BAND_COLUMNS).zip(chunks) {
        for column in (0..BAND_COLUMNS).step_by(8) {
            // SAFETY: there are the columns of a band, and 64 codes of each in a chunk;
            // eight rows of microtiles are `8 * BAND_COLUMNS` codes each, a microtile 64.
            unsafe {
                let microtiles = microtiles(chunk.as_ptr().add(column * CHUNK));
                for (group, microtile) in microtiles.into_iter().enumerate() {
                    let place = group * 8 * BAND_COLUMNS + column * 8;
                    let place = blocks.as_mut_ptr().add(place).cast();
                    if streamed {
                        _mm512_stream_si512(place, microtile);
                    } else {
                        _mm512_storeu_si512(place, microtile);
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
/// The CPU has the features; 64 codes of each of 8 columns are readable, `CHUNK` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn microtiles(codes: *const i8) -> [__m512i; 8] {
    let mut vectors = [_mm512_setzero_si512(); 8];
    for (column, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: the caller's 8 columns.
        *vector = unsafe { _mm512_loadu_si512(codes.add(column * CHUNK).cast()) };
    }
    // As in `transposed`; then lane `l` of vector `r` has rows `16 l + 2 r` and the next.
    let [a, b, c, d, e, f, g, h] = turned_8(turned_8(turned_8(vectors)));
    let even = lanes_transposed([a, b, c, d]);
    let odd = lanes_transposed([e, f, g, h]);
    [
        even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3],
    ]
}

/// Interleaves the bytes of each vector of the first half with one of the second.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn turned_8(from: [__m512i; 8]) -> [__m512i; 8] {
    let [a, b, c, d, e, f, g, h] = from;
    let low = |one, two| _mm512_unpacklo_epi8(one, two);
    let high = |one, two| _mm512_unpackhi_epi8(one, two);
    [
        low(a, e),
        high(a, e),
        low(b, f),
        high(b, f),
        low(c, g),
        high(c, g),
        low(d, h),
        high(d, h),
    ]
}

/// Vector `l` of the answer has lane `l` of each vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn lanes_transposed([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let low_ab = _mm512_shuffle_i32x4::<0x44>(a, b);
    let low_cd = _mm512_shuffle_i32x4::<0x44>(c, d);
    let high_ab = _mm512_shuffle_i32x4::<0xee>(a, b);
    let high_cd = _mm512_shuffle_i32x4::<0xee>(c, d);
    [
        _mm512_shuffle_i32x4::<0x88>(low_ab, low_cd),
        _mm512_shuffle_i32x4::<0xdd>(low_ab, low_cd),
        _mm512_shuffle_i32x4::<0x88>(high_ab, high_cd),
        _mm512_shuffle_i32x4::<0xdd>(high_ab, high_cd),
    ]
}
