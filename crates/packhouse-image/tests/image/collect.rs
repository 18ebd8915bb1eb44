//! Collections, removals on request, and the inventory.

use crate::disk::{HOUR_NS, Image, ROOT, V1, disk_with, images, names, open, temps};
use crate::shim::{Lie, Shim};
use packhouse_image::{
    CollectError, Collected, Folder, Inventory, Limits, Removal, Selection, Why, collect,
    inventory, remove,
};
use packhouse_sim::SimFs;
use packhouse_sys::fs::{Fs, LockKind};
use packhouse_sys::stat::FileKind;
use std::path::Path;

const IMAGE_BYTES: u64 = 4144;
const DAY_NS: i64 = 24 * HOUR_NS;

/// Collects, after a dry run that must tell the same and change nothing.
fn collected(sim: &SimFs, folder: &Folder, limits: Limits) -> Collected {
    let before = names(sim);
    let dry = collect(folder, &*sim.clock(), limits, true).expect("because the lock is free");
    assert_eq!(names(sim), before, "a dry run changes nothing");
    let done = collect(folder, &*sim.clock(), limits, false).expect("because the lock is free");
    let names_of = |collected: &Collected| -> Vec<_> {
        let removed = collected.removal.removed.iter();
        removed
            .map(|removed| (removed.name.clone(), removed.bytes, removed.why.code()))
            .collect()
    };
    assert_eq!(names_of(&dry), names_of(&done));
    done
}

/// The names removed, each with its reason's word.
fn told(removal: &Removal) -> Vec<(&str, &'static str)> {
    let removed = removal.removed.iter();
    removed
        .map(|removed| (removed.name.as_str(), removed.why.code()))
        .collect()
}

fn listed(sim: &SimFs, folder: &Folder) -> Inventory {
    inventory(folder, &*sim.clock()).expect("because it can be listed")
}

/// Images and records of all kinds: an old head, one that is served, a damaged one, a new one.
/// Answers the old one and the damaged one.
fn mixed() -> (SimFs, Folder, [Image; 2]) {
    let (old, hot, damaged) = (Image::new(1, 0), Image::new(2, 0), Image::new(3, 0));
    let (sim, folder) = disk_with(&[old.clone(), hot.clone(), damaged.clone()]);
    old.claim(&folder, &sim, "/models/old");
    hot.claim(&folder, &sim, "/models/hot");
    sim.edit(damaged.path(), |bytes| bytes[100] ^= 1);
    sim.clock().advance_ns(3 * DAY_NS);
    // The hot one's file is as old as the other's, but it is served.
    hot.claim(&folder, &sim, "/models/hot");
    sim.replace(
        format!("{V1}/.{}.9-0123456789abcdef.tmp", old.name()),
        &[0; 77],
        0o600,
    );
    sim.replace(format!("{V1}/owners/{:032x}.own", 1), b"no record", 0o400);
    sim.clock().advance_ns(2 * HOUR_NS);
    let new = Image::new(4, 0);
    new.publish(&folder, &sim)
        .expect("because nothing is in the way");
    let young = format!("{V1}/.{}.9-fedcba9876543210.tmp", new.name());
    sim.replace(&young, &[0; 55], 0o600);
    (sim, folder, [old, damaged])
}

#[test]
fn each_removal_is_told_with_its_size_and_reason_and_the_sum_is_exact() {
    let (sim, folder, [old, damaged]) = mixed();
    let limits = Limits {
        max_bytes: None,
        max_age_ns: Some(2 * DAY_NS as u64),
    };
    let held_before = listed(&sim, &folder).total_bytes();
    let done = collected(&sim, &folder, limits);
    let temp = format!(".{}.9-0123456789abcdef.tmp", old.name());
    let old_record = done
        .removal
        .removed
        .last()
        .expect("because much was removed")
        .clone();
    let expected = [
        (temp.as_str(), "stale-temp"),
        (&damaged.name().to_string(), "damaged"),
        (&format!("owners/{:032x}.own", 1), "damaged"),
        (&old.name().to_string(), "age"),
        (&old_record.name, "orphan"),
    ];
    assert_eq!(told(&done.removal), expected);
    let record_bytes = 192 + "/models/old".len() as u64;
    assert_eq!(old_record.bytes, record_bytes);
    let freed_bytes = 77 + 2 * IMAGE_BYTES + 9 + record_bytes;
    assert_eq!(done.removal.freed_bytes(), freed_bytes);
    assert_eq!(
        held_before - listed(&sim, &folder).total_bytes(),
        freed_bytes
    );
    assert_eq!(done.held_bytes, 4 * IMAGE_BYTES + 77 + 55);
    assert_eq!(
        (images(&sim).len(), temps(&sim).len()),
        (2, 1),
        "what is young stays"
    );
    let reasons = done
        .removal
        .removed
        .iter()
        .map(|removed| removed.why.to_string());
    let reasons: Vec<_> = reasons.collect();
    assert_eq!(reasons[0], "temporary file of 7200 s ago");
    assert!(reasons[1].starts_with(&format!("image {} not used: the header", damaged.path())));
    assert!(
        reasons[2].ends_with(": 9 bytes, expected 193"),
        "{}",
        reasons[2]
    );
    assert_eq!(reasons[3], "not used for 266400 s");
    assert_eq!(collected(&sim, &folder, limits).removal, Removal::default());
}

#[test]
fn of_too_much_the_least_recently_used_goes_until_it_fits_to_the_byte() {
    for (max_bytes, gone) in [
        (3 * IMAGE_BYTES, 0),
        (3 * IMAGE_BYTES - 1, 1),
        (2 * IMAGE_BYTES, 1),
        (1, 3),
        (0, 3),
    ] {
        let (sim, folder) = disk_with(&[]);
        let heads: Vec<_> = (1..=3).map(|head| Image::new(head, 0)).collect();
        for image in &heads {
            image
                .publish(&folder, &sim)
                .expect("because nothing is in the way");
            sim.clock().advance_ns(HOUR_NS);
        }
        let limits = Limits {
            max_bytes: Some(max_bytes),
            max_age_ns: None,
        };
        let done = collected(&sim, &folder, limits);
        let oldest = heads[..gone].iter().map(|image| image.name().to_string());
        let told: Vec<_> = told(&done.removal)
            .into_iter()
            .map(|(name, _)| name.to_owned())
            .collect();
        assert_eq!(told, oldest.collect::<Vec<_>>(), "{max_bytes}");
        assert_eq!(done.over_bytes, 0, "{max_bytes}");
    }
}

#[test]
fn what_has_to_stay_beyond_the_bound_is_told() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    let temp = format!("{V1}/.{}.9-0123456789abcdef.tmp", image.name());
    sim.replace(temp, &[0; 55], 0o600);
    let limits = Limits {
        max_bytes: Some(100),
        max_age_ns: Some(0),
    };
    let done = collected(&sim, &folder, limits);
    assert_eq!(done.removal, Removal::default());
    assert_eq!(
        (done.held_bytes, done.over_bytes),
        (IMAGE_BYTES + 55, IMAGE_BYTES - 45)
    );
}

#[test]
fn a_damaged_image_that_somebody_replaces_just_now_is_left_to_them() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    sim.edit(image.path(), |bytes| bytes[9] ^= 1);
    let temp = format!("{V1}/.{}.9-0123456789abcdef.tmp", image.name());
    sim.replace(&temp, &[0; 55], 0o600);
    let done = collected(&sim, &folder, Limits::default());
    assert_eq!(done.removal, Removal::default());
    sim.clock().advance_ns(2 * HOUR_NS);
    let done = collected(&sim, &folder, Limits::default());
    assert_eq!(done.removal.removed.len(), 2);
}

#[test]
fn what_the_disk_does_not_give_stays_and_is_told() {
    let image = Image::new(1, 0);
    let (sim, _) = disk_with(std::slice::from_ref(&image));
    let shim = Shim::lying(&sim, Lie::Unreadable);
    let folder = Folder::open(&shim, Path::new(ROOT), true);
    let folder = folder
        .expect("because nobody is in the way")
        .expect("because it is there");
    let done = collected(&sim, &folder, Limits::default());
    assert_eq!(done.removal, Removal::default());
    let texts: Vec<_> = done.unread.iter().map(ToString::to_string).collect();
    let path = image.path();
    assert_eq!(
        texts,
        [format!(
            "image {path} not used: open {path}: input/output error"
        )]
    );
    assert_eq!(images(&sim).len(), 1);
}

#[test]
fn what_is_none_of_ours_stays_and_is_told() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    let plain = [
        "notes.txt".to_owned(),
        "v1/notes.txt".to_owned(),
        format!("v1/{}.bak", image.name()),
        format!("v1/.{}.tmp", image.name()),
        "v1/owners/README".to_owned(),
        format!("v1/owners/{}", image.name()),
    ];
    for name in &plain {
        sim.replace(format!("{ROOT}/{name}"), b"1234", 0o644);
    }
    sim.make_dirs(format!("{ROOT}/v2"), 1000, 0o700);
    let folder_of_a_name = format!("v1/{}", Image::new(2, 0).name());
    sim.make_dirs(format!("{ROOT}/{folder_of_a_name}"), 1000, 0o700);
    sim.clock().advance_ns(400 * DAY_NS);
    let limits = Limits {
        max_bytes: Some(0),
        max_age_ns: Some(1),
    };
    let done = collected(&sim, &folder, limits);
    assert_eq!(
        told(&done.removal),
        [(image.name().to_string().as_str(), "abandoned")]
    );
    let mut expected: Vec<_> = plain
        .iter()
        .map(|name| (name.clone(), FileKind::Regular))
        .collect();
    expected.push(("v2".to_owned(), FileKind::Directory));
    expected.push((folder_of_a_name, FileKind::Directory));
    expected.sort();
    let strays = |strays: &[packhouse_image::Stray]| -> Vec<_> {
        let mut strays: Vec<_> = strays
            .iter()
            .map(|stray| (stray.name.clone(), stray.kind))
            .collect();
        strays.sort();
        strays
    };
    assert_eq!(strays(&done.strays), expected);
    assert_eq!(strays(&listed(&sim, &folder).strays), expected);
    for name in &plain {
        assert_eq!(
            sim.read(format!("{ROOT}/{name}")).as_deref(),
            Some(b"1234".as_slice()),
            "{name}"
        );
    }
}

#[test]
fn every_file_of_an_images_name_that_no_serve_can_use_goes_by_its_reason() {
    let image = Image::new(1, 0);
    type Edit = fn(&SimFs, &Image);
    let edits: [(&str, Edit); 7] = [
        ("it has 10 bytes, expected 4096", |sim, image| {
            sim.edit(image.path(), |bytes| bytes.truncate(10));
        }),
        ("it has 4145 bytes, expected 4144", |sim, image| {
            sim.edit(image.path(), |bytes| bytes.push(0));
        }),
        ("the format version is 2, expected 1", |sim, image| {
            sim.edit(image.path(), |bytes| bytes[4] = 2);
        }),
        ("by its header", |sim, image| {
            sim.replace(image.path(), &Image::new(5, 0).bytes(), 0o400);
        }),
        ("it is a symlink, expected a regular file", |sim, image| {
            sim.remove(image.path());
            sim.symlink(image.path(), "/etc/passwd", 1000);
        }),
        ("it belongs to uid 7, expected 1000", |sim, image| {
            sim.set_owner(image.path(), 7);
        }),
        ("others than its owner can change it", |sim, image| {
            sim.set_mode(image.path(), 0o666);
        }),
    ];
    for (reason, edit) in edits {
        let (sim, folder) = disk_with(std::slice::from_ref(&image));
        edit(&sim, &image);
        let done = collected(&sim, &folder, Limits::default());
        let [removed] = &done.removal.removed[..] else {
            panic!("{reason}: {done:?}");
        };
        assert_eq!(
            (removed.name.clone(), removed.why.code()),
            (image.name().to_string(), "damaged")
        );
        assert!(removed.why.to_string().ends_with(reason), "{}", removed.why);
        assert_eq!(images(&sim), [""; 0], "{reason}");
    }
}

#[test]
fn records_of_keys_without_files_stay_while_they_are_young() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    image.claim(&folder, &sim, "/models/one");
    sim.remove(image.path());
    let limits = |max_age_ns| Limits {
        max_bytes: Some(0),
        max_age_ns,
    };
    sim.clock().advance_ns(DAY_NS);
    assert_eq!(
        collected(&sim, &folder, limits(None)).removal,
        Removal::default()
    );
    let young = limits(Some(2 * DAY_NS as u64));
    assert_eq!(collected(&sim, &folder, young).removal, Removal::default());
    let old = collected(&sim, &folder, limits(Some(HOUR_NS as u64)));
    let [removed] = &old.removal.removed[..] else {
        panic!("{old:?}");
    };
    assert_eq!(
        (removed.why.clone(), removed.bytes),
        (Why::Orphan, 192 + 11)
    );
}

#[test]
fn records_of_keys_without_files_go_after_30_days_without_being_asked_for() {
    let [lost, kept] = [1, 2].map(|head| Image::new(head, 0));
    let (sim, folder) = disk_with(&[lost.clone(), kept.clone()]);
    lost.claim(&folder, &sim, "/models/lost");
    kept.claim(&folder, &sim, "/models/kept");
    sim.remove(lost.path());
    sim.clock().advance_ns(30 * DAY_NS - HOUR_NS);
    let young = collected(&sim, &folder, Limits::default());
    assert_eq!(young.removal, Removal::default());
    sim.clock().advance_ns(2 * HOUR_NS);
    let done = collected(&sim, &folder, Limits::default());
    let [removed] = &done.removal.removed[..] else {
        panic!("{done:?}");
    };
    assert_eq!(
        (removed.why.clone(), removed.bytes),
        (Why::Orphan, 192 + 12)
    );
    assert_eq!(listed(&sim, &folder).owners.len(), 1);
}

#[test]
fn who_has_an_image_open_keeps_its_bytes() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    let reader = folder
        .open_image(&image.name())
        .expect("because it is ours");
    let reader = reader.expect("because it is there");
    let limits = Limits {
        max_bytes: Some(0),
        max_age_ns: None,
    };
    assert_eq!(collected(&sim, &folder, limits).removal.removed.len(), 1);
    assert_eq!(image.verify(&folder), Ok(None));
    let mut bytes = vec![0; image.bytes().len()];
    assert_eq!(reader.file.read_full_at(0, &mut bytes), Ok(bytes.len()));
    assert_eq!(bytes, image.bytes());
}

#[test]
fn a_key_is_removed_by_its_beginning_with_the_records_that_name_it() {
    let tiles = [Image::new(1, 0), Image::new(1, 1)];
    let other = Image::new(2, 0);
    let (sim, folder) = disk_with(&[tiles[0].clone(), tiles[1].clone(), other.clone()]);
    tiles[0].claim(&folder, &sim, "/models/one");
    other.claim(&folder, &sim, "/models/two");
    let key = tiles[0].key().to_string();
    let remove = |prefix: &str, dry_run| {
        let selection = Selection::Key(prefix);
        remove(&folder, &*sim.clock(), selection, dry_run)
    };
    for text in ["", "0123456", "0123456G", "ABCDEF01", &key[..33]] {
        let refused = remove(text, false).expect_err("because it begins no key");
        let expected = format!("key {text:?}: expected 8 to 32 lower-case hex digits");
        assert_eq!(refused.to_string(), expected);
    }
    let absent = remove("00000000", false).expect_err("because no key begins so");
    assert_eq!(absent.to_string(), "no image of key 00000000");
    let dry = remove(&key[..8], true).expect("because one key begins so");
    assert_eq!(images(&sim).len(), 3);
    let done = remove(&key[..8], false).expect("because one key begins so");
    assert_eq!(dry, done);
    assert_eq!(done.removed.len(), 3);
    assert!(done.removed.iter().all(|removed| removed.why == Why::Asked));
    assert_eq!(done.freed_bytes(), 2 * IMAGE_BYTES + 192 + 11);
    assert_eq!(images(&sim), [format!("v1/{}", other.name())]);
    let gone = remove(&key[..8], false).expect_err("because it is gone");
    assert_eq!(
        gone,
        CollectError::Absent {
            text: key[..8].to_owned()
        }
    );
}

#[test]
fn a_beginning_of_two_keys_is_no_key() {
    let (sim, folder) = disk_with(&[]);
    let names: Vec<_> = ["a", "b"]
        .iter()
        .map(|end| format!("0123456789abcdef{}", end.repeat(16)))
        .collect();
    for name in &names {
        sim.replace(format!("{V1}/{name}-t00000.phti"), b"", 0o400);
    }
    let selection = Selection::Key("0123456789");
    let refused = remove(&folder, &*sim.clock(), selection, false);
    let text = refused.expect_err("because two keys begin so").to_string();
    assert_eq!(
        text,
        format!("key 0123456789 is the beginning of {}", names.join(", "))
    );
    let selection = Selection::Key(&names[1]);
    let removal = remove(&folder, &*sim.clock(), selection, false).expect("because it is one");
    assert_eq!((removal.removed.len(), images(&sim).len()), (1, 1));
}

#[test]
fn all_is_everything_of_ours_but_what_somebody_writes() {
    let tiles = [Image::new(1, 0), Image::new(2, 0)];
    let (sim, folder) = disk_with(&tiles);
    tiles[0].claim(&folder, &sim, "/models/one");
    sim.replace(format!("{V1}/owners/{:032x}.own", 1), b"no record", 0o400);
    sim.replace(format!("{V1}/notes.txt"), b"mine", 0o600);
    sim.replace(
        format!("{V1}/.{}.9-0123456789abcdef.tmp", tiles[0].name()),
        &[0; 5],
        0o600,
    );
    let done = remove(&folder, &*sim.clock(), Selection::All, false);
    let done = done.expect("because the lock is free");
    assert_eq!(done.freed_bytes(), 2 * IMAGE_BYTES + 192 + 11 + 9);
    let temp = format!("v1/.{}.9-0123456789abcdef.tmp", tiles[0].name());
    let left = [&temp, "CACHEDIR.TAG", "v1/locks", "v1/notes.txt"].map(str::to_owned);
    let mut found = names(&sim);
    found.sort();
    let mut left = left.to_vec();
    left.sort();
    assert_eq!(found, left);
}

#[test]
fn nothing_is_removed_without_the_lock() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    image.claim(&folder, &sim, "/models/one");
    let mut dir = sim.root().expect("because the disk is there");
    for name in Path::new(V1).iter().skip(1) {
        dir = dir.open_dir(name).expect("because it is there");
    }
    let held = dir
        .open_file_writable("locks")
        .expect("because it is there");
    assert_eq!(held.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    let busy = CollectError::Busy {
        folder: ROOT.to_owned(),
        timeout_ns: 1_000_000_000,
    };
    let limits = Limits {
        max_bytes: Some(0),
        max_age_ns: None,
    };
    let refused = collect(&folder, &*sim.clock(), limits, false);
    assert_eq!(refused, Err(busy.clone()));
    let refused = remove(&folder, &*sim.clock(), Selection::All, false);
    assert_eq!(refused, Err(busy));
    assert_eq!(images(&sim).len(), 1);
}

#[test]
fn the_inventory_names_every_image_its_owners_and_what_is_wrong() {
    let (shared, damaged) = (Image::new(1, 0), Image::new(2, 0));
    let (sim, folder) = disk_with(&[shared.clone(), damaged.clone()]);
    shared.claim(&folder, &sim, "/models/one");
    sim.clock().advance_ns(5 * HOUR_NS);
    shared.claim(&folder, &sim, "/models/two");
    sim.edit(damaged.path(), |bytes| bytes[0] = b'X');
    let inventory = listed(&sim, &open(&sim));
    assert_eq!(inventory.images.len(), 2);
    let listing = |image: &Image| {
        let found = inventory
            .images
            .iter()
            .find(|listing| listing.name == image.name());
        found.expect("because it is listed")
    };
    let good = listing(&shared);
    assert_eq!(good.header.as_ref(), Ok(&shared.header));
    let mut owners: Vec<_> = good.owners.iter().map(|owner| owner.text()).collect();
    owners.sort_unstable();
    assert_eq!(owners, ["/models/one", "/models/two"]);
    assert_eq!((good.bytes, good.allocated_bytes), (IMAGE_BYTES, 8192));
    let bad = listing(&damaged);
    let fault = bad.header.as_ref().expect_err("because it is damaged");
    let text = format!(
        "image {} not used: the magic is \"XHTI\", expected \"PHTI\"",
        damaged.path()
    );
    assert_eq!(fault.to_string(), text);
    assert_eq!(bad.owners, []);
    // The last use is the newer owner's, five hours after the file was written.
    let hours = (good.last_use_ns - bad.last_use_ns) / HOUR_NS;
    assert_eq!(hours, 5);
    assert_eq!(inventory.owners.len(), 2);
    assert!(inventory.owners.iter().all(|owner| owner.record.is_ok()));
}
