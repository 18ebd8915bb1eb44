//! Sets in the store: publishing, reading and listing them.
//!
//! Invariants:
//! - a set is there when its manifest is; the manifest is published last, after the runtime index
//!   and the container record, so that a stopped publish leaves no set;
//! - nothing is edited: a file that proved wrong goes to quarantine and is published again;
//! - every pack that a published set names was read and agrees on object and length.
//!
//! Never: reads a payload; that is `verify`. Format: `docs/format/store.md`.

use crate::container_record::{ContainerRecord, ContainerRecordError};
use crate::manifest::{ManifestError, SetManifest};
use crate::pack::PackRefusal;
use crate::publish::{PublishError, SmallOutcome};
use crate::root::{OpenError, Store};
use crate::small::{SmallRefusal, StuckError};
use packhouse_base::Blame;
use packhouse_base::canonical::RECORD_BYTES_MAX;
use packhouse_base::digest::{Digest, ObjectDigest, PackKey, SetKey};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use std::path::PathBuf;

/// How a set came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// It was made now.
    Created,
    /// It was there.
    Equal,
    /// A file of it was damaged and went to quarantine; the right one took its place.
    Repaired,
}

/// Why a set was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// A pack that it names can't be read.
    #[error("set {set}: slot {slot} ({tensor:?}): {source}")]
    Pack {
        /// The set.
        set: SetKey,
        /// The slot.
        slot: u64,
        /// Its tensor.
        tensor: String,
        /// Why.
        source: Box<PackRefusal>,
    },
    /// A pack names another object or length than the manifest.
    #[error(
        "set {set}: slot {slot}: pack {pack} is object {expected} of {expected_length} bytes, \
         the manifest says {actual} of {actual_length}"
    )]
    Disagrees {
        /// The set.
        set: SetKey,
        /// The slot.
        slot: u64,
        /// The pack.
        pack: PackKey,
        /// The object in the pack's record.
        expected: ObjectDigest,
        /// The length in the pack's record.
        expected_length: u64,
        /// The object in the manifest.
        actual: ObjectDigest,
        /// The length in the manifest.
        actual_length: u64,
    },
    /// It could not be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A wrong file of the set can't be moved away.
    #[error(transparent)]
    Stuck(#[from] StuckError),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Why there is no set to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetMiss {
    /// Nobody published it, or its publish was stopped.
    #[error("no set {set}")]
    Absent {
        /// The set.
        set: SetKey,
    },
    /// Its manifest isn't the one of this key.
    #[error("set {set}: {source}")]
    Manifest {
        /// The set.
        set: SetKey,
        /// What is wrong.
        source: ManifestError,
    },
    /// Its manifest can't be trusted or read.
    #[error("set {set}: {source}")]
    File {
        /// The set.
        set: SetKey,
        /// Why.
        source: SmallRefusal,
    },
}

/// Container records of a set: the good ones, and why others were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRecords {
    /// Good records, by name.
    pub records: Vec<ContainerRecord>,
    /// Files that are no record.
    pub refused: Vec<ContainerRefusal>,
}

/// Why a file beside a set is no container record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerRefusal {
    /// Its name is not `<sha256>.json`.
    #[error("{}: not named by a digest", path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// Its content is wrong.
    #[error("{}: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ContainerRecordError,
    },
    /// It can't be trusted or read.
    #[error(transparent)]
    File(#[from] SmallRefusal),
}

impl Store {
    /// Publishes a set with what is known of its container: index, container record, manifest last.
    /// Errors when a pack that it names is absent, damaged or disagrees, and as the file system
    /// does.
    pub fn publish_set(
        &self,
        manifest: &SetManifest,
        container: &ContainerRecord,
    ) -> Result<SetOutcome, SetError> {
        let set = manifest.key();
        self.writable()?;
        // Until the manifest is linked, no gc of this user takes a pack away.
        let _shared = self.hold_off_gc();
        self.agree_with_packs(set, manifest)?;
        let dir = self.make_set_folder(self.sets_dir(), &set.to_string())?;
        let index = self.publish_or_repair(&dir, INDEX_NAME, &manifest.render_index())?;
        let records = self.make_set_folder(&dir, CONTAINERS_NAME)?;
        let name = format!("{}.json", container.name());
        let record = self.publish_or_repair(&records, &name, &container.render())?;
        // The entries above must be durable before the name that makes them count.
        dir.sync()?;
        self.sets_dir().sync()?;
        let manifest = self.publish_or_repair(&dir, MANIFEST_NAME, &manifest.render())?;
        let repaired = [index, record, manifest].contains(&SetOutcome::Repaired);
        Ok(if repaired {
            SetOutcome::Repaired
        } else {
            manifest
        })
    }

    /// Adds what is known of a container to a set that is there.
    pub fn add_container_record(
        &self,
        set: SetKey,
        container: &ContainerRecord,
    ) -> Result<SetOutcome, SetError> {
        let dir = self.make_set_folder(self.sets_dir(), &set.to_string())?;
        let records = self.make_set_folder(&dir, CONTAINERS_NAME)?;
        let name = format!("{}.json", container.name());
        let outcome = self.publish_or_repair(&records, &name, &container.render())?;
        dir.sync()?;
        Ok(outcome)
    }

    /// Reads a set's manifest. Misses are named; a damaged manifest is never called absent.
    pub fn read_set(&self, set: SetKey) -> Result<SetManifest, SetMiss> {
        SetManifest::parse(set, &self.read_manifest(set)?)
            .map_err(|source| SetMiss::Manifest { set, source })
    }

    /// Reads the bytes of a set's manifest, which nobody parsed. Misses as `read_set`.
    pub fn read_manifest(&self, set: SetKey) -> Result<Vec<u8>, SetMiss> {
        let file = |source| match source {
            SmallRefusal::Absent { .. } => SetMiss::Absent { set },
            other => SetMiss::File { set, source: other },
        };
        let dir = self.set_folder(set).map_err(|error| file(error.into()))?;
        let dir = dir.ok_or(SetMiss::Absent { set })?;
        self.read_trusted(&dir, MANIFEST_NAME, MANIFEST_BYTES_MAX)
            .map_err(file)
    }

    /// Reads a set's runtime index as it is on disk; `SetManifest::verify_index` judges it.
    pub fn read_index(&self, set: SetKey) -> Result<Vec<u8>, SmallRefusal> {
        let absent = || SmallRefusal::Absent {
            path: self.sets_dir().path().join(set.to_string()),
        };
        let dir = self.set_folder(set)?.ok_or_else(absent)?;
        self.read_trusted(&dir, INDEX_NAME, MANIFEST_BYTES_MAX)
    }

    /// Reads the container records beside a set. Errors when their folder can't be trusted or
    /// listed.
    pub fn read_container_records(&self, set: SetKey) -> Result<ContainerRecords, SmallRefusal> {
        let mut found = ContainerRecords::default();
        let Some(dir) = self.set_folder(set)? else {
            return Ok(found);
        };
        let Some(records) = self.open_folder(&dir, CONTAINERS_NAME)? else {
            return Ok(found);
        };
        for name in crate::state::list_names(&records)? {
            match self.read_container_record(&records, &name) {
                Ok(record) => found.records.push(record),
                Err(refusal) => found.refused.push(refusal),
            }
        }
        Ok(found)
    }

    /// Lists the keys of all sets that have a manifest, good or not; rising.
    pub fn list_sets(&self) -> Result<Vec<SetKey>, SmallRefusal> {
        let mut sets = Vec::new();
        for name in crate::state::list_names(self.sets_dir())? {
            let Ok(set) = SetKey::parse(&name) else {
                continue;
            };
            let Some(dir) = self.set_folder(set)? else {
                continue;
            };
            match dir.stat_entry(MANIFEST_NAME) {
                Ok(_) => sets.push(set),
                Err(error) if error.kind == FsErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sets)
    }

    /// The folder of a set, if there is one.
    pub(crate) fn set_folder(&self, set: SetKey) -> Result<Option<Dir>, OpenError> {
        self.open_folder(self.sets_dir(), &set.to_string())
    }

    fn agree_with_packs(&self, set: SetKey, manifest: &SetManifest) -> Result<(), SetError> {
        for entry in manifest.entries() {
            let record = self
                .lookup_pack(&entry.pack)
                .map_err(|source| SetError::Pack {
                    set,
                    slot: entry.slot,
                    tensor: entry.tensor.clone(),
                    source: Box::new(source),
                })?;
            if (record.object, record.length) != (entry.object, entry.length) {
                return Err(SetError::Disagrees {
                    set,
                    slot: entry.slot,
                    pack: entry.pack,
                    expected: record.object,
                    expected_length: record.length,
                    actual: entry.object,
                    actual_length: entry.length,
                });
            }
        }
        Ok(())
    }

    fn make_set_folder(&self, parent: &Dir, name: &str) -> Result<Dir, SetError> {
        self.writable()?;
        Ok(self.make_folder(parent, name).map_err(PublishError::from)?)
    }

    /// Publishes a small file; another one under its name was damaged, for these bytes follow from
    /// the name, so it goes to quarantine, once.
    fn publish_or_repair(
        &self,
        dir: &Dir,
        name: &str,
        bytes: &[u8],
    ) -> Result<SetOutcome, SetError> {
        match self.publish_small(dir, name, bytes) {
            Ok(SmallOutcome::Created) => return Ok(SetOutcome::Created),
            Ok(SmallOutcome::Equal) => return Ok(SetOutcome::Equal),
            Err(PublishError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.move_wrong_aside(dir, name)?;
        self.publish_small(dir, name, bytes)?;
        Ok(SetOutcome::Repaired)
    }

    fn read_container_record(
        &self,
        records: &Dir,
        name: &str,
    ) -> Result<ContainerRecord, ContainerRefusal> {
        let path = || records.path().join(name);
        let digest = name
            .strip_suffix(".json")
            .and_then(|digits| Digest::parse(digits).ok())
            .ok_or_else(|| ContainerRefusal::Name { path: path() })?;
        let bytes = self.read_trusted(records, name, CONTAINER_BYTES_MAX)?;
        ContainerRecord::parse(digest, &bytes).map_err(|source| ContainerRefusal::Content {
            path: path(),
            source,
        })
    }
}

impl SetError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Pack { source, .. } => source.blame(),
            Self::Disagrees { .. } => Blame::Store,
            Self::Stuck(_) => Blame::Host,
            Self::Publish(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

impl SetMiss {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } | Self::Manifest { .. } => Blame::Store,
            Self::File { source, .. } => source.blame(),
        }
    }
}

impl ContainerRefusal {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Name { .. } | Self::Content { .. } => Blame::Store,
            Self::File(refusal) => refusal.blame(),
        }
    }
}

/// The file name of a set's manifest.
pub const MANIFEST_NAME: &str = "manifest.json";
/// The file name of a set's runtime index.
pub const INDEX_NAME: &str = "runtime-index.tsv";
/// The folder of a set's container records.
pub const CONTAINERS_NAME: &str = "containers";

/// The longest manifest or index that is read.
pub const MANIFEST_BYTES_MAX: u64 = RECORD_BYTES_MAX as u64;
const CONTAINER_BYTES_MAX: u64 = 1 << 20;
