//! `Fs` over Linux system calls.
//!
//! Invariants: every open has O_NOFOLLOW and O_CLOEXEC; a file is opened non-blocking so that a
//! pipe in a file's place can't hang the caller; interrupted calls are repeated.

use crate::fs::{
    Dir, DirAccess, DirBackend, File, FileBackend, Fs, FsError, FsErrorKind, LockKind, Operation,
};
use crate::os;
use crate::stat::{FileKind, FsId, FsKind, FsStat, Stat, StatIdentity, time_ns};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};
use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file systems of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

struct RealDir {
    fd: OwnedFd,
}

struct RealFile {
    fd: OwnedFd,
    poisoned: AtomicBool,
}

impl Fs for RealFs {
    fn root(&self) -> Result<Dir, FsError> {
        let path = PathBuf::from("/");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty())).map_err(|e| {
            FsError {
                operation: Operation::Open,
                path: path.clone(),
                kind: kind_of(e),
            }
        })?;
        Ok(Dir::new(Arc::new(RealDir { fd }), path))
    }

    fn random(&self, target: &mut [u8]) -> Result<(), FsError> {
        let mut filled = 0;
        while filled < target.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += retry_on_intr(|| rustix::rand::getrandom(&mut target[filled..], flags))
                .map_err(|e| FsError {
                    operation: Operation::Random,
                    path: PathBuf::new(),
                    kind: kind_of(e),
                })?;
        }
        Ok(())
    }

    fn effective_uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn file_size_limit_bytes(&self) -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Fsize).current
    }
}

impl RealDir {
    fn open(&self, name: &OsStr, flags: OFlags, mode: u32) -> Result<OwnedFd, FsErrorKind> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, Mode::from_bits_retain(mode)))
            .map_err(kind_of)
    }
}

impl DirBackend for RealDir {
    fn open_dir(
        &self,
        name: &OsStr,
        access: DirAccess,
    ) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        let flags = OFlags::DIRECTORY
            | match access {
                DirAccess::Lookup => OFlags::PATH,
                DirAccess::Read => OFlags::RDONLY,
            };
        match self.open(name, flags, 0) {
            Ok(fd) => Ok(Arc::new(RealDir { fd })),
            // O_DIRECTORY with O_NOFOLLOW answers ENOTDIR for a symlink; tell the two apart.
            Err(FsErrorKind::NotDirectory) => match self.stat_entry(name) {
                Ok(stat) if stat.kind == FileKind::Symlink => Err(FsErrorKind::Symlink),
                Ok(_) | Err(_) => Err(FsErrorKind::NotDirectory),
            },
            Err(kind) => Err(kind),
        }
    }

    fn reopen(&self) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        let fd = self.open(OsStr::new("."), OFlags::DIRECTORY | OFlags::RDONLY, 0)?;
        Ok(Arc::new(RealDir { fd }))
    }

    fn parent(&self) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        let fd = self.open(OsStr::new(".."), OFlags::DIRECTORY | OFlags::PATH, 0)?;
        Ok(Arc::new(RealDir { fd }))
    }

    fn make_dir(&self, name: &OsStr, mode: u32) -> Result<(), FsErrorKind> {
        rustix::fs::mkdirat(&self.fd, name, Mode::from_bits_retain(mode)).map_err(kind_of)
    }

    fn open_file(&self, name: &OsStr, writable: bool) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        let access = if writable {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        let fd = self.open(name, access | OFlags::NONBLOCK | OFlags::NOCTTY, 0)?;
        Ok(RealFile::boxed(fd))
    }

    fn create_new(&self, name: &OsStr, mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        let fd = self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, mode)?;
        Ok(RealFile::boxed(fd))
    }

    fn create_unnamed(&self, mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        // Not `self.open`: O_TMPFILE opens the folder itself. A kernel or file system without it
        // answers EOPNOTSUPP, or EISDIR where the flag is not known.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_bits_retain(mode);
        match retry_on_intr(|| rustix::fs::openat(&self.fd, ".", flags, mode)) {
            Ok(fd) => Ok(RealFile::boxed(fd)),
            Err(Errno::ISDIR | Errno::INVAL) => Err(FsErrorKind::Unsupported),
            Err(e) => Err(kind_of(e)),
        }
    }

    fn link(&self, file: &dyn FileBackend, name: &OsStr) -> Result<(), FsErrorKind> {
        let source = file.as_fd().ok_or(FsErrorKind::ForeignHandle)?;
        // AT_EMPTY_PATH needs a capability before Linux 6.10; the /proc form does not.
        let linked = rustix::fs::linkat(source, "", &self.fd, name, AtFlags::EMPTY_PATH);
        if !matches!(linked, Err(Errno::NOENT | Errno::PERM)) {
            return linked.map_err(kind_of);
        }
        let by_number = format!("/proc/self/fd/{}", source.as_raw_fd());
        rustix::fs::linkat(
            rustix::fs::CWD,
            by_number,
            &self.fd,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )
        .map_err(kind_of)
    }

    fn rename_new(
        &self,
        source: &OsStr,
        target_dir: &dyn DirBackend,
        target: &OsStr,
    ) -> Result<(), FsErrorKind> {
        let target_fd = target_dir.as_fd().ok_or(FsErrorKind::ForeignHandle)?;
        rustix::fs::renameat_with(&self.fd, source, target_fd, target, RenameFlags::NOREPLACE)
            .map_err(|e| match e {
                Errno::INVAL => FsErrorKind::Unsupported,
                other => kind_of(other),
            })
    }

    fn rename_over(&self, source: &OsStr, target: &OsStr) -> Result<(), FsErrorKind> {
        rustix::fs::renameat(&self.fd, source, &self.fd, target).map_err(kind_of)
    }

    fn unlink(&self, name: &OsStr) -> Result<(), FsErrorKind> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()).map_err(kind_of)
    }

    fn remove_dir(&self, name: &OsStr) -> Result<(), FsErrorKind> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR).map_err(kind_of)
    }

    fn read_link(&self, name: &OsStr) -> Result<PathBuf, FsErrorKind> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new()).map_err(kind_of)?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn stat_entry(&self, name: &OsStr) -> Result<Stat, FsErrorKind> {
        let raw = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(kind_of)?;
        Ok(stat_of(&raw))
    }

    fn list(&self) -> Result<Vec<OsString>, FsErrorKind> {
        // `read_from` opens the folder anew, so that two listings don't share one position.
        let entries = rustix::fs::Dir::read_from(&self.fd).map_err(kind_of)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(kind_of)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    fn stat(&self) -> Result<Stat, FsErrorKind> {
        rustix::fs::fstat(&self.fd)
            .map(|raw| stat_of(&raw))
            .map_err(kind_of)
    }

    fn fs_stat(&self) -> Result<FsStat, FsErrorKind> {
        fs_stat_of(self.fd.as_fd())
    }

    fn sync(&self) -> Result<(), FsErrorKind> {
        retry_on_intr(|| rustix::fs::fsync(&self.fd)).map_err(kind_of)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl RealFile {
    fn boxed(fd: OwnedFd) -> Box<dyn FileBackend> {
        Box::new(Self {
            fd,
            poisoned: AtomicBool::new(false),
        })
    }

    /// Runs a write or sync. After the first failure nothing more is believed of this descriptor:
    /// the kernel reports a lost page once only.
    fn guarded<T>(&self, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, FsErrorKind> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(FsErrorKind::Poisoned);
        }
        run().map_err(|e| {
            self.poisoned.store(true, Ordering::Release);
            kind_of(e)
        })
    }
}

impl FileBackend for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, FsErrorKind> {
        self.guarded(|| retry_on_intr(|| rustix::io::pwrite(&self.fd, bytes, offset)))
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, FsErrorKind> {
        retry_on_intr(|| rustix::io::pread(&self.fd, &mut *target, offset)).map_err(kind_of)
    }

    fn write_out(&self, offset: u64, length: u64, wait: bool) -> Result<(), FsErrorKind> {
        self.guarded(|| {
            match os::sync_file_range(self.fd.as_fd(), offset, length, wait) {
                // Some file systems have none; fsync does the work then.
                Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::SPIPE | Errno::INVAL) => Ok(()),
                other => other,
            }
        })
    }

    fn sync(&self, content_only: bool) -> Result<(), FsErrorKind> {
        self.guarded(|| {
            retry_on_intr(|| {
                if content_only {
                    rustix::fs::fdatasync(&self.fd)
                } else {
                    rustix::fs::fsync(&self.fd)
                }
            })
        })
    }

    fn stat(&self) -> Result<Stat, FsErrorKind> {
        rustix::fs::fstat(&self.fd)
            .map(|raw| stat_of(&raw))
            .map_err(kind_of)
    }

    fn identity(&self) -> Result<StatIdentity, FsErrorKind> {
        identity_of_fd(self.fd.as_fd())
    }

    fn fs_stat(&self) -> Result<FsStat, FsErrorKind> {
        fs_stat_of(self.fd.as_fd())
    }

    fn set_length(&self, length: u64) -> Result<(), FsErrorKind> {
        self.guarded(|| retry_on_intr(|| rustix::fs::ftruncate(&self.fd, length)))
    }

    fn set_mode(&self, mode: u32) -> Result<(), FsErrorKind> {
        rustix::fs::fchmod(&self.fd, Mode::from_bits_retain(mode)).map_err(kind_of)
    }

    fn drop_cache(&self) -> Result<(), FsErrorKind> {
        rustix::fs::fadvise(&self.fd, 0, None, rustix::fs::Advice::DontNeed).map_err(kind_of)
    }

    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool, FsErrorKind> {
        let lock_type = match kind {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
        };
        os::try_ofd_lock(self.fd.as_fd(), lock_type, offset, length).map_err(kind_of)
    }

    fn has_writer(&self) -> Option<bool> {
        os::has_writer(self.fd.as_fd())
    }

    fn unlock(&self, offset: u64, length: u64) -> Result<(), FsErrorKind> {
        os::try_ofd_lock(self.fd.as_fd(), libc::F_UNLCK, offset, length)
            .map(|_| ())
            .map_err(kind_of)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// Wraps a descriptor that the caller opened, of a model file, say; the path is for messages.
pub fn file_of_fd(fd: OwnedFd, path: PathBuf) -> File {
    let poisoned = AtomicBool::new(false);
    File::new(Box::new(RealFile { fd, poisoned }), path)
}

/// Stat identity of any open descriptor: of an engine's model file, say.
pub fn identity_of_fd(fd: BorrowedFd<'_>) -> Result<StatIdentity, FsErrorKind> {
    let stat = stat_of(&rustix::fs::fstat(fd).map_err(kind_of)?);
    let file_system = os::fs_uuid(fd)
        .or_else(|| uuid_by_source(Path::new(BY_UUID), stat.device))
        .map_or(FsId::Device(stat.device), FsId::Uuid);
    Ok(StatIdentity {
        file_system,
        inode: stat.inode,
        generation: os::inode_generation(fd),
        size: stat.size,
        mtime_ns: stat.mtime_ns,
        ctime_ns: stat.ctime_ns,
        uid: stat.uid,
        mode: stat.mode,
    })
}

/// Size and kind of the file system of any open descriptor.
pub fn fs_stat_of_fd(fd: BorrowedFd<'_>) -> Result<FsStat, FsErrorKind> {
    fs_stat_of(fd)
}

/// Says whether the file system of an open regular file can seal files by fs-verity.
pub fn has_fs_verity(fd: BorrowedFd<'_>) -> Result<bool, FsErrorKind> {
    os::has_fs_verity(fd).map_err(kind_of)
}

const BY_UUID: &str = "/dev/disk/by-uuid";

/// Finds the UUID of a mounted block device where the kernel has no call for it (before Linux 6.9):
/// the name of the link that leads to the device. Only root makes links there.
fn uuid_by_source(links: &Path, device: u64) -> Option<[u8; 16]> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = retry_on_intr(|| rustix::fs::open(links, flags, Mode::empty())).ok()?;
    let names = rustix::fs::Dir::read_from(&dir).ok()?;
    names.filter_map(Result::ok).find_map(|entry| {
        let uuid = parse_uuid(entry.file_name().to_bytes())?;
        let target = rustix::fs::statat(&dir, entry.file_name(), AtFlags::empty()).ok()?;
        let block = FileType::from_raw_mode(target.st_mode) == FileType::BlockDevice;
        (block && target.st_rdev == device).then_some(uuid)
    })
}

/// Reads `8-4-4-4-12` hex digits; shorter names are serial numbers, of file systems that are not
/// trusted anyway.
fn parse_uuid(name: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(name).ok()?;
    let dashes_fit = [8, 13, 18, 23]
        .iter()
        .all(|at| text.as_bytes().get(*at) == Some(&b'-'));
    if text.len() != 36 || !dashes_fit {
        return None;
    }
    let digits: String = text.split('-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    let plain = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    (plain && number != 0).then(|| number.to_be_bytes())
}

fn fs_stat_of(fd: BorrowedFd<'_>) -> Result<FsStat, FsErrorKind> {
    let kind = rustix::fs::fstatfs(fd).map_err(kind_of)?;
    let sizes = rustix::fs::fstatvfs(fd).map_err(kind_of)?;
    Ok(FsStat {
        // A magic has 32 bits; some targets sign-extend it.
        kind: FsKind::from_magic(u64::from(kind.f_type as u32)),
        total_bytes: sizes.f_blocks.saturating_mul(sizes.f_frsize),
        free_bytes: sizes.f_bavail.saturating_mul(sizes.f_frsize),
        read_only: sizes.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
    })
}

#[expect(
    clippy::unnecessary_cast,
    reason = "the fields' types differ between targets"
)]
fn stat_of(raw: &rustix::fs::Stat) -> Stat {
    let kind = match FileType::from_raw_mode(raw.st_mode) {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Special,
    };
    Stat {
        kind,
        mode: raw.st_mode & 0o7777,
        device: raw.st_dev,
        inode: raw.st_ino,
        link_count: raw.st_nlink as u64,
        uid: raw.st_uid,
        gid: raw.st_gid,
        size: u64::try_from(raw.st_size).unwrap_or(0),
        allocated_bytes: u64::try_from(raw.st_blocks).unwrap_or(0) * 512,
        mtime_ns: time_ns(raw.st_mtime, raw.st_mtime_nsec as i64),
        ctime_ns: time_ns(raw.st_ctime, raw.st_ctime_nsec as i64),
    }
}

fn kind_of(errno: Errno) -> FsErrorKind {
    match errno {
        Errno::NOENT => FsErrorKind::NotFound,
        Errno::EXIST => FsErrorKind::Exists,
        Errno::NOTDIR => FsErrorKind::NotDirectory,
        Errno::ISDIR => FsErrorKind::IsDirectory,
        Errno::LOOP => FsErrorKind::Symlink,
        Errno::ACCESS | Errno::PERM => FsErrorKind::Permission,
        Errno::ROFS => FsErrorKind::ReadOnly,
        Errno::NOSPC => FsErrorKind::NoSpace,
        Errno::FBIG => FsErrorKind::TooLarge,
        Errno::DQUOT => FsErrorKind::Quota,
        Errno::IO => FsErrorKind::Io,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => FsErrorKind::Unsupported,
        Errno::NOTEMPTY => FsErrorKind::NotEmpty,
        Errno::XDEV => FsErrorKind::CrossDevice,
        Errno::MFILE | Errno::NFILE => FsErrorKind::TooManyFiles,
        other => FsErrorKind::Errno(other.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_would_be_too_long_is_no_full_disk() {
        assert_eq!(kind_of(Errno::FBIG), FsErrorKind::TooLarge);
        assert_eq!(kind_of(Errno::NOSPC), FsErrorKind::NoSpace);
    }

    #[test]
    fn a_uuid_has_one_spelling_of_digits() {
        let parsed = parse_uuid(b"00112233-4455-6677-8899-aabbccddeeff");
        let expected = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
        assert_eq!(parsed, Some(expected));
        let wrong: [&[u8]; 6] = [
            b"ABCD-1234",
            b"00112233-4455-6677-8899-aabbccddeefg",
            b"00112233-4455-6677-8899-aabbccddeef",
            b"0011223344556677-8899-aabb-ccddeeff0",
            b"00000000-0000-0000-0000-000000000000",
            b"+0112233-4455-6677-8899-aabbccddeeff",
        ];
        for name in wrong {
            assert_eq!(parse_uuid(name), None, "{name:?}");
        }
    }

    #[test]
    fn the_link_of_a_device_names_its_file_system() {
        let folder = tempfile::tempdir().expect("because a temporary folder can be made");
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        // A link to a file of the same device is no link to the device.
        std::os::unix::fs::symlink(folder.path(), folder.path().join(uuid))
            .expect("because the name is free");
        let here = rustix::fs::stat(folder.path()).expect("because it is there");
        assert_eq!(uuid_by_source(folder.path(), here.st_dev), None);
        assert_eq!(uuid_by_source(Path::new("/nowhere"), here.st_dev), None);
        // Where udev keeps links, they agree with the kernel.
        let file = tempfile::tempfile().expect("because a temporary file can be made");
        let linked = uuid_by_source(Path::new(BY_UUID), here.st_dev);
        if let (Some(linked), Some(asked)) = (linked, os::fs_uuid(file.as_fd())) {
            assert_eq!(linked, asked);
        }
    }
}
