//! An import stopped and failed at every operation: the set is whole or absent, every object is
//! what its name says, and the next import makes it whole.

use crate::bundles::{take, write};
use crate::store_fixture::{DEEP, config, folder, real, set};
use packhouse_sim::{Crash, Fault, SimClock, SimFs, Skip};
use packhouse_store::manifest::SetManifest;
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::fs::FsErrorKind;
use std::sync::Arc;

const CRASHES: [(Crash, u64); 5] = [
    (Crash::Lost, 1),
    (Crash::Torn, 2),
    (Crash::Reordered, 3),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];
const STOP: fn(u64) -> Fault = |at| Fault::Stop { at };
const IO: fn(u64) -> Fault = |at| Fault::Error {
    at,
    kind: FsErrorKind::Io,
};
const FULL: fn(u64) -> Fault = |at| Fault::Full { at };

fn open(sim: &SimFs) -> Store {
    let mut config = StoreConfig::new(
        "/home/user/.cache/packhouse",
        "/home/user/.local/state/packhouse",
    );
    config.min_free_bytes = 0;
    Store::open(Arc::new(sim.clone()), sim.clock(), config).expect("because the disk is sound")
}

fn judge(sim: &SimFs, set: &SetManifest, bytes: &[u8], reported: bool, context: &str) {
    let store = open(sim);
    let sets = store.list_sets().expect("because it can be listed");
    if sets.is_empty() {
        assert!(!reported, "{context}: a reported set is gone");
    } else {
        assert_eq!(sets, [set.key()], "{context}");
        let found = store.verify_set(set.key(), DEEP, &|_| ());
        assert!(found.is_good(), "{context}: {found:?}");
    }
    let again = take(&store, bytes);
    assert!(again.is_ok(), "{context}: {again:?}");
    let found = store.verify_set(set.key(), DEEP, &|_| ());
    assert!(found.is_good(), "{context}: {found:?}");
}

fn import_at_every_operation(faults: &[fn(u64) -> Fault], skip: Option<Skip>) {
    let home = folder();
    let source = real(config(home.path()));
    let manifest = set(&source, &[b"one", b"two two"]);
    let bytes = write(&source, &manifest);
    let base = SimFs::new(1, Arc::new(SimClock::new()));
    open(&base);
    base.settle();
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        let store = open(&sim);
        sim.restart_count();
        take(&store, &bytes).expect("because nothing is in the way");
        sim.operation_count()
    };
    assert!(count > 30, "only {count} operations were counted");
    for fault in faults {
        for at in 0..count {
            let sim = base.crash(Crash::Kept, 0);
            let store = open(&sim);
            sim.restart_count();
            sim.set_skip(skip);
            sim.set_fault(Some(fault(at)));
            let reported = take(&store, &bytes).is_ok();
            sim.set_fault(None);
            sim.set_skip(None);
            for (crash, seeds) in CRASHES {
                for seed in 100..100 + seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    judge(
                        &sim.crash(crash, seed),
                        &manifest,
                        &bytes,
                        reported,
                        &context,
                    );
                }
            }
        }
    }
}

#[test]
fn an_import_is_whole_or_absent_and_the_next_one_makes_it_whole() {
    import_at_every_operation(&[STOP, IO, FULL], None);
}

#[test]
fn an_import_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught = std::panic::catch_unwind(|| import_at_every_operation(&[STOP], Some(skip)));
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}
