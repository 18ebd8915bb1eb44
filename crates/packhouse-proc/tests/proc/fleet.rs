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
