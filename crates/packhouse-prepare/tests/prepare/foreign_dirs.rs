//! Directories of the Xe2 pack set: written, read back, by both revisions, and each thing in them
//! edited in turn.

use crate::foreign_world::{
    SLOTTED, TENSORS, dir_at, entry, hashed, model_at, model_bytes, packed, unhashed,
};
use crate::store_fixture::{DEEP, config, folder, real};
use packhouse_base::digest::Digest;
use packhouse_pack::Packers;
use packhouse_prepare::foreign::xe2_m6_v2::{
    self as xe2, ForeignExport, ForeignExportError, ForeignImport, ForeignImportError, StatRow,
    canon_sha256, fnv1a_64, parse_manifest, pretty, set_key, stat_table_sha256,
};
use packhouse_store::container_record::{Admission, ContainerRecord};
use packhouse_store::manifest::SetManifest;
use packhouse_store::root::Store;
use packhouse_store::set::SetOutcome;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// A store with a set, its model, and a folder for directories of the other side.
struct Source {
    home: tempfile::TempDir,
    store: Store,
    manifest: SetManifest,
}

impl Source {
    fn new() -> Self {
        let model = model_bytes("");
        Self::with(&hashed(&model))
    }

    fn with(record: &ContainerRecord) -> Self {
        let home = folder();
        let store = real(config(home.path()));
        let model = model_bytes("");
        let manifest = packed(&store, &model, record);
        write(&home.path().join("model.gguf"), &model);
        make(&home.path().join("packs"));
        Self {
            home,
            store,
            manifest,
        }
    }

    fn packs(&self) -> PathBuf {
        self.home.path().join("packs")
    }

    fn export(&self) -> Result<ForeignExport, ForeignExportError> {
        let model = model_at(&RealFs, &self.home.path().join("model.gguf"));
        let root = dir_at(&RealFs, &self.packs());
        xe2::export(
            &self.store,
            self.manifest.key(),
            &model,
            &root,
            &mut |_, _| {},
        )
    }

    fn exported() -> (Self, ForeignExport) {
        let source = Self::new();
        let export = source.export().expect("because nothing is in the way");
        (source, export)
    }
}

fn import(store: &Store, folder: &Path) -> Result<ForeignImport, ForeignImportError> {
    let name = folder.file_name().expect("because it has a name");
    let name = name.to_str().expect("because it is plain");
    let dir = dir_at(&RealFs, folder);
    xe2::import(store, &Packers::detect(), (&dir, name), &mut |_, _| {})
}

fn write(path: &Path, bytes: &[u8]) {
    if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).expect("because the folder is ours");
    }
    std::fs::write(path, bytes).expect("because the folder is ours");
}

fn make(path: &Path) {
    std::fs::create_dir(path).expect("because it is new");
}

fn read_json(path: &Path) -> Value {
    let bytes = std::fs::read(path).expect("because it was written");
    serde_json::from_slice(&bytes).expect("because it is JSON")
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .expect("because it is there")
        .map(|entry| {
            let entry = entry.expect("because it can be listed");
            entry
                .file_name()
                .into_string()
                .expect("because it is plain")
        })
        .collect();
    names.sort();
    names
}

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
    assert_eq!(
        fields,
        [
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
            "tool"
        ]
    );
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
    for tensor in manifest["tensors"]
        .as_array()
        .expect("because it is a list")
    {
        let key = tensor["key"].as_str().expect("because it is text");
        let own = std::fs::read(export.folder.join(format!("tensors/{key}.json")));
        assert!(own.expect("because it is there") == pretty(tensor), "{key}");
        let payload = std::fs::read(export.folder.join(format!("tensors/{key}.bin")));
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

/// Sets a value at a path like `tensors.0.payload.sha256` of a JSON file.
fn edit(path: &Path, at: &str, value: Value) {
    let mut root = read_json(path);
    let mut place = &mut root;
    for part in at.split('.') {
        place = match part.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[part],
        };
    }
    assert_ne!(*place, value, "{at} has that value");
    *place = value;
    write(path, &pretty(&root));
}

#[test]
fn each_edited_field_of_the_manifest_is_refused_for_its_own_reason() {
    let zeros = "0".repeat(64);
    let home = folder();
    let store = real(config(home.path()));
    let (_source, export) = Source::exported();
    let path = export.folder.join("manifest.json");
    let good = std::fs::read(&path).expect("because it is there");
    let edits: Vec<(&str, Value, &str)> = vec![
        (
            "format",
            json!("qwen27-xe2-m6-pack-set-v3"),
            "manifest.json: format: expected \"qwen27",
        ),
        (
            "schema_version",
            json!(2),
            "manifest.json: schema_version: expected 1, found 2",
        ),
        (
            "status",
            json!("partial"),
            "status: expected \"ready\", found \"partial\"",
        ),
        ("key", json!(zeros), "manifest.json: key: expected"),
        ("key", json!("../../etc"), "manifest.json: key: expected"),
        (
            "layout.version",
            json!(3),
            "manifest.json: layout: expected",
        ),
        (
            "layout.endianness",
            json!("big"),
            "manifest.json: layout: expected",
        ),
        (
            "tensor_count",
            json!(5),
            "tensor_count: expected 4, found 5",
        ),
        (
            "payload_size_bytes",
            json!(1),
            "payload_size_bytes: expected",
        ),
        (
            "source_model.sha256",
            json!(zeros),
            "identity.target_model_sha256: expected",
        ),
        (
            "source_model.sha256",
            json!("AA"),
            "source_model.sha256: not 64",
        ),
        (
            "source_model.size_bytes",
            json!(-1),
            "size_bytes: expected a non-negative",
        ),
        (
            "source_model.hash_validated",
            json!(1),
            "hash_validated: expected true or false",
        ),
        (
            "identity.target_architecture",
            json!("bmg-g21"),
            "identity.target_architecture: exp",
        ),
        (
            "identity.pack_layout_version",
            json!(1),
            "identity.pack_layout_version: expected 2",
        ),
        (
            "identity.target_model_sha256",
            json!(zeros),
            "identity.target_model_sha256: expected",
        ),
        (
            "identity.tensor_keys.1",
            json!(zeros),
            "identity.tensor_keys[1]: expected",
        ),
        (
            "identity.tensor_keys",
            json!([]),
            "identity.tensor_keys[0]: expected",
        ),
        (
            "identity.extra",
            json!(1),
            "identity.extra: expected no such field, found 1",
        ),
        (
            "runtime_index.sha256",
            json!(zeros),
            "runtime_index.sha256: expected",
        ),
        (
            "runtime_index.size_bytes",
            json!(0),
            "runtime_index.size_bytes: expected",
        ),
        (
            "runtime_index.path",
            json!("../x"),
            "runtime_index.path: expected",
        ),
        (
            "runtime_index.format",
            json!("v2"),
            "runtime_index.format: expected",
        ),
        (
            "runtime_index",
            json!(7),
            "runtime_index: expected an object, found 7",
        ),
        ("tensors", json!(7), "tensors: expected a list, found 7"),
        (
            "tensors.0",
            json!(7),
            "tensors[0]: expected an object, found 7",
        ),
        (
            "tensors.1.format",
            json!("v3"),
            "tensors[1].format: expected",
        ),
        ("tensors.1.key", json!(zeros), "tensors[1].key: expected"),
        (
            "tensors.1.identity.tensor_name",
            json!("x"),
            "tensors[1].identity.tensor_name: \"x\"",
        ),
        (
            "tensors.0.identity.tensor_name",
            json!("blk.64.ffn_down.weight"),
            "tensors[0].key: expected",
        ),
        (
            "tensors.1.identity.tensor_shape",
            json!([33, 16]),
            "no Q4_0 matrix has shape [33, 16]",
        ),
        (
            "tensors.1.identity.tensor_shape",
            json!([32]),
            "tensor_shape: expected a list of two",
        ),
        (
            "tensors.1.identity.tensor_shape",
            json!([0, 0]),
            "no Q4_0 matrix has shape [0, 0]",
        ),
        (
            "tensors.1.identity.tensor_type",
            json!("F32"),
            "identity.tensor_type: expected",
        ),
        (
            "tensors.1.identity.extra",
            json!(""),
            "tensors[1].identity.extra: expected no such",
        ),
        (
            "tensors.1.source_tensor.size_bytes",
            json!(1),
            "source_tensor.size_bytes: expected",
        ),
        (
            "tensors.1.source_tensor.gguf_offset",
            json!("a"),
            "gguf_offset: expected a non-neg",
        ),
        (
            "tensors.1.payload.size_bytes",
            json!(1),
            "payload.size_bytes: expected",
        ),
        (
            "tensors.1.payload.path",
            json!("tensors/../x"),
            "payload.path: expected",
        ),
        (
            "tensors.1.payload.path",
            json!("/etc/passwd"),
            "payload.path: expected",
        ),
        (
            "tensors.1.payload.sha256",
            json!(zeros),
            "runtime_index.sha256: expected",
        ),
        (
            "tensors.1.source_tensor.sha256",
            json!(zeros),
            "source_tensor.sha256: expected",
        ),
        (
            "tensors.1.source_tensor.gguf_offset",
            json!(3),
            "source_tensor.gguf_offset: expected",
        ),
    ];
    for (at, value, reason) in edits {
        write(&path, &good);
        edit(&path, at, value.clone());
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
        "tensors[1]: \"blk.0.ffn_up.weight\" does not follow \"blk.9.ffn_gate.weight\" in order of slot",
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

#[test]
fn each_damaged_file_is_refused_for_its_own_reason() {
    let damages: [Damage; 12] = [
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
    for (what, damage, reason) in damages {
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

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("because it is there");
    bytes[at] ^= 1;
    write(path, &bytes);
}

fn cut(path: &Path) {
    let bytes = std::fs::read(path).expect("because it is there");
    write(path, &bytes[..bytes.len() - 1]);
}

fn remove(path: &Path) {
    std::fs::remove_file(path).expect("because it is there");
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
