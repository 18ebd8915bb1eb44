//! How the lab's refusals are told: each with its one command that helps.

use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_open::elsewhere;
use packhouse_lab::freeze::{FreezeError, NotFrozen, Unfrozen};
use packhouse_lab::world::{HostError, Mapped};
use packhouse_sys::fs::FsErrorKind;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// Why an experiment can't be frozen, or is not what was frozen.
pub(crate) fn of_freeze(failure: Failure, place: &Place, error: &FreezeError) -> Failure {
    let shown = |path: &str| format!("ls -ld {}", quoted(place.root.join(path)));
    match error {
        FreezeError::Absent { path } => failure.because(error).hint(absent(place, path)),
        FreezeError::NotFile { path, .. } | FreezeError::Folder { path, .. } => {
            failure.because(error).hint(shown(path))
        }
        FreezeError::Document { path, .. } | FreezeError::Misplaced { path, .. } => {
            failure.because(error).hint(edit(place, path))
        }
        FreezeError::Dirty { path, .. } => {
            let path = place.root.join(path);
            failure
                .because(error)
                .hint(format!("git -C {} status", quoted(path)))
        }
        FreezeError::Unfrozen { path, unfrozen } => {
            let all = unfrozen.iter();
            let mut failure = all.fold(failure, |failure, one| failure.cause(one.to_string()));
            for line in paste(unfrozen) {
                failure = failure.cause(line);
            }
            failure.hint(edit(place, path))
        }
        FreezeError::Fixture { .. } => failure.because(error).hint("packhouse fixture ls"),
        FreezeError::Changed { differences } => {
            let all = differences.iter();
            let failure = all.fold(failure, |failure, one| failure.cause(one.to_string()));
            let mut words = differences.iter().map(|one| one.what.as_str());
            let failure = match words.find_map(bytecode) {
                Some(words) => failure.cause(words),
                None => failure,
            };
            failure
                .cause("what is registered may not change: put it back, or register anew")
                .hint(place.hint("state"))
        }
        FreezeError::Host(error) => match error {
            HostError::Git { folder, .. } => failure
                .because(error)
                .hint(format!("git -C {} status", quoted(folder))),
            HostError::NotLoaded { why, .. } if why.contains(UNASKED) => {
                failure.because(error).hint("ulimit -a")
            }
            HostError::NotLoaded { program, .. } => failure
                .because(error)
                .hint(format!("ldd {}", quoted(program))),
            HostError::NoDevice { .. } => failure.because(error).hint("packhouse worker devices"),
            HostError::NoProgram { program, .. } => {
                no_program(failure.because(error), place, program)
            }
            HostError::Unknown { .. } => failure.because(error).hint(of_host(place)),
        },
        FreezeError::Fs(error) => {
            let path = quoted(&error.path);
            failure.because(error).hint(format!("ls -ld {path}"))
        }
    }
}

/// What is said of a loader that could not be started, for too many files or processes are there.
pub(crate) const UNASKED: &str = " can't be asked: ";

/// What to do where Python wrote its bytecode into a frozen folder.
pub(crate) fn bytecode(words: &str) -> Option<String> {
    let spoilt = words.split(' ').find(|word| word.contains(BYTECODE))?;
    let folder = &spoilt[..spoilt.find(BYTECODE)? + BYTECODE.len()];
    Some(format!(
        "Python wrote {folder}: remove it; another experiment can prevent it by {NO_BYTECODE} = \
         \"1\" in the program's environment"
    ))
}

/// The folder of Python's bytecode, beside the modules that were imported.
pub(crate) const BYTECODE: &str = "__pycache__";
/// The variable by which Python writes no bytecode.
pub(crate) const NO_BYTECODE: &str = "PYTHONDONTWRITEBYTECODE";

/// Why markers can't be kept, or not be told from others', with what to do.
pub(crate) fn of_markers(failure: Failure, place: &Place, reason: &str) -> Failure {
    let state = place.state.join("lab");
    let id = state.join("markers/id.json");
    if reason.contains(&format!("{}: holds no id", id.display())) {
        let aside = state.join("id.json.damaged");
        return failure
            .cause("put the file back from a copy; without it another id is made, and a packet")
            .cause("whose nonce names the old one can't be released: it is sealed as an abort")
            .hint(format!("mv {} {}", quoted(&id), quoted(&aside)));
    }
    if reason.contains("set XDG_STATE_HOME") {
        return failure.hint("export XDG_STATE_HOME=~/.local/state");
    }
    let has = |words: &str| reason.contains(words);
    if has("is not known to keep a marker") {
        return elsewhere(failure.cause("a marker must outlast the machine's memory: on a disk"));
    }
    let is = |kind: FsErrorKind| has(&kind.to_string());
    if is(FsErrorKind::NoSpace) || is(FsErrorKind::Quota) {
        return failure.hint(format!("df -h {}", quoted(&state)));
    }
    match is(FsErrorKind::TooLarge) {
        true => failure.hint("ulimit -f"),
        false => failure.hint(format!("ls -ld {}", quoted(&state))),
    }
}

/// The command to edit a document.
pub(crate) fn edit(place: &Place, path: &str) -> String {
    format!("${{EDITOR:-vi}} {}", quoted(place.root.join(path)))
}

/// Where to look for a file that is not there: beside it are those that are.
fn absent(place: &Place, path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["lanes", _] => place.hint("lane ls"),
        ["experiments", _, "prereg.toml"] => place.hint("experiment ls"),
        _ => above(&place.root.join(path)),
    }
}

/// A program that was not found: a bare name is none of the lab's files.
fn no_program(failure: Failure, place: &Place, program: &str) -> Failure {
    let file = place.root.join(program);
    let is_plain = |stat: &Metadata| stat.is_file() && stat.permissions().mode() & 0o111 == 0;
    if program.contains('/') && file.symlink_metadata().is_ok_and(|stat| is_plain(&stat)) {
        return failure.hint(format!("chmod +x {}", quoted(&file)));
    }
    if program.contains('/') {
        return failure.hint(above(&file));
    }
    if file.symlink_metadata().is_err() {
        return failure.hint(format!(
            "PATH=/usr/local/bin:/usr/bin:/bin command -v {program}"
        ));
    }
    let words = format!("{program} is in the lab's folder, where it is called ./{program}");
    failure.cause(words).hint(format!("ls -l {}", quoted(file)))
}

/// The command that lists the nearest folder that is there.
fn above(path: &std::path::Path) -> String {
    let mut folders = path.ancestors().skip(1);
    let there = folders.find(|folder| folder.symlink_metadata().is_ok());
    format!("ls -l {}", quoted(there.unwrap_or(path)))
}

/// The lines of a preregistration that freeze what is there and not frozen.
fn paste(unfrozen: &[Unfrozen]) -> Vec<String> {
    let is_there = |one: &&Unfrozen| matches!(one.why, NotFrozen::Listed | NotFrozen::Committed);
    let listed = unfrozen.iter().filter(is_there);
    let paths: BTreeSet<&str> = listed.map(|one| one.path.as_str()).collect();
    let mut lines: Vec<String> = paths
        .iter()
        .flat_map(|path| ["[[frozen]]".to_owned(), format!("path = {path:?}")])
        .collect();
    if !lines.is_empty() {
        lines.insert(0, "these lines freeze it:".to_owned());
    }
    lines
}

/// How what a program has mapped is frozen: where it lies, by a copy below the lab where it is
/// elsewhere. A line for each, none where nothing is to be told.
pub(crate) fn freezing(place: &Place, unfrozen: &[Mapped]) -> String {
    let below = |mapped: &Mapped| Some(mapped.path.strip_prefix(&place.root).ok()?.to_path_buf());
    let others = unfrozen.iter().filter(|mapped| below(mapped).is_none());
    let others: Vec<String> = others.map(|mapped| quoted(&mapped.path)).collect();
    let mut paths: Vec<PathBuf> = unfrozen.iter().filter_map(below).collect();
    if unfrozen.is_empty() {
        return String::new();
    }
    let mut text = "another experiment can freeze what was mapped:\n".to_owned();
    if !others.is_empty() {
        paths.push(PathBuf::from(COPIES));
        let folder = quoted(place.root.join(COPIES));
        let files = others.join(" ");
        let _ = writeln!(text, "mkdir -p {folder} && cp {files} {folder}");
    }
    for path in paths {
        let path = path.display().to_string();
        let _ = writeln!(text, "[[frozen]]\npath = {path:?}");
    }
    text
}

/// Folder of a lab for copies of what interpreters load.
const COPIES: &str = "loaded";

/// The command where the host is in the way.
pub(crate) fn of_host(place: &Place) -> String {
    format!("df -h {}", quoted(&place.root))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk under the markers was told with a command that lists a folder.
    #[test]
    fn what_keeps_a_marker_from_being_written_is_measured() {
        let state = |_: &str| Some("/nosuch".into());
        let place = Place::at("/nosuch/lab".into(), &state).expect("because it has a home");
        let hint = |reason: &str| {
            let failure = of_markers(Failure::new("not run", "one"), &place, reason).to_string();
            let (_, hint) = failure.split_once("hint: ").expect("because it has one");
            hint.trim_end().to_owned()
        };
        let lab = "/nosuch/packhouse/lab";
        let full = hint("write /nosuch/x: no space left on device");
        assert_eq!(full, format!("df -h {lab}"));
        assert_eq!(hint("write x: quota exceeded"), format!("df -h {lab}"));
        assert_eq!(
            hint("write x: longer than a file may be here (ulimit -f)"),
            "ulimit -f"
        );
        assert_eq!(hint("x has mode 0777, not 0700"), format!("ls -ld {lab}"));
    }
}
