//! The cold way of `prepare`, under the path's turn: the content is looked for under other paths,
//! by a remembered digest, or by hashing where the sizes fit; a copy whose stat identity changed is
//! believed anew, but only after it was hashed; else the model is copied.
//!
//! Invariants:
//! - the model's turn is held while its copy is judged, published or dropped;
//! - a path's record is written last, so that a crash before it costs a hash and no copy;
//! - at most one turn on a path and, in it, one on a model is held, so nobody waits in a circle.

use crate::copy::{COPY_MODE, rounded};
use crate::models::collect::remove_copies;
use crate::models::copy::{Copied, Copier, Original};
use crate::models::digests::{FileDigestError, FileDigests, digest_of};
use crate::models::entry::{CopyProblem, CopyRefusal, Entry, entries, entries_of};
use crate::models::find::{AdmittedModel, ModelMiss, admit, find_key};
use crate::models::hash::hash_file;
use crate::models::key::{EntryName, ModelKey};
use crate::models::prepare::{
    ModelEvent, ModelFiles, ModelOptions, ModelOutcome, ModelPrepareError, ModelWatcher,
    PreparedModel,
};
use crate::models::receipts::{FileReceipt, ModelReceipts};
use crate::models::source::{
    SourceRecord, copy_name, read_all, read_record, record_name, remote_kind, write_record,
};
use crate::models::temp::TempCopy;
use crate::room::{Reservation, RoomError};
use crate::root::StageRoot;
use crate::settle::wait_settled;
use crate::turn::{Turn, take_turn};
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{File, FsError};
use packhouse_sys::stat::{FileKind, StatIdentity};

/// One preparation.
pub(crate) struct Work<'a> {
    pub(crate) root: &'a StageRoot,
    pub(crate) digests: Option<&'a FileDigests>,
    pub(crate) files: ModelFiles<'a>,
    pub(crate) options: &'a ModelOptions,
    pub(crate) watcher: ModelWatcher<'a>,
}

/// What is known of the sources before anything is copied.
struct Known {
    digests: Vec<Digest>,
    hashed_bytes: u64,
}

/// What is there of a model.
enum Standing {
    Good,
    Absent,
    /// What is wrong, and the copy where its receipts can be read.
    Bad(CopyProblem, Option<Box<Entry>>),
}

impl Work<'_> {
    /// Refuses what is no model to copy.
    pub(crate) fn judge_request(&self) -> Result<(), ModelPrepareError> {
        let (files, wanted) = (self.files.files, self.files.expected);
        if files.is_empty() {
            return Err(ModelPrepareError::NoFiles);
        }
        if !wanted.is_empty() && wanted.len() != files.len() {
            return Err(ModelPrepareError::ExpectedCount {
                expected: files.len(),
                actual: wanted.len(),
            });
        }
        for file in files {
            let (stat, path) = (file.stat()?, file.path().to_owned());
            if stat.kind != FileKind::Regular {
                let kind = stat.kind;
                return Err(ModelPrepareError::Kind { path, kind });
            }
            if file.has_writer() == Some(true) {
                return Err(ModelPrepareError::Writer { path });
            }
        }
        Ok(())
    }

    /// The copy of the path, where it holds and the source is what was copied.
    pub(crate) fn standing(&self) -> Result<Option<AdmittedModel>, ModelPrepareError> {
        let Ok(Some(record)) = read_record(self.root, self.files.path) else {
            return Ok(None);
        };
        if !record.is_of(self.files.files)? {
            return Ok(None);
        }
        let Ok(Some(model)) = find_key(self.root, record.key) else {
            return Ok(None);
        };
        let digests: Vec<Digest> = model.files.iter().map(|file| file.digest).collect();
        self.judge_digests(&digests)?;
        Ok(Some(model))
    }

    /// Waits for the path's turn.
    pub(crate) fn turn_of_path(&self) -> Result<File, ModelPrepareError> {
        let path = self.files.path;
        self.turn(&record_name(path), &path.display())
    }

    /// The cold way, under the path's turn.
    pub(crate) fn make(&self) -> Result<PreparedModel, ModelPrepareError> {
        let identities = self.settled_sources()?;
        let before = read_record(self.root, self.files.path).ok().flatten();
        if let Some(known) = self.known(&identities)? {
            self.judge_digests(&known.digests)?;
            let key = ModelKey::of(&known.digests);
            let _turn = self.turn(&key.0, &key)?;
            if let Some(outcome) = self.found(key, known.hashed_bytes)? {
                return self.conclude(&identities, &known.digests, outcome, before.as_ref());
            }
        }
        let (room, temp, copies) = self.copy(&identities, before.as_ref())?;
        let digests: Vec<Digest> = copies.iter().map(|copy| copy.digest).collect();
        self.judge_digests(&digests)?;
        let key = ModelKey::of(&digests);
        let _turn = self.turn(&key.0, &key)?;
        let bytes = copies.iter().map(|copy| copy.identity.size).sum();
        let outcome = match self.look(key)? {
            // Somebody copied the same from another path meanwhile; this copy goes.
            Standing::Good => ModelOutcome::Found {
                hashed_bytes: bytes,
            },
            Standing::Absent => {
                self.publish(temp, key, copies)?;
                ModelOutcome::Copied { bytes }
            }
            Standing::Bad(why, _) => {
                self.publish(temp, key, copies)?;
                ModelOutcome::Replaced { bytes, why }
            }
        };
        drop(room);
        self.conclude(&identities, &digests, outcome, before.as_ref())
    }

    /// The sources' stat identities, once they are old enough to be believed.
    fn settled_sources(&self) -> Result<Vec<StatIdentity>, ModelPrepareError> {
        let identities = self.files.files.iter().map(File::identity);
        let identities = identities.collect::<Result<Vec<_>, _>>()?;
        self.settle(&identities)?;
        Ok(identities)
    }

    /// The sources' digests, where they are remembered, or worth to be found before anything is
    /// copied: a copy of files of these lengths is there, and may be of these very bytes.
    fn known(&self, identities: &[StatIdentity]) -> Result<Option<Known>, ModelPrepareError> {
        if let Some(digests) = self.remembered(identities) {
            return Ok(Some(Known {
                digests,
                hashed_bytes: 0,
            }));
        }
        let lengths = || identities.iter().map(|identity| identity.size);
        let mut has_twin = false;
        for name in entries(self.root)? {
            if let Ok(Some(entry)) = Entry::open(self.root, name) {
                let sizes = entry.receipts.files.iter().map(|file| file.size);
                has_twin |= sizes.eq(lengths());
            }
        }
        if !has_twin {
            return Ok(None);
        }
        let bytes = lengths().sum();
        (self.watcher.tell)(ModelEvent::Hash { bytes });
        let tell = |bytes| (self.watcher.tell)(ModelEvent::Done { bytes });
        let digests = self.files.files.iter().map(|file| {
            let found = digest_of(self.digests, file, &tell, self.watcher.cancel);
            found
                .map(|found| found.digest)
                .map_err(|error| match error {
                    FileDigestError::Cancelled => ModelPrepareError::Cancelled,
                    FileDigestError::Kind { .. }
                    | FileDigestError::Changed { .. }
                    | FileDigestError::Fs(_) => ModelPrepareError::Source(error),
                })
        });
        Ok(Some(Known {
            digests: digests.collect::<Result<_, _>>()?,
            hashed_bytes: bytes,
        }))
    }

    fn remembered(&self, identities: &[StatIdentity]) -> Option<Vec<Digest>> {
        let files = self.files.files.iter().zip(identities);
        let each = files.map(|(file, identity)| match remote_kind(file) {
            Ok(None) => self.digests?.known(identity),
            Ok(Some(_)) | Err(_) => None,
        });
        each.collect()
    }

    /// Whether a copy of a known content is there and holds, or can be believed anew.
    fn found(
        &self,
        key: ModelKey,
        hashed_bytes: u64,
    ) -> Result<Option<ModelOutcome>, ModelPrepareError> {
        match self.look(key)? {
            Standing::Good => Ok(Some(ModelOutcome::Found { hashed_bytes })),
            Standing::Bad(why, Some(entry)) if self.rehash(&entry)? => {
                let bytes = entry.receipts.bytes();
                Ok(Some(ModelOutcome::Rehashed { bytes, why }))
            }
            Standing::Bad(..) | Standing::Absent => Ok(None),
        }
    }

    /// Moves a failed copy's files to a new one, hashes them there, and publishes that if they are
    /// what the receipts say. Says whether they are; what is not is gone.
    fn rehash(&self, entry: &Entry) -> Result<bool, ModelPrepareError> {
        let receipts = &entry.receipts.files;
        for receipt in receipts {
            if !self.is_worth_hashing(entry, receipt)? {
                return Ok(false);
            }
        }
        let room = self.root.reserve(SMALL_BYTES, 0, self.options.memory)?;
        let temp = TempCopy::make(self.root, &room)?;
        let bytes = entry.receipts.bytes();
        (self.watcher.tell)(ModelEvent::Hash { bytes });
        let mut files = Vec::new();
        for receipt in receipts {
            let name = &receipt.name;
            entry.files.rename_new(name, &temp.files, name)?;
            let file = temp.files.open_file(name)?;
            file.set_mode(COPY_MODE)?;
            files.push(file);
        }
        let identities = files.iter().map(File::identity);
        let identities = identities.collect::<Result<Vec<_>, _>>()?;
        self.settle(&identities)?;
        let mut copies = Vec::new();
        for ((file, identity), receipt) in files.iter().zip(identities).zip(receipts) {
            let tell = |bytes| (self.watcher.tell)(ModelEvent::Done { bytes });
            let digest = hash_file(file, receipt.size, &tell, self.watcher.cancel)?;
            let digest = digest.ok_or(ModelPrepareError::Cancelled)?;
            if digest != receipt.digest || file.has_writer() == Some(true) {
                return Ok(false);
            }
            copies.push(Copied {
                name: receipt.name.clone(),
                digest,
                identity,
            });
        }
        self.publish(temp, entry.name.key, copies)?;
        Ok(true)
    }

    /// Whether a file of a failed copy can be the one that its receipt is about.
    fn is_worth_hashing(&self, entry: &Entry, receipt: &FileReceipt) -> Result<bool, FsError> {
        let file = match entry.open_named(&receipt.name) {
            Ok(file) => file,
            Err(CopyRefusal::Fs(error)) => return Err(error),
            Err(_) => return Ok(false),
        };
        let stat = file.stat()?;
        let is_plain = stat.kind == FileKind::Regular && stat.link_count == 1;
        let is_sized = stat.size == receipt.size && self.root.own.trusts(stat.uid);
        Ok(is_plain && is_sized && file.has_writer() != Some(true))
    }

    /// Copies all files into a folder that nobody sees yet.
    fn copy(
        &self,
        identities: &[StatIdentity],
        before: Option<&SourceRecord>,
    ) -> Result<(Reservation, TempCopy, Vec<Copied>), ModelPrepareError> {
        let names = self.names()?;
        let room = self.reserve(identities, before)?;
        let bytes = identities.iter().map(|identity| identity.size).sum();
        (self.watcher.tell)(ModelEvent::Copy { bytes });
        let temp = TempCopy::make(self.root, &room)?;
        let copier = Copier {
            files: &temp.files,
            room: &room,
            threads: self.options.threads,
            copied: &|bytes| (self.watcher.tell)(ModelEvent::Done { bytes }),
            cancel: self.watcher.cancel,
        };
        let originals = self.files.files.iter().zip(identities).zip(names);
        let copies = originals.map(|((file, identity), name)| {
            copier.copy(Original {
                file,
                identity: *identity,
                name,
            })
        });
        let copies = copies.collect::<Result<Vec<_>, _>>()?;
        let identities: Vec<StatIdentity> = copies.iter().map(|copy| copy.identity).collect();
        self.settle(&identities)?;
        Ok((room, temp, copies))
    }

    /// What the copies are called: as their sources.
    fn names(&self) -> Result<Vec<String>, ModelPrepareError> {
        let files = self.files.files;
        let names = files.iter().map(|file| match copy_name(file.path()) {
            Some(name) => Ok(name),
            None if files.len() == 1 => Ok(ONLY_NAME.to_owned()),
            None => Err(ModelPrepareError::Name {
                path: file.path().to_owned(),
            }),
        });
        names.collect()
    }

    /// Reserves room; where there is too little, the path's failed copy gives its up.
    fn reserve(
        &self,
        identities: &[StatIdentity],
        before: Option<&SourceRecord>,
    ) -> Result<Reservation, ModelPrepareError> {
        let lengths = identities.iter().map(|identity| rounded(identity.size));
        let wanted = lengths.fold(SMALL_BYTES, u64::saturating_add);
        let (keep, memory) = (self.options.min_free_bytes, self.options.memory);
        let reserve = || self.root.reserve(wanted, keep, memory);
        match (reserve(), before) {
            (Err(error @ RoomError::Short { .. }), Some(before)) => {
                let _turn = self.turn(&before.key.0, &before.key)?;
                let Standing::Bad(..) = self.look(before.key)? else {
                    return Err(error.into());
                };
                remove_copies(self.root, before.key, None)?;
                Ok(reserve()?)
            }
            (other, _) => Ok(other?),
        }
    }

    /// Publishes a copy as the newest of its model, and removes the older ones.
    fn publish(
        &self,
        temp: TempCopy,
        key: ModelKey,
        copies: Vec<Copied>,
    ) -> Result<(), ModelPrepareError> {
        let newest = entries_of(self.root, key)?.pop();
        let next = newest.map_or(Some(1), |newest| newest.generation.checked_add(1));
        if next.is_none() {
            // None can follow it, so the failed copy goes first.
            remove_copies(self.root, key, None)?;
        }
        let generation = next.unwrap_or(1);
        let receipts = receipts(&temp, key, generation, copies)?;
        temp.publish(EntryName { key, generation }, &receipts.render())?;
        Ok(remove_copies(self.root, key, Some(generation))?)
    }

    /// Notes where the content was found and what was hashed, and answers with the copy.
    fn conclude(
        &self,
        identities: &[StatIdentity],
        digests: &[Digest],
        outcome: ModelOutcome,
        before: Option<&SourceRecord>,
    ) -> Result<PreparedModel, ModelPrepareError> {
        let key = ModelKey::of(digests);
        let record = SourceRecord::new(self.files.path, key, identities.to_vec());
        write_record(self.root, &record)?;
        for ((file, identity), digest) in self.files.files.iter().zip(identities).zip(digests) {
            if let Some(remember) = self.digests
                && remote_kind(file)?.is_none()
                && remember.known(identity) != Some(*digest)
            {
                // What can't be remembered costs a hash at another time.
                let _ = remember.record(identity, *digest);
            }
        }
        let miss = |miss| ModelPrepareError::Miss(Box::new(miss));
        let model = find_key(self.root, key).map_err(miss)?;
        let path = self.files.path.to_owned();
        Ok(PreparedModel {
            model: model.ok_or_else(|| miss(ModelMiss::Absent { path }))?,
            outcome,
            previous: self.previous(before, key)?,
        })
    }

    /// The model that the path was before, if its copy is still there and no other path is of it.
    fn previous(
        &self,
        before: Option<&SourceRecord>,
        key: ModelKey,
    ) -> Result<Option<ModelKey>, FsError> {
        let Some(before) = before.filter(|before| before.key != key) else {
            return Ok(None);
        };
        let records = read_all(self.root)?;
        let mut records = records
            .iter()
            .filter_map(|(_, record)| record.as_ref().ok());
        let is_shared = records.any(|record| record.key == before.key);
        let is_there = !entries_of(self.root, before.key)?.is_empty();
        Ok((is_there && !is_shared).then_some(before.key))
    }

    /// Judges the newest copy of a model by its receipts; writes nothing.
    fn look(&self, key: ModelKey) -> Result<Standing, ModelPrepareError> {
        let Some(name) = entries_of(self.root, key)?.pop() else {
            return Ok(Standing::Absent);
        };
        let (problem, entry) = match Entry::open(self.root, name) {
            Ok(None) => return Ok(Standing::Absent),
            Ok(Some(entry)) => match admit(&entry) {
                Ok(_) => return Ok(Standing::Good),
                Err(problem) => (problem, Some(Box::new(entry))),
            },
            Err(problem) => (problem, None),
        };
        match problem.passing() {
            Some(error) => Err(error.clone().into()),
            None => Ok(Standing::Bad(problem, entry)),
        }
    }

    fn judge_digests(&self, actual: &[Digest]) -> Result<(), ModelPrepareError> {
        let files = self.files.files.iter().zip(actual);
        for ((file, actual), expected) in files.zip(self.files.expected) {
            if actual != expected {
                return Err(ModelPrepareError::WrongDigest {
                    path: file.path().to_owned(),
                    expected: *expected,
                    actual: *actual,
                });
            }
        }
        Ok(())
    }

    fn turn(
        &self,
        digest: &Digest,
        what: &dyn std::fmt::Display,
    ) -> Result<File, ModelPrepareError> {
        let waits = || (self.watcher.tell)(ModelEvent::Waits);
        let timeout_ns = self.options.wait_ns;
        match take_turn(self.root, digest, timeout_ns, &waits, self.watcher.cancel)? {
            Turn::Had(held) => Ok(held),
            Turn::Cancelled => Err(ModelPrepareError::Cancelled),
            Turn::TimedOut => Err(ModelPrepareError::Busy {
                what: what.to_string(),
                timeout_ns,
            }),
        }
    }

    fn settle(&self, identities: &[StatIdentity]) -> Result<(), ModelPrepareError> {
        let tell = |wait_ns| (self.watcher.tell)(ModelEvent::Settle { wait_ns });
        wait_settled(self.root.clock.as_ref(), identities.iter(), &tell)
            .map_err(|behind_ns| ModelPrepareError::Clock { behind_ns })
    }
}

/// The receipts of a copy that waits to be published. Errors when a file changed since it was read
/// back.
fn receipts(
    temp: &TempCopy,
    key: ModelKey,
    generation: u64,
    copies: Vec<Copied>,
) -> Result<ModelReceipts, ModelPrepareError> {
    let first = copies.first().ok_or(ModelPrepareError::NoFiles)?.identity;
    let mut files = Vec::new();
    for copy in copies {
        let file = temp.files.open_file(&copy.name)?;
        let (path, now) = (temp.files.path().join(&copy.name), file.identity()?);
        if file.has_writer() == Some(true) {
            return Err(ModelPrepareError::Writer { path });
        }
        if let Some(field) = copy.identity.difference(&now) {
            return Err(ModelPrepareError::Changed { path, field });
        }
        files.push(FileReceipt {
            name: copy.name,
            digest: copy.digest,
            inode: now.inode,
            inode_generation: now.generation,
            size: now.size,
            mtime_ns: now.mtime_ns,
            ctime_ns: now.ctime_ns,
        });
    }
    Ok(ModelReceipts {
        key,
        generation,
        file_system: first.file_system,
        uid: first.uid,
        mode: first.mode,
        files,
    })
}

/// Name of the copy of a file whose own name is no UTF-8.
const ONLY_NAME: &str = "model.gguf";
/// Receipts, folders and records of a copy.
const SMALL_BYTES: u64 = 256 << 10;
