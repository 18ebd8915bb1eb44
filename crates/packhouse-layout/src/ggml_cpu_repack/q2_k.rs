//! Q2_K: f16 scales and f16 minima of eight rows, their sub-block bytes by pairs of sub-blocks,
//! then their quants as they are.
//!
//! A block has 16 bytes for its 16 sub-blocks, a scale in the low half and a minimum in the high
//! one. In packed order the bytes of sub-blocks 0 and 1 of all rows come first, then 2 and 3 ...

use super::twin::{GROUP_ROWS, Stack, gather, interleave, part, scatter};

/// Bytes of a source block: sub-block bytes, quants, scale, minimum.
pub(super) const BLOCK_BYTES: usize = MINIMUM + HALF_BYTES;

const HALF_BYTES: usize = 2;
const SUB_BLOCKS: usize = 16;
const QUANTS: usize = SUB_BLOCKS;
const SCALE: usize = QUANTS + 64;
const MINIMUM: usize = SCALE + HALF_BYTES;
/// Sub-blocks whose bytes stay together.
const PAIR: usize = 2;

const PACKED_MINIMA: usize = GROUP_ROWS * HALF_BYTES;
const PACKED_PAIRS: usize = PACKED_MINIMA + GROUP_ROWS * HALF_BYTES;
const PACKED_QUANTS: usize = PACKED_PAIRS + GROUP_ROWS * SUB_BLOCKS;

pub(super) fn pack(stack: &Stack<BLOCK_BYTES>, target: &mut [u8]) {
    let (scales, rest) = target.split_at_mut(PACKED_MINIMA);
    let (minima, rest) = rest.split_at_mut(PACKED_PAIRS - PACKED_MINIMA);
    let (pairs, quants) = rest.split_at_mut(PACKED_QUANTS - PACKED_PAIRS);
    gather(stack, SCALE, HALF_BYTES, scales);
    gather(stack, MINIMUM, HALF_BYTES, minima);
    for (pair, target) in pairs.chunks_exact_mut(GROUP_ROWS * PAIR).enumerate() {
        gather(stack, pair * PAIR, PAIR, target);
    }
    interleave(stack, QUANTS, 0, quants);
}

pub(super) fn unpack(packed: &[u8]) -> Stack<BLOCK_BYTES> {
    let mut stack = [[0; BLOCK_BYTES]; GROUP_ROWS];
    scatter(&packed[..PACKED_MINIMA], &mut stack, SCALE, HALF_BYTES);
    let minima = &packed[PACKED_MINIMA..PACKED_PAIRS];
    scatter(minima, &mut stack, MINIMUM, HALF_BYTES);
    let pairs = &packed[PACKED_PAIRS..PACKED_QUANTS];
    for (pair, packed) in pairs.chunks_exact(GROUP_ROWS * PAIR).enumerate() {
        scatter(packed, &mut stack, pair * PAIR, PAIR);
    }
    part(&packed[PACKED_QUANTS..], &mut stack, QUANTS, 0);
    stack
}

const _: () = assert!(BLOCK_BYTES == 84, "because ggml's block_q2_K has 84 bytes");
