//! Is a payload what its source packs to? The one thing that hashing an object can't say.
//!
//! A pack record binds an object to a source by the word of whoever wrote it. Where the packers
//! here have the fingerprint of the record, the payload is unpacked, and its source's SHA-256 is
//! the one in the pack key or the record is wrong. Invariants:
//! - a payload of another packer is never judged, neither proven nor wrong;
//! - one of a layout that rounds is never proven; where no source at all packs to it, it is wrong;
//! - proven means equal: where a payload is longer than its source, it is packed again too;
//! - two intact objects of one key are no dispute before the one that is there was proven.
//!
//! Never: reads the model.

use packhouse_base::digest::{Digest, Fingerprint, PackKey, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::{Layout, NotInvertible, Refusal, first_impossible};
use packhouse_pack::{Kernel, NoKernel, Packers};
use packhouse_store::manifest::ManifestEntry;
use packhouse_store::object::ObjectRefusal;
use packhouse_store::pack::PublishPackError;
use packhouse_store::publish::SmallOutcome;
use packhouse_store::quarantine::Moved;
use packhouse_store::record::PackRecord;
use packhouse_store::root::Store;
use packhouse_store::verify::{SetVerification, TensorProblem};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// What is known of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It is what its source packs to.
    Proven,
    /// It is not.
    Wrong(Wrong),
    /// Nobody here can say.
    NoInverse(NoInverse),
}

/// What shows that a payload is not what its source packs to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It has another length than a payload of that tensor.
    #[error("payload is not what its source packs to: {actual} bytes, expected {expected}")]
    Length {
        /// The length that the tensor packs to.
        expected: u64,
        /// Its length.
        actual: u64,
    },
    /// It is another source's.
    #[error(
        "payload is not what its source packs to: its source has SHA-256 {actual}, expected \
         {expected}"
    )]
    Source {
        /// The source in the pack key.
        expected: TensorDigest,
        /// The source that it unpacks to.
        actual: TensorDigest,
    },
    /// No source packs to it.
    #[error("payload is what no source packs to: byte {at}")]
    Impossible {
        /// The first byte that can't be.
        at: u64,
    },
    /// Its source, packed again, is other bytes.
    #[error("payload is not what its source packs to: byte {at} is another one when packed again")]
    Packed {
        /// The first byte that differs.
        at: u64,
    },
    /// Its source is right, and bytes that hold nothing of it are not.
    #[error("payload is not what its source packs to: byte {at} is padding and differs")]
    Padding {
        /// The first byte that differs.
        at: u64,
    },
}

/// Why nobody here can say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum NoInverse {
    /// No such layout.
    #[error("{layout} version {version}: not a layout of this build")]
    Layout {
        /// Its id.
        layout: String,
        /// Its version.
        version: u64,
    },
    /// The layout keeps too little of the source.
    #[error("{}, which rounds what it packs", .0.layout)]
    NotInvertible(#[from] NotInvertible),
    /// No such type.
    #[error("type {type_id}: not a type of this build")]
    Type {
        /// Its id.
        type_id: u32,
    },
    /// The layout does not take the tensor.
    #[error("{0}")]
    Refused(String),
    /// No packer of ours makes it.
    #[error("{0}")]
    Kernel(String),
    /// Another packer made it.
    #[error("{layout} of the packer with fingerprint {actual}; here it is {expected}")]
    Fingerprint {
        /// The layout.
        layout: String,
        /// The fingerprint of the packers here.
        expected: Fingerprint,
        /// The fingerprint in the record.
        actual: Fingerprint,
    },
}

impl From<Refusal> for NoInverse {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.to_string())
    }
}

impl From<NoKernel> for NoInverse {
    fn from(missing: NoKernel) -> Self {
        Self::Kernel(missing.to_string())
    }
}

/// Proves a payload against its record, on the calling thread.
pub fn prove(payload: &[u8], record: &PackRecord, packers: &Packers) -> Proof {
    match packer(record, packers) {
        Ok(kernel) => judge(payload, record, &kernel, NonZeroUsize::MIN),
        Err(why) => Proof::NoInverse(why),
    }
}

/// Proves a payload that is in the store. Its bytes are not hashed: the caller had them hashed.
///
/// # Errors
/// When its object is not there or can't be read.
pub fn prove_stored(
    store: &Store,
    record: &PackRecord,
    packers: &Packers,
    threads: NonZeroUsize,
) -> Result<Proof, ObjectRefusal> {
    let kernel = match packer(record, packers) {
        Ok(kernel) => kernel,
        Err(why) => return Ok(Proof::NoInverse(why)),
    };
    if let Some(wrong) = wrong_length(record.length, &kernel) {
        return Ok(Proof::Wrong(wrong));
    }
    let object = store.object_for_sample(&record.object, record.length)?;
    let mut payload = vec![0; usize::try_from(record.length).unwrap_or(usize::MAX)];
    let read = object.file().read_full_at(0, &mut payload);
    let filled = read.map_err(|error| ObjectRefusal::Fs {
        digest: record.object,
        error,
    })?;
    Ok(judge(&payload[..filled], record, &kernel, threads))
}

/// The packer here that made a pack, if there is one.
fn packer(record: &PackRecord, packers: &Packers) -> Result<Kernel, NoInverse> {
    let identity = &record.identity;
    let layout = Layout::from_id(&identity.layout)
        .filter(|layout| layout.version() == identity.layout_version)
        .ok_or_else(|| NoInverse::Layout {
            layout: identity.layout.clone(),
            version: identity.layout_version,
        })?;
    let ty = GgmlType::from_id(identity.type_id).map_err(|_| NoInverse::Type {
        type_id: identity.type_id,
    })?;
    let admitted = layout.admit(ty, &identity.dims, &identity.parameters)?;
    let expected = packers.fingerprint(&admitted)?;
    if identity.fingerprint != expected {
        return Err(NoInverse::Fingerprint {
            layout: identity.layout.clone(),
            expected,
            actual: identity.fingerprint,
        });
    }
    Ok(packers.kernel(&admitted)?)
}

fn wrong_length(actual: u64, kernel: &Kernel) -> Option<Wrong> {
    let expected = kernel.admitted().payload_bytes();
    (actual != expected).then_some(Wrong::Length { expected, actual })
}

fn judge(payload: &[u8], record: &PackRecord, kernel: &Kernel, threads: NonZeroUsize) -> Proof {
    if let Some(wrong) = wrong_length(payload.len() as u64, kernel) {
        return Proof::Wrong(wrong);
    }
    let expected = record.identity.source;
    let admitted = kernel.admitted();
    let hashed = |source: &[u8]| TensorDigest(Digest::of(source));
    if admitted.layout() == Layout::Identity {
        return same_source(expected, hashed(payload));
    }
    let inverse = match (kernel.inverse(), first_impossible(admitted, payload)) {
        (_, Some(at)) => return Proof::Wrong(Wrong::Impossible { at }),
        (Err(why), None) => return Proof::NoInverse(why.into()),
        (Ok(inverse), None) => inverse,
    };
    let mut source = vec![0; usize::try_from(admitted.source_bytes()).unwrap_or(usize::MAX)];
    inverse.unpack_parallel(payload, &mut source, threads);
    let proof = same_source(expected, hashed(&source));
    // Of equal lengths, an exact inverse is one to one, so that no other payload has this source.
    if proof != Proof::Proven || payload.len() == source.len() {
        return proof;
    }
    let mut again = vec![0; payload.len()];
    kernel.pack_parallel(&source, &mut again, threads);
    match payload.iter().zip(&again).position(|(a, b)| a != b) {
        Some(at) => Proof::Wrong(Wrong::Padding { at: at as u64 }),
        None => Proof::Proven,
    }
}

fn same_source(expected: TensorDigest, actual: TensorDigest) -> Proof {
    if actual == expected {
        return Proof::Proven;
    }
    Proof::Wrong(Wrong::Source { expected, actual })
}

/// What proving the packs of a set came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proofs {
    /// Packs that are what their sources pack to.
    pub proven_count: u64,
    /// Packs that nobody here can judge.
    pub unproven_count: u64,
    /// Why not, each reason once.
    pub unproven_why: BTreeSet<NoInverse>,
}

impl Proofs {
    /// Whether packs of layouts that round are among those that nobody can judge: packing them
    /// again could.
    pub fn has_rounded(&self) -> bool {
        let is_rounded = |why: &NoInverse| matches!(why, NoInverse::NotInvertible(_));
        self.unproven_why.iter().any(is_rounded)
    }

    /// One that nobody could judge was packed again and is judged: proven, or wrong.
    pub(crate) fn judged(&mut self, is_proven: bool) {
        self.unproven_count = self.unproven_count.saturating_sub(1);
        self.proven_count += u64::from(is_proven);
    }

    /// All that round were judged: that they have no inverse is no reason any more.
    pub(crate) fn forget_rounded(&mut self) {
        let is_rounded = |why: &NoInverse| matches!(why, NoInverse::NotInvertible(_));
        self.unproven_why.retain(|why| !is_rounded(why));
    }

    /// Counts one more; answers what is wrong with it.
    pub(crate) fn count(&mut self, proof: Proof) -> Option<Wrong> {
        match proof {
            Proof::Proven => self.proven_count += 1,
            Proof::Wrong(wrong) => return Some(wrong),
            Proof::NoInverse(why) => {
                self.unproven_count += 1;
                self.unproven_why.insert(why);
            }
        }
        None
    }
}

/// Proves every pack of a set that was hashed and found good, and adds what is wrong to what was
/// found. `progress` is told bytes as they are proven.
pub fn prove_set(
    store: &Store,
    found: &mut SetVerification,
    packers: &Packers,
    threads: NonZeroUsize,
    progress: &dyn Fn(u64),
) -> Proofs {
    let mut proofs = Proofs::default();
    let mut known: BTreeMap<PackKey, Option<TensorProblem>> = BTreeMap::new();
    let good = found.tensors.iter_mut();
    for tensor in good.filter(|tensor| tensor.problem.is_none()) {
        let entry = &tensor.entry;
        let problem = known
            .entry(entry.pack)
            .or_insert_with(|| problem(store, entry, packers, threads, &mut proofs));
        tensor.problem.clone_from(problem);
        progress(entry.length);
    }
    proofs
}

fn problem(
    store: &Store,
    entry: &ManifestEntry,
    packers: &Packers,
    threads: NonZeroUsize,
    proofs: &mut Proofs,
) -> Option<TensorProblem> {
    let record = match store.lookup_pack(&entry.pack) {
        Ok(record) => record,
        Err(refusal) => return Some(TensorProblem::Pack(refusal)),
    };
    match prove_stored(store, &record, packers, threads) {
        Ok(proof) => proofs.count(proof).map(|wrong| TensorProblem::Unlike {
            key: entry.pack,
            why: wrong.to_string(),
        }),
        Err(refusal) => Some(TensorProblem::Object(refusal)),
    }
}

/// Publishes a record. One that is there with another object, intact, is proven: where it is wrong
/// it goes to quarantine, and this one is published.
///
/// # Errors
/// As `Store::publish_pack`; of two intact objects only when nobody here can say which is wrong.
pub(crate) fn publish_pack(
    store: &Store,
    record: &PackRecord,
    packers: &Packers,
) -> Result<SmallOutcome, PublishPackError> {
    let published = store.publish_pack(record);
    if !matches!(published, Err(PublishPackError::NotDeterministic { .. })) {
        return published;
    }
    let key = record.key();
    let theirs = store.lookup_pack(&key);
    let proof = theirs.map(|theirs| prove_stored(store, &theirs, packers, NonZeroUsize::MIN));
    if !matches!(proof, Ok(Ok(Proof::Wrong(_)))) {
        return published;
    }
    match store.distrust_pack(&key) {
        Moved::To(_) | Moved::Gone => store.publish_pack(record),
        Moved::ReadOnly | Moved::Failed(_) | Moved::NotTried => published,
    }
}
