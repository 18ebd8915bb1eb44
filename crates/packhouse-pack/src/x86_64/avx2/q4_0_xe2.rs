//! `q4_0-xe2-dpas-v2` by AVX2: one register holds the quants of two rows.
//!
//! In a 16-bit word of a block's quants lie four nibbles, of columns 2i, 2i + 16, 2i + 1, 2i + 17.
//! Swapping the middle two gives the output bytes of group `i / 4` and of group `2 + i / 4`; a byte
//! shuffle puts the four dwords of a row in order, and a transpose of dwords those of 16 rows.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::Avx2;
use crate::x86_64::q4_0::SCALE_BYTES;
use crate::x86_64::q4_0_xe2::{PackCall, TILE_ROWS, UnpackCall};
use crate::x86_64::tiles::{gather_scales, scatter_scales};
use packhouse_layout::Admitted;
use std::arch::x86_64::*;
use std::ops::Range;

/// Packs K blocks `steps`; the targets are their slices of the quants and the scales.
pub(crate) fn pack(
    _: Avx2,
    admitted: &Admitted,
    steps: Range<u64>,
    source: &[u8],
    [quants, scales]: [&mut [u8]; 2],
) {
    let call = PackCall::new(admitted, steps, source, [quants, scales]);
    let targets = [quants.as_mut_ptr(), scales.as_mut_ptr()];
    // SAFETY: the token proves AVX2; `PackCall::new` asserted the lengths, and the quants'
    // alignment where it says that they are streamed.
    unsafe {
        if call.is_streamed {
            pack_blocks::<true>(&call, source.as_ptr(), targets);
        } else {
            pack_blocks::<false>(&call, source.as_ptr(), targets);
        }
    }
}

/// # Safety
/// The CPU has AVX2; source and targets have the lengths of the call; the first target is
/// aligned to 32 if `STREAM`.
#[target_feature(enable = "avx2")]
unsafe fn pack_blocks<const STREAM: bool>(
    call: &PackCall,
    source: *const u8,
    targets: [*mut u8; 2],
) {
    let row_bytes = call.tiles.matrix.row_bytes;
    let (blocks, whole) = (call.blocks.clone(), call.tiles.tile_count);
    let tile = |rows: *const u8, [quants, scales]: [*mut u8; 2]| {
        // SAFETY: the walk gives places of whole tiles; those of quants are 256 bytes apart.
        unsafe {
            pack_tile::<STREAM>(rows, row_bytes, quants);
            gather_scales::<TILE_ROWS>(rows, row_bytes, scales);
        }
    };
    // SAFETY: the caller's lengths are those of the call's tiles and blocks.
    unsafe {
        call.tiles
            .pack(blocks, whole, source, targets, STREAM, tile);
    }
    if STREAM {
        // Streamed stores are ordered before whatever tells other threads of the payload.
        _mm_sfence();
    }
}

/// # Safety
/// The CPU has AVX2; at `rows` lie 16 blocks, `row_bytes` apart; `target` has 256 bytes, aligned to
/// 32 if `STREAM`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn pack_tile<const STREAM: bool>(rows: *const u8, row_bytes: usize, target: *mut u8) {
    let load = |row: usize| {
        // SAFETY: the caller's 16 blocks.
        unsafe { _mm_loadu_si128(rows.add(row * row_bytes + SCALE_BYTES).cast()) }
    };
    let two = |row: usize| {
        let quants = _mm256_castsi128_si256(load(row));
        regroup(_mm256_inserti128_si256::<1>(quants, load(row + 4)))
    };
    for half in 0..2 {
        let row = half * 8;
        let groups = transpose([two(row), two(row + 1), two(row + 2), two(row + 3)]);
        for (group, lanes) in groups.into_iter().enumerate() {
            // SAFETY: eight times 32 bytes are the caller's 256, aligned where they are streamed.
            unsafe {
                let target = target.add(group * 64 + half * 32).cast();
                if STREAM {
                    _mm256_stream_si256(target, lanes);
                } else {
                    _mm256_storeu_si256(target, lanes);
                }
            }
        }
    }
}

/// Swaps the middle nibbles of each word, flips each sign, and moves each row's groups together.
#[target_feature(enable = "avx2")]
#[inline]
fn regroup(quants: __m256i) -> __m256i {
    let by_group = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,
    ));
    _mm256_shuffle_epi8(swap_middle(quants), by_group)
}

#[target_feature(enable = "avx2")]
#[inline]
fn swap_middle(words: __m256i) -> __m256i {
    let words = _mm256_xor_si256(words, _mm256_set1_epi8(0x88_u8.cast_signed()));
    let up = _mm256_and_si256(_mm256_slli_epi16::<4>(words), _mm256_set1_epi16(0x0f00));
    let down = _mm256_and_si256(_mm256_srli_epi16::<4>(words), _mm256_set1_epi16(0x00f0));
    let outer = _mm256_and_si256(words, _mm256_set1_epi16(0xf00f_u16.cast_signed()));
    _mm256_or_si256(outer, _mm256_or_si256(up, down))
}

/// Transposes the 4x4 dwords in each 128-bit lane; its own inverse.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab_low, cd_low),
        _mm256_unpackhi_epi64(ab_low, cd_low),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// Gives the rows of tiles `groups` back.
pub(crate) fn unpack(
    _: Avx2,
    admitted: &Admitted,
    groups: Range<u64>,
    payload: &[u8],
    target: &mut [u8],
) {
    let call = UnpackCall::new(admitted, groups, payload, target);
    let (quants, scales) = payload.split_at(call.scales_at);
    // SAFETY: the token proves AVX2; `UnpackCall::new` asserted the lengths.
    unsafe {
        let regions = [quants.as_ptr(), scales.as_ptr()];
        unpack_tiles(&call, regions, target.as_mut_ptr());
    }
}

/// # Safety
/// The CPU has AVX2; regions and target have the lengths of the call.
#[target_feature(enable = "avx2")]
unsafe fn unpack_tiles(call: &UnpackCall, regions: [*const u8; 2], target: *mut u8) {
    let row_bytes = call.tiles.matrix.row_bytes;
    let tile = |[quants, scales]: [*const u8; 2], rows: *mut u8| {
        // SAFETY: the walk gives places of whole tiles.
        unsafe {
            unpack_tile(quants, rows, row_bytes);
            scatter_scales::<TILE_ROWS>(scales, rows, row_bytes);
        }
    };
    // SAFETY: the caller's lengths are those of the call's tiles.
    unsafe {
        call.tiles
            .unpack(call.wanted.clone(), regions, target, tile);
    }
}

/// # Safety
/// The CPU has AVX2; `tile` has 256 bytes; at `rows` there is room for 16 blocks, `row_bytes`
/// apart.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn unpack_tile(tile: *const u8, rows: *mut u8, row_bytes: usize) {
    // The inverse of the shuffle in `regroup`.
    let by_word = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15,
    ));
    for half in 0..2 {
        let load = |group: usize| {
            // SAFETY: the caller's 256 bytes.
            unsafe { _mm256_loadu_si256(tile.add(group * 64 + half * 32).cast()) }
        };
        let twos = transpose([load(0), load(1), load(2), load(3)]);
        for (row, two) in twos.into_iter().enumerate() {
            let quants = swap_middle(_mm256_shuffle_epi8(two, by_word));
            // SAFETY: the caller's 16 blocks.
            unsafe {
                let target = rows.add((half * 8 + row) * row_bytes + SCALE_BYTES);
                _mm_storeu_si128(target.cast(), _mm256_castsi256_si128(quants));
                let target = target.add(4 * row_bytes);
                _mm_storeu_si128(target.cast(), _mm256_extracti128_si256::<1>(quants));
            }
        }
    }
}
