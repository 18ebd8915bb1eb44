//! The watcher that `run` leaves behind: says in one line if the engine opened a GGUF file and no
//! plug-in announced itself, since then every start is as slow as without us and nobody would know.
//!
//! It ends when the plug-in made the announced file, when the engine ended, when it has spoken, or
//! after two minutes; it removes the announcement's private folder. It looks at `/proc` only, and
//! never signals or waits for the engine.

#![expect(
    clippy::disallowed_methods,
    reason = "the watcher looks at another process, by name and by time"
)]

use crate::cli::WatchArgs;
use crate::files::open_regular;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(50);
const WATCH_MAX: Duration = Duration::from_secs(120);
/// An engine may read a model's metadata before it loads its back ends.
const GRACE: Duration = Duration::from_secs(2);

/// Prepares a private folder and the arguments with which this process is watched.
pub(crate) fn arguments() -> io::Result<WatchArgs> {
    let pid = std::process::id();
    let start = start_time(pid).ok_or_else(|| io::Error::other("/proc/self/stat can't be read"))?;
    // The start time makes the name unique while the folder's owner lives; a name that someone took
    // is an error, never used.
    let folder = std::env::temp_dir().join(format!("packhouse-{pid}-{start}"));
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(WatchArgs {
        pid,
        start,
        announcement: folder.join("announced"),
    })
}

/// Removes the announcement and its folder, where they are.
pub(crate) fn remove_announcement(announcement: &Path) {
    // Both may be gone, and nobody is there to be told.
    let _ = fs::remove_file(announcement);
    if let Some(folder) = announcement.parent() {
        let _ = fs::remove_dir(folder);
    }
}

/// Watches until there is nothing more to see. Returns the line to say, if there is one.
pub(crate) fn watch(args: &WatchArgs) -> Option<String> {
    let began = Instant::now();
    let mut opened: Option<(PathBuf, Instant)> = None;
    let said = loop {
        let is_alive = start_time(args.pid) == Some(args.start);
        if args.announcement.exists() || began.elapsed() > WATCH_MAX {
            break None;
        }
        if !is_alive {
            break None;
        }
        if opened.is_none() {
            opened = open_model(args.pid).map(|path| (path, Instant::now()));
        }
        if let Some((path, since)) = &opened
            && since.elapsed() > GRACE
        {
            break Some(format!(
                "packhouse: process {} opened {} without loading the plug-in: it packs at every \
                 start (engines that load no back ends by path, such as static ones, do)",
                args.pid,
                path.display()
            ));
        }
        std::thread::sleep(PAUSE);
    };
    remove_announcement(&args.announcement);
    said
}

/// A process's start time, by which a pid used again is told apart.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so fields count from its last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_dead = matches!(fields.next(), Some("Z" | "X"));
    let start = fields.nth(18)?.parse().ok()?;
    (!is_dead).then_some(start)
}

/// A GGUF file that the process has mapped or open.
fn open_model(pid: u32) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mapped = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .map(|path| path.trim_end_matches(" (deleted)"))
        .find(|path| path.ends_with(".gguf"));
    if let Some(path) = mapped {
        return Some(PathBuf::from(path));
    }
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    descriptors.flatten().find_map(|entry| {
        let path = fs::read_link(entry.path()).ok()?;
        is_model(&path, &entry.path()).then_some(path)
    })
}

/// Whether a descriptor is a GGUF file, by its name or by its magic.
fn is_model(path: &Path, descriptor: &Path) -> bool {
    if !path.is_absolute() || path.starts_with("/dev") || path.starts_with("/proc") {
        return false;
    }
    if path
        .extension()
        .is_some_and(|extension| extension == "gguf")
    {
        return true;
    }
    // Only regular files are opened, and without waiting: a pipe or a device would notice.
    let mut magic = [0; 4];
    let read = open_regular(descriptor).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"GGUF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_time_and_a_stranger_has_none() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn an_open_model_is_seen_by_its_magic_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sha256-blob");
        fs::write(&path, b"GGUFrest").unwrap();
        let held = fs::File::open(&path).unwrap();
        assert_eq!(open_model(std::process::id()), Some(path));
        drop(held);
        assert_eq!(open_model(std::process::id()), None);
    }
}
