//! Whether an intact image is of the weights held now, by the packer that would serve.
//!
//! Invariants:
//! - the packer that serves is the one that compares: no code here knows how values are quantised;
//! - what is compared are the bytes that were hashed, not what another might have put in their
//!   place since;
//! - both ends are compared always, no column beyond the head's ever.

use crate::items::Items;
use crate::read::Loaded;
use crate::refusal::RefusalWhy;
use packhouse_layout::int8_tile::TileGeometry;
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
use std::ops::Range;

/// The columns of one tile that are compared, and where their codes lie.
pub(crate) struct Sample {
    /// Columns of the tile, rising.
    columns: Vec<u64>,
    depth: usize,
    /// Positions of the codes, rising, each with its place in the sampled codes.
    places: Vec<(u64, usize)>,
}

/// The columns that are sampled of `count`, rising: all when there are fewer than nine. Else both
/// ends, and six that are evenly spread over the inner ones and rotated by seed and tile.
pub(crate) fn sample_columns(count: u64, seed: u64, tile: u64) -> Vec<u64> {
    if count <= SAMPLE_COLUMNS {
        return (0..count).collect();
    }
    let mut items = Items::new("packhouse/image-sample/1");
    let hash = items.integer(seed).integer(tile).finish();
    let (turn, _) = hash.split_first_chunk().expect("because 8 is below 32");
    let (inner, turn) = (count - 2, u64::from_le_bytes(*turn));
    let spread = SAMPLE_COLUMNS - 2;
    let place = |step: u64| 1 + (turn % inner + step * inner / spread) % inner;
    let mut columns: Vec<u64> = (0..spread).map(place).collect();
    columns.extend([0, count - 1]);
    columns.sort_unstable();
    columns
}

/// Columns of a tile that are compared, where it has so many.
pub(crate) const SAMPLE_COLUMNS: u64 = 8;

impl Sample {
    /// These columns of a tile; none of them where the whole tile will be compared.
    pub(crate) fn new(geometry: &TileGeometry, columns: Vec<u64>) -> Self {
        let depth = geometry.kpad();
        let places = columns.iter().flat_map(|column| {
            let column = *column;
            (0..depth).map(move |row| geometry.position(row, column))
        });
        let mut places: Vec<(u64, usize)> = places.zip(0..).collect();
        places.sort_unstable();
        Self {
            columns,
            depth: usize::try_from(depth).expect("because the values lie in memory"),
            places,
        }
    }

    /// How many codes are sampled.
    pub(crate) fn code_count(&self) -> usize {
        self.places.len()
    }

    /// Takes the codes that lie in a piece of the payload, each with its place.
    pub(crate) fn codes_in(&self, piece: &Range<u64>, bytes: &[u8]) -> Vec<(usize, i8)> {
        let start = self.places.partition_point(|(at, _)| *at < piece.start);
        let end = self.places.partition_point(|(at, _)| *at < piece.end);
        let code = |(at, place): &(u64, usize)| {
            let offset = usize::try_from(at - piece.start).expect("because a piece is short");
            (*place, bytes[offset].cast_signed())
        };
        self.places[start..end].iter().map(code).collect()
    }

    /// Packs each column alone, in order, and compares it with what was loaded. `first` is the
    /// tile's first column, `sampled` counts the columns that were asked for. The first
    /// disagreement ends it.
    ///
    /// # Errors
    /// The first that `gather` gives.
    pub(crate) fn compare<E: Send>(
        &self,
        packers: &Packers,
        first: u64,
        gather: &mut Gather<'_, E>,
        loaded: &Loaded,
        sampled: &mut u64,
    ) -> Result<Option<RefusalWhy>, E> {
        let mut values = vec![0.0; self.depth];
        let mut codes = vec![0; self.depth];
        for (index, column) in self.columns.iter().enumerate() {
            values.fill(0.0);
            *sampled += 1;
            match gather {
                Gather::Serial(fill) => fill(first + column, &mut values)?,
                Gather::Parallel(fill) => fill(first + column, &mut values)?,
            }
            let packed = packers.pack_column(&values, &mut codes);
            let at = usize::try_from(*column).expect("because the scales lie in memory");
            let image = loaded.scales()[at];
            let column = first + column;
            if image.to_bits() != packed.to_bits() {
                return Ok(Some(RefusalWhy::Scale {
                    column,
                    image,
                    packed,
                }));
            }
            let stored = &loaded.sampled()[index * self.depth..][..self.depth];
            let pairs = (0u64..).zip(stored.iter().zip(&codes));
            let mut wrong = pairs.filter(|(_, (image, packed))| image != packed);
            if let Some((row, (image, packed))) = wrong.next() {
                return Ok(Some(RefusalWhy::Code {
                    column,
                    row,
                    image: *image,
                    packed: *packed,
                }));
            }
        }
        Ok(None)
    }
}

/// Compares a whole tile, padding too, with the same tile packed again: by rising column, scale
/// before codes. `first` is the tile's first column.
pub(crate) fn compare_all(
    geometry: &TileGeometry,
    first: u64,
    image: (&[i8], &[f32]),
    packed: (&[i8], &[f32]),
) -> Option<RefusalWhy> {
    let bits = |scales: &[f32]| {
        scales
            .iter()
            .map(|scale| scale.to_bits())
            .collect::<Vec<_>>()
    };
    if image.0 == packed.0 && bits(image.1) == bits(packed.1) {
        return None;
    }
    let scales = image.1.iter().zip(packed.1);
    for (column, (image_scale, packed_scale)) in (0u64..).zip(scales) {
        if image_scale.to_bits() != packed_scale.to_bits() {
            return Some(RefusalWhy::Scale {
                column: first + column,
                image: *image_scale,
                packed: *packed_scale,
            });
        }
        for row in 0..geometry.kd() {
            let at = usize::try_from(geometry.position(row, column));
            let at = at.expect("because the codes lie in memory");
            if image.0[at] != packed.0[at] {
                return Some(RefusalWhy::Code {
                    column: first + column,
                    row,
                    image: image.0[at],
                    packed: packed.0[at],
                });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn few_columns_are_sampled_whole() {
        for count in 1..=SAMPLE_COLUMNS {
            let columns = sample_columns(count, 7, 3);
            assert!(columns.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn both_ends_always_inner_ones_evenly_and_none_beyond() {
        for count in [9, 10, 11, 16, 100, 3328, 28_672] {
            for seed in 0..50 {
                let columns = sample_columns(count, seed, seed % 3);
                assert_eq!(columns.len() as u64, SAMPLE_COLUMNS, "{count} {seed}");
                assert_eq!(columns.first(), Some(&0));
                assert_eq!(columns.last(), Some(&(count - 1)));
                assert!(
                    columns.windows(2).all(|pair| pair[0] < pair[1]),
                    "{columns:?}"
                );
                let inner = &columns[1..7];
                let widest = inner.windows(2).map(|pair| pair[1] - pair[0]).max();
                let around = count - 2 - (inner[5] - inner[0]);
                let even = (count - 2).div_ceil(6);
                assert!(widest.max(Some(around)) <= Some(even), "{columns:?}");
            }
        }
    }

    #[test]
    fn inner_columns_move_with_seed_and_tile_until_all_were_sampled() {
        let count = 40;
        assert_ne!(sample_columns(3328, 1, 0), sample_columns(3328, 2, 0));
        assert_ne!(sample_columns(3328, 1, 0), sample_columns(3328, 1, 1));
        let all: BTreeSet<u64> = (0..100)
            .flat_map(|seed| sample_columns(count, seed, 0))
            .collect();
        assert!(all.into_iter().eq(0..count));
    }
}
