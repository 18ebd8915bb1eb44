//! Sets that leave a store and come into another one: as a bundle, by a pipe, as another program's
//! folder. Model, plan and keys are fixed, so snapshots are too.

use crate::model;
use crate::sandbox::Sandbox;
use packhouse_container::gguf::Value;
use std::process::{Command, Output, Stdio};

const PLAN: &str = r#"
name = "ffn"
version = 1
summary = "feed-forward matrices for a test"

[[rule]]
id = "ffn"
tensor = 'blk\.(?<layer>0|[1-9][0-9]*)\.ffn_(gate|up|down)\.weight'
types = ["Q4_0"]
layout = "q4_0-xe2-dpas-v2"
slot = "index"
otherwise = "refuse"
"#;

/// A sandbox with a model and its set.
fn prepared(words: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    model::write(
        &sandbox.path("model.gguf"),
        &[
            ("blk.0.ffn_gate.weight", "Q4_0", &[64, 32]),
            ("blk.0.ffn_up.weight", "Q4_0", &[64, 48]),
            ("blk.9.ffn_down.weight", "Q4_0", &[32, 64]),
        ],
        &[("general.name", Value::String("small".into()))],
    );
    std::fs::write(sandbox.path("ffn.toml"), PLAN).unwrap();
    let mut all = vec!["prepare", "model.gguf", "--plan", "ffn.toml"];
    all.extend(words);
    let output = run(&mut sandbox.command(&all));
    assert!(output.status.success(), "{output:?}");
    sandbox
}

fn run(command: &mut Command) -> Output {
    command.output().expect("because the command was built")
}

/// Another store in the same sandbox.
fn elsewhere(sandbox: &Sandbox) -> impl Fn(&mut Command) {
    at(sandbox, "other")
}

fn at(sandbox: &Sandbox, name: &str) -> impl Fn(&mut Command) {
    let folder = sandbox.path(name);
    let (store, state) = (folder.join("store"), folder.join("state"));
    move |command| {
        command
            .env("PACKHOUSE_STORE", &store)
            .env("XDG_STATE_HOME", &state);
    }
}

#[test]
fn a_set_goes_from_store_to_store_by_file_and_by_folder() {
    let sandbox = prepared(&[]);
    sandbox.session(
        "export",
        &[
            &["export", "--bundle", "set.tar"],
            &["export", "--format", "xe2-m6-v2", "packs"],
            &[
                "export",
                "--format",
                "xe2-m6-v2",
                "again",
                "--model",
                "model.gguf",
                "--stage",
                "ram",
                "--json",
            ],
        ],
    );
    sandbox.session_with(
        "import",
        &[
            &["import", "set.tar"],
            &["import", "set.tar", "--json"],
            &["verify", "--deep"],
            &["import", "packs"],
            &["import", "packs", "--model", "model.gguf"],
            &["import", "set.tar", "--model", "model.gguf"],
        ],
        elsewhere(&sandbox),
    );
}

#[test]
fn what_can_not_be_exported_is_named() {
    let sandbox = prepared(&["--skip-source-hash"]);
    std::fs::write(sandbox.path("taken.tar"), "mine").unwrap();
    sandbox.session(
        "export-refused",
        &[
            &["export"],
            &["export", "--bundle", "taken.tar"],
            &["export", "--bundle", "nowhere/set.tar"],
            &["export", "--bundle", "-", "--json"],
            &["export", "00000000", "--bundle", "set.tar"],
            &["export", "--format", "xe2-m7", "packs"],
            &["export", "--format", "xe2-m6-v2", "a", "--stage", "./a"],
            &["export", "--format", "xe2-m6-v2"],
            &["export", "--format", "xe2-m6-v2", "packs"],
            &[
                "export",
                "--format",
                "xe2-m6-v2",
                "packs",
                "--model",
                "nothing.gguf",
            ],
        ],
    );
    assert_eq!(std::fs::read(sandbox.path("taken.tar")).unwrap(), b"mine");
}

#[test]
fn a_reader_of_a_bundle_that_goes_away_is_no_error() {
    let sandbox = prepared(&[]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = sandbox.command(&["export", "--bundle", "-"]);
    let output = run(command.stdout(writer));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
}

#[test]
fn what_can_not_be_imported_is_named() {
    let sandbox = prepared(&[]);
    assert!(
        run(&mut sandbox.command(&["export", "--bundle", "set.tar"]))
            .status
            .success()
    );
    let bytes = std::fs::read(sandbox.path("set.tar")).unwrap();
    std::fs::write(sandbox.path("cut.tar"), &bytes[..bytes.len() - 700]).unwrap();
    let mut flipped = bytes.clone();
    // In the last object: 1152 bytes, padded to 1536, before 1024 at the end.
    let place = flipped.len() - 1024 - 1536 + 8;
    flipped[place] ^= 1;
    std::fs::write(sandbox.path("flipped.tar"), flipped).unwrap();
    std::fs::write(sandbox.path("longer.tar"), [&bytes[..], b"more"].concat()).unwrap();
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    sandbox.session_with(
        "import-refused",
        &[
            &["import", "nothing.tar"],
            &["import", "model.gguf"],
            &["import", "cut.tar"],
            &["import", "flipped.tar"],
            &["import", "longer.tar"],
            &["import", "-"],
            &["import", "empty"],
            &["import", "set.tar", "--format", "xe2-m6-v2"],
            &["import", "set.tar", "--format", "xe2-m7"],
            &["ls"],
        ],
        elsewhere(&sandbox),
    );
    sandbox.session_with("import-no-room", &[&["import", "set.tar"]], |command| {
        at(&sandbox, "small")(command);
        command.env("PACKHOUSE_MAX_BYTES", "1000");
    });
    sandbox.session_with("import-read-only", &[&["import", "set.tar"]], |command| {
        at(&sandbox, "small")(command);
        command.env("PACKHOUSE_READONLY", "1");
    });
}

#[test]
fn a_bundle_goes_through_a_pipe_as_it_goes_into_a_file() {
    let sandbox = prepared(&[]);
    assert!(
        run(&mut sandbox.command(&["export", "--bundle", "set.tar"]))
            .status
            .success()
    );
    let mut export = sandbox.command(&["export", "--bundle", "-"]);
    let mut export = export.stdout(Stdio::piped()).spawn().unwrap();
    let mut import = sandbox.command(&["import", "-", "--json"]);
    elsewhere(&sandbox)(&mut import);
    let pipe = export.stdout.take().expect("because it is piped");
    let output = run(import.stdin(pipe));
    assert!(export.wait().unwrap().success());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("because JSON is UTF-8");
    assert!(text.contains("\"outcome\": \"made\""), "{text}");
    let piped = run(&mut sandbox.command(&["export", "--bundle", "-"])).stdout;
    assert!(piped == std::fs::read(sandbox.path("set.tar")).unwrap());
}
