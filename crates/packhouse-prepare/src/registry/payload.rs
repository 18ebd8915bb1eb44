//! One registered payload into a store, as a set of one tensor.
//!
//! Invariants:
//! - the bytes that are stored are those that were registered, hashed again as they are read;
//! - they are believed only once their layout's inverse hashes to the tensor's bytes in the model,
//!   read now: the words of whoever registered them prove nothing;
//! - the pack gets our key and our packer's fingerprint; it and the set come after the object.
//!
//! Never: takes a payload of a layout that keeps too little of its source.

use super::look::{Look, LookError};
use super::record::Record;
use super::{ArtifactKind, What};
use crate::model::{Model, ModelError, ModelFile};
use crate::proof::{self, NoInverse, Proof, Wrong};
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, Hasher, ObjectDigest, SetKey, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_container::Tensor;
use packhouse_layout::{Admitted, Layout, Refusal};
use packhouse_pack::{NoKernel, Packers};
use packhouse_store::container_record::{
    Admission, ContainerFile, ContainerRecord, ContainerRecordError,
};
use packhouse_store::manifest::{ManifestEntry, ManifestError, SetManifest};
use packhouse_store::object::ObjectTrust;
use packhouse_store::pack::PublishPackError;
use packhouse_store::payload::Payload;
use packhouse_store::publish::{PublishError, PublishOptions, SmallOutcome};
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::reserve::RoomError;
use packhouse_store::root::Store;
use packhouse_store::set::{SetError, SetOutcome};
use packhouse_sys::fs::{Fs, FsError};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

/// The plan under which such sets are filed.
pub const REGISTERED_PLAN: &str = "registered";

/// Which tensor a payload is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadOf<'a> {
    /// The tensor's name in the model.
    pub tensor: &'a str,
    /// Parameters of the layout; those that are not given have their defaults.
    pub parameters: &'a BTreeMap<String, u64>,
    /// SHA-256 of each of the model's files, hashed now; that they make the key that the record
    /// names is the caller's to compare.
    pub files: &'a [Digest],
}

/// What an import brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadImport {
    /// The set.
    pub set: SetKey,
    /// How it came to be there.
    pub outcome: SetOutcome,
    /// The object.
    pub object: ObjectDigest,
    /// Its length.
    pub bytes: u64,
    /// Whether the store lacked it.
    pub is_new_object: bool,
    /// Whether it lacked the pack's record.
    pub is_new_pack: bool,
}

/// Why a payload was not imported.
#[derive(Debug, thiserror::Error)]
pub enum PayloadImportError {
    /// The artifact is a folder.
    #[error("{} is a folder; a payload is one file", path.display())]
    Folder {
        /// The artifact.
        path: PathBuf,
    },
    /// No layout of this build has the registered name.
    #[error("{layout} is not a layout of this build")]
    Layout {
        /// The name.
        layout: String,
    },
    /// The model has no such tensor.
    #[error("{} has no tensor {tensor}", path.display())]
    Tensor {
        /// The name.
        tensor: String,
        /// The model's first file.
        path: PathBuf,
    },
    /// The layout does not take the tensor.
    #[error("{tensor}: {source}")]
    Refused {
        /// The tensor.
        tensor: String,
        /// Why.
        source: Refusal,
    },
    /// No packer for the layout on this CPU.
    #[error(transparent)]
    NoKernel(#[from] NoKernel),
    /// The tensor packs to another length.
    #[error("{} has {actual} bytes, {tensor} packs to {expected}", path.display())]
    Length {
        /// The tensor.
        tensor: String,
        /// The artifact.
        path: PathBuf,
        /// The length that the tensor packs to.
        expected: u64,
        /// Its length.
        actual: u64,
    },
    /// The artifact could not be looked at.
    #[error(transparent)]
    Look(#[from] LookError),
    /// It is not what was registered.
    #[error("{} hashes to {actual}, registered is {expected}", path.display())]
    OtherBytes {
        /// The artifact.
        path: PathBuf,
        /// The digest registered.
        expected: Digest,
        /// The digest of what was read.
        actual: Digest,
    },
    /// The payload is not the tensor's.
    #[error("{tensor}: {wrong}")]
    Wrong {
        /// The tensor.
        tensor: String,
        /// What shows it.
        wrong: Wrong,
    },
    /// Nobody can say whether it is.
    #[error("nobody here can prove it: {0}")]
    NoInverse(NoInverse),
    /// The model can't be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There is no room for it.
    #[error("{wanted_bytes} bytes are new to this store: {source}")]
    Room {
        /// Its length.
        wanted_bytes: u64,
        /// Why there is no room.
        source: Box<RoomError>,
    },
    /// The object could not be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The pack could not be published.
    #[error(transparent)]
    PublishPack(#[from] Box<PublishPackError>),
    /// The set is none that can be filed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// No container record can be made of the model.
    #[error(transparent)]
    Container(#[from] ContainerRecordError),
    /// The set could not be published.
    #[error(transparent)]
    PublishSet(#[from] Box<SetError>),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Takes a registered file as the payload of one tensor of a model.
///
/// # Errors
/// Unless it is, byte for byte, what was registered and what the tensor packs to.
pub fn import_payload(
    store: &Store,
    packers: &Packers,
    fs: &dyn Fs,
    record: &Record,
    model: &Model,
    of: &PayloadOf<'_>,
) -> Result<PayloadImport, PayloadImportError> {
    let (file, tensor) = find(model, of.tensor)?;
    let admitted = admit(record, tensor, of)?;
    let container = container(model, of.files)?;
    let payload = read(fs, record, &admitted, of)?;
    let pack = PackRecord {
        identity: PackIdentity {
            layout: admitted.layout().id().to_owned(),
            layout_version: admitted.layout().version(),
            parameters: admitted.parameters().clone(),
            fingerprint: packers.fingerprint(&admitted)?,
            type_id: admitted.ty().id(),
            dims: admitted.dims().to_vec(),
            source: source_digest(file, tensor)?,
        },
        object: payload.digest(),
        length: admitted.payload_bytes(),
        sample: sample(&admitted),
    };
    model.unchanged()?;
    match proof::prove(payload.bytes(), &pack, packers) {
        Proof::Proven => {}
        Proof::Wrong(wrong) => {
            let tensor = of.tensor.to_owned();
            return Err(PayloadImportError::Wrong { tensor, wrong });
        }
        Proof::NoInverse(why) => return Err(PayloadImportError::NoInverse(why)),
    }
    let import = publish((store, packers), &payload, &pack, of.tensor, &container)?;
    if let Ok(log) = store.use_log() {
        // Without the note gc goes by the set's age.
        let path = file.path().is_absolute().then(|| file.path());
        let _ = log.note_set(import.set, path, store.clock().wall_ns());
    }
    Ok(import)
}

fn find<'m>(
    model: &'m Model,
    name: &str,
) -> Result<(&'m ModelFile, &'m Tensor), PayloadImportError> {
    let shards = model.files().iter().zip(model.container().shards());
    let mut found = shards.filter_map(|(file, shard)| Some((file, shard.tensor(name)?)));
    found.next().ok_or_else(|| PayloadImportError::Tensor {
        tensor: name.to_owned(),
        path: model
            .files()
            .first()
            .map(|file| file.path().to_owned())
            .unwrap_or_default(),
    })
}

/// The registered layout on the tensor; its payload must have the registered length.
fn admit(
    record: &Record,
    tensor: &Tensor,
    of: &PayloadOf<'_>,
) -> Result<Admitted, PayloadImportError> {
    if record.artifact().kind() == ArtifactKind::Folder {
        let path = record.path().to_owned();
        return Err(PayloadImportError::Folder { path });
    }
    let layout = record.binding().layout();
    let layout = Layout::from_id(layout).ok_or_else(|| PayloadImportError::Layout {
        layout: layout.to_owned(),
    })?;
    let name = || of.tensor.to_owned();
    let admitted = layout
        .admit(tensor.ggml_type, &tensor.dims, of.parameters)
        .map_err(|source| PayloadImportError::Refused {
            tensor: name(),
            source,
        })?;
    let (expected, actual) = (admitted.payload_bytes(), record.artifact().bytes());
    if actual != expected {
        return Err(PayloadImportError::Length {
            tensor: name(),
            path: record.path().to_owned(),
            expected,
            actual,
        });
    }
    Ok(admitted)
}

fn container(model: &Model, digests: &[Digest]) -> Result<ContainerRecord, ContainerRecordError> {
    let mut digests = digests.iter();
    let files = model.files().iter().map(|file| {
        let name = file.path().file_name().unwrap_or_default();
        ContainerFile {
            name: name.to_string_lossy().into_owned(),
            size: file.identity().size,
            digest: digests.next().copied(),
        }
    });
    ContainerRecord::new(files.collect(), Admission::Hashed)
}

/// Reads the artifact, which must be what was registered.
fn read(
    fs: &dyn Fs,
    record: &Record,
    admitted: &Admitted,
    of: &PayloadOf<'_>,
) -> Result<Payload<Vec<u8>>, PayloadImportError> {
    let look = Look::take(fs, record.path())?;
    let path = || record.path().to_owned();
    if look.kind() == ArtifactKind::Folder {
        return Err(PayloadImportError::Folder { path: path() });
    }
    let file = look.place.open_file(OsStr::new(""))?;
    let length = admitted.payload_bytes();
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let filled = file.read_full_at(0, &mut bytes)?;
    let actual = file.stat()?.size;
    if filled < bytes.len() || actual != length {
        return Err(PayloadImportError::Length {
            tensor: of.tensor.to_owned(),
            path: path(),
            expected: length,
            actual,
        });
    }
    let payload = Payload::new(bytes);
    let Some(What::File(registered)) = record.artifact().entry(OsStr::new("")) else {
        return Err(PayloadImportError::Folder { path: path() });
    };
    let (expected, actual) = (registered.digest, payload.digest().0);
    match actual == expected {
        true => Ok(payload),
        false => Err(PayloadImportError::OtherBytes {
            path: path(),
            expected,
            actual,
        }),
    }
}

fn source_digest(file: &ModelFile, tensor: &Tensor) -> Result<TensorDigest, ModelError> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut at, end) = (tensor.offset, tensor.offset + tensor.bytes);
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        let part = &mut buffer[..left.min(CHUNK_BYTES)];
        file.read_exact_at(at, part)?;
        hasher.update(part);
        at += part.len() as u64;
    }
    Ok(TensorDigest(hasher.finish()))
}

fn sample(admitted: &Admitted) -> SampleGeometry {
    let geometry = admitted.geometry();
    SampleGeometry {
        unit_rows: geometry.unit_rows,
        row_bytes: geometry.row_bytes,
        row_count: geometry.row_count,
    }
}

/// Publishes the object where the store lacks it, then its pack, then the set.
fn publish(
    (store, packers): (&Store, &Packers),
    payload: &Payload<Vec<u8>>,
    pack: &PackRecord,
    tensor: &str,
    container: &ContainerRecord,
) -> Result<PayloadImport, PayloadImportError> {
    let mut pending = Vec::new();
    let found = store.object(&pack.object, pack.length, ObjectTrust::Receipt);
    let is_new_object = found.is_err();
    match found {
        Ok(found) => pending.extend(found.pending_receipt()),
        // A damaged one was moved away just now.
        Err(_) => {
            let room = store.reserve(pack.length, ROOM_WAIT_NS);
            let room = room.map_err(|source| PayloadImportError::Room {
                wanted_bytes: pack.length,
                source: Box::new(source),
            })?;
            let mut batch = store.batch(&room);
            batch.add_payload(payload, &|| false)?;
            let options = PublishOptions { drop_cache: true };
            for object in batch.finish(options, &|| false)? {
                pending.extend(object.pending_receipt());
            }
        }
    }
    let published = proof::publish_pack(store, pack, packers).map_err(Box::new)?;
    let entry = ManifestEntry {
        slot: 0,
        tensor: tensor.to_owned(),
        pack: pack.key(),
        object: pack.object,
        length: pack.length,
    };
    let digest = Digest::of(b"registered\n");
    let manifest = SetManifest::new(REGISTERED_PLAN.to_owned(), digest, vec![entry])?;
    let outcome = store.publish_set(&manifest, container).map_err(Box::new)?;
    store.settle(&pending);
    Ok(PayloadImport {
        set: manifest.key(),
        outcome,
        object: pack.object,
        bytes: pack.length,
        is_new_object,
        is_new_pack: matches!(published, SmallOutcome::Created),
    })
}

impl PayloadImportError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Folder { .. } | Self::Layout { .. } | Self::Tensor { .. } => Blame::Caller,
            Self::Refused { .. }
            | Self::Length { .. }
            | Self::OtherBytes { .. }
            | Self::Wrong { .. }
            | Self::NoInverse(_)
            | Self::Manifest(_)
            | Self::Container(_) => Blame::Source,
            Self::NoKernel(error) => error.blame(),
            Self::Look(error) => error.blame(),
            Self::Model(error) => error.blame(),
            Self::Room { source, .. } => source.blame(),
            Self::Publish(error) => error.blame(),
            Self::PublishPack(error) => error.blame(),
            Self::PublishSet(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

const CHUNK_BYTES: usize = 4 << 20;
const ROOM_WAIT_NS: u64 = 10_000_000_000;
