//! Preparing and dropping a model's copy, stopped and failed at every operation: the copy is whole
//! and verified, or refused, or absent; and the next one works and leaves nothing behind.

use crate::models::{Models, ONE, SHARD_BYTES, SHARDS};
use packhouse_base::digest::Digest;
use packhouse_sim::{Crash, Fault, SimFs, Skip};
use packhouse_stage::Condemned;
use packhouse_stage::models::{self, CollectedModels, ModelKey, ModelMiss};
use packhouse_sys::fs::FsErrorKind;
use std::num::NonZeroUsize;

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

/// What was done to the disk before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing.
    Nothing,
    /// A copy of another model.
    Other,
    /// A copy, one byte of which was changed.
    Spoiled,
    /// A copy that was made writable, and not written.
    Touched,
    /// A good copy.
    Good,
}

/// A settled disk.
fn disk(before: Before) -> SimFs {
    let world = Models::new();
    world.root();
    if before == Before::Other {
        world.outcome(&[ONE]);
    } else if before != Before::Nothing {
        world.outcome(&SHARDS);
        let key = ModelKey::of(&SHARD_BYTES.map(Digest::of));
        let copy = format!(
            "{}/models/{key}.1/files/two-00002-of-00002.gguf",
            crate::fixture::ROOT
        );
        match before {
            Before::Spoiled => world.sim.edit(copy, |bytes| bytes[0] ^= 1),
            Before::Touched => world.sim.set_mode(copy, 0o644),
            Before::Nothing | Before::Other | Before::Good => {}
        }
    }
    world.sim.settle();
    world.sim
}

fn prepare(world: &Models) -> bool {
    world.prepare(&SHARDS).is_ok()
}

fn drop_it(world: &Models) -> bool {
    let key = ModelKey::of(&SHARD_BYTES.map(Digest::of));
    models::drop_model(&world.root(), key, 0, &|| (), &|| false).is_ok()
}

/// Works on a copy of the disk to count it, then once per operation with a fault there, and judges
/// each disk after each kind of crash.
fn at_every_operation(
    before: Before,
    work: fn(&Models) -> bool,
    faults: &[fn(u64) -> Fault],
    skip: Option<Skip>,
    judge: fn(&SimFs, Before, bool, &str),
) {
    let base = disk(before);
    let count = {
        let world = Models::on(base.crash(Crash::Kept, 0));
        world.sim.restart_count();
        assert!(work(&world));
        world.sim.operation_count()
    };
    assert!(count > 5, "only {count} operations were counted");
    for fault in faults {
        for at in 0..count {
            let world = Models::on(base.crash(Crash::Kept, 0));
            world.sim.restart_count();
            world.sim.set_skip(skip);
            world.sim.set_fault(Some(fault(at)));
            let reported = work(&world);
            world.sim.set_fault(None);
            world.sim.set_skip(None);
            for (crash, seeds) in CRASHES {
                for seed in 100..100 + seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    let sim = world.sim.crash(crash, seed);
                    judge(&sim, before, reported, &context);
                }
            }
        }
    }
}

fn judge_prepared(sim: &SimFs, before: Before, reported: bool, context: &str) {
    let world = Models::on(sim.clone());
    match world.find(&SHARDS, None) {
        Ok(found) => {
            for (file, bytes) in found.files.iter().zip(SHARD_BYTES) {
                let copy = world.sim.read(&file.path);
                assert_eq!(copy.as_deref(), Some(bytes), "{context}");
            }
        }
        Err(miss @ ModelMiss::Absent { .. }) => {
            assert!(!reported, "{context}: a reported copy is gone: {miss}");
        }
        Err(miss) => {
            let was_bad = [Before::Spoiled, Before::Touched].contains(&before);
            assert!(
                was_bad && !reported,
                "{context}: half a copy is visible: {miss}"
            );
        }
    }
    if [Before::Nothing, Before::Other, Before::Good].contains(&before) {
        let listed = models::list(&world.root()).expect("because it can be listed");
        let bad = listed.iter().find(|copy| copy.problem.is_some());
        assert_eq!(bad, None, "{context}: half a copy is visible");
    }
    let prepared = world.prepare(&SHARDS);
    assert!(prepared.is_ok(), "{context}: {prepared:?}");
    assert!(world.verify(&SHARDS).is_good(), "{context}");
    let collect = || models::collect(&world.root(), false).expect("because the lock is free");
    // What a dead writer of a record left, at most.
    assert!(collect().record_count < 2, "{context}");
    assert_eq!(collect(), CollectedModels::default(), "{context}");
    let (names, others) = (world.names(), usize::from(before == Before::Other));
    assert_eq!(names.len(), 1 + others, "{context}: {names:?}");
}

fn judge_dropped(sim: &SimFs, before: Before, reported: bool, context: &str) {
    let world = Models::on(sim.clone());
    match world.find(&SHARDS, None) {
        Ok(_) => assert!(!reported, "{context}: a dropped copy is there"),
        Err(ModelMiss::Absent { .. }) => {}
        Err(miss) => panic!("{context}: half a copy is visible: {miss}"),
    }
    judge_prepared(sim, before, false, context);
}

#[test]
fn a_first_copy_is_whole_or_absent() {
    at_every_operation(
        Before::Nothing,
        prepare,
        &[STOP, IO, FULL],
        None,
        judge_prepared,
    );
}

#[test]
fn a_replacement_is_whole_or_the_old_one_is_still_refused() {
    at_every_operation(Before::Spoiled, prepare, &[STOP, IO], None, judge_prepared);
}

#[test]
fn a_copy_that_is_hashed_anew_is_whole_refused_or_absent() {
    at_every_operation(
        Before::Touched,
        prepare,
        &[STOP, IO, FULL],
        None,
        judge_prepared,
    );
}

#[test]
fn a_drop_leaves_the_copy_whole_or_nothing() {
    at_every_operation(Before::Good, drop_it, &[STOP, IO], None, judge_dropped);
}

/// Verifies a copy whose memory rotted, stopped and failed at every operation: what is reported to
/// be out of service stays so, and whatever happened, the next preparation has the right bytes.
fn condemn_at_every_operation(skip: Option<Skip>) {
    let base = disk(Before::Good);
    let key = ModelKey::of(&SHARD_BYTES.map(Digest::of));
    let copy = format!(
        "{}/models/{key}.1/files/two-00001-of-00002.gguf",
        crate::fixture::ROOT
    );
    base.rot(copy, |bytes| bytes[0] ^= 1);
    let verify = |world: &Models| {
        let found = models::verify(&world.root(), &[key], NonZeroUsize::MIN, &|_| ());
        found.is_ok_and(|found| found[0].condemned == Condemned::Yes)
    };
    let count = {
        let world = Models::on(base.crash(Crash::Kept, 0));
        world.sim.restart_count();
        assert!(verify(&world));
        world.sim.operation_count()
    };
    assert!(count >= 2, "only {count} operations were counted");
    for fault in [STOP, IO] {
        for at in 0..=count {
            let world = Models::on(base.crash(Crash::Kept, 0));
            world.sim.restart_count();
            world.sim.set_skip(skip);
            world.sim.set_fault(Some(fault(at)));
            let reported = verify(&world);
            world.sim.set_fault(None);
            world.sim.set_skip(None);
            for (crash, seeds) in CRASHES {
                for seed in 100..100 + seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    let world = Models::on(world.sim.crash(crash, seed));
                    let miss = world.find(&SHARDS, None).map(|_| ());
                    let reason = miss.map_err(|miss| miss.reason());
                    let may_be_used = reason == Ok(()) && !reported;
                    assert!(may_be_used || reason == Err("condemned"), "{context}");
                    verify(&world);
                    let prepared = world.prepare(&SHARDS);
                    assert!(prepared.is_ok(), "{context}: {prepared:?}");
                    assert!(world.verify(&SHARDS).is_good(), "{context}");
                }
            }
        }
    }
}

#[test]
fn a_copy_that_was_found_bad_stays_out_of_service_after_any_crash() {
    condemn_at_every_operation(None);
    let caught = std::panic::catch_unwind(|| condemn_at_every_operation(Some(Skip::DirSync)));
    assert!(
        caught.is_err(),
        "a rename that is not synced went unnoticed"
    );
}

#[test]
fn a_copy_published_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught = std::panic::catch_unwind(|| {
            at_every_operation(Before::Other, prepare, &[STOP], Some(skip), judge_prepared);
        });
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}
