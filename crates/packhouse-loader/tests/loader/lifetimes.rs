//! Loads that end early, are cancelled, or come one upon the other.

use crate::fake::{FakeEngine, PLAIN};
use crate::world::{Model, SMALL, Spec, World, until};
use packhouse_loader::Loader;
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::map::Region;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// 16 tensors of 1.1 MiB.
pub(crate) const MANY: &[Spec] = &[
    ("blk.0.w", "Q8_0", &[256, 4096]),
    ("blk.1.w", "Q8_0", &[256, 4096]),
    ("blk.2.w", "Q8_0", &[256, 4096]),
    ("blk.3.w", "Q8_0", &[256, 4096]),
    ("blk.4.w", "Q8_0", &[256, 4096]),
    ("blk.5.w", "Q8_0", &[256, 4096]),
    ("blk.6.w", "Q8_0", &[256, 4096]),
    ("blk.7.w", "Q8_0", &[256, 4096]),
    ("blk.8.w", "Q8_0", &[256, 4096]),
    ("blk.9.w", "Q8_0", &[256, 4096]),
    ("blk.10.w", "Q8_0", &[256, 4096]),
    ("blk.11.w", "Q8_0", &[256, 4096]),
    ("blk.12.w", "Q8_0", &[256, 4096]),
    ("blk.13.w", "Q8_0", &[256, 4096]),
    ("blk.14.w", "Q8_0", &[256, 4096]),
    ("blk.15.w", "Q8_0", &[256, 4096]),
];

/// Closes loads at many points of their fills. The host may take the processor from this thread, so
/// one attempt of many has to be in time; a close that waits for its fill is late in all of them.
#[test]
fn close_returns_soon_and_no_engine_is_called_after_it() {
    let world = World::new();
    let model = world.model("a.gguf", MANY, 1);
    for (wait_ms, stalls) in [(0, false), (5, false), (20, false), (60, false), (20, true)] {
        let mut attempts = (0..40).map(|_| close_once(&world, &model, wait_ms, stalls));
        let in_time = attempts.any(|took| took < Duration::from_millis(200));
        assert!(
            in_time,
            "close takes more than 200 ms {wait_ms} ms into a fill"
        );
    }
    world.load(PLAIN, &[&model]).assert_fill("done");
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

/// How long a close takes some time after a load was served. With `stalls` the fill's thread gets
/// no time until the close has returned, as on a busy host.
fn close_once(world: &World, model: &Model, wait_ms: u64, stalls: bool) -> Duration {
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[model]);
    world.clock.stall_fills(stalls);
    run.serve_all(&[model]);
    std::thread::sleep(Duration::from_millis(wait_ms));
    let started = Instant::now();
    run.load.close();
    let took = started.elapsed();
    // The load has said its last word by now.
    let reports = session.engine.heard().reports;
    let state = &reports.last().expect("because the load was served")["fill"]["state"];
    assert!(
        state == "cancelled" || (state == "done" && !stalls),
        "{state}"
    );
    session.engine.close();
    world.clock.stall_fills(false);
    assert_released(&run.regions);
    drop(run);
    // The fill's thread is gone when nobody else has the engine.
    let engine = session.engine;
    drop(session.loader);
    until("the fill ends", || Arc::strong_count(&engine) == 1);
    assert_eq!(engine.heard().late, [""; 0], "after {wait_ms} ms");
    took
}

/// Asserts that a closed load lets its regions go, at once or at the next chunk of its fill.
fn assert_released(regions: &[Arc<Region>]) {
    until("the closed load lets its regions go", || {
        regions.iter().all(|region| Arc::strong_count(region) == 1)
    });
}

#[test]
fn a_cancelled_fill_says_how_far_it_came_and_the_next_start_stores_the_rest() {
    let world = World::new();
    let model = world.model("a.gguf", MANY, 1);
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[&model]);
    world.clock.stall_fills(true);
    run.serve_all(&[&model]);
    // The fill can't read this one before the load is closed, however late this thread is.
    let held = run.regions[8].clone();
    let outcome = held.with_private(|_| {
        world.clock.stall_fills(false);
        until("a pack is stored", || pack_count(&world) > 0);
        run.load.close();
        run.outcome()
    });
    let outcome = outcome.expect("because it is private memory");
    drop(held);
    outcome.assert_fill("cancelled");
    let stored = outcome.report["fill"]["stored"]["tensors"]
        .as_u64()
        .expect("it is counted");
    assert!((0..16).contains(&stored), "{stored}");
    let says = format!("stored {stored} of 16 packs ");
    assert!(outcome.lines[1].1.starts_with(&says), "{:?}", outcome.lines);
    // On a busy host the pack that was being written then is stored all the same.
    assert_released(&run.regions);
    let next = world.load(PLAIN, &[&model]);
    next.assert_fill("done");
    let mapped = next.counts()[0];
    assert!((stored..=stored + 1).contains(&mapped), "{stored} {mapped}");
    assert_eq!(next.counts(), [mapped, 0, 16 - mapped, 0]);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

/// The second load's plan waits behind the first one's fill; its memory must not.
#[test]
fn a_load_that_is_closed_while_its_plan_is_queued_frees_its_regions_and_says_so() {
    let world = World::new();
    let (model, other) = (
        world.model("a.gguf", MANY, 1),
        world.model("b.gguf", SMALL, 2),
    );
    let session = world.session(PLAIN);
    world.clock.stall_fills(true);
    let mut first = session.begin(0, &[&model]);
    first.serve_all(&[&model]);
    let mut second = session.begin(1, &[&other]);
    second.serve_all(&[&other]);
    second.load.close();
    for region in &second.regions {
        assert_eq!(Arc::strong_count(region), 1, "a closed load holds a region");
    }
    assert_eq!(pack_count(&world), 0, "the first fill was not held");
    second.outcome().assert_fill("cancelled");
    world.clock.stall_fills(false);
    first.outcome().assert_fill("done");
    first.load.close();
    session.load(2, &[&other]).assert_fill("done");
    session.load(3, &[&other]).assert_all_mapped(&[&other]);
}

#[test]
fn a_load_that_never_gets_all_its_tensors_stores_nothing_and_holds_nothing() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[&model]);
    run.serve(&model, 0);
    run.serve(&model, 1);
    run.load.close();
    session.engine.close();
    let regions = std::mem::take(&mut run.regions);
    drop(run);
    assert!(regions.iter().all(|region| Arc::strong_count(region) == 1));
    assert_eq!(pack_count(&world), 0);
    assert_eq!(session.engine.heard().late, [""; 0]);
    world.load(PLAIN, &[&model]).assert_fill("done");
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

/// Engines may announce and serve tensor by tensor: each time all announced ones are served a plan
/// is queued.
#[test]
fn tensors_announced_one_by_one_are_all_stored_and_a_close_ends_them_all() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[]);
    for index in 0..4 {
        run.load.expect();
        run.serve(&model, index);
    }
    until("all is stored", || pack_count(&world) == 4);
    run.load.close();
    session.engine.close();
    assert!(
        run.regions
            .iter()
            .all(|region| Arc::strong_count(region) == 1)
    );
    assert_eq!(session.engine.heard().late, [""; 0]);
    assert_eq!(world.load(PLAIN, &[&model]).counts(), [4, 0, 0, 0]);
}

#[test]
fn loaders_at_once_on_an_empty_store_all_end_well_with_one_copy_of_each_object() {
    let world = World::new();
    let model = world.model("a.gguf", MANY, 1);
    let outcomes = std::thread::scope(|scope| {
        let load = || world.load(PLAIN, &[&model]);
        let threads = [scope.spawn(load), scope.spawn(load), scope.spawn(load)];
        threads.map(|thread| thread.join().expect("because no load panics"))
    });
    for outcome in &outcomes {
        outcome.assert_fill("done");
        assert_eq!(outcome.warnings(), [""; 0]);
    }
    // What two of them made at the same time has one name all the same.
    assert_eq!(
        crate::processes::names(&world.root().join("v1/objects")).len(),
        16
    );
    assert_eq!(pack_count(&world), 16);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

/// With the system's clock nothing is believed before its ctime is 100 ms old, or 2 s where it has
/// whole seconds. The fill waits for that with its objects; a source that was younger when it was
/// hashed is hashed once more.
#[test]
fn by_the_real_clock_what_is_young_is_hashed_again_and_then_believed() {
    let mut attempts = (0..200).map(|_| young_and_then_believed());
    assert!(attempts.any(|was_young| was_young), "each look was late");
}

/// False where the host took so long that the first look may have found an old source.
fn young_and_then_believed() -> bool {
    let world = World::new();
    // What a store takes to be made is no part of the source's age.
    world.store();
    let model = world.model("a.gguf", SMALL, 1);
    for (hits, hashes) in [(false, true), (true, true), (true, false)] {
        let engine = FakeEngine::new(PLAIN);
        let settings = world.settings.clone();
        let loader = Loader::with_clock(engine.clone(), settings, Arc::new(RealClock));
        let session = crate::world::Session { loader, engine };
        let mut run = session.begin(0, &[&model]);
        let changed_ns = if hits { i64::MAX } else { touched_ns(&model) };
        run.serve(&model, 0);
        if RealClock.wall_ns().saturating_sub(changed_ns) >= 100_000_000 {
            return false;
        }
        (1..model.tensors.len()).for_each(|index| run.serve(&model, index));
        let outcome = run.outcome();
        run.load.close();
        outcome.assert_fill("done");
        if hits {
            outcome.assert_all_mapped(&[&model]);
            assert_eq!(outcome.reason("verified", "receipt"), 4);
        }
        assert_eq!(outcome.number("source_bytes_hashed") > 0, hashes);
    }
    true
}

/// Gives a model's file a new ctime, and says which.
fn touched_ns(model: &Model) -> i64 {
    let metadata = std::fs::metadata(&model.path).expect("because it was written");
    let touched = std::fs::set_permissions(&model.path, metadata.permissions());
    touched.expect("because it is ours");
    let metadata = std::fs::metadata(&model.path).expect("because it was written");
    metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec()
}

fn pack_count(world: &World) -> usize {
    crate::processes::names(&world.root().join("v1/packs")).len()
}

#[test]
fn a_model_that_the_engine_unmaps_after_its_load_is_stored_all_the_same() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let path = model.path.clone();
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[&model]);
    run.serve_all(&[&model]);
    drop(model);
    run.outcome().assert_fill("done");
    run.load.close();
    let model = Model::open(&path);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}
