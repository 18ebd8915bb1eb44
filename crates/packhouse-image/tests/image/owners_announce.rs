//! A record names a key before its first image is written, and no key that is left is forgotten.

use crate::disk::{HOUR_NS, Image, V1, VOCABULARY, disk_with, images, locked_temp, owner};
use crate::serve_world::{
    Weights, buffers, geometries, image_files, images as serve_images, key, new_disk, serve,
    settings, start,
};
use packhouse_image::{Claim, Folder, ImageKey, Outcome, OwnerRecord, Removed, Why, Written};
use packhouse_pack::int8_tile::Gather;
use packhouse_sim::SimFs;

const ME: &str = "/models/mistral.q4nx";

fn record_path(image: &Image) -> String {
    let record = OwnerRecord {
        owner: owner(ME),
        geometry: *image.header.geometry(),
        key: image.key(),
        leaving: None,
        vocabulary: VOCABULARY,
    };
    format!("{V1}/owners/{}", record.name())
}

/// The key that the owner serves, and the one that it leaves.
fn noted(sim: &SimFs, image: &Image) -> Option<(ImageKey, Option<ImageKey>)> {
    let bytes = sim.read(record_path(image))?;
    let record = OwnerRecord::parse(&bytes).expect("because it is intact");
    Some((record.key, record.leaving))
}

fn publish(sim: &SimFs, folder: &Folder, image: &Image) {
    image
        .publish(folder, sim)
        .expect("because nothing is in the way");
}

fn superseded(image: &Image) -> Removed {
    Removed {
        name: image.name().to_string(),
        bytes: 4144,
        why: Why::Superseded,
    }
}

fn heads() -> [Image; 3] {
    [1, 2, 3].map(|head| Image::new(head, 0))
}

#[test]
fn what_is_announced_is_named_and_evicts_nothing_until_it_is_claimed() {
    let [a, b, _] = heads();
    let (sim, folder) = disk_with(&[]);
    let first = a.announce(&folder, &sim, ME);
    assert_eq!((first.removed, first.problems), (Vec::new(), Vec::new()));
    assert_eq!(noted(&sim, &a), Some((a.key(), None)));
    publish(&sim, &folder, &a);
    assert_eq!(a.claim(&folder, &sim, ME), Claim::default());
    let second = b.announce(&folder, &sim, ME);
    assert_eq!((second.removed, second.problems), (Vec::new(), Vec::new()));
    assert_eq!(noted(&sim, &b), Some((b.key(), Some(a.key()))));
    // Again it takes neither lock nor write.
    sim.restart_count();
    assert_eq!(b.announce(&folder, &sim, ME), Claim::default());
    assert_eq!(sim.operation_count(), 0);
    assert_eq!(images(&sim).len(), 1);
    publish(&sim, &folder, &b);
    assert_eq!(b.claim(&folder, &sim, ME).removed, [superseded(&a)]);
    assert_eq!(noted(&sim, &b), Some((b.key(), None)));
}

#[test]
fn a_head_that_was_announced_only_leaves_what_its_owner_served_before() {
    let [a, b, c] = heads();
    for back in [true, false] {
        let (sim, folder) = disk_with(&[]);
        a.announce(&folder, &sim, ME);
        publish(&sim, &folder, &a);
        a.claim(&folder, &sim, ME);
        // The disk is full: nothing of it is published.
        b.announce(&folder, &sim, ME);
        if back {
            assert_eq!(a.announce(&folder, &sim, ME).removed, []);
            assert_eq!(noted(&sim, &a), Some((a.key(), None)));
            continue;
        }
        assert_eq!(c.announce(&folder, &sim, ME).removed, []);
        assert_eq!(noted(&sim, &c), Some((c.key(), Some(a.key()))));
        assert_eq!(images(&sim).len(), 1);
        publish(&sim, &folder, &c);
        assert_eq!(c.claim(&folder, &sim, ME).removed, [superseded(&a)]);
    }
}

#[test]
fn two_processes_of_one_owner_with_two_heads_leave_nothing_that_nobody_names() {
    let tiles = [1, 2].map(|head| [0, 1].map(|tile| Image::new(head, tile)));
    let (sim, folder) = disk_with(&[]);
    let mut has_claimed = [false; 2];
    for tile in 0..2 {
        for (at, head) in tiles.iter().enumerate() {
            head[tile].announce(&folder, &sim, ME);
            publish(&sim, &folder, &head[tile]);
            if !std::mem::replace(&mut has_claimed[at], true) {
                head[tile].claim(&folder, &sim, ME);
            }
        }
    }
    let (key, leaving) = noted(&sim, &tiles[0][0]).expect("because both announced");
    assert_eq!((key, leaving), (tiles[1][0].key(), Some(tiles[0][0].key())));
    // The next start of either leaves one head.
    sim.clock().advance_ns(HOUR_NS);
    let claim = tiles[1][0].claim(&folder, &sim, ME);
    assert_eq!((claim.removed.len(), claim.problems), (1, Vec::new()));
    assert_eq!(images(&sim).len(), 2);
}

#[test]
fn an_owner_that_moves_on_while_what_it_left_cant_go_says_so_and_forgets_nothing() {
    let [a, b, c] = heads();
    for is_claim in [false, true] {
        let (sim, folder) = disk_with(&[a.clone(), b.clone(), c.clone()]);
        a.claim(&folder, &sim, ME);
        let writer = locked_temp(&sim, &Image::new(1, 1), 55);
        assert_eq!(b.claim(&folder, &sim, ME).removed, []);
        assert_eq!(noted(&sim, &b), Some((b.key(), Some(a.key()))));
        let note = |image: &Image| {
            if is_claim {
                image.claim(&folder, &sim, ME)
            } else {
                image.announce(&folder, &sim, ME)
            }
        };
        let claim = note(&c);
        let texts: Vec<_> = claim.problems.iter().map(ToString::to_string).collect();
        let text = format!(
            "owner record not written: images of key {}, which its owner left, can't go yet",
            a.key()
        );
        assert_eq!((texts, claim.removed), (vec![text], Vec::new()));
        assert_eq!(noted(&sim, &b), Some((b.key(), Some(a.key()))));
        drop(writer);
        sim.clock().advance_ns(HOUR_NS);
        let claim = note(&c);
        assert!(claim.removed.contains(&superseded(&a)), "{claim:?}");
        assert_eq!(claim.removed.contains(&superseded(&b)), is_claim);
        let leaving = (!is_claim).then(|| b.key());
        assert_eq!(noted(&sim, &c), Some((c.key(), leaving)));
    }
}

/// Two engines serve two heads under one owner, and one of them begins before the other is done:
/// every image that is left is of a key that the owner's record names.
#[test]
fn a_serve_that_another_one_of_its_owner_overtakes_leaves_no_image_that_nobody_names() {
    let heads = [1, 2].map(|seed| Weights::new(47, 64, seed));
    for geometry in geometries() {
        let sim = new_disk();
        let opened = serve_images(&sim, settings());
        let mut serves = heads
            .each_ref()
            .map(|head| serve(&opened, head.head(), &geometry));
        let last = serves[0].tile_count() - 1;
        assert!(last > 0);
        // The first tile of one, the whole other, and what is left of the first.
        let order = [(0, 0..=0), (1, 0..=last), (0, 1..=last)];
        for (at, tiles) in order {
            for tile in tiles {
                let (mut codes, mut scales) = buffers(&geometry);
                let mut fill = |column, target: &mut [f32]| {
                    heads[at].fill(column, target);
                    Ok::<(), ()>(())
                };
                let gather = Gather::Serial(&mut fill);
                let served =
                    serves[at].tile(tile, geometry.kpad(), gather, &mut codes, &mut scales);
                let served = served.expect("because the request is right");
                assert_eq!(served.owner_problems, []);
                let Outcome::Packed { written, .. } = served.outcome else {
                    panic!("head {at}, tile {tile}: {:?}", served.outcome);
                };
                assert!(matches!(written, Written::Yes { .. }), "{written:?}");
            }
        }
        let records = sim.files(format!("{V1}/owners"));
        let [record] = &records[..] else {
            panic!("{records:?}");
        };
        let record = sim.read(record).expect("because it is there");
        let record = OwnerRecord::parse(&record).expect("because it is intact");
        let keys = heads.each_ref().map(|head| key(head, &geometry));
        assert_eq!((record.key, record.leaving), (keys[0], Some(keys[1])));
        // The next start of either is right and leaves one head.
        let next = start(&sim, settings(), &heads[1], &geometry);
        next.assert_all_hit();
        assert_eq!(image_files(&sim).len() as u64, last + 1);
    }
}
