//! The fault model does what it says: what survives a crash, what a fault costs.

use packhouse_sim::{Crash, Fault, SimClock, SimFs, Skip};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, DirAccess, File, Fs, FsErrorKind};
use packhouse_sys::stat::StatIdentity;
use std::collections::BTreeSet;
use std::sync::Arc;

const PATH: &str = "/home/user/file";
const BYTES: &[u8] = b"0123456789";

fn disk() -> (SimFs, Dir) {
    let sim = SimFs::new(1, Arc::new(SimClock::new()));
    let dir = home(&sim);
    (sim, dir)
}

fn home(sim: &SimFs) -> Dir {
    sim.root()
        .and_then(|root| root.open_dir_for("home", DirAccess::Lookup))
        .and_then(|home| home.open_dir("user"))
        .expect("because each disk has it")
}

/// A file with ten bytes, of which nothing is synced.
fn make(dir: &Dir) -> File {
    let file = dir.create_new("file", 0o600).expect("because it is new");
    file.write_all_at(0, BYTES).expect("because there is room");
    file
}

/// What any of 40 seeds leaves of the file.
fn outcomes(sim: &SimFs, crash: Crash) -> BTreeSet<Option<Vec<u8>>> {
    (0..40)
        .map(|seed| sim.crash(crash, seed).read(PATH))
        .collect()
}

fn one(bytes: Option<&[u8]>) -> BTreeSet<Option<Vec<u8>>> {
    BTreeSet::from([bytes.map(<[u8]>::to_vec)])
}

#[test]
fn names_and_content_survive_only_by_their_own_sync() {
    let (sim, dir) = disk();
    let file = make(&dir);
    assert_eq!(outcomes(&sim, Crash::Lost), one(None));
    assert_eq!(outcomes(&sim, Crash::LostEntries), one(None));
    assert_eq!(outcomes(&sim, Crash::Kept), one(Some(BYTES)));
    dir.sync().expect("because no fault is armed");
    assert_eq!(outcomes(&sim, Crash::Lost), one(Some(b"")));
    assert_eq!(outcomes(&sim, Crash::LostEntries), one(Some(BYTES)));
    file.sync().expect("because no fault is armed");
    for crash in [
        Crash::Lost,
        Crash::Torn,
        Crash::Reordered,
        Crash::LostEntries,
    ] {
        assert_eq!(outcomes(&sim, crash), one(Some(BYTES)), "{crash:?}");
    }
}

#[test]
fn a_synced_file_without_a_synced_name_is_gone() {
    let (sim, dir) = disk();
    let file = make(&dir);
    file.sync().expect("because no fault is armed");
    assert_eq!(outcomes(&sim, Crash::Lost), one(None));
    let either = BTreeSet::from([None, Some(BYTES.to_vec())]);
    assert_eq!(outcomes(&sim, Crash::Reordered), either);
}

#[test]
fn torn_writes_keep_prefixes_and_reordered_ones_leave_gaps() {
    let (sim, dir) = disk();
    let file = make(&dir);
    let torn = outcomes(&sim, Crash::Torn);
    assert!(torn.len() > 3);
    for bytes in torn.iter().flatten() {
        assert!(BYTES.starts_with(bytes) && bytes.len() < BYTES.len());
    }
    file.write_all_at(10, b"AB").expect("because there is room");
    dir.sync().expect("because no fault is armed");
    let gap = Some(b"\0\0\0\0\0\0\0\0\0\0AB".to_vec());
    let expected = BTreeSet::from([
        Some(Vec::new()),
        Some(BYTES.to_vec()),
        gap,
        Some(b"0123456789AB".to_vec()),
    ]);
    assert_eq!(outcomes(&sim, Crash::Reordered), expected);
}

#[test]
fn what_a_failed_sync_lost_stays_lost_and_the_file_is_poisoned() {
    let (sim, dir) = disk();
    let file = make(&dir);
    dir.sync().expect("because no fault is armed");
    sim.restart_count();
    let kind = FsErrorKind::Io;
    sim.set_fault(Some(Fault::Error { at: 0, kind }));
    assert_eq!(file.sync().map_err(|error| error.kind), Err(kind));
    let again = file.sync().map_err(|error| error.kind);
    assert_eq!(again, Err(FsErrorKind::Poisoned));
    let other = dir.open_file_writable("file").expect("because it is there");
    other.sync().expect("because the fault came once");
    assert_eq!(sim.read(PATH), Some(BYTES.to_vec()));
    assert_eq!(outcomes(&sim, Crash::Lost), one(Some(b"")));
}

#[test]
fn a_stopped_process_can_do_nothing_more() {
    let (sim, dir) = disk();
    sim.set_fault(Some(Fault::Stop { at: 1 }));
    let file = dir
        .create_new("file", 0o600)
        .expect("because it is the first");
    let stopped = file.write_all_at(0, BYTES).map_err(|error| error.kind);
    assert_eq!(stopped, Err(FsErrorKind::Stopped));
    let listed = dir.list().map_err(|error| error.kind);
    assert_eq!(listed, Err(FsErrorKind::Stopped));
    assert!(sim.root().is_err());
    assert_eq!(outcomes(&sim, Crash::Kept), one(Some(b"")));
}

#[test]
fn a_full_disk_takes_what_fits_and_still_removes() {
    let (sim, dir) = disk();
    sim.set_total_bytes(6);
    let file = dir
        .create_new("file", 0o600)
        .expect("because names are free");
    let full = file.write_all_at(0, BYTES).map_err(|error| error.kind);
    assert_eq!(full, Err(FsErrorKind::NoSpace));
    assert_eq!(sim.read(PATH), Some(b"012345".to_vec()));
    dir.unlink("file").expect("because removing needs no space");
    sim.set_total_bytes(1000);
    sim.restart_count();
    sim.set_fault(Some(Fault::Full { at: 1 }));
    make_refused(&dir);
    dir.unlink("file").expect("because removing needs no space");
}

fn make_refused(dir: &Dir) {
    let file = dir
        .create_new("file", 0o600)
        .expect("because it comes before the fault");
    let full = file.write_all_at(0, BYTES).map_err(|error| error.kind);
    assert_eq!(full, Err(FsErrorKind::NoSpace));
}

#[test]
fn a_sync_that_lies_is_as_good_as_none() {
    for (skip, left) in [(Skip::FileSync, Some(&b""[..])), (Skip::DirSync, None)] {
        let (sim, dir) = disk();
        sim.set_skip(Some(skip));
        let file = make(&dir);
        file.sync().expect("because it lies");
        dir.sync().expect("because it lies");
        assert_eq!(outcomes(&sim, Crash::Lost), one(left), "{skip:?}");
    }
}

#[test]
fn a_crash_is_the_same_for_the_same_seed_and_frees_locks_and_unnamed_files() {
    let (sim, dir) = disk();
    let file = make(&dir);
    let _unnamed = dir.create_unnamed(0o600).expect("because there is room");
    let kind = packhouse_sys::fs::LockKind::Exclusive;
    assert_eq!(file.try_lock(kind, 0, 1), Ok(true));
    for crash in [Crash::Torn, Crash::Reordered] {
        let [one, other] = [3, 3].map(|seed| sim.crash(crash, seed).read(PATH));
        assert_eq!(one, other);
    }
    let after = sim.crash(Crash::Kept, 1);
    let reopened = home(&after).open_file_writable("file");
    let reopened = reopened.expect("because all survived");
    assert_eq!(reopened.try_lock(kind, 0, 1), Ok(true));
    assert_eq!(after.files("/home"), [std::path::PathBuf::from(PATH)]);
}

#[test]
fn an_edit_shows_in_ctime_and_rot_in_nothing() {
    let (sim, dir) = disk();
    let file = make(&dir);
    let identity = || -> StatIdentity { file.identity().expect("because it is open") };
    let before = identity();
    sim.rot(PATH, |bytes| bytes[0] = b'x');
    assert_eq!(identity(), before);
    sim.clock().sleep_ns(10_000_000);
    sim.edit(PATH, |bytes| bytes[0] = b'y');
    assert_eq!(identity().difference(&before), Some("ctime"));
    assert_eq!(identity().mtime_ns, before.mtime_ns);
}
