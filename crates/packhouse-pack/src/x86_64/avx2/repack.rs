//! `ggml-cpu-repack` twins with AVX2: 32 packed bytes, chunks of four rows, at a time.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::isa::Avx2;
use crate::x86_64::repack::{Form, PIECE_BYTES, Shape, of_units};
use packhouse_layout::Admitted;
use packhouse_layout::ggml_cpu_repack::twin::GROUP_ROWS;
use std::arch::x86_64::{
    __m256i, _mm256_loadu_si256, _mm256_loadu2_m128i, _mm256_set1_epi8, _mm256_storeu_si256,
    _mm256_storeu2_m128i, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};
use std::ops::Range;

/// Packs a range of units.
pub(crate) fn pack<F: Form>(
    _: Avx2,
    admitted: &Admitted,
    units: Range<u64>,
    source: &[u8],
    [target, _]: [&mut [u8]; 2],
) {
    let source = of_units(admitted, units, source);
    let shape = Shape::of::<F>(admitted, source, target);
    // SAFETY: the token says that the CPU has AVX2, and the shape is that of these
    // slices.
    unsafe { pack_shape::<F>(shape, source.as_ptr(), target.as_mut_ptr()) }
}

/// Gives the rows of a range of units back.
pub(crate) fn unpack<F: Form>(
    _: Avx2,
    admitted: &Admitted,
    units: Range<u64>,
    payload: &[u8],
    target: &mut [u8],
) {
    let payload = of_units(admitted, units, payload);
    let shape = Shape::of::<F>(admitted, payload, target);
    // SAFETY: the token says that the CPU has AVX2, and the shape is that of these
    // slices.
    unsafe { unpack_shape::<F>(shape, payload.as_ptr(), target.as_mut_ptr()) }
}

/// # Safety
/// The CPU has AVX2; a tensor of the shape is readable at `source`, its payload writable at
/// `target`.
#[target_feature(enable = "avx2")]
unsafe fn pack_shape<F: Form>(shape: Shape, source: *const u8, target: *mut u8) {
    let flip = _mm256_set1_epi8(F::FLIP.cast_signed());
    for group in 0..shape.group_count {
        for column in 0..shape.column_count {
            let (block, packed) = shape.offsets::<F>(group, column);
            // SAFETY: the offsets are of eight blocks and of a packed block of the shape.
            unsafe {
                let (blocks, packed) = (source.add(block), target.add(packed));
                F::pack_head(blocks, shape.row_bytes, packed);
                for piece in 0..F::PIECES {
                    let quants = blocks.add(F::QUANTS + piece * PIECE_BYTES);
                    let packed = packed.add(F::HEAD_BYTES + piece * GROUP_ROWS * PIECE_BYTES);
                    pack_piece(quants, shape.row_bytes, flip, packed);
                }
            }
        }
    }
}

/// # Safety
/// The CPU has AVX2; a payload of the shape is readable at `source`, its tensor writable at
/// `target`.
#[target_feature(enable = "avx2")]
unsafe fn unpack_shape<F: Form>(shape: Shape, source: *const u8, target: *mut u8) {
    let flip = _mm256_set1_epi8(F::FLIP.cast_signed());
    for group in 0..shape.group_count {
        for column in 0..shape.column_count {
            let (block, packed) = shape.offsets::<F>(group, column);
            // SAFETY: the offsets are of eight blocks and of a packed block of the shape.
            unsafe {
                let (blocks, packed) = (target.add(block), source.add(packed));
                F::unpack_head(packed, blocks, shape.row_bytes);
                for piece in 0..F::PIECES {
                    let quants = blocks.add(F::QUANTS + piece * PIECE_BYTES);
                    let packed = packed.add(F::HEAD_BYTES + piece * GROUP_ROWS * PIECE_BYTES);
                    unpack_piece(packed, flip, quants, shape.row_bytes);
                }
            }
        }
    }
}

/// Interleaves 16 bytes of each of eight rows.
///
/// # Safety
/// The CPU has AVX2; 16 bytes are readable at `rows` and seven more times `row_bytes` on, 128
/// writable at `packed`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pack_piece(rows: *const u8, row_bytes: usize, flip: __m256i, packed: *mut u8) {
    for four in 0..2 {
        // SAFETY: passed on to the caller; the rows are `4 * four` to `4 * four + 3`.
        unsafe {
            let rows = rows.add(four * 4 * row_bytes);
            let [even, odd] = [rows, rows.add(row_bytes)];
            let even = _mm256_loadu2_m128i(even.add(2 * row_bytes).cast(), even.cast());
            let odd = _mm256_loadu2_m128i(odd.add(2 * row_bytes).cast(), odd.cast());
            let first = _mm256_xor_si256(_mm256_unpacklo_epi64(even, odd), flip);
            let second = _mm256_xor_si256(_mm256_unpackhi_epi64(even, odd), flip);
            let packed = packed.add(four * 32);
            _mm256_storeu_si256(packed.cast(), first);
            _mm256_storeu_si256(packed.add(64).cast(), second);
        }
    }
}

/// The inverse of `pack_piece`.
///
/// # Safety
/// The CPU has AVX2; 128 bytes are readable at `packed`, 16 writable at `rows` and seven more times
/// `row_bytes` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn unpack_piece(packed: *const u8, flip: __m256i, rows: *mut u8, row_bytes: usize) {
    for four in 0..2 {
        // SAFETY: passed on to the caller; the rows are `4 * four` to `4 * four + 3`.
        unsafe {
            let packed = packed.add(four * 32);
            let first = _mm256_xor_si256(_mm256_loadu_si256(packed.cast()), flip);
            let second = _mm256_xor_si256(_mm256_loadu_si256(packed.add(64).cast()), flip);
            let even = _mm256_unpacklo_epi64(first, second);
            let odd = _mm256_unpackhi_epi64(first, second);
            let rows = rows.add(four * 4 * row_bytes);
            let [even_rows, odd_rows] = [rows, rows.add(row_bytes)];
            let third = even_rows.add(2 * row_bytes);
            _mm256_storeu2_m128i(third.cast(), even_rows.cast(), even);
            let fourth = odd_rows.add(2 * row_bytes);
            _mm256_storeu2_m128i(fourth.cast(), odd_rows.cast(), odd);
        }
    }
}
