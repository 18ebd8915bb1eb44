//! Listing and removing copies: on wish, or because a newer one took their place.
//!
//! Invariants:
//! - a copy is first renamed away, so that no reader finds half of one;
//! - what is mapped stays mapped: files are only unlinked;
//! - what nobody asked to drop stays, whatever became of its source.

use crate::collect::{Unstaged, remove_tree};
use crate::models::entry::{CopyProblem, Entry, entries, entries_of, models_dir};
use crate::models::find::admit;
use crate::models::key::{EntryName, ModelKey};
use crate::models::source::{read_all, remove_record, sources_dir, sweep};
use crate::name::{FILES_NAME, SOURCES_NAME, TEMP_PREFIX};
use crate::room::RoomError;
use crate::root::StageRoot;
use crate::turn::{Turn, take_turn};
use packhouse_base::Blame;
use packhouse_sys::fs::{FsError, FsErrorKind};

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelListing {
    /// The model.
    pub key: ModelKey,
    /// Which copy of it.
    pub generation: u64,
    /// Bytes of its files, by their entries.
    pub bytes: u64,
    /// Whether a newer copy of the model is there.
    pub superseded: bool,
    /// Names of its files, shards in order; none where the receipts can't be read.
    pub files: Vec<String>,
    /// Why it can't be used, if so.
    pub problem: Option<CopyProblem>,
    /// The paths that it was copied from or found for.
    pub paths: Vec<String>,
}

/// What a collection removed, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectedModels {
    /// Copies that a newer one superseded.
    pub superseded: Unstaged,
    /// What dead processes left unfinished.
    pub temps: Unstaged,
    /// Records of paths whose copies are gone, or that can't be read, and what dead writers left.
    pub record_count: u64,
    /// What could not be removed, in words.
    pub failures: Vec<String>,
    /// Names that are no copy's; what is behind them was left alone.
    pub strangers: Vec<String>,
}

/// Why a copy was not dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropError {
    /// There is none.
    #[error("no copy of model {key}")]
    Absent {
        /// The model.
        key: ModelKey,
    },
    /// Another process had the model's turn for all of the timeout.
    #[error("another process works on model {key} for more than {} s", timeout_ns / 1_000_000_000)]
    Busy {
        /// The model.
        key: ModelKey,
        /// How long was waited.
        timeout_ns: u64,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The room lock is needed to write records.
    #[error(transparent)]
    Room(#[from] RoomError),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Lists the copies of a root, by key and rising generation; shallow.
pub fn list(root: &StageRoot) -> Result<Vec<ModelListing>, FsError> {
    let names = entries(root)?;
    let records = read_all(root)?;
    let paths = |key: ModelKey| {
        let good = records
            .iter()
            .filter_map(|(_, record)| record.as_ref().ok());
        let ours = good.filter(|record| record.key == key);
        let mut paths: Vec<String> = ours.map(|record| record.path.clone()).collect();
        paths.sort_unstable();
        paths
    };
    let listing = names.iter().enumerate().filter_map(|(index, name)| {
        let next = names.get(index + 1);
        let opened = Entry::open(root, *name);
        let files = match &opened {
            Ok(Some(entry)) => {
                let files = entry.receipts.files.iter();
                files.map(|file| file.name.clone()).collect()
            }
            Ok(None) => return None,
            Err(_) => Vec::new(),
        };
        let problem = match opened {
            Ok(Some(entry)) => admit(&entry).err(),
            Ok(None) => None,
            Err(problem) => Some(problem),
        };
        Some(ModelListing {
            key: name.key,
            generation: name.generation,
            bytes: copied_bytes(root, *name),
            superseded: next.is_some_and(|next| next.key == name.key),
            files,
            problem,
            paths: paths(name.key),
        })
    });
    Ok(listing.collect())
}

/// Drops all copies of a model, with the records of its paths, once it has the model's turn.
pub fn drop_model(
    root: &StageRoot,
    key: ModelKey,
    timeout_ns: u64,
    waits: &dyn Fn(),
    cancel: &(dyn Fn() -> bool + Sync),
) -> Result<Unstaged, DropError> {
    let _turn = match take_turn(root, &key.0, timeout_ns, waits, cancel)? {
        Turn::Had(held) => held,
        Turn::TimedOut => return Err(DropError::Busy { key, timeout_ns }),
        Turn::Cancelled => return Err(DropError::Cancelled),
    };
    let mut dropped = Unstaged::default();
    for name in entries_of(root, key)? {
        dropped.count += 1;
        dropped.bytes += copied_bytes(root, name);
        remove(root, name)?;
    }
    for (name, record) in read_all(root)? {
        if record.is_ok_and(|record| record.key == key) {
            remove_record(root, name)?;
        }
    }
    match dropped.count {
        0 => Err(DropError::Absent { key }),
        _ => Ok(dropped),
    }
}

/// Removes superseded copies and records that nothing stands behind. Copies stay, whatever became
/// of their sources: only `drop_model` removes those.
pub fn collect(root: &StageRoot, dry_run: bool) -> Result<CollectedModels, DropError> {
    let mut collected = CollectedModels {
        strangers: strangers(root)?,
        ..CollectedModels::default()
    };
    let names = entries(root)?;
    for pair in names.windows(2) {
        let [older, newer] = pair else { continue };
        if older.key != newer.key {
            continue;
        }
        let bytes = copied_bytes(root, *older);
        match if dry_run {
            Ok(())
        } else {
            remove(root, *older)
        } {
            Ok(()) => {
                collected.superseded.count += 1;
                collected.superseded.bytes += bytes;
            }
            Err(error) => collected.failures.push(error.to_string()),
        }
    }
    // The living are told from the dead under this lock, and records are written under it, after
    // their copies were published.
    let _held = root.lock_room()?;
    let swept = root.sweep(dry_run)?;
    collected.temps = Unstaged {
        count: swept.temp_count,
        bytes: swept.temp_bytes,
    };
    let Some(dir) = sources_dir(root)? else {
        return Ok(collected);
    };
    let names = entries(root)?;
    for (name, record) in read_all(root)? {
        let is_kept = record.is_ok_and(|record| names.iter().any(|copy| copy.key == record.key));
        if !is_kept {
            collected.record_count += 1;
            if !dry_run {
                remove_record(root, name)?;
            }
        }
    }
    collected.record_count += sweep(&dir, dry_run)?;
    Ok(collected)
}

/// The names in the folder of copies that are none of ours. Nothing touches them.
pub fn strangers(root: &StageRoot) -> Result<Vec<String>, FsError> {
    let Some(models) = models_dir(root)? else {
        return Ok(Vec::new());
    };
    let names = models.list()?;
    let strange = names.iter().filter(|name| {
        let is_ours = |name: &str| {
            EntryName::parse(name).is_some()
                || name.starts_with(TEMP_PREFIX)
                || name == SOURCES_NAME
        };
        !name.to_str().is_some_and(is_ours)
    });
    let strange = strange.map(|name| name.to_string_lossy().into_owned());
    Ok(strange.collect())
}

/// Removes the copies of a model, but the one of a generation.
pub(crate) fn remove_copies(
    root: &StageRoot,
    key: ModelKey,
    but: Option<u64>,
) -> Result<(), FsError> {
    let names = entries_of(root, key)?;
    let mut names = names.into_iter();
    names.try_for_each(|name| match Some(name.generation) == but {
        true => Ok(()),
        false => remove(root, name),
    })
}

/// Removes one copy: renamed away first, then unlinked.
fn remove(root: &StageRoot, name: EntryName) -> Result<(), FsError> {
    let Some(models) = models_dir(root)? else {
        return Ok(());
    };
    let aside = format!("{TEMP_PREFIX}{}", root.random_digits()?);
    match models.rename_new(name.to_string(), &models, &aside) {
        // Another process was faster.
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    // Else a crash could leave its name and not its files.
    models.sync()?;
    remove_tree(&models, &aside, false).map(|_| ())
}

/// Bytes of a copy's files; what can't be listed counts as none.
fn copied_bytes(root: &StageRoot, name: EntryName) -> u64 {
    let Ok(Some(models)) = models_dir(root) else {
        return 0;
    };
    let files = models.open_dir(name.to_string());
    let Ok(files) = files.and_then(|dir| dir.open_dir(FILES_NAME)) else {
        return 0;
    };
    let names = files.list().unwrap_or_default();
    let stats = names.iter().filter_map(|name| files.stat_entry(name).ok());
    stats.map(|stat| stat.size).sum()
}

impl DropError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } | Self::Cancelled => Blame::Caller,
            Self::Busy { .. } => Blame::Host,
            Self::Room(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}
