//! One engine load, tensor by tensor.

use crate::engine::{Engine, Level, PackerTraits};
use crate::fill::{Fill, FillPlan, Filler, PendingPack, PendingSource, SetPart};
use crate::hit::{self, Candidate, NoHit, Object, Sampler};
use crate::pack::{self, PackPlan};
use crate::settings::{Settings, Trust};
use crate::source::{Located, Origin, Sources, Watch};
use crate::stages::{self, Stages};
use crate::tally::{Count, Tally};
use packhouse_base::digest::{Fingerprint, PackKey, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::units;
use packhouse_layout::Geometry;
use packhouse_store::root::Store;
use packhouse_store::root::StoreConfig;
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::map::Region;
use packhouse_sys::real::RealFs;
use packhouse_sys::stat::StatIdentity;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// The loader of one process.
pub struct Loader {
    shared: Arc<Shared>,
}

/// What all loads of a process share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    store: OnceLock<Result<Store, String>>,
    /// Why a store that was to be written to is only read.
    read_only_why: OnceLock<String>,
    pub(crate) filler: Filler,
    loads: AtomicU64,
    threads: usize,
}

/// One load: from the first placed tensor to the freeing of its buffer.
pub struct Load {
    shared: Arc<Shared>,
    number: u64,
    progress: Mutex<Progress>,
    closed: Arc<AtomicBool>,
    fill: Arc<Fill>,
}

/// A tensor to be served: everything that is known of it and where it goes.
pub struct Request<'a> {
    /// Its name in the container.
    pub name: &'a str,
    /// Its type.
    pub ty: GgmlType,
    /// Its dims, ne0 first.
    pub dims: &'a [u64],
    /// How the layout cuts it.
    pub geometry: Geometry,
    /// Its source bytes; only what has to be is read.
    pub source: &'a [u8],
    /// Where the payload goes; as long as the source.
    pub region: &'a Arc<Region>,
}

/// Whether a request's region holds the tensor's payload now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Served {
    /// It does.
    Filled,
    /// It does not: the engine has to fill it itself.
    NotFilled,
}

#[derive(Default)]
struct Progress {
    expected: u64,
    served: u64,
    started_ns: Option<u64>,
    budget: Option<SampleBudget>,
    sources: Sources,
    stages: Stages,
    tally: Tally,
    pending: Vec<PendingPack>,
    parts: Vec<SetPart>,
    mapped: Vec<Arc<Region>>,
    /// Sources that were hashed because no ledger knew them, and led to a pack or to none.
    hits_by_content: u64,
    misses_by_content: u64,
}

/// Time for samples whose pages must first be read, over a whole load; and where the samples lie.
pub(crate) struct SampleBudget {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rotation: u64,
    left_ns: u64,
}

/// What is known of a tensor's source and packing before anything is packed.
struct Known {
    fingerprint: Fingerprint,
    by_units: bool,
    sample_rows: u64,
    origin: Origin,
    watch: Watch,
    digest: Option<TensorDigest>,
}

impl Loader {
    /// Makes a loader; the store is opened when the first tensor needs it.
    pub fn new(engine: Arc<dyn Engine>, settings: Settings) -> Self {
        Self::with_clock(engine, settings, Arc::new(RealClock))
    }

    /// Makes a loader that takes its time from `clock`: ages of files, durations, waits, and by the
    /// wall clock's nanoseconds where samples lie.
    pub fn with_clock(engine: Arc<dyn Engine>, settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let threads = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(THREADS_MAX);
        let shared = Shared {
            engine,
            settings,
            clock,
            store: OnceLock::new(),
            read_only_why: OnceLock::new(),
            filler: Filler::default(),
            loads: AtomicU64::new(0),
            threads,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Begins a load.
    pub fn begin(&self) -> Load {
        Load {
            shared: self.shared.clone(),
            number: self.shared.loads.fetch_add(1, Ordering::Relaxed),
            progress: Mutex::default(),
            closed: Arc::default(),
            fill: Arc::default(),
        }
    }
}

impl Load {
    /// Announces one more tensor that will be served.
    pub fn expect(&self) {
        self.lock().expected += 1;
    }

    /// Fills the request's region: from the store, or by the engine's packer. `NotFilled` leaves
    /// the tensor to the caller, with an error line when memory is short.
    pub fn serve(&self, request: Request<'_>) -> Served {
        let mut progress = self.lock();
        let progress = &mut *progress;
        self.start(progress);
        let served = match self.known(progress, &request) {
            Ok(known) => self.serve_known(progress, &request, known),
            Err(no_hit) => {
                note(&mut progress.tally, &request, no_hit);
                self.pack(progress, &request, None)
            }
        };
        let served = served.unwrap_or_else(|error| {
            let bytes = request.source.len();
            let line = format!("{}: no memory for {bytes} bytes: {error}", request.name);
            self.shared.engine.say(Level::Error, &line);
            Served::NotFilled
        });
        if served == Served::Filled {
            progress.served += 1;
            self.end_if_complete(progress);
        }
        served
    }

    /// Counts a tensor that the engine filled without us.
    pub fn leave_out(&self, bytes: usize) {
        let mut progress = self.lock();
        let progress = &mut *progress;
        self.start(progress);
        progress.tally.left_out.add(bytes_of(bytes));
        progress.served += 1;
        self.end_if_complete(progress);
    }

    /// Stops storing what this load packed, as `close` does.
    pub fn cancel_fill(&self) {
        self.fill.cancel();
    }

    /// Ends the load: when this returns no engine is called for it any more. What still holds a
    /// region then, a chunk of a fill on a busy host or pages being faulted in, ends by itself.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.tell_if_incomplete();
        self.fill.cancel();
    }

    fn start(&self, progress: &mut Progress) {
        if progress.started_ns.is_none() {
            let clock = self.shared.clock.clone();
            let rotation = clock.wall_ns().unsigned_abs();
            progress.started_ns = Some(clock.steady_ns());
            progress.budget = Some(SampleBudget {
                clock,
                rotation,
                left_ns: SAMPLE_READ_NS,
            });
            if let Some(path) = &self.shared.settings.stage {
                let clock = self.shared.clock.clone();
                progress.stages = Stages::find(Arc::new(RealFs), clock, path, &mut progress.tally);
            }
        }
    }

    /// Finds out what can be known without packing: fingerprint, source, and its digest by the
    /// ledger.
    fn known(&self, progress: &mut Progress, request: &Request<'_>) -> Result<Known, NoHit> {
        let traits = self
            .shared
            .engine
            .traits(request.ty, request.geometry.unit_rows);
        let traits = traits
            .map_err(|refusal| NoHit::Refused("packer", format!("{}: {refusal}", request.name)))?;
        let store = self.shared.store().ok();
        let now_ns = self.shared.clock.wall_ns();
        let origin = progress.sources.locate(request.source, store, now_ns);
        let watch = Watch::begin(&origin, now_ns);
        let digest = origin
            .located()
            .and_then(|located| located.file.known(located.range));
        let PackerTraits {
            fingerprint,
            by_units,
            sample_rows,
        } = traits;
        Ok(Known {
            fingerprint,
            by_units,
            sample_rows,
            origin,
            watch,
            digest,
        })
    }

    fn serve_known(
        &self,
        progress: &mut Progress,
        request: &Request<'_>,
        known: Known,
    ) -> std::io::Result<Served> {
        let store = match self.shared.store() {
            Ok(store) => Some(store),
            Err(_) if !progress.stages.is_empty() => None,
            Err(why) => {
                note(&mut progress.tally, request, no_store(why));
                return self.pack(progress, request, Some((known, None)));
            }
        };
        let Some(digest) = known.digest else {
            return match known.watch.stat_of(known.origin.located()) {
                Some(before) if self.defers(progress, request) => {
                    self.pack_before_hashing(progress, request, &known, before)
                }
                Some(_) | None => self.hash_and_pack(progress, request, store, known),
            };
        };
        match self.try_candidate(progress, request, store, &known, digest) {
            Ok(()) => Ok(Served::Filled),
            Err(no_hit) => {
                self.note_and_settle(progress, request, store, &known, (digest, no_hit));
                self.pack(progress, request, Some((known, None)))
            }
        }
    }

    /// Whether a source of unknown digest is packed first and hashed by the fill: hashing takes
    /// longer than packing, and is worth waiting for only where it may lead to packs that are
    /// there. The first tensors of a load tell.
    fn defers(&self, progress: &Progress, request: &Request<'_>) -> bool {
        self.stores()
            && request.source.len() >= DEFERRED_BYTES
            && progress.misses_by_content >= PROBES
            && progress.hits_by_content == 0
    }

    /// Packs a tensor whose source the fill will hash, through the file and while that has the
    /// identity `before`.
    fn pack_before_hashing(
        &self,
        progress: &mut Progress,
        request: &Request<'_>,
        known: &Known,
        before: (Located, StatIdentity),
    ) -> std::io::Result<Served> {
        let plan = self.pack_plan(known.by_units);
        let never = AtomicBool::new(false);
        let packed = request
            .region
            .with_private(|target| plan.pack(request, target, &never));
        if packed?.is_err() {
            return Ok(Served::NotFilled);
        }
        note(&mut progress.tally, request, NoHit::Miss("not-hashed"));
        progress.tally.packed.add(bytes_of(request.source.len()));
        hit::drop_served_pages(request, known.origin.located());
        let (located, before) = before;
        progress.pending.push(PendingPack {
            packing: hit::packing_of(request, known.fingerprint),
            source: PendingSource::Later(located, before),
            geometry: request.geometry,
            region: request.region.clone(),
            name: request.name.to_owned(),
        });
        Ok(Served::Filled)
    }

    /// The source's digest is not known: packs while hashing, and stops packing when the hash leads
    /// to a pack that is there.
    fn hash_and_pack(
        &self,
        progress: &mut Progress,
        request: &Request<'_>,
        store: Option<&Store>,
        known: Known,
    ) -> std::io::Result<Served> {
        let before = known
            .origin
            .located()
            .and_then(|located| located.file.unchanged());
        let stop = AtomicBool::new(false);
        let plan = self.pack_plan(known.by_units);
        let ((digest, found), packed) = {
            let look = || {
                let digest = pack::digest_of(request.source);
                let key = hit::identity_of(request, known.fingerprint, digest).key();
                // A refusal moves the record away, so it is heard here or never.
                let found = if progress.stages.has(&key) {
                    Ok(())
                } else {
                    hit::look_for(store, &key, request)
                };
                stop.store(found.is_ok(), Ordering::Relaxed);
                (digest, found)
            };
            let fill = || {
                request
                    .region
                    .with_private(|target| plan.pack(request, target, &stop))
            };
            pack::beside(request.source.len(), look, fill)
        };
        progress.tally.source_bytes_hashed += bytes_of(request.source.len());
        if let Some(located) = known.origin.located()
            && before.is_some()
            && located.file.unchanged() == before
        {
            located.file.learn(located.range, digest);
        }
        let candidate =
            found.and_then(|()| self.try_candidate(progress, request, store, &known, digest));
        let no_hit = match candidate {
            Ok(()) => {
                progress.hits_by_content += 1;
                return Ok(Served::Filled);
            }
            Err(no_hit) => no_hit,
        };
        // A pack that is there and refused says nothing of the other tensors.
        progress.misses_by_content += u64::from(matches!(no_hit, NoHit::Miss(_)));
        let spoiled = matches!(no_hit, NoHit::Spoiled(..));
        self.note_and_settle(progress, request, store, &known, (digest, no_hit));
        match packed {
            Ok(Ok(true)) if !spoiled => {
                self.packed(progress, request, Some((&known, digest)));
                Ok(Served::Filled)
            }
            // Stopped for a pack that then was refused, or written over: all again.
            Ok(Ok(_) | Err(_)) => self.pack(progress, request, Some((known, Some(digest)))),
            Err(error) => Err(error),
        }
    }

    /// Looks the pack up, in the stages, then in the store, and takes what is there.
    fn try_candidate(
        &self,
        progress: &mut Progress,
        request: &Request<'_>,
        store: Option<&Store>,
        known: &Known,
        digest: TensorDigest,
    ) -> Result<(), NoHit> {
        let key = hit::identity_of(request, known.fingerprint, digest).key();
        let trust = self.shared.settings.trust;
        let Progress { stages, tally, .. } = progress;
        let mut spoiled = None;
        if let Some(candidate) = stages.look_up(trust, &key, request, tally) {
            match self.take(progress, request, known, &key, candidate) {
                Ok(()) => return Ok(()),
                Err(no_hit) => {
                    spoiled = stages::refuse_candidate(&mut progress.tally, no_hit);
                }
            }
        }
        let candidate = match (store, self.shared.store()) {
            (Some(store), _) => hit::look_up(store, trust, &key, request),
            (None, Err(why)) => Err(no_store(why)),
            (None, Ok(_)) => Err(NoHit::Miss("absent")),
        };
        let taken = candidate.and_then(|found| self.take(progress, request, known, &key, found));
        match (taken, spoiled) {
            // What was packed beside the look-up is gone, whatever the store answered.
            (Err(NoHit::Miss(_)), Some(words)) => Err(NoHit::Spoiled("stage", words)),
            (Err(NoHit::Refused(reason, words)), Some(_)) => Err(NoHit::Spoiled(reason, words)),
            (taken, _) => taken,
        }
    }

    /// Proves what was found, samples it and puts it under the region.
    fn take(
        &self,
        progress: &mut Progress,
        request: &Request<'_>,
        known: &Known,
        key: &PackKey,
        candidate: Candidate,
    ) -> Result<(), NoHit> {
        let engine = &*self.shared.engine;
        let Candidate {
            digest,
            length,
            object,
            staged,
        } = candidate;
        if !known.by_units && self.shared.settings.trust == Trust::Sample {
            let words = format!("{}: this packer packs no units alone", request.name);
            return Err(NoHit::Refused("no-samples", words));
        }
        let Progress {
            budget,
            tally,
            parts,
            mapped,
            ..
        } = progress;
        let budget = budget.as_mut().filter(|_| known.by_units);
        let sampler = Sampler {
            engine,
            request,
            digest,
            sample_rows: known.sample_rows,
        };
        let located = known.origin.located();
        let samples = &mut tally.samples;
        let (object, placed) = match object {
            // Through the map, so that a cold object is read as it will be mapped.
            Object::Proven(object) => {
                let placed = hit::place(engine, request, &object)?;
                hit::read_in_if_cold(request);
                if let Some(budget) = budget {
                    sampler.compare_region(budget, samples)?;
                }
                (object, placed)
            }
            // Samples are the proof here, so they come before anything is mapped.
            Object::ToSample(object) => {
                if let Some(budget) = budget {
                    sampler.compare_file(object.file(), budget, samples)?;
                }
                let object = object.accept_sampled();
                let placed = hit::place(engine, request, &object)?;
                (object, placed)
            }
        };
        hit::count(tally, &object, placed, staged);
        hit::drop_served_pages(request, located);
        if placed == hit::Placed::Mapped {
            mapped.push(request.region.clone());
        }
        parts.push(SetPart::new(located, *key, (digest, length), staged));
        Ok(())
    }

    /// Counts why there was no hit, and settles the doubt that a differing sample leaves.
    fn note_and_settle(
        &self,
        progress: &mut Progress,
        request: &Request<'_>,
        store: Option<&Store>,
        known: &Known,
        (digest, no_hit): (TensorDigest, NoHit),
    ) {
        let by_sample = matches!(
            no_hit,
            NoHit::Refused("sample", _) | NoHit::Spoiled("sample", _)
        );
        note(&mut progress.tally, request, no_hit);
        if by_sample && let Some(store) = store {
            self.settle_doubt(request, store, known, digest);
        }
    }

    /// A sample differed: finds out whether the ledger or the object is wrong, so that the next
    /// start does not ask again. A ledger that is wrong is corrected; an object that is wrong goes
    /// to quarantine.
    fn settle_doubt(
        &self,
        request: &Request<'_>,
        store: &Store,
        known: &Known,
        digest: TensorDigest,
    ) {
        let actual = pack::digest_of(request.source);
        if actual != digest {
            if let Some(located) = known.origin.located() {
                located.file.learn(located.range, actual);
            }
            return;
        }
        let key = hit::identity_of(request, known.fingerprint, digest).key();
        if hit::look_up(store, Trust::Deep, &key, request).is_err() {
            // The object was damaged and is in quarantine now.
            return;
        }
        let moved = if self.packs_alike_twice(request) {
            format!("the pack's record is wrong; {}", store.distrust_pack(&key))
        } else {
            format!("the packing of {} is not deterministic", request.ty.name())
        };
        let line = format!(
            "{}: the object of pack {key} is intact and the engine packs other bytes now: {moved}",
            request.name
        );
        self.shared.engine.say(Level::Error, &line);
    }

    /// Packs the first unit twice and compares.
    fn packs_alike_twice(&self, request: &Request<'_>) -> bool {
        let unit_bytes = usize::try_from(request.geometry.unit_bytes()).unwrap_or(usize::MAX);
        let Some(source) = request.source.get(..unit_bytes) else {
            return false;
        };
        let (mut one, mut other) = (vec![0; unit_bytes], vec![0; unit_bytes]);
        let pack = |target: &mut [u8]| {
            let engine = &self.shared.engine;
            engine.pack(request.ty, request.dims, &request.geometry, source, target)
        };
        pack(&mut one).is_ok() && pack(&mut other).is_ok() && one == other
    }

    /// Packs into private memory; with what is known of the source, the result is queued for the
    /// store. A digest given was taken from these very bytes.
    fn pack(
        &self,
        progress: &mut Progress,
        request: &Request<'_>,
        known: Option<(Known, Option<TensorDigest>)>,
    ) -> std::io::Result<Served> {
        let by_units = known.as_ref().is_some_and(|(known, _)| known.by_units);
        let plan = self.pack_plan(by_units);
        let wants_digest = matches!(known, Some((_, None))) && self.stores();
        let never = AtomicBool::new(false);
        let hash = || wants_digest.then(|| pack::digest_of(request.source));
        let fill = || {
            request
                .region
                .with_private(|target| plan.pack(request, target, &never))
        };
        let bytes = if wants_digest {
            request.source.len()
        } else {
            0
        };
        let (hashed, packed) = pack::beside(bytes, hash, fill);
        if packed?.is_err() {
            return Ok(Served::NotFilled);
        }
        if hashed.is_some() {
            progress.tally.source_bytes_hashed += bytes_of(request.source.len());
        }
        let with_digest = known.as_ref().and_then(|(known, given)| {
            let digest = given.or(hashed)?;
            Some((known, digest))
        });
        if let (Some(hashed), Some((known, _))) = (hashed, &with_digest)
            && let Some(located) = known.origin.located()
        {
            located.file.learn(located.range, hashed);
        }
        self.packed(progress, request, with_digest);
        Ok(Served::Filled)
    }

    /// Counts a packed tensor and queues it for the store.
    fn packed(
        &self,
        progress: &mut Progress,
        request: &Request<'_>,
        known: Option<(&Known, TensorDigest)>,
    ) {
        progress.tally.packed.add(bytes_of(request.source.len()));
        if let Some((known, _)) = &known {
            hit::drop_served_pages(request, known.origin.located());
        }
        let Some((known, digest)) = known.filter(|_| self.stores()) else {
            return;
        };
        if !known.watch.holds(digest, request.source) {
            // The digest may be of other bytes than the pack.
            let words = format!(
                "{}: its file changed while it was packed, so the pack is not stored",
                request.name
            );
            progress.tally.first_refusal.get_or_insert(words);
            return;
        }
        let located = known.origin.located().cloned();
        progress.pending.push(PendingPack {
            packing: hit::packing_of(request, known.fingerprint),
            source: PendingSource::Known(digest, located),
            geometry: request.geometry,
            region: request.region.clone(),
            name: request.name.to_owned(),
        });
    }

    /// Whether packs are stored at all.
    fn stores(&self) -> bool {
        self.shared
            .store()
            .is_ok_and(|store| !store.config().read_only)
    }

    fn pack_plan(&self, by_units: bool) -> PackPlan<'_> {
        PackPlan {
            engine: &*self.shared.engine,
            by_units,
            threads: self.shared.threads,
        }
    }

    /// Has the mapped regions' pages faulted in after the load, so that the first token finds them
    /// there. Not beside it: faulting in and mapping exclude each other in the kernel.
    fn populate(&self, regions: Vec<Arc<Region>>) {
        let closed = self.closed.clone();
        let populate = move || {
            for region in regions {
                // Old kernels can't; then pages come one by one.
                if closed.load(Ordering::Relaxed) || region.populate().is_err() {
                    break;
                }
            }
        };
        // Without the thread pages come one by one.
        let builder = thread::Builder::new().name("packhouse-map".to_owned());
        let _ = builder.spawn(populate);
    }

    fn end_if_complete(&self, progress: &mut Progress) {
        if progress.served != progress.expected {
            return;
        }
        let duration_ns = progress.started_ns.map_or(0, |started_ns| {
            self.shared.clock.steady_ns().saturating_sub(started_ns)
        });
        let total = progress
            .pending
            .iter()
            .fold(Count::default(), |mut total, pending| {
                total.add(pending.geometry.payload_bytes());
                total
            });
        self.populate(std::mem::take(&mut progress.mapped));
        let notes = [
            self.no_state(),
            self.will_not_store(progress),
            self.will_store(total),
        ];
        self.shared.engine.say(
            Level::Info,
            &progress.tally.line(notes.into_iter().flatten()),
        );
        let report = json!({
            "schema": "packhouse/report/1",
            "load": self.number,
            "pid": std::process::id(),
            "plan": crate::PLAN,
            "store": self.shared.settings.root.as_ref().map(|root| root.display().to_string()),
            "load_ns": duration_ns,
            "tally": progress.tally.json(),
        });
        let plan = FillPlan {
            shared: self.shared.clone(),
            pending: std::mem::take(&mut progress.pending),
            parts: std::mem::take(&mut progress.parts),
            sources: progress.sources.files(),
            total,
            report,
        };
        if self.shared.store().is_ok() {
            self.shared.filler.start(plan, self.fill.clone());
        } else {
            plan.report_without_store();
        }
    }

    /// Prints the line of a load that ends before its last tensor came, which else nobody hears of.
    fn tell_if_incomplete(&self) {
        let progress = self.lock();
        if progress.served == 0 || progress.served >= progress.expected {
            return;
        }
        let (served, expected) = (progress.served, progress.expected);
        let note = format!("the load ended with {served} of {expected} tensors, nothing is stored");
        let line = progress.tally.line([note].into_iter());
        self.shared.engine.say(Level::Info, &line);
    }

    /// What the line says where nothing can be remembered, so that every start hashes.
    fn no_state(&self) -> Option<String> {
        let error = self.shared.store().ok()?.state().err()?;
        Some(format!("no private state: {error}"))
    }

    /// What the line says where the load packed and the store takes nothing.
    fn will_not_store(&self, progress: &Progress) -> Option<String> {
        let store = self.shared.store().ok()?;
        let packed = progress.tally.packed.tensors > 0;
        if !packed || !store.config().read_only {
            return None;
        }
        let root = store.config().root.display();
        let why = self.shared.read_only_why.get();
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        Some(format!("nothing is stored, {root} is read-only{why}"))
    }

    /// What the line says of the fill to come, before its first byte.
    fn will_store(&self, total: Count) -> Option<String> {
        if total.tensors == 0 {
            return None;
        }
        let store = self.shared.store().ok()?;
        let root = store.config().root.display();
        let bytes = units::bytes(total.bytes);
        let room = store.room(ROOM_WAIT_NS).map_or_else(
            |error| format!("room not known: {error}"),
            |room| {
                let (cap, held) = (units::bytes(room.cap_bytes), units::bytes(room.held_bytes));
                let (free, keep) = (
                    units::bytes(room.free_bytes),
                    units::bytes(room.min_free_bytes),
                );
                format!("cap {cap}, held {held}, disk free {free} of which {keep} stay")
            },
        );
        Some(format!("writing {bytes} to {root} ({room})"))
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The store, opened at first use; else why there is none.
    pub(crate) fn store(&self) -> Result<&Store, &str> {
        self.store
            .get_or_init(|| self.open_store())
            .as_ref()
            .map_err(String::as_str)
    }

    /// Opens for writing where that is possible, else for reading.
    fn open_store(&self) -> Result<Store, String> {
        let (Some(root), Some(state)) = (&self.settings.root, &self.settings.state) else {
            return Err("no home folder: HOME and the XDG variables are not set".into());
        };
        let mut config = StoreConfig::new(root, state);
        config.read_only = self.settings.read_only;
        config.max_bytes = self.settings.bytes_max;
        let open = |config| Store::open(Arc::new(RealFs), self.clock.clone(), config);
        let read_only = StoreConfig {
            read_only: true,
            ..config.clone()
        };
        open(config).or_else(|error| {
            let store = open(read_only).map_err(|_| error.to_string())?;
            let _ = self.read_only_why.set(error.to_string());
            Ok(store)
        })
    }
}

impl SampleBudget {
    /// Whether another sample may read from the disk.
    pub(crate) fn allows_a_read(&self) -> bool {
        self.left_ns > 0
    }

    pub(crate) fn spend(&mut self, duration_ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(duration_ns);
    }
}

fn no_store(why: &str) -> NoHit {
    NoHit::Refused("store", format!("no store: {why}"))
}

fn note(tally: &mut Tally, request: &Request<'_>, no_hit: NoHit) {
    let bytes = bytes_of(request.source.len());
    match no_hit {
        NoHit::Miss(reason) => tally.misses.entry(reason).or_default().add(bytes),
        NoHit::Refused(reason, words) | NoHit::Spoiled(reason, words) => {
            tally.refused.entry(reason).or_default().add(bytes);
            tally.first_refusal.get_or_insert(words);
        }
    }
}

fn bytes_of(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Threads beyond which memory, not cores, bounds packing.
const THREADS_MAX: usize = 16;
/// Time per load for samples whose pages must first be read from the disk.
const SAMPLE_READ_NS: u64 = 100_000_000;
/// How long the line waits for another process that reserves room.
const ROOM_WAIT_NS: u64 = 50_000_000;
/// Sources below this are hashed at once: it costs less than it is worth.
const DEFERRED_BYTES: usize = 1 << 20;
/// Tensors of a load that must miss by content before others are packed unhashed.
const PROBES: u64 = 2;
