//! The folder of published fixtures: `v1/<id>/`, each one bag, whole or absent.
//!
//! Specified in `docs/format/fixture.md`, section 1.
//!
//! - A fixture becomes visible by one rename of a folder whose files and folders are durable.
//! - Nothing is overwritten. What is damaged is moved aside first, and kept until the next damage.
//! - What is found is compared with what the recipe makes, byte for byte; no list is believed.
//! - One maker at a time, by a lock; so whatever has a temporary name then is nobody's.
//!
//! Never: follows a symlink, or edits a published file.

mod compare;
mod make;

pub use compare::Damage;
pub use make::{PublishError, Published};

use crate::Bag;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, Fs, FsError, FsErrorKind};
use std::ffi::OsString;

/// The folder of fixtures of this format version.
pub struct Shelf<'a> {
    fs: &'a dyn Fs,
    clock: &'a dyn Clock,
    dir: Dir,
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
    /// When it is there and no folder, or cannot be read.
    pub fn open(
        fs: &'a dyn Fs,
        clock: &'a dyn Clock,
        folder: &Dir,
    ) -> Result<Option<Self>, FsError> {
        match folder.open_dir(VERSION) {
            Ok(dir) => Ok(Some(Self { fs, clock, dir })),
            Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the shelf in a folder of fixtures, and makes it where it is missing.
    ///
    /// # Errors
    /// When it cannot be made, opened or synced.
    pub fn make(fs: &'a dyn Fs, clock: &'a dyn Clock, folder: &Dir) -> Result<Self, FsError> {
        match folder.make_dir(VERSION, FOLDER_MODE) {
            Ok(()) => {}
            Err(error) if error.kind == FsErrorKind::Exists => {}
            Err(error) => return Err(error),
        }
        // Also one that another maker has just made, and not synced yet.
        folder.sync()?;
        let dir = folder.open_dir(VERSION)?;
        Ok(Self { fs, clock, dir })
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
        compare::look(&self.dir, bag)
    }

    /// Names on the shelf that are neither a fixture's, by `is_known`, nor this module's own.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn strangers(&self, is_known: impl Fn(&str) -> bool) -> Result<Vec<OsString>, FsError> {
        let is_strange = |name: &OsString| {
            !name.to_str().is_some_and(|name| {
                let aside = name.strip_prefix(ASIDE_PREFIX);
                let is_own = name == LOCK_FILE || name.starts_with(TEMP_PREFIX);
                is_own || is_known(name) || aside.is_some_and(&is_known)
            })
        };
        Ok(self.dir.list()?.into_iter().filter(is_strange).collect())
    }
}

/// Bucket of this format version.
const VERSION: &str = "v1";
/// Before the id of what was moved aside.
const ASIDE_PREFIX: &str = "damaged-";
/// Before the random digits of what is not published yet.
const TEMP_PREFIX: &str = ".tmp-";
/// Its first byte is locked by who publishes.
const LOCK_FILE: &str = "lock";
const FOLDER_MODE: u32 = 0o755;
