//! A prepare stopped, failed and filled up at every operation: what is there is whole and verified,
//! and the next run makes the rest and leaves no temporary file.
//!
//! One worker and a budget of one tensor make the order of operations the same each time.

use crate::prepare_world::{ROOT, STATE, World};
use packhouse_prepare::prepare::Prepared;
use packhouse_sim::{Crash, Fault, SimFs, Skip};
use packhouse_store::object::ObjectTrust;
use packhouse_sys::fs::FsErrorKind;
use std::num::NonZeroUsize;

const CRASHES: [(Crash, u64); 5] = [
    (Crash::Lost, 1),
    (Crash::Torn, 1),
    (Crash::Reordered, 2),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];

/// A disk with an opened store and no set, and what a whole prepare counts there.
fn begin() -> (World, u64, Prepared) {
    let mut world = World::new();
    world.options.threads = NonZeroUsize::MIN;
    world.options.memory_bytes = 1;
    world.store();
    world.sim.settle();
    let tried = world.on(world.sim.crash(Crash::Kept, 0));
    tried.store();
    tried.sim.restart_count();
    let prepared = tried.prepare().expect("because nothing is in the way");
    let count = tried.sim.operation_count();
    assert!(count > 80, "only {count} operations were counted");
    (world, count, prepared)
}

/// Says what is wrong with what a crash left, and with the run after it.
fn judge(sim: SimFs, world: &World, whole: &Prepared, reported: bool) -> Result<(), String> {
    let world = world.on(sim);
    let store = world.try_store(|_| {}).map_err(|error| error.to_string())?;
    let sets = store.list_sets().map_err(|error| error.to_string())?;
    if reported && sets != [whole.set] {
        return Err("the set was reported and is gone".into());
    }
    for set in sets {
        let found = world.verify_key(set);
        if !found.is_good() {
            return Err(format!("the set that is there is not good: {found:?}"));
        }
    }
    let again = world.prepare().map_err(|error| format!("again: {error}"))?;
    if again.set != whole.set {
        return Err("another set".into());
    }
    let found = world.verify_key(again.set);
    if !found.is_good() {
        return Err(format!("after the second run: {found:?}"));
    }
    for entry in store
        .read_set(again.set)
        .map_err(|error| error.to_string())?
        .entries()
    {
        store
            .object(&entry.object, entry.length, ObjectTrust::Deep)
            .map_err(|error| error.to_string())?;
    }
    let third = world
        .prepare()
        .map_err(|error| format!("a third time: {error}"))?;
    if third.cost.source_bytes > 0 || third.cost.reverified_count > 0 {
        return Err(format!("the third run reads: {:?}", third.cost));
    }
    Ok(())
}

/// Temporary files that a live process leaves; after a crash they are gc's.
fn temps(sim: &SimFs) -> usize {
    let all = sim.files(ROOT).into_iter().chain(sim.files(STATE));
    all.filter(|path| path.to_string_lossy().contains(".tmp-"))
        .count()
}

fn at_every_operation(fault: fn(u64) -> Fault, crashes: &[(Crash, u64)]) {
    let (base, count, whole) = begin();
    for at in 0..count {
        let world = base.on(base.sim.crash(Crash::Kept, 0));
        world.store();
        world.sim.restart_count();
        world.sim.set_fault(Some(fault(at)));
        let reported = world.prepare().is_ok();
        world.sim.set_fault(None);
        let is_dead = matches!(fault(at), Fault::Stop { .. });
        assert!(
            is_dead || temps(&world.sim) == 0,
            "{:?}: a file is left",
            fault(at)
        );
        for (crash, seeds) in crashes {
            for seed in 100..100 + seeds {
                let sim = world.sim.crash(*crash, seed);
                let judged = judge(sim, &world, &whole, reported);
                let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                assert_eq!(judged, Ok(()), "{context}");
            }
        }
    }
}

#[test]
fn a_stop_at_any_operation_leaves_whole_packs_and_the_next_run_makes_the_rest() {
    at_every_operation(|at| Fault::Stop { at }, &CRASHES);
}

#[test]
fn a_disk_that_fills_up_at_any_operation_is_survived() {
    at_every_operation(|at| Fault::Full { at }, &CRASHES[4..]);
}

#[test]
fn an_error_of_the_disk_at_any_operation_is_survived() {
    let io = |at| Fault::Error {
        at,
        kind: FsErrorKind::Io,
    };
    at_every_operation(io, &CRASHES[..1]);
}

/// The judge notices a file system that does not do what a sync promises.
#[test]
fn a_missing_sync_is_noticed() {
    let (base, _, whole) = begin();
    for skip in [Skip::FileSync, Skip::DirSync] {
        let world = base.on(base.sim.crash(Crash::Kept, 0));
        world.store();
        world.sim.set_skip(Some(skip));
        let reported = world.prepare().is_ok();
        assert!(reported);
        world.sim.set_skip(None);
        // Without the one, names outlive their content; without the other, nothing has a name.
        let crash = match skip {
            Skip::FileSync => Crash::Torn,
            Skip::DirSync => Crash::Lost,
        };
        let judged = judge(world.sim.crash(crash, 5), &world, &whole, reported);
        assert!(judged.is_err(), "{skip:?} was not noticed");
    }
}
