//! Files of the lab that a program is told of by an argument or a variable: an interpreter's
//! script, a model, a folder of modules. What is not frozen could be another one at the run.
//!
//! Specified in `docs/format/lab.md`, section 4.

use super::held::is_in;
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
    /// It is there, and below a `[[commit]]` path alone.
    Committed,
    /// It is not there, and could be at the run.
    Absent,
    /// It is the lab's folder itself, or leads out of a folder by `..`.
    Outside,
    /// Its word can be read as more paths than are looked for.
    Countless,
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
            NotFrozen::Committed => {
                "only a commit has it, which holds nothing of what Git ignores or filters: freeze \
                 it"
            }
            NotFrozen::Absent => "it is neither there nor below a frozen folder",
            NotFrozen::Outside => "the lab as a whole, and what is around it, can't be frozen",
            NotFrozen::Countless => {
                "the word can be read as more than 4096 paths of the lab, which is too many to \
                 look for: put what it says into a file of its own"
            }
        })
    }
}

/// Refuses a preregistration whose programs are told of files of the lab that are not frozen.
pub(super) fn all(root: &Dir, prereg: &Prereg) -> Result<(), FreezeError> {
    let control = prereg.control.iter().map(|program| (CONTROL, program));
    let mut unfrozen: Vec<Unfrozen> = Vec::new();
    let names = root.list()?;
    let names: Vec<&str> = names.iter().filter_map(|name| name.to_str()).collect();
    for (role, program) in control.chain([(CANDIDATE, &prereg.candidate)]) {
        if *program == Program::null() {
            continue;
        }
        let arguments = program.arguments.iter().enumerate();
        let arguments = arguments.map(|(at, word)| (format!("argument {}", at + 1), word));
        let variables = program.environment.iter();
        let variables = variables.map(|(name, word)| (format!("variable {name}"), word));
        for (place, word) in arguments.chain(variables) {
            let of_word = of_word(root, prereg, &names, word)?;
            let of_entry = place.ends_with("PATH") && word.split(':').any(str::is_empty);
            let of_entry = of_entry.then(|| ("an empty entry".to_owned(), NotFrozen::Outside));
            for (path, why) in of_word.into_iter().chain(of_entry) {
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

/// The paths that a word names and that are not frozen. `names` are the lab's own entries.
fn of_word(
    root: &Dir,
    prereg: &Prereg,
    names: &[&str],
    word: &str,
) -> Result<Vec<(String, NotFrozen)>, FreezeError> {
    let mut found: Vec<(String, NotFrozen)> = Vec::new();
    // What follows the lab's folder is a path of the lab, there or not.
    for rest in word.split(LAB_WORD).skip(1) {
        found.extend(below_lab(root, prereg, rest)?);
    }
    // The rest may be one, as a program's working folder is the lab's.
    let others = match others(names, word) {
        Ok(others) => others,
        Err(piece) => return Ok(vec![(piece.to_owned(), NotFrozen::Countless)]),
    };
    for piece in others {
        let is_outside = piece.split('/').any(|part| part == "..");
        let named = match plain(piece) {
            None if is_outside || piece.starts_with('.') => {
                Some((piece.to_owned(), NotFrozen::Outside))
            }
            Some(path) if !is_frozen(prereg, &path) && is_path_there(root, &path)? => {
                let why = there(prereg, &path);
                Some((path, why))
            }
            Some(_) | None => None,
        };
        found.extend(named.filter(|named| !found.contains(named)));
    }
    Ok(found)
}

/// Parts of a word that may be relative paths; one of them where they are too many to look for.
fn others<'w>(names: &[&str], word: &'w str) -> Result<Vec<&'w str>, &'w str> {
    let mut parts = word.split(LAB_WORD);
    let first = parts.next().unwrap_or_default();
    let mut others = pieces(first);
    others.extend(any_pieces(names, first, 0)?);
    for rest in parts {
        others.extend(rest.split(SEPARATORS).skip(1));
        let end = rest.find(is_cut).unwrap_or(rest.len());
        others.extend(any_pieces(names, rest, end)?);
    }
    Ok(others)
}

/// Parts of a word that begin with an entry of the lab or lead out of it, and stand between any two
/// bytes that few paths have: `@FILE`, `<FILE`, `(FILE)`, `FILE#1` and `-XFILE` name a file too. A
/// part that ends before `from` is none.
fn any_pieces<'w>(names: &[&str], word: &'w str, from: usize) -> Result<Vec<&'w str>, &'w str> {
    let cuts = word.char_indices().filter(|(_, byte)| is_cut(*byte));
    let cuts: Vec<(usize, char)> = cuts.filter(|(at, _)| *at >= from).collect();
    let mut starts: Vec<usize> = cuts.iter().map(|(at, cut)| at + cut.len_utf8()).collect();
    if from == 0 {
        starts.push(0);
    }
    let is_option = |start: &&usize| {
        let mut letters = word[**start..].chars();
        letters.next() == Some('-') && letters.next().is_some_and(|one| one.is_ascii_alphabetic())
    };
    let options: Vec<usize> = starts
        .iter()
        .filter(is_option)
        .map(|start| start + 2)
        .collect();
    starts.extend(options);
    let begins = |start: &usize| {
        let rest = word[*start..].trim_start_matches(['.', '/']);
        let is_up = word[*start..].starts_with("..");
        is_up
            || names
                .iter()
                .any(|name| word[*start..].starts_with(name) || rest.starts_with(name))
    };
    let ends = || cuts.iter().map(|(at, _)| *at).chain([word.len()]);
    let starts = starts.into_iter().filter(begins);
    let pieces = starts.flat_map(|start| {
        let ends = ends().filter(move |end| *end > start);
        ends.map(move |end| &word[start..end])
    });
    // As many as starts times ends.
    let mut pieces: Vec<&str> = pieces.take(PIECES_MAX + 1).collect();
    if pieces.len() > PIECES_MAX {
        return Err(pieces[0]);
    }
    pieces.retain(|piece| plain(piece).is_some() || piece.starts_with(".."));
    Ok(pieces)
}

/// Whether a path in a word rarely goes on over a character.
fn is_cut(character: char) -> bool {
    !(character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-' | '/'))
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
            let why = there(prereg, &path);
            return Ok(Some((path, why)));
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
    let programs = prereg.control.iter().chain([&prereg.candidate]);
    let mut programs = programs.map(|program| program.program.as_str());
    programs.any(|program| program.contains('/') && plain(program).as_deref() == Some(path))
        || is_in(path, &prereg.frozen)
}

/// Why a path that is there is not frozen.
fn there(prereg: &Prereg, path: &str) -> NotFrozen {
    match is_in(path, &prereg.commits) {
        true => NotFrozen::Committed,
        false => NotFrozen::Listed,
    }
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
/// Parts of a word that are looked for.
const PIECES_MAX: usize = 4096;
/// No file system of Linux has longer names.
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_may_name_thousands_of_paths_is_refused_and_not_looked_for() {
        let names = ["a"];
        let many = |count| "a,".repeat(count);
        // Each `a` up to each cut behind it, and up to the word's end.
        assert_eq!(others(&names, &many(2000)), Err("a"));
        assert_eq!(
            others(&names, &format!("${{lab}}/x,{}", many(2000))),
            Err("a")
        );
        let few = many(60);
        let found = others(&names, &few).expect("because they are few");
        assert!(found.contains(&"a,a,a") && found.contains(&few.as_str()));
        assert!(
            others(&["b"], &many(2000)).is_ok(),
            "none begins as an entry does"
        );
    }
}
