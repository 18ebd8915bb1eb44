//! Stages from outside: copied once, reused, damaged, replaced, removed, and refused.

use crate::model;
use crate::sandbox::Sandbox;
use crate::store::{FIRST, SECOND, damage, open, set};
use packhouse_base::digest::{Digest, SetKey};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
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
fn prepare_and_stage_in_turn_copy_nothing_the_second_time() {
    let sandbox = Sandbox::new();
    write_model(&sandbox);
    let document = |words: &[&str]| {
        let (exit, said) = run(&sandbox, words);
        assert_eq!(exit, 0, "{said}");
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    let turn = || {
        let prepare = ["prepare", "model.gguf", "--plan", "xe2-q4_0", "--json"];
        let prepared = document(&prepare);
        let staged = document(&["stage", "--min-free", "0", "--json"]);
        let set = prepared["set"].as_str().unwrap().to_owned();
        assert_eq!(staged["set"], set.as_str());
        assert_eq!(staged["admission"], "hashed");
        (prepared, staged, set)
    };
    let (prepared, staged, set) = turn();
    assert_eq!(staged["outcome"], "copied");
    let payload_bytes = 2 * 256 * 64 / 32 * 18;
    assert_eq!(staged["copied_bytes"], payload_bytes);
    assert_eq!(prepared["written_bytes"], payload_bytes);
    let path = format!("home/.cache/packhouse/v1/sets/{set}/manifest.json");
    let manifests = [
        sandbox.path(&path),
        sandbox.path(&format!("stage/{set}.1/manifest.json")),
    ];
    let look = || {
        manifests.clone().map(|path| {
            let stat = std::fs::metadata(&path).unwrap();
            let times = (
                stat.mtime(),
                stat.mtime_nsec(),
                stat.ctime(),
                stat.ctime_nsec(),
            );
            (std::fs::read(&path).unwrap(), stat.ino(), times)
        })
    };
    let before = look();
    for _ in 0..2 {
        let (prepared, staged, again) = turn();
        assert_eq!(again, set);
        assert_eq!(prepared["outcome"], "equal");
        assert_eq!(prepared["reused_count"], 2);
        assert_eq!(
            (&prepared["source_bytes"], &prepared["written_bytes"]),
            (&0.into(), &0.into())
        );
        assert_eq!(
            (&staged["outcome"], &staged["copied_bytes"]),
            (&"reused".into(), &0.into())
        );
        assert_eq!(look(), before);
    }
}

/// Writes a model of two matrices with different bytes.
fn write_model(sandbox: &Sandbox) {
    let path = sandbox.path("model.gguf");
    let dims = [256u64, 64];
    let tensors = [
        ("blk.0.ffn_up.weight", "Q4_0", dims.as_slice()),
        ("blk.1.ffn_up.weight", "Q4_0", dims.as_slice()),
    ];
    model::write(&path, &tensors, &[]);
    let mut bytes = std::fs::read(&path).unwrap();
    if let Some(last) = bytes.last_mut() {
        *last = 7;
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn stage_works_on_a_read_only_store() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    let words = ["stage", "--min-free", "0"];
    for wanted in ["copied and hashed", "staged already"] {
        let mut command = sandbox.command(&words);
        let output = command.env("PACKHOUSE_READONLY", "1").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn a_folder_of_stages_in_the_store_is_refused_and_not_made() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    std::os::unix::fs::symlink(sandbox.path("home"), sandbox.path("link")).unwrap();
    for place in ["", "/v1", "/v1/stages", "/v1/../deep/er"] {
        for home in ["home", "link"] {
            let path = format!("{home}/.cache/packhouse{place}");
            let (exit, said) = stage(&sandbox, &["--root", &path]);
            assert_eq!(exit, 2, "{path}: {said}");
            let refusal = "error: the folder of stages is in the store: ";
            assert!(said.starts_with(refusal), "{said}");
        }
    }
    let names = ["v1/stages", "deep"].map(|name| format!("home/.cache/packhouse/{name}"));
    assert!(!names.iter().any(|name| sandbox.path(name).exists()));
    // A name that only begins like the store's is another folder.
    let (exit, said) = stage(&sandbox, &["--root", "home/.cache/packhouse-stages"]);
    assert_eq!(exit, 0, "{said}");
}

#[test]
fn a_stage_that_another_store_made_is_reused_and_said_to_be_the_other_s() {
    let (one, other) = (Sandbox::new(), Sandbox::new());
    let key = set(&open(&one), "first.gguf", &FIRST);
    assert_eq!(set(&open(&other), "first.gguf", &FIRST), key);
    assert_eq!(stage(&one, &[]).0, 0);
    let (_, said) = stage(&one, &[]);
    assert!(!said.contains("another store"), "{said}");
    let from_other = |words: &[&str]| {
        let mut command = other.command(words);
        let output = command
            .env("PACKHOUSE_STAGE", one.path("stage"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = from_other(&["stage", "--min-free", "0"]);
    let store = open(&one).id();
    assert!(said.contains("staged already"), "{said}");
    let wanted = format!("made from another store ({store}), whose gc removes it with its set\n");
    assert!(said.contains(&wanted), "{said}");
    let said = from_other(&["stage", "--min-free", "0", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["store"], store.to_string());
    assert_eq!(document["own_store"], false);
}

#[test]
fn what_is_no_stage_is_named_and_stays() {
    let sandbox = Sandbox::new();
    let key = set(&open(&sandbox), "first.gguf", &FIRST);
    assert_eq!(stage(&sandbox, &[]).0, 0);
    let strange = format!("stage/{key}.18446744073709551616");
    std::fs::create_dir(sandbox.path(&strange)).unwrap();
    std::fs::write(sandbox.path("stage/a\nline"), "").unwrap();
    let (exit, said) = run(&sandbox, &["gc", "--shared"]);
    assert_eq!(exit, 0, "{said}");
    for name in ["a\\u{a}line", &strange["stage/".len()..]] {
        let line = format!("no stage by its name, stays: {name}\n");
        assert!(said.contains(&line), "{said}");
    }
    let (exit, said) = run(&sandbox, &["unstage", "--all"]);
    assert_eq!(exit, 0, "{said}");
    assert!(said.starts_with("unstaged 1 set (38 B); "), "{said}");
    assert!(
        said.contains("no stage by its name, stays: a\\u{a}line\n"),
        "{said}"
    );
    let (_, said) = run(&sandbox, &["unstage", "--all", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["strangers"].as_array().map(Vec::len), Some(2));
    assert!(sandbox.path(&strange).exists());
}

#[test]
fn a_set_whose_source_was_not_hashed_as_a_whole_is_said_to_be() {
    let sandbox = Sandbox::new();
    let key = set(&open(&sandbox), "first.gguf", &FIRST);
    let words = "source not hashed as a whole";
    for line in [&["stage", "--min-free", "0"][..], &["stage-validate"]] {
        for _ in 0..2 {
            let (exit, said) = run(&sandbox, line);
            assert_eq!(exit, 0, "{said}");
            assert!(said.contains(words), "{line:?}: {said}");
        }
        let (_, said) = run(&sandbox, &[line, &["--json"]].concat());
        let document: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(document["admission"], "skipped", "{said}");
    }
    // A stage outlives its set: nothing is known of the source then.
    assert_eq!(run(&sandbox, &["rm", &key.to_string()]).0, 0);
    let (_, said) = run(&sandbox, &["stage-validate", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["admission"], serde_json::Value::Null, "{said}");
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
