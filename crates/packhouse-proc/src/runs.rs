//! The state folder of a worker: `<state>/fleets/<fleet>/<worker>/runs/<number>/`.
//!
//! Invariants:
//! - every folder below the state's root belongs to this user alone (0700) and is opened component
//!   by component; no symlink is followed below the root;
//! - a numbered folder has an order: it is made under another name, filled, synced and renamed;
//! - the newest number counts; an older run never becomes live again;
//! - a keeper holds the lock on its order for as long as it lives, and whoever holds that lock
//!   decides whether the run may still be launched: a keeper that comes too late finds its end.
//!
//! Never: removes a run that is not over. Format: `docs/format/workers.md`.

use crate::identity::{ProcessKey, RunId};
use crate::records::{Order, Record, Released, RunExit};
use packhouse_base::{Blame, canonical};
use packhouse_store::fields::FieldError;
use packhouse_store::folders::{Links, MakeModes, open_or_make, walk};
use packhouse_store::root::{OpenError, Owners};
use packhouse_store::small::{SmallRefusal, read_trusted};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind, LockKind};
use packhouse_sys::stat::FileKind;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The runs of one worker.
#[derive(Clone)]
pub struct Runs {
    fs: Arc<dyn Fs>,
    owners: Owners,
    dir: Dir,
    runs: Dir,
    fleet: String,
    worker: String,
}

/// One start of a worker.
#[derive(Clone)]
pub struct Run {
    fs: Arc<dyn Fs>,
    owners: Owners,
    dir: Dir,
    number: u32,
}

/// The right to start or stop one worker; given back when dropped, at death too.
#[derive(Debug)]
pub struct WorkerLock {
    _held: File,
}

/// The sign that somebody waits for this worker to be ready; others may start or stop it meanwhile.
#[derive(Debug)]
pub struct WaitSign {
    _held: Option<File>,
}

/// The right to decide on one run; a keeper has it while it lives.
#[derive(Debug)]
pub struct Claim {
    _held: File,
}

/// Why the state of a worker can't be read or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunsError {
    /// A name that no fleet or worker can have.
    #[error("no name of a fleet or worker: {name:?} (a-z, 0-9, then also . _ -, at most 64)")]
    Name {
        /// The name.
        name: String,
    },
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
    /// A record can't be read.
    #[error(transparent)]
    Unread(Box<SmallRefusal>),
    /// A record that is no record.
    #[error("{}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FieldError,
    },
    /// A record that names another run than the order beside it.
    #[error("{}: names run {found}, and its order is of run {expected}", path.display())]
    OtherRun {
        /// The file.
        path: PathBuf,
        /// The run that it names.
        found: String,
        /// The order's.
        expected: RunId,
    },
    /// Something else than a file where a lock should be.
    #[error("{} is no regular file: the folder was changed by hand", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// A numbered folder without its order.
    #[error("{} has no order.json: the folder was changed by hand", path.display())]
    NoOrder {
        /// The folder.
        path: PathBuf,
    },
    /// Another process starts or stops this worker.
    #[error("{holder} is starting or stopping worker {worker} already")]
    Busy {
        /// The worker.
        worker: String,
        /// Who holds the lock, as it named itself.
        holder: String,
    },
    /// All numbers are used.
    #[error("{} has run 999999, and numbers do not go on", path.display())]
    NumbersEnd {
        /// The folder of runs.
        path: PathBuf,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl RunsError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Name { .. } => Blame::Caller,
            Self::Folder(error) => error.blame(),
            Self::Mode { .. } | Self::Busy { .. } => Blame::Host,
            Self::Unread(error) => error.blame(),
            Self::Record { .. }
            | Self::OtherRun { .. }
            | Self::NoFile { .. }
            | Self::NoOrder { .. }
            | Self::NumbersEnd { .. } => Blame::Store,
            Self::Fs(error) => error.blame(),
        }
    }

    /// Whether a record is there and is not what a run wrote.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Unread(_) | Self::Record { .. } | Self::OtherRun { .. } => true,
            Self::Name { .. }
            | Self::Folder(_)
            | Self::Mode { .. }
            | Self::NoFile { .. }
            | Self::NoOrder { .. }
            | Self::Busy { .. }
            | Self::NumbersEnd { .. }
            | Self::Fs(_) => false,
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

impl Runs {
    /// Opens what is there; `None` when this worker was never started.
    pub fn open(
        fs: Arc<dyn Fs>,
        state: &Path,
        fleet: &str,
        worker: &str,
    ) -> Result<Option<Self>, RunsError> {
        match Self::walk(fs, state, fleet, worker, false) {
            Err(RunsError::Folder(error)) if matches!(*error, OpenError::Missing { .. }) => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Opens the folders and makes what is missing.
    pub fn make(
        fs: Arc<dyn Fs>,
        state: &Path,
        fleet: &str,
        worker: &str,
    ) -> Result<Self, RunsError> {
        Self::walk(fs, state, fleet, worker, true)
    }

    /// The workers of a fleet that were ever started, by name.
    pub fn workers(fs: &dyn Fs, state: &Path, fleet: &str) -> Result<Vec<String>, RunsError> {
        plain_name(fleet)?;
        names_below(fs, &state.join(FLEETS).join(fleet))
    }

    /// The fleets of which any worker was ever started, by name.
    pub fn fleets(fs: &dyn Fs, state: &Path) -> Result<Vec<String>, RunsError> {
        names_below(fs, &state.join(FLEETS))
    }

    /// The fleet's name.
    pub fn fleet(&self) -> &str {
        &self.fleet
    }

    /// The worker's name.
    pub fn worker(&self) -> &str {
        &self.worker
    }

    /// The worker's folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The run that counts; `None` when there is none.
    pub fn newest(&self) -> Result<Option<Run>, RunsError> {
        let number = self.numbers()?.pop();
        number.map(|number| self.run(number)).transpose()
    }

    /// All runs that are kept, oldest first.
    pub fn list(&self) -> Result<Vec<Run>, RunsError> {
        let numbers = self.numbers()?.into_iter();
        numbers.map(|number| self.run(number)).collect()
    }

    /// Waits for the right to start or stop this worker. Errors name who has it.
    pub fn lock(
        &self,
        clock: &dyn Clock,
        me: &ProcessKey,
        timeout_ns: u64,
    ) -> Result<WorkerLock, RunsError> {
        let file = self.regular(open_or_create(&self.dir, LOCK)?)?;
        if file.lock_within(clock, LockKind::Exclusive, (0, 1), timeout_ns)? {
            // Only for the error of the next one, so it need not be durable.
            let text = canonical::render(&me.to_value());
            file.set_length(0)?;
            file.write_all_at(0, &text)?;
            return Ok(WorkerLock { _held: file });
        }
        let text = file.read_small(LOCK_BYTES_MAX)?;
        let holder = String::from_utf8_lossy(&text).trim_end().to_owned();
        let pid = canonical::parse(&text)
            .ok()
            .and_then(|value| value["pid"].as_u64());
        Err(RunsError::Busy {
            worker: self.worker.clone(),
            holder: pid.map_or(holder, |pid| format!("pid {pid}")),
        })
    }

    /// Says that this process waits for the worker, for as long as the sign is kept: a lock of the
    /// byte after its pid. Where somebody is just looking for signs, it may be without.
    pub fn wait_sign(&self, clock: &dyn Clock, me: &ProcessKey) -> Result<WaitSign, RunsError> {
        let file = open_or_create(&self.dir, LOCK)?;
        let byte = (u64::from(me.pid) + 1, 1);
        let had = file.lock_within(clock, LockKind::Exclusive, byte, SIGN_TIMEOUT_NS)?;
        Ok(WaitSign {
            _held: had.then_some(file),
        })
    }

    /// Whether another process starts, stops or waits for this worker now, by the kernel's own
    /// word.
    pub fn is_locked(&self) -> Result<bool, RunsError> {
        match self.dir.open_file(LOCK) {
            Ok(file) => {
                let file = self.regular(file)?;
                Ok(!file.try_lock(LockKind::Shared, 0, LOCKED_BYTES)?)
            }
            Err(error) if error.kind == FsErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// A pipe takes no locks, and the kernel's word for that says little.
    fn regular(&self, file: File) -> Result<File, RunsError> {
        let kind = file.stat()?.kind;
        if kind == FileKind::Regular {
            return Ok(file);
        }
        Err(RunsError::NoFile {
            path: self.dir.path().join(LOCK),
        })
    }

    /// Makes the next run with its order, whole and durable. The caller holds the worker's lock,
    /// by which leftovers of a start that was ended are nobody's and removed.
    pub fn create(&self, _lock: &WorkerLock, order: &Order) -> Result<Run, RunsError> {
        self.remove_unfinished()?;
        let number = self.numbers()?.pop().map_or(1, |last| last + 1);
        if number > NUMBER_MAX {
            return Err(RunsError::NumbersEnd {
                path: self.runs.path().to_owned(),
            });
        }
        let temp = temp_name(self.fs.as_ref())?;
        self.runs.make_dir(&temp, DIR_MODE)?;
        let dir = self.runs.open_dir(&temp)?;
        for name in RESERVES {
            let file = dir.create_new(name, FILE_MODE)?;
            file.write_all_at(0, &[0; RESERVE_BYTES])?;
        }
        write_whole(self.fs.as_ref(), &dir, Order::FILE, &order.render())?;
        self.runs
            .rename_new(&temp, &self.runs, folder_name(number))?;
        self.runs.sync()?;
        self.run(number)
    }

    /// Removes the oldest runs beyond `keep` that are over; answers how many went. The caller holds
    /// the worker's lock.
    pub fn prune(&self, _lock: &WorkerLock, keep: usize) -> Result<usize, RunsError> {
        let runs = self.list()?;
        let beyond = runs.len().saturating_sub(keep.max(1));
        let mut removed = 0;
        for run in runs.into_iter().take(beyond) {
            if !matches!(run.is_recorded_over(), Ok(true)) || run.keeper_lives()? {
                continue;
            }
            let name = folder_name(run.number);
            remove_folder(&self.runs, &name)?;
            removed += 1;
        }
        Ok(removed)
    }

    fn walk(
        fs: Arc<dyn Fs>,
        state: &Path,
        fleet: &str,
        worker: &str,
        make: bool,
    ) -> Result<Self, RunsError> {
        plain_name(fleet)?;
        plain_name(worker)?;
        let top = open_state(fs.as_ref(), state, make)?;
        let owners = Owners::only(fs.effective_uid());
        let step = |dir: &Dir, name: &str| private(dir, name, &owners, make);
        let dir = step(&step(&step(&top, FLEETS)?, fleet)?, worker)?;
        let runs = step(&dir, RUNS)?;
        Ok(Self {
            fs,
            owners,
            dir,
            runs,
            fleet: fleet.to_owned(),
            worker: worker.to_owned(),
        })
    }

    fn run(&self, number: u32) -> Result<Run, RunsError> {
        let dir = private(&self.runs, &folder_name(number), &self.owners, false)?;
        Ok(Run {
            fs: self.fs.clone(),
            owners: self.owners.clone(),
            dir,
            number,
        })
    }

    fn numbers(&self) -> Result<Vec<u32>, RunsError> {
        let names = self.runs.list()?;
        let mut numbers: Vec<u32> = names
            .iter()
            .filter_map(|name| number_of(name.to_str()?))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn remove_unfinished(&self) -> Result<(), RunsError> {
        for name in self.runs.list()? {
            if let Some(name) = name.to_str()
                && name.starts_with(TEMP_PREFIX)
            {
                remove_folder(&self.runs, name)?;
            }
        }
        Ok(())
    }
}

impl Run {
    /// Opens a run by the path of its folder: how a keeper finds its own.
    pub fn open(fs: Arc<dyn Fs>, path: &Path) -> Result<Self, RunsError> {
        let everyone = Owners::new(fs.effective_uid(), &[]);
        let owners = Owners::only(fs.effective_uid());
        let (parent, _) = walk(fs.as_ref(), &everyone, path, None, Links::Follow)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(number_of).ok_or_else(|| RunsError::NoOrder {
            path: path.to_owned(),
        })?;
        let dir = private(&parent, &folder_name(number), &owners, false)?;
        Ok(Self {
            fs,
            owners,
            dir,
            number,
        })
    }

    /// Its number among the worker's runs.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Reads a record; `None` when it was not written yet. Errors on one that is damaged, or is of
    /// another run than the order.
    pub fn read<R: Record>(&self) -> Result<Option<R>, RunsError> {
        let record: Option<R> = self.read_alone()?;
        if R::FILE == Order::FILE {
            return Ok(record);
        }
        // An order that can't be read says so itself.
        let (Some(found), Ok(Some(order))) = (&record, self.read_alone::<Order>()) else {
            return Ok(record);
        };
        let found = found.to_value()["run"].as_str().unwrap_or("").to_owned();
        if found == order.run.to_string() {
            return Ok(record);
        }
        Err(RunsError::OtherRun {
            path: self.dir.path().join(R::FILE),
            found,
            expected: order.run,
        })
    }

    /// Gives a record that is damaged another name, so that one can be written in its place.
    pub fn set_aside(&self, file: &str) -> Result<(), RunsError> {
        self.dir.rename_over(file, format!("{file}{DAMAGED}"))?;
        Ok(self.dir.sync()?)
    }

    fn read_alone<R: Record>(&self) -> Result<Option<R>, RunsError> {
        let bytes = match read_trusted(&self.dir, R::FILE, RECORD_BYTES_MAX, &self.owners) {
            Err(SmallRefusal::Absent { .. }) => return Ok(None),
            other => other.map_err(|error| RunsError::Unread(Box::new(error)))?,
        };
        let record = R::parse(&bytes).map_err(|source| RunsError::Record {
            path: self.dir.path().join(R::FILE),
            source,
        })?;
        Ok(Some(record))
    }

    /// Reads the order, which every run has.
    pub fn order(&self) -> Result<Order, RunsError> {
        self.read()?.ok_or_else(|| RunsError::NoOrder {
            path: self.dir.path().to_owned(),
        })
    }

    /// Writes a record whole and durable, on a full disk into room that was kept for it.
    pub fn write<R: Record>(&self, record: &R) -> Result<(), RunsError> {
        let bytes = record.render();
        match write_whole(self.fs.as_ref(), &self.dir, R::FILE, &bytes) {
            Err(error) if is_full(&error) => Ok(self.write_in_reserve(R::FILE, &bytes, error)?),
            other => Ok(other?),
        }
    }

    /// Writes over a file that has its blocks, and gives it the record's name.
    fn write_in_reserve(&self, name: &str, bytes: &[u8], full: FsError) -> Result<(), FsError> {
        if bytes.len() > RESERVE_BYTES {
            return Err(full);
        }
        for reserve in RESERVES {
            let file = match self.dir.open_file_writable(reserve) {
                Err(error) if error.kind == FsErrorKind::NotFound => continue,
                other => other?,
            };
            file.write_all_at(0, bytes)?;
            file.set_length(bytes.len() as u64)?;
            file.sync()?;
            self.dir.rename_over(reserve, name)?;
            return self.dir.sync();
        }
        Err(full)
    }

    /// Tries to get the right to decide on this run. `None`: its keeper lives, or another process
    /// looks at this moment.
    pub fn claim(&self, clock: &dyn Clock, timeout_ns: u64) -> Result<Option<Claim>, RunsError> {
        let file = self.dir.open_file_writable(Order::FILE)?;
        let had = file.lock_within(clock, LockKind::Exclusive, (0, 1), timeout_ns)?;
        Ok(had.then_some(Claim { _held: file }))
    }

    /// Whether it is on record that nothing of this run is left.
    pub fn is_recorded_over(&self) -> Result<bool, RunsError> {
        if matches!(self.read::<Released>(), Ok(Some(_))) {
            return Ok(true);
        }
        Ok(self.read::<RunExit>()?.is_some_and(|exit| exit.is_final()))
    }

    /// Whether any process of any pid namespace has this run: its keeper by its lock, its engine
    /// by the log that is its output. `None` where the file system does not tell.
    pub fn is_held(&self) -> Result<Option<bool>, RunsError> {
        if self.keeper_lives()? {
            return Ok(Some(true));
        }
        self.has_writer()
    }

    /// Whether any process of any pid namespace can write to the log, which is the output of the
    /// engine. `None` where the file system does not tell.
    pub fn has_writer(&self) -> Result<Option<bool>, RunsError> {
        match self.dir.open_file(LOG) {
            Ok(log) => Ok(log.has_writer()),
            Err(error) if error.kind == FsErrorKind::NotFound => Ok(Some(false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a keeper holds this run, by the kernel's own word.
    pub fn keeper_lives(&self) -> Result<bool, RunsError> {
        let file = self.dir.open_file(Order::FILE)?;
        Ok(!file.try_lock(LockKind::Shared, 0, 1)?)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Run({})", self.dir.path().display())
    }
}

/// Whether there is no room for more bytes.
fn is_full(error: &FsError) -> bool {
    matches!(
        error.kind,
        FsErrorKind::NoSpace | FsErrorKind::TooLarge | FsErrorKind::Quota
    )
}

/// Opens the root of the private state by the owner rules of all our folders.
fn open_state(fs: &dyn Fs, state: &Path, make: bool) -> Result<Dir, RunsError> {
    let owners = Owners::new(fs.effective_uid(), &[]);
    let modes = make.then_some(MakeModes {
        parents: DIR_MODE,
        last: DIR_MODE,
    });
    let (_, dir) = walk(fs, &owners, state, modes, Links::Follow)?;
    Ok(dir)
}

/// Opens or makes a folder of this user that nobody else may enter.
fn private(parent: &Dir, name: &str, owners: &Owners, make: bool) -> Result<Dir, RunsError> {
    let dir = open_or_make(parent, name, DIR_MODE, owners, make)?;
    let mode = dir.stat()?.mode;
    if mode & OTHERS_BITS == 0 {
        return Ok(dir);
    }
    Err(RunsError::Mode {
        path: dir.path().to_owned(),
        mode,
    })
}

fn names_below(fs: &dyn Fs, path: &Path) -> Result<Vec<String>, RunsError> {
    let owners = Owners::new(fs.effective_uid(), &[]);
    let dir = match walk(fs, &owners, path, None, Links::Follow) {
        Err(OpenError::Missing { .. }) => return Ok(Vec::new()),
        other => other?.1,
    };
    let names = dir.list()?.into_iter();
    Ok(names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| plain_name(name).is_ok())
        .collect())
}

/// Writes a file beside its name, syncs it, gives it its name and makes that durable.
fn write_whole(fs: &dyn Fs, dir: &Dir, name: &str, bytes: &[u8]) -> Result<(), FsError> {
    let temp = temp_name(fs)?;
    let file = dir.create_new(&temp, FILE_MODE)?;
    let written = file
        .write_all_at(0, bytes)
        .and_then(|()| file.sync())
        .and_then(|()| dir.rename_over(&temp, name));
    if let Err(error) = written {
        // The first error is the one to report; a temporary file that stays goes with its run.
        let _ = dir.unlink(&temp);
        return Err(error);
    }
    dir.sync()
}

pub(crate) fn open_or_create(dir: &Dir, name: &str) -> Result<File, FsError> {
    match dir.open_file_writable(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => {}
        other => return other,
    }
    match dir.create_new(name, FILE_MODE) {
        Err(error) if error.kind == FsErrorKind::Exists => dir.open_file_writable(name),
        other => other,
    }
}

/// Removes a folder of files. Its name goes first, so that a run is whole or not there.
fn remove_folder(parent: &Dir, name: &str) -> Result<(), FsError> {
    let unfinished = if name.starts_with(TEMP_PREFIX) {
        name.to_owned()
    } else {
        let unfinished = format!("{TEMP_PREFIX}{name}");
        parent.rename_new(name, parent, &unfinished)?;
        unfinished
    };
    let dir = parent.open_dir(&unfinished)?;
    for entry in dir.list()? {
        if dir.stat_entry(&entry)?.kind == FileKind::Directory {
            continue;
        }
        dir.unlink(&entry)?;
    }
    parent.remove_dir(&unfinished)?;
    parent.sync()
}

fn temp_name(fs: &dyn Fs) -> Result<String, FsError> {
    let mut random = [0u8; 16];
    fs.random(&mut random)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{TEMP_PREFIX}{digits}"))
}

fn folder_name(number: u32) -> String {
    format!("{number:06}")
}

fn number_of(name: &str) -> Option<u32> {
    let number = name.parse().ok()?;
    (folder_name(number) == name && number <= NUMBER_MAX).then_some(number)
}

/// Names of fleets and workers are names of folders, also where no fleet file says them.
fn plain_name(name: &str) -> Result<(), RunsError> {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let rest = |byte: u8| first(byte) || b"._-".contains(&byte);
    let bytes = name.as_bytes();
    let is_plain = bytes.len() <= 64
        && bytes.first().is_some_and(|byte| first(*byte))
        && bytes.iter().all(|byte| rest(*byte));
    if is_plain {
        return Ok(());
    }
    Err(RunsError::Name {
        name: name.to_owned(),
    })
}

const FLEETS: &str = "fleets";
const RUNS: &str = "runs";
const LOCK: &str = "lock";
/// The engine's own output.
pub const LOG: &str = "server.log";
/// What the keeper has to say.
pub const KEEPER_LOG: &str = "keeper.log";
/// Room for records on a full disk: enough for a stop, whose engine may be what fills it.
const RESERVES: [&str; 4] = ["reserve-0", "reserve-1", "reserve-2", "reserve-3"];
const RESERVE_BYTES: usize = 16 << 10;
/// What is behind the name of a record that was set aside.
pub const DAMAGED: &str = ".damaged";
const TEMP_PREFIX: &str = ".tmp-";
const NUMBER_MAX: u32 = 999_999;
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const OTHERS_BITS: u32 = 0o077;
/// Byte 0 for who starts or stops, and one for each pid that waits.
const LOCKED_BYTES: u64 = 1 << 32;
const SIGN_TIMEOUT_NS: u64 = 1_000_000_000;
const LOCK_BYTES_MAX: u64 = 4096;
const RECORD_BYTES_MAX: u64 = 16 << 20;
