//! What `du`, `doctor` and `gc` say and do of fixtures, focused runs and what is beside them.

use crate::sandbox::Sandbox;
use packhouse_store::folders::{Links, walk};
use packhouse_store::root::Owners;
use packhouse_sys::fs::{Fs as _, LockKind};
use packhouse_sys::real::RealFs;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const ID: &str = "mrow-identity-v1-v1";

fn run(sandbox: &Sandbox, words: &[&str], code: i32) -> String {
    let output = sandbox
        .command(words)
        .output()
        .expect("because the command was built");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("because it is text");
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}{error}");
    said
}

fn document(sandbox: &Sandbox, words: &[&str]) -> Value {
    let said = run(sandbox, &[words, &["--json"]].concat(), 0);
    serde_json::from_str(&said).expect("because it is one document")
}

/// A line of a table, its cells apart by one space.
fn says(text: &str, line: &str) -> bool {
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().any(|found| plain(found).starts_with(line))
}

#[test]
fn fixtures_are_told_and_gc_removes_what_is_no_fixture_any_more() {
    let sandbox = Sandbox::new();
    drop(crate::store::open(&sandbox));
    run(&sandbox, &["fixture", "prepare", ID], 0);
    let shelf = sandbox.path("home/.cache/packhouse/fixtures/v1");
    for name in [
        &format!("damaged-{ID}"),
        ".tmp-0123456789abcdef",
        "stranger",
    ] {
        fs::create_dir_all(shelf.join(name).join("data")).unwrap();
        fs::write(shelf.join(name).join("data/x"), [7; 1000]).unwrap();
    }
    for words in [["du"], ["doctor"]] {
        let said = run(&sandbox, &words, 0);
        assert!(says(&said, "fixtures 1"), "{said}");
        assert!(says(&said, "damaged fixtures 1"), "{said}");
        assert!(says(&said, "unfinished fixtures 1"), "{said}");
        let held = document(&sandbox, &words)["held"].clone();
        let one = serde_json::json!({"count": 1, "bytes": 1000});
        assert_eq!(
            (&held["damaged_fixtures"], &held["unfinished_fixtures"]),
            (&one, &one)
        );
        assert!(held["fixtures"]["bytes"].as_u64() > Some(10_000), "{held}");
    }
    let count = || fs::read_dir(&shelf).unwrap().count();
    let dry = document(&sandbox, &["gc", "--dry-run"]);
    assert_eq!((&dry["damaged_fixtures_bytes"], count()), (&1000.into(), 5));
    // Somebody publishes.
    let owners = Owners::new(RealFs.effective_uid(), &[]);
    let (_, dir) = walk(&RealFs, &owners, &shelf, None, Links::Follow).unwrap();
    let lock = dir.open_file_writable("lock").unwrap();
    assert!(lock.try_lock(LockKind::Exclusive, 0, 1).unwrap());
    let said = run(&sandbox, &["gc"], 3);
    assert!(
        said.contains("not removed: fixtures: ") && said.contains("in use"),
        "{said}"
    );
    assert_eq!(count(), 5);
    drop(lock);
    let said = run(&sandbox, &["gc"], 0);
    assert!(says(&said, "damaged fixtures 1 1000 B"), "{said}");
    assert!(says(&said, "unfinished fixtures 1 1000 B"), "{said}");
    assert_eq!(count(), 3);
    assert!(shelf.join("stranger").is_dir());
    run(&sandbox, &["fixture", "verify", ID], 0);
}

#[test]
fn runs_are_told_and_receipts_of_fixtures_are_apart_from_those_of_models() {
    let sandbox = Sandbox::new();
    drop(crate::store::open(&sandbox));
    fs::create_dir_all(sandbox.path("b/bin")).unwrap();
    let source = "#include <stdio.h>\nint main(void) { puts(\"ok 1\\n1..1\"); return 0; }\n";
    fs::write(sandbox.path("program.c"), source).unwrap();
    let built = Command::new("cc")
        .args([Path::new("-o"), &sandbox.path("b/bin/program")])
        .arg(sandbox.path("program.c"))
        .status();
    assert!(
        built
            .expect("because a C compiler is among the basics")
            .success()
    );
    let tests = "[[test]]\nname = \"it\"\ncommand = [\"program\"]\nproof = \"tap\"\n";
    fs::write(sandbox.path("tests.toml"), tests).unwrap();
    run(&sandbox, &["focused", "b", "--tests", "tests.toml"], 0);
    let held = document(&sandbox, &["du"])["held"].clone();
    assert_eq!(held["focused_runs"]["count"], 1, "{held}");
    assert!(held["focused_runs"]["bytes"].as_u64() > Some(100), "{held}");
    assert!(held["fingerprints"]["bytes"].as_u64() > Some(100), "{held}");
    assert_eq!(held["registry_records"]["count"], 0, "{held}");
    let count = |name| {
        let folder = sandbox.path("home/.local/state/packhouse").join(name);
        fs::read_dir(folder).map_or(0, Iterator::count)
    };
    assert!(count("models") < 50 && count("fixtures") > 100);
    let again = ["focused", "b", "--tests", "tests.toml", "--reuse-pass"];
    let said = run(&sandbox, &again, 0);
    assert_eq!(
        document(&sandbox, &["du"])["held"]["focused_runs"]["count"],
        1,
        "{said}"
    );
}
