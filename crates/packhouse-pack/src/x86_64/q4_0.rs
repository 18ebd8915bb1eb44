//! What the Q4_0 kernels share: the matrix in `usize` and its block.

use packhouse_layout::Admitted;
use std::ops::Range;

/// Elements of a block.
pub(crate) const BLOCK_ELEMENTS: u64 = 32;
/// Bytes of a block's scale, which comes first.
pub(crate) const SCALE_BYTES: usize = 2;
/// Bytes of a block's quants.
pub(crate) const QUANT_BYTES: usize = 16;
/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = SCALE_BYTES + QUANT_BYTES;

/// An admitted matrix that lies in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    /// Blocks in a row.
    pub(crate) block_count: usize,
    /// Rows.
    pub(crate) row_count: usize,
    /// Bytes of a row.
    pub(crate) row_bytes: usize,
}

impl Matrix {
    /// The matrix of a tensor of Q4_0 blocks.
    ///
    /// # Panics
    /// When the bytes at hand are not those of the matrix.
    pub(crate) fn of(admitted: &Admitted, source_bytes: usize) -> Self {
        let columns = admitted.dims().first().copied().unwrap_or(1);
        let block_count = index(columns / BLOCK_ELEMENTS);
        let matrix = Self {
            block_count,
            row_count: index(admitted.geometry().row_count),
            row_bytes: block_count * BLOCK_BYTES,
        };
        assert_eq!(
            source_bytes,
            matrix.row_count * matrix.row_bytes,
            "source bytes"
        );
        matrix
    }
}

/// A range of steps or groups of bytes that lie in memory.
///
/// # Panics
/// When it ends beyond `count`.
pub(crate) fn within(range: Range<u64>, count: usize) -> Range<usize> {
    let range = index(range.start)..index(range.end);
    assert!(
        range.start <= range.end && range.end <= count,
        "{range:?} of {count}"
    );
    range
}

/// A count of things that lie in memory.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).expect("because the tensor lies in memory")
}
