//! What a gc would remove, as a pure function of a census: no I/O, so a dry run is the plan itself.
//!
//! Invariants:
//! - an object that a kept pack or a kept set names is never removed;
//! - a pinned set is never removed, whatever the cap;
//! - a pack or object that nothing names yet is kept for `loose_grace_s`: a publish links the
//!   object first and writes its pack after, and a `prepare` that was stopped finds its packs
//!   again;
//! - an unreadable manifest or record never blocks the rest: it is kept while it is young or
//!   pinned, and removed after;
//! - sets of one container count as used when any of them was, so they never evict each other.
//!
//! Never: a decision by name order where time can decide.

use packhouse_base::digest::{ObjectDigest, PackKey, SetKey};
use std::collections::{BTreeMap, BTreeSet};

/// What a store holds, as far as gc must know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sets by key.
    pub sets: BTreeMap<SetKey, SetCensus>,
    /// Packs by key.
    pub packs: BTreeMap<PackKey, PackCensus>,
    /// Objects by digest.
    pub objects: BTreeMap<ObjectDigest, ObjectCensus>,
}

/// One set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetCensus {
    /// The packs and objects its manifest names; empty when the manifest can't be read.
    pub content: Vec<(PackKey, ObjectDigest)>,
    /// Whether a pin names it.
    pub pinned: bool,
    /// Seconds since its manifest was published.
    pub age_s: u64,
    /// Seconds since this user's last use, if any is known.
    pub last_use_age_s: Option<u64>,
    /// Paths of the containers it was used for, from the use log.
    pub containers: BTreeSet<String>,
    /// Whether at least one of those paths still exists.
    pub container_exists: bool,
}

/// One pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackCensus {
    /// The object its record names; `None` when the record can't be read.
    pub object: Option<ObjectDigest>,
    /// Seconds since its record was published.
    pub age_s: u64,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCensus {
    /// Its length in bytes.
    pub length: u64,
    /// Seconds since it was linked.
    pub age_s: u64,
}

/// What gc keeps besides pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// A set younger than this, or used within it, is kept.
    pub set_grace_s: u64,
    /// A pack or object younger than this is kept even when nothing names it.
    pub loose_grace_s: u64,
    /// A temporary file younger than this is kept.
    pub temp_grace_s: u64,
    /// The most bytes of objects to keep, if there is a cap.
    pub max_bytes: Option<u64>,
}

/// What a gc removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcPlan {
    /// Sets and why each goes.
    pub sets: BTreeMap<SetKey, SetGone>,
    /// Packs that nothing kept names.
    pub packs: BTreeSet<PackKey>,
    /// Objects that nothing kept names.
    pub objects: BTreeSet<ObjectDigest>,
    /// Bytes of the removed objects.
    pub removed_bytes: u64,
    /// Bytes of the objects that stay.
    pub kept_bytes: u64,
    /// Bytes above the cap that could not be removed: pinned, or young and not yet named.
    pub above_cap_bytes: u64,
}

/// Why a set goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetGone {
    /// Not pinned, not young, and no container of it exists.
    Unrooted,
    /// Least recently used while the store was above its cap.
    OverCap,
}

impl Default for GcPolicy {
    fn default() -> Self {
        Self {
            set_grace_s: 14 * DAY_S,
            loose_grace_s: DAY_S,
            temp_grace_s: DAY_S,
            max_bytes: None,
        }
    }
}

impl SetGone {
    /// The reason in words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unrooted => "no pin, older than the grace period, no container left",
            Self::OverCap => "least recently used, store above its cap",
        }
    }
}

/// Plans a gc.
pub fn plan(census: &Census, policy: &GcPolicy) -> GcPlan {
    let mut plan = GcPlan::default();
    for (key, set) in &census.sets {
        if !is_root(set, policy) {
            plan.sets.insert(*key, SetGone::Unrooted);
        }
    }
    let mut kept = Kept::count(census, policy, &plan.sets);
    if let Some(max_bytes) = policy.max_bytes {
        evict_to(max_bytes, census, policy, &mut plan, &mut kept);
        plan.above_cap_bytes = kept.bytes.saturating_sub(max_bytes);
    }
    plan.kept_bytes = kept.bytes;
    for (key, pack) in &census.packs {
        if !kept.has_pack(key) && pack.age_s >= policy.loose_grace_s {
            plan.packs.insert(*key);
        }
    }
    for (digest, object) in &census.objects {
        if !kept.has_object(digest) {
            plan.objects.insert(*digest);
            plan.removed_bytes = plan.removed_bytes.saturating_add(object.length);
        }
    }
    plan
}

/// Evicts least recently used sets until the cap holds, then takes back, most recently used first,
/// each set whose objects are all kept by others anyway.
fn evict_to(
    max_bytes: u64,
    census: &Census,
    policy: &GcPolicy,
    plan: &mut GcPlan,
    kept: &mut Kept,
) {
    let order = eviction_order(census);
    let mut unpinned = plan.sets.clone();
    unpinned.extend(order.iter().map(|key| (*key, SetGone::OverCap)));
    let fixed = Kept::count(census, policy, &unpinned);
    let mut evicted = Vec::new();
    for key in order {
        if kept.bytes <= max_bytes {
            break;
        }
        if !plan.sets.contains_key(&key) && fixed.lacks_bytes_of(census, key) {
            kept.drop_content(census, key);
            evicted.push(key);
        }
    }
    for key in evicted.into_iter().rev() {
        if kept.lacks_bytes_of(census, key) {
            plan.sets.insert(key, SetGone::OverCap);
        } else {
            kept.hold_content(census, key);
        }
    }
}

/// How many kept things name each pack and object, so that evicting one set costs what it holds and
/// not the whole store.
struct Kept {
    packs: BTreeMap<PackKey, u64>,
    objects: BTreeMap<ObjectDigest, u64>,
    bytes: u64,
}

impl Kept {
    fn count(census: &Census, policy: &GcPolicy, gone: &BTreeMap<SetKey, SetGone>) -> Self {
        let mut kept = Self {
            packs: BTreeMap::new(),
            objects: BTreeMap::new(),
            bytes: 0,
        };
        for (digest, object) in &census.objects {
            if object.age_s < policy.loose_grace_s {
                kept.hold_object(census, *digest);
            }
        }
        for (key, pack) in &census.packs {
            if pack.age_s < policy.loose_grace_s {
                kept.hold_pack(census, *key);
            }
        }
        for key in census.sets.keys() {
            if !gone.contains_key(key) {
                kept.hold_content(census, *key);
            }
        }
        kept
    }

    fn has_pack(&self, key: &PackKey) -> bool {
        self.packs.get(key).is_some_and(|count| *count > 0)
    }

    fn has_object(&self, digest: &ObjectDigest) -> bool {
        self.objects.get(digest).is_some_and(|count| *count > 0)
    }

    /// Whether the set names an object with bytes that is not kept here.
    fn lacks_bytes_of(&self, census: &Census, key: SetKey) -> bool {
        census.sets[&key].content.iter().any(|(pack, object)| {
            [Some(*object), object_of(census, *pack)]
                .into_iter()
                .flatten()
                .any(|digest| !self.has_object(&digest) && length_of(census, digest) > 0)
        })
    }

    fn hold_content(&mut self, census: &Census, key: SetKey) {
        for (pack, object) in &census.sets[&key].content {
            self.hold_pack(census, *pack);
            self.hold_object(census, *object);
        }
    }

    fn drop_content(&mut self, census: &Census, key: SetKey) {
        for (pack, object) in &census.sets[&key].content {
            self.drop_object(census, *object);
            self.drop_pack(census, *pack);
        }
    }

    fn hold_pack(&mut self, census: &Census, key: PackKey) {
        let count = self.packs.entry(key).or_default();
        *count += 1;
        if *count == 1
            && let Some(object) = object_of(census, key)
        {
            self.hold_object(census, object);
        }
    }

    fn hold_object(&mut self, census: &Census, digest: ObjectDigest) {
        let count = self.objects.entry(digest).or_default();
        *count += 1;
        if *count == 1 {
            self.bytes = self.bytes.saturating_add(length_of(census, digest));
        }
    }

    fn drop_pack(&mut self, census: &Census, key: PackKey) {
        let count = self.packs.entry(key).or_default();
        *count = count.saturating_sub(1);
        if *count == 0
            && let Some(object) = object_of(census, key)
        {
            self.drop_object(census, object);
        }
    }

    fn drop_object(&mut self, census: &Census, digest: ObjectDigest) {
        let count = self.objects.entry(digest).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.bytes = self.bytes.saturating_sub(length_of(census, digest));
        }
    }
}

fn object_of(census: &Census, key: PackKey) -> Option<ObjectDigest> {
    census.packs.get(&key).and_then(|pack| pack.object)
}

fn length_of(census: &Census, digest: ObjectDigest) -> u64 {
    census
        .objects
        .get(&digest)
        .map_or(0, |object| object.length)
}

fn is_root(set: &SetCensus, policy: &GcPolicy) -> bool {
    let used_lately = set
        .last_use_age_s
        .is_some_and(|age_s| age_s < policy.set_grace_s);
    set.pinned || set.age_s < policy.set_grace_s || used_lately || set.container_exists
}

/// Sets that a cap may evict, least recently used first. A set's use is the latest of all sets of
/// its containers; a set that was never used counts from its publication.
fn eviction_order(census: &Census) -> Vec<SetKey> {
    let own_age = |set: &SetCensus| set.last_use_age_s.unwrap_or(set.age_s).min(set.age_s);
    let mut container_age: BTreeMap<&str, u64> = BTreeMap::new();
    for set in census.sets.values() {
        for container in &set.containers {
            let age_s = container_age.entry(container).or_insert(u64::MAX);
            *age_s = (*age_s).min(own_age(set));
        }
    }
    let mut order: Vec<(u64, SetKey)> = census
        .sets
        .iter()
        .filter(|(_, set)| !set.pinned)
        .map(|(key, set)| {
            let ages = set.containers.iter().map(|c| container_age[c.as_str()]);
            (ages.chain([own_age(set)]).min().unwrap_or(0), *key)
        })
        .collect();
    order.sort_by(|a, b| b.cmp(a));
    order.into_iter().map(|(_, key)| key).collect()
}

const DAY_S: u64 = 24 * 60 * 60;
