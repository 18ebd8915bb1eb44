//! `stage`: a verified copy of a set in RAM, made once.
//!
//! The hot way reads the set's manifest and the stage's receipts, and asks each copy's descriptor
//! for its stat: nothing is hashed, written or locked. The cold way holds the set's lock, reserves
//! room, copies and hashes in one pass, waits until the copies' ctime is old enough to be believed,
//! and renames the folder into its place.
//!
//! Invariants:
//! - every step before the rename is undone on failure; what a dead stager left is removed by the
//!   next;
//! - two processes that stage one set copy once: the second waits, and finds the first one's;
//! - a stage that fails its check stays until its successor is there, unless its room is needed.
//!
//! Never: needs to write to the store.

use crate::collect::{remove, remove_tree};
use crate::copy::{self, Copier, CopyError, rounded};
use crate::name::{INDEX_NAME, MANIFEST_NAME, OBJECTS_NAME, RECEIPTS_NAME, StageName};
use crate::receipts::{CopyReceipt, StageReceipts};
use crate::room::{Reservation, RoomError};
use crate::root::StageRoot;
use crate::settle::wait_settled;
use crate::staged::{FOLDER_MODE, StageMiss, StagedRefusal, StagedSet};
use crate::turn::{Turn, take_turn, try_turn};
use crate::validate::first_problem;
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, ObjectDigest, SetKey};
use packhouse_store::manifest::SetManifest;
use packhouse_store::root::{Store, StoreId};
use packhouse_store::set::SetMiss;
use packhouse_sys::fs::{Dir, File, FsError};
use packhouse_sys::memory::MemoryRoom;
use packhouse_sys::stat::{StatIdentity, Volume};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// How a set is staged.
#[derive(Clone, Copy, Debug)]
pub struct StageOptions {
    /// Bytes that stay free in the file system, in the host's memory and in the control group.
    pub min_free_bytes: u64,
    /// Objects copied at once.
    pub threads: NonZeroUsize,
    /// How long another process that stages the same set is waited for.
    pub wait_ns: u64,
    /// Asks the host for its memory.
    pub memory: fn() -> MemoryRoom,
}

/// A stage that is there and holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The set.
    pub set: SetKey,
    /// Which stage of it.
    pub generation: u64,
    /// Its folder.
    pub path: PathBuf,
    /// Slots of the set.
    pub tensor_count: u64,
    /// Copies; an object that several slots share counts once.
    pub object_count: u64,
    /// Bytes of all copies.
    pub bytes: u64,
    /// The store that the copies were made of, whose gc removes them; not always the one asked.
    pub store: StoreId,
    /// How it came to be there.
    pub outcome: StageOutcome,
}

/// How a stage came to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageOutcome {
    /// It was there and holds; nothing was hashed.
    Reused,
    /// It was copied now.
    Copied {
        /// Bytes copied and hashed.
        bytes: u64,
    },
    /// It was copied now, because the one before it failed.
    Replaced {
        /// Bytes copied and hashed.
        bytes: u64,
        /// What was wrong with the one before.
        why: StageProblem,
    },
}

/// What is wrong with a stage that is replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageProblem {
    /// The stage as a whole.
    #[error(transparent)]
    Miss(#[from] StageMiss),
    /// One copy; others may be bad too.
    #[error("slot {slot} ({tensor:?}): {source}")]
    Tensor {
        /// The slot.
        slot: u64,
        /// Its tensor.
        tensor: String,
        /// What is wrong.
        source: StagedRefusal,
    },
    /// The store has other objects under the set's packs now.
    #[error("stage {stage}: the store's manifest has digest {expected}, the stage's {actual}")]
    OtherManifest {
        /// The stage.
        stage: String,
        /// Digest of the store's manifest.
        expected: Digest,
        /// Digest of the stage's.
        actual: Digest,
    },
}

/// What a stager tells while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageEvent {
    /// Another process stages the set and is waited for.
    Waits,
    /// So many bytes will be copied.
    Begin {
        /// All bytes.
        bytes: u64,
    },
    /// So many more bytes were copied and hashed.
    Copied {
        /// Bytes since the last word.
        bytes: u64,
    },
    /// All are copied; the copies' ctime must get old enough to be believed.
    Settle {
        /// How long that takes.
        wait_ns: u64,
    },
}

/// Why a set was not staged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// The store has no such set.
    #[error(transparent)]
    Set(#[from] SetMiss),
    /// Another process that stages the set held its lock for all of the timeout.
    #[error("another process stages set {set} for more than {} s", timeout_ns / 1_000_000_000)]
    Busy {
        /// The set.
        set: SetKey,
        /// How long was waited.
        timeout_ns: u64,
    },
    /// There is no room.
    #[error("no room for set {set}: {source}")]
    Room {
        /// The set.
        set: SetKey,
        /// Why.
        source: RoomError,
    },
    /// An object could not be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A copy changed while it waited to be believed.
    #[error("staged object {object} changed before it was published: {field} differs")]
    Changed {
        /// The object.
        object: ObjectDigest,
        /// The first field of the stat identity that differs.
        field: &'static str,
    },
    /// The clock was set back behind the copies' times.
    #[error("the clock is {} ms behind the copies' ctime", behind_ns / 1_000_000)]
    Clock {
        /// How far.
        behind_ns: u64,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Where a stager tells and asks.
#[derive(Clone, Copy)]
pub struct Watcher<'a> {
    /// Is told how far the stager is.
    pub tell: &'a (dyn Fn(StageEvent) + Sync),
    /// Is asked before each chunk whether to stop.
    pub cancel: &'a (dyn Fn() -> bool + Sync),
}

impl Default for StageOptions {
    fn default() -> Self {
        Self {
            min_free_bytes: MIN_FREE_BYTES,
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            wait_ns: WAIT_NS,
            memory: MemoryRoom::now,
        }
    }
}

/// Makes sure that a whole and verified stage of a set is there.
///
/// Errors leave what was there before, but for a failed stage whose room was needed.
pub fn stage(
    store: &Store,
    root: &StageRoot,
    set: SetKey,
    options: &StageOptions,
    watcher: Watcher<'_>,
) -> Result<Staged, StageError> {
    let manifest = store.read_manifest(set)?;
    if let Standing::Good(staged, older) = standing(root, set, &manifest)? {
        // Whoever holds the lock removes them as well.
        if !older.is_empty()
            && let Some(_held) = try_turn(root, &set.0)?
        {
            remove_all(root, older)?;
        }
        return Ok(*staged);
    }
    let _held = lock_set(root, set, options.wait_ns, watcher)?;
    // Whoever held the lock may have staged it.
    let why = match standing(root, set, &manifest)? {
        Standing::Good(staged, older) => {
            remove_all(root, older)?;
            return Ok(*staged);
        }
        Standing::Absent => None,
        Standing::Bad(why) => Some(*why),
    };
    let stager = Stager {
        store,
        root,
        options,
        watcher,
        manifest: SetManifest::parse(set, &manifest)
            .map_err(|source| SetMiss::Manifest { set, source })?,
        manifest_bytes: manifest,
    };
    stager.run(set, why)
}

/// What is there of a set.
enum Standing {
    /// A stage that holds, and the ones that it superseded.
    Good(Box<Staged>, Vec<StageName>),
    Absent,
    Bad(Box<StageProblem>),
}

/// Judges the newest stage of a set by its receipts; writes nothing.
fn standing(root: &StageRoot, set: SetKey, manifest: &[u8]) -> Result<Standing, StageError> {
    let mut names = root.stages()?;
    names.retain(|name| name.set == set);
    let Some(name) = names.pop() else {
        return Ok(Standing::Absent);
    };
    let staged = match StagedSet::open(root, name) {
        Ok(staged) => staged,
        Err(StageMiss::Absent { .. }) => return Ok(Standing::Absent),
        Err(StageMiss::Fs(error)) => return Err(error.into()),
        Err(miss) => return Ok(Standing::Bad(Box::new(miss.into()))),
    };
    let expected = Digest::of(manifest);
    let actual = staged.receipts().manifest;
    if actual != expected {
        return Ok(Standing::Bad(Box::new(StageProblem::OtherManifest {
            stage: name.to_string(),
            expected,
            actual,
        })));
    }
    if let Some((entry, source)) = first_problem(&staged) {
        return Ok(Standing::Bad(Box::new(StageProblem::Tensor {
            slot: entry.slot,
            tensor: entry.tensor.clone(),
            source,
        })));
    }
    let of = (staged.set(), staged.generation());
    let path = staged.path().to_owned();
    let (manifest, receipts) = (staged.manifest(), staged.receipts());
    let staged = describe(of, path, manifest, receipts, StageOutcome::Reused);
    Ok(Standing::Good(Box::new(staged), names))
}

fn remove_all(root: &StageRoot, names: Vec<StageName>) -> Result<(), FsError> {
    names.into_iter().try_for_each(|name| remove(root, name))
}

fn describe(
    (set, generation): (SetKey, u64),
    path: PathBuf,
    manifest: &SetManifest,
    receipts: &StageReceipts,
    outcome: StageOutcome,
) -> Staged {
    Staged {
        set,
        generation,
        path,
        tensor_count: manifest.entries().len() as u64,
        object_count: receipts.copies.len() as u64,
        bytes: receipts.copies.iter().map(|copy| copy.size).sum(),
        store: receipts.store,
        outcome,
    }
}

/// Waits for the set's turn.
fn lock_set(
    root: &StageRoot,
    set: SetKey,
    timeout_ns: u64,
    watcher: Watcher<'_>,
) -> Result<File, StageError> {
    let waits = || (watcher.tell)(StageEvent::Waits);
    match take_turn(root, &set.0, timeout_ns, &waits, watcher.cancel)? {
        Turn::Had(held) => Ok(held),
        Turn::TimedOut => Err(StageError::Busy { set, timeout_ns }),
        Turn::Cancelled => Err(CopyError::Cancelled.into()),
    }
}

/// One cold staging, under the set's lock.
struct Stager<'a> {
    store: &'a Store,
    root: &'a StageRoot,
    options: &'a StageOptions,
    watcher: Watcher<'a>,
    manifest: SetManifest,
    manifest_bytes: Vec<u8>,
}

/// A stage's folder that nobody sees yet. Dropped before `publish`, it is gone.
struct TempStage<'a> {
    root: &'a StageRoot,
    name: String,
    dir: Dir,
    objects: Dir,
    published: bool,
}

impl Stager<'_> {
    fn run(&self, set: SetKey, why: Option<StageProblem>) -> Result<Staged, StageError> {
        let mut older = self.root.stages()?;
        older.retain(|name| name.set == set);
        let generation = self.next_generation(&mut older)?;
        let lengths: BTreeMap<ObjectDigest, u64> = self
            .manifest
            .entries()
            .iter()
            .map(|entry| (entry.object, entry.length))
            .collect();
        let bytes = lengths.values().sum();
        let room = self.reserve(set, &lengths, &mut older)?;
        (self.watcher.tell)(StageEvent::Begin { bytes });
        let temp = TempStage::make(self.root, &room)?;
        let name = StageName { set, generation };
        let receipts = self.fill(&temp, &room, name, &lengths)?;
        let path = temp.publish(name)?;
        drop(room);
        remove_all(self.root, older)?;
        let outcome = match why {
            None => StageOutcome::Copied { bytes },
            Some(why) => StageOutcome::Replaced { bytes, why },
        };
        let of = (set, generation);
        Ok(describe(of, path, &self.manifest, &receipts, outcome))
    }

    /// The generation after the newest one. A failed stage that none can follow goes first.
    fn next_generation(&self, older: &mut Vec<StageName>) -> Result<u64, FsError> {
        while let Some(newest) = older.last() {
            if let Some(next) = newest.generation.checked_add(1) {
                return Ok(next);
            }
            remove(self.root, *newest)?;
            older.pop();
        }
        Ok(1)
    }

    /// Reserves room; where there is too little, failed stages of the set give theirs up.
    fn reserve(
        &self,
        set: SetKey,
        lengths: &BTreeMap<ObjectDigest, u64>,
        older: &mut Vec<StageName>,
    ) -> Result<Reservation, StageError> {
        let small = self.manifest_bytes.len() + lengths.len() * RECEIPT_BYTES;
        let small = rounded(2 * small as u64);
        let copies = lengths.values().map(|length| rounded(*length));
        let wanted = copies.fold(small, u64::saturating_add);
        let StageOptions {
            min_free_bytes,
            memory,
            ..
        } = *self.options;
        let reserve = || self.root.reserve(wanted, min_free_bytes, memory);
        let room = match reserve() {
            Err(RoomError::Short { .. }) if !older.is_empty() => {
                remove_all(self.root, std::mem::take(older))?;
                reserve()
            }
            other => other,
        };
        room.map_err(|source| StageError::Room { set, source })
    }

    /// Writes everything that a stage holds and proves it.
    fn fill(
        &self,
        temp: &TempStage<'_>,
        room: &Reservation,
        name: StageName,
        lengths: &BTreeMap<ObjectDigest, u64>,
    ) -> Result<StageReceipts, StageError> {
        let index = self.manifest.render_index();
        let volume = write_small(&temp.dir, MANIFEST_NAME, &self.manifest_bytes)?.volume()?;
        write_small(&temp.dir, INDEX_NAME, &index)?;
        let copier = Copier {
            store: self.store,
            objects: &temp.objects,
            volume: &volume,
            room,
            copied: &|bytes| (self.watcher.tell)(StageEvent::Copied { bytes }),
            cancel: self.watcher.cancel,
        };
        let wanted = lengths.iter().map(|(object, length)| (*object, *length));
        let wanted = copy::largest_first(wanted.collect());
        let mut copies = copier.copy_all(&wanted, self.options.threads)?;
        copies.sort_unstable_by_key(|(object, _)| *object);
        self.settle(&temp.objects, &volume, &copies)?;
        let receipts = StageReceipts {
            set: name.set,
            generation: name.generation,
            store: self.store.id(),
            manifest: Digest::of(&self.manifest_bytes),
            index: Digest::of(&index),
            file_system: copies
                .first()
                .map_or(volume.file_system(), |(_, identity)| identity.file_system),
            uid: self.root.fs.effective_uid(),
            mode: copy::COPY_MODE,
            copies: copies.iter().map(receipt).collect(),
        };
        write_small(&temp.dir, RECEIPTS_NAME, &receipts.render())?;
        Ok(receipts)
    }

    /// Waits once until every copy's ctime is old enough to prove a later change, and proves that
    /// none changed since it was hashed.
    fn settle(
        &self,
        objects: &Dir,
        volume: &Volume,
        copies: &[(ObjectDigest, StatIdentity)],
    ) -> Result<(), StageError> {
        let identities = copies.iter().map(|(_, identity)| identity);
        let settles = |wait_ns| (self.watcher.tell)(StageEvent::Settle { wait_ns });
        wait_settled(self.root.clock.as_ref(), identities, &settles)
            .map_err(|behind_ns| StageError::Clock { behind_ns })?;
        for (object, identity) in copies {
            let (_, now) = objects.open_file(object.to_string())?.identity_on(volume)?;
            if let Some(field) = identity.difference(&now) {
                return Err(StageError::Changed {
                    object: *object,
                    field,
                });
            }
        }
        Ok(())
    }
}

impl<'a> TempStage<'a> {
    fn make(root: &'a StageRoot, room: &Reservation) -> Result<Self, FsError> {
        let name = room.temp_name();
        root.dir.make_dir(&name, FOLDER_MODE)?;
        let undo = |error: FsError| {
            // The first error is the one to report.
            let _ = remove_tree(&root.dir, &name, false);
            error
        };
        let dir = root.dir.open_dir(&name).map_err(undo)?;
        let made = dir.make_dir(OBJECTS_NAME, FOLDER_MODE);
        let objects = made.and_then(|()| dir.open_dir(OBJECTS_NAME));
        let objects = objects.map_err(undo)?;
        Ok(Self {
            root,
            name,
            dir,
            objects,
            published: false,
        })
    }

    /// Makes the stage visible: its entries durable, then one rename.
    fn publish(mut self, name: StageName) -> Result<PathBuf, FsError> {
        self.objects.sync()?;
        self.dir.sync()?;
        let root = &self.root.dir;
        root.rename_new(&self.name, root, name.to_string())?;
        self.published = true;
        root.sync()?;
        Ok(root.path().join(name.to_string()))
    }
}

impl Drop for TempStage<'_> {
    fn drop(&mut self) {
        if !self.published {
            // What stays behind has no living reservation, and the next stager removes it.
            let _ = remove_tree(&self.root.dir, &self.name, false);
        }
    }
}

impl StageError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Set(miss) => miss.blame(),
            Self::Busy { .. } | Self::Changed { .. } | Self::Clock { .. } => Blame::Host,
            Self::Room { source, .. } => source.blame(),
            Self::Copy(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Free memory that a stage never takes by default.
pub const MIN_FREE_BYTES: u64 = 8 << 30;

const WAIT_NS: u64 = 600_000_000_000;
/// What one copy adds to receipts and index, roughly.
const RECEIPT_BYTES: usize = 512;

fn receipt((object, identity): &(ObjectDigest, StatIdentity)) -> CopyReceipt {
    CopyReceipt {
        object: *object,
        inode: identity.inode,
        inode_generation: identity.generation,
        size: identity.size,
        mtime_ns: identity.mtime_ns,
        ctime_ns: identity.ctime_ns,
    }
}

fn write_small(dir: &Dir, name: &str, bytes: &[u8]) -> Result<File, FsError> {
    let file = dir.create_new(name, copy::COPY_MODE)?;
    file.write_all_at(0, bytes)?;
    file.sync()?;
    Ok(file)
}
