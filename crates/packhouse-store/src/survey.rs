//! `ls` and `du`: what each set is, holds, shares, and when it was last used.
//!
//! Invariants:
//! - bytes are counted once per object: `own` is what only this set names, `shared` the rest, so
//!   that all `own` and the shared objects once make the total of named bytes;
//! - trust is what a reader would find now: objects that a receipt of this user matches, and the
//!   best container record;
//! - a set that can't be read is listed with its reason.
//!
//! Never: hashes, moves or removes anything.

use crate::container_record::{Admission, ContainerRecord};
use crate::inventory::Inventory;
use crate::reserve::Room;
use crate::root::Store;
use crate::set::{MANIFEST_NAME, SetMiss};
use crate::small::SmallRefusal;
use packhouse_base::digest::{ObjectDigest, SetKey};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A store at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSurvey {
    /// Every set, by key.
    pub sets: Vec<SetSurvey>,
    /// Objects in the store.
    pub object_count: u64,
    /// Their lengths added up.
    pub object_bytes: u64,
    /// What they take on the disk.
    pub allocated_bytes: u64,
    /// Objects that no set names.
    pub loose_count: u64,
    /// Their lengths added up.
    pub loose_bytes: u64,
    /// Objects that more than one set names; each counted once.
    pub shared_bytes: u64,
    /// Pack records.
    pub pack_count: u64,
    /// Entries in quarantine.
    pub quarantine_count: u64,
    /// Their lengths added up.
    pub quarantine_bytes: u64,
    /// Caps and free space; `None` without private state to hold reservations.
    pub room: Option<Room>,
}

/// One set at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSurvey {
    /// The set.
    pub set: SetKey,
    /// Its plan's name; `None` when the manifest can't be read.
    pub plan: Option<String>,
    /// Names of the container's files, by the best record.
    pub container_files: Vec<String>,
    /// How the best record admitted them.
    pub admission: Option<Admission>,
    /// Container paths in this user's use log.
    pub container_paths: Vec<PathBuf>,
    /// Slots.
    pub tensor_count: u64,
    /// Bytes of the objects that only this set names.
    pub own_bytes: u64,
    /// Bytes of the objects that another set names too.
    pub shared_bytes: u64,
    /// Distinct objects that it names.
    pub object_count: u64,
    /// Of those, the ones that a receipt of this user matches now.
    pub receipt_count: u64,
    /// Of those, the ones that aren't in the store.
    pub missing_count: u64,
    /// When its manifest was published, in nanoseconds since the Unix epoch.
    pub published_ns: Option<i64>,
    /// When this user last used it.
    pub last_use_ns: Option<i64>,
    /// Names of its pins.
    pub pins: Vec<String>,
    /// Why its manifest can't be read.
    pub problem: Option<SetMiss>,
}

/// How far a set's bytes are proven to this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetTrust {
    /// Objects are missing or the manifest can't be read.
    Broken,
    /// No object has a receipt: the next use hashes all of them.
    None,
    /// Some have.
    Partial,
    /// All have.
    Receipt,
}

impl SetTrust {
    /// The word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::None => "none",
            Self::Partial => "partial",
            Self::Receipt => "receipt",
        }
    }
}

impl SetSurvey {
    /// How far its bytes are proven to this user.
    pub fn trust(&self) -> SetTrust {
        if self.problem.is_some() || self.missing_count > 0 {
            SetTrust::Broken
        } else if self.receipt_count == self.object_count {
            SetTrust::Receipt
        } else if self.receipt_count == 0 {
            SetTrust::None
        } else {
            SetTrust::Partial
        }
    }
}

impl Store {
    /// Surveys the store. Errors when a folder can't be trusted or listed.
    pub fn survey(&self) -> Result<StoreSurvey, SmallRefusal> {
        let inventory = self.inventory()?;
        let mut sets = Vec::new();
        let mut named: BTreeMap<ObjectDigest, u64> = BTreeMap::new();
        let mut contents = Vec::new();
        for set in self.list_sets()? {
            let (survey, content) = self.survey_set(set, &inventory);
            for object in &content {
                *named.entry(*object).or_default() += 1;
            }
            contents.push(content);
            sets.push(survey);
        }
        let length = |object: &ObjectDigest| inventory.objects.get(object).map_or(0, |s| s.size);
        for (survey, content) in sets.iter_mut().zip(&contents) {
            for object in content {
                let sharers = named.get(object).copied().unwrap_or(0);
                let target = if sharers > 1 {
                    &mut survey.shared_bytes
                } else {
                    &mut survey.own_bytes
                };
                *target = target.saturating_add(length(object));
            }
        }
        self.note_pins_and_uses(&mut sets)?;
        let mut survey = StoreSurvey {
            sets,
            pack_count: inventory.packs.len() as u64,
            room: self.room(0).ok(),
            ..StoreSurvey::default()
        };
        survey.count_objects(&inventory, &named);
        for (_, stat) in crate::inventory::entries(self.quarantine_dir())? {
            survey.quarantine_count += 1;
            survey.quarantine_bytes = survey.quarantine_bytes.saturating_add(stat.size);
        }
        Ok(survey)
    }

    fn survey_set(
        &self,
        set: SetKey,
        inventory: &Inventory,
    ) -> (SetSurvey, BTreeSet<ObjectDigest>) {
        let mut survey = SetSurvey::new(set);
        let dir = self.set_folder(set).ok().flatten();
        let stat = dir.and_then(|dir| dir.stat_entry(MANIFEST_NAME).ok());
        survey.published_ns = stat.map(|stat| stat.ctime_ns);
        if let Ok(records) = self.read_container_records(set) {
            survey.note_container(&records.records);
        }
        let manifest = match self.read_set(set) {
            Ok(manifest) => manifest,
            Err(miss) => {
                survey.problem = Some(miss);
                return (survey, BTreeSet::new());
            }
        };
        survey.plan = Some(manifest.plan().to_owned());
        survey.tensor_count = manifest.entries().len() as u64;
        let content: BTreeSet<_> = manifest.entries().iter().map(|e| e.object).collect();
        survey.object_count = content.len() as u64;
        for object in &content {
            if !inventory.objects.contains_key(object) {
                survey.missing_count += 1;
            } else if self.has_receipt(*object) {
                survey.receipt_count += 1;
            }
        }
        (survey, content)
    }

    /// Whether a receipt matches the object's file as it is now.
    fn has_receipt(&self, object: ObjectDigest) -> bool {
        let name = object.to_string();
        let Ok(receipts) = self.receipts() else {
            return false;
        };
        let folder = self.open_prefix(crate::root::Base::Objects, &name[..2]);
        let file = folder
            .ok()
            .flatten()
            .and_then(|dir| dir.open_file(&name).ok());
        let live = file.and_then(|file| file.identity().ok());
        live.is_some_and(|live| receipts.find_for(object, &live).is_ok())
    }

    fn note_pins_and_uses(&self, sets: &mut [SetSurvey]) -> Result<(), SmallRefusal> {
        let pins = self.pins()?;
        let uses = self.use_log().ok().and_then(|log| log.read().ok());
        let uses = uses.unwrap_or_default();
        for survey in sets {
            let names = pins.sets.iter().filter(|(_, set)| **set == survey.set);
            survey.pins = names.map(|(name, _)| name.clone()).collect();
            if let Some(used) = uses.sets.get(&survey.set) {
                survey.last_use_ns = Some(used.last_use_ns);
                survey.container_paths = used.containers.keys().cloned().collect();
            }
        }
        Ok(())
    }
}

impl StoreSurvey {
    fn count_objects(&mut self, inventory: &Inventory, named: &BTreeMap<ObjectDigest, u64>) {
        for (object, stat) in &inventory.objects {
            self.object_count += 1;
            self.object_bytes = self.object_bytes.saturating_add(stat.size);
            self.allocated_bytes = self.allocated_bytes.saturating_add(stat.allocated_bytes);
            match named.get(object) {
                None => {
                    self.loose_count += 1;
                    self.loose_bytes = self.loose_bytes.saturating_add(stat.size);
                }
                Some(1) => {}
                Some(_) => self.shared_bytes = self.shared_bytes.saturating_add(stat.size),
            }
        }
    }
}

impl SetSurvey {
    fn new(set: SetKey) -> Self {
        Self {
            set,
            plan: None,
            container_files: Vec::new(),
            admission: None,
            container_paths: Vec::new(),
            tensor_count: 0,
            own_bytes: 0,
            shared_bytes: 0,
            object_count: 0,
            receipt_count: 0,
            missing_count: 0,
            published_ns: None,
            last_use_ns: None,
            pins: Vec::new(),
            problem: None,
        }
    }

    /// Without a container at hand, the strongest record of all speaks.
    fn note_container(&mut self, records: &[ContainerRecord]) {
        let rank =
            |record: &&ContainerRecord| (record.admission(), std::cmp::Reverse(record.name()));
        if let Some(best) = records.iter().max_by_key(rank) {
            self.admission = Some(best.admission());
            self.container_files = best.files().iter().map(|file| file.name.clone()).collect();
        }
    }
}
