//! Int8 tiles by AVX2: 64 values of a column at a time, then 32 codes of each row of the tile.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::int8_tile::bound::Bound;
use crate::int8_tile::columns::{BAND_COLUMNS, CHUNK, CodeColumns, assert_room};
use crate::int8_tile::head;
use crate::int8_tile::quantiser::{HALF, INFINITY_BITS, MAGNITUDE_BITS, scale_and_inverse};
use crate::isa::Avx2;
use crate::kernels::TileKernels;
use crate::x86_64::int8_tile::{Lines, as_codes};
use crate::x86_64::traffic::LINE_BYTES;
use packhouse_layout::Admitted;
use std::arch::x86_64::*;
use std::num::NonZeroUsize;

/// The kernels of this level.
pub(crate) const KERNELS: TileKernels<Avx2> = TileKernels {
    quantise,
    row_major,
    blocked,
};

/// Packs a whole head.
pub(crate) fn pack_head(
    token: Avx2,
    admitted: &Admitted,
    source: &[u8],
    target: &mut [u8],
    thread_count: NonZeroUsize,
) {
    let bound = Bound::Avx2(token, KERNELS);
    head::pack_head(bound, admitted, source, target, thread_count, as_codes);
}

/// Quantises one column into chunks `distance` apart; returns its scale.
fn quantise(_: Avx2, values: &[f32], codes: &mut [i8], distance: usize) -> f32 {
    assert_room(values.len(), codes, distance);
    // SAFETY: the token proves the features.
    unsafe { quantise_column(values, codes, distance) }
}

/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx2")]
unsafe fn quantise_column(values: &[f32], codes: &mut [i8], distance: usize) -> f32 {
    let all = largest::<false>(values);
    let is_finite = all < INFINITY_BITS;
    let largest = if is_finite {
        all
    } else {
        largest::<true>(values)
    };
    let (scale, inverse) = scale_and_inverse(largest);
    if is_finite {
        round::<false>(values, inverse, codes, distance);
    } else {
        round::<true>(values, inverse, codes, distance);
    }
    scale
}

/// The bits of the largest magnitude; with `MASKED`, of the largest finite one.
#[target_feature(enable = "avx2")]
fn largest<const MASKED: bool>(values: &[f32]) -> u32 {
    let magnitude = _mm256_set1_epi32(MAGNITUDE_BITS.cast_signed());
    let more = |most: __m256i, values: __m256i| {
        let values = if MASKED { finite(values) } else { values };
        _mm256_max_epi32(most, _mm256_and_si256(values, magnitude))
    };
    let mut most = [_mm256_setzero_si256(); 4];
    let mut take = |values: &[f32; HALF_CHUNK]| {
        let [a, b, c, d] = vectors(values);
        most = [
            more(most[0], a),
            more(most[1], b),
            more(most[2], c),
            more(most[3], d),
        ];
    };
    let (halves, rest) = values.as_chunks::<HALF_CHUNK>();
    for half in halves {
        take(half);
    }
    take(&padded(rest));
    let [a, b, c, d] = most;
    let most = _mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d));
    let mut lanes = [0u32; 8];
    // SAFETY: eight words are one vector.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), most) }
    lanes.into_iter().fold(0, u32::max)
}

/// Values to codes; with `MASKED`, those that are not finite count as 0.
#[target_feature(enable = "avx2")]
fn round<const MASKED: bool>(values: &[f32], inverse: f32, codes: &mut [i8], distance: usize) {
    let inverse = _mm256_set1_ps(inverse);
    let (chunks, rest) = values.as_chunks::<CHUNK>();
    let mut targets = codes.chunks_mut(distance);
    for (chunk, target) in chunks.iter().zip(&mut targets) {
        put_halves::<MASKED>(chunk, inverse, target.first_chunk_mut());
    }
    if let Some(target) = targets.next() {
        let mut chunk = [0.0; CHUNK];
        chunk[..rest.len()].copy_from_slice(rest);
        let mut codes = [0; CHUNK];
        put_halves::<MASKED>(&chunk, inverse, Some(&mut codes));
        target[..rest.len()].copy_from_slice(&codes[..rest.len()]);
    }
}

/// Codes of 64 values.
#[target_feature(enable = "avx2")]
#[inline]
fn put_halves<const MASKED: bool>(
    values: &[f32; CHUNK],
    inverse: __m256,
    target: Option<&mut [i8; CHUNK]>,
) {
    let target = target.expect("because there is room for whole chunks");
    let (values, _) = values.as_chunks::<HALF_CHUNK>();
    for (half, values) in values.iter().enumerate() {
        let codes = rounded::<MASKED>(vectors(values), inverse);
        // SAFETY: 64 codes are two vectors.
        unsafe {
            let place = target.as_mut_ptr().add(half * HALF_CHUNK);
            _mm256_storeu_si256(place.cast(), codes);
        }
    }
}

/// Values of four vectors, and codes of one.
const HALF_CHUNK: usize = CHUNK / 2;

#[target_feature(enable = "avx2")]
#[inline]
fn vectors(values: &[f32; HALF_CHUNK]) -> [__m256i; 4] {
    // SAFETY: 32 values are four vectors.
    let load = |at: usize| unsafe { _mm256_loadu_si256(values.as_ptr().add(at).cast()) };
    [load(0), load(8), load(16), load(24)]
}

fn padded(rest: &[f32]) -> [f32; HALF_CHUNK] {
    let mut values = [0.0; HALF_CHUNK];
    values[..rest.len()].copy_from_slice(rest);
    values
}

/// Codes of 32 values.
#[target_feature(enable = "avx2")]
#[inline]
fn rounded<const MASKED: bool>([a, b, c, d]: [__m256i; 4], inverse: __m256) -> __m256i {
    let whole = |values: __m256i| {
        let values = if MASKED { finite(values) } else { values };
        let scaled = _mm256_mul_ps(_mm256_castsi256_ps(values), inverse);
        let sign = _mm256_castsi256_ps(_mm256_set1_epi32(!MAGNITUDE_BITS.cast_signed()));
        let signed = _mm256_or_ps(_mm256_and_ps(scaled, sign), _mm256_set1_ps(HALF));
        _mm256_cvttps_epi32(_mm256_add_ps(scaled, signed))
    };
    let low = _mm256_packs_epi32(whole(a), whole(b));
    let high = _mm256_packs_epi32(whole(c), whole(d));
    let codes = _mm256_packs_epi16(low, high);
    // Of each two words, that of the first 8 values, then of the second, and so on.
    let by_vector = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let codes = _mm256_permutevar8x32_epi32(codes, by_vector);
    _mm256_max_epi8(codes, _mm256_set1_epi8(-127))
}

/// Values, with 0 for those that are not finite.
#[target_feature(enable = "avx2")]
#[inline]
fn finite(values: __m256i) -> __m256i {
    let magnitudes = _mm256_and_si256(values, _mm256_set1_epi32(MAGNITUDE_BITS.cast_signed()));
    let infinity = _mm256_set1_epi32(INFINITY_BITS.cast_signed());
    _mm256_and_si256(values, _mm256_cmpgt_epi32(infinity, magnitudes))
}

/// Writes the first columns as row-major rows, one row per code of a column.
fn row_major(_: Avx2, columns: &CodeColumns, rows: &mut [&mut [i8]], streamed: bool) {
    let count = columns.row_length(rows);
    // SAFETY: the token proves the features; `row_length` asserted that there are as many rows as a
    // column has codes, and at least `count` columns.
    unsafe { put_rows(columns, count, rows, streamed) }
}

/// # Safety
/// The CPU has the features; there are as many rows as a column has codes, and at least `count`
/// columns.
#[target_feature(enable = "avx2")]
unsafe fn put_rows(columns: &CodeColumns, count: usize, rows: &mut [&mut [i8]], streamed: bool) {
    let mut lines = Lines::new();
    let chunks = columns.bytes().chunks_exact(columns.distance());
    for (rows, chunk) in rows.chunks_mut(CHUNK).zip(chunks) {
        for (band, rows) in rows.chunks_mut(Lines::ROWS).enumerate() {
            for first in (0..count).step_by(32) {
                // SAFETY: `CodeColumns` has whole 64 columns, and 64 codes of each in a chunk.
                let codes =
                    unsafe { transposed(chunk.as_ptr().add(first * CHUNK + band * Lines::ROWS)) };
                for (row, codes) in lines.0.iter_mut().zip(codes) {
                    // SAFETY: a line's rows have room for the columns of `CodeColumns`.
                    unsafe { _mm256_store_si256(row.as_mut_ptr().add(first).cast(), codes) }
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

#[target_feature(enable = "avx2")]
#[inline]
fn put_row(row: &mut [i8], codes: &[i8; Lines::COLUMNS], streamed: bool) {
    if !streamed || !row.as_ptr().addr().is_multiple_of(LINE_BYTES) {
        return row.copy_from_slice(&codes[..row.len()]);
    }
    let (whole, rest) = row.as_chunks_mut::<LINE_BYTES>();
    let (codes, last) = codes.split_at(whole.len() * LINE_BYTES);
    for (line, codes) in whole.iter_mut().zip(codes.as_chunks::<LINE_BYTES>().0) {
        // SAFETY: both have 64 codes, and the row begins at a line.
        unsafe {
            let halves: [__m256i; 2] = [
                _mm256_loadu_si256(codes.as_ptr().cast()),
                _mm256_loadu_si256(codes.as_ptr().add(32).cast()),
            ];
            _mm256_stream_si256(line.as_mut_ptr().cast(), halves[0]);
            _mm256_stream_si256(line.as_mut_ptr().add(32).cast(), halves[1]);
        }
    }
    rest.copy_from_slice(&last[..rest.len()]);
}

/// 16 codes of each of 32 columns; vector `i` of the answer has code `i` of every column.
///
/// # Safety
/// The CPU has the features; 16 codes of each of 32 columns are readable, `CHUNK` apart.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn transposed(codes: *const i8) -> [__m256i; 16] {
    let load = |column: usize| {
        // SAFETY: the caller's 32 columns.
        unsafe { _mm_loadu_si128(codes.add(column * CHUNK).cast()) }
    };
    // Lane `g` of vector `c` is column `16 g + c`.
    let mut vectors = [_mm256_setzero_si256(); 16];
    for (column, vector) in vectors.iter_mut().enumerate() {
        *vector = _mm256_setr_m128i(load(column), load(column + 16));
    }
    // Each turn moves one bit of the number of a vector into that of a byte, and one back.
    turned_16(turned_16(turned_16(turned_16(vectors))))
}

/// Interleaves the bytes of each vector of the first half with one of the second.
#[target_feature(enable = "avx2")]
#[inline]
fn turned_16(from: [__m256i; 16]) -> [__m256i; 16] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = from;
    let low = |one, two| _mm256_unpacklo_epi8(one, two);
    let high = |one, two| _mm256_unpackhi_epi8(one, two);
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
fn blocked(_: Avx2, columns: &CodeColumns, band: &mut [i8], streamed: bool) {
    columns.assert_band(band);
    let streamed = streamed && band.as_ptr().addr().is_multiple_of(LINE_BYTES);
    // SAFETY: the token proves the features; `assert_band` asserted the band's length and that
    // there are its columns, and its alignment is known.
    unsafe { put_band(columns, band, streamed) }
}

/// # Safety
/// The CPU has the features; the band is as long as one of these columns, of which there are
/// enough, and begins at a line if it is streamed.
#[target_feature(enable = "avx2")]
unsafe fn put_band(columns: &CodeColumns, band: &mut [i8], streamed: bool) {
    let chunks = columns.bytes().chunks_exact(columns.distance());
    for (blocks, chunk) in band.chunks_exact_mut(CHUNK * BAND_COLUMNS).zip(chunks) {
        for (half, blocks) in blocks.chunks_exact_mut(32 * BAND_COLUMNS).enumerate() {
            for column in (0..BAND_COLUMNS).step_by(8) {
                // SAFETY: there are the columns of a band, and 64 codes of each in a chunk;
                // four rows of microtiles are `8 * BAND_COLUMNS` codes each, a microtile 64.
                unsafe {
                    let microtiles = microtiles(chunk.as_ptr().add(column * CHUNK + half * 32));
                    for (group, microtile) in microtiles.into_iter().enumerate() {
                        let place = group * 8 * BAND_COLUMNS + column * 8;
                        put_microtile(blocks.as_mut_ptr().add(place), microtile, streamed);
                    }
                }
            }
        }
    }
    // Streamed stores are ordered before whatever tells other threads of the tile.
    _mm_sfence();
}

/// # Safety
/// The CPU has the features; there is room for 64 codes, from the beginning of a line if they are
/// streamed.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn put_microtile(place: *mut i8, [first, second]: [__m256i; 2], streamed: bool) {
    // SAFETY: the caller's room.
    unsafe {
        let places = [place.cast(), place.add(32).cast()];
        if streamed {
            _mm256_stream_si256(places[0], first);
            _mm256_stream_si256(places[1], second);
        } else {
            _mm256_storeu_si256(places[0], first);
            _mm256_storeu_si256(places[1], second);
        }
    }
}

/// 32 codes of each of eight columns, as the halves of four microtiles down the depth.
///
/// # Safety
/// The CPU has the features; 32 codes of each of 8 columns are readable, `CHUNK` apart.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn microtiles(codes: *const i8) -> [[__m256i; 2]; 4] {
    let mut vectors = [_mm256_setzero_si256(); 8];
    for (column, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: the caller's 8 columns.
        *vector = unsafe { _mm256_loadu_si256(codes.add(column * CHUNK).cast()) };
    }
    // As in `transposed`; then lane `l` of vector `r` has rows `16 l + 2 r` and the next.
    let [a, b, c, d, e, f, g, h] = turned_8(turned_8(turned_8(vectors)));
    let low = |one, two| _mm256_permute2x128_si256::<0x20>(one, two);
    let high = |one, two| _mm256_permute2x128_si256::<0x31>(one, two);
    [
        [low(a, b), low(c, d)],
        [low(e, f), low(g, h)],
        [high(a, b), high(c, d)],
        [high(e, f), high(g, h)],
    ]
}

/// Interleaves the bytes of each vector of the first half with one of the second.
#[target_feature(enable = "avx2")]
#[inline]
fn turned_8(from: [__m256i; 8]) -> [__m256i; 8] {
    let [a, b, c, d, e, f, g, h] = from;
    let low = |one, two| _mm256_unpacklo_epi8(one, two);
    let high = |one, two| _mm256_unpackhi_epi8(one, two);
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
