//! A small model with the names of the Xe2 pack set, packed into a store, on any file system.

use crate::store_fixture::{container, publish};
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_base::identity::PackIdentity;
use packhouse_container::gguf::{Draft, DraftTensor, Entry, Value};
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::Packers;
use packhouse_prepare::foreign::xe2_m6_v2::slot_of;
use packhouse_prepare::model::Model;
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::manifest::SetManifest;
use packhouse_store::root::Store;
use packhouse_sys::fs::{Dir, DirAccess, Fs};
use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::LazyLock;

/// Names and shapes, in file order, which is neither that of slots nor that of names.
pub(crate) const TENSORS: [(&str, [u64; 2]); 5] = [
    ("blk.8.ffn_down.weight", [64, 48]),
    ("blk.10.ffn_up.weight", [32, 16]),
    ("blk.9.ffn_gate.weight", [96, 32]),
    ("blk.0.ffn_up.weight", [32, 64]),
    ("blk.0.attn_q.weight", [32, 16]),
];

/// One for all tests: its fingerprints are taken once.
pub(crate) static PACKERS: LazyLock<Packers> = LazyLock::new(Packers::detect);

/// How many of them the format has slots for.
pub(crate) const SLOTTED: usize = 4;

/// The tensor's bytes; no two blocks are alike.
pub(crate) fn weight(name: &str, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for block in 0u64.. {
        if bytes.len() >= length {
            break;
        }
        let seed = format!("{name} {block}");
        bytes.extend_from_slice(Digest::of(seed.as_bytes()).as_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A model file; `salt` makes another one.
pub(crate) fn model_bytes(salt: &str) -> Vec<u8> {
    let q4_0 = GgmlType::from_name("Q4_0").expect("because it is a known type");
    let draft = Draft {
        metadata: vec![Entry {
            key: "general.architecture".into(),
            value: Value::String("qwen35".into()),
        }],
        tensors: TENSORS
            .iter()
            .map(|(name, dims)| DraftTensor {
                name: (*name).into(),
                ggml_type: q4_0,
                dims: dims.to_vec(),
            })
            .collect(),
    };
    let mut writer = draft.begin(Vec::new()).expect("because the draft is sound");
    for tensor in &draft.tensors {
        let length = admitted(&tensor.dims).source_bytes() as usize;
        let bytes = weight(&format!("{}{salt}", tensor.name), length);
        writer.put(&bytes).expect("because memory takes it");
    }
    writer.finish().expect("because all bytes are there")
}

pub(crate) fn admitted(dims: &[u64]) -> Admitted {
    let q4_0 = GgmlType::from_name("Q4_0").expect("because it is a known type");
    Layout::Q4_0Xe2DpasV2
        .admit(q4_0, dims, &BTreeMap::new())
        .expect("because the test's shapes are whole tiles")
}

/// Publishes the slotted tensors of a model as a set, with what is said of the model file.
pub(crate) fn packed(store: &Store, model: &[u8], record: &ContainerRecord) -> SetManifest {
    packed_first(store, model, record, SLOTTED)
}

/// Publishes only the first `count` of them.
pub(crate) fn packed_first(
    store: &Store,
    model: &[u8],
    record: &ContainerRecord,
    count: usize,
) -> SetManifest {
    let entries = TENSORS[..count].iter().map(|(name, dims)| {
        let slot = slot_of(name).expect("because the first four have slots");
        entry(store, model, (slot, name), dims)
    });
    let manifest = SetManifest::new("test".into(), Digest::of(b"plan"), entries.collect())
        .expect("because the slots differ");
    store
        .publish_set(&manifest, record)
        .expect("because its packs are there");
    manifest
}

/// Packs one tensor of a model and publishes it.
pub(crate) fn entry(
    store: &Store,
    model: &[u8],
    (slot, name): (u64, &str),
    dims: &[u64],
) -> packhouse_store::manifest::ManifestEntry {
    let admitted = admitted(dims);
    let packers = &PACKERS;
    let directory = packhouse_container::TensorDirectory::parse(&model)
        .expect("because the test made a whole model");
    let found = directory.tensor(name).expect("because it is in the model");
    let source = &model[found.offset as usize..][..found.bytes as usize];
    let mut payload = vec![0; admitted.payload_bytes() as usize];
    let kernel = packers
        .kernel(&admitted)
        .expect("because every level packs it");
    kernel.pack(source, &mut payload);
    let identity = PackIdentity {
        layout: admitted.layout().id().into(),
        layout_version: admitted.layout().version(),
        parameters: BTreeMap::new(),
        fingerprint: packers
            .fingerprint(&admitted)
            .expect("because every level packs it"),
        type_id: admitted.ty().id(),
        dims: dims.to_vec(),
        source: TensorDigest(Digest::of(source)),
    };
    publish(store, (slot, name), identity, &payload)
}

/// A record of a model file that was hashed as a whole.
pub(crate) fn hashed(model: &[u8]) -> ContainerRecord {
    let file = ContainerFile {
        name: "model.gguf".into(),
        size: model.len() as u64,
        digest: Some(Digest::of(model)),
    };
    ContainerRecord::new(vec![file], Admission::Hashed).expect("because the file is plain")
}

/// A record of a model file that nobody hashed.
pub(crate) fn unhashed() -> ContainerRecord {
    container("model.gguf")
}

/// Opens a folder by its path.
pub(crate) fn dir_at(fs: &dyn Fs, path: &Path) -> Dir {
    let mut dir = fs.root().expect("because there is a root");
    for component in path.components() {
        if let Component::Normal(name) = component {
            dir = dir
                .open_dir_for(name, DirAccess::Lookup)
                .expect("because the test made the folder");
        }
    }
    dir.reopen().expect("because it is ours")
}

pub(crate) fn model_at(fs: &dyn Fs, path: &Path) -> Model {
    let folder = path.parent().expect("because it is a file");
    let name = path.file_name().expect("because it is a file");
    let file = dir_at(fs, folder)
        .open_file(name)
        .expect("because the test wrote it");
    Model::open(vec![file]).expect("because it is a whole model")
}
