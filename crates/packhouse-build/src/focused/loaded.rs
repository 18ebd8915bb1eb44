//! What a test really loaded, by the word of the dynamic loader that loaded it.
//!
//! glibc's loader writes with `LD_DEBUG=files` for every process a file of what it maps and
//! initialises, also what a program opens by itself (`dlopen`). The path of an object is in the
//! line before its constructors run; an object without such a line was loaded from a place that is
//! not told.
//!
//! Invariants:
//! - an object that can't be named by an absolute path is *unseen*, never left out;
//! - a second program in a test is unseen: the loader tells only the name it was called by;
//! - an account is whole only if the loader came to its program's end: a program that closes the
//!   loader's descriptor, becomes another or ends at once leaves one that is not.

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
    /// Those that the loader followed to their end.
    pub ended: u64,
    /// What was loaded and can't be named by a path, in words.
    pub unseen: BTreeSet<String>,
}

/// What one process mapped and has not initialised yet.
#[derive(Default)]
struct Mapped {
    /// By absolute path.
    absolute: BTreeMap<Vec<u8>, u64>,
    /// By a name that is none, under its base name.
    named: BTreeMap<Vec<u8>, u64>,
    /// The program and its process id, as the loader wrote them.
    program: Option<(Vec<u8>, Vec<u8>)>,
}

impl Loaded {
    /// Adds what the loader wrote of one process.
    pub fn add(&mut self, log: &[u8]) {
        let mut mapped = Mapped::default();
        for line in log.split(|byte| *byte == b'\n') {
            // A process id and a colon stand before each line.
            let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
                continue;
            };
            let (process, line) = (&line[..tab], &line[tab + 1..]);
            if let Some(path) = line.strip_prefix(b"calling init: ") {
                self.initialised(path, &mut mapped);
            } else if let Some(name) = mapped_name(line) {
                self.mapped(name, &mut mapped);
            } else if let Some(name) = line.strip_prefix(b"initialize program: ") {
                self.begun(process, name, &mut mapped);
            } else if let Some(name) = line.strip_prefix(b"calling fini: ") {
                self.ended(process, name, &mut mapped);
            }
        }
        for (name, count) in mapped.named {
            if count > 0 {
                self.library(&name);
            }
        }
    }

    /// Whether the loader said anything.
    pub fn was_seen(&self) -> bool {
        self.programs > 0
    }

    /// Whether the loader followed every program that it began to its end.
    pub fn is_whole(&self) -> bool {
        self.ended == self.programs
    }

    fn library(&mut self, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        self.unseen.insert(format!("library {name}"));
    }

    fn begun(&mut self, process: &[u8], name: &[u8], mapped: &mut Mapped) {
        self.programs += 1;
        mapped.program = Some((process.to_vec(), name.to_vec()));
        if self.programs > 1 {
            let name = String::from_utf8_lossy(name);
            self.unseen.insert(format!("program {name}"));
        }
    }

    /// The program's own end is told without its name, or with the one it was called by. A process
    /// that it split off has another id.
    fn ended(&mut self, process: &[u8], name: &[u8], mapped: &mut Mapped) {
        let name = name.strip_suffix(b" [0]").unwrap_or(name);
        let is_own = |(own, program): &(Vec<u8>, Vec<u8>)| {
            own == process && (name.is_empty() || name == UNNAMED || name == program)
        };
        if mapped.program.take_if(|program| is_own(program)).is_some() {
            self.ended += 1;
        }
    }

    fn mapped(&mut self, name: &[u8], mapped: &mut Mapped) {
        if name.starts_with(b"/") {
            self.objects.insert(path_of(name));
            *mapped.absolute.entry(name.to_vec()).or_default() += 1;
            return;
        }
        *mapped.named.entry(base_name(name)).or_default() += 1;
    }

    /// An object found by its bare name has a path from here on; one that was mapped by this very
    /// path is not it.
    fn initialised(&mut self, path: &[u8], mapped: &mut Mapped) {
        if !path.starts_with(b"/") {
            self.library(path);
            return;
        }
        self.objects.insert(path_of(path));
        let count = match mapped.absolute.get_mut(path) {
            Some(count) if *count > 0 => Some(count),
            Some(_) | None => mapped.named.get_mut(&base_name(path)),
        };
        if let Some(count) = count {
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

/// What glibc calls a program without a name.
const UNNAMED: &[u8] = b"<main program>";
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
        assert_eq!(said(&relative), ["library ./libx.so", "library libx.so"]);
        let found = format!("{mapped}  7:\tcalling init: /a/libx.so\n");
        assert_eq!(said(&found), [""; 0]);
        let twice = format!("{mapped}{mapped}  7:\tcalling init: /a/libx.so\n");
        assert_eq!(said(&twice), ["library libx.so"]);
        let begun = "  7:\tinitialize program: sh\n  7:\tinitialize program: rm\n";
        assert_eq!(said(begun), ["program rm"]);
        assert!(!read("").was_seen());
    }

    #[test]
    fn one_library_is_not_taken_for_another_of_its_name() {
        let map = |name: &str| format!("  7:\tfile={name} [0];  generating link map\n");
        let init = |name: &str| format!("  7:\tcalling init: {name}\n");
        let (relative, absolute) = (map("./libk.so"), map("/b/libk.so"));
        let text = [relative, absolute, init("/b/libk.so")].concat();
        let loaded = read(&text);
        let unseen: Vec<_> = loaded.unseen.iter().collect();
        assert_eq!(unseen, ["library libk.so"]);
        let found = [map("libk.so"), map("/b/libk.so"), init("/b/libk.so")].concat();
        assert_eq!(read(&found).unseen.len(), 1);
        assert!(read(&(found + &init("/a/libk.so"))).unseen.is_empty());
        let unseen = read(&init("./libk.so")).unseen;
        assert!(unseen.contains("library ./libk.so"), "{unseen:?}");
    }

    #[test]
    fn an_account_without_its_programs_end_is_not_whole() {
        let begun = "     7:\tinitialize program: ./t\n";
        let end = |line: &str| read(&format!("{begun}{line}")).is_whole();
        assert!(end("     7:\tcalling fini:  [0]\n"));
        assert!(end("     7:\tcalling fini: ./t [0]\n"));
        assert!(end("     7:\tcalling fini: <main program> [0]\n"));
        // None; of a library that was closed; of a process that was split off.
        assert!(!end(""));
        assert!(!end("     7:\tcalling fini: /a/libx.so [0]\n"));
        assert!(!end("     8:\tcalling fini:  [0]\n"));
        let twice = format!("{begun}{begun}     7:\tcalling fini:  [0]\n");
        assert!(!read(&twice).is_whole(), "one program became another");
    }

    #[test]
    fn a_library_with_a_path_needs_no_constructor() {
        let loaded = read("  7:\tfile=/a/libx [1].so [2];  generating link map\n");
        let expected = BTreeSet::from([PathBuf::from("/a/libx [1].so")]);
        assert_eq!((loaded.objects, loaded.unseen.len()), (expected, 0));
    }
}
