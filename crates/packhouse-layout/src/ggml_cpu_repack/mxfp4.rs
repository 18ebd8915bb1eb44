//! MXFP4: exponent bytes of eight rows, then their nibbles as they are.

use super::twin::{GROUP_ROWS, Stack, gather, interleave, part, scatter};

/// Bytes of a source block: exponent, quants.
pub(super) const BLOCK_BYTES: usize = QUANTS + 16;

const EXPONENT_BYTES: usize = 1;
const QUANTS: usize = EXPONENT_BYTES;
const PACKED_QUANTS: usize = GROUP_ROWS * EXPONENT_BYTES;

pub(super) fn pack(stack: &Stack<BLOCK_BYTES>, target: &mut [u8]) {
    let (exponents, quants) = target.split_at_mut(PACKED_QUANTS);
    gather(stack, 0, EXPONENT_BYTES, exponents);
    interleave(stack, QUANTS, 0, quants);
}

pub(super) fn unpack(packed: &[u8]) -> Stack<BLOCK_BYTES> {
    let (exponents, quants) = packed.split_at(PACKED_QUANTS);
    let mut stack = [[0; BLOCK_BYTES]; GROUP_ROWS];
    scatter(exponents, &mut stack, 0, EXPONENT_BYTES);
    part(quants, &mut stack, QUANTS, 0);
    stack
}

const _: () = assert!(BLOCK_BYTES == 17, "because ggml's block_mxfp4 has 17 bytes");
