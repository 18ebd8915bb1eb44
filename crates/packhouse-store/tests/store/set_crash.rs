//! Sets, source ledgers and gc stopped and failed at every operation: a set is whole or absent, a
//! ledger never loses what it had nor says what it never learnt, a gc harms nothing that stays.

use crate::fixture::{DAY_NS, container, identity, manifest};
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_sim::{Crash, Fault, SimClock, SimFs, Skip};
use packhouse_store::gc::{GcOptions, GcReport};
use packhouse_store::ledger::{SourceLedger, SourceMiss, SourceRange};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_store::state::Recorded;
use packhouse_store::verify::Depth;
use packhouse_sys::fs::FsErrorKind;
use packhouse_sys::stat::{FsId, StatIdentity};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

const ROOT: &str = "/home/user/.cache/packhouse";
const STATE: &str = "/home/user/.local/state/packhouse";
const DEEP: Depth = Depth::Deep {
    threads: NonZeroUsize::MIN,
};
const CRASHES: [(Crash, u64); 5] = [
    (Crash::Lost, 1),
    (Crash::Torn, 2),
    (Crash::Reordered, 4),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];

fn open(sim: &SimFs) -> Store {
    let config = StoreConfig::new(ROOT, STATE);
    Store::open(Arc::new(sim.clone()), sim.clock(), config).expect("because the disk is sound")
}

/// A settled disk with a store that `fill` has worked on.
fn disk(fill: impl Fn(&SimFs, &Store)) -> SimFs {
    let sim = SimFs::new(1, Arc::new(SimClock::new()));
    fill(&sim, &open(&sim));
    sim.settle();
    sim.restart_count();
    sim
}

fn publish(store: &Store, slot: u64, payload: &[u8]) -> ManifestEntry {
    let length = payload.len() as u64;
    let room = store.reserve(length, 0).expect("because there is room");
    let object = store
        .publish(&room, payload, PublishOptions::default(), &|| false)
        .expect("because nothing is in the way");
    let record = PackRecord {
        identity: identity(payload),
        object: object.digest(),
        length,
        sample: SampleGeometry {
            unit_rows: 1,
            row_bytes: length,
            row_count: 1,
        },
    };
    store
        .publish_pack(&record)
        .expect("because its object is there");
    ManifestEntry {
        slot,
        tensor: format!("t{slot}"),
        pack: record.key(),
        object: record.object,
        length,
    }
}

fn two_tensors(store: &Store) -> SetManifest {
    let entries = vec![publish(store, 0, b"one"), publish(store, 4, b"two two")];
    manifest("identity", entries)
}

/// Runs `work` once on a copy of the disk to count it, then once per operation with a fault there,
/// and hands each disk to `judge` after each kind of crash.
fn at_every_operation<R>(
    base: &SimFs,
    faults: &[fn(u64) -> Fault],
    skip: Option<Skip>,
    work: impl Fn(&Store) -> R,
    judge: impl Fn(&SimFs, &R, &str),
) {
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        let store = open(&sim);
        sim.restart_count();
        work(&store);
        sim.operation_count()
    };
    assert!(count >= 4, "only {count} operations were counted");
    for fault in faults {
        for at in 0..count {
            let sim = base.crash(Crash::Kept, 0);
            let store = open(&sim);
            sim.restart_count();
            sim.set_skip(skip);
            sim.set_fault(Some(fault(at)));
            let result = work(&store);
            assert!(
                sim.operation_count() > at,
                "operation {at} was never reached"
            );
            sim.set_fault(None);
            sim.set_skip(None);
            for (crash, seeds) in CRASHES {
                // Other seeds than the disk's own copy has, or random names would repeat.
                for seed in 100..100 + seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    judge(&sim.crash(crash, seed), &result, &context);
                }
            }
        }
    }
}

const STOP: fn(u64) -> Fault = |at| Fault::Stop { at };
const IO: fn(u64) -> Fault = |at| Fault::Error {
    at,
    kind: FsErrorKind::Io,
};
const FULL: fn(u64) -> Fault = |at| Fault::Full { at };

/// Publishes a set with every fault, and with syncs that lie when `skip` says so.
fn publish_at_every_operation(faults: &[fn(u64) -> Fault], skip: Option<Skip>) {
    let base = disk(|_, store| {
        two_tensors(store);
    });
    let set = two_tensors(&open(&base.crash(Crash::Kept, 0)));
    at_every_operation(
        &base,
        faults,
        skip,
        |store| store.publish_set(&set, &container("m.gguf")).is_ok(),
        |sim, reported, context| {
            let store = open(sim);
            let sets = store.list_sets().expect("because it can be listed");
            if sets.is_empty() {
                assert!(!reported, "{context}: a reported set is gone");
            } else {
                assert_eq!(sets, [set.key()], "{context}");
                let found = store.verify_set(set.key(), DEEP, &|_| ());
                assert!(found.is_good(), "{context}: {found:?}");
            }
            let again = store.publish_set(&set, &container("m.gguf"));
            assert!(again.is_ok(), "{context}: {again:?}");
            let found = store.verify_set(set.key(), DEEP, &|_| ());
            assert!(found.is_good(), "{context}: {found:?}");
        },
    );
}

#[test]
fn a_set_is_whole_or_absent_and_the_next_publish_makes_it_whole() {
    publish_at_every_operation(&[STOP, IO, FULL], None);
}

#[test]
fn a_set_published_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught = std::panic::catch_unwind(|| publish_at_every_operation(&[STOP], Some(skip)));
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}

fn stat() -> StatIdentity {
    StatIdentity {
        file_system: FsId::Device(3),
        inode: 42,
        generation: None,
        size: 1000,
        mtime_ns: 5,
        ctime_ns: 6,
        uid: 1000,
        mode: 0o644,
    }
}

fn ledger(offsets: std::ops::Range<u64>) -> SourceLedger {
    let tensors: BTreeMap<_, _> = offsets
        .map(|offset| {
            let range = SourceRange { offset, length: 1 };
            (range, TensorDigest(Digest::of(&offset.to_le_bytes())))
        })
        .collect();
    SourceLedger::new(stat(), Digest::of(b"directory"), tensors)
}

const LONG_AFTER_NS: i64 = 1_000_000_000_000;

/// Extends a ledger of so many segments by one entry, with every fault.
fn extend_at_every_operation(segments: u64) {
    let base = disk(|_, store| {
        let sources = store.sources().expect("because state is there");
        for offset in 0..segments {
            let part = ledger(offset..offset + 1);
            sources
                .extend(&part, LONG_AFTER_NS)
                .expect("because nothing is in the way");
        }
    });
    let extend = |store: &Store| {
        let sources = store.sources().expect("because state is there");
        let learnt = ledger(segments..segments + 1);
        sources.extend(&learnt, LONG_AFTER_NS)
    };
    at_every_operation(
        &base,
        &[STOP, IO, FULL],
        None,
        extend,
        |sim, reported, context| {
            let store = open(sim);
            let sources = store.sources().expect("because state is there");
            let (before, after) = (ledger(0..segments), ledger(0..segments + 1));
            let reported = reported.is_ok();
            match sources.lookup(&stat()) {
                Ok(found) if found.ledger == after => {}
                Ok(found) => {
                    assert_eq!(found.ledger, before, "{context}");
                    assert!(!reported, "{context}: a reported entry is lost");
                }
                Err(SourceMiss::Absent { .. }) if segments == 0 && !reported => {}
                Err(SourceMiss::Refused(_)) if segments == 0 && !reported => {}
                Err(miss) => panic!("{context}: {miss}"),
            }
            assert_eq!(extend(&store), Ok(Recorded::Written), "{context}");
            let found = sources.lookup(&stat()).expect("because it was extended");
            assert_eq!((found.ledger, found.refused), (after, vec![]), "{context}");
        },
    );
}

#[test]
fn a_ledger_loses_nothing_it_had_at_any_stop_of_its_first_or_a_later_segment() {
    extend_at_every_operation(0);
    extend_at_every_operation(2);
}

#[test]
fn a_ledger_loses_nothing_it_had_at_any_stop_of_a_merge() {
    extend_at_every_operation(8);
}

#[test]
fn a_gc_that_stops_anywhere_harms_nothing_that_stays_and_the_next_one_finishes() {
    let sets = |store: &Store| {
        let shared = publish(store, 0, b"shared");
        let kept = manifest("kept", vec![shared.clone(), publish(store, 1, b"kept")]);
        let gone = manifest("gone", vec![shared, publish(store, 1, b"gone")]);
        (kept, gone)
    };
    let base = disk(|sim, store| {
        let (kept, gone) = sets(store);
        for set in [&kept, &gone] {
            store
                .publish_set(set, &container("m.gguf"))
                .expect("nothing is in the way");
        }
        store.pin("keep", kept.key()).expect("because it is there");
        sim.clock().advance_ns(20 * DAY_NS);
    });
    let (kept, gone) = sets(&open(&base.crash(Crash::Kept, 0)));
    let gc = |store: &Store| -> Option<GcReport> {
        let options = GcOptions {
            shared: true,
            ..GcOptions::default()
        };
        store
            .gc(&options)
            .ok()
            .filter(|report| report.failures.is_empty())
    };
    at_every_operation(&base, &[STOP, IO], None, gc, |sim, _, context| {
        let store = open(sim);
        let found = store.verify_set(kept.key(), DEEP, &|_| ());
        assert!(found.is_good(), "{context}: {found:?}");
        // Removing a name changes ctime, so that what a crash brings back is young again.
        sim.clock().advance_ns(20 * DAY_NS);
        assert!(gc(&store).is_some(), "{context}: the next gc fails");
        let sets = store.list_sets().expect("because it can be listed");
        assert_eq!(sets, [kept.key()], "{context}: {}", gone.key());
        assert_eq!(
            sim.files(format!("{ROOT}/v1/objects")).len(),
            2,
            "{context}"
        );
        assert_eq!(sim.files(format!("{ROOT}/v1/packs")).len(), 2, "{context}");
        let quarantine = sim.files(format!("{ROOT}/v1/quarantine"));
        assert!(quarantine.is_empty(), "{context}: {quarantine:?}");
        let found = store.verify_set(kept.key(), DEEP, &|_| ());
        assert!(found.is_good(), "{context}: {found:?}");
    });
}
