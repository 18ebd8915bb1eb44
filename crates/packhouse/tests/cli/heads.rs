//! The plan `npu-head` from outside: a set whose payload nothing takes back to its source is made,
//! verified, damaged, repaired, staged and moved, and each command says what it can't prove.

use crate::model;
use crate::proof::{elsewhere, forge_payload, run, run_with};
use crate::sandbox::Sandbox;
use crate::store;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

const PREPARE: [&str; 5] = ["prepare", "model.gguf", "--plan", "npu-head", "--json"];
const EMBEDDING: (&str, &str, &[u64]) = ("token_embd.weight", "Q8_0", &[64, 40]);
const OUTPUT: (&str, &str, &[u64]) = ("output.weight", "F16", &[48, 40]);
const NORM: (&str, &str, &[u64]) = ("output_norm.weight", "F32", &[64]);
const NOT_PROVEN: &str = "1 of 1 packs not proven here:\n  \
                          no inverse for int8-tile-b8-v1, which rounds what it packs\n";

/// A sandbox with a model and the set of its head.
fn prepared(tensors: &[(&str, &str, &[u64])]) -> (Sandbox, Value) {
    let sandbox = Sandbox::new();
    model::write_seeded(&sandbox.path("model.gguf"), tensors, 5);
    let said = run(&sandbox, &PREPARE, 0);
    let said = serde_json::from_str(&said).expect("because --json prints one document");
    (sandbox, said)
}

/// The file of the only object.
fn object(sandbox: &Sandbox) -> PathBuf {
    let store = store::open(sandbox);
    let sets = store.list_sets().expect("because it can be listed");
    let manifest = store.read_set(sets[0]).expect("because it is sound");
    let name = manifest.entries()[0].object.to_string();
    let objects = sandbox.path("home/.cache/packhouse/v1/objects");
    objects.join(&name[..2]).join(name)
}

#[test]
fn the_head_is_the_output_or_else_the_tied_embedding() {
    for (tensors, name) in [
        (&[EMBEDDING, NORM][..], "token_embd.weight"),
        (&[EMBEDDING, NORM, OUTPUT], "output.weight"),
        (&[OUTPUT, EMBEDDING], "output.weight"),
    ] {
        let (sandbox, said) = prepared(tensors);
        assert_eq!(
            (&said["outcome"], &said["packed_count"]),
            (&"created".into(), &1.into())
        );
        assert_eq!(said["written_bytes"], 64 * 128 + 4 * 128);
        let index = run(&sandbox, &["index"], 0);
        assert!(index.contains(name), "{index}");
        let again = run(&sandbox, &PREPARE, 0);
        let again: Value = serde_json::from_str(&again).expect("because it is one document");
        assert_eq!(
            (&again["set"], &again["packed_count"]),
            (&said["set"], &0.into())
        );
    }
}

#[test]
fn what_can_be_verified_of_a_rounded_head_is_and_the_rest_is_named() {
    let (sandbox, _) = prepared(&[EMBEDDING, NORM]);
    run(&sandbox, &["verify"], 0);
    let deep = run(&sandbox, &["verify", "--deep"], 0);
    assert!(
        deep.contains("1 of 1 tensors good, 0 bad; 1 objects hashed"),
        "{deep}"
    );
    let proven = run(&sandbox, &["verify", "--prove"], 0);
    assert!(proven.contains("0 packs proven\n"), "{proven}");
    assert!(proven.ends_with(NOT_PROVEN), "{proven}");
    // A damaged object is found and made again from the model, byte for byte.
    let path = object(&sandbox);
    let whole = std::fs::read(&path).expect("because it was stored");
    let mut bytes = whole.clone();
    bytes[77] ^= 4;
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
    mode(0o644).unwrap();
    std::fs::write(&path, bytes).unwrap();
    mode(0o444).unwrap();
    let bad = run(&sandbox, &["verify", "--deep"], 1);
    assert!(
        bad.contains("token_embd.weight") && bad.contains("0 of 1 tensors good"),
        "{bad}"
    );
    let repaired = run(&sandbox, &["repair", "--model", "model.gguf"], 0);
    assert!(repaired.contains("1 healed"), "{repaired}");
    assert_eq!(std::fs::read(object(&sandbox)).unwrap(), whole);
    let repaired = run(&sandbox, &["repair"], 0);
    assert!(repaired.ends_with(NOT_PROVEN), "{repaired}");
    let staged = run(&sandbox, &["stage", "--min-free", "0"], 0);
    assert!(staged.contains("1 tensors"), "{staged}");
    run(&sandbox, &["stage-validate", "--deep"], 0);
}

/// Records that agree about a payload that no head packs to are seen through all the same; of a
/// code that another head may have, only samples of the weights can tell.
#[test]
fn a_forged_head_is_found_where_no_source_packs_to_it() {
    let (sandbox, _) = prepared(&[EMBEDDING, NORM]);
    run(&sandbox, &["export", "--bundle", "good.tar"], 0);
    // Column 127 is beside the 40 of the head.
    let beside = 15 * 64 + 7;
    forge_payload(&sandbox, EMBEDDING.0, |payload| payload[beside] = 3);
    run(&sandbox, &["verify", "--deep"], 0);
    let said = run(&sandbox, &["verify", "--prove"], 1);
    assert!(
        said.contains("payload is what no source packs to: byte 967"),
        "{said}"
    );
    run(&sandbox, &["export", "--bundle", "bad.tar"], 0);
    let there = elsewhere(&sandbox);
    let said = run_with(&sandbox, &["import", "bad.tar"], 3, &there);
    assert!(
        said.contains("payload is what no source packs to: byte 967"),
        "{said}"
    );
    let words = ["repair", "--model", "model.gguf"];
    let said = run(&sandbox, &words, 0);
    assert!(said.contains("1 healed"), "{said}");
    run(&sandbox, &["export", "--bundle", "again.tar"], 0);
    let read = |name| std::fs::read(sandbox.path(name)).unwrap();
    assert!(read("again.tar") == read("good.tar"));
}

#[test]
fn a_bundle_of_a_head_is_imported_and_says_that_nothing_proves_it() {
    let (sandbox, said) = prepared(&[EMBEDDING, OUTPUT]);
    run(&sandbox, &["export", "--bundle", "head.tar"], 0);
    let there = elsewhere(&sandbox);
    let imported = run_with(&sandbox, &["import", "head.tar"], 0, &there);
    assert!(imported.contains(NOT_PROVEN), "{imported}");
    let again = run_with(&sandbox, &["import", "head.tar", "--json"], 0, &there);
    let again: Value = serde_json::from_str(&again).expect("because it is one document");
    assert_eq!(again["set"], said["set"]);
    assert_eq!(again["proofs"]["unproven_count"], 1);
    let why = "int8-tile-b8-v1, which rounds what it packs";
    assert_eq!(again["proofs"]["unproven_why"], serde_json::json!([why]));
    run_with(&sandbox, &["verify", "--deep"], 0, &there);
    // The other side's format is of another layout.
    let said = run(&sandbox, &["export", "--format", "xe2-m6-v2", "packs"], 3);
    assert!(said.contains("int8-tile-b8-v1"), "{said}");
}

/// A code that some head may have is seen by who packs the model again, and by nobody else.
#[test]
fn who_names_the_model_has_a_rounded_head_packed_again() {
    let (sandbox, _) = prepared(&[EMBEDDING, NORM]);
    run(&sandbox, &["export", "--bundle", "good.tar"], 0);
    let named = ["repair", "--model", "model.gguf"];
    let said = run(&sandbox, &named, 0);
    assert!(
        !said.contains("not proven") && !said.contains("healed"),
        "{said}"
    );
    let again = "1 pack that rounds was packed again from the model and compared\n";
    assert!(said.ends_with(again), "{said}");
    let json = run(&sandbox, &[&named[..], &["--json"]].concat(), 0);
    let json: Value = serde_json::from_str(&json).expect("because it is one document");
    let expected = serde_json::json!({
        "proven_count": 1, "unproven_count": 0, "unproven_why": [],
    });
    assert_eq!(json["proofs"], expected);
    // A code of column 0 that is not its largest moves by one.
    forge_payload(&sandbox, EMBEDDING.0, |payload| {
        let small = (0..64).map(|row| row / 8 * 1024 + row % 8 * 8);
        let small = small.filter(|at| payload[*at].cast_signed().unsigned_abs() < 100);
        let at = small.min().expect("because weights differ");
        payload[at] = payload[at].wrapping_add(1);
    });
    let said = run(&sandbox, &["verify", "--prove"], 0);
    assert!(said.ends_with(NOT_PROVEN), "{said}");
    run(&sandbox, &["repair"], 0);
    let said = run(&sandbox, &named, 0);
    let why = "payload is not what its source packs to: byte ";
    assert!(said.contains("1 healed") && said.contains(why), "{said}");
    assert!(said.contains(" is another one when packed again"), "{said}");
    run(&sandbox, &["export", "--bundle", "again.tar"], 0);
    let read = |name| std::fs::read(sandbox.path(name)).unwrap();
    assert!(read("again.tar") == read("good.tar"));
    assert!(!run(&sandbox, &["repair"], 0).contains("packed again"));
    // Other weights judge nothing.
    model::write_seeded(&sandbox.path("other.gguf"), &[EMBEDDING, NORM], 6);
    let said = run(&sandbox, &["repair", "--model", "other.gguf"], 0);
    assert!(said.ends_with(NOT_PROVEN), "{said}");
}
