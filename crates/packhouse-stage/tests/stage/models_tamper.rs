//! What is done to a published copy of a model: each change is refused with its own reason, and
//! the next `prepare` hashes what may still be right, or copies anew. No receipt is ever renewed
//! without a hash.

use crate::fixture::ROOT;
use crate::models::{Models, ONE, ONE_BYTES, SHARDS};
use packhouse_base::digest::Digest;
use packhouse_sim::Fault;
use packhouse_stage::Condemned;
use packhouse_stage::models::{
    self, ModelEvent, ModelKey, ModelMiss, ModelOutcome, ModelPrepareError, ModelReceipts,
};
use packhouse_sys::fs::FsErrorKind;
use std::num::NonZeroUsize;

const BYTES: u64 = ONE_BYTES.len() as u64;

/// How a refused copy gets good again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Healed {
    Rehashed,
    Replaced,
}

/// Copies, changes the copy, and expects the refusal and how it is healed.
fn assert_refused(change: impl Fn(&Models, &str), reason: &str, healed: Healed) {
    let world = Models::new();
    world.outcome(&[ONE]);
    change(&world, &world.copy(1));
    let miss = world.miss(&[ONE]);
    assert_eq!(miss.reason(), reason, "{miss}");
    assert!(matches!(miss, ModelMiss::Copy { .. }), "{miss}");
    let digest = Digest::of(ONE_BYTES);
    let by_digest = world.find(&[ONE], Some(digest));
    assert_eq!(by_digest.map_err(|miss| miss.reason()).err(), Some(reason));
    let warmed = models::warm(&world.root(), ModelKey(digest), &|_| (), &|| false);
    assert!(warmed.is_err(), "{warmed:?}");
    world.told.borrow_mut().clear();
    let outcome = world.outcome(&[ONE]);
    let bytes = BYTES;
    match (&outcome, healed) {
        (ModelOutcome::Rehashed { bytes, why }, Healed::Rehashed) => {
            assert_eq!((*bytes, why.reason()), (BYTES, reason));
            let told = world.told.borrow();
            assert!(
                told.contains(&ModelEvent::Hash { bytes: BYTES }),
                "{told:?}"
            );
        }
        (ModelOutcome::Replaced { why, .. }, Healed::Replaced) => {
            let told = world.told.borrow();
            assert!(told.contains(&ModelEvent::Copy { bytes }), "{told:?}");
            // After a hash in vain the files are gone already.
            assert!([reason, "missing"].contains(&why.reason()), "{why}");
        }
        (other, healed) => panic!("{reason}: expected {healed:?}, found {other:?}"),
    }
    assert!(world.verify(&[ONE]).is_good());
    let key = Digest::of(ONE_BYTES);
    assert_eq!(world.names(), [format!("{key}.2")], "{reason}");
    assert_eq!(world.sim.read(world.copy(2)).as_deref(), Some(ONE_BYTES));
    assert_eq!(world.outcome(&[ONE]), ModelOutcome::Reused);
}

#[test]
fn a_flipped_byte_with_its_times_restored_is_stale_and_copied_anew() {
    let flip = |world: &Models, path: &str| world.sim.edit(path, |bytes| bytes[3] ^= 1);
    assert_refused(flip, "stale", Healed::Replaced);
}

#[test]
fn a_touched_copy_is_stale_until_it_is_hashed() {
    let touch = |world: &Models, path: &str| world.sim.edit(path, |_| ());
    assert_refused(touch, "stale", Healed::Rehashed);
}

#[test]
fn a_copy_that_was_made_writable_is_refused_and_hashed_never_just_blessed() {
    let chmod = |world: &Models, path: &str| world.sim.set_mode(path, 0o644);
    assert_refused(chmod, "mode", Healed::Rehashed);
    // Setting it back does not help: ctime tells.
    let twice = |world: &Models, path: &str| {
        world.sim.set_mode(path, 0o644);
        world.sim.set_mode(path, 0o444);
    };
    assert_refused(twice, "stale", Healed::Rehashed);
    // And what was written meanwhile is found.
    let written = |world: &Models, path: &str| {
        world.sim.set_mode(path, 0o644);
        world.sim.edit(path, |bytes| bytes[0] ^= 1);
    };
    assert_refused(written, "mode", Healed::Replaced);
}

#[test]
fn a_copy_replaced_by_the_same_bytes_is_stale() {
    let replace = |world: &Models, path: &str| world.sim.replace(path, ONE_BYTES, 0o444);
    assert_refused(replace, "stale", Healed::Rehashed);
}

#[test]
fn a_cut_or_longer_copy_has_another_length() {
    let cut = |world: &Models, path: &str| world.sim.edit(path, |bytes| bytes.truncate(4));
    assert_refused(cut, "length", Healed::Replaced);
    let longer = |world: &Models, path: &str| world.sim.edit(path, |bytes| bytes.push(0));
    assert_refused(longer, "length", Healed::Replaced);
}

#[test]
fn a_symlink_in_a_copy_s_place_is_never_followed() {
    let link = |world: &Models, path: &str| {
        let elsewhere = "/home/user/models/elsewhere";
        world.sim.replace(elsewhere, ONE_BYTES, 0o444);
        world.sim.symlink(path, elsewhere, 1000);
    };
    assert_refused(link, "not_regular", Healed::Replaced);
}

#[test]
fn another_owner_and_a_second_name_are_refused() {
    let chown = |world: &Models, path: &str| world.sim.set_owner(path, 1001);
    assert_refused(chown, "owner", Healed::Replaced);
    let link = |world: &Models, path: &str| world.sim.hard_link(path, "/tmp/second");
    assert_refused(link, "linked", Healed::Replaced);
}

#[test]
fn a_copy_that_is_gone_is_missing() {
    let gone = |world: &Models, path: &str| world.sim.remove(path);
    assert_refused(gone, "missing", Healed::Replaced);
}

#[test]
fn edited_receipts_are_refused_and_replaced() {
    let edit = |world: &Models, path: &str| {
        let path = path.replace("files/one.gguf", "receipts.json");
        world.sim.edit(path, |bytes| bytes[20] ^= 1);
    };
    assert_refused(edit, "receipts", Healed::Replaced);
    let gone = |world: &Models, path: &str| {
        world
            .sim
            .remove(path.replace("files/one.gguf", "receipts.json"));
    };
    assert_refused(gone, "receipts", Healed::Replaced);
    let open = |world: &Models, path: &str| {
        let path = path.replace("files/one.gguf", "receipts.json");
        world.sim.set_mode(path, 0o666);
    };
    assert_refused(open, "receipts", Healed::Replaced);
}

#[test]
fn receipts_of_another_copy_are_refused() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.outcome(&SHARDS);
    let one = world.copy(1).replace("files/one.gguf", "receipts.json");
    let shards = world.find(&SHARDS, None).expect("because it was copied");
    let other = format!("{ROOT}/models/{}.1/receipts.json", shards.key);
    world.sim.swap(&one, &other);
    let miss = world.miss(&[ONE]);
    assert!(miss.to_string().contains("receipts: of copy"), "{miss}");
    assert_eq!(world.miss(&SHARDS).reason(), "receipts");
}

#[test]
fn a_folder_that_others_can_enter_is_refused() {
    let world = Models::new();
    world.outcome(&[ONE]);
    let files = world.copy(1).replace("/one.gguf", "");
    let copy = files.replace("/files", "");
    for folder in [files, copy, format!("{ROOT}/models")] {
        world.sim.set_mode(&folder, 0o755);
        let miss = world.miss(&[ONE]);
        assert_eq!(miss.reason(), "access", "{folder}: {miss}");
        assert!(miss.to_string().contains("has mode 0755"), "{miss}");
        world.sim.set_mode(&folder, 0o700);
        assert!(world.find(&[ONE], None).is_ok(), "{folder}");
    }
}

#[test]
fn a_byte_that_rots_in_memory_is_found_by_verify() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.sim.rot(world.copy(1), |bytes| bytes[0] ^= 1);
    // No stat can see this one.
    assert!(world.find(&[ONE], None).is_ok());
    let found = world.verify(&[ONE]);
    assert!(!found.is_good());
    let problem = found.files[0]
        .problem
        .as_ref()
        .map(|problem| problem.reason());
    assert_eq!(problem, Some("bytes"));
    assert_eq!(found.condemned, Condemned::Yes);
    // What a hash found is kept, though stat still can't see it.
    let key = ModelKey(Digest::of(ONE_BYTES));
    let copy = world.copy(1).replace("/files/one.gguf", "");
    let expected = format!(
        "copy {key}.1: {copy} was found to have other bytes than were copied, and is out of service"
    );
    for expected_digest in [None, Some(key.0)] {
        let miss = world
            .find(&[ONE], expected_digest)
            .expect_err("because it is out of service");
        assert_eq!(miss.to_string(), expected);
        assert_eq!(miss.reason(), "condemned");
    }
    let listed = models::list(&world.root()).expect("because it can be listed");
    let problem = listed[0].problem.as_ref().map(|problem| problem.reason());
    assert_eq!(problem, Some("condemned"));
    let warmed = models::warm(&world.root(), key, &|_| (), &|| false);
    assert!(warmed.is_err(), "{warmed:?}");
    let again = models::verify(&world.root(), &[key], NonZeroUsize::MIN, &|_| ());
    let again = again.expect("because it can be read").remove(0);
    let problem = again.problem.as_ref().map(|problem| problem.reason());
    assert_eq!((problem, again.is_good()), (Some("condemned"), false));
    // Its files are still there for whoever has no other, until a good copy takes its place.
    assert!(world.sim.read(world.copy(1)).is_some());
    let ModelOutcome::Replaced { bytes, why } = world.outcome(&[ONE]) else {
        panic!("expected a replacement");
    };
    assert_eq!((bytes, why.reason()), (BYTES, "condemned"));
    assert_eq!(world.names(), [format!("{key}.2")]);
    assert!(world.verify(&[ONE]).is_good());
}

#[test]
fn a_bad_copy_that_can_not_be_taken_out_of_service_is_said_to_be_so() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.sim.rot(world.copy(1), |bytes| bytes[0] ^= 1);
    world.sim.set_read_only(true);
    let found = world.verify(&[ONE]);
    assert!(!found.is_good());
    let Condemned::Failed(error) = found.condemned else {
        panic!("expected a failure, found {:?}", found.condemned);
    };
    assert_eq!(error.kind, FsErrorKind::ReadOnly);
}

#[test]
fn one_bad_shard_takes_its_copy_out_of_service_and_no_other() {
    let world = Models::new();
    world.outcome(&[ONE]);
    let shards = world.prepare(&SHARDS).expect("because nothing is there");
    world
        .sim
        .rot(&shards.model.files[1].path, |bytes| bytes[0] ^= 1);
    let keys = [ModelKey(Digest::of(ONE_BYTES)), shards.model.key];
    let found = models::verify(&world.root(), &keys, NonZeroUsize::MIN, &|_| ());
    let found = found.expect("because it can be read");
    let condemned = found.iter().map(|found| found.condemned.clone());
    let condemned: Vec<Condemned> = condemned.collect();
    assert_eq!(condemned, [Condemned::No, Condemned::Yes]);
    assert!(world.find(&[ONE], None).is_ok());
    assert_eq!(world.miss(&SHARDS).reason(), "condemned");
}

#[test]
fn a_copy_that_somebody_can_write_to_is_refused_and_copied_anew() {
    let open = |world: &Models, path: &str| world.sim.set_writer(path, true);
    assert_refused(open, "writer", Healed::Replaced);
    // Who writes through a mapping changes no time; a hash finds it while the writer lives.
    let world = Models::new();
    world.outcome(&[ONE]);
    let key = ModelKey(Digest::of(ONE_BYTES));
    let verify = || {
        let found = models::verify(&world.root(), &[key], NonZeroUsize::MIN, &|_| ());
        found.expect("because it can be read").remove(0)
    };
    world.sim.set_writer(world.copy(1), true);
    let found = verify();
    let problem = found.files[0].problem.as_ref().map(ToString::to_string);
    let expected = format!("{} is open for writing by some process", world.copy(1));
    assert_eq!(problem, Some(expected));
    assert_eq!(found.condemned, Condemned::No);
    world.sim.rot(world.copy(1), |bytes| bytes[0] ^= 1);
    assert_eq!(verify().condemned, Condemned::Yes);
    world.sim.set_writer(world.copy(1), false);
    assert_eq!(world.miss(&[ONE]).reason(), "condemned");
}

#[test]
fn a_record_filed_under_another_path_is_refused() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.outcome(&SHARDS);
    let sources = world.sim.files(format!("{ROOT}/models/sources"));
    world.sim.swap(&sources[0], &sources[1]);
    for paths in [&[ONE][..], &SHARDS] {
        let miss = world.miss(paths);
        assert_eq!(miss.reason(), "record");
        assert!(miss.to_string().contains("is of path"), "{miss}");
    }
}

#[test]
fn a_name_that_leads_out_of_the_copy_is_no_file_of_it() {
    let world = Models::new();
    world.outcome(&[ONE]);
    let path = world.copy(1).replace("files/one.gguf", "receipts.json");
    let key = ModelKey(Digest::of(ONE_BYTES));
    let bytes = world.sim.read(&path).expect("because it was copied");
    let mut receipts = ModelReceipts::parse(key, 1, &bytes).expect("because it is whole");
    "../../../locks".clone_into(&mut receipts.files[0].name);
    world.sim.replace(&path, &receipts.render(), 0o444);
    let miss = world.miss(&[ONE]);
    assert!(miss.to_string().contains("plain file name"), "{miss}");
}

#[test]
fn a_source_that_changes_while_it_is_read_is_not_kept() {
    let world = Models::new();
    let told = std::cell::Cell::new(0);
    let file = world.open(ONE);
    let watcher = models::ModelWatcher {
        tell: &|event| {
            if matches!(event, ModelEvent::Done { .. }) {
                told.set(told.get() + 1);
                world.sim.edit(ONE, |bytes| bytes[0] ^= 1);
            }
        },
        cancel: &|| false,
    };
    let files = models::ModelFiles {
        path: std::path::Path::new(ONE),
        files: &[file],
        expected: &[],
    };
    let options = crate::models::options();
    let error = models::prepare(&world.root(), None, files, &options, watcher)
        .expect_err("because it changed");
    assert_eq!(told.get(), 1);
    assert_eq!(
        error.to_string(),
        format!("{ONE} changed while it was hashed: its ctime differs")
    );
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn a_copy_that_changes_while_it_waits_to_be_believed_is_not_published() {
    let world = Models::new();
    let file = world.open(ONE);
    let watcher = models::ModelWatcher {
        tell: &|event| {
            if matches!(event, ModelEvent::Settle { .. }) {
                let temp = world.names();
                let temp = temp.iter().find(|name| name.starts_with(".tmp-"));
                let temp = temp.expect("because it is being made");
                let path = format!("{ROOT}/models/{temp}/files/one.gguf");
                // One tick of the coarse clock of files later.
                world.sim.clock().advance_ns(5_000_000);
                world.sim.edit(path, |bytes| bytes[0] ^= 1);
            }
        },
        cancel: &|| false,
    };
    let files = models::ModelFiles {
        path: std::path::Path::new(ONE),
        files: &[file],
        expected: &[],
    };
    let options = crate::models::options();
    let error = models::prepare(&world.root(), None, files, &options, watcher)
        .expect_err("because it changed");
    assert!(
        error
            .to_string()
            .contains("changed before it was published"),
        "{error}"
    );
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn a_wrong_bit_in_any_write_is_found_by_reading_back_or_by_the_records() {
    let count = {
        let world = Models::new();
        world.sim.restart_count();
        world.outcome(&[ONE]);
        world.sim.operation_count()
    };
    let mut differed = 0;
    for at in 0..count {
        let world = Models::new();
        world.sim.restart_count();
        world.sim.set_fault(Some(Fault::Flip { at }));
        let prepared = world.prepare(&[ONE]);
        world.sim.set_fault(None);
        if let Err(ModelPrepareError::Differs { .. }) = &prepared {
            differed += 1;
            assert_eq!(world.names(), [""; 0]);
        }
        // Whatever was hit: what is handed out has the right bytes.
        if let Ok(found) = world.find(&[ONE], None) {
            assert_eq!(
                world.sim.read(found.path).as_deref(),
                Some(ONE_BYTES),
                "{at}"
            );
        }
        world
            .prepare(&[ONE])
            .expect("because the memory is good again");
        assert!(world.verify(&[ONE]).is_good());
        assert_eq!(world.names().len(), 1, "{at}: {:?}", world.names());
    }
    assert_eq!(differed, 1, "the one write of the copy itself");
}
