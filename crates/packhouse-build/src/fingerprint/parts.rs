//! Parts of an identity by themselves: what one program would load, and one folder of a work tree.

use super::digests::Digests;
use super::error::FingerprintError;
use super::git::Git;
use super::loader::{self, Loads};
use super::{World, disk, elf, source};
use packhouse_base::digest::Digest;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A file that is loaded with a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadedObject {
    /// Its real path.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
}

/// A folder of a work tree, compared with its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkTree {
    /// Git's name of HEAD.
    pub commit: String,
    /// Paths in the folder that differ from it, below the top of the work tree, sorted; ignored
    /// files are none, files that the index is told not to look at are.
    pub changed: Vec<PathBuf>,
}

/// What the dynamic loader would load for a program in this environment, its loader included; of a
/// script first the program of its `#!` line, and what `env` finds there. Sorted; each file once.
///
/// # Errors
/// When a file can't be read, the program can't be loaded in this environment, or its loader can't
/// be asked.
pub fn objects_of(
    program: &Path,
    environment: &[(OsString, OsString)],
    world: &World<'_>,
) -> Result<Vec<LoadedObject>, FingerprintError> {
    let mut paths = Vec::new();
    let mut program = real(program)?;
    for _ in 0..SCRIPTS_DEEP_MAX {
        let file = disk::open(&program).map_err(|error| wrong(&program, error.to_string()))?;
        let object = elf::object(&file).map_err(|error| wrong(&program, error.to_string()))?;
        if let Some(object) = object {
            paths.extend(object.interpreter.clone());
            paths.extend(loaded(&program, &object, environment)?);
            return digests_of(&paths, world);
        }
        let mut line = vec![0; LINE_BYTES];
        let read = file.read_full_at(0, &mut line);
        line.truncate(read.map_err(|error| wrong(&program, error.to_string()))?);
        let words = interpreter(&line).ok_or_else(|| {
            wrong(
                &program,
                "is no ELF program and no script with a #! line".to_owned(),
            )
        })?;
        let (first, found) = started(&program, &words, environment)?;
        paths.push(first);
        if let Some(found) = &found {
            paths.push(found.clone());
        }
        let Some(last) = paths.last().cloned() else {
            break;
        };
        program = real(&last)?;
    }
    Err(wrong(
        &program,
        format!("scripts of scripts, more than {SCRIPTS_DEEP_MAX} deep"),
    ))
}

/// Compares a folder with HEAD of the work tree that it is in.
///
/// # Errors
/// When it is in none, git fails, there is no commit yet, or git does not look after the folder:
/// it is ignored, or has no file that the index knows.
pub fn work_tree(folder: &Path, world: &World<'_>) -> Result<WorkTree, FingerprintError> {
    let wrong = |why: &str| FingerprintError::Folder {
        path: folder.to_owned(),
        why: why.to_owned(),
    };
    let real = source::real_folder(folder)?.ok_or_else(|| wrong("no such folder"))?;
    let git = Git::find(world.own, &real)?;
    let top = git.top(&real)?;
    let below = real.strip_prefix(&top).unwrap_or(Path::new(""));
    if !below.as_os_str().is_empty() && git.ignores(&top, below)? {
        return Err(wrong("git ignores it, so no commit says what is in it"));
    }
    let (commit, changed) = git.differing(&top, below)?;
    let commit = commit.ok_or_else(|| wrong("its work tree has no commit yet"))?;
    Ok(WorkTree { commit, changed })
}

/// What the loader of an object lists.
fn loaded(
    program: &Path,
    object: &elf::Object,
    environment: &[(OsString, OsString)],
) -> Result<Vec<PathBuf>, FingerprintError> {
    let environment = loader::environment(environment);
    let failed = |why: String| FingerprintError::Loader {
        path: program.to_owned(),
        why,
    };
    match loader::loads(program, object, &[], &environment)? {
        Loads::Listed(listed) => Ok(listed.into_iter().map(|(_, path)| path).collect()),
        Loads::Refused { why } | Loads::Unknown { why } => Err(failed(why)),
    }
}

/// The program that the kernel starts for a script, and the one that `env` finds for it.
fn started(
    script: &Path,
    (program, argument): &(PathBuf, OsString),
    environment: &[(OsString, OsString)],
) -> Result<(PathBuf, Option<PathBuf>), FingerprintError> {
    if !program.is_absolute() {
        let why = format!("its #! line names {program:?}, which is no absolute path");
        return Err(wrong(script, why));
    }
    if program.file_name() != Some(OsStr::new("env")) {
        return Ok((program.clone(), None));
    }
    let bytes = argument.as_bytes();
    let name = match bytes.strip_prefix(b"-S ") {
        Some(rest) => rest
            .split(|byte| *byte == b' ')
            .find(|word| !word.is_empty()),
        None => Some(bytes),
    };
    let name = name.filter(|name| !name.is_empty() && !name.starts_with(b"-"));
    let name = name.filter(|name| !name.contains(&b'=') && !name.contains(&b' '));
    let name = name.ok_or_else(|| {
        wrong(
            script,
            format!("its #! line gives env {argument:?}, which is not followed"),
        )
    })?;
    let found = super::ask::find(OsStr::from_bytes(name), environment);
    let found = found.map_err(|error| wrong(script, error.to_string()))?;
    Ok((program.clone(), Some(found)))
}

/// The words of a `#!` line, as the kernel splits it: a program, and all that follows as one.
fn interpreter(head: &[u8]) -> Option<(PathBuf, OsString)> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| matches!(byte, b'\n' | 0)).next()?;
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (program, argument) = line.split_at(end.unwrap_or(line.len()));
    let program = PathBuf::from(OsStr::from_bytes(program));
    let argument = OsStr::from_bytes(argument.trim_ascii()).to_owned();
    (!program.as_os_str().is_empty()).then_some((program, argument))
}

fn digests_of(paths: &[PathBuf], world: &World<'_>) -> Result<Vec<LoadedObject>, FingerprintError> {
    let mut objects = Vec::new();
    let digests = Digests::open(world.fs, world.clock.as_ref(), None, Path::new("/"));
    for path in paths {
        let path = real(path)?;
        let sha256 = digests.of(&path)?.sha256;
        objects.push(LoadedObject { path, sha256 });
    }
    objects.sort();
    objects.dedup();
    Ok(objects)
}

fn real(path: &Path) -> Result<PathBuf, FingerprintError> {
    let found = disk::real(path).map_err(|error| wrong(path, error.to_string()))?;
    found.ok_or_else(|| wrong(path, "no such file".to_owned()))
}

fn wrong(path: &Path, why: String) -> FingerprintError {
    FingerprintError::File {
        path: path.to_owned(),
        why,
    }
}

const SCRIPTS_DEEP_MAX: usize = 4;
/// As much as the kernel reads of a program's beginning.
const LINE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_line_is_split_as_the_kernel_does() {
        let split = |head: &str| {
            let (program, argument) = interpreter(head.as_bytes())?;
            let program = program.to_str().map(str::to_owned)?;
            Some((program, argument.into_string().ok()?))
        };
        let words = |program: &str, argument: &str| Some((program.to_owned(), argument.to_owned()));
        assert_eq!(split("#!/bin/sh\necho"), words("/bin/sh", ""));
        assert_eq!(
            split("#! /usr/bin/env  python3 \nx"),
            words("/usr/bin/env", "python3")
        );
        assert_eq!(
            split("#!/usr/bin/env -S a b"),
            words("/usr/bin/env", "-S a b")
        );
        for none in ["", "#!", "#!\n/bin/sh", "# !/bin/sh", "\x7fELF"] {
            assert_eq!(split(none), None, "{none:?}");
        }
    }

    #[test]
    fn what_env_is_told_is_found_or_refused_by_its_words() {
        let environment = [(OsString::from("PATH"), OsString::from("/usr/bin:/bin"))];
        let script = Path::new("/lab/run");
        let find = |program: &str, argument: &str| {
            let words = (PathBuf::from(program), OsString::from(argument));
            started(script, &words, &environment).map_err(|error| error.to_string())
        };
        let plain = find("/bin/sh", "-e").expect("because it is absolute");
        assert_eq!(plain, (PathBuf::from("/bin/sh"), None));
        let (env, found) = find("/usr/bin/env", "sh").expect("because sh is there");
        assert_eq!(env, Path::new("/usr/bin/env"));
        assert!(found.is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find("/usr/bin/env", "-S sh -e"), find("/usr/bin/env", "sh"));
        for (program, argument, said) in [
            ("sh", "", "which is no absolute path"),
            ("/usr/bin/env", "-i sh", "which is not followed"),
            ("/usr/bin/env", "A=1 sh", "which is not followed"),
            ("/usr/bin/env", "", "which is not followed"),
        ] {
            let refused = find(program, argument).expect_err("because it can't be told");
            assert!(refused.contains(said), "{refused}");
        }
    }
}
