//! One stream: state, length and the bytes of an unfinished block.

use crate::compress::Kernels;
use crate::{BLOCK_BYTES, many};

/// SHA-256 of one stream under construction.
#[derive(Clone)]
pub struct Sha256 {
    pub(crate) state: [u32; 8],
    /// Bytes taken so far; the length that padding states is this modulo 2^64 bits.
    byte_count: u64,
    tail: [u8; BLOCK_BYTES],
}

impl Sha256 {
    /// Starts a stream.
    pub const fn new() -> Self {
        Self {
            state: INITIAL,
            byte_count: 0,
            tail: [0; BLOCK_BYTES],
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.update_with(crate::detected(), bytes);
    }

    /// Adds to each stream its own bytes, many streams at a time.
    pub fn update_many(parts: &mut [(&mut Self, &[u8])]) {
        many::update_many_with(crate::detected(), parts);
    }

    /// Ends the stream and returns its SHA-256.
    pub fn finish(mut self) -> [u8; 32] {
        let bits = self.byte_count.wrapping_mul(8);
        let tail_bytes = self.tail_bytes();
        // One bit, zeros up to 8 bytes before a block's end, and the length in bits.
        let mut padding = [0; BLOCK_BYTES * 2];
        padding[0] = 0x80;
        let zeros_end = if tail_bytes < BLOCK_BYTES - 8 { 1 } else { 2 } * BLOCK_BYTES;
        let padding_bytes = zeros_end - tail_bytes;
        padding[padding_bytes - 8..padding_bytes].copy_from_slice(&bits.to_be_bytes());
        self.update(&padding[..padding_bytes]);
        let mut digest = [0; 32];
        for (target, word) in digest.chunks_exact_mut(4).zip(self.state) {
            target.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }

    pub(crate) fn update_with(&mut self, kernels: Kernels, bytes: &[u8]) {
        let blocks = self.take(kernels, bytes);
        kernels.compress(&mut self.state, blocks);
    }

    /// Counts and takes bytes but the run of whole blocks in their middle, which is left to the
    /// caller to compress before anything else is taken.
    pub(crate) fn take<'b>(&mut self, kernels: Kernels, bytes: &'b [u8]) -> &'b [u8] {
        let tail_bytes = self.tail_bytes();
        self.byte_count = self
            .byte_count
            .wrapping_add(u64::try_from(bytes.len()).expect("because no slice is above 2^64"));
        let mut rest = bytes;
        if tail_bytes > 0 {
            let (head, after) = bytes.split_at(bytes.len().min(BLOCK_BYTES - tail_bytes));
            self.tail[tail_bytes..tail_bytes + head.len()].copy_from_slice(head);
            if tail_bytes + head.len() < BLOCK_BYTES {
                return &[];
            }
            let block = self.tail;
            kernels.compress(&mut self.state, &block);
            rest = after;
        }
        let (blocks, tail) = rest.split_at(rest.len() - rest.len() % BLOCK_BYTES);
        self.tail[..tail.len()].copy_from_slice(tail);
        blocks
    }

    fn tail_bytes(&self) -> usize {
        let block = u64::try_from(BLOCK_BYTES).expect("because a block has 64 bytes");
        usize::try_from(self.byte_count % block).expect("because it is below 64")
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

/// The initial hash value; FIPS 180-4 section 5.3.3.
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];
