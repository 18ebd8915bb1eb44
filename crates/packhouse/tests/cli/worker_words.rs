//! What people and programs are told of workers: each mistake where it belongs and once, sizes and
//! ages, the file of a model that is in use, and one document of integers per command.

use crate::worker_world::{World, kill};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

fn rewritten(world: &World, change: impl Fn(&str) -> String) {
    let path = world.path("fleet.toml");
    let text = fs::read_to_string(&path).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text, "the change has its place");
    fs::write(&path, changed).unwrap();
}

/// Exit code, stdout and stderr.
fn said(world: &World, words: &[&str]) -> (Option<i32>, String, String) {
    let output = world.worker(words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, errors)
}

#[test]
fn a_fleet_without_a_name_is_told_only_what_its_name_lacks() {
    let world = World::new(0, &[]);
    rewritten(&world, |text| {
        let text = text.replace("name = \"home\"", "name = \"no name\"");
        text.replace("packs = false", "pakcs = 1\nwrong = 2")
    });
    for command in ["status", "stop", "logs"] {
        let (code, out, errors) = said(&world, &[command]);
        assert_eq!((code, out.as_str()), (Some(3), ""), "{errors}");
        assert!(errors.contains("fleet.toml:2:8: name: "), "{errors}");
        assert!(!errors.contains("pakcs"), "{errors}");
        let rest = "cause: 2 other mistakes, which `packhouse worker validate` lists\n";
        assert!(errors.contains(rest), "{errors}");
    }
    // The name is right, and can't be read.
    rewritten(&world, |text| {
        text.replace("name = \"no name\"", "name = \"home")
    });
    let (code, _, errors) = said(&world, &["status"]);
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("fleet.toml:2:13: no TOML: "), "{errors}");
    assert!(!errors.contains("pakcs"), "{errors}");
}

#[test]
fn a_start_tells_general_mistakes_once_and_those_of_a_worker_under_its_name() {
    let world = World::new(0, &[]);
    rewritten(&world, |text| {
        let (head, worker) = text.split_once("[[worker]]").expect("because it has one");
        let second = worker.replace("w0", "w1").replace("port = ", "port = 9");
        let head = head.replace("packs = false", "pakcs = false");
        format!("{head}[[worker]]{worker}[[worker]]{second}colour = \"red\"\n")
    });
    let (code, out, errors) = said(&world, &["start"]);
    assert_eq!(code, Some(3), "{errors}");
    let lines: Vec<&str> = out
        .lines()
        .filter(|line| line.contains("refused"))
        .collect();
    let with = |word: &str| {
        let found = lines.iter().filter(|line| line.contains(word));
        found
            .map(|line| line.split(": ").next().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    assert_eq!(with("pakcs"), ["every worker"], "{out}");
    assert_eq!(with("colour"), ["w1"], "{out}");
    assert_eq!(with("w0: refused"), Vec::<&str>::new(), "{out}");
    // One worker alone has no other to share with.
    let (_, out, _) = said(&world, &["start", "--worker", "w0"]);
    assert!(out.contains("w0: refused: "), "{out}");
    assert!(!out.contains("colour"), "{out}");
    // Programs get all of each worker.
    let (code, out, _) = said(&world, &["start", "--execute", "--json"]);
    assert_eq!(code, Some(3));
    let document = document(&out);
    for (index, worker) in list(&document["workers"]).iter().enumerate() {
        assert_eq!(worker["outcome"], "refused");
        let reasons = worker["reasons"].to_string();
        assert!(reasons.contains("pakcs"), "{reasons}");
        assert_eq!(reasons.contains("colour"), index == 1, "{reasons}");
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// One document with only integers for numbers, and with nothing that a terminal obeys.
fn document(out: &str) -> Value {
    fn check(value: &Value) {
        match value {
            Value::Number(number) => assert!(!number.is_f64(), "{number}"),
            Value::Array(items) => items.iter().for_each(check),
            Value::Object(fields) => {
                for (name, value) in fields {
                    // Variables of an environment are data.
                    let is_field = |letter: u8| letter.is_ascii_lowercase() || letter == b'_';
                    let is_data = name.bytes().any(|letter| letter.is_ascii_uppercase());
                    let digits = name.trim_end_matches(|last: char| last.is_ascii_digit());
                    assert!(is_data || digits.bytes().all(is_field), "{name}");
                    check(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    let value: Value = serde_json::from_str(out).unwrap_or_else(|error| panic!("{error}: {out}"));
    let hidden = |letter: char| letter != '\n' && letter.is_control();
    assert!(!out.chars().any(hidden), "{out:?}");
    check(&value);
    value
}

#[test]
fn every_command_answers_in_one_document_of_integers() {
    let world = World::new(0, &[]);
    let ask = |words: &[&str], exit: i32| {
        let (code, out, errors) = said(&world, &[words, &["--json"]].concat());
        assert_eq!(code, Some(exit), "{words:?}: {out}{errors}");
        let document = document(&out);
        assert_eq!(document["fleet"], "home", "{words:?}");
        assert_eq!(list(&document["workers"]).len(), 1, "{words:?}");
        let worker = document["workers"][0].clone();
        assert_eq!(worker["worker"], "w0", "{words:?}");
        worker
    };
    assert_eq!(ask(&["validate"], 0)["start"], true);
    assert_eq!(ask(&["render"], 0)["devices"][0], "cpu:0");
    assert_eq!(ask(&["logs"], 0)["run"], Value::Null);
    assert_eq!(ask(&["stop"], 0)["outcome"], "never_started");
    assert_eq!(ask(&["status"], 0)["state"], "absent");
    let would = ask(&["start"], 0);
    assert_eq!(would["outcome"], "would_start");
    assert_eq!(would["devices"][0], "cpu:0");
    assert!(would["shell"].is_string(), "{would}");
    let ready = ask(&["start", "--execute"], 0);
    assert_eq!(ready["outcome"], "ready");
    assert!(
        ready["identity"]["worker"]["start_ticks"].is_u64(),
        "{ready}"
    );
    let refused = ask(&["start", "--execute"], 3);
    assert_eq!(refused["outcome"], "refused");
    let reason = refused["reasons"][0].to_string();
    assert!(
        reason.contains("it runs already: pid ") && reason.contains(" s ago)"),
        "{reason}"
    );
    assert_eq!(ask(&["logs"], 0)["run"], 1);
    assert_eq!(ask(&["stop"], 0)["outcome"], "would_stop");
    let status = ask(&["status"], 0);
    assert_eq!(status["state"], "ready");
    // A signal of somebody else is not the engine's own end.
    let pid = u32::try_from(status["pid"].as_u64().expect("because it lives")).unwrap();
    kill(pid, "-KILL");
    world.wait_for("its end on record", || world.record("exit.json").is_some());
    world.wait_for("its keeper's end", || world.running().is_empty());
    assert_eq!(
        ask(&["status"], 0)["why"],
        "ended by signal 9, which no stop sent"
    );
    assert_eq!(ask(&["stop", "--execute"], 0)["outcome"], "released");
    world.must_be_over("it was stopped");
}

/// The copy in RAM is used while it is there, with or without its source, and people are told.
#[test]
fn a_worker_tells_which_file_of_its_model_it_uses() {
    let world = World::new(0, &["--model", "{model}"]);
    let model = world.path("model.gguf");
    fs::write(
        &model,
        "the bytes of a model, which nobody has to understand",
    )
    .unwrap();
    rewritten(&world, |text| {
        text.replace(
            "[common]\n",
            &format!("[common]\nmodel = {:?}\n", model.display()),
        )
    });
    let model_command = |words: &[&str]| {
        let all = [&["model"], words, &["model.gguf"]].concat();
        let output = world
            .sandbox()
            .command(&all)
            .output()
            .expect("because it was built");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {errors}");
    };
    let source = model.display().to_string();
    let in_use = || world.status("it runs")["model"].clone();
    model_command(&["prepare", "--min-free", "0"]);
    let out = world.done(&["start"], "nothing is in its way");
    let note = format!("note: its model is the copy in RAM of {source}: ");
    assert!(out.contains(&note), "{out}");
    let is_disk = crate::model_copies::file_system(&world.path("")) != "tmpfs";
    assert_eq!(out.contains("are not in RAM: it is on "), is_disk, "{out}");
    // The disk is unplugged.
    fs::rename(&model, world.path("away")).unwrap();
    let out = world.done(&["start", "--execute"], "the copy is enough");
    assert!(out.contains(&note), "{out}");
    let used = in_use();
    assert_eq!(
        (&used["ram_copy"], used["source"].as_str()),
        (&Value::Bool(true), Some(source.as_str()))
    );
    let path = used["path"]
        .as_str()
        .expect("because it is text")
        .to_owned();
    assert_ne!(path, source);
    let out = world.done(&["status"], "it runs");
    let line = format!("w0: model {path}, the copy in RAM of {source}\n");
    assert!(out.contains(&line), "{out}");
    world.done(&["stop", "--execute"], "it stops");
    fs::rename(world.path("away"), &model).unwrap();
    model_command(&["drop", "--execute"]);
    let out = world.done(&["start", "--execute"], "its source is there");
    assert!(!out.contains("copy in RAM"), "{out}");
    assert_eq!(in_use()["path"].as_str(), Some(source.as_str()));
    let out = world.done(&["status"], "it runs");
    assert!(out.contains(&format!("w0: model {source}\n")), "{out}");
    world.done(&["stop", "--execute"], "it stops");
}

/// A hint that is copied reads the same fleet, and no value of a variable is shown.
#[test]
fn hints_name_the_fleet_that_was_asked_about() {
    let world = World::new(0, &[]);
    let last = |words: &[&str], code: i32| {
        let (found, out, errors) = said(&world, words);
        assert_eq!(found, Some(code), "{words:?}: {out}{errors}");
        errors.lines().last().unwrap_or_default().to_owned()
    };
    let hint = "hint: packhouse worker status --config fleet.toml";
    for command in ["start", "status", "stop", "logs", "validate", "render"] {
        assert_eq!(last(&[command, "--worker", "w9"], 2), hint, "{command}");
    }
    assert_eq!(
        last(&["logs", "--run", "99"], 2),
        "hint: packhouse worker logs --config fleet.toml --worker w0"
    );
    rewritten(&world, |text| {
        text.replace("[common]\n", "[common]\ninherit = [\"TOKEN\"]\n")
    });
    let words = ["worker", "start", "--execute", "--config", "fleet.toml"];
    let mut command = world.sandbox().command(&words);
    command.env("TOKEN", OsStr::from_bytes(b"secret\xff"));
    let output = command.output().expect("because it was built");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{out}");
    assert!(
        out.contains("w0: refused: the value of TOKEN is not UTF-8\n"),
        "{out}"
    );
    assert!(!out.contains("secret"), "{out}");
}
