//! The lines of `/proc/PID/maps` that are executable files, and whom a process started.

use crate::files::{entries, read_at_most};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Paths of the executable files that a process has mapped.
pub(crate) fn of(pid: u32) -> Result<Vec<PathBuf>, String> {
    let path = PathBuf::from(format!("/proc/{pid}/maps"));
    let maps = read_at_most(&path, MAPS_BYTES_MAX).map_err(|error| error.to_string())?;
    executable(&maps)
}

/// Processes that descend from one, or are of the session that it leads: as they are now. One that
/// came and went between two looks is not seen.
pub(crate) fn offspring(pid: u32) -> Result<Vec<u32>, String> {
    let names = entries(Path::new("/proc")).map_err(|error| error.to_string())?;
    let pids = names
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse::<u32>().ok());
    let seen: Vec<Process> = pids.filter_map(process).collect();
    Ok(descending(pid, &seen))
}

/// Whether a process runs: one that ended and that nobody asked of yet has nothing mapped.
pub(crate) fn is_alive(pid: u32) -> bool {
    process(pid).is_some_and(|process| !process.is_over)
}

/// A process as `/proc/PID/stat` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    session: u32,
    is_over: bool,
}

fn process(pid: u32) -> Option<Process> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    parsed(pid, &read_at_most(&path, STAT_BYTES_MAX).ok()?)
}

/// Fields 3, 4 and 6; the second is the name, which may hold anything.
fn parsed(pid: u32, stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let mut words = text.split_whitespace();
    let is_over = matches!(words.next()?, "Z" | "X" | "x");
    let parent = words.next()?.parse().ok()?;
    let session = words.nth(1)?.parse().ok()?;
    Some(Process {
        pid,
        parent,
        session,
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

const MAPS_BYTES_MAX: usize = 16 << 20;
const STAT_BYTES_MAX: usize = 4 << 10;

/// Paths of the files that are mapped executable, each once, sorted. What has no file (code made at
/// run time, what the kernel provides) has no line here.
///
/// Errors on a text of another form, and on a file that no name leads to any more: its content
/// can't be told.
pub(crate) fn executable(maps: &[u8]) -> Result<Vec<PathBuf>, String> {
    if maps.is_empty() {
        return Err("the process has no program any more".to_owned());
    }
    let mut paths = BTreeSet::new();
    for line in maps
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let unexpected = || format!("unexpected line {:?}", String::from_utf8_lossy(line));
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let (_, rights) = (words.next(), words.next().ok_or_else(unexpected)?);
        let path = words.nth(3).unwrap_or_default().trim_ascii_start();
        if rights.len() != 4 {
            return Err(unexpected());
        }
        if rights[2] != b'x' || !path.starts_with(b"/") {
            continue;
        }
        if path.ends_with(b" (deleted)") {
            let path = Path::new(OsStr::from_bytes(path));
            return Err(format!(
                "{} is mapped, and has no name any more",
                path.display()
            ));
        }
        // The kernel escapes the one byte that would end the line.
        let path = unescaped(path);
        paths.insert(PathBuf::from(OsStr::from_bytes(&path)));
    }
    Ok(paths.into_iter().collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    const MAPS: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 fd:01 1311  /usr/bin/a b
55d0c0001000-55d0c0002000 r-xp 00001000 fd:01 1311       /usr/bin/a b
55d0c0003000-55d0c0004000 rw-p 00000000 00:00 0  [heap]
7f0000000000-7f0000001000 r-xp 00000000 fd:01 22 /lib/x.so.1
7f0000001000-7f0000002000 r-xp 00001000 fd:01 22 /lib/x.so.1
7f0000002000-7f0000003000 rwxp 00000000 00:00 0
7f0000003000-7f0000004000 r--s 00000000 fd:01 33 /models/m (deleted)
7f0000004000-7f0000005000 r-xp 00000000 fd:01 44 /lib/new\\012line
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0  [vdso]
";

    #[test]
    fn files_that_are_mapped_executable_are_listed_once() {
        let paths = executable(MAPS.as_bytes()).expect("because the kernel writes so");
        let expected = ["/lib/new\nline", "/lib/x.so.1", "/usr/bin/a b"];
        assert_eq!(paths, expected.map(PathBuf::from));
    }

    #[test]
    fn a_process_and_all_that_it_started_are_one_family() {
        let one = |pid, text: &str| parsed(pid, text.as_bytes()).expect("because it is a stat");
        let seen = [
            one(9, "9 (a) b) S 7 9 5 0"),
            one(7, "7 (child) R 5 7 5 0"),
            one(8, "8 (left alone) S 1 8 5 0"),
            one(6, "6 (another) S 1 6 6 0"),
            one(5, "5 (program) S 2 5 5 0"),
        ];
        assert_eq!(descending(5, &seen), [7, 8, 9]);
        assert_eq!(descending(6, &seen), Vec::<u32>::new());
        assert!(one(7, "7 (gone) Z 5 7 5 0").is_over);
        assert_eq!(parsed(7, b"7 child R 5 7 5 0"), None);
    }

    /// A shell that starts another program: what that one is, is seen as of the shell's.
    #[test]
    fn what_a_child_has_mapped_is_found_by_its_parent() {
        let piped = std::process::Stdio::piped;
        let mut shell = std::process::Command::new("/bin/sh")
            .args(["-c", "exec 3<&0; cat <&3 & echo; wait"])
            .stdin(piped())
            .stdout(piped())
            .spawn()
            .expect("because a shell is there");
        // What comes back was copied by the other program, so the shell's child is that one.
        let wrote = shell.stdin.as_mut().map(|to| to.write_all(b"x"));
        let mut lines = [0; 2];
        let read = shell.stdout.as_mut().map(|out| out.read_exact(&mut lines));
        let found = offspring(shell.id());
        let mapped = found.iter().flatten().map(|child| of(*child));
        let mapped: Vec<_> = mapped.collect();
        drop(shell.stdin.take());
        shell.wait().expect("because it is ours");
        assert!(matches!((wrote, read), (Some(Ok(())), Some(Ok(())))));
        let has_cat = |paths: &PathBuf| {
            let name = paths.file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| ["cat", "busybox", "coreutils"].contains(&name))
        };
        let [Ok(paths)] = &mapped[..] else {
            panic!("{found:?}: {mapped:?}");
        };
        assert!(paths.iter().any(has_cat), "{paths:?}");
    }

    #[test]
    fn what_can_not_be_told_is_an_error() {
        let gone = "7f00-7f01 r-xp 00000000 fd:01 44 /lib/gone.so (deleted)\n";
        for (maps, said) in [
            ("", "no program any more"),
            (
                gone,
                "/lib/gone.so (deleted) is mapped, and has no name any more",
            ),
            ("7f00-7f01\n", "unexpected line"),
            ("7f00-7f01 rx 0 0 0 /a\n", "unexpected line"),
        ] {
            let error = executable(maps.as_bytes()).expect_err("because it can't be told");
            assert!(error.contains(said), "{error}");
        }
    }
}
