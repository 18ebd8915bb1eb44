//! What runs cost and what they leave: once, again, resumed, by content, without room to write.

use crate::prepare_world::{MODEL, ROOT, World, counts, model_bytes, shard_bytes, turned};
use packhouse_base::digest::Digest;
use packhouse_prepare::prepare::{PrepareError, Prepared, Quiet, SourceHash, prepare};
use packhouse_sim::{Crash, Fault};
use packhouse_store::container_record::Admission;
use packhouse_store::object::ObjectTrust;
use packhouse_store::set::SetOutcome;
use packhouse_sys::fs::FsErrorKind;
use packhouse_sys::stat::FsKind;
use std::num::NonZeroUsize;
use std::sync::Arc;

fn set_file(world: &World, prepared: &Prepared, name: &str) -> Vec<u8> {
    let path = format!("{ROOT}/v1/sets/{}/{name}", prepared.set);
    world.sim.read(path).expect("because the set is there")
}

#[test]
fn the_first_run_packs_and_the_second_reads_nothing() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    // Two of the five tensors are equal: one pack serves both.
    assert_eq!(counts(&first), (1, 4, 0));
    assert_eq!(first.outcome, SetOutcome::Created);
    assert_eq!(first.admission, Admission::Hashed);
    assert_eq!(
        first.cost.source_bytes,
        model_bytes(0).len() as u64,
        "read once"
    );
    assert!(world.verify(&first).is_good());
    let manifest = set_file(&world, &first, "manifest.json");

    let operations = world.sim.operation_count();
    let second = world.prepare().expect("because all is there");
    assert_eq!(counts(&second), (5, 0, 0));
    assert_eq!(second.outcome, SetOutcome::Equal);
    assert_eq!((second.set, second.admission), (first.set, first.admission));
    let cost = second.cost;
    assert_eq!((cost.source_bytes, cost.written_bytes), (0, 0));
    assert_eq!((cost.reverified_count, cost.reverified_bytes), (0, 0));
    assert!(cost.duration_ns < 1_000_000_000, "it waits for nothing");
    assert_eq!(set_file(&world, &second, "manifest.json"), manifest);
    // The use is young; only the run's log is written.
    let written = world.sim.operation_count() - operations;
    assert!(written < 20, "{written} operations");
    assert!(second.complaints.is_empty(), "{:?}", second.complaints);
}

#[test]
fn a_payload_is_what_the_packer_makes_of_the_tensor() {
    let world = World::new();
    let prepared = world.prepare().expect("because nothing is in the way");
    let store = world.store();
    let manifest = store.read_set(prepared.set).expect("because it is there");
    let model = world.open_model(&[MODEL]).expect("because it is sound");
    let bytes = model_bytes(0);
    for entry in manifest.entries() {
        let (_, tensor) = model
            .container()
            .tensor(&entry.tensor)
            .expect("because it was chosen");
        let start = usize::try_from(tensor.offset).expect("because it is small");
        let length = usize::try_from(tensor.bytes).expect("because it is small");
        let source = &bytes[start..start + length];
        assert_eq!(
            entry.object.0,
            Digest::of(&turned(source)),
            "{}",
            entry.tensor
        );
        store
            .object(&entry.object, entry.length, ObjectTrust::Deep)
            .expect("because it was published");
    }
}

#[test]
fn the_whole_file_is_hashed_from_the_same_read() {
    let mut world = World::new();
    // A tensor that is packed was read, and is packed before the next one is read. Whoever reads it
    // again gets other bytes, under the same stat identity.
    world.options.memory_bytes = 1;
    let model = world.open_model(&[MODEL]).expect("because it is sound");
    let items = world.order(&model).items;
    let sim = world.sim.clone();
    world.hook = Some(Arc::new(move |name| {
        let item = items.iter().find(|item| item.tensor == name);
        let range = item.expect("because it was ordered").range;
        let start = usize::try_from(range.offset).expect("because it is small");
        sim.rot(MODEL, |bytes| bytes[start] ^= 1);
    }));
    let prepared = world.prepare().expect("because nothing is in the way");
    let records = world
        .store()
        .read_container_records(prepared.set)
        .expect("because it is there");
    let file = &records.records[0].files()[0];
    assert_eq!(file.name, "model.gguf");
    assert_eq!(file.digest, Some(Digest::of(&model_bytes(0))));
    assert_ne!(world.sim.read(MODEL), Some(model_bytes(0)));
    assert_eq!(prepared.cost.source_bytes, model_bytes(0).len() as u64);
}

#[test]
fn without_the_hash_of_the_whole_only_tensors_are_read_and_the_record_says_so() {
    let mut world = World::new();
    world.options.source_hash = SourceHash::Skip;
    let skipped = world.prepare().expect("because nothing is in the way");
    assert_eq!(skipped.admission, Admission::Skipped);
    assert!(skipped.cost.source_bytes < model_bytes(0).len() as u64);
    // Asked for later, the file is read once more, and nothing is packed.
    world.options.source_hash = SourceHash::Whole;
    let hashed = world.prepare().expect("because all is there");
    assert_eq!(counts(&hashed), (5, 0, 0));
    assert_eq!(hashed.set, skipped.set);
    assert_eq!(hashed.admission, Admission::Hashed);
    assert_eq!(hashed.cost.source_bytes, model_bytes(0).len() as u64);
    // Then it is known.
    world.options.source_hash = SourceHash::Skip;
    let known = world.prepare().expect("because all is there");
    assert_eq!(known.admission, Admission::Hashed);
    assert_eq!(known.cost.source_bytes, 0);
}

#[test]
fn a_record_of_less_is_not_added_beside_one_of_more() {
    let mut world = World::new();
    let hashed = world.prepare().expect("because nothing is in the way");
    // A copy in its place: the ledger knows nothing of it.
    world.sim.replace(MODEL, &model_bytes(0), 0o644);
    world.sim.clock().advance_ns(10_000_000_000);
    world.options.source_hash = SourceHash::Skip;
    let skipped = world.prepare().expect("because its packs are there");
    assert_eq!(
        (skipped.set, skipped.outcome),
        (hashed.set, SetOutcome::Equal)
    );
    assert_eq!(skipped.admission, Admission::Skipped);
    let records = world.store().read_container_records(hashed.set);
    assert_eq!(records.expect("because it is there").records.len(), 1);
}

#[test]
fn a_file_that_is_not_the_one_demanded_makes_no_set() {
    let mut world = World::new();
    world.options.expected = vec![Digest::of(b"another file")];
    let error = world.prepare().expect_err("because the digest differs");
    let said = error.to_string();
    assert!(matches!(error, PrepareError::SourceDigest { .. }), "{said}");
    assert!(said.contains(MODEL) && said.contains(&Digest::of(&model_bytes(0)).to_string()));
    assert_eq!(world.store().list_sets(), Ok(Vec::new()));
    // Known by now, it is refused before anything is read.
    assert!(world.prepare().is_err());
    world.options.expected = vec![Digest::of(&model_bytes(0))];
    let prepared = world.prepare().expect("because it is the file");
    assert_eq!(counts(&prepared), (5, 0, 0));
    world.options.expected = vec![Digest::of(b""), Digest::of(b"")];
    let said = world
        .prepare()
        .expect_err("because there is one file")
        .to_string();
    assert_eq!(said, "2 digests given for a model of 1 files");
}

#[test]
fn another_copy_of_a_model_is_found_by_content() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let copy = "/home/user/copy.gguf";
    world.sim.replace(copy, &model_bytes(0), 0o644);
    world.sim.clock().advance_ns(10_000_000_000);
    let model = world.open_model(&[copy]).expect("because it is sound");
    let order = world.order(&model);
    let store = world.store();
    let again = prepare(&store, &model, &order, &world.options, &Quiet, &|| false)
        .expect("because its packs are there");
    assert_eq!(counts(&again), (5, 0, 0));
    assert_eq!(again.set, first.set);
    assert_eq!(again.cost.written_bytes, 0);
    assert_eq!(again.cost.source_bytes, model_bytes(0).len() as u64);
    let records = store
        .read_container_records(first.set)
        .expect("because it is there");
    assert_eq!(records.records.len(), 2);
}

#[test]
fn a_changed_model_shares_what_did_not_change() {
    let world = World::new();
    world.prepare().expect("because nothing is in the way");
    world.sim.replace(MODEL, &model_bytes(9), 0o644);
    world.sim.clock().advance_ns(10_000_000_000);
    let tuned = world.prepare().expect("because nothing is in the way");
    assert_eq!(
        counts(&tuned),
        (2, 3, 0),
        "one is of the old model, one is doubled"
    );
    assert!(world.verify(&tuned).is_good());
}

#[test]
fn another_packer_makes_other_packs() {
    let mut world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    world.packer = "turned, with a defect mended";
    let second = world.prepare().expect("because nothing is in the way");
    assert_ne!(first.set, second.set);
    assert_eq!(counts(&second), (1, 4, 0));
}

#[test]
fn a_young_model_is_waited_for_once_and_known_then() {
    let world = World::new();
    world.sim.replace(MODEL, &model_bytes(3), 0o644);
    let first = world.prepare().expect("because nothing is in the way");
    assert!(
        first.cost.duration_ns < 5_000_000_000,
        "{}",
        first.cost.duration_ns
    );
    let second = world.prepare().expect("because all is there");
    assert_eq!(second.cost.source_bytes, 0);
    assert_eq!(second.cost.reverified_count, 0);
}

#[test]
fn a_read_only_store_serves_what_it_has_and_refuses_the_rest() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let store = world.store_with(|config| config.read_only = true);
    let again = world
        .prepare_in(&store, &Quiet)
        .expect("because all is there");
    assert_eq!((again.set, again.outcome), (first.set, SetOutcome::Equal));
    world.sim.replace(MODEL, &model_bytes(5), 0o644);
    let said = world
        .prepare_in(&store, &Quiet)
        .expect_err("because it must not write")
        .to_string();
    assert_eq!(
        said,
        format!("4 packs are to be made, and {ROOT} was opened read-only")
    );
}

#[test]
fn a_read_only_store_is_asked_by_content_before_it_refuses() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let store = world.store_with(|config| config.read_only = true);
    // A copy in its place: no ledger knows its tensors, and all their packs are there.
    world.sim.replace(MODEL, &model_bytes(0), 0o644);
    world.sim.clock().advance_ns(10_000_000_000);
    let again = world
        .prepare_in(&store, &Quiet)
        .expect("because all is there");
    assert_eq!((again.set, again.outcome), (first.set, SetOutcome::Equal));
    assert_eq!(counts(&again), (5, 0, 0));
    assert_eq!(again.cost.written_bytes, 0);
    assert_eq!(again.complaints, Vec::<String>::new());
}

#[test]
fn a_container_record_that_cant_be_added_is_a_complaint() {
    let world = World::new();
    let first = world.prepare().expect("because nothing is in the way");
    let copy = "/home/user/copy.gguf";
    world.sim.replace(copy, &model_bytes(0), 0o644);
    world.sim.clock().advance_ns(10_000_000_000);
    let model = world.open_model(&[copy]).expect("because it is sound");
    let order = world.order(&model);
    let store = world.store_with(|config| config.read_only = true);
    let again = prepare(&store, &model, &order, &world.options, &Quiet, &|| false)
        .expect("because the whole set is there");
    assert_eq!((again.set, again.outcome), (first.set, SetOutcome::Equal));
    let said = again.complaints.join("\n");
    assert!(said.starts_with("container record: "), "{said}");
    let records = store.read_container_records(first.set);
    assert_eq!(records.expect("because it is there").records.len(), 1);
    // The same where the folder belongs to somebody else.
    let before = world.sim.crash(Crash::Kept, 0);
    let mut refused = 0;
    for at in 0.. {
        let world = world.on(before.crash(Crash::Kept, 0));
        let model = world.open_model(&[copy]).expect("because it is sound");
        let store = world.store();
        world.sim.restart_count();
        let kind = FsErrorKind::Permission;
        world.sim.set_fault(Some(Fault::Error { at, kind }));
        let again = prepare(&store, &model, &order, &world.options, &Quiet, &|| false);
        let complaints = again.map_or_else(|_| Vec::new(), |again| again.complaints);
        let of_record = |said: &&String| said.starts_with("container record: ");
        refused += complaints.iter().filter(of_record).count();
        if world.sim.operation_count() <= at {
            break;
        }
    }
    assert!(refused > 0, "no refusal met the record");
}

#[test]
fn no_room_says_how_much_is_needed_and_leaves_nothing() {
    let world = World::new();
    let store = world.store_with(|config| config.max_bytes = Some(1000));
    let error = world
        .prepare_in(&store, &Quiet)
        .expect_err("because the cap is below the payloads");
    let said = format!(
        "{error}: {:?}",
        std::error::Error::source(&error).map(ToString::to_string)
    );
    assert!(matches!(error, PrepareError::Room { .. }), "{said}");
    // 288, 720, 288, 144 and 288 bytes.
    assert_eq!(
        said,
        "no room for 1.6 KiB of packs: \
         Some(\"1.6 KiB wanted, the store's cap of 1000 B leaves 1000 B\")"
    );
    assert!(world.sim.files(format!("{ROOT}/v1/objects")).is_empty());
    assert_eq!(store.list_sets(), Ok(Vec::new()));
}

#[test]
fn a_store_that_is_full_of_the_same_packs_takes_a_copy_of_their_model() {
    let world = World::new();
    world.prepare().expect("because nothing is in the way");
    world.sim.replace(MODEL, &model_bytes(0), 0o644);
    world.sim.clock().advance_ns(10_000_000_000);
    let store = world.store_with(|config| config.max_bytes = Some(1000));
    let again = world
        .prepare_in(&store, &Quiet)
        .expect("because nothing is to be written");
    assert_eq!(counts(&again), (5, 0, 0));
}

#[test]
fn one_tensor_may_need_more_than_the_budget_and_no_more_than_the_memory() {
    let mut world = World::new();
    world.options.memory_bytes = 1;
    let prepared = world.prepare().expect("because each tensor works alone");
    assert!(world.verify(&prepared).is_good());
    world.options.memory_max_bytes = 500;
    let said = world
        .prepare()
        .expect_err("because no tensor is so small")
        .to_string();
    assert_eq!(
        said,
        "tensor \"blk.0.up.weight\" and its pack need 576 B, the memory budget is 500 B"
    );
}

#[test]
fn an_order_of_nothing_is_refused() {
    let world = World::new();
    let model = world.open_model(&[MODEL]).expect("because it is sound");
    let mut order = world.order(&model);
    order.items.clear();
    let store = world.store();
    let error = prepare(&store, &model, &order, &world.options, &Quiet, &|| false);
    let said = error.expect_err("because nothing is chosen").to_string();
    assert_eq!(
        said,
        format!("plan \"turned\" chooses no tensor of {MODEL}")
    );
}

#[test]
fn one_tensor_fills_several_slots() {
    let world = World::new();
    let model = world.open_model(&[MODEL]).expect("because it is sound");
    let mut order = world.order(&model);
    let mut again = order.items[0].clone();
    again.slot = 100;
    order.items.push(again);
    let store = world.store();
    let prepared = prepare(&store, &model, &order, &world.options, &Quiet, &|| false)
        .expect("because nothing is in the way");
    assert_eq!(prepared.tensors.len(), 6);
    assert_eq!(
        prepared.cost.source_bytes,
        model_bytes(0).len() as u64,
        "read once"
    );
    assert!(world.verify(&prepared).is_good());
}

#[test]
fn a_model_in_shards_is_one_set_with_a_digest_per_file() {
    let world = World::new();
    let paths = ["/home/user/m-1.gguf", "/home/user/m-2.gguf"];
    let shards = shard_bytes(0, 3);
    for (path, bytes) in paths.iter().zip(&shards) {
        world.sim.replace(path, bytes, 0o644);
    }
    world.sim.clock().advance_ns(10_000_000_000);
    let whole = world.prepare().expect("because nothing is in the way");
    let mut options = world.options.clone();
    options.expected = shards.iter().map(|bytes| Digest::of(bytes)).collect();
    let model = world
        .open_model(&paths)
        .expect("because both shards are there");
    let order = world.order(&model);
    let store = world.store();
    let sharded = prepare(&store, &model, &order, &options, &Quiet, &|| false)
        .expect("because nothing is in the way");
    // The same tensors in the same slots: the set does not depend on how the file was cut.
    assert_eq!(sharded.set, whole.set);
    assert_eq!(counts(&sharded), (5, 0, 0));
    let bytes: usize = shards.iter().map(Vec::len).sum();
    assert_eq!(sharded.cost.source_bytes, bytes as u64);
    let records = store
        .read_container_records(whole.set)
        .expect("because it is there");
    let files = records
        .records
        .iter()
        .find(|record| record.files().len() == 2);
    let files = files.expect("because the shards have a record").files();
    assert_eq!(files[1].name, "m-2.gguf");
    assert_eq!(files[1].digest, Some(Digest::of(&shards[1])));
    let again =
        prepare(&store, &model, &order, &options, &Quiet, &|| false).expect("because all is there");
    assert_eq!(again.cost.source_bytes, 0);
    // A shard alone is no model.
    let error = world
        .open_model(&paths[1..])
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("/home/user/m-2.gguf: shard 0 of 2 is missing")
    );
}

#[test]
fn threads_and_memory_change_no_byte() {
    let mut expected = None;
    for threads in [1, 2, 3, 8] {
        for memory_bytes in [1, 600, 2000, 1 << 20] {
            let mut world = World::new();
            world.options.threads = NonZeroUsize::new(threads).expect("because it is not 0");
            world.options.memory_bytes = memory_bytes;
            let prepared = world.prepare().expect("because nothing is in the way");
            let files = ["manifest.json", "runtime-index.tsv"];
            let files = files.map(|name| set_file(&world, &prepared, name));
            let made = (
                prepared.set,
                files,
                world.sim.files(format!("{ROOT}/v1/sets")),
            );
            assert_eq!(
                *expected.get_or_insert(made.clone()),
                made,
                "{threads} {memory_bytes}"
            );
            assert!(world.verify(&prepared).is_good());
        }
    }
}

#[test]
fn where_stat_proves_nothing_every_run_hashes_and_packs_once() {
    let world = World::new();
    world.sim.set_kind(FsKind::Nfs);
    let first = world.prepare().expect("because nothing is in the way");
    let second = world
        .prepare()
        .expect("because the packs are found by content");
    assert_eq!((second.set, second.outcome), (first.set, SetOutcome::Equal));
    assert_eq!(counts(&second), (5, 0, 0));
    assert_eq!(second.cost.source_bytes, model_bytes(0).len() as u64);
    assert_eq!(second.cost.written_bytes, 0);
    assert!(second.cost.reverified_count >= 4);
}

#[test]
fn a_model_from_the_future_is_packed_and_not_remembered() {
    let world = World::new();
    world.sim.replace(MODEL, &model_bytes(0), 0o644);
    world.sim.clock().advance_ns(-20_000_000_000);
    let first = world.prepare().expect("because nothing is in the way");
    assert!(
        first.cost.duration_ns < 5_000_000_000,
        "nobody waits for it"
    );
    let expected = format!("{MODEL}: its ctime lies ahead of the clock");
    assert_eq!(first.complaints, [expected]);
    let second = world
        .prepare()
        .expect("because the packs are found by content");
    assert_eq!(counts(&second), (5, 0, 0));
    assert_eq!(second.cost.source_bytes, model_bytes(0).len() as u64);
    assert_eq!(second.admission, first.admission);
}
