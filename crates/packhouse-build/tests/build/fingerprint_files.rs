//! The files of a fingerprint: which of them were touched since, which the user named, and which
//! one a name finds.

use crate::fingerprint_world::{Bench, facts};
use packhouse_base::digest::Digest;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

#[test]
fn a_library_that_was_swapped_and_put_back_was_touched() {
    let bench = Bench::new();
    bench.build("b");
    bench.library("other", "libplug.so", 7);
    let before = bench.of("b");
    let again = bench.of("b");
    assert_eq!(again.touched_since(&before), Vec::<PathBuf>::new());
    let real = fs::canonicalize(bench.path("b/bin/libplug.so")).unwrap();
    let aside = bench.path("aside.so");
    fs::rename(&real, &aside).unwrap();
    fs::copy(bench.path("other/bin/libplug.so"), &real).unwrap();
    fs::rename(&aside, &real).unwrap();
    let after = bench.of("b");
    assert_eq!(facts(&before, &after), Vec::<String>::new());
    assert_eq!(after.touched_since(&before), std::slice::from_ref(&real));
    assert_eq!(before.touched_since(&after), [real]);
}

/// What the names of the build's libraries find, by whose folders are searched.
fn names(bench: &Bench) -> Vec<(String, Value)> {
    let seen = bench.of("b");
    let names = seen.facts()["names"].as_object().cloned();
    let names = names.expect("because it is an object").into_iter();
    names
        .map(|(whose, names)| {
            let search = whose.split_once(", ").map_or("", |(_, search)| search);
            (search.to_owned(), names)
        })
        .collect()
}

/// A build whose program searches the folder `early`, then its own.
fn searching(bench: &Bench) {
    bench.library("b", "libk.so.1", 1);
    symlink("libk.so.1", bench.path("b/bin/libk.so")).unwrap();
    let early = bench.path("early/bin");
    fs::create_dir_all(&early).unwrap();
    let search = format!("-Wl,-rpath,{}:$ORIGIN", early.display());
    let line = "int main(void) { return 0; }";
    bench.cc("b/bin/prog", line, &[search.as_str()]);
}

#[test]
fn a_library_that_another_one_of_its_name_hides_is_a_fact() {
    let bench = Bench::new();
    searching(&bench);
    let before = bench.of("b");
    let early = bench.path("early/bin");
    let search = format!("RUNPATH {}:$ORIGIN in \"bin\"", early.display());
    let own = json!({ "libk.so": "of the build", "libk.so.1": "of the build" });
    assert_eq!(names(&bench), [(search.clone(), own)]);
    // Another one in a folder that is searched first, by the name that is asked for second.
    bench.library("early", "libk.so.1", 2);
    let hidden = bench.of("b");
    let path = fs::canonicalize(early.join("libk.so.1")).unwrap();
    let digest = Digest::of(&fs::read(&path).unwrap());
    let found = json!({ "libk.so": "of the build", "libk.so.1": digest.to_string() });
    assert_eq!(names(&bench)[0], (search.clone(), found));
    assert_eq!(facts(&before, &hidden).len(), 1);
    assert!(hidden.covers(&path, &digest));
    // One that can't be loaded stops the search all the same.
    fs::write(&path, "no library").unwrap();
    let broken = &names(&bench)[0].1["libk.so.1"]["refused"];
    let why = broken.as_str().unwrap_or_default();
    assert!(
        why.contains("'libk.so.1'") && why.contains("file too short"),
        "{why}"
    );
    // So does one that needs what is not there.
    bench.library("early", "libgone.so", 3);
    let line = "int f(void); int g(void) { return f(); }";
    let needs = [
        "-shared",
        "-fPIC",
        "-Wl,--no-as-needed",
        "early/bin/libgone.so",
    ];
    bench.cc("early/bin/libk.so.1", line, &needs);
    fs::remove_file(early.join("libgone.so")).unwrap();
    let answers = &names(&bench)[0].1;
    let why = answers["libk.so.1"]["refused"].as_str().unwrap_or_default();
    assert!(
        why.contains("libgone.so: cannot open shared object file"),
        "{why}"
    );
    assert_eq!(answers["libk.so"], "of the build");
    // What is asked for together with it has its answer all the same.
    bench.library("b", "libown9.so", 4);
    symlink("libk.so.1", early.join("libk.so")).unwrap();
    let answers = &names(&bench)[0].1;
    assert!(answers["libk.so"]["refused"].is_string(), "{answers}");
    assert_eq!(answers["libown9.so"], "of the build");
    fs::remove_file(bench.path("b/bin/libown9.so")).unwrap();
    fs::remove_file(early.join("libk.so")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(facts(&before, &bench.of("b")), Vec::<String>::new());
}

#[test]
fn what_the_environment_puts_before_a_library_of_the_build_is_a_fact() {
    let mut bench = Bench::new();
    bench.build("b");
    let early = bench.path("early/bin");
    bench.environment = vec![("LD_LIBRARY_PATH".into(), early.clone().into())];
    let before = bench.of("b");
    bench.library("early", "libplug.so", 9);
    let after = bench.of("b");
    let differences = facts(&before, &after);
    assert!(
        !differences.is_empty()
            && differences
                .iter()
                .all(|fact| { fact.starts_with("names ") && fact.ends_with(" libplug.so") }),
        "{differences:?}"
    );
}

#[test]
fn any_regular_file_may_be_bound_to_a_build() {
    let mut bench = Bench::new();
    bench.build("b");
    bench.write("data/kernel.cl", "one");
    bench.library("other", "libfar.so", 5);
    bench.with = vec![
        bench.path("data/kernel.cl"),
        bench.path("other/bin/libfar.so"),
    ];
    let before = bench.of("b");
    let facts_of_file = json!({ "bytes": 3, "sha256": Digest::of(b"one").to_string() });
    assert_eq!(before.facts()["with"]["kernel.cl"], facts_of_file);
    assert!(before.facts()["with"]["libfar.so"]["loads"].is_object());
    let path = fs::canonicalize(bench.path("data/kernel.cl")).unwrap();
    assert!(before.covers(&path, &Digest::of(b"one")));
    bench.write("data/kernel.cl", "two");
    let after = bench.of("b");
    assert_eq!(facts(&before, &after), ["with kernel.cl sha256"]);
    assert_eq!(after.touched_since(&before), [path]);
    bench.write("more/kernel.cl", "two");
    let wrong = [
        ("data", "is a folder, expected a regular file"),
        ("none", "no such file"),
        ("more/kernel.cl", "a second file of the name kernel.cl"),
    ];
    for (name, why) in wrong {
        bench.with.truncate(1);
        bench.with.push(bench.path(name));
        let said = bench.look("b").expect_err("because it can't be bound");
        let path = bench.path(name);
        assert_eq!(said.to_string(), format!("{}: {why}", path.display()));
    }
}

/// The first of the libraries is asked, and would take its own name for itself.
#[test]
fn a_library_does_not_hide_what_another_one_would_find_by_its_name() {
    let mut bench = Bench::new();
    for name in ["liba.so", "libown9.so"] {
        let soname = format!("-Wl,--no-as-needed,-soname,{name}");
        let line = "int f(void) { return 1; }";
        let arguments = ["-shared", "-fPIC", soname.as_str()];
        bench.cc(&format!("b/bin/{name}"), line, &arguments);
    }
    let early = bench.path("early/bin");
    bench.environment = vec![("LD_LIBRARY_PATH".into(), early.into())];
    let nothing = json!({ "liba.so": null, "libown9.so": null });
    assert_eq!(names(&bench), [(String::new(), nothing)]);
    bench.library("early", "liba.so", 9);
    let found = &names(&bench)[0].1;
    assert!(found["liba.so"].is_string(), "{found}");
    assert!(found["libown9.so"].is_null(), "{found}");
}
