//! Tiles of an lm-head for engines that multiply int8: columns of the head (rows of the stored
//! `[vocabulary, hidden]` tensor) quantised one by one, laid out for the device.
//!
//! - `TileGeometry`: the sizes of one tile, refused here or nowhere;
//! - `pack_tile`: the judge of one tile, in plain loops;
//! - `head`: the layouts of a whole head, from its bytes in any type that has values;
//! - `golden`: the head that fingerprints are taken of.
//!
//! Invariants:
//! - columns do not depend on each other: a column packed alone has the codes and the scale that it
//!   has in its tile;
//! - every code and every scale of a tile is written; what no column fills is what the quantiser
//!   makes of zeros: codes 0 and scale 1/127.
//!
//! Specified in `docs/format/layouts.md`, section 8.

mod golden;
pub(crate) mod head;

pub use golden::{GoldenHead, golden_head};
pub use head::{ID_BLOCKED, ID_ROW_MAJOR, KD, KPAD, ND, T, VERSION};

pub(crate) use golden::{parameters as golden_parameters, weight as golden_weight};

use crate::Layout;
use std::ops::Range;

/// The order of a tile's codes; element (i, j) is depth row i of column j.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileOrder {
    /// Position `i * nd + j`: layout `int8-tile-rm-v1`.
    RowMajor,
    /// Blocks of 64 rows by 128 columns, those of one band of columns one after the other down the
    /// depth, in each of them 8 by 8 microtiles: layout `int8-tile-b8-v1`.
    Blocked,
}

impl TileOrder {
    /// The layout of whole heads in this order.
    pub const fn layout(self) -> Layout {
        match self {
            Self::RowMajor => Layout::Int8TileRm,
            Self::Blocked => Layout::Int8TileB8,
        }
    }

    /// The order of a layout, if it is one of tiles.
    pub const fn of(layout: Layout) -> Option<Self> {
        match layout {
            Layout::Int8TileB8 => Some(Self::Blocked),
            Layout::Int8TileRm => Some(Self::RowMajor),
            Layout::GgmlCpuRepack
            | Layout::Identity
            | Layout::Q4_0JointN
            | Layout::Q4_0Reordered
            | Layout::Q4_0Xe2DpasV2 => None,
        }
    }
}

/// The sizes of one tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileGeometry {
    order: TileOrder,
    sizes: TileSizes,
}

/// The sizes of one tile, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileSizes {
    /// Depth rows of the device's buffer.
    pub kd: u64,
    /// Columns of the device's buffer.
    pub nd: u64,
    /// Depth rows that are packed: the hidden size, padded for the kernel.
    pub kpad: u64,
    /// Columns of the head in a full tile.
    pub t: u64,
}

/// Why sizes make no tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A size is 0 or beyond the limit.
    #[error("{name} is {actual}, expected 1 to {SIZE_MAX}")]
    Size {
        /// The size's name.
        name: &'static str,
        /// Its value.
        actual: u64,
    },
    /// The packed depth does not fit the buffer.
    #[error("kpad is {kpad}, more than kd, which is {kd}")]
    Depth {
        /// Packed depth.
        kpad: u64,
        /// The buffer's depth.
        kd: u64,
    },
    /// The tile's columns do not fit the buffer.
    #[error("t is {t}, more than nd, which is {nd}")]
    Columns {
        /// Columns of a tile.
        t: u64,
        /// The buffer's columns.
        nd: u64,
    },
    /// The blocked order needs whole blocks.
    #[error("{name} is {actual}, which the blocked order needs to be a multiple of {multiple}")]
    Block {
        /// The size's name.
        name: &'static str,
        /// Its value.
        actual: u64,
        /// What it must be a multiple of.
        multiple: u64,
    },
    /// A tile is larger than any device's buffer.
    #[error("kd {kd} times nd {nd} is more than {CODE_BYTES_MAX} bytes of codes")]
    Bytes {
        /// The buffer's depth.
        kd: u64,
        /// The buffer's columns.
        nd: u64,
    },
}

impl TileGeometry {
    /// Judges sizes.
    ///
    /// # Errors
    /// The first size that is in the way, with its value.
    pub fn new(order: TileOrder, sizes: TileSizes) -> Result<Self, GeometryError> {
        let TileSizes { kd, nd, kpad, t } = sizes;
        for (name, actual) in [("kd", kd), ("nd", nd), ("kpad", kpad), ("t", t)] {
            if actual == 0 || actual > SIZE_MAX {
                return Err(GeometryError::Size { name, actual });
            }
        }
        if kpad > kd {
            return Err(GeometryError::Depth { kpad, kd });
        }
        if t > nd {
            return Err(GeometryError::Columns { t, nd });
        }
        if order == TileOrder::Blocked {
            for (name, actual, multiple) in [("kd", kd, BLOCK_ROWS), ("nd", nd, BLOCK_COLUMNS)] {
                if actual % multiple != 0 {
                    return Err(GeometryError::Block {
                        name,
                        actual,
                        multiple,
                    });
                }
            }
        }
        if kd * nd > CODE_BYTES_MAX {
            return Err(GeometryError::Bytes { kd, nd });
        }
        Ok(Self { order, sizes })
    }

    /// The order of the codes.
    pub const fn order(&self) -> TileOrder {
        self.order
    }

    /// The sizes.
    pub const fn sizes(&self) -> TileSizes {
        self.sizes
    }

    /// Depth rows of the buffer.
    pub const fn kd(&self) -> u64 {
        self.sizes.kd
    }

    /// Columns of the buffer.
    pub const fn nd(&self) -> u64 {
        self.sizes.nd
    }

    /// Packed depth rows.
    pub const fn kpad(&self) -> u64 {
        self.sizes.kpad
    }

    /// Columns of a full tile.
    pub const fn t(&self) -> u64 {
        self.sizes.t
    }

    /// Bytes of a tile's codes: `kd * nd`.
    pub const fn code_bytes(&self) -> u64 {
        self.sizes.kd * self.sizes.nd
    }

    /// Bytes of a tile's scales: `4 * nd`.
    pub const fn scale_bytes(&self) -> u64 {
        4 * self.sizes.nd
    }

    /// Bytes of a tile: codes, then scales.
    pub const fn payload_bytes(&self) -> u64 {
        self.code_bytes() + self.scale_bytes()
    }

    /// Tiles of a head with so many rows: the last one may be ragged.
    pub const fn tile_count(&self, vocabulary: u64) -> u64 {
        vocabulary.div_ceil(self.sizes.t)
    }

    /// The vocabulary rows of a tile; empty past the last one.
    pub fn tile_columns(&self, vocabulary: u64, tile: u64) -> Range<u64> {
        let start = tile.saturating_mul(self.sizes.t).min(vocabulary);
        start..start.saturating_add(self.sizes.t).min(vocabulary)
    }

    /// Where the code of depth row `i` of column `j` lies.
    pub const fn position(&self, i: u64, j: u64) -> u64 {
        let TileSizes { kd, nd, .. } = self.sizes;
        match self.order {
            TileOrder::RowMajor => i * nd + j,
            TileOrder::Blocked => {
                // A band's blocks follow each other down the depth, and each is 8 rows of
                // microtiles: so depth row i lies i / 8 of these rows into its band.
                let band = j / BLOCK_COLUMNS * (kd * BLOCK_COLUMNS);
                let microtile = i / 8 * (8 * BLOCK_COLUMNS) + j % BLOCK_COLUMNS / 8 * 64;
                band + microtile + i % 8 * 8 + j % 8
            }
        }
    }
}

/// Depth rows of a block.
pub const BLOCK_ROWS: u64 = 64;

/// Columns of a block.
pub const BLOCK_COLUMNS: u64 = 128;

/// Largest kd, nd, kpad and t.
pub const SIZE_MAX: u64 = 1 << 24;

/// Most bytes of codes in a tile.
pub const CODE_BYTES_MAX: u64 = 1 << 36;

/// Codes of one column, one per depth row, and its scale, which is returned. Values that are not
/// finite count as 0; halves round away from zero; codes lie in -127 ..= 127.
///
/// # Panics
/// When the lengths differ.
pub fn quantise_column(values: &[f32], codes: &mut [i8]) -> f32 {
    assert_eq!(values.len(), codes.len(), "codes of a column");
    let finite = values.iter().filter(|value| value.is_finite());
    let largest = finite.fold(0.0f32, |most, value| most.max(value.abs()));
    let largest = if largest < LARGEST_MIN { 1.0 } else { largest };
    // Two divisions: the inverse is not 1 / scale, whose codes differ beside halves.
    let (scale, inverse) = (largest / CODE_MAX, CODE_MAX / largest);
    for (value, code) in values.iter().zip(codes) {
        let value = if value.is_finite() { *value } else { 0.0 };
        let rounded = (value * inverse).round().clamp(-CODE_MAX, CODE_MAX);
        *code = rounded as i8;
    }
    scale
}

/// Packs a tile: the judge of every fast packer. `values` are the columns one after the other, each
/// `kpad` long; there may be fewer of them than the tile takes. Returns the sum of all `nd` scales,
/// added in f64 in the order of the columns.
///
/// # Panics
/// When a length is not the geometry's.
pub fn pack_tile(
    geometry: &TileGeometry,
    values: &[f32],
    codes: &mut [i8],
    scales: &mut [f32],
) -> f64 {
    assert_eq!(codes.len() as u64, geometry.code_bytes(), "codes");
    assert_eq!(scales.len() as u64, geometry.nd(), "scales");
    let depth = usize::try_from(geometry.kpad()).expect("because the values lie in memory");
    let columns = values.chunks_exact(depth);
    assert!(columns.remainder().is_empty(), "whole columns");
    assert!(columns.len() as u64 <= geometry.t(), "columns of a tile");
    codes.fill(0);
    scales.fill(quantise_column(&[], &mut []));
    let mut column_codes = vec![0; depth];
    for ((j, column), scale) in (0u64..).zip(columns).zip(scales.iter_mut()) {
        *scale = quantise_column(column, &mut column_codes);
        for (i, code) in (0u64..).zip(&column_codes) {
            let at = usize::try_from(geometry.position(i, j));
            codes[at.expect("because the codes lie in memory")] = *code;
        }
    }
    scales.iter().map(|scale| f64::from(*scale)).sum()
}

/// The largest code, as what values are scaled to.
const CODE_MAX: f32 = 127.0;

/// A column whose largest value is less than this counts as one whose largest value is 1.
const LARGEST_MIN: f32 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(order: TileOrder, kd: u64, nd: u64) -> TileGeometry {
        let sizes = TileSizes {
            kd,
            nd,
            kpad: kd,
            t: nd,
        };
        TileGeometry::new(order, sizes).expect("because the sizes fit")
    }

    #[test]
    fn blocked_positions_are_those_of_the_published_vectors_and_a_bijection() {
        let vectors = [
            ((0, 1), 1),
            ((1, 0), 8),
            ((0, 8), 64),
            ((8, 0), 1024),
            ((64, 0), 8192),
            ((0, 128), 16384),
            ((127, 255), 32767),
        ];
        let blocked = geometry(TileOrder::Blocked, 128, 256);
        for ((i, j), position) in vectors {
            assert_eq!(blocked.position(i, j), position, "({i}, {j})");
        }
        for (order, kd, nd) in [
            (TileOrder::Blocked, 64, 128),
            (TileOrder::Blocked, 192, 384),
            (TileOrder::RowMajor, 7, 5),
        ] {
            let geometry = geometry(order, kd, nd);
            let places = (0..kd).flat_map(|i| (0..nd).map(move |j| (i, j)));
            let mut positions: Vec<_> = places.map(|(i, j)| geometry.position(i, j)).collect();
            positions.sort_unstable();
            assert!(positions.into_iter().eq(0..kd * nd), "{geometry:?}");
        }
    }
}
