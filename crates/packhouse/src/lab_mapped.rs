//! The lines of `/proc/PID/maps` that are executable files, and whom a process started.
//!
//! Invariants:
//! - a process is over when none of its threads runs: its first one may end before the others;
//! - a file is who the kernel says was mapped, by device and inode: its path alone is no witness;
//! - what sees other files under the same paths, and whoever left its family, is an error.

use crate::files::{device_and_inode, entries, link, open_regular, read_at_most};
use packhouse_sys::child::own_children;
use packhouse_sys::fs::{DirAccess, Fs as _};
use packhouse_sys::real::RealFs;
use packhouse_sys::stat::FsKind;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file that a process has mapped executable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MappedFile {
    /// Where it is.
    pub(crate) path: PathBuf,
    device: u64,
    inode: u64,
}

impl MappedFile {
    /// Opens it. Errors where its path leads to another file than the one that is mapped.
    pub(crate) fn open(&self) -> Result<File, String> {
        let shown = self.path.display();
        let file = open_regular(&self.path).map_err(|error| format!("{shown}: {error}"))?;
        let stat = file
            .metadata()
            .map_err(|error| format!("{shown}: {error}"))?;
        let is_same = stat.dev() == self.device || has_numbers_of_its_own(&self.path);
        match is_same && stat.ino() == self.inode {
            true => Ok(file),
            false => Err(format!(
                "{shown} is another file than the one that is mapped"
            )),
        }
    }
}

/// File systems whose files have another device in `maps` than they have in stat.
fn has_numbers_of_its_own(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut names = folder.components().skip(1);
    let root = RealFs.root();
    let folder = root.and_then(|root| {
        names.try_fold(root, |dir, name| dir.open_dir_for(name, DirAccess::Lookup))
    });
    let kind = folder.and_then(|dir| Ok(dir.fs_stat()?.kind));
    matches!(kind, Ok(FsKind::Btrfs | FsKind::Overlay))
}

/// The executable files that a process has mapped, and all that it started, each once.
///
/// Errors where that can't be told: a file has no name any more or is hidden behind another one, a
/// process sees other files than this one does, or left its family.
pub(crate) fn by_family(pid: u32) -> Result<Vec<MappedFile>, String> {
    are_own_numbers(&link(Path::new("/proc/self")).map_err(said)?)?;
    let mut mapped = of(pid)?;
    for process in offspring(pid)? {
        // It may be gone by now; that it had what is not frozen is not seen then.
        match of(process) {
            Ok(its) => mapped.extend(its),
            Err(_) if is_over(process) || has_no_memory(process) => {}
            Err(why) => return Err(format!("process {process}: {why}")),
        }
    }
    mapped.sort();
    mapped.dedup();
    Ok(mapped)
}

/// Whether the process files have this process under its own number: those of another namespace
/// have somebody else under the number of a program.
fn are_own_numbers(own: &Path) -> Result<(), String> {
    match own == Path::new(&std::process::id().to_string()) {
        true => Ok(()),
        false => {
            Err("/proc is of another process namespace: it has to be mounted in this one".into())
        }
    }
}

/// The executable files that one process has mapped.
fn of(pid: u32) -> Result<Vec<MappedFile>, String> {
    let mut found = None;
    for thread in threads(pid)? {
        let thread = PathBuf::from(format!("/proc/{pid}/task/{thread}"));
        let maps = sees_as_we_do(&thread)
            .and_then(|()| read_at_most(&thread.join("maps"), MAPS_BYTES_MAX).map_err(said));
        match maps {
            // All threads of a process have the same memory.
            Ok(maps) if found.is_none() && !maps.is_empty() => found = Some(maps),
            Ok(_) => {}
            Err(_) if !is_running(&thread) => {}
            Err(why) => return Err(why),
        }
    }
    executable(&found.unwrap_or_default())
}

/// Whether paths lead a thread to the same files as this process: it has the same mounts and root.
fn sees_as_we_do(thread: &Path) -> Result<(), String> {
    let mounts = |process: &Path| link(&process.join("ns/mnt")).map_err(said);
    let root = |process: &Path| device_and_inode(&process.join("root")).map_err(said);
    let own = Path::new("/proc/self");
    if mounts(thread)? != mounts(own)? {
        return Err("it has mounts of its own, and its files can't be told by their paths".into());
    }
    if root(thread)? != root(own)? {
        return Err("it has a root of its own, and its files can't be told by their paths".into());
    }
    Ok(())
}

/// Threads of a process that run; none where it is over.
fn threads(pid: u32) -> Result<Vec<u32>, String> {
    let folder = PathBuf::from(format!("/proc/{pid}/task"));
    let all = match entries(&folder) {
        Ok(all) => all,
        Err(error) if error.raw_os_error() == Some(ESRCH) => Vec::new(),
        Err(error) => return Err(said(error)),
    };
    let running = all.iter().filter(|thread| is_running(thread));
    Ok(running.filter_map(|path| number(path)).collect())
}

fn is_running(thread: &Path) -> bool {
    let stat = read_at_most(&thread.join("stat"), STAT_BYTES_MAX);
    let thread = stat.ok().and_then(|stat| parsed(0, &stat));
    thread.is_some_and(|thread| !thread.is_over)
}

/// Whether no thread of a process runs: it ended, and perhaps nobody asked of it yet.
fn is_over(pid: u32) -> bool {
    threads(pid).is_ok_and(|threads| threads.is_empty())
}

/// Whether a process has none of the memory that it could run code of: it is ending, and the kernel
/// still closes its files.
fn has_no_memory(pid: u32) -> bool {
    let maps = |thread| PathBuf::from(format!("/proc/{pid}/task/{thread}/maps"));
    let is_empty = |maps: PathBuf| read_at_most(&maps, 1).is_ok_and(|maps| maps.is_empty());
    threads(pid).is_ok_and(|threads| threads.into_iter().map(maps).all(is_empty))
}

/// Processes that descend from one, or are of the session that it leads: as they are now. One that
/// came and went between two looks is not seen.
fn offspring(pid: u32) -> Result<Vec<u32>, String> {
    let names = entries(Path::new("/proc")).map_err(said)?;
    let seen = names.iter().filter_map(|path| number(path));
    let seen: Vec<Process> = seen.filter_map(process).collect();
    let ours = own_children();
    let mut left = stray(pid, std::process::id(), &seen, &ours);
    if let Some(stray) = left.find(|stray| !is_over(stray.pid)) {
        let stray = stray.pid;
        return Err(format!(
            "process {stray} left the program that started it, and whose it is can't be told"
        ));
    }
    Ok(descending(pid, &seen))
}

/// Who became a child of this process and was none, since a program was started: the program, or
/// one of its children, undid what keeps its own with it.
fn stray<'a>(
    pid: u32,
    us: u32,
    seen: &'a [Process],
    ours: &'a BTreeSet<u32>,
) -> impl Iterator<Item = &'a Process> {
    let start = seen.iter().find(|one| one.pid == pid);
    let start = start.map_or(0, |program| program.start);
    seen.iter()
        .filter(move |one| one.parent == us && one.start >= start)
        .filter(move |one| one.pid != pid && !ours.contains(&one.pid))
}

/// A process as `/proc/PID/stat` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    session: u32,
    /// Ticks of the kernel's clock.
    start: u64,
    /// Of the thread that it began with.
    is_over: bool,
}

fn process(pid: u32) -> Option<Process> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    parsed(pid, &read_at_most(&path, STAT_BYTES_MAX).ok()?)
}

/// Fields 3, 4, 6 and 22; the second is the name, which may hold anything.
fn parsed(pid: u32, stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let mut words = text.split_whitespace();
    let is_over = matches!(words.next()?, "Z" | "X" | "x");
    let parent = words.next()?.parse().ok()?;
    let session = words.nth(1)?.parse().ok()?;
    let start = words.nth(15)?.parse().ok()?;
    Some(Process {
        pid,
        parent,
        session,
        start,
        is_over,
    })
}

fn descending(pid: u32, seen: &[Process]) -> Vec<u32> {
    let mut family = BTreeSet::from([pid]);
    loop {
        let more: Vec<u32> = seen
            .iter()
            .filter(|one| family.contains(&one.parent) || one.session == pid)
            .map(|one| one.pid)
            .filter(|one| !family.contains(one))
            .collect();
        if more.is_empty() {
            family.remove(&pid);
            return family.into_iter().collect();
        }
        family.extend(more);
    }
}

/// Files that are mapped executable, each once, sorted. What has no file (code made at run time,
/// what the kernel provides) has no line here.
///
/// Errors on a text of another form, and on a file that no name leads to any more: its content
/// can't be told.
fn executable(maps: &[u8]) -> Result<Vec<MappedFile>, String> {
    if maps.is_empty() {
        return Err("the process has no program any more".to_owned());
    }
    let lines = maps.split(|byte| *byte == b'\n');
    let files = lines.filter(|line| !line.is_empty()).map(mapped_file);
    let files = files.filter_map(Result::transpose);
    let files = files.collect::<Result<BTreeSet<MappedFile>, String>>()?;
    Ok(files.into_iter().collect())
}

/// The file of a line, where it has one that is mapped executable.
fn mapped_file(line: &[u8]) -> Result<Option<MappedFile>, String> {
    let unexpected = || format!("unexpected line {:?}", String::from_utf8_lossy(line));
    let words: Vec<&[u8]> = line.splitn(6, |byte| *byte == b' ').collect();
    let [_, rights, _, device, inode, rest @ ..] = &words[..] else {
        return Err(unexpected());
    };
    if rights.len() != 4 {
        return Err(unexpected());
    }
    let path = rest.first().copied().unwrap_or_default().trim_ascii_start();
    if rights[2] != b'x' || !path.starts_with(b"/") {
        return Ok(None);
    }
    if path.ends_with(b" (deleted)") {
        let path = Path::new(OsStr::from_bytes(path));
        return Err(format!(
            "{} is mapped, and has no name any more",
            path.display()
        ));
    }
    let inode = std::str::from_utf8(inode).map(str::parse);
    // The kernel escapes the one byte that would end the line.
    let path = unescaped(path);
    Ok(Some(MappedFile {
        path: PathBuf::from(OsStr::from_bytes(&path)),
        device: device_number(device).ok_or_else(unexpected)?,
        inode: inode.ok().and_then(Result::ok).ok_or_else(unexpected)?,
    }))
}

/// `MAJOR:MINOR` in hex as the number that stat has of them.
fn device_number(text: &[u8]) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(text).ok()?.split_once(':')?;
    let major = u64::from(u32::from_str_radix(major, 16).ok()?);
    let minor = u64::from(u32::from_str_radix(minor, 16).ok()?);
    let low = (major & 0xfff) << 8 | minor & 0xff;
    Some((major & !0xfff) << 32 | (minor & !0xff) << 12 | low)
}

fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, others)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(after) => {
                plain.push(b'\n');
                rest = after;
            }
            None => {
                plain.push(*first);
                rest = others;
            }
        }
    }
    plain
}

fn number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

fn said(error: std::io::Error) -> String {
    error.to_string()
}

const MAPS_BYTES_MAX: usize = 16 << 20;
const STAT_BYTES_MAX: usize = 4 << 10;
/// From Linux's `errno.h`: the process is gone.
const ESRCH: i32 = 3;

#[cfg(test)]
mod tests;
