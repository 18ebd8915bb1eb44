//! An open set: look-ups under a contract, and payloads in memory.

use crate::set::contract::{Contract, ContractMismatch};
use crate::set::counters::{Counters, Tally};
use crate::set::entry::{Entry, Held, Mapper, Mapping, fits_its_layout};
use crate::set::open::OpenOptions;
use crate::set::refusal::{Refusal, SlotName};
use crate::settings::Trust;
use packhouse_base::digest::{PackKey, SetKey};
use packhouse_pack::Packers;
use packhouse_stage::StagedSet;
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::object::{HowVerified, ObjectTrust, UnverifiedObject, VerifiedObject};
use packhouse_store::record::PackRecord;
use packhouse_store::root::Store;
use packhouse_sys::read_map::ReadMap;
use packhouse_sys::stat::{FsTrust, StatIdentity};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// An open set.
pub struct SetReader {
    pub(crate) store: Store,
    stage: Option<StagedSet>,
    manifest: SetManifest,
    key: SetKey,
    /// Indexes of the manifest's entries by tensor name.
    by_tensor: BTreeMap<String, Vec<usize>>,
    slots: Vec<Slot>,
    pub(crate) trust: Trust,
    strict: bool,
    mapper: Arc<dyn Mapper>,
    pub(crate) packers: Packers,
    tally: Mutex<Tally>,
    refusals: Mutex<Refusals>,
}

#[derive(Default)]
struct Slot {
    record: OnceLock<Arc<PackRecord>>,
    /// Held while a payload is proved and mapped, so that it is done once.
    payload: Mutex<Payload>,
}

#[derive(Default)]
struct Payload {
    mapping: Weak<Mapping>,
    /// What the object was when samples proved it, where they are the proof that was chosen.
    sampled: Option<StatIdentity>,
    /// What samples found to differ: the payload is not handed out again.
    differs: Option<Refusal>,
}

#[derive(Default)]
struct Refusals {
    last: Option<Refusal>,
    /// Of a strict set.
    first: Option<Refusal>,
}

impl SetReader {
    pub(crate) fn new(
        store: Store,
        (stage, manifest): (Option<StagedSet>, SetManifest),
        options: &OpenOptions,
        mapper: Arc<dyn Mapper>,
    ) -> Self {
        let mut by_tensor: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, entry) in manifest.entries().iter().enumerate() {
            by_tensor
                .entry(entry.tensor.clone())
                .or_default()
                .push(index);
        }
        Self {
            key: manifest.key(),
            slots: manifest.entries().iter().map(|_| Slot::default()).collect(),
            store,
            stage,
            manifest,
            by_tensor,
            trust: options.trust,
            strict: options.strict,
            mapper,
            packers: Packers::detect(),
            tally: Mutex::default(),
            refusals: Mutex::default(),
        }
    }

    /// The set's key.
    pub fn key(&self) -> SetKey {
        self.key
    }

    /// The manifest: plan, slots, tensors, objects.
    pub fn manifest(&self) -> &SetManifest {
        &self.manifest
    }

    /// The stage that payloads come from, where there is one.
    pub fn stage(&self) -> Option<&StagedSet> {
        self.stage.as_ref()
    }

    /// Counters since the set was opened.
    pub fn counters(&self) -> Counters {
        lock(&self.tally).counters()
    }

    /// The last refusal of any thread since the set was opened.
    pub fn last_refusal(&self) -> Option<Refusal> {
        lock(&self.refusals).last.clone()
    }

    /// Reads the entry at an index of the manifest, whatever its contract; for engines that look at
    /// all of a set before they choose. `None` past the end. Errors when its record is absent,
    /// damaged or disagrees with the set.
    pub fn entry_at(&self, index: usize) -> Option<Result<Entry, Refusal>> {
        self.manifest.entries().get(index)?;
        let entry = self.usable().and_then(|()| self.read_entry(index));
        Some(entry.map_err(|refusal| self.refuse(Some(index), refusal)))
    }

    /// Refuses an entry that has more of something than the caller can be told.
    pub fn too_many(
        &self,
        entry: &Entry,
        what: &'static str,
        actual: usize,
        max: usize,
    ) -> Refusal {
        let name = entry.name();
        let refusal = Refusal::TooMany {
            name,
            what,
            actual,
            max,
        };
        self.refuse(Some(entry.index), refusal)
    }

    /// Finds the entry that a caller kept by its numbers. Errors when they are of no entry of this
    /// set.
    pub fn entry_of(&self, index: u64, slot: u64, pack: &PackKey) -> Result<Entry, Refusal> {
        let entries = self.manifest.entries();
        let at = usize::try_from(index).ok();
        let kept = at.and_then(|at| entries.get(at).map(|entry| (at, entry)));
        let found = self.usable().and_then(|()| match kept {
            Some((at, entry)) if (entry.slot, entry.pack) == (slot, *pack) => self.read_entry(at),
            Some(_) | None => Err(Refusal::OtherEntry {
                set: self.key,
                slot,
                pack: *pack,
            }),
        });
        found.map_err(|refusal| self.refuse(None, refusal))
    }

    /// Finds a slot's pack. Errors when the set has no such slot, when the record is absent or
    /// damaged, and with the first field in which it is not what the contract says.
    pub fn lookup_slot(&self, slot: u64, contract: &Contract) -> Result<Entry, Refusal> {
        let entries = self.manifest.entries();
        let index = entries.binary_search_by_key(&slot, |entry| entry.slot).ok();
        let found = self.usable().and_then(|()| match index {
            Some(index) => self.agreed_entry(index, contract),
            None => Err(Refusal::NoSlot {
                set: self.key,
                slot,
            }),
        });
        found.map_err(|refusal| self.refuse(index, refusal))
    }

    /// Finds a tensor's pack by name. Errors as `lookup_slot`; where a plan has several packs of
    /// the tensor exactly one must fit the contract.
    pub fn lookup_tensor(&self, tensor: &str, contract: &Contract) -> Result<Entry, Refusal> {
        let indexes = self.by_tensor.get(tensor).map_or(&[][..], Vec::as_slice);
        let found = self
            .usable()
            .and_then(|()| self.choose(tensor, indexes, contract));
        found.map_err(|refusal| self.refuse(indexes.first().copied(), refusal))
    }

    /// Puts an entry's payload into memory: proves it as the set's trust says, then maps it.
    /// Whoever asks while somebody holds it gets the same mapping. Errors name tensor, object and
    /// values.
    pub fn map(&self, entry: &Entry) -> Result<Arc<Mapping>, Refusal> {
        let mapped = self.usable().and_then(|()| self.map_proved(entry));
        mapped.map_err(|refusal| self.refuse(Some(entry.index), refusal))
    }

    fn choose(
        &self,
        tensor: &str,
        indexes: &[usize],
        contract: &Contract,
    ) -> Result<Entry, Refusal> {
        let mut found: Option<Entry> = None;
        let mut first_refusal = None;
        for index in indexes {
            match (self.agreed_entry(*index, contract), &found) {
                (Ok(second), Some(first)) => {
                    return Err(Refusal::ManySlots {
                        tensor: tensor.to_owned(),
                        first: first.slot,
                        second: second.slot,
                    });
                }
                (Ok(first), None) => found = Some(first),
                (Err(refusal), _) => first_refusal = first_refusal.or(Some(refusal)),
            }
        }
        found.ok_or_else(|| {
            first_refusal.unwrap_or_else(|| Refusal::NoTensor {
                set: self.key,
                tensor: tensor.to_owned(),
            })
        })
    }

    fn agreed_entry(&self, index: usize, contract: &Contract) -> Result<Entry, Refusal> {
        let entry = self.read_entry(index)?;
        let agreed = contract.agree(&entry.record.identity);
        agreed.map_err(|mismatch: ContractMismatch| Refusal::Contract {
            name: entry.name(),
            mismatch: Box::new(mismatch),
        })?;
        Ok(entry)
    }

    fn read_entry(&self, index: usize) -> Result<Entry, Refusal> {
        let wanted = &self.manifest.entries()[index];
        let record = match self.slots[index].record.get() {
            Some(record) => record.clone(),
            None => {
                let record = Arc::new(self.read_record(wanted)?);
                self.slots[index].record.get_or_init(|| record).clone()
            }
        };
        Ok(Entry {
            index,
            set: self.key,
            slot: wanted.slot,
            tensor: wanted.tensor.clone(),
            record,
        })
    }

    fn read_record(&self, wanted: &ManifestEntry) -> Result<PackRecord, Refusal> {
        let name = || SlotName {
            slot: wanted.slot,
            tensor: wanted.tensor.clone(),
        };
        let record = self.store.lookup_pack(&wanted.pack);
        let record = record.map_err(|source| Refusal::Pack {
            name: name(),
            source: Box::new(source),
        })?;
        if (record.object, record.length) != (wanted.object, wanted.length) {
            return Err(Refusal::PackDisagrees {
                name: name(),
                pack: wanted.pack,
                expected: wanted.object,
                expected_length: wanted.length,
                actual: record.object,
                actual_length: record.length,
            });
        }
        fits_its_layout(&record, name)?;
        Ok(record)
    }

    /// The slot of an entry. Errors when the entry is of another set.
    fn slot_of(&self, entry: &Entry) -> Result<&Slot, Refusal> {
        let is_ours = entry.set == self.key;
        let slot = self.slots.get(entry.index).filter(|_| is_ours);
        slot.ok_or_else(|| Refusal::OtherEntry {
            set: self.key,
            slot: entry.slot,
            pack: entry.record.key(),
        })
    }

    pub(crate) fn map_proved(&self, entry: &Entry) -> Result<Arc<Mapping>, Refusal> {
        let mut payload = lock(&self.slot_of(entry)?.payload);
        if let Some(refusal) = &payload.differs {
            return Err(refusal.clone());
        }
        if let Some(mapping) = payload.mapping.upgrade() {
            return Ok(mapping);
        }
        let mapping = match (self.staged(entry), self.trust, &payload.sampled) {
            (Some(object), _, _) => self.hold(entry, &object),
            (None, Trust::Sample, None) => Err(Refusal::NotSampled { name: entry.name() }),
            (None, Trust::Sample, Some(proved)) => self.hold_sampled(entry, proved),
            (None, Trust::Receipt, _) => {
                self.hold(entry, &self.proved(entry, ObjectTrust::Receipt)?)
            }
            (None, Trust::Deep, _) => self.hold(entry, &self.proved(entry, ObjectTrust::Deep)?),
        }?;
        let mapping = Arc::new(mapping);
        payload.mapping = Arc::downgrade(&mapping);
        Ok(mapping)
    }

    /// The stage's copy, proved by its receipt or by a hash now. One that is not used is counted
    /// and leaves the store's.
    fn staged(&self, entry: &Entry) -> Option<VerifiedObject> {
        let wanted = &self.manifest.entries()[entry.index];
        let stage = self.stage.as_ref()?;
        let object = match self.trust {
            Trust::Sample | Trust::Receipt => stage.object(wanted),
            Trust::Deep => stage.object_hashed(wanted),
        };
        let refused = |source| {
            let name = entry.name();
            let source = Box::new(source);
            self.note(Some(entry.index), Refusal::Staged { name, source });
        };
        object.map_err(refused).ok()
    }

    /// Whether the stage has a copy that may be used.
    pub(crate) fn is_staged(&self, entry: &Entry) -> bool {
        self.staged(entry).is_some()
    }

    /// Opens the store's object with the proof that was chosen.
    fn proved(&self, entry: &Entry, trust: ObjectTrust) -> Result<VerifiedObject, Refusal> {
        let record = &entry.record;
        let object = self.store.object(&record.object, record.length, trust);
        object.map_err(|source| Refusal::Object {
            name: entry.name(),
            source: Box::new(source),
        })
    }

    /// Holds an object that samples proved, if it is that object still.
    fn hold_sampled(&self, entry: &Entry, proved: &StatIdentity) -> Result<Mapping, Refusal> {
        let object = self.unproved(entry)?.accept_sampled();
        match object.identity().difference(proved) {
            None => self.hold(entry, &object),
            Some(_) => Err(Refusal::NotSampled { name: entry.name() }),
        }
    }

    /// Opens an object of the store that nothing proves yet.
    pub(crate) fn unproved(&self, entry: &Entry) -> Result<UnverifiedObject, Refusal> {
        let record = &entry.record;
        let object = self.store.object_for_sample(&record.object, record.length);
        object.map_err(|source| Refusal::Object {
            name: entry.name(),
            source: Box::new(source),
        })
    }

    fn hold(&self, entry: &Entry, object: &VerifiedObject) -> Result<Mapping, Refusal> {
        let no_memory = |error: io::Error| Refusal::Map {
            name: entry.name(),
            bytes: object.length(),
            error: error.to_string(),
        };
        let (bytes, held) = match object.fs_trust() {
            FsTrust::Local => (self.mapper.map(object).map_err(no_memory)?, Held::Mapped),
            FsTrust::Remote => {
                let length = usize::try_from(object.length()).unwrap_or(usize::MAX);
                let filled = ReadMap::filled(length, |target| object.read_into(target));
                let filled = filled.map_err(no_memory)?;
                let filled = filled.map_err(|source| Refusal::Object {
                    name: entry.name(),
                    source: Box::new(source),
                })?;
                (filled, Held::Copied)
            }
        };
        let how = object.how();
        lock(&self.tally).hold((entry.index, object.length()), |counters| {
            let held = match held {
                Held::Mapped => &mut counters.mapped,
                Held::Copied => &mut counters.copied,
            };
            let proved = match how {
                HowVerified::Deep | HowVerified::Published => &mut counters.deep,
                HowVerified::Receipt => &mut counters.receipt,
                HowVerified::Reverified => &mut counters.reverified,
                HowVerified::Sample => &mut counters.sample,
            };
            [held, proved]
        });
        Ok(Mapping {
            bytes,
            object: object.digest(),
            how,
            held,
        })
    }

    /// Proves every payload of a strict set, the stage's copy where there is a good one.
    pub(crate) fn prove_all(&self) -> Result<(), Refusal> {
        for index in 0..self.slots.len() {
            let entry = self.read_entry(index)?;
            if self.is_staged(&entry) {
                continue;
            }
            match self.trust {
                Trust::Sample => return Err(Refusal::StrictSample),
                Trust::Receipt => self.proved(&entry, ObjectTrust::Receipt).map(drop)?,
                Trust::Deep => self.proved(&entry, ObjectTrust::Deep).map(drop)?,
            }
        }
        Ok(())
    }

    /// Keeps what an object is that samples proved.
    pub(crate) fn accept_sampled(&self, entry: &Entry, object: UnverifiedObject) {
        if let Ok(slot) = self.slot_of(entry) {
            lock(&slot.payload).sampled = Some(*object.accept_sampled().identity());
        }
    }

    /// Hands a payload out no more.
    pub(crate) fn distrust(&self, entry: &Entry, refusal: &Refusal) {
        if let Ok(slot) = self.slot_of(entry) {
            lock(&slot.payload).differs = Some(refusal.clone());
        }
    }

    pub(crate) fn count_sample(&self, entry: &Entry, group_count: u64) {
        lock(&self.tally).sample((entry.index, entry.record.length), group_count);
    }

    /// Whether the set may be used: a strict one only before its first refusal.
    pub(crate) fn usable(&self) -> Result<(), Refusal> {
        match &lock(&self.refusals).first {
            Some(first) => Err(Refusal::SetFailed {
                set: self.key,
                first: Box::new(first.clone()),
            }),
            None => Ok(()),
        }
    }

    /// Counts and keeps a refusal on its way to the caller.
    pub(crate) fn refuse(&self, index: Option<usize>, refusal: Refusal) -> Refusal {
        self.note(index, refusal.clone());
        let mut refusals = lock(&self.refusals);
        if self.strict && refusals.first.is_none() {
            refusals.first = Some(refusal.clone());
        }
        refusal
    }

    /// Counts and keeps a refusal that something else took the place of.
    pub(crate) fn note(&self, index: Option<usize>, refusal: Refusal) {
        let tensor = index.and_then(|index| {
            let entry = self.manifest.entries().get(index)?;
            Some((index, entry.length))
        });
        lock(&self.tally).refuse(refusal.code(), tensor);
        lock(&self.refusals).last = Some(refusal);
    }
}

/// Locks a mutex whose content no panic can leave half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
