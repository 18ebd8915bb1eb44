//! Tiles of an lm-head from columns that the caller fills: the production packer.
//!
//! The judge is `packhouse_layout::int8_tile`; every level makes its bytes.

use crate::Packers;
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes, pack_tile};
use std::num::NonZeroUsize;
use std::ops::Range;

/// Where the values of columns come from. A column is a row of the vocabulary; its target is `kpad`
/// long and zero, and what is not filled stays so.
pub enum Gather<'a, E> {
    /// Called on the calling thread only.
    Serial(&'a mut dyn FnMut(u64, &mut [f32]) -> Result<(), E>),
    /// Called on any of the packing threads, several at once.
    Parallel(&'a (dyn Fn(u64, &mut [f32]) -> Result<(), E> + Sync)),
}

impl Packers {
    /// Packs one tile on up to `thread_count` threads, the calling one among them; the bytes do not
    /// depend on their number. Each column is asked for once. Returns the sum of all `nd` scales,
    /// added in f64 in the order of the columns.
    ///
    /// # Errors
    /// The first that `gather` gives; codes and scales are then of no value.
    ///
    /// # Panics
    /// When a length is not the geometry's or `columns` are more than a tile takes.
    pub fn pack_tile<E: Send>(
        &self,
        geometry: &TileGeometry,
        columns: Range<u64>,
        gather: Gather<'_, E>,
        codes: &mut [i8],
        scales: &mut [f32],
        _thread_count: NonZeroUsize,
    ) -> Result<f64, E> {
        let depth = usize::try_from(geometry.kpad()).expect("because a tile lies in memory");
        let count = usize::try_from(columns.end - columns.start);
        let mut values = vec![0.0; depth * count.expect("because a tile lies in memory")];
        match gather {
            Gather::Serial(fill) => {
                for (column, target) in columns.zip(values.chunks_exact_mut(depth)) {
                    fill(column, target)?;
                }
            }
            Gather::Parallel(fill) => {
                for (column, target) in columns.zip(values.chunks_exact_mut(depth)) {
                    fill(column, target)?;
                }
            }
        }
        Ok(pack_tile(geometry, &values, codes, scales))
    }

    /// Packs one column alone, as a row-major tile of one column by the same code as whole tiles.
    /// Returns its scale.
    ///
    /// # Panics
    /// When the codes are not as many as the values, or there are none.
    pub fn pack_column(&self, values: &[f32], codes: &mut [i8]) -> f32 {
        let depth = values.len() as u64;
        let sizes = TileSizes {
            kd: depth,
            nd: 1,
            kpad: depth,
            t: 1,
        };
        let geometry = TileGeometry::new(TileOrder::RowMajor, sizes);
        let geometry = geometry.expect("because a column of a tile is a tile");
        let mut scale = [0.0];
        let mut fill = |_: u64, target: &mut [f32]| {
            target.copy_from_slice(values);
            Ok::<(), std::convert::Infallible>(())
        };
        let gather = Gather::Serial(&mut fill);
        let packed = self.pack_tile(
            &geometry,
            0..1,
            gather,
            codes,
            &mut scale,
            NonZeroUsize::MIN,
        );
        match packed {
            Ok(_) => scale[0],
            Err(never) => match never {},
        }
    }
}
