//! A publish stopped and failed at every operation: an image is absent, or whole, or the one that
//! was there; the next publish works, and nothing is left behind.

use crate::disk::{Image, ROOT, collect_later, disk_with, images, names, new_sim, open, temps};
use packhouse_image::{Folder, PublishError};
use packhouse_sim::{Crash, Fault, SimFs, Skip};
use packhouse_sys::fs::FsErrorKind;
use std::path::Path;

pub(crate) const CRASHES: [(Crash, u64); 5] = [
    (Crash::Lost, 1),
    (Crash::Torn, 3),
    (Crash::Reordered, 4),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];
pub(crate) const STOP: fn(u64) -> Fault = |at| Fault::Stop { at };
pub(crate) const IO: fn(u64) -> Fault = |at| Fault::Error {
    at,
    kind: FsErrorKind::Io,
};
pub(crate) const FULL: fn(u64) -> Fault = |at| Fault::Full { at };

/// What lies under the image's name before it is published.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// There is no folder yet.
    Nothing,
    /// A damaged image, which a serve refused.
    Damaged,
    /// An intact image of the same key with another payload.
    Other,
}

fn image() -> Image {
    Image::new(1, 0)
}

fn other() -> Image {
    Image::of(1, 0, *image().header.geometry(), 2)
}

fn base(before: Before) -> SimFs {
    match before {
        Before::Nothing => new_sim(),
        Before::Damaged => {
            let (sim, _) = disk_with(&[other()]);
            sim.edit(other().path(), |bytes| bytes[4100] ^= 1);
            sim
        }
        Before::Other => disk_with(&[other()]).0,
    }
}

/// Opens the folder and publishes; says whether it was told to be there.
fn work(sim: &SimFs) -> bool {
    let folder = Folder::open(sim, Path::new(ROOT), true);
    folder.is_ok_and(|folder| {
        let folder = folder.expect("because it is made");
        image().publish(&folder, sim).is_ok()
    })
}

fn publish_at_every_operation(before: Before, faults: &[fn(u64) -> Fault], skip: Option<Skip>) {
    let base = base(before);
    let old = base_bytes(&base);
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        assert!(work(&sim));
        sim.operation_count()
    };
    assert!(count >= 10, "only {count} operations were counted");
    for fault in faults {
        // The last run meets no fault: what it reports must outlive the crash.
        for at in 0..=count {
            let sim = base.crash(Crash::Kept, 0);
            sim.restart_count();
            sim.set_skip(skip);
            sim.set_fault(Some(fault(at)));
            let reported = work(&sim);
            sim.set_fault(None);
            sim.set_skip(None);
            for (crash, seeds) in CRASHES {
                for seed in 100..100 + seeds {
                    let context = format!("{:?} of {count}, {crash:?}, seed {seed}", fault(at));
                    judge(&sim.crash(crash, seed), reported, old.as_deref(), &context);
                }
            }
        }
    }
}

fn base_bytes(sim: &SimFs) -> Option<Vec<u8>> {
    let is_there = !sim.files(ROOT).is_empty();
    is_there.then(|| sim.read(image().path())).flatten()
}

fn judge(sim: &SimFs, reported: bool, old: Option<&[u8]>, context: &str) {
    let image = image();
    let found = base_bytes(sim);
    let is_new = found.as_deref() == Some(image.bytes().as_slice());
    let is_old = found.as_deref() == old;
    assert!(is_new || is_old, "{context}: neither old nor new");
    assert!(is_new || !reported, "{context}: a reported image is gone");
    let folder = open(sim);
    if is_new {
        let verified = image.verify(&folder);
        assert!(matches!(verified, Ok(Some(_))), "{context}: {verified:?}");
    }
    let published = image.publish(&folder, sim);
    assert_eq!(published, Ok(4096 + 24 + 24), "{context}");
    let verified = image.verify(&folder);
    assert!(matches!(verified, Ok(Some(_))), "{context}: {verified:?}");
    collect_later(sim, &folder);
    let left = [
        "CACHEDIR.TAG".to_owned(),
        format!("v1/{}", image.name()),
        "v1/locks".to_owned(),
    ];
    assert_eq!(names(sim), left, "{context}");
}

#[test]
fn a_first_publish_is_whole_or_absent() {
    publish_at_every_operation(Before::Nothing, &[STOP, IO, FULL], None);
}

#[test]
fn a_refused_image_is_replaced_or_still_there_to_be_refused() {
    publish_at_every_operation(Before::Damaged, &[STOP, IO, FULL], None);
}

#[test]
fn an_intact_image_is_replaced_as_a_whole() {
    publish_at_every_operation(Before::Other, &[STOP, IO, FULL], None);
}

#[test]
fn a_publish_without_its_syncs_is_caught() {
    for skip in [Skip::FileSync, Skip::DirSync] {
        let caught = std::panic::catch_unwind(|| {
            publish_at_every_operation(Before::Nothing, &[STOP], Some(skip));
        });
        assert!(caught.is_err(), "{skip:?} went unnoticed");
    }
}

/// The maker of the folders died before it could make their entries durable, and the machine ran
/// on: who publishes first makes up for it.
#[test]
fn a_folder_whose_maker_died_is_durable_before_something_is_published_in_it() {
    for is_claim in [false, true] {
        let sim = new_sim();
        sim.set_skip(Some(Skip::DirSync));
        open(&sim);
        sim.set_skip(None);
        let folder = open(&sim);
        if is_claim {
            let claim = image().claim(&folder, &sim, "/models/one");
            assert!(claim.problems.is_empty(), "{:?}", claim.problems);
        } else {
            image()
                .publish(&folder, &sim)
                .expect("because nothing is in the way");
        }
        let after = sim.crash(Crash::Lost, 1);
        let is_durable = |name: &String| name.ends_with(".phti") || name.ends_with(".own");
        let left: Vec<_> = names(&after).into_iter().filter(is_durable).collect();
        assert_eq!(left.len(), 1, "claim: {is_claim}");
    }
}

/// Every failure of a living process names what failed, where and why, and leaves no temporary
/// file.
fn fail_at_every_operation(fault: fn(u64) -> Fault, kind: FsErrorKind) -> u64 {
    let (base, _) = disk_with(&[other()]);
    let count = {
        let sim = base.crash(Crash::Kept, 0);
        let folder = open(&sim);
        sim.restart_count();
        image()
            .publish(&folder, &sim)
            .expect("because nothing is in the way");
        sim.operation_count()
    };
    let mut failures = 0;
    for at in 0..count {
        let sim = base.crash(Crash::Kept, 0);
        let folder = open(&sim);
        sim.restart_count();
        sim.set_fault(Some(fault(at)));
        let published = image().publish(&folder, &sim);
        sim.set_fault(None);
        assert_eq!(temps(&sim), [""; 0], "operation {at}: {published:?}");
        assert_eq!(images(&sim).len(), 1, "operation {at}");
        match published {
            Ok(_) => {}
            Err(PublishError::Fs(error)) => {
                failures += 1;
                let text = error.to_string();
                assert_eq!(error.kind, kind, "operation {at}: {text}");
                assert!(
                    error.path.starts_with("/home/user"),
                    "operation {at}: {text}"
                );
                assert!(
                    text.ends_with(&format!(": {kind}")),
                    "operation {at}: {text}"
                );
            }
            Err(error) => panic!("operation {at}: {error}"),
        }
    }
    failures
}

#[test]
fn an_input_output_error_at_any_operation_is_named_and_leaves_no_temporary_file() {
    // Nothing of a publish may fail in silence.
    let (base, folder) = disk_with(&[other()]);
    base.restart_count();
    let folder_again = open(&base);
    base.restart_count();
    image()
        .publish(&folder_again, &base)
        .expect("because nothing is in the way");
    let count = base.operation_count();
    drop(folder);
    assert_eq!(fail_at_every_operation(IO, FsErrorKind::Io), count);
}

#[test]
fn a_disk_that_is_full_from_any_operation_on_is_named_and_leaves_no_temporary_file() {
    assert!(fail_at_every_operation(FULL, FsErrorKind::NoSpace) > 3);
}

#[test]
fn a_disk_that_takes_a_part_of_a_write_leaves_no_temporary_file() {
    let (sim, folder) = disk_with(&[other()]);
    let held_bytes: u64 = sim
        .files("/")
        .iter()
        .map(|path| sim.read(path).map_or(0, |bytes| bytes.len() as u64))
        .sum();
    // The header fits, the codes in part.
    sim.set_total_bytes(held_bytes + 4096 + 11);
    let refused = image().publish(&folder, &sim);
    let text = refused.expect_err("because it does not fit").to_string();
    let begins = format!(
        "write /home/user/images/v1/.{}.{}-",
        image().name(),
        std::process::id()
    );
    assert!(text.starts_with(&begins), "{text}");
    assert!(text.ends_with(".tmp: no space left on device"), "{text}");
    assert_eq!(temps(&sim), [""; 0]);
    assert_eq!(
        sim.read(other().path()),
        Some(other().bytes()),
        "the old one stays"
    );
    sim.set_total_bytes(1 << 40);
    assert_eq!(image().publish(&folder, &sim), Ok(4096 + 24 + 24));
    assert_eq!(sim.read(image().path()), Some(image().bytes()));
}
