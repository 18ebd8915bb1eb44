//! Which bytes are these: a ledger that reads nothing, and every way in which it must not be
//! believed.

use crate::fake::PLAIN;
use crate::world::{Model, SMALL, WIDE, World, restore_mtime, write_model};
use packhouse_base::digest::TensorDigest;
use packhouse_loader::sample_groups;
use packhouse_store::ledger::{SourceLedger, SourceRange};
use packhouse_sys::clock::Clock as _;
use packhouse_sys::real::identity_of_fd;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

#[test]
fn a_hit_reads_no_byte_of_the_source_but_the_sampled_units() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    world.fill(PLAIN, &[&model]);
    let geometry = model.geometry(0);
    let rotation = world.clock.wall_ns().unsigned_abs();
    let units = sample_groups(geometry.row_count, geometry.unit_rows, rotation);
    let ranges = units
        .iter()
        .map(|unit| (unit * geometry.unit_bytes(), geometry.unit_bytes()));
    // Any other access ends this process with SIGSEGV.
    model.guard(0, &ranges.collect::<Vec<_>>());
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    let read = hit.number("source_bytes_read");
    assert_eq!(read, 8 * geometry.unit_bytes());
    assert!(read * 100 < model.bytes(), "{read} of {}", model.bytes());
}

#[test]
fn bytes_in_no_file_are_hashed_and_hit_by_content() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let copies: Vec<Vec<u8>> = (0..4).map(|index| model.read(index)).collect();
    for packed in [4, 0, 0] {
        let session = world.session(PLAIN);
        let mut run = session.begin(0, &[&model]);
        for (index, copy) in copies.iter().enumerate() {
            run.serve_from(&model, index, copy);
            run.assert_right(&model, index, copy);
        }
        let outcome = run.outcome();
        outcome.assert_fill("done");
        assert_eq!(outcome.counts(), [4 - packed, 0, packed, 0]);
        assert_eq!(outcome.number("source_bytes_hashed"), model.bytes());
        assert_eq!(outcome.report["fill"]["set"], serde_json::Value::Null);
    }
    let sets = world
        .store()
        .list_sets()
        .expect("because the store is sound");
    assert_eq!(sets, [], "bytes in no file have no slot in a container");
}

#[test]
fn a_writable_mapping_is_memory_its_changes_count_and_its_pages_stay() {
    own_changes_count(false);
}

#[test]
fn a_private_mapping_that_is_read_only_by_now_may_hold_changes_all_the_same() {
    own_changes_count(true);
}

fn own_changes_count(seals: bool) {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    world.fill(PLAIN, &[&model]);
    let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    let edited = Model::open_as(&model.path, flags.0, flags.1);
    let geometry = edited.geometry(0);
    let rotation = world.clock.wall_ns().unsigned_abs();
    let sampled = sample_groups(geometry.row_count, geometry.unit_rows, rotation);
    let quiet = (0..geometry.unit_count()).find(|unit| !sampled.contains(unit));
    let quiet = quiet.expect("because there are 1000 units and 8 samples");
    let at = usize::try_from(quiet * geometry.unit_bytes()).expect("because it is small");
    edited.poke(0, at);
    if seals {
        edited.seal();
    }
    let mut expected = edited.read(0);
    expected[at] ^= 0xff;
    for counts in [[0, 0, 1, 0], [1, 0, 0, 0]] {
        let session = world.session(PLAIN);
        let mut run = session.begin(0, &[&edited]);
        run.serve_from(&edited, 0, edited.source(0));
        // A dropped page would come back from the file, without the change.
        assert_eq!(edited.source(0), expected);
        run.assert_right(&edited, 0, &expected);
        let outcome = run.outcome();
        outcome.assert_fill("done");
        assert_eq!(outcome.counts(), counts);
    }
    // What was learnt of the memory is not said of the file.
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(hit.number("source_bytes_hashed"), 0);
}

/// An engine may map one file after the other at the same address during one load: the listing read
/// for the first says nothing of the second.
#[test]
fn another_file_mapped_at_the_same_address_is_not_taken_for_the_first() {
    let world = World::new();
    let (first, second) = (
        world.model("a.gguf", SMALL, 1),
        world.model("b.gguf", SMALL, 2),
    );
    world.fill(PLAIN, &[&first]);
    world.fill(PLAIN, &[&second]);
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[&first]);
    for index in 0..4 {
        if index == 2 {
            first.cover_with(&second);
        }
        let expected = if index < 2 {
            first.read(index)
        } else {
            second.read(index)
        };
        run.serve_from(&first, index, first.source(index));
        run.assert_right(&first, index, &expected);
    }
    let outcome = run.outcome();
    assert_eq!(outcome.counts(), [4, 0, 0, 0], "{outcome:#?}");
    assert_eq!(outcome.number("source_bytes_hashed"), 0);
}

#[test]
fn a_hit_gives_the_source_pages_back() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    world.fill(PLAIN, &[&model]);
    let rss = || {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("because /proc is there");
        let address = model.source(0).as_ptr().addr();
        let mut lines = smaps.lines().skip_while(|line| {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let bounds = range.map(|(start, end)| {
                let parse = |text| usize::from_str_radix(text, 16);
                (parse(start), parse(end))
            });
            !matches!(bounds, Some((Ok(start), Ok(end))) if (start..end).contains(&address))
        });
        let line = lines
            .find(|line| line.starts_with("Rss:"))
            .expect("because it is mapped");
        let kib = line
            .split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok());
        kib.expect("because it is a number")
    };
    assert!(model.source(0).iter().any(|byte| *byte != 0));
    let touched: u64 = model.source(0).iter().map(|byte| u64::from(*byte)).sum();
    assert!(touched > 0 && rss() > 2000, "{}", rss());
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    assert!(rss() < 100, "{} KiB of the source stay", rss());
}

#[test]
fn a_file_edited_in_place_is_packed_anew_even_with_its_mtime_restored() {
    for restores in [false, true] {
        let world = World::new();
        let model = world.model("a.gguf", WIDE, 1);
        world.fill(PLAIN, &[&model]);
        let mtime = model
            .file
            .metadata()
            .and_then(|m| m.modified())
            .expect("because it is open");
        // In a unit that the next load samples and in one that it does not: stat is the guard.
        model.flip(0, 1_000_003);
        if restores {
            model.edit(|file| restore_mtime(file, mtime));
        }
        let outcome = world.load(PLAIN, &[&model]);
        assert_eq!(outcome.counts(), [0, 0, 1, 0]);
        assert_eq!(outcome.reason("misses", "absent"), 1);
        outcome.assert_fill("done");
        let hit = world.load(PLAIN, &[&model]);
        hit.assert_all_mapped(&[&model]);
        assert_eq!(
            hit.number("source_bytes_hashed"),
            0,
            "the ledger is of the new content"
        );
    }
}

#[test]
fn a_file_replaced_by_rename_is_packed_from_the_new_bytes() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let other = world.model("b.gguf", SMALL, 2);
    std::fs::rename(&other.path, &model.path).expect("because the folder is ours");
    let new = Model::open(&model.path);
    assert_eq!(world.load(PLAIN, &[&new]).counts(), [0, 0, 4, 0]);
    world.load(PLAIN, &[&new]).assert_all_mapped(&[&new]);
    // The old file is still mapped and open: it is known by its inode, not by its name.
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

#[test]
fn a_download_of_the_same_bytes_hits_by_content_and_is_known_from_then_on() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    world.fill(PLAIN, &[&model]);
    let copy = world.path("copy.gguf");
    write_model(&copy, WIDE, 1, &[]);
    let copy = Model::open(&copy);
    let hit = world.load(PLAIN, &[&copy]);
    hit.assert_all_mapped(&[&copy]);
    assert_eq!(hit.number("source_bytes_hashed"), model.bytes());
    let known = world.load(PLAIN, &[&copy]);
    known.assert_all_mapped(&[&copy]);
    assert_eq!(known.number("source_bytes_hashed"), 0);
}

#[test]
fn a_file_that_grew_is_hashed_again_and_still_hits() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    model.edit(|file| {
        let end = file.metadata().expect("because it is open").len();
        file.write_all_at(&[0; 32], end)
            .expect("because it is writable");
    });
    let hit = world.load(PLAIN, &[&model]);
    assert_eq!(hit.counts(), [4, 0, 0, 0]);
    assert_eq!(hit.number("source_bytes_hashed"), model.bytes());
}

#[test]
fn a_file_edited_between_two_tensors_of_a_load_is_served_as_it_is() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[&model]);
    run.serve(&model, 0);
    model.flip(1, 5);
    for index in 1..4 {
        run.serve(&model, index);
    }
    let outcome = run.outcome();
    assert_eq!(outcome.counts(), [3, 0, 1, 0]);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    let known = world.load(PLAIN, &[&model]);
    known.assert_all_mapped(&[&model]);
    assert_eq!(known.number("source_bytes_hashed"), 0);
}

/// The digest is of the old bytes and the pack of the new ones: stored under that key, every later
/// load of the old bytes would map the pack of others, and samples see only 8 units of them.
#[test]
fn a_file_edited_while_one_tensor_is_packed_stores_no_pack_of_other_bytes() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let twin = world.model("twin.gguf", SMALL, 1);
    let session = world.session(PLAIN);
    let path = model.path.clone();
    let offset = model.tensors[1].offset;
    session.engine.before_pack(move |source| {
        // The first tensor of this length is hashed by now, and not yet packed.
        if source.len() == 3264 {
            crate::world::edit_file(&path, |file| {
                file.write_all_at(&[0x5a; 64], offset)
                    .expect("because it is writable");
            });
        }
    });
    let outcome = session.load(0, &[&model]);
    assert_eq!(outcome.counts(), [0, 0, 4, 0]);
    assert!(
        outcome.line.contains("changed while it was packed"),
        "{}",
        outcome.line
    );
    // The right bytes from either file, whatever the first load stored; `load` asserts them.
    let other = world.load(PLAIN, &[&twin]);
    assert_eq!(other.reason("refused", "sample"), 0, "{other:#?}");
    assert_eq!(other.counts()[3], 0, "{other:#?}");
    world.load(PLAIN, &[&model]);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    world.load(PLAIN, &[&twin]).assert_all_mapped(&[&twin]);
}

/// Two tensors of one shape have each other's digest in the ledger: the stat identity holds, so
/// only the sample can catch it. The ledger is corrected, and the load after hits.
#[test]
fn a_ledger_that_lies_is_caught_by_the_sample_and_corrected() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    swap_in_ledger(&world, &model, 1, 3);
    let outcome = world.load(PLAIN, &[&model]);
    assert_eq!(outcome.counts(), [2, 0, 2, 2]);
    assert_eq!(outcome.reason("refused", "sample"), 2);
    let why = "blk.0.ffn_up.weight: object ";
    assert!(outcome.line.contains(why), "{}", outcome.line);
    assert!(
        outcome
            .line
            .contains(" differs from the live weights in rows 0 to 15")
    );
    assert_eq!(outcome.warnings(), [""; 0]);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    let known = world.load(PLAIN, &[&model]);
    known.assert_all_mapped(&[&model]);
    assert_eq!(known.number("source_bytes_hashed"), 0);
}

/// A digest that no pack has: a miss, and the bytes' own digest then finds the pack that is there.
#[test]
fn a_ledger_with_a_digest_of_nothing_costs_one_pack() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let sources = world.store();
    let sources = sources.sources().expect("because there is a state");
    let identity = identity_of_fd(model.file.as_fd()).expect("because it is open");
    let found = sources
        .lookup(&identity)
        .expect("because it was learnt")
        .ledger;
    let wrong = found.tensors().iter().map(|(range, digest)| {
        (
            *range,
            TensorDigest(packhouse_base::digest::Digest::of(digest.as_bytes())),
        )
    });
    let forged = SourceLedger::new(identity, found.directory(), wrong.collect());
    sources
        .extend(&forged, world.clock.wall_ns())
        .expect("because it is writable");
    let outcome = world.load(PLAIN, &[&model]);
    assert_eq!(outcome.counts(), [0, 0, 4, 0]);
    assert_eq!(outcome.report["fill"]["elsewhere"]["tensors"], 4);
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(hit.number("source_bytes_hashed"), 0);
}

fn swap_in_ledger(world: &World, model: &Model, one: usize, other: usize) {
    let store = world.store();
    let sources = store.sources().expect("because there is a state");
    let identity = identity_of_fd(model.file.as_fd()).expect("because it is open");
    let found = sources
        .lookup(&identity)
        .expect("because it was learnt")
        .ledger;
    let range = |index: usize| SourceRange {
        offset: model.tensors[index].offset,
        length: model.tensors[index].bytes,
    };
    let mut tensors = found.tensors().clone();
    let digest = |index| found.tensor(range(index)).expect("because it was learnt");
    tensors.insert(range(one), digest(other));
    tensors.insert(range(other), digest(one));
    let forged = SourceLedger::new(identity, found.directory(), tensors);
    sources
        .extend(&forged, world.clock.wall_ns())
        .expect("because it is writable");
}
