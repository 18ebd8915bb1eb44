//! The life of a stage: copied once, reused, replaced, removed; and what a reader finds.

use crate::fixture::{
    COPIED_BYTES, DEEP, PAYLOADS, QUIET, ROOT, World, digest, open_store, options, publish_set,
};
use packhouse_base::digest::{Digest, PackKey, SetKey};
use packhouse_sim::{SimClock, SimFs};
use packhouse_stage::{
    Collected, CopyError, Depth, RoomError, StageError, StageEvent, StageMiss, StageOptions,
    StageOutcome, StageProblem, UnstageError, Unstaged, Watcher, collect, find, list, open, stage,
    unstage,
};
use packhouse_store::object::{HowVerified, ObjectRefusal};
use packhouse_store::root::StoreId;
use packhouse_store::set::SetMiss;
use packhouse_sys::clock::Clock as _;
use packhouse_sys::memory::MemoryRoom;
use std::sync::{Arc, Mutex};

const COPIED: StageOutcome = StageOutcome::Copied {
    bytes: COPIED_BYTES,
};

#[test]
fn a_set_is_copied_once_and_then_reused_without_a_write() {
    let world = World::new();
    let staged = world.stage().expect("because nothing is in the way");
    assert_eq!(staged.outcome, COPIED);
    assert_eq!(
        (staged.tensor_count, staged.object_count, staged.bytes),
        (4, 3, COPIED_BYTES)
    );
    world.assert_only(&[1], "after a stage");
    world.sim.restart_count();
    for _ in 0..3 {
        assert_eq!(world.outcome(), StageOutcome::Reused);
    }
    assert_eq!(
        world.sim.operation_count(),
        0,
        "a hot stage changes nothing"
    );
    assert!(world.validation(DEEP).is_good());
    assert_eq!(world.validation(DEEP).hashed_bytes, COPIED_BYTES);
    assert_eq!(world.validation(Depth::Shallow).hashed_count, 0);
}

#[test]
fn prepare_and_stage_in_turn_copy_once() {
    let world = World::new();
    assert_eq!(world.outcome(), COPIED);
    for _ in 0..2 {
        // Publishing the set again, as each start-up sequence does, changes none of its bytes.
        assert_eq!(publish_set(&world.store, &PAYLOADS).key(), world.set);
        assert_eq!(world.outcome(), StageOutcome::Reused);
    }
}

#[test]
fn a_stager_tells_what_it_copies_and_waits_once() {
    let world = World::new();
    let told = Mutex::new(Vec::new());
    let watcher = Watcher {
        tell: &|event| told.lock().expect("because nobody panicked").push(event),
        cancel: &|| false,
    };
    let before_ns = world.sim.clock().wall_ns();
    stage(&world.store, &world.root(), world.set, &options(), watcher)
        .expect("because nothing is in the way");
    let waited_ns = world.sim.clock().wall_ns() - before_ns;
    assert!(
        (1_900_000_000..2_100_000_000).contains(&waited_ns),
        "{waited_ns}"
    );
    let told = told.into_inner().expect("because nobody panicked");
    assert_eq!(
        told.first(),
        Some(&StageEvent::Begin {
            bytes: COPIED_BYTES
        })
    );
    let copied = told.iter().map(|event| match event {
        StageEvent::Copied { bytes } => *bytes,
        StageEvent::Waits | StageEvent::Begin { .. } | StageEvent::Settle { .. } => 0,
    });
    assert_eq!(copied.sum::<u64>(), COPIED_BYTES);
    assert!(matches!(told.last(), Some(StageEvent::Settle { .. })));
}

#[test]
fn a_reader_finds_every_slot_by_pack_number_and_name() {
    let world = World::new();
    world.outcome();
    let staged = open(&world.root(), world.set).expect("because it was staged");
    for (slot, payload) in (0u64..).zip(PAYLOADS) {
        let entry = staged.find_slot(slot).expect("because the slot is filled");
        assert_eq!(entry.object, digest(payload));
        let by_name = staged.find_tensor(&format!("blk.{slot}.weight"));
        assert_eq!(by_name, Some(entry));
        let by_pack = staged.find_pack(&entry.pack).expect("because it is there");
        assert_eq!(by_pack.object, entry.object);
        let object = staged.object(entry).expect("because nobody touched it");
        assert_eq!(object.how(), HowVerified::Receipt);
        assert_eq!(
            object.file().read_small(100),
            Ok(payload.to_vec()),
            "slot {slot}"
        );
        let hashed = staged.object_hashed(entry).expect("because it is intact");
        assert_eq!(hashed.how(), HowVerified::Deep);
    }
    assert_eq!(staged.find_slot(4), None);
    assert_eq!(staged.find_tensor("blk.4.weight"), None);
    assert_eq!(staged.find_pack(&PackKey(Digest::of(b"none"))), None);
    let found = find(&world.root()).expect("because it can be listed");
    assert_eq!(found.len(), 1);
}

#[test]
fn a_set_that_is_not_staged_or_not_there_is_said_to_be() {
    let world = World::new();
    let miss = open(&world.root(), world.set).err();
    assert_eq!(miss, Some(StageMiss::Absent { set: world.set }));
    assert!(find(&world.root()).is_ok_and(|found| found.is_empty()));
    let none = SetKey(Digest::of(b"none"));
    let error = stage(&world.store, &world.root(), none, &options(), QUIET);
    assert_eq!(error, Err(StageError::Set(SetMiss::Absent { set: none })));
    assert_eq!(
        unstage(&world.root(), none),
        Err(UnstageError::Absent { set: none })
    );
}

#[test]
fn a_read_only_store_is_staged_without_a_write_to_it() {
    let world = World::new();
    let before = world.sim.files("/home/user/store");
    let store = open_store(&world.sim, true);
    let staged = stage(&store, &world.root(), world.set, &options(), QUIET);
    assert_eq!(staged.map(|staged| staged.outcome), Ok(COPIED));
    assert_eq!(world.sim.files("/home/user/store"), before);
}

#[test]
fn a_damaged_object_is_found_while_it_is_copied_and_nothing_is_published() {
    let world = World::new();
    let name = digest(PAYLOADS[1]).to_string();
    let path = format!("/home/user/store/v1/objects/{}/{name}", &name[..2]);
    world.sim.rot(&path, |bytes| bytes[4] ^= 1);
    let error = world.stage().expect_err("because a byte differs");
    let StageError::Copy(CopyError::Source(refusal)) = &error else {
        panic!("expected the object's refusal, found {error}");
    };
    assert!(
        matches!(**refusal, ObjectRefusal::Corrupt { .. }),
        "{refusal}"
    );
    assert!(error.to_string().contains("moved to"), "{error}");
    world.assert_only(&[], "after a damaged source");
    // In quarantine now, so the next time it is missing; a publish heals both.
    let error = world.stage().expect_err("because it is gone");
    assert!(error.to_string().contains(&name), "{error}");
    publish_set(&world.store, &PAYLOADS);
    assert_eq!(world.outcome(), COPIED);
}

#[test]
fn a_cancelled_stage_leaves_nothing() {
    let world = World::new();
    let watcher = Watcher {
        tell: &|_| (),
        cancel: &|| true,
    };
    let error = stage(&world.store, &world.root(), world.set, &options(), watcher);
    assert!(matches!(error, Err(StageError::Copy(CopyError::Cancelled))));
    world.assert_only(&[], "after a cancelled stage");
}

#[test]
fn short_memory_is_named_and_nothing_is_written() {
    let world = World::new();
    let short = StageOptions {
        min_free_bytes: 1 << 20,
        memory: || MemoryRoom {
            available_bytes: Some(3 << 20),
            group_bytes: Some((1 << 20) + 5),
        },
        ..options()
    };
    let root = world.root();
    let error = stage(&world.store, &root, world.set, &short, QUIET)
        .expect_err("because the group has 5 bytes left");
    let text = error.to_string();
    assert!(text.starts_with("no room for set"), "{text}");
    assert!(
        text.contains("wanted, the control group's memory has 1.0 MiB free"),
        "{text}"
    );
    assert!(matches!(
        error,
        StageError::Room {
            source: RoomError::Short { .. },
            ..
        }
    ));
    world.assert_only(&[], "after a refusal");
    // Enough, by a little more than the copies are long.
    let enough = StageOptions {
        memory: || MemoryRoom {
            available_bytes: None,
            group_bytes: Some((1 << 20) + (64 << 10)),
        },
        ..short
    };
    let staged = stage(&world.store, &root, world.set, &enough, QUIET);
    assert_eq!(staged.map(|staged| staged.outcome), Ok(COPIED));
}

#[test]
fn a_failed_stage_gives_its_room_up_when_there_is_no_other() {
    let world = World::new();
    world.outcome();
    world.sim.edit(world.copy(1, b"one"), |bytes| bytes[0] ^= 1);
    let other = StageOptions {
        // As if everything but the stage's own files were taken.
        memory: || MemoryRoom {
            available_bytes: Some(0),
            group_bytes: None,
        },
        ..options()
    };
    let error = stage(&world.store, &world.root(), world.set, &other, QUIET);
    assert!(matches!(error, Err(StageError::Room { .. })));
    world.assert_only(&[], "the failed stage was of no use");
}

#[test]
fn another_manifest_in_the_store_replaces_the_stage() {
    let world = World::new();
    world.outcome();
    // The set key does not cover the objects, so a store may give the same set others: played by a
    // manifest whose copy the stage never saw.
    let path = format!("/home/user/store/v1/sets/{}/manifest.json", world.set);
    let text = world.sim.read(&path).expect("because it is there");
    let text = String::from_utf8(text).expect("because JSON is UTF-8");
    let (from, to) = (digest(PAYLOADS[1]), digest(PAYLOADS[3]));
    let edited = text
        .replace(&from.to_string(), &to.to_string())
        .replace("\"length\":10", "\"length\":19");
    assert_ne!(text, edited);
    world.sim.replace(&path, edited.as_bytes(), 0o444);
    let StageOutcome::Replaced { bytes, why } = world.outcome() else {
        panic!("expected a replacement");
    };
    assert_eq!(bytes, 3 + 19);
    assert!(matches!(why, StageProblem::OtherManifest { .. }), "{why}");
    world.assert_only(&[2], "the older one is gone");
}

#[test]
fn unstage_removes_all_and_what_is_open_stays_readable() {
    let world = World::new();
    world.outcome();
    let staged = open(&world.root(), world.set).expect("because it was staged");
    let entry = staged.find_slot(1).expect("because it is filled");
    let object = staged.object(entry).expect("because nobody touched it");
    let removed = unstage(&world.root(), world.set);
    let (count, bytes) = (1, COPIED_BYTES);
    assert_eq!(removed, Ok(Unstaged { count, bytes }));
    world.assert_only(&[], "after unstage");
    assert_eq!(object.file().read_small(100), Ok(PAYLOADS[1].to_vec()));
    let refusal = staged.object(entry).expect_err("because it is unlinked");
    assert_eq!(refusal.reason(), "missing");
    assert_eq!(world.outcome(), COPIED);
}

#[test]
fn gc_removes_orphans_superseded_stages_and_temps_and_a_dry_run_nothing() {
    let world = World::new();
    world.outcome();
    let root = world.root();
    let old = world.path(1, "");
    // A generation that a stopped stager did not come to remove, and what killed ones leave.
    let copy = |from: &str, to: &str| {
        for path in world.sim.files(from) {
            let path = path.to_str().expect("because names are ASCII");
            let target = path.replacen(from.trim_end_matches('/'), to, 1);
            let folder = target.rsplit_once('/').map_or("", |(folder, _)| folder);
            world.sim.make_dirs(folder, 1000, 0o700);
            world.sim.replace(&target, b"x", 0o444);
        }
    };
    copy(&old, &format!("{ROOT}/{}.2", world.set));
    copy(&old, &format!("{ROOT}/.tmp-0123"));
    copy(&old, &format!("{ROOT}/{}.7", Digest::of(b"gone")));
    world.sim.replace(format!("{ROOT}/.room-77"), b"5", 0o600);
    world
        .sim
        .replace(format!("{ROOT}/notes"), b"not ours", 0o600);
    let listed = list(&root).expect("because it can be listed");
    let of_set = listed.iter().filter(|stage| stage.set == world.set);
    let known: Vec<_> = of_set
        .map(|stage| (stage.generation, stage.superseded, stage.miss.is_none()))
        .collect();
    assert_eq!(known, [(1, true, true), (2, false, false)]);
    let before = world.names();
    let keep = |set: SetKey| set == world.set;
    let dry = collect(&root, world.store.id(), &keep, true).expect("because the lock is free");
    assert_eq!(world.names(), before);
    let run = collect(&root, world.store.id(), &keep, false).expect("because the lock is free");
    let counts = |collected: &Collected| {
        let of = |unstaged: Unstaged| unstaged.count;
        (
            of(collected.orphans),
            of(collected.superseded),
            of(collected.temps),
        )
    };
    assert_eq!((counts(&dry), counts(&run)), ((1, 1, 1), (1, 1, 1)));
    assert_eq!(run.failures, Vec::<String>::new());
    let left = [format!("{}.2", world.set), "locks".into(), "notes".into()];
    assert_eq!(world.names(), left);
}

#[test]
fn who_stages_the_same_set_is_waited_for_only_so_long_and_named() {
    let world = World::new();
    let refused = Mutex::new(None);
    let watcher = Watcher {
        tell: &|event| {
            if matches!(event, StageEvent::Begin { .. }) {
                let patient = StageOptions {
                    wait_ns: 3_000_000_000,
                    ..options()
                };
                let second = stage(&world.store, &world.root(), world.set, &patient, QUIET);
                *refused.lock().expect("because nobody panicked") = Some(second);
            }
        },
        cancel: &|| false,
    };
    let first = stage(&world.store, &world.root(), world.set, &options(), watcher);
    assert_eq!(first.map(|staged| staged.outcome), Ok(COPIED));
    let refused = refused.into_inner().expect("because nobody panicked");
    let error = refused
        .expect("because the first one began")
        .expect_err("because the first one holds the lock");
    let set = world.set;
    assert_eq!(
        error.to_string(),
        format!("another process stages set {set} for more than 3 s")
    );
}

#[test]
fn gc_leaves_what_another_store_staged() {
    let world = World::new();
    world.outcome();
    let other = StoreId::parse(&"9".repeat(32)).expect("because it is 32 digits");
    let gone = |_: SetKey| false;
    let root = world.root();
    let collected = collect(&root, other, &gone, false).expect("because the lock is free");
    assert_eq!(collected, Collected::default());
    assert_eq!(world.outcome(), StageOutcome::Reused);
    let collected = collect(&root, world.store.id(), &gone, false);
    assert!(collected.is_ok_and(|collected| collected.orphans.count == 1));
    world.assert_only(&[], "the store's own gc");
}

#[test]
fn the_room_of_a_living_stager_keeps_another_out() {
    let sim = SimFs::new(3, Arc::new(SimClock::new()));
    let world = World::on(sim);
    let root = world.root();
    // While the first stager copies, its reservation keeps the second out.
    let refused = Mutex::new(None);
    let limited = StageOptions {
        memory: || MemoryRoom {
            // For the first with its receipts, not for both.
            available_bytes: Some(30 << 10),
            group_bytes: None,
        },
        ..options()
    };
    let other = publish_set(&world.store, &[b"another set"]).key();
    let watcher = Watcher {
        tell: &|event| {
            if matches!(event, StageEvent::Begin { .. }) {
                let second = stage(&world.store, &world.root(), other, &limited, QUIET);
                *refused.lock().expect("because nobody panicked") = Some(second);
            }
        },
        cancel: &|| false,
    };
    let first = stage(&world.store, &root, world.set, &limited, watcher);
    assert_eq!(first.map(|staged| staged.outcome), Ok(COPIED));
    let refused = refused.into_inner().expect("because nobody panicked");
    let error = refused
        .expect("because the first one began")
        .expect_err("because the first one has reserved the room");
    assert!(error.to_string().contains("are reserved"), "{error}");
    // Given back: now there is room.
    let second = stage(&world.store, &root, other, &limited, QUIET);
    assert!(second.is_ok(), "{second:?}");
}
