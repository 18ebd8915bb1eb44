//! Wrong payloads that agree with every record: a bit of an object is flipped, the object named by
//! its new SHA-256, and record, manifest and index rewritten to match. No key changes.

use crate::model;
use crate::sandbox::Sandbox;
use crate::store;
use packhouse_base::digest::Digest;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

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

/// The lie that nothing but a proof finds.
const SAID: &str = "payload is not what its source packs to: its source has SHA-256 ";
const TENSOR: &str = "blk.0.ffn_gate.weight";

/// A sandbox with a model, its set, and the set's bundle `good.tar`.
fn prepared() -> Sandbox {
    let sandbox = Sandbox::new();
    model::write(
        &sandbox.path("model.gguf"),
        &[
            (TENSOR, "Q4_0", &[64, 32]),
            ("blk.0.ffn_up.weight", "Q4_0", &[64, 48]),
        ],
        &[],
    );
    std::fs::write(sandbox.path("ffn.toml"), PLAN).unwrap();
    run(
        &sandbox,
        &["prepare", "model.gguf", "--plan", "ffn.toml"],
        0,
    );
    run(&sandbox, &["export", "--bundle", "good.tar"], 0);
    sandbox
}

pub(crate) fn run(sandbox: &Sandbox, words: &[&str], exit: i32) -> String {
    run_with(sandbox, words, exit, |_| {})
}

/// Runs a command that must end like this, and answers both streams.
pub(crate) fn run_with(
    sandbox: &Sandbox,
    words: &[&str],
    exit: i32,
    change: impl Fn(&mut Command),
) -> String {
    let mut command = sandbox.command(words);
    change(&mut command);
    let output = command.output().expect("because the command was built");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).expect("because it is text");
    assert_eq!(output.status.code(), Some(exit), "{words:?}: {said}");
    said
}

/// Another store in the same sandbox.
pub(crate) fn elsewhere(sandbox: &Sandbox) -> impl Fn(&mut Command) {
    let (store, state) = (sandbox.path("other/store"), sandbox.path("other/state"));
    move |command| {
        command
            .env("PACKHOUSE_STORE", &store)
            .env("XDG_STATE_HOME", &state);
    }
}

/// Writes the lie into the sandbox's own store.
fn forge(sandbox: &Sandbox) {
    forge_payload(sandbox, TENSOR, |payload| payload[100] ^= 1);
}

/// Writes a lie of one's own about a tensor of the only set.
pub(crate) fn forge_payload(sandbox: &Sandbox, tensor: &str, edit: impl Fn(&mut Vec<u8>)) {
    let opened = store::open(sandbox);
    let sets = opened.list_sets().expect("because it can be listed");
    let manifest = opened.read_set(sets[0]).expect("because it is sound");
    let mut entries = manifest.entries().iter();
    let entry = entries.find(|entry| entry.tensor == tensor);
    let entry = entry.expect("because the plan chose it");
    let root = sandbox.path("home/.cache/packhouse/v1");
    let (pack, old) = (entry.pack.to_string(), entry.object.to_string());
    let mut payload = std::fs::read(root.join("objects").join(&old[..2]).join(&old)).unwrap();
    edit(&mut payload);
    let new = Digest::of(&payload).to_string();
    let folder = root.join("objects").join(&new[..2]);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(&new), payload).unwrap();
    let mode = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(folder.join(&new), mode).unwrap();
    let set = root.join("sets").join(sets[0].to_string());
    for path in [
        root.join("packs").join(&pack[..2]).join(&pack),
        set.join("manifest.json"),
        set.join("runtime-index.tsv"),
    ] {
        rewrite(&path, &old, &new);
    }
}

fn rewrite(path: &Path, old: &str, new: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(old), "{}", path.display());
    let mode = std::fs::metadata(path).unwrap().permissions();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(path, text.replace(old, new)).unwrap();
    std::fs::set_permissions(path, mode).unwrap();
}

#[test]
fn a_store_edited_to_agree_with_itself_is_seen_by_proof_and_healed() {
    let sandbox = prepared();
    let said = run(&sandbox, &["verify", "--prove"], 0);
    assert!(said.contains("2 of 2 tensors good"), "{said}");
    assert!(said.contains("2 packs proven"), "{said}");
    forge(&sandbox);
    // Hashing finds nothing: the object is what its name says.
    run(&sandbox, &["verify", "--deep"], 0);
    let said = run(&sandbox, &["verify", "--prove"], 1);
    assert!(said.contains(TENSOR) && said.contains(SAID), "{said}");
    assert!(said.contains("1 of 2 tensors good, 1 bad"), "{said}");
    let said = run(&sandbox, &["verify", "--prove", "--json"], 1);
    assert!(said.contains("\"reason\": \"unlike\"") || said.contains("\"reason\":\"unlike\""));
    let words = ["repair", "--model", "model.gguf", "--plan", "ffn.toml"];
    let said = run(&sandbox, &words, 0);
    assert!(said.contains("1 healed") && said.contains(SAID), "{said}");
    let said = run(&sandbox, &["verify", "--prove"], 0);
    assert!(said.contains("2 packs proven"), "{said}");
    run(&sandbox, &["export", "--bundle", "again.tar"], 0);
    let read = |name| std::fs::read(sandbox.path(name)).unwrap();
    assert!(read("again.tar") == read("good.tar"));
}

#[test]
fn a_bundle_with_another_payload_is_refused_by_name_and_leaves_no_set() {
    let sandbox = prepared();
    forge(&sandbox);
    run(&sandbox, &["export", "--bundle", "bad.tar"], 0);
    let there = elsewhere(&sandbox);
    let said = run_with(&sandbox, &["import", "bad.tar"], 3, &there);
    assert!(said.contains(TENSOR) && said.contains(SAID), "{said}");
    let root = sandbox.path("other/store/v1");
    for name in ["sets", "packs"] {
        let left = std::fs::read_dir(root.join(name)).unwrap().count();
        assert_eq!(left, 0, "{name}");
    }
    let said = run_with(&sandbox, &["import", "good.tar"], 0, &there);
    assert!(!said.contains("not proven"), "{said}");
    run_with(&sandbox, &["verify", "--prove"], 0, &there);
}

#[test]
fn a_good_bundle_replaces_the_wrong_pack_of_the_same_key() {
    let sandbox = prepared();
    forge(&sandbox);
    run(&sandbox, &["verify", "--prove"], 1);
    let said = run(&sandbox, &["import", "good.tar"], 0);
    assert!(said.contains("repaired"), "{said}");
    run(&sandbox, &["verify", "--prove"], 0);
    let quarantine = sandbox.path("home/.cache/packhouse/v1/quarantine");
    assert!(std::fs::read_dir(quarantine).unwrap().count() > 0);
}

#[test]
fn a_foreign_folder_replaces_the_wrong_pack_of_the_same_key_too() {
    let sandbox = prepared();
    run(&sandbox, &["export", "--format", "xe2-m6-v2", "packs"], 0);
    forge(&sandbox);
    run(&sandbox, &["import", "packs"], 0);
    // The first set's manifest still has the lie; its record does not any more.
    let sets = store::open(&sandbox).list_sets();
    for set in sets.expect("because it can be listed") {
        let words = ["import", "good.tar"];
        run(&sandbox, &words, 0);
        run(&sandbox, &["verify", &set.to_string(), "--prove"], 0);
    }
}

#[test]
fn packs_of_another_packer_are_imported_and_counted() {
    let sandbox = Sandbox::new();
    store::set(&store::open(&sandbox), "a.gguf", &store::FIRST);
    run(&sandbox, &["export", "--bundle", "set.tar"], 0);
    let there = elsewhere(&sandbox);
    let said = run_with(&sandbox, &["import", "set.tar"], 0, &there);
    assert!(said.contains("3 of 3 packs not proven here"), "{said}");
    assert!(said.contains("no inverse for identity-v1"), "{said}");
    let said = run_with(&sandbox, &["import", "set.tar", "--json"], 0, &there);
    assert!(said.contains("\"unproven_count\": 3") || said.contains("\"unproven_count\":3"));
    let said = run_with(&sandbox, &["verify", "--prove"], 0, &there);
    assert!(said.contains("3 of 3 packs not proven here"), "{said}");
}
