//! One pass over the model: what its threads share, and how they are joined.
//!
//! ```text
//! reader --+--> whole-file hasher          (in file order)
//!          +--> workers: hash + pack  -->  committers: write, sync, link, note
//! ```
//!
//! Invariants:
//! - the first failure stops all threads; what was written by then is still published;
//! - a thread that waits, waits for one that works: the reader for memory, workers for the reader,
//!   committers for workers;
//! - one thread of each kind is enough: nothing begins without them, and more are used as the
//!   system gives them.

use super::budget::Budget;
use super::learn::Learnt;
use super::look::Found;
use super::order::{Item, Order};
use super::progress::{Event, Phase, Progress};
use super::segments::Segment;
use super::state::States;
use super::{Cost, Options, PrepareError, commit, reader, whole, worker};
use crate::model::Model;
use packhouse_base::digest::PackKey;
use packhouse_store::object::PendingReceipt;
use packhouse_store::reserve::Reservation;
use packhouse_store::root::Store;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, Scope};

/// What stays the same over all rounds of a prepare.
pub(super) struct Work<'a> {
    pub(super) store: &'a Store,
    pub(super) model: &'a Model,
    pub(super) order: &'a Order,
    pub(super) options: &'a Options,
    pub(super) progress: &'a dyn Progress,
    pub(super) cancel: &'a (dyn Fn() -> bool + Sync),
    pub(super) learnt: Learnt<'a>,
    pub(super) states: States,
    pub(super) budget: Arc<Budget>,
    pub(super) cost: Mutex<Cost>,
    pub(super) receipts: Mutex<Vec<PendingReceipt>>,
}

/// One pass.
pub(super) struct Round<'w, 'a> {
    pub(super) work: &'w Work<'a>,
    /// Room for all payloads; without it sources are hashed only.
    pub(super) room: Option<&'w Reservation>,
    /// Whether a tensor is hashed before it is packed, because its pack may be there.
    pub(super) expects_packs: AtomicBool,
    /// Packs that a thread of this round makes.
    claimed: Mutex<BTreeSet<PackKey>>,
    stopped: AtomicBool,
    failure: Mutex<Option<PrepareError>>,
}

impl<'a> Work<'a> {
    pub(super) fn item(&self, index: usize) -> &'a Item {
        &self.order.items[index]
    }

    /// Changes the counters.
    pub(super) fn count(&self, change: impl FnOnce(&mut Cost)) {
        change(&mut lock(&self.cost));
    }

    /// Takes a pack that is there.
    pub(super) fn take_found(&self, item: usize, found: Found) {
        if found.reverified {
            self.count(|cost| {
                cost.reverified_count += 1;
                cost.reverified_bytes += found.record.length;
            });
        }
        lock(&self.receipts).extend(found.receipt);
        self.states.set_found(item, &found);
    }

    /// Notes what is known by now: digests of the source, and receipts that are due.
    pub(super) fn note(&self) -> Result<(), PrepareError> {
        let due = std::mem::take(&mut *lock(&self.receipts));
        let settled = self.store.settle_due(&due);
        lock(&self.receipts).extend(settled.young);
        Ok(self.learnt.note(self.store)?)
    }

    pub(super) fn tell(&self, event: Event<'_>) {
        self.progress.hear(event);
    }
}

impl<'w, 'a> Round<'w, 'a> {
    pub(super) fn new(work: &'w Work<'a>, room: Option<&'w Reservation>) -> Self {
        // A store without packs can't have this one.
        let is_empty = work.store.packs_dir().list().is_ok_and(|l| l.is_empty());
        Self {
            work,
            room,
            expects_packs: AtomicBool::new(!is_empty),
            claimed: Mutex::default(),
            stopped: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// Runs the pass over these segments. Errors with the first failure.
    pub(super) fn run(&self, segments: &[Segment]) -> Result<(), PrepareError> {
        let total_bytes = segments.iter().map(|segment| segment.range.length).sum();
        self.work.tell(Event::Begin {
            phase: Phase::Pack,
            total_bytes,
        });
        let threads = self.work.options.threads.get();
        thread::scope(|scope| {
            let (jobs, job_queue) = mpsc::channel();
            let (pieces, piece_queue) = mpsc::channel();
            // Each commit on its way holds a descriptor.
            let (commits, commit_queue) = mpsc::sync_channel(threads);
            let (job_queue, commit_queue) = (Mutex::new(job_queue), Mutex::new(commit_queue));
            let (job_queue, commit_queue) = (Arc::new(job_queue), Arc::new(commit_queue));
            let hash = move || whole::run(self, &piece_queue);
            let pack = || {
                let (queue, commits) = (job_queue.clone(), commits.clone());
                start(scope, move || worker::run(self, &queue, &commits))
            };
            let commit = || {
                let queue = commit_queue.clone();
                start(scope, move || commit::run(self, &queue))
            };
            // One of each is needed.
            if let Err(source) = start(scope, hash)
                .and_then(|()| pack())
                .and_then(|()| commit())
            {
                return self.fail(PrepareError::Threads { source });
            }
            let more = (1..threads).try_for_each(|_| pack());
            // Where no more are given, those that are there do it all.
            let _ = more.and_then(|()| (1..threads.min(COMMITTERS_MAX)).try_for_each(|_| commit()));
            drop((job_queue, commit_queue, commits));
            reader::run(self, segments, jobs, pieces);
        });
        let failure = lock(&self.failure).take();
        failure.map_or(Ok(()), Err)
    }

    /// Notes a failure; the first one is the round's.
    pub(super) fn fail(&self, error: impl Into<PrepareError>) {
        lock(&self.failure).get_or_insert(error.into());
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether everything is to end soon.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || (self.work.cancel)()
    }

    /// Takes a pack for this thread; `false` when another one of this round has it.
    pub(super) fn claim(&self, key: PackKey) -> bool {
        lock(&self.claimed).insert(key)
    }
}

/// Starts a thread that ends with its scope. Errors when the system gives none.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    thread::Builder::new().spawn_scoped(scope, work).map(drop)
}

/// Locks a mutex whose content no panic leaves half-changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More of them than this help no disk.
const COMMITTERS_MAX: usize = 4;
