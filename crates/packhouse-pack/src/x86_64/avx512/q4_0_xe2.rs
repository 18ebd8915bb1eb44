//! `q4_0-xe2-dpas-v2` by AVX-512: one register holds the quants of four rows.
//!
//! In a 16-bit word of a block's quants lie four nibbles, of columns 2i, 2i + 16, 2i + 1, 2i + 17.
//! Swapping the middle two gives the output bytes of group `i / 4` and of group `2 + i / 4`; a byte
//! shuffle puts the four dwords of a row in order, and a transpose of dwords those of 16 rows.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::Avx512;
use crate::x86_64::q4_0::SCALE_BYTES;
use crate::x86_64::q4_0_xe2::{PackCall, TILE_ROWS, UnpackCall};
use crate::x86_64::tiles::{gather_scales, scatter_scales};
use packhouse_layout::Admitted;
use std::arch::x86_64::*;
use std::ops::Range;

/// Packs K blocks `steps`; the targets are their slices of the quants and the scales.
pub(crate) fn pack(
    _: Avx512,
    admitted: &Admitted,
    steps: Range<u64>,
    source: &[u8],
    [quants, scales]: [&mut [u8]; 2],
) {
    let call = PackCall::new(admitted, steps, source, [quants, scales]);
    let targets = [quants.as_mut_ptr(), scales.as_mut_ptr()];
    // SAFETY: the token proves the features; `PackCall::new` asserted the lengths, and the quants'
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
/// The CPU has the features; source and targets have the lengths of the call; the first target is
/// aligned to 64 if `STREAM`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
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
/// The CPU has the features; at `rows` lie 16 blocks, `row_bytes` apart; `target` has 256 bytes,
/// aligned to 64 if `STREAM`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn pack_tile<const STREAM: bool>(rows: *const u8, row_bytes: usize, target: *mut u8) {
    let load = |row: usize| {
        // SAFETY: the caller's 16 blocks.
        unsafe { _mm_loadu_si128(rows.add(row * row_bytes + SCALE_BYTES).cast()) }
    };
    let four = |row: usize| {
        let quants = _mm512_castsi128_si512(load(row));
        let quants = _mm512_inserti32x4::<1>(quants, load(row + 4));
        let quants = _mm512_inserti32x4::<2>(quants, load(row + 8));
        regroup(_mm512_inserti32x4::<3>(quants, load(row + 12)))
    };
    let groups = transpose([four(0), four(1), four(2), four(3)]);
    for (group, lanes) in groups.into_iter().enumerate() {
        // SAFETY: four times 64 bytes are the caller's 256, aligned where they are streamed.
        unsafe {
            let target = target.add(group * 64).cast();
            if STREAM {
                _mm512_stream_si512(target, lanes);
            } else {
                _mm512_storeu_si512(target, lanes);
            }
        }
    }
}

/// Swaps the middle nibbles of each word, flips each sign, and moves each row's groups together.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn regroup(quants: __m512i) -> __m512i {
    let by_group = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,
    ));
    _mm512_shuffle_epi8(swap_middle(quants), by_group)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn swap_middle(words: __m512i) -> __m512i {
    let words = _mm512_xor_si512(words, _mm512_set1_epi8(0x88_u8.cast_signed()));
    // 0xca: the second where the first has a bit, else the third.
    let middle = _mm512_ternarylogic_epi32::<0xca>(
        _mm512_set1_epi16(0x0f00),
        _mm512_slli_epi16::<4>(words),
        _mm512_srli_epi16::<4>(words),
    );
    _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi16(0xf00f_u16.cast_signed()), words, middle)
}

/// Transposes the 4x4 dwords in each 128-bit lane; its own inverse.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn transpose([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab_low, cd_low),
        _mm512_unpackhi_epi64(ab_low, cd_low),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// Gives the rows of tiles `groups` back.
pub(crate) fn unpack(
    _: Avx512,
    admitted: &Admitted,
    groups: Range<u64>,
    payload: &[u8],
    target: &mut [u8],
) {
    let call = UnpackCall::new(admitted, groups, payload, target);
    let (quants, scales) = payload.split_at(call.scales_at);
    // SAFETY: the token proves the features; `UnpackCall::new` asserted the lengths.
    unsafe {
        let regions = [quants.as_ptr(), scales.as_ptr()];
        unpack_tiles(&call, regions, target.as_mut_ptr());
    }
}

/// # Safety
/// The CPU has the features; regions and target have the lengths of the call.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
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
/// The CPU has the features; `tile` has 256 bytes; at `rows` there is room for 16 blocks,
/// `row_bytes` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn unpack_tile(tile: *const u8, rows: *mut u8, row_bytes: usize) {
    // The inverse of the shuffle in `regroup`.
    let by_word = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15,
    ));
    // SAFETY: the caller's 256 bytes.
    let load = |group: usize| unsafe { _mm512_loadu_si512(tile.add(group * 64).cast()) };
    let fours = transpose([load(0), load(1), load(2), load(3)]);
    for (row, four) in fours.into_iter().enumerate() {
        let quants = swap_middle(_mm512_shuffle_epi8(four, by_word));
        let lanes = [
            _mm512_castsi512_si128(quants),
            _mm512_extracti32x4_epi32::<1>(quants),
            _mm512_extracti32x4_epi32::<2>(quants),
            _mm512_extracti32x4_epi32::<3>(quants),
        ];
        for (lane, quants) in lanes.into_iter().enumerate() {
            // SAFETY: the caller's 16 blocks.
            unsafe {
                let target = rows.add((row + 4 * lane) * row_bytes + SCALE_BYTES);
                _mm_storeu_si128(target.cast(), quants);
            }
        }
    }
}
