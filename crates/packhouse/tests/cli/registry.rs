//! Packs that others made: registered, listed, verified, imported and forgotten. Contents are
//! fixed, so keys and snapshots are too.

use crate::model;
use crate::sandbox::Sandbox;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const BOUND: [&str; 8] = [
    "--model",
    "model.gguf",
    "--packer-revision",
    "1.0",
    "--layout",
    "layout-v1",
    "--kernel-abi",
    "kernels/1",
];

fn run(command: &mut Command) -> Output {
    command.output().expect("because the command was built")
}

fn exit(output: &Output) -> i32 {
    output.status.code().expect("because nothing kills it")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("because names are shown in UTF-8")
}

fn register<'a>(path: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["registry", "register", path], &BOUND[..], more].concat()
}

/// A sandbox with a model and a pack of it.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let tensors: [(&str, &str, &[u64]); 1] = [("blk.0.ffn_up.weight", "Q4_0", &[64, 48])];
    model::write(&sandbox.path("model.gguf"), &tensors, &[]);
    fs::create_dir_all(sandbox.path("pack/inner")).unwrap();
    fs::write(sandbox.path("pack/a.bin"), "first").unwrap();
    fs::write(sandbox.path("pack/inner/b.bin"), [7; 4000]).unwrap();
    symlink("../a.bin", sandbox.path("pack/inner/link")).unwrap();
    fs::write(sandbox.path("one.bin"), "a pack in one file").unwrap();
    sandbox
}

/// The key under which a document or its only pack is registered.
fn key_of(output: &Output) -> String {
    let document: Value = serde_json::from_slice(&output.stdout).expect("because it is JSON");
    let key = document["key"].as_str().expect("because it was registered");
    key.to_owned()
}

#[test]
fn a_pack_is_registered_listed_verified_and_forgotten() {
    let sandbox = sandbox();
    let again = register("./pack/../pack", &["--json"]);
    sandbox.session(
        "registry-life",
        &[
            &["registry", "ls"],
            &["registry", "verify"],
            &register("pack", &[]),
            &again,
            &register("one.bin", &["--threads", "1"]),
            &["registry", "ls"],
            &["registry", "verify"],
        ],
    );
    fs::write(sandbox.path("pack/a.bin"), "First").unwrap();
    fs::remove_file(sandbox.path("pack/inner/link")).unwrap();
    fs::write(sandbox.path("pack/inner/new\nline"), "x").unwrap();
    fs::rename(sandbox.path("one.bin"), sandbox.path("two.bin")).unwrap();
    sandbox.session(
        "registry-changed",
        &[
            &["registry", "ls"],
            &["registry", "verify"],
            &register("two.bin", &[]),
            &register("pack", &[]),
            &["registry", "ls"],
        ],
    );
    fs::write(sandbox.path("model.gguf"), "another model").unwrap();
    let ls = run(&mut sandbox.command(&["registry", "ls", "--json"]));
    let document: Value = serde_json::from_slice(&ls.stdout).expect("because it is JSON");
    let packs = document["packs"].as_array().expect("because it is a list");
    let good = packs.iter().find(|pack| pack["kind"] == "file");
    let good = good.and_then(|pack| pack["key"].as_str()).unwrap();
    sandbox.session(
        "registry-model",
        &[
            &["registry", "verify", &good[..8]],
            &["registry", "verify", &good[..8], "--json"],
            &["registry", "rm", &good[..8], good],
            &["registry", "rm", &good[..8]],
        ],
    );
    assert!(sandbox.path("two.bin").exists());
}

#[test]
fn what_can_not_be_registered_is_named() {
    let sandbox = sandbox();
    fs::create_dir(sandbox.path("empty")).unwrap();
    fs::write(sandbox.path("nothing.bin"), "").unwrap();
    fs::create_dir(sandbox.path("leaves")).unwrap();
    symlink("../pack", sandbox.path("leaves/out")).unwrap();
    fs::create_dir(sandbox.path("pipes")).unwrap();
    let made = Command::new("mkfifo").arg(sandbox.path("pipes/p")).status();
    assert!(made.unwrap().success());
    let bare = ["registry", "register", "pack"];
    let text = |texts: [&'static str; 3], model: [&'static str; 2]| {
        let [revision, layout, abi] = texts;
        let words = [
            "--packer-revision",
            revision,
            "--layout",
            layout,
            "--kernel-abi",
            abi,
        ];
        [&bare[..], &words, &model].concat()
    };
    let sha256 = ["--model-sha256", "ABCDEF"];
    let by_file = ["--model", "model.gguf"];
    sandbox.session(
        "registry-refused",
        &[
            &register("empty", &[]),
            &register("nothing.bin", &[]),
            &register("leaves", &[]),
            &register("pipes", &[]),
            &register("pipes/p", &[]),
            &register("nowhere", &[]),
            &register("/", &[]),
            &bare,
            &text(["r", "l", "k"], sha256),
            &text(["r", "l", "k"], ["--model", "nowhere.gguf"]),
            &text(["r", "l", "k"], ["--model", "pack"]),
            &text([" ", "l", "k"], by_file),
            &text(["r", "l\u{1b}[2J", "k"], by_file),
            &register("pack", &["--model-sha256", "00"]),
            &["registry", "verify", "deadbeef"],
            &["registry", "verify", "beef"],
            &["registry", "rm"],
            &["registry", "ls"],
        ],
    );
}

#[test]
fn a_damaged_record_is_damaged_and_never_absent() {
    let sandbox = sandbox();
    let made = run(&mut sandbox.command(&register("pack", &["--json"])));
    let key = key_of(&made);
    let folder = sandbox.path("home/.local/state/packhouse/registry/v1");
    let file = folder.join(format!("{key}.json"));
    let whole = fs::read(&file).unwrap();
    let mut edited = whole.clone();
    let at = edited.len() / 2;
    edited[at] ^= 1;
    fs::write(folder.join("stray.txt"), "mine").unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    for words in [&["registry", "verify"][..], &["registry", "verify", &key]] {
        let said = run(&mut sandbox.command(words));
        assert_eq!(exit(&said), 1, "{said:?}");
        assert!(stdout(&said).contains("damaged: "), "{said:?}");
    }
    let listed = stdout(&run(&mut sandbox.command(&["registry", "ls"])));
    assert!(
        listed.contains("damaged: ") && listed.contains("not ours: stray.txt"),
        "{listed}"
    );
    let import = run(&mut sandbox.command(&["import", "--registered", &key]));
    assert_eq!(exit(&import), 3, "{import:?}");
    fs::write(&file, &edited).unwrap();
    let again = run(&mut sandbox.command(&register("pack", &[])));
    assert!(stdout(&again).contains(" repaired: "), "{again:?}");
    // With the stats of the first time.
    assert_eq!(fs::read(&file).unwrap(), whole);
    fs::write(&file, &edited).unwrap();
    let removed = run(&mut sandbox.command(&["registry", "rm", &key]));
    assert_eq!(exit(&removed), 0, "{removed:?}");
    assert!(!file.exists() && folder.join("stray.txt").exists());
    // Whoever may not be read is not executed, and not damaged.
    run(&mut sandbox.command(&register("pack", &[])));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let verify = run(&mut sandbox.command(&["registry", "verify"]));
    assert_eq!(exit(&verify), 3, "{verify:?}");
    assert!(stdout(&verify).contains(" unread: "), "{verify:?}");
    let listed = stdout(&run(&mut sandbox.command(&["registry", "ls"])));
    assert!(
        listed.contains(" unread: ") && !listed.contains("damaged"),
        "{listed}"
    );
    let register = run(&mut sandbox.command(&register("pack", &[])));
    assert_eq!(exit(&register), 3, "{register:?}");
}

#[test]
fn several_processes_that_register_at_once_make_one_record() {
    let sandbox = sandbox();
    let words = register("pack", &["--json"]);
    let started: Vec<_> = (0..6)
        .map(|_| {
            let mut command = sandbox.command(&words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("because the command was built")
        })
        .collect();
    let mut outcomes: Vec<String> = started
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().expect("because it ends");
            assert_eq!(exit(&output), 0, "{output:?}");
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            document["outcome"].as_str().unwrap().to_owned()
        })
        .collect();
    outcomes.sort();
    assert_eq!(outcomes, ["new", "same", "same", "same", "same", "same"]);
    let verified = run(&mut sandbox.command(&["registry", "verify"]));
    assert_eq!(exit(&verified), 0, "{verified:?}");
    let folder = sandbox.path("home/.local/state/packhouse/registry/v1");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
}

/// Registers a pack as made of the sandbox's model, and answers its key.
fn registered(sandbox: &Sandbox, path: &str, layout: &str) -> String {
    let mut words = register(path, &["--json"]);
    words[8] = layout;
    let output = run(&mut sandbox.command(&words));
    assert_eq!(exit(&output), 0, "{output:?}");
    key_of(&output)
}

/// The words that import a registered pack.
fn of(key: &str) -> [&str; 3] {
    ["import", "--registered", key]
}

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

/// Packs the model, and writes its set as a bundle and as a folder of the Xe2 verifier.
fn exported(sandbox: &Sandbox) {
    fs::write(sandbox.path("ffn.toml"), PLAN).unwrap();
    for words in [
        &["prepare", "model.gguf", "--plan", "ffn.toml"][..],
        &["export", "--bundle", "set.tar"],
        &["export", "--format", "xe2-m6-v2", "packs"],
    ] {
        let output = run(&mut sandbox.command(words));
        assert_eq!(exit(&output), 0, "{output:?}");
    }
}

#[test]
fn registered_packs_are_imported_as_what_they_are() {
    let sandbox = sandbox();
    exported(&sandbox);
    let packs = fs::read_dir(sandbox.path("packs")).unwrap();
    let set = packs.flatten().next().expect("because there is one").path();
    let tensors = fs::read_dir(set.join("tensors")).unwrap().flatten();
    let is_payload = |path: &Path| path.extension().is_some_and(|end| end == "bin");
    let mut payloads = tensors
        .map(|entry| entry.path())
        .filter(|path| is_payload(path));
    let payload = payloads.next().expect("because there is one");
    fs::copy(payload, sandbox.path("payload.bin")).unwrap();
    fs::write(sandbox.path("wrong.bin"), [9; 1728]).unwrap();
    let bundle = registered(&sandbox, "set.tar", "bundle");
    let folder = registered(&sandbox, set.to_str().unwrap(), "xe2-m6-v2");
    let payload = registered(&sandbox, "payload.bin", "q4_0-xe2-dpas-v2");
    let wrong = registered(&sandbox, "wrong.bin", "q4_0-xe2-dpas-v2");
    let other = {
        let mut words = register("set.tar", &["--json"]);
        let zeros = "0".repeat(64);
        (words[3], words[4]) = ("--model-sha256", &zeros);
        key_of(&run(&mut sandbox.command(&words)))
    };
    let short = [&bundle, &folder, &payload, &wrong, &other].map(|key| &key[..12]);
    let [bundle, folder, payload, wrong, other] = short;
    let up = ["--model", "model.gguf", "--tensor", "blk.0.ffn_up.weight"];
    sandbox.session_with(
        "registry-import",
        &[
            &of(bundle),
            &[&of(payload)[..], &up].concat(),
            &[&of(payload)[..], &up, &["--json"]].concat(),
            &["verify", "77a610afba52", "--prove"],
            &of(payload),
            &of(other),
            &[&of(wrong)[..], &up].concat(),
            &[&of(payload)[..], &up, &["--parameter", "n"]].concat(),
            &[&of(payload)[..], &up, &["--parameter", "n=1"]].concat(),
            &[&of(payload)[..], &["--tensor", "x"]].concat(),
            &[&of(bundle)[..], &["--model", "model.gguf"]].concat(),
            &of("00000000"),
            &["import"],
            &["import", "set.tar", "--registered", "00000000"],
        ],
        |command| {
            command.env("PACKHOUSE_STORE", sandbox.path("other"));
        },
    );
    // Its manifest has the model's path, so its key is another one in each sandbox.
    let output = run(&mut sandbox.command(&of(folder)));
    let said = stdout(&output);
    assert_eq!(exit(&output), 0, "{output:?}");
    assert!(said.contains("under plan xe2-m6-v2: 1 tensors"), "{said}");
    let mut bytes = fs::read(sandbox.path("set.tar")).unwrap();
    bytes.push(0);
    fs::write(sandbox.path("set.tar"), bytes).unwrap();
    let refused = run(&mut sandbox.command(&of(bundle)));
    let said = String::from_utf8(refused.stderr.clone()).unwrap();
    assert_eq!(exit(&refused), 3, "{refused:?}");
    assert!(
        said.contains("not imported, as it is not what was registered"),
        "{said}"
    );
}
