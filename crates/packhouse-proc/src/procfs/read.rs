//! Reads of kernel files: whole, by folder descriptor, and the reason by number.
//!
//! A held folder of a process stays that process': once it is gone, each read under it fails with
//! ESRCH, whoever has its pid by then.
//!
//! Never: follows what a name of `/proc` stands for unless a function says so.

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

/// Holds a folder, to read below it.
pub(crate) fn folder(path: &Path) -> Result<OwnedFd, Errno> {
    folder_at(CWD, path)
}

/// Holds a folder below another.
pub(crate) fn folder_at(folder: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// Opens a file below a folder, to read. Follows the links of `/proc` to what they stand for.
pub(crate) fn open_at(folder: impl AsFd, name: impl Arg) -> Result<File, Errno> {
    // A name may stand for a queue or a device by now, whose open waits or does something.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from)
}

/// Reads a whole file by its path.
pub(crate) fn path(path: &Path) -> Result<Vec<u8>, Errno> {
    at(CWD, path)
}

/// Reads a whole file below a folder.
pub(crate) fn at(folder: impl AsFd, name: impl Arg) -> Result<Vec<u8>, Errno> {
    let file = open_at(folder, name)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; READ_BYTES];
    while bytes.len() <= BYTES_MAX {
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::FBIG)
}

/// Reads where a link below a folder points to.
pub(crate) fn link(folder: impl AsFd, name: impl Arg) -> Result<OsString, Errno> {
    let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// The names in a folder below another, as the kernel lists them.
pub(crate) fn names(folder: impl AsFd, name: impl Arg) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(listed)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    Ok(names)
}

/// Stat of what a name below a folder stands for, links followed, nothing opened.
pub(crate) fn stat_at(folder: impl AsFd, name: impl Arg) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::empty())
}

/// The device number of the device node that a link stands for; `None` when it is no such node.
/// Asks no server: a descriptor may be of a file on one that is dead.
pub(crate) fn device_number_at(folder: impl AsFd, name: impl Arg) -> Option<u64> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(folder, name, flags, StatxFlags::TYPE).ok()?;
    let kind = rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode));
    let is_node = kind.is_char_device() || kind.is_block_device();
    is_node.then(|| rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor))
}

const READ_BYTES: usize = 1 << 14;
/// More than any kernel file of a process has: an environment or a map of that size is no honest
/// one.
const BYTES_MAX: usize = 256 << 20;
