//! `docs/format/stage.md` says what the code writes: every field of the receipts is in its table,
//! and every reason is named. `model-copies.md` too.

use crate::fixture::{ROOT, STATE, World};
use crate::models::{self, Models, ONE};
use serde_json::Value;
use std::path::PathBuf;

const PAGE: &str = include_str!("../../../../docs/format/stage.md");

#[test]
fn every_field_and_entry_is_in_the_page() {
    let world = World::new();
    world.outcome();
    let bytes = world.sim.read(world.path(1, "receipts.json"));
    let receipts: Value =
        serde_json::from_slice(&bytes.expect("because it was staged")).expect("because it is JSON");
    let fields = receipts
        .as_object()
        .expect("because it is an object")
        .keys();
    let copy = receipts["copies"][0].as_object();
    let copies = copy.expect("because something was copied").keys();
    let copies = copies.map(|name| format!("copies[].{name}"));
    for field in fields.cloned().chain(copies) {
        assert!(
            PAGE.contains(&format!("`{field}`")),
            "{field} is not in the page"
        );
    }
    let prefix = world.path(1, "");
    for path in world.sim.files(&prefix) {
        let path = path.to_str().expect("because names are ASCII");
        let name = path.strip_prefix(&prefix).expect("because it is below");
        let name = match name.split_once('/') {
            Some((folder, _)) => format!("{folder}/<sha256>"),
            None => name.to_owned(),
        };
        assert!(
            PAGE.contains(&format!("| `{name}` |")),
            "{name} is not in the page"
        );
    }
}

const MODELS_PAGE: &str = include_str!("../../../../docs/format/model-copies.md");

#[test]
fn every_field_of_a_model_s_records_is_in_the_page() {
    let world = Models::new();
    let digests = world.digests();
    let prepared = world.prepare_with(&[ONE], Some(&digests), &[], &models::options());
    prepared.expect("because nothing is in the way");
    let receipts = world.copy(1).replace("files/one.gguf", "receipts.json");
    let source = world.sim.files(format!("{ROOT}/models/sources")).remove(0);
    let digest = world.sim.files(format!("{STATE}/models")).remove(0);
    for path in [PathBuf::from(receipts), source, digest] {
        let bytes = world.sim.read(&path).expect("because it was written");
        let record: Value = serde_json::from_slice(&bytes).expect("because it is JSON");
        let fields = record.as_object().expect("because it is an object");
        let inner = record["files"][0].as_object().into_iter().flatten();
        let inner = inner.map(|(name, _)| format!("files[].{name}"));
        for field in fields.keys().cloned().chain(inner) {
            let is_there = MODELS_PAGE.contains(&format!("`{field}`"));
            assert!(is_there, "{field} of {} is not in the page", path.display());
        }
        let schema = record["schema"].as_str().expect("because it is text");
        assert!(MODELS_PAGE.contains(&format!("`{schema}`")), "{schema}");
    }
}

#[test]
fn every_reason_of_a_model_s_refusal_is_in_the_page() {
    let source = include_str!("../../src/models/entry.rs");
    let find = include_str!("../../src/models/find.rs");
    let mut count = 0;
    for line in source.lines().chain(find.lines()) {
        let Some((variant, word)) = line.trim().split_once(" => \"") else {
            continue;
        };
        assert!(variant.contains("Self::"), "{line}");
        let word = word.trim_end_matches("\",");
        count += 1;
        assert!(
            MODELS_PAGE.contains(&format!("`{word}`")),
            "{word} is not in the page"
        );
    }
    assert!(count > 15, "only {count} reasons were found");
}
