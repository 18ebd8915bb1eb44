//! `fingerprint` from outside: what it answers of a little build, what it keeps, and how it says
//! that two builds differ.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

fn library(sandbox: &Sandbox, folder: &str, value: u32) {
    let folder = sandbox.path(folder);
    fs::create_dir_all(folder.join("bin")).unwrap();
    let source = folder.join("a.c");
    fs::write(&source, format!("int f(void) {{ return {value}; }}")).unwrap();
    let target = folder.join("bin/liba.so");
    let done = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&target, &source])
        .status()
        .expect("because a C compiler is among the basics");
    assert!(done.success());
}

fn run(sandbox: &Sandbox, words: &[&str]) -> Output {
    sandbox
        .command(words)
        .output()
        .expect("because it was built")
}

fn document(output: &Output) -> Value {
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("because it is one document")
}

#[test]
fn two_builds_are_explained_by_folder_by_file_and_by_digits() {
    let sandbox = Sandbox::new();
    library(&sandbox, "one", 1);
    library(&sandbox, "other", 2);
    let one = run(
        &sandbox,
        &["fingerprint", "one", "--save", "one.json", "--json"],
    );
    let one = document(&one);
    assert_eq!(one["kept"], true);
    let digest = one["sha256"]
        .as_str()
        .expect("because it is text")
        .to_owned();
    let again = document(&run(&sandbox, &["fingerprint", "one/bin", "--json"]));
    assert_ne!(
        again["sha256"], one["sha256"],
        "no build system names the folder"
    );
    for name in ["one", "one.json", &digest, &digest[..8]] {
        let same = run(&sandbox, &["fingerprint", "--explain", "one.json", name]);
        let said = String::from_utf8_lossy(&same.stdout).into_owned();
        assert_eq!(
            (same.status.code(), said),
            (Some(0), format!("the same build: {digest}\n"))
        );
        let words = ["fingerprint", "--explain", name, "other", "--json"];
        let differs = run(&sandbox, &words);
        assert_eq!(differs.status.code(), Some(1));
        let differences = &document(&differs)["differences"];
        let fact = serde_json::json!(["libraries", "bin/liba.so", "sha256"]);
        assert_eq!(
            differences.as_array().map(Vec::len),
            Some(1),
            "{differences}"
        );
        assert_eq!(differences[0]["fact"], fact);
    }
    let differs = run(&sandbox, &["fingerprint", "--explain", "one", "other"]);
    let said = String::from_utf8_lossy(&differs.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(
        lines[0].starts_with("what") && lines[0].contains(&digest[..12]),
        "{said}"
    );
    assert!(lines[1].starts_with("library bin/liba.so  "), "{said}");
    assert_eq!(lines[2], "the builds differ in this");
}

#[test]
fn an_answer_tells_people_what_was_identified_and_what_is_unknown() {
    let sandbox = Sandbox::new();
    library(&sandbox, "one", 1);
    let cache = "CMAKE_C_COMPILER:FILEPATH=/none/cc\nCMAKE_HOME_DIRECTORY:INTERNAL=/none\n";
    fs::write(sandbox.path("one/CMakeCache.txt"), cache).unwrap();
    let output = run(&sandbox, &["fingerprint", "one"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let expected = [
        "build        ",
        "(cmake)\n",
        "source       unknown: the folder that the build names is not there\n",
        "files        0 programs, 1 library, 0 scripts; ",
        "compiler     C: unknown\n",
        "unknown      build_system compilers C: /none/cc: ",
    ];
    for words in expected {
        assert!(said.contains(words), "{words:?} in\n{said}");
    }
    let digest = said.split_whitespace().nth(1).unwrap_or_default();
    let state = sandbox.path("home/.local/state/packhouse/fingerprints/records");
    assert!(state.join(format!("{digest}.json")).is_file(), "{said}");
}

#[test]
fn what_is_no_build_and_no_fingerprint_is_refused_by_name() {
    let sandbox = Sandbox::new();
    library(&sandbox, "one", 1);
    fs::create_dir(sandbox.path("empty")).unwrap();
    fs::write(sandbox.path("some.json"), "{}\n").unwrap();
    sandbox.session(
        "fingerprint-refused",
        &[
            &["fingerprint"],
            &["fingerprint", "empty"],
            &["fingerprint", "absent"],
            &["fingerprint", "some.json"],
            &["fingerprint", "one", "--source", "absent"],
            &["fingerprint", "one", "--with", "empty"],
            &["fingerprint", "one", "--env", "NAME"],
            &["fingerprint", "one", "--save", "some.json"],
            &["fingerprint", "one", "--explain", "one", "one"],
            &["fingerprint", "--explain", "one"],
            &["fingerprint", "--explain", "one", "some.json"],
            &["fingerprint", "--explain", "one", "deadbeef"],
            &["fingerprint", "--explain", "one", "DEADBEEF"],
            &["fingerprint", "--explain", "one", "dead"],
        ],
    );
    assert_eq!(fs::read(sandbox.path("some.json")).unwrap(), b"{}\n");
}

#[test]
fn a_kept_fingerprint_that_was_edited_is_damaged_and_not_missing() {
    let sandbox = Sandbox::new();
    library(&sandbox, "one", 1);
    let digest = document(&run(&sandbox, &["fingerprint", "one", "--json"]))["sha256"].clone();
    let digest = digest.as_str().expect("because it is text");
    let state = sandbox.path("home/.local/state/packhouse/fingerprints/records");
    let path = state.join(format!("{digest}.json"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replacen("\"kind\":\"none\"", "\"kind\":\"cmake\"", 1),
    )
    .unwrap();
    let refused = run(&sandbox, &["fingerprint", "--explain", &digest[..8], "one"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3));
    assert!(said.contains("its facts have"), "{said}");
    // The next time that it is computed it is whole again.
    run(&sandbox, &["fingerprint", "one"]);
    let same = run(&sandbox, &["fingerprint", "--explain", &digest[..8], "one"]);
    assert_eq!(same.status.code(), Some(0));
}

#[test]
fn without_a_home_a_build_is_identified_all_the_same() {
    let sandbox = Sandbox::new();
    library(&sandbox, "one", 1);
    let output = sandbox
        .command(&["fingerprint", "one"])
        .env_remove("HOME")
        .output()
        .expect("because it was built");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("not kept for --explain: "), "{said}");
}

#[test]
fn folders_are_explained_with_the_source_that_was_given_for_them() {
    let sandbox = Sandbox::new();
    library(&sandbox, "one", 1);
    fs::create_dir(sandbox.path("source")).unwrap();
    fs::write(sandbox.path("source/a.c"), "int a;").unwrap();
    let words = [
        "fingerprint",
        "one",
        "--source",
        "source",
        "--save",
        "s.json",
    ];
    assert_eq!(run(&sandbox, &words).status.code(), Some(0));
    let words = [
        "fingerprint",
        "--explain",
        "s.json",
        "one",
        "--source",
        "source",
    ];
    let same = run(&sandbox, &words);
    let said = String::from_utf8_lossy(&same.stdout).into_owned();
    assert!(said.starts_with("the same build: "), "{said}");
    let without = run(&sandbox, &words[..4]);
    let said = String::from_utf8_lossy(&without.stdout).into_owned();
    assert_eq!(without.status.code(), Some(1), "{said}");
    assert!(!said.contains('{'), "{said}");
}

#[test]
fn what_could_not_be_saved_leaves_nothing_and_the_hint_names_what_is_there() {
    let sandbox = Sandbox::new();
    library(&sandbox, "one", 1);
    fs::write(sandbox.path("some.json"), "{}\n").unwrap();
    sandbox.session(
        "fingerprint-hints",
        &[
            &["fingerprint", "one", "--save", "some.json"],
            &["fingerprint", "one", "--save", "nosuch/x"],
            &["fingerprint", "one/a.c"],
            &[
                "fingerprint",
                "--explain",
                "some.json",
                "some.json",
                "--source",
                "one",
            ],
        ],
    );
    let names = fs::read_dir(sandbox.path("")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    let temporary = names.filter(|name| name.to_string_lossy().starts_with(".tmp"));
    assert_eq!(temporary.count(), 0);
    assert_eq!(fs::read(sandbox.path("some.json")).unwrap(), b"{}\n");
}

#[test]
fn a_wrong_word_of_a_command_within_another_names_the_very_page_of_help() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("pack"), "x").unwrap();
    sandbox.session(
        "inner-usage",
        &[
            &["fixture", "run", "--timeout", "0", "--", "true"],
            &["fixture", "run", "--promise", "bogus"],
            &["fixture", "run", "--challenge", "zz", "--", "true"],
            &["fixture", "run", "mmvq-q4_0-q8_1-v1", "--width", "7"],
            &["registry", "register"],
            &["import", "--tensor", "x"],
        ],
    );
}
