//! The records of one user: `<state>/registry/v1/<key>.json`.
//!
//! Invariants:
//! - the folder is this user's alone (0700), or it isn't used;
//! - a record is written beside, synced, renamed over its name, and the folder synced: a reader,
//!   and whoever comes after a crash, finds the old one or the new one;
//! - whoever writes or removes holds one lock, so what is unfinished under it is a dead writer's.
//!
//! Never: touches an artifact; takes a damaged record for an absent one.

use super::binding::RegistryKey;
use super::record::{Record, RecordError};
use packhouse_base::Blame;
use packhouse_base::canonical::RECORD_BYTES_MAX;
use packhouse_store::folders::{Links, MakeModes, Owners, walk};
use packhouse_store::root::OpenError;
use packhouse_store::small::{SmallRefusal, read_trusted};
use packhouse_store::state::{State, StateError};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind, LockKind};
use packhouse_sys::stat::FileKind;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The registry of one user.
pub struct Registry {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    dir: Dir,
    owners: Owners,
}

/// Why the registry can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The folder is missing or not trusted.
    #[error("registry: {0}")]
    Path(#[from] OpenError),
    /// The folder is not this user's alone.
    #[error("registry: {0}")]
    State(#[from] StateError),
}

/// Why a record was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is none under this key.
    #[error("no record of {key}")]
    Absent {
        /// The key.
        key: RegistryKey,
    },
    /// Its file can't be trusted or read.
    #[error(transparent)]
    Small(SmallRefusal),
    /// Torn, edited, or filed under another key.
    #[error("{}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<RecordError>,
    },
}

/// Why a record was not written or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Another process holds the lock.
    #[error("{} is locked by another process that registers or removes", path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// Something else than a record has its name, and is not removed for it.
    #[error(transparent)]
    Taken(SmallRefusal),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// What came of registering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not registered before.
    New,
    /// It was, just so; nothing was written.
    Same,
    /// It was, with other stats of its files, or another path of its model.
    Renewed,
    /// It was, at another place, which is forgotten.
    Moved {
        /// Where it was.
        from: PathBuf,
    },
    /// Its record was damaged and is whole again.
    Repaired {
        /// What was wrong with it.
        why: Box<RecordError>,
    },
}

impl Registry {
    /// Opens the registry below a user's private state, and makes its folder.
    pub fn make(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        state: &Path,
    ) -> Result<Self, RegistryError> {
        let modes = MakeModes {
            parents: FOLDER_MODE,
            last: FOLDER_MODE,
        };
        let owners = Owners::new(fs.effective_uid(), &[]);
        let walk = |path: &Path| walk(fs.as_ref(), &owners, path, Some(modes), Links::Follow);
        let (above, own) = walk(state)?;
        let (registry, _) = walk(&state.join(FOLDER))?;
        // Whoever made one of them may have been stopped before it was durable.
        for dir in [above, own, registry] {
            match dir.reopen().and_then(|dir| dir.sync()) {
                // Not ours to read, so not made by us.
                Err(error) if error.kind == FsErrorKind::Permission => {}
                synced => synced.map_err(OpenError::from)?,
            }
        }
        Self::open(fs, clock, state, Some(modes))
    }

    /// Opens the registry below a user's private state; `None` where nobody made one.
    pub fn open_if_there(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        state: &Path,
    ) -> Result<Option<Self>, RegistryError> {
        match Self::open(fs, clock, state, None) {
            Err(RegistryError::Path(OpenError::Missing { .. })) => Ok(None),
            other => other.map(Some),
        }
    }

    fn open(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        state: &Path,
        make: Option<MakeModes>,
    ) -> Result<Self, RegistryError> {
        let owners = Owners::new(fs.effective_uid(), &[]);
        let path = state.join(FOLDER);
        let (_, dir) = walk(fs.as_ref(), &owners, &path, make, Links::Follow)?;
        State::new(Arc::clone(&fs), dir.clone())?;
        let owners = Owners::only(fs.effective_uid());
        Ok(Self {
            fs,
            clock,
            dir,
            owners,
        })
    }

    /// The folder of records.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The keys under which there is a record, whole or not, rising; and names that are none of the
    /// registry's.
    pub fn list(&self) -> Result<(Vec<RegistryKey>, Vec<OsString>), FsError> {
        let (mut keys, mut strays) = (Vec::new(), Vec::new());
        for name in self.dir.list()? {
            let text = name.to_str().unwrap_or_default();
            if text == LOCK_NAME || text.starts_with(TEMP_PREFIX) {
                continue;
            }
            let digits = text.strip_suffix(SUFFIX).unwrap_or_default();
            match RegistryKey::parse(digits) {
                Ok(key) => keys.push(key),
                Err(_) => strays.push(name),
            }
        }
        Ok((keys, strays))
    }

    /// Reads a record.
    pub fn read(&self, key: RegistryKey) -> Result<Record, ReadError> {
        let name = name_of(key);
        let limit = RECORD_BYTES_MAX as u64;
        let bytes = match read_trusted(&self.dir, &name, limit, &self.owners) {
            Ok(bytes) => bytes,
            Err(SmallRefusal::Absent { .. }) => return Err(ReadError::Absent { key }),
            Err(refusal) => return Err(ReadError::Small(refusal)),
        };
        Record::parse(key, &bytes).map_err(|source| ReadError::Damaged {
            path: self.dir.path().join(&name),
            source: Box::new(source),
        })
    }

    /// Writes a record under its key, unless it is there just so.
    ///
    /// # Errors
    /// When another process holds the lock for long, when something else than a record has its
    /// name, and as the file system does; then the record that was there is still there.
    pub fn publish(&self, record: Record) -> Result<(Record, Outcome), PublishError> {
        let _held = self.lock()?;
        self.sweep()?;
        let key = record.key();
        let (record, outcome) = match self.read(key) {
            Ok(earlier) => {
                let record = record.with_model_path_of(&earlier);
                if record == earlier {
                    // A stopped process may have renamed it and got no further.
                    self.dir.sync()?;
                    return Ok((record, Outcome::Same));
                }
                let from = earlier.path().to_owned();
                let outcome = match from == record.path() {
                    true => Outcome::Renewed,
                    false => Outcome::Moved { from },
                };
                (record, outcome)
            }
            Err(ReadError::Absent { .. }) => (record, Outcome::New),
            Err(ReadError::Damaged { source, .. }) => (record, Outcome::Repaired { why: source }),
            Err(ReadError::Small(refusal)) => return Err(PublishError::Taken(refusal)),
        };
        self.replace(&name_of(key), &record.render())?;
        Ok((record, outcome))
    }

    /// Removes the record of a key, damaged or not; false where there is none. The artifact stays.
    pub fn remove(&self, key: RegistryKey) -> Result<bool, PublishError> {
        let _held = self.lock()?;
        self.sweep()?;
        let removed = match self.dir.unlink(name_of(key)) {
            Ok(()) => true,
            Err(error) if error.kind == FsErrorKind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        self.dir.sync()?;
        Ok(removed)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FsError> {
        let mut random = [0u8; 16];
        self.fs.random(&mut random)?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let temp = format!("{TEMP_PREFIX}{digits}");
        let written = self.dir.create_new(&temp, FILE_MODE).and_then(|file| {
            file.write_all_at(0, bytes)?;
            file.sync()
        });
        let renamed = written.and_then(|()| self.dir.rename_over(&temp, name));
        if let Err(error) = renamed {
            // The first error is the one to report; what stays goes with the next writer.
            let _ = self.dir.unlink(&temp);
            return Err(error);
        }
        self.dir.sync()
    }

    /// Removes what dead writers left; under the lock.
    fn sweep(&self) -> Result<(), FsError> {
        for name in self.dir.list()? {
            let is_temp = name
                .to_str()
                .is_some_and(|name| name.starts_with(TEMP_PREFIX));
            // A folder is nobody's temporary file, and stays.
            if is_temp && self.dir.stat_entry(&name)?.kind == FileKind::Regular {
                self.dir.unlink(&name)?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> Result<File, PublishError> {
        let file = match self.dir.open_file_writable(LOCK_NAME) {
            Err(error) if error.kind == FsErrorKind::NotFound => {
                match self.dir.create_new(LOCK_NAME, FILE_MODE) {
                    // Another process was faster.
                    Err(error) if error.kind == FsErrorKind::Exists => {
                        self.dir.open_file_writable(LOCK_NAME)?
                    }
                    other => other?,
                }
            }
            other => other?,
        };
        let clock = self.clock.as_ref();
        match file.lock_within(clock, LockKind::Exclusive, (0, 1), LOCK_WAIT_NS)? {
            true => Ok(file),
            false => Err(PublishError::Busy {
                path: file.path().to_owned(),
            }),
        }
    }
}

impl RegistryError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Path(error) => error.blame(),
            Self::State(error) => error.blame(),
        }
    }
}

impl ReadError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } => Blame::Caller,
            Self::Small(refusal) => refusal.blame(),
            Self::Damaged { source, .. } => source.blame(),
        }
    }
}

impl PublishError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Busy { .. } => Blame::Host,
            Self::Taken(refusal) => refusal.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

fn name_of(key: RegistryKey) -> String {
    format!("{key}{SUFFIX}")
}

const FOLDER: &str = "registry/v1";
const SUFFIX: &str = ".json";
const LOCK_NAME: &str = "lock";
const TEMP_PREFIX: &str = ".tmp-";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Whoever holds the lock only writes one record.
const LOCK_WAIT_NS: u64 = 10_000_000_000;
