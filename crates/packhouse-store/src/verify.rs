//! `verify`: is what a set names there, and is it what it says?
//!
//! Shallow: the set key and every pack key derived again, records and manifest in agreement, object
//! lengths, owners and modes, the bytes of the runtime index, the container records. Deep: every
//! object's bytes hashed too. Invariants:
//! - every slot has its own answer, in slot order; one bad slot hides no other;
//! - damaged is never reported as missing: what went to quarantine is said to be there.
//!
//! Never: repairs; it moves damaged entries to quarantine as every reader does, so that the next
//! publish can take their names.

use crate::manifest::{IndexError, ManifestEntry, SetManifest};
use crate::object::ObjectRefusal;
use crate::pack::PackRefusal;
use crate::record::PackRecord;
use crate::root::Store;
use crate::set::{ContainerRefusal, SetMiss};
use crate::small::SmallRefusal;
use packhouse_base::Blame;
use packhouse_base::digest::{ObjectDigest, PackKey, SetKey};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// How much is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Everything but the objects' bytes.
    Shallow,
    /// The objects' bytes too.
    Deep {
        /// Cores that hash; each takes several objects at once.
        threads: NonZeroUsize,
    },
}

/// What verifying a set found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetVerification {
    /// The set.
    pub set: SetKey,
    /// Its plan's name; `None` when the manifest can't be read.
    pub plan: Option<String>,
    /// What is wrong with the set's own files.
    pub problems: Vec<SetProblem>,
    /// Every slot, in slot order; empty when the manifest can't be read.
    pub tensors: Vec<TensorVerification>,
    /// Objects hashed; one that several slots share counts once.
    pub hashed_count: u64,
    /// Bytes hashed.
    pub hashed_bytes: u64,
}

/// What verifying one slot found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorVerification {
    /// The slot as the manifest has it.
    pub entry: ManifestEntry,
    /// What is wrong with it, if anything.
    pub problem: Option<TensorProblem>,
}

/// What is wrong with a set's own files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetProblem {
    /// The manifest.
    #[error(transparent)]
    Manifest(#[from] SetMiss),
    /// The runtime index's bytes.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The runtime index can't be read.
    #[error("index: {0}")]
    IndexFile(SmallRefusal),
    /// A container record.
    #[error(transparent)]
    Container(#[from] ContainerRefusal),
    /// The container records can't be listed.
    #[error("container records: {0}")]
    Containers(SmallRefusal),
    /// No container record says what the set was made of.
    #[error("set {set}: no container record")]
    NoContainer {
        /// The set.
        set: SetKey,
    },
}

/// What is wrong with a slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorProblem {
    /// Its pack.
    #[error(transparent)]
    Pack(PackRefusal),
    /// Its pack was damaged and moved to quarantine earlier.
    #[error("pack {key} was damaged and is in quarantine")]
    PackInQuarantine {
        /// The pack.
        key: PackKey,
    },
    /// Its pack and the manifest disagree.
    #[error(
        "pack {key} is object {actual} of {actual_length} bytes, the manifest says {expected} of \
         {expected_length}"
    )]
    Disagrees {
        /// The pack.
        key: PackKey,
        /// The object in the manifest.
        expected: ObjectDigest,
        /// The length in the manifest.
        expected_length: u64,
        /// The object in the record.
        actual: ObjectDigest,
        /// The length in the record.
        actual_length: u64,
    },
    /// Its object.
    #[error(transparent)]
    Object(ObjectRefusal),
    /// Its object is intact, and not what its source packs to. A store can't see that: whoever has
    /// the layout's inverse adds it to what was found.
    #[error("pack {key}: {why}")]
    Unlike {
        /// The pack.
        key: PackKey,
        /// What shows it.
        why: String,
    },
    /// Its object was damaged and moved to quarantine earlier.
    #[error("object {digest} was damaged and is in quarantine")]
    ObjectInQuarantine {
        /// The object.
        digest: ObjectDigest,
    },
}

impl SetVerification {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty() && self.tensors.iter().all(|tensor| tensor.problem.is_none())
    }

    /// The slots that have a problem.
    pub fn bad_tensors(&self) -> impl Iterator<Item = &TensorVerification> {
        self.tensors
            .iter()
            .filter(|tensor| tensor.problem.is_some())
    }
}

impl SetProblem {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Manifest(miss) => miss.blame(),
            Self::Index(error) => error.blame(),
            Self::Container(refusal) => refusal.blame(),
            Self::IndexFile(refusal) | Self::Containers(refusal) => refusal.blame(),
            Self::NoContainer { .. } => Blame::Store,
        }
    }
}

impl TensorProblem {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Pack(refusal) => refusal.blame(),
            Self::Object(refusal) => refusal.blame(),
            Self::PackInQuarantine { .. }
            | Self::Disagrees { .. }
            | Self::Unlike { .. }
            | Self::ObjectInQuarantine { .. } => Blame::Store,
        }
    }

    /// One word for counters and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pack(refusal) => refusal.reason(),
            Self::Object(refusal) => refusal.reason(),
            Self::PackInQuarantine { .. } | Self::ObjectInQuarantine { .. } => "quarantined",
            Self::Disagrees { .. } => "disagrees",
            Self::Unlike { .. } => "unlike",
        }
    }
}

impl Store {
    /// Verifies a set. `progress` is told bytes as they are hashed.
    pub fn verify_set(
        &self,
        set: SetKey,
        depth: Depth,
        progress: &(dyn Fn(u64) + Sync),
    ) -> SetVerification {
        let mut found = SetVerification {
            set,
            plan: None,
            problems: Vec::new(),
            tensors: Vec::new(),
            hashed_count: 0,
            hashed_bytes: 0,
        };
        let manifest = match self.read_set(set) {
            Ok(manifest) => manifest,
            Err(miss) => {
                found.problems.push(miss.into());
                return found;
            }
        };
        found.plan = Some(manifest.plan().to_owned());
        found.problems = self.set_problems(set, &manifest);
        let quarantined = self.quarantined_names();
        let wanted: BTreeSet<(ObjectDigest, u64)> = manifest
            .entries()
            .iter()
            .map(|entry| (entry.object, entry.length))
            .collect();
        let wanted: Vec<_> = wanted.into_iter().collect();
        let keys: Vec<PackKey> = manifest.entries().iter().map(|entry| entry.pack).collect();
        let (packs, refusals) = match depth {
            Depth::Shallow => {
                let looked = self.look_at(&keys, &wanted);
                (looked.packs, looked.objects)
            }
            Depth::Deep { threads } => {
                let hashed = self.hash_objects(&wanted, threads, progress);
                (self.look_at(&keys, &[]).packs, hashed)
            }
        };
        let objects: BTreeMap<_, _> = wanted.into_iter().zip(refusals).collect();
        for (entry, pack) in manifest.entries().iter().zip(packs) {
            let object = objects.get(&(entry.object, entry.length));
            let problem = pack_problem(entry, pack, &quarantined)
                .or_else(|| object.cloned().flatten().map(|p| told(p, &quarantined)));
            found.tensors.push(TensorVerification {
                entry: entry.clone(),
                problem,
            });
        }
        if depth != Depth::Shallow {
            found.hashed_count = objects.len() as u64;
            found.hashed_bytes = objects.keys().map(|(_, length)| length).sum();
        }
        found
    }

    fn set_problems(&self, set: SetKey, manifest: &SetManifest) -> Vec<SetProblem> {
        let mut problems = Vec::new();
        match self.read_index(set) {
            Ok(bytes) => problems.extend(manifest.verify_index(&bytes).err().map(Into::into)),
            Err(refusal) => problems.push(SetProblem::IndexFile(refusal)),
        }
        match self.read_container_records(set) {
            Err(refusal) => problems.push(SetProblem::Containers(refusal)),
            Ok(records) => {
                if records.records.is_empty() && records.refused.is_empty() {
                    problems.push(SetProblem::NoContainer { set });
                }
                problems.extend(records.refused.into_iter().map(Into::into));
            }
        }
        problems
    }

    /// The content names of what lies in quarantine. A folder that can't be listed has none: then
    /// the entries are missing, which is as true.
    fn quarantined_names(&self) -> BTreeSet<String> {
        let names = crate::state::list_names(self.quarantine_dir()).unwrap_or_default();
        names
            .iter()
            .filter(|name| !name.ends_with(crate::gc::DOOMED_SUFFIX))
            .filter_map(|name| name.split_once('.'))
            .map(|(content_name, _)| content_name.to_owned())
            .collect()
    }
}

fn pack_problem(
    entry: &ManifestEntry,
    found: Result<PackRecord, PackRefusal>,
    quarantined: &BTreeSet<String>,
) -> Option<TensorProblem> {
    let key = entry.pack;
    match found {
        Ok(record) if (record.object, record.length) == (entry.object, entry.length) => None,
        Ok(record) => Some(TensorProblem::Disagrees {
            key,
            expected: entry.object,
            expected_length: entry.length,
            actual: record.object,
            actual_length: record.length,
        }),
        Err(PackRefusal::Missing { .. }) if quarantined.contains(&key.to_string()) => {
            Some(TensorProblem::PackInQuarantine { key })
        }
        Err(refusal) => Some(TensorProblem::Pack(refusal)),
    }
}

fn told(refusal: ObjectRefusal, quarantined: &BTreeSet<String>) -> TensorProblem {
    match refusal {
        ObjectRefusal::Missing { digest } if quarantined.contains(&digest.to_string()) => {
            TensorProblem::ObjectInQuarantine { digest }
        }
        other => TensorProblem::Object(other),
    }
}
