//! Copies of whole models from their making to their end.

use crate::fixture::{ROOT, STATE};
use crate::models::{Models, ONE, ONE_BYTES, SHARD_BYTES, SHARDS, options};
use packhouse_base::digest::Digest;
use packhouse_stage::models::{
    self, DropError, HowKnown, ModelEvent, ModelKey, ModelMiss, ModelOptions, ModelOutcome,
    ModelPrepareError, ModelQuery, SeenStat, SourceFile, SourceState,
};
use packhouse_stage::{Bound, RoomError};
use packhouse_sys::memory::MemoryRoom;
use packhouse_sys::stat::FsKind;

const BYTES: u64 = ONE_BYTES.len() as u64;
const OTHER: &str = "/home/user/models/other.gguf";

#[test]
fn a_model_is_copied_once_and_then_found_without_hashing() {
    let world = Models::new();
    let bytes = BYTES;
    assert!(matches!(world.miss(&[ONE]), ModelMiss::Absent { .. }));
    assert_eq!(world.outcome(&[ONE]), ModelOutcome::Copied { bytes });
    let found = world.find(&[ONE], None).expect("because it was copied");
    assert_eq!(found.path.to_str(), Some(world.copy(1).as_str()));
    assert_eq!(found.digest, Digest::of(ONE_BYTES));
    assert_eq!(found.source, SourceState::Unchanged);
    assert_eq!(found.bytes, BYTES);
    assert_eq!(world.sim.read(world.copy(1)).as_deref(), Some(ONE_BYTES));
    assert_eq!(world.outcome(&[ONE]), ModelOutcome::Reused);
    world.sim.restart_count();
    let before = world.sim.operation_count();
    world.find(&[ONE], None).expect("because nothing changed");
    assert_eq!(world.sim.operation_count(), before, "a look-up wrote");
    assert!(world.verify(&[ONE]).is_good());
}

#[test]
fn shards_are_one_model_and_any_other_order_is_another() {
    let world = Models::new();
    let prepared = world
        .prepare(&SHARDS)
        .expect("because nothing is in the way");
    let digests = SHARD_BYTES.map(Digest::of);
    assert_eq!(prepared.model.key, ModelKey::of(&digests));
    let found = world.find(&SHARDS, None).expect("because it was copied");
    let names = found.files.iter().map(|file| {
        let name = file.path.file_name().and_then(|name| name.to_str());
        name.expect("because names are ASCII").to_owned()
    });
    let names: Vec<String> = names.collect();
    assert_eq!(names[0], "two-00001-of-00002.gguf");
    assert_eq!(names[1], "two-00002-of-00002.gguf");
    assert_eq!(found.files[1].digest, digests[1]);
    // By the digest of its first file, as a fleet names it.
    let by_digest = world.find(&[OTHER], Some(digests[0]));
    assert_eq!(by_digest.map(|model| model.key), Ok(prepared.model.key));
    // A shard that is gone is no change, one that changed is.
    world.sim.remove(SHARDS[1]);
    let found = world.find(&SHARDS, None).expect("because the copy is good");
    assert_eq!(found.source, SourceState::Gone);
    world.sim.edit(SHARDS[0], |bytes| bytes[0] ^= 1);
    assert_eq!(world.miss(&SHARDS).reason(), "source_changed");
}

#[test]
fn a_good_copy_stays_good_without_its_source() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.sim.remove(ONE);
    let found = world.find(&[ONE], None).expect("because the copy is good");
    assert_eq!(found.source, SourceState::Gone);
    assert_eq!(world.sim.read(found.path).as_deref(), Some(ONE_BYTES));
    // And by its digest, whatever the path is called.
    let digest = Digest::of(ONE_BYTES);
    let found = world.find(&[OTHER], Some(digest));
    assert_eq!(found.map(|model| model.digest), Ok(digest));
}

#[test]
fn a_changed_source_is_not_admitted_unless_its_digest_is_asked_for() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.sim.edit(ONE, |bytes| bytes[0] ^= 1);
    let miss = world.miss(&[ONE]);
    assert_eq!(
        miss.to_string(),
        format!("{ONE} changed since it was copied: its ctime differs")
    );
    let digest = Digest::of(ONE_BYTES);
    let found = world
        .find(&[ONE], Some(digest))
        .expect("because it is here");
    assert_eq!(found.source, SourceState::Changed { field: "ctime" });
    // What is asked for is not what is there.
    let wanted = Digest::of(b"something else");
    let miss = world.find(&[ONE], Some(wanted));
    assert!(matches!(miss, Err(ModelMiss::OtherDigest { expected, .. }) if expected == wanted));
    let miss = world.find(&[OTHER], Some(wanted));
    assert_eq!(miss, Err(ModelMiss::NoSuchContent { digest: wanted }));
    // The next copy is of the new bytes; the one before stays, and is named.
    let prepared = world
        .prepare(&[ONE])
        .expect("because nothing is in the way");
    assert_eq!(prepared.outcome, ModelOutcome::Copied { bytes: BYTES });
    assert_eq!(prepared.previous, Some(ModelKey(digest)));
    assert_ne!(prepared.model.digest, digest);
    assert_eq!(world.names().len(), 2);
}

#[test]
fn a_source_that_somebody_can_write_to_is_not_known_to_be_what_was_copied() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.sim.set_writer(ONE, true);
    let miss = world.miss(&[ONE]);
    let expected = format!("{ONE} is open for writing by some process");
    assert_eq!(
        (miss.to_string(), miss.reason()),
        (expected, "source_written")
    );
    let digest = Digest::of(ONE_BYTES);
    let found = world.find(&[ONE], Some(digest));
    let found = found.expect("because its content is asked for");
    assert_eq!(found.source, SourceState::Written);
    world.sim.set_writer(ONE, false);
    assert!(world.find(&[ONE], None).is_ok());
}

#[test]
fn only_a_disk_that_is_gone_hides_its_source_and_nothing_else_that_took_its_place() {
    let world = Models::new();
    world.outcome(&[ONE]);
    let was = world.open(ONE).identity().expect("because it is there");
    let seen = SeenStat {
        inode: was.inode,
        size: was.size,
        mtime_ns: was.mtime_ns,
        ctime_ns: was.ctime_ns,
        uid: was.uid,
        mode: was.mode,
    };
    let find = |file: SourceFile, expected| {
        let files = [file];
        let path = std::path::Path::new(ONE);
        let query = ModelQuery {
            path,
            files: &files,
            expected,
        };
        models::find(&world.root(), &query).map(|model| model.source)
    };
    let why = "permission denied".to_owned();
    let forbidden = find(SourceFile::Forbidden(seen), None);
    assert_eq!(forbidden, Ok(SourceState::Unreadable { why }));
    let why = "no such device".to_owned();
    let unplugged = SourceFile::Unreadable { why: why.clone() };
    assert_eq!(find(unplugged, None), Ok(SourceState::Unreadable { why }));
    let others = [
        ("inode", SeenStat { inode: 1, ..seen }),
        ("size", SeenStat { size: 1, ..seen }),
        (
            "mtime",
            SeenStat {
                mtime_ns: 1,
                ..seen
            },
        ),
        (
            "ctime",
            SeenStat {
                ctime_ns: 1,
                ..seen
            },
        ),
        ("owner", SeenStat { uid: 1, ..seen }),
        ("mode", SeenStat { mode: 0, ..seen }),
    ];
    let others = others.map(|(field, seen)| (field, SourceFile::Forbidden(seen)));
    let field = "kind";
    for (field, file) in others
        .into_iter()
        .chain([(field, SourceFile::Other { field })])
    {
        let miss = find(file, None).expect_err("because something else is there");
        let expected = format!("{ONE} changed since it was copied: its {field} differs");
        assert_eq!(miss.to_string(), expected);
    }
    // What is asked for by its content does not depend on the source.
    let digest = Some(Digest::of(ONE_BYTES));
    let found = find(SourceFile::Other { field }, digest);
    assert_eq!(found, Ok(SourceState::Changed { field }));
}

#[test]
fn a_touched_source_is_hashed_and_its_copy_found_again() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.told.borrow_mut().clear();
    world.sim.edit(ONE, |_| ());
    world.sim.clock().advance_ns(10_000_000_000);
    assert_eq!(world.miss(&[ONE]).reason(), "source_changed");
    let hashed_bytes = BYTES;
    assert_eq!(world.outcome(&[ONE]), ModelOutcome::Found { hashed_bytes });
    assert_eq!(*world.told.borrow(), [ModelEvent::Hash { bytes: BYTES }]);
    assert!(world.find(&[ONE], None).is_ok());
    assert_eq!(world.names(), [format!("{}.1", Digest::of(ONE_BYTES))]);
}

#[test]
fn the_same_content_under_another_path_is_copied_once() {
    let world = Models::new();
    let digests = world.digests();
    world.outcome(&[ONE]);
    world.sim.replace(OTHER, ONE_BYTES, 0o600);
    world.sim.clock().advance_ns(10_000_000_000);
    let prepare = |path: &str| {
        let prepared = world.prepare_with(&[path], Some(&digests), &[], &options());
        prepared.expect("because nothing is in the way")
    };
    let hashed_bytes = BYTES;
    let prepared = prepare(OTHER);
    assert_eq!(prepared.outcome, ModelOutcome::Found { hashed_bytes });
    assert_eq!(prepared.model.path.to_str(), Some(world.copy(1).as_str()));
    assert_eq!(prepare(OTHER).outcome, ModelOutcome::Reused);
    // Remembered, so that a dropped record costs no hash.
    let dropped = models::drop_model(&world.root(), prepared.model.key, 0, &|| (), &|| false);
    assert_eq!(dropped.map(|dropped| dropped.count), Ok(1));
    assert_eq!(prepare(ONE).outcome, ModelOutcome::Copied { bytes: BYTES });
    world.told.borrow_mut().clear();
    let hashed_bytes = 0;
    assert_eq!(prepare(OTHER).outcome, ModelOutcome::Found { hashed_bytes });
    assert_eq!(*world.told.borrow(), []);
}

#[test]
fn a_young_source_is_waited_for_and_so_are_the_copies() {
    let world = Models::new();
    world.sim.replace(OTHER, b"fresh from the net", 0o644);
    world.outcome(&[OTHER]);
    let told = world.told.borrow();
    let waits = told
        .iter()
        .map(|event| matches!(event, ModelEvent::Settle { .. }));
    let waits: Vec<bool> = waits.collect();
    // The source, then the copy.
    assert_eq!(waits, [true, false, true], "{told:?}");
}

#[test]
fn what_is_wanted_is_compared_before_anything_is_published() {
    let world = Models::new();
    let (right, wrong) = (Digest::of(ONE_BYTES), Digest::of(b"other"));
    let prepare = |expected: &[Digest]| world.prepare_with(&[ONE], None, expected, &options());
    let error = prepare(&[wrong]).expect_err("because it is another");
    assert_eq!(
        error.to_string(),
        format!("{ONE} has SHA-256 {right}, expected {wrong}")
    );
    assert_eq!(world.names(), [""; 0]);
    let error = prepare(&[right, wrong]).expect_err("because there is one file");
    assert_eq!(error.to_string(), "2 digests given for 1 files");
    assert!(prepare(&[right]).is_ok());
    // A copy that is there is compared too.
    let error = prepare(&[wrong]).expect_err("because it is another");
    assert!(matches!(error, ModelPrepareError::WrongDigest { .. }));
    assert!(world.find(&[ONE], None).is_ok());
}

#[test]
fn a_source_on_a_remote_file_system_needs_its_digest() {
    let world = Models::new();
    world.outcome(&[ONE]);
    let digests = world.digests();
    // Now the source could not be told to be unchanged; the copy's own file system is the same
    // here, and is refused for itself.
    world.sim.set_kind(FsKind::Nfs);
    let file = world.open(ONE);
    let first = models::digest_of(Some(&digests), &file, &|_| (), &|| false);
    let first = first.expect("because it can be read");
    assert_eq!(first.how, HowKnown::Hashed { recorded: false });
    let again = models::digest_of(Some(&digests), &file, &|_| (), &|| false);
    assert_eq!(again, Ok(first));
    world.sim.set_kind(FsKind::Ext);
    assert!(world.find(&[ONE], None).is_ok());
}

#[test]
fn a_hashed_file_is_remembered_until_it_changes() {
    let world = Models::new();
    let digests = world.digests();
    let digest_of = || {
        let file = world.open(ONE);
        let found = models::digest_of(Some(&digests), &file, &|_| (), &|| false);
        found.expect("because it can be read")
    };
    let first = digest_of();
    assert_eq!(first.digest, Digest::of(ONE_BYTES));
    assert_eq!(first.how, HowKnown::Hashed { recorded: true });
    assert_eq!(digest_of().how, HowKnown::Receipt);
    // A change with its times restored.
    world.sim.edit(ONE, |bytes| bytes[0] ^= 1);
    let changed = digest_of();
    assert_ne!(changed.digest, first.digest);
    assert_eq!(changed.how, HowKnown::Hashed { recorded: true });
    // A record that was edited, or torn, is a hash and no other digest.
    let records = world.sim.files(format!("{STATE}/models"));
    assert_eq!(records.len(), 1, "{records:?}");
    let good = world.sim.read(&records[0]).expect("because it is there");
    for at in 0..good.len() {
        let mut edited = good.clone();
        edited[at] ^= 1;
        world.sim.rot(&records[0], |bytes| *bytes = edited);
        let found = digests.known(&world.open(ONE).identity().expect("because it is open"));
        assert_eq!(found, None, "byte {at}");
        world
            .sim
            .rot(&records[0], |bytes| bytes.clone_from(&good[..at].to_vec()));
        assert_eq!(digest_of().digest, changed.digest, "cut at {at}");
        assert_eq!(digest_of().how, HowKnown::Receipt);
    }
}

#[test]
fn a_folder_in_a_file_s_place_is_refused() {
    let world = Models::new();
    world.sim.make_dirs("/home/user/models/folder", 1000, 0o755);
    let error = models::prepare(
        &world.root(),
        None,
        models::ModelFiles {
            path: std::path::Path::new(ONE),
            files: &[],
            expected: &[],
        },
        &options(),
        models::ModelWatcher {
            tell: &|_| (),
            cancel: &|| false,
        },
    );
    assert_eq!(error, Err(ModelPrepareError::NoFiles));
}

#[test]
fn room_is_kept_free_and_named_when_it_is_short() {
    let world = Models::new();
    let options = ModelOptions {
        min_free_bytes: 1 << 20,
        memory: || MemoryRoom {
            available_bytes: Some(1 << 20),
            group_bytes: None,
        },
        ..options()
    };
    let error = world.prepare_with(&[ONE], None, &[], &options);
    let Err(ModelPrepareError::Room(RoomError::Short { bound, .. })) = error else {
        panic!("expected a shortage, found {error:?}");
    };
    assert_eq!(bound, Bound::Memory);
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn a_failed_copy_gives_its_room_to_its_successor() {
    thread_local! {
        static ASKED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    let world = Models::new();
    world.outcome(&[ONE]);
    let receipts = world.copy(1).replace("files/one.gguf", "receipts.json");
    world.sim.remove(receipts);
    let options = ModelOptions {
        // Too little at first.
        memory: || {
            let asked = ASKED.get();
            ASKED.set(asked + 1);
            MemoryRoom {
                available_bytes: Some(u64::from(asked) << 30),
                group_bytes: None,
            }
        },
        ..options()
    };
    let prepared = world.prepare_with(&[ONE], None, &[], &options);
    let prepared = prepared.expect("because the failed copy went");
    assert_eq!(ASKED.get(), 2);
    assert_eq!(prepared.outcome, ModelOutcome::Copied { bytes: BYTES });
    assert_eq!(
        prepared.model.generation, 1,
        "the one before was still there"
    );
    // A good copy never goes for another's sake.
    ASKED.set(0);
    world.sim.edit(ONE, |bytes| bytes.push(1));
    world.sim.clock().advance_ns(10_000_000_000);
    let error = world.prepare_with(&[ONE], None, &[], &options);
    assert!(
        matches!(error, Err(ModelPrepareError::Room(_))),
        "{error:?}"
    );
    assert_eq!(world.names(), [format!("{}.1", Digest::of(ONE_BYTES))]);
}

#[test]
fn a_dropped_copy_is_gone_with_its_records_and_others_stay() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.outcome(&SHARDS);
    let key = ModelKey(Digest::of(ONE_BYTES));
    let root = world.root();
    let drop_it = || models::drop_model(&root, key, 0, &|| (), &|| false);
    let dropped = drop_it().expect("because it is there");
    assert_eq!((dropped.count, dropped.bytes), (1, BYTES));
    assert_eq!(drop_it(), Err(DropError::Absent { key }));
    assert!(matches!(world.miss(&[ONE]), ModelMiss::Absent { .. }));
    assert!(world.find(&SHARDS, None).is_ok());
    let sources = world.sim.files(format!("{ROOT}/models/sources"));
    assert_eq!(sources.len(), 1, "{sources:?}");
}

#[test]
fn a_listing_names_paths_problems_and_strangers() {
    let world = Models::new();
    world.outcome(&[ONE]);
    world.outcome(&SHARDS);
    world.sim.set_mode(world.copy(1), 0o644);
    world
        .sim
        .replace(format!("{ROOT}/models/notes"), b"", 0o600);
    let root = world.root();
    let listed = models::list(&root).expect("because it can be listed");
    assert_eq!(listed.len(), 2);
    let one = listed
        .iter()
        .find(|listing| listing.paths == [ONE])
        .expect("because it was copied");
    let problem = one.problem.as_ref().map(|problem| problem.reason());
    assert_eq!(problem, Some("mode"));
    assert_eq!(
        (one.bytes, one.generation, one.superseded),
        (BYTES, 1, false)
    );
    assert_eq!(one.files, ["one.gguf"]);
    assert_eq!(models::strangers(&root), Ok(vec!["notes".to_owned()]));
    let strangers = packhouse_stage::strangers(&root);
    assert_eq!(strangers, Ok(Vec::new()), "the folder of copies is none");
    let collected = models::collect(&root, false).expect("because the lock is free");
    assert_eq!(collected.superseded.count + collected.record_count, 0);
    assert_eq!(collected.strangers, ["notes"]);
    assert_eq!(models::list(&root).map(|listed| listed.len()), Ok(2));
}

#[test]
fn collecting_removes_records_that_nothing_stands_behind() {
    let world = Models::new();
    world.outcome(&[ONE]);
    let root = world.root();
    let sources = world.sim.files(format!("{ROOT}/models/sources"));
    world.sim.edit(&sources[0], |bytes| bytes[20] ^= 1);
    assert_eq!(world.miss(&[ONE]).reason(), "record");
    let dry = models::collect(&root, true).expect("because the lock is free");
    let wet = models::collect(&root, false).expect("because the lock is free");
    assert_eq!((dry.record_count, wet.record_count), (1, 1));
    assert!(matches!(world.miss(&[ONE]), ModelMiss::Absent { .. }));
    // The copy is there, and is found by its content.
    let hashed_bytes = BYTES;
    assert_eq!(world.outcome(&[ONE]), ModelOutcome::Found { hashed_bytes });
}

#[test]
fn warming_reads_what_is_admitted_and_nothing_else() {
    let world = Models::new();
    world.outcome(&SHARDS);
    let key = ModelKey::of(&SHARD_BYTES.map(Digest::of));
    let root = world.root();
    let warm = || models::warm(&root, key, &|_| (), &|| false);
    let bytes = SHARD_BYTES.iter().map(|shard| shard.len() as u64).sum();
    assert_eq!(warm(), Ok(Some(bytes)));
    let copy = format!("{ROOT}/models/{key}.1/files/two-00002-of-00002.gguf");
    world.sim.edit(copy, |bytes| bytes[0] ^= 1);
    let problem = warm().expect_err("because it changed");
    assert_eq!(problem.reason(), "stale");
    let other = models::warm(&root, ModelKey(Digest::of(b"x")), &|_| (), &|| false);
    assert_eq!(other, Ok(None));
}
