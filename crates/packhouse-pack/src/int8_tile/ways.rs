//! The ways that a tile may be packed in, all gone once on small tiles: what the fingerprint of a
//! packer knows of those that a golden head alone would never take.
//!
//! Tiles that serve are written past the caches, by several threads, strip after strip, at any
//! address; a golden head is too small for all of it. So small tiles are packed in each
//! combination, and whatever is not the judge's tile becomes part of the fingerprint: such a packer
//! is another one, and finds nothing that a right one wrote.
//!
//! Never: a wait that does not end when threads do not start.

use crate::int8_tile::bound::Bound;
use crate::int8_tile::columns::{BAND_COLUMNS, STRIP_COLUMNS};
use crate::int8_tile::{Gather, Split, Tile, pack_on, size};
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::int8_tile::{
    GoldenHead, TileGeometry, TileOrder, TileSizes, golden_head, pack_tile,
};
use std::convert::Infallible;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Builder, ThreadId};
use std::time::Duration;

/// How a tile is packed.
#[derive(Clone, Copy, Debug)]
struct Way {
    streamed: bool,
    threads: usize,
    is_serial: bool,
    /// Where the codes begin in their cache line.
    offset: usize,
}

/// A small tile, and what the judge makes of it.
struct Case {
    geometry: TileGeometry,
    /// Values of a column that are filled.
    width: usize,
    /// Columns one after the other, each `kpad` long.
    values: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
}

/// Packs small tiles in every way. Returns the number and the bytes of those that are not what the
/// judge makes of them: nothing for a packer that is right. A thread waits for the others as long
/// as `patience` says, so that each has a part of the tile.
pub(crate) fn differences(bound: Bound, order: TileOrder, patience: Duration) -> Vec<u8> {
    let mut cases = golden_tiles(&golden_head(order));
    cases.push(served_tile(order));
    let mut differences = Vec::new();
    for (index, (case, way)) in cases.iter().flat_map(ways_of).enumerate() {
        differences.extend(case.difference(bound, way, index as u64, patience));
    }
    differences
}

/// How long threads wait for each other at most. They do not wait at all where all of them run.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// Threads cost a start on a busy host its time, so only the larger tile is shared out, and each
/// gather is tried with what the other one is not.
fn ways_of(case: &Case) -> impl Iterator<Item = (&Case, Way)> {
    let is_large = case.values.len() as u64 / case.geometry.kpad() == COLUMNS;
    let ways = (0..8).map(|bits| {
        let (is_serial, is_aside, is_shared) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        Way {
            streamed: is_serial == is_aside,
            threads: if is_shared { 3 } else { 1 },
            is_serial,
            offset: if is_aside { 16 } else { 0 },
        }
    });
    let ways = ways.filter(move |way| is_large || way.threads == 1);
    ways.map(move |way| (case, way))
}

/// The tiles of a golden head, whose values hit every rule of the quantiser.
fn golden_tiles(golden: &GoldenHead) -> Vec<Case> {
    let geometry = &golden.geometry;
    let width = size(golden.width);
    let tiles = 0..geometry.tile_count(golden.vocabulary);
    let case = |tile| {
        let columns = geometry.tile_columns(golden.vocabulary, tile);
        let values = &golden.values[size(columns.start) * width..size(columns.end) * width];
        Case::new(*geometry, width, values)
    };
    tiles.map(case).collect()
}

/// A tile of more than one wide strip, whose rows all begin alike in their cache lines.
fn served_tile(order: TileOrder) -> Case {
    let (kd, nd) = match order {
        TileOrder::RowMajor => (DEPTH + 4, 448),
        TileOrder::Blocked => (320, 512),
    };
    let sizes = TileSizes {
        kd,
        nd,
        kpad: DEPTH,
        t: COLUMNS + 9,
    };
    let geometry = TileGeometry::new(order, sizes);
    let geometry = geometry.expect("because these sizes fit each other");
    let mut stream = SplitMix64::new(COLUMNS);
    let value = |draw: u64| (draw >> 40) as f32 / (1 << 23) as f32 - 1.0;
    let width = size(DEPTH) - 5;
    let values = (0..size(COLUMNS) * width).map(|_| value(stream.next()));
    Case::new(geometry, width, &values.collect::<Vec<_>>())
}

/// Three chunks of 64 values, and some more.
const DEPTH: u64 = 211;

/// Six cache lines, and some more; four bands.
const COLUMNS: u64 = 391;

/// Bytes of a piece of padding: there are several.
const PIECE_BYTES: usize = 4096;

impl Case {
    /// A tile of columns of `width` values.
    fn new(geometry: TileGeometry, width: usize, columns: &[f32]) -> Self {
        let depth = size(geometry.kpad());
        let mut values = vec![0.0; columns.len() / width * depth];
        for (whole, column) in values.chunks_mut(depth).zip(columns.chunks(width)) {
            whole[..width].copy_from_slice(column);
        }
        let mut codes = vec![0; size(geometry.code_bytes())];
        let mut scales = vec![0.0; size(geometry.nd())];
        pack_tile(&geometry, &values, &mut codes, &mut scales);
        Self {
            geometry,
            width,
            values,
            codes,
            scales,
        }
    }

    /// Packs the tile in one way; says how that came out where it is wrong.
    fn difference(&self, bound: Bound, way: Way, index: u64, patience: Duration) -> Vec<u8> {
        let depth = size(self.geometry.kpad());
        let column_count = self.values.len() / depth;
        let strip_columns = match (self.geometry.order(), way.threads) {
            (TileOrder::Blocked, _) => BAND_COLUMNS,
            (TileOrder::RowMajor, 1) => STRIP_COLUMNS,
            (TileOrder::RowMajor, _) => 64,
        };
        let strips = column_count.div_ceil(strip_columns);
        let meeting = Meeting::new(way.threads.min(strips), patience);
        let fill = |column: u64, values: &mut [f32]| {
            meeting.arrive();
            let column = &self.values[size(column) * depth..][..self.width];
            values[..self.width].copy_from_slice(column);
            Ok::<(), Infallible>(())
        };
        let mut serial = |column: u64, values: &mut [f32]| {
            let column = &self.values[size(column) * depth..][..self.width];
            values[..self.width].copy_from_slice(column);
            Ok::<(), Infallible>(())
        };
        let gather = match way.is_serial {
            true => Gather::Serial(&mut serial),
            false => Gather::Parallel(&fill),
        };
        // What is not written must show, so nothing here is what it should be.
        let mut buffer = vec![0x55; self.codes.len() + 2 * 64];
        let start = buffer.as_ptr().align_offset(64).min(64) + way.offset;
        let codes = &mut buffer[start..][..self.codes.len()];
        let mut scales = vec![f32::NAN; self.scales.len()];
        let split = Split {
            others: way.threads - 1,
            strip_columns,
            streamed: way.streamed,
            piece_bytes: PIECE_BYTES,
        };
        let tile = Tile {
            geometry: &self.geometry,
            columns: 0..column_count as u64,
            codes: &mut *codes,
            scales: &mut scales,
        };
        match pack_on(bound, tile, gather, split, Builder::new) {
            Ok(_) => {}
            Err(never) => match never {},
        }
        let mut scale_pairs = scales.iter().zip(&self.scales);
        let is_right = *codes == self.codes
            && scale_pairs.all(|(scale, right)| scale.to_bits() == right.to_bits());
        if is_right {
            return Vec::new();
        }
        let mut difference = index.to_le_bytes().to_vec();
        difference.extend(codes.iter().map(|code| code.cast_unsigned()));
        difference.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
        difference
    }
}

/// Where threads wait until all are there, so that none takes its second strip before each has
/// taken one.
struct Meeting {
    threads: usize,
    patience: Duration,
    here: Mutex<Vec<ThreadId>>,
    all: Condvar,
}

impl Meeting {
    const fn new(threads: usize, patience: Duration) -> Self {
        Self {
            threads,
            patience,
            here: Mutex::new(Vec::new()),
            all: Condvar::new(),
        }
    }

    /// Waits, when this thread was not here yet.
    fn arrive(&self) {
        let own = thread::current().id();
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        if here.contains(&own) {
            return;
        }
        here.push(own);
        self.all.notify_all();
        let is_early = |here: &mut Vec<ThreadId>| here.len() < self.threads;
        // Whoever does not come was not started, or comes late: its strips are taken here.
        drop(self.all.wait_timeout_while(here, self.patience, is_early));
    }
}

#[cfg(test)]
mod tests;
