//! Writing a set of the store as the other side's directory.
//!
//! Invariants:
//! - the model file at hand is the one that the set was made of: its hash and those of the tensors
//!   are compared, by the source ledger or by reading;
//! - each payload is hashed as it is copied, and never linked;
//! - the directory gets its name when all of it is durable.

use super::keys::{StatRow, TensorIdentity, slot_of, stat_table_sha256};
use super::records::{
    ForeignSet, ForeignTensor, GgufSummary, INDEX_NAME, MANIFEST_NAME, RECEIPT_NAME, Revision,
    STAGE_NAME, SourceModel, StageSummary, TENSORS_NAME,
};
use super::source::{self, Source, chunk_bytes};
use super::{LAYOUT_NAME, fnv1a_64};
use crate::beside::{BesideError, FolderBeside};
use crate::model::{Model, ModelError};
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, Hasher, SetKey};
use packhouse_base::units;
use packhouse_container::TensorDirectory;
use packhouse_layout::Layout;
use packhouse_store::manifest::ManifestEntry;
use packhouse_store::object::{ObjectRefusal, ObjectTrust};
use packhouse_store::pack::PackRefusal;
use packhouse_store::record::PackRecord;
use packhouse_store::root::Store;
use packhouse_store::set::SetMiss;
use packhouse_store::small::SmallRefusal;
use packhouse_sys::fs::{Dir, FsError};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A directory that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignExport {
    /// The set's key over there.
    pub set_key: Digest,
    /// The directory.
    pub folder: PathBuf,
    /// The stage, where one was wanted.
    pub stage_folder: Option<PathBuf>,
    /// Tensors.
    pub tensor_count: u64,
    /// Bytes of all payloads.
    pub payload_bytes: u64,
    /// Length of the runtime index.
    pub index_bytes: u64,
    /// FNV-1a 64 of the runtime index, which the other side's loader has compiled in.
    pub index_fnv1a_64: u64,
}

/// Where a set is written.
#[derive(Clone, Copy, Debug)]
pub struct ExportTargets<'d> {
    /// Gets the set's folder, named by its key over there.
    pub root: &'d Dir,
    /// Gets a second one, as the other side keeps in RAM, with the record of a stage.
    pub stage: Option<&'d Dir>,
}

/// Why a set was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ForeignExportError {
    /// There is no such set, or its manifest is damaged.
    #[error(transparent)]
    Set(#[from] SetMiss),
    /// A pack of it can't be read.
    #[error("slot {slot} ({tensor:?}): {source}")]
    Pack {
        /// The slot.
        slot: u64,
        /// Its tensor.
        tensor: String,
        /// Why.
        source: Box<PackRefusal>,
    },
    /// A pack in another layout.
    #[error("{tensor:?} is packed as {actual}, and xe2-m6-v2 has {LAYOUT_NAME} only")]
    Layout {
        /// The tensor.
        tensor: String,
        /// Its layout.
        actual: String,
    },
    /// A tensor without a slot over there.
    #[error("{tensor:?} has no slot in xe2-m6-v2, which has ffn_gate, ffn_up and ffn_down only")]
    NoSlot {
        /// The tensor.
        tensor: String,
    },
    /// A set of nothing.
    #[error("set {set} has no tensors")]
    Empty {
        /// The set.
        set: SetKey,
    },
    /// The set's container records can't be read.
    #[error(transparent)]
    Containers(#[from] SmallRefusal),
    /// Nobody hashed the model as a whole when the set was made.
    #[error("no container record of set {set} has the SHA-256 of one whole model file")]
    NoModelHash {
        /// The set.
        set: SetKey,
    },
    /// The model at hand has several files.
    #[error("{} is one of {count} files, and xe2-m6-v2 knows models of one", path.display())]
    Shards {
        /// The first file.
        path: PathBuf,
        /// How many there are.
        count: usize,
    },
    /// Another model.
    #[error("{} has SHA-256 {actual}, the set was made of {expected:?}", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// Its hash.
        actual: Digest,
        /// The hashes in the set's container records.
        expected: Vec<Digest>,
    },
    /// The model at hand has another tensor of that name than the set, or none.
    #[error("{}: tensor {tensor:?} is not what the set was made of: {what}", path.display())]
    OtherTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What differs.
        what: &'static str,
    },
    /// The model can't be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An object is missing or damaged.
    #[error(transparent)]
    Object(#[from] Box<ObjectRefusal>),
    /// The target has no room.
    #[error("{} needed, {} available in {}", units::bytes(*needed_bytes),
        units::bytes(*available_bytes), path.display())]
    Room {
        /// Where.
        path: PathBuf,
        /// Bytes of all payloads.
        needed_bytes: u64,
        /// Bytes free.
        available_bytes: u64,
    },
    /// The directory can't be made.
    #[error(transparent)]
    Beside(#[from] BesideError),
    /// The directory can't be written.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Writes a set, in a folder named by its key over there; `progress` is told payload bytes so far
/// and in all.
pub fn export(
    store: &Store,
    set: SetKey,
    model: &Model,
    targets: ExportTargets<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ForeignExport, ForeignExportError> {
    let packs = read_packs(store, set)?;
    let file = source::one_file(model)
        .map_err(|(path, count)| ForeignExportError::Shards { path, count })?;
    let source = Source::new(store, model, file);
    let recorded = recorded_models(store, set, file.identity().size)?;
    let sha256 = source.sha256(0, file.identity().size)?;
    if !recorded.contains(&sha256) {
        return Err(ForeignExportError::OtherModel {
            path: file.path().to_owned(),
            actual: sha256,
            expected: recorded,
        });
    }
    let directory = &model.container().shards()[0];
    let tensors = packs
        .values()
        .map(|(entry, record)| describe(sha256, &source, directory, entry, record))
        .collect::<Result<Vec<_>, _>>()?;
    model.unchanged()?;
    let foreign = ForeignSet {
        revision: Revision::Three,
        model: SourceModel {
            path: file.path().to_string_lossy().into_owned(),
            sha256,
            size_bytes: file.identity().size,
            hash_validated: true,
        },
        tensors,
    };
    let writing = Writing {
        store,
        set: &foreign,
        gguf: &summary(directory),
        records: packs.values().map(|(_, record)| record).collect(),
    };
    writing.write(targets, progress)
}

/// The set's entries and packs, by slot over there.
fn read_packs(
    store: &Store,
    set: SetKey,
) -> Result<BTreeMap<u64, (ManifestEntry, PackRecord)>, ForeignExportError> {
    let mut packs = BTreeMap::new();
    for entry in store.read_set(set)?.entries() {
        let tensor = entry.tensor.clone();
        let record = store.lookup_pack(&entry.pack);
        let record = record.map_err(|source| ForeignExportError::Pack {
            slot: entry.slot,
            tensor: tensor.clone(),
            source: Box::new(source),
        })?;
        let layout = Layout::Q4_0Xe2DpasV2;
        let identity = &record.identity;
        if (identity.layout.as_str(), identity.layout_version) != (layout.id(), layout.version()) {
            return Err(ForeignExportError::Layout {
                tensor,
                actual: format!("{} version {}", identity.layout, identity.layout_version),
            });
        }
        let Some(slot) = slot_of(&tensor) else {
            return Err(ForeignExportError::NoSlot { tensor });
        };
        packs.insert(slot, (entry.clone(), record));
    }
    if packs.is_empty() {
        return Err(ForeignExportError::Empty { set });
    }
    Ok(packs)
}

/// The hashes of the model files that the set was made of; those of the length at hand first.
fn recorded_models(
    store: &Store,
    set: SetKey,
    size: u64,
) -> Result<Vec<Digest>, ForeignExportError> {
    let records = store.read_container_records(set)?.records;
    let mut found: Vec<(bool, Digest)> = records
        .iter()
        .filter_map(|record| match record.files() {
            [file] => Some((file.size != size, file.digest?)),
            _ => None,
        })
        .collect();
    found.sort();
    if found.is_empty() {
        return Err(ForeignExportError::NoModelHash { set });
    }
    Ok(found.into_iter().map(|(_, digest)| digest).collect())
}

/// Says of a tensor what the other side's records say, after comparing it with the model.
fn describe(
    model_sha256: Digest,
    source: &Source<'_>,
    directory: &TensorDirectory,
    entry: &ManifestEntry,
    record: &PackRecord,
) -> Result<ForeignTensor, ForeignExportError> {
    let other = |what| ForeignExportError::OtherTensor {
        path: source.file.path().to_owned(),
        tensor: entry.tensor.clone(),
        what,
    };
    let found = directory
        .tensor(&entry.tensor)
        .ok_or_else(|| other("it is not there"))?;
    let identity = &record.identity;
    let dims: [u64; 2] = found
        .dims
        .as_slice()
        .try_into()
        .map_err(|_| other("it is no matrix"))?;
    if found.ggml_type.id() != identity.type_id || identity.dims != dims {
        return Err(other("its type or dims"));
    }
    if source.sha256(found.offset, found.bytes)? != identity.source.0 {
        return Err(other("its bytes"));
    }
    Ok(ForeignTensor {
        identity: TensorIdentity {
            target_model_sha256: model_sha256,
            tensor_name: entry.tensor.clone(),
            tensor_shape: dims,
        },
        gguf_offset: found.offset,
        source_bytes: found.bytes,
        source_sha256: identity.source.0,
        payload_bytes: record.length,
        payload_sha256: record.object.0,
    })
}

fn summary(directory: &TensorDirectory) -> GgufSummary {
    GgufSummary {
        version: directory.version(),
        tensor_count: directory.tensors().len() as u64,
        metadata_count: directory.metadata().entries().len() as u64,
        alignment: directory.alignment(),
        data_offset: directory.data_offset(),
        file_size: directory.file_bytes(),
    }
}

/// A set on its way into its folders.
struct Writing<'s> {
    store: &'s Store,
    set: &'s ForeignSet,
    gguf: &'s GgufSummary,
    records: Vec<&'s PackRecord>,
}

impl Writing<'_> {
    fn write(
        &self,
        targets: ExportTargets<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ForeignExport, ForeignExportError> {
        let payload_bytes = self.set.payload_bytes();
        let count = 1 + u64::from(targets.stage.is_some());
        let (mut done_bytes, total_bytes) = (0, payload_bytes.saturating_mul(count));
        let mut told = |bytes| {
            done_bytes += bytes;
            progress(done_bytes, total_bytes);
        };
        // Both are held before the first byte, so that a taken name is said at once.
        let name = self.set.key().to_string();
        let beside = self.begin(targets.root, &name)?;
        let staging = match targets.stage {
            Some(dir) => Some((self.begin(dir, &name)?, dir.fs_stat()?.free_bytes)),
            None => None,
        };
        let folder = beside.dir();
        let stats = self.copy_payloads(folder, true, &mut told)?;
        let index = self.set.index();
        let manifest = self.set.render_manifest(self.gguf);
        let receipt = self
            .set
            .render_receipt(&manifest, stat_table_sha256(&stats));
        let records = [
            (INDEX_NAME, &index),
            (MANIFEST_NAME, &manifest),
            (RECEIPT_NAME, &receipt),
        ];
        for (name, bytes) in records {
            put(folder, name, bytes)?;
        }
        let folder = beside.publish()?;
        let mut stage_folder = None;
        if let Some((beside, available_bytes_before)) = staging {
            self.copy_payloads(beside.dir(), false, &mut told)?;
            for (name, bytes) in records {
                put(beside.dir(), name, bytes)?;
            }
            let stage = StageSummary {
                source_manifest: folder.join(MANIFEST_NAME).to_string_lossy().into_owned(),
                available_bytes_before,
                available_bytes_after_copy: beside.dir().fs_stat()?.free_bytes,
            };
            let record = self.set.render_stage(&manifest, &stage);
            put(beside.dir(), STAGE_NAME, &record)?;
            stage_folder = Some(beside.publish()?);
        }
        Ok(ForeignExport {
            set_key: self.set.key(),
            folder,
            stage_folder,
            tensor_count: self.set.tensors.len() as u64,
            payload_bytes,
            index_bytes: index.len() as u64,
            index_fnv1a_64: fnv1a_64(&index),
        })
    }

    fn begin(&self, dir: &Dir, name: &str) -> Result<FolderBeside, ForeignExportError> {
        let needed_bytes = self.set.payload_bytes();
        let available_bytes = dir.fs_stat()?.free_bytes;
        if available_bytes < needed_bytes {
            return Err(ForeignExportError::Room {
                path: dir.path().to_owned(),
                needed_bytes,
                available_bytes,
            });
        }
        Ok(FolderBeside::create(self.store.fs(), dir, name)?)
    }

    /// Copies all payloads, with each tensor's own record beside it where that is wanted, and
    /// answers what stat says of the copies.
    fn copy_payloads(
        &self,
        folder: &Dir,
        with_records: bool,
        told: &mut dyn FnMut(u64),
    ) -> Result<Vec<StatRow>, ForeignExportError> {
        folder.make_dir(TENSORS_NAME, 0o755)?;
        let tensors = folder.open_dir(TENSORS_NAME)?;
        let mut stats = Vec::with_capacity(self.records.len());
        for (tensor, record) in self.set.tensors.iter().zip(&self.records) {
            let key = tensor.key();
            stats.push(copy_payload(self.store, record, &tensors, key, told)?);
            if with_records {
                put(&tensors, &format!("{key}.json"), &tensor.render())?;
            }
        }
        tensors.sync()?;
        Ok(stats)
    }
}

/// Copies a payload, hashing it on the way, and answers what stat says of the copy.
fn copy_payload(
    store: &Store,
    record: &PackRecord,
    tensors: &Dir,
    key: Digest,
    progress: &mut dyn FnMut(u64),
) -> Result<StatRow, ForeignExportError> {
    let (digest, length) = (record.object, record.length);
    let refuse = |refusal: ObjectRefusal| ForeignExportError::Object(Box::new(refusal));
    let object = store.object_for_sample(&digest, length).map_err(refuse)?;
    let target = tensors.create_new(format!("{key}.bin"), PAYLOAD_MODE)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; chunk_bytes(length)];
    let mut offset = 0;
    while offset < length {
        let filled = object.file().read_full_at(offset, &mut buffer);
        let filled = filled.map_err(|error| refuse(ObjectRefusal::Fs { digest, error }))?;
        if filled == 0 {
            break;
        }
        hasher.update(&buffer[..filled]);
        target.write_all_at(offset, &buffer[..filled])?;
        offset += filled as u64;
        progress(filled as u64);
    }
    if hasher.finish() != digest.0 {
        // Hashed again on its own, so that it is refused as damaged and moved away.
        let refusal = store.object(&digest, length, ObjectTrust::Deep).err();
        return Err(refuse(refusal.unwrap_or(ObjectRefusal::Changed {
            digest,
            path: object.file().path().to_owned(),
            field: "content",
        })));
    }
    target.sync()?;
    let stat = target.stat()?;
    Ok(StatRow {
        key,
        size_bytes: stat.size,
        mtime_ns: stat.mtime_ns,
        device: stat.device,
        inode: stat.inode,
    })
}

fn put(dir: &Dir, name: &str, bytes: &[u8]) -> Result<(), FsError> {
    let file = dir.create_new(name, RECORD_MODE)?;
    file.write_all_at(0, bytes)?;
    file.sync()
}

impl ForeignExportError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Set(error) => error.blame(),
            Self::Pack { source, .. } => source.blame(),
            Self::Layout { .. } | Self::NoSlot { .. } | Self::Empty { .. } => Blame::Caller,
            Self::Containers(error) => error.blame(),
            Self::NoModelHash { .. } | Self::Shards { .. } => Blame::Caller,
            Self::OtherModel { .. } | Self::OtherTensor { .. } => Blame::Source,
            Self::Model(error) => error.blame(),
            Self::Object(refusal) => refusal.blame(),
            Self::Room { .. } => Blame::Host,
            Self::Beside(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

const PAYLOAD_MODE: u32 = 0o444;
/// The other side replaces its records.
const RECORD_MODE: u32 = 0o644;
