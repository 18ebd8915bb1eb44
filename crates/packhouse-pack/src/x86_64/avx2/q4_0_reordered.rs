//! `q4_0-reordered-v1` by AVX2: two blocks at a time.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::Avx2;
use crate::x86_64::q4_0::{BLOCK_BYTES, QUANT_BYTES, SCALE_BYTES};
use crate::x86_64::q4_0_reordered::{blocks_to_pack, blocks_to_unpack};
use crate::x86_64::tiles::{gather_scales, scatter_scales};
use packhouse_layout::Admitted;
use std::arch::x86_64::*;
use std::ops::Range;

/// Packs rows `steps`; the targets are their slices of the quants and the scales.
pub(crate) fn pack(
    _: Avx2,
    admitted: &Admitted,
    steps: Range<u64>,
    source: &[u8],
    [quants, scales]: [&mut [u8]; 2],
) {
    let blocks = blocks_to_pack(admitted, steps, source, [quants, scales]);
    let source = &source[blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES];
    // SAFETY: the token proves AVX2; `blocks_to_pack` asserted that the targets hold `blocks`.
    unsafe {
        pack_blocks(
            blocks.len(),
            source.as_ptr(),
            quants.as_mut_ptr(),
            scales.as_mut_ptr(),
        );
    }
}

/// # Safety
/// The CPU has AVX2; there are `count` blocks at `source`, and room for their quants and scales.
#[target_feature(enable = "avx2")]
unsafe fn pack_blocks(count: usize, source: *const u8, quants: *mut u8, scales: *mut u8) {
    let load = |block: usize| {
        // SAFETY: the loops below stay under `count`.
        unsafe { _mm_loadu_si128(source.add(block * BLOCK_BYTES + SCALE_BYTES).cast()) }
    };
    let pairs = count / 2 * 2;
    for block in (0..pairs).step_by(2) {
        let both = _mm256_castsi128_si256(load(block));
        let both = _mm256_inserti128_si256::<1>(both, load(block + 1));
        // SAFETY: `block` and the next are under `count`.
        unsafe {
            _mm256_storeu_si256(quants.add(block * QUANT_BYTES).cast(), both);
            let scales = scales.add(block * SCALE_BYTES);
            gather_scales::<2>(source.add(block * BLOCK_BYTES), BLOCK_BYTES, scales);
        }
    }
    for block in pairs..count {
        // SAFETY: `block` is under `count`.
        unsafe {
            _mm_storeu_si128(quants.add(block * QUANT_BYTES).cast(), load(block));
            let scales = scales.add(block * SCALE_BYTES);
            gather_scales::<1>(source.add(block * BLOCK_BYTES), BLOCK_BYTES, scales);
        }
    }
}

/// Gives the rows of `groups` back.
pub(crate) fn unpack(
    _: Avx2,
    admitted: &Admitted,
    groups: Range<u64>,
    payload: &[u8],
    target: &mut [u8],
) {
    let (blocks, scales_at) = blocks_to_unpack(admitted, groups, payload, target);
    let (quants, scales) = payload.split_at(scales_at);
    let quants = &quants[blocks.start * QUANT_BYTES..blocks.end * QUANT_BYTES];
    let scales = &scales[blocks.start * SCALE_BYTES..blocks.end * SCALE_BYTES];
    // SAFETY: the token proves AVX2; `blocks_to_unpack` asserted that the target holds `blocks`.
    unsafe {
        unpack_blocks(
            blocks.len(),
            quants.as_ptr(),
            scales.as_ptr(),
            target.as_mut_ptr(),
        );
    }
}

/// # Safety
/// The CPU has AVX2; there are quants and scales of `count` blocks, and room for the blocks.
#[target_feature(enable = "avx2")]
unsafe fn unpack_blocks(count: usize, quants: *const u8, scales: *const u8, target: *mut u8) {
    for block in 0..count {
        // SAFETY: `block` is under `count`.
        unsafe {
            let block_quants = _mm_loadu_si128(quants.add(block * QUANT_BYTES).cast());
            let target = target.add(block * BLOCK_BYTES);
            _mm_storeu_si128(target.add(SCALE_BYTES).cast(), block_quants);
            scatter_scales::<1>(scales.add(block * SCALE_BYTES), target, BLOCK_BYTES);
        }
    }
}
