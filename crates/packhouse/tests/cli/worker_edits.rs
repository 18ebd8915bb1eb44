//! What `worker start` and `worker status` say where the fleet file was edited after a start, and
//! where it names a worker by no name or has not what packs need.

use crate::worker_world::World;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

fn said(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    (output.status.code(), text.concat())
}

fn edit(world: &World, old: &str, new: &str) {
    let path = world.path("fleet.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{old} in {text}");
    fs::write(path, text.replace(old, new)).unwrap();
}

#[test]
fn a_wait_goes_on_with_its_own_settings_and_says_what_the_file_has_otherwise() {
    let world = World::new(0, &["--ready-after", "600"]);
    edit(&world, "ready_timeout_s = 30", "ready_timeout_s = 1");
    assert_eq!(said(&world.worker(&["start", "--execute"])).0, Some(1));
    let (_, same) = said(&world.worker(&["start"]));
    assert!(!same.contains("asks for something else"), "{same}");
    edit(
        &world,
        "ready_timeout_s = 1",
        "ready_timeout_s = 2\nhealth_path = \"/v1/health\"",
    );
    let edited = "note: the fleet file asks for something else now: health_path, ready_timeout_s; \
                  to apply it: packhouse worker stop --config fleet.toml --worker w0 --execute, \
                  then start\n";
    for words in [&["start"][..], &["start", "--execute"]] {
        let (_, text) = said(&world.worker(words));
        assert!(text.contains(edited), "{words:?}: {text}");
    }
    let (_, text) = said(&world.worker(&["start", "--execute"]));
    assert!(
        text.contains("run 1 was launched before, and goes on with its own settings"),
        "{text}"
    );
    world.done(&["stop", "--execute"], "it never was ready");
    world.must_be_over("it was stopped");
}

#[test]
fn a_living_worker_tells_what_the_file_has_otherwise_and_no_secret() {
    let world = World::new(0, &[]);
    edit(
        &world,
        "[common]\n",
        "[common]\ninherit = [\"HOME\"]\nenvironment = { A = \"one\", B = \"same\" }\n",
    );
    world.done(&["start", "--execute"], "at first");
    let keys = |why: &str| world.status(why)["edited_settings"].clone();
    assert_eq!(
        keys("nothing was edited"),
        Value::from(Vec::<String>::new())
    );
    let mut command = world
        .sandbox()
        .command(&["worker", "status", "--config", "fleet.toml"]);
    // Another who asks has another environment.
    let (_, text) = said(&command.env("LANG", "tlh").output().unwrap());
    assert!(!text.contains("asks for something else"), "{text}");

    edit(&world, "A = \"one\"", "A = \"two\", C = \"new\"");
    edit(
        &world,
        "role = \"test\"",
        "role = \"try\"\nargs = [\"--more\"]",
    );
    let expected = ["command", "environment.A", "environment.C", "role"];
    assert_eq!(keys("it was edited"), Value::from(expected.to_vec()));
    let (code, text) = said(&world.worker(&["status"]));
    assert_eq!(code, Some(0), "{text}");
    let told = "w0: the fleet file asks for something else now: command, environment.A, \
                environment.C, role; to apply it: packhouse worker stop --config fleet.toml \
                --worker w0 --execute, then start\n";
    assert!(text.contains(told), "{text}");
    assert!(!text.contains("two"), "{text}");
    let (code, text) = said(&world.worker(&["start", "--execute"]));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("refused: it runs already"), "{text}");
    assert!(
        text.contains("note: the fleet file asks for something else now: command"),
        "{text}"
    );
    world.done(&["stop", "--execute"], "at the end");
    world.must_be_over("at the end");
    let (_, text) = said(&world.worker(&["status"]));
    assert!(
        !text.contains("asks for something else"),
        "nothing lives: {text}"
    );
}

#[test]
fn a_worker_without_a_right_name_is_refused_by_its_place() {
    let world = World::new(0, &[]);
    let path = world.path("fleet.toml");
    let mut text = fs::read_to_string(&path).unwrap();
    let line = text.lines().count() + 1;
    text += "[[worker]]\nname = \"Beta GPU\"\ndevice = \"cpu:4095\"\nport = 9\n";
    fs::write(&path, text).unwrap();
    let called = format!("worker #2 (line {line}): ");
    let (code, text) = said(&world.worker(&["start"]));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("w0: would start on "), "{text}");
    assert!(
        text.contains(&format!("{called}refused: fleet.toml:{}:8: ", line + 1)),
        "{text}"
    );
    let (code, text) = said(&world.worker(&["start", "--execute", "--json"]));
    assert_eq!(code, Some(3), "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let outcomes = |key: &str| [&document["workers"][0][key], &document["workers"][1][key]];
    assert_eq!(outcomes("worker"), ["w0", "#2"]);
    assert_eq!(outcomes("outcome"), ["ready", "refused"]);
    world.done(&["stop", "--execute"], "the other one");

    let (code, text) = said(&world.worker(&["validate"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains(&format!("\n{called}render and start are blocked")),
        "{text}"
    );
    let (code, text) = said(&world.worker(&["render"]));
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains(&format!(
            "# {}can't be rendered:",
            called.replace(": ", " ")
        )),
        "{text}"
    );
    let (code, text) = said(&world.worker(&["start", "--worker", "w0"]));
    assert_eq!(code, Some(0), "only the other one is asked for: {text}");
    assert!(!text.contains("#2"), "{text}");
}

#[test]
fn packs_without_a_plugin_are_refused_with_the_hint_that_helps() {
    let world = World::new(0, &[]);
    edit(&world, "packs = false", "packs = true");
    edit(
        &world,
        "[common]\n",
        "[common]\ninherit = [\"HOME\"]\nenvironment = { PACKHOUSE_PLUGIN = \"/none.so\" }\n",
    );
    let why = "no plug-in found: /none.so; packs need it: set environment.PACKHOUSE_PLUGIN in the \
               fleet file, or list \"PACKHOUSE_PLUGIN\" in inherit and export it";
    let (code, text) = said(&world.worker(&["validate"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(why), "{text}");
    for words in [&["start"][..], &["start", "--execute"]] {
        let (code, text) = said(&world.worker(words));
        assert_eq!(code, Some(3), "{text}");
        assert_eq!(
            text,
            format!("w0: refused: {why}\n"),
            "and nothing of --execute"
        );
    }
    assert!(world.record("order.json").is_none());
    // What the hint says, done.
    edit(
        &world,
        "environment = { PACKHOUSE_PLUGIN = \"/none.so\" }\n",
        "",
    );
    edit(&world, "\"HOME\"", "\"HOME\", \"PACKHOUSE_PLUGIN\"");
    world.done(&["start"], "the sandbox exports it");
}

#[test]
fn several_rendered_workers_all_run_in_one_shell() {
    let world = World::new(0, &[]);
    fs::write(world.path("server"), "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(world.path("server"), fs::Permissions::from_mode(0o755)).unwrap();
    let server = world.path("server");
    let worker = |name: &str, port: u16| {
        format!("[[worker]]\nname = \"{name}\"\ndevice = \"numa:0\"\nport = {port}\n")
    };
    let text = format!(
        "schema = \"packhouse/fleet/1\"\nname = \"home\"\n[engine]\ncommand = [\"{}\", \
         \"{{name}}\", \"{{host}}\", \"{{port}}\"]\n{}{}",
        server.display(),
        worker("w0", 8081),
        worker("w1", 8082),
    );
    fs::write(world.path("fleet.toml"), text).unwrap();
    let line = "\"$0\" worker render --config fleet.toml | bash";
    let (code, text) = said(&world.sandbox().shell(line, &[]).output().unwrap());
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["w0 127.0.0.1 8081", "w1 127.0.0.1 8082"]);
    assert_eq!(code, Some(0), "the shell waits for both");
}

#[test]
fn records_that_nobody_mends_name_what_a_person_can_do() {
    let world = World::new(0, &[]);
    world.done(&["start", "--execute"], "at first");
    world.done(&["stop", "--execute"], "at first");
    let worker = world.path("home/.local/state/packhouse/fleets/home/w0");
    let mode = |mode| fs::set_permissions(&worker, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o755);
    let told = format!("chmod 700 {}\n", worker.display());
    for words in [
        &["start"][..],
        &["start", "--execute"],
        &["stop", "--execute"],
        &["status"],
    ] {
        let (_, text) = said(&world.worker(words));
        assert!(text.contains(&told), "{words:?}: {text}");
    }
    mode(0o700);
    let run = worker.join("runs/000001");
    fs::write(run.join("order.json"), "{").unwrap();
    let told = format!("once nothing is, move it away: mv {} /tmp\n", run.display());
    for words in [
        &["start"][..],
        &["start", "--execute"],
        &["stop", "--execute"],
    ] {
        let (code, text) = said(&world.worker(words));
        assert_eq!(code, Some(3), "{words:?}: {text}");
        assert!(text.contains(&told), "{words:?}: {text}");
    }
    fs::rename(&run, world.path("moved")).unwrap();
    world.done(&["start", "--execute"], "it was moved away");
    world.done(&["stop", "--execute"], "at the end");
    world.must_be_over("at the end");
}
