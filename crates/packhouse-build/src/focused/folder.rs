//! The state of runs: `<state>/focused/v1/<key>/{lock, result.json, runs/<run id>/...}`.
//!
//! Invariants:
//! - every folder below the state's root belongs to this user alone (0700); no symlink is followed;
//! - whoever has the lock of a key is the only one to change its folder; it is given back at death;
//! - an old result is gone, durably, before a run of its key begins; a new one is renamed to its
//!   name once it and all logs that it names are durable: so a kill at any step leaves no pass that
//!   the logs beside it do not show;
//! - names of logs are an index and a hash: no test's name can collide or leave the folder.
//!
//! Never: removes the run that the result names.

use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_store::folders::{Links, MakeModes, Owners, open_or_make, walk};
use packhouse_store::root::OpenError;
use packhouse_store::small::{SmallRefusal, read_trusted};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind, LockKind};
use packhouse_sys::stat::FileKind;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// All runs of one user.
pub struct Runs<'a> {
    fs: &'a dyn Fs,
    clock: &'a dyn Clock,
    owners: Owners,
    dir: Dir,
}

/// The folder of one key, locked.
pub struct KeyFolder<'a> {
    fs: &'a dyn Fs,
    owners: Owners,
    dir: Dir,
    runs: Dir,
    _lock: File,
}

/// The folder of one run.
pub struct RunFolder {
    dir: Dir,
    id: String,
}

/// A log as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Its name in the run's folder.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub sha256: String,
}

/// What is written of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
    /// What the dynamic loader said of its processes.
    Loader,
}

/// Why the state of runs can't be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunsError {
    /// A folder can't be opened or is not trusted.
    #[error(transparent)]
    Folder(Box<OpenError>),
    /// A folder that others can enter.
    #[error("{} has mode {mode:04o}, expected 0700", path.display())]
    Mode {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another process runs the same tests.
    #[error("{}: another process runs the same tests of the same build", path.display())]
    Busy {
        /// The folder of the key.
        path: PathBuf,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Why a log is not what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A name that no log has.
    #[error("{file:?} is no name of a log")]
    Name {
        /// The name.
        file: String,
    },
    /// It can't be read.
    #[error(transparent)]
    Unread(#[from] SmallRefusal),
    /// It has other bytes.
    #[error("{} has SHA-256 {actual}, recorded is {recorded}", path.display())]
    Changed {
        /// The log.
        path: PathBuf,
        /// As recorded.
        recorded: String,
        /// As it is.
        actual: Digest,
    },
}

impl RunsError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Folder(error) => error.blame(),
            Self::Mode { .. } | Self::Busy { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }
}

impl From<OpenError> for RunsError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Fs(error) => Self::Fs(error),
            other => Self::Folder(Box::new(other)),
        }
    }
}

impl<'a> Runs<'a> {
    /// Opens the folder of runs below a user's private state, and makes it.
    pub fn make(fs: &'a dyn Fs, clock: &'a dyn Clock, state: &Path) -> Result<Self, RunsError> {
        let everyone = Owners::new(fs.effective_uid(), &[]);
        let modes = MakeModes {
            parents: DIR_MODE,
            last: DIR_MODE,
        };
        let (_, top) = walk(fs, &everyone, state, Some(modes), Links::Follow)?;
        let owners = Owners::only(fs.effective_uid());
        let dir = private(&private(&top, FOLDER, &owners)?, VERSION, &owners)?;
        Ok(Self {
            fs,
            clock,
            owners,
            dir,
        })
    }

    /// Opens and locks the folder of a key, and makes it. Errors when another process has the lock
    /// for longer than the timeout.
    pub fn lock(&self, key: Digest, timeout_ns: u64) -> Result<KeyFolder<'a>, RunsError> {
        let name = key.to_string();
        for _ in 0..LOCK_TRIES {
            // It may be on its way out, from the moment in which it is made.
            let dir = match private(&self.dir, &name, &self.owners) {
                Err(error) if is_missing(&error) => continue,
                other => other?,
            };
            let Some(lock) = there(open_or_create(&dir, LOCK))? else {
                continue;
            };
            if !lock.lock_within(self.clock, LockKind::Exclusive, (0, 1), timeout_ns)? {
                break;
            }
            // Whoever removed the folder had the lock until then.
            if !self.is_still(&name, &dir)? {
                continue;
            }
            let runs = private(&dir, RUNS, &self.owners)?;
            return Ok(KeyFolder {
                fs: self.fs,
                owners: self.owners.clone(),
                dir,
                runs,
                _lock: lock,
            });
        }
        Err(RunsError::Busy {
            path: self.dir.path().join(name),
        })
    }

    fn is_still(&self, name: &str, dir: &Dir) -> Result<bool, RunsError> {
        match self.dir.open_dir(name) {
            Ok(now) => Ok(now.stat()?.inode == dir.stat()?.inode),
            Err(error) if error.kind == FsErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the folders of keys used longest ago beyond `keep`, but those that are locked, and
    /// what was left unfinished. Where another process does it already, nothing. Answers how many
    /// went.
    pub fn prune(&self, keep: usize) -> Result<usize, RunsError> {
        let Some(_pruning) = self.pruning()? else {
            return Ok(0);
        };
        let mut aged = Vec::new();
        for name in self.dir.list()? {
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(TEMP_PREFIX) {
                remove_folder(&self.dir, name)?;
            } else if Digest::parse(name).is_ok()
                && let Some(stat) = there(self.dir.stat_entry(name))?
            {
                aged.push((stat.mtime_ns, name.to_owned()));
            }
        }
        aged.sort_unstable();
        let beyond = aged.len().saturating_sub(keep);
        let mut removed = 0;
        for (_, name) in aged.into_iter().take(beyond) {
            let Some(dir) = there(self.dir.open_dir(&name))? else {
                continue;
            };
            let lock = open_or_create(&dir, LOCK)?;
            if lock.try_lock(LockKind::Exclusive, 0, 1)? {
                remove_folder(&self.dir, &name)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// The lock of whoever removes; `None` where another process has it.
    fn pruning(&self) -> Result<Option<File>, RunsError> {
        let pruning = open_or_create(&self.dir, LOCK)?;
        if !pruning.try_lock(LockKind::Exclusive, 0, 1)? {
            return Ok(None);
        }
        Ok(Some(pruning))
    }

    /// Removes the oldest runs of all keys while what is kept is longer than `max_bytes`, but the
    /// newest run, and those of keys that are locked. The last run of a key takes its result along.
    /// Where another process removes already, nothing. Answers how many went.
    pub fn prune_bytes(&self, max_bytes: u64) -> Result<usize, RunsError> {
        let Some(_pruning) = self.pruning()? else {
            return Ok(0);
        };
        let mut aged = Vec::new();
        for key in self.dir.list()? {
            if let Some(key) = key.to_str().filter(|key| Digest::parse(key).is_ok()) {
                self.age(key, &mut aged)?;
            }
        }
        aged.sort_unstable();
        let mut kept_bytes: u64 = aged.iter().map(|(.., bytes)| bytes).sum();
        aged.pop();
        let mut removed = 0;
        for (_, key, run, bytes) in aged {
            if kept_bytes <= max_bytes {
                break;
            }
            if self.remove_run(&key, &run)? {
                kept_bytes -= bytes;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Adds the runs of a key: when each was, where, and its bytes.
    fn age(&self, key: &str, aged: &mut Vec<(i64, String, String, u64)>) -> Result<(), RunsError> {
        let Some(dir) = there(self.dir.open_dir(key))? else {
            return Ok(());
        };
        let Some(runs) = there(dir.open_dir(RUNS))? else {
            return Ok(());
        };
        for run in there(runs.list())?.unwrap_or_default() {
            if let Some(run) = run.to_str()
                && let Some(stat) = there(runs.stat_entry(run))?
            {
                let bytes = bytes_of(&runs, run)?;
                aged.push((stat.mtime_ns, key.to_owned(), run.to_owned(), bytes));
            }
        }
        Ok(())
    }

    /// Removes one run, with its key where it is the last one. False where somebody uses the key.
    fn remove_run(&self, key: &str, run: &str) -> Result<bool, RunsError> {
        let Some(dir) = there(self.dir.open_dir(key))? else {
            return Ok(false);
        };
        let lock = open_or_create(&dir, LOCK)?;
        if !lock.try_lock(LockKind::Exclusive, 0, 1)? {
            return Ok(false);
        }
        let Some(runs) = there(dir.open_dir(RUNS))? else {
            return Ok(false);
        };
        let names = runs.list()?;
        if !names.iter().any(|name| name == run) {
            return Ok(false);
        }
        // A result names the newest run.
        if names.len() > 1 {
            remove_folder(&runs, run)?;
        } else {
            remove_folder(&self.dir, key)?;
        }
        Ok(true)
    }
}

impl KeyFolder<'_> {
    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The user whose folder it is.
    pub(super) fn uid(&self) -> u32 {
        self.fs.effective_uid()
    }

    /// The bytes of the result that is there.
    pub fn result(&self) -> Result<Vec<u8>, SmallRefusal> {
        read_trusted(&self.dir, RESULT, RESULT_BYTES_MAX, &self.owners)
    }

    /// Removes the result that is there, durably.
    pub fn invalidate(&self) -> Result<(), RunsError> {
        match self.dir.unlink(RESULT) {
            Err(error) if error.kind != FsErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        Ok(self.dir.sync()?)
    }

    /// Says that this key was used just now, so that it goes last.
    pub fn refresh(&self) -> Result<(), RunsError> {
        // An entry that comes and goes is a change of the folder.
        let temp = format!("{TEMP_PREFIX}{}", random_digits(self.fs)?);
        self.dir.create_new(&temp, FILE_MODE)?;
        Ok(self.dir.unlink(&temp)?)
    }

    /// Makes the folder of a new run.
    pub fn begin(&self) -> Result<RunFolder, RunsError> {
        let id = random_digits(self.fs)?;
        self.runs.make_dir(&id, DIR_MODE)?;
        self.runs.sync()?;
        let dir = self.runs.open_dir(&id)?;
        Ok(RunFolder { dir, id })
    }

    /// Opens the folder of a run that a result names.
    pub fn run(&self, id: &str) -> Result<RunFolder, FsError> {
        let dir = self.runs.open_dir(id)?;
        Ok(RunFolder {
            dir,
            id: id.to_owned(),
        })
    }

    /// Makes a result visible, durably. All logs that it names must be durable.
    pub fn publish(&self, result: &[u8]) -> Result<(), RunsError> {
        let temp = format!("{TEMP_PREFIX}{}", random_digits(self.fs)?);
        let file = self.dir.create_new(&temp, FILE_MODE)?;
        let written = file
            .write_all_at(0, result)
            .and_then(|()| file.sync())
            .and_then(|()| self.dir.rename_over(&temp, RESULT));
        if let Err(error) = written {
            // The first error is the one to report; what stays is removed by the next run.
            let _ = self.dir.unlink(&temp);
            return Err(error.into());
        }
        Ok(self.dir.sync()?)
    }

    /// Removes the oldest runs beyond `keep`, never `current`, and what was left unfinished.
    /// Answers how many runs went.
    pub fn prune(&self, keep: usize, current: &str) -> Result<usize, RunsError> {
        for name in self.dir.list()? {
            if name.as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
                there(self.dir.unlink(&name))?;
            }
        }
        let mut aged = Vec::new();
        for name in self.runs.list()? {
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(TEMP_PREFIX) {
                remove_folder(&self.runs, name)?;
            } else if name != current {
                aged.push((self.runs.stat_entry(name)?.mtime_ns, name.to_owned()));
            }
        }
        aged.sort_unstable();
        let beyond = aged.len().saturating_sub(keep.saturating_sub(1));
        for (_, name) in aged.iter().take(beyond) {
            remove_folder(&self.runs, name)?;
        }
        Ok(beyond)
    }
}

impl RunFolder {
    /// The run's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Makes a new log of a test.
    pub fn create(&self, index: usize, test: &str, kind: LogKind) -> Result<File, FsError> {
        self.dir.create_new(log_name(index, test, kind), FILE_MODE)
    }

    /// Makes the folder into which the loader writes of a test's processes.
    pub fn loader_folder(&self, index: usize, test: &str) -> Result<Dir, FsError> {
        let name = loader_folder_name(index, test);
        self.dir.make_dir(&name, DIR_MODE)?;
        self.dir.open_dir(&name)
    }

    /// Removes that folder with what is in it.
    pub fn remove_loader_folder(&self, index: usize, test: &str) -> Result<(), FsError> {
        remove_entry(&self.dir, &loader_folder_name(index, test))
    }

    /// Makes a log durable, and says what it is now.
    pub fn seal(&self, file: &File, bytes: &[u8]) -> Result<Log, FsError> {
        file.sync()?;
        let name = file.path().file_name().and_then(|name| name.to_str());
        Ok(Log {
            file: name.unwrap_or_default().to_owned(),
            bytes: bytes.len() as u64,
            sha256: Digest::of(bytes).to_string(),
        })
    }

    /// Makes the names of all logs durable.
    pub fn sync(&self) -> Result<(), FsError> {
        self.dir.sync()
    }

    /// Reads a log that a result names. Errors unless it has the bytes that were recorded.
    pub fn verify(&self, log: &Log, owners: &Owners) -> Result<Vec<u8>, LogError> {
        if !log.file.bytes().all(is_log_byte) || log.file.starts_with('.') {
            return Err(LogError::Name {
                file: log.file.clone(),
            });
        }
        let bytes = read_trusted(&self.dir, &log.file, LOG_BYTES_MAX, owners)?;
        let actual = Digest::of(&bytes);
        if actual.to_string() == log.sha256 && bytes.len() as u64 == log.bytes {
            return Ok(bytes);
        }
        Err(LogError::Changed {
            path: self.dir.path().join(&log.file),
            recorded: log.sha256.clone(),
            actual,
        })
    }
}

/// An index and a hash, so that no two tests have one name, and no name is a path.
fn log_name(index: usize, test: &str, kind: LogKind) -> String {
    let kind = match kind {
        LogKind::Stdout => "stdout",
        LogKind::Stderr => "stderr",
        LogKind::Loader => "loader",
    };
    format!("{}.{kind}", stem(index, test))
}

fn loader_folder_name(index: usize, test: &str) -> String {
    format!("{}.loading", stem(index, test))
}

fn stem(index: usize, test: &str) -> String {
    let hash = Digest::of(test.as_bytes()).to_string();
    format!("{index:03}-{}", &hash[..16])
}

fn is_log_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-".contains(&byte)
}

fn private(parent: &Dir, name: &str, owners: &Owners) -> Result<Dir, RunsError> {
    let dir = open_or_make(parent, name, DIR_MODE, owners, true)?;
    let mode = dir.stat()?.mode;
    if mode & OTHERS_BITS == 0 {
        return Ok(dir);
    }
    Err(RunsError::Mode {
        path: dir.path().to_owned(),
        mode,
    })
}

fn open_or_create(dir: &Dir, name: &str) -> Result<File, FsError> {
    match dir.open_file_writable(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => {}
        other => return other,
    }
    match dir.create_new(name, FILE_MODE) {
        Err(error) if error.kind == FsErrorKind::Exists => dir.open_file_writable(name),
        other => other,
    }
}

/// Removes a folder with all that is in it. Its name goes first, so that it is whole or not there.
/// What is gone already is no error.
fn remove_folder(parent: &Dir, name: &str) -> Result<(), FsError> {
    let unfinished = if name.starts_with(TEMP_PREFIX) {
        name.to_owned()
    } else {
        let unfinished = format!("{TEMP_PREFIX}{name}");
        match parent.rename_new(name, parent, &unfinished) {
            Err(error) if error.kind == FsErrorKind::Exists => {
                // What an earlier one left.
                remove_entry(parent, &unfinished)?;
                parent.rename_new(name, parent, &unfinished)?;
            }
            other => {
                there(other)?;
            }
        }
        unfinished
    };
    remove_entry(parent, &unfinished)?;
    parent.sync()
}

fn remove_entry(parent: &Dir, name: &str) -> Result<(), FsError> {
    let Some(stat) = there(parent.stat_entry(name))? else {
        return Ok(());
    };
    if stat.kind != FileKind::Directory {
        return there(parent.unlink(name)).map(|_| ());
    }
    let Some(dir) = there(parent.open_dir(name))? else {
        return Ok(());
    };
    for _ in 0..REMOVE_TRIES {
        for entry in dir.list()? {
            match entry.to_str() {
                Some(entry) => remove_entry(&dir, entry)?,
                None => dir.unlink(&entry)?,
            }
        }
        match parent.remove_dir(name) {
            // Who opened it before its name went has made its lock in it since.
            Err(error) if error.kind == FsErrorKind::NotEmpty => {}
            other => return there(other).map(|_| ()),
        }
    }
    there(parent.remove_dir(name)).map(|_| ())
}

/// The lengths of all files of a folder. What goes meanwhile counts nothing.
fn bytes_of(parent: &Dir, name: &str) -> Result<u64, FsError> {
    let Some(stat) = there(parent.stat_entry(name))? else {
        return Ok(0);
    };
    if stat.kind != FileKind::Directory {
        return Ok(stat.size);
    }
    let Some(dir) = there(parent.open_dir(name))? else {
        return Ok(0);
    };
    let mut bytes = 0;
    for entry in there(dir.list())?.unwrap_or_default() {
        if let Some(entry) = entry.to_str() {
            bytes += bytes_of(&dir, entry)?;
        }
    }
    Ok(bytes)
}

/// Whether a folder was gone before it could be opened.
fn is_missing(error: &RunsError) -> bool {
    matches!(error, RunsError::Folder(error) if matches!(**error, OpenError::Missing { .. }))
}

/// `None` where something is not there.
fn there<T>(found: Result<T, FsError>) -> Result<Option<T>, FsError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn random_digits(fs: &dyn Fs) -> Result<String, FsError> {
    let mut random = [0u8; 16];
    fs.random(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The longest log that is kept, in bytes; a test that prints more proves nothing.
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// Runs of one key that are kept.
pub const RUNS_KEPT: usize = 4;
/// Keys that are kept.
pub const KEYS_KEPT: usize = 64;
/// Bytes of the logs of all keys that are kept beside the newest run, which stays whatever it has.
pub const KEPT_BYTES_MAX: u64 = 256 << 20;
const FOLDER: &str = "focused";
const VERSION: &str = "v1";
const RUNS: &str = "runs";
const LOCK: &str = "lock";
const RESULT: &str = "result.json";
const TEMP_PREFIX: &str = ".tmp-";
const LOCK_TRIES: usize = 100;
const REMOVE_TRIES: usize = 100;
const RESULT_BYTES_MAX: u64 = 16 << 20;
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const OTHERS_BITS: u32 = 0o077;
