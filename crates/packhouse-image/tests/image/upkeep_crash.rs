//! Claims, evictions and collections stopped and failed at every operation: an image is whole or
//! gone, a record is an old one or a new one, and the next claim or collection ends the work.

use crate::disk::{HOUR_NS, Image, V1, VOCABULARY, collect_later, disk_with, images, names, open};
use crate::disk::{owner, temps};
use crate::publish_crash::{CRASHES, FULL, IO, STOP};
use packhouse_image::{Limits, OwnerRecord, Settings, Wanted, collect, make_room};
use packhouse_sim::{Crash, Fault, SimFs, Skip};

const ME: &str = "/models/one";
const IMAGE_BYTES: u64 = 4144;

fn record(image: &Image, leaving: Option<&Image>) -> OwnerRecord {
    OwnerRecord {
        owner: owner(ME),
        geometry: *image.header.geometry(),
        key: image.key(),
        leaving: leaving.map(Image::key),
        vocabulary: VOCABULARY,
    }
}

fn record_path() -> String {
    format!("{V1}/owners/{}", record(&Image::new(1, 0), None).name())
}

/// Does a piece of work on copies of a disk with a fault at each operation, and judges each disk
/// after each kind of crash. `work` says whether it reported to be done.
fn at_every_operation(
    base: &SimFs,
    work: &dyn Fn(&SimFs) -> bool,
    faults: &[fn(u64) -> Fault],
    skip: Option<Skip>,
    judge: &dyn Fn(&SimFs, bool, &str),
) {
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        assert!(work(&sim));
        sim.operation_count()
    };
    assert!(count >= 4, "only {count} operations were counted");
    for fault in faults {
        for at in 0..=count {
            let sim = base.crash(Crash::Kept, 0);
            sim.restart_count();
            sim.set_skip(skip);
            sim.set_fault(Some(fault(at)));
            let reported = work(&sim);
            sim.set_fault(None);
            sim.set_skip(None);
            if fault(at) != STOP(at) {
                // A living process leaves no temporary file, and nothing fails in silence.
                assert_eq!(temps(&sim), [""; 0], "operation {at} of {count}");
                let told = fault(at) != IO(at) || reported == (at == count);
                assert!(told, "operation {at} of {count}");
            }
            for (crash, seeds) in CRASHES {
                for seed in 100..100 + seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    judge(&sim.crash(crash, seed), reported, &context);
                }
            }
        }
    }
}

/// Whether an image is there; it is whole then.
fn is_whole(sim: &SimFs, image: &Image, context: &str) -> bool {
    let found = sim.read(image.path());
    let whole = found.as_ref().is_none_or(|found| *found == image.bytes());
    assert!(whole, "{context}: a part of {}", image.name());
    found.is_some()
}

fn claim_at_every_operation(faults: &[fn(u64) -> Fault], skip: Option<Skip>) {
    let (old, new) = ([Image::new(1, 0), Image::new(1, 1)], Image::new(2, 0));
    let (base, folder) = disk_with(&[old[0].clone(), old[1].clone(), new.clone()]);
    old[0].claim(&folder, &base, ME);
    base.settle();
    let work = |sim: &SimFs| {
        let claim = new.claim(&open(sim), sim, ME);
        claim.problems.is_empty()
    };
    let judge = |sim: &SimFs, reported: bool, context: &str| {
        let bytes = sim.read(record_path());
        let bytes = bytes.unwrap_or_else(|| panic!("{context}: the record is gone"));
        let found = OwnerRecord::parse(&bytes);
        let found = found.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        let known = [
            record(&old[0], None),
            record(&new, Some(&old[0])),
            record(&new, None),
        ];
        assert!(known.contains(&found), "{context}: {found:?}");
        let left = old
            .iter()
            .filter(|image| is_whole(sim, image, context))
            .count();
        assert!(
            left == 2 || found.key == new.key(),
            "{context}: removed before it was noted"
        );
        assert!(
            left == 0 || found != known[2],
            "{context}: nobody will remove the rest"
        );
        assert!(found == known[2] || !reported, "{context}: {found:?}");
        assert!(
            is_whole(sim, &new, context),
            "{context}: the new image is gone"
        );
        let folder = open(sim);
        let claim = new.claim(&folder, sim, ME);
        assert!(claim.problems.is_empty(), "{context}: {:?}", claim.problems);
        collect_later(sim, &folder);
        let record_name = record(&new, None).name();
        let left = [
            "CACHEDIR.TAG".to_owned(),
            format!("v1/{}", new.name()),
            "v1/locks".to_owned(),
            format!("v1/owners/{record_name}"),
        ];
        assert_eq!(names(sim), left, "{context}");
        let bytes = sim.read(record_path());
        assert_eq!(bytes, Some(record(&new, None).encode()), "{context}");
    };
    at_every_operation(&base, &work, faults, skip, &judge);
}

#[test]
fn a_claim_that_is_stopped_or_fails_is_ended_by_the_next() {
    claim_at_every_operation(&[STOP, IO, FULL], None);
}

#[test]
fn a_claim_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught = std::panic::catch_unwind(|| claim_at_every_operation(&[STOP], Some(skip)));
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}

/// From the announcement of a new head to its claim: at no time is an image there whose key the
/// record does not name, and a head of the owner's is there, the old one or the new.
#[test]
fn an_image_is_named_at_every_operation_from_its_announcement_to_its_claim() {
    let (old, new) = (Image::new(1, 0), Image::new(2, 0));
    let (base, folder) = disk_with(&[]);
    for step in [Image::announce, Image::claim] {
        assert_eq!(step(&old, &folder, &base, ME).problems, []);
        let published = old.publish(&folder, &base);
        assert_eq!(published, Ok(IMAGE_BYTES));
    }
    base.settle();
    let work = |sim: &SimFs| {
        let folder = open(sim);
        let announced = new.announce(&folder, sim, ME).problems.is_empty();
        announced
            && new.publish(&folder, sim).is_ok()
            && new.claim(&folder, sim, ME).problems.is_empty()
    };
    let judge = |sim: &SimFs, reported: bool, context: &str| {
        let bytes = sim.read(record_path());
        let bytes = bytes.unwrap_or_else(|| panic!("{context}: the record is gone"));
        let found = OwnerRecord::parse(&bytes);
        let found = found.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        let there = [&old, &new].map(|image| is_whole(sim, image, context));
        assert!(there[0] || there[1], "{context}: neither head is there");
        for (image, is_there) in [&old, &new].into_iter().zip(there) {
            let key = image.key();
            let is_named = found.key == key || found.leaving == Some(key);
            assert!(
                is_named || !is_there,
                "{context}: {} is nobody's",
                image.name()
            );
        }
        assert!(!reported || there == [false, true], "{context}: {there:?}");
        assert!(work(sim), "{context}");
        collect_later(sim, &open(sim));
        assert_eq!(images(sim), [format!("v1/{}", new.name())], "{context}");
        let bytes = sim.read(record_path());
        assert_eq!(bytes, Some(record(&new, None).encode()), "{context}");
    };
    at_every_operation(&base, &work, &[STOP, IO, FULL], None, &judge);
}

#[test]
fn a_first_claim_leaves_a_whole_record_or_none() {
    let image = Image::new(1, 0);
    let (base, _) = disk_with(std::slice::from_ref(&image));
    let work = |sim: &SimFs| image.claim(&open(sim), sim, ME).problems.is_empty();
    let judge = |sim: &SimFs, reported: bool, context: &str| {
        let bytes = sim.read(record_path());
        let whole = record(&image, None).encode();
        assert!(bytes.is_some() || !reported, "{context}");
        assert!(bytes.is_none_or(|bytes| bytes == whole), "{context}");
        assert!(is_whole(sim, &image, context), "{context}");
        let folder = open(sim);
        assert!(
            image.claim(&folder, sim, ME).problems.is_empty(),
            "{context}"
        );
        assert_eq!(sim.read(record_path()), Some(whole), "{context}");
        collect_later(sim, &folder);
        assert_eq!(names(sim).len(), 4, "{context}: {:?}", names(sim));
    };
    at_every_operation(&base, &work, &[STOP, IO, FULL], None, &judge);
}

#[test]
fn an_eviction_for_room_that_is_stopped_or_fails_leaves_whole_images() {
    let old = [Image::new(1, 0), Image::new(1, 1)];
    let (used, new) = (Image::new(3, 0), Image::new(2, 0));
    let (base, folder) = disk_with(&old);
    base.clock().advance_ns(HOUR_NS);
    used.publish(&folder, &base)
        .expect("because nothing is in the way");
    base.settle();
    let settings = Settings {
        max_bytes: Some(2 * IMAGE_BYTES),
        ..Settings::new()
    };
    let wanted = Wanted {
        set_bytes: IMAGE_BYTES,
        image_bytes: IMAGE_BYTES,
    };
    let room = |sim: &SimFs| make_room(&open(sim), &*sim.clock(), &settings, &new.key(), wanted);
    let work = |sim: &SimFs| room(sim).refused.is_none();
    let judge = |sim: &SimFs, reported: bool, context: &str| {
        let left = old
            .iter()
            .filter(|image| is_whole(sim, image, context))
            .count();
        assert!(left == 0 || !reported, "{context}");
        assert!(
            is_whole(sim, &used, context),
            "{context}: more than asked for is gone"
        );
        let again = room(sim);
        assert_eq!(
            (again.refused, again.removed.len()),
            (None, left),
            "{context}"
        );
        let folder = open(sim);
        new.publish(&folder, sim).expect("because there is room");
        let mut both = [used.name(), new.name()].map(|name| format!("v1/{name}"));
        both.sort();
        assert_eq!(images(sim), both, "{context}");
    };
    at_every_operation(&base, &work, &[STOP, IO], None, &judge);
}

#[test]
fn a_collection_that_is_stopped_or_fails_leaves_whole_images_and_is_ended_by_the_next() {
    let old = [Image::new(1, 0), Image::new(1, 1)];
    let (damaged, used) = (Image::new(3, 0), Image::new(2, 0));
    let (base, folder) = disk_with(&[old[0].clone(), old[1].clone(), damaged.clone()]);
    old[0].claim(&folder, &base, ME);
    base.edit(damaged.path(), |bytes| bytes[7] ^= 1);
    base.replace(
        format!("{V1}/.{}.1-0123456789abcdef.tmp", used.name()),
        b"half",
        0o600,
    );
    base.clock().advance_ns(3 * HOUR_NS);
    used.publish(&folder, &base)
        .expect("because nothing is in the way");
    base.settle();
    let limits = Limits {
        max_bytes: None,
        max_age_ns: Some(HOUR_NS as u64),
    };
    let work = |sim: &SimFs| {
        let collected = collect(&open(sim), &*sim.clock(), limits, false);
        collected.is_ok_and(|collected| collected.removal.failures.is_empty())
    };
    let left = [
        "CACHEDIR.TAG".to_owned(),
        format!("v1/{}", used.name()),
        "v1/locks".to_owned(),
    ];
    let judge = |sim: &SimFs, reported: bool, context: &str| {
        old.iter().for_each(|image| {
            is_whole(sim, image, context);
        });
        assert!(
            is_whole(sim, &used, context),
            "{context}: what was used is gone"
        );
        assert!(
            names(sim) == left || !reported,
            "{context}: {:?}",
            names(sim)
        );
        let collected = collect(&open(sim), &*sim.clock(), limits, false);
        let collected = collected.expect("because the lock is free");
        assert!(collected.removal.failures.is_empty(), "{context}");
        assert_eq!(names(sim), left, "{context}");
    };
    let catch = |skip| {
        let run = || at_every_operation(&base, &work, &[STOP], Some(skip), &judge);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    };
    // Temporary files of faults would count as litter here, and a collection makes none.
    let work_io = |sim: &SimFs| {
        sim.remove(format!("{V1}/.{}.1-0123456789abcdef.tmp", used.name()));
        work(sim)
    };
    at_every_operation(&base, &work, &[STOP], None, &judge);
    at_every_operation(&base, &work_io, &[IO], None, &judge);
    assert!(
        catch(Skip::DirSync),
        "a collection without its sync went unnoticed"
    );
}
