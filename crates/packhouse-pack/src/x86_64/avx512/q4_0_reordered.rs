//! `q4_0-reordered-v1` by AVX-512: four blocks at a time, which are 36 words of the source.
#![expect(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::Avx512;
use crate::x86_64::q4_0::{BLOCK_BYTES, QUANT_BYTES, SCALE_BYTES};
use crate::x86_64::q4_0_reordered::{blocks_to_pack, blocks_to_unpack};
use crate::x86_64::tiles::{gather_scales, scatter_scales};
use packhouse_layout::Admitted;
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks that are done at a time.
const TOGETHER: usize = 4;

/// Packs rows `steps`; the targets are their slices of the quants and the scales.
pub(crate) fn pack(
    _: Avx512,
    admitted: &Admitted,
    steps: Range<u64>,
    source: &[u8],
    [quants, scales]: [&mut [u8]; 2],
) {
    let blocks = blocks_to_pack(admitted, steps, source, [quants, scales]);
    let source = &source[blocks.start * BLOCK_BYTES..blocks.end * BLOCK_BYTES];
    // SAFETY: the token proves the features; `blocks_to_pack` asserted that the targets hold
    // `blocks`.
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
/// The CPU has the features; there are `count` blocks at `source`, and room for their quants and
/// scales.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_blocks(count: usize, source: *const u8, quants: *mut u8, scales: *mut u8) {
    let (of_quants, of_scales) = (words_of_quants(), words_of_scales());
    let whole = count / TOGETHER * TOGETHER;
    for block in (0..whole).step_by(TOGETHER) {
        // SAFETY: the four blocks are under `count`; both loads lie within their 72 bytes.
        unsafe {
            let source = source.add(block * BLOCK_BYTES);
            let first = _mm512_loadu_si512(source.cast());
            let last = _mm512_loadu_si512(source.add(TOGETHER * BLOCK_BYTES - 64).cast());
            let four = _mm512_permutex2var_epi16(first, of_quants, last);
            _mm512_storeu_si512(quants.add(block * QUANT_BYTES).cast(), four);
            let four = _mm512_castsi512_si128(_mm512_permutexvar_epi16(of_scales, first));
            _mm_storel_epi64(scales.add(block * SCALE_BYTES).cast(), four);
        }
    }
    for block in whole..count {
        // SAFETY: `block` is under `count`.
        unsafe {
            let source = source.add(block * BLOCK_BYTES);
            let one = _mm_loadu_si128(source.add(SCALE_BYTES).cast());
            _mm_storeu_si128(quants.add(block * QUANT_BYTES).cast(), one);
            gather_scales::<1>(source, BLOCK_BYTES, scales.add(block * SCALE_BYTES));
        }
    }
}

/// Where the 32 words of quants lie among words 0 to 31 of the four blocks, or, with 32 added,
/// among words 4 to 35.
#[target_feature(enable = "avx512f")]
#[inline]
fn words_of_quants() -> __m512i {
    let words: [u16; 32] = std::array::from_fn(|word| {
        let from = word + word / 8 + 1;
        let from = if from < 32 { from } else { from - 4 + 32 };
        u16::try_from(from).unwrap_or_default()
    });
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// Where the four scales lie among the words of four blocks.
#[target_feature(enable = "avx512f")]
#[inline]
fn words_of_scales() -> __m512i {
    _mm512_set1_epi64(9 << 16 | 18 << 32 | 27 << 48)
}

/// Gives the rows of `groups` back.
pub(crate) fn unpack(
    _: Avx512,
    admitted: &Admitted,
    groups: Range<u64>,
    payload: &[u8],
    target: &mut [u8],
) {
    let (blocks, scales_at) = blocks_to_unpack(admitted, groups, payload, target);
    let (quants, scales) = payload.split_at(scales_at);
    let quants = &quants[blocks.start * QUANT_BYTES..blocks.end * QUANT_BYTES];
    let scales = &scales[blocks.start * SCALE_BYTES..blocks.end * SCALE_BYTES];
    // SAFETY: the token proves the features; `blocks_to_unpack` asserted that the target holds
    // `blocks`.
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
/// The CPU has the features; there are quants and scales of `count` blocks, and room for the
/// blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn unpack_blocks(count: usize, quants: *const u8, scales: *const u8, target: *mut u8) {
    let whole = count / TOGETHER * TOGETHER;
    let (of_first, of_last) = words_of_blocks();
    for block in (0..whole).step_by(TOGETHER) {
        // SAFETY: the four blocks are under `count`; both stores lie within their 72 bytes.
        unsafe {
            let four = _mm512_loadu_si512(quants.add(block * QUANT_BYTES).cast());
            let four_scales = _mm_loadl_epi64(scales.add(block * SCALE_BYTES).cast());
            let four_scales = _mm512_castsi128_si512(four_scales);
            let first = _mm512_permutex2var_epi16(four, of_first, four_scales);
            let last = _mm512_permutex2var_epi16(four, of_last, four_scales);
            let target = target.add(block * BLOCK_BYTES);
            _mm512_storeu_si512(target.cast(), first);
            _mm512_storeu_si512(target.add(TOGETHER * BLOCK_BYTES - 64).cast(), last);
        }
    }
    for block in whole..count {
        // SAFETY: `block` is under `count`.
        unsafe {
            let one = _mm_loadu_si128(quants.add(block * QUANT_BYTES).cast());
            let target = target.add(block * BLOCK_BYTES);
            _mm_storeu_si128(target.add(SCALE_BYTES).cast(), one);
            scatter_scales::<1>(scales.add(block * SCALE_BYTES), target, BLOCK_BYTES);
        }
    }
}

/// Where words 0 to 31, and words 4 to 35, of four blocks lie: among 32 words of quants, or, with
/// 32 added, among four scales.
#[target_feature(enable = "avx512f")]
#[inline]
fn words_of_blocks() -> (__m512i, __m512i) {
    let words = |first: usize| -> [u16; 32] {
        std::array::from_fn(|word| {
            let (block, in_block) = ((word + first) / 9, (word + first) % 9);
            let from = match in_block {
                0 => 32 + block,
                quants => block * 8 + quants - 1,
            };
            u16::try_from(from).unwrap_or_default()
        })
    };
    let (first, last) = (words(0), words(4));
    // SAFETY: the arrays have 64 bytes each.
    unsafe {
        (
            _mm512_loadu_si512(first.as_ptr().cast()),
            _mm512_loadu_si512(last.as_ptr().cast()),
        )
    }
}
