//! Tiles of an lm-head from columns that the caller fills: the production packer.
//!
//! - `Gather`: where columns come from;
//! - `Packers::pack_tile` packs a tile, `Packers::pack_column` one column alone;
//! - `Packers::tile_fingerprint`: which packer this is, in every way that packs tiles (`ways`).
//!
//! Invariants:
//! - the judge is `packhouse_layout::int8_tile`; every level makes its bytes, on any number of
//!   threads;
//! - a column packed alone goes through the kernel that packs it in its tile;
//! - every code and every scale of a tile is written;
//! - a tile is never held in f32: each thread has the values of one column and the codes of some
//!   hundreds; a thread that only writes has codes of twice as many.
//!
//! Never: a byte beside the tile, or a tile that depends on what was in it.
//!
//! Specified in `docs/format/layouts.md`, section 8.

pub(crate) mod bound;
pub(crate) mod columns;
#[cfg(target_arch = "x86_64")]
pub(crate) mod head;
pub(crate) mod quantiser;
pub(crate) mod scalar;
mod target;
mod ways;
mod work;

use crate::{IsaLevel, Packers};
use packhouse_base::digest::Fingerprint;
use packhouse_layout::int8_tile::{GoldenHead, TileGeometry, TileOrder, golden_head};
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread::Builder;

pub use columns::{BAND_COLUMNS, CHUNK, CodeColumns, STRIP_COLUMNS};

use bound::Bound;
use target::Target;
use work::Work;

/// Where the values of columns come from. A column is a row of the vocabulary; its target is `kpad`
/// long and zero, and what is not filled stays so.
pub enum Gather<'a, E> {
    /// Called on the calling thread only.
    Serial(&'a mut FillSerial<'a, E>),
    /// Called on any of the packing threads, several at once.
    Parallel(&'a FillParallel<'a, E>),
}

/// Fills the column of a vocabulary row, one call at a time.
pub type FillSerial<'a, E> = dyn FnMut(u64, &mut [f32]) -> Result<(), E> + 'a;

/// Fills the column of a vocabulary row, from several threads at once.
pub type FillParallel<'a, E> = dyn Fn(u64, &mut [f32]) -> Result<(), E> + Sync + 'a;

impl Packers {
    /// Packs one tile on up to `thread_count` threads, the calling one among them; the bytes do not
    /// depend on their number. Each column is asked for once. Returns the sum of all `nd` scales,
    /// added in f64 in the order of the columns.
    ///
    /// With `Gather::Serial` the other threads write what the calling one gathered and quantised.
    ///
    /// # Errors
    /// What `gather` gives for the first column that it fails for. Soon after no more columns are
    /// asked for; codes and scales are then of no value.
    ///
    /// # Panics
    /// When a length is not the geometry's or `columns` are more than a tile takes. A panic of
    /// `gather` on any thread is one of this function, once all threads have stopped.
    pub fn pack_tile<E: Send>(
        &self,
        geometry: &TileGeometry,
        columns: Range<u64>,
        gather: Gather<'_, E>,
        codes: &mut [i8],
        scales: &mut [f32],
        thread_count: NonZeroUsize,
    ) -> Result<f64, E> {
        let tile = Tile {
            geometry,
            columns,
            codes,
            scales,
        };
        pack(self.tile_kernels(), tile, gather, thread_count)
    }

    /// Packs one column alone, by the kernel that packs it in tiles. Returns its scale.
    ///
    /// # Panics
    /// When the codes are not as many as the values.
    pub fn pack_column(&self, values: &[f32], codes: &mut [i8]) -> f32 {
        assert_eq!(values.len(), codes.len(), "codes of a column");
        self.tile_kernels().quantise(values, codes, CHUNK)
    }

    /// The level of the code that packs tiles.
    pub fn tile_level(&self) -> IsaLevel {
        self.tile_kernels().level()
    }

    /// The fingerprint of the packer of tiles: the golden head of F32 is packed once, by
    /// `pack_tile`, and the answer kept. It is that of the head's layout, `Packers::fingerprint`.
    ///
    /// Small tiles are packed in every way besides: past the caches and not, on one thread and on
    /// three, with either gather, at any address. A packer that makes other tiles than the judge in
    /// one of them has another fingerprint. This takes some milliseconds, once.
    pub fn tile_fingerprint(&self, order: TileOrder) -> Fingerprint {
        *self.tile_fingerprint_cell(order).get_or_init(|| {
            let golden = golden_head(order);
            let mut packed = self.pack_golden(&golden);
            packed.extend_from_slice(self.tile_differences(order));
            golden.admitted.fingerprint(&packed)
        })
    }

    /// Whether these packers have that fingerprint already, so that it takes no time.
    pub fn has_tile_fingerprint(&self, order: TileOrder) -> bool {
        self.tile_fingerprint_cell(order).get().is_some()
    }
}

impl Packers {
    /// What these packers make of small tiles where it is not what the judge makes of them.
    pub(crate) fn tile_differences(&self, order: TileOrder) -> &[u8] {
        self.tile_differences_cell(order)
            .get_or_init(|| ways::differences(self.tile_kernels(), order, ways::PATIENCE))
    }

    /// The tiles of a golden head as a payload has them.
    fn pack_golden(&self, golden: &GoldenHead) -> Vec<u8> {
        let geometry = &golden.geometry;
        let width = size(golden.width);
        let fill = |row: u64, values: &mut [f32]| {
            values[..width].copy_from_slice(&golden.values[size(row) * width..][..width]);
            Ok::<(), Infallible>(())
        };
        let mut codes = vec![0; size(geometry.code_bytes())];
        let mut scales = vec![0.0; size(geometry.nd())];
        let mut payload = Vec::new();
        for tile in 0..geometry.tile_count(golden.vocabulary) {
            let columns = geometry.tile_columns(golden.vocabulary, tile);
            let gather = Gather::Parallel(&fill);
            let packed = self.pack_tile(
                geometry,
                columns,
                gather,
                &mut codes,
                &mut scales,
                NonZeroUsize::MIN,
            );
            match packed {
                Ok(_) => {}
                Err(never) => match never {},
            }
            payload.extend(codes.iter().map(|code| code.cast_unsigned()));
            payload.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
        }
        payload
    }
}

/// One tile to be packed.
pub(crate) struct Tile<'a> {
    pub(crate) geometry: &'a TileGeometry,
    pub(crate) columns: Range<u64>,
    pub(crate) codes: &'a mut [i8],
    pub(crate) scales: &'a mut [f32],
}

/// Packs a tile, as `Packers::pack_tile` says.
pub(crate) fn pack<E: Send>(
    bound: Bound,
    tile: Tile<'_>,
    gather: Gather<'_, E>,
    thread_count: NonZeroUsize,
) -> Result<f64, E> {
    let Range { start, end } = tile.columns;
    let count = size(end.saturating_sub(start));
    let split = Split::of(tile.geometry, count, thread_count);
    pack_on(bound, tile, gather, split, Builder::new)
}

fn pack_on<E: Send>(
    bound: Bound,
    tile: Tile<'_>,
    gather: Gather<'_, E>,
    split: Split,
    builder: fn() -> Builder,
) -> Result<f64, E> {
    let Tile {
        geometry,
        columns,
        codes,
        scales,
    } = tile;
    assert_eq!(codes.len() as u64, geometry.code_bytes(), "codes");
    assert_eq!(scales.len() as u64, geometry.nd(), "scales");
    let count = columns.end.checked_sub(columns.start);
    let count = count.expect("because columns begin before they end");
    assert!(count <= geometry.t(), "columns of a tile");
    let (packed, padding) = scales.split_at_mut(size(count));
    padding.fill(bound.quantise(&[], &mut [], CHUNK));
    let target = Target::new(geometry, codes, packed, &split);
    let work = Work::new(bound, size(geometry.kpad()), split.streamed, target);
    let first = columns.start;
    match gather {
        Gather::Serial(fill) => {
            let fill = &mut |column, values: &mut [f32]| fill(first + column as u64, values);
            work.serial(split.others, builder, fill);
        }
        Gather::Parallel(fill) => {
            let fill = &|column, values: &mut [f32]| fill(first + column as u64, values);
            work.parallel(split.others, builder, fill);
        }
    }
    match work.failure() {
        Some(error) => Err(error),
        None => Ok(scales.iter().map(|scale| f64::from(*scale)).sum()),
    }
}

/// How a tile is shared out and written.
pub(crate) struct Split {
    /// Threads besides the calling one.
    pub(crate) others: usize,
    /// Most columns of a strip, a multiple of 64; the blocked order has bands.
    pub(crate) strip_columns: usize,
    /// Whether codes are written past the caches where they can be.
    pub(crate) streamed: bool,
    /// Bytes of a piece of padding.
    pub(crate) piece_bytes: usize,
}

impl Split {
    /// A few strips for each thread, so that all end at about the same time, but wide ones, since
    /// every packed row is cut at each.
    fn of(geometry: &TileGeometry, column_count: usize, thread_count: NonZeroUsize) -> Self {
        let threads = thread_count.get();
        let even = column_count / threads.saturating_mul(STRIPS_PER_THREAD);
        let fitting = (STRIP_CODES / size(geometry.kpad())).clamp(64, STRIP_COLUMNS) / 64 * 64;
        let even = even.next_multiple_of(64).clamp(64, fitting);
        let strip_columns = match geometry.order() {
            TileOrder::RowMajor => even,
            TileOrder::Blocked => BAND_COLUMNS,
        };
        // Padding is shared out too, but is no reason to start threads for a tile that has little.
        let code_bytes = size(geometry.code_bytes());
        let padding = code_bytes.saturating_sub(column_count.saturating_mul(size(geometry.kpad())));
        let pieces = column_count.div_ceil(strip_columns) + padding / PIECE_BYTES;
        Self {
            others: threads.min(pieces.max(1)) - 1,
            strip_columns,
            streamed: code_bytes >= STREAM_BYTES,
            piece_bytes: PIECE_BYTES,
        }
    }
}

/// Bytes of a piece of padding.
const PIECE_BYTES: usize = 1 << 20;

/// Codes of a strip, where 64 columns have no more.
const STRIP_CODES: usize = 4 << 20;

/// Strips for each thread, where there are columns enough.
const STRIPS_PER_THREAD: usize = 4;

/// Tiles from here on are written past the caches where they can be: they would not stay there
/// anyway, and a line that is not read before it is written is half the traffic.
const STREAM_BYTES: usize = 1 << 20;

fn size(size: u64) -> usize {
    usize::try_from(size).expect("because tiles lie in memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_layout::int8_tile::TileSizes;

    #[test]
    fn threads_that_do_not_start_are_not_missed() {
        // No address space has room for such a stack.
        let hopeless = || Builder::new().stack_size(1 << 62);
        for order in [TileOrder::RowMajor, TileOrder::Blocked] {
            let sizes = TileSizes {
                kd: 64,
                nd: 640,
                kpad: 7,
                t: 600,
            };
            let geometry = TileGeometry::new(order, sizes).expect("because the sizes fit");
            let pack = |builder: fn() -> Builder, is_serial| {
                let (mut codes, mut scales) = (vec![0x55; 64 * 640], vec![0.5; 640]);
                let fill = |column: u64, values: &mut [f32]| {
                    values[3] = column as f32;
                    Ok::<(), Infallible>(())
                };
                let mut serial = fill;
                let gather = if is_serial {
                    Gather::Serial(&mut serial)
                } else {
                    Gather::Parallel(&fill)
                };
                let tile = Tile {
                    geometry: &geometry,
                    columns: 0..599,
                    codes: &mut codes,
                    scales: &mut scales,
                };
                let split = Split::of(&geometry, 599, NonZeroUsize::MIN.saturating_add(4));
                assert!(split.others > 0);
                let kernels = Packers::detect().tile_kernels();
                let Ok(sum) = pack_on(kernels, tile, gather, split, builder);
                (codes, scales, sum)
            };
            let right = pack(Builder::new, false);
            for is_serial in [false, true] {
                assert!(pack(hopeless, is_serial) == right, "{order:?} {is_serial}");
            }
        }
    }
}
