//! One row's block out of a packed block: its codes as integers, its factors as numbers.
//!
//! Offsets are those of `docs/format/ggml-cpu-repack.md`; nothing is unpacked first. Element e of a
//! block stands for `scale * codes[e] - minimum * minima[e]`; types without minima have none.

use super::activations::Activations;
use crate::half::f16_to_f32;

/// Rows in a packed block.
pub(crate) const GROUP_ROWS: usize = 8;

/// The block types that have a kernel here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// 256 nibbles, and for each 32 a scale and a minimum of 6 bits.
    Q4K,
    /// 256 codes of two bits, and for each 16 a scale and a minimum of 4 bits.
    Q2K,
    /// 32 nibbles that name uneven levels.
    Iq4Nl,
    /// 32 four-bit floats under a power of two.
    Mxfp4,
}

/// One block of one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    /// The factor of the codes.
    pub(crate) scale: f32,
    /// Per element: its code or level, times its sub-block's scale.
    pub(crate) codes: Vec<i32>,
    /// The factor of the minima.
    pub(crate) minimum: f32,
    /// Per element: its sub-block's minimum; empty where the type has none.
    pub(crate) minima: Vec<i32>,
}

impl Blocks {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 4] = [Self::Q4K, Self::Q2K, Self::Iq4Nl, Self::Mxfp4];

    /// Name of ggml's type.
    pub(crate) const fn type_name(self) -> &'static str {
        match self {
            Self::Q4K => "Q4_K",
            Self::Q2K => "Q2_K",
            Self::Iq4Nl => "IQ4_NL",
            Self::Mxfp4 => "MXFP4",
        }
    }

    /// What its kernels multiply with.
    pub(crate) const fn activations(self) -> Activations {
        match self {
            Self::Q4K | Self::Q2K => Activations::Q8K,
            Self::Iq4Nl | Self::Mxfp4 => Activations::Q8_0,
        }
    }

    /// Elements of a block.
    pub(crate) const fn elements(self) -> usize {
        self.activations().elements()
    }

    /// Bytes of a packed block: the blocks of eight rows.
    pub(crate) const fn packed_bytes(self) -> usize {
        match self {
            Self::Q4K => Q4K_QUANTS + GROUP_ROWS * 128,
            Self::Q2K => Q2K_QUANTS + GROUP_ROWS * 64,
            Self::Iq4Nl => IQ4NL_QUANTS + GROUP_ROWS * 16,
            Self::Mxfp4 => MXFP4_QUANTS + GROUP_ROWS * 16,
        }
    }

    /// Reads the block of a row, 0 to 7, of a packed block.
    pub(crate) fn read(self, packed: &[u8], row: usize) -> Block {
        match self {
            Self::Q4K => q4_k(packed, row),
            Self::Q2K => q2_k(packed, row),
            Self::Iq4Nl => {
                let nibbles = nibbles(packed, IQ4NL_QUANTS, row);
                plain(half(packed, 2 * row), nibbles.map(|nibble| UNEVEN[nibble]))
            }
            Self::Mxfp4 => {
                let nibbles = nibbles(packed, MXFP4_QUANTS, row);
                let levels = nibbles.map(|nibble| FLOAT_4_DOUBLED[nibble]);
                plain(half_power(packed[row]), levels)
            }
        }
    }
}

/// Byte p of a row's quants, which are packed by chunks of eight bytes, row after row.
fn quant(packed: &[u8], quants: usize, row: usize, p: usize) -> u8 {
    packed[quants + 8 * (8 * (p / 8) + row) + p % 8]
}

/// Elements 64 j to 64 j + 31 are the low halves of 32 bytes, the next 32 their high halves.
fn q4_k(packed: &[u8], row: usize) -> Block {
    let sub_blocks: [(i32, i32); 8] =
        std::array::from_fn(|s| six_bits(&packed[Q4K_CODES + 12 * s..][..12], row));
    let code = |e: usize| {
        let byte = quant(packed, Q4K_QUANTS, row, 32 * (e / 64) + e % 32);
        i32::from(byte >> (4 * (e / 32 % 2)) & 15) * sub_blocks[e / 32].0
    };
    Block {
        scale: half(packed, 2 * row),
        codes: (0..256).map(code).collect(),
        minimum: half(packed, HALVES + 2 * row),
        minima: (0..256).map(|e| sub_blocks[e / 32].1).collect(),
    }
}

/// Elements 128 h + 32 t to 128 h + 32 t + 31 are bits 2 t and 2 t + 1 of 32 bytes.
fn q2_k(packed: &[u8], row: usize) -> Block {
    let sub_block = |e: usize| {
        let s = e / 16;
        packed[Q2K_PAIRS + 16 * (s / 2) + 2 * row + s % 2]
    };
    let code = |e: usize| {
        let byte = quant(packed, Q2K_QUANTS, row, 32 * (e / 128) + e % 32);
        i32::from(byte >> (2 * (e / 32 % 4)) & 3) * i32::from(sub_block(e) & 15)
    };
    Block {
        scale: half(packed, 2 * row),
        codes: (0..256).map(code).collect(),
        minimum: half(packed, HALVES + 2 * row),
        minima: (0..256).map(|e| i32::from(sub_block(e) >> 4)).collect(),
    }
}

fn plain(scale: f32, levels: impl Iterator<Item = i8>) -> Block {
    Block {
        scale,
        codes: levels.map(i32::from).collect(),
        minimum: 0.0,
        minima: Vec::new(),
    }
}

/// The 32 nibbles of 16 bytes: all low halves, then all high ones.
fn nibbles(packed: &[u8], quants: usize, row: usize) -> impl Iterator<Item = usize> {
    (0..32).map(move |e| {
        let byte = quant(packed, quants, row, e % 16);
        usize::from(byte >> (4 * (e / 16)) & 15)
    })
}

/// Scale and minimum number i of the twelve bytes that hold eight of each.
fn six_bits(code: &[u8], i: usize) -> (i32, i32) {
    let (scale, minimum) = match i {
        0..4 => (code[i] & 63, code[4 + i] & 63),
        _ => {
            let (low, high) = (code[4 + i], (code[i - 4] >> 6, code[i] >> 6));
            (low & 15 | high.0 << 4, low >> 4 | high.1 << 4)
        }
    };
    (i32::from(scale), i32::from(minimum))
}

fn half(packed: &[u8], offset: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([packed[offset], packed[offset + 1]]))
}

/// Half of `2^(exponent - 127)`: the levels are doubled, so that all are integers. The two smallest
/// are subnormal.
fn half_power(exponent: u8) -> f32 {
    f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => (u32::from(exponent) - 1) << 23,
    })
}

/// Bytes of eight halves.
const HALVES: usize = 2 * GROUP_ROWS;
const Q4K_CODES: usize = 2 * HALVES;
const Q4K_QUANTS: usize = Q4K_CODES + 12 * 8;
const Q2K_PAIRS: usize = 2 * HALVES;
const Q2K_QUANTS: usize = Q2K_PAIRS + 16 * GROUP_ROWS;
const IQ4NL_QUANTS: usize = HALVES;
const MXFP4_QUANTS: usize = GROUP_ROWS;

/// The levels of `IQ4_NL`.
const UNEVEN: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Twice the values of the four-bit floats with two bits of exponent and one of fraction.
const FLOAT_4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

const _: () = assert!(Blocks::Q4K.packed_bytes() == GROUP_ROWS * 144);
const _: () = assert!(Blocks::Q2K.packed_bytes() == GROUP_ROWS * 84);
const _: () = assert!(Blocks::Iq4Nl.packed_bytes() == GROUP_ROWS * 18);
const _: () = assert!(Blocks::Mxfp4.packed_bytes() == GROUP_ROWS * 17);
