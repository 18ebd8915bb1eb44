//! `docs/format` says what the code writes: every field of every file of the checked-in store is in
//! a table, and the dumps of `keys.md` are the bytes of `vectors/keys.json`.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const KEYS: &str = include_str!("../../../../docs/format/keys.md");
const STORE: &str = include_str!("../../../../docs/format/store.md");
const STATE: &str = include_str!("../../../../docs/format/state.md");
const VECTORS: &str = include_str!("../../../../vectors/keys.json");
const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/v1");

/// The paths of all fields of a value, as the tables write them: `entries[].slot`,
/// `sample.unit_rows`.
fn field_paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                field_paths(inner, &format!("{path}{dot}{name}"), found);
            }
        }
        Value::Array(items) if items.iter().all(Value::is_object) => {
            found.insert(path.to_owned());
            for item in items {
                field_paths(item, &format!("{path}[]"), found);
            }
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            found.insert(path.to_owned());
        }
    }
}

/// The fields of all canonical records below a folder.
fn fields_below(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("because it is a folder") {
        let path = entry.expect("because it can be read").path();
        if path.is_dir() {
            found.append(&mut fields_below(&path));
        } else if let Ok(value @ Value::Object(_)) =
            serde_json::from_slice(&std::fs::read(&path).expect("because it can be read"))
            && value.get("schema").is_some()
        {
            field_paths(&value, "", &mut found);
        }
    }
    found
}

#[test]
fn every_field_that_is_written_is_in_a_table() {
    for (folder, page) in [("root", STORE), ("state", STATE)] {
        let fields = fields_below(&Path::new(CHECKED_IN).join(folder));
        assert!(fields.len() > 8, "only {fields:?}");
        for field in fields {
            // The stat identity has a table of its own, in which its fields stand alone.
            let name = field.strip_prefix("stat.").unwrap_or(&field);
            assert!(
                page.contains(&format!("| `{name}` |")),
                "{folder}: {field} is in no table"
            );
        }
    }
}

/// The hex digits of one dump: its lines without the words after them.
fn dumped(block: &str) -> String {
    let hex = block
        .lines()
        .map(|line| line.trim_start().split("   ").next());
    hex.flatten().collect::<String>().replace(' ', "")
}

#[test]
fn the_dumps_of_the_page_are_the_vectors() {
    let vectors: Value = serde_json::from_str(VECTORS).expect("because it is JSON");
    let dumps: Vec<String> = KEYS.split("```").skip(1).step_by(2).map(dumped).collect();
    let expected = ["pack_keys", "set_keys"].map(|name| &vectors[name][0]);
    assert_eq!(dumps.len(), expected.len());
    for (dump, vector) in dumps.iter().zip(expected) {
        assert_eq!(Some(dump.as_str()), vector["hashed_bytes"].as_str());
        let key = vector["key"].as_str().expect("because it is text");
        assert!(KEYS.contains(key), "key {key} is not on the page");
        let words = format!("The {} bytes hashed", dump.len() / 2);
        assert!(KEYS.replace('\n', " ").contains(&words), "{words}");
    }
}
