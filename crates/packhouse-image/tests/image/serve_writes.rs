//! Disks that fill up, fail and stop, and starts side by side: the tile is right at every start,
//! nothing is left behind, and once the disk is well the next start hits.

use crate::serve_world::{
    PACKERS, ROOT, V1, Weights, assert_no_litter, buffers, geometries, geometry_of, image_files,
    image_path, images, new_disk, owner, settings, start, start_as, weights,
};
use packhouse_image::{
    Images, NoRoom, NotWritten, NotWrittenCode, Outcome, RefusalCode, Serve, Settings, Written,
    file_bytes,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder};
use packhouse_pack::int8_tile::Gather;
use packhouse_sim::{Fault, SimFs};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Fs as _, FsError, FsErrorKind, LockKind, Operation};
use packhouse_sys::real::RealFs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// How many counted operations a start takes on this disk.
fn operations(sim: &SimFs, weights: &Weights, geometry: &TileGeometry) -> u64 {
    let images = images(sim, settings());
    sim.restart_count();
    start_as(&images, weights.head(), weights, geometry);
    sim.operation_count()
}

/// A start with this fault armed, after the folder was opened.
fn faulty(sim: &SimFs, fault: Fault, weights: &Weights, geometry: &TileGeometry) {
    let images = images(sim, settings());
    sim.restart_count();
    sim.set_fault(Some(fault));
    let start = start_as(&images, weights.head(), weights, geometry);
    start.assert_right(weights, geometry);
    sim.set_fault(None);
}

fn assert_well(sim: &SimFs, weights: &Weights, geometry: &TileGeometry, context: &str) {
    start(sim, settings(), weights, geometry).assert_right(weights, geometry);
    let last = start(sim, settings(), weights, geometry);
    last.assert_all_hit();
    last.assert_right(weights, geometry);
    assert_eq!(image_files(sim).len(), 3, "{context}");
}

#[test]
fn a_disk_that_fails_or_fills_up_at_any_operation_costs_images_only() {
    let [geometry, _] = geometries();
    let count = operations(&new_disk(), &weights(), &geometry);
    assert!(count > 12, "three images were published");
    for at in 0..count {
        for fault in [
            Fault::Full { at },
            Fault::Error {
                at,
                kind: FsErrorKind::NoSpace,
            },
            Fault::Error {
                at,
                kind: FsErrorKind::Io,
            },
        ] {
            let sim = new_disk();
            faulty(&sim, fault, &weights(), &geometry);
            if !matches!(fault, Fault::Error { .. }) {
                assert_no_litter(&sim);
            }
            assert_well(&sim, &weights(), &geometry, &format!("{fault:?}"));
        }
    }
}

/// Serves the first tile alone, and answers whether its image was written.
fn first_tile(images: &Images, weights: &Weights, geometry: &TileGeometry) -> bool {
    let mut serve = crate::serve_world::serve(images, weights.head(), geometry);
    let (mut codes, mut scales) = buffers(geometry);
    let fill = |column, target: &mut [f32]| {
        weights.fill(column, target);
        Ok::<(), ()>(())
    };
    let gather = Gather::Parallel(&fill);
    let served = serve.tile(0, geometry.kpad(), gather, &mut codes, &mut scales);
    let outcome = served.expect("because no column fails").outcome;
    let Outcome::Packed { written, .. } = outcome else {
        panic!("a hit of a new head");
    };
    matches!(written, Written::Yes { .. })
}

/// The new head's image can't be written, whichever operation failed: the old head's stay, for
/// whoever goes back to it.
#[test]
fn what_the_owner_served_before_stays_until_the_new_head_is_published() {
    let [geometry, _] = geometries();
    let (old, new) = (weights(), Weights::new(47, 64, 2));
    let paths = |weights| (0..3).map(move |tile| image_path(weights, &geometry, tile));
    let (mut failed, mut at) = (0, 0);
    loop {
        let sim = new_disk();
        start(&sim, settings(), &old, &geometry);
        let images = images(&sim, settings());
        sim.restart_count();
        let kind = FsErrorKind::Io;
        sim.set_fault(Some(Fault::Error { at, kind }));
        let written = first_tile(&images, &new, &geometry);
        sim.set_fault(None);
        if !written && !image_files(&sim).contains(&image_path(&new, &geometry, 0)) {
            failed += 1;
            assert!(
                image_files(&sim).into_iter().eq(paths(&old)),
                "operation {at}"
            );
            start(&sim, settings(), &old, &geometry).assert_all_hit();
        }
        start(&sim, settings(), &new, &geometry).assert_right(&new, &geometry);
        if sim.operation_count() <= at {
            break;
        }
        at += 1;
    }
    assert!(
        failed >= 5,
        "{failed} of {at} operations kept the image from being written"
    );
}

/// A refused file that can't be replaced is refused again, and never used.
#[test]
fn a_damaged_image_on_a_full_disk_is_refused_at_every_start() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    start(&sim, settings(), &weights(), &geometry);
    sim.rot(image_path(&weights(), &geometry, 1), |bytes| {
        bytes[4096] ^= 4
    });
    for _ in 0..3 {
        let images = images(&sim, settings());
        sim.restart_count();
        sim.set_fault(Some(Fault::Full { at: 0 }));
        let start = start_as(&images, weights().head(), &weights(), &geometry);
        sim.set_fault(None);
        start.assert_right(&weights(), &geometry);
        assert_eq!(start.refusal(1).code(), RefusalCode::PayloadHash);
        assert_eq!(
            start.counters.not_written.get(&NotWrittenCode::Failed),
            Some(&1)
        );
        assert_no_litter(&sim);
    }
    assert_well(&sim, &weights(), &geometry, "a disk with room");
}

#[test]
fn a_head_that_fits_no_bound_is_packed_and_says_so() {
    let [geometry, _] = geometries();
    let bytes = 3 * file_bytes(&geometry);
    for (max_bytes, written) in [(bytes, 3), (bytes - 1, 0), (0, 0)] {
        let sim = new_disk();
        let settings = Settings {
            max_bytes: Some(max_bytes),
            ..settings()
        };
        let start = start(&sim, settings, &weights(), &geometry);
        start.assert_right(&weights(), &geometry);
        assert_eq!(start.counters.tiles_written, written, "{max_bytes}");
        let refused = start.counters.not_written.get(&NotWrittenCode::NoRoom);
        assert_eq!(refused.copied().unwrap_or_default(), 3 - written);
        assert_eq!(image_files(&sim).len() as u64, written);
    }
}

/// Images of several pieces, on the real file system, read and packed on several threads.
#[test]
fn long_images_are_served_on_any_number_of_threads() {
    let folder = tempfile::tempdir().expect("because tests may make folders");
    let geometry = geometry_of(TileOrder::Blocked, [1024, 2304, 1000, 2300]);
    let weights = Weights::new(2311, 999, 8);
    for (threads, hit) in [(2, false), (1, true), (3, true)] {
        let settings = Settings {
            threads: NonZeroUsize::new(threads).expect("because some are asked for"),
            seed: Some(threads as u64),
            ..settings()
        };
        let start = start_real(folder.path(), settings, &weights, &geometry);
        start.assert_right(&weights, &geometry);
        let outcome = start.outcomes()[0];
        assert_eq!(
            *outcome == Outcome::Hit,
            hit,
            "{threads} threads: {outcome:?}"
        );
    }
    // The last byte of the last piece.
    let path = real_images(folder.path()).remove(0);
    let mut bytes = std::fs::read(&path).expect("because it was written");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::remove_file(&path).expect("because it is ours");
    std::fs::write(&path, &bytes).expect("because there is room");
    let start = start_real(folder.path(), settings(), &weights, &geometry);
    assert_eq!(start.refusal(0).code(), RefusalCode::PayloadHash);
    start.assert_right(&weights, &geometry);
    start_real(folder.path(), settings(), &weights, &geometry).assert_all_hit();
}

fn open_real(folder: &Path, settings: Settings) -> Images {
    let root = folder.join("images");
    let images = Images::open(Arc::new(RealFs), Arc::new(RealClock), Some(&root), settings);
    assert_eq!(images.why_off(), None);
    images
}

fn start_real(
    folder: &Path,
    settings: Settings,
    weights: &Weights,
    geometry: &TileGeometry,
) -> crate::serve_world::Start {
    let images = open_real(folder, settings);
    start_as(&images, weights.head(), weights, geometry)
}

/// Images of the real folder, sorted.
fn real_images(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder.join("images/v1")).expect("because it was made");
    let paths = entries.map(|entry| entry.expect("because it was listed").path());
    let mut paths: Vec<_> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "phti")
        })
        .collect();
    paths.sort();
    paths
}

const fn assert_send<T: Send>() {}
const _: () = assert_send::<Serve>();
const _: () = assert_send::<Images>();

/// Eight serves of one head at once, in two folders' handles: each is right, whoever wrote first,
/// and one whole set of images is left.
#[test]
fn serves_side_by_side_on_one_folder_are_all_right() {
    let folder = tempfile::tempdir().expect("because tests may make folders");
    let geometry = geometry_of(TileOrder::Blocked, [128, 256, 100, 200]);
    let weights = Weights::new(450, 90, 3);
    let shared = open_real(folder.path(), settings());
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (weights, geometry) = (&weights, &geometry);
            let images = match worker % 2 {
                0 => shared.clone(),
                _ => open_real(folder.path(), settings()),
            };
            scope.spawn(move || {
                for _ in 0..6 {
                    let start = start_as(&images, weights.head(), weights, geometry);
                    start.assert_right(weights, geometry);
                    assert_eq!(start.counters.tiles_refused(), 0, "{}", start.line);
                }
            });
        }
    });
    assert_eq!(real_images(folder.path()).len(), 3);
    let last = start_real(folder.path(), settings(), &weights, &geometry);
    last.assert_all_hit();
}

/// One serve's tiles on two threads: what is handed on is the serve.
#[test]
fn a_serve_goes_from_thread_to_thread() {
    let [_, geometry] = geometries();
    let sim = new_disk();
    let weights = Arc::new(weights());
    let images = images(&sim, settings());
    let serve = images.serve(PACKERS.clone(), weights.head(), geometry, owner());
    let mut serve = serve.expect("because the head fits");
    for tile in 0..3 {
        let weights = weights.clone();
        let thread = std::thread::spawn(move || {
            let (mut codes, mut scales) = buffers(&geometry);
            let fill = |column, target: &mut [f32]| {
                weights.fill(column, target);
                Ok::<(), ()>(())
            };
            let gather = Gather::Parallel(&fill);
            let served = serve.tile(tile, geometry.kpad(), gather, &mut codes, &mut scales);
            assert!(served.is_ok());
            assert_eq!(codes, weights.judged(&geometry, tile).0);
            serve
        });
        serve = thread.join().expect("because it does not panic");
    }
    assert_eq!(serve.counters().tiles_written, 3);
    assert_eq!(
        sim.files(ROOT).len(),
        6,
        "three images, a record, a lock and a tag"
    );
    let written = start(&sim, settings(), &weights, &geometry);
    assert!(!written.outcomes().iter().any(|outcome| matches!(
        outcome,
        Outcome::Packed {
            written: Written::Yes { .. },
            ..
        }
    )));
}

/// A holder of the lock that is stopped costs one wait, however many tiles, heads and owners come.
#[test]
fn a_lock_that_is_held_for_ever_is_waited_for_once_a_start() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    start(&sim, settings(), &weights(), &geometry);
    sim.clock().advance_ns(3_600_000_000_000);
    let mut dir = sim.root().expect("because the disk is there");
    for name in Path::new(V1).iter().skip(1) {
        dir = dir.open_dir(name).expect("because it is there");
    }
    let held = dir.open_file_writable("locks");
    let held = held.expect("because it is there");
    assert_eq!(held.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    let bytes = 3 * file_bytes(&geometry);
    // Something has to go; something may go; nothing has to.
    for (max_bytes, max_age_ns, written) in
        [(bytes, None, 0), (1 << 30, Some(1), 3), (1 << 30, None, 3)]
    {
        let settings = Settings {
            max_bytes: Some(max_bytes),
            max_age_ns,
            ..settings()
        };
        let images = images(&sim, settings);
        let began_ns = sim.clock().steady_ns();
        let new = Weights::new(47, 64, 2 + written);
        let first = start_as(&images, new.head(), &new, &geometry);
        first.assert_right(&new, &geometry);
        assert_eq!(first.counters.tiles_written, written, "{}", first.line);
        start_as(&images, new.head(), &new, &geometry).assert_right(&new, &geometry);
        let waited_ns = sim.clock().steady_ns() - began_ns;
        let once = 1_000_000_000..1_500_000_000;
        assert!(once.contains(&waited_ns), "{waited_ns} ns, {}", first.line);
        for path in image_files(&sim) {
            if written > 0 && !path.contains(&image_path(&weights(), &geometry, 0)[..60]) {
                sim.remove(path);
            }
        }
    }
    drop(held);
    let last = start(&sim, settings(), &Weights::new(47, 64, 9), &geometry);
    assert_eq!(last.counters.owner_problems, 0, "{}", last.line);
}

/// A disk that can't be asked is no bound: the code says that something failed, the text what.
#[test]
fn room_that_the_system_refuses_is_told_as_its_failure() {
    let error = FsError {
        operation: Operation::List,
        path: V1.into(),
        kind: FsErrorKind::Io,
    };
    let why = NotWritten::NoRoom(NoRoom::Fs(error));
    assert_eq!(why.code(), NotWrittenCode::Failed);
    assert_eq!(why.to_string(), format!("list {V1}: input/output error"));
    let busy = NotWritten::NoRoom(NoRoom::Busy {
        folder: ROOT.to_owned(),
        timeout_ns: 1,
    });
    assert_eq!(busy.code(), NotWrittenCode::NoRoom);
}
