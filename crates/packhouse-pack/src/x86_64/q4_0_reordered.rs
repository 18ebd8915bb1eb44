//! What the kernels of `q4_0-reordered-v1` share: the asserts at their doors. Rows follow each
//! other in source and payload, so a call is a run of blocks.

use crate::x86_64::q4_0::{Matrix, QUANT_BYTES, SCALE_BYTES, index, within};
use packhouse_layout::Admitted;
use std::ops::Range;

/// The blocks of the rows `steps`, by number in the matrix.
///
/// # Panics
/// When a length is not that of the matrix, or of the steps.
pub(crate) fn blocks_to_pack(
    admitted: &Admitted,
    steps: Range<u64>,
    source: &[u8],
    [quants, scales]: [&[u8]; 2],
) -> Range<usize> {
    let matrix = Matrix::of(admitted, source.len());
    let rows = within(steps, matrix.row_count);
    let blocks = rows.start * matrix.block_count..rows.end * matrix.block_count;
    assert_eq!(quants.len(), blocks.len() * QUANT_BYTES, "quant bytes");
    assert_eq!(scales.len(), blocks.len() * SCALE_BYTES, "scale bytes");
    blocks
}

/// The blocks of the rows of `groups`, by number in the matrix, and where the scales begin.
///
/// # Panics
/// When a length is not that of the matrix, or of the groups' rows.
pub(crate) fn blocks_to_unpack(
    admitted: &Admitted,
    groups: Range<u64>,
    payload: &[u8],
    target: &[u8],
) -> (Range<usize>, usize) {
    let matrix = Matrix::of(admitted, payload.len());
    let unit_rows = index(admitted.geometry().unit_rows);
    let groups = within(groups, index(admitted.group_count()));
    let rows = groups.start * unit_rows..(groups.end * unit_rows).min(matrix.row_count);
    assert_eq!(target.len(), rows.len() * matrix.row_bytes, "row bytes");
    let blocks = rows.start * matrix.block_count..rows.end * matrix.block_count;
    let scales_at = matrix.row_count * matrix.block_count * QUANT_BYTES;
    (blocks, scales_at)
}
