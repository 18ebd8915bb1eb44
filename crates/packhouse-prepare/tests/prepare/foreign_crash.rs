//! Exports and imports of the Xe2 pack set, stopped and failed at every operation: the folder and
//! the set are whole or absent, and the next run makes them whole without anybody cleaning up.

use crate::foreign_world::{PACKERS, dir_at, hashed, model_at, model_bytes, packed_first};
use crate::store_fixture::DEEP;
use packhouse_prepare::beside::{BesideError, FolderBeside};
use packhouse_prepare::foreign::xe2_m6_v2::{
    self as xe2, ExportTargets, ForeignExport, ForeignExportError,
};
use packhouse_sim::{Crash, Fault, SimClock, SimFs, Skip};
use packhouse_store::manifest::SetManifest;
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::fs::{Fs as _, FsErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CRASHES: [(Crash, u64); 5] = [
    (Crash::Lost, 1),
    (Crash::Torn, 1),
    (Crash::Reordered, 4),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];
const STOP: fn(u64) -> Fault = |at| Fault::Stop { at };
const IO: fn(u64) -> Fault = |at| Fault::Error {
    at,
    kind: FsErrorKind::Io,
};
const FULL: fn(u64) -> Fault = |at| Fault::Full { at };
const PACKS: &str = "/home/user/packs";

/// A store on a simulated disk; `name` tells two of them apart.
fn open(sim: &SimFs, name: &str) -> Store {
    let mut config = StoreConfig::new(
        format!("/home/user/.cache/{name}"),
        format!("/home/user/.local/state/{name}"),
    );
    config.min_free_bytes = 0;
    Store::open(Arc::new(sim.clone()), sim.clock(), config).expect("because the disk is sound")
}

/// A disk with a store, a set, its model and an empty folder.
fn disk() -> (SimFs, SetManifest) {
    let sim = SimFs::new(1, Arc::new(SimClock::new()));
    sim.make_dirs(PACKS, 1000, 0o755);
    let model = model_bytes("");
    sim.replace("/home/user/model.gguf", &model, 0o644);
    sim.clock().advance_ns(10_000_000_000);
    let manifest = packed_first(&open(&sim, "first"), &model, &hashed(&model), 2);
    sim.settle();
    (sim, manifest)
}

fn export(sim: &SimFs, set: &SetManifest) -> Result<ForeignExport, ForeignExportError> {
    let store = open(sim, "first");
    let model = model_at(sim, Path::new("/home/user/model.gguf"));
    let root = dir_at(sim, Path::new(PACKS));
    let targets = ExportTargets {
        root: &root,
        stage: None,
    };
    xe2::export(&store, set.key(), &model, targets, &mut |_, _| {})
}

fn import(sim: &SimFs, folder: &Path) -> Result<xe2::ForeignImport, xe2::ForeignImportError> {
    let name = folder.file_name().expect("because it has a name");
    let name = name.to_str().expect("because it is plain");
    let dir = dir_at(sim, folder);
    let store = open(sim, "second");
    xe2::import(&store, &PACKERS, (&dir, name), None, &mut |_, _| {})
}

/// Runs `work` once per operation with a fault there, and hands each disk to `judge` after each
/// kind of crash.
fn at_every_operation(
    base: &SimFs,
    faults: &[fn(u64) -> Fault],
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
    assert!(count > 20, "only {count} operations were counted");
    for fault in faults {
        for at in 0..count {
            let sim = base.crash(Crash::Kept, 0);
            sim.restart_count();
            sim.set_skip(skip);
            sim.set_fault(Some(fault(at)));
            let reported = work(&sim);
            sim.set_fault(None);
            sim.set_skip(None);
            // A process that was not stopped has said what it did; two disks show whether it lied.
            let stopped = matches!(fault(at), Fault::Stop { .. });
            let crashes = if stopped { &CRASHES[..] } else { &CRASHES[3..] };
            for (crash, seeds) in crashes.iter().copied() {
                for seed in 100..100 + seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    judge(&sim.crash(crash, seed), reported, &context);
                }
            }
        }
    }
}

fn visible(sim: &SimFs) -> Vec<PathBuf> {
    let names = dir_at(sim, Path::new(PACKS)).list();
    let names = names.expect("because it can be listed").into_iter();
    names
        .filter(|name| !name.to_string_lossy().starts_with('.'))
        .map(|name| Path::new(PACKS).join(name))
        .collect()
}

/// Exports with every fault. A folder that can be seen is one that an import takes.
fn export_at_every_operation(faults: &[fn(u64) -> Fault], skip: Option<Skip>) {
    let (base, set) = disk();
    at_every_operation(
        &base,
        faults,
        skip,
        |sim| export(sim, &set).is_ok(),
        |sim, reported, context| {
            if visible(sim).is_empty() {
                assert!(!reported, "{context}: a reported folder is gone");
                let again = export(sim, &set);
                assert!(again.is_ok(), "{context}: {again:?}");
            }
            let folders = visible(sim);
            assert_eq!(folders.len(), 1, "{context}: {folders:?}");
            let taken = import(sim, &folders[0]);
            assert!(taken.is_ok(), "{context}: {taken:?}");
            let names = dir_at(sim, Path::new(PACKS)).list();
            let names = names.expect("because it can be listed");
            assert_eq!(names.len(), 1, "{context}: left behind: {names:?}");
        },
    );
}

#[test]
fn an_export_is_whole_or_absent_and_the_next_one_makes_it_whole() {
    export_at_every_operation(&[STOP, IO, FULL], None);
}

#[test]
fn an_export_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught = std::panic::catch_unwind(|| export_at_every_operation(&[STOP], Some(skip)));
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}

#[test]
fn an_import_is_whole_or_absent_and_the_next_one_makes_it_whole() {
    let (base, set) = disk();
    let folder = export(&base, &set)
        .expect("because nothing is in the way")
        .folder;
    open(&base, "second");
    base.settle();
    at_every_operation(
        &base,
        &[STOP, IO, FULL],
        None,
        |sim| import(sim, &folder).is_ok(),
        |sim, reported, context| {
            let store = open(sim, "second");
            let sets = store.list_sets().expect("because it can be listed");
            assert!(
                !reported || sets.len() == 1,
                "{context}: a reported set is gone"
            );
            for set in sets {
                let found = store.verify_set(set, DEEP, &|_| ());
                assert!(found.is_good(), "{context}: {found:?}");
            }
            let again = import(sim, &folder);
            let again = again.unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = store.verify_set(again.set, DEEP, &|_| ());
            assert!(found.is_good(), "{context}: {found:?}");
        },
    );
}

#[test]
fn two_who_make_one_folder_do_not_meet_and_a_strangers_is_not_used() {
    let sim = SimFs::new(1, Arc::new(SimClock::new()));
    sim.make_dirs(PACKS, 1000, 0o755);
    let packs = dir_at(&sim, Path::new(PACKS));
    let first = FolderBeside::create(&sim, &packs, "set").expect("because nobody else makes it");
    let busy = FolderBeside::create(&sim, &packs, "set").err();
    let path = Path::new(PACKS).join("set");
    assert_eq!(busy, Some(BesideError::Busy { path: path.clone() }));
    first.publish().expect("because nothing is in the way");
    let taken = FolderBeside::create(&sim, &packs, "set").err();
    assert_eq!(taken, Some(BesideError::Taken { path }));
    sim.make_dirs(format!("{PACKS}/.other.tmp"), 4711, 0o755);
    let foreign = FolderBeside::create(&sim, &packs, "other").err();
    let told = foreign.map(|error| error.to_string()).unwrap_or_default();
    assert!(
        told.contains("/.other.tmp belongs to uid 4711 with mode 0755"),
        "{told}"
    );
    assert_eq!(sim.effective_uid(), 1000);
}
