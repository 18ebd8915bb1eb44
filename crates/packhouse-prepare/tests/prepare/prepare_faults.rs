//! What goes wrong while a set is made: a source that changes, other processes, damage, packers
//! that lie, signals. Each has its own words, and the next run converges.

use crate::prepare_world::{Listener, MODEL, ROOT, STATE, World, counts, model_bytes};
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_prepare::model::{Model, ModelError};
use packhouse_prepare::prepare::{PrepareError, Prepared, Quiet, prepare};
use packhouse_sim::{Crash, Fault, SimFs};
use packhouse_store::ledger::SourceMiss;
use packhouse_store::object::ObjectTrust;
use packhouse_store::pack::PackRefusal;
use packhouse_store::set::SetOutcome;
use packhouse_sys::fs::FsErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn object_path(world: &World, prepared: &Prepared, slot: u64) -> PathBuf {
    let manifest = world
        .store()
        .read_set(prepared.set)
        .expect("because it is there");
    let entry = manifest.entries().iter().find(|entry| entry.slot == slot);
    let name = entry
        .expect("because tests name slots of the set")
        .object
        .to_string();
    PathBuf::from(format!("{ROOT}/v1/objects/{}/{name}", &name[..2]))
}

fn pack_path(world: &World, prepared: &Prepared, slot: u64) -> PathBuf {
    let manifest = world
        .store()
        .read_set(prepared.set)
        .expect("because it is there");
    let entry = manifest.entries().iter().find(|entry| entry.slot == slot);
    let name = entry
        .expect("because tests name slots of the set")
        .pack
        .to_string();
    PathBuf::from(format!("{ROOT}/v1/packs/{}/{name}", &name[..2]))
}

fn temps(sim: &SimFs) -> Vec<PathBuf> {
    let all = sim.files(ROOT).into_iter().chain(sim.files(STATE));
    all.filter(|path| path.to_string_lossy().contains(".tmp-"))
        .collect()
}

/// A world whose model changes while its first tensor is packed.
fn changing(change: impl Fn(&SimFs) + Send + Sync + 'static) -> World {
    let mut world = World::new();
    let (sim, once) = (world.sim.clone(), AtomicBool::new(false));
    world.hook = Some(Arc::new(move |_| {
        if !once.swap(true, Ordering::Relaxed) {
            change(&sim);
        }
    }));
    world
}

#[test]
fn a_source_that_changes_while_it_is_packed_makes_no_set_and_no_ledger() {
    let changes: [fn(&SimFs); 2] = [
        |sim| {
            sim.edit(MODEL, |bytes| {
                *bytes.last_mut().expect("because it has bytes") ^= 1
            })
        },
        |sim| sim.set_mode(MODEL, 0o600),
    ];
    for change in changes {
        let world = changing(change);
        let error = world.prepare().expect_err("because the model changed");
        let said = error.to_string();
        assert!(
            matches!(error, PrepareError::Model(ModelError::Changed { .. })),
            "{said}"
        );
        let start = format!("{MODEL} changed while it was read: its ");
        assert!(said.starts_with(&start), "{said}");
        let store = world.store();
        assert_eq!(store.list_sets(), Ok(Vec::new()));
        let model = world.open_model(&[MODEL]).expect("because it is sound");
        let sources = store.sources().expect("because there is a state");
        let found = sources.lookup(model.files()[0].identity());
        assert!(matches!(found, Err(SourceMiss::Absent { .. })), "{found:?}");
        // What was published is true to the bytes that were read; the next run is of the new file.
        let prepared = world.prepare().expect("because it changes no more");
        assert!(world.verify(&prepared).is_good());
        assert!(temps(&world.sim).is_empty());
    }
}

#[test]
fn a_source_that_shrinks_is_named_with_its_end() {
    let world = changing(|sim| sim.edit(MODEL, |bytes| bytes.truncate(1000)));
    let mut small = world.clone();
    // So small that the later tensors are read after the change.
    small.options.memory_bytes = 1;
    let said = small
        .prepare()
        .expect_err("because the model shrank")
        .to_string();
    assert!(said.starts_with(MODEL), "{said}");
    assert!(
        said.contains("ends at byte 1000") || said.contains("changed while"),
        "{said}"
    );
    assert_eq!(world.store().list_sets(), Ok(Vec::new()));
}

#[test]
fn a_model_that_changes_between_opening_and_packing_is_refused() {
    let world = World::new();
    let model = world.open_model(&[MODEL]).expect("because it is sound");
    let order = world.order(&model);
    world.sim.edit(MODEL, |bytes| bytes[0] = b'g');
    let store = world.store();
    let error = prepare(&store, &model, &order, &world.options, &Quiet, &|| false);
    let said = error.expect_err("because it changed").to_string();
    assert!(said.contains("changed while it was read"), "{said}");
}

#[test]
fn files_that_are_no_model_are_refused_by_name() {
    let world = World::new();
    let whole = model_bytes(0);
    let cases: [(&[u8], &str); 3] = [
        (b"", "magic"),
        (&whole[..whole.len() - 1], "blk.2.up.weight"),
        (b"GGUF", "version"),
    ];
    for (bytes, reason) in cases {
        world.sim.replace(MODEL, bytes, 0o644);
        let error = world
            .open_model(&[MODEL])
            .err()
            .expect("because it is damaged");
        let said = format!("{error}");
        assert!(
            said.starts_with(MODEL) && said.contains(reason),
            "{reason}: {said}"
        );
    }
    let error = Model::open(Vec::new())
        .err()
        .expect("because there is no file");
    assert!(matches!(error, ModelError::Shards { .. }), "{error}");
}

#[test]
fn a_stopped_run_keeps_what_it_published_and_the_next_packs_the_rest() {
    let mut world = World::new();
    world.options.threads = std::num::NonZeroUsize::MIN;
    world.options.memory_bytes = 1;
    let packed = Arc::new(AtomicU64::new(0));
    let count = packed.clone();
    world.hook = Some(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let model = world.open_model(&[MODEL]).expect("because it is sound");
    let order = world.order(&model);
    let store = world.store();
    let stop = || packed.load(Ordering::Relaxed) >= 3;
    let error = prepare(&store, &model, &order, &world.options, &Quiet, &stop)
        .expect_err("because it was cancelled");
    let PrepareError::Cancelled { done, total } = error else {
        panic!("{error}");
    };
    assert!(done >= 1 && done < total, "{done} of {total}");
    assert_eq!(total, 5);
    assert!(temps(&world.sim).is_empty());
    let before = packed.swap(0, Ordering::Relaxed);
    let prepared = world.prepare().expect("because nothing stops it");
    let again = packed.load(Ordering::Relaxed);
    assert!(before + again < 4 + 4, "{before} and {again} were packed");
    assert_eq!(counts(&prepared).2, 0);
    assert!(world.verify(&prepared).is_good());
}

#[test]
fn damaged_objects_are_found_and_made_again() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let edits: [fn(&SimFs, &PathBuf); 5] = [
        |sim, path| sim.edit(path, |bytes| bytes[7] ^= 1),
        |sim, path| sim.edit(path, |bytes| bytes.truncate(10)),
        |sim, path| sim.set_mode(path, 0o666),
        |sim, path| sim.remove(path),
        |sim, path| sim.set_owner(path, 4242),
    ];
    for (index, edit) in edits.iter().enumerate() {
        edit(&world.sim, &object_path(&world, &first, 2));
        let healed = world.prepare().expect("because it can be made again");
        assert_eq!(counts(&healed), (4, 0, 1), "edit {index}");
        assert_eq!(healed.set, first.set);
        // Only that tensor is read, and what it was is told.
        assert!(
            healed.cost.source_bytes < 1000,
            "{}",
            healed.cost.source_bytes
        );
        assert!(world.verify(&healed).is_good(), "edit {index}");
    }
}

#[test]
fn a_rotten_object_with_the_same_stat_is_found_by_verify_only_and_healed_then() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let path = object_path(&world, &first, 2);
    world.sim.rot(&path, |bytes| bytes[7] ^= 1);
    assert_eq!(
        counts(&world.prepare().expect("because stat can't see it")),
        (5, 0, 0)
    );
    assert!(!world.verify(&first).is_good());
    assert_eq!(
        counts(&world.prepare().expect("because verify saw it")),
        (4, 0, 1)
    );
    assert!(world.verify(&first).is_good());
}

#[test]
fn damaged_records_are_found_and_made_again() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let edits: [fn(&SimFs, &PathBuf); 4] = [
        |sim, path| sim.edit(path, |bytes| bytes[7] ^= 1),
        |sim, path| sim.edit(path, |bytes| bytes.truncate(10)),
        |sim, path| sim.set_mode(path, 0o666),
        |sim, path| {
            sim.remove(path);
            sim.symlink(path, "/etc/passwd", 1000);
        },
    ];
    for (index, edit) in edits.iter().enumerate() {
        edit(&world.sim, &pack_path(&world, &first, 2));
        let healed = world.prepare().expect("because it can be made again");
        assert_eq!(counts(&healed), (4, 0, 1), "edit {index}");
        assert!(world.verify(&healed).is_good(), "edit {index}");
    }
}

/// Replaces, in a record or manifest, one text by another.
fn replace_text(sim: &SimFs, path: &PathBuf, from: &str, to: &str) {
    sim.edit(path, |bytes| {
        let text = String::from_utf8(bytes.clone()).expect("because it is JSON");
        assert!(text.contains(from), "{text}");
        *bytes = text.replace(from, to).into_bytes();
    });
}

#[test]
fn a_record_that_names_another_intact_object_is_judged_by_packing() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let store = world.store();
    let manifest = store.read_set(first.set).expect("because it is there");
    // Slots 1 and 4 have payloads of one length.
    let object = |slot| {
        let entry = manifest.entries().iter().find(|entry| entry.slot == slot);
        entry.expect("because it is a slot").object.to_string()
    };
    let (own, other) = (object(1), object(4));
    replace_text(&world.sim, &pack_path(&world, &first, 1), &own, &other);
    let healed = world.prepare().expect("because the source judges");
    assert_eq!(counts(&healed), (4, 0, 1));
    assert!(world.verify(&healed).is_good());
    let record = store
        .lookup_pack(&manifest.entries()[0].pack)
        .expect("because it was made again");
    assert_eq!(record.object.to_string(), own);

    // The same lie in the manifest: now the record is right.
    let path = PathBuf::from(format!("{ROOT}/v1/sets/{}/manifest.json", first.set));
    replace_text(&world.sim, &path, &own, &other);
    let healed = world.prepare().expect("because the source judges");
    assert_eq!(healed.outcome, SetOutcome::Repaired);
    assert!(world.verify(&healed).is_good());
    assert_eq!(world.store().read_set(first.set), Ok(manifest));
}

#[test]
fn a_record_that_was_there_before_with_another_object_is_judged_too() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let store = world.store();
    let manifest = store.read_set(first.set).expect("because it is there");
    let (own, other) = (manifest.entries()[0].object, manifest.entries()[2].object);
    replace_text(
        &world.sim,
        &pack_path(&world, &first, 1),
        &own.to_string(),
        &other.to_string(),
    );
    // No set is there that would contradict the record, and the object is damaged: it is packed
    // again, and then two intact objects stand against each other.
    world
        .sim
        .remove(format!("{ROOT}/v1/sets/{}/manifest.json", first.set));
    let other_path = object_path_of(&other.to_string());
    world.sim.set_mode(&other_path, 0o666);
    let healed = world.prepare().expect("because the source judges");
    assert!(world.verify(&healed).is_good());
    assert_eq!(healed.set, first.set);
    assert_eq!(world.store().read_set(first.set), Ok(manifest));
}

#[test]
fn a_wrong_record_that_cant_be_moved_ends_it_by_name() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let manifest = world
        .store()
        .read_set(first.set)
        .expect("because it is there");
    let (own, other) = (manifest.entries()[0].object, manifest.entries()[2].object);
    let path = pack_path(&world, &first, 1);
    replace_text(&world.sim, &path, &own.to_string(), &other.to_string());
    world.sim.settle();
    let mut stuck = 0;
    for at in 0.. {
        let world = world.on(world.sim.crash(Crash::Kept, 0));
        let store = world.store();
        world.sim.restart_count();
        let kind = FsErrorKind::Permission;
        world.sim.set_fault(Some(Fault::Error { at, kind }));
        // Wherever the refusal comes, the run ends.
        if let Err(error) = world.prepare_in(&store, &Quiet)
            && matches!(error, PrepareError::Stuck { .. })
        {
            let said = error.to_string();
            assert!(
                said.contains("up.weight") && said.contains("left in place"),
                "{said}"
            );
            stuck += 1;
        }
        if world.sim.operation_count() <= at {
            break;
        }
    }
    assert!(stuck > 0, "no refusal met the move to quarantine");
}

fn object_path_of(name: &str) -> PathBuf {
    PathBuf::from(format!("{ROOT}/v1/objects/{}/{name}", &name[..2]))
}

#[test]
fn a_packer_that_makes_other_bytes_each_time_is_refused_by_name() {
    let mut world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    world.drift = Some(Arc::new(AtomicU64::new(1)));
    world.sim.set_mode(object_path(&world, &first, 2), 0o666);
    // One damaged object is packed to something else than the manifest has: then the two packs of
    // the judge differ as well.
    let error = world.prepare().map(|prepared| counts(&prepared));
    match error {
        Err(PrepareError::NotDeterministic { tensor, layout }) => {
            assert_eq!(
                (tensor.as_str(), layout.as_str()),
                ("blk.0.down.weight", "turned-v1")
            );
        }
        other => panic!("{other:?}"),
    }
    world.drift = None;
    let healed = world.prepare().expect("because the packer is mended");
    assert!(world.verify(&healed).is_good());
}

#[test]
fn who_makes_the_same_set_is_waited_for_and_named() {
    let world = World::new();
    let store = world.store();
    let model = world.open_model(&[MODEL]).expect("because it is sound");
    let order = world.order(&model);
    let listener = Listener::default();
    // The lock of another process, by a descriptor of its own.
    let other = world.store();
    let source = TensorDigest(Digest::of(&source_of(&model, 1)));
    let key = order.items[0].recipe.identity(source).key();
    let held = other.try_lock_pack(&key).expect("because locks work");
    assert!(held.is_some());
    let error = prepare(&store, &model, &order, &world.options, &listener, &|| false);
    let said = error
        .expect_err("because it is never given back")
        .to_string();
    assert_eq!(
        said,
        "another process makes the pack of blk.0.up.weight; waited 3.0 s"
    );
    let heard = listener
        .heard
        .lock()
        .expect("because nothing panics")
        .join("\n");
    assert!(heard.contains("Waits"), "{heard}");
    // All the others are there, and the rest follows at once when the lock is free.
    drop(held);
    let prepared = world.prepare().expect("because the lock is free");
    assert_eq!(counts(&prepared), (4, 1, 0));
}

fn source_of(model: &Model, slot: usize) -> Vec<u8> {
    let (_, tensor) = model
        .container()
        .tensors()
        .nth(slot)
        .expect("because it is a slot");
    let start = usize::try_from(tensor.offset).expect("because it is small");
    let length = usize::try_from(tensor.bytes).expect("because it is small");
    model_bytes(0)[start..start + length].to_vec()
}

#[test]
fn a_pack_that_appears_while_its_lock_is_waited_for_is_used() {
    let mut world = World::new();
    let store = world.store();
    let model = world.open_model(&[MODEL]).expect("because it is sound");
    let other = world.store();
    let order = world.order(&model);
    let source = TensorDigest(Digest::of(&source_of(&model, 5)));
    let key = order.items[3].recipe.identity(source).key();
    let held = std::sync::Mutex::new(other.try_lock_pack(&key).expect("because locks work"));
    assert!(held.lock().expect("because nothing panics").is_some());
    let held = Arc::new(held);
    let giver = held.clone();
    world.hook = Some(Arc::new(move |name| {
        // Given back while others are packed, before the second round waits for it.
        if name == "blk.2.up.weight" {
            drop(giver.lock().expect("because nothing panics").take());
        }
    }));
    let order = world.order(&model);
    let prepared = prepare(&store, &model, &order, &world.options, &Quiet, &|| false)
        .expect("because the lock is given back");
    assert!(world.verify(&prepared).is_good());
    let missing = store.lookup_pack(&key);
    assert!(
        !matches!(missing, Err(PackRefusal::Missing { .. })),
        "{missing:?}"
    );
}

#[test]
fn objects_without_receipts_are_hashed_once_more_and_counted() {
    let mut world = World::new();
    // Two threads may hash the object that two tensors share at the same time.
    world.options.threads = std::num::NonZeroUsize::MIN;
    let first = world.prepare().expect("because nothing is in the way");
    let store = world.store();
    let receipts = store.receipts().expect("because there is a state");
    for object in receipts.objects().expect("because it can be listed") {
        receipts.forget(object).expect("because it is ours");
    }
    let again = world.prepare().expect("because all is there");
    assert_eq!(counts(&again), (5, 0, 0));
    assert_eq!(
        again.cost.reverified_count, 4,
        "two tensors share one of four objects"
    );
    assert_eq!(again.cost.source_bytes, 0);
    let third = world.prepare().expect("because all is there");
    assert_eq!(third.cost.reverified_count, 0);
    let manifest = store.read_set(first.set).expect("because it is there");
    let entry = &manifest.entries()[0];
    assert!(
        store
            .object(&entry.object, entry.length, ObjectTrust::Receipt)
            .is_ok()
    );
}

#[test]
fn a_second_process_finds_what_the_first_made_while_it_waited() {
    let mut world = World::new();
    // The simulated clock runs as fast as anybody waits.
    world.options.lock_timeout_ns = u64::MAX;
    let (first, second) = (world.clone(), world.clone());
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(move || first.prepare());
        let other = scope.spawn(move || second.prepare());
        (one.join(), other.join())
    });
    let one = one
        .expect("because it does not panic")
        .expect("because it waits");
    let other = other
        .expect("because it does not panic")
        .expect("because it waits");
    assert_eq!(one.set, other.set);
    let packed = counts(&one).1 + counts(&other).1;
    assert_eq!(packed, 4, "each pack was made once");
    assert_eq!(world.sim.files(format!("{ROOT}/v1/objects")).len(), 4);
}
