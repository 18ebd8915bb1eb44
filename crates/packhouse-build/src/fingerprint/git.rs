//! What a git work tree holds: its commit, what differs from it, and its submodules.
//!
//! Invariants:
//! - git's answers are read in its forms for programs, with names as bytes;
//! - what differs is hashed from the work tree itself, whatever the index says of it;
//! - files that the index is told not to look at are looked at;
//! - git that can't be asked, or says anything unexpected, is an error.
//!
//! Never: writes to the repository, fetches, runs hooks or monitors.

use super::ask;
use super::digests::Digests;
use super::disk::{self, Kind};
use super::error::FingerprintError;
use super::tree;
use packhouse_sys::child::{Ended, Exit};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Git, and the environment that it gets.
pub(super) struct Git {
    program: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

/// What a file of the work tree is, where it is not what the commit has.
enum Change {
    Deleted,
    There,
    Untracked,
}

/// What the index holds that `status` does not tell.
#[derive(Default)]
struct Index {
    /// Submodules, each with its commit.
    submodules: BTreeMap<PathBuf, String>,
    /// Files that the index is told to take for unchanged.
    hidden: Vec<PathBuf>,
}

impl Git {
    /// Finds git. Errors where there is none.
    pub(super) fn find(
        own: &[(OsString, OsString)],
        folder: &Path,
    ) -> Result<Self, FingerprintError> {
        let environment = ask::environment(own, &SETTINGS);
        let program = ask::find(OsStr::new("git"), &environment);
        let program = program.map_err(|error| failed(folder, "--version", error.to_string()))?;
        Ok(Self {
            program,
            environment,
        })
    }

    /// The top of the work tree that a folder is in.
    pub(super) fn top(&self, folder: &Path) -> Result<PathBuf, FingerprintError> {
        let command = "rev-parse";
        let mut words = self.ask(folder, command, &["--show-toplevel".as_ref()])?;
        if words.pop() != Some(b'\n') || words.is_empty() {
            return Err(failed(folder, command, "no work tree".to_owned()));
        }
        Ok(PathBuf::from(OsStr::from_bytes(&words)))
    }

    /// Whether a work tree ignores a folder of it, by its path below the top.
    pub(super) fn ignores(&self, top: &Path, below: &Path) -> Result<bool, FingerprintError> {
        let arguments = ["-q".as_ref(), "--".as_ref(), below.as_os_str()];
        let command = "check-ignore";
        let ended = self.run(top, command, &arguments)?;
        match ended.exit {
            Exit::Exited(0) => Ok(true),
            Exit::Exited(1) => Ok(false),
            Exit::Exited(_)
            | packhouse_sys::child::Exit::Signalled(_)
            | packhouse_sys::child::Exit::TimedOut => {
                Err(failed(top, command, ask::why(&ended).unwrap_or_default()))
            }
        }
    }

    /// The facts of a work tree. What is untracked below `build` is no source.
    pub(super) fn facts(
        &self,
        top: &Path,
        build: Option<&Path>,
        digests: &Digests<'_>,
    ) -> Result<Value, FingerprintError> {
        self.repository(top, build, digests, 0)
    }

    fn repository(
        &self,
        top: &Path,
        build: Option<&Path>,
        digests: &Digests<'_>,
        depth: usize,
    ) -> Result<Value, FingerprintError> {
        if depth > SUBMODULES_DEEP_MAX {
            let why = format!("submodules more than {SUBMODULES_DEEP_MAX} deep");
            return Err(failed(top, "ls-files", why));
        }
        let status = self.ask(top, "status", &STATUS.map(OsStr::new))?;
        let (commit, mut changes) =
            parse_status(&status).map_err(|why| failed(top, "status", why))?;
        let index = self.ask(top, "ls-files", &["-z", "-v", "-s"].map(OsStr::new))?;
        let index = parse_index(&index).map_err(|why| failed(top, "ls-files", why))?;
        for path in &index.hidden {
            changes.entry(path.clone()).or_insert(Change::There);
        }
        let mut submodules = Map::new();
        for (path, commit) in &index.submodules {
            changes.remove(path);
            let facts = self.submodule(&top.join(path), commit, build, digests, depth)?;
            submodules.insert(disk::text(path), facts);
        }
        let mut files = Vec::new();
        for (path, change) in &changes {
            let whole = top.join(path);
            // A repository in the work tree that is no submodule is listed as a folder.
            let is_folder = path.as_os_str().as_bytes().ends_with(b"/");
            match change {
                Change::Deleted => {}
                Change::Untracked if build.is_some_and(|build| whole.starts_with(build)) => {}
                Change::Untracked if is_folder => {
                    let facts = self.repository(&whole, build, digests, depth + 1)?;
                    submodules.insert(disk::text(path), facts);
                }
                Change::There | Change::Untracked => files.push(whole),
            }
        }
        let seen = tree::contents(&files, digests)?;
        let mut changed = Map::new();
        for (path, change) in &changes {
            let whole = top.join(path);
            let facts = match (change, seen.get(&whole)) {
                (Change::Deleted, _) => json!("deleted"),
                (Change::There | Change::Untracked, Some(facts)) => facts.clone(),
                (Change::There | Change::Untracked, None) => continue,
            };
            changed.insert(disk::text(path), facts);
        }
        Ok(json!({
            "changed": changed,
            "commit": commit,
            "kind": "git",
            "submodules": submodules,
        }))
    }

    /// The commit, and paths in a folder of the work tree that differ from it, submodules looked
    /// into. Files that the index is told not to look at count as different.
    pub(super) fn differing(
        &self,
        top: &Path,
        below: &Path,
    ) -> Result<(Option<String>, Vec<PathBuf>), FingerprintError> {
        self.differing_in(top, below, 0)
    }

    fn differing_in(
        &self,
        top: &Path,
        below: &Path,
        depth: usize,
    ) -> Result<(Option<String>, Vec<PathBuf>), FingerprintError> {
        if depth > SUBMODULES_DEEP_MAX {
            let why = format!("submodules more than {SUBMODULES_DEEP_MAX} deep");
            return Err(failed(top, "ls-files", why));
        }
        // With `./` before it no name is taken for a pattern's magic.
        let folder = Path::new(".").join(below);
        let only = [OsStr::new("--"), folder.as_os_str()];
        let submodules = OsStr::new("--ignore-submodules=none");
        let whole = STATUS.map(OsStr::new);
        let whole = whole.into_iter().chain([submodules]).chain(only);
        let status = self.ask(top, "status", &whole.collect::<Vec<_>>())?;
        let (commit, changes) = parse_status(&status).map_err(|why| failed(top, "status", why))?;
        let listed = ["-z", "-v", "-s"].map(OsStr::new).into_iter().chain(only);
        let words = self.ask(top, "ls-files", &listed.collect::<Vec<_>>())?;
        if words.is_empty() {
            let why = format!("no file of {} is known to it", top.join(below).display());
            return Err(failed(top, "ls-files", why));
        }
        let index = parse_index(&words).map_err(|why| failed(top, "ls-files", why))?;
        let mut changed: Vec<PathBuf> = changes.into_keys().chain(index.hidden).collect();
        for path in index.submodules.into_keys() {
            let inner = top.join(&path);
            if disk::is_there(&inner.join(".git")) {
                let (_, inner) = self.differing_in(&inner, Path::new(""), depth + 1)?;
                changed.extend(inner.into_iter().map(|name| path.join(name)));
            }
        }
        changed.sort();
        changed.dedup();
        Ok((commit, changed))
    }

    fn submodule(
        &self,
        folder: &Path,
        commit: &str,
        build: Option<&Path>,
        digests: &Digests<'_>,
        depth: usize,
    ) -> Result<Value, FingerprintError> {
        if disk::is_there(&folder.join(".git")) {
            return self.repository(folder, build, digests, depth + 1);
        }
        let kind = disk::own_kind(folder).map_err(|error| FingerprintError::Folder {
            path: folder.to_owned(),
            why: error.to_string(),
        })?;
        let files = match kind {
            Some(Kind::Folder) => tree::facts(folder, build, digests)?,
            Some(Kind::File | Kind::Link | Kind::Special) | None => Value::Null,
        };
        Ok(json!({ "commit": commit, "files": files, "kind": "not checked out" }))
    }

    /// Asks git, and takes what it said only where it succeeded.
    fn ask(
        &self,
        folder: &Path,
        command: &'static str,
        arguments: &[&OsStr],
    ) -> Result<Vec<u8>, FingerprintError> {
        let ended = self.run(folder, command, arguments)?;
        match ask::why(&ended) {
            None => Ok(ended.stdout),
            Some(why) => Err(refused(folder, command, why, &ended.stderr)),
        }
    }

    fn run(
        &self,
        folder: &Path,
        command: &'static str,
        arguments: &[&OsStr],
    ) -> Result<Ended, FingerprintError> {
        let options = OPTIONS.iter().map(OsString::from);
        let arguments: Vec<OsString> = options
            .chain([OsString::from(command)])
            .chain(arguments.iter().map(OsString::from))
            .collect();
        ask::ask(&self.program, &arguments, &self.environment, folder)
            .map_err(|error| failed(folder, command, error.to_string()))
    }
}

fn failed(folder: &Path, command: &'static str, why: String) -> FingerprintError {
    FingerprintError::Git {
        folder: folder.to_owned(),
        command,
        why,
        advice: None,
    }
}

/// What git said, and apart from it the command that it advises: the last line of its own that is
/// set in from the left.
fn refused(folder: &Path, command: &'static str, why: String, said: &[u8]) -> FingerprintError {
    let said = String::from_utf8_lossy(said);
    let mut advised = said.lines().filter_map(|line| line.strip_prefix('\t'));
    let advised = advised.rfind(|line| line.starts_with("git "));
    let Some(advised) = advised else {
        return failed(folder, command, why);
    };
    // The line that leads to the command says nothing without it.
    let why = match why.rsplit_once("; ") {
        Some((before, last)) if last.ends_with(':') => before.to_owned(),
        Some(_) | None => why,
    };
    FingerprintError::Git {
        folder: folder.to_owned(),
        command,
        why,
        advice: Some(advised.trim().to_owned()),
    }
}

/// Parses `status --porcelain=v2 --branch -z`: the commit, and each path that differs from it.
fn parse_status(words: &[u8]) -> Result<(Option<String>, BTreeMap<PathBuf, Change>), String> {
    let (mut commit, mut changes) = (None, BTreeMap::new());
    for entry in entries(words)? {
        let unexpected = || format!("unexpected entry {:?}", String::from_utf8_lossy(entry));
        let (kind, rest) = entry.split_at_checked(2).ok_or_else(unexpected)?;
        let fields_before = match kind {
            b"# " => {
                if let Some(oid) = rest.strip_prefix(b"branch.oid ") {
                    commit = Some(String::from_utf8_lossy(oid).into_owned());
                }
                continue;
            }
            b"? " if !rest.is_empty() => {
                changes.insert(path(rest), Change::Untracked);
                continue;
            }
            b"1 " => 7,
            b"u " => 9,
            _ => return Err(unexpected()),
        };
        let fields: Vec<&[u8]> = rest
            .splitn(fields_before + 1, |byte| *byte == b' ')
            .collect();
        // Without a name where the index is damaged, which git does not mind.
        let name = fields.get(fields_before);
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(unexpected)?;
        // The mode in the work tree: the fifth field of one kind, the sixth of the other.
        let mode_at = if kind == b"1 " { 4 } else { 5 };
        let change = match fields[mode_at] {
            b"000000" => Change::Deleted,
            _ => Change::There,
        };
        changes.insert(path(name), change);
    }
    let commit = commit.ok_or("it does not name the commit")?;
    let has_commit = commit != "(initial)";
    Ok((has_commit.then_some(commit), changes))
}

/// Parses `ls-files -z -v -s`: `H 100644 OID STAGE<tab>PATH`.
fn parse_index(words: &[u8]) -> Result<Index, String> {
    let mut index = Index::default();
    for entry in entries(words)? {
        let unexpected = || format!("unexpected entry {:?}", String::from_utf8_lossy(entry));
        let tab = entry.iter().position(|byte| *byte == b'\t');
        let (head, name) = entry.split_at(tab.ok_or_else(unexpected)?);
        let head = std::str::from_utf8(head).map_err(|_| unexpected())?;
        let [tag, mode, oid, _stage] = head.split(' ').collect::<Vec<_>>()[..] else {
            return Err(unexpected());
        };
        let name = path(&name[1..]);
        if mode == SUBMODULE_MODE {
            index.submodules.insert(name, oid.to_owned());
        } else if tag == "S" || tag.chars().all(|letter| letter.is_ascii_lowercase()) {
            index.hidden.push(name);
        }
    }
    Ok(index)
}

/// Entries that each end with a NUL.
fn entries(words: &[u8]) -> Result<impl Iterator<Item = &[u8]>, String> {
    let whole = match words.split_last() {
        None => words,
        Some((0, whole)) => whole,
        Some(_) => return Err("its answer is cut off".to_owned()),
    };
    let entries = whole.split(|byte| *byte == 0);
    Ok(entries.filter(|entry| !entry.is_empty()))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

const SUBMODULE_MODE: &str = "160000";
const SUBMODULES_DEEP_MAX: usize = 16;
/// Whatever the user's configuration says: no monitor, no cache that may be stale, no short cuts in
/// comparing a file's stat with the index.
const OPTIONS: [&str; 10] = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "core.trustctime=true",
    "-c",
    "core.checkStat=default",
    "-c",
    "core.ignoreStat=false",
];
/// Submodules are looked into one by one.
const STATUS: [&str; 7] = [
    "--porcelain=v2",
    "--branch",
    "-z",
    "--untracked-files=all",
    "--ignore-submodules=all",
    "--no-renames",
    "--no-ahead-behind",
];
/// No lock and no write of the index, no question, no network, no other language.
const SETTINGS: [(&str, &str); 6] = [
    // We look for a repository through all folders above, so git must too.
    ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_PAGER", "cat"),
    ("LC_ALL", "C"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStringExt as _;

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(1u8.., 1..12)
    }

    proptest! {
        #[test]
        fn every_name_comes_through_status_and_index(
            names in prop::collection::btree_set(name(), 0..8),
            kinds in prop::collection::vec(0..4u8, 8),
        ) {
            let oid = "1".repeat(40);
            let mut status = format!("# branch.oid {oid}\0# branch.head main\0").into_bytes();
            let mut index = Vec::new();
            let (mut expected, mut hidden) = (Vec::new(), Vec::new());
            for (name, kind) in names.iter().zip(&kinds) {
                let (head, change, tag) = match kind {
                    0 => (format!("1 .M N... 100644 100644 100755 {oid} {oid} "), 'T', 'H'),
                    1 => (format!("1 .D N... 100644 100644 000000 {oid} {oid} "), 'D', 'h'),
                    2 => (format!("u UU N... 1 2 3 100644 {oid} {oid} {oid} "), 'T', 'S'),
                    _ => ("? ".to_owned(), 'U', 'H'),
                };
                let path = PathBuf::from(OsString::from_vec(name.clone()));
                status.extend([head.as_bytes(), name, b"\0"].concat());
                index.extend(format!("{tag} 100644 {oid} 0\t").into_bytes());
                index.extend([name.as_slice(), b"\0"].concat());
                if tag != 'H' {
                    hidden.push(path.clone());
                }
                expected.push((path, change));
            }
            let (commit, changes) = parse_status(&status).expect("because git writes so");
            prop_assert_eq!(commit, Some(oid));
            let word = |change: &Change| match change {
                Change::Deleted => 'D',
                Change::There => 'T',
                Change::Untracked => 'U',
            };
            let seen: BTreeMap<PathBuf, char> =
                changes.iter().map(|(path, change)| (path.clone(), word(change))).collect();
            prop_assert_eq!(seen, expected.into_iter().collect::<BTreeMap<_, _>>());
            let index = parse_index(&index).expect("because git writes so");
            prop_assert_eq!(index.hidden, hidden);
            prop_assert!(index.submodules.is_empty());
        }

        #[test]
        fn other_words_are_refused_or_read_and_never_end_the_process(
            words in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = parse_status(&words);
            let _ = parse_index(&words);
        }
    }

    #[test]
    fn the_command_that_git_advises_is_kept_apart_and_whole() {
        let said = "fatal: detected dubious ownership in repository at '/a b'\n\
                    To add an exception for this directory, call:\n\n\
                    \tgit config --global --add safe.directory '/a b'\n";
        let first = said.lines().next().unwrap_or_default();
        let two: Vec<&str> = said.lines().take(2).collect();
        let why = format!("exit code 128: {}", two.join("; "));
        let error = refused(Path::new("/a b"), "status", why, said.as_bytes());
        let expected = FingerprintError::Git {
            folder: PathBuf::from("/a b"),
            command: "status",
            why: format!("exit code 128: {first}"),
            advice: Some("git config --global --add safe.directory '/a b'".to_owned()),
        };
        assert_eq!(error, expected);
        let plain = refused(
            Path::new("/a"),
            "status",
            "exit code 1: no".to_owned(),
            b"no\n",
        );
        assert_eq!(
            plain,
            failed(Path::new("/a"), "status", "exit code 1: no".to_owned())
        );
    }

    #[test]
    fn what_git_never_writes_is_refused() {
        let oid = "1".repeat(40);
        let good = format!("# branch.oid {oid}\0");
        assert!(parse_status(good.as_bytes()).is_ok());
        for (more, said) in [
            ("", "its answer is cut off"),
            ("2 R. N... \0", "unexpected entry \"2 R. N... \""),
            ("? \0", "unexpected entry \"? \""),
            (
                "1 .M N... 1 2 3 4 5 \0",
                "unexpected entry \"1 .M N... 1 2 3 4 5 \"",
            ),
            ("1 .M a\0", "unexpected entry \"1 .M a\""),
            ("x\0", "unexpected entry \"x\""),
        ] {
            let words = match more {
                "" => good.trim_end_matches('\0').to_owned(),
                more => format!("{good}{more}"),
            };
            let refused = parse_status(words.as_bytes()).map(|_| ());
            assert_eq!(refused, Err(said.to_owned()));
        }
        let without = parse_status(b"# branch.head main\0").map(|_| ());
        assert_eq!(without, Err("it does not name the commit".to_owned()));
        for wrong in ["H 100644 1 0 a\0", "H 100644 1\ta\0", "H 100644 1 0 2\ta\0"] {
            assert!(parse_index(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }
}
