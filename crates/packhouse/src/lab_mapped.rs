//! The lines of `/proc/PID/maps` that are executable files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

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
