//! Starts whose keeper is not what it should be, or needs its time.

use crate::records::order;
use crate::started::{Held, Started, procfs};
use packhouse_proc::identity::{ProcessKey, RUN_ID_VARIABLE, RunId};
use packhouse_proc::ready::{NotReady, Waiting};
use packhouse_proc::records::{Backend, Launched, Order, Outcome, RunExit, Timestamp};
use packhouse_proc::runs::{Run, Runs, WorkerLock};
use packhouse_proc::start::{Before, LaunchError, Launcher};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs as _;
use packhouse_sys::real::RealFs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A second passes with each sleep, once a file is there.
struct Fast {
    passed_ns: AtomicU64,
    from: PathBuf,
}

impl Clock for Fast {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns()
    }

    fn steady_ns(&self) -> u64 {
        self.passed_ns.load(Ordering::Relaxed)
    }

    fn sleep_ns(&self, _duration_ns: u64) {
        RealClock.sleep_ns(1_000_000);
        if self.from.exists() {
            self.passed_ns.fetch_add(1_000_000_000, Ordering::Relaxed);
        }
    }
}

/// A keeper that has its lock and does nothing. A record lock conflicts with one of a descriptor.
const STUCK: &str = "#!/usr/bin/env -S python3 -I
import fcntl, os, sys, time
order = open(sys.argv[2] + '/order.json', 'r+')
fcntl.lockf(order, fcntl.LOCK_EX, 1)
with open(sys.argv[0] + '.new', 'w') as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[0] + '.new', sys.argv[0] + '.pid')
time.sleep(60)
";

#[test]
fn a_keeper_that_does_not_get_on_is_not_waited_for_for_ever() {
    let folder = tempfile::tempdir().expect("because tests have a temporary folder");
    let program = folder.path().join("stuck");
    std::fs::write(&program, STUCK).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let pid_path = folder.path().join("stuck.pid");
    let clock = Fast {
        passed_ns: AtomicU64::new(0),
        from: pid_path.clone(),
    };
    let procfs = procfs();
    let me = procfs.own_key().expect("because we run");
    let state = folder.path().join("state");
    let runs = Runs::make(Arc::new(RealFs), &state, "home", "w0").unwrap();
    let lock = runs.lock(&RealClock, &me, 0).unwrap();
    let launcher = Launcher {
        fs: &RealFs,
        clock: &clock,
        procfs: &procfs,
        program: &program,
    };
    let order = Order {
        backend: Backend::Plain,
        controller: me,
        ..order()
    };
    let launched = launcher.launch(&runs, &lock, &order);
    let mut held = Held::default();
    held.hold(&stuck(&pid_path));
    let error = launched.expect_err("because nothing was launched");
    assert!(
        matches!(error, LaunchError::Launching { number: 1 }),
        "{error}"
    );
    let waited_s = clock.steady_ns() / 1_000_000_000;
    assert!((60..70).contains(&waited_s), "{waited_s} s");
    // It may still get on: nothing is decided.
    let run = runs.newest().unwrap().expect("because it was ordered");
    assert_eq!(run.read::<RunExit>().unwrap(), None);
    assert_eq!(run.read::<Launched>().unwrap(), None);
}

fn stuck(path: &Path) -> ProcessKey {
    let pid = std::fs::read_to_string(path).expect("because it began");
    let key = procfs().key_of(pid.parse().expect("because it is a pid"));
    key.unwrap().expect("because it lives")
}

/// Time that passes by sleeps alone, half a second each; something happens at the tenth.
struct Tenth<'a> {
    slept: AtomicU64,
    act: &'a (dyn Fn() + Sync),
}

impl<'a> Tenth<'a> {
    fn new(act: &'a (dyn Fn() + Sync)) -> Self {
        let slept = AtomicU64::new(0);
        Self { slept, act }
    }
}

impl Clock for Tenth<'_> {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns()
    }

    fn steady_ns(&self) -> u64 {
        self.slept.load(Ordering::SeqCst) * 500_000_000
    }

    fn sleep_ns(&self, _duration_ns: u64) {
        if self.slept.fetch_add(1, Ordering::SeqCst) == 9 {
            (self.act)();
        }
    }
}

/// A run of this boot with its folder, and what its processes are.
struct Ordered {
    folder: tempfile::TempDir,
    runs: Runs,
    run: Run,
    order: Order,
    lock: WorkerLock,
}

impl Ordered {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("because tests have a temporary folder");
        let procfs = procfs();
        let me = procfs.own_key().expect("because we run");
        let state = folder.path().join("state");
        let runs = Runs::make(Arc::new(RealFs), &state, "home", "w0").unwrap();
        let lock = runs.lock(&RealClock, &me, 0).unwrap();
        let mut bytes = [0; 16];
        RealFs.random(&mut bytes).unwrap();
        let order = Order {
            run: RunId::new(bytes),
            at: Timestamp::now(&procfs.boot_id(), &RealClock),
            at_ticks: procfs.now_ticks().unwrap(),
            machine: procfs.machine_id().map(str::to_owned),
            controller: me,
            ..order()
        };
        let run = runs.create(&lock, &order).unwrap();
        Self {
            folder,
            runs,
            run,
            order,
            lock,
        }
    }

    /// A process of the run that has a gate's words, and ends with its input.
    fn gate(&self) -> Started {
        std::fs::write(self.folder.path().join("gate"), "echo; read end\n").unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .arg0("packhouse")
            .args(["gate", "--", "engine"])
            .current_dir(self.folder.path())
            .env(RUN_ID_VARIABLE, self.order.run.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut gate = Started::new(&mut command);
        let stdout = gate.0.stdout.as_mut().expect("because it is piped");
        std::io::Read::read_exact(stdout, &mut [0]).expect("because it prints a line");
        gate
    }

    fn launched(&self, worker: ProcessKey) -> Launched {
        let keeper = ProcessKey {
            start_ticks: 1,
            ..worker
        };
        Launched {
            run: self.order.run,
            keeper,
            worker,
            session: i32::try_from(worker.pid).expect("because pids are small"),
            cgroup: None,
            at: self.order.at.clone(),
        }
    }

    fn before(&self, clock: &dyn Clock) -> Result<Before, LaunchError> {
        let procfs = procfs();
        let launcher = Launcher {
            fs: &RealFs,
            clock,
            procfs: &procfs,
            program: Path::new("/no/program"),
        };
        launcher.before(&self.runs, &self.lock)
    }

    fn end(&self, outcome: Outcome) -> RunExit {
        RunExit {
            run: self.order.run,
            outcome,
            at: self.order.at.clone(),
            left_behind: Vec::new(),
            log_freed_bytes: 0,
        }
    }
}

/// Its keeper was killed: on a busy machine it needs a while to see that, whatever is on record.
#[test]
fn a_gate_without_a_keeper_is_waited_for_and_is_no_worker() {
    let why = "its keeper ended before it launched anything".to_owned();
    let not_started = Outcome::NotStarted { why };
    for (is_launched, ended) in [(true, None), (false, None), (false, Some(not_started))] {
        let ordered = Ordered::new();
        let gate = Mutex::new(ordered.gate());
        let key = gate.lock().unwrap().key();
        if is_launched {
            ordered.run.write(&ordered.launched(key)).unwrap();
        }
        if let Some(outcome) = ended {
            ordered.run.write(&ordered.end(outcome)).unwrap();
        }
        let act = || {
            let mut gate = gate.lock().unwrap();
            drop(gate.0.stdin.take());
            gate.0.wait().expect("because it is our child");
        };
        let before = ordered.before(&Tenth::new(&act));
        assert!(matches!(before, Ok(Before::Free)), "{before:?}");
        assert_eq!(procfs().key_of(key.pid), Ok(None));
        assert!(ordered.run.read::<RunExit>().unwrap().is_some());
    }
}

/// A keeper writes the end down, on a busy disk some seconds after it.
#[test]
fn how_an_engine_ended_is_told_though_its_record_takes_seconds() {
    let ordered = Ordered::new();
    let engine = Started::waiting();
    let launched = ordered.launched(engine.key());
    ordered.run.write(&launched).unwrap();
    engine.end();
    // As its keeper holds it.
    let claim = Mutex::new(ordered.run.claim(&RealClock, 0).unwrap());
    let act = || {
        ordered.run.write(&ordered.end(Outcome::Code(7))).unwrap();
        claim.lock().unwrap().take();
    };
    let clock = Tenth::new(&act);
    let procfs = procfs();
    let waiting = Waiting {
        procfs: &procfs,
        clock: &clock,
        me: &ordered.order.controller,
        runs: &ordered.runs,
        run: &ordered.run,
        order: &ordered.order,
        launched: &launched,
        cancel: &|| false,
    };
    let ended = waiting.look().expect_err("because it ended");
    let outcome = Outcome::Code(7);
    let left_behind = Vec::new();
    let expected = NotReady::Ended {
        outcome,
        left_behind,
    };
    assert_eq!(ended, expected);
}
