//! Off reads and writes nothing, read-only writes nothing, and the line says which it is.

use crate::serve_world::{
    ROOT, V1, Weights, geometries, geometry_of, image_files, image_path, images, new_disk, owner,
    serve, settings, start, start_as, weights,
};
use packhouse_image::{
    Check, Images, Mode, NotWritten, NotWrittenCode, Off, Outcome, Settings, Written,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder};
use packhouse_pack::Packers;
use packhouse_sim::{SimClock, SimFs};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::{Dir, Fs, FsError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file system that nobody may ask for anything.
struct Forbidden;

impl Fs for Forbidden {
    fn root(&self) -> Result<Dir, FsError> {
        panic!("somebody opened the root");
    }

    fn random(&self, _: &mut [u8]) -> Result<(), FsError> {
        panic!("somebody wanted random bytes");
    }

    fn effective_uid(&self) -> u32 {
        panic!("somebody wanted the user");
    }
}

fn with_mode(mode: Mode) -> Settings {
    Settings { mode, ..settings() }
}

fn assert_packed(outcome: &Outcome, expected: &NotWritten) {
    let Outcome::Packed { refused, written } = outcome else {
        panic!("a hit");
    };
    assert_eq!(*refused, None);
    assert_eq!(*written, Written::No(expected.clone()));
}

#[test]
fn off_opens_reads_and_writes_nothing() {
    for geometry in geometries() {
        let clock = Arc::new(SimClock::new());
        let root = Some(Path::new(ROOT));
        let images = Images::open(Arc::new(Forbidden), clock, root, with_mode(Mode::Off));
        assert_eq!(images.why_off(), Some(&Off::Switch));
        let start = start_as(&images, weights().head(), &weights(), &geometry);
        start.assert_right(&weights(), &geometry);
        for outcome in start.outcomes() {
            assert_packed(outcome, &NotWritten::Off);
        }
        assert_eq!(start.asked, 47);
        assert_eq!(
            (start.counters.bytes_read, start.counters.bytes_written),
            (0, 0)
        );
        assert_eq!(
            start.line,
            "packhouse: head image: off (switched off): 3 tiles: 0 from images, 3 packed, \
             0 written; 47 columns gathered"
        );
    }
}

#[test]
fn off_leaves_images_that_are_there_alone() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    start(&sim, settings(), &weights(), &geometry);
    let before = sim.files(ROOT);
    let count = sim.operation_count();
    let other = Weights::new(47, 64, 5);
    let off = start(&sim, with_mode(Mode::Off), &other, &geometry);
    off.assert_right(&other, &geometry);
    assert_eq!((sim.files(ROOT), sim.operation_count()), (before, count));
}

#[test]
fn without_a_folder_everything_is_packed_and_the_line_says_why() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    let images = Images::open(Arc::new(sim.clone()), sim.clock(), None, settings());
    assert_eq!(images.why_off(), Some(&Off::NoFolder));
    let start = start_as(&images, weights().head(), &weights(), &geometry);
    start.assert_right(&weights(), &geometry);
    assert!(
        start
            .line
            .contains("off (no folder is known): 3 tiles: 0 from images, 3 packed")
    );
    assert_eq!(sim.operation_count(), 0);
}

#[test]
fn a_folder_that_cannot_be_made_turns_images_off_by_name() {
    let [geometry, _] = geometries();
    type Break = fn(&SimFs);
    let cases: [(Break, &str); 4] = [
        (
            |sim| sim.set_read_only(true),
            "folder of images: make folder /home/user/images: read-only file system",
        ),
        (
            |sim| sim.make_dirs("/home/user/images", 0, 0o755),
            "folder of images: /home/user/images belongs to uid 0, expected 1000",
        ),
        (
            |sim| sim.make_dirs("/home/user/images", 1000, 0o777),
            "folder of images: /home/user/images has mode 0777: others than its owner can change \
             it",
        ),
        (
            |sim| sim.replace("/home/user/images", b"a file", 0o600),
            "folder of images: /home/user/images is a regular file where a folder is expected",
        ),
    ];
    for (break_root, text) in cases {
        let sim = new_disk();
        break_root(&sim);
        let images = images(&sim, settings());
        let off = images.why_off().expect("because the folder can't be used");
        assert_eq!(off.to_string(), text);
        let start = start_as(&images, weights().head(), &weights(), &geometry);
        start.assert_right(&weights(), &geometry);
        for outcome in start.outcomes() {
            assert_packed(outcome, &NotWritten::Off);
        }
        assert!(
            start.line.contains(&format!("off ({text}): 3 tiles")),
            "{}",
            start.line
        );
    }
}

#[test]
fn read_only_hits_and_changes_nothing() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    start(&sim, settings(), &weights(), &geometry);
    // A hit of a day later would write the owner's record anew, and a refused file be replaced.
    sim.clock().advance_ns(86_400_000_000_000);
    sim.rot(image_path(&weights(), &geometry, 1), |bytes| {
        bytes[5000] ^= 1
    });
    let before: Vec<_> = sim
        .files(ROOT)
        .into_iter()
        .map(|path| (sim.read(&path), path))
        .collect();
    let count = sim.operation_count();
    let read = start(&sim, with_mode(Mode::ReadOnly), &weights(), &geometry);
    read.assert_right(&weights(), &geometry);
    assert_eq!(
        (read.counters.tiles_hit, read.counters.tiles_packed),
        (2, 1)
    );
    let Outcome::Packed { refused, written } = read.outcomes()[1] else {
        panic!("a damaged image was a hit");
    };
    assert!(refused.is_some());
    assert_eq!(*written, Written::No(NotWritten::ReadOnly));
    let other = Weights::new(47, 64, 5);
    let missed = start(&sim, with_mode(Mode::ReadOnly), &other, &geometry);
    missed.assert_right(&other, &geometry);
    for outcome in missed.outcomes() {
        assert_packed(outcome, &NotWritten::ReadOnly);
    }
    assert_eq!(
        missed.counters.not_written.get(&NotWrittenCode::ReadOnly),
        Some(&3)
    );
    assert!(
        missed
            .line
            .contains("0 written; not written: 3 read_only; "),
        "{}",
        missed.line
    );
    assert_eq!(
        sim.operation_count(),
        count,
        "nothing was made, written, moved or removed"
    );
    let after: Vec<_> = sim
        .files(ROOT)
        .into_iter()
        .map(|path| (sim.read(&path), path))
        .collect();
    assert_eq!(before, after);
}

#[test]
fn read_only_makes_no_folder() {
    let sim = new_disk();
    let images = images(&sim, with_mode(Mode::ReadOnly));
    let off = images.why_off().expect("because there is none");
    let text = "/home/user/images is not there, and read-only makes none";
    assert_eq!(off.to_string(), text);
    assert_eq!(sim.operation_count(), 0);
}

/// Images that came without a folder of records, on a disk that takes none.
#[test]
fn images_on_a_read_only_disk_serve_though_nothing_can_be_made() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    start(&sim, settings(), &weights(), &geometry);
    for path in sim.files(format!("{V1}/owners")) {
        sim.remove(path);
    }
    sim.remove(format!("{V1}/owners"));
    sim.set_read_only(true);
    let start = start(&sim, settings(), &weights(), &geometry);
    start.assert_all_hit();
    start.assert_right(&weights(), &geometry);
}

/// A disk that became read-only: hits go on, and what is missing is packed at each start.
#[test]
fn an_unwritable_folder_is_no_error() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    start(&sim, settings(), &weights(), &geometry);
    sim.remove(image_path(&weights(), &geometry, 2));
    let images = images(&sim, settings());
    sim.set_read_only(true);
    for _ in 0..2 {
        let start = start_as(&images, weights().head(), &weights(), &geometry);
        start.assert_right(&weights(), &geometry);
        assert_eq!(
            (start.counters.tiles_hit, start.counters.tiles_packed),
            (2, 1)
        );
        let Outcome::Packed { written, .. } = start.outcomes()[2] else {
            panic!("a hit of what is not there");
        };
        let Written::No(NotWritten::Publish(error)) = written else {
            panic!("{written:?}");
        };
        assert!(
            error.to_string().ends_with("read-only file system"),
            "{error}"
        );
        assert!(
            start.line.contains("; not written: 1 failed; "),
            "{}",
            start.line
        );
    }
}

#[test]
fn the_line_of_hits_misses_and_refusals() {
    let geometry = geometry_of(TileOrder::Blocked, [128, 128, 66, 20]);
    let sim = new_disk();
    let seed = Settings {
        seed: Some(0x1a2b),
        ..settings()
    };
    // Operations of the simulated disk take time, nothing else does.
    let line = |weights: &Weights| {
        let line = start(&sim, seed.clone(), weights, &geometry).line;
        let Some((counts, time)) = line.split_once("; write ") else {
            return line;
        };
        assert!(time.ends_with(" us"), "{line}");
        counts.to_owned()
    };
    assert_eq!(
        line(&weights()),
        "packhouse: head image: 3 tiles: 0 from images, 3 packed, 3 written; 47 columns gathered, \
         0 sampled (seed 1a2b); 0 B read, 61.5 KiB written"
    );
    assert_eq!(
        line(&weights()),
        "packhouse: head image: 3 tiles: 3 from images, 0 packed, 0 written; 0 columns gathered, \
         23 sampled (seed 1a2b); 61.5 KiB read, 0 B written"
    );
    let path = |tile| image_path(&weights(), &geometry, tile);
    sim.rot(path(0), |bytes| bytes[4096] ^= 1);
    sim.rot(path(1), |bytes| bytes[9] ^= 1);
    assert_eq!(
        line(&weights()),
        "packhouse: head image: 3 tiles: 1 from images, 2 packed, 2 written; refused: 1 \
         header_hash, 1 payload_hash; 40 columns gathered, 7 sampled (seed 1a2b); 45.0 KiB read, \
         41.0 KiB written"
    );
    assert_eq!(
        line(&Weights::new(47, 64, 2)),
        "packhouse: head image: 3 tiles: 0 from images, 3 packed, 3 written; 3 files removed \
         (61.5 KiB); 47 columns gathered, 0 sampled (seed 1a2b); 0 B read, 61.5 KiB written"
    );
}

/// A clock that shows another time whenever it is looked at.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns()
    }

    fn steady_ns(&self) -> u64 {
        self.0.fetch_add(3_000_000, Ordering::Relaxed)
    }

    fn sleep_ns(&self, _: u64) {}
}

#[test]
fn the_fingerprint_is_timed_where_it_is_taken_and_only_there() {
    let taken = |mode, packers: &Arc<Packers>, geometry: &TileGeometry| {
        let (fs, clock) = (Arc::new(new_disk()), Arc::new(Ticking(AtomicU64::new(1))));
        let images = Images::open(fs, clock, Some(Path::new(ROOT)), with_mode(mode));
        let serve = images.serve(packers.clone(), weights().head(), *geometry, owner());
        let serve = serve.expect("because the head fits");
        let ns = serve.counters().fingerprint_ns;
        let is_said = serve.line().ends_with("; fingerprint 3 ms");
        assert_eq!(is_said, ns > 0, "{}", serve.line());
        ns
    };
    let packers = Arc::new(Packers::detect());
    for geometry in geometries() {
        assert_eq!(taken(Mode::Off, &packers, &geometry), 0);
        assert_eq!(taken(Mode::ReadWrite, &packers, &geometry), 3_000_000);
        assert_eq!(taken(Mode::ReadWrite, &packers, &geometry), 0);
    }
}

#[test]
fn the_callers_hash_of_the_head_is_counted() {
    let [geometry, _] = geometries();
    let images = images(&new_disk(), settings());
    let mut serve = serve(&images, weights().head(), &geometry);
    serve.note_head_hash_ns(12_000_000);
    assert_eq!(serve.counters().head_hash_ns, 12_000_000);
    assert!(
        serve.line().ends_with("; head hash 12 ms"),
        "{}",
        serve.line()
    );
}

#[test]
fn a_full_check_finds_an_edit_in_any_column_and_in_padding() {
    let full = Settings {
        check: Check::Full,
        ..settings()
    };
    for geometry in geometries() {
        let sim = new_disk();
        start(&sim, settings(), &weights(), &geometry);
        let whole = start(&sim, full.clone(), &weights(), &geometry);
        whole.assert_all_hit();
        whole.assert_right(&weights(), &geometry);
        assert_eq!(whole.counters.columns_sampled, 47, "every column");
        assert_eq!(whole.counters.columns_gathered, 0);
        assert!(
            whole.line.contains(", 47 compared (full); "),
            "{}",
            whole.line
        );
        for column in 0..geometry.nd() {
            // A row of the head, and one that is padding in depth.
            for row in [1, geometry.kd() - 1] {
                let path = image_path(&weights(), &geometry, 1);
                sim.rot(path, |bytes| {
                    crate::serve_world::reseal(bytes, |payload| {
                        payload[geometry.position(row, column) as usize] ^= 0x40;
                    });
                });
                let start = start(&sim, full.clone(), &weights(), &geometry);
                let text = start.refusal(1).to_string();
                let expected = format!("the code of column {}, depth row {row}, is ", 20 + column);
                assert!(text.contains(&expected), "{text}");
                start.assert_right(&weights(), &geometry);
            }
        }
    }
}

/// What the sample is not: a second hash. An edit that it does not look at is the hash's to find,
/// and whoever seals it anew is found by the start that looks there.
#[test]
fn an_edit_of_one_column_is_found_by_the_starts_that_look_there() {
    let geometry = geometry_of(TileOrder::RowMajor, [66, 40, 66, 40]);
    let weights = Weights::new(40, 64, 1);
    let sim = new_disk();
    start(&sim, settings(), &weights, &geometry);
    let whole = sim
        .read(image_path(&weights, &geometry, 0))
        .expect("because it was written");
    let (mut found, mut missed) = (0, 0);
    for seed in 0..60 {
        sim.rot(image_path(&weights, &geometry, 0), |bytes| {
            bytes.clone_from(&whole);
            crate::serve_world::reseal(bytes, |payload| {
                payload[geometry.position(9, 21) as usize] ^= 0x40;
            });
        });
        let settings = Settings {
            seed: Some(seed),
            ..settings()
        };
        let start = start(&sim, settings, &weights, &geometry);
        match start.outcomes()[0] {
            Outcome::Hit => missed += 1,
            Outcome::Packed { refused, .. } => {
                let text = refused
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(
                    text.contains("the code of column 21, depth row 9, is "),
                    "{text}"
                );
                start.assert_right(&weights, &geometry);
                found += 1;
            }
        }
    }
    assert!(
        found > 2 && missed > 2,
        "{found} starts looked there, {missed} did not"
    );
}

#[test]
fn an_edit_at_either_end_is_found_by_every_start() {
    for geometry in geometries() {
        for (tile, last) in [(0usize, 19), (2, 6)] {
            for column in [0, last] {
                let sim = new_disk();
                start(&sim, settings(), &weights(), &geometry);
                let path = image_path(&weights(), &geometry, tile as u64);
                let whole = sim.read(&path).expect("because it was written");
                for seed in 0..10 {
                    sim.rot(&path, |bytes| {
                        bytes.clone_from(&whole);
                        crate::serve_world::reseal(bytes, |payload| {
                            payload[geometry.position(65, column) as usize] ^= 0x40;
                        });
                    });
                    let settings = Settings {
                        seed: Some(seed),
                        ..settings()
                    };
                    let start = start(&sim, settings, &weights(), &geometry);
                    let text = start.refusal(tile).to_string();
                    let column = 20 * tile as u64 + column;
                    let expected = format!("the code of column {column}, depth row 65, is ");
                    assert!(text.contains(&expected), "{text}");
                }
            }
        }
    }
}

#[test]
fn images_of_one_mode_are_images_of_the_other() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    start(&sim, settings(), &weights(), &geometry);
    start(&sim, with_mode(Mode::ReadOnly), &weights(), &geometry).assert_all_hit();
    assert_eq!(image_files(&sim).len(), 3);
}
