//! After a complete fill there is exactly one `ggml-cpu` set for the container, beside it what is
//! known of the container, and in the private log its use.

use crate::fake::PLAIN;
use crate::world::{Model, SMALL, Spec, World, split};
use packhouse_base::digest::Digest;
use packhouse_loader::{PLAN, PLAN_BYTES};
use packhouse_store::container_record::{Admission, ContainerFile};
use packhouse_sys::clock::Clock as _;

const FIRST: &[Spec] = SMALL.split_at(3).0;
const SECOND: &[Spec] = &[
    ("blk.1.norm.weight", "F32", &[64]),
    ("blk.1.ffn_up.weight", "Q8_0", &[64, 48]),
];

fn assert_one_set(world: &World, models: &[&Model], slots: &[(u64, &str)]) {
    let store = world.store();
    let sets = store.list_sets().expect("because the store is sound");
    assert_eq!(sets.len(), 1);
    let manifest = store.read_set(sets[0]).expect("because it was published");
    assert_eq!(manifest.plan(), PLAN);
    assert_eq!(manifest.plan_digest(), Digest::of(PLAN_BYTES));
    let found = manifest
        .entries()
        .iter()
        .map(|entry| (entry.slot, entry.tensor.as_str()));
    assert_eq!(found.collect::<Vec<_>>(), slots);
    for entry in manifest.entries() {
        let record = store
            .lookup_pack(&entry.pack)
            .expect("because it was stored");
        assert_eq!((record.object, record.length), (entry.object, entry.length));
    }
    let index = store.read_index(sets[0]).expect("because it was published");
    manifest
        .verify_index(&index)
        .expect("because it is the manifest's");

    let records = store
        .read_container_records(sets[0])
        .expect("because they can be read");
    assert_eq!((records.records.len(), records.refused.len()), (1, 0));
    assert_eq!(records.records[0].admission(), Admission::Skipped);
    let files = models.iter().map(|model| ContainerFile {
        name: model
            .path
            .file_name()
            .and_then(|n| n.to_str())
            .expect("because ASCII")
            .to_owned(),
        size: model.file.metadata().expect("because it is open").len(),
        digest: None,
    });
    assert_eq!(records.records[0].files(), files.collect::<Vec<_>>());

    let uses = store.use_log().expect("because there is a state").read();
    let uses = uses.expect("because it can be read");
    let used = &uses.sets[&sets[0]];
    assert_eq!(
        (uses.sets.len(), uses.refused.len(), used.containers.len()),
        (1, 0, 1)
    );
    let (path, when_ns) = used.containers.iter().next().expect("because there is one");
    assert!(
        models.iter().any(|model| model.path == *path),
        "{}",
        path.display()
    );
    assert_eq!(*when_ns, world.clock.wall_ns());
}

#[test]
fn slots_are_the_indices_in_the_tensor_directory() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let slots = [
        (0, "token_embd.weight"),
        (2, "blk.0.ffn_up.weight"),
        (3, "blk.0.ffn_exps.weight"),
        (5, "blk.1.ffn_up.weight"),
    ];
    world.load(PLAIN, &[&model]);
    assert_one_set(&world, &[&model], &slots);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    assert_one_set(&world, &[&model], &slots);
}

#[test]
fn shards_count_in_their_order_whatever_the_order_of_loading() {
    let world = World::new();
    let first = world.shard("m-00001-of-00002.gguf", FIRST, 1, &split(0, 2, 5));
    let second = world.shard("m-00002-of-00002.gguf", SECOND, 2, &split(1, 2, 5));
    let slots = [
        (0, "token_embd.weight"),
        (2, "blk.0.ffn_up.weight"),
        (4, "blk.1.ffn_up.weight"),
    ];
    world.load(PLAIN, &[&second, &first]).assert_fill("done");
    assert_one_set(&world, &[&first, &second], &slots);
    world
        .load(PLAIN, &[&first, &second])
        .assert_all_mapped(&[&first, &second]);
    assert_one_set(&world, &[&first, &second], &slots);
}

#[test]
fn a_shard_alone_makes_packs_and_no_set() {
    let world = World::new();
    let first = world.shard("m-00001-of-00002.gguf", FIRST, 1, &split(0, 2, 5));
    let outcome = world.load(PLAIN, &[&first]);
    outcome.assert_fill("done");
    assert_eq!(outcome.report["fill"]["set"], serde_json::Value::Null);
    let sets = world
        .store()
        .list_sets()
        .expect("because the store is sound");
    assert_eq!(sets, []);
    world.load(PLAIN, &[&first]).assert_all_mapped(&[&first]);
}

#[test]
fn a_fill_that_was_stopped_makes_no_set_and_the_next_one_does() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[&model]);
    run.load.cancel_fill();
    run.serve_all(&[&model]);
    run.outcome().assert_fill("cancelled");
    let sets = world
        .store()
        .list_sets()
        .expect("because the store is sound");
    assert_eq!(sets, []);
    world.load(PLAIN, &[&model]).assert_fill("done");
    let sets = world
        .store()
        .list_sets()
        .expect("because the store is sound");
    assert_eq!(sets.len(), 1);
}

#[test]
fn two_containers_of_one_content_share_packs_and_set() {
    let world = World::new();
    let (model, copy) = (
        world.model("a.gguf", SMALL, 1),
        world.model("b.gguf", SMALL, 1),
    );
    world.fill(PLAIN, &[&model]);
    world.load(PLAIN, &[&copy]).assert_all_mapped(&[&copy]);
    let store = world.store();
    let sets = store.list_sets().expect("because the store is sound");
    assert_eq!(sets.len(), 1);
    let uses = store.use_log().expect("because there is a state").read();
    let uses = uses.expect("because it can be read");
    let paths: Vec<_> = uses.sets[&sets[0]].containers.keys().collect();
    assert_eq!(paths, [&model.path, &copy.path]);
    let records = store
        .read_container_records(sets[0])
        .expect("because they can be read");
    let names = records
        .records
        .iter()
        .map(|record| record.files()[0].name.as_str());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    assert_eq!(names, ["a.gguf", "b.gguf"]);
}
