//! A stager stopped and failed at every operation: a stage is whole and verified, or absent, and
//! the next one works and leaves nothing behind.

use crate::fixture::{DEEP, PAYLOADS, QUIET, World, open_store, options, publish_set, try_root};
use packhouse_sim::{Crash, Fault, SimClock, SimFs, Skip};
use packhouse_stage::{StageMiss, collect, stage};
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

/// A settled disk with a store, and a stage of it that was changed when `spoiled`.
fn disk(spoiled: bool) -> SimFs {
    let world = World::on(SimFs::new(1, Arc::new(SimClock::new())));
    world.root();
    if spoiled {
        world.outcome();
        let path = world.copy(1, PAYLOADS[1]);
        world.sim.edit(path, |bytes| bytes[0] ^= 1);
    }
    world.sim.settle();
    world.sim
}

/// Stages on a copy of the disk to count it, then once per operation with a fault there, and judges
/// each disk after each kind of crash.
fn stage_at_every_operation(spoiled: bool, faults: &[fn(u64) -> Fault], skip: Option<Skip>) {
    let base = disk(spoiled);
    let set = publish_set(&open_store(&base.crash(Crash::Kept, 0), false), &PAYLOADS).key();
    let work = |sim: &SimFs| {
        let store = open_store(sim, true);
        sim.restart_count();
        let root = try_root(sim, crate::fixture::ROOT);
        root.is_ok_and(|root| stage(&store, &root, set, &options(), QUIET).is_ok())
    };
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        assert!(work(&sim));
        sim.operation_count()
    };
    assert!(count > 20, "only {count} operations were counted");
    for fault in faults {
        for at in 0..count {
            let sim = base.crash(Crash::Kept, 0);
            let store = open_store(&sim, true);
            sim.restart_count();
            sim.set_skip(skip);
            sim.set_fault(Some(fault(at)));
            let root = try_root(&sim, crate::fixture::ROOT).expect("because it is there");
            let reported = stage(&store, &root, set, &options(), QUIET).is_ok();
            sim.set_fault(None);
            sim.set_skip(None);
            for (crash, seeds) in CRASHES {
                for seed in 100..100 + seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    judge(&sim.crash(crash, seed), reported, spoiled, &context);
                }
            }
        }
    }
}

fn judge(sim: &SimFs, reported: bool, spoiled: bool, context: &str) {
    let world = World::on(sim.clone());
    let found = world.validation(DEEP);
    match &found.miss {
        Some(StageMiss::Absent { .. }) => {
            assert!(!reported, "{context}: a reported stage is gone");
        }
        Some(miss) => panic!("{context}: half a stage is visible: {miss}"),
        // The one that was changed before may be there still.
        None if spoiled && found.generation == Some(1) => {
            assert!(!reported && !found.is_good(), "{context}: {found:?}");
        }
        None => assert!(found.is_good(), "{context}: {found:?}"),
    }
    let staged = world.stage();
    assert!(staged.is_ok(), "{context}: {staged:?}");
    assert!(world.validation(DEEP).is_good(), "{context}");
    collect(&world.root(), world.store.id(), &|_| true, false).expect("because the lock is free");
    let generation = staged.expect("because it is good").generation;
    world.assert_only(&[generation], context);
}

#[test]
fn a_first_stage_is_whole_or_absent() {
    stage_at_every_operation(false, &[STOP, IO, FULL], None);
}

#[test]
fn a_replacement_is_whole_or_the_old_one_is_still_refused() {
    stage_at_every_operation(true, &[STOP, IO], None);
}

#[test]
fn a_stage_published_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught =
            std::panic::catch_unwind(|| stage_at_every_operation(false, &[STOP], Some(skip)));
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}
