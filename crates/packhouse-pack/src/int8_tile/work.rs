//! One tile on several threads: who gathers, quantises and writes what, and how a failure ends it.
//!
//! Invariants:
//! - strips are taken in the order of their columns, and each thread asks for the columns of a
//!   strip in their order. When column `c` fails no more strips are taken, and columns after `c`
//!   are not asked for; those before it are. So what is returned is the failure of the first column
//!   that fails, on any number of threads;
//! - a thread waits for another one only at the end, or for a channel that is closed when the other
//!   side returns or panics.

use crate::int8_tile::bound::Bound;
use crate::int8_tile::columns::{BAND_COLUMNS, CodeColumns};
use crate::int8_tile::target::{Place, Strip, Target};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, ScopedJoinHandle};

/// Fills the values of a column, counted from the tile's first.
pub(crate) type Fill<'a, E> = dyn FnMut(usize, &mut [f32]) -> Result<(), E> + 'a;

/// The same from several threads at once.
pub(crate) type FillAnywhere<'a, E> = dyn Fn(usize, &mut [f32]) -> Result<(), E> + Sync + 'a;

/// What all threads of one call share.
pub(crate) struct Work<'a, E> {
    bound: Bound,
    depth: usize,
    strip_columns: usize,
    streamed: bool,
    target: Mutex<Target<'a>>,
    /// The first column that failed so far, or `usize::MAX`.
    failed_at: AtomicUsize,
    failure: Mutex<Option<(usize, E)>>,
}

/// A thread's room: the values of a column, and the codes of columns.
struct Room {
    values: Vec<f32>,
    start: usize,
    codes: CodeColumns,
}

/// Codes that another thread writes.
struct Load<'a> {
    place: Place<'a>,
    codes: CodeColumns,
}

impl<'a, E: Send> Work<'a, E> {
    /// Work on a tile of columns of `depth` values. With `streamed`, codes are written past the
    /// caches where they can be.
    pub(crate) fn new(bound: Bound, depth: usize, streamed: bool, target: Target<'a>) -> Self {
        Self {
            bound,
            depth,
            strip_columns: target.strip_columns(),
            streamed,
            target: Mutex::new(target),
            failed_at: AtomicUsize::new(usize::MAX),
            failure: Mutex::new(None),
        }
    }

    /// Does everything on this thread and up to `others` more, all of which ask for columns. A
    /// thread that can't be started is not missed: those that run take all strips.
    pub(crate) fn parallel(
        &self,
        others: usize,
        builder: fn() -> Builder,
        fill: &FillAnywhere<'_, E>,
    ) {
        let work = || {
            let _stop = StopOnPanic(&self.failed_at);
            self.alone(&mut |column, values| fill(column, values));
        };
        thread::scope(|scope| {
            let start = |_| builder().spawn_scoped(scope, work).ok();
            let threads = (0..others).map_while(start).collect();
            work();
            join(threads);
        });
    }

    /// Does everything; columns are asked for on this thread only, and up to `others` more write
    /// codes. When none of them has room for more, codes are written here.
    pub(crate) fn serial(&self, others: usize, builder: fn() -> Builder, fill: &mut Fill<'_, E>) {
        if others == 0 {
            return self.alone(fill);
        }
        thread::scope(|scope| {
            let (loads, loaded) = mpsc::channel();
            let (emptied, empties) = mpsc::channel();
            let loaded = Arc::new(Mutex::new(loaded));
            let start = |_| {
                let (loaded, emptied) = (Arc::clone(&loaded), emptied.clone());
                let write = move || self.write_loads(&loaded, &emptied);
                builder().spawn_scoped(scope, write).ok()
            };
            let threads: Vec<_> = (0..others).map_while(start).collect();
            drop((loaded, emptied));
            let mut room = Room::new(self.depth, self.strip_columns);
            // One to be written and one that waits, for each thread.
            let mut unmade = 2 * threads.len();
            while let Some(mut strip) = self.strip() {
                if !self.gather(&mut strip, fill, &mut room) {
                    break;
                }
                let empty = empties.try_recv().ok().or_else(|| {
                    unmade = unmade.checked_sub(1)?;
                    Some(CodeColumns::new(self.depth, self.strip_columns))
                });
                let Some(empty) = empty else {
                    self.put(&mut strip.place, &room.codes);
                    continue;
                };
                let codes = std::mem::replace(&mut room.codes, empty);
                let place = strip.place;
                let load = Load { place, codes };
                // All other threads panicked; that is told when they are joined.
                if loads.send(load).is_err() {
                    break;
                }
            }
            drop(loads);
            self.clear_padding();
            join(threads);
        });
    }

    /// The failure of the first column that failed.
    pub(crate) fn failure(self) -> Option<E> {
        let failure = self.failure.into_inner();
        let failure = failure.unwrap_or_else(PoisonError::into_inner);
        failure.map(|(_, error)| error)
    }

    /// Takes strips and then padding until none is left.
    fn alone(&self, fill: &mut Fill<'_, E>) {
        let mut room = Room::new(self.depth, self.strip_columns);
        while let Some(mut strip) = self.strip() {
            if !self.gather(&mut strip, fill, &mut room) {
                return;
            }
            self.put(&mut strip.place, &room.codes);
        }
        self.clear_padding();
    }

    /// Writes what the gathering thread hands over until it hands over no more.
    fn write_loads(&self, loaded: &Mutex<Receiver<Load<'a>>>, emptied: &Sender<CodeColumns>) {
        let next = || lock(loaded).recv();
        while let Ok(Load { mut place, codes }) = next() {
            self.put(&mut place, &codes);
            // Nobody wants it once all columns are gathered.
            let _ = emptied.send(codes);
        }
        self.clear_padding();
    }

    /// Asks for the columns of a strip and quantises them. False when a column failed that is not
    /// after them.
    fn gather(&self, strip: &mut Strip<'_>, fill: &mut Fill<'_, E>, room: &mut Room) -> bool {
        for (index, scale) in strip.scales.iter_mut().enumerate() {
            let column = strip.first + index;
            if self.failed_at.load(Ordering::Relaxed) <= column {
                return false;
            }
            let values = &mut room.values[room.start..][..self.depth];
            values.fill(0.0);
            if let Err(error) = fill(column, values) {
                self.fail(column, error);
                return false;
            }
            let distance = room.codes.distance();
            let codes = room.codes.column_mut(index);
            *scale = self.bound.quantise(values, codes, distance);
        }
        if let Place::Band(_) = strip.place {
            for index in strip.scales.len()..BAND_COLUMNS {
                room.codes.clear(index);
            }
        }
        true
    }

    /// Writes the codes of a strip.
    fn put(&self, place: &mut Place<'_>, codes: &CodeColumns) {
        match place {
            Place::Rows(rows) => self.bound.row_major(codes, rows, self.streamed),
            Place::Band(band) => {
                let packed = self.depth.next_multiple_of(64) * BAND_COLUMNS;
                let (packed, below) = band.split_at_mut(packed);
                self.bound.blocked(codes, packed, self.streamed);
                below.fill(0);
            }
        }
    }

    fn strip(&self) -> Option<Strip<'a>> {
        let goes_on = self.failed_at.load(Ordering::Relaxed) == usize::MAX;
        goes_on.then(|| lock(&self.target).strip()).flatten()
    }

    fn clear_padding(&self) {
        let next = || {
            let goes_on = self.failed_at.load(Ordering::Relaxed) == usize::MAX;
            goes_on.then(|| lock(&self.target).padding()).flatten()
        };
        while let Some(pieces) = next() {
            for piece in pieces {
                piece.fill(0);
            }
        }
    }

    fn fail(&self, column: usize, error: E) {
        self.failed_at.fetch_min(column, Ordering::Relaxed);
        let mut failure = lock(&self.failure);
        if failure.as_ref().is_none_or(|(first, _)| column < *first) {
            *failure = Some((column, error));
        }
    }
}

impl Room {
    fn new(depth: usize, columns: usize) -> Self {
        let values = vec![0.0; depth + LINE_VALUES];
        let start = values.as_ptr().align_offset(64).min(LINE_VALUES);
        Self {
            values,
            start,
            codes: CodeColumns::new(depth, columns),
        }
    }
}

/// Values of a cache line.
const LINE_VALUES: usize = 16;

/// Makes other threads stop soon when the one that holds it panics.
struct StopOnPanic<'a>(&'a AtomicUsize);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

/// Waits for all threads; a panic of one of them goes on here, as what it was.
fn join(threads: Vec<ScopedJoinHandle<'_, ()>>) {
    let ends = threads.into_iter().map(ScopedJoinHandle::join);
    let ends: Vec<_> = ends.collect();
    if let Some(panic) = ends.into_iter().find_map(Result::err) {
        resume_unwind(panic);
    }
}

/// A panic elsewhere leaves whole values behind all locks here, and is told at the end.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
