//! `q4_0-joint-n-v1` with tiles of 8 rows by AVX-512: one register holds the quants of four rows.
//!
//! Even rows are interleaved byte by byte with odd ones, so that a word has two rows' byte; one
//! permutation of words then brings the four words of each byte number together.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::Avx512;
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
    _: Avx512,
    admitted: &Admitted,
    steps: Range<u64>,
    source: &[u8],
    [target, _]: [&mut [u8]; 2],
) {
    let call = PackCall::new(admitted, steps, source, target);
    // SAFETY: the token proves the features; `PackCall::new` asserted the lengths.
    unsafe { pack_blocks(&call, source.as_ptr(), target.as_mut_ptr()) }
    call.pack_ragged(source, target);
}

/// # Safety
/// The CPU has the features; source and target have the lengths of the call.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
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
            for offset in (0..GROUP_BYTES).step_by(64) {
                let packed = _mm512_load_si512(room.add(offset).cast());
                _mm512_stream_si512(target.add(offset).cast(), packed);
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
    _: Avx512,
    admitted: &Admitted,
    groups: Range<u64>,
    payload: &[u8],
    target: &mut [u8],
) {
    let call = UnpackCall::new(admitted, groups, payload, target);
    // SAFETY: the token proves the features; `UnpackCall::new` asserted the lengths.
    unsafe { unpack_tiles(&call, payload.as_ptr(), target.as_mut_ptr()) }
    call.unpack_ragged(payload, target);
}

/// # Safety
/// The CPU has the features; payload and target have the lengths of the call.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
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
/// The CPU has the features; at `rows` lie 8 blocks, `row_bytes` apart; `target` has 128 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn pack_tile(rows: *const u8, row_bytes: usize, target: *mut u8) {
    let load = |row: usize| {
        // SAFETY: the caller's 8 blocks.
        unsafe { _mm_loadu_si128(rows.add(row * row_bytes + SCALE_BYTES).cast()) }
    };
    let four = |row: usize| {
        let quants = _mm512_castsi128_si512(load(row));
        let quants = _mm512_inserti32x4::<1>(quants, load(row + 2));
        let quants = _mm512_inserti32x4::<2>(quants, load(row + 4));
        _mm512_inserti32x4::<3>(quants, load(row + 6))
    };
    let (even, odd) = (four(0), four(1));
    let by_byte = words_by_byte();
    let low = _mm512_permutexvar_epi16(by_byte, _mm512_unpacklo_epi8(even, odd));
    let high = _mm512_permutexvar_epi16(by_byte, _mm512_unpackhi_epi8(even, odd));
    // SAFETY: twice 64 bytes are the caller's 128.
    unsafe {
        _mm512_storeu_si512(target.cast(), low);
        _mm512_storeu_si512(target.add(64).cast(), high);
    }
}

/// Word `4 y + i` comes from word `y` of lane `i`.
#[target_feature(enable = "avx512f")]
#[inline]
fn words_by_byte() -> __m512i {
    let four = |y: i64| y | (y + 8) << 16 | (y + 16) << 32 | (y + 24) << 48;
    _mm512_setr_epi64(
        four(0),
        four(1),
        four(2),
        four(3),
        four(4),
        four(5),
        four(6),
        four(7),
    )
}

/// Word `8 i + y` comes from word `4 y + i`: the inverse.
#[target_feature(enable = "avx512f")]
#[inline]
fn words_by_lane() -> __m512i {
    let four = |i: i64| i | (i + 4) << 16 | (i + 8) << 32 | (i + 12) << 48;
    _mm512_setr_epi64(
        four(0),
        four(16),
        four(1),
        four(17),
        four(2),
        four(18),
        four(3),
        four(19),
    )
}

/// # Safety
/// The CPU has the features; `quants` has 128 bytes; at `rows` there is room for 8 blocks,
/// `row_bytes` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn unpack_tile(quants: *const u8, rows: *mut u8, row_bytes: usize) {
    // In each lane: the bytes of the even row, then those of the odd one.
    let apart = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,
    ));
    let by_lane = words_by_lane();
    let load = |offset: usize| {
        // SAFETY: the caller's 128 bytes.
        let quants = unsafe { _mm512_loadu_si512(quants.add(offset).cast()) };
        _mm512_shuffle_epi8(_mm512_permutexvar_epi16(by_lane, quants), apart)
    };
    let (low, high) = (load(0), load(64));
    let even = _mm512_unpacklo_epi64(low, high);
    let odd = _mm512_unpackhi_epi64(low, high);
    for (parity, four) in [even, odd].into_iter().enumerate() {
        let lanes = [
            _mm512_castsi512_si128(four),
            _mm512_extracti32x4_epi32::<1>(four),
            _mm512_extracti32x4_epi32::<2>(four),
            _mm512_extracti32x4_epi32::<3>(four),
        ];
        for (lane, quants) in lanes.into_iter().enumerate() {
            // SAFETY: the caller's 8 blocks.
            unsafe {
                let target = rows.add((2 * lane + parity) * row_bytes + SCALE_BYTES);
                _mm_storeu_si128(target.cast(), quants);
            }
        }
    }
}
