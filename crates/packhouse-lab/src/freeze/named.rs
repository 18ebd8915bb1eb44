//! Files of the lab that a program is told of by an argument or a variable: an interpreter's
//! script, a model, a folder of modules. What is not frozen could be another one at the run.
//!
//! Specified in `docs/format/lab.md`, section 4.

use super::{FreezeError, files};
use crate::packet::{CANDIDATE, CONTROL};
use crate::prereg::{LAB_WORD, Prereg, Program};
use packhouse_sys::fs::{Dir, FsErrorKind};
use std::fmt;

/// A word of a program that names what no packet would freeze.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfrozen {
    /// The path below the lab's folder, as the word has it.
    pub path: String,
    /// `control` or `candidate`.
    pub program: &'static str,
    /// `argument N` from 1, or `variable NAME`.
    pub word: String,
    /// What is wrong.
    pub why: NotFrozen,
}

/// Why a path that a word names is not frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFrozen {
    /// It is there, and the preregistration does not list it.
    Listed,
    /// It is not there, and could be at the run.
    Absent,
    /// It is the lab's folder itself, or leads out of a folder by `..`.
    Outside,
}

impl fmt::Display for Unfrozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            program,
            word,
            why,
        } = self;
        write!(f, "{path}: {word} of the {program} names it, and ")?;
        f.write_str(match why {
            NotFrozen::Listed => "it is not frozen",
            NotFrozen::Absent => "it is neither there nor below a frozen folder",
            NotFrozen::Outside => "the lab as a whole, and what is around it, can't be frozen",
        })
    }
}

/// Refuses a preregistration whose programs are told of files of the lab that are not frozen.
pub(super) fn all(root: &Dir, prereg: &Prereg) -> Result<(), FreezeError> {
    let control = prereg.control.iter().map(|program| (CONTROL, program));
    let mut unfrozen: Vec<Unfrozen> = Vec::new();
    for (role, program) in control.chain([(CANDIDATE, &prereg.candidate)]) {
        if *program == Program::null() {
            continue;
        }
        let arguments = program.arguments.iter().enumerate();
        let arguments = arguments.map(|(at, word)| (format!("argument {}", at + 1), word));
        let variables = program.environment.iter();
        let variables = variables.map(|(name, word)| (format!("variable {name}"), word));
        for (place, word) in arguments.chain(variables) {
            for (path, why) in of_word(root, prereg, word)? {
                unfrozen.push(Unfrozen {
                    path,
                    program: role,
                    word: place.clone(),
                    why,
                });
            }
        }
    }
    match unfrozen.is_empty() {
        true => Ok(()),
        false => Err(FreezeError::Unfrozen {
            path: super::prereg_path(&prereg.id),
            unfrozen,
        }),
    }
}

/// The paths that a word names and that are not frozen.
fn of_word(
    root: &Dir,
    prereg: &Prereg,
    word: &str,
) -> Result<Vec<(String, NotFrozen)>, FreezeError> {
    let mut found = Vec::new();
    // What follows the lab's folder is a path of the lab, there or not.
    let mut parts = word.split(LAB_WORD);
    let mut others = pieces(parts.next().unwrap_or_default());
    for rest in parts {
        found.extend(below_lab(root, prereg, rest)?);
        others.extend(rest.split(SEPARATORS).skip(1));
    }
    // The rest may be one, as a program's working folder is the lab's.
    for piece in others {
        let is_outside = piece.split('/').any(|part| part == "..");
        match plain(piece) {
            None if is_outside || piece.starts_with('.') => {
                found.push((piece.to_owned(), NotFrozen::Outside));
            }
            Some(path) if !is_frozen(prereg, &path) && is_path_there(root, &path)? => {
                found.push((path, NotFrozen::Listed));
            }
            Some(_) | None => {}
        }
    }
    found.dedup();
    Ok(found)
}

/// What follows `${lab}` in a word: every path that it can be read as.
fn below_lab(
    root: &Dir,
    prereg: &Prereg,
    rest: &str,
) -> Result<Option<(String, NotFrozen)>, FreezeError> {
    let ends = rest.match_indices(SEPARATORS).map(|(at, _)| at);
    let mut first = None;
    let mut is_any_there = false;
    for end in ends.chain([rest.len()]) {
        let text = &rest[..end];
        let path = match text.strip_prefix('/').map(plain) {
            Some(Some(path)) => path,
            Some(None) | None => {
                let path = format!("{LAB_WORD}{text}");
                return Ok(Some((path, NotFrozen::Outside)));
            }
        };
        let is_frozen = is_frozen(prereg, &path);
        let is_there = is_path_there(root, &path)?;
        is_any_there |= is_there;
        if is_there && !is_frozen {
            return Ok(Some((path, NotFrozen::Listed)));
        }
        if !is_frozen && first.is_none() {
            first = Some(path);
        }
        // A frozen folder keeps what is not in it from coming there.
        is_any_there |= is_frozen;
    }
    let absent = first.filter(|_| !is_any_there);
    Ok(absent.map(|path| (path, NotFrozen::Absent)))
}

/// A path without `.` and doubled `/`. `None`: nothing is left of it, or it has `..`.
fn plain(text: &str) -> Option<String> {
    let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = parts.collect();
    match parts.is_empty() || parts.contains(&"..") {
        true => None,
        false => Some(parts.join("/")),
    }
}

/// The whole word, and what stands between its separators.
fn pieces(word: &str) -> Vec<&str> {
    let mut pieces = vec![word];
    pieces.extend(word.split(SEPARATORS).filter(|piece| *piece != word));
    pieces
}

fn is_frozen(prereg: &Prereg, path: &str) -> bool {
    let is_below = |folder: &String| {
        path.strip_prefix(folder.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let programs = prereg.control.iter().chain([&prereg.candidate]);
    let mut programs = programs.map(|program| program.program.as_str());
    programs.any(|program| program.contains('/') && plain(program).as_deref() == Some(path))
        || prereg.frozen.iter().chain(&prereg.commits).any(is_below)
}

/// Whether the lab has something under a path; a link on its way is something.
fn is_path_there(root: &Dir, path: &str) -> Result<bool, FreezeError> {
    if path.split('/').any(|part| part.len() > NAME_BYTES_MAX) {
        return Ok(false);
    }
    match files::stat(root, path) {
        Ok(_) => Ok(true),
        Err(error) => match error.kind {
            FsErrorKind::NotFound | FsErrorKind::NotDirectory => Ok(false),
            FsErrorKind::Symlink => Ok(true),
            _ => Err(FreezeError::Fs(error)),
        },
    }
}

/// What separates paths in a word.
const SEPARATORS: &[char] = &[':', '=', ',', ';', '"', '\'', ' '];
/// No file system of Linux has longer names.
const NAME_BYTES_MAX: usize = 255;
