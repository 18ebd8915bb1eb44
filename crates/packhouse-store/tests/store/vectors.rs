//! `vectors/keys.json` is current, and the code reproduces it.
//!
//! The bytes of each vector are built here by hand, item by item, without `packhouse_base::encode`:
//! a second implementation of `docs/format/keys.md` that shares only SHA-256 with the first.

use packhouse_base::canonical;
use packhouse_base::digest::{Digest, Fingerprint, ObjectDigest, PackKey, TensorDigest};
use packhouse_base::identity::{PackIdentity, canonical_dims};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::percent;
use packhouse_store::record::{PackRecord, SampleGeometry};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const VECTORS: &str = include_str!("../../../../vectors/keys.json");

/// The byte string that a key hashes, built by hand.
#[derive(Default)]
struct Items(Vec<u8>);

impl Items {
    fn item(mut self, bytes: &[u8]) -> Self {
        let length = u64::try_from(bytes.len()).expect("because tests are small");
        for shift in 0..8 {
            let byte = (length >> (8 * shift)) & 0xff;
            self.0
                .push(u8::try_from(byte).expect("because it is masked"));
        }
        self.0.extend_from_slice(bytes);
        self
    }

    fn integer(self, value: u64) -> Self {
        let bytes: Vec<u8> = (0..8)
            .map(|shift| u8::try_from((value >> (8 * shift)) & 0xff).expect("because masked"))
            .collect();
        self.item(&bytes)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn identities() -> Vec<PackIdentity> {
    let plain = PackIdentity {
        layout: "ggml-cpu-repack".into(),
        layout_version: 1,
        parameters: BTreeMap::new(),
        fingerprint: Fingerprint(Digest::of(b"golden pack")),
        type_id: 2,
        dims: vec![576, 49152],
        source: TensorDigest(Digest::of(b"source tensor")),
    };
    let with_parameters = PackIdentity {
        layout: "int8-tile-b8-v1".into(),
        layout_version: u64::MAX,
        parameters: BTreeMap::from([("t".into(), 256), ("kd".into(), 64), ("nd".into(), 0)]),
        type_id: 42,
        dims: vec![64, 1, 3],
        ..plain.clone()
    };
    vec![plain, with_parameters]
}

fn pack_bytes(identity: &PackIdentity) -> Vec<u8> {
    let mut items = Items::default()
        .item(b"packhouse/pack/1")
        .item(identity.layout.as_bytes())
        .integer(identity.layout_version)
        .integer(u64::try_from(identity.parameters.len()).expect("because it is small"));
    for (name, value) in &identity.parameters {
        items = items.item(name.as_bytes()).integer(*value);
    }
    items = items
        .item(identity.fingerprint.as_bytes())
        .integer(u64::from(identity.type_id))
        .integer(u64::try_from(identity.dims.len()).expect("because it is small"));
    for dim in &identity.dims {
        items = items.integer(*dim);
    }
    items.item(identity.source.as_bytes()).0
}

fn manifest() -> SetManifest {
    let entry = |slot, tensor: &str, pack: PackKey| ManifestEntry {
        slot,
        tensor: tensor.into(),
        pack,
        object: ObjectDigest(Digest::of(tensor.as_bytes())),
        length: 15_925_248,
    };
    let [first, second] = [0, 1].map(|index: usize| identities()[index].key());
    let entries = vec![
        entry(11, "odd\tname%\u{e9}", second),
        entry(2, "blk.0.ffn_up.weight", first),
    ];
    SetManifest::new("ggml-cpu".into(), Digest::of(b"plan bytes"), entries)
        .expect("because the slots differ")
}

fn set_bytes(manifest: &SetManifest) -> Vec<u8> {
    let mut items = Items::default()
        .item(b"packhouse/set/1")
        .item(manifest.plan().as_bytes())
        .item(manifest.plan_digest().as_bytes())
        .integer(u64::try_from(manifest.entries().len()).expect("because it is small"));
    for entry in manifest.entries() {
        items = items
            .integer(entry.slot)
            .item(entry.tensor.as_bytes())
            .item(entry.pack.as_bytes());
    }
    items.0
}

fn record(identity: &PackIdentity) -> PackRecord {
    PackRecord {
        identity: identity.clone(),
        object: ObjectDigest(Digest::of(b"payload")),
        length: 15_925_248,
        sample: SampleGeometry {
            unit_rows: 8,
            row_bytes: 324,
            row_count: 49152,
        },
    }
}

/// The vectors, made by the hand-written bytes above; the values of the code under test are
/// compared with them by the tests below.
fn vectors() -> Value {
    let packs: Vec<Value> = identities()
        .iter()
        .map(|identity| {
            let bytes = pack_bytes(identity);
            json!({
                "layout": identity.layout,
                "layout_version": identity.layout_version,
                "parameters": identity.parameters,
                "fingerprint": identity.fingerprint.to_string(),
                "type_id": identity.type_id,
                "dims": identity.dims,
                "source": identity.source.to_string(),
                "hashed_bytes": hex(&bytes),
                "key": Digest::of(&bytes).to_string(),
            })
        })
        .collect();
    let manifest = manifest();
    let entries: Vec<Value> = manifest
        .entries()
        .iter()
        .map(|entry| {
            json!({
                "slot": entry.slot,
                "tensor": entry.tensor,
                "pack": entry.pack.to_string(),
                "object": entry.object.to_string(),
                "length": entry.length,
            })
        })
        .collect();
    let set = set_bytes(&manifest);
    json!({
        "about": "Test vectors of docs/format/keys.md. hashed_bytes is the canonical encoding in \
                  hex, key its SHA-256; canonical_json lists texts that are read and texts that \
                  are refused; each file_* text is a whole file.",
        "pack_keys": packs,
        "set_keys": [{
            "plan": manifest.plan(),
            "plan_digest": manifest.plan_digest().to_string(),
            "entries": entries,
            "hashed_bytes": hex(&set),
            "key": Digest::of(&set).to_string(),
        }],
        "dims": DIMS.map(|(given, kept)| json!({"given": given, "canonical": kept})),
        "canonical_json": {"read": JSON_READ, "refused": JSON_REFUSED},
        "percent": PERCENT.map(|(text, field)| json!({"text": text, "field": field})),
        "file_pack_record": text(record(&identities()[0]).render()),
        "file_manifest": text(manifest.render()),
        "file_runtime_index": text(manifest.render_index()),
    })
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("because these files are UTF-8")
}

const DIMS: [(&[u64], &[u64]); 4] = [
    (&[576, 49152, 1, 1], &[576, 49152]),
    (&[1, 1, 1, 1], &[1]),
    (&[32, 1, 4, 1], &[32, 1, 4]),
    (&[32, 0, 1, 1], &[32, 0]),
];

const JSON_READ: [&str; 3] = [
    "{\"a\":1,\"b\":[\"x\",null]}\n",
    "{\"max\":18446744073709551615,\"min\":-9223372036854775808}\n",
    "{\"text\":\"\u{e9}\\n\\t\\\"\\\\\"}\n",
];

const JSON_REFUSED: [&str; 8] = [
    "{\"a\":1}",
    "{\"a\": 1}\n",
    "{\"b\":1,\"a\":1}\n",
    "{\"a\":1,\"a\":1}\n",
    "{\"a\":1.0}\n",
    "{\"a\":1e2}\n",
    "{\"a\":\"\\u0041\"}\n",
    "{\"a\":1}\n\n",
];

const PERCENT: [(&str, &str); 3] = [
    ("blk.0.ffn_up.weight", "blk.0.ffn_up.weight"),
    ("odd\tname%\u{e9}", "odd%09name%25\u{e9}"),
    ("line\nbreak", "line%0Abreak"),
];

#[test]
fn the_checked_in_vectors_are_current() {
    let current = serde_json::to_string_pretty(&vectors()).expect("because it is a Value") + "\n";
    if current != VECTORS {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/keys.json");
        std::fs::write(path, &current).expect("because target/ is writable");
        panic!("vectors/keys.json is not current; what it should be is in {path}");
    }
}

#[test]
fn the_code_derives_each_key_of_the_vectors() {
    for identity in identities() {
        assert_eq!(identity.key().0, Digest::of(&pack_bytes(&identity)));
    }
    assert_eq!(manifest().key().0, Digest::of(&set_bytes(&manifest())));
}

#[test]
fn the_code_reads_and_refuses_as_the_vectors_say() {
    for (given, kept) in DIMS {
        assert_eq!(canonical_dims(given), kept);
    }
    for text in JSON_READ {
        let value = canonical::parse(text.as_bytes()).expect(text);
        assert_eq!(canonical::render(&value), text.as_bytes());
    }
    for text in JSON_REFUSED {
        assert!(canonical::parse(text.as_bytes()).is_err(), "{text}");
    }
    for (text, field) in PERCENT {
        assert_eq!(percent::encode(text), field);
        assert_eq!(percent::decode(field).as_deref(), Some(text));
    }
}
