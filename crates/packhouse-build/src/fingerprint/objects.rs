//! The facts of programs, libraries and scripts: their content, and what they would load.

use super::digests::{Digests, threads};
use super::disk;
use super::elf::{self, Object};
use super::error::FingerprintError;
use super::loader::{self, Loads};
use super::walk::{Build, Found};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Facts of a build's files, by kind and name.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) programs: Map<String, Value>,
    pub(super) libraries: Map<String, Value>,
    pub(super) scripts: Map<String, Value>,
    pub(super) with: Map<String, Value>,
    /// Every file that has its digest here, by real path.
    pub(super) files: Vec<PathBuf>,
}

/// Hashes what was found and all that it would load.
pub(super) fn facts(
    top: &Path,
    build: &Build,
    with: &[PathBuf],
    environment: &[(OsString, OsString)],
    digests: &Digests<'_>,
) -> Result<Facts, FingerprintError> {
    let with = others(with)?;
    let all: Vec<&Found> = build.found.iter().chain(&with).collect();
    let loads = ask_all(&all, environment)?;
    let mut facts = Facts::default();
    let listed = loads.iter().flatten().filter_map(|loads| match loads {
        Loads::Listed(listed) => Some(listed),
        Loads::Refused { .. } | Loads::Unknown { .. } => None,
    });
    let mut files: Vec<PathBuf> = all.iter().map(|found| found.path.clone()).collect();
    for (_, path) in listed.flatten() {
        files.push(real(path)?);
    }
    files.sort();
    files.dedup();
    digests.of_all(&files)?;
    facts.files = files;
    let of_build = build.found.len();
    for (index, (found, loads)) in all.iter().zip(&loads).enumerate() {
        let mut value = digests.of(&found.path)?.facts();
        if let (Value::Object(fields), Some(loads)) = (&mut value, loads) {
            let (name, loads) = of_loads(top, loads, digests)?;
            fields.insert(name.to_owned(), loads);
        }
        let map = match &found.object {
            _ if index >= of_build => &mut facts.with,
            Some(object) if object.is_program => &mut facts.programs,
            Some(_) => &mut facts.libraries,
            None => &mut facts.scripts,
        };
        map.insert(found.name.clone(), value);
    }
    Ok(facts)
}

/// Libraries that the user names, by their paths.
fn others(with: &[PathBuf]) -> Result<Vec<Found>, FingerprintError> {
    let mut found = Vec::new();
    for path in with {
        let wrong = |why: String| FingerprintError::File {
            path: path.clone(),
            why,
        };
        let path = real(path)?;
        let file = disk::open(&path).map_err(|error| wrong(error.to_string()))?;
        let object = elf::object(&file).map_err(|error| wrong(error.to_string()))?;
        let object = object.ok_or_else(|| wrong("is no shared library".to_owned()))?;
        let name = disk::text(path.file_name().unwrap_or(path.as_os_str()));
        if found.iter().any(|other: &Found| other.name == name) {
            return Err(wrong(format!("a second library of the name {name}")));
        }
        found.push(Found {
            name,
            path,
            object: Some(object),
        });
    }
    Ok(found)
}

/// Asks the loader of each, a few at once. `None` for scripts.
fn ask_all(
    all: &[&Found],
    environment: &[(OsString, OsString)],
) -> Result<Vec<Option<Loads>>, FingerprintError> {
    let environment = loader::environment(environment);
    let programs = all.iter().filter_map(|found| found.object.as_ref());
    let programs = programs.filter(|object| object.is_program);
    let loaders: Vec<(Object, PathBuf)> = programs
        .filter_map(|object| Some((object.clone(), object.interpreter.clone()?)))
        .collect();
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![None; all.len()]);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(found) = all.get(index) else {
                break;
            };
            let answer = found
                .object
                .as_ref()
                .map(|object| loader::loads(&found.path, object, &loaders, &environment));
            let mut answers = answers.lock().expect("because nobody panics with it");
            answers[index] = answer;
        }
    };
    std::thread::scope(|scope| {
        // A child dies with the thread that started it, which here waits for it.
        for _ in 1..threads().min(all.len()) {
            scope.spawn(work);
        }
        work();
    });
    let answers = answers.into_inner().expect("because nobody panics with it");
    answers.into_iter().map(Option::transpose).collect()
}

/// The field that says what an object loads, and its value.
fn of_loads(
    top: &Path,
    loads: &Loads,
    digests: &Digests<'_>,
) -> Result<(&'static str, Value), FingerprintError> {
    let listed = match loads {
        Loads::Listed(listed) => listed,
        Loads::Refused { why } => return Ok(("refused", Value::from(why.as_str()))),
        Loads::Unknown { why } => return Ok(("loads_unknown", Value::from(why.as_str()))),
    };
    let mut named = Map::new();
    for (name, path) in listed {
        let content = digests.of(&real(path)?)?;
        // A build that links by whole paths is the same build elsewhere.
        let name = Path::new(name);
        let name = disk::text(name.strip_prefix(top).unwrap_or(name));
        named.insert(name, json!(content.sha256.to_string()));
    }
    Ok(("loads", Value::Object(named)))
}

fn real(path: &Path) -> Result<PathBuf, FingerprintError> {
    let wrong = |why: String| FingerprintError::File {
        path: path.to_owned(),
        why,
    };
    let real = disk::real(path).map_err(|error| wrong(error.to_string()))?;
    real.ok_or_else(|| wrong("no such file".to_owned()))
}
