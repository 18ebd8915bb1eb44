//! What the kernels of `q4_0-joint-n-v1` with tiles of 8 rows share: the asserts at their doors,
//! the tiles' sizes, and the last tile where it has fewer rows.

use crate::x86_64::q4_0::{BLOCK_BYTES, Matrix, QUANT_BYTES, SCALE_BYTES, within};
use crate::x86_64::tiles;
use crate::x86_64::traffic::{LINE_BYTES, is_streamed};
use packhouse_layout::Admitted;
use std::ops::Range;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 8;
/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = TILE_ROWS * BLOCK_BYTES;
/// Where the quants of a tile begin.
pub(crate) const QUANTS_AT: usize = TILE_ROWS * SCALE_BYTES;

/// The matrix as tiles. Eight together are 18 cache lines.
pub(crate) type Tiles = tiles::Tiles<TILE_ROWS, TILE_BYTES, 0, 8>;

/// Rows whose tiles are whole cache lines.
const GROUP_ROWS: usize = 64;
/// Bytes of that many rows' tiles.
pub(crate) const GROUP_BYTES: usize = GROUP_ROWS * BLOCK_BYTES;

/// The matrix as such groups of tiles, for payloads that are written past the caches.
pub(crate) type Groups = tiles::Tiles<GROUP_ROWS, GROUP_BYTES, 0, 1>;

const _: () = assert!(QUANTS_AT + TILE_ROWS * QUANT_BYTES == TILE_BYTES);
const _: () = assert!(GROUP_BYTES.is_multiple_of(LINE_BYTES));
const _: () = assert!(GROUP_ROWS.is_multiple_of(TILE_ROWS));

/// Room for the tiles of a group, before they go past the caches.
#[repr(C, align(64))]
pub(crate) struct GroupRoom(pub(crate) [u8; GROUP_BYTES]);

/// A pack call whose lengths hold.
pub(crate) struct PackCall {
    pub(crate) tiles: Tiles,
    pub(crate) blocks: Range<usize>,
    /// Tiles that have all rows.
    pub(crate) whole: usize,
    /// The matrix as whole groups, where it is to be written past the caches and can be.
    pub(crate) streamed: Option<Groups>,
}

/// An unpack call whose lengths hold.
pub(crate) struct UnpackCall {
    pub(crate) tiles: Tiles,
    /// The tiles to unpack that have all rows.
    pub(crate) whole: Range<usize>,
    /// Rows of the last tile to unpack, where it has fewer.
    ragged_rows: usize,
}

impl PackCall {
    /// # Panics
    /// When a length is not that of the matrix, or of the steps.
    pub(crate) fn new(
        admitted: &Admitted,
        steps: Range<u64>,
        source: &[u8],
        target: &[u8],
    ) -> Self {
        let tiles = tiles(Matrix::of(admitted, source.len()));
        let blocks = within(steps, tiles.matrix.block_count);
        let target_bytes = blocks.len() * tiles.tile_count * TILE_BYTES;
        assert_eq!(target.len(), target_bytes, "bytes of the steps");
        let row_count = tiles.matrix.row_count;
        let can_stream = is_streamed(source.len(), target) && row_count.is_multiple_of(GROUP_ROWS);
        Self {
            tiles,
            blocks,
            whole: row_count / TILE_ROWS,
            streamed: can_stream.then_some(Groups {
                matrix: tiles.matrix,
                tile_count: row_count / GROUP_ROWS,
            }),
        }
    }

    /// Packs the last tile of each block where it has fewer rows; the others are zero blocks.
    pub(crate) fn pack_ragged(&self, source: &[u8], target: &mut [u8]) {
        let matrix = self.tiles.matrix;
        if self.whole == self.tiles.tile_count {
            return;
        }
        let first_row = self.whole * TILE_ROWS;
        for (step, block) in self.blocks.clone().enumerate() {
            let tile = (step * self.tiles.tile_count + self.whole) * TILE_BYTES;
            let tile = &mut target[tile..tile + TILE_BYTES];
            tile.fill(0);
            for row in first_row..matrix.row_count {
                let lane = row - first_row;
                let from = row * matrix.row_bytes + block * BLOCK_BYTES;
                let (scale, quants) = source[from..from + BLOCK_BYTES].split_at(SCALE_BYTES);
                tile[lane * SCALE_BYTES..][..SCALE_BYTES].copy_from_slice(scale);
                for (byte, quant) in quants.iter().enumerate() {
                    tile[QUANTS_AT + byte * TILE_ROWS + lane] = *quant;
                }
            }
        }
    }
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
        let source_bytes = usize::try_from(admitted.source_bytes());
        let source_bytes = source_bytes.expect("because the tensor lies in memory");
        let tiles = tiles(Matrix::of(admitted, source_bytes));
        let payload_bytes = tiles.matrix.block_count * tiles.tile_count * TILE_BYTES;
        assert_eq!(payload.len(), payload_bytes, "payload bytes");
        let wanted = within(groups, tiles.tile_count);
        let rows_end = (wanted.end * TILE_ROWS).min(tiles.matrix.row_count);
        let row_count = rows_end - wanted.start * TILE_ROWS;
        let row_bytes = tiles.matrix.row_bytes;
        assert_eq!(target.len(), row_count * row_bytes, "bytes of the rows");
        Self {
            tiles,
            whole: wanted.start..wanted.start + row_count / TILE_ROWS,
            ragged_rows: row_count % TILE_ROWS,
        }
    }

    /// Unpacks the last tile of each block where it has fewer rows.
    pub(crate) fn unpack_ragged(&self, payload: &[u8], target: &mut [u8]) {
        let matrix = self.tiles.matrix;
        let rows_at = self.whole.len() * TILE_ROWS * matrix.row_bytes;
        for block in 0..matrix.block_count {
            let tile = (block * self.tiles.tile_count + self.whole.end) * TILE_BYTES;
            for lane in 0..self.ragged_rows {
                let tile = &payload[tile..tile + TILE_BYTES];
                let to = rows_at + lane * matrix.row_bytes + block * BLOCK_BYTES;
                let (scale, quants) = target[to..to + BLOCK_BYTES].split_at_mut(SCALE_BYTES);
                scale.copy_from_slice(&tile[lane * SCALE_BYTES..][..SCALE_BYTES]);
                for (byte, quant) in quants.iter_mut().enumerate() {
                    *quant = tile[QUANTS_AT + byte * TILE_ROWS + lane];
                }
            }
        }
    }
}

fn tiles(matrix: Matrix) -> Tiles {
    Tiles {
        matrix,
        tile_count: matrix.row_count.div_ceil(TILE_ROWS),
    }
}
