//! A tile cut into disjoint pieces, in safe code: strips of columns first, in their order, then
//! whatever no column fills.

use crate::int8_tile::Split;
use crate::int8_tile::columns::BAND_COLUMNS;
use packhouse_layout::int8_tile::{TileGeometry, TileOrder};

/// What is left of a tile.
pub(crate) struct Target<'a> {
    /// The first column of the next strip.
    next: usize,
    /// Scales of the columns that are left.
    scales: &'a mut [f32],
    place: Left<'a>,
    piece_bytes: usize,
}

/// Some columns of a tile.
pub(crate) struct Strip<'a> {
    /// The first of them, counted from the tile's first.
    pub(crate) first: usize,
    /// Their scales, as many as there are columns.
    pub(crate) scales: &'a mut [f32],
    pub(crate) place: Place<'a>,
}

/// Where a strip's codes belong.
pub(crate) enum Place<'a> {
    /// The strip's part of each packed row.
    Rows(Vec<&'a mut [i8]>),
    /// A whole band.
    Band(&'a mut [i8]),
}

enum Left<'a> {
    /// What is left of each packed row, columns of a strip, and the rows below.
    Rows(Vec<&'a mut [i8]>, usize, &'a mut [i8]),
    /// Bytes of a band, and the bands that are left.
    Bands(usize, &'a mut [i8]),
}

impl<'a> Target<'a> {
    /// All of a tile; of its columns `scales` are those to be packed.
    pub(crate) fn new(
        geometry: &TileGeometry,
        codes: &'a mut [i8],
        scales: &'a mut [f32],
        split: &Split,
    ) -> Self {
        let size = |size: u64| usize::try_from(size).expect("because the codes lie in memory");
        let (kd, nd, depth) = (
            size(geometry.kd()),
            size(geometry.nd()),
            size(geometry.kpad()),
        );
        let place = match geometry.order() {
            TileOrder::RowMajor => {
                let (packed, below) = codes.split_at_mut(depth * nd);
                let rows = packed.chunks_exact_mut(nd).collect();
                Left::Rows(rows, split.strip_columns, below)
            }
            TileOrder::Blocked => Left::Bands(kd * BAND_COLUMNS, codes),
        };
        Self {
            next: 0,
            scales,
            place,
            piece_bytes: split.piece_bytes,
        }
    }

    /// Most columns of a strip.
    pub(crate) const fn strip_columns(&self) -> usize {
        match &self.place {
            Left::Rows(_, strip_columns, _) => *strip_columns,
            Left::Bands(..) => BAND_COLUMNS,
        }
    }

    /// Takes the next columns.
    pub(crate) fn strip(&mut self) -> Option<Strip<'a>> {
        if self.scales.is_empty() {
            return None;
        }
        let (first, left) = (self.next, self.scales.len());
        let (count, place) = match &mut self.place {
            Left::Rows(rows, strip_columns, _) => {
                // Where all rows begin alike, only the first strip may begin beside a cache line.
                let aside = rows.first().map_or(0, |row| row.as_ptr().align_offset(64));
                let count = if (1..64).contains(&aside) {
                    aside
                } else {
                    *strip_columns
                };
                let count = count.min(left);
                let parts = rows.iter_mut().map(|row| take(row, count));
                (count, Place::Rows(parts.collect()))
            }
            Left::Bands(band_bytes, bands) => {
                let band = take(bands, *band_bytes);
                (left.min(BAND_COLUMNS), Place::Band(band))
            }
        };
        self.next += count;
        let (scales, rest) = std::mem::take(&mut self.scales).split_at_mut(count);
        self.scales = rest;
        Some(Strip {
            first,
            scales,
            place,
        })
    }

    /// Takes a piece of what no column fills; only after the last strip.
    pub(crate) fn padding(&mut self) -> Option<Vec<&'a mut [i8]>> {
        let bytes = match &mut self.place {
            Left::Rows(rows, _, below) => {
                let width = rows.first().map_or(0, |row| row.len());
                if let Some(fitting) = self.piece_bytes.checked_div(width) {
                    let count = fitting.clamp(1, rows.len());
                    return Some(rows.split_off(rows.len() - count));
                }
                rows.clear();
                below
            }
            Left::Bands(_, bands) => bands,
        };
        let count = bytes.len().min(self.piece_bytes);
        (count > 0).then(|| vec![take(bytes, count)])
    }
}

/// Takes the first codes off a slice.
fn take<'a>(rest: &mut &'a mut [i8], count: usize) -> &'a mut [i8] {
    let (taken, left) = std::mem::take(rest).split_at_mut(count);
    *rest = left;
    taken
}
