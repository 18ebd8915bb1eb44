//! The walk over a matrix that is packed in tiles of rows, K block outer: which tile of which block
//! comes when. The kernels pack and unpack one tile.
//!
//! A few tiles are done side by side per K block, so that whole cache lines are written, and for
//! them all K blocks, so that rows are read from end to end while their pages are at hand.
#![expect(unsafe_code, reason = "pointers into source and target")]

use crate::x86_64::q4_0::{BLOCK_BYTES, Matrix, SCALE_BYTES};
use crate::x86_64::traffic::{Ahead, LINE_BYTES, will_read, will_write};
use std::ops::Range;

/// A matrix as tiles of `ROWS` rows, which have `FIRST` and `SECOND` bytes in the regions of the
/// payload; `TOGETHER` of them are done side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles<
    const ROWS: usize,
    const FIRST: usize,
    const SECOND: usize,
    const TOGETHER: usize,
> {
    /// The matrix.
    pub(crate) matrix: Matrix,
    /// Tiles per K block in the payload.
    pub(crate) tile_count: usize,
}

impl<const ROWS: usize, const FIRST: usize, const SECOND: usize, const TOGETHER: usize>
    Tiles<ROWS, FIRST, SECOND, TOGETHER>
{
    /// Lines that are brought ahead per tile and block: as many as it has, of the next tiles.
    const LINES_AHEAD: usize = (ROWS * BLOCK_BYTES).div_ceil(LINE_BYTES);

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
        let row_bytes = self.matrix.row_bytes;
        let piece_bytes = blocks.len() * BLOCK_BYTES;
        for first in (0..whole).step_by(TOGETHER) {
            let tiles = first..(first + TOGETHER).min(whole);
            let next_row = (first + TOGETHER) * ROWS;
            let next = source.wrapping_add(next_row * row_bytes + blocks.start * BLOCK_BYTES);
            let mut ahead = Ahead::new(next, piece_bytes, row_bytes);
            for block in blocks.clone() {
                let tiles_before = (block - blocks.start) * self.tile_count;
                let next = tiles_before + self.tile_count + first;
                if !is_streamed {
                    let address = targets[0].wrapping_add(next * FIRST);
                    will_write(address, TOGETHER * FIRST);
                }
                let address = targets[1].wrapping_add(next * SECOND);
                will_write(address, TOGETHER * SECOND);
                for tile in tiles.clone() {
                    ahead.bring(Self::LINES_AHEAD);
                    let index = tiles_before + tile;
                    // SAFETY: the tile's rows and the block are within the matrix, so that source
                    // and targets have their bytes.
                    let (rows, targets) = unsafe {
                        let row = source.add(tile * ROWS * row_bytes);
                        let first = targets[0].add(index * FIRST);
                        let second = targets[1].add(index * SECOND);
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
        let row_bytes = self.matrix.row_bytes;
        for first in tiles.clone().step_by(TOGETHER) {
            let together = first..(first + TOGETHER).min(tiles.end);
            for block in 0..self.matrix.block_count {
                let next = (block + 1) * self.tile_count + first;
                let address = regions[0].wrapping_add(next * FIRST);
                will_read(address, TOGETHER * FIRST);
                let address = regions[1].wrapping_add(next * SECOND);
                will_read(address, TOGETHER * SECOND);
                for tile in together.clone() {
                    let index = block * self.tile_count + tile;
                    // SAFETY: the tile and the block are within the payload, and the target has
                    // the tile's rows.
                    let (regions, rows) = unsafe {
                        let first = regions[0].add(index * FIRST);
                        let second = regions[1].add(index * SECOND);
                        let row = (tile - tiles.start) * ROWS;
                        let row = target.add(row * row_bytes);
                        ([first, second], row.add(block * BLOCK_BYTES))
                    };
                    // A line has three blocks and a half.
                    if block % 3 == 0 {
                        for row in 0..ROWS {
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
