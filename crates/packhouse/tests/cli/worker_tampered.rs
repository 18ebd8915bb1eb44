//! `worker stop` and `worker status` where the records were copied, changed by hand, damaged or
//! removed: what is proven is stopped, what is not is named, and no stranger gets a signal.

use crate::worker_world::{World, kill, lives, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A child that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Somebody else's process, which leads a session as an engine does.
fn stranger() -> Ends {
    let child = Command::new("setsid").args(["sleep", "500"]).spawn();
    let child = Ends(child.expect("because the tests need setsid and sleep"));
    let name = || fs::read_to_string(format!("/proc/{}/comm", child.0.id())).unwrap_or_default();
    wait_until("the stranger's program", || name() == "sleep\n");
    child
}

fn started() -> World {
    let world = World::quick(0);
    world.done(&["start", "--execute"], "it starts");
    world
}

fn record(world: &World, run: u32, file: &str) -> PathBuf {
    let runs = "home/.local/state/packhouse/fleets/home/w0/runs";
    world.path(&format!("{runs}/{run:06}/{file}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(world: &World, code: i32) -> String {
    let output = world.worker(&["stop", "--execute"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(code), "{said}{}", world.files());
    said
}

/// The 22nd field of proc_pid_stat(5).
fn start_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let field = rest.split_whitespace().nth(19).unwrap_or_default();
    field.parse().expect("because it is a number")
}

#[test]
fn a_launch_changed_by_hand_gives_no_stranger_a_signal() {
    let world = started();
    let stranger = stranger();
    let pid = stranger.0.id();
    let path = record(&world, 1, "launched.json");
    let mut launched: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    launched["session"] = json!(pid);
    launched["worker"]["pid"] = json!(pid);
    launched["worker"]["start_ticks"] = json!(start_ticks(pid));
    fs::write(&path, format!("{launched}\n")).unwrap();

    let status = world.status("a record was changed");
    assert_eq!(status["state"], "unverifiable", "{status}");
    let told =
        format!("pid {pid} (sleep) is on record as the engine, and its environment names no run");
    assert!(status["unproven"].to_string().contains(&told), "{status}");
    let stopped = refused(&world, 3);
    assert!(stopped.contains(&told), "{stopped}");
    assert!(stopped.contains(&format!("kill -INT {pid}")), "{stopped}");
    assert!(lives(pid));
    // What it really started is proven without that record.
    assert!(world.servers().is_empty());
    assert_eq!(world.record("released.json"), None);
    fs::rename(&path, record(&world, 1, "mine")).unwrap();
    world.done(&["stop", "--execute"], "nothing speaks against it any more");
    assert!(lives(pid));
    world.must_be_over("it was stopped");
}

#[test]
fn a_launch_of_another_run_is_set_aside() {
    let world = started();
    world.done(&["stop", "--execute"], "it heeds");
    world.done(&["start", "--execute"], "it starts again");
    fs::copy(
        record(&world, 1, "launched.json"),
        record(&world, 2, "launched.json"),
    )
    .unwrap();
    let dry = world.done(&["stop"], "a dry run");
    assert!(
        dry.contains("would be set aside as launched.json.damaged"),
        "{dry}"
    );
    let stopped = world.done(&["stop", "--execute"], "the engine is proven");
    assert!(stopped.contains("launched.json: names run "), "{stopped}");
    assert!(record(&world, 2, "launched.json.damaged").exists());
    assert_eq!(world.status("it was stopped")["reason"], "released");
    world.must_be_over("it was stopped");
}

#[test]
fn a_damaged_record_keeps_no_worker_from_being_stopped() {
    let world = World::quick(0);
    let files = ["launched", "exit", "identity", "stop", "released"];
    for (run, name) in (1..).zip(files) {
        world.done(&["start", "--execute"], name);
        let path = record(&world, run, &format!("{name}.json"));
        fs::write(&path, "{\"run\":").unwrap();
        let stopped = world.done(&["stop", "--execute"], name);
        let told = format!("set aside as {name}.json.damaged");
        assert!(stopped.contains(&told), "{stopped}");
        // The identity names the engine too.
        assert!(stopped.contains("ended after SIGINT"), "{name}: {stopped}");
        let aside = record(&world, run, &format!("{name}.json.damaged"));
        assert_eq!(fs::read_to_string(aside).unwrap(), "{\"run\":");
        let status = world.status(name);
        assert_eq!(status["reason"], "released", "{status}");
        world.must_be_over(name);
    }
}

#[test]
fn a_launch_and_an_identity_that_are_damaged_leave_the_run_id() {
    let world = started();
    for name in ["launched.json", "identity.json"] {
        fs::write(record(&world, 1, name), "").unwrap();
    }
    let stopped = world.done(&["stop", "--execute"], "its environment proves it");
    assert!(stopped.contains("ended after SIGTERM"), "{stopped}");
    assert_eq!(world.status("it was stopped")["reason"], "released");
    world.must_be_over("it was stopped");
}

#[test]
fn an_engine_whose_records_are_gone_is_told_and_left_alone() {
    let world = started();
    let engine = world.servers()[0];
    let runs = record(&world, 1, "");
    fs::remove_dir_all(runs.parent().expect("because it is below")).unwrap();
    let told = format!("whose records are gone: left alone; to end it: kill -INT {engine}");
    let stopped = refused(&world, 1);
    assert!(stopped.contains("no start is recorded"), "{stopped}");
    assert!(stopped.contains(&told), "{stopped}");
    let status = said(&world.worker(&["status"]));
    assert!(status.contains(&told), "{status}");
    let start = world.worker(&["start", "--execute"]);
    let start_said = said(&start);
    assert_eq!(start.status.code(), Some(3), "{start_said}");
    assert!(start_said.contains("of a worker's run "), "{start_said}");
    assert!(lives(engine));
    kill(engine, "-INT");
    wait_until("its end", || !lives(engine));
    // Its keeper has nowhere to write that to.
    for running in world.running() {
        kill(running.pid, "-KILL");
    }
    wait_until("the keeper's end", || world.running().is_empty());
    world.done(&["stop", "--execute"], "nothing is left");
    world.must_be_over("it was ended");
}

#[test]
fn what_no_stop_can_mend_is_named_with_what_to_do() {
    let world = started();
    let empty = record(&world, 9, "");
    fs::create_dir(&empty).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&empty, open).unwrap();
    let stopped = refused(&world, 3);
    assert!(stopped.contains("has no order.json"), "{stopped}");
    assert!(
        stopped.contains("the run before it counts: mv "),
        "{stopped}"
    );
    fs::remove_dir(&empty).unwrap();
    let lock = world.path("home/.local/state/packhouse/fleets/home/w0/lock");
    fs::remove_file(&lock).unwrap();
    let made = Command::new("mkfifo")
        .arg(&lock)
        .stdin(Stdio::null())
        .status();
    assert!(made.is_ok_and(|made| made.success()));
    let stopped = refused(&world, 3);
    assert!(stopped.contains("w0/lock is no regular file"), "{stopped}");
    fs::remove_file(&lock).unwrap();
    world.done(&["stop", "--execute"], "it can be locked again");
    world.must_be_over("it was stopped");
}
