//! Stages in turn: who waits, which generation follows, and what names are left alone.

use crate::fixture::{COPIED_BYTES, ROOT, World, options};
use packhouse_base::digest::SetKey;
use packhouse_stage::{
    CopyError, StageError, StageEvent, StageOptions, StageOutcome, Watcher, collect, stage,
    strangers,
};
use packhouse_sys::clock::Clock as _;
use packhouse_sys::fs::{Fs as _, LockKind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const COPIED: StageOutcome = StageOutcome::Copied {
    bytes: COPIED_BYTES,
};

#[test]
fn who_waits_for_another_stager_can_be_stopped() {
    let world = World::new();
    let stopped = Mutex::new(None);
    let watcher = Watcher {
        tell: &|event| {
            if matches!(event, StageEvent::Begin { .. }) {
                let asked = AtomicUsize::new(0);
                let patient = StageOptions {
                    wait_ns: 600_000_000_000,
                    ..options()
                };
                // As a signal that comes a while after the wait began.
                let impatient = Watcher {
                    tell: &|_| (),
                    cancel: &|| asked.fetch_add(1, Ordering::Relaxed) >= 3,
                };
                let began_ns = world.sim.clock().steady_ns();
                let root = world.root();
                let second = stage(&world.store, &root, world.set, &patient, impatient);
                let waited_ns = world.sim.clock().steady_ns() - began_ns;
                *stopped.lock().expect("because nobody panicked") = Some((second, waited_ns));
            }
        },
        cancel: &|| false,
    };
    let first = stage(&world.store, &world.root(), world.set, &options(), watcher);
    assert_eq!(first.map(|staged| staged.outcome), Ok(COPIED));
    let stopped = stopped.into_inner().expect("because nobody panicked");
    let (second, waited_ns) = stopped.expect("because the first one began");
    assert_eq!(second, Err(StageError::Copy(CopyError::Cancelled)));
    assert!(waited_ns < 2_000_000_000, "{waited_ns} ns");
}

/// A stage's folder with nothing in it, which is of no use.
fn make_empty(world: &World, generation: u64) {
    let path = format!("{ROOT}/{}.{generation}", world.set);
    world.sim.make_dirs(path, 1000, 0o700);
}

#[test]
fn the_last_generation_is_no_end() {
    let world = World::new();
    world.root();
    for generation in [u64::MAX, u64::MAX - 1] {
        make_empty(&world, generation);
        let outcome = world.outcome();
        assert!(
            matches!(outcome, StageOutcome::Replaced { .. }),
            "{outcome:?}"
        );
        assert_eq!(world.outcome(), StageOutcome::Reused);
        let first = if generation == u64::MAX { 1 } else { u64::MAX };
        world.assert_only(&[first], "replaced");
    }
}

#[test]
fn an_older_generation_is_removed_under_the_set_s_lock_only() {
    let world = World::new();
    world.outcome();
    let older = |generation| {
        make_empty(&world, generation);
    };
    // A generation that a stopped stager did not come to remove: made anew as 3, then 1 and 2.
    older(2);
    assert!(matches!(world.outcome(), StageOutcome::Replaced { .. }));
    older(2);
    let held = world.sim.root().expect("because the disk is there");
    let held = ["tmp", "stage"].iter().fold(held, |dir, name| {
        dir.open_dir(name).expect("because it is there")
    });
    let file = held
        .open_file_writable("locks")
        .expect("because stagers lock it");
    let held = file.try_lock(LockKind::Exclusive, 1, 1 << 62);
    assert_eq!(held, Ok(true), "every set's byte");
    assert_eq!(world.outcome(), StageOutcome::Reused);
    world.assert_only(&[2, 3], "another process holds the set's lock");
    drop(file);
    assert_eq!(world.outcome(), StageOutcome::Reused);
    world.assert_only(&[3], "nobody holds it");
}

#[test]
fn names_that_are_no_stage_s_are_told_and_left_alone() {
    let world = World::new();
    world.outcome();
    let strange = format!("{}.18446744073709551616", world.set);
    world
        .sim
        .make_dirs(format!("{ROOT}/{strange}"), 1000, 0o700);
    world.sim.replace(format!("{ROOT}/notes"), b"mine", 0o600);
    let root = world.root();
    let all = [strange, "notes".to_owned()];
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let told = strangers(&root).expect("because it can be listed");
    assert_eq!(sorted(told), all);
    let gone = |_: SetKey| false;
    let collected = collect(&root, world.store.id(), &gone, false);
    let collected = collected.expect("because the lock is free");
    assert_eq!(sorted(collected.strangers), all);
    assert_eq!(world.names(), [&all[0], "locks", "notes"]);
}
