//! What mutants showed that no other test here would notice.

use crate::disk::{HOUR_NS, Image, V1, disk_with, images as names_of_images, temps};
use crate::serve_world::{
    ROOT, Weights, buffers, geometries, geometry_of, image_path, images, key, new_disk, reseal,
    serve, settings, start, start_as, weights,
};
use packhouse_image::{
    Check, Claim, Folder, ImageName, Images, Limits, NoRoom, NotWrittenCode, RefusalCode, Settings,
    Wanted, collect, file_bytes, make_room,
};
use packhouse_layout::int8_tile::TileOrder;
use packhouse_pack::int8_tile::Gather;
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::{Fs, LockKind};
use packhouse_sys::real::RealFs;
use std::path::Path;
use std::sync::Arc;

/// The simulated disk says what a symlink is; here the system does.
#[test]
fn a_symlink_to_an_intact_image_is_refused_and_replaced_on_a_real_disk() {
    let [geometry, _] = geometries();
    let folder = tempfile::tempdir().expect("because tests may make folders");
    let root = folder.path().join("images");
    let start = || {
        let clock = Arc::new(RealClock);
        let images = Images::open(Arc::new(RealFs), clock, Some(&root), settings());
        start_as(&images, weights().head(), &weights(), &geometry)
    };
    start().assert_all_missed();
    let name = ImageName::new(&key(&weights(), &geometry), 0);
    let name = name.expect("because there are few tiles").to_string();
    let (image, elsewhere) = (root.join("v1").join(name), folder.path().join("elsewhere"));
    std::fs::rename(&image, &elsewhere).expect("because it was written");
    std::os::unix::fs::symlink(&elsewhere, &image).expect("because the name is free");
    let linked = start();
    assert_eq!(linked.refusal(0).code(), RefusalCode::NotRegular);
    linked.assert_right(&weights(), &geometry);
    let stat = std::fs::symlink_metadata(&image).expect("because it was written again");
    assert!(stat.is_file(), "{stat:?}");
    assert!(elsewhere.exists(), "what a symlink names is not ours");
    start().assert_all_hit();
}

#[test]
fn a_folder_that_its_group_or_everybody_can_change_is_refused() {
    let (sim, _) = disk_with(&[]);
    for name in [ROOT, V1, &*format!("{V1}/owners")] {
        for mode in [0o770, 0o720, 0o702] {
            sim.set_mode(name, mode);
            let opened = Folder::open(&sim, Path::new(ROOT), true);
            let text = opened
                .expect_err("because others can change it")
                .to_string();
            let expected = format!(
                "folder of images: {name} has mode {mode:04o}: others than its owner can change it"
            );
            assert_eq!(text, expected);
            sim.set_mode(name, 0o700);
        }
    }
    assert!(Folder::open(&sim, Path::new(ROOT), true).is_ok());
}

/// The record could be written, only the image not: the owner's earlier head is still its own.
#[test]
fn a_head_that_there_is_no_room_for_leaves_the_owners_earlier_one() {
    for geometry in geometries() {
        let sim = new_disk();
        let capped = Settings {
            max_bytes: Some(3 * file_bytes(&geometry)),
            ..settings()
        };
        start(&sim, capped.clone(), &weights(), &geometry).assert_all_missed();
        let before = sim.files(ROOT);
        let larger = Weights::new(67, 64, 2);
        let start_larger = start(&sim, capped.clone(), &larger, &geometry);
        start_larger.assert_right(&larger, &geometry);
        let codes = &start_larger.counters.not_written;
        assert_eq!(codes.get(&NotWrittenCode::NoRoom), Some(&4));
        assert_eq!(sim.files(ROOT), before);
        start(&sim, capped, &weights(), &geometry).assert_all_hit();
    }
}

#[test]
fn tiles_of_one_start_are_sampled_at_columns_of_their_own() {
    let geometry = geometry_of(TileOrder::RowMajor, [66, 40, 66, 40]);
    let weights = Weights::new(80, 64, 1);
    let sim = new_disk();
    start(&sim, settings(), &weights, &geometry).assert_all_missed();
    let differs = |seed| {
        let images = images(
            &sim,
            Settings {
                seed: Some(seed),
                ..settings()
            },
        );
        let mut serve = serve(&images, weights.head(), &geometry);
        let [first, second] = [0, 1].map(|tile| {
            let (mut codes, mut scales) = buffers(&geometry);
            let mut asked = Vec::new();
            let mut fill = |column: u64, target: &mut [f32]| {
                asked.push(column - 40 * tile);
                weights.fill(column, target);
                Ok::<(), ()>(())
            };
            let gather = Gather::Serial(&mut fill);
            let served = serve.tile(tile, geometry.kpad(), gather, &mut codes, &mut scales);
            assert!(served.is_ok(), "{served:?}");
            assert_eq!(asked.len(), 8, "a hit asks for its sample: {asked:?}");
            asked
        });
        first != second
    };
    assert!((0..4).any(differs));
}

#[test]
fn a_full_check_finds_another_scale_in_any_column_and_in_padding() {
    let full = Settings {
        check: Check::Full,
        ..settings()
    };
    for geometry in geometries() {
        let sim = new_disk();
        start(&sim, settings(), &weights(), &geometry).assert_all_missed();
        let code_bytes = geometry.code_bytes() as usize;
        for column in 0..geometry.nd() {
            sim.rot(image_path(&weights(), &geometry, 1), |bytes| {
                reseal(bytes, |payload| {
                    payload[code_bytes + 4 * column as usize] ^= 1;
                });
            });
            let start = start(&sim, full.clone(), &weights(), &geometry);
            let text = start.refusal(1).to_string();
            let expected = format!("the scale of column {} is ", 20 + column);
            assert!(text.contains(&expected), "{text}");
            start.assert_right(&weights(), &geometry);
        }
    }
}

/// Most starts note nothing new, and wait for nobody.
#[test]
fn a_use_that_is_noted_does_without_the_lock() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    image.claim(&folder, &sim, "/models/one");
    let mut dir = sim.root().expect("because the disk is there");
    for name in Path::new(V1).iter().skip(1) {
        dir = dir.open_dir(name).expect("because it is there");
    }
    let held = dir.open_file_writable("locks");
    let held = held.expect("because it is there");
    assert_eq!(held.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    let again = image.claim(&folder, &sim, "/models/one");
    assert_eq!(again, Claim::default());
    sim.clock().advance_ns(2 * HOUR_NS);
    let late = image.claim(&folder, &sim, "/models/one");
    assert_eq!(late.problems.len(), 1, "now it has to: {late:?}");
}

/// The key's first tile is the oldest file of all, as after a start that was stopped long ago.
#[test]
fn room_is_not_made_of_the_key_that_it_is_for() {
    let (sim, folder) = disk_with(&[]);
    let heads = [1, 2, 3].map(|head| Image::new(head, 0));
    for image in &heads {
        let published = image.publish(&folder, &sim);
        published.expect("because nothing is in the way");
        sim.clock().advance_ns(HOUR_NS);
    }
    let [own, older, _] = &heads;
    let bytes = file_bytes(own.header.geometry());
    let wanted = Wanted {
        set_bytes: 2 * bytes,
        image_bytes: bytes,
    };
    let settings = Settings {
        max_bytes: Some(3 * bytes),
        ..settings()
    };
    let room = make_room(&folder, &*sim.clock(), &settings, &own.key(), wanted);
    let removed: Vec<_> = room.removed.iter().map(|gone| gone.name.clone()).collect();
    assert_eq!(removed, [older.name().to_string()]);
    assert_eq!((room.refused, names_of_images(&sim).len()), (None, 2));
}

/// What is written in the place of a file that is too long takes the room of an image, no less.
#[test]
fn a_file_that_is_too_long_does_not_count_as_tiles_that_are_there() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    let bytes = file_bytes(image.header.geometry());
    sim.edit(image.path(), |file| file.resize(2 * bytes as usize, 0));
    let wanted = Wanted {
        set_bytes: 3 * bytes,
        image_bytes: bytes,
    };
    let settings = Settings {
        min_free_bytes: u64::MAX / 2,
        ..settings()
    };
    let room = make_room(&folder, &*sim.clock(), &settings, &image.key(), wanted);
    let refused = room.refused.expect("because so much is never free");
    let NoRoom::Free { wanted_bytes, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(wanted_bytes, 2 * bytes);
}

#[test]
fn a_temporary_name_that_can_not_be_locked_goes_by_its_age() {
    let (sim, folder) = disk_with(&[]);
    let temp = format!("{V1}/.{}.9-0123456789abcdef.tmp", Image::new(1, 0).name());
    sim.symlink(&temp, "/home/user/elsewhere", 1000);
    for (minutes, left) in [(0, 1), (2, 1), (57, 1), (2, 0)] {
        sim.clock().advance_ns(minutes * HOUR_NS / 60);
        let done = collect(&folder, &*sim.clock(), Limits::default(), false);
        done.expect("because the lock is free");
        assert_eq!(temps(&sim).len(), left, "{minutes} minutes later");
    }
}
