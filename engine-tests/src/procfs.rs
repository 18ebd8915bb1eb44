//! What the kernel says about a process's memory.

use rustix::process::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The fields of `smaps_rollup`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Resident, shared or not.
    pub rss: u64,
    /// Resident, shared pages divided by their users.
    pub pss: u64,
    /// Written and this process's own.
    pub private_dirty: u64,
}

/// Reads `smaps_rollup`.
pub fn memory(pid: Pid) -> Memory {
    let text = read(pid, "smaps_rollup");
    let field = |name| field(&text, name).expect("the kernel writes every field");
    Memory {
        rss: field("Rss:"),
        pss: field("Pss:"),
        private_dirty: field("Private_Dirty:"),
    }
}

/// Mapped bytes per inode number of the files below `folder`.
pub fn mapped_inodes(pid: Pid, folder: &Path) -> BTreeMap<u64, u64> {
    let mut inodes = BTreeMap::new();
    for line in read(pid, "maps").lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(inode)) = (words.next(), words.nth(3)) else {
            continue;
        };
        let name = words.next().unwrap_or_default();
        let (Some((from, to)), Ok(inode)) = (range.split_once('-'), inode.parse()) else {
            continue;
        };
        let bound = |hex| u64::from_str_radix(hex, 16).expect("the kernel writes hex");
        if Path::new(name).starts_with(folder) {
            *inodes.entry(inode).or_insert(0) += bound(to) - bound(from);
        }
    }
    inodes
}

/// Resident and proportional bytes of the mappings of files below `folder`.
pub fn memory_of_files(pid: Pid, folder: &Path) -> Memory {
    let mut total = Memory::default();
    let mut inside = false;
    for line in read(pid, "smaps").lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if !first.ends_with(':') {
            let name = line.split_ascii_whitespace().nth(5).unwrap_or_default();
            inside = Path::new(name).starts_with(folder);
        } else if inside {
            let bytes = field(line, first).unwrap_or_default();
            match first {
                "Rss:" => total.rss += bytes,
                "Pss:" => total.pss += bytes,
                "Private_Dirty:" => total.private_dirty += bytes,
                _ => {}
            }
        }
    }
    total
}

fn read(pid: Pid, file: &str) -> String {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_memory() {
        let own = memory(rustix::process::getpid());
        assert!(own.rss > 0 && own.pss > 0 && own.pss <= own.rss);
    }

    #[test]
    fn finds_its_own_program() {
        let program = std::env::current_exe().expect("it runs");
        let folder = program.parent().expect("a file has a folder");
        assert!(!mapped_inodes(rustix::process::getpid(), folder).is_empty());
        assert!(memory_of_files(rustix::process::getpid(), folder).rss > 0);
        assert!(mapped_inodes(rustix::process::getpid(), Path::new("/nowhere")).is_empty());
    }
}
