//! `Fs` over the machine, and the switches of a test.

use crate::clock::SimClock;
use crate::machine::{
    Content, Crash, DirContent, Fault, FileChange, FileContent, Lock, Machine, Need, ROOT_INODE,
    Skip,
};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{
    Dir, DirAccess, DirBackend, FileBackend, Fs, FsError, FsErrorKind, LockKind, Operation,
};
use packhouse_sys::stat::{FileKind, FsId, FsKind, FsStat, FsTrust, Stat, StatIdentity};
use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The simulated file system. Clones are the same disk.
#[derive(Clone)]
pub struct SimFs {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    machine: Mutex<Machine>,
    clock: Arc<SimClock>,
}

struct SimDir {
    shared: Arc<Shared>,
    inode: u64,
}

struct SimFile {
    shared: Arc<Shared>,
    inode: u64,
    handle: u64,
    writable: bool,
    poisoned: AtomicBool,
}

impl SimFs {
    /// An empty disk of 1 TiB, seen by user 1000: `/home/user` is this user's, `/tmp` is root's and
    /// sticky.
    pub fn new(seed: u64, clock: Arc<SimClock>) -> Self {
        let sim = Self::wrap(Machine::new(seed), clock);
        sim.make_dirs("/home", 0, 0o755);
        sim.make_dirs("/home/user", 1000, 0o755);
        sim.make_dirs("/tmp", 0, 0o1777);
        sim
    }

    /// The clock that stamps files.
    pub fn clock(&self) -> Arc<SimClock> {
        self.shared.clock.clone()
    }

    /// Counted operations so far.
    pub fn operation_count(&self) -> u64 {
        self.machine().operation_count
    }

    /// Sets the count to 0, so that a fault's `at` counts from here.
    pub fn restart_count(&self) {
        self.machine().operation_count = 0;
    }

    /// Arms a fault, or none.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.machine().fault = fault;
    }

    /// Makes syncs lie, or not.
    pub fn set_skip(&self, skip: Option<Skip>) {
        self.machine().skip = skip;
    }

    /// Mounts read-only, or not.
    pub fn set_read_only(&self, read_only: bool) {
        self.machine().read_only = read_only;
    }

    /// Sets the size of the disk.
    pub fn set_total_bytes(&self, total_bytes: u64) {
        self.machine().total_bytes = total_bytes;
    }

    /// Sets the kind of the file system.
    pub fn set_kind(&self, kind: FsKind) {
        self.machine().kind = kind;
    }

    /// Gives or takes O_TMPFILE and RENAME_NOREPLACE.
    pub fn set_abilities(&self, unnamed_files: bool, rename_without_replace: bool) {
        let mut machine = self.machine();
        machine.unnamed_files = unnamed_files;
        machine.rename_without_replace = rename_without_replace;
    }

    /// Sets who this process is.
    pub fn set_uid(&self, uid: u32) {
        self.machine().uid = uid;
    }

    /// Starts the machine again after a crash; this one stays as it is.
    pub fn crash(&self, crash: Crash, seed: u64) -> SimFs {
        let after = self.machine().crashed(crash, seed);
        Self::wrap(after, self.shared.clock.clone())
    }

    /// Makes all that is pending durable, as an idle minute does.
    pub fn settle(&self) {
        for node in self.machine().nodes.values_mut() {
            match &mut node.content {
                Content::File(file) => file.sync(),
                Content::Dir(dir) => dir.sync(),
                Content::Link(_) => {}
            }
        }
    }

    fn wrap(machine: Machine, clock: Arc<SimClock>) -> Self {
        let machine = Mutex::new(machine);
        Self {
            shared: Arc::new(Shared { machine, clock }),
        }
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.shared.machine()
    }
}

impl Shared {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets an operation's time pass and answers the coarse time.
    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.advance_ns(OPERATION_NS);
        let now_ns = self.clock.wall_ns();
        now_ns - now_ns.rem_euclid(COARSE_NS)
    }

    fn open(self: &Arc<Self>, machine: &mut Machine, inode: u64, writable: bool) -> SimFile {
        let handle = machine.next_handle;
        machine.next_handle += 1;
        SimFile {
            shared: self.clone(),
            inode,
            handle,
            writable,
            poisoned: AtomicBool::new(false),
        }
    }

    fn stat(&self, machine: &Machine, inode: u64) -> Result<Stat, FsErrorKind> {
        let node = machine.node(inode)?;
        let size = match &node.content {
            Content::File(file) => file.live.len() as u64,
            Content::Dir(_) | Content::Link(_) => 0,
        };
        Ok(Stat {
            kind: node.kind(),
            mode: node.mode,
            device: machine.device,
            inode,
            link_count: machine.link_count(inode),
            uid: node.uid,
            gid: node.gid.unwrap_or(node.uid),
            size,
            allocated_bytes: size.next_multiple_of(4096),
            mtime_ns: node.mtime_ns,
            ctime_ns: node.ctime_ns,
        })
    }

    fn fs_stat(&self, machine: &Machine) -> FsStat {
        FsStat {
            kind: machine.kind,
            total_bytes: machine.total_bytes,
            free_bytes: machine.total_bytes.saturating_sub(machine.used_bytes()),
            read_only: machine.read_only,
        }
    }
}

const OPERATION_NS: i64 = 1_000;
const COARSE_NS: i64 = 4_000_000;
const UUID: [u8; 16] = *b"simulated  disk.";

impl Fs for SimFs {
    fn root(&self) -> Result<Dir, FsError> {
        let path = PathBuf::from("/");
        self.machine().alive().map_err(|kind| FsError {
            operation: Operation::Open,
            path: path.clone(),
            kind,
        })?;
        let shared = self.shared.clone();
        let inode = ROOT_INODE;
        Ok(Dir::new(Arc::new(SimDir { shared, inode }), path))
    }

    fn random(&self, target: &mut [u8]) -> Result<(), FsError> {
        let mut machine = self.machine();
        for byte in target {
            *byte = machine.random.next().to_le_bytes()[0];
        }
        Ok(())
    }

    fn effective_uid(&self) -> u32 {
        self.machine().uid
    }
}

impl SimDir {
    fn make_file(
        &self,
        machine: &mut Machine,
        mode: u32,
        name: Option<&OsStr>,
    ) -> Result<SimFile, FsErrorKind> {
        let now_ns = self.shared.now_ns();
        let uid = machine.uid;
        let content = Content::File(FileContent::default());
        let inode = machine.add_node(mode, uid, now_ns, content);
        if let Some(name) = name {
            machine.change_dir(self.inode, vec![(name.to_owned(), Some(inode))], now_ns)?;
        }
        Ok(self.shared.open(machine, inode, true))
    }
}

impl DirBackend for SimDir {
    fn open_dir(
        &self,
        name: &OsStr,
        _access: DirAccess,
    ) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        let inode = machine.look_up(self.inode, name)?;
        match machine.node(inode)?.kind() {
            FileKind::Directory => {}
            FileKind::Symlink => return Err(FsErrorKind::Symlink),
            FileKind::Regular | FileKind::Special => return Err(FsErrorKind::NotDirectory),
        }
        let shared = self.shared.clone();
        Ok(Arc::new(SimDir { shared, inode }))
    }

    fn reopen(&self) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        self.shared.machine().alive()?;
        Ok(Arc::new(SimDir {
            shared: self.shared.clone(),
            inode: self.inode,
        }))
    }

    fn parent(&self) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        let shared = self.shared.clone();
        let inode = machine.parent_of(self.inode);
        Ok(Arc::new(SimDir { shared, inode }))
    }

    fn make_dir(&self, name: &OsStr, mode: u32) -> Result<(), FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.alive()?;
        if machine.look_up(self.inode, name).is_ok() {
            return Err(FsErrorKind::Exists);
        }
        machine.count(Need::Space)?;
        let now_ns = self.shared.now_ns();
        let uid = machine.uid;
        let content = Content::Dir(DirContent::default());
        let inode = machine.add_node(mode, uid, now_ns, content);
        machine.change_dir(self.inode, vec![(name.to_owned(), Some(inode))], now_ns)
    }

    fn open_file(&self, name: &OsStr, writable: bool) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.alive()?;
        let inode = machine.look_up(self.inode, name)?;
        match machine.node(inode)?.kind() {
            FileKind::Symlink => return Err(FsErrorKind::Symlink),
            FileKind::Directory if writable => return Err(FsErrorKind::IsDirectory),
            FileKind::Directory | FileKind::Regular | FileKind::Special => {}
        }
        if writable && machine.read_only {
            return Err(FsErrorKind::ReadOnly);
        }
        Ok(Box::new(self.shared.open(&mut machine, inode, writable)))
    }

    fn create_new(&self, name: &OsStr, mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.alive()?;
        if machine.look_up(self.inode, name).is_ok() {
            return Err(FsErrorKind::Exists);
        }
        machine.count(Need::Space)?;
        let file = self.make_file(&mut machine, mode, Some(name))?;
        Ok(Box::new(file))
    }

    fn create_unnamed(&self, mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.alive()?;
        if !machine.unnamed_files {
            return Err(FsErrorKind::Unsupported);
        }
        machine.count(Need::Space)?;
        let file = self.make_file(&mut machine, mode, None)?;
        Ok(Box::new(file))
    }

    fn link(&self, file: &dyn FileBackend, name: &OsStr) -> Result<(), FsErrorKind> {
        let file = file
            .as_any()
            .downcast_ref::<SimFile>()
            .ok_or(FsErrorKind::ForeignHandle)?;
        let mut machine = self.shared.machine();
        machine.alive()?;
        if machine.look_up(self.inode, name).is_ok() {
            return Err(FsErrorKind::Exists);
        }
        machine.count(Need::Space)?;
        let now_ns = self.shared.now_ns();
        machine.touch(file.inode, now_ns);
        let change = vec![(name.to_owned(), Some(file.inode))];
        machine.change_dir(self.inode, change, now_ns)
    }

    fn rename_new(
        &self,
        source: &OsStr,
        target_dir: &dyn DirBackend,
        target: &OsStr,
    ) -> Result<(), FsErrorKind> {
        let target_dir = target_dir
            .as_any()
            .downcast_ref::<SimDir>()
            .ok_or(FsErrorKind::ForeignHandle)?;
        let mut machine = self.shared.machine();
        machine.alive()?;
        if !machine.rename_without_replace {
            return Err(FsErrorKind::Unsupported);
        }
        let inode = machine.look_up(self.inode, source)?;
        if machine.look_up(target_dir.inode, target).is_ok() {
            return Err(FsErrorKind::Exists);
        }
        if machine.is_within(target_dir.inode, inode) {
            // EINVAL, which the real one can't tell from a file system without RENAME_NOREPLACE.
            return Err(FsErrorKind::Unsupported);
        }
        machine.count(Need::Space)?;
        let now_ns = self.shared.now_ns();
        machine.touch(inode, now_ns);
        let removal = (source.to_owned(), None);
        let insertion = (target.to_owned(), Some(inode));
        if target_dir.inode == self.inode {
            return machine.change_dir(self.inode, vec![removal, insertion], now_ns);
        }
        machine.change_dir(target_dir.inode, vec![insertion], now_ns)?;
        machine.change_dir(self.inode, vec![removal], now_ns)
    }

    fn rename_over(&self, source: &OsStr, target: &OsStr) -> Result<(), FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.alive()?;
        let inode = machine.look_up(self.inode, source)?;
        if let Ok(taken) = machine.look_up(self.inode, target) {
            if taken == inode {
                return Ok(());
            }
            machine.may_replace(inode, taken)?;
        }
        machine.count(Need::Space)?;
        let now_ns = self.shared.now_ns();
        machine.touch(inode, now_ns);
        let change = vec![(source.to_owned(), None), (target.to_owned(), Some(inode))];
        machine.change_dir(self.inode, change, now_ns)
    }

    fn unlink(&self, name: &OsStr) -> Result<(), FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.alive()?;
        let inode = machine.look_up(self.inode, name)?;
        if machine.node(inode)?.kind() == FileKind::Directory {
            return Err(FsErrorKind::IsDirectory);
        }
        machine.count(Need::Nothing)?;
        let now_ns = self.shared.now_ns();
        machine.touch(inode, now_ns);
        machine.change_dir(self.inode, vec![(name.to_owned(), None)], now_ns)
    }

    fn remove_dir(&self, name: &OsStr) -> Result<(), FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.alive()?;
        let inode = machine.look_up(self.inode, name)?;
        if !machine.dir(inode)?.live.is_empty() {
            return Err(FsErrorKind::NotEmpty);
        }
        machine.count(Need::Nothing)?;
        let now_ns = self.shared.now_ns();
        machine.change_dir(self.inode, vec![(name.to_owned(), None)], now_ns)
    }

    fn read_link(&self, name: &OsStr) -> Result<PathBuf, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        let inode = machine.look_up(self.inode, name)?;
        match &machine.node(inode)?.content {
            Content::Link(target) => Ok(target.clone()),
            Content::File(_) | Content::Dir(_) => Err(FsErrorKind::Unsupported),
        }
    }

    fn stat_entry(&self, name: &OsStr) -> Result<Stat, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        let inode = machine.look_up(self.inode, name)?;
        self.shared.stat(&machine, inode)
    }

    fn list(&self) -> Result<Vec<OsString>, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        Ok(machine.dir(self.inode)?.live.keys().cloned().collect())
    }

    fn stat(&self) -> Result<Stat, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        self.shared.stat(&machine, self.inode)
    }

    fn fs_stat(&self) -> Result<FsStat, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        Ok(self.shared.fs_stat(&machine))
    }

    fn sync(&self) -> Result<(), FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.count_sync()?;
        if machine.skip == Some(Skip::DirSync) {
            return Ok(());
        }
        match &mut machine.node_mut(self.inode)?.content {
            Content::Dir(dir) => dir.sync(),
            Content::File(_) | Content::Link(_) => return Err(FsErrorKind::NotDirectory),
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl SimFile {
    fn guarded<T>(
        &self,
        run: impl FnOnce(&mut Machine) -> Result<T, FsErrorKind>,
    ) -> Result<T, FsErrorKind> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(FsErrorKind::Poisoned);
        }
        let result = run(&mut self.shared.machine());
        if result.is_err() {
            self.poisoned.store(true, Ordering::Release);
        }
        result
    }
}

impl FileBackend for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, FsErrorKind> {
        self.guarded(|machine| {
            if !self.writable {
                return Err(FsErrorKind::Permission);
            }
            let length = machine.file(self.inode)?.live.len() as u64;
            let grows = offset.saturating_add(bytes.len() as u64) > length;
            machine.count(if grows { Need::Space } else { Need::Nothing })?;
            let now_ns = self.shared.now_ns();
            let free_bytes = self.shared.fs_stat(machine).free_bytes;
            let room = free_bytes.saturating_add(length).saturating_sub(offset);
            let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            if fits == 0 && !bytes.is_empty() {
                return Err(FsErrorKind::NoSpace);
            }
            let mut bytes = bytes[..fits].to_vec();
            if machine.flips()
                && let Some(byte) = bytes.last_mut()
            {
                *byte ^= 1;
            }
            let change = FileChange::Write {
                offset: usize::try_from(offset).map_err(|_| FsErrorKind::NoSpace)?,
                bytes,
            };
            machine.file_mut(self.inode)?.change(change);
            let node = machine.node_mut(self.inode)?;
            node.mtime_ns = now_ns;
            node.ctime_ns = now_ns;
            Ok(fits)
        })
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        let content = &machine.file(self.inode)?.live;
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(content.len());
        let count = target.len().min(content.len() - start);
        target[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn write_out(&self, _offset: u64, _length: u64, _wait: bool) -> Result<(), FsErrorKind> {
        self.guarded(|machine| machine.count(Need::Nothing))
    }

    fn sync(&self, _content_only: bool) -> Result<(), FsErrorKind> {
        self.guarded(|machine| {
            if let Err(kind) = machine.count_sync() {
                if kind == FsErrorKind::Io {
                    machine.file_mut(self.inode)?.pending.clear();
                }
                return Err(kind);
            }
            if machine.skip != Some(Skip::FileSync) {
                machine.file_mut(self.inode)?.sync();
            }
            Ok(())
        })
    }

    fn stat(&self) -> Result<Stat, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        self.shared.stat(&machine, self.inode)
    }

    fn identity(&self) -> Result<StatIdentity, FsErrorKind> {
        let stat = self.stat()?;
        let machine = self.shared.machine();
        let local = machine.kind.trust() == FsTrust::Local;
        Ok(StatIdentity {
            file_system: if local {
                FsId::Uuid(UUID)
            } else {
                FsId::Device(machine.device)
            },
            inode: self.inode,
            generation: local.then_some(machine.node(self.inode)?.generation),
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
            uid: stat.uid,
            mode: stat.mode,
        })
    }

    fn fs_stat(&self) -> Result<FsStat, FsErrorKind> {
        let machine = self.shared.machine();
        machine.alive()?;
        Ok(self.shared.fs_stat(&machine))
    }

    fn set_length(&self, length: u64) -> Result<(), FsErrorKind> {
        self.guarded(|machine| {
            machine.count(Need::Space)?;
            let now_ns = self.shared.now_ns();
            let length = usize::try_from(length).map_err(|_| FsErrorKind::NoSpace)?;
            machine
                .file_mut(self.inode)?
                .change(FileChange::SetLength(length));
            let node = machine.node_mut(self.inode)?;
            node.mtime_ns = now_ns;
            node.ctime_ns = now_ns;
            Ok(())
        })
    }

    fn set_mode(&self, mode: u32) -> Result<(), FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.count(Need::Nothing)?;
        let now_ns = self.shared.now_ns();
        let node = machine.node_mut(self.inode)?;
        node.mode = mode;
        node.ctime_ns = now_ns;
        Ok(())
    }

    fn drop_cache(&self) -> Result<(), FsErrorKind> {
        self.shared.machine().alive()
    }

    fn has_writer(&self) -> Option<bool> {
        // Of what no test says anything, nothing is told, as on a file system without leases.
        let is_written = self.shared.machine().written.contains(&self.inode);
        is_written.then_some(true)
    }

    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool, FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.alive()?;
        let taken = machine.locks.iter().any(|lock| {
            lock.inode == self.inode
                && lock.handle != self.handle
                && lock.offset < offset + length
                && offset < lock.offset + lock.length
                && (kind == LockKind::Exclusive || lock.kind == LockKind::Exclusive)
        });
        if taken {
            return Ok(false);
        }
        machine.locks.push(Lock {
            inode: self.inode,
            handle: self.handle,
            kind,
            offset,
            length,
        });
        Ok(true)
    }

    fn unlock(&self, offset: u64, length: u64) -> Result<(), FsErrorKind> {
        let mut machine = self.shared.machine();
        machine.locks.retain(|lock| {
            lock.handle != self.handle || lock.offset != offset || lock.length != length
        });
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let handle = self.handle;
        self.shared
            .machine()
            .locks
            .retain(|lock| lock.handle != handle);
    }
}
