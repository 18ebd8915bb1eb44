//! One test: started, watched, judged, its logs sealed.

use super::folder::{LogKind, RunFolder};
use super::host::{Host, Launch, watched};
use super::key::Bound;
use super::loaded::Loaded;
use super::named::{self, Kind};
use super::proof::Reading;
use super::record::{LoadedFile, TestResult};
use super::verdict::{Judged, Verdict, judge};
use super::words::lossless;
use crate::fingerprint::{Fingerprint, FingerprintError};
use packhouse_sys::child::{Ended, Exit, StartError};
use packhouse_sys::fs::{Dir, File, FsError};
use packhouse_sys::stat::FileKind;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where a test runs.
pub(super) struct Scene<'a> {
    pub(super) index: usize,
    pub(super) bound: &'a Bound<'a>,
    pub(super) variables: &'a [(OsString, OsString)],
    pub(super) folder: &'a Path,
    pub(super) max_bytes: u64,
    pub(super) fingerprint: &'a Fingerprint,
}

/// Runs one test. Answers what came of it, and why a pass of it would not be reusable.
pub(super) fn run_test<H: Host>(
    scene: &Scene<'_>,
    host: &H,
    run: &RunFolder,
) -> Result<(TestResult, BTreeSet<String>), FsError> {
    let test = scene.bound.test;
    let create = |kind| run.create(scene.index, &test.name, kind);
    let (stdout, stderr) = (create(LogKind::Stdout)?, create(LogKind::Stderr)?);
    let loading = run.loader_folder(scene.index, &test.name)?;
    let launch = Launch {
        test,
        program: &scene.bound.program,
        environment: &watched(scene.variables, loading.path()),
        folder: scene.folder,
        loading: &loading,
        stdout: &stdout,
        stderr: &stderr,
        max_bytes: scene.max_bytes,
    };
    let ended = host.run(&launch);
    let output = stdout.read_small(scene.max_bytes)?;
    let errors = stderr.read_small(scene.max_bytes)?;
    let loader = loader_log(&loading);
    let loader_file = create(LogKind::Loader)?;
    loader_file.write_all_at(0, &loader.log)?;
    // What a test left there is no reason to lose the results of all; it goes with the run.
    let _ = run.remove_loader_folder(scene.index, &test.name);
    let reading = test.proof.read(&output);
    let judged = judged(&ended, &reading);
    let has_passed = judged.verdict == Verdict::Pass;
    let (loaded, doubts) = content(scene, host, &loader, has_passed);
    let seal = |file: &File, bytes: &[u8]| run.seal(file, bytes);
    let result = TestResult {
        name: test.name.clone(),
        verdict: judged.verdict,
        why: judged.why,
        counts: reading.counts,
        exit: exit_words(&ended),
        elapsed_ns: ended.as_ref().map_or(0, |ended| ended.elapsed_ns),
        logs: vec![
            seal(&stdout, &output)?,
            seal(&stderr, &errors)?,
            seal(&loader_file, &loader.log)?,
        ],
        loaded,
    };
    Ok((result, doubts))
}

fn judged(ended: &Result<Ended, StartError>, reading: &Reading) -> Judged {
    match ended {
        Ok(ended) => judge(ended.exit, ended.was_cut, reading),
        Err(error) => Judged {
            verdict: Verdict::NotExecuted,
            why: format!("it could not be run: {error}"),
        },
    }
}

fn exit_words(ended: &Result<Ended, StartError>) -> String {
    match ended.as_ref().map(|ended| ended.exit) {
        Ok(Exit::Exited(code)) => format!("exit code {code}"),
        Ok(Exit::Signalled(signal)) => format!("signal {signal}"),
        Ok(Exit::TimedOut) => "killed when its time was over".to_owned(),
        Err(_) => "never ran".to_owned(),
    }
}

/// What the loader wrote of all processes of a test.
#[derive(Default)]
struct Loader {
    log: Vec<u8>,
    loaded: Loaded,
    was_cut: bool,
    /// Why not all of it could be read.
    unread: Option<String>,
}

/// Reads what the loader wrote, in one log: a line with the file's name before each part. A test
/// can do to the folder what it likes.
fn loader_log(dir: &Dir) -> Loader {
    let mut loader = Loader::default();
    if let Err(why) = read_loader(dir, &mut loader) {
        loader.unread = Some(why);
    }
    loader
}

fn read_loader(dir: &Dir, loader: &mut Loader) -> Result<(), String> {
    let said = |error: FsError| error.to_string();
    let mut names = dir.list().map_err(said)?;
    names.sort_unstable();
    for name in names {
        let path = dir.path().join(&name);
        if dir.stat_entry(&name).map_err(said)?.kind != FileKind::Regular {
            return Err(format!("{} is no regular file", path.display()));
        }
        let file = dir.open_file(&name).map_err(said)?;
        let stat = file.stat().map_err(said)?;
        let room = LOADER_BYTES_MAX.saturating_sub(loader.log.len() as u64);
        if stat.size > room {
            loader.was_cut = true;
            break;
        }
        let bytes = file.read_stated(&stat, room).map_err(said)?;
        loader.loaded.add(&bytes);
        loader.log.extend_from_slice(name.as_encoded_bytes());
        loader.log.push(b'\n');
        loader.log.extend_from_slice(&bytes);
    }
    Ok(())
}

/// Why a program's own account of what it loads and starts is none, or does not do.
fn unwatched<H: Host>(
    scene: &Scene<'_>,
    host: &H,
    loaded: &Loaded,
    has_passed: bool,
) -> Option<String> {
    let program = &scene.bound.real;
    let why = match named::kind(&host.head(program)) {
        Kind::Script(_) => "it is a script: what it starts is not all seen",
        Kind::Other => "it is no program of the system: what runs it is not known",
        Kind::Object if host.is_static(program) => {
            "it is a static program: what it loads and starts is not seen"
        }
        Kind::Object if !loaded.was_seen() => "what it loaded was not told by its loader",
        Kind::Object if has_passed && !loaded.is_whole() => {
            "its loader's account ends before it does: what it loaded later is not seen"
        }
        Kind::Object => return None,
    };
    Some(why.to_owned())
}

/// Hashes what was loaded and compares it with the fingerprint.
fn content<H: Host>(
    scene: &Scene<'_>,
    host: &H,
    loader: &Loader,
    has_passed: bool,
) -> (Vec<LoadedFile>, BTreeSet<String>) {
    let program = &scene.bound.real;
    let mut doubts = BTreeSet::new();
    let mut files = vec![covered(
        scene.fingerprint,
        Ok((program.clone(), scene.bound.program_digest)),
        program,
    )];
    doubts.extend(unwatched(scene, host, &loader.loaded, has_passed));
    if loader.was_cut {
        doubts.insert("its loader told more than is kept of what it loaded".to_owned());
    }
    if let Some(why) = &loader.unread {
        doubts.insert(format!("what its loader told can't be read: {why}"));
    }
    for unseen in &loader.loaded.unseen {
        doubts.insert(format!(
            "{unseen} was loaded, from a place that was not told"
        ));
    }
    for path in &loader.loaded.objects {
        files.push(covered(scene.fingerprint, host.content_of(path), path));
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.dedup();
    for file in files.iter().filter(|file| !file.covered) {
        let path = &file.path;
        doubts.insert(format!(
            "{path} was loaded, and the fingerprint does not cover it"
        ));
    }
    (files, doubts)
}

fn covered(
    fingerprint: &Fingerprint,
    content: Result<(PathBuf, packhouse_base::digest::Digest), FingerprintError>,
    path: &Path,
) -> LoadedFile {
    match content {
        Ok((real, digest)) => LoadedFile {
            path: lossless(&real),
            sha256: Some(digest.to_string()),
            covered: fingerprint.covers(&real, &digest),
        },
        Err(_) => LoadedFile {
            path: lossless(path),
            sha256: None,
            covered: false,
        },
    }
}

/// Bytes that are kept of what the loader wrote.
const LOADER_BYTES_MAX: u64 = 32 << 20;
