//! Stops of real processes that do not want to end, of processes that are somebody else's by now,
//! and stops that go on where an earlier one was ended. Waits are fractions of a second.

use crate::started::{Held, Started, procfs, wait_for, wait_for_program};
use packhouse_proc::devices::{DeviceId, Observation, VendorProcess};
use packhouse_proc::identity::{BootId, KEEPER_VARIABLE, ProcessKey, RUN_ID_VARIABLE, RunId};
use packhouse_proc::procfs::Procfs;
use packhouse_proc::records::{
    Backend, Launched, Order, OrderDevice, Outcome, Released, ReleasedMemory, ReleasedPort,
    RunExit, Step, Stop, StopMember, StopStep, StopTimeouts, Timestamp,
};
use packhouse_proc::release::{Pace, Reading, Readings};
use packhouse_proc::runs::{LOG, Run, Runs};
use packhouse_proc::start::{Before, Launcher};
use packhouse_proc::state::observe::{Observed, observe};
use packhouse_proc::state::{self, HealthSeen, PortSeen, Reason, State};
use packhouse_proc::stop::{Progress, Scene, StopError, Stopped, Timeouts, preview, stop};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs as _;
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MS: u64 = 1_000_000;

/// A run on record, and what runs of it.
struct World {
    folder: tempfile::TempDir,
    procfs: Procfs,
    runs: Runs,
    run: Run,
    order: Order,
    readings: Scripted,
    port: u16,
    engine: Option<Started>,
    held: Held,
    pids: BTreeMap<String, u32>,
    /// The notes of signals that are not obeyed.
    deaf: Vec<String>,
}

/// Devices whose memory in use is a number that a test sets.
#[derive(Default)]
struct Scripted {
    used_bytes: AtomicU64,
}

impl Readings for Scripted {
    fn read(&self, ids: &[DeviceId]) -> Vec<Reading> {
        let reading = |id: &DeviceId| match id.as_str().starts_with("cpu:") {
            true => Reading {
                used_bytes: Observation::Absent,
                processes: Observation::Absent,
            },
            false => Reading {
                used_bytes: Observation::Known(self.used_bytes.load(Ordering::SeqCst)),
                processes: Observation::Known(Vec::<VendorProcess>::new()),
            },
        };
        ids.iter().map(reading).collect()
    }
}

/// Time that passes by sleeps alone.
#[derive(Default)]
struct Sleeps {
    slept_ns: AtomicU64,
}

impl Clock for Sleeps {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns()
    }

    fn steady_ns(&self) -> u64 {
        self.slept_ns.load(Ordering::SeqCst)
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.slept_ns.fetch_add(duration_ns, Ordering::SeqCst);
    }
}

impl World {
    /// A run whose order is written, and of which nothing runs.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("because there is room");
        let procfs = procfs();
        let me = procfs.own_key().expect("because we run");
        let runs = Runs::make(Arc::new(RealFs), folder.path(), "home", "w0");
        let runs = runs.expect("because the folder is ours");
        let port = free_port();
        let order = order(&procfs, me, port, folder.path().join("unused"));
        let lock = runs
            .lock(&RealClock, &me, 0)
            .expect("because nobody has it");
        let run = runs.create(&lock, &order).expect("because there is room");
        Self {
            folder,
            procfs,
            runs,
            run,
            order,
            readings: Scripted::default(),
            port,
            engine: None,
            held: Held::default(),
            pids: BTreeMap::new(),
            deaf: Vec::new(),
        }
    }

    /// A run whose engine is `stubborn.py`, launched without a keeper that lives.
    fn with(words: &[&str]) -> Self {
        let mut world = Self::new();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proc/stubborn.py");
        let mut command = Command::new("python3");
        command
            .args(["-I", "-S", script])
            .arg(world.notes_path())
            .args(words)
            .env(RUN_ID_VARIABLE, world.order.run.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        world.deaf.push("daemon terminate".to_owned());
        let ignored = words.iter().filter_map(|word| word.strip_suffix("=ignore"));
        world
            .deaf
            .extend(ignored.map(|name| format!("main {name}")));
        let mut engine = Started::new(&mut command);
        let stdout = engine.0.stdout.take().expect("because it is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("because it writes text");
        world.pids = serde_json::from_str(&line).expect("because it writes pids");
        for pid in world.pids.values() {
            let key = world.procfs.key_of(*pid).expect("because it can be read");
            world.held.hold(&key.expect("because it runs"));
        }
        world.launched(engine.key(), None);
        world.engine = Some(engine);
        world
    }

    /// Records which processes the run is.
    fn launched(&self, worker: ProcessKey, keeper: Option<ProcessKey>) {
        let gone = ProcessKey {
            start_ticks: 1,
            ..worker
        };
        let launched = Launched {
            run: self.order.run,
            keeper: keeper.unwrap_or(gone),
            worker,
            session: i32::try_from(worker.pid).expect("because pids are small"),
            cgroup: None,
            at: self.now(),
        };
        self.run.write(&launched).expect("because there is room");
    }

    fn now(&self) -> Timestamp {
        Timestamp::now(&self.procfs.boot_id(), &RealClock)
    }

    fn stop(&self) -> Result<Stopped, StopError> {
        self.stop_within(&TIMEOUTS)
    }

    /// Stops, and gives each process that gets a signal the time that it needs to obey it or to
    /// note that it does not: a busy machine may need longer for that than these waits are.
    fn stop_within(&self, timeouts: &Timeouts) -> Result<Stopped, StopError> {
        self.stop_telling(timeouts, &mut |progress| {
            if let Progress::Signalled { step, member } = progress {
                self.wait_for_obedience(step, &member.key);
            }
        })
    }

    fn wait_for_obedience(&self, step: Step, key: &ProcessKey) {
        let part = self.pids.iter().find(|(_, pid)| **pid == key.pid);
        let part = part.map_or("", |(part, _)| part.as_str());
        let note = match step {
            Step::Interrupt => format!("{part} interrupt"),
            Step::Terminate => format!("{part} terminate"),
            Step::Kill => String::new(),
        };
        wait_for(&true, || match self.deaf.contains(&note) {
            true => self.notes().contains(&note),
            false => self.procfs.key_of(key.pid) != Ok(Some(*key)),
        });
    }

    fn stop_telling(
        &self,
        timeouts: &Timeouts,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Stopped, StopError> {
        let me = self.procfs.own_key().expect("because we run");
        stop(&self.scene(), &self.run, &me, timeouts, tell)
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            procfs: &self.procfs,
            clock: &RealClock,
            readings: &self.readings,
            available_bytes: &|| Some(1),
        }
    }

    fn observe(&self) -> Observed {
        observe(&self.procfs, Some(&self.runs), None, &|_| HealthSeen::Good)
    }

    fn is_alive(&self, part: &str) -> bool {
        let found = self.procfs.key_of(self.pids[part]);
        found.expect("because it can be read").is_some()
    }

    fn key(&self, part: &str) -> ProcessKey {
        let found = self.procfs.key_of(self.pids[part]);
        found
            .expect("because it can be read")
            .expect("because it runs")
    }

    fn notes_path(&self) -> PathBuf {
        self.folder.path().join("notes")
    }

    /// The signals that were noted, in their order.
    fn notes(&self) -> Vec<String> {
        let notes = std::fs::read_to_string(self.notes_path()).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    fn steps(&self) -> Vec<Step> {
        let stop = self.run.read::<Stop>().expect("because it can be read");
        let steps = stop.iter().flat_map(|stop| &stop.steps);
        steps.map(|step| step.step).collect()
    }

    /// After which step each process ended, by its part.
    fn ended(&self, stopped: &Stopped) -> BTreeMap<String, Option<Step>> {
        let part_of = |pid: u32| {
            let mut parts = self.pids.iter();
            parts
                .find(|(_, known)| **known == pid)
                .map(|(part, _)| part)
        };
        let ended = stopped.ended.iter().map(|process| {
            let part = part_of(process.member.key.pid).map_or("new", String::as_str);
            (part.to_owned(), process.after)
        });
        ended.collect()
    }
}

fn order(procfs: &Procfs, controller: ProcessKey, port: u16, folder: PathBuf) -> Order {
    Order {
        run: run_id(),
        fleet: "home".to_owned(),
        worker: "w0".to_owned(),
        role: String::new(),
        at: Timestamp::now(&procfs.boot_id(), &RealClock),
        at_ticks: procfs.now_ticks().expect("because it can be read"),
        machine: procfs.machine_id().map(str::to_owned),
        controller,
        version: "0.0.0".to_owned(),
        backend: Backend::Plain,
        command: vec!["/engine/that/is/gone".to_owned()],
        environment: BTreeMap::new(),
        inherit: Vec::new(),
        working_folder: Some(folder),
        cores: None,
        devices: vec![OrderDevice {
            id: "cpu:0".to_owned(),
            name: "core".to_owned(),
            used_bytes: None,
        }],
        host: Ipv4Addr::LOCALHOST.into(),
        port,
        health_path: "/health".to_owned(),
        ready_timeout_s: 1,
        stop_timeouts: StopTimeouts::default(),
        log_max_bytes: 1 << 20,
        model: None,
        available_bytes: None,
    }
}

/// Tests run beside each other, and their processes must not be each other's.
fn run_id() -> RunId {
    let mut bytes = [0; 16];
    RealFs
        .random(&mut bytes)
        .expect("because the kernel has random bytes");
    RunId::new(bytes)
}

const TIMEOUTS: Timeouts = Timeouts {
    interrupt_ns: 300 * MS,
    terminate_ns: 300 * MS,
    kill_ns: 60_000 * MS,
    launch_ns: 100 * MS,
    keeper_ns: 200 * MS,
    release: Pace {
        interval_ns: 10 * MS,
        calm: 3,
        timeout_ns: 200 * MS,
        slack_bytes: 10,
    },
};

fn free_port() -> u16 {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("because a port is free");
    socket.local_addr().expect("because it is bound").port()
}

fn after(parts: &[(&str, Step)]) -> BTreeMap<String, Option<Step>> {
    let parts = parts.iter();
    parts
        .map(|(part, step)| ((*part).to_owned(), Some(*step)))
        .collect()
}

#[test]
fn an_engine_that_heeds_an_interrupt_gets_no_other_signal() {
    let world = World::with(&[]);
    let mut begun_at_first = None;
    let stopped = world.stop_telling(&TIMEOUTS, &mut |progress| {
        if let Progress::Signalled { step, member } = progress {
            let begun = world.run.read::<Stop>().expect("because it can be read");
            begun_at_first.get_or_insert(begun.map(|begun| begun.members.len()));
            world.wait_for_obedience(step, &member.key);
        }
    });
    let stopped = stopped.expect("because it heeds");
    assert_eq!(begun_at_first, Some(Some(1)), "the intent comes first");
    assert_eq!(world.ended(&stopped), after(&[("main", Step::Interrupt)]));
    assert_eq!(world.notes(), ["main interrupt"]);
    assert_eq!(world.steps(), [Step::Interrupt]);
    assert!(stopped.is_released && !stopped.was_over);
    assert_eq!(stopped.port, ReleasedPort::Free);
    assert_eq!(stopped.devices[0].memory, ReleasedMemory::WithProcesses);
    // Nobody kept it, so nobody saw how it ended; that is on record too.
    assert_eq!(stopped.outcome, Some(Outcome::Unseen));
    let verdict = world.observe().verdict;
    assert_eq!(verdict.state, State::Exited(state::Outcome::Unknown));
    assert_eq!(verdict.reason, Reason::Released);
    let again = world.stop().expect("because there is nothing to do");
    assert!(again.is_released && again.was_over && again.ended.is_empty());
}

#[test]
fn a_deaf_engine_gets_each_step_in_its_time() {
    let world = World::with(&["interrupt=ignore", "terminate=exit"]);
    let begun_ns = RealClock.steady_ns();
    let stopped = world.stop().expect("because it heeds SIGTERM");
    assert!(RealClock.steady_ns() - begun_ns >= TIMEOUTS.interrupt_ns);
    assert_eq!(world.ended(&stopped), after(&[("main", Step::Terminate)]));
    assert_eq!(world.notes(), ["main interrupt", "main terminate"]);

    let world = World::with(&["interrupt=ignore", "terminate=ignore"]);
    let begun_ns = RealClock.steady_ns();
    let stopped = world.stop().expect("because SIGKILL ends all");
    let waited_ns = TIMEOUTS.interrupt_ns + TIMEOUTS.terminate_ns;
    assert!(RealClock.steady_ns() - begun_ns >= waited_ns);
    assert_eq!(world.ended(&stopped), after(&[("main", Step::Kill)]));
    assert_eq!(world.notes(), ["main interrupt", "main terminate"]);
    assert_eq!(world.steps(), Step::ALL);
}

#[test]
fn what_an_engine_leaves_behind_is_ended_too() {
    let world = World::with(&["leaves=daemon,bare"]);
    assert_eq!(
        world.observe().members.map(|found| found.ours.len()),
        Some(3)
    );
    let stopped = world.stop().expect("because SIGKILL ends all");
    // The child without environment descended from the engine while that lived.
    let expected = [
        ("main", Step::Interrupt),
        ("bare", Step::Terminate),
        ("daemon", Step::Kill),
    ];
    assert_eq!(world.ended(&stopped), after(&expected));
    assert_eq!(world.notes(), ["main interrupt", "daemon terminate"]);
    assert!(stopped.is_released && stopped.unproven.is_empty());
}

#[test]
fn a_child_made_while_its_parent_ends_is_found() {
    let world = World::with(&["interrupt=breed"]);
    let stopped = world.stop().expect("because the heir heeds SIGTERM");
    let expected = [("main", Step::Interrupt), ("new", Step::Terminate)];
    assert_eq!(world.ended(&stopped), after(&expected));
    assert_eq!(world.notes(), ["main interrupt", "heir terminate"]);
    let begun = world.run.read::<Stop>().expect("because it can be read");
    let members = begun.expect("because there was one").members;
    assert_eq!(members.len(), 2, "who is found later is on record too");
}

#[test]
fn an_engine_that_ends_while_it_is_stopped_is_no_error() {
    let mut world = World::with(&["interrupt=ignore", "terminate=ignore"]);
    let mut engine = world.engine.take();
    let stopped = world.stop_telling(&TIMEOUTS, &mut |progress| {
        if let Progress::Signalled { .. } = progress
            && let Some(engine) = engine.take()
        {
            engine.end();
        }
    });
    let stopped = stopped.expect("because it ended");
    assert_eq!(world.ended(&stopped), after(&[("main", Step::Interrupt)]));
    assert_eq!(world.steps(), [Step::Interrupt]);
}

#[test]
fn an_engine_that_ended_before_is_only_proven_gone() {
    let mut world = World::with(&["leaves=daemon"]);
    world.engine.take().expect("because it was started").end();
    let observed = world.observe();
    assert_eq!(observed.verdict.reason, Reason::LeftBehind);
    let stopped = world.stop().expect("because SIGKILL ends all");
    assert_eq!(world.ended(&stopped), after(&[("daemon", Step::Kill)]));
    assert_eq!(world.steps(), [Step::Terminate, Step::Kill]);

    let mut world = World::with(&[]);
    world.engine.take().expect("because it was started").end();
    assert_eq!(world.observe().verdict.state, State::Stale);
    let stopped = world.stop().expect("because nothing lives");
    assert!(stopped.is_released && stopped.was_over);
    assert_eq!(world.run.read::<Stop>(), Ok(None));
}

/// A stranger that notes every signal has the pid that the records name, with another start time.
#[test]
fn a_stranger_with_the_pid_is_never_signalled() {
    let world = World::with(&[]);
    let stranger = world.key("main");
    let recorded = ProcessKey {
        start_ticks: stranger.start_ticks - 1,
        ..stranger
    };
    // Its environment must not prove it ours: it is of another run.
    let other = World::new();
    other.launched(recorded, None);
    assert_eq!(other.observe().verdict.reason, Reason::PidReused);
    assert_eq!(other.observe().verdict.state, State::Foreign);
    let asked = preview(&other.scene(), &other.run).expect("because it can be read");
    assert_eq!((asked.main, asked.others.len()), (None, 0));
    let stopped = other.stop().expect("because nothing of it lives");
    assert!(stopped.ended.is_empty());
    let unproven: Vec<u32> = stopped.unproven.iter().map(|found| found.key.pid).collect();
    assert_eq!(unproven, [stranger.pid]);
    assert!(world.is_alive("main"));
    assert_eq!(world.notes(), [""; 0]);
}

#[test]
fn what_is_not_proven_is_listed_and_left_alone() {
    let mut world = World::with(&["leaves=orphan"]);
    world.engine.take().expect("because it was started").end();
    let stopped = world.stop().expect("because nothing that is proven lives");
    let unproven: Vec<u32> = stopped.unproven.iter().map(|found| found.key.pid).collect();
    assert_eq!(unproven, [world.pids["orphan"]]);
    assert!(stopped.ended.is_empty() && world.is_alive("orphan"));
}

#[test]
fn a_stop_that_was_cut_short_goes_on_where_it_was() {
    let world = World::with(&["interrupt=ignore", "leaves=bare"]);
    let members = ["main", "bare"].map(|part| StopMember {
        key: world.key(part),
        name: part.to_owned(),
    });
    let ago_ns = 38_500 * MS;
    let mut at = world.now();
    at.steady_ns = at.steady_ns.saturating_sub(ago_ns);
    let begun = Stop {
        run: world.order.run,
        begun: at.clone(),
        controller: world.order.controller,
        members: members.to_vec(),
        devices: Vec::new(),
        private_bytes: Some(1),
        steps: vec![StopStep {
            step: Step::Interrupt,
            at,
        }],
    };
    world.run.write(&begun).expect("because there is room");
    let observed = world.observe();
    assert_eq!(observed.verdict.reason, Reason::StopCutShort);
    let timeouts = Timeouts {
        interrupt_ns: 40_000 * MS,
        ..TIMEOUTS
    };
    let begun_ns = RealClock.steady_ns();
    let stopped = world.stop_within(&timeouts);
    let stopped = stopped.expect("because it heeds SIGTERM");
    assert!(
        RealClock.steady_ns() - begun_ns < 38_000 * MS,
        "its time began anew"
    );
    assert_eq!(world.notes(), ["main terminate"]);
    assert_eq!(world.steps(), [Step::Interrupt, Step::Terminate]);
    let expected = [("main", Step::Terminate), ("bare", Step::Terminate)];
    assert_eq!(world.ended(&stopped), after(&expected));
}

/// The child's parent is gone and it has no environment: only the earlier stop knows whose it is.
#[test]
fn what_was_proven_once_stays_proven() {
    let mut world = World::with(&["leaves=bare"]);
    let bare = StopMember {
        key: world.key("bare"),
        name: "sleep".to_owned(),
    };
    world.engine.take().expect("because it was started").end();
    let begun = Stop {
        run: world.order.run,
        begun: world.now(),
        controller: world.order.controller,
        members: vec![bare],
        devices: Vec::new(),
        private_bytes: None,
        steps: Vec::new(),
    };
    world.run.write(&begun).expect("because there is room");
    let stopped = world.stop().expect("because it ends");
    assert_eq!(world.ended(&stopped), after(&[("bare", Step::Terminate)]));
    assert!(!world.is_alive("bare"));
}

#[test]
fn a_port_that_a_stranger_holds_is_told_and_not_called_released() {
    let mut world = World::with(&[]);
    let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, world.port));
    let stranger = stranger.expect("because it is free");
    let observed = world.observe();
    assert_eq!(observed.snapshot.port, PortSeen::Other);
    assert_eq!(observed.verdict.state, State::Foreign);
    let stopped = world.stop().expect("because it heeds");
    let own = format!("pid {} (", std::process::id());
    assert!(
        matches!(&stopped.port, ReleasedPort::Taken { by } if by.starts_with(&own)),
        "{:?}",
        stopped.port
    );
    assert!(stopped.is_held() && !stopped.is_released);
    assert_eq!(world.run.read::<Released>(), Ok(None));
    drop(stranger);
    assert_eq!(world.observe().verdict.reason, Reason::ReleaseUnproven);
    world.engine = None;
    assert!(world.stop().expect("because nothing lives").is_released);
}

#[test]
fn the_port_of_the_engine_is_known_as_its_own() {
    let port = free_port();
    let word = format!("port={port}");
    let mut world = World::with(&[&word]);
    let order = Order {
        port,
        ..world.order.clone()
    };
    world.run.write(&order).expect("because there is room");
    world.order = order;
    let observed = world.observe();
    assert_eq!(observed.snapshot.port, PortSeen::Ours);
    assert_eq!(observed.snapshot.health, HealthSeen::Good);
    // Launched, and nobody waits for it to be ready.
    assert_eq!(observed.verdict.reason, Reason::NobodyWaits);
    let stopped = world.stop().expect("because it heeds");
    assert_eq!(stopped.port, ReleasedPort::Free);
}

#[test]
fn memory_that_does_not_come_back_is_told() {
    let mut world = World::with(&[]);
    let order = Order {
        devices: vec![OrderDevice {
            id: "nvidia:GPU-1".to_owned(),
            name: "card".to_owned(),
            used_bytes: Some(100),
        }],
        ..world.order.clone()
    };
    world.run.write(&order).expect("because there is room");
    // Of a busy machine's time there may not be enough for as many readings as are needed.
    let clock = Sleeps::default();
    let stop = |world: &World| {
        let me = world.procfs.own_key().expect("because we run");
        let scene = Scene {
            clock: &clock,
            ..world.scene()
        };
        stop(&scene, &world.run, &me, &TIMEOUTS, &mut |progress| {
            if let Progress::Signalled { step, member } = progress {
                world.wait_for_obedience(step, &member.key);
            }
        })
    };
    world.readings.used_bytes.store(5000, Ordering::SeqCst);
    let stopped = stop(&world).expect("because it heeds");
    let held = ReleasedMemory::Held {
        target_bytes: 100,
        used_bytes: 5000,
    };
    assert_eq!(stopped.devices[0].memory, held);
    assert!(stopped.is_held() && !stopped.is_released);
    world.engine = None;
    world.readings.used_bytes.store(90, Ordering::SeqCst);
    let stopped = stop(&world).expect("because nothing lives");
    let returned = ReleasedMemory::Returned {
        target_bytes: 100,
        used_bytes: 90,
    };
    assert_eq!(stopped.devices[0].memory, returned);
    assert!(stopped.is_released);
}

#[test]
fn a_run_of_an_earlier_boot_is_over_whoever_has_its_pids() {
    let mut world = World::with(&[]);
    let earlier = BootId::new([9; 16]);
    let mut order = world.order.clone();
    order.at.boot = earlier;
    world.run.write(&order).expect("because there is room");
    let main = world.key("main");
    world.launched(
        ProcessKey {
            boot: earlier,
            ..main
        },
        None,
    );
    assert_eq!(world.observe().verdict.reason, Reason::EarlierBoot);
    let stopped = world.stop().expect("because nothing lives");
    assert!(stopped.is_released && stopped.was_over && world.is_alive("main"));
    assert_eq!(world.notes(), [""; 0]);
    assert_eq!(stopped.outcome, Some(Outcome::Unseen));
    world.engine = None;
}

/// As in a home that two machines share: nothing that is seen here says anything of a run there.
#[test]
fn a_run_of_another_machine_is_never_taken_for_over() {
    let mut world = World::with(&[]);
    let there = BootId::new([9; 16]);
    let mut order = world.order.clone();
    order.at.boot = there;
    order.controller.boot = there;
    order.machine = Some("ab".repeat(16));
    world.run.write(&order).expect("because there is room");
    let main = world.key("main");
    world.launched(
        ProcessKey {
            boot: there,
            ..main
        },
        None,
    );
    let seen = world.observe().verdict;
    assert_eq!(seen.reason, Reason::OtherMachine);
    assert_eq!(seen.state, State::Unverifiable);
    let refused = world.stop().expect_err("because it may live");
    let said = refused.to_string();
    assert!(
        said.starts_with("run 1 was started on another machine"),
        "{said}"
    );
    assert!(preview(&world.scene(), &world.run).is_err());
    let launcher = Launcher {
        fs: &RealFs,
        clock: &RealClock,
        procfs: &world.procfs,
        program: Path::new("/no/program"),
    };
    let me = world.procfs.own_key().expect("because we run");
    let lock = world
        .runs
        .lock(&RealClock, &me, 0)
        .expect("because it is free");
    for looked in [
        launcher.look(&world.runs),
        launcher.before(&world.runs, &lock),
    ] {
        let said = looked.expect_err("because it may live").to_string();
        assert!(
            said.starts_with("run 1 was started on another machine"),
            "{said}"
        );
    }
    assert_eq!(world.run.read::<RunExit>(), Ok(None));
    assert_eq!(world.run.read::<Stop>(), Ok(None));
    assert!(world.is_alive("main"));
    // One that was proven over there is over here too.
    let exit = RunExit {
        run: order.run,
        outcome: Outcome::Code(3),
        at: world.now(),
        left_behind: Vec::new(),
        log_freed_bytes: 0,
    };
    world.run.write(&exit).expect("because there is room");
    let state = world.observe().verdict.state;
    assert_eq!(state, State::Exited(state::Outcome::Code(3)));
    let free = launcher
        .before(&world.runs, &lock)
        .expect("because it is over");
    assert!(matches!(free, Before::Free), "{free:?}");
    // The same machine without its ids is told by its boot.
    order.at.boot = world.procfs.boot_id();
    assert!(!order.is_of_another_machine(&world.procfs));
    world.engine = None;
}

/// As in a container that was started again with its state on a volume.
#[test]
fn processes_of_another_namespace_are_refused_until_nobody_has_the_run() {
    let world = World::with(&[]);
    let main = world.key("main");
    let elsewhere = |key: ProcessKey| ProcessKey {
        pid_namespace: key.pid_namespace + 1,
        ..key
    };
    let order = Order {
        controller: elsewhere(world.order.controller),
        ..world.order.clone()
    };
    world.run.write(&order).expect("because there is room");
    world.launched(elsewhere(main), Some(elsewhere(main)));
    // The engine has the log open, in whatever namespace it is.
    let log = std::fs::File::create(world.run.dir().path().join(LOG));
    let log = log.expect("because the folder is ours");
    if world.run.has_writer() == Ok(None) {
        eprintln!("NOT EXERCISED: the file system of the temporary folder tells of no writers");
        return;
    }
    let refused = world.stop().expect_err("because it may live");
    let key = elsewhere(main);
    assert_eq!(refused, StopError::OtherNamespace { key });
    assert_eq!(world.observe().verdict.state, State::Unverifiable);
    assert_eq!(world.run.read::<RunExit>(), Ok(None));
    drop(log);
    assert_eq!(world.observe().verdict.state, State::Stale);
    let stopped = world.stop().expect("because nobody has the run");
    assert!(stopped.is_released && stopped.was_over && world.is_alive("main"));
    assert_eq!(stopped.outcome, Some(Outcome::Unseen));
    assert_eq!(world.notes(), [""; 0]);
    let state = world.observe().verdict.state;
    assert_eq!(state, State::Exited(state::Outcome::Unknown));
}

#[test]
fn a_keeper_that_stays_is_ended_last() {
    let world = World::with(&[]);
    let mut keeper = Command::new("sleep");
    let keeper = Started::new(keeper.arg("600").env(KEEPER_VARIABLE, "/run"));
    wait_for_program(keeper.0.id(), "sleep");
    world.launched(world.key("main"), Some(keeper.key()));
    let stopped = world.stop().expect("because SIGKILL ends all");
    assert_eq!(world.ended(&stopped), after(&[("main", Step::Interrupt)]));
    assert!(stopped.is_released);
    let keeper = world.procfs.key_of(keeper.0.id());
    assert_eq!(keeper, Ok(None), "a zombie is gone");
}

#[test]
fn an_order_that_was_never_launched_can_not_be_launched_any_more() {
    let world = World::new();
    assert_eq!(world.observe().verdict.reason, Reason::NothingLaunched);
    let stopped = world.stop().expect("because nothing lives");
    assert!(stopped.is_released);
    let exit = world.run.read::<RunExit>().expect("because it can be read");
    let why = "stopped before it was launched".to_owned();
    assert_eq!(
        exit.map(|exit| exit.outcome),
        Some(Outcome::NotStarted { why })
    );
    let state = world.observe().verdict.state;
    assert_eq!(state, State::Exited(state::Outcome::NotStarted));
}

#[test]
fn a_damaged_record_is_named_and_never_taken_for_absent() {
    let world = World::with(&[]);
    let path = world.run.dir().path().join("launched.json");
    let text = std::fs::read_to_string(&path).expect("because it is there");
    std::fs::write(&path, text.replace("\"session\"", "\"sessiom\"")).expect("because it is ours");
    let observed = world.observe();
    assert_eq!(observed.verdict.reason, Reason::RecordUnreadable);
    assert!(
        observed.faults[0].contains("launched.json"),
        "{:?}",
        observed.faults
    );
    assert!(world.is_alive("main"));
    let stopped = world.stop().expect("because its environment proves it");
    let said = stopped.damaged[0].why.to_string();
    assert!(
        said.contains("launched.json") && said.contains("session"),
        "{said}"
    );
    // It was launched: that nobody can read by whom does not make it one that never ran.
    assert_eq!(stopped.outcome, Some(Outcome::Unseen));
    assert!(!path.exists());
}

#[test]
fn a_lock_that_is_held_shows_as_a_controller_at_work() {
    let world = World::with(&[]);
    let me = world.procfs.own_key().expect("because we run");
    let lock = world.runs.lock(&RealClock, &me, 0);
    let lock = lock.expect("because nobody has it");
    assert_eq!(world.observe().verdict.reason, Reason::Loading);
    drop(lock);
    wait_for(&Reason::NobodyWaits, || world.observe().verdict.reason);
}
