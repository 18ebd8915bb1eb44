//! Fingerprints in private state: found by digits, bounded in number, whole or absent after a stop
//! at every operation.

use packhouse_base::digest::Digest;
use packhouse_build::fingerprint::{Fingerprint, KeepError, KeptFingerprints};
use packhouse_sim::{Crash, Fault, SimClock, SimFs};
use packhouse_sys::fs::{Fs, FsErrorKind};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

fn fingerprint(number: usize) -> Fingerprint {
    Fingerprint::new(json!({ "number": number }), json!({}), BTreeMap::new())
}

fn disk() -> SimFs {
    let sim = SimFs::new(7, Arc::new(SimClock::new()));
    sim.make_dirs("/home/state", 1000, 0o700);
    sim.set_uid(1000);
    sim.settle();
    sim
}

fn kept(sim: &SimFs) -> Result<KeptFingerprints, KeepError> {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    KeptFingerprints::make(&fs, Path::new("/home/state"))
}

#[test]
fn eight_digits_find_one_and_what_is_ambiguous_or_absent_is_said() {
    let sim = disk();
    let kept = kept(&sim).expect("because the disk is sound");
    let all: Vec<Fingerprint> = (0..40).map(fingerprint).collect();
    for one in &all {
        assert_eq!(kept.keep(one), Ok(0));
    }
    for one in &all {
        let digits = one.digest().to_string();
        assert_eq!(kept.find(&digits[..8]).as_ref(), Ok(one));
    }
    let first = &all[0].digest().to_string()[..1];
    let count = all
        .iter()
        .filter(|one| one.digest().to_string().starts_with(first))
        .count();
    assert!(count > 1, "forty digests share sixteen first digits");
    let prefix = first.to_owned();
    assert_eq!(
        kept.find(first),
        Err(KeepError::Ambiguous { prefix, count })
    );
    let prefix = "no digits".to_owned();
    assert_eq!(kept.find("no digits"), Err(KeepError::Absent { prefix }));
}

#[test]
fn beyond_their_bound_the_oldest_go_and_it_is_said_how_many() {
    let sim = disk();
    let kept = kept(&sim).expect("because the disk is sound");
    for number in 0..128 {
        assert_eq!(kept.keep(&fingerprint(number)), Ok(0));
        sim.clock().advance_ns(1_000_000_000);
    }
    assert_eq!(kept.keep(&fingerprint(127)), Ok(0), "it was there already");
    sim.clock().advance_ns(1_000_000_000);
    assert_eq!(kept.keep(&fingerprint(128)), Ok(1));
    let digits = |number| fingerprint(number).digest().to_string();
    assert!(matches!(
        kept.find(&digits(0)),
        Err(KeepError::Absent { .. })
    ));
    assert_eq!(kept.find(&digits(1)), Ok(fingerprint(1)));
    assert_eq!(kept.find(&digits(128)), Ok(fingerprint(128)));
}

#[test]
fn a_record_under_another_name_is_damaged() {
    let sim = disk();
    let kept = kept(&sim).expect("because the disk is sound");
    kept.keep(&fingerprint(1))
        .expect("because the disk is sound");
    let folder = Path::new("/home/state/fingerprints/records");
    let other = Digest::of(b"another");
    let own = fingerprint(1).render();
    sim.replace(folder.join(format!("{other}.json")), &own, 0o600);
    let said = kept
        .find(&other.to_string())
        .expect_err("because it is another's");
    let expected = format!("sha256 {other}, its facts have {}", fingerprint(1).digest());
    assert!(said.to_string().ends_with(&expected), "{said}");
}

#[test]
fn stopped_at_any_operation_a_fingerprint_is_whole_or_absent() {
    let count = {
        let sim = disk();
        sim.restart_count();
        let kept = kept(&sim).expect("because the disk is sound");
        kept.keep(&fingerprint(1))
            .expect("because the disk is sound");
        sim.operation_count()
    };
    assert!(count >= 8, "only {count} operations were counted");
    let digits = fingerprint(1).digest().to_string();
    let crashes = [
        Crash::Lost,
        Crash::Torn,
        Crash::Reordered,
        Crash::LostEntries,
        Crash::Kept,
    ];
    for at in 0..count {
        for fault in [Fault::Stop { at }, Fault::Full { at }] {
            let sim = disk();
            sim.restart_count();
            sim.set_fault(Some(fault));
            let _ = kept(&sim).and_then(|kept| kept.keep(&fingerprint(1)));
            sim.set_fault(None);
            for crash in crashes {
                let after = sim.crash(crash, at);
                let again = kept(&after).expect("because the folder can be made again");
                match again.find(&digits) {
                    Ok(found) => assert_eq!(found, fingerprint(1)),
                    Err(KeepError::Absent { .. }) => {}
                    Err(error) => panic!("{fault:?} {crash:?}: {error}"),
                }
                again
                    .keep(&fingerprint(1))
                    .expect("because nothing is in the way");
                assert_eq!(
                    again.find(&digits),
                    Ok(fingerprint(1)),
                    "{fault:?} {crash:?}"
                );
            }
        }
    }
}

#[test]
fn a_full_or_failing_disk_leaves_nothing_behind() {
    let sim = disk();
    let kept = kept(&sim).expect("because the disk is sound");
    sim.restart_count();
    kept.keep(&fingerprint(1))
        .expect("because the disk is sound");
    let count = sim.operation_count();
    for at in 0..count {
        let kind = FsErrorKind::Io;
        sim.restart_count();
        sim.set_fault(Some(Fault::Error { at, kind }));
        let failed = kept.keep(&fingerprint(2)).is_err();
        sim.set_fault(None);
        let left = sim.files("/home/state/fingerprints/records");
        let strays = left.iter().filter(|path| path.extension().is_none());
        assert_eq!(strays.count(), 0, "operation {at}: {left:?}");
        assert!(failed || kept.find(&fingerprint(2).digest().to_string()).is_ok());
    }
}
