//! Fleet files from outside: every kind of mistake at its place, and what a right file means.

use packhouse_proc::fleet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/data/fleet").join(name)
}

/// Compares all mistakes of a file, a line each, with what is checked in beside it.
fn compare(name: &str) {
    let text = std::fs::read_to_string(data(&format!("{name}.toml"))).unwrap();
    let reading = fleet::read(text.as_bytes());
    let mut said = String::new();
    for mistake in &reading.mistakes {
        writeln!(said, "{mistake}").unwrap();
    }
    let path = data(&format!("{name}.txt"));
    if std::env::var_os("PACKHOUSE_BLESS").is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        said,
        expected,
        "PACKHOUSE_BLESS=1 writes {}",
        path.display()
    );
}

#[test]
fn every_kind_of_mistake_is_told_in_one_reading_with_its_place() {
    compare("mistakes");
}

#[test]
fn settings_that_contradict_each_other_are_told_with_both_places() {
    compare("contradictions");
}

#[test]
fn what_keeps_a_fleet_from_its_name_is_told_apart_from_other_mistakes() {
    let rest = "keep_runs = 0\n[engine]\ncommand = [\n[[worker]]\nprot = 1\n";
    let cases: [(&str, &[&str]); 7] = [
        ("name = \"home\"\n", &[]),
        ("name = \"a b\"\n", &["1:8: name: "]),
        ("name = 7\n", &["1:8: name: expected string, found integer"]),
        ("", &["1:1: name: missing"]),
        (
            "nam = \"home\"\n",
            &["1:1: name: missing", "1:1: nam: unknown key"],
        ),
        ("name = \"home\n", &["1:13: no TOML: "]),
        ("[[[\n", &["1:", "1:"]),
    ];
    for (first, expected) in cases {
        let reading = fleet::read(format!("{first}{rest}").as_bytes());
        let against: Vec<String> = reading
            .against_name()
            .iter()
            .map(ToString::to_string)
            .collect();
        let is_so = against.len() == expected.len()
            && expected
                .iter()
                .all(|expected| against.iter().any(|said| said.starts_with(expected)));
        assert!(is_so, "{first:?}: {against:#?}");
        assert!(reading.mistakes.len() > against.len(), "{first:?}");
    }
    let long = fleet::read(&vec![b'#'; fleet::FLEET_BYTES_MAX + 1]);
    assert_eq!(long.against_name().len(), 1);
}
