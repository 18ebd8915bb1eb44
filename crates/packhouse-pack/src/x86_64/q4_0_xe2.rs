//! What the kernels of `q4_0-xe2-dpas-v2` share: the asserts at their doors and the tiles' sizes.

use crate::x86_64::q4_0::{Matrix, QUANT_BYTES, SCALE_BYTES, within};
use crate::x86_64::tiles;
use crate::x86_64::traffic::is_streamed;
use packhouse_layout::Admitted;
use std::ops::Range;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Quant bytes of a tile.
pub(crate) const TILE_BYTES: usize = TILE_ROWS * QUANT_BYTES;

/// The matrix as tiles. Four together are a kilobyte of quants and two lines of scales.
pub(crate) type Tiles = tiles::Tiles<TILE_ROWS, TILE_BYTES, { TILE_ROWS * SCALE_BYTES }, 4>;

/// A pack call whose lengths hold.
pub(crate) struct PackCall {
    pub(crate) tiles: Tiles,
    pub(crate) blocks: Range<usize>,
    /// Whether the quants are to be written past the caches, which their alignment allows.
    pub(crate) is_streamed: bool,
}

impl PackCall {
    /// # Panics
    /// When a length is not that of the matrix, or of the steps.
    pub(crate) fn new(
        admitted: &Admitted,
        steps: Range<u64>,
        source: &[u8],
        [quants, scales]: [&[u8]; 2],
    ) -> Self {
        let tiles = tiles(admitted, source.len());
        let blocks = within(steps, tiles.matrix.block_count);
        let block_rows = blocks.len() * tiles.matrix.row_count;
        assert_eq!(quants.len(), block_rows * QUANT_BYTES, "quant bytes");
        assert_eq!(scales.len(), block_rows * SCALE_BYTES, "scale bytes");
        Self {
            tiles,
            blocks,
            is_streamed: is_streamed(source.len(), quants),
        }
    }
}

/// An unpack call whose lengths hold.
pub(crate) struct UnpackCall {
    pub(crate) tiles: Tiles,
    /// The tiles to unpack.
    pub(crate) wanted: Range<usize>,
    /// Where the scales begin.
    pub(crate) scales_at: usize,
}

impl UnpackCall {
    /// # Panics
    /// When a length is not that of the matrix, or of the groups' rows.
    pub(crate) fn new(
        admitted: &Admitted,
        groups: Range<u64>,
        payload: &[u8],
        target: &[u8],
    ) -> Self {
        let tiles = tiles(admitted, payload.len());
        let wanted = within(groups, tiles.tile_count);
        let row_bytes = wanted.len() * TILE_ROWS * tiles.matrix.row_bytes;
        assert_eq!(target.len(), row_bytes, "bytes of the tiles' rows");
        Self {
            tiles,
            wanted,
            scales_at: tiles.matrix.block_count * tiles.matrix.row_count * QUANT_BYTES,
        }
    }
}

fn tiles(admitted: &Admitted, byte_count: usize) -> Tiles {
    let matrix = Matrix::of(admitted, byte_count);
    assert_eq!(matrix.row_count % TILE_ROWS, 0, "whole tiles");
    Tiles {
        matrix,
        tile_count: matrix.row_count / TILE_ROWS,
    }
}
