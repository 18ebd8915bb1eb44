//! Registered payloads that become sets of one tensor: only what its tensor packs to does.

use crate::foreign_world::{PACKERS, model_at, model_bytes};
use crate::registry_world::{bound_to, record};
use crate::store_fixture::DEEP;
use packhouse_base::digest::Digest;
use packhouse_base::ggml_type::GgmlType;
use packhouse_container::TensorDirectory;
use packhouse_layout::Layout;
use packhouse_prepare::proof::prove_set;
use packhouse_prepare::registry::{
    PayloadImport, PayloadImportError, PayloadOf, Record, import_payload,
};
use packhouse_sim::{Crash, Fault, SimClock, SimFs};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::fs::FsErrorKind;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

const MODEL: &str = "/home/user/model.gguf";
const PACK: &str = "/home/user/pack.bin";
const TENSOR: &str = "blk.9.ffn_gate.weight";
const DIMS: [u64; 2] = [96, 32];

fn store(sim: &SimFs) -> Store {
    let mut config = StoreConfig::new("/home/user/.cache/s", "/home/user/.local/state/s");
    config.min_free_bytes = 0;
    Store::open(Arc::new(sim.clone()), sim.clock(), config).expect("because the disk is sound")
}

/// What a tensor of the model packs to.
fn packed(layout: Layout, name: &str, parameters: &BTreeMap<String, u64>) -> Vec<u8> {
    let model = model_bytes("");
    let directory = TensorDirectory::parse(&model.as_slice()).expect("because it is whole");
    let tensor = directory.tensor(name).expect("because it is in the model");
    let source = &model[tensor.offset as usize..][..tensor.bytes as usize];
    let q4_0 = GgmlType::from_name("Q4_0").expect("because it is a known type");
    let admitted = layout.admit(q4_0, &tensor.dims, parameters);
    let admitted = admitted.expect("because the test's shapes are whole tiles");
    let kernel = PACKERS
        .kernel(&admitted)
        .expect("because every CPU has one");
    let mut payload = vec![0; admitted.payload_bytes() as usize];
    kernel.pack(source, &mut payload);
    payload
}

/// A disk with the model and a pack.
fn disk(payload: &[u8]) -> SimFs {
    let sim = SimFs::new(1, Arc::new(SimClock::new()));
    for folder in ["/home/user/.local", "/home/user/.local/state"] {
        sim.make_dirs(folder, 1000, 0o700);
    }
    sim.replace(MODEL, &model_bytes(""), 0o644);
    sim.replace(PACK, payload, 0o644);
    sim.clock().advance_ns(10_000_000_000);
    store(&sim);
    sim.settle();
    sim
}

fn registered(sim: &SimFs, layout: &str) -> Record {
    let binding = bound_to(Digest::of(&model_bytes("")), layout);
    let made = record(sim, sim.clock().as_ref(), Path::new(PACK), binding, &|_| ());
    made.expect("because it is a file with bytes")
}

fn import(
    sim: &SimFs,
    record: &Record,
    tensor: &str,
    parameters: &BTreeMap<String, u64>,
) -> Result<PayloadImport, PayloadImportError> {
    let of = PayloadOf {
        tensor,
        parameters,
        files: &[Digest::of(&model_bytes(""))],
    };
    let model = model_at(sim, Path::new(MODEL));
    import_payload(&store(sim), &PACKERS, sim, record, &model, &of)
}

fn is_proven(sim: &SimFs, import: &PayloadImport) -> bool {
    let store = store(sim);
    let mut found = store.verify_set(import.set, DEEP, &|_| ());
    let proofs = prove_set(&store, &mut found, &PACKERS, NonZeroUsize::MIN, &|_| ());
    found.is_good() && (proofs.proven_count, proofs.unproven_count) == (1, 0)
}

#[test]
fn a_payload_of_each_invertible_layout_becomes_a_set_that_proves() {
    let tiles = BTreeMap::from([("n_tile".to_owned(), 4)]);
    let none = BTreeMap::new();
    for (layout, parameters) in [
        (Layout::Q4_0Xe2DpasV2, &none),
        (Layout::Q4_0Reordered, &none),
        (Layout::Q4_0JointN, &none),
        (Layout::Q4_0JointN, &tiles),
        (Layout::Identity, &none),
    ] {
        let sim = disk(&packed(layout, TENSOR, parameters));
        let record = registered(&sim, layout.id());
        let made = import(&sim, &record, TENSOR, parameters).expect("because it is the tensor's");
        assert!(made.is_new_object && made.is_new_pack, "{layout:?}");
        assert!(is_proven(&sim, &made), "{layout:?}");
        let again = import(&sim, &record, TENSOR, parameters).expect("because it is the tensor's");
        assert_eq!(again.set, made.set);
        assert!(!again.is_new_object && !again.is_new_pack, "{layout:?}");
    }
}

#[test]
fn what_its_tensor_does_not_pack_to_is_refused_and_nothing_is_filed() {
    let none = BTreeMap::new();
    let good = packed(Layout::Q4_0JointN, TENSOR, &none);
    let mut flipped = good.clone();
    flipped[1000] ^= 0x10;
    let id = Layout::Q4_0JointN.id();
    let wrong = "payload is not what its source packs to: its source has SHA-256";
    let reordered = packed(Layout::Q4_0Reordered, TENSOR, &none);
    let tiles = BTreeMap::from([("n_tile".to_owned(), 4)]);
    let unknown = BTreeMap::from([("tile".to_owned(), 4)]);
    for (payload, layout, tensor, parameters, expected) in [
        (&flipped, id, TENSOR, &none, wrong),
        (&reordered, id, TENSOR, &none, wrong),
        (&good, id, TENSOR, &tiles, wrong),
        (&good, id, TENSOR, &unknown, "tile"),
        (
            &good,
            id,
            "blk.0.ffn_up.weight",
            &none,
            "blk.0.ffn_up.weight packs to 1152",
        ),
        (&good, id, "nothing", &none, "has no tensor nothing"),
        (
            &good,
            "my-own-v1",
            TENSOR,
            &none,
            "my-own-v1 is not a layout of this build",
        ),
        (&good, "int8-tile-rm-v1", TENSOR, &none, TENSOR),
    ] {
        let sim = disk(payload);
        let record = registered(&sim, layout);
        let refused = import(&sim, &record, tensor, parameters).expect_err(expected);
        let said = refused.to_string();
        assert!(said.contains(expected), "{said}");
        let sets = store(&sim).list_sets().expect("because it can be listed");
        assert!(sets.is_empty(), "{said}");
    }
}

#[test]
fn a_payload_that_changed_since_is_not_stored() {
    let none = BTreeMap::new();
    let sim = disk(&packed(Layout::Identity, TENSOR, &none));
    let record = registered(&sim, Layout::Identity.id());
    sim.rot(PACK, |bytes| bytes[7] ^= 1);
    let refused = import(&sim, &record, TENSOR, &none).expect_err("because a bit rotted");
    assert!(
        matches!(refused, PayloadImportError::OtherBytes { .. }),
        "{refused}"
    );
    sim.edit(PACK, |bytes| bytes.push(0));
    let refused = import(&sim, &record, TENSOR, &none).expect_err("because it is longer");
    assert!(
        matches!(refused, PayloadImportError::Length { .. }),
        "{refused}"
    );
    sim.edit(PACK, |bytes| {
        bytes.pop();
        bytes[7] ^= 1;
    });
    import(&sim, &record, TENSOR, &none).expect("because it is as it was");
}

#[test]
fn an_import_is_whole_or_absent_and_the_next_one_makes_it_whole() {
    let none = BTreeMap::new();
    let base = disk(&packed(Layout::Q4_0Xe2DpasV2, TENSOR, &none));
    let record = registered(&base, Layout::Q4_0Xe2DpasV2.id());
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        import(&sim, &record, TENSOR, &none).expect("because nothing is in the way");
        sim.operation_count()
    };
    assert!(count > 20, "only {count} operations were counted");
    let faults: [fn(u64) -> Fault; 2] = [
        |at| Fault::Stop { at },
        |at| Fault::Error {
            at,
            kind: FsErrorKind::Io,
        },
    ];
    for at in 0..count {
        for fault in faults {
            let sim = base.crash(Crash::Kept, 0);
            sim.restart_count();
            sim.set_fault(Some(fault(at)));
            // Opening the store is part of it; a fault there ends the command too.
            let model = model_at(&sim, Path::new(MODEL));
            let of = PayloadOf {
                tensor: TENSOR,
                parameters: &none,
                files: &[Digest::of(&model_bytes(""))],
            };
            let mut config = StoreConfig::new("/home/user/.cache/s", "/home/user/.local/state/s");
            config.min_free_bytes = 0;
            let opened = Store::open(Arc::new(sim.clone()), sim.clock(), config);
            let reported = opened.is_ok_and(|store| {
                import_payload(&store, &PACKERS, &sim, &record, &model, &of).is_ok()
            });
            sim.set_fault(None);
            for crash in [
                Crash::Lost,
                Crash::Torn,
                Crash::Reordered,
                Crash::LostEntries,
            ] {
                let context = format!("{:?} of {count}, {crash:?}", fault(at));
                let sim = sim.crash(crash, at);
                let sets = store(&sim).list_sets().expect("because it can be listed");
                assert!(
                    !reported || sets.len() == 1,
                    "{context}: a reported set is gone"
                );
                for set in sets {
                    let found = store(&sim).verify_set(set, DEEP, &|_| ());
                    assert!(found.is_good(), "{context}: {found:?}");
                }
                let again = import(&sim, &record, TENSOR, &none)
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(is_proven(&sim, &again), "{context}");
            }
        }
    }
    assert_eq!(
        DIMS.iter().product::<u64>() / 32 * 18,
        record.artifact().bytes()
    );
}
