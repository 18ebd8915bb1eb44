//! The folder of published fixtures: `v1/<id>/`, each one bag, whole or absent.
//!
//! Specified in `docs/format/fixture.md`, section 1.
//!
//! - A fixture becomes visible by one rename of a folder whose files and folders are durable.
//! - Nothing is overwritten. What is damaged is moved aside first, and kept until the next damage.
//! - What is found is compared with what the recipe makes, byte for byte; no list is believed.
//! - One maker at a time, by a lock; so whatever has a temporary name then is nobody's.
//! - The shelf, and whatever is believed on it, can be changed by the user and root only.
//!
//! Never: follows a symlink, or edits a published file.

mod compare;
mod make;

pub use compare::{Damage, Fault};
pub use make::{PublishError, Published};

use crate::Bag;
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, Fs, FsError, FsErrorKind};
use std::ffi::OsString;

/// The folder of fixtures of this format version.
pub struct Shelf<'a> {
    fs: &'a dyn Fs,
    clock: &'a dyn Clock,
    dir: Dir,
}

/// Why a shelf was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShelfError {
    /// Others can change it. The damage's path is that of the shelf.
    #[error("{0}")]
    Untrusted(Damage),
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl ShelfError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Untrusted(_) => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }
}

/// What there is of a fixture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing.
    Absent,
    /// Every byte that its recipe makes, and nothing else.
    Intact,
    /// Something else.
    Damaged(Damaged),
}

/// A unit that is not what its recipe makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Everything that is wrong, by path; never empty.
    pub damages: Vec<Damage>,
    /// Whether its own lists say the same as its files: then nothing rotted, and somebody made it
    /// by another recipe or changed the lists too.
    pub lists_agree: bool,
}

impl<'a> Shelf<'a> {
    /// Opens the shelf in a folder of fixtures; `None` where nothing was ever published.
    ///
    /// # Errors
    /// When it is there and no folder, can be changed by others, or cannot be read.
    pub fn open(
        fs: &'a dyn Fs,
        clock: &'a dyn Clock,
        folder: &Dir,
    ) -> Result<Option<Self>, ShelfError> {
        match folder.open_dir(VERSION) {
            Ok(dir) => Self::trusted(fs, clock, dir).map(Some),
            Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn trusted(fs: &'a dyn Fs, clock: &'a dyn Clock, dir: Dir) -> Result<Self, ShelfError> {
        if let Some(fault) = compare::foreign(&dir.stat()?, fs.effective_uid()) {
            return Err(ShelfError::Untrusted(Damage {
                path: dir.path().to_string_lossy().into_owned(),
                fault,
            }));
        }
        Ok(Self { fs, clock, dir })
    }

    /// Opens the shelf in a folder of fixtures, and makes it where it is missing.
    ///
    /// # Errors
    /// When it cannot be made, opened or synced, or can be changed by others.
    pub fn make(fs: &'a dyn Fs, clock: &'a dyn Clock, folder: &Dir) -> Result<Self, ShelfError> {
        match folder.make_dir(VERSION, FOLDER_MODE) {
            Ok(()) => {}
            Err(error) if error.kind == FsErrorKind::Exists => {}
            Err(error) => return Err(error.into()),
        }
        // Also one that another maker has just made, and not synced yet.
        folder.sync()?;
        Self::trusted(fs, clock, folder.open_dir(VERSION)?)
    }

    /// The folder of one fixture, for messages.
    pub fn path(&self, id: &str) -> std::path::PathBuf {
        self.dir.path().join(id)
    }

    /// Compares what is there with what the recipe makes.
    ///
    /// # Errors
    /// When something cannot be read: that is no damage.
    pub fn look(&self, bag: &Bag) -> Result<Look, FsError> {
        compare::look(&self.dir, bag, self.fs.effective_uid())
    }

    /// Names on the shelf that are neither a fixture's, by `is_known`, nor this module's own.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn strangers(&self, is_known: impl Fn(&str) -> bool) -> Result<Vec<OsString>, FsError> {
        let is_strange = |name: &OsString| {
            !name.to_str().is_some_and(|name| {
                let aside = name.strip_prefix(ASIDE_PREFIX);
                let is_own = name == LOCK_FILE || is_temp(name);
                is_own || is_known(name) || aside.is_some_and(&is_known)
            })
        };
        Ok(self.dir.list()?.into_iter().filter(is_strange).collect())
    }

    /// Names of what a maker is writing, or has left unfinished.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn unfinished(&self) -> Result<Vec<OsString>, FsError> {
        let is_temp = |name: &OsString| name.to_str().is_some_and(is_temp);
        Ok(self.dir.list()?.into_iter().filter(is_temp).collect())
    }
}

fn is_temp(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = name.strip_prefix(TEMP_PREFIX);
    digits.is_some_and(|digits| digits.len() == TEMP_DIGITS && digits.bytes().all(is_digit))
}

/// Bucket of this format version.
const VERSION: &str = "v1";
/// Before the id of what was moved aside.
const ASIDE_PREFIX: &str = "damaged-";
/// Before the random digits of what is not published yet.
const TEMP_PREFIX: &str = ".tmp-";
const TEMP_DIGITS: usize = 16;
/// Its first byte is locked by who publishes.
const LOCK_FILE: &str = "lock";
const FOLDER_MODE: u32 = 0o755;
