//! `validate`: is a stage what it says, tensor by tensor?
//!
//! Shallow: receipts hold for the descriptors, which costs an open and an fstat each. Deep: every
//! copy's bytes are hashed too. Every slot has its own answer; one bad copy hides no other.
//!
//! A stage with a copy of other bytes is taken out of service at once.
//!
//! Never: repairs; `stage` replaces a stage that fails here.

use crate::condemn::Condemned;
use crate::root::StageRoot;
use crate::staged::{self, StageMiss, StagedRefusal, StagedSet};
use packhouse_base::digest::{ObjectDigest, SetKey};
use packhouse_store::deep::hash_now;
use packhouse_store::hash_many::LANES_MAX;
use packhouse_store::manifest::ManifestEntry;
use packhouse_store::object::{ObjectRefusal, VerifiedObject};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use packhouse_store::verify::Depth;

/// What validating a stage found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageValidation {
    /// The set.
    pub set: SetKey,
    /// Which stage of it; `None` when there is none that can be opened.
    pub generation: Option<u64>,
    /// Why the stage as a whole is of no use, if so; then there are no tensors.
    pub miss: Option<StageMiss>,
    /// Every slot, in slot order.
    pub tensors: Vec<StagedTensor>,
    /// Copies hashed.
    pub hashed_count: u64,
    /// Bytes hashed.
    pub hashed_bytes: u64,
    /// Whether it was taken out of service for its bytes.
    pub condemned: Condemned,
}

/// What validating one slot found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedTensor {
    /// The slot as the stage's manifest has it.
    pub entry: ManifestEntry,
    /// What is wrong with its copy, if anything.
    pub problem: Option<StagedRefusal>,
}

impl StageValidation {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.miss.is_none() && self.bad_tensors().next().is_none()
    }

    /// The slots that have a problem.
    pub fn bad_tensors(&self) -> impl Iterator<Item = &StagedTensor> {
        self.tensors
            .iter()
            .filter(|tensor| tensor.problem.is_some())
    }
}

/// Validates the newest stage of a set; one whose bytes are other ones is taken out of service.
/// `progress` is told bytes as they are hashed.
pub fn validate(
    root: &StageRoot,
    set: SetKey,
    depth: Depth,
    progress: &(dyn Fn(u64) + Sync),
) -> StageValidation {
    match staged::open(root, set) {
        Ok(staged) => validate_opened(&staged, depth, progress),
        Err(miss) => StageValidation {
            set,
            generation: None,
            miss: Some(miss),
            tensors: Vec::new(),
            hashed_count: 0,
            hashed_bytes: 0,
            condemned: Condemned::No,
        },
    }
}

pub(crate) fn validate_opened(
    staged: &StagedSet,
    depth: Depth,
    progress: &(dyn Fn(u64) + Sync),
) -> StageValidation {
    let mut wanted: BTreeMap<(ObjectDigest, u64), &ManifestEntry> = BTreeMap::new();
    for entry in staged.manifest().entries() {
        wanted.insert((entry.object, entry.length), entry);
    }
    let (hashed_count, hashed_bytes) = match depth {
        Depth::Shallow => (0, 0),
        Depth::Deep { .. } => (
            wanted.len() as u64,
            wanted.keys().map(|(_, length)| length).sum(),
        ),
    };
    let problems = match depth {
        Depth::Shallow => wanted
            .into_iter()
            .filter_map(|(key, entry)| Some((key, staged.object(entry).err()?)))
            .collect(),
        Depth::Deep { threads } => hash_all(staged, &wanted, threads, progress),
    };
    let has_other_bytes = problems.values().any(StagedRefusal::is_of_bytes);
    let condemned = match has_other_bytes {
        true => staged.condemn(),
        false => Condemned::No,
    };
    let tensors = staged.manifest().entries().iter().map(|entry| {
        let problem = problems.get(&(entry.object, entry.length)).cloned();
        StagedTensor {
            entry: entry.clone(),
            problem,
        }
    });
    StageValidation {
        set: staged.set(),
        generation: Some(staged.generation()),
        miss: None,
        tensors: tensors.collect(),
        hashed_count,
        hashed_bytes,
        condemned,
    }
}

/// The first problem of a stage's copies by their receipts, with its slot.
pub(crate) fn first_problem(staged: &StagedSet) -> Option<(&ManifestEntry, StagedRefusal)> {
    let entries = staged.manifest().entries();
    entries
        .iter()
        .find_map(|entry| Some((entry, staged.object(entry).err()?)))
}

fn hash_all(
    staged: &StagedSet,
    wanted: &BTreeMap<(ObjectDigest, u64), &ManifestEntry>,
    threads: NonZeroUsize,
    progress: &(dyn Fn(u64) + Sync),
) -> BTreeMap<(ObjectDigest, u64), StagedRefusal> {
    let lanes = wanted.len().div_ceil(threads.get()).clamp(1, LANES_MAX);
    let queue = Mutex::new(wanted.iter());
    let problems = Mutex::new(BTreeMap::new());
    let put = |key: (ObjectDigest, u64), refusal: StagedRefusal| {
        lock(&problems).insert(key, refusal);
    };
    let work = || {
        let next = || {
            loop {
                let (key, entry) = lock(&queue).next()?;
                match staged.object(entry) {
                    Ok(object) => return Some((*key, object)),
                    Err(refusal) => put(*key, refusal),
                }
            }
        };
        let done = |key, hashed: Result<VerifiedObject, ObjectRefusal>| {
            if let Err(refusal) = hashed {
                put(key, StagedRefusal::Bytes(Box::new(refusal)));
            }
        };
        hash_now(lanes, next, done, progress);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(wanted.len()) {
            // A thread that is not to be had leaves its work to the others.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    problems
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
