//! IQ4_NL: f16 scales of eight rows, then their nibbles, which are table indices and stay as they
//! are.

use super::twin::{GROUP_ROWS, Stack, gather, interleave, part, scatter};

/// Bytes of a source block: scale, quants.
pub(super) const BLOCK_BYTES: usize = QUANTS + 16;

const SCALE_BYTES: usize = 2;
const QUANTS: usize = SCALE_BYTES;
const PACKED_QUANTS: usize = GROUP_ROWS * SCALE_BYTES;

pub(super) fn pack(stack: &Stack<BLOCK_BYTES>, target: &mut [u8]) {
    let (scales, quants) = target.split_at_mut(PACKED_QUANTS);
    gather(stack, 0, SCALE_BYTES, scales);
    interleave(stack, QUANTS, 0, quants);
}

pub(super) fn unpack(packed: &[u8]) -> Stack<BLOCK_BYTES> {
    let (scales, quants) = packed.split_at(PACKED_QUANTS);
    let mut stack = [[0; BLOCK_BYTES]; GROUP_ROWS];
    scatter(scales, &mut stack, 0, SCALE_BYTES);
    part(quants, &mut stack, QUANTS, 0);
    stack
}

const _: () = assert!(
    BLOCK_BYTES == 18,
    "because ggml's block_iq4_nl has 18 bytes"
);
