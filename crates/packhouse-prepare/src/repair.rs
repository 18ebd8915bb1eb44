//! `repair`: makes again exactly what is wrong with a set.
//!
//! First every object is hashed, every payload that this machine can unpack is proven to be its
//! source's, and everything else compared (`examine`), which moves damaged objects and records to
//! quarantine. Then (`heal`) wrong files of the set follow, the packs of the
//! bad slots are made again from the model, and the set's files are published anew.
//!
//! Invariants:
//! - what is good is neither read from the model nor written; a pack whose layout rounds is known
//!   to be good only when it is packed again, which is done when asked (`Diagnosis::pack_again`);
//! - a pack made again has the key that the set names, or the slot stays unhealed: another model or
//!   packer never enters a set;
//! - where manifest and record name different objects, or an intact one that is not what its source
//!   packs to, the source is packed twice and judges;
//! - nothing is removed: what was wrong lies in quarantine.
//!
//! Never: changes a set whose model is another one.

use crate::model::{Model, ModelError};
use crate::prepare::{
    Event, Item, Made, Options, Order, Phase, PrepareError, Progress, RUN_SCHEMA, Reason, foretell,
    make_packs, prepare,
};
use crate::proof::{Proofs, prove_set};
use crate::rounded::{self, Again};
use packhouse_base::digest::{Digest, PackKey, SetKey};
use packhouse_base::identity::{SetEntry, set_key};
use packhouse_base::{Blame, canonical};
use packhouse_pack::Packers;
use packhouse_store::container_record::{
    Admission, ContainerFile, ContainerRecord, ContainerRecordError,
};
use packhouse_store::manifest::{ManifestEntry, ManifestError, SetManifest};
use packhouse_store::root::{OpenError, Store};
use packhouse_store::set::{
    CONTAINERS_NAME, ContainerRefusal, INDEX_NAME, MANIFEST_NAME, SetError,
};
use packhouse_store::verify::{
    Depth, SetProblem, SetVerification, TensorProblem, TensorVerification,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// What is wrong with a set, before anything was done about it.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    found: SetVerification,
    proofs: Proofs,
    manifest: Option<SetManifest>,
    containers: Vec<ContainerRecord>,
}

/// What became of a set.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The set.
    pub set: SetKey,
    /// What was done, one line each; empty when nothing was wrong.
    pub done: Vec<Healed>,
    /// What is still wrong.
    pub left: SetVerification,
    /// Slots that this model and packer can't heal.
    pub unhealed: Vec<Unhealed>,
}

/// One thing that is good again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healed {
    /// The slot and tensor; `None` for a file of the set itself.
    pub tensor: Option<(u64, String)>,
    /// What was wrong.
    pub was: String,
}

/// One slot that could not be healed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhealed {
    /// The slot.
    pub slot: u64,
    /// Its tensor.
    pub tensor: String,
    /// Why.
    pub why: UnhealedReason,
}

/// Why a slot could not be healed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnhealedReason {
    /// The plan chooses no such tensor of this model for the slot.
    #[error("the plan chooses no such tensor of this model")]
    NotChosen,
    /// The tensor, or the packer, is not the one that the set was made of.
    #[error("it packs to pack {actual} here, the set names {expected}")]
    OtherPack {
        /// The pack in the set.
        expected: PackKey,
        /// The pack that it has here.
        actual: PackKey,
    },
}

/// Why a set was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The model is needed, and none was given.
    #[error("set {set} can be repaired from its model only")]
    NeedsModel {
        /// The set.
        set: SetKey,
    },
    /// The model and the plan make another set.
    #[error("model and plan make set {actual}, expected {expected}")]
    OtherSet {
        /// The set to repair.
        expected: SetKey,
        /// The set that they make.
        actual: SetKey,
    },
    /// The packs could not be made.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The set could not be published.
    #[error(transparent)]
    Set(#[from] SetError),
    /// A folder of the set can't be trusted.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The repaired slots contradict each other.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The name of a model file can't stand in a container record.
    #[error(transparent)]
    Container(#[from] ContainerRecordError),
    /// The model changed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Hashes every object of a set, proves every payload that can be unpacked here, and compares
/// everything else. Damaged objects and records are in quarantine afterwards.
pub fn examine(
    store: &Store,
    set: SetKey,
    packers: &Packers,
    threads: NonZeroUsize,
    progress: &dyn Progress,
) -> Diagnosis {
    let manifest = store.read_set(set).ok();
    let lengths = |manifest: &SetManifest| manifest.entries().iter().map(|e| e.length).sum();
    progress.hear(Event::Begin {
        phase: Phase::Verify,
        // Once hashed, once proven.
        total_bytes: manifest.as_ref().map_or(0, lengths) * 2,
    });
    let hear = |bytes| progress.hear(Event::Done { bytes });
    let mut found = store.verify_set(set, Depth::Deep { threads }, &hear);
    let proofs = prove_set(store, &mut found, packers, threads, &hear);
    let containers = store.read_container_records(set);
    Diagnosis {
        found,
        proofs,
        manifest,
        containers: containers.map(|c| c.records).unwrap_or_default(),
    }
}

impl Diagnosis {
    /// What was found.
    pub fn found(&self) -> &SetVerification {
        &self.found
    }

    /// What proving its packs came to.
    pub fn proofs(&self) -> &Proofs {
        &self.proofs
    }

    /// Packs again what no inverse proves, because its layout rounds, and compares every byte. A
    /// pack of other weights or of another packer than these stays unproven.
    ///
    /// # Errors
    /// When the model can't be read.
    pub fn pack_again(
        &mut self,
        store: &Store,
        model: &Model,
        order: &Order,
    ) -> Result<(), ModelError> {
        let mut known: BTreeMap<PackKey, Option<TensorProblem>> = BTreeMap::new();
        let mut is_left = false;
        let good = self.found.tensors.iter_mut();
        for tensor in good.filter(|tensor| tensor.problem.is_none()) {
            let entry = &tensor.entry;
            if let Some(problem) = known.get(&entry.pack) {
                tensor.problem.clone_from(problem);
                continue;
            }
            if !rounded::is_rounded(store, entry) {
                continue;
            }
            let fits = |item: &&Item| (item.slot, &item.tensor) == (entry.slot, &entry.tensor);
            let problem = match order.items.iter().find(fits) {
                Some(item) => rounded::compare(store, entry, model, item)?,
                None => Again::Other,
            };
            let problem = match problem {
                Again::Equal => None,
                Again::Differs(problem) => Some(problem),
                Again::Other => {
                    is_left = true;
                    continue;
                }
            };
            self.proofs.judged(problem.is_none());
            known.insert(entry.pack, problem.clone());
            tensor.problem = problem;
        }
        if !is_left {
            self.proofs.forget_rounded();
        }
        Ok(())
    }

    /// The plan's name and digest; `None` where the manifest can't be read.
    pub fn plan(&self) -> Option<(&str, Digest)> {
        let manifest = self.manifest.as_ref()?;
        Some((manifest.plan(), manifest.plan_digest()))
    }

    /// Whether the model is needed to heal it.
    pub fn needs_model(&self) -> bool {
        let bad = self.found.bad_tensors().next().is_some();
        bad || !self.found.is_good() && (self.manifest.is_none() || self.containers.is_empty())
    }
}

/// Heals what was found wrong; `source` is the model and what the set's plan orders of it. Errors
/// leave what was healed by then, and the next run heals the rest.
pub fn heal(
    store: &Store,
    diagnosis: &Diagnosis,
    source: Option<(&Model, &Order)>,
    options: &Options,
    progress: &dyn Progress,
    cancel: &(dyn Fn() -> bool + Sync),
) -> Result<Repaired, RepairError> {
    let set = diagnosis.found.set;
    let mut repaired = Repaired {
        set,
        done: Vec::new(),
        left: diagnosis.found.clone(),
        unhealed: Vec::new(),
    };
    if diagnosis.found.is_good() {
        return Ok(repaired);
    }
    let needed = || source.ok_or(RepairError::NeedsModel { set });
    if diagnosis.needs_model() {
        needed()?;
    }
    match &diagnosis.manifest {
        None => {
            must_make(store, set, needed()?, options, progress, cancel)?;
            move_wrong_files(store, diagnosis)?;
            let (model, order) = needed()?;
            prepare(store, model, order, options, progress, cancel)?;
        }
        Some(manifest) => {
            move_wrong_files(store, diagnosis)?;
            let mut entries = manifest.entries().to_vec();
            let bad: Vec<_> = diagnosis.found.bad_tensors().collect();
            if !bad.is_empty() {
                let (model, order) = needed()?;
                let (items, reasons) = wanted(order, &bad, &mut repaired.unhealed);
                let order = Order {
                    items,
                    ..order.clone()
                };
                if !order.items.is_empty() {
                    let made =
                        make_packs(store, model, &order, reasons, options, progress, cancel)?;
                    take(&mut entries, made, &mut repaired.unhealed);
                }
            }
            if repaired.unhealed.is_empty() {
                let container = match diagnosis.containers.first() {
                    Some(container) => container.clone(),
                    None => container_of(needed()?.0)?,
                };
                let (plan, digest) = (manifest.plan().to_owned(), manifest.plan_digest());
                let healed = SetManifest::new(plan, digest, entries)?;
                store.publish_set(&healed, &container)?;
            }
        }
    }
    repaired.left = store.verify_set(set, Depth::Shallow, &|_| {});
    repaired.done = done(diagnosis, &repaired.left);
    log(store, &repaired, options.process_id);
    Ok(repaired)
}

/// Keeps a log of the run. Without one nothing is wrong.
fn log(store: &Store, repaired: &Repaired, process_id: u32) {
    let left = &repaired.left;
    let document = canonical::render(&json!({
        "schema": RUN_SCHEMA,
        "command": "repair",
        "set": repaired.set.to_string(),
        "tensor_count": left.tensors.len(),
        "healed_count": repaired.done.len(),
        "unhealed_count": repaired.unhealed.len(),
        "problem_count": left.problems.len() + left.bad_tensors().count(),
    }));
    if let Ok(uses) = store.use_log() {
        let _ = uses.keep_run(store.clock().wall_ns(), process_id, &document);
    }
}

/// Errors when an order makes another set. As long as nobody knows better, the damaged manifest of
/// this one is what shows that there is a set.
fn must_make(
    store: &Store,
    expected: SetKey,
    (model, order): (&Model, &Order),
    options: &Options,
    progress: &dyn Progress,
    cancel: &(dyn Fn() -> bool + Sync),
) -> Result<(), RepairError> {
    let actual = match foretell(store, model, order) {
        Some(actual) => actual,
        None => {
            let reasons = vec![Reason::New; order.items.len()];
            let made = make_packs(store, model, order, reasons, options, progress, cancel)?;
            key_of(order, &made)
        }
    };
    if actual == expected {
        return Ok(());
    }
    Err(RepairError::OtherSet { expected, actual })
}

/// The key of the set of packs that were made.
fn key_of(order: &Order, made: &[Made]) -> SetKey {
    let entries = order.items.iter().filter_map(|item| {
        let made = made.iter().find(|made| made.slot == item.slot)?;
        Some(SetEntry {
            slot: item.slot,
            tensor: item.tensor.clone(),
            pack: made.record.key(),
        })
    });
    set_key(
        &order.plan,
        &order.plan_digest,
        &entries.collect::<Vec<_>>(),
    )
}

/// The items whose slots are bad, and the reasons.
fn wanted(
    order: &Order,
    bad: &[&TensorVerification],
    unhealed: &mut Vec<Unhealed>,
) -> (Vec<Item>, Vec<Reason>) {
    let (mut items, mut reasons) = (Vec::new(), Vec::new());
    for tensor in bad {
        let Some(problem) = &tensor.problem else {
            continue;
        };
        let entry = &tensor.entry;
        let fits = |item: &&Item| (item.slot, &item.tensor) == (entry.slot, &entry.tensor);
        match order.items.iter().find(fits) {
            Some(item) => {
                items.push(item.clone());
                reasons.push(reason(problem));
            }
            None => unhealed.push(Unhealed {
                slot: entry.slot,
                tensor: entry.tensor.clone(),
                why: UnhealedReason::NotChosen,
            }),
        }
    }
    (items, reasons)
}

fn reason(problem: &TensorProblem) -> Reason {
    let was = problem.to_string();
    match problem {
        TensorProblem::Disagrees { .. } | TensorProblem::Unlike { .. } => Reason::Disputed(was),
        TensorProblem::Pack(_)
        | TensorProblem::PackInQuarantine { .. }
        | TensorProblem::Object(_)
        | TensorProblem::ObjectInQuarantine { .. } => Reason::Damaged(was),
    }
}

/// Puts what was made into its slots, where it is the slot's pack.
fn take(entries: &mut [ManifestEntry], made: Vec<Made>, unhealed: &mut Vec<Unhealed>) {
    for Made { slot, record } in made {
        let Some(entry) = entries.iter_mut().find(|entry| entry.slot == slot) else {
            continue;
        };
        let (expected, actual) = (entry.pack, record.key());
        if actual == expected {
            (entry.object, entry.length) = (record.object, record.length);
        } else {
            unhealed.push(Unhealed {
                slot,
                tensor: entry.tensor.clone(),
                why: UnhealedReason::OtherPack { expected, actual },
            });
        }
    }
}

/// Moves the set's own files that are wrong to quarantine.
fn move_wrong_files(store: &Store, diagnosis: &Diagnosis) -> Result<(), RepairError> {
    let name = diagnosis.found.set.to_string();
    let Some(dir) = store.open_folder(store.sets_dir(), &name)? else {
        return Ok(());
    };
    for problem in &diagnosis.found.problems {
        match problem {
            SetProblem::Manifest(_) => {
                store.quarantine_entry(&dir, MANIFEST_NAME, None);
            }
            SetProblem::Index(_) | SetProblem::IndexFile(_) => {
                store.quarantine_entry(&dir, INDEX_NAME, None);
            }
            SetProblem::Container(refusal) => {
                let path = match refusal {
                    ContainerRefusal::Name { path } | ContainerRefusal::Content { path, .. } => {
                        Some(path.as_path())
                    }
                    ContainerRefusal::File(refusal) => refusal.path(),
                };
                let name = path.and_then(|path| path.file_name()?.to_str());
                if let (Some(name), Some(records)) =
                    (name, store.open_folder(&dir, CONTAINERS_NAME)?)
                {
                    store.quarantine_entry(&records, name, None);
                }
            }
            SetProblem::Containers(_) | SetProblem::NoContainer { .. } => {}
        }
    }
    Ok(())
}

/// What a model says of itself, nothing of it being hashed as a whole.
fn container_of(model: &Model) -> Result<ContainerRecord, RepairError> {
    model.unchanged()?;
    let files = model.files().iter().map(|file| ContainerFile {
        name: file
            .path()
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        size: file.identity().size,
        digest: None,
    });
    Ok(ContainerRecord::new(files.collect(), Admission::Skipped)?)
}

/// What was wrong and is not any more.
fn done(diagnosis: &Diagnosis, left: &SetVerification) -> Vec<Healed> {
    let before = diagnosis.found.problems.iter();
    let set_files = before
        .filter(|problem| !left.problems.contains(problem))
        .map(|problem| Healed {
            tensor: None,
            was: problem.to_string(),
        });
    let still_bad: Vec<u64> = left.bad_tensors().map(|bad| bad.entry.slot).collect();
    let tensors = diagnosis.found.bad_tensors().filter_map(|bad| {
        let entry = &bad.entry;
        let is_good = !still_bad.contains(&entry.slot) && !left.tensors.is_empty();
        Some(Healed {
            tensor: Some((entry.slot, entry.tensor.clone())),
            was: bad.problem.as_ref().filter(|_| is_good)?.to_string(),
        })
    });
    set_files.chain(tensors).collect()
}

impl Repaired {
    /// Whether nothing is wrong any more.
    pub fn is_good(&self) -> bool {
        self.left.is_good() && self.unhealed.is_empty()
    }
}

impl RepairError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NeedsModel { .. } | Self::OtherSet { .. } => Blame::Caller,
            Self::Prepare(error) => error.blame(),
            Self::Set(error) => error.blame(),
            Self::Folder(error) => error.blame(),
            Self::Manifest(error) => error.blame(),
            Self::Container(_) => Blame::Source,
            Self::Model(error) => error.blame(),
        }
    }
}
