//! A source whose digest nobody knows is packed first and hashed by the fill, once the load's first
//! tensors have shown that its packs are not there.

use crate::fake::PLAIN;
use crate::world::{Spec, World};

/// Four tensors above the size that is worth deferring.
const FOUR: &[Spec] = &[
    ("blk.0.ffn_up.weight", "Q4_0", &[256, 8_000]),
    ("blk.1.ffn_up.weight", "Q4_0", &[256, 8_000]),
    ("blk.2.ffn_up.weight", "Q4_0", &[256, 8_000]),
    ("blk.3.ffn_up.weight", "Q4_0", &[256, 8_000]),
];

#[test]
fn the_first_tensors_are_hashed_at_once_and_the_rest_by_the_fill() {
    let world = World::new();
    let model = world.model("a.gguf", FOUR, 1);
    let miss = world.load(PLAIN, &[&model]);
    assert_eq!(miss.counts(), [0, 0, 4, 0]);
    assert_eq!(miss.reason("misses", "absent"), 2);
    assert_eq!(miss.reason("misses", "not-hashed"), 2);
    assert_eq!(miss.number("source_bytes_hashed"), model.bytes() / 2);
    miss.assert_fill("done");
    // The fill's hashes are in the ledger: the next start reads samples only.
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(hit.number("source_bytes_hashed"), 0);
}

#[test]
fn a_copy_of_a_known_model_hits_by_content_from_the_first_tensor_on() {
    let world = World::new();
    let model = world.model("a.gguf", FOUR, 1);
    world.fill(PLAIN, &[&model]);
    let copy = world.model("b.gguf", FOUR, 1);
    let hit = world.load(PLAIN, &[&copy]);
    hit.assert_all_mapped(&[&copy]);
    assert_eq!(hit.number("source_bytes_hashed"), copy.bytes());
}

#[test]
fn a_file_edited_before_the_fill_hashes_it_names_no_pack_of_what_was_packed() {
    let world = World::new();
    let model = world.model("a.gguf", FOUR, 1);
    let session = world.session(PLAIN);
    world.clock.stall_fills(true);
    let mut run = session.begin(0, &[&model]);
    run.serve_all(&[&model]);
    model.flip(3, 1000);
    world.clock.stall_fills(false);
    let outcome = run.outcome();
    outcome.assert_fill("done");
    assert_eq!(
        outcome.report["fill"]["stored"]["tensors"], 2,
        "{outcome:#?}"
    );
    let told = outcome.warnings();
    assert!(
        told.iter()
            .any(|line| line.contains("its file changed before it was hashed")),
        "{told:?}"
    );
    // Every load asserts the bytes of every region against the file as it is now.
    world.load(PLAIN, &[&model]).assert_fill("done");
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}
