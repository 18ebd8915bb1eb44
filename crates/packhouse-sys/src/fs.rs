//! Folders and files by descriptor.
//!
//! `Dir` and `File` are what callers hold; they add the path to each error. Behind them are
//! `DirBackend` and `FileBackend`, which the real file system (`real`) and the simulator implement.
//!
//! Invariants:
//! - a name given to a `Dir` is one component: not empty, no `/`, not `.` or `..`;
//! - no open follows a symlink;
//! - an operation that makes a name visible never replaces another, but `rename_over`.

pub use crate::error::{FsError, FsErrorKind, Operation};
use crate::stat::{FileKind, FsStat, Stat, StatIdentity, Volume};
use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file system as a whole.
pub trait Fs: Send + Sync {
    /// Opens `/` for look-up.
    fn root(&self) -> Result<Dir, FsError>;

    /// Fills a buffer with random bytes.
    fn random(&self, target: &mut [u8]) -> Result<(), FsError>;

    /// The effective user of this process.
    fn effective_uid(&self) -> u32;

    /// The longest file that this process may write (RLIMIT_FSIZE): a write past it ends the
    /// process, unless that handles or blocks SIGXFSZ. `None`: no limit.
    fn file_size_limit_bytes(&self) -> Option<u64> {
        None
    }
}

/// What a folder's descriptor is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirAccess {
    /// Look up and make entries. Needs search permission only (O_PATH).
    Lookup,
    /// Also list and sync. Needs read permission.
    Read,
}

/// How strongly a lock excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Many holders.
    Shared,
    /// One holder.
    Exclusive,
}

/// A folder behind `Dir`. Methods fail with the bare reason; `Dir` adds what and where.
pub trait DirBackend: Send + Sync {
    /// Opens a subfolder; never a symlink.
    fn open_dir(&self, name: &OsStr, access: DirAccess)
    -> Result<Arc<dyn DirBackend>, FsErrorKind>;
    /// Opens this folder again for listing and sync.
    fn reopen(&self) -> Result<Arc<dyn DirBackend>, FsErrorKind>;
    /// Opens the folder above this one, for look-up; that of `/` is `/`.
    fn parent(&self) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        Err(FsErrorKind::Unsupported)
    }
    /// Makes a subfolder.
    fn make_dir(&self, name: &OsStr, mode: u32) -> Result<(), FsErrorKind>;
    /// Opens a file, for writing too when asked; never a symlink, never blocks on a pipe.
    fn open_file(&self, name: &OsStr, writable: bool) -> Result<Box<dyn FileBackend>, FsErrorKind>;
    /// Makes a new file under a name that must be free.
    fn create_new(&self, name: &OsStr, mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind>;
    /// Makes a file without a name (O_TMPFILE).
    fn create_unnamed(&self, mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind>;
    /// Gives an unnamed file its name here; fails where the name is taken.
    fn link(&self, file: &dyn FileBackend, name: &OsStr) -> Result<(), FsErrorKind>;
    /// Moves an entry to a name that must be free.
    fn rename_new(
        &self,
        source: &OsStr,
        target_dir: &dyn DirBackend,
        target: &OsStr,
    ) -> Result<(), FsErrorKind>;
    /// Moves an entry of this folder over another one of it.
    fn rename_over(&self, source: &OsStr, target: &OsStr) -> Result<(), FsErrorKind>;
    /// Removes a file's name.
    fn unlink(&self, name: &OsStr) -> Result<(), FsErrorKind>;
    /// Removes an empty subfolder.
    fn remove_dir(&self, name: &OsStr) -> Result<(), FsErrorKind>;
    /// Reads a symlink.
    fn read_link(&self, name: &OsStr) -> Result<PathBuf, FsErrorKind>;
    /// lstat of an entry: for listing and cleaning, never to judge a file opened later.
    fn stat_entry(&self, name: &OsStr) -> Result<Stat, FsErrorKind>;
    /// Lists the entries, without `.` and `..`.
    fn list(&self) -> Result<Vec<OsString>, FsErrorKind>;
    /// fstat of this folder.
    fn stat(&self) -> Result<Stat, FsErrorKind>;
    /// fstatfs of this folder.
    fn fs_stat(&self) -> Result<FsStat, FsErrorKind>;
    /// Makes all entries durable.
    fn sync(&self) -> Result<(), FsErrorKind>;
    /// For the backend to know its own.
    fn as_any(&self) -> &dyn Any;
    /// The descriptor, where there is one.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A file behind `File`. Methods fail with the bare reason; `File` adds what and where.
pub trait FileBackend: Send + Sync {
    /// Writes some bytes at an offset and returns how many.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, FsErrorKind>;
    /// Reads some bytes at an offset and returns how many; 0 is the end.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, FsErrorKind>;
    /// Starts write-out of a range, or also waits for it; promises nothing about durability, but an
    /// error is final.
    fn write_out(&self, offset: u64, length: u64, wait: bool) -> Result<(), FsErrorKind>;
    /// Makes content durable, and with it all of the inode unless `content_only`.
    fn sync(&self, content_only: bool) -> Result<(), FsErrorKind>;
    /// fstat.
    fn stat(&self) -> Result<Stat, FsErrorKind>;
    /// fstat with the identities of file system and inode.
    fn identity(&self) -> Result<StatIdentity, FsErrorKind>;
    /// fstatfs.
    fn fs_stat(&self) -> Result<FsStat, FsErrorKind>;
    /// Sets the length.
    fn set_length(&self, length: u64) -> Result<(), FsErrorKind>;
    /// Sets the permission bits.
    fn set_mode(&self, mode: u32) -> Result<(), FsErrorKind>;
    /// Drops clean pages from the page cache; advice only.
    fn drop_cache(&self) -> Result<(), FsErrorKind>;
    /// Tries an OFD lock on a byte range; false when another holds it.
    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool, FsErrorKind>;
    /// Whether anybody has the file open for writing, or mapped so; `None` where that is not told.
    fn has_writer(&self) -> Option<bool> {
        None
    }
    /// Gives a byte range's lock back.
    fn unlock(&self, offset: u64, length: u64) -> Result<(), FsErrorKind>;
    /// For the backend to know its own.
    fn as_any(&self) -> &dyn Any;
    /// The descriptor, where there is one: the simulator has none.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// An open folder.
#[derive(Clone)]
pub struct Dir {
    backend: Arc<dyn DirBackend>,
    path: PathBuf,
}

/// An open file.
pub struct File {
    backend: Box<dyn FileBackend>,
    path: PathBuf,
}

impl Dir {
    /// Wraps a backend's folder; for backends.
    pub fn new(backend: Arc<dyn DirBackend>, path: PathBuf) -> Self {
        Self { backend, path }
    }

    /// The path by which it was opened; for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a subfolder for listing and sync. Errors on a symlink or anything else.
    pub fn open_dir(&self, name: impl AsRef<OsStr>) -> Result<Dir, FsError> {
        self.open_dir_for(name, DirAccess::Read)
    }

    /// Opens a subfolder for what `access` says. Errors on a symlink or anything else.
    pub fn open_dir_for(&self, name: impl AsRef<OsStr>, access: DirAccess) -> Result<Dir, FsError> {
        let name = name.as_ref();
        let backend = plain(name)
            .and_then(|()| self.backend.open_dir(name, access))
            .map_err(|kind| self.entry_error(Operation::Open, name, kind))?;
        Ok(Dir::new(backend, self.path.join(name)))
    }

    /// Opens this folder again, now for listing and sync.
    pub fn reopen(&self) -> Result<Dir, FsError> {
        let backend = self
            .backend
            .reopen()
            .map_err(|kind| self.error(Operation::Open, kind))?;
        Ok(Dir::new(backend, self.path.clone()))
    }

    /// Opens the folder above this one, wherever that is now, for look-up; that of `/` is `/`.
    pub fn parent(&self) -> Result<Dir, FsError> {
        let path = self.path.join("..");
        let backend = self
            .backend
            .parent()
            .map_err(|kind| self.entry_error(Operation::Open, OsStr::new(".."), kind))?;
        Ok(Dir::new(backend, path))
    }

    /// Makes a subfolder. Errors with `Exists` where the name is taken.
    pub fn make_dir(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<(), FsError> {
        let name = name.as_ref();
        plain(name)
            .and_then(|()| self.backend.make_dir(name, mode))
            .map_err(|kind| self.entry_error(Operation::MakeDir, name, kind))
    }

    /// Opens a file for reading.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<File, FsError> {
        self.open_file_for(name.as_ref(), false)
    }

    /// Opens a file for reading and writing.
    pub fn open_file_writable(&self, name: impl AsRef<OsStr>) -> Result<File, FsError> {
        self.open_file_for(name.as_ref(), true)
    }

    /// Makes a file under a name that must be free.
    pub fn create_new(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File, FsError> {
        let name = name.as_ref();
        let backend = plain(name)
            .and_then(|()| self.backend.create_new(name, mode))
            .map_err(|kind| self.entry_error(Operation::Create, name, kind))?;
        Ok(File::new(backend, self.path.join(name)))
    }

    /// Makes a file without a name. Errors with `Unsupported` where the file system can't.
    pub fn create_unnamed(&self, mode: u32) -> Result<File, FsError> {
        let backend = self
            .backend
            .create_unnamed(mode)
            .map_err(|kind| self.error(Operation::Create, kind))?;
        Ok(File::new(backend, self.path.clone()))
    }

    /// Gives an unnamed file a name here. Errors with `Exists` where the name is taken.
    pub fn link(&self, file: &File, name: impl AsRef<OsStr>) -> Result<(), FsError> {
        let name = name.as_ref();
        plain(name)
            .and_then(|()| self.backend.link(file.backend.as_ref(), name))
            .map_err(|kind| self.entry_error(Operation::Link, name, kind))
    }

    /// Moves an entry to a name that must be free. Errors with `Exists` where it is taken.
    pub fn rename_new(
        &self,
        source: impl AsRef<OsStr>,
        target_dir: &Dir,
        target: impl AsRef<OsStr>,
    ) -> Result<(), FsError> {
        let (source, target) = (source.as_ref(), target.as_ref());
        plain(source)
            .and_then(|()| plain(target))
            .and_then(|()| {
                self.backend
                    .rename_new(source, target_dir.backend.as_ref(), target)
            })
            .map_err(|kind| target_dir.entry_error(Operation::Rename, target, kind))
    }

    /// Moves an entry over another one of this folder. For private state only.
    pub fn rename_over(
        &self,
        source: impl AsRef<OsStr>,
        target: impl AsRef<OsStr>,
    ) -> Result<(), FsError> {
        let (source, target) = (source.as_ref(), target.as_ref());
        plain(source)
            .and_then(|()| plain(target))
            .and_then(|()| self.backend.rename_over(source, target))
            .map_err(|kind| self.entry_error(Operation::Rename, target, kind))
    }

    /// Removes a file's name.
    pub fn unlink(&self, name: impl AsRef<OsStr>) -> Result<(), FsError> {
        let name = name.as_ref();
        plain(name)
            .and_then(|()| self.backend.unlink(name))
            .map_err(|kind| self.entry_error(Operation::Remove, name, kind))
    }

    /// Removes an empty subfolder.
    pub fn remove_dir(&self, name: impl AsRef<OsStr>) -> Result<(), FsError> {
        let name = name.as_ref();
        plain(name)
            .and_then(|()| self.backend.remove_dir(name))
            .map_err(|kind| self.entry_error(Operation::Remove, name, kind))
    }

    /// Reads a symlink's target.
    pub fn read_link(&self, name: impl AsRef<OsStr>) -> Result<PathBuf, FsError> {
        let name = name.as_ref();
        plain(name)
            .and_then(|()| self.backend.read_link(name))
            .map_err(|kind| self.entry_error(Operation::Read, name, kind))
    }

    /// lstat of an entry: for listing and cleaning. To judge a file, open it and ask the
    /// descriptor.
    pub fn stat_entry(&self, name: impl AsRef<OsStr>) -> Result<Stat, FsError> {
        let name = name.as_ref();
        plain(name)
            .and_then(|()| self.backend.stat_entry(name))
            .map_err(|kind| self.entry_error(Operation::Stat, name, kind))
    }

    /// Lists the names, sorted.
    pub fn list(&self) -> Result<Vec<OsString>, FsError> {
        let mut names = self
            .backend
            .list()
            .map_err(|kind| self.error(Operation::List, kind))?;
        names.sort();
        Ok(names)
    }

    /// fstat of this folder.
    pub fn stat(&self) -> Result<Stat, FsError> {
        self.backend
            .stat()
            .map_err(|kind| self.error(Operation::Stat, kind))
    }

    /// Size and kind of this folder's file system.
    pub fn fs_stat(&self) -> Result<FsStat, FsError> {
        self.backend
            .fs_stat()
            .map_err(|kind| self.error(Operation::Stat, kind))
    }

    /// Makes all entries durable.
    pub fn sync(&self) -> Result<(), FsError> {
        self.backend
            .sync()
            .map_err(|kind| self.error(Operation::Sync, kind))
    }

    /// Reads a whole small file. Errors with `TooLong` beyond `limit_bytes`, before allocating.
    pub fn read_small(
        &self,
        name: impl AsRef<OsStr>,
        limit_bytes: u64,
    ) -> Result<Vec<u8>, FsError> {
        self.open_file(name)?.read_small(limit_bytes)
    }

    fn open_file_for(&self, name: &OsStr, writable: bool) -> Result<File, FsError> {
        let backend = plain(name)
            .and_then(|()| self.backend.open_file(name, writable))
            .map_err(|kind| self.entry_error(Operation::Open, name, kind))?;
        Ok(File::new(backend, self.path.join(name)))
    }

    fn error(&self, operation: Operation, kind: FsErrorKind) -> FsError {
        FsError {
            operation,
            path: self.path.clone(),
            kind,
        }
    }

    fn entry_error(&self, operation: Operation, name: &OsStr, kind: FsErrorKind) -> FsError {
        FsError {
            operation,
            path: self.path.join(name),
            kind,
        }
    }
}

impl File {
    /// Wraps a backend's file; for backends.
    pub fn new(backend: Box<dyn FileBackend>, path: PathBuf) -> Self {
        Self { backend, path }
    }

    /// The path by which it was opened; for messages. An unnamed file has its folder's.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor, for mapping; `None` in the simulator.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.backend.as_fd()
    }

    /// Writes all bytes at an offset.
    pub fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = self
                .backend
                .write_at(at, rest)
                .map_err(|kind| self.error(Operation::Write, kind))?;
            if written == 0 {
                return Err(self.error(Operation::Write, FsErrorKind::NoSpace));
            }
            at += written as u64;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Reads up to the target's length at an offset; fewer only at the end of the file.
    pub fn read_full_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, FsError> {
        let mut filled = 0;
        while filled < target.len() {
            let read = self
                .backend
                .read_at(offset + filled as u64, &mut target[filled..])
                .map_err(|kind| self.error(Operation::Read, kind))?;
            if read == 0 {
                break;
            }
            filled += read;
        }
        Ok(filled)
    }

    /// Reads the whole file. Errors with `TooLong` when it is not a regular file of at most
    /// `limit_bytes`, before allocating.
    pub fn read_small(&self, limit_bytes: u64) -> Result<Vec<u8>, FsError> {
        self.read_stated(&self.stat()?, limit_bytes)
    }

    /// Reads the whole file, whose stat the caller just took of this descriptor. Errors as
    /// `read_small`.
    pub fn read_stated(&self, stat: &Stat, limit_bytes: u64) -> Result<Vec<u8>, FsError> {
        if stat.kind != FileKind::Regular || stat.size > limit_bytes {
            let kind = FsErrorKind::TooLong { limit: limit_bytes };
            return Err(self.error(Operation::Read, kind));
        }
        let size = usize::try_from(stat.size).map_err(|_| {
            self.error(Operation::Read, FsErrorKind::TooLong { limit: limit_bytes })
        })?;
        let mut bytes = vec![0; size];
        let filled = self.read_full_at(0, &mut bytes)?;
        if filled < bytes.len() {
            return Err(self.error(Operation::Read, FsErrorKind::EndsEarly));
        }
        Ok(bytes)
    }

    /// Starts write-out of a range, or waits for it. No promise of durability; an error is final.
    pub fn write_out(&self, offset: u64, length: u64, wait: bool) -> Result<(), FsError> {
        self.backend
            .write_out(offset, length, wait)
            .map_err(|kind| self.error(Operation::Write, kind))
    }

    /// Makes content and inode durable (fsync).
    pub fn sync(&self) -> Result<(), FsError> {
        self.backend
            .sync(false)
            .map_err(|kind| self.error(Operation::Sync, kind))
    }

    /// Makes the content durable (fdatasync).
    pub fn sync_content(&self) -> Result<(), FsError> {
        self.backend
            .sync(true)
            .map_err(|kind| self.error(Operation::Sync, kind))
    }

    /// fstat.
    pub fn stat(&self) -> Result<Stat, FsError> {
        self.backend
            .stat()
            .map_err(|kind| self.error(Operation::Stat, kind))
    }

    /// Stat identity of the descriptor.
    pub fn identity(&self) -> Result<StatIdentity, FsError> {
        self.backend
            .identity()
            .map_err(|kind| self.error(Operation::Stat, kind))
    }

    /// Stat and stat identity, in one system call where the volume says the rest.
    pub fn identity_on(&self, volume: &Volume) -> Result<(Stat, StatIdentity), FsError> {
        let stat = self.stat()?;
        let identity = match volume.identity_of(&stat) {
            Some(identity) => identity,
            None => self.identity()?,
        };
        Ok((stat, identity))
    }

    /// What this file shares with the others of its file system.
    pub fn volume(&self) -> Result<Volume, FsError> {
        let (stat, identity) = (self.stat()?, self.identity()?);
        Ok(Volume::new(&stat, &identity, self.fs_stat()?.kind))
    }

    /// Size and kind of the file's file system.
    pub fn fs_stat(&self) -> Result<FsStat, FsError> {
        self.backend
            .fs_stat()
            .map_err(|kind| self.error(Operation::Stat, kind))
    }

    /// Sets the length.
    pub fn set_length(&self, length: u64) -> Result<(), FsError> {
        self.backend
            .set_length(length)
            .map_err(|kind| self.error(Operation::Change, kind))
    }

    /// Sets the permission bits.
    pub fn set_mode(&self, mode: u32) -> Result<(), FsError> {
        self.backend
            .set_mode(mode)
            .map_err(|kind| self.error(Operation::Change, kind))
    }

    /// Drops clean pages from the page cache; advice only.
    pub fn drop_cache(&self) -> Result<(), FsError> {
        self.backend
            .drop_cache()
            .map_err(|kind| self.error(Operation::Change, kind))
    }

    /// Whether anybody has the file open for writing, or mapped so: a mapping may change a page
    /// that is dirty already without any time of the file showing it. `None` where the system does
    /// not tell: of files of other users, and on file systems without leases.
    pub fn has_writer(&self) -> Option<bool> {
        self.backend.has_writer()
    }

    /// Tries an OFD lock on a byte range; false when another descriptor holds it. The kernel
    /// releases it when the last copy of this descriptor closes, at death too.
    pub fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool, FsError> {
        self.backend
            .try_lock(kind, offset, length)
            .map_err(|kind| self.error(Operation::Lock, kind))
    }

    /// Tries a lock until it is had or the time is over; false when it is over.
    pub fn lock_within(
        &self,
        clock: &dyn crate::clock::Clock,
        kind: LockKind,
        range: (u64, u64),
        timeout_ns: u64,
    ) -> Result<bool, FsError> {
        let deadline_ns = clock.steady_ns().saturating_add(timeout_ns);
        let mut pause_ns = LOCK_PAUSE_MIN_NS;
        loop {
            if self.try_lock(kind, range.0, range.1)? {
                return Ok(true);
            }
            let left_ns = deadline_ns.saturating_sub(clock.steady_ns());
            if left_ns == 0 {
                return Ok(false);
            }
            clock.sleep_ns(pause_ns.min(left_ns));
            pause_ns = (pause_ns * 2).min(LOCK_PAUSE_MAX_NS);
        }
    }

    /// Gives a byte range's lock back.
    pub fn unlock(&self, offset: u64, length: u64) -> Result<(), FsError> {
        self.backend
            .unlock(offset, length)
            .map_err(|kind| self.error(Operation::Lock, kind))
    }

    fn error(&self, operation: Operation, kind: FsErrorKind) -> FsError {
        FsError {
            operation,
            path: self.path.clone(),
            kind,
        }
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dir({})", self.path.display())
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({})", self.path.display())
    }
}

const LOCK_PAUSE_MIN_NS: u64 = 1_000_000;
const LOCK_PAUSE_MAX_NS: u64 = 50_000_000;

fn plain(name: &OsStr) -> Result<(), FsErrorKind> {
    let bytes = name.as_encoded_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(FsErrorKind::BadName);
    }
    Ok(())
}
