//! Q4_K: f16 scales and f16 minima of eight rows, their 6-bit scales and minima sub-block by
//! sub-block, then their nibbles as they are.
//!
//! A block has eight sub-blocks, each with a 6-bit scale and a 6-bit minimum, all in 12 bytes. The
//! same code of 12 bytes serves in packed order, where it holds the eight *rows* of one sub-block.
//! So the scales are an eight by eight matrix that is transposed.

use super::twin::{GROUP_ROWS, Stack, block, gather, interleave, part, scatter};
use crate::dequant::six_bits::{CODE_BYTES, Code, decode};

/// Bytes of a source block: scale, minimum, 6-bit scales and minima, quants.
pub(super) const BLOCK_BYTES: usize = QUANTS + 128;

const HALF_BYTES: usize = 2;
const MINIMUM: usize = HALF_BYTES;
const CODES: usize = MINIMUM + HALF_BYTES;
const QUANTS: usize = CODES + CODE_BYTES;
const SUB_BLOCKS: usize = 8;

const PACKED_MINIMA: usize = GROUP_ROWS * HALF_BYTES;
const PACKED_CODES: usize = PACKED_MINIMA + GROUP_ROWS * HALF_BYTES;
const PACKED_QUANTS: usize = PACKED_CODES + SUB_BLOCKS * CODE_BYTES;

pub(super) fn pack(stack: &Stack<BLOCK_BYTES>, target: &mut [u8]) {
    let (scales, rest) = target.split_at_mut(PACKED_MINIMA);
    let (minima, rest) = rest.split_at_mut(PACKED_CODES - PACKED_MINIMA);
    let (codes, quants) = rest.split_at_mut(PACKED_QUANTS - PACKED_CODES);
    gather(stack, 0, HALF_BYTES, scales);
    gather(stack, MINIMUM, HALF_BYTES, minima);
    let by_row = stack.each_ref().map(|row| decode(&block(row, CODES)));
    for (target, code) in codes.chunks_exact_mut(CODE_BYTES).zip(transpose(&by_row)) {
        target.copy_from_slice(&encode(&code));
    }
    interleave(stack, QUANTS, 0, quants);
}

pub(super) fn unpack(packed: &[u8]) -> Stack<BLOCK_BYTES> {
    let mut stack = [[0; BLOCK_BYTES]; GROUP_ROWS];
    scatter(&packed[..PACKED_MINIMA], &mut stack, 0, HALF_BYTES);
    let minima = &packed[PACKED_MINIMA..PACKED_CODES];
    scatter(minima, &mut stack, MINIMUM, HALF_BYTES);
    let by_sub_block = std::array::from_fn(|sub_block| {
        decode(&block(packed, PACKED_CODES + sub_block * CODE_BYTES))
    });
    for (row, code) in stack.iter_mut().zip(transpose(&by_sub_block)) {
        row[CODES..QUANTS].copy_from_slice(&encode(&code));
    }
    part(&packed[PACKED_QUANTS..], &mut stack, QUANTS, 0);
    stack
}

/// The inverse of `decode`.
fn encode(code: &Code) -> [u8; CODE_BYTES] {
    let mut bytes = [0; CODE_BYTES];
    for index in 0..4 {
        let (scale, minimum) = (code.scales[4 + index], code.minima[4 + index]);
        bytes[index] = code.scales[index] | (scale >> 4) << 6;
        bytes[4 + index] = code.minima[index] | (minimum >> 4) << 6;
        bytes[8 + index] = scale & 0x0f | (minimum & 0x0f) << 4;
    }
    bytes
}

fn transpose(codes: &[Code; 8]) -> [Code; 8] {
    std::array::from_fn(|index| Code {
        scales: codes.map(|code| code.scales[index]),
        minima: codes.map(|code| code.minima[index]),
    })
}

const _: () = assert!(
    BLOCK_BYTES == 144,
    "because ggml's block_q4_K has 144 bytes"
);
const _: () = assert!(
    SUB_BLOCKS == GROUP_ROWS,
    "because the scales are a square matrix"
);
