//! `ggml-cpu-repack` twins with AVX-512: 64 packed bytes, a chunk of each of eight rows, at a time.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::isa::Avx512;
use crate::x86_64::repack::{Form, PIECE_BYTES, Shape, of_units};
use packhouse_layout::Admitted;
use packhouse_layout::ggml_cpu_repack::twin::GROUP_ROWS;
use std::arch::x86_64::{
    __m512i, _mm_loadu_si128, _mm_storeu_si128, _mm512_castsi128_si512, _mm512_extracti32x4_epi32,
    _mm512_inserti32x4, _mm512_loadu_si512, _mm512_set1_epi8, _mm512_storeu_si512,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi64, _mm512_xor_si512,
};
use std::ops::Range;

/// Packs a range of units.
pub(crate) fn pack<F: Form>(
    _: Avx512,
    admitted: &Admitted,
    units: Range<u64>,
    source: &[u8],
    [target, _]: [&mut [u8]; 2],
) {
    let source = of_units(admitted, units, source);
    let shape = Shape::of::<F>(admitted, source, target);
    // SAFETY: the token says that the CPU has AVX-512 F and BW and AVX2, and the shape is that of
    // these slices.
    unsafe { pack_shape::<F>(shape, source.as_ptr(), target.as_mut_ptr()) }
}

/// Gives the rows of a range of units back.
pub(crate) fn unpack<F: Form>(
    _: Avx512,
    admitted: &Admitted,
    units: Range<u64>,
    payload: &[u8],
    target: &mut [u8],
) {
    let payload = of_units(admitted, units, payload);
    let shape = Shape::of::<F>(admitted, payload, target);
    // SAFETY: the token says that the CPU has AVX-512 F and BW and AVX2, and the shape is that of
    // these slices.
    unsafe { unpack_shape::<F>(shape, payload.as_ptr(), target.as_mut_ptr()) }
}

/// # Safety
/// The CPU has AVX-512 F and BW and AVX2; a tensor of the shape is readable at `source`, its
/// payload writable at `target`.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_shape<F: Form>(shape: Shape, source: *const u8, target: *mut u8) {
    let flip = _mm512_set1_epi8(F::FLIP.cast_signed());
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
/// The CPU has AVX-512 F and BW and AVX2; a payload of the shape is readable at `source`, its
/// tensor writable at `target`.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn unpack_shape<F: Form>(shape: Shape, source: *const u8, target: *mut u8) {
    let flip = _mm512_set1_epi8(F::FLIP.cast_signed());
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
/// The CPU has AVX-512 F; 16 bytes are readable at `rows` and seven more times `row_bytes` on, 128
/// writable at `packed`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn pack_piece(rows: *const u8, row_bytes: usize, flip: __m512i, packed: *mut u8) {
    // SAFETY: passed on to the caller.
    unsafe {
        let even = load_every_other(rows, row_bytes);
        let odd = load_every_other(rows.add(row_bytes), row_bytes);
        let first = _mm512_xor_si512(_mm512_unpacklo_epi64(even, odd), flip);
        let second = _mm512_xor_si512(_mm512_unpackhi_epi64(even, odd), flip);
        _mm512_storeu_si512(packed.cast(), first);
        _mm512_storeu_si512(packed.add(64).cast(), second);
    }
}

/// Loads 16 bytes of four rows, two rows apart.
///
/// # Safety
/// The CPU has AVX-512 F; 16 bytes are readable at `rows` and two, four and six times `row_bytes`
/// on.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_every_other(rows: *const u8, row_bytes: usize) -> __m512i {
    // SAFETY: passed on to the caller.
    unsafe {
        let all = _mm512_castsi128_si512(_mm_loadu_si128(rows.cast()));
        let row = _mm_loadu_si128(rows.add(2 * row_bytes).cast());
        let all = _mm512_inserti32x4::<1>(all, row);
        let row = _mm_loadu_si128(rows.add(4 * row_bytes).cast());
        let all = _mm512_inserti32x4::<2>(all, row);
        let row = _mm_loadu_si128(rows.add(6 * row_bytes).cast());
        _mm512_inserti32x4::<3>(all, row)
    }
}

/// The inverse of `pack_piece`.
///
/// # Safety
/// The CPU has AVX-512 F; 128 bytes are readable at `packed`, 16 writable at `rows` and seven more
/// times `row_bytes` on.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn unpack_piece(packed: *const u8, flip: __m512i, rows: *mut u8, row_bytes: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        let first = _mm512_xor_si512(_mm512_loadu_si512(packed.cast()), flip);
        let second = _mm512_xor_si512(_mm512_loadu_si512(packed.add(64).cast()), flip);
        store_every_other(_mm512_unpacklo_epi64(first, second), rows, row_bytes);
        let odd = _mm512_unpackhi_epi64(first, second);
        store_every_other(odd, rows.add(row_bytes), row_bytes);
    }
}

/// The inverse of `load_every_other`.
///
/// # Safety
/// The CPU has AVX-512 F; 16 bytes are writable at `rows` and two, four and six times `row_bytes`
/// on.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store_every_other(all: __m512i, rows: *mut u8, row_bytes: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        _mm_storeu_si128(rows.cast(), _mm512_extracti32x4_epi32::<0>(all));
        let row = _mm512_extracti32x4_epi32::<1>(all);
        _mm_storeu_si128(rows.add(2 * row_bytes).cast(), row);
        let row = _mm512_extracti32x4_epi32::<2>(all);
        _mm_storeu_si128(rows.add(4 * row_bytes).cast(), row);
        let row = _mm512_extracti32x4_epi32::<3>(all);
        _mm_storeu_si128(rows.add(6 * row_bytes).cast(), row);
    }
}
