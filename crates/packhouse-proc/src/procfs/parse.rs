//! The texts of a process' kernel files as values. Pure; each form is that of proc(5).

use super::process::MappedFile;
use crate::cores::CpuSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

/// What is taken from `stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) name: Vec<u8>,
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    pub(crate) flags: u32,
    pub(crate) threads: u64,
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// Parses the one line. A name may hold parentheses and newlines, so it ends at the last one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let name = bytes.get(open + 1..close)?.to_vec();
        let pid = std::str::from_utf8(&bytes[..open]).ok()?.trim_end();
        let rest = std::str::from_utf8(&bytes[close + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let mut state = fields.first()?.chars();
        let (state, None) = (state.next()?, state.next()) else {
            return None;
        };
        // Fields are numbered from 1 in proc_pid_stat(5); the state is the third.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            pid: pid.parse().ok()?,
            name,
            state,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
        })
    }

    /// Whether the process has ended: it is a zombie, or dead, and has no thread that runs on after
    /// its first one ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }

    /// Whether its first thread ended while others run on: its own files show nothing by then.
    pub(crate) fn leader_has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads > 1
    }

    /// Whether it is a thread of the kernel.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
}

/// From the kernel's sched.h.
const PF_KTHREAD: u32 = 0x0020_0000;

/// The value of a `Name:` line of `status` and files like it.
pub(crate) fn line_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// The effective user id of `status`.
pub(crate) fn user_of(status: &str) -> Option<u32> {
    line_of(status, "Uid")?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// The cores of `status` on which it may run.
pub(crate) fn cores_of(status: &str) -> Option<CpuSet> {
    CpuSet::parse(line_of(status, "Cpus_allowed_list")?).ok()
}

/// Whether a process has a pid of its own in a namespace below ours, by `status`: kernels before
/// 4.1 do not tell.
pub(crate) fn is_below(status: &str) -> bool {
    line_of(status, "NSpid").is_some_and(|pids| pids.split_ascii_whitespace().count() > 1)
}

/// Whole clock ticks of `uptime`, which has hundredths of seconds.
pub(crate) fn ticks_of(uptime: &str, ticks_per_second: u64) -> Option<u64> {
    let (seconds, rest) = uptime.split_once('.')?;
    let hundredths = rest.get(..2)?;
    let seconds = seconds.parse::<u64>().ok()?.checked_mul(100)?;
    let hundredths = seconds.checked_add(hundredths.parse().ok()?)?;
    Some(hundredths.checked_mul(ticks_per_second)? / 100)
}

/// Bytes of one line in kB.
pub(crate) fn kilobytes_of(text: &str, name: &str) -> Option<u64> {
    let number = line_of(text, name)?.strip_suffix("kB")?.trim_end();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

/// Private memory by `smaps_rollup`: resident pages that nobody else maps, and what is in swap.
pub(crate) fn private_of_rollup(text: &str) -> Option<u64> {
    // Kernels before 4.19 have no line of huge pages in it.
    let huge = kilobytes_of(text, "Private_Hugetlb").unwrap_or(0);
    kilobytes_of(text, "Private_Clean")?
        .checked_add(kilobytes_of(text, "Private_Dirty")?)?
        .checked_add(kilobytes_of(text, "Swap")?)?
        .checked_add(huge)
}

/// Private memory by `status`, where there is no `smaps_rollup`.
pub(crate) fn private_of_status(text: &str) -> Option<u64> {
    kilobytes_of(text, "RssAnon")?.checked_add(kilobytes_of(text, "VmSwap")?)
}

/// The words of a NUL-separated list.
pub(crate) fn words_of(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .split(|byte| *byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

/// The assignments of an environment; a word without `=` has an empty value.
pub(crate) fn environment_of(bytes: &[u8]) -> Vec<(OsString, OsString)> {
    let owned = |part: &[u8]| OsStr::from_bytes(part).to_owned();
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| match word.iter().position(|byte| *byte == b'=') {
            Some(equals) => (owned(&word[..equals]), owned(&word[equals + 1..])),
            None => (owned(word), OsString::new()),
        })
        .collect()
}

/// The inode of a link target of the form `socket:[123]` or `pid:[123]`.
pub(crate) fn inode_of(target: &OsStr, kind: &str) -> Option<u64> {
    target
        .to_str()?
        .strip_prefix(kind)?
        .strip_prefix(":[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// The path of a link target or map line, and whether the kernel calls it deleted.
pub(crate) fn path_of(target: &[u8]) -> (PathBuf, bool) {
    let (path, deleted) = match target.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (target, false),
    };
    (PathBuf::from(OsStr::from_bytes(path)), deleted)
}

/// The mapped files of `maps`, each inode once with its first range. `None` on a line in no known
/// form.
pub(crate) fn mapped_of(bytes: &[u8]) -> Option<Vec<MappedFile>> {
    let mut files: Vec<MappedFile> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let Some(file) = mapped_line(line)? else {
            continue;
        };
        let known = |other: &MappedFile| {
            (other.device, other.inode) == (file.device, file.inode) && other.path == file.path
        };
        if !files.iter().any(known) {
            files.push(file);
        }
    }
    Some(files)
}

/// One line: `None` in no known form, `Some(None)` when no file is behind it.
fn mapped_line(line: &[u8]) -> Option<Option<MappedFile>> {
    let mut parts = line.splitn(6, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (start, end) = text()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let (_permissions, _offset) = (text()?, text()?);
    let (major, minor) = text()?.split_once(':')?;
    let device = rustix::fs::makedev(
        u32::from_str_radix(major, 16).ok()?,
        u32::from_str_radix(minor, 16).ok()?,
    );
    let inode: u64 = text()?.parse().ok()?;
    let rest = parts.next().unwrap_or_default();
    let first = rest.iter().position(|byte| *byte != b' ');
    let path = first.map_or(&[][..], |first| &rest[first..]);
    if inode == 0 || !path.starts_with(b"/") {
        return Some(None);
    }
    let (path, deleted) = path_of(&unescape(path));
    Some(Some(MappedFile {
        path,
        deleted,
        device,
        inode,
        start,
        end,
    }))
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Newlines stand as `\012` in `maps`; nothing else is escaped there.
fn unescape(path: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(byte) = rest.first() {
        if let Some(after) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*byte);
            rest = &rest[1..];
        }
    }
    plain
}

/// The control group of `cgroup`: that of version 2, or of the tree that is systemd's own. `None` when
/// there is neither.
pub(crate) fn cgroup_of(bytes: &[u8]) -> Option<PathBuf> {
    let lines = || bytes.split(|byte| *byte == b'\n');
    let path_after = |prefix: &[u8]| {
        lines().find_map(|line| {
            let (_, rest) = line.split_at(line.iter().position(|byte| *byte == b':')?);
            rest.strip_prefix(prefix)
                .map(|path| PathBuf::from(OsStr::from_bytes(path)))
        })
    };
    let unified = path_after(b"::");
    // In the mixed form every process has a line of version 2, mostly for the root.
    path_after(b":name=systemd:").or(unified)
}
