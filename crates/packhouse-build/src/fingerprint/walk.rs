//! Finds the programs and shared libraries of a build.
//!
//! Invariants:
//! - a folder is looked at once, by its real path; links to folders are followed from the build's
//!   own folder only;
//! - a file with several names has one: that of the folder it lies in. Every link stands for what
//!   it says, wherever it leads: names decide what is loaded, and a name may go through folders.

use super::disk::{self, Kind};
use super::elf::{self, Object};
use super::error::FingerprintError;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// A program, library or script of a build.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Its path below the build, as text.
    pub(super) name: String,
    /// Its real path.
    pub(super) path: PathBuf,
    /// Its headers; `None` for a script.
    pub(super) object: Option<Object>,
}

/// All that a build holds.
#[derive(Debug, Default)]
pub(super) struct Build {
    /// Programs, libraries and scripts, by name.
    pub(super) found: Vec<Found>,
    /// Links, by name, with what they say.
    pub(super) links: BTreeMap<String, String>,
    /// Links to programs, libraries and scripts: their own names, and the real paths.
    pub(super) others: Vec<(OsString, PathBuf)>,
}

/// Looks at a folder. Errors when a folder or file of it can't be read.
pub(super) fn walk(top: &Path) -> Result<Build, FingerprintError> {
    let mut build = Build::default();
    let mut seen = BTreeSet::new();
    let mut count = 0;
    let (mut links, mut aliases) = (Vec::new(), Vec::new());
    let mut todo = vec![(top.to_owned(), String::new())];
    while let Some((path, prefix)) = todo.pop().or_else(|| next_link(&mut links, &seen)) {
        if !seen.insert(path.clone()) {
            continue;
        }
        let entries = disk::entries(&path).map_err(|error| folder_error(&path, &error))?;
        count += entries.len();
        if count > ENTRIES_MAX {
            return Err(FingerprintError::TooMany {
                path: top.to_owned(),
                limit: ENTRIES_MAX,
            });
        }
        let is_cargo = entries.iter().any(|entry| entry.name == CARGO_LOCK);
        for entry in entries {
            let text = disk::text(&entry.name);
            let skipped = SKIPPED.contains(&text.as_str())
                || (is_cargo && CARGO_SKIPPED.contains(&text.as_str()));
            let (below, name) = (path.join(&entry.name), format!("{prefix}{text}"));
            match entry.kind {
                Kind::Folder if !skipped => todo.push((below, format!("{name}/"))),
                Kind::File => build.found.extend(file(&below, name)?),
                Kind::Link => {
                    let says = disk::link(&below).map_err(|error| file_error(&below, &error))?;
                    build.links.insert(name.clone(), disk::text(says));
                    match linked(&below)? {
                        Linked::Folder(real) if prefix.is_empty() => {
                            links.push((real, format!("{name}/")));
                        }
                        Linked::File(found) => {
                            build.others.push((entry.name, found.path.clone()));
                            aliases.push(Found { name, ..found });
                        }
                        Linked::Folder(_) | Linked::Other => {}
                    }
                }
                Kind::Folder | Kind::Special => {}
            }
        }
    }
    let mut paths: BTreeSet<PathBuf> = build.found.iter().map(|f| f.path.clone()).collect();
    aliases.sort_by(|one, other| one.name.cmp(&other.name));
    // What lies in another folder is the build's by this name alone.
    let others = aliases.into_iter();
    let others = others.filter(|alias| paths.insert(alias.path.clone()));
    build.found.extend(others);
    build.found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(build)
}

/// A folder that a link of the build's own folder leads to, and that was not looked at.
fn next_link(
    links: &mut Vec<(PathBuf, String)>,
    seen: &BTreeSet<PathBuf>,
) -> Option<(PathBuf, String)> {
    links.retain(|(path, _)| !seen.contains(path));
    links.pop()
}

/// Where a link leads.
enum Linked {
    Folder(PathBuf),
    /// A program, library or script, without its name.
    File(Found),
    Other,
}

fn linked(path: &Path) -> Result<Linked, FingerprintError> {
    let wrong = |error: io::Error| file_error(path, &error);
    // One that leads nowhere, or in a circle, loads nothing.
    let Ok(Some(real)) = disk::real(path) else {
        return Ok(Linked::Other);
    };
    match disk::kind(&real).map_err(wrong)? {
        Some(Kind::Folder) => Ok(Linked::Folder(real)),
        Some(Kind::File) => Ok(match file(&real, String::new())? {
            Some(found) => Linked::File(found),
            None => Linked::Other,
        }),
        Some(Kind::Link | Kind::Special) | None => Ok(Linked::Other),
    }
}

fn file(path: &Path, name: String) -> Result<Option<Found>, FingerprintError> {
    let looked = look(path).map_err(|error| file_error(path, &error))?;
    Ok(looked.map(|object| Found {
        name,
        path: path.to_owned(),
        object,
    }))
}

/// `None`: no program, library or script.
fn look(path: &Path) -> io::Result<Option<Option<Object>>> {
    let file = disk::open(path)?;
    if let Some(object) = elf::object(&file)? {
        return Ok(Some(Some(object)));
    }
    let stat = file.stat().map_err(io::Error::other)?;
    let mut first = [0; 2];
    let read = file.read_full_at(0, &mut first).map_err(io::Error::other)?;
    let is_script = read == first.len() && first == *b"#!" && stat.mode & 0o111 != 0;
    Ok(is_script.then_some(None))
}

fn folder_error(path: &Path, error: &io::Error) -> FingerprintError {
    FingerprintError::Folder {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

fn file_error(path: &Path, error: &io::Error) -> FingerprintError {
    FingerprintError::File {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

/// What compilers and version control leave in a build's folder.
const SKIPPED: [&str; 2] = ["CMakeFiles", ".git"];
/// The mark of a folder of one of cargo's profiles.
const CARGO_LOCK: &str = ".cargo-lock";
/// What cargo keeps there between builds; its results are beside them.
const CARGO_SKIPPED: [&str; 4] = ["deps", "build", "incremental", ".fingerprint"];
const ENTRIES_MAX: usize = 200_000;
