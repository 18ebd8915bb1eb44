//! What a fingerprint says of the source: git work trees of all kinds, and trees without git.

use crate::fingerprint_world::{Bench, facts};
use packhouse_build::fingerprint::FingerprintError;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A build beside a git work tree with two files.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.library("b", "liba.so", 1);
    bench.write("s/a.c", "int a;\n");
    bench.write("s/dir/b.c", "int b;\n");
    bench.write("s/.gitignore", "*.o\n/out/\n");
    bench.git("s", &["init", "-q"]);
    bench.git("s", &["add", "."]);
    bench.git("s", &["commit", "-q", "-m", "first"]);
    bench.source = Some(bench.path("s"));
    bench
}

#[test]
fn a_clean_work_tree_is_its_commit_and_ignored_files_are_none_of_it() {
    let bench = bench();
    let commit = bench.git("s", &["rev-parse", "HEAD"]);
    let before = bench.of("b");
    let expected = json!({
        "changed": {}, "commit": commit, "kind": "git", "submodules": {},
    });
    assert_eq!(before.facts()["source"], expected);
    bench.write("s/x.o", "an object");
    bench.write("s/out/y.c", "generated");
    assert_eq!(facts(&before, &bench.of("b")), Vec::<String>::new());
    // The same commit in another folder, and from a folder inside.
    bench.git(".", &["clone", "-q", "s", "far"]);
    let mut bench = bench;
    bench.source = Some(bench.path("far/dir"));
    assert_eq!(facts(&before, &bench.of("b")), Vec::<String>::new());
}

#[test]
fn every_kind_of_change_is_a_fact_under_its_own_name() {
    let bench = bench();
    let before = bench.of("b");
    bench.write("s/a.c", "int a2;\n");
    bench.write("s/new\nline \"q\" \\.c", "untracked");
    fs::remove_file(bench.path("s/dir/b.c")).unwrap();
    symlink("a.c", bench.path("s/link.c")).unwrap();
    fs::set_permissions(bench.path("s/.gitignore"), PermissionsExt::from_mode(0o755)).unwrap();
    bench.write("s/staged.c", "staged");
    bench.git("s", &["add", "staged.c"]);
    let after = bench.of("b");
    let changed = &after.facts()["source"]["changed"];
    let names: Vec<&String> = changed.as_object().unwrap().keys().collect();
    let expected = [
        ".gitignore",
        "a.c",
        "dir/b.c",
        "link.c",
        "new\nline \"q\" \\\\.c",
        "staged.c",
    ];
    assert_eq!(names, expected);
    assert_eq!(changed["dir/b.c"], "deleted");
    assert_eq!(changed["link.c"], json!({ "link": "a.c" }));
    assert_eq!(changed[".gitignore"]["executable"], true);
    assert_eq!(
        after.facts()["source"]["commit"],
        before.facts()["source"]["commit"]
    );
    // Content counts, not that there is a change.
    bench.write("s/a.c", "int a3;\n");
    assert_eq!(facts(&after, &bench.of("b")), ["source changed a.c sha256"]);
}

#[test]
fn moving_bytes_from_one_untracked_file_to_the_next_shows() {
    let bench = bench();
    bench.write("s/p", "ab");
    bench.write("s/q", "c");
    let before = bench.of("b");
    bench.write("s/p", "a");
    bench.write("s/q", "bc");
    let expected = ["source changed p sha256", "source changed q sha256"];
    assert_eq!(facts(&before, &bench.of("b")), expected);
}

#[test]
fn what_the_index_is_told_not_to_look_at_is_looked_at() {
    for flag in ["--assume-unchanged", "--skip-worktree"] {
        let bench = bench();
        bench.git("s", &["update-index", flag, "a.c"]);
        let before = bench.of("b");
        bench.write("s/a.c", "int edited;\n");
        assert_eq!(
            bench.git("s", &["status", "--porcelain"]),
            "",
            "git hides it: {flag}"
        );
        let after = bench.of("b");
        assert_eq!(
            facts(&before, &after),
            ["source changed a.c sha256"],
            "{flag}"
        );
    }
}

#[test]
fn settings_of_the_user_do_not_hide_a_change() {
    let bench = bench();
    let before = bench.of("b");
    let monitor = bench.path("monitor");
    let ran = bench.path("ran");
    bench.write(
        "monitor",
        &format!("#!/bin/sh\necho ran >> {}\nexit 0\n", ran.display()),
    );
    fs::set_permissions(&monitor, PermissionsExt::from_mode(0o755)).unwrap();
    for (name, value) in [
        ("core.fsmonitor", monitor.to_str().unwrap()),
        ("status.showUntrackedFiles", "no"),
        ("core.quotePath", "true"),
        ("status.relativePaths", "true"),
        ("core.ignoreStat", "true"),
        ("color.ui", "always"),
    ] {
        bench.git("s", &["config", name, value]);
    }
    bench.write("s/gr\u{fc}n.c", "untracked");
    bench.write("s/a.c", "int a2;\n");
    let _ = fs::remove_file(&ran);
    let expected = ["source changed a.c", "source changed gr\u{fc}n.c"];
    assert_eq!(facts(&before, &bench.of("b")), expected);
    assert!(!ran.exists(), "the monitor was started");
}

#[test]
fn submodules_are_looked_into_one_by_one() {
    let bench = bench();
    bench.write("lib/x.c", "int x;\n");
    bench.git("lib", &["init", "-q"]);
    bench.git("lib", &["add", "."]);
    bench.git("lib", &["commit", "-q", "-m", "lib"]);
    let lib = bench.path("lib").display().to_string();
    bench.git("s", &["submodule", "--quiet", "add", &lib, "sub"]);
    bench.git("s", &["commit", "-q", "-m", "sub"]);
    let before = bench.of("b");
    let commit = bench.git("lib", &["rev-parse", "HEAD"]);
    assert_eq!(
        before.facts()["source"]["submodules"]["sub"]["commit"],
        commit.as_str()
    );
    assert_eq!(before.facts()["source"]["changed"], json!({}));
    bench.write("s/sub/x.c", "int x2;\n");
    bench.write("s/sub/y.c", "untracked");
    let dirty = bench.of("b");
    let expected = [
        "source submodules sub changed x.c",
        "source submodules sub changed y.c",
    ];
    assert_eq!(facts(&before, &dirty), expected);
    bench.git("s/sub", &["add", "."]);
    bench.git("s/sub", &["commit", "-q", "-m", "another"]);
    assert_eq!(
        facts(&before, &bench.of("b")),
        ["source submodules sub commit"]
    );
    bench.git("s", &["submodule", "--quiet", "deinit", "-f", "sub"]);
    let absent = bench.of("b");
    assert_eq!(
        absent.facts()["source"]["submodules"]["sub"]["kind"],
        "not checked out"
    );
}

#[test]
fn a_repository_in_the_work_tree_is_source_too() {
    let bench = bench();
    let before = bench.of("b");
    bench.write("s/vendored/z.c", "int z;\n");
    bench.git("s/vendored", &["init", "-q"]);
    let after = bench.of("b");
    assert_eq!(facts(&before, &after), ["source submodules vendored/"]);
    let vendored = &after.facts()["source"]["submodules"]["vendored/"];
    assert_eq!(vendored["commit"], json!(null), "there is none yet");
    assert!(vendored["changed"]["z.c"].is_object(), "{vendored}");
}

#[test]
fn git_that_fails_is_an_error_and_never_a_clean_tree() {
    let bench = bench();
    let head = bench.path("s/.git/HEAD");
    let whole = fs::read(&head).unwrap();
    for broken in ["", "ref: nonsense", "garbage\n"] {
        fs::write(&head, broken).unwrap();
        let said = bench.look("b").expect_err("because HEAD is damaged");
        let FingerprintError::Git { folder, why, .. } = &said else {
            panic!("{said}");
        };
        assert_eq!(folder, &fs::canonicalize(bench.path("s")).unwrap());
        assert!(why.starts_with("exit code 128: "), "{why}");
    }
    fs::write(&head, whole).unwrap();
    let index = bench.path("s/.git/index");
    let whole = fs::read(&index).unwrap();
    for (broken, command) in [(&whole[..40], "status"), (&whole[..10], "status")] {
        fs::write(&index, broken).unwrap();
        let said = bench.look("b").expect_err("because the index is damaged");
        let is_git = matches!(&said, FingerprintError::Git { command: of, .. } if *of == command);
        assert!(is_git, "{said}");
    }
    fs::write(&index, whole).unwrap();
    let mut bench = bench;
    bench.own = vec![("PATH".into(), bench.path("nowhere").into())];
    let said = bench
        .look("b")
        .expect_err("because there is no git")
        .to_string();
    let source = fs::canonicalize(bench.path("s")).unwrap();
    let expected = format!(
        "git --version in {}: git: no such program",
        source.display()
    );
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn a_work_tree_of_another_owner_is_gits_to_refuse() {
    let bench = bench();
    if std::os::unix::fs::chown(bench.path("s"), Some(65_534), Some(65_534)).is_err() {
        println!("NOT EXERCISED: only root can give a folder away");
        return;
    }
    std::os::unix::fs::chown(bench.path("s/.git"), Some(65_534), Some(65_534)).unwrap();
    let said = bench
        .look("b")
        .expect_err("because git does not trust it")
        .to_string();
    assert!(said.contains("dubious ownership"), "{said}");
}

#[test]
fn a_build_inside_its_source_is_no_source_unless_it_is_the_source() {
    let mut bench = bench();
    bench.library("s/build", "liba.so", 1);
    bench.write("s/build/log.txt", "one");
    let before = bench.of("s/build");
    assert_eq!(before.facts()["source"]["changed"], json!({}));
    bench.write("s/build/log.txt", "another");
    assert_eq!(facts(&before, &bench.of("s/build")), Vec::<String>::new());
    bench.write("s/new.c", "untracked");
    let untracked = bench.of("s/build");
    assert_eq!(facts(&before, &untracked), ["source changed new.c"]);
    let inside = bench.of("s");
    let changed = &inside.facts()["source"]["changed"];
    assert!(
        changed["new.c"].is_object() && changed["build/log.txt"].is_object(),
        "{changed}"
    );
    bench.source = None;
    let unknown = bench.of("b");
    let expected = json!({ "kind": "unknown", "why": "no build system names it" });
    assert_eq!(unknown.facts()["source"], expected);
}

#[test]
fn a_tree_without_git_is_hashed_folder_by_folder() {
    let mut bench = Bench::new();
    bench.library("b", "liba.so", 1);
    bench.write("s/a.c", "int a;\n");
    bench.write("s/dir/b.c", "int b;\n");
    bench.write("s/dir/deep/c.c", "int c;\n");
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
    bench.write("s/target/CACHEDIR.TAG", tag);
    bench.write("s/target/x.c", "of a cache");
    symlink("a.c", bench.path("s/link")).unwrap();
    let home = format!(
        "CMAKE_HOME_DIRECTORY:INTERNAL={}\n",
        bench.path("s").display()
    );
    bench.write("b/CMakeCache.txt", &home);
    let before = bench.of("b");
    let folders = before.facts()["source"]["folders"].as_object().unwrap();
    assert_eq!(folders.keys().collect::<Vec<_>>(), [".", "dir", "dir/deep"]);
    assert_eq!(folders["."]["files"], 2);
    bench.write("s/target/x.c", "of a cache, changed");
    assert_eq!(facts(&before, &bench.of("b")), Vec::<String>::new());
    fs::rename(bench.path("s/dir/b.c"), bench.path("s/dir/d.c")).unwrap();
    let renamed = bench.of("b");
    assert_eq!(facts(&before, &renamed), ["source folders dir sha256"]);
    fs::set_permissions(bench.path("s/a.c"), PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(facts(&renamed, &bench.of("b")), ["source folders . sha256"]);
    fs::remove_dir_all(bench.path("s")).unwrap();
    let why = bench.of("b").facts()["source"]["why"].clone();
    assert_eq!(why, "the folder that the build names is not there");
    bench.source = Some(bench.path("s"));
    let said = bench
        .look("b")
        .expect_err("because it was named")
        .to_string();
    assert_eq!(
        said,
        format!("{}: no such folder", bench.path("s").display())
    );
}

#[test]
fn a_folder_that_the_work_tree_around_it_ignores_is_a_tree_of_its_own() {
    let mut bench = bench();
    bench.write("s/out/src/x.c", "int x;\n");
    bench.source = Some(bench.path("s/out/src"));
    let before = bench.of("b");
    assert_eq!(before.facts()["source"]["kind"], "tree");
    bench.write("s/a.c", "int changed;\n");
    assert_eq!(facts(&before, &bench.of("b")), Vec::<String>::new());
    bench.write("s/out/src/x.c", "int x2;\n");
    assert_eq!(facts(&before, &bench.of("b")), ["source folders . sha256"]);
}

/// Where rustup keeps toolchains, where it does at all.
fn rustup() -> Option<(std::ffi::OsString, std::ffi::OsString)> {
    let given = std::env::var_os("RUSTUP_HOME");
    let home = || Some(std::path::PathBuf::from(std::env::var_os("HOME")?).join(".rustup"));
    let folder = given.map(Into::into).or_else(home)?;
    folder
        .is_dir()
        .then(|| ("RUSTUP_HOME".into(), folder.into()))
}

#[test]
fn cargo_is_known_by_its_target_folder_and_named_by_its_lock() {
    let bench = bench();
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
    bench.write("s/out/CACHEDIR.TAG", tag);
    bench.write("s/Cargo.lock", "version = 4\n");
    bench.library("s/out/release", "liba.so", 1);
    bench.write("s/out/release/.cargo-lock", "");
    bench.library("s/out/release/deps", "libold.so", 1);
    let mut bench = bench;
    bench.source = None;
    bench.own.extend(rustup());
    let seen = bench.of("s/out/release");
    let system = &seen.facts()["build_system"];
    assert_eq!(system["kind"], "cargo");
    assert_eq!(system["lock"]["bytes"], 12);
    assert!(
        system["compilers"]["rustc"]["version"]
            .as_str()
            .is_some_and(|v| v.contains("rustc"))
    );
    assert_eq!(seen.facts()["source"]["kind"], "git");
    let libraries = seen.facts()["libraries"].as_object().unwrap();
    assert_eq!(libraries.keys().collect::<Vec<_>>(), ["bin/liba.so"]);
    bench.write("s/Cargo.lock", "version = 5\n");
    let expected = [
        "build_system lock sha256",
        "source changed Cargo.lock sha256",
    ];
    assert_eq!(facts(&seen, &bench.of("s/out/release")), expected);
}
