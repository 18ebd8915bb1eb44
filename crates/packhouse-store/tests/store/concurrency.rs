//! Threads and processes that fill one store at once, are killed in the middle, or are stopped
//! while they hold a lock.
//!
//! A test that needs another process starts this binary again for itself alone, with its task in
//! the environment.

use crate::fixture::identity;
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_store::object::ObjectTrust;
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::real::RealFs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const FOLDER: &str = "PACKHOUSE_TEST_FOLDER";
const OBJECT_COUNT: usize = 12;

fn open(folder: &Path) -> Store {
    let mut config = StoreConfig::new(folder.join("root"), folder.join("state"));
    config.min_free_bytes = 0;
    Store::open(Arc::new(RealFs), Arc::new(RealClock), config)
        .expect("because the folder is this user's")
}

fn payload(index: usize) -> Vec<u8> {
    let length = 1000 + index * 60_000;
    (0..length)
        .map(|at| (at * (index + 3) % 253) as u8)
        .collect()
}

fn record(payload: &[u8]) -> PackRecord {
    PackRecord {
        identity: identity(payload),
        object: ObjectDigest(Digest::of(payload)),
        length: payload.len() as u64,
        sample: SampleGeometry {
            unit_rows: 1,
            row_bytes: payload.len() as u64,
            row_count: 1,
        },
    }
}

/// Publishes all objects with their packs, beginning with a different one for each filler.
fn fill(store: &Store, filler: usize) {
    for step in 0..OBJECT_COUNT {
        let payload = payload((filler + step) % OBJECT_COUNT);
        let length = payload.len() as u64;
        let room = store
            .reserve(length, 60_000_000_000)
            .expect("because there is room");
        store
            .publish(&room, &payload, PublishOptions::default(), &|| false)
            .expect("because nothing is in the way");
        store
            .publish_pack(&record(&payload))
            .expect("because the object is there");
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).expect("because it is ours") {
            let path = entry.expect("because it is ours").path();
            if path.is_dir() {
                todo.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files
}

/// Each object there has the bytes of its name, each pack its object, and nothing else is there.
/// Answers how many objects and packs there are.
fn inspect(store: &Store, folder: &Path) -> (usize, usize) {
    let v1 = folder.join("root/v1");
    let objects = files(&v1.join("objects"));
    for path in &objects {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("because names are digests");
        let bytes = std::fs::read(path).expect("because it is ours");
        assert_eq!(Digest::of(&bytes).to_string(), name);
    }
    let packs = files(&v1.join("packs"));
    let known: Vec<_> = (0..OBJECT_COUNT)
        .map(|index| record(&payload(index)))
        .collect();
    let mut found = 0;
    for record in &known {
        if let Ok(there) = store.lookup_pack(&record.key()) {
            found += 1;
            store
                .object(&there.object, there.length, ObjectTrust::Deep)
                .expect("because a pack follows its object");
        }
    }
    assert_eq!(found, packs.len());
    assert!(files(&v1.join("quarantine")).is_empty());
    (objects.len(), packs.len())
}

/// Starts this binary again for one test, in a folder.
fn start(test: &str, folder: &Path) -> Child {
    // Not by its path, where a build may have put another binary by now.
    Command::new("/proc/self/exe")
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("because this binary runs")
}

/// Waits until a filler has published something; a slow machine takes its time.
fn wait_for_an_object(folder: &Path) {
    let objects = folder.join("root/v1/objects");
    let deadline_ns = RealClock.steady_ns() + 60_000_000_000;
    while std::fs::read_dir(&objects).map_or(0, Iterator::count) == 0 {
        assert!(
            RealClock.steady_ns() < deadline_ns,
            "the child fills nothing"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn task() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = i32::try_from(child.id()).expect("because process ids are small");
    let pid = rustix::process::Pid::from_raw(pid).expect("because it is not 0");
    rustix::process::kill_process(pid, signal).expect("because the child is ours");
}

#[test]
fn sixteen_threads_publish_the_same_objects_once() {
    let folder = tempfile::tempdir().expect("because a temporary folder can be made");
    let barrier = Barrier::new(16);
    std::thread::scope(|scope| {
        for filler in 0..16 {
            let (barrier, folder) = (&barrier, folder.path());
            scope.spawn(move || {
                barrier.wait();
                // Opened here, so that making the store races too.
                fill(&open(folder), filler);
            });
        }
    });
    let store = open(folder.path());
    let expected = (OBJECT_COUNT, OBJECT_COUNT);
    assert_eq!(inspect(&store, folder.path()), expected);
    assert_eq!(store.room(0).map(|room| room.reserved_bytes), Ok(0));
}

#[test]
fn killed_processes_leave_all_or_nothing_and_the_next_fill_ends() {
    if let Some(folder) = task() {
        let filler = usize::try_from(std::process::id()).expect("because process ids are small");
        loop {
            fill(&open(&folder), filler);
            // Begin again on an empty store, so that a kill finds something to interrupt.
            for path in files(&folder.join("root/v1")) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
    let test = "concurrency::killed_processes_leave_all_or_nothing_and_the_next_fill_ends";
    let mut seen = Vec::new();
    for round in 0..25 {
        // A filler that empties the store races with the others, so each round has its own.
        let folder = tempfile::tempdir().expect("because a temporary folder can be made");
        let mut child = start(test, folder.path());
        wait_for_an_object(folder.path());
        std::thread::sleep(Duration::from_millis(round * 13 % 97));
        child.kill().expect("because the child is ours");
        child.wait().expect("because the child is ours");
        let store = open(folder.path());
        seen.push(inspect(&store, folder.path()));
        fill(&store, 0);
        let expected = (OBJECT_COUNT, OBJECT_COUNT);
        assert_eq!(inspect(&store, folder.path()), expected);
        assert_eq!(store.room(0).map(|room| room.reserved_bytes), Ok(0));
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 1, "every kill found the same: {seen:?}");
}

#[test]
fn several_processes_fill_one_store_while_some_are_killed() {
    if let Some(folder) = task() {
        let filler = usize::try_from(std::process::id()).expect("because process ids are small");
        fill(&open(&folder), filler);
        return;
    }
    let test = "concurrency::several_processes_fill_one_store_while_some_are_killed";
    let folder = tempfile::tempdir().expect("because a temporary folder can be made");
    let mut children: Vec<_> = (0..8).map(|_| start(test, folder.path())).collect();
    wait_for_an_object(folder.path());
    for child in children.iter_mut().step_by(2) {
        child.kill().expect("because the child is ours");
    }
    for (index, child) in children.iter_mut().enumerate() {
        let status = child.wait().expect("because the child is ours");
        assert!(index % 2 == 0 || status.success(), "{status}");
    }
    let store = open(folder.path());
    let expected = (OBJECT_COUNT, OBJECT_COUNT);
    assert_eq!(inspect(&store, folder.path()), expected);
    assert_eq!(store.room(0).map(|room| room.reserved_bytes), Ok(0));
}

#[test]
fn a_stopped_holder_blocks_no_try_and_its_death_frees_all() {
    let key = record(&payload(0)).key();
    if let Some(folder) = task() {
        let store = open(&folder);
        let _lock = store.try_lock_pack(&key).expect("because there is a state");
        let _room = store.reserve(1000, 0).expect("because there is room");
        println!("\nheld");
        // Ends when the parent closes the pipe.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    let folder = tempfile::tempdir().expect("because a temporary folder can be made");
    let store = open(folder.path());
    let test = "concurrency::a_stopped_holder_blocks_no_try_and_its_death_frees_all";
    let mut child = start(test, folder.path());
    let output = child.stdout.take().expect("because it is piped");
    let held = BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .any(|line| line == "held");
    assert!(held, "the child never held its lock");
    signal(&child, rustix::process::Signal::STOP);
    let before_ns = RealClock.steady_ns();
    let lock = store.try_lock_pack(&key).expect("because there is a state");
    assert!(lock.is_none());
    let other = store
        .try_lock_pack(&record(&payload(1)).key())
        .expect("because there is a state");
    assert!(other.is_some());
    assert_eq!(store.room(0).map(|room| room.reserved_bytes), Ok(1000));
    fill(&store, 0);
    let took_ns = RealClock.steady_ns() - before_ns;
    assert!(took_ns < 60_000_000_000, "blocked for {took_ns} ns");
    signal(&child, rustix::process::Signal::KILL);
    child.wait().expect("because the child is ours");
    let lock = store.try_lock_pack(&key).expect("because there is a state");
    assert!(lock.is_some());
    assert_eq!(store.room(0).map(|room| room.reserved_bytes), Ok(0));
}
