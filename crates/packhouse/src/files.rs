//! Opens what a user or an engine names, without waiting and only when it is a regular file.

#![expect(
    clippy::disallowed_methods,
    reason = "the CLI opens what the user names"
)]

use packhouse_stage::models::SeenStat;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Opens a regular file for reading. Errors on anything else; a pipe is not waited for.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok(file)
}

/// What is seen of a regular file that can't be opened; `None` where something else has its name.
pub(crate) fn seen_stat(path: &Path) -> io::Result<Option<SeenStat>> {
    let stat = path.metadata()?;
    let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
    Ok(stat.is_file().then(|| SeenStat {
        inode: stat.ino(),
        size: stat.size(),
        mtime_ns: ns(stat.mtime(), stat.mtime_nsec()),
        ctime_ns: ns(stat.ctime(), stat.ctime_nsec()),
        uid: stat.uid(),
        mode: stat.mode() & 0o7777,
    }))
}

/// The path of an open file, as the kernel has it now. `None` where it has none any more.
pub(crate) fn own_path(file: &File) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = std::fs::read_link(link).ok()?;
    let (named, ours) = (path.metadata().ok()?, file.metadata().ok()?);
    let is_it = (named.dev(), named.ino()) == (ours.dev(), ours.ino());
    (path.is_absolute() && is_it).then_some(path)
}

/// What a link says, whatever it leads to.
pub(crate) fn link(path: &Path) -> io::Result<PathBuf> {
    std::fs::read_link(path)
}

/// Device and inode of what a path leads to, over links.
pub(crate) fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    let stat = path.metadata()?;
    Ok((stat.dev(), stat.ino()))
}

/// Reads a regular file, but no more of it than `max` bytes and one.
pub(crate) fn read_at_most(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    open_regular(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Paths of all entries of a folder, sorted; none when there is no such folder.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// From Linux's `fcntl.h` on x86-64 and aarch64.
const O_NONBLOCK: i32 = 0o4000;
