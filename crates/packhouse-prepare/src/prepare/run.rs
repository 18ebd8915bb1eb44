//! The course of a prepare: look, lock, rounds, finish.

use super::budget::Budget;
use super::finish::finish;
use super::learn::Learnt;
use super::look::{Look, look};
use super::order::{Item, Order};
use super::progress::{Event, Phase, Progress};
use super::round::{Round, Work};
use super::segments::{self, Segment};
use super::state::{Reason, State, States};
use super::{Cost, Options, PrepareError, Prepared, SourceHash, worker};
use crate::model::Model;
use packhouse_base::digest::{Digest, SetKey, TensorDigest};
use packhouse_base::encode::Sequence;
use packhouse_base::identity::{SetEntry, set_key};
use packhouse_store::lock::{LockError, WorkLock};
use packhouse_store::record::PackRecord;
use packhouse_store::reserve::{Reservation, RoomError};
use packhouse_store::root::Store;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Makes the set of a model under a plan, or finds it. Errors leave what was published by then,
/// and the next run makes the rest.
///
/// `cancel` is asked often, from several threads.
pub fn prepare(
    store: &Store,
    model: &Model,
    order: &Order,
    options: &Options,
    progress: &dyn Progress,
    cancel: &(dyn Fn() -> bool + Sync),
) -> Result<Prepared, PrepareError> {
    let started_ns = store.clock().steady_ns();
    let mut work = Work::new(store, model, order, options, progress, cancel)?;
    work.look_all()?;
    work.demand_digests()?;
    let result = if work.is_complete() {
        finish(&work, started_ns)
    } else {
        let made = work.make_alone();
        made.and_then(|lock| {
            let finished = finish(&work, started_ns);
            drop(lock);
            finished
        })
    };
    work.end(result)
}

/// A pack that was found or made for one item of an order.
pub(crate) struct Made {
    pub(crate) slot: u64,
    pub(crate) record: PackRecord,
}

/// Makes packs that are damaged, or disputed between a manifest and their records; the reasons are
/// in the order of the items. No set is published.
pub(crate) fn make_packs(
    store: &Store,
    model: &Model,
    order: &Order,
    reasons: Vec<Reason>,
    options: &Options,
    progress: &dyn Progress,
    cancel: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Made>, PrepareError> {
    let mut work = Work::new(store, model, order, options, progress, cancel)?;
    for (index, reason) in reasons.into_iter().enumerate() {
        work.states.set(index, State::ToMake(reason));
    }
    let made = work.make_alone().map(|lock| {
        work.settle();
        drop(lock);
        let items = order.items.iter().enumerate();
        items
            .filter_map(|(index, item)| match work.states.of(index) {
                State::Ready(record, _) => Some(Made {
                    slot: item.slot,
                    record: *record,
                }),
                State::ToMake(_) | State::Same(_) | State::Busy(..) => None,
            })
            .collect()
    });
    work.end(made)
}

/// The set that an order makes, where the ledger knows the digests of all its tensors.
pub(crate) fn foretell(store: &Store, model: &Model, order: &Order) -> Option<SetKey> {
    let learnt = Learnt::new(store, model);
    let entries = order.items.iter().map(|item| {
        let source = learnt.digest(item.shard, item.range)?;
        Some(SetEntry {
            slot: item.slot,
            tensor: item.tensor.clone(),
            pack: item.recipe.identity(source).key(),
        })
    });
    let entries: Vec<SetEntry> = entries.collect::<Option<_>>()?;
    Some(set_key(&order.plan, &order.plan_digest, &entries))
}

/// Refuses what could never be made, before anything is written.
fn admit(model: &Model, order: &Order, options: &Options) -> Result<(), PrepareError> {
    let files = model.files();
    if order.items.is_empty() {
        return Err(PrepareError::NothingChosen {
            plan: order.plan.clone(),
            path: files[0].path().to_owned(),
        });
    }
    let given = options.expected.len();
    if given != 0 && given != files.len() {
        let files = files.len();
        return Err(PrepareError::DigestCount { given, files });
    }
    for item in &order.items {
        let needed_bytes = item.range.length + item.recipe.payload_bytes();
        if needed_bytes > options.memory_max_bytes {
            return Err(PrepareError::Memory {
                tensor: item.tensor.clone(),
                needed_bytes,
                budget_bytes: options.memory_max_bytes,
            });
        }
    }
    Ok(())
}

/// What all threads can have in hand at once. More would only be read further ahead, into memory
/// that the system has to clear first instead of buffers that are used again.
fn working_bytes(order: &Order, options: &Options) -> u64 {
    let bytes = |item: &Item| item.range.length + item.recipe.payload_bytes();
    let mut all: Vec<u64> = order.items.iter().map(bytes).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    let count = options.threads.get().saturating_mul(TENSORS_PER_THREAD);
    let largest = all.into_iter().take(count);
    largest.fold(GAPS_BYTES, u64::saturating_add)
}

impl<'a> Work<'a> {
    fn new(
        store: &'a Store,
        model: &'a Model,
        order: &'a Order,
        options: &'a Options,
        progress: &'a dyn Progress,
        cancel: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Self, PrepareError> {
        admit(model, order, options)?;
        Ok(Self {
            store,
            model,
            order,
            options,
            progress,
            cancel,
            learnt: Learnt::new(store, model),
            states: States::new(order.items.len()),
            budget: Budget::new(options.memory_bytes.min(working_bytes(order, options))),
            cost: Mutex::new(Cost::default()),
            receipts: Mutex::default(),
        })
    }

    /// Makes what is to be made while no other process makes the same.
    fn make_alone(&mut self) -> Result<WorkLock, PrepareError> {
        let making = self.making();
        let lock = self.wait_for_lock("this set", |timeout_ns| {
            self.store.lock_work_within(&making, timeout_ns)
        })?;
        // Another process may have made it all while this one waited.
        self.learnt = Learnt::new(self.store, self.model);
        self.look_all()?;
        self.make_all()?;
        Ok(lock)
    }

    /// However it ended: what is known saves the next run from reading it again.
    fn end<T>(&self, result: Result<T, PrepareError>) -> Result<T, PrepareError> {
        match result {
            Err(error @ PrepareError::Model(_)) => return Err(error),
            Err(_) if (self.cancel)() => {
                self.note()?;
                return Err(self.cancelled());
            }
            Ok(_) | Err(_) => {}
        }
        // A failure before this one is the one to tell.
        match (self.note(), result) {
            (Err(error), Ok(_)) => Err(error),
            (_, result) => result,
        }
    }

    /// Looks for the pack of every tensor whose digest is known, on many threads.
    fn look_all(&self) -> Result<(), PrepareError> {
        let wanted: Vec<usize> = self
            .states
            .to_make()
            .into_iter()
            .filter(|index| self.known(*index).is_some())
            .filter(|index| !matches!(self.states.reason(*index), Reason::Disputed(_)))
            .collect();
        let bytes = |index: &usize| self.item(*index).recipe.payload_bytes();
        self.tell(Event::Begin {
            phase: Phase::Look,
            total_bytes: wanted.iter().map(bytes).sum(),
        });
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let search = || {
            while let Some(index) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                if (self.cancel)() {
                    return;
                }
                if let Err(error) = self.look_one(*index) {
                    super::round::lock(&failure).get_or_insert(error);
                    return;
                }
                let bytes = bytes(index);
                self.tell(Event::Done { bytes });
            }
        };
        let threads = self.options.threads.get().min(wanted.len());
        thread::scope(|scope| {
            for _ in 1..threads {
                // This thread does it all where the system gives no more.
                if thread::Builder::new().spawn_scoped(scope, search).is_err() {
                    break;
                }
            }
            search();
        });
        if let Some(error) = super::round::lock(&failure).take() {
            return Err(error);
        }
        self.go_on()
    }

    fn look_one(&self, index: usize) -> Result<(), PrepareError> {
        let Some(digest) = self.known(index) else {
            return Ok(());
        };
        match look(self.store, self.item(index), digest)? {
            Look::Ready(found) => self.take_found(index, *found),
            Look::Missing => {}
            Look::Damaged(was) => self.states.set_damaged(index, was),
        }
        Ok(())
    }

    fn known(&self, index: usize) -> Option<TensorDigest> {
        let item = self.item(index);
        self.learnt.digest(item.shard, item.range)
    }

    /// Whether nothing is to be made or hashed.
    fn is_complete(&self) -> bool {
        self.states.ready_count() == self.order.items.len() && self.unhashed_shards().is_empty()
    }

    /// The files whose whole digest is wanted and not known.
    fn unhashed_shards(&self) -> Vec<usize> {
        if self.options.source_hash == SourceHash::Skip {
            return Vec::new();
        }
        let shards = 0..self.model.files().len();
        shards.filter(|s| self.learnt.whole(*s).is_none()).collect()
    }

    /// Refuses files whose digest is known and not the one demanded.
    pub(super) fn demand_digests(&self) -> Result<(), PrepareError> {
        for (shard, expected) in self.options.expected.iter().enumerate() {
            if let Some(actual) = self.learnt.whole(shard)
                && actual != *expected
            {
                return Err(PrepareError::SourceDigest {
                    path: self.model.files()[shard].path().to_owned(),
                    expected: *expected,
                    actual,
                });
            }
        }
        Ok(())
    }

    /// Makes what is to be made, in as many rounds as that needs: the first does all but what other
    /// processes make.
    pub(super) fn make_all(&self) -> Result<(), PrepareError> {
        loop {
            self.states.resolve_same();
            self.wait_for_others()?;
            let items = self.states.to_make();
            let shards = self.unhashed_shards();
            if items.is_empty() && shards.is_empty() {
                return self.demand_digests();
            }
            self.make(&items, &shards)?;
            self.go_on()?;
            self.model.unchanged()?;
        }
    }

    fn make(&self, items: &[usize], shards: &[usize]) -> Result<(), PrepareError> {
        let is_known = |index: &usize| self.known(*index).is_some();
        let read_only = self.store.config().read_only;
        if read_only && items.iter().all(is_known) {
            self.demand_writable(items)?;
        }
        self.learnt.settle(self.store, &|| (self.cancel)());
        self.go_on()?;
        self.model.unchanged()?;
        let segments = self.segments(items, shards);
        if items.is_empty() {
            return Round::new(self, None).run(&segments);
        }
        let error = match read_only {
            true => None,
            false => match self.reserve(items) {
                Ok(room) => return Round::new(self, Some(&room)).run(&segments),
                Err(error) => Some(error),
            },
        };
        // Tensors that nobody hashed yet may be in the store under their content.
        if let Some(error) = error
            && items.iter().all(is_known)
        {
            return Err(error);
        }
        Round::new(self, None).run(&segments)?;
        self.go_on()?;
        let left = self.states.to_make();
        self.demand_writable(&left)?;
        if left.is_empty() {
            return Ok(());
        }
        let room = self.reserve(&left)?;
        let segments = self.segments(&left, &self.unhashed_shards());
        Round::new(self, Some(&room)).run(&segments)
    }

    /// Refuses to make packs in a store that was opened read-only.
    fn demand_writable(&self, items: &[usize]) -> Result<(), PrepareError> {
        match self.store.config().read_only && !items.is_empty() {
            true => Err(PrepareError::ReadOnly {
                count: items.len(),
                path: self.store.config().root.clone(),
            }),
            false => Ok(()),
        }
    }

    fn segments(&self, items: &[usize], shards: &[usize]) -> Vec<Segment> {
        let files = self.model.files().iter().enumerate();
        files
            .flat_map(|(shard, file)| {
                let whole = shards.contains(&shard);
                let whole_bytes = whole.then_some(file.identity().size);
                segments::cut(self.order, items, shard, whole_bytes)
            })
            .collect()
    }

    fn reserve(&self, items: &[usize]) -> Result<Reservation, PrepareError> {
        let bytes = |index: &usize| self.item(*index).recipe.payload_bytes();
        let wanted_bytes = items.iter().map(bytes).sum();
        self.store
            .reserve(wanted_bytes, ROOM_WAIT_NS)
            .map_err(|source| match source {
                RoomError::Cap { .. } | RoomError::Free { .. } => PrepareError::Room {
                    wanted_bytes,
                    source,
                },
                other => PrepareError::Publish(other.into()),
            })
    }

    /// Waits for the packs that other processes make, one after the other.
    fn wait_for_others(&self) -> Result<(), PrepareError> {
        for index in self.states.busy() {
            let State::Busy(key, reason) = self.states.of(index) else {
                continue;
            };
            let name = &self.item(index).tensor;
            let what = format!("the pack of {name}");
            let lock = self.wait_for_lock(&what, |timeout_ns| {
                self.store.lock_pack_within(&key, timeout_ns)
            })?;
            self.states.set(index, State::ToMake(reason));
            drop(lock);
            self.look_one(index)?;
        }
        Ok(())
    }

    /// Waits for a lock within the caller's time, and tells that it waits.
    fn wait_for_lock<L>(
        &self,
        what: &str,
        mut take: impl FnMut(u64) -> Result<Option<L>, LockError>,
    ) -> Result<L, PrepareError> {
        let clock = self.store.clock();
        let timeout_ns = self.options.lock_timeout_ns;
        let deadline_ns = clock.steady_ns().saturating_add(timeout_ns);
        let mut wait_ns = 0;
        loop {
            if let Some(lock) = take(wait_ns)? {
                return Ok(lock);
            }
            self.go_on()?;
            let left_ns = deadline_ns.saturating_sub(clock.steady_ns());
            if left_ns == 0 {
                return Err(PrepareError::LockTimeout {
                    what: what.to_owned(),
                    timeout_ns,
                });
            }
            self.tell(Event::Waits { what });
            wait_ns = left_ns.min(LOCK_STEP_NS);
        }
    }

    /// Names the work, so that two processes that make the same set wait for each other.
    fn making(&self) -> Digest {
        let mut sequence = Sequence::new("packhouse/prepare/1");
        sequence.text(&self.order.plan);
        sequence.digest(&self.order.plan_digest);
        sequence.list(self.model.files(), |s, file| {
            let stat = file.identity();
            s.integer(stat.inode).integer(stat.size);
        });
        sequence.finish()
    }

    /// Errors when the caller cancelled.
    pub(super) fn go_on(&self) -> Result<(), PrepareError> {
        match (self.cancel)() {
            true => Err(self.cancelled()),
            false => Ok(()),
        }
    }

    fn cancelled(&self) -> PrepareError {
        PrepareError::Cancelled {
            done: self.states.ready_count(),
            total: self.order.items.len(),
        }
    }
}

/// Tensors in a worker's hand, and as many as are read, written or hashed as part of a file.
const TENSORS_PER_THREAD: usize = worker::HELD_MAX + 4;
/// For what is read beside tensors.
const GAPS_BYTES: u64 = 64 << 20;
/// How long another process that reserves room is waited for.
const ROOM_WAIT_NS: u64 = 10_000_000_000;
/// How long a lock is waited for between two questions whether to stop.
const LOCK_STEP_NS: u64 = 200_000_000;
