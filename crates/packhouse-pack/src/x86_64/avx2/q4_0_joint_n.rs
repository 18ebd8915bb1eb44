//! `q4_0-joint-n-v1` with tiles of 8 rows by AVX2.
//!
//! An 8x16 byte matrix is transposed by perfect shuffles: interleaving the first half of its 128
//! bytes with the second rotates the 7 bits of a byte's place by one. Three turn (row, byte) into
//! (byte, row), and four more turn it back.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::Avx2;
use crate::x86_64::q4_0::SCALE_BYTES;
use crate::x86_64::q4_0_joint_n::{
    GROUP_BYTES, GroupRoom, PackCall, QUANTS_AT, TILE_BYTES, TILE_ROWS, UnpackCall,
};
use crate::x86_64::tiles::{gather_scales, scatter_scales};
use packhouse_layout::Admitted;
use std::arch::x86_64::*;
use std::ops::Range;

/// Packs K blocks `steps`; the first target is their slice of the payload, the second is empty.
pub(crate) fn pack(
    _: Avx2,
    admitted: &Admitted,
    steps: Range<u64>,
    source: &[u8],
    [target, _]: [&mut [u8]; 2],
) {
    let call = PackCall::new(admitted, steps, source, target);
    // SAFETY: the token proves AVX2; `PackCall::new` asserted the lengths.
    unsafe { pack_blocks(&call, source.as_ptr(), target.as_mut_ptr()) }
    call.pack_ragged(source, target);
}

/// # Safety
/// The CPU has AVX2; source and target have the lengths of the call.
#[target_feature(enable = "avx2")]
unsafe fn pack_blocks(call: &PackCall, source: *const u8, target: *mut u8) {
    let blocks = call.blocks.clone();
    let row_bytes = call.tiles.matrix.row_bytes;
    let tile = |rows: *const u8, [target, _]: [*mut u8; 2]| {
        // SAFETY: the walks give places of whole tiles.
        unsafe {
            gather_scales::<TILE_ROWS>(rows, row_bytes, target);
            pack_tile(rows, row_bytes, target.add(QUANTS_AT));
        }
    };
    let targets = [target; 2];
    let Some(groups) = &call.streamed else {
        // SAFETY: the caller's lengths are those of the call's tiles and blocks.
        return unsafe {
            call.tiles
                .pack(blocks, call.whole, source, targets, false, tile);
        };
    };
    let mut room = GroupRoom([0; GROUP_BYTES]);
    let room = room.0.as_mut_ptr();
    let group = |rows: *const u8, [target, _]: [*mut u8; 2]| {
        // SAFETY: the walk gives places of whole groups, which are as long as the room and, like
        // it, aligned to lines: the call's target is, and so is a group's length.
        unsafe {
            for index in 0..GROUP_BYTES / TILE_BYTES {
                let rows = rows.add(index * TILE_ROWS * row_bytes);
                tile(rows, [room.add(index * TILE_BYTES); 2]);
            }
            for offset in (0..GROUP_BYTES).step_by(32) {
                let packed = _mm256_load_si256(room.add(offset).cast());
                _mm256_stream_si256(target.add(offset).cast(), packed);
            }
        }
    };
    // SAFETY: the caller's lengths are those of the call's groups and blocks.
    unsafe {
        groups.pack(blocks, groups.tile_count, source, targets, true, group);
    }
    // Streamed stores are ordered before whatever tells other threads of the payload.
    _mm_sfence();
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
    // SAFETY: the token proves AVX2; `UnpackCall::new` asserted the lengths.
    unsafe { unpack_tiles(&call, payload.as_ptr(), target.as_mut_ptr()) }
    call.unpack_ragged(payload, target);
}

/// # Safety
/// The CPU has AVX2; payload and target have the lengths of the call.
#[target_feature(enable = "avx2")]
unsafe fn unpack_tiles(call: &UnpackCall, payload: *const u8, target: *mut u8) {
    let row_bytes = call.tiles.matrix.row_bytes;
    let tile = |[payload, _]: [*const u8; 2], rows: *mut u8| {
        // SAFETY: the walk gives places of whole tiles.
        unsafe {
            scatter_scales::<TILE_ROWS>(payload, rows, row_bytes);
            unpack_tile(payload.add(QUANTS_AT), rows, row_bytes);
        }
    };
    // SAFETY: the caller's lengths are those of the call's tiles.
    unsafe {
        call.tiles
            .unpack(call.whole.clone(), [payload; 2], target, tile);
    }
}

/// # Safety
/// The CPU has AVX2; at `rows` lie 8 blocks, `row_bytes` apart; `target` has 128 bytes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn pack_tile(rows: *const u8, row_bytes: usize, target: *mut u8) {
    let load = |row: usize| {
        // SAFETY: the caller's 8 blocks.
        unsafe { _mm_loadu_si128(rows.add(row * row_bytes + SCALE_BYTES).cast()) }
    };
    let quants = std::array::from_fn(load);
    let quants = perfect_shuffle(perfect_shuffle(perfect_shuffle(quants)));
    for (index, pair) in quants.into_iter().enumerate() {
        // SAFETY: eight times 16 bytes are the caller's 128.
        unsafe { _mm_storeu_si128(target.add(index * 16).cast(), pair) }
    }
}

/// Interleaves the first 64 bytes with the second.
#[target_feature(enable = "avx2")]
#[inline]
fn perfect_shuffle([a, b, c, d, e, f, g, h]: [__m128i; 8]) -> [__m128i; 8] {
    [
        _mm_unpacklo_epi8(a, e),
        _mm_unpackhi_epi8(a, e),
        _mm_unpacklo_epi8(b, f),
        _mm_unpackhi_epi8(b, f),
        _mm_unpacklo_epi8(c, g),
        _mm_unpackhi_epi8(c, g),
        _mm_unpacklo_epi8(d, h),
        _mm_unpackhi_epi8(d, h),
    ]
}

/// # Safety
/// The CPU has AVX2; `quants` has 128 bytes; at `rows` there is room for 8 blocks, `row_bytes`
/// apart.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn unpack_tile(quants: *const u8, rows: *mut u8, row_bytes: usize) {
    let load = |index: usize| {
        // SAFETY: the caller's 128 bytes.
        unsafe { _mm_loadu_si128(quants.add(index * 16).cast()) }
    };
    let quants = perfect_shuffle(perfect_shuffle(std::array::from_fn(load)));
    let quants = perfect_shuffle(perfect_shuffle(quants));
    for (row, quants) in quants.into_iter().enumerate() {
        // SAFETY: the caller's 8 blocks.
        unsafe {
            let target = rows.add(row * row_bytes + SCALE_BYTES);
            _mm_storeu_si128(target.cast(), quants);
        }
    }
}
