//! Copies of models on the real tmpfs, by real threads and processes.

use crate::real::{folder_in_ram, open_root};
use packhouse_base::digest::Digest;
use packhouse_stage::StageRoot;
use packhouse_stage::models::{
    self, AdmittedModel, ModelEvent, ModelFiles, ModelMiss, ModelOptions, ModelOutcome,
    ModelPrepareError, ModelQuery, ModelWatcher, PreparedModel, SourceFile,
};
use packhouse_sys::fs::File;
use packhouse_sys::real::file_of_fd;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Several pieces and a ragged one, in bytes that repeat nowhere.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let words = std::iter::repeat_with(&mut next);
    words.flatten().take(bytes).collect()
}

fn open(path: &Path) -> File {
    let file = std::fs::File::open(path).expect("because it is there");
    file_of_fd(file.into(), path.to_owned())
}

fn prepare(
    root: &StageRoot,
    path: &Path,
    threads: usize,
    watcher: ModelWatcher<'_>,
) -> Result<PreparedModel, ModelPrepareError> {
    let options = ModelOptions {
        min_free_bytes: 0,
        threads: NonZeroUsize::new(threads).expect("because tests use some"),
        wait_ns: 60_000_000_000,
        ..ModelOptions::default()
    };
    let files = [open(path)];
    let files = ModelFiles {
        path,
        files: &files,
        expected: &[],
    };
    models::prepare(root, None, files, &options, watcher)
}

const QUIET: ModelWatcher<'static> = ModelWatcher {
    tell: &|_| (),
    cancel: &|| false,
};

fn find(root: &StageRoot, path: &Path) -> Result<AdmittedModel, ModelMiss> {
    let files = [SourceFile::Open(open(path))];
    models::find(
        root,
        &ModelQuery {
            path,
            files: &files,
            expected: None,
        },
    )
}

#[test]
fn threads_copy_what_one_thread_does() {
    let folder = folder_in_ram();
    for (index, bytes) in [0, 1, 512 << 10, (512 << 10) + 1, 9_000_001]
        .into_iter()
        .enumerate()
    {
        let path = folder.path().join(format!("model-{index}.gguf"));
        let content = content(bytes);
        std::fs::write(&path, &content).expect("because it is ours");
        for threads in [1, 2, 5] {
            let root = open_root(&folder.path().join(format!("stage-{index}-{threads}")));
            let told = std::cell::Cell::new(0);
            let watcher = ModelWatcher {
                tell: &|event| {
                    if let ModelEvent::Done { bytes } = event {
                        told.set(told.get() + bytes);
                    }
                },
                ..QUIET
            };
            let prepared = prepare(&root, &path, threads, watcher);
            let prepared = prepared.expect("because nothing is in the way");
            assert_eq!(
                prepared.model.digest,
                Digest::of(&content),
                "{threads} {bytes}"
            );
            assert_eq!(told.get(), bytes as u64);
            let copy = std::fs::read(&prepared.model.path).expect("because it is ours");
            assert!(copy == content, "{threads} threads, {bytes} bytes");
            let metadata = prepared.model.path.metadata().expect("because it is there");
            assert_eq!(metadata.permissions().mode() & 0o7777, 0o444);
        }
    }
}

#[test]
fn a_copy_changed_behind_restored_times_is_refused_and_a_touched_one_hashed() {
    let folder = folder_in_ram();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, content(1_000_003)).expect("because it is ours");
    let root = open_root(&folder.path().join("stage"));
    let outcome = || {
        let prepared = prepare(&root, &path, 2, QUIET);
        prepared.expect("because nothing is in the way").outcome
    };
    let bytes = 1_000_003;
    assert_eq!(outcome(), ModelOutcome::Copied { bytes });
    assert_eq!(outcome(), ModelOutcome::Reused);
    let copy = find(&root, &path).expect("because it was copied").path;
    let mode = |mode| {
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode))
            .expect("because it is ours");
    };
    let times = std::fs::metadata(&copy).and_then(|metadata| metadata.modified());
    let times = times.expect("because it has times");
    mode(0o644);
    let file = std::fs::File::options().write(true).open(&copy);
    let mut file = file.expect("because it is ours");
    file.write_all(b"X").expect("because it is ours");
    file.set_modified(times).expect("because it is ours");
    drop(file);
    mode(0o444);
    let miss = find(&root, &path).expect_err("because it changed");
    assert!(miss.to_string().ends_with("its ctime differs"), "{miss}");
    assert!(matches!(outcome(), ModelOutcome::Replaced { .. }));
    // Touched only: hashed, and the same inode serves again.
    let copy = find(&root, &path).expect("because it was copied").path;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600))
        .expect("because it is ours");
    let miss = find(&root, &path).expect_err("because it can be written");
    assert_eq!(miss.reason(), "mode");
    assert!(matches!(outcome(), ModelOutcome::Rehashed { .. }));
    assert!(find(&root, &path).is_ok());
}

#[test]
fn a_file_that_somebody_writes_is_not_copied_and_a_writable_copy_not_believed() {
    let folder = folder_in_ram();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, content(100_000)).expect("because it is ours");
    let root = open_root(&folder.path().join("stage"));
    let writer = std::fs::File::options().write(true).open(&path);
    let writer = writer.expect("because it is ours");
    if open(&path).has_writer() != Some(true) {
        println!("NOT EXERCISED: this file system has no leases");
        return;
    }
    let watcher = ModelWatcher {
        tell: &|event| panic!("refused at once, and yet {event:?}"),
        ..QUIET
    };
    let error = prepare(&root, &path, 2, watcher).expect_err("because it is written");
    let expected = format!("{} is open for writing by some process", path.display());
    assert_eq!(error.to_string(), expected);
    drop(writer);
    // One that comes while it is copied, and writes nothing yet.
    let writer = std::cell::RefCell::new(None);
    let watcher = ModelWatcher {
        tell: &|event| {
            if matches!(event, ModelEvent::Copy { .. }) {
                let file = std::fs::File::options().write(true).open(&path);
                writer.replace(Some(file.expect("because it is ours")));
            }
        },
        ..QUIET
    };
    let error = prepare(&root, &path, 2, watcher).expect_err("because it is written");
    assert_eq!(error.to_string(), expected);
    assert!(names(&folder.path().join("stage/models")).is_empty());
    drop(writer);
    let prepared = prepare(&root, &path, 2, QUIET).expect("because nobody writes");
    let copy = prepared.model.path;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o644))
        .expect("because it is ours");
    let writer = std::fs::File::options().write(true).open(&copy);
    let mut writer = writer.expect("because it is ours");
    let prepared = prepare(&root, &path, 2, QUIET).expect("because it is copied anew");
    assert!(matches!(prepared.outcome, ModelOutcome::Replaced { .. }));
    // What is written to the one before does no harm.
    writer.write_all(b"X").expect("because it is ours");
    assert!(find(&root, &path).is_ok());
    let copied = std::fs::read(prepared.model.path).expect("because it is ours");
    assert_eq!(Digest::of(&copied), prepared.model.digest);
}

#[test]
fn a_copy_that_gets_a_writer_while_it_is_made_is_not_published() {
    let folder = folder_in_ram();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, content(100_000)).expect("because it is ours");
    let root = open_root(&folder.path().join("stage"));
    let writer = std::cell::RefCell::new(None);
    let watcher = ModelWatcher {
        tell: &|event| {
            if matches!(event, ModelEvent::Done { .. }) {
                let models = folder.path().join("stage/models");
                let temp = names(&models).pop().expect("because it is being made");
                let copy = models.join(temp).join("files/model.gguf");
                let file = std::fs::File::options().write(true).open(copy);
                writer.replace(Some(file.expect("because it has its mode later")));
            }
        },
        ..QUIET
    };
    let error = prepare(&root, &path, 2, watcher);
    if open(&path).has_writer().is_none() {
        println!("NOT EXERCISED: this file system has no leases");
        return;
    }
    let error = error.expect_err("because it can be written to").to_string();
    let expected = "model.gguf is open for writing by some process";
    assert!(error.ends_with(expected), "{error}");
    assert!(names(&folder.path().join("stage/models")).is_empty());
    writer.replace(None);
    prepare(&root, &path, 2, QUIET).expect("because nobody writes");
}

const FOLDER: &str = "PACKHOUSE_TEST_MODELS_FOLDER";
const ROUND: &str = "PACKHOUSE_TEST_MODELS_ROUND";

/// A child that is ended whatever happens.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn task() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Starts this binary again for one test, and waits until it says that it is where it should be.
fn start(test: &str, folder: &Path, round: u64) -> Ended {
    let child = Command::new("/proc/self/exe")
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = Ended(child.expect("because this binary runs"));
    let output = child.0.stdout.take().expect("because it is piped");
    let mut output = BufReader::new(output);
    let mut lines = output.by_ref().lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "reached"), "the child ended early");
    // Somebody has to read what it says later.
    child.0.stdout = Some(output.into_inner());
    child
}

/// Copies, and stops for good at the event of this number.
fn copy_until(folder: &Path) {
    let round = std::env::var(ROUND)
        .ok()
        .and_then(|round| round.parse().ok());
    let round: u64 = round.expect("because the parent sets it");
    let events = std::cell::Cell::new(0);
    let watcher = ModelWatcher {
        tell: &|_| {
            if events.replace(events.get() + 1) == round {
                println!("\nreached");
                let _ = std::io::stdout().flush();
                // Until the parent closes the pipe, or kills this process.
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
            }
        },
        ..QUIET
    };
    let root = open_root(&folder.join("stage"));
    let prepared = prepare(&root, &folder.join("model.gguf"), 2, watcher);
    prepared.expect("because nothing is in the way");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("because it is ours");
    let names = entries.map(|entry| entry.expect("because it is ours").file_name());
    names
        .map(|name| name.into_string().expect("because names are ASCII"))
        .filter(|name| name != "sources")
        .collect()
}

#[test]
fn a_killed_copier_leaves_no_half_copy_and_the_next_one_clears_up() {
    if let Some(folder) = task() {
        return copy_until(&folder);
    }
    let test = "models_real::a_killed_copier_leaves_no_half_copy_and_the_next_one_clears_up";
    let folder = folder_in_ram();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, content(9_000_001)).expect("because it is ours");
    let stage = folder.path().join("stage");
    // The begin (the young file is waited for first), some pieces of 18, and the last wait.
    for round in [0, 1, 2, 9, 18, 19] {
        let mut child = start(test, folder.path(), round);
        child.0.kill().expect("because the child is ours");
        child.0.wait().expect("because the child is ours");
        let miss = find(&open_root(&stage), &path).expect_err("because it was killed");
        assert!(matches!(miss, ModelMiss::Absent { .. }), "{round}: {miss}");
    }
    let left = names(&stage.join("models"));
    assert!(
        left.iter().all(|name| name.starts_with(".tmp-")),
        "{left:?}"
    );
    let root = open_root(&stage);
    prepare(&root, &path, 2, QUIET).expect("because the dead hold nothing");
    let left = names(&stage.join("models"));
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(find(&root, &path).is_ok());
}

#[test]
fn two_processes_that_prepare_one_model_at_once_copy_it_once() {
    if let Some(folder) = task() {
        return copy_until(&folder);
    }
    let test = "models_real::two_processes_that_prepare_one_model_at_once_copy_it_once";
    let folder = folder_in_ram();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, content(3_000_001)).expect("because it is ours");
    let child = std::cell::RefCell::new(start(test, folder.path(), 3));
    let waited = std::cell::Cell::new(false);
    let watcher = ModelWatcher {
        tell: &|event| {
            if event == ModelEvent::Waits {
                waited.set(true);
                // The first one goes on now.
                drop(child.borrow_mut().0.stdin.take());
            }
        },
        ..QUIET
    };
    let root = open_root(&folder.path().join("stage"));
    let prepared = prepare(&root, &path, 2, watcher).expect("because the first one ends");
    assert!(waited.get());
    assert_eq!(prepared.outcome, ModelOutcome::Reused);
    assert_eq!(names(&folder.path().join("stage/models")).len(), 1);
}
