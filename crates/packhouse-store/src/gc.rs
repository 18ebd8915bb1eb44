//! `gc`: removes what nothing needs: sets without a root, sets over the cap, objects and packs that
//! no kept set names, stale temporary files, unfinished sets, old quarantine, orphaned private
//! records.
//!
//! Roots are pins, sets younger than a grace period or used within it, and sets whose container (a
//! path in this user's private use log) still exists. Invariants:
//! - what goes is decided by `gc_plan::plan`, a pure function of a census; a dry run is that plan;
//! - a publish under way loses nothing: unnamed packs and objects have a grace by age, and the
//!   final look and the moving away happen under the lock that publishers of this user hold shared;
//! - names go before what they name: manifests, then packs, then objects;
//! - an object is first moved aside, so that its name is free for the next publish at once;
//! - one entry that can't be removed stops nothing and is reported.
//!
//! Never: on a store of another owner; on one that others reach, without `shared`; without private
//! state, where every root but pins and age is unknown.

use crate::gc_lock::{GC_LOCK_WAIT_NS, GcLock};
use crate::gc_plan::{
    self, Census, GcPlan, GcPolicy, ObjectCensus, PackCensus, SetCensus, SetGone,
};
use crate::holders::Holders;
use crate::inventory::{Inventory, age_s, seconds_since};
use crate::pack::PACK_BYTES_MAX;
use crate::reach::{Existence, existence, others_reach};
use crate::record::{PackRecord, RecordError};
use crate::rm::RemoveError;
use crate::root::{Base, OpenError, Store};
use crate::set::{MANIFEST_NAME, SetMiss};
use crate::small::SmallRefusal;
use crate::state::StateError;
use crate::use_log::Uses;
use packhouse_base::Blame;
use packhouse_base::digest::{ObjectDigest, PackKey, SetKey};
use packhouse_sys::fs::{Dir, FsErrorKind, LockKind};
use packhouse_sys::stat::Stat;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// How a gc is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcOptions {
    /// What is kept.
    pub policy: GcPolicy,
    /// Only say what would go.
    pub dry_run: bool,
    /// The owner knows that others use the store too.
    pub shared: bool,
}

/// What a gc removed, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Whether nothing was removed.
    pub dry_run: bool,
    /// Sets, packs and objects, with the reason of each set.
    pub plan: GcPlan,
    /// Objects that were named again before they were moved: they stay and left the plan.
    pub rescued: BTreeSet<ObjectDigest>,
    /// Temporary files older than their grace.
    pub temps: Removed,
    /// Set folders without a manifest, older than their grace.
    pub unfinished_sets: Removed,
    /// What was in quarantine for longer than the set grace.
    pub quarantine: Removed,
    /// Receipts of objects that are not there.
    pub receipts: Removed,
    /// Source ledgers of no living container, not written for longer than the set grace.
    pub sources: Removed,
    /// Uses of sets that are not there.
    pub uses: Removed,
    /// What removing the objects frees on the disk.
    pub freed: Freed,
    /// Entries that name nothing of ours and stay.
    pub foreign: Vec<PathBuf>,
    /// Records, manifests and pins that can't be read, in words.
    pub damaged: Vec<String>,
    /// Entries that could not be removed, in words.
    pub failures: Vec<String>,
}

/// A count with its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// How many.
    pub count: u64,
    /// Their lengths added up.
    pub bytes: u64,
}

/// Disk space that removed objects give back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// At once: nobody who could be seen has them mapped, and they have no other name.
    pub now_bytes: u64,
    /// When their current users end.
    pub later_bytes: u64,
    /// Never by this: they have another name outside the store.
    pub linked_bytes: u64,
    /// Whether every process could be seen. If not, more may be freed later and less now.
    pub every_process_seen: bool,
}

/// Why a gc did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GcError {
    /// Somebody else's store.
    #[error(
        "{} belongs to uid {actual}; only its owner may gc, this is uid {expected}",
        path.display()
    )]
    NotOwner {
        /// The store's root.
        path: PathBuf,
        /// This process's effective user.
        expected: u32,
        /// The root's owner.
        actual: u32,
    },
    /// Others can reach the store, and the caller did not say `shared`.
    #[error("{} can be reached by other users: their roots are unknown here", path.display())]
    Shared {
        /// The store's root.
        path: PathBuf,
    },
    /// The store was opened read-only.
    #[error("{} was opened read-only", path.display())]
    ReadOnly {
        /// The store's root.
        path: PathBuf,
    },
    /// Without private state the roots are unknown.
    #[error("no private state: {0}")]
    NoState(Box<OpenError>),
    /// Publishers held the lock for all of the timeout.
    #[error("publishers held the lock for {} ms", timeout_ns / 1_000_000)]
    Busy {
        /// How long was waited.
        timeout_ns: u64,
    },
    /// A folder can't be trusted or listed.
    #[error(transparent)]
    Folder(#[from] SmallRefusal),
    /// The private state can't be read.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Store {
    /// Runs a gc. Errors before anything is removed; what can't be removed then is in the report.
    pub fn gc(&self, options: &GcOptions) -> Result<GcReport, GcError> {
        self.may_gc(options)?;
        let now_ns = self.clock().wall_ns();
        let uses = self.uses()?;
        let inventory = self.inventory()?;
        let mut report = GcReport {
            dry_run: options.dry_run,
            ..GcReport::default()
        };
        let census = self.census(&inventory, &uses, now_ns, &mut report)?;
        report.plan = gc_plan::plan(&census, &options.policy);
        if !report.damaged.is_empty()
            && !self.pins().map_err(SmallRefusal::from)?.refused.is_empty()
        {
            // A pin that can't be read may be any set's: no set goes until it is removed.
            report.plan = gc_plan::plan(&all_pinned(census), &options.policy);
        }
        let doomed = if options.dry_run {
            Vec::new()
        } else {
            self.remove_planned(&inventory, &mut report)?
        };
        report.freed = self.freed(&inventory, &report);
        self.remove_strays(&inventory, options, now_ns, &mut report)?;
        self.remove_private(&inventory, &uses, (options, now_ns), &mut report)?;
        for (dir, name) in doomed {
            note(dir.unlink(&name), &mut report);
        }
        Ok(report)
    }

    fn may_gc(&self, options: &GcOptions) -> Result<(), GcError> {
        let path = self.config().root.clone();
        if self.config().read_only {
            return Err(GcError::ReadOnly { path });
        }
        let expected = self.fs().effective_uid();
        let actual = self.objects_dir().stat().map_err(SmallRefusal::from)?.uid;
        if actual != expected {
            return Err(GcError::NotOwner {
                path,
                expected,
                actual,
            });
        }
        if !options.shared && others_reach(self.fs(), &path) {
            return Err(GcError::Shared { path });
        }
        Ok(())
    }

    fn uses(&self) -> Result<Uses, GcError> {
        let log = self
            .use_log()
            .map_err(|error| GcError::NoState(Box::new(error.clone())))?;
        Ok(log.read()?)
    }

    fn census(
        &self,
        inventory: &Inventory,
        uses: &Uses,
        now_ns: i64,
        report: &mut GcReport,
    ) -> Result<Census, GcError> {
        let mut census = Census::default();
        for (digest, stat) in &inventory.objects {
            let object = ObjectCensus {
                length: stat.size,
                age_s: age_s(stat, now_ns),
            };
            census.objects.insert(*digest, object);
        }
        for (key, stat) in &inventory.packs {
            let object = match self.peek_pack(key) {
                Ok(object) => Some(object),
                Err(SmallOrRecord::File(SmallRefusal::Absent { .. })) => continue,
                Err(refusal) => {
                    report.damaged.push(refusal.to_string());
                    None
                }
            };
            let age_s = age_s(stat, now_ns);
            census.packs.insert(*key, PackCensus { object, age_s });
        }
        let pins = self.pins().map_err(SmallRefusal::from)?;
        let damaged_pins = pins
            .refused
            .iter()
            .map(|(name, why)| format!("{name}: {why}"));
        report.damaged.extend(damaged_pins);
        let pinned: BTreeSet<SetKey> = pins.sets.into_values().collect();
        for key in self.list_sets()? {
            if let Some(set) = self.set_census(key, uses, now_ns, report)? {
                let pinned = pinned.contains(&key);
                census.sets.insert(key, SetCensus { pinned, ..set });
            }
        }
        Ok(census)
    }

    /// The object that a pack names. Unlike a look-up for use, it moves nothing to quarantine: a
    /// dry run changes nothing.
    fn peek_pack(&self, key: &PackKey) -> Result<ObjectDigest, SmallOrRecord> {
        let name = key.to_string();
        let folder = self.open_prefix(Base::Packs, &name[..2]);
        let dir = folder
            .map_err(SmallRefusal::from)?
            .ok_or_else(|| SmallRefusal::Absent {
                path: self.packs_dir().path().join(&name[..2]),
            })?;
        let bytes = self.read_trusted(&dir, &name, PACK_BYTES_MAX)?;
        Ok(PackRecord::parse(*key, &bytes)?.object)
    }

    /// `None`: the set vanished since it was listed.
    fn set_census(
        &self,
        key: SetKey,
        uses: &Uses,
        now_ns: i64,
        report: &mut GcReport,
    ) -> Result<Option<SetCensus>, GcError> {
        let Some(stat) = self.manifest_stat(key)? else {
            return Ok(None);
        };
        let content = match self.read_set(key) {
            Ok(manifest) => {
                let entries = manifest.entries().iter();
                entries.map(|entry| (entry.pack, entry.object)).collect()
            }
            Err(SetMiss::Absent { .. }) => return Ok(None),
            Err(miss) => {
                report.damaged.push(miss.to_string());
                Vec::new()
            }
        };
        let used = uses.sets.get(&key);
        let paths = used
            .map(|used| used.containers.keys())
            .into_iter()
            .flatten();
        let exists = |path: &PathBuf| existence(self.fs(), path) != Existence::Absent;
        Ok(Some(SetCensus {
            content,
            pinned: false,
            age_s: age_s(&stat, now_ns),
            last_use_age_s: used.map(|used| seconds_since(used.last_use_ns, now_ns)),
            container_exists: paths.clone().any(exists),
            containers: paths.map(|path| path.display().to_string()).collect(),
        }))
    }

    fn manifest_stat(&self, key: SetKey) -> Result<Option<Stat>, SmallRefusal> {
        let Some(dir) = self.set_folder(key)? else {
            return Ok(None);
        };
        match dir.stat_entry(MANIFEST_NAME) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes names, then moves objects aside under the lock; answers what is left to unlink.
    fn remove_planned(
        &self,
        inventory: &Inventory,
        report: &mut GcReport,
    ) -> Result<Vec<(Dir, String)>, GcError> {
        let lock = self.lock_against_gc(LockKind::Exclusive, GC_LOCK_WAIT_NS);
        let _held = match lock.map_err(SmallRefusal::from)? {
            GcLock::Busy => {
                return Err(GcError::Busy {
                    timeout_ns: GC_LOCK_WAIT_NS,
                });
            }
            held @ (GcLock::Held(_) | GcLock::NoState) => held,
        };
        for key in report.plan.sets.keys().copied().collect::<Vec<_>>() {
            match self.drop_set(key) {
                Ok(()) | Err(RemoveError::Absent { .. }) => {}
                Err(error) => report.failures.push(error.to_string()),
            }
        }
        self.rescue_named(inventory, report)?;
        for key in report.plan.packs.iter().copied().collect::<Vec<_>>() {
            note(self.unlink_in(Base::Packs, &key.to_string()), report);
        }
        let mut doomed = Vec::new();
        for digest in report.plan.objects.iter().copied().collect::<Vec<_>>() {
            match self.move_doomed(&digest.to_string()) {
                Ok(moved) => doomed.extend(moved),
                Err(error) => report.failures.push(error.to_string()),
            }
        }
        Ok(doomed)
    }

    /// Looks once more at what names the objects to remove: sets and packs published since the
    /// census.
    fn rescue_named(&self, inventory: &Inventory, report: &mut GcReport) -> Result<(), GcError> {
        let mut named_packs = BTreeSet::new();
        for set in self.list_sets()? {
            if let Ok(manifest) = self.read_set(set) {
                named_packs.extend(manifest.entries().iter().map(|entry| entry.pack));
                report
                    .rescued
                    .extend(manifest.entries().iter().map(|entry| entry.object));
            }
        }
        report.plan.packs.retain(|key| !named_packs.contains(key));
        for key in self.inventory()?.packs.keys() {
            if !report.plan.packs.contains(key)
                && let Ok(object) = self.peek_pack(key)
            {
                report.rescued.insert(object);
            }
        }
        let plan = &mut report.plan;
        report.rescued.retain(|digest| plan.objects.remove(digest));
        for digest in &report.rescued {
            let length = inventory.objects.get(digest).map_or(0, |stat| stat.size);
            plan.removed_bytes = plan.removed_bytes.saturating_sub(length);
            plan.kept_bytes = plan.kept_bytes.saturating_add(length);
        }
        Ok(())
    }

    fn unlink_in(&self, base: Base, name: &str) -> Result<(), SmallRefusal> {
        let Some(dir) = self.open_prefix(base, &name[..2])? else {
            return Ok(());
        };
        match dir.unlink(name) {
            Err(error) if error.kind == FsErrorKind::NotFound => Ok(()),
            other => Ok(other?),
        }
    }

    /// Moves an object out of its name into quarantine, where a crash leaves it for the next gc.
    fn move_doomed(&self, name: &str) -> Result<Vec<(Dir, String)>, SmallRefusal> {
        let Some(dir) = self.open_prefix(Base::Objects, &name[..2])? else {
            return Ok(Vec::new());
        };
        let target = format!("{name}{DOOMED_SUFFIX}");
        let quarantine = self.quarantine_dir();
        match dir.rename_new(name, quarantine, &target) {
            Ok(()) => Ok(vec![(quarantine.clone(), target)]),
            Err(error) if error.kind == FsErrorKind::NotFound => Ok(Vec::new()),
            // A gc was stopped between moving and unlinking: its copy is as doomed.
            Err(error) if error.kind == FsErrorKind::Exists => {
                Ok(vec![(quarantine.clone(), target), (dir, name.to_owned())])
            }
            Err(error) => Err(error.into()),
        }
    }

    fn freed(&self, inventory: &Inventory, report: &GcReport) -> Freed {
        let holders = Holders::read(self.fs());
        let mut freed = Freed {
            every_process_seen: holders.complete,
            ..Freed::default()
        };
        let objects = report.plan.objects.iter();
        for stat in objects.filter_map(|digest| inventory.objects.get(digest)) {
            let target = if stat.link_count > 1 {
                &mut freed.linked_bytes
            } else if holders.hold(stat.inode) {
                &mut freed.later_bytes
            } else {
                &mut freed.now_bytes
            };
            *target = target.saturating_add(stat.allocated_bytes);
        }
        freed
    }
}

/// Why a pack's record can't be read.
#[derive(Debug, thiserror::Error)]
enum SmallOrRecord {
    #[error(transparent)]
    File(#[from] SmallRefusal),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Removed {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl GcReport {
    /// Sets that go, by reason.
    pub fn set_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for gone in self.plan.sets.values() {
            *counts.entry(SetGone::reason(*gone)).or_default() += 1;
        }
        counts
    }

    /// Packs that go.
    pub fn pack_keys(&self) -> &BTreeSet<PackKey> {
        &self.plan.packs
    }
}

impl GcError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotOwner { .. } | Self::Shared { .. } | Self::ReadOnly { .. } => Blame::Caller,
            Self::NoState(error) => error.blame(),
            Self::Busy { .. } => Blame::Host,
            Self::Folder(refusal) => refusal.blame(),
            Self::State(error) => error.blame(),
        }
    }
}

fn all_pinned(mut census: Census) -> Census {
    for set in census.sets.values_mut() {
        set.pinned = true;
    }
    census
}

/// Keeps a failure for the report; what vanished by itself is none.
pub(crate) fn note<E: std::fmt::Display>(result: Result<(), E>, report: &mut GcReport) {
    if let Err(error) = result {
        report.failures.push(error.to_string());
    }
}

/// Ends the name of an object in quarantine that is not damaged but removed.
pub(crate) const DOOMED_SUFFIX: &str = ".gc";
