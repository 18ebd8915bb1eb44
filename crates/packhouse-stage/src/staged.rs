//! Reading stages: what a loader maps.
//!
//! Invariants:
//! - manifest, index and receipts are read from one opened folder, and the receipts say their
//!   digests;
//! - the manifest's key is the folder's name;
//! - a copy is handed out for the descriptor that its receipt holds for, or that was hashed now.
//!
//! Never: repairs, hashes unasked, calls a damaged stage absent.

use crate::condemn::{Condemned, condemn, is_condemned};
use crate::name::{INDEX_NAME, MANIFEST_NAME, OBJECTS_NAME, RECEIPTS_NAME, StageName};
use crate::receipts::{ReceiptsError, StageReceipts};
use crate::root::StageRoot;
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, ObjectDigest, PackKey, SetKey};
use packhouse_store::manifest::{ManifestEntry, ManifestError, SetManifest};
use packhouse_store::object::{ObjectRefusal, ReceiptDoubt, VerifiedObject};
use packhouse_store::set::MANIFEST_BYTES_MAX;
use packhouse_store::small::{SmallRefusal, read_trusted};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, StatIdentity, Volume};
use std::path::{Path, PathBuf};

/// A published stage whose manifest, index and receipts hold.
pub struct StagedSet {
    name: StageName,
    manifest: SetManifest,
    receipts: StageReceipts,
    folder: Dir,
    objects: Dir,
    path: PathBuf,
    volume: Volume,
    /// Places in the manifest's entries, by rising pack key.
    by_pack: Vec<usize>,
    /// The same by rising tensor name.
    by_tensor: Vec<usize>,
}

/// Why there is no stage to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageMiss {
    /// Nobody staged the set, or its stage was removed.
    #[error("no stage of set {set}")]
    Absent {
        /// The set.
        set: SetKey,
    },
    /// The stage's folder, or the one of its copies, is no folder.
    #[error("stage {stage}: {source}")]
    Folder {
        /// Its name.
        stage: String,
        /// What the system said.
        source: FsError,
    },
    /// The stage's folder can be changed by others or is not this user's.
    #[error("stage {stage}: {} has mode {mode:04o} and uid {uid}, expected 0700 and {expected}",
        path.display())]
    Access {
        /// Its name.
        stage: String,
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// This process's effective user.
        expected: u32,
    },
    /// A copy of it was hashed and found to have other bytes than were staged.
    #[error("stage {stage}: a copy was found to have other bytes; it is out of service")]
    Condemned {
        /// Its name.
        stage: String,
    },
    /// One of its small files is absent or can't be trusted.
    #[error("stage {stage}: {source}")]
    File {
        /// Its name.
        stage: String,
        /// Why.
        source: SmallRefusal,
    },
    /// Its receipts prove nothing.
    #[error("stage {stage}: {source}")]
    Receipts {
        /// Its name.
        stage: String,
        /// Why.
        source: ReceiptsError,
    },
    /// Manifest or index are not those that were staged.
    #[error("stage {stage}: {file} hashes to {actual}, the receipts say {expected}")]
    Differs {
        /// Its name.
        stage: String,
        /// The file's name.
        file: &'static str,
        /// The digest in the receipts.
        expected: Digest,
        /// The digest of the bytes there.
        actual: Digest,
    },
    /// Its manifest is not the one of its set.
    #[error("stage {stage}: {source}")]
    Manifest {
        /// Its name.
        stage: String,
        /// What is wrong.
        source: ManifestError,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(FsError),
}

/// Why a staged copy is not handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StagedRefusal {
    /// The copy is gone.
    #[error("staged object {object}: {} is not there", path.display())]
    Missing {
        /// The object.
        object: ObjectDigest,
        /// The copy.
        path: PathBuf,
    },
    /// The stage has no receipt for it.
    #[error("staged object {object}: the stage has no receipt for it")]
    NoReceipt {
        /// The object.
        object: ObjectDigest,
    },
    /// A symlink, folder or device in its place.
    #[error("staged object {object}: {} is a {kind}, expected a regular file", path.display())]
    NotRegular {
        /// The object.
        object: ObjectDigest,
        /// The copy.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// Another owner.
    #[error("staged object {object}: {} belongs to uid {actual}, expected {expected}",
        path.display())]
    Owner {
        /// The object.
        object: ObjectDigest,
        /// The copy.
        path: PathBuf,
        /// The owner in the receipt.
        expected: u32,
        /// The owner now.
        actual: u32,
    },
    /// Other permission bits.
    #[error("staged object {object}: {} has mode {actual:04o}, expected {expected:04o}",
        path.display())]
    Mode {
        /// The object.
        object: ObjectDigest,
        /// The copy.
        path: PathBuf,
        /// The mode in the receipt.
        expected: u32,
        /// The mode now.
        actual: u32,
    },
    /// Another length.
    #[error("staged object {object}: {} has {actual} bytes, expected {expected}", path.display())]
    Length {
        /// The object.
        object: ObjectDigest,
        /// The copy.
        path: PathBuf,
        /// Length wanted.
        expected: u64,
        /// Length there.
        actual: u64,
    },
    /// A second name, through which it could be changed.
    #[error("staged object {object}: {} has {count} names, expected 1", path.display())]
    Linked {
        /// The object.
        object: ObjectDigest,
        /// The copy.
        path: PathBuf,
        /// Its names.
        count: u64,
    },
    /// Changed or replaced since it was hashed.
    #[error("staged object {object}: {} is not what was hashed: {field} differs", path.display())]
    Stale {
        /// The object.
        object: ObjectDigest,
        /// The copy.
        path: PathBuf,
        /// The first field of the stat identity that differs.
        field: &'static str,
    },
    /// Its bytes hash to something else, or changed while they were hashed.
    #[error("staged {0}")]
    Bytes(Box<ObjectRefusal>),
    /// The system said no.
    #[error("staged object {object}: {source}")]
    Fs {
        /// The object.
        object: ObjectDigest,
        /// The failure.
        source: FsError,
    },
}

/// Opens the newest stage of a set. Misses are named; a damaged stage is never called absent.
pub fn open(root: &StageRoot, set: SetKey) -> Result<StagedSet, StageMiss> {
    match root.newest(set).map_err(StageMiss::Fs)? {
        Some(name) => StagedSet::open(root, name),
        None => Err(StageMiss::Absent { set }),
    }
}

/// Opens the newest stage of every set, good or not. Errors when the root can't be listed.
pub fn find(root: &StageRoot) -> Result<Vec<Result<StagedSet, StageMiss>>, FsError> {
    let stages = root.stages()?;
    let newest = stages.iter().enumerate().filter(|(index, stage)| {
        let next = stages.get(index + 1);
        next.is_none_or(|next| next.set != stage.set)
    });
    Ok(newest
        .map(|(_, name)| StagedSet::open(root, *name))
        .collect())
}

impl StagedSet {
    /// The set.
    pub fn set(&self) -> SetKey {
        self.name.set
    }

    /// Which stage of the set this is.
    pub fn generation(&self) -> u64 {
        self.name.generation
    }

    /// The stage's folder; for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The set's manifest.
    pub fn manifest(&self) -> &SetManifest {
        &self.manifest
    }

    /// The receipts of its copies.
    pub fn receipts(&self) -> &StageReceipts {
        &self.receipts
    }

    /// Bytes of all copies; an object that several slots share counts once.
    pub fn copied_bytes(&self) -> u64 {
        self.receipts.copies.iter().map(|copy| copy.size).sum()
    }

    /// The slot that a pack fills; the lowest, where it fills several.
    pub fn find_pack(&self, pack: &PackKey) -> Option<&ManifestEntry> {
        let entries = self.manifest.entries();
        let at = self.by_pack.partition_point(|at| entries[*at].pack < *pack);
        let entry = &entries[*self.by_pack.get(at)?];
        (entry.pack == *pack).then_some(entry)
    }

    /// The slot of this number.
    pub fn find_slot(&self, slot: u64) -> Option<&ManifestEntry> {
        let entries = self.manifest.entries();
        let at = entries.binary_search_by_key(&slot, |entry| entry.slot);
        at.ok().map(|at| &entries[at])
    }

    /// The slot of a tensor; the lowest, where it has several.
    pub fn find_tensor(&self, tensor: &str) -> Option<&ManifestEntry> {
        let entries = self.manifest.entries();
        let before = |at: &usize| entries[*at].tensor.as_str() < tensor;
        let entry = &entries[*self.by_tensor.get(self.by_tensor.partition_point(before))?];
        (entry.tensor == tensor).then_some(entry)
    }

    /// Opens the copy of an entry's object. Errors unless its receipt holds for the descriptor.
    pub fn object(&self, entry: &ManifestEntry) -> Result<VerifiedObject, StagedRefusal> {
        let object = entry.object;
        let receipt = self
            .receipts
            .identity_of(&object)
            .ok_or(StagedRefusal::NoReceipt { object })?;
        let file = self.open_copy(object)?;
        let path = file.path().to_owned();
        if receipt.size != entry.length {
            return Err(StagedRefusal::Length {
                object,
                path,
                expected: entry.length,
                actual: receipt.size,
            });
        }
        VerifiedObject::by_receipt(object, file, &receipt, &self.volume)
            .map_err(|doubt| refusal(object, path, doubt))
    }

    /// Opens the copy of an entry's object and hashes it now.
    pub fn object_hashed(&self, entry: &ManifestEntry) -> Result<VerifiedObject, StagedRefusal> {
        let hashed = self.object(entry)?.hashed_now();
        hashed.map_err(|refusal| StagedRefusal::Bytes(Box::new(refusal)))
    }

    /// Takes it out of service, as its bytes are other ones than were staged.
    pub(crate) fn condemn(&self) -> Condemned {
        condemn(&self.folder)
    }

    pub(crate) fn open(root: &StageRoot, name: StageName) -> Result<Self, StageMiss> {
        let stage = || name.to_string();
        let folder = |source: FsError| match source.kind {
            FsErrorKind::NotFound => StageMiss::Absent { set: name.set },
            _ => StageMiss::Folder {
                stage: stage(),
                source,
            },
        };
        let dir = root.dir.open_dir(stage()).map_err(folder)?;
        judge_folder(root, &dir, name)?;
        let file = |source| StageMiss::File {
            stage: stage(),
            source,
        };
        let read = |name: &'static str| read_trusted(&dir, name, MANIFEST_BYTES_MAX, &root.own);
        let receipts = read(RECEIPTS_NAME).map_err(|source| match source {
            SmallRefusal::Absent { .. } if is_condemned(&dir) => {
                StageMiss::Condemned { stage: stage() }
            }
            other => file(other),
        })?;
        let receipts = StageReceipts::parse(name.set, name.generation, &receipts);
        let receipts = receipts.map_err(|source| StageMiss::Receipts {
            stage: stage(),
            source,
        })?;
        let manifest = read(MANIFEST_NAME).map_err(file)?;
        fits(name, MANIFEST_NAME, receipts.manifest, &manifest)?;
        let index = read(INDEX_NAME).map_err(file)?;
        fits(name, INDEX_NAME, receipts.index, &index)?;
        let manifest = SetManifest::parse(name.set, &manifest);
        let manifest = manifest.map_err(|source| StageMiss::Manifest {
            stage: stage(),
            source,
        })?;
        let path = dir.path().to_owned();
        let objects = match dir.open_dir(OBJECTS_NAME) {
            Ok(objects) => objects,
            Err(source) => {
                let stage = stage();
                return Err(StageMiss::Folder { stage, source });
            }
        };
        judge_folder(root, &objects, name)?;
        let volume = dir.open_file(RECEIPTS_NAME).and_then(|file| file.volume());
        let volume = volume.map_err(StageMiss::Fs)?;
        let (by_pack, by_tensor) = orders(&manifest);
        Ok(Self {
            name,
            manifest,
            receipts,
            folder: dir,
            objects,
            path,
            volume,
            by_pack,
            by_tensor,
        })
    }

    fn open_copy(&self, object: ObjectDigest) -> Result<File, StagedRefusal> {
        let name = object.to_string();
        self.objects.open_file(&name).map_err(|error| {
            let path = self.objects.path().join(&name);
            match error.kind {
                FsErrorKind::NotFound => StagedRefusal::Missing { object, path },
                FsErrorKind::Symlink => StagedRefusal::NotRegular {
                    object,
                    path,
                    kind: FileKind::Symlink,
                },
                _ => StagedRefusal::Fs {
                    object,
                    source: error,
                },
            }
        })
    }
}

impl StageMiss {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } | Self::Condemned { .. } | Self::Differs { .. } => Blame::Store,
            Self::Access { .. } => Blame::Host,
            Self::Folder { source, .. } | Self::Fs(source) => source.blame(),
            Self::File { source, .. } => source.blame(),
            Self::Receipts { source, .. } => source.blame(),
            Self::Manifest { source, .. } => source.blame(),
        }
    }

    /// One word for counters and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "absent",
            Self::Folder { .. } => "folder",
            Self::Access { .. } => "access",
            Self::Condemned { .. } => "condemned",
            Self::File { .. } => "file",
            Self::Receipts { .. } => "receipts",
            Self::Differs { .. } => "differs",
            Self::Manifest { .. } => "manifest",
            Self::Fs(_) => "host",
        }
    }
}

impl StagedRefusal {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Missing { .. }
            | Self::NoReceipt { .. }
            | Self::NotRegular { .. }
            | Self::Owner { .. }
            | Self::Mode { .. }
            | Self::Length { .. }
            | Self::Linked { .. }
            | Self::Stale { .. } => Blame::Store,
            Self::Bytes(refusal) => refusal.blame(),
            Self::Fs { source, .. } => source.blame(),
        }
    }

    /// Whether a hash found other bytes under an unchanged stat identity.
    pub(crate) fn is_of_bytes(&self) -> bool {
        let Self::Bytes(refusal) = self else {
            return false;
        };
        matches!(**refusal, ObjectRefusal::Corrupt { .. })
    }

    /// One word for counters and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::NoReceipt { .. } => "no_receipt",
            Self::NotRegular { .. } => "not_regular",
            Self::Owner { .. } => "owner",
            Self::Mode { .. } => "mode",
            Self::Length { .. } => "length",
            Self::Linked { .. } => "linked",
            Self::Stale { .. } => "stale",
            Self::Bytes(refusal) => refusal.reason(),
            Self::Fs { .. } => "host",
        }
    }
}

fn judge_folder(root: &StageRoot, dir: &Dir, name: StageName) -> Result<(), StageMiss> {
    let stat = dir.stat().map_err(StageMiss::Fs)?;
    if stat.mode == FOLDER_MODE && root.own.trusts(stat.uid) {
        return Ok(());
    }
    Err(StageMiss::Access {
        stage: name.to_string(),
        path: dir.path().to_owned(),
        mode: stat.mode,
        uid: stat.uid,
        expected: root.fs.effective_uid(),
    })
}

fn fits(
    name: StageName,
    file: &'static str,
    expected: Digest,
    bytes: &[u8],
) -> Result<(), StageMiss> {
    let actual = Digest::of(bytes);
    if actual == expected {
        return Ok(());
    }
    Err(StageMiss::Differs {
        stage: name.to_string(),
        file,
        expected,
        actual,
    })
}

/// Places of the entries by rising pack key and by rising tensor name; equals by rising slot.
fn orders(manifest: &SetManifest) -> (Vec<usize>, Vec<usize>) {
    let entries = manifest.entries();
    let mut by_pack: Vec<usize> = (0..entries.len()).collect();
    let mut by_tensor = by_pack.clone();
    by_pack.sort_by_key(|at| entries[*at].pack);
    by_tensor.sort_by(|a, b| entries[*a].tensor.cmp(&entries[*b].tensor));
    (by_pack, by_tensor)
}

/// Names what a doubt is about; the fields that an owner can set come before the times.
fn refusal(object: ObjectDigest, path: PathBuf, doubt: ReceiptDoubt) -> StagedRefusal {
    match doubt {
        ReceiptDoubt::NotRegular { kind } => StagedRefusal::NotRegular { object, path, kind },
        ReceiptDoubt::Linked { count } => StagedRefusal::Linked {
            object,
            path,
            count,
        },
        ReceiptDoubt::Remote { .. } => StagedRefusal::Stale {
            object,
            path,
            field: "file system",
        },
        ReceiptDoubt::Differs {
            field,
            expected,
            actual,
        } => differing(object, path, field, (&expected, &actual)),
        ReceiptDoubt::Fs(source) => StagedRefusal::Fs { object, source },
    }
}

fn differing(
    object: ObjectDigest,
    path: PathBuf,
    field: &'static str,
    (expected, actual): (&StatIdentity, &StatIdentity),
) -> StagedRefusal {
    if expected.uid != actual.uid {
        return StagedRefusal::Owner {
            object,
            path,
            expected: expected.uid,
            actual: actual.uid,
        };
    }
    if expected.mode != actual.mode {
        return StagedRefusal::Mode {
            object,
            path,
            expected: expected.mode,
            actual: actual.mode,
        };
    }
    if expected.size != actual.size {
        return StagedRefusal::Length {
            object,
            path,
            expected: expected.size,
            actual: actual.size,
        };
    }
    StagedRefusal::Stale {
        object,
        path,
        field,
    }
}

pub(crate) const FOLDER_MODE: u32 = 0o700;
