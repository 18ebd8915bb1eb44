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
    let cases: [(&str, &[&str]); 6] = [
        ("name = \"home\"\n", &[]),
        ("name = \"a b\"\n", &["1:8: name: "]),
        ("name = 7\n", &["1:8: name: expected string, found integer"]),
        ("", &["1:1: name: missing"]),
        (
            "nam = \"home\"\n",
            &["1:1: name: missing", "1:1: nam: unknown key"],
        ),
        ("name = \"home\n", &["1:13: no TOML: "]),
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
    // The parser says one thing of such a line, or two.
    let broken = fleet::read(format!("[[[\n{rest}").as_bytes());
    let against = broken.against_name();
    assert!(!against.is_empty(), "{broken:#?}");
    assert!(
        against.iter().all(|mistake| mistake.line == 1),
        "{against:#?}"
    );
    let long = fleet::read(&vec![b'#'; fleet::FLEET_BYTES_MAX + 1]);
    assert_eq!(long.against_name().len(), 1);
}

#[test]
fn workers_without_a_right_name_are_known_by_their_place() {
    let text = "schema = \"packhouse/fleet/1\"\nname = \"home\"\n[[worker]]\nname = \"w0\"\n\n\
                [[worker]]\nname = \"W 1\"\n[[worker]]\nport = 1\n";
    let reading = fleet::read(text.as_bytes());
    let unnamed = reading.unnamed.iter().map(ToString::to_string);
    assert_eq!(unnamed.collect::<Vec<_>>(), ["#2 (line 6)", "#3 (line 8)"]);
    for unnamed in &reading.unnamed {
        for command in [fleet::FleetCommand::Render, fleet::FleetCommand::Start] {
            assert!(!reading.blocking(command, &unnamed.label).is_empty());
        }
    }
    let list = fleet::read(b"worker = [1, {name = \"w\"}]\n");
    assert_eq!(list.unnamed.len(), 1, "what is no table has no name");
}

#[test]
fn a_model_that_is_no_absolute_path_is_one_mistake_and_no_worker_without_a_model() {
    let file = |model: &str| {
        format!(
            "schema = \"packhouse/fleet/1\"\nname = \"home\"\n[engine]\ncommand = [\"/e\", \
             \"{{model}}\", \"{{host}}\", \"{{port}}\"]\n[[worker]]\nname = \"w0\"\n\
             device = \"cpu:0\"\nport = 1\nmodel = \"{model}\"\n"
        )
    };
    for model in ["~/a.gguf", "a.gguf"] {
        let reading = fleet::read(file(model).as_bytes());
        let said: Vec<String> = reading.mistakes.iter().map(ToString::to_string).collect();
        let [said] = said.as_slice() else {
            panic!("{said:?}");
        };
        let why = "a relative path: it must begin with /, and nothing stands for ~";
        assert!(said.contains(why), "{said}");
        let fleet = reading.fleet.expect("because it has a name");
        assert_eq!(
            fleet.workers,
            [],
            "a host would find no value for its {{model}}"
        );
    }
    let fleet = fleet::parse(&file("/a.gguf")).expect("because nothing is wrong");
    assert_eq!(fleet.workers.len(), 1);
}
