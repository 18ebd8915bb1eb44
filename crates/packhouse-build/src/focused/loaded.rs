//! What a test really loaded, by the word of the dynamic loader that loaded it.
//!
//! glibc's loader writes with `LD_DEBUG=files` for every process a file of what it maps and
//! initialises, also what a program opens by itself (`dlopen`). The path of an object is in the
//! line before its constructors run; an object without such a line was loaded from a place that is
//! not told.
//!
//! Invariants:
//! - an object that can't be named by an absolute path is *unseen*, never left out;
//! - a second program in a test is unseen: the loader tells only the name it was called by.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What the loader said of all processes of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Objects that were mapped, by path.
    pub objects: BTreeSet<PathBuf>,
    /// Programs that were begun.
    pub programs: u64,
    /// What was loaded and can't be named by a path, in words.
    pub unseen: BTreeSet<String>,
}

impl Loaded {
    /// Adds what the loader wrote of one process.
    pub fn add(&mut self, log: &[u8]) {
        let mut mapped: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for line in log.split(|byte| *byte == b'\n') {
            // A process id and a colon stand before each line.
            let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
                continue;
            };
            let line = &line[tab + 1..];
            if let Some(path) = line.strip_prefix(b"calling init: ") {
                self.initialised(path, &mut mapped);
            } else if let Some(name) = mapped_name(line) {
                self.mapped(name, &mut mapped);
            } else if let Some(name) = line.strip_prefix(b"initialize program: ") {
                self.programs += 1;
                if self.programs > 1 {
                    let name = String::from_utf8_lossy(name).into_owned();
                    self.unseen.insert(format!("program {name}"));
                }
            }
        }
        for (name, count) in mapped {
            if count > 0 {
                let name = String::from_utf8_lossy(&name).into_owned();
                self.unseen.insert(format!("library {name}"));
            }
        }
    }

    /// Whether the loader said anything.
    pub fn was_seen(&self) -> bool {
        self.programs > 0
    }

    fn mapped(&mut self, name: &[u8], mapped: &mut BTreeMap<Vec<u8>, u64>) {
        if name.starts_with(b"/") {
            self.objects.insert(path_of(name));
            return;
        }
        *mapped.entry(base_name(name)).or_default() += 1;
    }

    /// An object found by its bare name has a path from here on.
    fn initialised(&mut self, path: &[u8], mapped: &mut BTreeMap<Vec<u8>, u64>) {
        if !path.starts_with(b"/") {
            return;
        }
        self.objects.insert(path_of(path));
        if let Some(count) = mapped.get_mut(&base_name(path)) {
            *count = count.saturating_sub(1);
        }
    }
}

/// The name in `file=NAME [NAMESPACE];  generating link map`.
fn mapped_name(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"file=")?;
    let rest = rest.strip_suffix(b"];  generating link map")?;
    let open = rest.windows(2).rposition(|pair| pair == b" [")?;
    Some(&rest[..open])
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn base_name(path: &[u8]) -> Vec<u8> {
    let name = Path::new(OsStr::from_bytes(path)).file_name();
    name.map_or_else(|| path.to_vec(), |name| name.as_bytes().to_vec())
}

/// The variable that makes the loader talk.
pub(super) const DEBUG: &str = "LD_DEBUG";
/// What it is to talk about.
pub(super) const DEBUG_FILES: &str = "files";
/// The variable with the beginning of its files' names; a process id follows.
pub(super) const DEBUG_OUTPUT: &str = "LD_DEBUG_OUTPUT";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Loaded {
        let mut loaded = Loaded::default();
        loaded.add(text.as_bytes());
        loaded
    }

    #[test]
    fn libraries_are_seen_however_they_are_loaded() {
        // As glibc 2.36 wrote it of test-backend-ops b11434, shortened.
        let loaded = read(include_str!("testdata/loader.txt"));
        let objects: Vec<_> = loaded.objects.iter().map(|path| path.to_str()).collect();
        let expected = [
            "/engine/libggml-base.so.0",
            "/engine/libggml-cpu.so",
            "/engine/libggml.so.0",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/lib/x86_64-linux-gnu/libgomp.so.1",
            "/lib/x86_64-linux-gnu/libm.so.6",
            "/lib/x86_64-linux-gnu/libstdc++.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(objects, expected.map(Some));
        assert_eq!((loaded.programs, loaded.unseen.len()), (1, 0));
        assert!(loaded.was_seen());
    }

    #[test]
    fn what_has_no_path_is_unseen_and_not_left_out() {
        let said = |text| -> Vec<String> { read(text).unseen.into_iter().collect() };
        let mapped = "  7:\tfile=libx.so [0];  generating link map\n";
        assert_eq!(said(mapped), ["library libx.so"]);
        let relative = format!("{mapped}  7:\tcalling init: ./libx.so\n");
        assert_eq!(said(&relative), ["library libx.so"]);
        let found = format!("{mapped}  7:\tcalling init: /a/libx.so\n");
        assert_eq!(said(&found), [""; 0]);
        let twice = format!("{mapped}{mapped}  7:\tcalling init: /a/libx.so\n");
        assert_eq!(said(&twice), ["library libx.so"]);
        let begun = "  7:\tinitialize program: sh\n  7:\tinitialize program: rm\n";
        assert_eq!(said(begun), ["program rm"]);
        assert!(!read("").was_seen());
    }

    #[test]
    fn a_library_with_a_path_needs_no_constructor() {
        let loaded = read("  7:\tfile=/a/libx [1].so [2];  generating link map\n");
        let expected = BTreeSet::from([PathBuf::from("/a/libx [1].so")]);
        assert_eq!((loaded.objects, loaded.unseen.len()), (expected, 0));
    }
}
