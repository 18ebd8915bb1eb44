//! The facts of programs, libraries and scripts: their content, and what they would load.

use super::digests::{Digests, each};
use super::disk;
use super::elf::{self, Object};
use super::error::FingerprintError;
use super::loader::{self, Finds, Loads};
use super::names::{self, Asker};
use super::walk::{Build, Found};
use packhouse_sys::stat::FileKind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Facts of a build's files, by kind and name.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) programs: Map<String, Value>,
    pub(super) libraries: Map<String, Value>,
    pub(super) scripts: Map<String, Value>,
    pub(super) with: Map<String, Value>,
    /// Vendors' runtimes that the build's programs would find, and what those load.
    pub(super) runtimes: Map<String, Value>,
    /// What the names of libraries find.
    pub(super) names: Map<String, Value>,
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
    let environment = loader::environment(environment);
    let loaders = loaders(&all);
    let loads = each(&all, |found| {
        let object = found.object.as_ref();
        object
            .map(|object| loader::loads(&found.path, object, &loaders, &environment))
            .transpose()
    });
    let loads = loads.into_iter().collect::<Result<Vec<_>, _>>()?;
    let listed = loads.iter().flatten().filter_map(|loads| match loads {
        Loads::Listed(listed) => Some(listed),
        Loads::Refused { .. } | Loads::Unknown { .. } => None,
    });
    let runtimes = runtimes(&all, &loads, &environment)?;
    let names = names::of(&all, &build.others);
    let askers = askers(top, &all, &loads, &loaders);
    let mut found = names::ask(&names, &askers, &loaders, &environment)?;
    let mut files: Vec<PathBuf> = all.iter().map(|found| found.path.clone()).collect();
    let known = runtimes.iter().flatten();
    files.extend(known.map(|(_, path)| path.clone()));
    for (_, path) in listed.flatten() {
        files.push(real(path)?);
    }
    for (_, finds) in found.values_mut().flatten() {
        if let Finds::File(path) = finds {
            *path = real(path)?;
            files.push(path.clone());
        }
    }
    files.sort();
    files.dedup();
    digests.of_all(&files)?;
    let mut facts = of_files(top, (&all, build.found.len()), &loads, digests)?;
    facts.files = files;
    facts.names = names::facts(&names, &found, digests)?;
    if let Err(why) = &runtimes {
        facts
            .runtimes
            .insert("unknown".to_owned(), Value::from(why.as_str()));
    }
    for (name, path) in runtimes.into_iter().flatten() {
        let digest = digests.of(&path)?.sha256.to_string();
        facts.runtimes.insert(disk::text(name), Value::from(digest));
    }
    Ok(facts)
}

/// The facts of each file by itself. The first `of_build` are the build's, the others the user's.
fn of_files(
    top: &Path,
    (all, of_build): (&[&Found], usize),
    loads: &[Option<Loads>],
    digests: &Digests<'_>,
) -> Result<Facts, FingerprintError> {
    let mut facts = Facts::default();
    for (index, (found, loads)) in all.iter().zip(loads).enumerate() {
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

/// Files that the user names, by their paths: libraries, programs, data.
fn others(with: &[PathBuf]) -> Result<Vec<Found>, FingerprintError> {
    let mut found = Vec::new();
    for path in with {
        let wrong = |why: String| FingerprintError::File {
            path: path.clone(),
            why,
        };
        let path = real(path)?;
        let file = disk::open(&path).map_err(|error| wrong(error.to_string()))?;
        let kind = file.stat().map_err(|error| wrong(error.to_string()))?.kind;
        if kind != FileKind::Regular {
            return Err(wrong(format!("is a {kind}, expected a regular file")));
        }
        let object = elf::object(&file).map_err(|error| wrong(error.to_string()))?;
        let name = disk::text(path.file_name().unwrap_or(path.as_os_str()));
        if found.iter().any(|other: &Found| other.name == name) {
            return Err(wrong(format!("a second file of the name {name}")));
        }
        found.push(Found { name, path, object });
    }
    Ok(found)
}

/// The loaders that programs name.
fn loaders(all: &[&Found]) -> Vec<(Object, PathBuf)> {
    let programs = all.iter().filter_map(|found| found.object.as_ref());
    let programs = programs.filter(|object| object.is_program);
    programs
        .filter_map(|object| Some((object.clone(), object.interpreter.clone()?)))
        .collect()
}

/// Of the objects that search the same folders the first that can be loaded, and the first of
/// another name. What needs no library at all can't load one by name.
fn askers<'a>(
    top: &Path,
    all: &[&'a Found],
    loads: &[Option<Loads>],
    loaders: &[(Object, PathBuf)],
) -> Vec<Asker<'a>> {
    let mut askers: BTreeMap<String, Asker<'a>> = BTreeMap::new();
    for (found, loads) in all.iter().zip(loads) {
        let (Some(object), Some(Loads::Listed(listed))) = (&found.object, loads) else {
            continue;
        };
        let Some(loader) = loader::of(object, loaders).filter(|_| !listed.is_empty()) else {
            continue;
        };
        let mut whose = disk::text(loader);
        for (name, search) in ["RPATH", "RUNPATH"].iter().zip(&object.search) {
            let search = search.as_ref().map(disk::text);
            whose += &search.map_or(String::new(), |search| format!(", {name} {search}"));
        }
        // The folder has a say in nothing but `$ORIGIN`.
        if whose.contains('$') {
            let folder = found.path.parent().unwrap_or(top).strip_prefix(top);
            let folder = folder.map_or(found.name.clone(), disk::text);
            whose += &format!(" in {folder:?}");
        }
        let asker = askers.entry(whose.clone()).or_insert(Asker {
            whose,
            one: (&found.path, object),
            other: None,
        });
        if asker.one.1.name != object.name && asker.other.is_none() {
            asker.other = Some((&found.path, object));
        }
    }
    askers.into_values().collect()
}

/// Vendors' runtimes, and what they load in turn, by their real paths: libraries that programs load
/// by name. They are looked for as if a program of the build were linked with them. Where one of
/// them can't be loaded, none is known, and the loader's words are the answer.
fn runtimes(
    all: &[&Found],
    loads: &[Option<Loads>],
    environment: &[(OsString, OsString)],
) -> Result<Result<Vec<(OsString, PathBuf)>, String>, FingerprintError> {
    let dynamic = all
        .iter()
        .zip(loads)
        .filter_map(|(found, loads)| match loads {
            Some(Loads::Listed(listed)) if !listed.is_empty() => {
                Some((found, found.object.as_ref()?, listed))
            }
            Some(_) | None => None,
        });
    // A library where there is no program, by the loader of this machine.
    let chosen = dynamic.max_by_key(|(_, object, _)| object.is_program);
    let Some((found, object, own)) = chosen else {
        return Ok(Ok(Vec::new()));
    };
    let names = RUNTIMES.map(OsString::from);
    let environment = loader::preloading(environment, &names);
    match loader::loads(&found.path, object, &[], &environment)? {
        Loads::Listed(listed) => {
            let others = listed.into_iter().filter(|other| !own.contains(other));
            let others = others.map(|(name, path)| Ok((name, real(&path)?)));
            Ok(Ok(others.collect::<Result<_, FingerprintError>>()?))
        }
        Loads::Refused { why } | Loads::Unknown { why } => Ok(Err(why)),
    }
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

/// What accelerators' programs load by name: drivers' libraries, their compilers, loaders of
/// drivers.
const RUNTIMES: [&str; 22] = [
    "libOpenCL.so.1",
    "libamd_comgr.so.2",
    "libamd_comgr.so.3",
    "libamdhip64.so.6",
    "libamdhip64.so.7",
    "libcuda.so.1",
    "libhsa-runtime64.so.1",
    "libigc.so.1",
    "libigc.so.2",
    "libigdfcl.so.1",
    "libigdfcl.so.2",
    "libnvidia-ml.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-opencl.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libxdna.so.2",
    "libxrt_coreutil.so.2",
    "libze_intel_gpu.so.1",
    "libze_intel_npu.so.1",
    "libze_intel_vpu.so.1",
    "libze_loader.so.1",
    "libvulkan.so.1",
];
