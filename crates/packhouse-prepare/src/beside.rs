//! Files and folders that are made beside their place and get their name when they are whole, in
//! folders that are not a store's.
//!
//! Invariants:
//! - nothing is overwritten: the name must be free;
//! - content is synced before the name, the folder after it;
//! - an abandoned folder is taken over by the next who makes the same one; two at once can't.
//!
//! Never: a link to a file of the store.

use packhouse_base::Blame;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind, LockKind};
use std::path::PathBuf;

/// A file without its name yet. Dropped, it is gone.
pub struct FileBeside {
    file: File,
    dir: Dir,
    temp: Option<String>,
}

/// A folder under a temporary name. Dropped, it is gone.
pub struct FolderBeside {
    parent: Dir,
    name: String,
    dir: Dir,
    lock: Option<File>,
}

/// Why a file or folder was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BesideError {
    /// The name is taken.
    #[error("{} is there already, and nothing is overwritten", path.display())]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// Another process is making it.
    #[error("{} is being made by another process", path.display())]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else's folder has the temporary name.
    #[error("{} belongs to uid {uid} with mode {mode:04o}: others could change what is written",
        path.display())]
    Foreign {
        /// The temporary folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl FileBeside {
    /// Makes a file in a folder, without a name where the file system can.
    pub fn create(fs: &dyn Fs, dir: &Dir) -> Result<Self, FsError> {
        match dir.create_unnamed(FILE_MODE) {
            Ok(file) => Ok(Self {
                file,
                dir: dir.clone(),
                temp: None,
            }),
            Err(error) if error.kind == FsErrorKind::Unsupported => {
                let mut random = [0u8; 16];
                fs.random(&mut random)?;
                let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
                let temp = format!(".tmp-{digits}");
                Ok(Self {
                    file: dir.create_new(&temp, FILE_MODE)?,
                    dir: dir.clone(),
                    temp: Some(temp),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes content and name durable.
    pub fn publish(self, name: &str) -> Result<(), BesideError> {
        self.file.sync()?;
        let named = match &self.temp {
            None => self.dir.link(&self.file, name),
            Some(temp) => self.dir.rename_new(temp, &self.dir, name),
        };
        named.map_err(|error| taken_or(error, &self.dir, name))?;
        Ok(self.dir.sync()?)
    }
}

impl Drop for FileBeside {
    fn drop(&mut self) {
        if let Some(temp) = &self.temp {
            // After a rename there is no such name.
            let _ = self.dir.unlink(temp);
        }
    }
}

impl FolderBeside {
    /// Makes a folder beside `name`, empty. One that a stopped process left is emptied.
    pub fn create(fs: &dyn Fs, parent: &Dir, name: &str) -> Result<Self, BesideError> {
        let path = || parent.path().join(name);
        let temp = temp_name(name);
        for _ in 0..ATTEMPTS {
            match parent.stat_entry(name) {
                Ok(_) => return Err(BesideError::Taken { path: path() }),
                Err(error) if error.kind == FsErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            match parent.make_dir(&temp, 0o755) {
                Ok(()) => {}
                Err(error) if error.kind == FsErrorKind::Exists => {}
                Err(error) => return Err(error.into()),
            }
            let Some(dir) = or_gone(parent.open_dir(&temp))? else {
                continue;
            };
            let stat = dir.stat()?;
            if stat.uid != fs.effective_uid() || stat.mode & 0o022 != 0 {
                return Err(BesideError::Foreign {
                    path: dir.path().to_owned(),
                    uid: stat.uid,
                    mode: stat.mode,
                });
            }
            let Some(lock) = open_lock(&dir)? else {
                continue;
            };
            if !lock.try_lock(LockKind::Exclusive, 0, 1)? {
                return Err(BesideError::Busy { path: path() });
            }
            // Its former owner may have published it between the open and the lock.
            let named = or_gone(parent.stat_entry(&temp))?;
            if named.is_none_or(|named| named.inode != stat.inode) {
                continue;
            }
            clear(&dir)?;
            return Ok(Self {
                parent: parent.clone(),
                name: name.to_owned(),
                dir,
                lock: Some(lock),
            });
        }
        Err(BesideError::Busy { path: path() })
    }

    /// The folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Makes the folder's entries durable and gives it its name. What is in it was synced before.
    pub fn publish(mut self) -> Result<PathBuf, BesideError> {
        self.dir.sync()?;
        let temp = temp_name(&self.name);
        self.parent
            .rename_new(&temp, &self.parent, &self.name)
            .map_err(|error| taken_or(error, &self.parent, &self.name))?;
        let lock = self.lock.take();
        self.parent.sync()?;
        // Not before the rename: another process could then make and lock a file of this name, find
        // the temporary name still there, and empty what is about to be published. A crash here
        // leaves an empty file in the folder, and no reader minds it.
        self.dir.unlink(LOCK_NAME)?;
        drop(lock);
        Ok(self.parent.path().join(&self.name))
    }
}

impl Drop for FolderBeside {
    fn drop(&mut self) {
        if self.lock.is_some() {
            // What stays behind is emptied by the next who makes this folder.
            let _ = clear(&self.dir);
            let _ = self.dir.unlink(LOCK_NAME);
            let _ = self.parent.remove_dir(temp_name(&self.name));
        }
    }
}

impl BesideError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Taken { .. } => Blame::Caller,
            Self::Busy { .. } | Self::Foreign { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }
}

const FILE_MODE: u32 = 0o644;
const LOCK_NAME: &str = ".lock";
const ATTEMPTS: u32 = 4;

fn temp_name(name: &str) -> String {
    format!(".{name}.tmp")
}

fn open_lock(dir: &Dir) -> Result<Option<File>, FsError> {
    match dir.create_new(LOCK_NAME, 0o600) {
        Err(error) if error.kind == FsErrorKind::Exists => {
            or_gone(dir.open_file_writable(LOCK_NAME))
        }
        other => or_gone(other),
    }
}

/// Empties a folder but for its lock.
fn clear(dir: &Dir) -> Result<(), FsError> {
    for name in dir.list()? {
        if name == LOCK_NAME {
            continue;
        }
        match dir.unlink(&name) {
            Err(error) if error.kind == FsErrorKind::IsDirectory => {
                let inner = dir.open_dir(&name)?;
                clear(&inner)?;
                or_gone(inner.unlink(LOCK_NAME))?;
                dir.remove_dir(&name)?;
            }
            other => {
                or_gone(other)?;
            }
        }
    }
    Ok(())
}

fn or_gone<T>(result: Result<T, FsError>) -> Result<Option<T>, FsError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn taken_or(error: FsError, dir: &Dir, name: &str) -> BesideError {
    if error.kind == FsErrorKind::Exists {
        return BesideError::Taken {
            path: dir.path().join(name),
        };
    }
    error.into()
}
