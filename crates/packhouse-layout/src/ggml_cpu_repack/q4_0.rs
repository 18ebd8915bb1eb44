//! Q4_0: f16 scales of eight rows, then their nibbles as signed numbers.
//!
//! A source nibble is a number plus 8; a packed one is in two's complement, so bit 3 is flipped.

use super::twin::{GROUP_ROWS, Stack, gather, interleave, part, scatter};

/// Bytes of a source block: scale, quants.
pub(super) const BLOCK_BYTES: usize = QUANTS + 16;
/// Flips bit 3 of both nibbles of a byte.
pub(super) const FLIP: u8 = 0x88;

const SCALE_BYTES: usize = 2;
const QUANTS: usize = SCALE_BYTES;
const PACKED_QUANTS: usize = GROUP_ROWS * SCALE_BYTES;

pub(super) fn pack(stack: &Stack<BLOCK_BYTES>, target: &mut [u8]) {
    let (scales, quants) = target.split_at_mut(PACKED_QUANTS);
    gather(stack, 0, SCALE_BYTES, scales);
    interleave(stack, QUANTS, FLIP, quants);
}

pub(super) fn unpack(packed: &[u8]) -> Stack<BLOCK_BYTES> {
    let (scales, quants) = packed.split_at(PACKED_QUANTS);
    let mut stack = [[0; BLOCK_BYTES]; GROUP_ROWS];
    scatter(scales, &mut stack, 0, SCALE_BYTES);
    part(quants, &mut stack, QUANTS, FLIP);
    stack
}

const _: () = assert!(BLOCK_BYTES == 18, "because ggml's block_q4_0 has 18 bytes");
