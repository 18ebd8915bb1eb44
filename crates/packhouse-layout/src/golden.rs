//! Golden weights: fixed pseudo-random tensors that hit every rule of a packer.
//!
//! Frozen with format 1: the fingerprint of every pack key depends on these bytes. The generator is
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
//! Specified with a vector in `docs/format/layouts.md`, section 6.

use packhouse_base::ggml_type::GgmlType;

/// SplitMix64: a counter through a mixing function, so that each seed gives one fixed stream.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Starts the stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Fills bytes, eight at a time in little-endian order.
    pub fn fill(&mut self, target: &mut [u8]) {
        for chunk in target.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// Scale values that packers get wrong, as f16 bits: zeros of both signs, the smallest subnormals,
/// the largest subnormal, the smallest normal, one, minus one, one ulp beside one, the largest
/// finite values, infinities, quiet and signalling NaN.
pub const F16_EDGES: [u16; 16] = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0x3bff, 0x7bff, 0xfbff,
    0x7c00, 0xfc00, 0x7e00, 0x7d01,
];

/// Quant bytes for whole blocks: zeros, clamps, halves and both nibble orders.
pub const BYTE_EDGES: [u8; 8] = [0x00, 0xff, 0x88, 0x77, 0x80, 0x08, 0x7f, 0xf0];

/// Returns the dims and bytes of a golden weight: three blocks wide, as many rows as asked for. Of
/// each four blocks one stays random, one has an edge byte throughout, and two have edge scales in
/// the f16 fields at `f16_offsets` of the block.
pub(crate) fn weight(ty: GgmlType, rows: u64, f16_offsets: &[usize]) -> ([u64; 2], Vec<u8>) {
    let block_bytes =
        usize::try_from(ty.block_bytes()).expect("because blocks are below 300 bytes");
    let block_count = usize::try_from(rows * 3).expect("because goldens have few rows");
    let mut stream = SplitMix64::new(u64::from(ty.id()) << 32 | rows);
    let mut bytes = vec![0; block_count * block_bytes];
    for (index, block) in bytes.chunks_exact_mut(block_bytes).enumerate() {
        stream.fill(block);
        if index % 4 == 1 {
            block.fill(BYTE_EDGES[index / 4 % BYTE_EDGES.len()]);
        }
        if index % 4 >= 2 {
            let turn = index / 4 * 2 + index % 4 - 2;
            for (field, offset) in f16_offsets.iter().enumerate() {
                let edge = F16_EDGES[(turn + field * 5) % F16_EDGES.len()];
                block[*offset..offset + 2].copy_from_slice(&edge.to_le_bytes());
            }
        }
    }
    ([ty.block_elements() * 3, rows], bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_matches_the_published_vector() {
        let mut stream = SplitMix64::new(1_234_567);
        assert_eq!(stream.next(), 6_457_827_717_110_365_317);
        assert_eq!(stream.next(), 3_203_168_211_198_807_973);
    }
}
