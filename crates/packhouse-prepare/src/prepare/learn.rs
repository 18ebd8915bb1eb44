//! What is learnt of a model's files, and noted in the source ledger on the way.
//!
//! Invariants:
//! - only digests of bytes that were read while the file's stat identity was settled, and is still
//!   the one it was opened with, are noted;
//! - a file on a file system whose stat proves nothing is never noted or believed, nor is one that
//!   somebody can write to now: a mapping may change a dirty page without any time showing it;
//! - a ledger that says otherwise is replaced by what was read now.
//!
//! Never: fails a prepare because a note could not be made.

use crate::model::{Model, ModelError, ModelFile};
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_store::ledger::{SourceLedger, SourceRange};
use packhouse_store::root::Store;
use packhouse_store::state::{Recorded, STAT_SETTLE_NS, settle_wait_ns};
use packhouse_sys::stat::FsTrust;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known of a model's files.
pub(super) struct Learnt<'a> {
    model: &'a Model,
    shards: Mutex<Vec<Shard>>,
    complaint: Mutex<Option<String>>,
}

struct Shard {
    directory: Digest,
    known: BTreeMap<SourceRange, TensorDigest>,
    /// Read now, not noted yet.
    fresh: BTreeMap<SourceRange, TensorDigest>,
    /// Wall-clock time before anything was hashed, once the stat identity was settled.
    seen_ns: Option<i64>,
}

impl<'a> Learnt<'a> {
    /// Reads what the ledger knows of the files.
    pub(super) fn new(store: &Store, model: &'a Model) -> Self {
        let directories = model.container().shards();
        let shards = model.files().iter().zip(directories);
        let shards = shards.map(|(file, directory)| Shard {
            directory: directory.digest(),
            known: known(store, file, directory.digest()),
            fresh: BTreeMap::new(),
            seen_ns: None,
        });
        Self {
            model,
            shards: Mutex::new(shards.collect()),
            complaint: Mutex::new(None),
        }
    }

    /// The digest of exactly these bytes.
    pub(super) fn digest(&self, shard: usize, range: SourceRange) -> Option<TensorDigest> {
        let shards = self.lock();
        let shard = shards.get(shard)?;
        let fresh = shard.fresh.get(&range);
        fresh.or_else(|| shard.known.get(&range)).copied()
    }

    /// The digest of a whole file.
    pub(super) fn whole(&self, shard: usize) -> Option<Digest> {
        let size = self.model.files().get(shard)?.identity().size;
        Some(self.digest(shard, whole_range(size))?.0)
    }

    /// Waits until the next change of the files will show in their stat identities: once, and only
    /// if they changed within the last seconds. `cancel` ends it.
    pub(super) fn settle(&self, store: &Store, cancel: &dyn Fn() -> bool) {
        let clock = store.clock();
        for (index, file) in self.model.files().iter().enumerate() {
            if file.fs_trust() == FsTrust::Remote || self.is_writable(file) {
                continue;
            }
            let mut left_ns = settle_wait_ns(file.identity(), clock.wall_ns()).unwrap_or(0);
            if left_ns > 2 * STAT_SETTLE_NS {
                let path = file.path().display();
                self.complain(format!("{path}: its ctime lies ahead of the clock"));
                continue;
            }
            while left_ns > 0 && !cancel() {
                let step_ns = left_ns.min(STEP_NS);
                clock.sleep_ns(step_ns);
                left_ns -= step_ns;
            }
            let now_ns = clock.wall_ns();
            if settle_wait_ns(file.identity(), now_ns).is_none() {
                self.lock()[index].seen_ns = Some(now_ns);
            }
        }
    }

    /// Takes the digest of bytes that were read now.
    pub(super) fn learn(&self, shard: usize, range: SourceRange, digest: TensorDigest) {
        if let Some(shard) = self.lock().get_mut(shard)
            && shard.known.get(&range) != Some(&digest)
        {
            shard.fresh.insert(range, digest);
        }
    }

    /// Notes what was learnt. Errors when a file is no longer what it was: nothing of it is noted.
    pub(super) fn note(&self, store: &Store) -> Result<(), ModelError> {
        let files = self.model.files();
        for (index, file) in files.iter().enumerate() {
            let (learnt, seen_ns) = {
                let shards = self.lock();
                let shard = &shards[index];
                (shard.fresh.clone(), shard.seen_ns)
            };
            file.unchanged()?;
            let Some(seen_ns) = seen_ns.filter(|_| !learnt.is_empty()) else {
                continue;
            };
            if self.is_writable(file) {
                self.lock()[index].seen_ns = None;
                continue;
            }
            let directory = self.lock()[index].directory;
            let ledger = SourceLedger::new(*file.identity(), directory, learnt.clone());
            let noted = match store.sources() {
                Ok(sources) => sources.extend(&ledger, seen_ns).map_err(|e| e.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match noted {
                Ok(Recorded::Written) => self.lock()[index].move_to_known(learnt),
                Ok(Recorded::NotYet { .. }) => {}
                Err(text) => self.complain(format!("source ledger: {text}")),
            }
        }
        Ok(())
    }

    /// Whether somebody can write to a file, which is then complained of.
    fn is_writable(&self, file: &ModelFile) -> bool {
        let is_writable = file.has_writer();
        if is_writable {
            let path = file.path().display();
            self.complain(format!(
                "{path}: a process has it open for writing, so what is read of it is not remembered"
            ));
        }
        is_writable
    }

    /// The first thing that could not be noted.
    pub(super) fn complaint(&self) -> Option<String> {
        let complaint = self.complaint.lock();
        complaint.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn complain(&self, text: String) {
        let complaint = self.complaint.lock();
        complaint
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(text);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Shard>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    fn move_to_known(&mut self, noted: BTreeMap<SourceRange, TensorDigest>) {
        self.fresh
            .retain(|range, digest| noted.get(range) != Some(&*digest));
        self.known.extend(noted);
    }
}

/// The range of a whole file.
pub(super) fn whole_range(size: u64) -> SourceRange {
    SourceRange {
        offset: 0,
        length: size,
    }
}

/// What the ledger says of an unchanged file with this directory.
pub(crate) fn known(
    store: &Store,
    file: &ModelFile,
    directory: Digest,
) -> BTreeMap<SourceRange, TensorDigest> {
    if file.fs_trust() == FsTrust::Remote || file.has_writer() {
        return BTreeMap::new();
    }
    let found = store.sources().ok();
    let found = found.and_then(|sources| sources.lookup(file.identity()).ok());
    let ledger = found.map(|found| found.ledger);
    // A ledger of another directory is of another file, whatever its stat identity says.
    let ledger = ledger.filter(|ledger| ledger.directory() == directory);
    ledger.map_or_else(BTreeMap::new, |ledger| ledger.tensors().clone())
}

const STEP_NS: u64 = 50_000_000;
