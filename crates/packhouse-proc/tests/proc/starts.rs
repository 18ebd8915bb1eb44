//! Starts whose keeper is not what it should be.

use crate::records::order;
use crate::started::{Held, procfs};
use packhouse_proc::identity::ProcessKey;
use packhouse_proc::records::{Backend, Launched, Order, RunExit};
use packhouse_proc::runs::Runs;
use packhouse_proc::start::{LaunchError, Launcher};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::real::RealFs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
