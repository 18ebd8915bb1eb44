//! What the names of a build's libraries find: who loads one by its name alone gets the first file
//! of that name, which need not be the build's.
//!
//! Invariants:
//! - the loader is asked, with the environment that the build's programs will have;
//! - of objects that search the same folders one is asked;
//! - every name has an answer of its own: where another name brought its library in first, it is
//!   asked about alone.

use super::digests::{Digests, each};
use super::disk;
use super::elf::Object;
use super::error::FingerprintError;
use super::loader::{self, Finds};
use super::walk::Found;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Names, each with the real paths of the libraries that have it.
pub(super) type Names = BTreeMap<OsString, BTreeSet<PathBuf>>;

/// What names find, by whose folders are searched.
pub(super) type Answers = BTreeMap<String, Vec<(OsString, Finds)>>;

/// Objects that search the same folders.
pub(super) struct Asker<'a> {
    /// Which folders, as text.
    pub(super) whose: String,
    /// The one that is asked.
    pub(super) one: (&'a Path, &'a Object),
    /// The one that is asked for the name that the other gives itself: what has a name already does
    /// not search for it.
    pub(super) other: Option<(&'a Path, &'a Object)>,
}

/// The names of libraries: those of their files and links, and those that they give themselves.
pub(super) fn of(found: &[&Found], links: &[(OsString, PathBuf)]) -> Names {
    let mut names = Names::new();
    let mut libraries = BTreeSet::new();
    for found in found {
        let Some(object) = found.object.as_ref().filter(|object| !object.is_program) else {
            continue;
        };
        libraries.insert(&found.path);
        let own = found.path.file_name().map(ToOwned::to_owned);
        for name in own.into_iter().chain(object.name.clone()) {
            names.entry(name).or_default().insert(found.path.clone());
        }
    }
    for (name, path) in links.iter().filter(|(_, path)| libraries.contains(path)) {
        let paths = names.entry(name.clone()).or_default();
        paths.insert(path.clone());
    }
    names
}

/// Asks for all of them.
pub(super) fn ask(
    names: &Names,
    askers: &[Asker<'_>],
    loaders: &[(Object, PathBuf)],
    environment: &[(OsString, OsString)],
) -> Result<Answers, FingerprintError> {
    let rounds = rounds(names);
    let rounds = rounds.iter();
    let questions: Vec<(&Asker<'_>, &Vec<OsString>)> = rounds
        .flat_map(|round| askers.iter().map(move |asker| (asker, round)))
        .collect();
    let answers = each(&questions, |(asker, round)| {
        answer(asker, round, loaders, environment)
    });
    let mut by_asker = Answers::new();
    for ((asker, _), answer) in questions.iter().zip(answers) {
        let found = by_asker.entry(asker.whose.clone()).or_default();
        found.extend(answer?);
    }
    Ok(by_asker)
}

/// The facts: per name the library that is found, `of the build` where it is the build's only one.
pub(super) fn facts(
    names: &Names,
    answers: &Answers,
    digests: &Digests<'_>,
) -> Result<Map<String, Value>, FingerprintError> {
    let mut facts = Map::new();
    for (whose, found) in answers {
        let mut by_name = Map::new();
        for (name, finds) in found {
            let value = match finds {
                Finds::File(path) => {
                    let digest = digests.of(path)?.sha256;
                    let mut is_own = true;
                    for own in names.get(name).into_iter().flatten() {
                        is_own &= digests.of(own)?.sha256 == digest;
                    }
                    match is_own {
                        true => Value::from(OF_THE_BUILD),
                        false => Value::from(digest.to_string()),
                    }
                }
                Finds::Nothing => Value::Null,
                Finds::Refused { why } => json!({ "refused": why }),
                Finds::Unknown { why } => json!({ "unknown": why }),
            };
            by_name.insert(disk::text(name), value);
        }
        facts.insert(whose.clone(), Value::Object(by_name));
    }
    Ok(facts)
}

/// Names that are asked for at once: of each library one.
fn rounds(names: &Names) -> Vec<Vec<OsString>> {
    let mut rounds: Vec<Vec<OsString>> = Vec::new();
    let mut asked: BTreeMap<&PathBuf, usize> = BTreeMap::new();
    for (name, paths) in names {
        let counts = paths.iter().map(|path| asked.get(path).copied());
        let round = counts.flatten().max().unwrap_or(0);
        for path in paths {
            asked.insert(path, round + 1);
        }
        if rounds.len() <= round {
            rounds.resize(round + 1, Vec::new());
        }
        rounds[round].push(name.clone());
    }
    let rounds = rounds.iter().flat_map(|round| round.chunks(NAMES_AT_ONCE));
    rounds.map(<[OsString]>::to_vec).collect()
}

fn answer(
    asker: &Asker<'_>,
    names: &[OsString],
    loaders: &[(Object, PathBuf)],
    environment: &[(OsString, OsString)],
) -> Result<Vec<(OsString, Finds)>, FingerprintError> {
    let ask = |(path, object): (&Path, &Object), names: &[&OsString]| {
        loader::finds(path, object, loaders, environment, names)
    };
    let alone = |of, name| ask(of, &[name]).map(|mut found| found.pop().flatten());
    // What separates names can be in none that is asked for.
    let is_plain = |name: &&OsString| !name.as_bytes().iter().any(|byte| b": $\n'".contains(byte));
    let (plain, others): (Vec<&OsString>, Vec<&OsString>) = names.iter().partition(is_plain);
    let mut answers = Vec::new();
    for name in others {
        let why = "the loader can't be asked for such a name".to_owned();
        answers.push((name.clone(), Finds::Unknown { why }));
    }
    let together = ask(asker.one, &plain)?;
    for (name, mut finds) in plain.into_iter().zip(together) {
        // Another name brought it in, or one of them can't be loaded, or it is the asker's own.
        if finds.is_none() {
            finds = alone(asker.one, name)?;
        }
        if let Some(other) = asker.other.filter(|_| finds.is_none()) {
            finds = alone(other, name)?;
        }
        let finds = finds.unwrap_or(Finds::Nothing);
        answers.push((name.clone(), finds));
    }
    Ok(answers)
}

const OF_THE_BUILD: &str = "of the build";
const NAMES_AT_ONCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_library_one_name_is_asked_for_at_once() {
        let names: [(&str, &[&str]); 5] = [
            ("liba.so", &["/b/liba.so.1"]),
            ("liba.so.1", &["/b/liba.so.1"]),
            ("libb.so", &["/b/libb.so", "/b/old/libb.so"]),
            ("libb.so.1", &["/b/old/libb.so"]),
            ("libc.so", &["/b/libc.so"]),
        ];
        let names = names.map(|(name, paths)| {
            (
                OsString::from(name),
                paths.iter().map(PathBuf::from).collect(),
            )
        });
        let expected = [
            vec!["liba.so", "libb.so", "libc.so"],
            vec!["liba.so.1", "libb.so.1"],
        ];
        assert_eq!(rounds(&Names::from(names)), expected);
        let many = (0..130).map(|i| (OsString::from(format!("{i}")), BTreeSet::new()));
        let lengths = rounds(&many.collect()).into_iter().map(|round| round.len());
        assert_eq!(lengths.collect::<Vec<_>>(), [64, 64, 2]);
    }
}
