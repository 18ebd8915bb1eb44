//! Keepers in bad moments: a signal just before the engine begins, a disk that is full at its end,
//! a folder that is gone.

use crate::worker_world::{Part, World, kill, lives, worker_words};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

/// Ends a child of the test whatever happens.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn keeper(world: &World) -> Option<u32> {
    let running = world.running().into_iter();
    let mut keepers = running.filter(|running| running.part == Part::Keeper);
    keepers.next().map(|running| running.pid)
}

/// Has a lease on a file, so that its execution waits; says when it does.
const LEASE: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, lambda *_: print('wanted', flush=True))
file = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.readline()
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
";

#[test]
fn a_signal_before_the_engine_begins_leaves_no_engine_without_a_keeper() {
    let world = World::new(0, &[]);
    let engine = world.path("engine");
    fs::write(&engine, "#!/bin/sh\nwhile :; do sleep 0.1; done\n").unwrap();
    fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).unwrap();
    let text = fs::read_to_string(world.path("fleet.toml")).unwrap();
    let command = text.lines().find(|line| line.starts_with("command = "));
    let own = format!("command = [{engine:?}, \"{{host}}\", \"{{port}}\"]");
    fs::write(
        world.path("fleet.toml"),
        text.replace(command.unwrap(), &own),
    )
    .unwrap();
    let mut lease = Command::new("python3")
        .args(["-c", LEASE])
        .arg(&engine)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Ours)
        .expect("because the tests need python3");
    let out = lease.0.stdout.take().expect("because it is piped");
    let mut told = BufReader::new(out).lines().map_while(Result::ok);
    if told.next().as_deref() != Some("held") {
        eprintln!("NOT EXERCISED: the file system of the temporary folder has no leases");
        return;
    }
    let mut command = world
        .sandbox()
        .command(&worker_words(&["start", "--execute"]));
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let start = Ours(command.spawn().expect("because it was built"));
    // The gate has leave to become the engine, and waits for its file.
    assert_eq!(told.next().as_deref(), Some("wanted"));
    world.wait_for("the record", || world.record("launched.json").is_some());
    kill(
        keeper(&world).expect("because it waits for the gate"),
        "-TERM",
    );
    // Whether the signal finds the gate or the engine, the keeper ends it.
    let is_told = || keeper(&world).is_none() || world.record("exit.json").is_some();
    world.wait_for("what the keeper does", is_told);
    let mut stdin = lease.0.stdin.take().expect("because it is piped");
    stdin.write_all(b"\n").unwrap();
    drop(start);
    world.wait_for("the end of all", || world.running().is_empty());
    let exit = world
        .record("exit.json")
        .expect("because its keeper saw it");
    assert_eq!(exit["outcome"]["signal"], 2, "{exit}");
}

/// Bounds what a process may write, which is how a full disk is to it.
fn bound_files(pid: u32, bytes: &str) {
    let status = Command::new("prlimit")
        .args([&format!("--fsize={bytes}:"), "--pid", &pid.to_string()])
        .status()
        .expect("because util-linux is everywhere");
    assert!(status.success());
}

#[test]
fn a_keeper_that_can_not_record_an_end_stays_until_it_can() {
    let world = World::new(0, &[]);
    let child = world.path("child");
    world.write_fleet(0, &["--bare-child", child.to_str().unwrap()], "plain");
    let words = worker_words(&["start", "--execute"]);
    let mut shell = world
        .sandbox()
        .shell("trap '' XFSZ; exec \"$0\" \"$@\"", &words);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = || fs::read_to_string(&child).unwrap_or_default();
    world.wait_for("a child", || text().ends_with('\n'));
    let left: u32 = text().trim().parse().unwrap();
    let keeper = keeper(&world).expect("because it keeps");
    bound_files(keeper, "0");
    let [pid] = world.servers()[..] else {
        panic!("{:?}", world.running());
    };
    kill(pid, "-KILL");
    world.wait_for("the end of what was left", || !lives(left));
    let seen = world.status("a full disk");
    assert_eq!(seen["state"], "stopping", "{seen}");
    assert_eq!(seen["reason"], "keeper_finishing", "{seen}");
    assert!(world.record("exit.json").is_none() && lives(keeper));
    bound_files(keeper, "unlimited");
    world.wait_for("the end of the keeper", || !lives(keeper));
    let exit = world.record("exit.json").expect("because there is room");
    assert_eq!(exit["outcome"]["signal"], 9, "{exit}");
    assert_eq!(exit["left_behind"][0]["is_gone"], true, "{exit}");
    world.must_be_over("all was ended");
}

#[test]
fn a_keeper_whose_run_was_removed_ends_with_its_engine() {
    let world = World::new(0, &[]);
    world.done(&["start", "--execute"], "a start");
    let keeper = keeper(&world).expect("because it keeps");
    let [pid] = world.servers()[..] else {
        panic!("{:?}", world.running());
    };
    let run = "home/.local/state/packhouse/fleets/home/w0/runs/000001";
    fs::remove_dir_all(world.path(run)).unwrap();
    kill(pid, "-KILL");
    world.wait_for("the end of the keeper", || !lives(keeper));
}

/// A file that may only be appended to, until the end of the test.
struct AppendOnly(std::path::PathBuf);

impl AppendOnly {
    /// `None` where this user or file system has no such thing.
    fn new(path: std::path::PathBuf) -> Option<Self> {
        let file = Self(path);
        file.set("+a").then_some(file)
    }

    fn set(&self, flag: &str) -> bool {
        let mut command = Command::new("chattr");
        let status = command
            .arg(flag)
            .arg(&self.0)
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }
}

impl Drop for AppendOnly {
    fn drop(&mut self) {
        self.set("-a");
    }
}

#[test]
fn a_log_that_can_not_be_bounded_is_told_once_and_costs_no_engine() {
    let world = World::new(0, &[]);
    let text = fs::read_to_string(world.path("fleet.toml")).unwrap();
    let text = text.replace("[engine]", "log_max_bytes = 65536\n[engine]");
    fs::write(world.path("fleet.toml"), text).unwrap();
    world.done(&["start", "--execute"], "a start");
    let run = world.path("home/.local/state/packhouse/fleets/home/w0/runs/000001");
    let Some(_log) = AppendOnly::new(run.join("server.log")) else {
        eprintln!("NOT EXERCISED: this user or file system has no files to append to only");
        return;
    };
    let mut log = fs::File::options()
        .append(true)
        .open(run.join("server.log"))
        .unwrap();
    log.write_all(&[b'x'; 200_000]).unwrap();
    let said = || fs::read_to_string(run.join("keeper.log")).unwrap_or_default();
    world.wait_for("what the keeper says", || said().ends_with('\n'));
    assert!(
        said().starts_with("the log is not kept within its bound: "),
        "{}",
        said()
    );
    log.write_all(&[b'x'; 200_000]).unwrap();
    world.done(&["stop", "--execute"], "a log without bound");
    assert_eq!(said().lines().count(), 1, "{}", said());
}
