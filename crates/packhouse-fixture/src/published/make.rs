//! Publishing: temporary folder, files, syncs, one rename.

use super::{ASIDE_PREFIX, Damaged, FOLDER_MODE, LOCK_FILE, Look, Shelf, TEMP_PREFIX};
use crate::Bag;
use crate::bag::DATA;
use packhouse_base::Blame;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, LockKind};
use packhouse_sys::stat::FileKind;
use std::ffi::OsStr;
use std::path::PathBuf;

/// What became of a fixture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// It was there, every byte.
    Reused,
    /// It was made.
    Made,
    /// It was there and damaged: that is aside, and it was made.
    Replaced {
        /// What was wrong.
        damaged: Damaged,
        /// Where the damaged one is.
        aside: PathBuf,
    },
}

/// Why a fixture was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Another maker holds the lock.
    #[error("another process is publishing fixtures in {}", folder.display())]
    Busy {
        /// The shelf.
        folder: PathBuf,
    },
    /// What was written is not what is there.
    #[error("{} reads back otherwise than it was written: {first}", folder.display())]
    Unstable {
        /// The fixture's folder.
        folder: PathBuf,
        /// The first thing that is wrong.
        first: String,
    },
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl PublishError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Busy { .. } | Self::Unstable { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }
}

impl Shelf<'_> {
    /// Publishes a fixture, or finds it. Waits for another maker at most `timeout_ns`.
    ///
    /// # Errors
    /// When another maker doesn't end in time, or something cannot be written or read. Then the
    /// fixture is there whole or not at all.
    pub fn publish(&self, bag: &Bag, timeout_ns: u64) -> Result<Published, PublishError> {
        // Whoever finds it intact needs no lock, and no right to write.
        if self.look(bag)? == Look::Intact {
            // Its maker may not have come so far.
            self.dir.sync()?;
            self.tidy();
            return Ok(Published::Reused);
        }
        let _lock = self.lock(timeout_ns)?;
        self.sweep()?;
        let aside = match self.look(bag)? {
            Look::Intact => {
                self.dir.sync()?;
                return Ok(Published::Reused);
            }
            Look::Absent => None,
            Look::Damaged(damaged) => Some((damaged, self.set_aside(bag.id())?)),
        };
        let temp = self.write(bag)?;
        self.dir.rename_new(&temp, &self.dir, bag.id())?;
        self.dir.sync()?;
        if let Look::Damaged(damaged) = self.look(bag)? {
            return Err(PublishError::Unstable {
                folder: self.path(bag.id()),
                first: damaged.damages[0].to_string(),
            });
        }
        Ok(match aside {
            None => Published::Made,
            Some((damaged, aside)) => Published::Replaced { damaged, aside },
        })
    }

    /// Writes a bag into a folder that nobody looks at, and makes all of it durable.
    fn write(&self, bag: &Bag) -> Result<String, FsError> {
        let mut random = [0; 8];
        self.fs.random(&mut random)?;
        let name = format!("{TEMP_PREFIX}{:016x}", u64::from_be_bytes(random));
        self.dir.make_dir(&name, FOLDER_MODE)?;
        let unit = self.dir.open_dir(&name)?;
        unit.make_dir(DATA, FOLDER_MODE)?;
        let data = unit.open_dir(DATA)?;
        for (path, bytes) in bag.files() {
            let (dir, name) = match path.split_once('/') {
                None => (&unit, path.as_str()),
                Some((_, name)) => (&data, name),
            };
            let file = dir.create_new(name, 0o600)?;
            file.write_all_at(0, bytes)?;
            file.set_mode(FILE_MODE)?;
            file.sync()?;
        }
        data.sync()?;
        unit.sync()?;
        Ok(name)
    }

    /// Moves what is damaged aside; what was there from before goes.
    fn set_aside(&self, id: &str) -> Result<PathBuf, FsError> {
        let aside = format!("{ASIDE_PREFIX}{id}");
        remove_all(&self.dir, OsStr::new(&aside))?;
        self.dir.rename_new(id, &self.dir, &aside)?;
        self.dir.sync()?;
        Ok(self.path(&aside))
    }

    /// Removes what makers that are gone have left. The lock is held.
    fn sweep(&self) -> Result<(), FsError> {
        for name in self.unfinished()? {
            remove_all(&self.dir, &name)?;
        }
        Ok(())
    }

    /// The same where nothing was to be made: not while another maker is at it, and where it can't
    /// be done nothing depends on it.
    fn tidy(&self) {
        if self.unfinished().is_ok_and(|names| names.is_empty()) {
            return;
        }
        if let Ok(_lock) = self.lock(0) {
            let _ = self.sweep();
        }
    }

    fn lock(&self, timeout_ns: u64) -> Result<File, PublishError> {
        let file = match self.dir.open_file_writable(LOCK_FILE) {
            Err(error) if error.kind == FsErrorKind::NotFound => {
                match self.dir.create_new(LOCK_FILE, 0o600) {
                    Err(error) if error.kind == FsErrorKind::Exists => {
                        self.dir.open_file_writable(LOCK_FILE)
                    }
                    other => other,
                }
            }
            other => other,
        }?;
        if file.lock_within(self.clock, LockKind::Exclusive, (0, 1), timeout_ns)? {
            return Ok(file);
        }
        Err(PublishError::Busy {
            folder: self.dir.path().to_owned(),
        })
    }
}

/// Removes an entry and what is in it; fine where there is none.
fn remove_all(dir: &Dir, name: &OsStr) -> Result<(), FsError> {
    let stat = match dir.stat_entry(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if stat.kind != FileKind::Directory {
        return dir.unlink(name);
    }
    let inner = dir.open_dir(name)?;
    for name in inner.list()? {
        remove_all(&inner, &name)?;
    }
    dir.remove_dir(name)
}

const FILE_MODE: u32 = 0o444;
