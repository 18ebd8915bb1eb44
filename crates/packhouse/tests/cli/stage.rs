//! Stages from outside: copied once, reused, damaged, replaced, removed, and refused.

use crate::sandbox::Sandbox;
use crate::store::{FIRST, SECOND, damage, open, set};
use packhouse_base::digest::{Digest, SetKey};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// Runs a command and answers its exit code with both streams.
fn run(sandbox: &Sandbox, words: &[&str]) -> (i32, String) {
    let output = sandbox.command(words).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    let exit = output.status.code().expect("because nothing kills it");
    (exit, said + &complained)
}

/// Stages a set, as a machine of any size can.
fn stage(sandbox: &Sandbox, words: &[&str]) -> (i32, String) {
    let words = [&["stage", "--min-free", "0"], words].concat();
    run(sandbox, &words)
}

fn copy(sandbox: &Sandbox, key: SetKey, generation: u64, payload: &[u8]) -> PathBuf {
    let digest = Digest::of(payload);
    sandbox.path(&format!("stage/{key}.{generation}/objects/{digest}"))
}

fn chmod(path: &PathBuf, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_set_is_copied_once_shown_reused_and_removed() {
    let sandbox = Sandbox::new();
    let key = set(&open(&sandbox), "first.gguf", &FIRST);
    let (exit, said) = stage(&sandbox, &[]);
    assert_eq!(exit, 0, "{said}");
    assert!(
        said.contains(": 3 tensors (38 B) copied and hashed in "),
        "{said}"
    );
    let first = &key.to_string()[..8];
    sandbox.session(
        "stage-life",
        &[
            &["stage", first],
            &["stage-validate"],
            &["stage-validate", "--deep"],
            &["stage-validate", first, "--json"],
            &["stage-validate", "--threads", "2"],
            &["ls"],
            &["unstage"],
            &["stage-validate"],
            &["unstage", first],
            &["unstage", "--all"],
            &["unstage", first, "--all"],
        ],
    );
    assert!(!copy(&sandbox, key, 1, FIRST[0]).exists());
}

#[test]
fn the_document_of_a_stage_has_counts_and_says_what_was_done() {
    let sandbox = Sandbox::new();
    let key = set(&open(&sandbox), "first.gguf", &FIRST);
    let document = |words: &[&str]| {
        let (exit, said) = stage(&sandbox, words);
        assert_eq!(exit, 0, "{said}");
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    let copied = document(&["--json"]);
    assert_eq!(copied["set"], key.to_string());
    assert_eq!(
        (&copied["outcome"], &copied["bytes"]),
        (&"copied".into(), &38.into())
    );
    assert_eq!(copied["copied_bytes"], 38);
    assert!(copied["duration_ns"].as_u64().is_some_and(|ns| ns > 0));
    let reused = document(&["--json"]);
    assert_eq!(
        (&reused["outcome"], &reused["copied_bytes"]),
        (&"reused".into(), &0.into())
    );
    // Damaged: the answer is negative, per tensor, and `stage` replaces it.
    let path = copy(&sandbox, key, 1, FIRST[1]);
    chmod(&path, 0o644);
    let (exit, said) = run(&sandbox, &["stage-validate"]);
    assert_eq!(exit, 1, "{said}");
    assert!(
        said.contains("1  blk.1.ffn_up.weight  staged object"),
        "{said}"
    );
    assert!(said.contains("has mode 0644, expected 0444"), "{said}");
    assert!(said.contains("2 of 3 tensors good, 1 bad"), "{said}");
    let replaced = document(&["--json"]);
    assert_eq!(replaced["outcome"], "replaced");
    assert_eq!(replaced["generation"], 2);
    let why = replaced["why"].as_str().unwrap();
    assert!(
        why.contains("slot 1") && why.contains("has mode 0644"),
        "{why}"
    );
    assert_eq!(run(&sandbox, &["stage-validate", "--deep"]).0, 0);
}

#[test]
fn prepare_and_stage_in_turn_work_on_a_read_only_store_too() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox);
    set(&store, "first.gguf", &FIRST);
    let read_only = |words: &[&str]| {
        let mut command = sandbox.command(words);
        let output = command.env("PACKHOUSE_READONLY", "1").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        said
    };
    let words = ["stage", "--min-free", "0"];
    assert!(read_only(&words).contains("copied and hashed"));
    for _ in 0..2 {
        set(&store, "first.gguf", &FIRST);
        assert!(read_only(&words).contains("staged already"));
    }
}

#[test]
fn a_damaged_object_is_not_staged_and_named() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    damage(&sandbox, FIRST[2]);
    let (exit, said) = stage(&sandbox, &[]);
    assert_eq!(exit, 3, "{said}");
    assert!(said.starts_with("error: cannot stage the set: "), "{said}");
    assert!(
        said.contains("is corrupt: ") && said.contains("hint: packhouse repair "),
        "{said}"
    );
    let names: Vec<_> = std::fs::read_dir(sandbox.path("stage")).unwrap().collect();
    assert_eq!(names.len(), 1, "only the lock file: {names:?}");
}

#[test]
fn too_little_memory_is_said_with_what_there_is() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    let (exit, said) = run(&sandbox, &["stage", "--min-free", "1000TiB"]);
    assert_eq!(exit, 3, "{said}");
    assert!(
        said.starts_with("error: no room to stage the set: "),
        "{said}"
    );
    assert!(
        said.contains("KiB wanted, ") && said.contains(" free, of which 0 B "),
        "{said}"
    );
    assert!(said.contains("1024000.00 GiB stay free"), "{said}");
    assert!(said.contains("hint: packhouse unstage --all"), "{said}");
}

#[test]
fn a_folder_that_is_not_the_users_alone_is_refused_with_what_helps() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    std::fs::create_dir(sandbox.path("open")).unwrap();
    chmod(&sandbox.path("open"), 0o755);
    std::fs::create_dir(sandbox.path("wide")).unwrap();
    chmod(&sandbox.path("wide"), 0o770);
    std::fs::write(sandbox.path("file"), "").unwrap();
    std::os::unix::fs::symlink(sandbox.path("open"), sandbox.path("link")).unwrap();
    sandbox.session(
        "stage-refused",
        &[
            &["stage-validate"],
            &["stage", "--root", "open"],
            &["stage", "--root", "wide"],
            &["stage", "--root", "file"],
            &["stage", "--root", "link"],
            &["unstage", "--root", "link", "--all"],
            &["stage", "0123456789"],
        ],
    );
    let mut command = sandbox.command(&["stage"]);
    let output = command.env("PACKHOUSE_STAGE", "beside").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("PACKHOUSE_STAGE must be absolute"), "{said}");
    // Looking at the store is not in the way of it.
    let mut command = sandbox.command(&["ls"]);
    let output = command
        .env("PACKHOUSE_STAGE", sandbox.path("open"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("stages: ") && said.contains("has mode 0755, expected 0700"),
        "{said}"
    );
}

#[test]
fn gc_removes_the_stage_of_a_set_that_is_gone() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox);
    let first = set(&store, "first.gguf", &FIRST);
    let second = set(&store, "second.gguf", &SECOND);
    for key in [first, second] {
        let (exit, said) = stage(&sandbox, &[&key.to_string()[..8]]);
        assert_eq!(exit, 0, "{said}");
    }
    assert_eq!(run(&sandbox, &["rm", &first.to_string()[..8]]).0, 0);
    let (_, said) = run(&sandbox, &["ls"]);
    assert!(
        said.contains(&format!("staged only: {}", &first.to_string()[..12])),
        "{said}"
    );
    let gc = |words: &[&str]| {
        let (exit, said) = run(&sandbox, &[&["gc", "--shared", "--json"], words].concat());
        assert_eq!(exit, 0, "{said}");
        let document = serde_json::from_str::<serde_json::Value>(&said).unwrap();
        document["stages_count"].as_u64().unwrap()
    };
    assert_eq!(gc(&["--dry-run"]), 1);
    assert!(copy(&sandbox, first, 1, FIRST[0]).exists());
    assert_eq!(gc(&[]), 1);
    assert!(!copy(&sandbox, first, 1, FIRST[0]).exists());
    assert!(copy(&sandbox, second, 1, SECOND[0]).exists());
    assert_eq!(gc(&[]), 0);
}
