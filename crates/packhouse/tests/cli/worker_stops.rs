//! `worker status` and `worker stop` on real workers: from records alone, on engines that do not
//! want to end, after keepers and controllers were killed, beside strangers.

use crate::worker_world::{PATIENCE, World, kill, lives};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

/// A world with short waits, and with a model that can be unplugged.
fn world(words: &[&str], waits: (u32, u32)) -> World {
    let words = [&["--model", "{model}"], words].concat();
    let world = World::new(0, &words);
    let path = world.path("fleet.toml");
    let text = fs::read_to_string(&path).unwrap();
    let (interrupt, terminate) = waits;
    let short = format!("interrupt = {interrupt}, terminate = {terminate}, kill = 60");
    let text = text.replace("interrupt = 60, terminate = 60, kill = 60", &short);
    let model = world.path("disk/model.gguf");
    fs::create_dir(world.path("disk")).unwrap();
    fs::write(&model, "weights").unwrap();
    let common = format!(
        "[common]\nprefer_ram_copy = false\nmodel = {:?}\n",
        model.display()
    );
    let text = text.replace("[common]\n", &common);
    assert!(text.contains(&short) && text.contains("model ="), "{text}");
    fs::write(&path, text).unwrap();
    world
}

/// The command with exactly these words, as they may name no fleet file.
fn packhouse(world: &World, words: &[&str]) -> Output {
    let mut command = world.sandbox().command(words);
    command.output().expect("because it was built")
}

fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"))
}

/// State and reason.
fn state(world: &World) -> (String, String) {
    let found = world.status("it was asked for");
    let word = |field: &str| {
        found[field]
            .as_str()
            .expect("because it is text")
            .to_owned()
    };
    (word("shown"), word("reason"))
}

fn is(shown: &str, reason: &str) -> (String, String) {
    (shown.to_owned(), reason.to_owned())
}

fn pid_of(world: &World, part: &str) -> u32 {
    let status = world.status("its processes are asked for");
    let processes = status["processes"]
        .as_array()
        .expect("because it is a list");
    let found = processes.iter().find(|process| process["part"] == part);
    let pid = found.unwrap_or_else(|| panic!("no {part}: {status}"))["pid"].as_u64();
    u32::try_from(pid.expect("because it is a number")).expect("because pids are small")
}

/// A child that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stop_and_status_need_nothing_but_records() {
    let world = world(&[], (60, 60));
    world.done(&["start", "--execute"], "it starts");
    // The disk with the model is unplugged, and the fleet file has mistakes of many kinds.
    fs::remove_dir_all(world.path("disk")).unwrap();
    let text = fs::read_to_string(world.path("fleet.toml")).unwrap();
    let wrong = text
        .replace("port =", "prot =")
        .replace("python", "no-such-python");
    fs::write(world.path("fleet.toml"), wrong).unwrap();
    let started = world.worker(&["start", "--execute"]);
    assert_eq!(started.status.code(), Some(3), "a start needs all of it");
    assert_eq!(state(&world), is("ready", "serving"));
    let said = world.done(&["stop"], "a dry run needs no more");
    assert!(said.contains("would send SIGINT to pid"), "{said}");
    assert!(
        said.ends_with("nothing was done: add --execute\n"),
        "{said}"
    );
    assert_eq!(state(&world), is("ready", "serving"));

    // Then it is no fleet file at all, and then it is gone.
    fs::write(world.path("fleet.toml"), "[[[").unwrap();
    let refused = world.worker(&["stop", "--execute"]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{errors}");
    assert!(errors.contains("starts are recorded of home"), "{errors}");
    let hint = "hint: packhouse worker stop --fleet home\n";
    assert!(errors.ends_with(hint), "{errors}");
    fs::remove_file(world.path("fleet.toml")).unwrap();
    let status = packhouse(&world, &["worker", "status", "--fleet", "home", "--json"]);
    assert_eq!(document(&status)["workers"][0]["state"], "ready");
    let stopped = packhouse(&world, &["worker", "stop", "--fleet", "home", "--execute"]);
    let said = String::from_utf8_lossy(&stopped.stdout).into_owned();
    assert_eq!(stopped.status.code(), Some(0), "{said}");
    assert!(
        said.contains("w0: stopped, and all was given back"),
        "{said}"
    );
    world.must_be_over("it was stopped");
}

#[test]
fn names_that_are_not_there_are_told_with_those_that_are() {
    let world = world(&[], (60, 60));
    world.done(&["start", "--execute"], "it starts");
    for command in ["status", "stop"] {
        let refused = world.worker(&[command, "--worker", "w9"]);
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{errors}");
        assert!(errors.contains("no such worker: w9"), "{errors}");
        assert!(errors.contains("w0"), "{errors}");
        let refused = packhouse(&world, &["worker", command, "--fleet", "hmoe"]);
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{errors}");
        assert!(errors.contains("hmoe"), "{errors}");
        assert!(errors.contains("starts are recorded of home"), "{errors}");
        let refused = packhouse(&world, &["worker", command, "--fleet", "../home"]);
        assert_eq!(refused.status.code(), Some(2));
    }
    assert_eq!(state(&world), is("ready", "serving"));
}

#[test]
fn a_worker_that_the_fleet_file_forgot_is_still_shown_and_stopped() {
    let world = world(&[], (60, 60));
    world.done(&["start", "--execute"], "it starts");
    let text = fs::read_to_string(world.path("fleet.toml")).unwrap();
    fs::write(world.path("fleet.toml"), text.replace("\"w0\"", "\"w1\"")).unwrap();
    let status = document(&world.worker(&["status", "--json"]));
    let workers = status["workers"].as_array().expect("because it is a list");
    let states: Vec<_> = workers
        .iter()
        .map(|worker| (&worker["worker"], &worker["state"], &worker["in_file"]))
        .map(|(name, state, in_file)| format!("{name} {state} {in_file}"))
        .collect();
    // The port of the new one is held by the old one.
    let expected = ["\"w1\" \"foreign\" true", "\"w0\" \"ready\" false"];
    assert_eq!(states, expected);
    let said = world.done(&["stop", "--execute"], "it stops both");
    assert!(
        said.contains("w1: never started, nothing to stop\n"),
        "{said}"
    );
    assert!(
        said.contains("w0: stopped, and all was given back\n"),
        "{said}"
    );
    world.must_be_over("it was stopped");
}

/// A server of the same program and name, that is nobody's worker.
#[test]
fn deaf_engines_and_what_they_left_are_ended_and_strangers_are_not() {
    let child = "child.pid";
    let words = ["--ignore", "INT,TERM", "--child", child];
    let world = world(&words, (1, 1));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/worker_server.py");
    let stranger = Command::new("python3")
        .args(["-I", "-S", script, "--port", "0"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let stranger = Ends(stranger.expect("because the tests need python3"));
    fs::write(
        world.path("fleet.toml"),
        fs::read_to_string(world.path("fleet.toml"))
            .unwrap()
            .replace(child, &world.path(child).display().to_string()),
    )
    .unwrap();
    world.done(&["start", "--execute"], "it starts");
    world.wait_for("the child's pid", || world.path(child).exists());
    let engine = pid_of(&world, "engine");
    let said = document(&world.worker(&["stop", "--execute", "--json"]));
    let worker = &said["workers"][0];
    assert_eq!(worker["outcome"], "released", "{said}");
    let ended = worker["ended"].as_array().expect("because it is a list");
    let main = ended.iter().find(|ended| ended["pid"] == engine);
    assert_eq!(main.expect("because it ended")["after"], "kill", "{said}");
    assert!(ended.len() >= 2, "the child is told of: {said}");
    assert!(lives(stranger.0.id()));
    world.must_be_over("it was stopped");
}

#[test]
fn each_way_to_be_over_has_its_state() {
    let world = world(&[], (60, 60));
    assert_eq!(state(&world), is("absent", "no_run"));
    let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, world.port())).unwrap();
    assert_eq!(state(&world), is("foreign", "port_taken"));
    let said = String::from_utf8_lossy(&world.worker(&["status"]).stdout).into_owned();
    let own = format!("is held by pid {} (", std::process::id());
    assert!(said.contains(&own), "{said}");
    drop(stranger);

    // It dies by itself: the keeper records how, and stop proves the rest.
    world.done(&["start", "--execute"], "it starts");
    kill(pid_of(&world, "engine"), "-KILL");
    world.wait_for("the end on record", || state(&world).1 == "ended");
    assert_eq!(state(&world), is("exited(signal 9)", "ended"));
    let said = world.done(&["stop"], "a dry run");
    assert!(said.contains("nothing lives"), "{said}");
    world.done(&["stop", "--execute"], "nothing lives");
    assert_eq!(state(&world), is("exited(signal 9)", "released"));
    let said = world.done(&["stop", "--execute"], "there is nothing to do");
    assert!(said.contains("was over, and all was given back"), "{said}");

    // Nobody saw it end.
    world.done(&["start", "--execute"], "it starts again");
    let engine = pid_of(&world, "engine");
    kill(pid_of(&world, "keeper"), "-KILL");
    world.wait_for("the keeper's end", || world.running().len() == 1);
    assert_eq!(state(&world), is("ready", "serving"));
    kill(engine, "-KILL");
    world.wait_for("the engine's end", || world.running().is_empty());
    assert_eq!(state(&world), is("stale", "no_exit_record"));
    world.done(&["stop", "--execute"], "nothing lives");
    assert_eq!(state(&world), is("exited(unknown)", "released"));
    world.must_be_over("it ended");
}

#[test]
fn a_worker_without_its_keeper_is_stopped_too() {
    let world = world(&["--ignore", "INT"], (1, 60));
    world.done(&["start", "--execute"], "it starts");
    kill(pid_of(&world, "keeper"), "-KILL");
    world.wait_for("the keeper's end", || world.running().len() == 1);
    let said = world.done(&["stop", "--execute"], "it heeds SIGTERM");
    assert!(said.contains("ended after SIGTERM"), "{said}");
    assert!(said.contains("nobody saw how"), "{said}");
    assert_eq!(state(&world), is("exited(unknown)", "released"));
    world.must_be_over("it was stopped");
}

#[test]
fn an_engine_that_falls_ill_is_unhealthy() {
    let world = world(&[], (60, 60));
    world.done(&["start", "--execute"], "it starts");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, world.port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /sick HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(state(&world), is("unhealthy", "health_bad"));
    let said = String::from_utf8_lossy(&world.worker(&["status"]).stdout).into_owned();
    assert!(said.contains("/health: health 500\n"), "{said}");
    world.done(&["stop", "--execute"], "it heeds");
    assert_eq!(state(&world), is("exited(0)", "released"));
}

/// Ctrl-C in a stop that waits.
fn must_say_what_goes_on(world: &World) {
    let words = ["worker", "stop", "--execute", "--config", "fleet.toml"];
    let mut stop = world.sandbox().command(&words);
    let stop = stop.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut stop = Ends(stop.expect("because it was built"));
    world.wait_for("the stop", || {
        state(world) == is("stopping", "being_stopped")
    });
    kill(stop.0.id(), "-INT");
    assert_eq!(stop.0.wait().unwrap().code(), Some(3));
    let mut errors = String::new();
    let mut from = stop.0.stderr.take().expect("because it is a pipe");
    from.read_to_string(&mut errors).unwrap();
    assert_eq!(
        errors,
        "error: stop cut short: w0\n\
         cause: what lives still goes on; the next stop goes on with this one\n\n\
         hint: packhouse worker stop --config fleet.toml --execute\n"
    );
}

#[test]
fn one_stop_at_a_time_and_a_killed_one_is_continued() {
    let world = world(&["--ignore", "INT"], (60, 60));
    world.done(&["start", "--execute"], "it starts");
    let mut first =
        world
            .sandbox()
            .command(&["worker", "stop", "--execute", "--config", "fleet.toml"]);
    let first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut first = Ends(first.expect("because it was built"));
    let sent = |record: Option<Value>| {
        record.is_some_and(|record| record["steps"][0]["step"] == "interrupt")
    };
    world.wait_for("the first signal", || sent(world.record("stop.json")));
    assert_eq!(state(&world), is("stopping", "being_stopped"));
    let second = world.worker(&["stop", "--execute", "--lock-timeout", "0"]);
    let said = String::from_utf8_lossy(&second.stdout).into_owned();
    assert_eq!(second.status.code(), Some(3), "{said}");
    let holder = format!("pid {} is starting or stopping worker w0", first.0.id());
    assert!(said.contains(&holder), "{said}");
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    assert_eq!(state(&world), is("stopping", "stop_cut_short"));
    must_say_what_goes_on(&world);

    // Its minute goes on; to see the end of it, it began earlier.
    let path = "home/.local/state/packhouse/fleets/home/w0/runs/000001/stop.json";
    let text = fs::read_to_string(world.path(path)).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    let at_ns = record["steps"][0]["at"]["steady_ns"]
        .as_u64()
        .expect("because it is a number");
    let minute_ns = 60_000_000_000;
    let step = |ns: u64| format!("\"steady_ns\":{ns},");
    let (before, after) = text.split_once("\"steps\"").expect("because it has steps");
    assert!(after.contains(&step(at_ns)), "{after}");
    let after = after.replace(&step(at_ns), &step(at_ns.saturating_sub(minute_ns)));
    fs::write(world.path(path), format!("{before}\"steps\"{after}")).unwrap();
    let said = world.done(&["stop"], "a dry run");
    assert!(
        said.contains("a stop was begun before, and would be continued"),
        "{said}"
    );
    let said = world.done(&["stop", "--execute"], "it heeds SIGTERM");
    assert!(said.contains("ended after SIGTERM"), "{said}");
    world.must_be_over("it was stopped");
}

/// As with a container whose state is on a volume: it ends with all its processes, and is started
/// again on the same kernel.
#[test]
fn a_container_that_is_gone_leaves_nothing_to_clean_up() {
    let world = world(&[], (60, 60));
    let inside = ["--pid", "--fork", "--mount-proc"];
    let tried = Command::new("unshare").args(inside).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("NOT EXERCISED: no pid namespace of its own for this user");
        return;
    }
    let line =
        "exec unshare --pid --fork --mount-proc -- sh -c '\"$0\" \"$@\" && read end' \"$0\" \"$@\"";
    let words = ["worker", "start", "--execute", "--config", "fleet.toml"];
    let mut container = world.sandbox().shell(line, &words);
    let container = container
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let mut container = Ends(container.expect("because there is a shell"));
    world.wait_for("the identity", || world.record("identity.json").is_some());

    // While it lives, its processes have no pids here: nothing is claimed, and nothing is done.
    let (shown, _) = state(&world);
    assert_eq!(shown, "unverifiable");
    for command in ["stop", "start"] {
        let refused = world.worker(&[command, "--execute"]);
        let said = String::from_utf8_lossy(&refused.stdout).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{said}");
        assert!(said.contains("another pid namespace"), "{said}");
    }
    assert_eq!(world.servers().len(), 1);

    drop(container.0.stdin.take());
    container.0.wait().unwrap();
    world.wait_for("the end of the container", || world.running().is_empty());
    assert_eq!(state(&world), is("stale", "no_exit_record"));
    world.done(&["start", "--execute"], "the one before is over");
    assert_eq!(state(&world), is("ready", "serving"));
    world.done(&["stop", "--execute"], "it heeds");
    world.must_be_over("it was stopped");
}
