//! What is done to a published stage: each change is refused with its own reason, hides no other
//! copy, and the next `stage` heals it by a new generation.

use crate::fixture::{COPIED_BYTES, DEEP, PAYLOADS, World};
use packhouse_base::digest::Digest;
use packhouse_stage::{Condemned, Depth, StageOutcome, StageReceipts, StageValidation, open};
use packhouse_sys::clock::Clock as _;

/// Stages, changes one copy, and answers what validation says of its slot.
fn tampered(change: impl Fn(&World, &str)) -> (World, StageValidation) {
    let world = World::new();
    world.outcome();
    change(&world, &world.copy(1, PAYLOADS[1]));
    let found = world.validation(Depth::Shallow);
    (world, found)
}

/// One slot is bad for this reason, the others serve; the next stage is good and copied in full.
fn assert_refused_and_healed(world: &World, found: &StageValidation, reason: &str) {
    let bad: Vec<_> = found.bad_tensors().collect();
    assert_eq!(bad.len(), 1, "{found:?}");
    assert_eq!(bad[0].entry.slot, 1);
    let refusal = bad[0].problem.as_ref().expect("because it is bad");
    assert_eq!(refusal.reason(), reason, "{refusal}");
    let staged = open(&world.root(), world.set).expect("because only a copy is bad");
    assert!(
        staged
            .object(staged.find_slot(1).expect("because it is filled"))
            .is_err()
    );
    assert!(
        staged
            .object(staged.find_slot(3).expect("because it is filled"))
            .is_ok()
    );
    assert_healed(world);
}

fn assert_healed(world: &World) {
    let StageOutcome::Replaced { bytes, why } = world.outcome() else {
        panic!("expected a replacement");
    };
    assert_eq!(bytes, COPIED_BYTES, "{why}");
    assert!(world.validation(DEEP).is_good());
    world.assert_only(&[2], &why.to_string());
    assert_eq!(world.outcome(), StageOutcome::Reused);
}

#[test]
fn a_flipped_byte_with_its_times_restored_is_stale() {
    let (world, found) = tampered(|world, path| world.sim.edit(path, |bytes| bytes[0] ^= 1));
    assert_refused_and_healed(&world, &found, "stale");
}

#[test]
fn a_byte_that_rots_in_memory_is_found_by_deep() {
    let (world, found) = tampered(|world, path| world.sim.rot(path, |bytes| bytes[0] ^= 1));
    // No stat can see this one.
    assert!(found.is_good());
    let found = world.validation(DEEP);
    let bad: Vec<_> = found.bad_tensors().collect();
    assert_eq!(bad.len(), 1);
    let refusal = bad[0].problem.as_ref().expect("because it is bad");
    assert_eq!(refusal.reason(), "corrupt");
    assert!(refusal.to_string().contains("hashes to"), "{refusal}");
    // What a hash found is kept, though stat still can't see it.
    assert_eq!(found.condemned, Condemned::Yes);
    let found = world.validation(Depth::Shallow);
    let miss = found.miss.as_ref().expect("because it is out of service");
    assert_eq!(miss.reason(), "condemned");
    let expected = "a copy was found to have other bytes; it is out of service";
    assert!(miss.to_string().ends_with(expected), "{miss}");
    let StageOutcome::Replaced { bytes, why } = world.outcome() else {
        panic!("expected a replacement");
    };
    assert_eq!(bytes, COPIED_BYTES, "{why}");
    assert!(world.validation(DEEP).is_good());
    world.assert_only(&[2], &why.to_string());
}

#[test]
fn a_copy_replaced_by_the_same_bytes_is_stale() {
    let (world, found) = tampered(|world, path| world.sim.replace(path, PAYLOADS[1], 0o444));
    assert_refused_and_healed(&world, &found, "stale");
}

#[test]
fn a_cut_copy_has_another_length() {
    let (world, found) = tampered(|world, path| world.sim.edit(path, |bytes| bytes.truncate(4)));
    assert_refused_and_healed(&world, &found, "length");
}

#[test]
fn a_symlink_in_a_copy_s_place_is_never_followed() {
    let (world, found) = tampered(|world, path| {
        world
            .sim
            .replace("/home/user/elsewhere", PAYLOADS[1], 0o444);
        world.sim.symlink(path, "/home/user/elsewhere", 1000);
    });
    assert_refused_and_healed(&world, &found, "not_regular");
    assert!(world.sim.read("/home/user/elsewhere").is_some());
}

#[test]
fn another_mode_is_refused_and_not_blessed() {
    let (world, found) = tampered(|world, path| world.sim.set_mode(path, 0o644));
    assert_refused_and_healed(&world, &found, "mode");
    // Setting it back does not help: ctime tells.
    let (world, found) = tampered(|world, path| {
        world.sim.set_mode(path, 0o644);
        world.sim.set_mode(path, 0o444);
    });
    assert_refused_and_healed(&world, &found, "stale");
}

#[test]
fn another_owner_is_refused() {
    let (world, found) = tampered(|world, path| world.sim.set_owner(path, 1001));
    assert_refused_and_healed(&world, &found, "owner");
}

#[test]
fn a_second_name_is_refused() {
    let (world, found) = tampered(|world, path| world.sim.hard_link(path, "/tmp/second"));
    assert_refused_and_healed(&world, &found, "linked");
}

#[test]
fn a_copy_that_is_gone_is_missing() {
    let (world, found) = tampered(|world, path| world.sim.remove(path));
    assert_refused_and_healed(&world, &found, "missing");
}

#[test]
fn two_swapped_copies_are_both_refused() {
    let (world, found) = tampered(|world, path| world.sim.swap(path, world.copy(1, PAYLOADS[3])));
    let reasons: Vec<_> = found
        .bad_tensors()
        .filter_map(|bad| Some((bad.entry.slot, bad.problem.as_ref()?.reason())))
        .collect();
    assert_eq!(reasons, [(1, "length"), (3, "length")]);
    assert_healed(&world);
}

/// Changes one of the stage's own files; the whole stage is refused with these words.
fn spoiled(name: &str, edit: impl Fn(&str) -> String, words: &str) {
    let world = World::new();
    world.outcome();
    let path = world.path(1, name);
    let text = world.sim.read(&path).expect("because it is there");
    let text = String::from_utf8(text).expect("because all of them are UTF-8");
    let edited = edit(&text);
    assert_ne!(text, edited, "{name}: nothing was edited");
    world.sim.replace(&path, edited.as_bytes(), 0o444);
    assert_missed(&world, words);
}

fn assert_missed(world: &World, words: &str) {
    let found = world.validation(Depth::Shallow);
    let miss = found
        .miss
        .expect("because the stage is spoiled")
        .to_string();
    assert!(miss.contains(words), "{words:?} not in {miss:?}");
    assert_healed(world);
}

#[test]
fn edited_files_of_the_stage_are_refused_each_in_its_own_words() {
    let flip = |from: &'static str, to: &'static str| move |text: &str| text.replacen(from, to, 1);
    spoiled(
        "receipts.json",
        flip("\"size\":10", "\"size\":11"),
        "receipts: checksum",
    );
    spoiled("receipts.json", flip("{", "["), "receipts: not JSON");
    spoiled(
        "receipts.json",
        flip("stage/1", "stage/9"),
        "receipts: schema: expected",
    );
    spoiled(
        "receipts.json",
        |text| text[..40].to_owned(),
        "receipts: not JSON",
    );
    spoiled(
        "manifest.json",
        flip("\"length\":10", "\"length\":11"),
        "manifest.json hashes to",
    );
    spoiled(
        "runtime-index.tsv",
        flip("\t10\n", "\t11\n"),
        "runtime-index.tsv hashes to",
    );
    spoiled(
        "manifest.json",
        |_| String::new(),
        "manifest.json hashes to",
    );
}

#[test]
fn receipts_of_another_stage_are_refused_although_their_checksum_fits() {
    let world = World::new();
    world.outcome();
    let path = world.path(1, "receipts.json");
    let bytes = world.sim.read(&path).expect("because it is there");
    let mut receipts = StageReceipts::parse(world.set, 1, &bytes).expect("because they are good");
    receipts.generation = 5;
    world.sim.replace(&path, &receipts.render(), 0o444);
    assert_missed(&world, ".5, expected");
}

#[test]
fn receipts_sealed_over_another_manifest_do_not_pass_the_set_key() {
    let world = World::new();
    world.outcome();
    let path = world.path(1, "manifest.json");
    let text = String::from_utf8(world.sim.read(&path).expect("because it is there"));
    let edited = text
        .expect("because JSON is UTF-8")
        .replacen("blk.0.weight", "blk.9.weight", 1);
    world.sim.replace(&path, edited.as_bytes(), 0o444);
    let receipts_path = world.path(1, "receipts.json");
    let bytes = world.sim.read(&receipts_path).expect("because it is there");
    let mut receipts = StageReceipts::parse(world.set, 1, &bytes).expect("because they are good");
    receipts.manifest = Digest::of(edited.as_bytes());
    world.sim.replace(&receipts_path, &receipts.render(), 0o444);
    let found = world.validation(Depth::Shallow);
    let miss = found.miss.expect("because the key differs").to_string();
    assert!(miss.contains("its content has key"), "{miss}");
    assert!(matches!(world.outcome(), StageOutcome::Replaced { .. }));
}

#[test]
fn files_and_folders_that_others_own_or_can_change_are_refused() {
    type Change = fn(&World, &str);
    let cases: [(&str, Change, &str); 8] = [
        (
            "",
            |world, path| world.sim.set_mode(path, 0o755),
            "has mode 0755",
        ),
        (
            "",
            |world, path| world.sim.set_owner(path, 1001),
            "and uid 1001",
        ),
        (
            "objects",
            |world, path| world.sim.set_mode(path, 0o770),
            "has mode 0770",
        ),
        (
            "receipts.json",
            |world, path| world.sim.set_mode(path, 0o464),
            "has mode 0464",
        ),
        (
            "manifest.json",
            |world, path| world.sim.set_owner(path, 1001),
            "belongs to uid 1001",
        ),
        (
            "manifest.json",
            |world, path| world.sim.remove(path),
            "is not there",
        ),
        (
            "runtime-index.tsv",
            |world, path| world.sim.symlink(path, "/tmp/other", 1000),
            "is a symlink, expected a regular file",
        ),
        (
            "receipts.json",
            |world, path| world.sim.remove(path),
            "receipts.json is not there",
        ),
    ];
    for (name, change, words) in cases {
        let world = World::new();
        world.outcome();
        let path = world.path(1, name);
        change(&world, path.trim_end_matches('/'));
        if words.contains("uid 1001") && name.is_empty() {
            // Somebody else's folder can't be removed by us; it is healed as ours of another mode.
            world.sim.set_owner(path.trim_end_matches('/'), 1000);
            world.sim.set_mode(path.trim_end_matches('/'), 0o750);
            assert_missed(&world, "has mode 0750");
            continue;
        }
        assert_missed(&world, words);
    }
}

#[test]
fn a_file_or_symlink_in_a_stage_s_place_is_refused_and_replaced() {
    let world = World::new();
    world.root();
    let place = world.path(1, "");
    let place = place.trim_end_matches('/');
    world.sim.replace(place, b"pre-made", 0o444);
    let found = world.validation(Depth::Shallow);
    let miss = found.miss.expect("because it is a file").to_string();
    assert!(miss.contains("not a folder"), "{miss}");
    assert_healed(&world);
    let world = World::new();
    world.root();
    world.sim.make_dirs("/home/user/mine", 1000, 0o700);
    world.sim.symlink(place, "/home/user/mine", 1000);
    let found = world.validation(Depth::Shallow);
    let miss = found.miss.expect("because it is a symlink").to_string();
    assert!(miss.contains("is a symlink"), "{miss}");
    assert_healed(&world);
}

#[test]
fn a_copy_that_changes_while_it_waits_to_be_believed_is_not_published() {
    let world = World::new();
    world.root();
    let tell = |event| {
        if matches!(event, packhouse_stage::StageEvent::Settle { .. }) {
            let names = world.names();
            let temp = names.iter().find(|name| name.starts_with(".tmp-"));
            let temp = temp.expect("because a stage is being made");
            let copy = crate::fixture::digest(PAYLOADS[1]);
            let path = format!("{}/{temp}/objects/{copy}", crate::fixture::ROOT);
            // One tick of the coarse clock of files later.
            world.sim.clock().advance_ns(5_000_000);
            world.sim.edit(path, |bytes| bytes[0] ^= 1);
        }
    };
    let watcher = packhouse_stage::Watcher {
        tell: &tell,
        cancel: &|| false,
    };
    let options = crate::fixture::options();
    let staged = packhouse_stage::stage(&world.store, &world.root(), world.set, &options, watcher);
    let error = staged.expect_err("because a copy was edited").to_string();
    assert!(
        error.ends_with("changed before it was published: ctime differs"),
        "{error}"
    );
    world.assert_only(&[], "after a copy that changed");
}

#[test]
fn a_clock_that_was_set_back_publishes_nothing() {
    let world = World::new();
    world.root();
    // File times come from the same clock, so it goes back while the stager waits for them.
    let clock = world.sim.clock();
    let before_ns = clock.wall_ns();
    let watcher = packhouse_stage::Watcher {
        tell: &|event| {
            if matches!(event, packhouse_stage::StageEvent::Settle { .. }) {
                clock.advance_ns(-3_600_000_000_000);
            }
        },
        cancel: &|| false,
    };
    let options = crate::fixture::options();
    let staged = packhouse_stage::stage(&world.store, &world.root(), world.set, &options, watcher);
    let error = staged.expect_err("because the times lie ahead").to_string();
    assert!(error.starts_with("the clock is"), "{error}");
    assert!(world.sim.clock().wall_ns() < before_ns);
    world.assert_only(&[], "after a clock that went back");
}
