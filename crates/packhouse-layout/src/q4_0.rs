//! What the Q4_0 layouts share: the block and the matrix.
//!
//! A block is 2 bytes of little-endian f16 scale, then 16 bytes of quants. Element k of a block has
//! the nibble `quants[k % 16] >> (4 * (k / 16)) & 15`. Scales are moved as 16 bits, never as
//! numbers: a conversion would change NaN, and one that is compiled away would keep it.

use crate::{Admitted, Refusal};
use packhouse_base::ggml_type::GgmlType;

/// Elements of a block.
pub(crate) const BLOCK_ELEMENTS: u64 = 32;
/// Bytes of a block's scale.
pub(crate) const SCALE_BYTES: u64 = 2;
/// Bytes of a block's quants.
pub(crate) const QUANT_BYTES: u64 = 16;
/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = SCALE_BYTES + QUANT_BYTES;

const _: () = assert!(BLOCK_BYTES == 18);

/// One matrix of Q4_0 blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    /// Blocks in a row.
    pub(crate) block_count: u64,
    /// Rows.
    pub(crate) row_count: u64,
}

impl Matrix {
    /// Admits a single matrix; a vector is one of one row.
    pub(crate) fn admit(layout: &'static str, ty: GgmlType, dims: &[u64]) -> Result<Self, Refusal> {
        if ty.name() != "Q4_0" {
            return Err(Refusal::Type {
                layout,
                name: ty.name(),
            });
        }
        let dims_given = || dims.to_vec();
        if dims.is_empty() || dims.contains(&0) || dims.len() > 4 {
            return Err(Refusal::Shape { dims: dims_given() });
        }
        if dims.len() > 2 {
            let dims = dims_given();
            return Err(Refusal::Stack { layout, dims });
        }
        let (columns, row_count) = (dims[0], dims.get(1).copied().unwrap_or(1));
        if columns % BLOCK_ELEMENTS != 0 {
            return Err(Refusal::Columns {
                columns,
                block: BLOCK_ELEMENTS,
            });
        }
        if ty.tensor_bytes(dims).is_none() {
            return Err(Refusal::Overflow { dims: dims_given() });
        }
        Ok(Self {
            block_count: columns / BLOCK_ELEMENTS,
            row_count,
        })
    }

    /// The matrix of a tensor that `admit` took.
    pub(crate) fn of(admitted: &Admitted) -> Self {
        Self {
            block_count: admitted.columns() / BLOCK_ELEMENTS,
            row_count: admitted.geometry().row_count,
        }
    }

    /// Bytes of one row.
    pub(crate) const fn row_bytes(self) -> u64 {
        self.block_count * BLOCK_BYTES
    }

    /// Bytes of all quants; where the scales begin in the layouts that part them.
    pub(crate) const fn all_quant_bytes(self) -> u64 {
        self.block_count * self.row_count * QUANT_BYTES
    }

    /// Where a block begins in the source.
    pub(crate) const fn block_at(self, row: u64, block: u64) -> u64 {
        (row * self.block_count + block) * BLOCK_BYTES
    }

    /// Each block's row and number, in source order.
    pub(crate) fn blocks(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.row_count).flat_map(move |row| (0..self.block_count).map(move |b| (row, b)))
    }
}

/// An offset into bytes that lie in memory.
pub(crate) fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("because the bytes lie in memory")
}

/// Copies `length` bytes between two offsets.
pub(crate) fn copy(source: &[u8], source_at: u64, target: &mut [u8], target_at: u64, length: u64) {
    let from = at(source_at)..at(source_at + length);
    target[at(target_at)..at(target_at + length)].copy_from_slice(&source[from]);
}
