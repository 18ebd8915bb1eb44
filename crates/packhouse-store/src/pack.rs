//! Packs on disk: finding and publishing records.
//!
//! Invariants:
//! - a record is handed out only after its key was derived again from its identity;
//! - a record is published after its object, and never over another one;
//! - a key that exists with another object is a conflict: both objects are hashed, a damaged one
//!   goes to quarantine with its record, two intact ones mean a packer that isn't deterministic.
//!
//! Never: reports a damaged record as missing. Format: `docs/format/store.md`.

use crate::object::{ObjectRefusal, ObjectTrust};
use crate::publish::{PublishError, SmallOutcome, publish_small};
use crate::quarantine::Moved;
use crate::record::{PackRecord, RecordError};
use crate::root::{Base, OpenError, Store};
use packhouse_base::Blame;
use packhouse_base::digest::{ObjectDigest, PackKey};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;
use std::path::PathBuf;

/// Why a pack is not found or not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackRefusal {
    /// There is none: pack and publish.
    #[error("pack {key} is not in the store")]
    Missing {
        /// The key.
        key: PackKey,
    },
    /// The record is not a regular file, of a trusted owner, writable by nobody else.
    #[error(
        "pack {key}: {} is a {kind} of uid {uid} with mode {mode:04o}, expected a regular file of \
         one of {trusted:?} that others can't write; {moved}",
        path.display()
    )]
    Untrusted {
        /// The key.
        key: PackKey,
        /// The record's path.
        path: PathBuf,
        /// What is there.
        kind: FileKind,
        /// Its owner.
        uid: u32,
        /// Its permission bits.
        mode: u32,
        /// The owners trusted.
        trusted: Vec<u32>,
        /// Where it went.
        moved: Moved,
    },
    /// The record is longer than any.
    #[error(
        "pack {key} is corrupt: {} has {actual} bytes, at most {PACK_BYTES_MAX} are read; {moved}",
        path.display()
    )]
    TooLong {
        /// The key.
        key: PackKey,
        /// The record's path.
        path: PathBuf,
        /// Its length.
        actual: u64,
        /// Where it went.
        moved: Moved,
    },
    /// The record is damaged.
    #[error("{} is corrupt: {error}; {moved}", path.display())]
    Corrupt {
        /// The key.
        key: PackKey,
        /// The record's path.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<RecordError>,
        /// Where it went.
        moved: Moved,
    },
    /// Its folder is not trusted.
    #[error("pack {key}: {error}")]
    Folder {
        /// The key.
        key: PackKey,
        /// What is wrong with the folder.
        error: Box<OpenError>,
    },
    /// The system said no.
    #[error("pack {key}: {error}")]
    Fs {
        /// The key.
        key: PackKey,
        /// The failure.
        error: FsError,
    },
}

/// Why a pack was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishPackError {
    /// Its object is not in the store, or not sound.
    #[error("pack {key} can't be published before its object: {refusal}")]
    Object {
        /// The key.
        key: PackKey,
        /// What is wrong with the object.
        refusal: Box<ObjectRefusal>,
    },
    /// The same identity was packed to two different payloads, both intact.
    #[error(
        "layout {layout} is not deterministic: pack {key} has object {theirs} and now {ours}, \
         both intact"
    )]
    NotDeterministic {
        /// The layout to refuse.
        layout: String,
        /// The key.
        key: PackKey,
        /// The object of the record there.
        theirs: ObjectDigest,
        /// The object of the record to publish.
        ours: ObjectDigest,
    },
    /// The record there can't be read or moved.
    #[error(transparent)]
    Record(#[from] Box<PackRefusal>),
    /// Publishing failed.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Store {
    /// Finds the record of a pack. A damaged one goes to quarantine.
    pub fn lookup_pack(&self, key: &PackKey) -> Result<PackRecord, PackRefusal> {
        let name = key.to_string();
        let missing = PackRefusal::Missing { key: *key };
        let folder = self
            .open_prefix(Base::Packs, &name[..2])
            .map_err(|error| PackRefusal::Folder {
                key: *key,
                error: Box::new(error),
            })?
            .ok_or(missing)?;
        self.lookup_pack_in(&folder, key)
    }

    /// Finds the record of a pack in the folder of its prefix.
    pub(crate) fn lookup_pack_in(
        &self,
        folder: &Dir,
        key: &PackKey,
    ) -> Result<PackRecord, PackRefusal> {
        let file = match folder.open_file(key.to_string()) {
            Ok(file) => file,
            Err(error) if error.kind == FsErrorKind::NotFound => {
                return Err(PackRefusal::Missing { key: *key });
            }
            Err(error) if error.kind == FsErrorKind::Symlink => {
                return Err(self.refuse_link(key, folder, error));
            }
            Err(error) => return Err(refusal(key, error)),
        };
        self.read_record(key, &file)
    }

    /// Moves a pack's record to quarantine, because what it binds to its identity proved wrong
    /// although the object is intact: an edited record, or a pack of bytes that changed while they
    /// were packed.
    pub fn distrust_pack(&self, key: &PackKey) -> Moved {
        self.quarantine(Base::Packs, &key.to_string(), None)
    }

    /// Publishes the record of a pack whose object is in the store.
    ///
    /// Errors with `NotDeterministic` when the key exists with another object and both are intact.
    pub fn publish_pack(&self, record: &PackRecord) -> Result<SmallOutcome, PublishPackError> {
        let key = record.key();
        let name = key.to_string();
        self.writable()?;
        // Until the record is linked, no gc of this user takes the object away.
        let _shared = self.hold_off_gc();
        self.object_for_sample(&record.object, record.length)
            .map_err(|refusal| PublishPackError::Object {
                key,
                refusal: Box::new(refusal),
            })?;
        let folder = self
            .make_prefix(Base::Packs, &name[..2])
            .map_err(PublishError::from)?;
        let bytes = record.render();
        let mut attempts = 0;
        loop {
            match publish_small(self.fs.as_ref(), &folder, &name, &bytes) {
                Ok(SmallOutcome::Created) => return Ok(SmallOutcome::Created),
                // The same bytes, but perhaps of a stranger, or writable by others.
                Ok(SmallOutcome::Equal) => match self.lookup_pack(&key) {
                    Ok(_) => return Ok(SmallOutcome::Equal),
                    Err(refusal) => {
                        attempts += 1;
                        if attempts == ATTEMPTS || !refusal.name_is_free() {
                            return Err(PublishPackError::Record(Box::new(refusal)));
                        }
                        continue;
                    }
                },
                Err(error) => {
                    attempts += 1;
                    let taken = match &error {
                        PublishError::Conflict { .. } => true,
                        // A symlink, a folder, a file that can't be read.
                        PublishError::Fs(error) => {
                            matches!(error.kind, FsErrorKind::Symlink | FsErrorKind::IsDirectory)
                        }
                        PublishError::Cancelled { .. }
                        | PublishError::ReadOnly { .. }
                        | PublishError::Room(_)
                        | PublishError::Occupied { .. }
                        | PublishError::Replaced { .. }
                        | PublishError::Folder(_) => false,
                    };
                    if !taken || attempts == ATTEMPTS {
                        return Err(error.into());
                    }
                }
            }
            self.resolve_conflict(record, &folder, &name)?;
        }
    }

    /// Frees the name of a record that differs from ours, or says why it must stay.
    fn resolve_conflict(
        &self,
        ours: &PackRecord,
        folder: &Dir,
        name: &str,
    ) -> Result<(), PublishPackError> {
        let key = ours.key();
        let theirs = match self.lookup_pack(&key) {
            Ok(theirs) => theirs,
            Err(PackRefusal::Missing { .. }) => return Ok(()),
            Err(refusal) if refusal.name_is_free() => return Ok(()),
            Err(refusal) => return Err(PublishPackError::Record(Box::new(refusal))),
        };
        // The same object under another geometry: the record was edited. Ours comes from the
        // packer.
        if theirs.object != ours.object {
            self.object(&ours.object, ours.length, ObjectTrust::Deep)
                .map_err(|refusal| PublishPackError::Object {
                    key,
                    refusal: Box::new(refusal),
                })?;
            let their_object = self.object(&theirs.object, theirs.length, ObjectTrust::Deep);
            if their_object.is_ok() {
                return Err(PublishPackError::NotDeterministic {
                    layout: ours.identity.layout.clone(),
                    key,
                    theirs: theirs.object,
                    ours: ours.object,
                });
            }
        }
        let judged = folder.open_file(name).ok();
        self.quarantine_entry(folder, name, judged.as_ref());
        Ok(())
    }

    fn read_record(&self, key: &PackKey, file: &File) -> Result<PackRecord, PackRefusal> {
        let path = file.path().to_owned();
        let moved = || self.quarantine(Base::Packs, &key.to_string(), Some(file));
        let stat = file.stat().map_err(|error| refusal(key, error))?;
        let sound = stat.kind == FileKind::Regular
            && self.owners.trusts(stat.uid)
            && stat.mode & 0o022 == 0;
        if !sound {
            return Err(PackRefusal::Untrusted {
                key: *key,
                path,
                kind: stat.kind,
                uid: stat.uid,
                mode: stat.mode,
                trusted: self.owners.uids().to_vec(),
                moved: moved(),
            });
        }
        if stat.size > PACK_BYTES_MAX {
            return Err(PackRefusal::TooLong {
                key: *key,
                path,
                actual: stat.size,
                moved: moved(),
            });
        }
        let bytes = file
            .read_stated(&stat, PACK_BYTES_MAX)
            .map_err(|error| refusal(key, error))?;
        PackRecord::parse(*key, &bytes).map_err(|error| PackRefusal::Corrupt {
            key: *key,
            path,
            error: Box::new(error),
            moved: moved(),
        })
    }

    fn refuse_link(&self, key: &PackKey, folder: &Dir, error: FsError) -> PackRefusal {
        let name = key.to_string();
        match folder.stat_entry(&name) {
            Ok(stat) => PackRefusal::Untrusted {
                key: *key,
                path: error.path,
                kind: stat.kind,
                uid: stat.uid,
                mode: stat.mode,
                trusted: self.owners.uids().to_vec(),
                moved: self.quarantine(Base::Packs, &name, None),
            },
            Err(error) => refusal(key, error),
        }
    }
}

impl PackRefusal {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Missing { .. }
            | Self::Untrusted { .. }
            | Self::TooLong { .. }
            | Self::Corrupt { .. } => Blame::Store,
            Self::Folder { error, .. } => error.blame(),
            Self::Fs { error, .. } => error.blame(),
        }
    }

    /// One word for counters and reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Untrusted { .. } => "untrusted",
            Self::TooLong { .. } | Self::Corrupt { .. } => "corrupt",
            Self::Folder { .. } => "folder",
            Self::Fs { .. } => "host",
        }
    }

    fn name_is_free(&self) -> bool {
        match self {
            Self::Missing { .. } => true,
            Self::Untrusted { moved, .. }
            | Self::TooLong { moved, .. }
            | Self::Corrupt { moved, .. } => moved.name_is_free(),
            Self::Folder { .. } | Self::Fs { .. } => false,
        }
    }
}

impl PublishPackError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Object { refusal, .. } => refusal.blame(),
            Self::NotDeterministic { .. } => Blame::Source,
            Self::Record(refusal) => refusal.blame(),
            Self::Publish(error) => error.blame(),
        }
    }
}

/// The longest pack record that is read.
pub const PACK_BYTES_MAX: u64 = 64 << 10;

const ATTEMPTS: u32 = 3;

fn refusal(key: &PackKey, error: FsError) -> PackRefusal {
    PackRefusal::Fs { key: *key, error }
}
