//! Compares stored packs with what an engine's own libraries make of the model now, bit for bit.
//!
//! Runs in a process of its own: the engine's libraries are loaded into it, and nothing of ours
//! packs. Every stored payload of the model's set is hashed (the store's deep verification) and
//! compared with a fresh whole-tensor pack in the engine's own CPU_REPACK packer.

use crate::host::{Host, HostError};
use crate::packer::EnginePacker;
use packhouse_base::digest::{SetKey, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_container::{FileSource, GgufError, ReadAt as _, Tensor, TensorDirectory};
use packhouse_layout::ggml_cpu_repack as layout;
use packhouse_loader::PLAN;
use packhouse_store::object::{ObjectTrust, VerifiedObject};
use packhouse_store::record::PackRecord;
use packhouse_store::root::Store;
use packhouse_sys::fs::FsError;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The set that was compared.
    pub set: SetKey,
    /// `ggml_version()` of the engine.
    pub engine_version: String,
    /// Path of the library that packed.
    pub cpu_library: String,
    /// Payloads in the set.
    pub payload_count: u64,
    /// Payloads that are equal.
    pub equal_count: u64,
    /// Bytes compared.
    pub compared_bytes: u64,
    /// Payloads that are not equal, each with why.
    pub differences: Vec<Difference>,
    /// Packs whose fingerprint is not this engine's: it would not use them.
    pub foreign_fingerprint_count: u64,
}

/// One payload that is not what the engine makes of the tensor now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The tensor.
    pub tensor: String,
    /// What differs, with values.
    pub what: String,
}

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
pub enum EquivalenceError {
    /// The folder holds no such library.
    #[error("no {name} in {}", folder.display())]
    NoLibrary {
        /// Start of the library's name.
        name: &'static str,
        /// The folder given.
        folder: PathBuf,
    },
    /// The dynamic linker refused a library.
    #[error("{}: {reason}", path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// What the linker said.
        reason: String,
    },
    /// The engine is not one that this build knows.
    #[error("engine in {}: {source}", folder.display())]
    Engine {
        /// The folder given.
        folder: PathBuf,
        /// Why.
        source: HostFailure,
    },
    /// A model file is no GGUF that we read.
    #[error("{name}: {source}")]
    Model {
        /// The file.
        name: String,
        /// Why.
        source: Box<GgufError>,
    },
    /// A model file can't be read.
    #[error("{name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// No set of the store was made of this model for a CPU.
    #[error("no {PLAN} set of this model among the {set_count} sets of {}", store.display())]
    NoSet {
        /// The store's root.
        store: PathBuf,
        /// Sets looked at.
        set_count: usize,
    },
    /// The store can't be listed.
    #[error("store: {0}")]
    Store(String),
}

impl EquivalenceError {
    pub(crate) fn engine(folder: &Path, error: HostError) -> Self {
        Self::Engine {
            folder: folder.to_owned(),
            source: HostFailure(error),
        }
    }
}

/// Why an engine is not known; opaque beyond its words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct HostFailure(HostError);

/// One shard of the model.
struct Shard<'a> {
    name: &'a str,
    file: &'a File,
    directory: TensorDirectory,
}

/// A set of the store and the packs of it that were made of the model at hand.
struct Candidate {
    set: SetKey,
    payload_count: usize,
    records: Vec<(String, PackRecord)>,
    own_fingerprints: usize,
}

/// Compares the packs of a model, whose files the caller opened (shards in order, with their
/// names), with those that the engine in `folder` makes now. `tell` hears of each tensor before it
/// is packed.
///
/// Errors when nothing could be compared; differences are an answer.
pub fn compare(
    folder: &Path,
    files: &[(String, File)],
    store: &Store,
    tell: &mut dyn FnMut(&str),
) -> Result<Answer, EquivalenceError> {
    load_engine(folder)?;
    let host = Host::find().map_err(|error| EquivalenceError::engine(folder, error))?;
    let host = Arc::new(host);
    let packer = EnginePacker::new(host.clone());
    let shards = files
        .iter()
        .map(|(name, file)| Shard::parse(name, file))
        .collect::<Result<Vec<_>, _>>()?;
    let candidate = best_set(store, &shards, &packer)?;
    let description = host.description();
    let mut answer = Answer {
        set: candidate.set,
        engine_version: description.version.clone(),
        cpu_library: description.cpu_library.clone(),
        payload_count: candidate.payload_count as u64,
        equal_count: 0,
        compared_bytes: 0,
        differences: Vec::new(),
        foreign_fingerprint_count: (candidate.records.len() - candidate.own_fingerprints) as u64,
    };
    for (name, record) in &candidate.records {
        tell(name);
        match compare_one(store, &shards, &packer, name, record)? {
            Ok(bytes) => {
                answer.equal_count += 1;
                answer.compared_bytes += bytes;
            }
            Err(what) => answer.differences.push(Difference {
                tensor: name.clone(),
                what,
            }),
        }
    }
    Ok(answer)
}

impl<'a> Shard<'a> {
    fn parse(name: &'a str, file: &'a File) -> Result<Self, EquivalenceError> {
        let read = |source| EquivalenceError::Read {
            name: name.to_owned(),
            source,
        };
        let source = FileSource::new(file).map_err(read)?;
        let directory =
            TensorDirectory::parse(&source).map_err(|source| EquivalenceError::Model {
                name: name.to_owned(),
                source: Box::new(source),
            })?;
        Ok(Self {
            name,
            file,
            directory,
        })
    }

    fn read(&self, tensor: &Tensor) -> Result<Vec<u8>, EquivalenceError> {
        let read = |source| EquivalenceError::Read {
            name: self.name.to_owned(),
            source,
        };
        let mut bytes = vec![0; usize::try_from(tensor.bytes).unwrap_or(usize::MAX)];
        FileSource::new(self.file)
            .map_err(read)?
            .read_at(&mut bytes, tensor.offset)
            .map_err(read)?;
        Ok(bytes)
    }
}

/// Finds the set that holds most packs of this model: its tensors by name and content. Of equals
/// the one whose fingerprints are this engine's.
fn best_set(
    store: &Store,
    shards: &[Shard<'_>],
    packer: &EnginePacker,
) -> Result<Candidate, EquivalenceError> {
    let listed = store
        .list_sets()
        .map_err(|error| EquivalenceError::Store(error.to_string()))?;
    let mut digests: BTreeMap<&str, TensorDigest> = BTreeMap::new();
    let mut best: Option<Candidate> = None;
    for set in &listed {
        let Ok(manifest) = store.read_set(*set) else {
            continue;
        };
        if manifest.plan() != PLAN {
            continue;
        }
        let mut records = Vec::new();
        for entry in manifest.entries() {
            let Some((shard, tensor)) = find(shards, &entry.tensor) else {
                continue;
            };
            let Ok(record) = store.lookup_pack(&entry.pack) else {
                continue;
            };
            let digest = match digests.get(tensor.name.as_str()) {
                Some(digest) => *digest,
                None => {
                    let digest =
                        TensorDigest(packhouse_base::digest::Digest::of(&shard.read(tensor)?));
                    digests.insert(&tensor.name, digest);
                    digest
                }
            };
            if record.identity.source == digest {
                records.push((entry.tensor.clone(), record));
            }
        }
        let own_fingerprints = records
            .iter()
            .filter(|(_, record)| is_own(packer, record))
            .count();
        let candidate = Candidate {
            set: *set,
            payload_count: manifest.entries().len(),
            records,
            own_fingerprints,
        };
        let rank = |c: &Candidate| (c.own_fingerprints, c.records.len());
        if !candidate.records.is_empty()
            && best
                .as_ref()
                .is_none_or(|best| rank(best) < rank(&candidate))
        {
            best = Some(candidate);
        }
    }
    best.ok_or_else(|| EquivalenceError::NoSet {
        store: store.config().root.clone(),
        set_count: listed.len(),
    })
}

/// Whether a pack carries the fingerprint of this engine.
fn is_own(packer: &EnginePacker, record: &PackRecord) -> bool {
    let ty = GgmlType::from_id(record.identity.type_id).ok();
    let traits = ty.and_then(|ty| packer.traits(ty, record.sample.unit_rows).ok());
    traits.is_some_and(|traits| traits.fingerprint == record.identity.fingerprint)
}

/// Packs one tensor whole and compares; the inner error says what differs.
fn compare_one(
    store: &Store,
    shards: &[Shard<'_>],
    packer: &EnginePacker,
    name: &str,
    record: &PackRecord,
) -> Result<Result<u64, String>, EquivalenceError> {
    let Some((shard, tensor)) = find(shards, name) else {
        return Ok(Err("is in no shard".to_owned()));
    };
    let source = shard.read(tensor)?;
    let geometry = match layout::admit(tensor.ggml_type, &tensor.dims) {
        Ok(geometry) => geometry,
        Err(refusal) => return Ok(Err(refusal.to_string())),
    };
    let mut live = vec![0; source.len()];
    if let Err(refusal) = packer.pack(
        tensor.ggml_type,
        &tensor.dims,
        &geometry,
        &source,
        &mut live,
    ) {
        return Ok(Err(refusal.to_string()));
    }
    let object = match store.object(&record.object, record.length, ObjectTrust::Deep) {
        Ok(object) => object,
        Err(refusal) => return Ok(Err(refusal.to_string())),
    };
    Ok(first_difference(&object, &live).map_or_else(
        |error| Err(error.to_string()),
        |difference| match difference {
            None => Ok(record.length),
            Some(offset) => Err(format!(
                "object {} differs from byte {offset} on",
                record.object
            )),
        },
    ))
}

fn first_difference(object: &VerifiedObject, live: &[u8]) -> Result<Option<u64>, FsError> {
    let mut stored = vec![0; live.len()];
    let length = object.file().read_full_at(0, &mut stored)?;
    let differs = stored
        .iter()
        .zip(live)
        .position(|(stored, live)| stored != live);
    let differs = differs.or((length != live.len()).then_some(length));
    Ok(differs.map(|offset| offset as u64))
}

fn find<'a>(shards: &'a [Shard<'a>], name: &str) -> Option<(&'a Shard<'a>, &'a Tensor)> {
    shards
        .iter()
        .find_map(|shard| Some((shard, shard.directory.tensor(name)?)))
}

/// Loads the engine's libraries as its own programs do: base, registry, then the best CPU library
/// there.
pub(crate) fn load_engine(folder: &Path) -> Result<(), EquivalenceError> {
    open_library(folder, "libggml-base.so")?;
    let registry = open_library(folder, "libggml.so")?;
    // SAFETY: the handle is open; the name is NUL-terminated.
    let load = unsafe { libc::dlsym(registry.1, c"ggml_backend_load_all_from_path".as_ptr()) };
    let refuse = |reason: &str| EquivalenceError::Load {
        path: registry.0.clone(),
        reason: reason.to_owned(),
    };
    if load.is_null() {
        return Err(refuse("has no ggml_backend_load_all_from_path"));
    }
    let path = c_path(folder).ok_or_else(|| refuse("the folder's name holds a NUL"))?;
    // SAFETY: the function has had this signature since backend API 1; the path is NUL-terminated.
    unsafe {
        let load: unsafe extern "C" fn(*const c_char) = std::mem::transmute::<*mut c_void, _>(load);
        load(path.as_ptr());
    }
    Ok(())
}

/// Opens the library whose name starts so, for all to see; its dependencies are taken from beside
/// it.
fn open_library(
    folder: &Path,
    name: &'static str,
) -> Result<(PathBuf, *mut c_void), EquivalenceError> {
    let absent = || EquivalenceError::NoLibrary {
        name,
        folder: folder.to_owned(),
    };
    #[expect(clippy::disallowed_methods, reason = "an engine's folder is no store")]
    let entries = std::fs::read_dir(folder).map_err(|_| absent())?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut names: Vec<_> = names
        .filter(|n| n.as_bytes().starts_with(name.as_bytes()))
        .collect();
    names.sort();
    let path = folder.join(names.first().ok_or_else(absent)?);
    let c_path = c_path(&path).ok_or_else(absent)?;
    // SAFETY: loading runs the library's initialisers; the user named this engine to be run.
    let handle = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        // SAFETY: dlerror returns NULL or a NUL-terminated text that holds until the next call.
        let reason = unsafe {
            let text = libc::dlerror();
            if text.is_null() {
                "?".into()
            } else {
                std::ffi::CStr::from_ptr(text).to_string_lossy()
            }
        };
        return Err(EquivalenceError::Load {
            path,
            reason: reason.into_owned(),
        });
    }
    Ok((path, handle))
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
