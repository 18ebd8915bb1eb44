//! The state folder: a run is whole or not there whatever stops its making, and one process decides
//! on it at a time.

use crate::records::{exit, key, launched, order};
use packhouse_proc::records::{Launched, Order, Outcome, Record as _, RunExit};
use packhouse_proc::runs::{Run, Runs, RunsError};
use packhouse_sim::{Crash, Fault, SimClock, SimFs};
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A real state folder.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("because tests have a temporary folder");
        Self { folder }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn worker(&self) -> PathBuf {
        self.state().join("fleets/home/w0")
    }

    fn runs(&self) -> Runs {
        Runs::make(Arc::new(RealFs), &self.state(), "home", "w0").expect("because it is ours")
    }

    fn create(&self, runs: &Runs) -> Run {
        let lock = runs
            .lock(&RealClock, &key(1), 0)
            .expect("because it is free");
        runs.create(&lock, &order()).expect("because there is room")
    }
}

#[test]
fn runs_are_numbered_and_the_newest_counts() {
    let place = Place::new();
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let open = || Runs::open(Arc::clone(&fs), &place.state(), "home", "w0");
    assert!(open().expect("because absence is no error").is_none());
    let runs = place.runs();
    assert!(runs.newest().unwrap().is_none());
    for number in 1..=3 {
        let run = place.create(&runs);
        assert_eq!(run.number(), number);
        assert_eq!(run.order().unwrap(), order());
        assert!(run.read::<Launched>().unwrap().is_none());
        run.write(&launched()).unwrap();
        assert_eq!(run.read::<Launched>().unwrap(), Some(launched()));
    }
    let runs = open().unwrap().expect("because it was made");
    assert_eq!(runs.newest().unwrap().unwrap().number(), 3);
    assert_eq!(Runs::fleets(&RealFs, &place.state()).unwrap(), ["home"]);
    assert_eq!(
        Runs::workers(&RealFs, &place.state(), "home").unwrap(),
        ["w0"]
    );
    let path = place.worker().join("runs/000002");
    assert_eq!(Run::open(fs, &path).unwrap().number(), 2);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("order.json")), 0o600);
}

#[test]
fn a_run_stopped_at_any_operation_is_whole_or_not_there() {
    let state = Path::new("/state");
    let base = || {
        let sim = SimFs::new(7, Arc::new(SimClock::new()));
        Runs::make(Arc::new(sim.clone()), state, "home", "w0").expect("because it is healthy");
        sim.restart_count();
        sim
    };
    let work = |sim: &SimFs| -> Result<(), RunsError> {
        let runs = Runs::make(Arc::new(sim.clone()), state, "home", "w0")?;
        let lock = runs.lock(sim.clock().as_ref(), &key(1), 0)?;
        let run = runs.create(&lock, &order())?;
        run.write(&launched())?;
        run.write(&exit(Outcome::Code(0)))
    };
    let healthy = base();
    work(&healthy).expect("because it is healthy");
    let count = healthy.operation_count();
    assert!(count > 15, "only {count} operations");
    for k in 0..count {
        for (crash, seeds) in CRASHES {
            for seed in 0..seeds {
                let context = format!("stopped at {k} of {count}, {crash:?} {seed}");
                let sim = base();
                sim.set_fault(Some(Fault::Stop { at: k }));
                work(&sim).expect_err(&context);
                let sim = sim.crash(crash, seed);
                judge(&sim, state, &context);
                // What is left of the first is nobody's, and in nobody's way.
                work(&sim).expect(&context);
                let runs = Runs::make(Arc::new(sim), state, "home", "w0").expect(&context);
                let run = runs.newest().expect(&context).expect(&context);
                let names = run.dir().list().expect(&context);
                let (reserves, whole): (Vec<_>, Vec<_>) =
                    (names.iter()).partition(|name| name.to_string_lossy().starts_with("reserve-"));
                assert_eq!(
                    whole,
                    ["exit.json", "launched.json", "order.json"],
                    "{context}"
                );
                assert_eq!(reserves.len(), 4, "{context}");
            }
        }
    }
}

/// An engine whose log fills the disk is the likely one to be stopped then.
#[test]
fn a_full_disk_has_room_for_the_records_of_a_stop() {
    let state = Path::new("/state");
    let sim = SimFs::new(7, Arc::new(SimClock::new()));
    let runs = Runs::make(Arc::new(sim.clone()), state, "home", "w0").unwrap();
    let lock = runs.lock(sim.clock().as_ref(), &key(1), 0).unwrap();
    let run = runs.create(&lock, &order()).unwrap();
    let end = |code| exit(Outcome::Code(code));
    for code in 0..4 {
        // Whatever became free is taken at once.
        sim.set_total_bytes(0);
        run.write(&end(code)).expect("because room was kept");
        assert_eq!(run.read::<RunExit>().unwrap(), Some(end(code)));
        let crashed = sim.crash(Crash::Lost, 0);
        let runs = Runs::make(Arc::new(crashed), state, "home", "w0").unwrap();
        let run = runs.newest().unwrap().expect("because it is durable");
        assert_eq!(run.read::<RunExit>().unwrap(), Some(end(code)));
    }
    let full = run.write(&end(4)).expect_err("because all of it is used");
    assert!(
        full.to_string().contains("no space left on device"),
        "{full}"
    );
    assert_eq!(run.read::<RunExit>().unwrap(), Some(end(3)));
    let names = run.dir().list().unwrap();
    assert_eq!(names, ["exit.json", "order.json"]);
}

/// Each run that is there has its order, and no end without a launch.
fn judge(sim: &SimFs, state: &Path, context: &str) {
    let runs = Runs::make(Arc::new(sim.clone()), state, "home", "w0").expect(context);
    for run in runs.list().expect(context) {
        assert_eq!(run.order().expect(context), order(), "{context}");
        let launched = run.read::<Launched>().expect(context);
        if run.read::<RunExit>().expect(context).is_some() {
            assert!(launched.is_some(), "{context}: an end before its launch");
        }
    }
}

#[test]
fn one_controller_at_a_time_and_the_other_hears_who() {
    let place = Place::new();
    let runs = place.runs();
    let held = runs.lock(&RealClock, &key(4711), 0).unwrap();
    let error = runs
        .lock(&RealClock, &key(2), 0)
        .expect_err("because it is held");
    assert_eq!(
        error.to_string(),
        "pid 4711 is starting or stopping worker w0 already"
    );
    drop(held);
    drop(
        runs.lock(&RealClock, &key(2), 0)
            .expect("because it was given back"),
    );
}

#[test]
fn a_claim_is_of_one_and_tells_that_a_keeper_lives() {
    let place = Place::new();
    let runs = place.runs();
    let run = place.create(&runs);
    assert!(!run.keeper_lives().unwrap());
    let claim = run.claim(&RealClock, 0).unwrap();
    assert!(claim.is_some());
    assert!(run.keeper_lives().unwrap());
    assert!(run.claim(&RealClock, 0).unwrap().is_none());
    // Records that are written meanwhile leave the lock where it is.
    run.write(&launched()).unwrap();
    assert!(run.keeper_lives().unwrap());
    drop(claim);
    assert!(!run.keeper_lives().unwrap());
}

#[test]
fn old_runs_go_once_they_are_over() {
    let place = Place::new();
    let runs = place.runs();
    let mut made = Vec::new();
    for number in 0..6 {
        let run = place.create(&runs);
        let mut end = exit(Outcome::Code(0));
        match number {
            // Nobody knows how it ended.
            0 => continue,
            // What it left behind may live.
            1 => end.left_behind[0].is_gone = false,
            _ => {}
        }
        run.write(&end).unwrap();
        made.push(run);
    }
    let held = made[1]
        .claim(&RealClock, 0)
        .unwrap()
        .expect("because it is free");
    let lock = runs.lock(&RealClock, &key(1), 0).unwrap();
    let numbers = || {
        let runs = runs.list().unwrap();
        runs.iter().map(Run::number).collect::<Vec<_>>()
    };
    // The third is held, as by a keeper.
    assert_eq!(runs.prune(&lock, 1).unwrap(), 2);
    assert_eq!(numbers(), [1, 2, 3, 6]);
    drop(held);
    assert_eq!(runs.prune(&lock, 10).unwrap(), 0);
    assert_eq!(runs.prune(&lock, 0).unwrap(), 1);
    assert_eq!(numbers(), [1, 2, 6]);
    let left: Vec<_> = std::fs::read_dir(place.worker().join("runs"))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 3, "{left:?}");
    // A number is never used again.
    drop(lock);
    assert_eq!(place.create(&runs).number(), 7);
}

#[test]
fn what_is_damaged_or_open_to_others_is_refused_by_its_name() {
    let place = Place::new();
    let runs = place.runs();
    let run = place.create(&runs);
    let folder = run.dir().path().to_owned();
    let said = |path: &str| run.read::<Order>().expect_err(path).to_string();
    std::fs::write(folder.join("order.json"), "{}\n").unwrap();
    let error = said("because it is empty");
    assert!(error.ends_with("order.json: schema: absent"), "{error}");
    std::fs::write(folder.join("order.json"), &order().render()[..90]).unwrap();
    let error = said("because it is torn");
    assert!(error.contains("order.json: not JSON"), "{error}");
    std::fs::remove_file(folder.join("order.json")).unwrap();
    let error = run.order().expect_err("because it is gone").to_string();
    assert!(error.contains("000001 has no order.json"), "{error}");
    std::os::unix::fs::symlink("/etc/passwd", folder.join("order.json")).unwrap();
    let error = said("because it is a symlink");
    assert!(error.contains("order.json is a symlink"), "{error}");

    let open_to_others = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.worker(), open_to_others).unwrap();
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let error = Runs::open(Arc::clone(&fs), &place.state(), "home", "w0");
    let error = error.err().expect("because others can enter").to_string();
    assert!(error.contains("w0 has mode 0755, expected 0700"), "{error}");
    for name in ["", "..", "A", "a/b", "-a", "w 0", &"w".repeat(65)] {
        let error = Runs::open(Arc::clone(&fs), &place.state(), "home", name);
        let error = error.err().expect("because it is no name").to_string();
        assert!(error.contains(&format!("{name:?}")), "{error}");
    }
}

const CRASHES: [(Crash, u64); 5] = [
    (Crash::Lost, 1),
    (Crash::Torn, 3),
    (Crash::Reordered, 4),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];
