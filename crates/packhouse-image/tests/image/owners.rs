//! Who serves which head: what goes when an owner moves on, and what stays.

use crate::disk::{
    HOUR_NS, Image, V1, VOCABULARY, disk_with, geometry, images, names, owner, temps,
};
use packhouse_image::{
    Claim, ClaimProblem, OwnerRecord, RECORD_BYTES, RecordFault, RecordRefusal, Removed, Why,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_sim::SimFs;
use packhouse_sys::fs::{Fs, LockKind};
use std::path::Path;

const ME: &str = "/models/mistral.q4nx";
const OTHER: &str = "/models/copy of mistral.q4nx";

fn record(image: &Image, who: &str) -> OwnerRecord {
    OwnerRecord {
        owner: owner(who),
        geometry: *image.header.geometry(),
        key: image.key(),
        leaving: None,
        vocabulary: VOCABULARY,
    }
}

fn path(image: &Image, who: &str) -> String {
    format!("{V1}/owners/{}", record(image, who).name())
}

/// What the record of an owner says, if there is one.
fn noted(sim: &SimFs, image: &Image, who: &str) -> Option<OwnerRecord> {
    let bytes = sim.read(path(image, who))?;
    Some(OwnerRecord::parse(&bytes).expect("because it is intact"))
}

fn superseded(image: &Image) -> Removed {
    Removed {
        name: image.name().to_string(),
        bytes: 4144,
        why: Why::Superseded,
    }
}

fn names_of(images: &[&Image]) -> Vec<String> {
    let mut names: Vec<_> = images
        .iter()
        .map(|image| format!("v1/{}", image.name()))
        .collect();
    names.sort();
    names
}

/// Both tiles of a head.
fn head(number: u8) -> [Image; 2] {
    [Image::new(number, 0), Image::new(number, 1)]
}

#[test]
fn an_owner_that_moves_to_another_head_leaves_nothing_and_each_removal_is_told() {
    let ([a0, a1], [b0, b1]) = (head(1), head(2));
    let (sim, folder) = disk_with(&[a0.clone(), a1.clone()]);
    let first = a0.claim(&folder, &sim, ME);
    let record_bytes = (RECORD_BYTES + ME.len()) as u64;
    let noted_only = Claim {
        written_bytes: record_bytes,
        ..Claim::default()
    };
    assert_eq!(first, noted_only);
    assert_eq!(noted(&sim, &a0, ME), Some(record(&a0, ME)));
    b0.publish(&folder, &sim)
        .expect("because nothing is in the way");
    b1.publish(&folder, &sim)
        .expect("because nothing is in the way");
    let second = b0.claim(&folder, &sim, ME);
    let mut removed = vec![superseded(&a0), superseded(&a1)];
    removed.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!((second.removed, second.problems), (removed, Vec::new()));
    // Once with the key that is left, and once when its files were gone.
    assert_eq!(second.written_bytes, 2 * record_bytes);
    assert_eq!(images(&sim), names_of(&[&b0, &b1]));
    assert_eq!(noted(&sim, &b0, ME), Some(record(&b0, ME)));
}

#[test]
fn two_geometries_of_one_owner_both_stay() {
    let small = Image::new(1, 0);
    let large = Image::of(1, 0, geometry(8), 1);
    let blocked = TileGeometry::new(
        TileOrder::Blocked,
        TileSizes {
            kd: 64,
            nd: 128,
            kpad: 4,
            t: 5,
        },
    );
    let blocked = Image::of(1, 0, blocked.expect("because the sizes fit"), 1);
    let kinds = [&small, &large, &blocked];
    let (sim, folder) = disk_with(&[small.clone(), large.clone(), blocked.clone()]);
    for _ in 0..3 {
        for image in kinds {
            let claim = image.claim(&folder, &sim, ME);
            assert_eq!((claim.removed, claim.problems), (Vec::new(), Vec::new()));
        }
        sim.clock().advance_ns(2 * HOUR_NS);
    }
    assert_eq!(images(&sim), names_of(&kinds));
    // Another head in one of them takes that one's place only.
    let next = Image::of(2, 0, geometry(8), 1);
    let claim = next.claim(&folder, &sim, ME);
    assert_eq!(claim.removed.len(), 1);
    assert_eq!(claim.removed[0].name, large.name().to_string());
    assert_eq!(images(&sim), names_of(&[&small, &blocked]));
}

#[test]
fn a_key_that_another_owner_names_stays_until_that_one_moves_too() {
    let (a, b) = (Image::new(1, 0), Image::new(2, 0));
    let (sim, folder) = disk_with(&[a.clone(), b.clone()]);
    a.claim(&folder, &sim, ME);
    a.claim(&folder, &sim, OTHER);
    let moved = b.claim(&folder, &sim, ME);
    assert_eq!((moved.removed, moved.problems), (Vec::new(), Vec::new()));
    assert_eq!(images(&sim), names_of(&[&a, &b]));
    let moved = b.claim(&folder, &sim, OTHER);
    assert_eq!(moved.removed, [superseded(&a)]);
    assert_eq!(images(&sim), names_of(&[&b]));
    assert_eq!(noted(&sim, &b, OTHER), Some(record(&b, OTHER)));
}

#[test]
fn an_owner_that_moves_back_keeps_what_it_comes_back_to() {
    let (a, b) = (Image::new(1, 0), Image::new(2, 0));
    let (sim, folder) = disk_with(&[a.clone(), b.clone()]);
    // A crash came between the record of the move and the removal.
    let mut moving = record(&b, ME);
    moving.leaving = Some(a.key());
    sim.replace(path(&b, ME), &moving.encode(), 0o400);
    let back = a.claim(&folder, &sim, ME);
    assert_eq!(back.removed, [superseded(&b)]);
    assert_eq!(images(&sim), names_of(&[&a]));
    assert_eq!(noted(&sim, &a, ME), Some(record(&a, ME)));
}

#[test]
fn what_an_earlier_claim_left_undone_is_done_by_the_next_even_after_another_move() {
    let (a, b, c) = (Image::new(1, 0), Image::new(2, 0), Image::new(3, 0));
    for target in [&b, &c] {
        let (sim, folder) = disk_with(&[a.clone(), b.clone(), c.clone()]);
        let mut moving = record(&b, ME);
        moving.leaving = Some(a.key());
        sim.replace(path(&b, ME), &moving.encode(), 0o400);
        let claim = target.claim(&folder, &sim, ME);
        assert!(claim.removed.contains(&superseded(&a)), "{claim:?}");
        assert_eq!(
            claim.removed.contains(&superseded(&b)),
            target.key() == c.key()
        );
        assert_eq!(noted(&sim, target, ME), Some(record(target, ME)));
    }
}

#[test]
fn a_use_is_noted_once_an_hour() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    image.claim(&folder, &sim, ME);
    for (minutes, written) in [(1, false), (58, false), (2, true), (59, false), (200, true)] {
        sim.clock().advance_ns(minutes * HOUR_NS / 60);
        sim.restart_count();
        let claim = image.claim(&folder, &sim, ME);
        assert_eq!(claim.written_bytes > 0, written, "{minutes} minutes later");
        // Neither the lock nor the disk is touched for a use that is noted.
        assert_eq!(
            sim.operation_count() > 0,
            written,
            "{minutes} minutes later"
        );
        assert_eq!(noted(&sim, &image, ME), Some(record(&image, ME)));
    }
}

#[test]
fn a_damaged_record_of_ones_own_is_refused_by_its_reason_written_anew_and_evicts_nothing() {
    let (a, b) = (Image::new(1, 0), Image::new(2, 0));
    let good = record(&a, ME).encode();
    for at in 0..good.len() {
        let (sim, folder) = disk_with(&[a.clone(), b.clone()]);
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        sim.replace(path(&a, ME), &bytes, 0o400);
        let claim = b.claim(&folder, &sim, ME);
        let [problem] = &claim.problems[..] else {
            panic!("byte {at}: {:?}", claim.problems);
        };
        let name = record(&a, ME).name();
        let text = problem.to_string();
        assert!(
            text.starts_with(&format!("owner record owners/{name}: ")),
            "byte {at}: {text}"
        );
        assert_eq!(claim.removed, [], "byte {at}");
        assert_eq!(images(&sim), names_of(&[&a, &b]), "byte {at}");
        assert_eq!(noted(&sim, &b, ME), Some(record(&b, ME)), "byte {at}");
        assert_eq!(b.claim(&folder, &sim, ME), Claim::default(), "byte {at}");
    }
}

#[test]
fn a_damaged_record_of_another_owner_keeps_everything_once_and_goes() {
    let (a, b) = (Image::new(1, 0), Image::new(2, 0));
    let (sim, folder) = disk_with(&[a.clone(), b.clone()]);
    a.claim(&folder, &sim, ME);
    a.claim(&folder, &sim, OTHER);
    sim.edit(path(&a, OTHER), |bytes| bytes[80] ^= 1);
    let claim = b.claim(&folder, &sim, ME);
    let [ClaimProblem::Damaged(fault)] = &claim.problems[..] else {
        panic!("{:?}", claim.problems);
    };
    let is_hash = matches!(
        fault,
        RecordFault::Content {
            refusal: RecordRefusal::Hash { .. },
            ..
        }
    );
    assert!(is_hash, "{fault}");
    let [removed] = &claim.removed[..] else {
        panic!("{:?}", claim.removed);
    };
    assert_eq!(removed.name, format!("owners/{}", record(&a, OTHER).name()));
    assert_eq!(removed.why.to_string(), fault.to_string());
    // Nobody can say whether the other one names the key.
    assert_eq!(images(&sim), names_of(&[&a, &b]));
    assert_eq!(
        noted(&sim, &b, ME).and_then(|record| record.leaving),
        Some(a.key())
    );
    // The other one is back in time, or is not.
    let is_back = a.claim(&folder, &sim, OTHER);
    assert_eq!(
        (is_back.removed, is_back.problems),
        (Vec::new(), Vec::new())
    );
    let claim = b.claim(&folder, &sim, ME);
    assert_eq!((claim.removed, claim.problems), (Vec::new(), Vec::new()));
    assert_eq!(noted(&sim, &b, ME), Some(record(&b, ME)));
}

#[test]
fn a_record_that_is_no_file_of_this_users_is_refused_by_name() {
    let (a, b) = (Image::new(1, 0), Image::new(2, 0));
    let (sim, folder) = disk_with(&[a.clone(), b.clone()]);
    a.claim(&folder, &sim, ME);
    a.claim(&folder, &sim, OTHER);
    let name = record(&a, OTHER).name();
    sim.set_owner(path(&a, OTHER), 77);
    let claim = b.claim(&folder, &sim, ME);
    let texts: Vec<_> = claim.problems.iter().map(ToString::to_string).collect();
    let text = format!("owner record owners/{name}: it belongs to uid 77, expected 1000");
    assert_eq!(texts, [text]);
    assert_eq!(images(&sim), names_of(&[&a, &b]));
    // Under a name that its content does not have.
    let stolen = format!("{V1}/owners/{:032x}.own", 5);
    sim.replace(&stolen, &record(&a, OTHER).encode(), 0o400);
    let claim = b.claim(&folder, &sim, ME);
    let texts: Vec<_> = claim.problems.iter().map(ToString::to_string).collect();
    let text = format!(
        "owner record owners/{:032x}.own: is the record {name} by its content",
        5
    );
    assert_eq!(texts, [text]);
    assert_eq!(sim.read(stolen), None);
}

#[test]
fn the_images_of_a_key_that_somebody_writes_stay_until_nobody_does() {
    let (a0, a1, b) = (Image::new(1, 0), Image::new(1, 1), Image::new(2, 0));
    let (sim, folder) = disk_with(&[a0.clone(), b.clone()]);
    a0.claim(&folder, &sim, ME);
    let temp = format!("{V1}/.{}.77-0123456789abcdef.tmp", a1.name());
    sim.replace(&temp, b"half", 0o600);
    let claim = b.claim(&folder, &sim, ME);
    assert_eq!((claim.removed, claim.problems), (Vec::new(), Vec::new()));
    assert_eq!(
        noted(&sim, &b, ME).and_then(|record| record.leaving),
        Some(a0.key())
    );
    sim.clock().advance_ns(HOUR_NS);
    let claim = b.claim(&folder, &sim, ME);
    let [stale, gone] = &claim.removed[..] else {
        panic!("{:?}", claim.removed);
    };
    assert!(matches!(stale.why, Why::StaleTemp { age_ns } if age_ns >= HOUR_NS as u64));
    assert_eq!((stale.bytes, gone), (4, &superseded(&a0)));
    assert_eq!((temps(&sim), images(&sim)), (Vec::new(), names_of(&[&b])));
    assert_eq!(noted(&sim, &b, ME), Some(record(&b, ME)));
}

#[test]
fn a_lock_that_is_not_had_in_time_costs_an_eviction_and_nothing_else() {
    let (a, b) = (Image::new(1, 0), Image::new(2, 0));
    let (sim, folder) = disk_with(&[a.clone(), b.clone()]);
    a.claim(&folder, &sim, ME);
    let mut dir = sim.root().expect("because the disk is there");
    for name in Path::new(V1).iter().skip(1) {
        dir = dir.open_dir(name).expect("because it is there");
    }
    let held = dir
        .open_file_writable("locks")
        .expect("because it is there");
    assert_eq!(held.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    let claim = b.claim(&folder, &sim, ME);
    let texts: Vec<_> = claim.problems.iter().map(ToString::to_string).collect();
    let text = "another process held the lock of /home/user/images for 1000 ms";
    assert_eq!(texts, [text]);
    assert_eq!((claim.removed, claim.written_bytes), (Vec::new(), 0));
    assert_eq!(images(&sim), names_of(&[&a, &b]));
    assert_eq!(noted(&sim, &a, ME), Some(record(&a, ME)));
    drop(held);
    assert_eq!(b.claim(&folder, &sim, ME).removed, [superseded(&a)]);
}

#[test]
fn a_record_that_cant_be_written_evicts_nothing_and_says_why() {
    let (a, b) = (Image::new(1, 0), Image::new(2, 0));
    let (sim, folder) = disk_with(&[a.clone(), b.clone()]);
    a.claim(&folder, &sim, ME);
    sim.set_total_bytes(1);
    let claim = b.claim(&folder, &sim, ME);
    let texts: Vec<_> = claim.problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(
        texts[0].starts_with("owner record: write /home/user/images/v1/owners/."),
        "{texts:?}"
    );
    assert!(texts[0].ends_with(": no space left on device"), "{texts:?}");
    assert_eq!(images(&sim), names_of(&[&a, &b]));
    assert_eq!(temps(&sim), [""; 0]);
    sim.set_total_bytes(1 << 40);
    assert_eq!(b.claim(&folder, &sim, ME).removed, [superseded(&a)]);
}

#[test]
fn the_disk_holds_what_the_docs_say_to_the_byte() {
    let [a0, a1] = head(1);
    let (sim, folder) = disk_with(&[a0.clone(), a1.clone()]);
    a0.claim(&folder, &sim, ME);
    let (tiles, kd, nd) = (2, 4, 6);
    let image_bytes = tiles * (4096 + kd * nd + 4 * nd);
    let record_bytes = 192 + ME.len();
    let lengths = names(&sim).into_iter().map(|name| {
        let bytes = sim.read(format!("{}/{name}", crate::disk::ROOT));
        (name, bytes.map_or(0, |bytes| bytes.len()))
    });
    let is_ours = |name: &str| name.ends_with(".phti") || name.ends_with(".own");
    let held_bytes: usize = lengths
        .clone()
        .filter(|(name, _)| is_ours(name))
        .map(|(_, bytes)| bytes)
        .sum();
    assert_eq!(held_bytes, image_bytes + record_bytes);
    // And nothing else but the tag and the empty lock file.
    let others = lengths.filter(|(name, _)| !is_ours(name));
    let tag_bytes = packhouse_store::root::TAG.len();
    let expected = [("CACHEDIR.TAG", tag_bytes), ("v1/locks", 0)];
    assert!(others.eq(expected.map(|(name, bytes)| (name.to_owned(), bytes))));
    let inventory = packhouse_image::inventory(&folder, &*sim.clock());
    let inventory = inventory.expect("because it can be listed");
    assert_eq!(inventory.total_bytes(), held_bytes as u64);
    assert_eq!(inventory.image_bytes(), image_bytes as u64);
}
