//! Several processes on one store: this test binary, started again as a child.

use crate::fake::{FakeEngine, PLAIN, StillClock};
use crate::lifetimes::MANY;
use crate::world::{Model, Session, World, until};
use packhouse_loader::{Loader, Settings, Trust};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tells a child which folder to load from; in the test's own process it is not set.
const FOLDER: &str = "LOADER_TEST_FOLDER";
/// Its presence in that folder lets a child store more than `HELD` packs.
const GO: &str = "go";
const HELD: usize = 12;

/// All names below a folder that are files.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(names(&entry.path())),
            Ok(_) => found.push(entry.file_name().to_string_lossy().into_owned()),
            Err(_) => {}
        }
    }
    found
}

/// The child's part: one load, whose fill is held in its middle until the parent lets it go on, and
/// ends before the child does. A parent that is late finds it there.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let settings = Settings {
        root: Some(folder.join("store")),
        state: Some(folder.join("state")),
        read_only: false,
        trust: Trust::Receipt,
        bytes_max: Some(1 << 30),
        stage: None,
    };
    let (engine, clock) = (FakeEngine::new(PLAIN), StillClock::new());
    let session = Session {
        loader: Loader::with_clock(engine.clone(), settings, clock.clone()),
        engine,
    };
    let model = Model::open(&folder.join("a.gguf"));
    let mut run = session.begin(0, &[&model]);
    clock.stall_fills(true);
    run.serve_all(&[&model]);
    let held = run.regions[HELD].with_private(|_| {
        clock.stall_fills(false);
        until("the parent lets it go on", || folder.join(GO).exists());
    });
    held.expect("because it is private memory");
    run.outcome().assert_fill("done");
    run.load.close();
}

/// Lets the children of a world store all.
fn let_go_on(world: &World) {
    std::fs::write(world.path(GO), "").expect("because the folder is ours");
}

struct Process(Child);

impl Process {
    fn start(world: &World) -> Self {
        let this = std::env::current_exe().expect("because this process has a binary");
        let mut command = Command::new(this);
        command.args(["processes::child", "--exact", "--nocapture"]);
        command.env(FOLDER, world.dir.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("because it can be started"))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).expect("because it is our child");
    }

    /// Waits for the child's end; whether it succeeded.
    fn ends_well(mut self) -> bool {
        let mut status = None;
        until("the child ends", || {
            status = self.0.try_wait().expect("because it is our child");
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }

    fn has_ended(&mut self) -> bool {
        self.0
            .try_wait()
            .expect("because it is our child")
            .is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pack_count(world: &World) -> usize {
    names(&world.root().join("v1/packs")).len()
}

/// A world whose child was given a signal in the middle of its fill, and the child.
fn in_the_middle(signal: Signal) -> (World, Model, Process) {
    let world = World::new();
    let model = world.model("a.gguf", MANY, 1);
    let mut process = Process::start(&world);
    until("a pack is stored", || {
        assert!(!process.has_ended(), "the child ended by itself");
        pack_count(&world) > 0
    });
    process.signal(signal);
    let stored = pack_count(&world);
    assert!((1..=HELD).contains(&stored), "{stored} packs are stored");
    (world, model, process)
}

fn assert_no_temporary(world: &World) {
    let names = names(&world.root());
    let odd = names.iter().filter(|name| {
        let digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let record = name.len() == 69 && name.ends_with(".json");
        let known = ["CACHEDIR.TAG", "id", "manifest.json", "runtime-index.tsv"];
        !digest && !record && !known.contains(&name.as_str())
    });
    assert_eq!(odd.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn two_processes_on_an_empty_store_both_end_well_and_the_next_start_hits() {
    let world = World::new();
    let model = world.model("a.gguf", MANY, 1);
    let_go_on(&world);
    let processes = [Process::start(&world), Process::start(&world)];
    for process in processes {
        assert!(process.ends_well());
    }
    assert_eq!(pack_count(&world), 16);
    assert_no_temporary(&world);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

#[test]
fn a_process_stopped_in_its_fill_keeps_nobody_from_storing_all() {
    let (world, model, process) = in_the_middle(Signal::STOP);
    let outcome = world.load(PLAIN, &[&model]);
    outcome.assert_fill("done");
    assert_eq!(outcome.warnings(), [""; 0]);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    process.signal(Signal::CONT);
    let_go_on(&world);
    assert!(
        process.ends_well(),
        "it goes on where others were before it"
    );
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    assert_no_temporary(&world);
}

#[test]
fn a_process_killed_in_its_fill_leaves_no_temporary_file_and_the_next_start_completes() {
    for _ in 0..3 {
        let (world, model, process) = in_the_middle(Signal::KILL);
        assert!(!process.ends_well());
        assert_no_temporary(&world);
        let before = pack_count(&world) as u64;
        let outcome = world.load(PLAIN, &[&model]);
        outcome.assert_fill("done");
        assert_eq!(outcome.counts(), [before, 0, 16 - before, 0]);
        world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    }
}
