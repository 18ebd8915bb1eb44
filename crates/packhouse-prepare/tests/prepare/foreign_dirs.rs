//! Directories of the Xe2 pack set: written, read back, by both revisions, and what can't be.

use crate::foreign_source::{Source, edit, flip, import, import_of, make, names, read_json, write};
use crate::foreign_world::{SLOTTED, TENSORS, entry, hashed, model_bytes, unhashed};
use crate::store_fixture::{DEEP, config, folder, real};
use packhouse_base::digest::Digest;
use packhouse_prepare::foreign::xe2_m6_v2::{
    StatRow, canon_sha256, fnv1a_64, parse_manifest, pretty, set_key, stat_table_sha256,
};
use packhouse_store::container_record::Admission;
use packhouse_store::manifest::SetManifest;
use packhouse_store::set::SetOutcome;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// The fields of a set's manifest, sorted.
const FIELDS: [&str; 22] = [
    "created_unix",
    "evidence_class",
    "format",
    "gguf",
    "identity",
    "imported_count_this_run",
    "key",
    "layout",
    "loader_contract",
    "model_hash_seconds_this_run",
    "pack_seconds_this_run",
    "packed_count_this_run",
    "payload_size_bytes",
    "promotion_eligible",
    "reused_count_this_run",
    "runtime_index",
    "schema_version",
    "source_model",
    "status",
    "tensor_count",
    "tensors",
    "tool",
];

#[test]
fn an_export_has_the_files_and_fields_of_the_format_and_nothing_else() {
    let (source, export) = Source::exported();
    assert_eq!(names(&source.packs()), [export.set_key.to_string()]);
    assert_eq!(
        names(&export.folder),
        [
            "deep-validation.json",
            "manifest.json",
            "runtime-index.tsv",
            "tensors"
        ]
    );
    let manifest = read_json(&export.folder.join("manifest.json"));
    let fields: Vec<&String> = manifest
        .as_object()
        .expect("because it is one")
        .keys()
        .collect();
    assert_eq!(fields, FIELDS);
    let bytes = std::fs::read(export.folder.join("manifest.json")).expect("because it is there");
    assert!(bytes == pretty(&manifest), "the manifest is not pretty");
    assert_eq!(canon_sha256(&manifest["identity"]), export.set_key);
    let model = std::fs::read(source.home.path().join("model.gguf")).expect("because it is there");
    assert_eq!(
        manifest["source_model"]["sha256"],
        Digest::of(&model).to_string()
    );
    assert_eq!(manifest["source_model"]["hash_validated"], true);
    assert_eq!(manifest["gguf"]["file_size"], model.len());
    assert_eq!(
        (&manifest["gguf"]["version"], &manifest["gguf"]["alignment"]),
        (&json!(3), &json!(32))
    );
    let slots: Vec<&str> = manifest["tensors"]
        .as_array()
        .expect("because it is a list")
        .iter()
        .filter_map(|tensor| tensor["identity"]["tensor_name"].as_str())
        .collect();
    assert_eq!(
        slots,
        [
            "blk.0.ffn_up.weight",
            "blk.9.ffn_gate.weight",
            "blk.10.ffn_up.weight",
            "blk.8.ffn_down.weight"
        ]
    );
    each_tensor_is_as_recorded(&export.folder, &manifest, &model);
}

fn each_tensor_is_as_recorded(folder: &Path, manifest: &Value, model: &[u8]) {
    for tensor in manifest["tensors"]
        .as_array()
        .expect("because it is a list")
    {
        let key = tensor["key"].as_str().expect("because it is text");
        let own = std::fs::read(folder.join(format!("tensors/{key}.json")));
        assert!(own.expect("because it is there") == pretty(tensor), "{key}");
        let payload = std::fs::read(folder.join(format!("tensors/{key}.bin")));
        let payload = payload.expect("because it is there");
        assert_eq!(
            tensor["payload"]["sha256"],
            Digest::of(&payload).to_string()
        );
        let offset = tensor["source_tensor"]["gguf_offset"]
            .as_u64()
            .expect("because it is one");
        let bytes = &model[offset as usize..][..payload.len()];
        assert_eq!(
            tensor["source_tensor"]["sha256"],
            Digest::of(bytes).to_string()
        );
    }
}

#[test]
fn the_receipt_is_of_the_files_as_they_lie_there() {
    let (_source, export) = Source::exported();
    let receipt = read_json(&export.folder.join("deep-validation.json"));
    let bytes = std::fs::read(export.folder.join("manifest.json")).expect("because it is there");
    let set = parse_manifest(&bytes).expect("because it was written");
    let rows: Vec<StatRow> = set
        .tensors
        .iter()
        .map(|tensor| {
            let path = export.folder.join(format!("tensors/{}.bin", tensor.key()));
            let stat = std::fs::metadata(path).expect("because it is there");
            assert_eq!(stat.nlink(), 1, "a payload is linked twice");
            StatRow {
                key: tensor.key(),
                size_bytes: stat.len(),
                mtime_ns: stat.mtime() * 1_000_000_000 + stat.mtime_nsec(),
                device: stat.dev(),
                inode: stat.ino(),
            }
        })
        .collect();
    let stats = stat_table_sha256(&rows).to_string();
    assert_eq!(receipt["payload_stat_table_sha256"], stats);
    assert_eq!(receipt["manifest_sha256"], Digest::of(&bytes).to_string());
    assert_eq!(receipt["manifest_size_bytes"], bytes.len());
    assert_eq!(receipt["validated_bytes"], set.payload_bytes());
    let table = set.payload_table_sha256().to_string();
    assert_eq!(receipt["payload_table_sha256"], table);
    assert_eq!(receipt["set_key"], export.set_key.to_string());
    assert_eq!(receipt["status"], "trusted");
    let index = std::fs::read(export.folder.join("runtime-index.tsv")).expect("because it is");
    assert_eq!(export.index_fnv1a_64, fnv1a_64(&index));
}

#[test]
fn two_exports_of_a_set_have_the_same_manifest_and_index() {
    let (first, second) = (Source::exported(), Source::exported());
    for file in ["runtime-index.tsv", "manifest.json"] {
        let [a, b] = [&first, &second].map(|(source, export)| {
            let text = std::fs::read_to_string(export.folder.join(file)).expect("because it is");
            // The one thing in it that is of this place.
            text.replace(
                source.home.path().to_str().expect("because it is plain"),
                "",
            )
        });
        assert!(a == b, "{file}");
    }
}

#[test]
fn what_was_exported_comes_back_as_the_same_packs_under_the_formats_plan() {
    let (source, export) = Source::exported();
    let home = folder();
    let store = real(config(home.path()));
    let first = import(&store, &export.folder).expect("because it is sound");
    assert_eq!(first.foreign_key, export.set_key);
    assert_eq!(
        (first.plan.as_str(), first.outcome),
        ("xe2-m6-v2", SetOutcome::Created)
    );
    assert_eq!(
        (
            first.tensor_count,
            first.new_object_count,
            first.new_pack_count
        ),
        (4, 4, 4)
    );
    assert_eq!(
        (first.new_bytes, first.receipt_count),
        (export.payload_bytes, 4)
    );
    let found = store.verify_set(first.set, DEEP, &|_| ());
    assert!(found.is_good(), "{found:?}");
    let theirs = store.read_set(first.set).expect("because it was made");
    assert_eq!(theirs.entries(), source.manifest.entries());
    let records = store
        .read_container_records(first.set)
        .expect("because they are there");
    let record = &records.records[0];
    assert_eq!(record.admission(), Admission::Skipped);
    assert_eq!(record.files()[0].name, "model.gguf");
    assert_eq!(record.files()[0].digest, Some(Digest::of(&model_bytes(""))));
    let again = import(&store, &export.folder).expect("because it is sound");
    assert_eq!(
        (again.outcome, again.reused_object_count),
        (SetOutcome::Equal, 4)
    );
    assert_eq!((again.new_object_count, again.new_pack_count), (0, 0));
}

#[test]
fn with_the_model_at_hand_records_are_compared_with_it_and_the_set_is_hashed() {
    let (source, export) = Source::exported();
    let model = source.home.path().join("model.gguf");
    let home = folder();
    let store = real(config(home.path()));
    let done = import_of(&store, &export.folder, Some(&model)).expect("because it is the model");
    let records = store.read_container_records(done.set);
    let records = records.expect("because they are there").records;
    assert_eq!(records, [hashed(&model_bytes(""))]);
    let uses = store.use_log().expect("because state is there").read();
    let uses = uses.expect("because it can be read");
    assert!(
        uses.sets[&done.set].containers.contains_key(&model),
        "{uses:?}"
    );
    // Another file of the same name, and a record that points elsewhere in the right one.
    let other = home.path().join("model.gguf");
    write(&other, &model_bytes("other"));
    let error = import_of(&store, &export.folder, Some(&other)).expect_err("because it is not");
    let told = format!(
        "has SHA-256 {}, the set was made of {}",
        Digest::of(&model_bytes("other")),
        Digest::of(&model_bytes(""))
    );
    assert!(error.to_string().contains(&told), "{error}");
    let manifest = export.folder.join("manifest.json");
    let key = read_json(&manifest)["tensors"][2]["key"].clone();
    let key = key.as_str().expect("because it is text");
    let own = export.folder.join(format!("tensors/{key}.json"));
    edit(&manifest, "tensors.2.source_tensor.gguf_offset", json!(32));
    edit(&own, "source_tensor.gguf_offset", json!(32));
    let error = import_of(&store, &export.folder, Some(&model)).expect_err("because it moved");
    let told = error.to_string();
    assert!(
        told.starts_with("blk.10.ffn_up.weight: ") && told.ends_with("at byte 32"),
        "{told}"
    );
    import(&store, &export.folder).expect("because nobody looks into the model");
}

#[test]
fn a_directory_of_revision_2_is_read_by_name_order_and_without_an_index() {
    let (_source, export) = Source::exported();
    let path = export.folder.join("manifest.json");
    let mut manifest = read_json(&path);
    let fields = manifest.as_object_mut().expect("because it is one");
    fields.remove("runtime_index");
    fields.remove("imported_count_this_run");
    fields["tensors"]
        .as_array_mut()
        .expect("because it is a list")
        .sort_by_key(|tensor| {
            tensor["identity"]["tensor_name"]
                .as_str()
                .expect("because it is text")
                .to_owned()
        });
    let keys: Vec<Digest> = fields["tensors"]
        .as_array()
        .expect("because it is a list")
        .iter()
        .map(|tensor| Digest::parse(tensor["key"].as_str().expect("because it is text")))
        .collect::<Result<_, _>>()
        .expect("because they are keys");
    let model = fields["source_model"]["sha256"]
        .as_str()
        .expect("because it is text");
    let key = set_key(Digest::parse(model).expect("because it is one"), &keys);
    assert_ne!(key, export.set_key);
    fields["identity"]["tensor_keys"] = keys
        .iter()
        .map(Digest::to_string)
        .collect::<Vec<_>>()
        .into();
    fields["key"] = key.to_string().into();
    write(&path, &pretty(&manifest));
    std::fs::remove_file(export.folder.join("runtime-index.tsv")).expect("because it is ours");
    let renamed = export.folder.with_file_name(key.to_string());
    std::fs::rename(&export.folder, &renamed).expect("because it is ours");
    let home = folder();
    let store = real(config(home.path()));
    let done = import(&store, &renamed).expect("because it is a sound set of revision 2");
    assert_eq!(done.foreign_key, key);
    assert!(store.verify_set(done.set, DEEP, &|_| ()).is_good());
}

#[test]
fn fields_that_nobody_reads_may_be_anything() {
    let (_source, export) = Source::exported();
    let path = export.folder.join("manifest.json");
    for (at, value) in [
        ("created_unix", json!(1_700_000_000.5)),
        (
            "tool",
            json!({"path": "/elsewhere", "revision": 3, "host": "lab"}),
        ),
        ("gguf", json!(null)),
        ("packed_count_this_run", json!(99)),
        ("layout_note", json!("new in this file")),
        ("tensors.0.imported_from", json!("/somewhere")),
        ("tensors.0.pack_seconds", json!(1.25)),
    ] {
        edit(&path, at, value);
    }
    write(
        &export.folder.join("deep-validation.json"),
        b"no receipt is read",
    );
    let home = folder();
    let store = real(config(home.path()));
    let done = import(&store, &export.folder).expect("because none of it is of the bytes");
    assert!(store.verify_set(done.set, DEEP, &|_| ()).is_good());
}

#[test]
fn an_import_without_room_says_what_is_needed() {
    let (_source, export) = Source::exported();
    let home = folder();
    let mut config = config(home.path());
    config.max_bytes = Some(1000);
    let store = real(config);
    let error = import(&store, &export.folder)
        .expect_err("because it does not fit")
        .to_string();
    let told = format!("{} bytes are new to this store: ", export.payload_bytes);
    assert!(
        error.starts_with(&told) && error.contains("leaves 1000 B"),
        "{error}"
    );
    assert_eq!(names(&home.path().join("root/v1/objects")), [""; 0]);
}

#[test]
fn an_export_without_the_models_hash_is_refused_by_name() {
    let source = Source::with(&unhashed());
    let error = source
        .export()
        .expect_err("because nobody hashed the model")
        .to_string();
    assert!(
        error.contains("has the SHA-256 of one whole model file"),
        "{error}"
    );
    assert_eq!(names(&source.packs()), [""; 0]);
}

#[test]
fn an_export_beside_another_model_is_refused_with_both_hashes() {
    let source = Source::new();
    let other = model_bytes("other");
    write(&source.home.path().join("model.gguf"), &other);
    let error = source
        .export()
        .expect_err("because the model is another")
        .to_string();
    let told = format!(
        "has SHA-256 {}, the set was made of [{}]",
        Digest::of(&other),
        Digest::of(&model_bytes(""))
    );
    assert!(error.contains(&told), "{error}");
    // Said to be the set's own: then the tensors tell.
    let source = Source::with(&hashed(&other));
    write(&source.home.path().join("model.gguf"), &other);
    let error = source
        .export()
        .expect_err("because its tensors are others")
        .to_string();
    assert!(
        error.contains("is not what the set was made of: its bytes"),
        "{error}"
    );
}

#[test]
fn sets_that_the_format_has_no_place_for_are_refused_by_tensor() {
    let home = folder();
    let store = real(config(home.path()));
    let model = model_bytes("");
    write(&home.path().join("model.gguf"), &model);
    make(&home.path().join("packs"));
    let (name, dims) = TENSORS[SLOTTED];
    let entries = vec![entry(&store, &model, (0, name), &dims)];
    let manifest = SetManifest::new("test".into(), Digest::of(b"plan"), entries)
        .expect("because there is one slot");
    store
        .publish_set(&manifest, &hashed(&model))
        .expect("because its packs are there");
    let source = Source {
        home,
        store,
        manifest,
    };
    let error = source
        .export()
        .expect_err("because attn_q has no slot")
        .to_string();
    assert!(
        error.starts_with("\"blk.0.attn_q.weight\" has no slot in xe2-m6-v2"),
        "{error}"
    );
    let manifest = crate::store_fixture::set(&source.store, &[b"identity"]);
    let source = Source { manifest, ..source };
    let error = source
        .export()
        .expect_err("because of its layout")
        .to_string();
    assert_eq!(
        error,
        "\"blk.0.weight\" is packed as identity-v1 version 1, and xe2-m6-v2 has \
        q4_0-xe2-dpas-v2 only"
    );
}

#[test]
fn nothing_is_overwritten_and_no_part_is_left() {
    let (source, export) = Source::exported();
    let error = source
        .export()
        .expect_err("because it is there")
        .to_string();
    assert!(
        error.contains("is there already, and nothing is overwritten"),
        "{error}"
    );
    std::fs::remove_dir_all(&export.folder).expect("because it is ours");
    let object = source.manifest.entries()[2].object.to_string();
    let path = source
        .home
        .path()
        .join(format!("root/v1/objects/{}/{object}", &object[..2]));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("ours");
    flip(&path, 9);
    let error = source
        .export()
        .expect_err("because an object is damaged")
        .to_string();
    assert!(error.contains("is corrupt"), "{error}");
    assert_eq!(names(&source.packs()), [""; 0]);
}

/// As the other side validates a stage: manifests and receipts are equal, the record names them,
/// and the copies have the lengths of payloads; here also their bytes.
#[test]
fn a_stage_has_the_files_and_fields_of_the_format() {
    let source = Source::new();
    let ram = source.home.path().join("ram");
    make(&ram);
    let export = source
        .export_and_stage(Some(&ram))
        .expect("because nothing is in the way");
    let stage = export
        .stage_folder
        .clone()
        .expect("because it was asked for");
    assert_eq!(stage, ram.join(export.set_key.to_string()));
    let files = [
        "deep-validation.json",
        "manifest.json",
        "ram-stage.json",
        "runtime-index.tsv",
        "tensors",
    ];
    assert_eq!(names(&stage), files);
    let read = |path: std::path::PathBuf| std::fs::read(path).expect("because it is there");
    for file in ["deep-validation.json", "manifest.json", "runtime-index.tsv"] {
        assert!(
            read(stage.join(file)) == read(export.folder.join(file)),
            "{file}"
        );
    }
    let manifest = read(stage.join("manifest.json"));
    let set = parse_manifest(&manifest).expect("because it was written");
    for tensor in &set.tensors {
        let payload = read(stage.join(format!("tensors/{}.bin", tensor.key())));
        assert_eq!(Digest::of(&payload), tensor.payload_sha256);
    }
    assert_eq!(names(&stage.join("tensors")).len(), set.tensors.len());
    let record = read_json(&stage.join("ram-stage.json"));
    assert!(read(stage.join("ram-stage.json")) == pretty(&record));
    let fields: Vec<&String> = record
        .as_object()
        .expect("because it is one")
        .keys()
        .collect();
    assert_eq!(fields, STAGE_FIELDS);
    assert_eq!(record["format"], "qwen27-xe2-m6-ram-stage-v1");
    assert_eq!(record["set_key"], export.set_key.to_string());
    assert_eq!(
        record["source_manifest_sha256"],
        Digest::of(&manifest).to_string()
    );
    let table = set.payload_table_sha256().to_string();
    assert_eq!(record["payload_table_sha256"], table);
    let path = export.folder.join("manifest.json");
    assert_eq!(
        record["source_manifest"],
        path.to_str().expect("because it is plain")
    );
    // A stage is a set of its own, and a taken name is said before the first byte.
    std::fs::remove_dir_all(&export.folder).expect("because it is ours");
    let error = source
        .export_and_stage(Some(&ram))
        .expect_err("because it is there");
    assert!(error.to_string().contains("is there already"), "{error}");
    assert_eq!(names(&source.packs()), [""; 0]);
}

/// The fields of a stage's record, sorted.
const STAGE_FIELDS: [&str; 16] = [
    "available_bytes_after_copy",
    "available_bytes_before",
    "copy_seconds",
    "created_unix",
    "format",
    "payload_size_bytes",
    "payload_table_sha256",
    "schema_version",
    "set_key",
    "source_deep_trust_reused",
    "source_deep_validation_seconds",
    "source_manifest",
    "source_manifest_sha256",
    "status",
    "tensor_count",
    "trust_lookup_seconds_this_run",
];

/// The second implementation knows the format's page and nothing of our code.
#[test]
fn a_second_implementation_verifies_an_export_and_finds_what_is_changed_in_it() {
    let (source, export) = Source::exported();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prepare/foreign_second.py");
    let verify = || {
        let output = std::process::Command::new("python3")
            .arg(&script)
            .arg(&export.folder)
            .arg(source.home.path().join("model.gguf"))
            .output();
        output
            .ok()
            .map(|output| (output.status.success(), output.stdout))
    };
    let Some(first) = verify() else {
        println!("SKIP: no python3 to verify with");
        return;
    };
    assert_eq!(first, (true, b"4\n".to_vec()));
    flip(&export.folder.join("runtime-index.tsv"), 40);
    assert_eq!(verify().map(|(is_good, _)| is_good), Some(false));
    flip(&export.folder.join("runtime-index.tsv"), 40);
    assert_eq!(verify(), Some(first));
    // A copy of the same bytes is another file, which the receipt is not of.
    let manifest = read_json(&export.folder.join("manifest.json"));
    let key = manifest["tensors"][0]["key"]
        .as_str()
        .expect("because it is text");
    let payload = export.folder.join(format!("tensors/{key}.bin"));
    let bytes = std::fs::read(&payload).expect("because it is there");
    write(&payload.with_extension("new"), &bytes);
    std::fs::rename(payload.with_extension("new"), &payload).expect("because it is ours");
    assert_eq!(verify().map(|(is_good, _)| is_good), Some(false));
}
