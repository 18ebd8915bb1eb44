//! Foreign manifests as values: both revisions come back from their text, and the judge that the
//! fuzz target uses finds its mutant.

use crate::foreign_source::{Source, import, write};
use crate::foreign_world::model_at;
use crate::store_fixture::{config, folder, real};
use crate::xe2_oracle::{Mutant, examine};
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_prepare::foreign::xe2_m6_v2::{
    ForeignSet, ForeignTensor, GgufSummary, Revision, SourceModel, TensorIdentity, canon_sha256,
    parse_manifest, pretty,
};
use packhouse_store::ledger::{SourceLedger, SourceRange};
use packhouse_store::state::Recorded;
use packhouse_sys::real::RealFs;
use serde_json::Value;
use std::path::Path;

fn set(names: &[&str]) -> ForeignSet {
    let sha256 = Digest::of(b"model");
    ForeignSet {
        revision: Revision::Three,
        model: SourceModel {
            path: "/models/model.gguf".into(),
            sha256,
            size_bytes: 1000,
            hash_validated: true,
        },
        tensors: names
            .iter()
            .map(|name| ForeignTensor {
                identity: TensorIdentity {
                    target_model_sha256: sha256,
                    tensor_name: (*name).into(),
                    tensor_shape: [32, 16],
                },
                gguf_offset: 64,
                source_bytes: 288,
                source_sha256: Digest::of(name.as_bytes()),
                payload_bytes: 288,
                payload_sha256: Digest::of(b"payload"),
            })
            .collect(),
    }
}

fn revision_3(names: &[&str]) -> Vec<u8> {
    set(names).render_manifest(&GgufSummary {
        version: 3,
        tensor_count: 3,
        metadata_count: 2,
        alignment: 32,
        data_offset: 64,
        file_size: 1000,
    })
}

fn revision_2(names: &[&str]) -> Vec<u8> {
    let mut json: Value =
        serde_json::from_slice(&revision_3(names)).expect("because it was rendered");
    let fields = json.as_object_mut().expect("because it is one");
    fields.remove("runtime_index");
    fields.remove("imported_count_this_run");
    assert_eq!(fields["key"], canon_sha256(&fields["identity"]).to_string());
    pretty(&json)
}

const BY_SLOT: [&str; 3] = [
    "blk.0.ffn_up.weight",
    "blk.10.ffn_gate.weight",
    "blk.8.ffn_down.weight",
];
const BY_NAME: [&str; 2] = ["blk.0.ffn_up.weight", "blk.10.ffn_gate.weight"];

#[test]
fn both_revisions_are_taken_in_their_order_only() {
    assert!(examine(&revision_3(&BY_SLOT), None));
    assert!(examine(&revision_2(&BY_NAME), None));
    let by_name_only = ["blk.10.ffn_up.weight", "blk.9.ffn_up.weight"];
    assert!(examine(&revision_2(&by_name_only), None));
    assert!(!examine(&revision_3(&by_name_only), None));
    let by_slot_only = ["blk.9.ffn_up.weight", "blk.10.ffn_up.weight"];
    assert!(!examine(&revision_2(&by_slot_only), None));
    assert!(examine(&revision_3(&by_slot_only), None));
}

#[test]
#[should_panic(expected = "round trip: another set")]
fn the_mutant_of_the_judge_is_found() {
    examine(&revision_3(&BY_SLOT), Some(Mutant::MovesOffset));
}

#[test]
fn any_byte_changed_is_refused_or_read_as_it_stands() {
    let good = revision_3(&BY_NAME[..1]);
    let mut taken = 0;
    for at in 0..good.len() {
        let mut edited = good.clone();
        edited[at] ^= 1;
        taken += usize::from(examine(&edited, None));
    }
    // Free fields: dates, counters, names of unread fields, offsets, source digests.
    assert!(taken > 100, "only {taken} changed manifests were taken");
}

/// A field before each field of each object, with the same name and another value.
#[test]
fn a_key_that_any_object_has_twice_is_refused_by_name() {
    for good in [revision_3(&BY_SLOT), revision_2(&BY_NAME)] {
        let good = String::from_utf8(good).expect("because it is text");
        let mut count = 0;
        for (at, line) in good.match_indices('\n') {
            let rest = &good[at + line.len()..];
            let first = rest.lines().next().unwrap_or_default().trim_start();
            let field = first
                .strip_prefix('"')
                .and_then(|text| text.split_once("\": "));
            let Some((key, _)) = field else {
                continue;
            };
            let doubled = format!("{}\n\"{key}\": 0,\n{rest}", &good[..at]);
            let error = parse_manifest(doubled.as_bytes()).expect_err(key);
            let told = format!("manifest.json: {key:?} is there twice in an object");
            assert_eq!(error.to_string(), told);
            assert!(!examine(doubled.as_bytes(), None), "{key}");
            count += 1;
        }
        // Of the root, the model, the identity, and each tensor with its parts.
        assert!(count > 60, "{count} keys");
    }
}

#[test]
fn a_manifest_of_more_than_4_mib_is_not_read() {
    let (_source, export) = Source::exported();
    let path = export.folder.join("manifest.json");
    let manifest = std::fs::read(&path).expect("because it was exported");
    let padded = |length: usize| {
        let mut bytes = manifest.clone();
        bytes.resize(length, b' ');
        write(&path, &bytes);
        let home = folder();
        import(&real(config(home.path())), &export.folder)
    };
    assert!(padded(4 << 20).is_ok());
    let error = padded((4 << 20) + 1).expect_err("because it is a byte too long");
    let told = error.to_string();
    assert!(
        told.contains("4194305") && told.contains("4194304"),
        "{told}"
    );
}

/// A ledger of the same stat identity is believed, but not when its directory is another file's.
#[test]
fn a_ledger_of_another_directory_is_not_believed() {
    let source = Source::new();
    let model = model_at(&RealFs, &source.home.path().join("model.gguf"));
    let identity = *model.files()[0].identity();
    let whole = SourceRange {
        offset: 0,
        length: identity.size,
    };
    let wrong = TensorDigest(Digest::of(b"another file"));
    let note = |directory: Digest| {
        let ledger = SourceLedger::new(identity, directory, [(whole, wrong)].into());
        let later_ns = identity.ctime_ns + 60_000_000_000;
        let sources = source.store.sources().expect("because the state is ours");
        let noted = sources.extend(&ledger, later_ns);
        assert!(matches!(noted, Ok(Recorded::Written)), "{noted:?}");
    };
    note(model.container().shards()[0].digest());
    let error = source.export().expect_err("because the ledger is believed");
    assert!(error.to_string().contains(&wrong.to_string()), "{error}");
    note(Digest::of(b"another directory"));
    let exported = source.export();
    assert!(exported.is_ok(), "{exported:?}");
}

/// The seeds of the fuzz target are manifests as this build writes them.
#[test]
fn the_seeds_of_the_manifest_target_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/xe2_manifest");
    let seeds = [revision_3(&BY_SLOT), revision_2(&BY_NAME)];
    for (name, bytes) in ["three.json", "two.json"].into_iter().zip(seeds) {
        let path = folder.join(name);
        if std::env::var_os("PACKHOUSE_BLESS").is_some() {
            std::fs::write(&path, &bytes).expect("because the folder is there");
        }
        assert!(
            std::fs::read(&path).ok() == Some(bytes),
            "{name}: PACKHOUSE_BLESS=1 writes it"
        );
    }
}
