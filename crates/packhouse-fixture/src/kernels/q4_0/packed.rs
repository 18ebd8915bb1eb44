//! Packed Q4_0, read block by block where it lies.
//!
//! The offsets are those of `docs/format/kernels.md`, section 3, written once more: a reader that
//! used a packer's own arithmetic would agree with it in its mistakes too.

use super::WEIGHTS;
use crate::{Inputs, KernelError};

/// An order of packed Q4_0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// `q4_0-xe2-dpas-v2`.
    Xe2,
    /// `q4_0-joint-n-v1`.
    JointN,
    /// `q4_0-reordered-v1`.
    Reordered,
    /// `identity-v1`.
    Rows,
    /// `ggml-cpu-repack`, 8 rows by 8 bytes.
    Repack8,
}

impl Order {
    /// What N must be a multiple of.
    const fn row_multiple(self) -> u64 {
        match self {
            Self::Xe2 => 16,
            Self::JointN | Self::Reordered | Self::Rows => 1,
            Self::Repack8 => 8,
        }
    }
}

/// One block of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The scale, as bits of a half.
    pub(crate) scale: u16,
    /// The nibbles less 8, by column.
    pub(crate) nibbles: [i8; 32],
}

/// A packed weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    order: Order,
    bytes: &'a [u8],
    block_count: usize,
    row_count: usize,
    /// Rows of a tile; 1 in orders without this parameter.
    tile_rows: usize,
}

impl<'a> Packed<'a> {
    /// Finds a case's weight.
    ///
    /// # Errors
    /// When the weight or a parameter is missing, when the order has no such sizes, and when the
    /// weight's length is another.
    pub(crate) fn open(order: Order, inputs: &Inputs<'a>) -> Result<Self, KernelError> {
        let columns = inputs.multiple("k", 32)?;
        let rows = inputs.multiple("n", order.row_multiple())?;
        let tile_rows = match order {
            Order::JointN => inputs.multiple("n_tile", 1)?,
            Order::Xe2 | Order::Reordered | Order::Rows | Order::Repack8 => 1,
        };
        // A length that 64 bits can't count is that of no bytes.
        let padded = rows.div_ceil(tile_rows).saturating_mul(tile_rows);
        let length = padded.saturating_mul(18).saturating_mul(columns / 32);
        Ok(Self {
            order,
            bytes: inputs.bytes(WEIGHTS, length)?,
            block_count: at(columns / 32),
            row_count: at(rows),
            tile_rows: at(tile_rows),
        })
    }

    /// The rows of a source.
    ///
    /// # Panics
    /// When it is no whole number of rows.
    pub(crate) fn source(bytes: &'a [u8], block_count: usize) -> Self {
        assert!(bytes.len().is_multiple_of(18 * block_count), "whole rows");
        Self {
            order: Order::Rows,
            bytes,
            block_count,
            row_count: bytes.len() / (18 * block_count),
            tile_rows: 1,
        }
    }

    /// Blocks of a row.
    pub(crate) const fn block_count(&self) -> u64 {
        self.block_count as u64
    }

    /// Rows of the weight: columns of the output.
    pub(crate) const fn row_count(&self) -> usize {
        self.row_count
    }

    /// The blocks of a row, in order.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = Block> {
        (0..self.block_count).map(move |block| match self.order {
            Order::Xe2 => self.xe2(row, block),
            Order::JointN => self.joint_n(row, block),
            Order::Reordered => self.reordered(row, block),
            Order::Rows => self.identity(row, block),
            Order::Repack8 => self.repack(row, block),
        })
    }

    /// Bytes of all quants, in the orders that part them from the scales.
    const fn quant_bytes(&self) -> usize {
        16 * self.block_count * self.row_count
    }

    /// A tile of 16 rows is 64 dwords: four groups of eight columns, each by 16 rows.
    fn xe2(&self, row: usize, block: usize) -> Block {
        let tile = 256 * (block * (self.row_count / 16) + row / 16);
        let dword = |group: usize| tile + 4 * (16 * group + row % 16);
        let nibble = |column: usize| {
            let byte = self.bytes[dword(column / 8) + column % 8 / 2];
            signed(byte >> (4 * (column % 2)))
        };
        Block {
            scale: self.half(self.quant_bytes() + 2 * (block * self.row_count + row)),
            nibbles: std::array::from_fn(nibble),
        }
    }

    /// A tile is the scales of its rows, then byte after byte of all of them.
    fn joint_n(&self, row: usize, block: usize) -> Block {
        let (rows, lane) = (self.tile_rows, row % self.tile_rows);
        let tile_count = self.row_count.div_ceil(rows);
        let tile = 18 * rows * (block * tile_count + row / rows);
        let byte = |index: usize| self.bytes[tile + 2 * rows + index * rows + lane];
        Block {
            scale: self.half(tile + 2 * lane),
            nibbles: offset_nibbles(byte),
        }
    }

    fn reordered(&self, row: usize, block: usize) -> Block {
        let index = row * self.block_count + block;
        Block {
            scale: self.half(self.quant_bytes() + 2 * index),
            nibbles: offset_nibbles(|byte| self.bytes[16 * index + byte]),
        }
    }

    fn identity(&self, row: usize, block: usize) -> Block {
        let start = 18 * (row * self.block_count + block);
        Block {
            scale: self.half(start),
            nibbles: offset_nibbles(|byte| self.bytes[start + 2 + byte]),
        }
    }

    /// Eight rows' scales, then eight bytes of each row, then eight more.
    fn repack(&self, row: usize, block: usize) -> Block {
        let start = 144 * (row / 8 * self.block_count + block);
        let nibble = |column: usize| {
            let byte = column % 16;
            let chunk = start + 16 + 64 * (byte / 8) + 8 * (row % 8);
            signed(self.bytes[chunk + byte % 8] >> (column / 16 * 4))
        };
        Block {
            scale: self.half(start + 2 * (row % 8)),
            nibbles: std::array::from_fn(nibble),
        }
    }

    fn half(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.bytes[offset], self.bytes[offset + 1]])
    }
}

/// The low four bits as a two's complement number.
const fn signed(bits: u8) -> i8 {
    (bits << 4).cast_signed() >> 4
}

/// Nibbles that are numbers plus 8: the low half of byte y is column y, the high one `y + 16`.
fn offset_nibbles(byte: impl Fn(usize) -> u8) -> [i8; 32] {
    std::array::from_fn(|column| {
        let nibble = byte(column % 16) >> (column / 16 * 4) & 15;
        nibble.cast_signed() - 8
    })
}

/// A size of bytes that lie in memory, or of nothing.
fn at(size: u64) -> usize {
    usize::try_from(size).expect("because the weight lies in memory")
}
