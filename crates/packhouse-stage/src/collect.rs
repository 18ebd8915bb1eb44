//! Removing stages: on wish, when their set is gone, when a newer one took their place.
//!
//! Invariants:
//! - a stage is first renamed away, so that no reader finds half of one;
//! - what is mapped stays mapped: files are only unlinked;
//! - entries that are not ours by name stay.

use crate::name::{OBJECTS_NAME, StageName, TEMP_PREFIX};
use crate::room::RoomError;
use crate::root::StageRoot;
use crate::staged::{StageMiss, StagedSet};
use packhouse_base::Blame;
use packhouse_base::digest::SetKey;
use packhouse_store::root::StoreId;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;

/// One stage of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageListing {
    /// The set.
    pub set: SetKey,
    /// Which stage of it.
    pub generation: u64,
    /// Bytes of its copies, by their entries.
    pub bytes: u64,
    /// Whether a newer stage of the set is there.
    pub superseded: bool,
    /// Why it can't be used, if so.
    pub miss: Option<StageMiss>,
}

/// What was removed of one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unstaged {
    /// Stages removed.
    pub count: u64,
    /// Bytes of their copies.
    pub bytes: u64,
}

/// What a collection removed, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Stages of sets that are gone.
    pub orphans: Unstaged,
    /// Stages that a newer one superseded.
    pub superseded: Unstaged,
    /// What dead stagers left.
    pub temps: Unstaged,
    /// Stages that could not be removed, in words.
    pub failures: Vec<String>,
    /// Names that are no stage's; what is behind them was left alone.
    pub strangers: Vec<String>,
}

/// Why a stage was not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnstageError {
    /// There is none.
    #[error("no stage of set {set}")]
    Absent {
        /// The set.
        set: SetKey,
    },
    /// The room lock is needed to tell the living from the dead.
    #[error(transparent)]
    Room(#[from] RoomError),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Lists the stages of a root, by set and rising generation.
pub fn list(root: &StageRoot) -> Result<Vec<StageListing>, FsError> {
    let stages = root.stages()?;
    let listing = stages.iter().enumerate().map(|(index, name)| {
        let next = stages.get(index + 1);
        StageListing {
            set: name.set,
            generation: name.generation,
            bytes: copied_bytes(root, *name),
            superseded: next.is_some_and(|next| next.set == name.set),
            miss: StagedSet::open(root, *name).err(),
        }
    });
    Ok(listing.collect())
}

/// The sets that have a stage, good or not; rising.
pub fn list_sets(root: &StageRoot) -> Result<Vec<SetKey>, FsError> {
    let mut sets: Vec<SetKey> = root.stages()?.iter().map(|name| name.set).collect();
    sets.dedup();
    Ok(sets)
}

/// The names in a root that are neither a stage's nor of use to stagers. Nothing touches them.
pub fn strangers(root: &StageRoot) -> Result<Vec<String>, FsError> {
    root.strangers()
}

/// What dead processes left of stages and of copies of models: memory that `collect` gives back.
pub fn unfinished(root: &StageRoot) -> Result<Unstaged, UnstageError> {
    let _guard = root.lock_room()?;
    let sweep = root.sweep(true)?;
    Ok(Unstaged {
        count: sweep.temp_count,
        bytes: sweep.temp_bytes,
    })
}

/// Removes all stages of a set. Errors when there is none.
pub fn unstage(root: &StageRoot, set: SetKey) -> Result<Unstaged, UnstageError> {
    let mut unstaged = Unstaged::default();
    for name in root.stages()?.into_iter().filter(|name| name.set == set) {
        let bytes = copied_bytes(root, name);
        remove(root, name)?;
        unstaged.add(bytes);
    }
    match unstaged.count {
        0 => Err(UnstageError::Absent { set }),
        _ => Ok(unstaged),
    }
}

/// Removes a store's stages of sets that `keep` does not know, superseded ones, and what dead
/// stagers left. A stage of unknown store is of no use, so it counts as this one's. A stage that
/// can't be removed stops nothing and is reported.
pub fn collect(
    root: &StageRoot,
    store: StoreId,
    keep: &dyn Fn(SetKey) -> bool,
    dry_run: bool,
) -> Result<Collected, UnstageError> {
    let mut collected = Collected {
        strangers: root.strangers()?,
        ..Collected::default()
    };
    let stages = root.stages()?;
    for (index, name) in stages.iter().enumerate() {
        let next = stages.get(index + 1);
        let is_ours = || {
            let staged = StagedSet::open(root, *name);
            staged.map_or(true, |staged| staged.receipts().store == store)
        };
        let group = if !keep(name.set) && is_ours() {
            &mut collected.orphans
        } else if next.is_some_and(|next| next.set == name.set) {
            &mut collected.superseded
        } else {
            continue;
        };
        let bytes = copied_bytes(root, *name);
        let removed = if dry_run { Ok(()) } else { remove(root, *name) };
        match removed {
            Ok(()) => group.add(bytes),
            Err(error) => collected.failures.push(error.to_string()),
        }
    }
    let _guard = root.lock_room()?;
    let sweep = root.sweep(dry_run)?;
    collected.temps = Unstaged {
        count: sweep.temp_count,
        bytes: sweep.temp_bytes,
    };
    Ok(collected)
}

impl Unstaged {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

impl UnstageError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } => Blame::Caller,
            Self::Room(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Removes one stage: renamed away first, then unlinked.
pub(crate) fn remove(root: &StageRoot, name: StageName) -> Result<(), FsError> {
    let aside = format!("{TEMP_PREFIX}{}", root.random_digits()?);
    match root.dir.rename_new(name.to_string(), &root.dir, &aside) {
        // Another process was faster.
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    remove_tree(&root.dir, &aside, false).map(|_| ())
}

/// Removes an entry with all below it, and answers the bytes of its files. Symlinks are removed,
/// never followed; an entry that goes meanwhile is fine.
pub(crate) fn remove_tree(parent: &Dir, name: &str, dry_run: bool) -> Result<u64, FsError> {
    let stat = match parent.stat_entry(name) {
        Ok(stat) => stat,
        Err(error) => return gone(error).map(|()| 0),
    };
    if stat.kind != FileKind::Directory {
        if !dry_run {
            parent.unlink(name).or_else(gone)?;
        }
        return Ok(stat.size);
    }
    let dir = match parent.open_dir(name) {
        Ok(dir) => dir,
        Err(error) => return gone(error).map(|()| 0),
    };
    let mut bytes = 0;
    for entry in dir.list()? {
        match entry.to_str() {
            Some(entry) => bytes += remove_tree(&dir, entry, dry_run)?,
            None if dry_run => {}
            None => dir.unlink(&entry).or_else(gone)?,
        }
    }
    if !dry_run {
        parent.remove_dir(name).or_else(gone)?;
    }
    Ok(bytes)
}

fn gone(error: FsError) -> Result<(), FsError> {
    match error.kind {
        FsErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// Bytes of a stage's copies; what can't be listed counts as none.
fn copied_bytes(root: &StageRoot, name: StageName) -> u64 {
    let objects = root
        .dir
        .open_dir(name.to_string())
        .and_then(|dir| dir.open_dir(OBJECTS_NAME));
    let Ok(objects) = objects else { return 0 };
    let names = objects.list().unwrap_or_default();
    let stats = names
        .iter()
        .filter_map(|name| objects.stat_entry(name).ok());
    stats.map(|stat| stat.size).sum()
}
