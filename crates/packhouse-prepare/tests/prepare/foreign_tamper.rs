//! Directories of the Xe2 pack set with each thing in them edited, damaged, missing or linked.

use crate::foreign_source::{Source, edit, flip, import, make, names, read_json, remove, write};
use crate::store_fixture::{config, folder, real};
use packhouse_base::digest::Digest;
use packhouse_prepare::foreign::xe2_m6_v2::{
    self as xe2, ForeignImportError, canon_sha256, pretty,
};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;

/// A field, the JSON that it is set to (`ZEROS` is a digest), and what the refusal says.
const EDITS: &[(&str, &str, &str)] = &[
    (
        "format",
        r#""qwen27-xe2-m6-pack-set-v3""#,
        "manifest.json: format: expected \"qwen27",
    ),
    (
        "schema_version",
        "2",
        "manifest.json: schema_version: expected 1, found 2",
    ),
    (
        "status",
        r#""partial""#,
        "status: expected \"ready\", found \"partial\"",
    ),
    ("key", "ZEROS", "manifest.json: key: expected"),
    ("key", r#""../../etc""#, "manifest.json: key: expected"),
    ("layout.version", "3", "manifest.json: layout: expected"),
    (
        "layout.endianness",
        r#""big""#,
        "manifest.json: layout: expected",
    ),
    ("tensor_count", "5", "tensor_count: expected 4, found 5"),
    ("payload_size_bytes", "1", "payload_size_bytes: expected"),
    (
        "source_model.sha256",
        "ZEROS",
        "identity.target_model_sha256: expected",
    ),
    (
        "source_model.sha256",
        r#""AA""#,
        "source_model.sha256: not 64",
    ),
    (
        "source_model.size_bytes",
        "-1",
        "size_bytes: expected a non-negative",
    ),
    (
        "source_model.hash_validated",
        "1",
        "hash_validated: expected true or false",
    ),
    (
        "identity.target_architecture",
        r#""bmg-g21""#,
        "identity.target_architecture: exp",
    ),
    (
        "identity.pack_layout_version",
        "1",
        "identity.pack_layout_version: expected 2",
    ),
    (
        "identity.target_model_sha256",
        "ZEROS",
        "identity.target_model_sha256: expected",
    ),
    (
        "identity.tensor_keys.1",
        "ZEROS",
        "identity.tensor_keys[1]: expected",
    ),
    (
        "identity.tensor_keys",
        "[]",
        "identity.tensor_keys[0]: expected",
    ),
    (
        "identity.extra",
        "1",
        "identity.extra: expected no such field, found 1",
    ),
    (
        "runtime_index.sha256",
        "ZEROS",
        "runtime_index.sha256: expected",
    ),
    (
        "runtime_index.size_bytes",
        "0",
        "runtime_index.size_bytes: expected",
    ),
    (
        "runtime_index.path",
        r#""../x""#,
        "runtime_index.path: expected",
    ),
    (
        "runtime_index.format",
        r#""v2""#,
        "runtime_index.format: expected",
    ),
    (
        "runtime_index",
        "7",
        "runtime_index: expected an object, found 7",
    ),
    ("tensors", "7", "tensors: expected a list, found 7"),
    ("tensors.0", "7", "tensors[0]: expected an object, found 7"),
    ("tensors.1.format", r#""v3""#, "tensors[1].format: expected"),
    ("tensors.1.key", "ZEROS", "tensors[1].key: expected"),
    (
        "tensors.1.identity.tensor_name",
        r#""x""#,
        "tensors[1].identity.tensor_name: \"x\"",
    ),
    (
        "tensors.0.identity.tensor_name",
        r#""blk.64.ffn_down.weight""#,
        "tensors[0].key: expected",
    ),
    (
        "tensors.1.identity.tensor_shape",
        "[33, 16]",
        "no Q4_0 matrix has shape [33, 16]",
    ),
    (
        "tensors.1.identity.tensor_shape",
        "[32]",
        "tensor_shape: expected a list of two",
    ),
    (
        "tensors.1.identity.tensor_shape",
        "[0, 0]",
        "no Q4_0 matrix has shape [0, 0]",
    ),
    (
        "tensors.1.identity.tensor_type",
        r#""F32""#,
        "identity.tensor_type: expected",
    ),
    (
        "tensors.1.identity.extra",
        r#""""#,
        "tensors[1].identity.extra: expected no such",
    ),
    (
        "tensors.1.source_tensor.size_bytes",
        "1",
        "source_tensor.size_bytes: expected",
    ),
    (
        "tensors.1.source_tensor.gguf_offset",
        r#""a""#,
        "gguf_offset: expected a non-neg",
    ),
    (
        "tensors.1.payload.size_bytes",
        "1",
        "payload.size_bytes: expected",
    ),
    (
        "tensors.1.payload.path",
        r#""tensors/../x""#,
        "payload.path: expected",
    ),
    (
        "tensors.1.payload.path",
        r#""/etc/passwd""#,
        "payload.path: expected",
    ),
    (
        "tensors.1.payload.sha256",
        "ZEROS",
        "runtime_index.sha256: expected",
    ),
    (
        "tensors.1.source_tensor.sha256",
        "ZEROS",
        "source_tensor.sha256: expected",
    ),
    (
        "tensors.1.source_tensor.gguf_offset",
        "3",
        "source_tensor.gguf_offset: expected",
    ),
];

#[test]
fn each_edited_field_of_the_manifest_is_refused_for_its_own_reason() {
    let zeros = "0".repeat(64);
    let home = folder();
    let store = real(config(home.path()));
    let (_source, export) = Source::exported();
    let path = export.folder.join("manifest.json");
    let good = std::fs::read(&path).expect("because it is there");
    for (at, value, reason) in EDITS {
        let value = match *value {
            "ZEROS" => json!(zeros),
            text => serde_json::from_str(text).expect("because the table has JSON"),
        };
        write(&path, &good);
        edit(&path, at, Value::clone(&value));
        let error = import(&store, &export.folder).expect_err(at).to_string();
        assert!(error.contains(reason), "{at} = {value}: {error}");
    }
    assert_eq!(names(&home.path().join("root/v1/objects")), [""; 0]);
}

#[test]
fn absent_fields_doubled_tensors_and_other_orders_are_refused() {
    let home = folder();
    let store = real(config(home.path()));
    let (_source, export) = Source::exported();
    let path = export.folder.join("manifest.json");
    let good = read_json(&path);
    let refused = |manifest: &Value, reason: &str| {
        write(&path, &pretty(manifest));
        let error = import(&store, &export.folder)
            .expect_err(reason)
            .to_string();
        assert!(error.contains(reason), "{reason}: {error}");
    };
    for field in [
        "format",
        "schema_version",
        "status",
        "key",
        "identity",
        "source_model",
        "layout",
        "tensor_count",
        "payload_size_bytes",
        "tensors",
    ] {
        let mut manifest = good.clone();
        manifest
            .as_object_mut()
            .expect("because it is one")
            .remove(field);
        refused(&manifest, &format!("manifest.json: {field}: absent"));
    }
    let mut swapped = good.clone();
    swapped["tensors"]
        .as_array_mut()
        .expect("because it is a list")
        .swap(0, 1);
    refused(
        &swapped,
        "tensors[1]: \"blk.0.ffn_up.weight\" does not follow \"blk.9.ffn_gate.weight\"",
    );
    let mut doubled = good.clone();
    doubled["tensors"][1] = doubled["tensors"][0].clone();
    refused(
        &doubled,
        "\"blk.0.ffn_up.weight\" does not follow \"blk.0.ffn_up.weight\"",
    );
    let mut empty = good.clone();
    for (field, value) in [
        ("tensors", json!([])),
        ("tensor_count", json!(0)),
        ("payload_size_bytes", json!(0)),
    ] {
        empty[field] = value;
    }
    empty["identity"]["tensor_keys"] = json!([]);
    empty["key"] = canon_sha256(&empty["identity"]).to_string().into();
    empty
        .as_object_mut()
        .expect("because it is one")
        .remove("runtime_index");
    refused(&empty, "tensors: empty");
    write(&path, b"{\"format\": ");
    let error = import(&store, &export.folder)
        .expect_err("because it is cut")
        .to_string();
    assert!(error.contains("manifest.json: not JSON"), "{error}");
}

#[test]
fn each_edited_field_of_a_tensors_own_file_is_refused_for_its_own_reason() {
    let zeros = "0".repeat(64);
    let home = folder();
    let store = real(config(home.path()));
    let (_source, export) = Source::exported();
    let manifest = read_json(&export.folder.join("manifest.json"));
    let key = manifest["tensors"][2]["key"]
        .as_str()
        .expect("because it is text")
        .to_owned();
    let path = export.folder.join(format!("tensors/{key}.json"));
    let good = std::fs::read(&path).expect("because it is there");
    let other = manifest["tensors"][1].clone();
    for (at, value, reason) in [
        ("format", json!("v3"), "format: expected"),
        ("status", json!("partial"), "status: expected"),
        ("key", json!(zeros), "key: expected"),
        (
            "identity.tensor_shape",
            json!([64, 16]),
            "source_tensor.size_bytes: expected",
        ),
        (
            "identity.target_model_sha256",
            json!(zeros),
            "identity.target_model_sha256: expected",
        ),
        (
            "source_tensor.sha256",
            json!(zeros),
            "source_tensor.sha256: expected",
        ),
        (
            "source_tensor.gguf_offset",
            json!(7),
            "source_tensor.gguf_offset: expected",
        ),
        ("payload.sha256", json!(zeros), "payload.sha256: expected"),
        (
            "payload.path",
            json!("tensors/x.bin"),
            "payload.path: expected",
        ),
    ] {
        write(&path, &good);
        edit(&path, at, value);
        let error = import(&store, &export.folder).expect_err(at).to_string();
        assert!(
            error.starts_with(&format!("tensors/{key}.json: {reason}")),
            "{at}: {error}"
        );
    }
    write(&path, &pretty(&other));
    let error = import(&store, &export.folder)
        .expect_err("because it is another's")
        .to_string();
    assert!(
        error.starts_with(&format!("tensors/{key}.json: key: expected {key}")),
        "{error}"
    );
}

#[test]
fn the_folder_must_be_named_by_the_key_of_its_set() {
    let (_source, export) = Source::exported();
    let home = folder();
    let store = real(config(home.path()));
    for name in ["renamed", &"0".repeat(64)] {
        let renamed = export.folder.with_file_name(name);
        std::fs::rename(&export.folder, &renamed).expect("because it is ours");
        let error = import(&store, &renamed).expect_err("because it has another name");
        let told = format!(
            "the folder is named {name:?}, its set has key {}",
            export.set_key
        );
        assert_eq!(error.to_string(), told);
        std::fs::rename(&renamed, &export.folder).expect("because it is ours");
    }
}

/// What is done to the files of a directory, by what it must be called.
type Damage = (&'static str, fn(&Path, &Path), &'static str);

const DAMAGES: [Damage; 12] = [
    (
        "index edited",
        |dir, _| flip(&dir.join("runtime-index.tsv"), 40),
        "tsv: line 2: expected",
    ),
    (
        "index cut",
        |dir, _| cut(&dir.join("runtime-index.tsv")),
        "tsv: line 11: expected",
    ),
    (
        "index gone",
        |dir, _| remove(&dir.join("runtime-index.tsv")),
        "index.tsv is missing",
    ),
    (
        "payload flipped",
        |_, payload| flip(payload, 5),
        "recorded is",
    ),
    ("payload cut", |_, payload| cut(payload), "bytes, expected"),
    (
        "payload gone",
        |_, payload| remove(payload),
        ".bin is missing",
    ),
    (
        "payload a link",
        |_, payload| link(payload),
        "is not a regular file; links are not",
    ),
    (
        "payload a folder",
        |_, payload| {
            remove(payload);
            make(payload);
        },
        "not a regular fi",
    ),
    (
        "payload a pipe",
        |_, payload| {
            remove(payload);
            pipe(payload);
        },
        "not a regular file",
    ),
    (
        "record gone",
        |_, payload| remove(&payload.with_extension("json")),
        ".json is missing",
    ),
    (
        "manifest a link",
        |dir, _| link(&dir.join("manifest.json")),
        "manifest.json is not a re",
    ),
    (
        "tensors a link",
        |dir, _| {
            let tensors = dir.join("tensors");
            std::fs::rename(&tensors, dir.join("else")).expect("because it is ours");
            symlink(dir.join("else"), tensors).expect("because the name is free");
        },
        "tensors is not a folder",
    ),
];

#[test]
fn each_damaged_file_is_refused_for_its_own_reason() {
    for (what, damage, reason) in DAMAGES {
        let (_source, export) = Source::exported();
        let manifest = read_json(&export.folder.join("manifest.json"));
        let key = manifest["tensors"][3]["key"]
            .as_str()
            .expect("because it is text");
        let payload = export.folder.join(format!("tensors/{key}.bin"));
        damage(&export.folder, &payload);
        let home = folder();
        let store = real(config(home.path()));
        let error = import(&store, &export.folder).expect_err(what).to_string();
        assert!(error.contains(reason), "{what}: {error}");
        assert_eq!(store.list_sets().ok(), Some(vec![]), "{what}");
        let packs = names(&home.path().join("root/v1/packs"));
        assert_eq!(packs, [""; 0], "{what}: packs come last");
    }
}

fn cut(path: &Path) {
    let bytes = std::fs::read(path).expect("because it is there");
    write(path, &bytes[..bytes.len() - 1]);
}

fn link(path: &Path) {
    let aside = path.with_extension("aside");
    std::fs::rename(path, &aside).expect("because it is ours");
    symlink(&aside, path).expect("because the name is free");
}

fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("because every system has mkfifo").success());
}

/// The other side's keys say nothing of a payload's bytes: two packers of one name would share
/// them, and its import spreads whichever it meets. Here a payload whose records agree with it,
/// but which is not the layout of the recorded source, is found by its inverse.
#[test]
fn a_payload_of_a_wrong_packer_with_agreeing_records_is_refused() {
    let (_source, export) = Source::exported();
    let path = export.folder.join("manifest.json");
    let manifest = read_json(&path);
    let key = manifest["tensors"][1]["key"]
        .as_str()
        .expect("because it is text")
        .to_owned();
    let payload = export.folder.join(format!("tensors/{key}.bin"));
    flip(&payload, 0);
    let bytes = std::fs::read(&payload).expect("because it is there");
    let digest = Digest::of(&bytes).to_string();
    edit(&path, "tensors.1.payload.sha256", digest.clone().into());
    let own = export.folder.join(format!("tensors/{key}.json"));
    edit(&own, "payload.sha256", digest.into());
    // As its tool would: the index and its hash follow.
    let mut manifest = read_json(&path);
    manifest
        .as_object_mut()
        .expect("because it is one")
        .remove("runtime_index");
    let set = parse_by_slot(&manifest);
    let index = set.index();
    manifest["runtime_index"] = json!({
        "format": "qwen27-xe2-m6-runtime-index-v1",
        "path": "runtime-index.tsv",
        "size_bytes": index.len(),
        "sha256": Digest::of(&index).to_string(),
    });
    write(&path, &pretty(&manifest));
    write(&export.folder.join("runtime-index.tsv"), &index);
    let home = folder();
    let store = real(config(home.path()));
    let error = import(&store, &export.folder).expect_err("because its inverse is another");
    let ForeignImportError::Source {
        tensor, expected, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(tensor, "blk.9.ffn_gate.weight");
    assert_eq!(
        expected.to_string(),
        manifest["tensors"][1]["source_tensor"]["sha256"]
    );
    assert_eq!(store.list_sets().ok(), Some(vec![]));
}

/// The set of a manifest without its index, whose tensors are by slot.
fn parse_by_slot(manifest: &Value) -> xe2::ForeignSet {
    let digest = |value: &Value| {
        Digest::parse(value.as_str().expect("because it is text")).expect("because it is one")
    };
    let integer = |value: &Value| value.as_u64().expect("because it is one");
    let model = digest(&manifest["source_model"]["sha256"]);
    let tensors = manifest["tensors"]
        .as_array()
        .expect("because it is a list")
        .iter();
    xe2::ForeignSet {
        revision: xe2::Revision::Three,
        model: xe2::SourceModel {
            path: String::new(),
            sha256: model,
            size_bytes: 0,
            hash_validated: true,
        },
        tensors: tensors
            .map(|tensor| xe2::ForeignTensor {
                identity: xe2::TensorIdentity {
                    target_model_sha256: model,
                    tensor_name: tensor["identity"]["tensor_name"]
                        .as_str()
                        .expect("text")
                        .into(),
                    tensor_shape: [0, 1].map(|at| integer(&tensor["identity"]["tensor_shape"][at])),
                },
                gguf_offset: integer(&tensor["source_tensor"]["gguf_offset"]),
                source_bytes: integer(&tensor["source_tensor"]["size_bytes"]),
                source_sha256: digest(&tensor["source_tensor"]["sha256"]),
                payload_bytes: integer(&tensor["payload"]["size_bytes"]),
                payload_sha256: digest(&tensor["payload"]["sha256"]),
            })
            .collect(),
    }
}
