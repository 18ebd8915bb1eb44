//! Reading the other side's directory into the store.
//!
//! Invariants:
//! - every file is opened by descriptor below the directory, and no symlink is followed;
//! - all records and lengths are read before the first payload, and room is reserved;
//! - a payload is stored after it hashes to the recorded digest and its inverse transform hashes to
//!   the recorded source tensor's; both are of the bytes in memory that are then published;
//! - packs get our keys and our packer's fingerprint; they and the set come after all objects.
//!
//! Never: believes a receipt, a key or a path that the directory holds.

mod error;
mod filing;

pub use error::ForeignImportError;

use super::keys::slot_of;
use super::parse::{parse_manifest, parse_tensor};
use super::records::{
    ForeignSet, ForeignTensor, INDEX_NAME, MANIFEST_NAME, Revision, TENSORS_NAME,
};
use crate::model::Model;
use crate::proof;
use filing::{MadeOf, plan_of};
use packhouse_base::digest::{Digest, ObjectDigest, SetKey, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::PackIdentity;
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::Packers;
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::object::{ObjectTrust, PendingReceipt};
use packhouse_store::payload::{Hashing, Payload as HashedPayload};
use packhouse_store::publish::{PublishOptions, SmallOutcome};
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::reserve::Reservation;
use packhouse_store::root::Store;
use packhouse_store::set::SetOutcome;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;
use std::collections::{BTreeMap, BTreeSet};

/// What an import brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignImport {
    /// The set.
    pub set: SetKey,
    /// Its key over there.
    pub foreign_key: Digest,
    /// The plan that it is filed under.
    pub plan: String,
    /// How it came to be there.
    pub outcome: SetOutcome,
    /// Tensors.
    pub tensor_count: u64,
    /// Objects that the store lacked.
    pub new_object_count: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Objects that it had.
    pub reused_object_count: u64,
    /// Their bytes.
    pub reused_bytes: u64,
    /// Pack records that the store lacked.
    pub new_pack_count: u64,
    /// Receipts recorded for this user.
    pub receipt_count: u64,
}

/// Reads a directory of the other side, `dir` named `name`, into a store. With the model at hand
/// the records are compared with it too, and the set is filed as made of it. `progress` is told
/// payload bytes so far and in all.
pub fn import(
    store: &Store,
    packers: &Packers,
    (dir, name): (&Dir, &str),
    model: Option<&Model>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ForeignImport, ForeignImportError> {
    let set = read_records(dir, name)?;
    let made_of = MadeOf::new(store, &set, model)?;
    let tensors = open(dir, TENSORS_NAME)?;
    let mut payloads = Vec::with_capacity(set.tensors.len());
    for tensor in &set.tensors {
        payloads.push(Payload::open(&tensors, tensor)?);
    }
    let mut objects = Objects::reserve(store, &set)?;
    let total_bytes = set.payload_bytes();
    let (mut packs, mut done_bytes) = (Vec::new(), 0);
    for payload in &payloads {
        packs.push(objects.take(packers, payload)?);
        done_bytes += payload.tensor.payload_bytes;
        progress(done_bytes, total_bytes);
    }
    file_set((store, packers), &set, &packs, objects, &made_of)
}

/// The SHA-256 of the model that a directory of the other side says it was made of. All its records
/// are read and must hold together, no payload is.
pub fn model_of((dir, name): (&Dir, &str)) -> Result<Digest, ForeignImportError> {
    Ok(read_records(dir, name)?.model.sha256)
}

/// Reads and proves everything but payloads.
fn read_records(dir: &Dir, name: &str) -> Result<ForeignSet, ForeignImportError> {
    let set = parse_manifest(&read(dir, MANIFEST_NAME, MANIFEST_BYTES_MAX)?)?;
    if set.tensors.is_empty() {
        return Err(ForeignImportError::Empty);
    }
    let key = set.key();
    if key.to_string() != name {
        return Err(ForeignImportError::Name {
            name: name.chars().take(80).collect(),
            key,
        });
    }
    if set.revision == Revision::Three {
        same_index(&set.index(), &read(dir, INDEX_NAME, MANIFEST_BYTES_MAX)?)?;
    }
    let tensors = open(dir, TENSORS_NAME)?;
    for tensor in &set.tensors {
        let name = format!("{}.json", tensor.key());
        parse_tensor(tensor, &read(&tensors, &name, TENSOR_BYTES_MAX)?)?;
    }
    Ok(set)
}

fn same_index(expected: &[u8], actual: &[u8]) -> Result<(), ForeignImportError> {
    if expected == actual {
        return Ok(());
    }
    // With their newlines, so that a last line without one differs.
    let mut ours = expected.split_inclusive(|byte| *byte == b'\n');
    let mut theirs = actual.split_inclusive(|byte| *byte == b'\n');
    let text = |line: Option<&[u8]>| {
        let text = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
        text.chars().take(200).collect::<String>()
    };
    let mut line = 1;
    loop {
        let (expected, actual) = (ours.next(), theirs.next());
        if expected != actual || expected.is_none() {
            return Err(ForeignImportError::Index {
                line,
                expected: text(expected),
                actual: text(actual),
            });
        }
        line += 1;
    }
}

/// A payload file that is open and has the right length.
struct Payload<'t> {
    tensor: &'t ForeignTensor,
    admitted: Admitted,
    file: File,
}

impl<'t> Payload<'t> {
    fn open(tensors: &Dir, tensor: &'t ForeignTensor) -> Result<Self, ForeignImportError> {
        let name = || tensor.identity.tensor_name.clone();
        let q4_0 = GgmlType::from_name("Q4_0").expect("because the type table has it");
        let admitted = Layout::Q4_0Xe2DpasV2
            .admit(q4_0, &tensor.identity.tensor_shape, &BTreeMap::new())
            .map_err(|source| ForeignImportError::Layout {
                tensor: name(),
                source,
            })?;
        let file = tensors
            .open_file(format!("{}.bin", tensor.key()))
            .map_err(|error| refuse(error, "regular file"))?;
        let stat = file.stat().map_err(ForeignImportError::Fs)?;
        let path = file.path().to_owned();
        if stat.kind != FileKind::Regular {
            return Err(ForeignImportError::Kind {
                path,
                expected: "regular file",
            });
        }
        if stat.size != admitted.payload_bytes() {
            return Err(ForeignImportError::Length {
                tensor: name(),
                path,
                expected: admitted.payload_bytes(),
                actual: stat.size,
            });
        }
        Ok(Self {
            tensor,
            admitted,
            file,
        })
    }

    /// Reads the payload and proves it: its own hash, and its source's, taken side by side.
    fn prove(&self, packers: &Packers) -> Result<HashedPayload<Vec<u8>>, ForeignImportError> {
        let kernel = packers.kernel(&self.admitted)?;
        let tensor = || self.tensor.identity.tensor_name.clone();
        let path = || self.file.path().to_owned();
        let mut bytes = vec![0; length(self.admitted.payload_bytes())];
        let filled = self.file.read_full_at(0, &mut bytes);
        let filled = filled.map_err(ForeignImportError::Fs)?;
        if filled < bytes.len() {
            return Err(ForeignImportError::Length {
                tensor: tensor(),
                path: path(),
                expected: self.admitted.payload_bytes(),
                actual: filled as u64,
            });
        }
        let mut source = vec![0; length(self.admitted.source_bytes())];
        // Any bytes can be unpacked: the layout only moves them.
        let inverse = kernel.inverse();
        let inverse = inverse.expect("because such sets are of one layout, which has one");
        inverse.unpack(&bytes, &mut source);
        let [payload, source] = hash_both(bytes, source);
        let (expected, actual) = (self.tensor.payload_sha256, payload.digest().0);
        if expected != actual {
            return Err(ForeignImportError::Payload {
                tensor: tensor(),
                path: path(),
                expected,
                actual,
            });
        }
        let (expected, actual) = (self.tensor.source_sha256, source.digest().0);
        if expected != actual {
            return Err(ForeignImportError::Source {
                tensor: tensor(),
                path: path(),
                expected,
                actual,
            });
        }
        Ok(payload)
    }

    fn record(&self, packers: &Packers) -> Result<PackRecord, ForeignImportError> {
        let (admitted, geometry) = (&self.admitted, self.admitted.geometry());
        Ok(PackRecord {
            identity: PackIdentity {
                layout: admitted.layout().id().to_owned(),
                layout_version: admitted.layout().version(),
                parameters: admitted.parameters().clone(),
                fingerprint: packers.fingerprint(admitted)?,
                type_id: admitted.ty().id(),
                dims: admitted.dims().to_vec(),
                source: TensorDigest(self.tensor.source_sha256),
            },
            object: ObjectDigest(self.tensor.payload_sha256),
            length: admitted.payload_bytes(),
            sample: SampleGeometry {
                unit_rows: geometry.unit_rows,
                row_bytes: geometry.row_bytes,
                row_count: geometry.row_count,
            },
        })
    }
}

/// Objects on their way into the store.
struct Objects<'s> {
    store: &'s Store,
    room: Reservation,
    present: BTreeSet<ObjectDigest>,
    counted: BTreeSet<ObjectDigest>,
    pending: Vec<PendingReceipt>,
    new: (u64, u64),
    reused: (u64, u64),
}

impl<'s> Objects<'s> {
    fn reserve(store: &'s Store, set: &ForeignSet) -> Result<Self, ForeignImportError> {
        let mut pending = Vec::new();
        let (mut present, mut wanted) = (BTreeSet::new(), BTreeMap::new());
        for tensor in &set.tensors {
            let object = ObjectDigest(tensor.payload_sha256);
            match store.object(&object, tensor.payload_bytes, ObjectTrust::Receipt) {
                Ok(found) => {
                    pending.extend(found.pending_receipt());
                    present.insert(object);
                }
                Err(_) => {
                    wanted.insert(object, tensor.payload_bytes);
                }
            }
        }
        let wanted_bytes = wanted.values().sum();
        let room = store.reserve(wanted_bytes, ROOM_WAIT_NS);
        let room = room.map_err(|source| ForeignImportError::Room {
            wanted_bytes,
            source: Box::new(source),
        })?;
        Ok(Self {
            store,
            room,
            present,
            counted: BTreeSet::new(),
            pending,
            new: (0, 0),
            reused: (0, 0),
        })
    }

    /// Proves a payload and stores it where the store lacks it.
    fn take(
        &mut self,
        packers: &Packers,
        payload: &Payload<'_>,
    ) -> Result<PackRecord, ForeignImportError> {
        let proven = payload.prove(packers)?;
        let record = payload.record(packers)?;
        let is_first = self.counted.insert(record.object);
        if self.present.insert(record.object) {
            let options = PublishOptions { drop_cache: true };
            let mut batch = self.store.batch(&self.room);
            batch.add_payload(&proven, &|| false)?;
            for object in batch.finish(options, &|| false)? {
                self.pending.extend(object.pending_receipt());
            }
            self.new = (self.new.0 + 1, self.new.1 + record.length);
        } else if is_first {
            self.reused = (self.reused.0 + 1, self.reused.1 + record.length);
        }
        Ok(record)
    }
}

/// Publishes packs, then the set, under the plan that it fits.
fn file_set(
    (store, packers): (&Store, &Packers),
    foreign: &ForeignSet,
    packs: &[PackRecord],
    objects: Objects<'_>,
    made_of: &MadeOf,
) -> Result<ForeignImport, ForeignImportError> {
    let mut new_pack_count = 0;
    for record in packs {
        match proof::publish_pack(store, record, packers).map_err(Box::new)? {
            SmallOutcome::Created => new_pack_count += 1,
            SmallOutcome::Equal => {}
        }
    }
    let entries = foreign
        .tensors
        .iter()
        .zip(packs)
        .filter_map(|(tensor, pack)| {
            Some(ManifestEntry {
                slot: slot_of(&tensor.identity.tensor_name)?,
                tensor: tensor.identity.tensor_name.clone(),
                pack: pack.key(),
                object: pack.object,
                length: pack.length,
            })
        });
    let (plan, plan_digest) = plan_of(foreign);
    let manifest = SetManifest::new(plan.clone(), plan_digest, entries.collect())?;
    let set = manifest.key();
    let outcome = store
        .publish_set(&manifest, &made_of.container)
        .map_err(Box::new)?;
    if let Ok(log) = store.use_log() {
        // Without the note gc goes by the set's age; with a path it looks for the model there.
        let _ = log.note_set(set, made_of.path.as_deref(), store.clock().wall_ns());
    }
    Ok(ForeignImport {
        set,
        foreign_key: foreign.key(),
        plan,
        outcome,
        tensor_count: foreign.tensors.len() as u64,
        new_object_count: objects.new.0,
        new_bytes: objects.new.1,
        reused_object_count: objects.reused.0,
        reused_bytes: objects.reused.1,
        new_pack_count,
        receipt_count: store.settle(&objects.pending).recorded_count,
    })
}

/// Of 187 tensors the manifest has about 300 KB. As values, texts take up to 32 times their length.
const MANIFEST_BYTES_MAX: u64 = 4 << 20;
const TENSOR_BYTES_MAX: u64 = 64 << 10;
/// Hashed of each at a time.
const STEP_BYTES: usize = 1 << 20;
const ROOM_WAIT_NS: u64 = 10_000_000_000;

fn open(dir: &Dir, name: &str) -> Result<Dir, ForeignImportError> {
    dir.open_dir(name).map_err(|error| refuse(error, "folder"))
}

fn read(dir: &Dir, name: &str, limit: u64) -> Result<Vec<u8>, ForeignImportError> {
    let file = dir
        .open_file(name)
        .map_err(|error| refuse(error, "regular file"))?;
    let stat = file.stat().map_err(ForeignImportError::Fs)?;
    let path = file.path().to_owned();
    if stat.kind != FileKind::Regular {
        return Err(ForeignImportError::Kind {
            path,
            expected: "regular file",
        });
    }
    if stat.size > limit {
        return Err(ForeignImportError::TooLong {
            path,
            limit,
            actual: stat.size,
        });
    }
    file.read_small(limit).map_err(ForeignImportError::Fs)
}

fn refuse(error: FsError, expected: &'static str) -> ForeignImportError {
    match error.kind {
        FsErrorKind::NotFound => ForeignImportError::Missing { path: error.path },
        FsErrorKind::Symlink | FsErrorKind::NotDirectory | FsErrorKind::IsDirectory => {
            ForeignImportError::Kind {
                path: error.path,
                expected,
            }
        }
        _ => ForeignImportError::Fs(error),
    }
}

/// Hashes two buffers of one length side by side, which is faster than one after the other.
fn hash_both(first: Vec<u8>, second: Vec<u8>) -> [HashedPayload<Vec<u8>>; 2] {
    let [mut first, mut second] = [first, second].map(Hashing::new);
    while first.left_bytes() > 0 || second.left_bytes() > 0 {
        Hashing::advance(&mut [&mut first, &mut second], STEP_BYTES);
    }
    [first, second].map(|hashing| {
        let hashed = hashing.finish().ok();
        hashed.expect("because nothing is left to hash")
    })
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("because the file of this length was opened on this host")
}
