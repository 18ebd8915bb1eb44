//! `rm SET`: drops a set's name; gc drops its objects later.
//!
//! Invariants:
//! - the manifest goes first and durably, so that a crash leaves no set rather than half of one;
//! - a pinned set is not removed;
//! - packs and objects stay: another set may use them.

use crate::root::Store;
use crate::set::{CONTAINERS_NAME, INDEX_NAME, MANIFEST_NAME};
use crate::small::SmallRefusal;
use packhouse_base::Blame;
use packhouse_base::digest::SetKey;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use std::path::PathBuf;

/// Why a set was not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// There is no such set.
    #[error("no set {set}")]
    Absent {
        /// The set.
        set: SetKey,
    },
    /// A pin keeps it.
    #[error("set {set} is pinned by {pin}")]
    Pinned {
        /// The set.
        set: SetKey,
        /// The pin's name.
        pin: String,
    },
    /// A pin can't be read; it may be this set's.
    #[error("pin {pin} can't be read and may be this set's")]
    PinRefused {
        /// The pin's name.
        pin: String,
    },
    /// The store was opened read-only.
    #[error("{} was opened read-only", path.display())]
    ReadOnly {
        /// The store's root.
        path: PathBuf,
    },
    /// The set's folder can't be trusted or opened.
    #[error(transparent)]
    Folder(#[from] SmallRefusal),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Store {
    /// Removes a set's name and its own files. Errors when it isn't there or is pinned.
    pub fn remove_set(&self, set: SetKey) -> Result<(), RemoveError> {
        if self.config().read_only {
            return Err(RemoveError::ReadOnly {
                path: self.config().root.clone(),
            });
        }
        let pins = self.pins()?;
        if let Some((pin, _)) = pins.sets.iter().find(|(_, pinned)| **pinned == set) {
            return Err(RemoveError::Pinned {
                set,
                pin: pin.clone(),
            });
        }
        if let Some(pin) = pins.refused.keys().next() {
            return Err(RemoveError::PinRefused { pin: pin.clone() });
        }
        self.drop_set(set)
    }

    /// Removes a set's name and files, pinned or not; for gc, which judged that.
    pub(crate) fn drop_set(&self, set: SetKey) -> Result<(), RemoveError> {
        let folder = self.set_folder(set).map_err(SmallRefusal::from)?;
        let dir = folder.ok_or(RemoveError::Absent { set })?;
        remove_if_there(&dir, MANIFEST_NAME)?;
        dir.sync()?;
        remove_if_there(&dir, INDEX_NAME)?;
        let records = self.open_folder(&dir, CONTAINERS_NAME);
        if let Some(records) = records.map_err(SmallRefusal::from)? {
            for name in records.list()? {
                records.unlink(&name)?;
            }
            dir.remove_dir(CONTAINERS_NAME)?;
        }
        for name in crate::inventory::entries(&dir)? {
            dir.unlink(&name.0)?;
        }
        self.sets_dir().remove_dir(set.to_string())?;
        self.sets_dir().sync()?;
        if let Ok(uses) = self.use_log() {
            // A use that stays names a set that isn't there; gc removes it.
            let _ = uses.forget_set(set);
        }
        Ok(())
    }
}

impl RemoveError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } | Self::Pinned { .. } | Self::ReadOnly { .. } => Blame::Caller,
            Self::PinRefused { .. } => Blame::Store,
            Self::Folder(refusal) => refusal.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

fn remove_if_there(dir: &Dir, name: &str) -> Result<(), FsError> {
    match dir.unlink(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(()),
        other => other,
    }
}
