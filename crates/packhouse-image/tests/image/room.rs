//! Room: the cap to the byte, the floor, who goes first, and who never goes.

use crate::disk::{HOUR_NS, Image, V1, disk_with, geometry, images, temps};
use packhouse_image::{Folder, NoRoom, Room, Settings, Wanted, Why, make_room};
use packhouse_sim::{Fault, SimFs};
use packhouse_sys::fs::{Fs, FsErrorKind, LockKind};
use std::path::Path;

/// Bytes of each of the images here.
const IMAGE_BYTES: u64 = 4144;

const ONE: Wanted = Wanted {
    set_bytes: IMAGE_BYTES,
    image_bytes: IMAGE_BYTES,
};

fn settings(max_bytes: u64) -> Settings {
    Settings {
        max_bytes: Some(max_bytes),
        min_free_bytes: 0,
        ..Settings::new()
    }
}

/// Makes room for the image, as a serve does before it writes it.
fn room(sim: &SimFs, folder: &Folder, settings: &Settings, image: &Image, wanted: Wanted) -> Room {
    make_room(folder, &*sim.clock(), settings, &image.key(), wanted)
}

fn removed(room: &Room) -> Vec<&str> {
    room.removed
        .iter()
        .map(|removed| removed.name.as_str())
        .collect()
}

/// Images of heads 1, 2, 3 ..., each used an hour after the one before.
fn used_in_turn(count: u8) -> (SimFs, Folder, Vec<Image>) {
    let (sim, folder) = disk_with(&[]);
    let images: Vec<_> = (1..=count).map(|head| Image::new(head, 0)).collect();
    for image in &images {
        image
            .publish(&folder, &sim)
            .expect("because nothing is in the way");
        sim.clock().advance_ns(HOUR_NS);
    }
    (sim, folder, images)
}

#[test]
fn the_cap_holds_to_the_byte() {
    for (max_bytes, gone) in [
        (4 * IMAGE_BYTES, 0),
        (4 * IMAGE_BYTES - 1, 1),
        (3 * IMAGE_BYTES, 1),
        (3 * IMAGE_BYTES - 1, 2),
        (2 * IMAGE_BYTES, 2),
        (IMAGE_BYTES, 3),
    ] {
        let (sim, folder, old) = used_in_turn(3);
        let new = Image::new(9, 0);
        let room = room(&sim, &folder, &settings(max_bytes), &new, ONE);
        assert_eq!(room.refused, None, "{max_bytes}");
        let oldest: Vec<_> = old[..gone]
            .iter()
            .map(|image| image.name().to_string())
            .collect();
        assert_eq!(removed(&room), oldest, "{max_bytes}");
        assert!(room.removed.iter().all(|removed| removed.why == Why::Room));
        assert!(
            room.removed
                .iter()
                .all(|removed| removed.bytes == IMAGE_BYTES)
        );
        new.publish(&folder, &sim).expect("because there is room");
        let held_bytes = images(&sim).len() as u64 * IMAGE_BYTES;
        assert!(held_bytes <= max_bytes, "{held_bytes} of {max_bytes}");
    }
}

#[test]
fn a_head_larger_than_the_cap_removes_nothing_at_any_of_its_tiles() {
    let (sim, folder, old) = used_in_turn(2);
    let new = Image::new(9, 0);
    let wanted = Wanted {
        set_bytes: 2 * IMAGE_BYTES,
        image_bytes: IMAGE_BYTES,
    };
    for _ in 0..3 {
        let room = room(&sim, &folder, &settings(2 * IMAGE_BYTES - 1), &new, wanted);
        let refused = room.refused.expect("because it is too large");
        let expected = NoRoom::Cap {
            set_bytes: 2 * IMAGE_BYTES,
            cap_bytes: 2 * IMAGE_BYTES - 1,
            recent_bytes: 0,
            writing_bytes: 0,
        };
        assert_eq!(refused, expected);
        let text = "the head needs 8288 bytes of images, and the cap of 8287 bytes leaves it 8287: \
                    0 are of heads used within the last 10 minutes, 0 are being written";
        assert_eq!(refused.to_string(), text);
        assert_eq!(room.removed, []);
        assert_eq!(images(&sim).len(), old.len());
    }
}

#[test]
fn tiles_that_are_there_count_as_part_of_their_head() {
    let (sim, folder, old) = used_in_turn(1);
    let tiles = [Image::new(9, 0), Image::new(9, 1)];
    let wanted = Wanted {
        set_bytes: 2 * IMAGE_BYTES,
        image_bytes: IMAGE_BYTES,
    };
    // Room for the whole head is made at its first tile.
    let settings = settings(2 * IMAGE_BYTES);
    let first = room(&sim, &folder, &settings, &tiles[0], wanted);
    assert_eq!(removed(&first), [old[0].name().to_string()]);
    for tile in &tiles {
        assert_eq!(
            room(&sim, &folder, &settings, tile, wanted),
            Room::default()
        );
        tile.publish(&folder, &sim).expect("because there is room");
    }
    assert_eq!(
        room(&sim, &folder, &settings, &tiles[0], wanted),
        Room::default()
    );
}

#[test]
fn a_use_counts_not_the_age_of_the_file() {
    let (sim, folder, old) = used_in_turn(3);
    // The oldest file is the one that is served.
    old[0].claim(&folder, &sim, "/models/hot");
    let new = Image::new(9, 0);
    let room = room(&sim, &folder, &settings(3 * IMAGE_BYTES), &new, ONE);
    assert_eq!(removed(&room), [old[1].name().to_string()]);
}

#[test]
fn all_tiles_of_a_key_go_together() {
    let (sim, folder) = disk_with(&[Image::new(1, 0), Image::new(1, 1)]);
    sim.clock().advance_ns(HOUR_NS);
    let new = Image::new(9, 0);
    let room = room(&sim, &folder, &settings(2 * IMAGE_BYTES), &new, ONE);
    assert_eq!((room.removed.len(), room.refused), (2, None));
    assert_eq!(images(&sim), [""; 0]);
}

#[test]
fn what_somebody_writes_stays_and_is_named_in_the_refusal() {
    let (sim, folder, old) = used_in_turn(1);
    let temp = format!("{V1}/.{}.5-0123456789abcdef.tmp", old[0].name());
    sim.replace(&temp, &[0; 100], 0o600);
    let new = Image::new(9, 0);
    let settings = settings(2 * IMAGE_BYTES);
    let refused = room(&sim, &folder, &settings, &new, ONE).refused;
    let expected = NoRoom::Cap {
        set_bytes: IMAGE_BYTES,
        cap_bytes: 2 * IMAGE_BYTES,
        recent_bytes: 0,
        writing_bytes: IMAGE_BYTES + 100,
    };
    assert_eq!(refused, Some(expected));
    assert_eq!((images(&sim).len(), temps(&sim).len()), (1, 1));
    // An hour later nobody writes it, and it is the first to go.
    sim.clock().advance_ns(HOUR_NS);
    let room = room(&sim, &folder, &settings, &new, ONE);
    let [stale] = &room.removed[..] else {
        panic!("{room:?}");
    };
    assert!(matches!(stale.why, Why::StaleTemp { .. }), "{stale:?}");
    assert_eq!(
        (stale.bytes, images(&sim).len(), temps(&sim).len()),
        (100, 1, 0)
    );
}

#[test]
fn the_floor_of_free_space_is_kept_and_names_without_content_of_their_own_free_nothing() {
    let (sim, folder, old) = used_in_turn(3);
    // A second name keeps the oldest one's bytes on the disk.
    sim.hard_link(old[0].path(), "/home/user/kept");
    let new = Image::new(9, 0);
    let free_bytes = |sim: &SimFs| {
        let root = sim.root().expect("because the disk is there");
        root.fs_stat().expect("because it is there").free_bytes
    };
    let free_now = free_bytes(&sim);
    let floor = |min_free_bytes| Settings {
        max_bytes: Some(1 << 30),
        min_free_bytes,
        ..Settings::new()
    };
    let enough = floor(free_now - IMAGE_BYTES);
    assert_eq!(room(&sim, &folder, &enough, &new, ONE), Room::default());
    // More than all of them free, so none goes.
    let allocated = IMAGE_BYTES.next_multiple_of(4096);
    let too_much = floor(free_now - IMAGE_BYTES + 2 * allocated + 1);
    let refused = room(&sim, &folder, &too_much, &new, ONE);
    let expected = NoRoom::Free {
        wanted_bytes: IMAGE_BYTES,
        free_bytes: free_now,
        evictable_bytes: 2 * allocated,
        min_free_bytes: free_now - IMAGE_BYTES + 2 * allocated + 1,
    };
    assert_eq!(refused.refused, Some(expected));
    assert_eq!((refused.removed.len(), images(&sim).len()), (0, 3));
    let one_more = floor(free_now - IMAGE_BYTES + 1);
    let room = room(&sim, &folder, &one_more, &new, ONE);
    let gone = [&old[0], &old[1]].map(|image| image.name().to_string());
    assert_eq!(
        (removed(&room), room.refused.as_ref()),
        (gone.iter().map(String::as_str).collect(), None)
    );
}

#[test]
fn nothing_said_is_a_fifth_of_the_file_system_and_ten_gib_free() {
    let (sim, folder, _) = used_in_turn(1);
    let new = Image::of(9, 0, geometry(6), 1);
    let wanted = |set_bytes| Wanted {
        set_bytes,
        image_bytes: IMAGE_BYTES,
    };
    let total_bytes = 1u64 << 40;
    sim.set_total_bytes(total_bytes);
    let settings = Settings::new();
    let fits = room(
        &sim,
        &folder,
        &settings,
        &new,
        wanted(total_bytes / 5 - IMAGE_BYTES),
    );
    assert_eq!(fits, Room::default());
    let over = room(&sim, &folder, &settings, &new, wanted(total_bytes / 5 + 1));
    let cap = |refused: Option<NoRoom>| match refused {
        Some(NoRoom::Cap { cap_bytes, .. }) => cap_bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(cap(over.refused), total_bytes / 5);
    sim.set_total_bytes(5 << 30);
    let under = room(&sim, &folder, &settings, &new, ONE);
    let floor = match under.refused {
        Some(NoRoom::Free { min_free_bytes, .. }) => min_free_bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(floor, 10 << 30);
    assert_eq!(images(&sim).len(), 1);
}

#[test]
fn what_is_older_than_allowed_goes_along() {
    let (sim, folder, old) = used_in_turn(3);
    let new = Image::new(9, 0);
    let settings = Settings {
        max_age_ns: Some(5 * HOUR_NS as u64 / 2),
        ..settings(1 << 30)
    };
    let room = room(&sim, &folder, &settings, &new, ONE);
    let [gone] = &room.removed[..] else {
        panic!("{room:?}");
    };
    assert_eq!(gone.name, old[0].name().to_string());
    assert!(matches!(gone.why, Why::Age { unused_ns } if unused_ns >= 3 * HOUR_NS as u64));
}

#[test]
fn a_removal_that_fails_is_told_and_is_no_room_only_when_it_was_needed() {
    for is_needed in [false, true] {
        let (sim, folder, old) = used_in_turn(1);
        old[0].claim(&folder, &sim, "/models/one");
        sim.clock().advance_ns(HOUR_NS);
        let settings = Settings {
            max_age_ns: Some(1),
            ..settings(if is_needed { IMAGE_BYTES } else { 1 << 30 })
        };
        sim.restart_count();
        let kind = FsErrorKind::Io;
        sim.set_fault(Some(Fault::Error { at: 0, kind }));
        let room = room(&sim, &folder, &settings, &Image::new(9, 0), ONE);
        let texts: Vec<_> = room.failures.iter().map(ToString::to_string).collect();
        let text = format!("remove {}: input/output error", old[0].path());
        assert_eq!(texts, std::slice::from_ref(&text), "{is_needed}");
        let refused = room.refused.map(|refused| refused.to_string());
        assert_eq!(refused, is_needed.then_some(text));
        assert_eq!((room.removed.len(), images(&sim).len()), (0, 1));
    }
}

#[test]
fn a_lock_that_is_not_had_is_no_room_only_when_something_has_to_go() {
    let (sim, folder, old) = used_in_turn(1);
    old[0].claim(&folder, &sim, "/models/one");
    sim.clock().advance_ns(HOUR_NS);
    let mut dir = sim.root().expect("because the disk is there");
    for name in Path::new(V1).iter().skip(1) {
        dir = dir.open_dir(name).expect("because it is there");
    }
    let held = dir
        .open_file_writable("locks")
        .expect("because it is there");
    assert_eq!(held.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    let new = Image::new(9, 0);
    let fits = room(&sim, &folder, &settings(2 * IMAGE_BYTES), &new, ONE);
    assert_eq!(fits, Room::default());
    let busy = room(&sim, &folder, &settings(IMAGE_BYTES), &new, ONE);
    let text = busy.refused.expect("because the lock is held").to_string();
    let expected = "another process held the lock of /home/user/images for 1000 ms";
    assert_eq!(text, expected);
    assert_eq!(images(&sim).len(), 1);
    // What is only old may wait.
    let aged = Settings {
        max_age_ns: Some(1),
        ..settings(2 * IMAGE_BYTES)
    };
    assert_eq!(room(&sim, &folder, &aged, &new, ONE), Room::default());
    assert_eq!(images(&sim).len(), 1);
    drop(held);
    let had = room(&sim, &folder, &settings(IMAGE_BYTES), &new, ONE);
    assert_eq!(removed(&had), [old[0].name().to_string()]);
}
