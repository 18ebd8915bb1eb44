//! What a program or library would load, by the dynamic loader that it names.
//!
//! Invariants:
//! - the loader is the one that will load it, and has the environment that it will have then;
//! - its answer is read whole or not at all.
//!
//! Never: runs the program. The loader maps what it finds and lists it.

use super::ask;
use super::elf::Object;
use super::error::FingerprintError;
use packhouse_sys::child::{Exit, StartError};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What an object would load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loads {
    /// These, by the name that was asked for; none where it is static.
    Listed(Vec<(OsString, PathBuf)>),
    /// It can't be loaded in this environment: a library is missing, say.
    Refused {
        /// What the loader said.
        why: String,
    },
    /// Its loader can't be asked here.
    Unknown {
        /// Why.
        why: String,
    },
}

/// What a name finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finds {
    /// This file.
    File(PathBuf),
    /// Nothing, or nothing new: what is loaded already goes by this name.
    Nothing,
    /// Something that can't be loaded.
    Refused {
        /// What the loader said.
        why: String,
    },
    /// The loader can't be asked.
    Unknown {
        /// Why.
        why: String,
    },
}

/// Asks the loader of an object. `others` names the loaders of the build's programs, by machine,
/// for libraries, which name none. Errors when the loader crashes or can't be understood.
pub(super) fn loads(
    path: &Path,
    object: &Object,
    others: &[(Object, PathBuf)],
    environment: &[(OsString, OsString)],
) -> Result<Loads, FingerprintError> {
    listed(path, object, others, environment).map(|(loads, _)| loads)
}

/// Asks the loader of an object what names find, as if it were linked with them. `None`: it did not
/// say so of this one, which another one may have brought in; asked for alone, nothing new is found
/// by it. `Refused`: one of them can't be loaded, for which reason no others are answered.
pub(super) fn finds(
    path: &Path,
    object: &Object,
    others: &[(Object, PathBuf)],
    environment: &[(OsString, OsString)],
    names: &[&OsString],
) -> Result<Vec<Option<Finds>>, FingerprintError> {
    let environment = preloading(environment, names.iter().copied());
    let (loads, said) = listed(path, object, others, &environment)?;
    let found = match loads {
        Loads::Listed(found) => found,
        Loads::Refused { why } if names.len() == 1 => {
            return Ok(vec![Some(Finds::Refused { why })]);
        }
        Loads::Refused { .. } => return Ok(vec![None; names.len()]),
        Loads::Unknown { why } => return Ok(vec![Some(Finds::Unknown { why }); names.len()]),
    };
    let said = String::from_utf8_lossy(&said);
    let of = |name: &&OsString| {
        let mut found = found.iter();
        if let Some((_, path)) = found.find(|(found, _)| found == *name) {
            return Some(Finds::File(path.clone()));
        }
        let start = format!("{PRELOAD_FAILED}'{}' ", name.to_string_lossy());
        let line = said.lines().find(|line| line.starts_with(&start))?;
        Some(match line.ends_with(NOT_MINDED) {
            true => Finds::Nothing,
            false => Finds::Refused {
                why: line.to_owned(),
            },
        })
    };
    Ok(names.iter().map(of).collect())
}

/// An environment in which these are loaded before anything but what it has loaded first already.
pub(super) fn preloading<'a>(
    environment: &[(OsString, OsString)],
    names: impl IntoIterator<Item = &'a OsString>,
) -> Vec<(OsString, OsString)> {
    let mut environment = environment.to_vec();
    let given = environment.iter().find(|(name, _)| name == PRELOAD);
    let mut preload = given.map(|(_, value)| value.clone()).unwrap_or_default();
    for name in names {
        preload.push(":");
        preload.push(name);
    }
    environment.retain(|(name, _)| name != PRELOAD);
    environment.push((PRELOAD.into(), preload));
    environment
}

/// The loader of an object.
pub(super) fn of(object: &Object, others: &[(Object, PathBuf)]) -> Option<PathBuf> {
    let of_others = || {
        let same = |(other, _): &&(Object, PathBuf)| other.machine == object.machine;
        others.iter().find(same).map(|(_, loader)| loader.clone())
    };
    let usual = || {
        let usual = LOADERS
            .iter()
            .find(|(machine, _)| *machine == object.machine);
        usual.map(|(_, loader)| PathBuf::from(loader))
    };
    object.interpreter.clone().or_else(of_others).or_else(usual)
}

/// What an object would load, and what its loader said besides.
fn listed(
    path: &Path,
    object: &Object,
    others: &[(Object, PathBuf)],
    environment: &[(OsString, OsString)],
) -> Result<(Loads, Vec<u8>), FingerprintError> {
    if !object.is_dynamic || (object.is_program && object.interpreter.is_none()) {
        return Ok((Loads::Listed(Vec::new()), Vec::new()));
    }
    let Some(loader) = of(object, others) else {
        let why = format!(
            "no dynamic loader is known for machine {}",
            object.machine.0
        );
        return Ok((Loads::Unknown { why }, Vec::new()));
    };
    let failed = |why: String| FingerprintError::Loader {
        path: path.to_owned(),
        why,
    };
    let arguments = [OsString::from("--list"), path.as_os_str().to_owned()];
    let ended = match ask::ask(&loader, &arguments, environment, Path::new("/")) {
        Ok(ended) => ended,
        Err(StartError::Program { reason, .. }) => {
            let why = format!("{} can't be asked: {reason}", loader.display());
            return Ok((Loads::Unknown { why }, Vec::new()));
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    match ended.exit {
        Exit::Exited(0) if !ended.was_cut => {
            let mut listed = parse(&ended.stdout).map_err(failed)?;
            // It is loaded by a program that needs nothing else too, and not listed then.
            if let Some(own) = object.interpreter.clone()
                && listed.is_empty()
            {
                listed.push((own.clone().into_os_string(), own));
            }
            Ok((Loads::Listed(listed), ended.stderr))
        }
        Exit::Exited(1 | 127) => {
            let why = refusal(&ended.stderr, path);
            Ok((Loads::Refused { why }, ended.stderr))
        }
        Exit::Exited(_) | Exit::Signalled(_) | Exit::TimedOut => {
            Err(failed(ask::why(&ended).unwrap_or_default()))
        }
    }
}

/// What of an environment the loader is given: what makes it explain itself, or run code of others
/// to audit, is not.
pub(super) fn environment(whole: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let kept = whole.iter().filter(|(name, _)| {
        let name = name.as_bytes();
        !LEFT_OUT.iter().any(|left_out| name == left_out.as_bytes())
    });
    kept.cloned().collect()
}

/// Parses lines of a tab, a name, ` => ` and a path or a path alone, and an address in brackets.
/// Names may hold line ends: a line ends with its address. What the kernel provides has no path.
fn parse(words: &[u8]) -> Result<Vec<(OsString, PathBuf)>, String> {
    let mut listed = Vec::new();
    if words == NOTHING_LISTED {
        return Ok(listed);
    }
    let mut rest = words;
    while !rest.is_empty() {
        let unexpected = || {
            let shown = &rest[..rest.len().min(SHOWN_BYTES)];
            format!("unexpected line {:?}", String::from_utf8_lossy(shown))
        };
        let length = line_length(rest).ok_or_else(unexpected)?;
        let (line, after) = rest.split_at(length);
        let line = line.strip_prefix(b"\t").ok_or_else(unexpected)?;
        let end = find(line, b" (0x", true).ok_or_else(unexpected)?;
        let line = &line[..end];
        let (name, path) = match find(line, ARROW, false) {
            Some(at) => (&line[..at], &line[at + ARROW.len()..]),
            None => (line, line),
        };
        if path.starts_with(b"/") {
            let path = PathBuf::from(OsStr::from_bytes(path));
            listed.push((OsStr::from_bytes(name).to_owned(), path));
        } else if path != name {
            return Err(unexpected());
        }
        rest = after;
    }
    Ok(listed)
}

/// Bytes of the first line, which ends with ` (0x...)` and a line end.
fn line_length(words: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += words[at..].iter().position(|byte| *byte == b'\n')? + 1;
        let line = words[..at - 1].strip_suffix(b")");
        let address = line.and_then(|line| Some(&line[find(line, b" (0x", true)? + 4..]));
        let is_end = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
        if address.is_some_and(is_end) {
            return Some(at);
        }
    }
}

fn find(words: &[u8], what: &[u8], last: bool) -> Option<usize> {
    let mut windows = words.windows(what.len());
    match last {
        true => windows.rposition(|window| window == what),
        false => windows.position(|window| window == what),
    }
}

/// What the loader said, without the path of what it was asked about, and without what it did not
/// mind.
fn refusal(words: &[u8], path: &Path) -> String {
    let words = String::from_utf8_lossy(words);
    let own = format!("{}: ", path.display());
    let lines = words.lines();
    let lines = lines.map(|line| line.strip_prefix(&own).unwrap_or(line));
    let lines = lines.filter(|line| !line.ends_with(NOT_MINDED));
    let lines: Vec<&str> = lines.take(LINES_KEPT).collect();
    lines.join("\n")
}

const PRELOAD: &str = "LD_PRELOAD";
/// How glibc's word of a library begins that was to be loaded first and can't be.
const PRELOAD_FAILED: &str = "ERROR: ld.so: object ";
/// How glibc's word of a library ends that was to be loaded first and is not there.
const NOT_MINDED: &str = "cannot be preloaded (cannot open shared object file): ignored.";
/// What glibc lists of an object that needs no library.
const NOTHING_LISTED: &[u8] = b"\tstatically linked\n";
const ARROW: &[u8] = b" => ";
const SHOWN_BYTES: usize = 80;
const LINES_KEPT: usize = 16;
/// ELF machine and class, and where glibc's loader is for them.
const LOADERS: [((u16, bool), &str); 4] = [
    ((62, true), "/lib64/ld-linux-x86-64.so.2"),
    ((183, true), "/lib/ld-linux-aarch64.so.1"),
    ((3, false), "/lib/ld-linux.so.2"),
    ((243, true), "/lib/ld-linux-riscv64-lp64d.so.1"),
];
const LEFT_OUT: [&str; 9] = [
    "LD_AUDIT",
    "LD_BIND_NOW",
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_PROFILE",
    "LD_SHOW_AUXV",
    "LD_TRACE_LOADED_OBJECTS",
    "LD_VERBOSE",
    "LD_WARN",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_lists_is_read_whole_or_not_at_all() {
        let words = b"\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
            \tlibx.so => /a\nb => (0x1) c/libx.so (0x7f)\n\
            \t/opt/pre.so (0x7f00)\n";
        let pair = |name: &str, path: &str| (OsString::from(name), PathBuf::from(path));
        let listed = parse(words).expect("because it is whole");
        let expected = [
            pair("libc.so.6", "/lib/libc.so.6"),
            pair("libx.so", "/a\nb => (0x1) c/libx.so"),
            pair("/opt/pre.so", "/opt/pre.so"),
        ];
        assert_eq!(listed, expected);
        assert_eq!(parse(b"\tstatically linked\n"), Ok(Vec::new()));
        for (wrong, said) in [
            (
                "\tlibx.so => not found\n",
                "unexpected line \"\\tlibx.so => not found\\n\"",
            ),
            (
                "libx.so => /x (0x1)\n",
                "unexpected line \"libx.so => /x (0x1)\\n\"",
            ),
            (
                "\tlibx.so => x (0x1)\n",
                "unexpected line \"\\tlibx.so => x (0x1)\\n\"",
            ),
            (
                "\tlibx.so => /x (0x1)",
                "unexpected line \"\\tlibx.so => /x (0x1)\"",
            ),
        ] {
            assert_eq!(parse(wrong.as_bytes()), Err(said.to_owned()));
        }
    }

    #[test]
    fn a_refusal_does_not_name_the_place_of_what_was_refused() {
        let words = b"/b/prog: error while loading shared libraries: liba.so: no such file\n";
        let said = refusal(words, Path::new("/b/prog"));
        assert_eq!(
            said,
            "error while loading shared libraries: liba.so: no such file"
        );
    }
}
