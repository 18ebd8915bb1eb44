//! A file system before another one: pauses a writer in the middle of a file, tells a wrong length,
//! takes few bytes at a time.

use packhouse_sim::SimFs;
use packhouse_sys::fs::{
    Dir, DirAccess, DirBackend, File, FileBackend, Fs, FsError, FsErrorKind, LockKind,
};
use packhouse_sys::stat::{FsStat, Stat, StatIdentity};
use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The file system before the simulated one.
pub(crate) struct Shim {
    inner: SimFs,
    plan: Arc<Plan>,
}

/// What is told or done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Nothing.
    None,
    /// A written file is a byte shorter by its stat.
    Shorter,
    /// A write takes at most 7 bytes.
    ShortWrites,
    /// Images can't be opened: the disk fails.
    Unreadable,
    /// A file that was there is a byte shorter each time its stat is asked for.
    Shrinking,
}

struct Plan {
    lie: Lie,
    pause: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    paused: AtomicBool,
}

struct ShimDir {
    inner: Dir,
    plan: Arc<Plan>,
}

struct ShimFile {
    inner: File,
    plan: Arc<Plan>,
    /// A write was cut, and the pause comes before the rest.
    cut: AtomicBool,
    is_new: bool,
    stat_count: AtomicU64,
}

impl Shim {
    /// Runs `pause` once, when 60 % of a long write to a new file are done.
    pub(crate) fn pausing(inner: &SimFs, pause: impl FnOnce() + Send + 'static) -> Self {
        Self::new(inner, Lie::None, Some(Box::new(pause)))
    }

    pub(crate) fn lying(inner: &SimFs, lie: Lie) -> Self {
        Self::new(inner, lie, None)
    }

    pub(crate) fn has_paused(&self) -> bool {
        self.plan.paused.load(Ordering::Acquire)
    }

    fn new(inner: &SimFs, lie: Lie, pause: Option<Box<dyn FnOnce() + Send>>) -> Self {
        let plan = Plan {
            lie,
            pause: Mutex::new(pause),
            paused: AtomicBool::new(false),
        };
        Self {
            inner: inner.clone(),
            plan: Arc::new(plan),
        }
    }
}

impl Fs for Shim {
    fn root(&self) -> Result<Dir, FsError> {
        let inner = self.inner.root()?;
        let path = inner.path().to_owned();
        let plan = self.plan.clone();
        Ok(Dir::new(Arc::new(ShimDir { inner, plan }), path))
    }

    fn random(&self, target: &mut [u8]) -> Result<(), FsError> {
        self.inner.random(target)
    }

    fn effective_uid(&self) -> u32 {
        self.inner.effective_uid()
    }
}

fn kind<T>(result: Result<T, FsError>) -> Result<T, FsErrorKind> {
    result.map_err(|error| error.kind)
}

impl ShimDir {
    fn dir(&self, inner: Dir) -> Arc<dyn DirBackend> {
        let plan = self.plan.clone();
        Arc::new(Self { inner, plan })
    }

    fn file(&self, inner: File, is_new: bool) -> Box<dyn FileBackend> {
        Box::new(ShimFile {
            inner,
            plan: self.plan.clone(),
            cut: AtomicBool::new(false),
            is_new,
            stat_count: AtomicU64::new(0),
        })
    }
}

impl DirBackend for ShimDir {
    fn open_dir(
        &self,
        name: &OsStr,
        access: DirAccess,
    ) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        Ok(self.dir(kind(self.inner.open_dir_for(name, access))?))
    }

    fn reopen(&self) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        Ok(self.dir(kind(self.inner.reopen())?))
    }

    fn make_dir(&self, name: &OsStr, mode: u32) -> Result<(), FsErrorKind> {
        kind(self.inner.make_dir(name, mode))
    }

    fn open_file(&self, name: &OsStr, writable: bool) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        let is_image = name.to_string_lossy().ends_with(".phti");
        if self.plan.lie == Lie::Unreadable && is_image {
            return Err(FsErrorKind::Io);
        }
        let opened = if writable {
            self.inner.open_file_writable(name)
        } else {
            self.inner.open_file(name)
        };
        Ok(self.file(kind(opened)?, false))
    }

    fn create_new(&self, name: &OsStr, mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        Ok(self.file(kind(self.inner.create_new(name, mode))?, true))
    }

    fn create_unnamed(&self, _mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        Err(FsErrorKind::Unsupported)
    }

    fn link(&self, _file: &dyn FileBackend, _name: &OsStr) -> Result<(), FsErrorKind> {
        Err(FsErrorKind::Unsupported)
    }

    fn rename_new(
        &self,
        _source: &OsStr,
        _target_dir: &dyn DirBackend,
        _target: &OsStr,
    ) -> Result<(), FsErrorKind> {
        Err(FsErrorKind::Unsupported)
    }

    fn rename_over(&self, source: &OsStr, target: &OsStr) -> Result<(), FsErrorKind> {
        kind(self.inner.rename_over(source, target))
    }

    fn unlink(&self, name: &OsStr) -> Result<(), FsErrorKind> {
        kind(self.inner.unlink(name))
    }

    fn remove_dir(&self, name: &OsStr) -> Result<(), FsErrorKind> {
        kind(self.inner.remove_dir(name))
    }

    fn read_link(&self, name: &OsStr) -> Result<PathBuf, FsErrorKind> {
        kind(self.inner.read_link(name))
    }

    fn stat_entry(&self, name: &OsStr) -> Result<Stat, FsErrorKind> {
        kind(self.inner.stat_entry(name))
    }

    fn list(&self) -> Result<Vec<OsString>, FsErrorKind> {
        kind(self.inner.list())
    }

    fn stat(&self) -> Result<Stat, FsErrorKind> {
        kind(self.inner.stat())
    }

    fn fs_stat(&self) -> Result<FsStat, FsErrorKind> {
        kind(self.inner.fs_stat())
    }

    fn sync(&self) -> Result<(), FsErrorKind> {
        kind(self.inner.sync())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl ShimFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize, FsErrorKind> {
        kind(self.inner.write_all_at(offset, bytes))?;
        Ok(bytes.len())
    }

    fn take_pause(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let mut pause = self.plan.pause.lock().expect("because no pause panics");
        pause.take()
    }
}

impl FileBackend for ShimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, FsErrorKind> {
        if self.plan.lie == Lie::ShortWrites {
            return self.write(offset, &bytes[..bytes.len().min(7)]);
        }
        if self.cut.load(Ordering::Acquire) {
            if let Some(pause) = self.take_pause() {
                pause();
                self.plan.paused.store(true, Ordering::Release);
            }
        } else if bytes.len() >= LONG_BYTES {
            self.cut.store(true, Ordering::Release);
            return self.write(offset, &bytes[..bytes.len() * 6 / 10]);
        }
        self.write(offset, bytes)
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, FsErrorKind> {
        kind(self.inner.read_full_at(offset, target))
    }

    fn write_out(&self, offset: u64, length: u64, wait: bool) -> Result<(), FsErrorKind> {
        kind(self.inner.write_out(offset, length, wait))
    }

    fn sync(&self, _content_only: bool) -> Result<(), FsErrorKind> {
        kind(self.inner.sync())
    }

    fn stat(&self) -> Result<Stat, FsErrorKind> {
        let mut stat = kind(self.inner.stat())?;
        if self.plan.lie == Lie::Shorter && self.is_new {
            stat.size = stat.size.saturating_sub(1);
        }
        if self.plan.lie == Lie::Shrinking {
            stat.size -= self.stat_count.fetch_add(1, Ordering::AcqRel);
        }
        Ok(stat)
    }

    fn identity(&self) -> Result<StatIdentity, FsErrorKind> {
        kind(self.inner.identity())
    }

    fn fs_stat(&self) -> Result<FsStat, FsErrorKind> {
        kind(self.inner.fs_stat())
    }

    fn set_length(&self, length: u64) -> Result<(), FsErrorKind> {
        kind(self.inner.set_length(length))
    }

    fn set_mode(&self, mode: u32) -> Result<(), FsErrorKind> {
        kind(self.inner.set_mode(mode))
    }

    fn drop_cache(&self) -> Result<(), FsErrorKind> {
        kind(self.inner.drop_cache())
    }

    fn try_lock(&self, lock: LockKind, offset: u64, length: u64) -> Result<bool, FsErrorKind> {
        kind(self.inner.try_lock(lock, offset, length))
    }

    fn unlock(&self, offset: u64, length: u64) -> Result<(), FsErrorKind> {
        kind(self.inner.unlock(offset, length))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A write that is a payload's.
const LONG_BYTES: usize = 8192;
