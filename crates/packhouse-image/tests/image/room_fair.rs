//! Room where files are damaged, times are wrong, owners start at once, and keys are nobody's.

use crate::disk::{HOUR_NS, Image, V1, disk_with, images, locked_temp, temps};
use packhouse_image::{
    Folder, Limits, NoRoom, Room, Settings, Wanted, Why, collect, inventory, make_room,
};
use packhouse_sim::SimFs;
use packhouse_sys::clock::Clock;

const IMAGE_BYTES: u64 = 4144;
const MINUTE_NS: i64 = HOUR_NS / 60;
const DAY_NS: i64 = 24 * HOUR_NS;
const YEARS_NS: i64 = 3650 * DAY_NS;

/// Makes room for a head of so many tiles.
fn room(sim: &SimFs, folder: &Folder, max_bytes: u64, image: &Image, tiles: u64) -> Room {
    let settings = Settings {
        max_bytes: Some(max_bytes),
        min_free_bytes: 0,
        ..Settings::new()
    };
    let wanted = Wanted {
        set_bytes: tiles * IMAGE_BYTES,
        image_bytes: IMAGE_BYTES,
    };
    make_room(folder, &*sim.clock(), &settings, &image.key(), wanted)
}

fn publish(sim: &SimFs, folder: &Folder, image: &Image) {
    image
        .publish(folder, sim)
        .expect("because nothing is in the way");
}

fn names_of(images: &[&Image]) -> Vec<String> {
    let names = images.iter();
    let mut names: Vec<_> = names.map(|image| format!("v1/{}", image.name())).collect();
    names.sort();
    names
}

/// Does something at a time at which the clock is so much ahead.
fn ahead<T>(sim: &SimFs, by_ns: i64, work: impl FnOnce() -> T) -> T {
    sim.clock().advance_ns(by_ns);
    let done = work();
    sim.clock().advance_ns(-by_ns);
    done
}

#[test]
fn an_image_of_ones_own_that_is_too_long_is_replaced_and_evicts_nobody() {
    let (own, other) = (Image::new(1, 0), Image::new(2, 0));
    for (length, max_bytes) in [(1 << 20, 100_000), (90_000, 100_000)] {
        let (sim, folder) = disk_with(&[own.clone(), other.clone()]);
        sim.replace(own.path(), &vec![0; length], 0o400);
        sim.clock().advance_ns(HOUR_NS);
        let room = room(&sim, &folder, max_bytes, &own, 2);
        assert_eq!(room, Room::default(), "{length} bytes");
        publish(&sim, &folder, &own);
        assert_eq!(images(&sim), names_of(&[&own, &other]));
        assert_eq!(sim.read(own.path()), Some(own.bytes()));
    }
    // And a short one is not a byte of room more than its tile takes.
    let (sim, folder) = disk_with(&[own.clone(), other.clone()]);
    sim.replace(own.path(), &[0; 10], 0o400);
    sim.clock().advance_ns(HOUR_NS);
    let exact = room(&sim, &folder, 3 * IMAGE_BYTES, &own, 2);
    assert_eq!(exact, Room::default());
    let over = room(&sim, &folder, 3 * IMAGE_BYTES - 1, &own, 2);
    assert_eq!((over.removed.len(), over.refused), (1, None));
}

#[test]
fn two_owners_that_start_at_once_do_not_remove_each_others_images() {
    let heads = [1, 2].map(|head| [0, 1].map(|tile| Image::new(head, tile)));
    let (sim, folder) = disk_with(&[]);
    let mut refused = [0; 2];
    // Three starts of both, each with one tile after the other.
    for _ in 0..3 {
        for tile in 0..2 {
            for (at, head) in heads.iter().enumerate() {
                let is_there = head[tile].verify(&folder).expect("because it is whole");
                if is_there.is_some() {
                    continue;
                }
                let room = room(&sim, &folder, 3 * IMAGE_BYTES, &head[tile], 2);
                assert_eq!(room.removed, []);
                match room.refused {
                    None => publish(&sim, &folder, &head[tile]),
                    Some(_) => refused[at] += 1,
                }
            }
        }
        sim.clock().advance_ns(2 * MINUTE_NS);
    }
    // Three tiles fit; the fourth is packed at each start.
    assert_eq!(refused, [0, 3]);
    let [first, second] = &heads;
    assert_eq!(images(&sim), names_of(&[&first[0], &first[1], &second[0]]));
}

#[test]
fn what_was_used_within_ten_minutes_stays_and_the_refusal_says_so() {
    let (used, new) = (Image::new(1, 0), Image::new(2, 0));
    for by_claim in [false, true] {
        let (sim, folder) = disk_with(&[]);
        publish(&sim, &folder, &used);
        if by_claim {
            sim.clock().advance_ns(3 * HOUR_NS);
            used.claim(&folder, &sim, "/models/one");
        }
        sim.clock().advance_ns(10 * MINUTE_NS - MINUTE_NS / 2);
        let refused = room(&sim, &folder, IMAGE_BYTES, &new, 1).refused;
        let text = refused.expect("because it was used just now").to_string();
        let expected = "the head needs 4144 bytes of images, and the cap of 4144 bytes leaves it \
                        0: 4144 are of heads used within the last 10 minutes, 0 are being written";
        assert_eq!(text, expected);
        sim.clock().advance_ns(MINUTE_NS);
        let room = room(&sim, &folder, IMAGE_BYTES, &new, 1);
        assert_eq!((room.removed.len(), room.refused), (1, None));
    }
}

#[test]
fn what_no_record_names_goes_first_and_by_a_collection_after_a_day() {
    let (owned, nobodys, left) = (Image::new(1, 0), Image::new(2, 0), Image::new(3, 0));
    let new = Image::new(9, 0);
    let base = || {
        let (sim, folder) = disk_with(&[owned.clone(), left.clone()]);
        // One that is served, and one that its owner leaves once its next head is published.
        owned.claim(&folder, &sim, "/models/one");
        left.claim(&folder, &sim, "/models/two");
        new.announce(&folder, &sim, "/models/two");
        sim.clock().advance_ns(HOUR_NS);
        publish(&sim, &folder, &nobodys);
        sim.clock().advance_ns(DAY_NS - HOUR_NS / 2);
        (sim, folder)
    };
    let gone = |sim: &SimFs, folder: &Folder| {
        let done = collect(folder, &*sim.clock(), Limits::default(), false);
        done.expect("because the lock is free").removal.removed
    };
    // Younger than a day it is one among others.
    let (sim, folder) = base();
    assert_eq!(gone(&sim, &folder), []);
    let room_young = room(&sim, &folder, 3 * IMAGE_BYTES, &new, 1);
    assert_eq!(
        room_young.removed[0].name,
        owned.name().min(left.name()).to_string()
    );
    let (sim, folder) = base();
    sim.clock().advance_ns(HOUR_NS);
    let room_old = room(&sim, &folder, 3 * IMAGE_BYTES, &new, 1);
    assert_eq!(room_old.removed.len(), 1);
    let removed = &room_old.removed[0];
    assert_eq!(removed.name, nobodys.name().to_string());
    assert!(matches!(removed.why, Why::Abandoned { unused_ns } if unused_ns >= DAY_NS as u64));
    let (sim, folder) = base();
    sim.clock().advance_ns(HOUR_NS);
    let removed = gone(&sim, &folder);
    assert_eq!(removed.len(), 1, "{removed:?}");
    assert_eq!(removed[0].name, nobodys.name().to_string());
    let reason = removed[0].why.to_string();
    assert!(
        reason.starts_with("no owner record names its key, last written 88"),
        "{reason}"
    );
    assert_eq!(images(&sim), names_of(&[&owned, &left]));
    // Where a record can't be read, nobody knows whom it names.
    let (sim, folder) = base();
    sim.clock().advance_ns(HOUR_NS);
    let record = format!("{V1}/owners/{:032x}.own", 5);
    sim.replace(&record, b"no record", 0o400);
    let told: Vec<_> = gone(&sim, &folder)
        .into_iter()
        .map(|removed| removed.name)
        .collect();
    assert_eq!(told, [format!("owners/{:032x}.own", 5)]);
    assert_eq!(gone(&sim, &folder).len(), 1, "the next one can tell");
}

#[test]
fn files_of_a_wrong_clock_are_the_first_to_go_and_not_the_last() {
    let (future, hot, new) = (Image::new(1, 0), Image::new(2, 0), Image::new(9, 0));
    let (sim, folder) = disk_with(&[]);
    ahead(&sim, YEARS_NS, || {
        publish(&sim, &folder, &future);
        future.claim(&folder, &sim, "/models/one");
    });
    publish(&sim, &folder, &hot);
    hot.claim(&folder, &sim, "/models/two");
    sim.clock().advance_ns(HOUR_NS);
    let listed = inventory(&folder, &*sim.clock()).expect("because it can be listed");
    let listed = listed
        .images
        .iter()
        .find(|image| image.name == future.name());
    assert_eq!(listed.map(|image| image.last_use_ns), Some(0));
    let room = room(&sim, &folder, 2 * IMAGE_BYTES, &new, 1);
    assert_eq!(room.refused, None);
    assert_eq!(images(&sim), names_of(&[&hot]));
    // By age too: nobody knows when it was used.
    publish(&sim, &folder, &new);
    ahead(&sim, YEARS_NS, || publish(&sim, &folder, &future));
    let limits = Limits {
        max_bytes: None,
        max_age_ns: Some(DAY_NS as u64),
    };
    let done = collect(&folder, &*sim.clock(), limits, false).expect("because the lock is free");
    let told: Vec<_> = done
        .removal
        .removed
        .iter()
        .map(|removed| removed.why.to_string())
        .collect();
    let expected = "dated in the future, so nobody knows when it was used";
    assert_eq!(told, [expected, "owner record of a key without files"]);
    assert_eq!(images(&sim), names_of(&[&hot, &new]));
}

#[test]
fn a_clock_that_is_hours_ahead_is_believed() {
    let (ahead_image, new) = (Image::new(1, 0), Image::new(9, 0));
    let (sim, folder) = disk_with(&[]);
    ahead(&sim, DAY_NS - HOUR_NS, || {
        publish(&sim, &folder, &ahead_image)
    });
    let refused = room(&sim, &folder, IMAGE_BYTES, &new, 1).refused;
    assert!(
        matches!(
            refused,
            Some(NoRoom::Cap {
                recent_bytes: IMAGE_BYTES,
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn a_record_of_a_wrong_clock_is_written_anew_by_the_next_use() {
    let image = Image::new(1, 0);
    for by_ns in [2 * HOUR_NS, YEARS_NS] {
        let (sim, folder) = disk_with(std::slice::from_ref(&image));
        ahead(&sim, by_ns, || image.claim(&folder, &sim, "/models/one"));
        let claim = image.claim(&folder, &sim, "/models/one");
        assert!(claim.written_bytes > 0, "{by_ns} ns ahead");
        let again = image.claim(&folder, &sim, "/models/one");
        assert_eq!(again.written_bytes, 0, "{by_ns} ns ahead");
    }
}

#[test]
fn a_temporary_file_has_a_writer_while_its_lock_is_held() {
    let image = Image::new(1, 0);
    let collected = |sim: &SimFs, folder: &Folder| {
        let done = collect(folder, &*sim.clock(), Limits::default(), false);
        let done = done.expect("because the lock is free");
        done.removal
            .removed
            .into_iter()
            .map(|removed| removed.why)
            .collect::<Vec<_>>()
    };
    let (sim, folder) = disk_with(&[]);
    let writer = locked_temp(&sim, &image, 55);
    for wait_ns in [0, HOUR_NS, 9 * DAY_NS, -20 * DAY_NS] {
        sim.clock().advance_ns(wait_ns);
        assert_eq!(collected(&sim, &folder), [], "{wait_ns} ns later");
        assert_eq!(temps(&sim).len(), 1);
    }
    // A minute is between its making and its locking at most; then nobody is there to lock it.
    drop(writer);
    let told = collected(&sim, &folder);
    let [Why::StaleTemp { .. }] = &told[..] else {
        panic!("{told:?}");
    };
    let text = "temporary file that is dated in the future and has no writer";
    assert_eq!(told[0].to_string(), text);
    let temp = format!("{V1}/.{}.9-0123456789abcdef.tmp", image.name());
    sim.replace(&temp, &[0; 55], 0o600);
    sim.clock().advance_ns(MINUTE_NS - MINUTE_NS / 60);
    assert_eq!(collected(&sim, &folder), []);
    sim.clock().advance_ns(MINUTE_NS / 30);
    assert_eq!(collected(&sim, &folder).len(), 1);
    assert_eq!(temps(&sim), [""; 0]);
}

/// A board without a battery starts in 1970 and has the right time later.
#[test]
fn a_start_in_1970_makes_nothing_immortal_and_removes_nobodys_work() {
    let (before, then, new) = (Image::new(1, 0), Image::new(2, 0), Image::new(9, 0));
    let (sim, folder) = disk_with(&[]);
    publish(&sim, &folder, &before);
    before.claim(&folder, &sim, "/models/one");
    let writer = locked_temp(&sim, &Image::new(3, 0), 55);
    let back_ns = sim.clock().wall_ns() - MINUTE_NS;
    ahead(&sim, -back_ns, || {
        publish(&sim, &folder, &then);
        then.claim(&folder, &sim, "/models/two");
        // Dated in the future by this clock, the hit is noted all the same.
        assert!(before.claim(&folder, &sim, "/models/one").written_bytes > 0);
        let done = collect(&folder, &*sim.clock(), Limits::default(), false);
        let done = done.expect("because the lock is free");
        assert_eq!(
            done.removal.removed,
            [],
            "a living writer, and keys with owners"
        );
    });
    drop(writer);
    sim.clock().advance_ns(HOUR_NS);
    assert!(before.claim(&folder, &sim, "/models/one").written_bytes > 0);
    // The temporary file and the head that was last used in 1970 make room; the other was used now.
    let room = room(&sim, &folder, 2 * IMAGE_BYTES, &new, 1);
    assert_eq!(room.refused, None);
    assert_eq!(images(&sim), names_of(&[&before]));
    assert_eq!(temps(&sim), [""; 0]);
}
