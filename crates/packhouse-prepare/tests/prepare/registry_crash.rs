//! Registering and removing, stopped and failed at every operation: a record is what it was or what
//! it shall be, and the next command goes on without anybody cleaning up.

use crate::registry_world::{binding, record, register, verified};
use packhouse_prepare::registry::{Outcome, ReadError, Record, Registry};
use packhouse_sim::{Crash, Fault, SimClock, SimFs, Skip};
use packhouse_sys::fs::FsErrorKind;
use std::path::Path;
use std::sync::Arc;

const STATE: &str = "/home/user/.local/state/packhouse";
const ONE: &str = "/home/user/one";
const OTHER: &str = "/home/user/other";
const CRASHES: [(Crash, u64); 5] = [
    (Crash::Lost, 1),
    (Crash::Torn, 3),
    (Crash::Reordered, 6),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];
const FAULTS: [fn(u64) -> Fault; 3] = [
    |at| Fault::Stop { at },
    |at| Fault::Error {
        at,
        kind: FsErrorKind::Io,
    },
    |at| Fault::Full { at },
];

/// A disk with two folders of the same content.
fn disk() -> SimFs {
    let sim = SimFs::new(1, Arc::new(SimClock::new()));
    for folder in ["/home/user/.local", "/home/user/.local/state", ONE, OTHER] {
        sim.make_dirs(folder, 1000, 0o700);
    }
    for folder in [ONE, OTHER] {
        sim.make_dirs(format!("{folder}/inner"), 1000, 0o755);
        sim.replace(format!("{folder}/a.bin"), b"first", 0o644);
        sim.replace(format!("{folder}/inner/b.bin"), &[7; 5000], 0o644);
    }
    sim.clock().advance_ns(10_000_000_000);
    sim.settle();
    sim
}

fn registered(sim: &SimFs, path: &str) -> Result<(Record, Outcome), String> {
    let paths = (Path::new(STATE), Path::new(path));
    register(Arc::new(sim.clone()), sim.clock(), paths)
}

fn expected(sim: &SimFs, path: &str) -> Record {
    let made = record(
        sim,
        sim.clock().as_ref(),
        Path::new(path),
        binding(),
        &|_| (),
    );
    made.expect("because the folder is whole")
}

fn opened(sim: &SimFs) -> Option<Registry> {
    let opened = Registry::open_if_there(Arc::new(sim.clone()), sim.clock(), Path::new(STATE));
    opened.expect("because the folder is this user's")
}

/// The record that is there. A damaged one is none of the states that a crash may leave.
fn found(sim: &SimFs, like: &Record, context: &str) -> Option<Record> {
    match opened(sim)?.read(like.key()) {
        Ok(record) => Some(record),
        Err(ReadError::Absent { .. }) => None,
        Err(error) => panic!("{context}: {error}"),
    }
}

fn remove(sim: &SimFs, like: &Record) -> Result<bool, String> {
    let registry = opened(sim).expect("because something was registered");
    registry
        .remove(like.key())
        .map_err(|error| error.to_string())
}

/// Runs `work` once per operation with each fault there, and hands each disk to `judge` after each
/// kind of crash, with whether the work was reported as done.
fn at_every_operation(
    base: &SimFs,
    skip: Option<Skip>,
    work: impl Fn(&SimFs) -> bool,
    judge: impl Fn(&SimFs, bool, &str),
) {
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        assert!(work(&sim), "nothing is in the way");
        sim.operation_count()
    };
    assert!(count >= 2, "only {count} operations were counted");
    for fault in FAULTS {
        // One past the last: done, then crashed.
        for at in 0..=count {
            let sim = base.crash(Crash::Kept, 0);
            sim.restart_count();
            sim.set_skip(skip);
            sim.set_fault(Some(fault(at)));
            let reported = work(&sim);
            sim.set_fault(None);
            sim.set_skip(None);
            for (crash, seeds) in CRASHES {
                for seed in 0..seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    judge(&sim.crash(crash, seed), reported, &context);
                }
            }
        }
    }
}

/// Nothing but the record, or none, and the lock is in the folder after the next command.
fn is_tidy(sim: &SimFs, records: usize, context: &str) {
    let files = sim.files(format!("{STATE}/registry/v1"));
    assert_eq!(files.len(), records + 1, "{context}: {files:?}");
}

fn register_at_every_operation(base: &SimFs, skip: Option<Skip>) {
    let (old, new) = (expected(base, ONE), expected(base, OTHER));
    let before = found(base, &new, "before");
    at_every_operation(
        base,
        skip,
        |sim| registered(sim, OTHER).is_ok(),
        |sim, reported, context| {
            let now = found(sim, &new, context);
            let is_new = now.as_ref() == Some(&new);
            assert!(is_new || (!reported && now == before), "{context}: {now:?}");
            let (again, outcome) = registered(sim, OTHER).expect(context);
            assert_eq!(again, new, "{context}");
            let expected = match (is_new, &before) {
                (true, _) => Outcome::Same,
                (false, None) => Outcome::New,
                (false, Some(_)) => Outcome::Moved { from: ONE.into() },
            };
            assert_eq!(outcome, expected, "{context}");
            is_tidy(sim, 1, context);
            assert!(
                verified(sim, sim.clock().as_ref(), &again).is_empty(),
                "{context}"
            );
        },
    );
    assert_eq!(old.key(), new.key());
}

#[test]
fn a_first_record_is_whole_or_absent_and_the_next_one_makes_it_whole() {
    register_at_every_operation(&disk(), None);
}

#[test]
fn a_record_that_takes_another_s_place_is_the_one_or_the_other() {
    let base = disk();
    registered(&base, ONE).expect("because nothing is in the way");
    base.settle();
    register_at_every_operation(&base, None);
}

/// A sync that failed, a user who tries again and finds the name, and then the power goes.
#[test]
fn what_is_said_to_be_registered_already_is_as_durable_as_what_was_written() {
    let base = disk();
    let new = expected(&base, ONE);
    let mut same_count = 0;
    for at in 0.. {
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        let kind = FsErrorKind::NoSpace;
        sim.set_fault(Some(Fault::Error { at, kind }));
        let is_done = registered(&sim, ONE).is_ok();
        sim.set_fault(None);
        let (_, outcome) = registered(&sim, ONE).expect("because nothing is in the way");
        same_count += u32::from(outcome == Outcome::Same);
        let cut = sim.crash(Crash::Lost, 0);
        let context = format!("operation {at}, then {outcome:?}");
        assert_eq!(found(&cut, &new, &context), Some(new.clone()), "{context}");
        if is_done {
            break;
        }
    }
    // Once after the last operation, and once after the sync of the folder failed.
    assert!(same_count >= 2, "only {same_count} found the name");
}

#[test]
fn a_record_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught = std::panic::catch_unwind(|| register_at_every_operation(&disk(), Some(skip)));
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}

fn remove_at_every_operation(skip: Option<Skip>) {
    let base = disk();
    let (record, _) = registered(&base, ONE).expect("because nothing is in the way");
    base.settle();
    at_every_operation(
        &base,
        skip,
        |sim| remove(sim, &record).is_ok(),
        |sim, reported, context| {
            let now = found(sim, &record, context);
            let is_gone = now.is_none();
            assert!(is_gone || !reported, "{context}: a removed record is back");
            assert!(is_gone || now.as_ref() == Some(&record), "{context}");
            assert_eq!(remove(sim, &record), Ok(!is_gone), "{context}");
            is_tidy(sim, 0, context);
            // The artifact is nobody's to remove.
            let left = sim.files(ONE);
            assert_eq!(left.len(), 2, "{context}: {left:?}");
        },
    );
}

#[test]
fn a_removed_record_is_gone_or_whole_and_the_artifact_stays() {
    remove_at_every_operation(None);
}

#[test]
fn a_removal_without_its_sync_is_caught() {
    let caught = std::panic::catch_unwind(|| remove_at_every_operation(Some(Skip::DirSync)));
    assert!(caught.is_err(), "the missing sync went unnoticed");
}

#[test]
fn what_dead_writers_left_goes_with_the_next_and_what_is_not_ours_stays() {
    let sim = disk();
    let (record, _) = registered(&sim, ONE).expect("because nothing is in the way");
    let folder = format!("{STATE}/registry/v1");
    sim.replace(format!("{folder}/.tmp-0123"), b"half", 0o600);
    sim.make_dirs(format!("{folder}/.tmp-folder"), 1000, 0o700);
    sim.replace(format!("{folder}/notes.txt"), b"mine", 0o600);
    sim.replace(format!("{folder}/{}.jsonx", record.key()), b"x", 0o600);
    let registry = opened(&sim).expect("because it is there");
    let (keys, strays) = registry.list().expect("because it can be listed");
    assert_eq!(keys, [record.key()]);
    let named = format!("{}.jsonx", record.key());
    assert_eq!(strays, [named.as_str(), "notes.txt"]);
    registered(&sim, OTHER).expect("because nothing is in the way");
    let left = sim.files(&folder);
    let has = |name: &str| left.contains(&Path::new(&folder).join(name));
    assert!(!has(".tmp-0123") && has("notes.txt"), "{left:?}");
}

#[test]
fn a_folder_of_others_is_not_used_and_a_foreign_record_not_overwritten() {
    let sim = disk();
    let (record, _) = registered(&sim, ONE).expect("because nothing is in the way");
    let folder = format!("{STATE}/registry/v1");
    let file = format!("{folder}/{}.json", record.key());
    sim.set_owner(&file, 4711);
    let refused = registered(&sim, ONE).expect_err("because it is somebody else's");
    assert!(refused.contains("belongs to uid 4711"), "{refused}");
    sim.set_owner(&file, 1000);
    sim.set_mode(&file, 0o666);
    let refused = registered(&sim, ONE).expect_err("because others can change it");
    assert!(refused.contains("has mode 0666"), "{refused}");
    sim.set_mode(&file, 0o600);
    sim.set_mode(&folder, 0o755);
    let refused = registered(&sim, ONE).expect_err("because others can look");
    assert!(refused.contains("mode 0755 lets others in"), "{refused}");
}
