//! The walk over a matrix that is packed in tiles of rows, K block outer: which tile of which block
//! comes when. The kernels pack and unpack one tile.
//!
//! A few tiles are done side by side per K block, so that whole cache lines are written, and for
//! them all K blocks, so that rows are read from end to end while their pages are at hand.
#![expect(unsafe_code, reason = "pointers into source and target")]

use crate::x86_64::q4_0::{BLOCK_BYTES, Matrix, SCALE_BYTES};
use crate::x86_64::traffic::{Ahead, LINE_BYTES, will_read, will_write};
use std::ops::Range;

/// A matrix as tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    /// The matrix.
    pub(crate) matrix: Matrix,
    /// Rows of a tile.
    pub(crate) tile_rows: usize,
    /// Tiles per K block in the payload.
    pub(crate) tile_count: usize,
    /// Bytes of a tile in each region of the payload.
    pub(crate) tile_bytes: [usize; 2],
    /// Tiles that are done side by side.
    pub(crate) together: usize,
}

impl Tiles {
    /// Calls `pack_tile` with the first row's block and the tile's place in each region, for each
    /// of `blocks` and of the first `whole` tiles.
    ///
    /// # Safety
    /// At `source` lies the matrix, which has the rows of `whole` tiles; at `targets` the regions'
    /// slices of `blocks`.
    #[inline(always)]
    pub(crate) unsafe fn pack(
        &self,
        blocks: Range<usize>,
        whole: usize,
        source: *const u8,
        targets: [*mut u8; 2],
        is_streamed: bool,
        pack_tile: impl Fn(*const u8, [*mut u8; 2]),
    ) {
        let [first_bytes, second_bytes] = self.tile_bytes;
        let row_bytes = self.matrix.row_bytes;
        let piece_bytes = blocks.len() * BLOCK_BYTES;
        // What the next tiles' rows have, spread over this one's steps, and one line for luck.
        let lines_ahead = (self.tile_rows * BLOCK_BYTES).div_ceil(LINE_BYTES);
        for first in (0..whole).step_by(self.together) {
            let tiles = first..(first + self.together).min(whole);
            let next_row = (first + self.together) * self.tile_rows;
            let next = source.wrapping_add(next_row * row_bytes + blocks.start * BLOCK_BYTES);
            let mut ahead = Ahead::new(next, piece_bytes, row_bytes);
            for block in blocks.clone() {
                let tiles_before = (block - blocks.start) * self.tile_count;
                let next = tiles_before + self.tile_count + first;
                if !is_streamed {
                    let address = targets[0].wrapping_add(next * first_bytes);
                    will_write(address, tiles.len() * first_bytes);
                }
                let address = targets[1].wrapping_add(next * second_bytes);
                will_write(address, tiles.len() * second_bytes);
                for tile in tiles.clone() {
                    ahead.bring(lines_ahead);
                    let index = tiles_before + tile;
                    // SAFETY: the tile's rows and the block are within the matrix, so that source
                    // and targets have their bytes.
                    let (rows, targets) = unsafe {
                        let row = source.add(tile * self.tile_rows * row_bytes);
                        let first = targets[0].add(index * first_bytes);
                        let second = targets[1].add(index * second_bytes);
                        (row.add(block * BLOCK_BYTES), [first, second])
                    };
                    pack_tile(rows, targets);
                }
            }
        }
    }

    /// Calls `unpack_tile` with the tile's place in each region and the first row's block, for
    /// each K block and each of `tiles`.
    ///
    /// # Safety
    /// At `regions` lies the payload; the matrix has all rows of `tiles`, and at `target` is room
    /// for them.
    #[inline(always)]
    pub(crate) unsafe fn unpack(
        &self,
        tiles: Range<usize>,
        regions: [*const u8; 2],
        target: *mut u8,
        unpack_tile: impl Fn([*const u8; 2], *mut u8),
    ) {
        let [first_bytes, second_bytes] = self.tile_bytes;
        let row_bytes = self.matrix.row_bytes;
        for first in tiles.clone().step_by(self.together) {
            let together = first..(first + self.together).min(tiles.end);
            for block in 0..self.matrix.block_count {
                let next = (block + 1) * self.tile_count + first;
                let address = regions[0].wrapping_add(next * first_bytes);
                will_read(address, together.len() * first_bytes);
                let address = regions[1].wrapping_add(next * second_bytes);
                will_read(address, together.len() * second_bytes);
                for tile in together.clone() {
                    let index = block * self.tile_count + tile;
                    // SAFETY: the tile and the block are within the payload, and the target has
                    // the tile's rows.
                    let (regions, rows) = unsafe {
                        let first = regions[0].add(index * first_bytes);
                        let second = regions[1].add(index * second_bytes);
                        let row = (tile - tiles.start) * self.tile_rows;
                        let row = target.add(row * row_bytes);
                        ([first, second], row.add(block * BLOCK_BYTES))
                    };
                    // A line has three blocks and a half.
                    if block % 3 == 0 {
                        for row in 0..self.tile_rows {
                            let ahead = row * row_bytes + 2 * LINE_BYTES;
                            will_write(rows.wrapping_add(ahead), 1);
                        }
                    }
                    unpack_tile(regions, rows);
                }
            }
        }
    }
}

/// Copies the scales of blocks that are `row_bytes` apart to consecutive places, as 16 bits each.
///
/// # Safety
/// There are `R` blocks at `rows`, and room for `R` scales at `target`.
#[inline(always)]
pub(crate) unsafe fn gather_scales<const R: usize>(
    rows: *const u8,
    row_bytes: usize,
    target: *mut u8,
) {
    for row in 0..R {
        // SAFETY: the caller's blocks and room.
        unsafe {
            let scale = rows.add(row * row_bytes).cast::<u16>().read_unaligned();
            let target = target.add(row * SCALE_BYTES).cast::<u16>();
            target.write_unaligned(scale);
        }
    }
}

/// The inverse of `gather_scales`.
///
/// # Safety
/// There are `R` scales at `scales`, and room for `R` blocks at `rows`.
#[inline(always)]
pub(crate) unsafe fn scatter_scales<const R: usize>(
    scales: *const u8,
    rows: *mut u8,
    row_bytes: usize,
) {
    for row in 0..R {
        // SAFETY: the caller's scales and room.
        unsafe {
            let scale = scales.add(row * SCALE_BYTES).cast::<u16>();
            let target = rows.add(row * row_bytes).cast::<u16>();
            target.write_unaligned(scale.read_unaligned());
        }
    }
}
