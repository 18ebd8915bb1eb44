//! Markers: once, whole, durable, ours, and on a file system that keeps them.

use crate::desk::Desk;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_lab::marker::{Found, Marker, MarkerError, Markers, file_system_name};
use packhouse_sim::{Crash, Fault, SimFs};
use packhouse_sys::fs::{Dir, Fs as _, FsErrorKind};
use packhouse_sys::stat::FsKind;
use serde_json::{Value, json};
use std::path::Path;

const FOLDER: &str = "/home/user/state/lab/markers";

fn marker(nonce: &str) -> Marker {
    Marker {
        packet: Digest::of(b"packet"),
        nonce: Digest::of(nonce.as_bytes()),
        ledger: Digest::of(b"ledger"),
        lab: Digest::of(b"lab"),
        file_system: "ext4".to_owned(),
        salt: Some(Digest::of(b"salt")),
    }
}

fn state(sim: &SimFs) -> Dir {
    let names = Path::new("/home/user/state").components().skip(1);
    let root = sim.root().expect("because / is there");
    names.fold(root, |dir, name| dir.open_dir(name).expect("because it is"))
}

fn open(sim: &SimFs) -> Result<Markers, MarkerError> {
    Markers::open(sim, &state(sim))
}

fn path() -> String {
    format!("{FOLDER}/{}.json", Digest::of(b"packet"))
}

#[test]
fn a_marker_is_taken_once_and_read_back() {
    let sim = Desk::new().sim;
    let look = Markers::look(&sim, &state(&sim)).expect("because it could be made");
    assert!(
        look.is_none() && sim.files("/home/user/state").is_empty(),
        "looking makes nothing"
    );
    let markers = open(&sim).expect("because it can be made");
    assert_eq!(markers.find(Digest::of(b"packet")), Ok(Found::Nothing));
    let bytes = markers
        .take(&sim, &marker("one"))
        .expect("because the name is free");
    assert_eq!(sim.read(path()), Some(bytes.clone()));
    let found = Found::Marker(marker("one"), bytes.clone());
    assert_eq!(markers.find(Digest::of(b"packet")), Ok(found));
    let error = markers
        .take(&sim, &marker("two"))
        .expect_err("because it is taken");
    assert!(matches!(error, MarkerError::Taken { .. }), "{error}");
    assert!(error.to_string().contains("is there, so packet"), "{error}");
    assert_eq!(sim.read(path()), Some(bytes), "and stays as it is");
    assert_eq!(sim.files(FOLDER).len(), 1, "no other file is left");
    let stat = markers
        .dir()
        .stat_entry(format!("{}.json", Digest::of(b"packet")));
    assert_eq!(stat.expect("because it is there").mode, 0o400);
    assert_eq!(Marker::parse(&marker("one").render()), Ok(marker("one")));
}

#[test]
fn whatever_has_its_name_is_a_consumed_packet() {
    let other = Marker {
        packet: Digest::of(b"other"),
        ..marker("one")
    };
    let spaced = [b" ".as_slice(), &marker("one").render()].concat();
    let torn = &marker("one").render()[..50];
    let unknown = json!({"schema": "packhouse/marker/3"});
    for bytes in [
        b"".as_slice(),
        torn,
        &spaced,
        &other.render(),
        &canonical::render(&unknown),
    ] {
        let sim = Desk::new().sim;
        let markers = open(&sim).expect("because it can be made");
        sim.replace(path(), bytes, 0o400);
        let found = markers
            .find(Digest::of(b"packet"))
            .expect("because it can be looked at");
        assert!(matches!(found, Found::Damaged { .. }), "{found:?}");
        let error = markers
            .take(&sim, &marker("one"))
            .expect_err("because it is taken");
        assert!(matches!(error, MarkerError::Taken { .. }), "{error}");
    }
    let sim = Desk::new().sim;
    let markers = open(&sim).expect("because it can be made");
    sim.symlink(path(), "/nowhere", 1000);
    let found = markers
        .find(Digest::of(b"packet"))
        .expect("because it can be looked at");
    let reason = "is a symlink".to_owned();
    assert_eq!(found, Found::Damaged { reason });
    assert!(markers.take(&sim, &marker("one")).is_err());
    let sim = Desk::new().sim;
    let markers = open(&sim).expect("because it can be made");
    sim.make_dirs(path(), 1000, 0o700);
    let found = markers
        .find(Digest::of(b"packet"))
        .expect("because it can be looked at");
    assert!(matches!(found, Found::Damaged { .. }), "{found:?}");
    assert!(markers.take(&sim, &marker("one")).is_err());
}

#[test]
fn only_file_systems_that_keep_what_was_synced_hold_markers() {
    let good = [
        (FsKind::Ext, "ext4"),
        (FsKind::Xfs, "xfs"),
        (FsKind::Btrfs, "btrfs"),
        (FsKind::Overlay, "overlayfs"),
        (FsKind::Unknown(0xF2F5_2010), "f2fs"),
        (FsKind::Unknown(0x2FC1_2FC1), "zfs"),
        (FsKind::Unknown(0xCA45_1A4E), "bcachefs"),
    ];
    for (kind, name) in good {
        let sim = Desk::new().sim;
        sim.set_kind(kind);
        assert_eq!(open(&sim).expect("because it keeps").file_system(), name);
        assert_eq!(file_system_name(kind), name);
    }
    let bad = [
        (FsKind::Tmpfs, "tmpfs"),
        (FsKind::Nfs, "nfs"),
        (FsKind::Fuse, "fuse"),
        (FsKind::NineP, "9p"),
        (
            FsKind::Unknown(0x7366_746e),
            "an unknown file system (magic 0x7366746e)",
        ),
    ];
    for (kind, name) in bad {
        let sim = Desk::new().sim;
        sim.set_kind(kind);
        let said = format!("is on {name}, which is not known to keep a marker");
        let looked = Markers::look(&sim, &state(&sim))
            .err()
            .map(|error| error.to_string());
        let opened = open(&sim).err().map(|error| error.to_string());
        for error in [looked, opened] {
            let error = error.expect("because it does not keep");
            assert!(error.ends_with(&said), "{error}");
        }
    }
    let sim = Desk::new().sim;
    open(&sim).expect("because it can be made");
    sim.set_read_only(true);
    let error = open(&sim).err().expect("because nothing can be written");
    assert!(error.to_string().contains("a read-only ext4"), "{error}");
}

#[test]
fn a_folder_that_others_could_write_holds_no_markers() {
    for (mode, said) in [
        (0o755, "has mode 0755, not 0700"),
        (0o1700, "has mode 1700, not 0700"),
    ] {
        let sim = Desk::new().sim;
        open(&sim).expect("because it can be made");
        sim.set_mode(FOLDER, mode);
        let error = open(&sim).err().expect("because others see it").to_string();
        assert!(error.ends_with(said), "{error}");
    }
    let sim = Desk::new().sim;
    open(&sim).expect("because it can be made");
    sim.set_owner(FOLDER, 1001);
    let error = open(&sim)
        .err()
        .expect("because it is another's")
        .to_string();
    assert!(error.ends_with("belongs to user 1001, not 1000"), "{error}");
    let sim = Desk::new().sim;
    sim.make_dirs("/home/user/state/lab", 1000, 0o700);
    sim.make_dirs("/home/user/elsewhere", 1000, 0o700);
    sim.symlink(FOLDER, "/home/user/elsewhere", 1000);
    let error = open(&sim).err().expect("because it is a link").to_string();
    assert!(
        error.contains("is a symlink") || error.contains("not a folder"),
        "{error}"
    );
}

/// Takes a marker, and says whether the caller was told that it has it.
fn consume(sim: &SimFs) -> Result<Vec<u8>, MarkerError> {
    open(sim)?.take(sim, &marker("one"))
}

/// A crash at every operation, and every kind of crash: the marker is whole or not there, and who
/// was told that it is there finds it again.
#[test]
fn a_crash_at_every_step_leaves_a_whole_marker_or_none() {
    let sim = Desk::new().sim;
    sim.restart_count();
    consume(&sim).expect("because nothing goes wrong");
    let operations = sim.operation_count();
    assert!(operations >= 8, "{operations}");
    let crashes = [
        Crash::Lost,
        Crash::Torn,
        Crash::Reordered,
        Crash::LostEntries,
        Crash::Kept,
    ];
    let (mut whole, mut none) = (0, 0);
    for at in 0..=operations {
        for crash in crashes {
            for seed in 0..4 {
                let sim = Desk::new().sim;
                sim.settle();
                sim.restart_count();
                sim.set_fault(Some(Fault::Stop { at }));
                let told = consume(&sim);
                assert_eq!(told.is_ok(), at == operations);
                let after = sim.crash(crash, seed);
                let markers = open(&after).expect("because the folder can be made again");
                let found = markers.find(Digest::of(b"packet"));
                match found.expect("because it can be looked at") {
                    Found::Marker(found, _) => {
                        assert_eq!(found, marker("one"));
                        whole += 1;
                    }
                    Found::Nothing => {
                        assert!(told.is_err(), "lost at {at} by {crash:?}");
                        none += 1;
                        // Nothing that was left is in the way.
                        markers
                            .take(&after, &marker("two"))
                            .expect("because none was taken");
                    }
                    Found::Damaged { reason } => panic!("{reason} at {at} by {crash:?}"),
                }
            }
        }
    }
    assert!(whole > 0 && none > 0, "{whole} {none}");
}

/// The folder's id is whole or not there, and who was told an id finds the same one again.
#[test]
fn a_crash_at_every_step_leaves_the_folder_one_id_or_none() {
    let identify = |sim: &SimFs| open(sim)?.identify(sim);
    let sim = Desk::new().sim;
    sim.restart_count();
    let told = identify(&sim).expect("because nothing goes wrong");
    assert_eq!(identify(&sim), Ok(told), "it is made once");
    let operations = sim.operation_count();
    for at in 0..operations {
        for crash in [
            Crash::Lost,
            Crash::Torn,
            Crash::Reordered,
            Crash::LostEntries,
        ] {
            let sim = Desk::new().sim;
            sim.settle();
            sim.restart_count();
            sim.set_fault(Some(Fault::Stop { at }));
            let told = identify(&sim);
            let after = sim.crash(crash, at);
            let markers = open(&after).expect("because the folder can be made again");
            let found = markers.id().expect("because it is whole or not there");
            if let Ok(told) = told {
                assert_eq!(found, Some(told), "{at}, {crash:?}");
            }
            assert!(markers.identify(&after).is_ok(), "{at}, {crash:?}");
        }
    }
}

#[test]
fn a_folder_whose_id_is_damaged_is_refused_by_name() {
    let sim = Desk::new().sim;
    let markers = open(&sim).expect("because it can be made");
    assert_eq!(markers.id(), Ok(None));
    sim.replace(format!("{FOLDER}/id.json"), b"{}", 0o400);
    let error = markers.identify(&sim).expect_err("because it is none");
    let said = format!("{FOLDER}/id.json: holds no id of a folder of markers: not canonical JSON");
    assert!(error.to_string().starts_with(&said), "{error}");
    assert_eq!(markers.id(), Err(error));
}

/// Packets that were run before markers had a salt have a marker all the same.
#[test]
fn a_marker_of_the_first_schema_has_no_salt_and_is_one() {
    let first = Marker {
        salt: None,
        ..marker("one")
    };
    let text = String::from_utf8(first.render()).expect("because it is text");
    assert!(text.contains("\"schema\":\"packhouse/marker/1\""), "{text}");
    assert!(!text.contains("salt"), "{text}");
    assert_eq!(Marker::parse(text.as_bytes()), Ok(first));
    let mixed = text.replace("marker/1", "marker/2");
    let error = Marker::parse(mixed.as_bytes()).expect_err("because it has no salt");
    assert_eq!(error.to_string(), "salt: absent");
}

#[test]
fn a_full_disk_or_a_failed_sync_takes_no_marker_or_says_so() {
    let sim = Desk::new().sim;
    sim.restart_count();
    consume(&sim).expect("because nothing goes wrong");
    let operations = sim.operation_count();
    let (mut refused, mut unsure) = (0, 0);
    for kind in [FsErrorKind::NoSpace, FsErrorKind::Io, FsErrorKind::Quota] {
        for at in 0..operations {
            let sim = Desk::new().sim;
            sim.restart_count();
            sim.set_fault(Some(Fault::Error { at, kind }));
            let Err(error) = consume(&sim) else {
                continue;
            };
            sim.set_fault(None);
            let found = open(&sim).and_then(|markers| markers.find(Digest::of(b"packet")));
            match found.expect("because it can be looked at") {
                Found::Nothing => refused += 1,
                // The folder's sync failed: nobody was told that it is kept.
                Found::Marker(..) => unsure += 1,
                Found::Damaged { reason } => panic!("{reason}, after {error}"),
            }
        }
    }
    assert!(refused > 0 && unsure > 0, "{refused} {unsure}");
}

#[test]
fn a_marker_that_the_disk_changed_is_noticed_and_counts() {
    let sim = Desk::new().sim;
    let markers = open(&sim).expect("because it can be made");
    sim.restart_count();
    // The first operation makes the file, the second writes it.
    sim.set_fault(Some(Fault::Flip { at: 1 }));
    let error = markers
        .take(&sim, &marker("one"))
        .expect_err("because a bit is wrong");
    assert!(matches!(error, MarkerError::NotKept { .. }), "{error}");
    let found = markers
        .find(Digest::of(b"packet"))
        .expect("because it can be looked at");
    assert!(
        !matches!(found, Found::Nothing),
        "it counts as consumed: {found:?}"
    );
}

#[test]
fn a_marker_that_differs_in_any_field_is_refused() {
    let whole: Value = serde_json::from_slice(&marker("one").render()).expect("because it is JSON");
    let fields = whole.as_object().expect("because it is one").clone();
    for field in fields.keys() {
        for wrong in [json!(null), json!(1), json!("x"), json!("tmpfs"), json!([])] {
            let mut changed = whole.clone();
            changed[field] = wrong;
            let error = Marker::parse(&canonical::render(&changed)).expect_err(field);
            assert!(!error.to_string().is_empty());
        }
        let mut changed = fields.clone();
        changed.remove(field);
        let bytes = canonical::render(&Value::Object(changed));
        let error = Marker::parse(&bytes).expect_err(field).to_string();
        assert_eq!(error, format!("{field}: absent"));
    }
    let mut changed = whole;
    changed["mystery"] = json!("x");
    let error = Marker::parse(&canonical::render(&changed)).expect_err("because nobody knows it");
    assert_eq!(error.to_string(), "mystery: unknown field");
}
