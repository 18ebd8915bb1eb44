//! The background thread that stores what loads packed, and what is learnt on the way.
//!
//! Invariants:
//! - it runs at idle priority, one tensor in flight, after the load's last tensor was served;
//! - it reads a live region only under that region's lock;
//! - after `Fill::cancel` returned it calls no engine for that load, and ends at its next chunk;
//! - a fill that stops keeps what it stored: the next start packs only the rest.

use crate::engine::Level;
use crate::hit::Packing;
use crate::load::Shared;
use crate::source::{Located, SourceFile};
use crate::tally::Count;
use crate::{PLAN, PLAN_BYTES};
use packhouse_base::digest::{Digest, ObjectDigest, PackKey, SetKey, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_base::units;
use packhouse_container::TensorDirectory;
use packhouse_layout::Geometry;
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::ledger::SourceRange;
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::object::{PendingReceipt, VerifiedObject};
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::reserve::Reservation;
use packhouse_store::root::Store;
use packhouse_sys::map::Region;
use packhouse_sys::stat::StatIdentity;
use packhouse_sys::thread::{set_idle_priority, survive_file_size_limit};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// A packed tensor that waits to be stored.
pub(crate) struct PendingPack {
    pub(crate) packing: Packing,
    pub(crate) source: PendingSource,
    pub(crate) geometry: Geometry,
    pub(crate) region: Arc<Region>,
    pub(crate) name: String,
}

/// What is known of a packed tensor's source.
pub(crate) enum PendingSource {
    /// Its digest was taken while it was packed.
    Known(TensorDigest, Option<Located>),
    /// It is to be hashed through its file, which had this identity when it was packed.
    Later(Located, StatIdentity),
}

/// A tensor's part in the set of its container.
#[derive(Clone)]
pub(crate) struct SetPart {
    place: Option<(Arc<SourceFile>, SourceRange)>,
    pack: PackKey,
    object: ObjectDigest,
    length: u64,
    /// Mapped from a stage, so that the store may not have it.
    staged: bool,
}

/// What a load leaves to the background.
pub(crate) struct FillPlan {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pending: Vec<PendingPack>,
    pub(crate) parts: Vec<SetPart>,
    pub(crate) sources: Vec<Arc<SourceFile>>,
    pub(crate) total: Count,
    pub(crate) report: Value,
}

/// The fills of one load, shared with the load.
#[derive(Default)]
pub(crate) struct Fill {
    cancelled: AtomicBool,
    plans: Mutex<Plans>,
    changed: Condvar,
}

#[derive(Default)]
struct Plans {
    queued: VecDeque<FillPlan>,
    /// The running plan's word, which its end or an impatient `cancel` takes: only one of them
    /// speaks.
    running: Option<Running>,
}

/// What is to be said of a running plan.
struct Running {
    word: Word,
    /// Stored by now.
    packs: Count,
}

/// What a fill says of its end.
struct Word {
    shared: Arc<Shared>,
    total: Count,
    report: Value,
}

/// The process' one background thread, started at its first work.
#[derive(Default)]
pub(crate) struct Filler {
    /// Each message is one plan queued in that fill.
    sender: Mutex<Option<mpsc::Sender<Arc<Fill>>>>,
}

/// How a fill ended.
enum End {
    Done,
    /// The engine unloaded the model or wrote over it.
    Cancelled,
    /// Nothing more can be stored; in words.
    Stopped(String),
}

/// What a fill has stored so far.
#[derive(Default)]
struct Stored {
    packs: Count,
    /// Stored meanwhile by another process.
    elsewhere: Count,
    receipts: Vec<PendingReceipt>,
    set: Option<SetKey>,
    /// What could not be noted beside the packs; the first, in words.
    complaint: Option<String>,
}

impl SetPart {
    pub(crate) fn new(
        located: Option<&Located>,
        pack: PackKey,
        (object, length): (ObjectDigest, u64),
        staged: bool,
    ) -> Self {
        let place = located.map(|located| (located.file.clone(), located.range));
        Self {
            place,
            pack,
            object,
            length,
            staged,
        }
    }
}

impl Fill {
    /// Stops the fill: when this returns no plan begins and no engine is called any more.
    ///
    /// Waits for the end of the running plan, but not for long: its thread has idle priority, so on
    /// a busy host it may not run for seconds. It then ends by itself, at its next chunk; until
    /// then its regions stay mapped, for it holds them.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        let mut plans = self.lock();
        let queued = std::mem::take(&mut plans.queued);
        let waited = self
            .changed
            .wait_timeout_while(plans, CANCEL_WAIT, |plans| plans.running.is_some());
        let (mut plans, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let left = plans.running.take();
        drop(plans);
        if let Some(Running { word, packs }) = left {
            let stored = Stored {
                packs,
                ..Stored::default()
            };
            word.tell(&End::Cancelled, &stored, 0);
        }
        for plan in queued {
            plan.word().tell(&End::Cancelled, &Stored::default(), 0);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Queues a plan; gives it back when the fill is cancelled.
    fn queue(&self, plan: FillPlan) -> Result<(), Box<FillPlan>> {
        let mut plans = self.lock();
        if self.is_cancelled() {
            return Err(Box::new(plan));
        }
        plans.queued.push_back(plan);
        Ok(())
    }

    /// Runs the next queued plan, if `cancel` did not take it.
    fn run_next(&self) {
        let mut plans = self.lock();
        let Some(plan) = plans.queued.pop_front() else {
            return;
        };
        plans.running = Some(Running {
            word: plan.word(),
            packs: Count::default(),
        });
        drop(plans);
        // A panic must not leave `cancel` waiting.
        let ended = Ended(self);
        plan.run(self);
        drop(ended);
    }

    fn lock(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells `Fill::cancel`, when dropped, that no plan runs.
struct Ended<'a>(&'a Fill);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().running = None;
        self.0.changed.notify_all();
    }
}

impl Filler {
    /// Reports the load as served and queues its plan behind those of earlier loads.
    pub(crate) fn start(&self, mut plan: FillPlan, fill: Arc<Fill>) {
        plan.report["fill"] = json!({ "state": "running" });
        plan.shared.engine.report(&plan.report);
        if let Err(plan) = fill.queue(plan) {
            return plan.word().tell(&End::Cancelled, &Stored::default(), 0);
        }
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let live = sender.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel::<Arc<Fill>>();
            let work = move || {
                // Ordinary priority is the fallback where idle priority is not to be had.
                let _ = set_idle_priority();
                // The engine must outlive a store that meets the limit of file sizes.
                let _ = survive_file_size_limit();
                for fill in receiver {
                    fill.run_next();
                }
            };
            // Without a thread the send below fails and the load goes on with its private copies.
            let _ = thread::Builder::new()
                .name("packhouse-fill".to_owned())
                .spawn(work);
            sender
        });
        if live.send(fill.clone()).is_err() {
            let queued = fill.lock().queued.pop_back();
            if let Some(plan) = queued {
                let why = "there is no background thread".to_owned();
                plan.word().tell(&End::Stopped(why), &Stored::default(), 0);
            }
        }
    }
}

impl FillPlan {
    /// Reports a load that has no store to fill.
    pub(crate) fn report_without_store(mut self) {
        self.report["fill"] = json!({ "state": "none" });
        self.shared.engine.report(&self.report);
    }

    fn run(mut self, fill: &Fill) {
        let started_ns = self.shared.clock.steady_ns();
        let mut stored = Stored::default();
        let end = match self.shared.clone().store() {
            Ok(store) => self.store_all(store, fill, &mut stored),
            Err(why) => End::Stopped(why.to_owned()),
        };
        let duration_ns = self.shared.clock.steady_ns().saturating_sub(started_ns);
        // Whoever waits in `Fill::cancel` may want the memory back.
        self.pending.clear();
        // Held while the engine is called, so that `Fill::cancel` returns before or after that.
        let mut plans = fill.lock();
        if let Some(Running { word, .. }) = plans.running.take() {
            word.tell(&end, &stored, duration_ns);
        }
        drop(plans);
    }

    fn store_all(&mut self, store: &Store, fill: &Fill, stored: &mut Stored) -> End {
        let end = if store.config().read_only {
            End::Stopped(format!("{} is read-only", store.config().root.display()))
        } else {
            self.store_packs(store, fill, stored)
        };
        // What is known by now is worth keeping however the fill ended.
        self.learn(store, fill, stored);
        if matches!(end, End::Done) {
            self.publish_set(store, stored);
        }
        end
    }

    fn store_packs(&mut self, store: &Store, fill: &Fill, stored: &mut Stored) -> End {
        let mut left: Vec<_> = std::mem::take(&mut self.pending);
        if left.is_empty() {
            return End::Done;
        }
        let room = match store.reserve(self.total.bytes, ROOM_WAIT_NS) {
            Ok(room) => room,
            Err(error) => return End::Stopped(error.to_string()),
        };
        // A pack that another process is making is left for the end: by then it is there, or its
        // maker is stopped or dead and making it again costs only time.
        for waits_for_others in [true, false] {
            let mut busy = Vec::new();
            for pending in left {
                if fill.is_cancelled() {
                    return End::Cancelled;
                }
                match self.store_one(store, fill, &room, &pending, waits_for_others, stored) {
                    Ok(true) => {}
                    Ok(false) => busy.push(pending),
                    Err(end) => return end,
                }
            }
            left = busy;
        }
        End::Done
    }

    /// Stores one pack; `false` when another process holds its lock and `waits_for_others`.
    fn store_one(
        &mut self,
        store: &Store,
        fill: &Fill,
        room: &Reservation,
        pending: &PendingPack,
        waits_for_others: bool,
        stored: &mut Stored,
    ) -> Result<bool, End> {
        let stop =
            |error: &dyn std::fmt::Display| End::Stopped(format!("{}: {error}", pending.name));
        let Some(digest) = pending.source.digest(&|| fill.is_cancelled()) else {
            if fill.is_cancelled() {
                return Err(End::Cancelled);
            }
            let name = &pending.name;
            stored.complain(format!("{name}: its file changed before it was hashed"));
            return Ok(true);
        };
        let identity = pending.packing.of(digest);
        let key = identity.key();
        let lock = store.try_lock_pack(&key).map_err(|error| stop(&error))?;
        // A record whose object went to quarantine is of no use to the next start.
        if let Ok(record) = store.lookup_pack(&key)
            && store
                .object_for_sample(&record.object, record.length)
                .is_ok()
        {
            stored.elsewhere.add(record.length);
            self.parts
                .push(pending.part(key, record.object, record.length));
            return Ok(true);
        }
        if lock.is_none() && waits_for_others {
            return Ok(false);
        }
        let Some(bytes) = pending.region.read() else {
            return Err(stop(&"its memory is gone"));
        };
        let options = PublishOptions {
            drop_cache: is_memory_short(self.total.bytes),
        };
        let cancelled = || fill.is_cancelled();
        let object = store.publish(room, &bytes, options, &cancelled);
        drop(bytes);
        let object = match object {
            Ok(object) => object,
            Err(_) if fill.is_cancelled() => return Err(End::Cancelled),
            Err(error) => return Err(stop(&error)),
        };
        let record = record_of(identity, pending.geometry, &object);
        store.publish_pack(&record).map_err(|error| stop(&error))?;
        stored.receipts.extend(object.pending_receipt());
        stored.packs.add(record.length);
        if let Some(running) = &mut fill.lock().running {
            running.packs = stored.packs;
        }
        self.parts
            .push(pending.part(key, record.object, record.length));
        Ok(true)
    }

    /// Writes source ledgers, then receipts, which may have to wait. The live regions are no longer
    /// needed.
    fn learn(&self, store: &Store, fill: &Fill, stored: &mut Stored) {
        if let Ok(sources) = store.sources() {
            for source in &self.sources {
                let Some(directory) = source.directory() else {
                    continue;
                };
                let Some(ledger) = source.new_ledger(directory.digest()) else {
                    continue;
                };
                if let Err(error) = sources.extend(&ledger, source.seen_ns()) {
                    stored.complain(format!("source ledger: {error}"));
                }
            }
        }
        let mut receipts = std::mem::take(&mut stored.receipts);
        while !receipts.is_empty() {
            let settled = store.settle_due(&receipts);
            if let Some(error) = settled.failure {
                stored.complain(format!("receipts: {error}"));
            }
            receipts = settled.young;
            if receipts.is_empty() || settled.wait_ns > SETTLE_NS_MAX || fill.is_cancelled() {
                break;
            }
            self.shared.clock.sleep_ns(settled.wait_ns.min(SLEEP_NS));
        }
    }

    /// Publishes the container's set and notes its use. Needs every tensor's place in the
    /// container.
    fn publish_set(&self, store: &Store, stored: &mut Stored) {
        let Some((manifest, container)) = self.manifest() else {
            return;
        };
        let set = manifest.key();
        // Another copy of a known container has a record of its own.
        let known = store.read_set(set).is_ok()
            && store
                .read_container_records(set)
                .is_ok_and(|found| found.records.iter().any(|there| there.covers(&container)));
        let of_no_store = |part: &SetPart| part.staged && store.lookup_pack(&part.pack).is_err();
        if !known && self.parts.iter().any(of_no_store) {
            // The stage is of another store; this one has nothing to name.
            return;
        }
        if !known && let Err(error) = store.publish_set(&manifest, &container) {
            return stored.complain(format!("set: {error}"));
        }
        stored.set = Some(set);
        let now_ns = self.shared.clock.wall_ns();
        let path = self.sources.first().and_then(|source| source.path());
        if let Ok(uses) = store.use_log()
            && let Err(error) = uses.note_set(set, path, now_ns)
        {
            stored.complain(format!("use log: {error}"));
        }
    }

    /// The set's manifest and container record; `None` when a tensor lies in no file, or a shard is
    /// missing.
    fn manifest(&self) -> Option<(SetManifest, ContainerRecord)> {
        let mut shards: Vec<(Arc<SourceFile>, TensorDirectory)> = Vec::new();
        for source in &self.sources {
            shards.push((source.clone(), source.directory()?));
        }
        shards.sort_by_key(|(_, directory)| directory.split().map_or(0, |split| split.no));
        let shard_count = shards
            .first()?
            .1
            .split()
            .map_or(1, |split| usize::from(split.count));
        if shards.len() != shard_count || self.parts.is_empty() {
            return None;
        }
        let entries = self
            .parts
            .iter()
            .map(|part| part.entry(&shards))
            .collect::<Option<Vec<_>>>()?;
        let manifest = SetManifest::new(PLAN.to_owned(), Digest::of(PLAN_BYTES), entries).ok()?;
        let files = shards.iter().map(|(source, directory)| {
            let name = source.path()?.file_name()?.to_str()?.to_owned();
            Some(ContainerFile {
                name,
                size: directory.file_bytes(),
                digest: None,
            })
        });
        let files = files.collect::<Option<Vec<_>>>()?;
        let container = ContainerRecord::new(files, Admission::Skipped).ok()?;
        Some((manifest, container))
    }

    fn word(&self) -> Word {
        Word {
            shared: self.shared.clone(),
            total: self.total,
            report: self.report.clone(),
        }
    }
}

impl Word {
    fn tell(mut self, end: &End, stored: &Stored, duration_ns: u64) {
        let engine = self.shared.engine.clone();
        let total = self.total;
        let (packs, bytes) = (stored.packs.tensors, units::bytes(stored.packs.bytes));
        let took = units::duration_ns(duration_ns);
        let line = match end {
            End::Done if total.tensors == 0 => None,
            End::Done => Some(format!(
                "stored {packs} packs ({bytes}) in {took}; the next start maps them"
            )),
            End::Cancelled if total.tensors == 0 => None,
            End::Cancelled => Some(format!(
                "stored {packs} of {} packs ({bytes}), then the model was unloaded; the next start \
                 packs and stores the rest",
                total.tensors
            )),
            End::Stopped(_) if total.tensors == 0 => None,
            End::Stopped(why) => Some(format!(
                "stored {packs} of {} packs ({bytes}), then stopped: {why}; the engine goes on",
                total.tensors
            )),
        };
        let level = if matches!(end, End::Stopped(_)) {
            Level::Warn
        } else {
            Level::Info
        };
        if let Some(line) = line {
            engine.say(level, &line);
        }
        if let Some(complaint) = &stored.complaint {
            engine.say(
                Level::Warn,
                &format!("{complaint}; the next start takes longer"),
            );
        }
        let (state, why) = match end {
            End::Done => ("done", None),
            End::Cancelled => ("cancelled", None),
            End::Stopped(why) => ("stopped", Some(why.as_str())),
        };
        self.report["fill"] = json!({
            "state": state,
            "why": why,
            "wanted": { "tensors": total.tensors, "bytes": total.bytes },
            "stored": { "tensors": stored.packs.tensors, "bytes": stored.packs.bytes },
            "elsewhere": { "tensors": stored.elsewhere.tensors, "bytes": stored.elsewhere.bytes },
            "set": stored.set.map(|set| set.to_string()),
            "complaint": stored.complaint,
            "duration_ns": duration_ns,
        });
        engine.report(&self.report);
    }
}

impl PendingSource {
    /// The source's digest; `None` when stopped, or when the file changed since it was packed.
    fn digest(&self, stop: &dyn Fn() -> bool) -> Option<TensorDigest> {
        match self {
            Self::Known(digest, _) => Some(*digest),
            Self::Later(located, before) => {
                let digest = located.file.hash(located.range, before, stop)?;
                located.file.learn(located.range, digest);
                Some(digest)
            }
        }
    }

    fn located(&self) -> Option<&Located> {
        match self {
            Self::Known(_, located) => located.as_ref(),
            Self::Later(located, _) => Some(located),
        }
    }
}

impl PendingPack {
    fn part(&self, pack: PackKey, object: ObjectDigest, length: u64) -> SetPart {
        let located = self.source.located();
        let place = located.map(|located| (located.file.clone(), located.range));
        SetPart {
            place,
            pack,
            object,
            length,
            staged: false,
        }
    }
}

impl SetPart {
    /// The manifest entry: the slot is the tensor's index over all shards. `None` when the
    /// directory has no tensor at the part's place.
    fn entry(&self, shards: &[(Arc<SourceFile>, TensorDirectory)]) -> Option<ManifestEntry> {
        let (file, range) = self.place.as_ref()?;
        let mut before = 0;
        for (source, directory) in shards {
            let tensors = directory.tensors();
            if Arc::ptr_eq(source, file) {
                let index = tensors.iter().position(|tensor| {
                    (tensor.offset, tensor.bytes) == (range.offset, range.length)
                })?;
                let slot = u64::try_from(before + index).ok()?;
                let tensor = tensors[index].name.clone();
                let (pack, object, length) = (self.pack, self.object, self.length);
                return Some(ManifestEntry {
                    slot,
                    tensor,
                    pack,
                    object,
                    length,
                });
            }
            before += tensors.len();
        }
        None
    }
}

impl Stored {
    fn complain(&mut self, complaint: String) {
        self.complaint.get_or_insert(complaint);
    }
}

fn record_of(identity: PackIdentity, geometry: Geometry, object: &VerifiedObject) -> PackRecord {
    PackRecord {
        identity,
        object: object.digest(),
        length: object.length(),
        sample: SampleGeometry {
            unit_rows: geometry.unit_rows,
            row_bytes: geometry.row_bytes,
            row_count: geometry.row_count,
        },
    }
}

/// Whether a fill's objects should leave the page cache at once. Where memory is plenty they stay,
/// and the next start does not read them from the disk; they are the first to go when others need
/// memory.
fn is_memory_short(fill_bytes: u64) -> bool {
    let available = packhouse_sys::memory::available_bytes();
    available.is_none_or(|available| available < fill_bytes.saturating_mul(2))
}

/// How long a closing load waits for its fill.
const CANCEL_WAIT: Duration = Duration::from_millis(100);
/// How long a fill waits for another process that reserves room.
const ROOM_WAIT_NS: u64 = 5_000_000_000;
/// The longest wait for a receipt: more than any coarse clock's step, less than a clock set back.
const SETTLE_NS_MAX: u64 = 4_000_000_000;
/// How long the fill sleeps before it looks whether it was cancelled.
const SLEEP_NS: u64 = 50_000_000;
