//! Bundles from store to store, unpacked by another program, cut, edited and lied in.

use crate::store_fixture::{DEEP, config, folder, real, set};
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_pack::Packers;
use packhouse_prepare::beside::{BesideError, FileBeside};
use packhouse_prepare::bundle::{self, BundleDraft, BundleError, Contents};
use packhouse_sim::{Crash, Fault, SimClock, SimFs};
use packhouse_store::gc::GcOptions;
use packhouse_store::manifest::SetManifest;
use packhouse_store::object::ObjectTrust;
use packhouse_store::root::Store;
use packhouse_store::set::SetOutcome;
use packhouse_sys::fs::FsErrorKind;
use std::path::Path;
use std::sync::Arc;

const PAYLOADS: [&[u8]; 4] = [b"alpha", b"", &[7; 513], b"alpha"];

pub(crate) fn write(store: &Store, manifest: &SetManifest) -> Vec<u8> {
    let draft = BundleDraft::new(store, manifest.key()).expect("because the set is sound");
    let mut bytes = Vec::new();
    let exported = draft
        .write(&mut bytes, &mut |_| {})
        .expect("because its objects are sound");
    assert_eq!(exported.bundle_bytes, bytes.len() as u64);
    assert_eq!(draft.bundle_bytes(), bytes.len() as u64);
    bytes
}

pub(crate) fn take(store: &Store, bytes: &[u8]) -> Result<bundle::Imported, BundleError> {
    bundle::import(store, &Packers::detect(), &mut &bytes[..], &mut |_, _| {})
}

fn bundle() -> (SetManifest, Vec<u8>) {
    let home = folder();
    let store = real(config(home.path()));
    let manifest = set(&store, &PAYLOADS);
    let bytes = write(&store, &manifest);
    (manifest, bytes)
}

/// Names of all entries of a folder and below, but not folders.
fn files(path: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).expect("because it is there") {
        let entry = entry.expect("because it can be listed");
        if entry.path().is_dir() {
            names.extend(files(&entry.path()));
        } else {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names
}

#[test]
fn a_set_arrives_whole_and_verified_and_the_second_time_nothing_is_new() {
    let (manifest, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    let first = take(&store, &bytes).expect("because the bundle is sound");
    assert_eq!(
        (first.set, first.outcome),
        (manifest.key(), SetOutcome::Created)
    );
    assert_eq!((first.tensor_count, first.new_pack_count), (4, 3));
    assert_eq!((first.new_object_count, first.new_bytes), (3, 5 + 513));
    assert_eq!((first.reused_object_count, first.receipt_count), (0, 3));
    let found = store.verify_set(manifest.key(), DEEP, &|_| ());
    assert!(found.is_good(), "{found:?}");
    let records = store.read_container_records(manifest.key());
    assert_eq!(records.expect("because it can be read").records.len(), 2);
    let object = store.object(&manifest.entries()[0].object, 5, ObjectTrust::Receipt);
    let how = object.expect("because it is there").how();
    assert_eq!(how, packhouse_store::object::HowVerified::Receipt);
    let second = take(&store, &bytes).expect("because the bundle is sound");
    assert_eq!(second.outcome, SetOutcome::Equal);
    assert_eq!((second.new_object_count, second.new_pack_count), (0, 0));
    assert_eq!((second.reused_object_count, second.reused_bytes), (3, 518));
}

#[test]
fn one_set_gives_one_bundle_whichever_store_it_comes_from() {
    let (manifest, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    set(&store, &[b"another set in the same store"]);
    take(&store, &bytes).expect("because the bundle is sound");
    assert!(write(&store, &manifest) == bytes);
}

#[test]
fn unpacked_by_another_program_a_bundle_is_a_read_only_store() {
    let (manifest, bytes) = bundle();
    let home = folder();
    let mut archive = tar::Archive::new(&bytes[..]);
    let root = home.path().join("root");
    archive
        .unpack(&root)
        .expect("because it is a plain archive");
    let mut config = config(home.path());
    config.read_only = true;
    let store = real(config);
    let found = store.verify_set(manifest.key(), DEEP, &|_| ());
    assert!(found.is_good(), "{found:?}");
    assert_eq!(store.list_sets().ok(), Some(vec![manifest.key()]));
    assert!(write(&store, &manifest) == bytes);
}

#[test]
fn the_gnu_program_unpacks_a_bundle_too() {
    let (manifest, bytes) = bundle();
    let home = folder();
    let root = home.path().join("root");
    std::fs::create_dir(&root).expect("because it is new");
    std::fs::write(home.path().join("b.tar"), &bytes).expect("because the folder is ours");
    let status = std::process::Command::new("tar")
        .args(["-xf", "../b.tar"])
        .current_dir(&root)
        .status();
    let Ok(status) = status else {
        println!("SKIP: no tar program");
        return;
    };
    assert!(status.success());
    let mut config = config(home.path());
    config.read_only = true;
    let found = real(config).verify_set(manifest.key(), DEEP, &|_| ());
    assert!(found.is_good(), "{found:?}");
}

#[test]
fn cut_at_any_byte_a_bundle_leaves_no_set() {
    let (manifest, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    for end in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let error = take(&store, &bytes[..end]).expect_err("because it is cut");
        assert!(
            matches!(error, BundleError::Truncated { offset, .. } if offset == end as u64),
            "{end}: {error}"
        );
        assert_eq!(store.list_sets().ok(), Some(vec![]), "{end}");
    }
    let packs = files(&home.path().join("root/v1/packs"));
    assert_eq!(packs, [""; 0], "packs come after the end was read");
    take(&store, &bytes).expect("because it is whole");
    assert!(store.verify_set(manifest.key(), DEEP, &|_| ()).is_good());
}

#[test]
fn any_single_byte_changed_is_refused() {
    let (_, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    for at in (0..bytes.len()).step_by(53) {
        let mut edited = bytes.clone();
        edited[at] ^= 0x20;
        assert!(
            take(&store, &edited).is_err(),
            "byte {at} is not part of anything"
        );
        assert_eq!(store.list_sets().ok(), Some(vec![]), "byte {at}");
    }
}

/// The start of a member's header block in a bundle.
fn header_at(bytes: &[u8], path: &str) -> usize {
    (0..bytes.len() / 512)
        .map(|block| block * 512)
        .find(|at| {
            bytes[*at..].starts_with(path.as_bytes()) && bytes[at + 257..].starts_with(b"ustar")
        })
        .expect("because the bundle has this member")
}

/// Sets a header's checksum right again, as a hostile writer would.
fn resum(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block[..512].iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Edits the header of a member, with a right checksum.
fn with_header(bytes: &[u8], path: &str, edit: impl Fn(&mut [u8])) -> Vec<u8> {
    let at = header_at(bytes, path);
    let mut edited = bytes.to_vec();
    edit(&mut edited[at..at + 512]);
    resum(&mut edited[at..at + 512]);
    edited
}

#[test]
fn hostile_members_are_refused_by_what_they_are() {
    let (_, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    let put = |block: &mut [u8], at: usize, text: &[u8]| {
        block[at..at + text.len()].copy_from_slice(text);
    };
    let object = "v1/objects/";
    let cases: [(&str, Vec<u8>, &str); 8] = [
        (
            "a link",
            with_header(&bytes, "v1/id", |b| put(b, 156, b"2")),
            "found \"v1/id\" of type 2",
        ),
        (
            "a device",
            with_header(&bytes, "v1/id", |b| put(b, 156, b"3")),
            "found \"v1/id\" of type 3",
        ),
        (
            "a way out",
            with_header(&bytes, "v1/id", |b| put(b, 0, b"../id")),
            "found \"../id\"",
        ),
        (
            "an absolute path",
            with_header(&bytes, "v1/id", |b| put(b, 0, b"/v1id")),
            "found \"/v1id\"",
        ),
        (
            "a set-user-id bit",
            with_header(&bytes, "v1/id", |b| put(b, 100, b"0004")),
            "mode 0004444",
        ),
        (
            "an owner",
            with_header(&bytes, "v1/id", |b| put(b, 108, b"0001")),
            "expected \"v1/id\"",
        ),
        (
            "another length",
            with_header(&bytes, object, |b| put(b, 124, b"00000000001")),
            "size 00000000001",
        ),
        (
            "no bundle",
            b"PK\x03\x04".repeat(200),
            "found no tar header",
        ),
    ];
    for (what, edited, reason) in cases {
        let error = take(&store, &edited).expect_err(what).to_string();
        assert!(error.contains(reason), "{what}: {error}");
    }
    assert_eq!(files(&home.path().join("root/v1/objects")), [""; 0]);
}

#[test]
fn bytes_after_the_end_are_refused_and_leave_no_set() {
    let (_, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    let longer = [&bytes[..], b"\0"].concat();
    let error = take(&store, &longer).expect_err("because there is a byte more");
    let told = format!("byte {}: bytes after the end of the bundle", bytes.len());
    assert_eq!(error.to_string(), told);
    assert_eq!(store.list_sets().ok(), Some(vec![]));
}

#[test]
fn a_member_twice_or_in_another_order_is_refused() {
    let (_, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    let (id, next) = (header_at(&bytes, "v1/id"), header_at(&bytes, "v1/packs/\0"));
    let twice = [&bytes[..next], &bytes[id..next], &bytes[next..]].concat();
    let error = take(&store, &twice).expect_err("because v1/id is there twice");
    assert!(
        error.to_string().contains("expected \"v1/packs/\""),
        "{error}"
    );
    let without = [&bytes[..id], &bytes[next..]].concat();
    let error = take(&store, &without).expect_err("because v1/id is not there");
    assert!(error.to_string().contains("expected \"v1/id\""), "{error}");
}

/// A bundle with another content of one member of the same length.
fn with_content(bytes: &[u8], path: &str, content: &[u8]) -> Vec<u8> {
    let at = header_at(bytes, path) + 512;
    let mut edited = bytes.to_vec();
    edited[at..at + content.len()].copy_from_slice(content);
    edited
}

#[test]
fn an_object_of_other_bytes_is_refused_and_nothing_is_stored_under_its_name() {
    let (manifest, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    let object = manifest.entries()[0].object;
    let name = object.to_string();
    let path = format!("v1/objects/{}/{name}", &name[..2]);
    let edited = with_content(&bytes, &path, b"ALPHA");
    let error = take(&store, &edited).expect_err("because the object is another");
    let told = format!(
        "object {name}: its bytes in the bundle hash to {}",
        Digest::of(b"ALPHA")
    );
    assert_eq!(error.to_string(), told);
    assert!(!files(&home.path().join("root/v1/objects")).contains(&name));
    // Where the store has the object, the bundle's bytes are read all the same.
    take(&store, &bytes).expect("because it is sound");
    let error = take(&store, &edited).expect_err("because the object is another");
    assert_eq!(error.to_string(), told);
}

#[test]
fn a_set_that_does_not_hold_together_is_refused_before_an_object_is_stored() {
    let home = folder();
    let store = real(config(home.path()));
    let manifest = set(&store, &PAYLOADS);
    let other = set(&store, &[b"other"]);
    let bytes = write(&store, &manifest);
    let draft = BundleDraft::new(&store, other.key()).expect("because it is sound");
    let stray_pack = draft.contents().packs[0].0;
    let strange = Contents::clone(draft.contents());
    assert_eq!(strange.packs.len(), 1);
    let second = folder();
    let target = real(config(second.path()));
    let index = with_content(
        &bytes,
        &format!("v1/sets/{}/runtime-index.tsv", manifest.key()),
        b"packhouse-index-2",
    );
    let error = take(&target, &index).expect_err("because the index is another");
    assert!(
        error.to_string().contains("expected the head line"),
        "{error}"
    );
    let tag = with_content(&bytes, "CACHEDIR.TAG", b"X");
    let error = take(&target, &tag).expect_err("because the tag is another");
    assert!(
        error
            .to_string()
            .starts_with("CACHEDIR.TAG: not the content"),
        "{error}"
    );
    let id = with_content(&bytes, "v1/id", b"0000");
    let error = take(&target, &id).expect_err("because the id is another");
    assert!(
        error.to_string().starts_with("v1/id: not the content"),
        "{error}"
    );
    let key = manifest.entries()[0].pack.to_string();
    let pack = with_content(
        &bytes,
        &format!("v1/packs/{}/{key}", &key[..2]),
        b"{\"dims\":[4]",
    );
    let error = take(&target, &pack).expect_err("because the pack is another");
    assert!(
        error
            .to_string()
            .contains("the identity in the record has key"),
        "{error}"
    );
    assert_ne!(stray_pack, manifest.entries()[0].pack);
    assert_eq!(files(&second.path().join("root/v1/objects")), [""; 0]);
}

#[test]
fn an_import_without_room_says_what_is_needed_and_what_there_is() {
    let (_, bytes) = bundle();
    let home = folder();
    let mut config = config(home.path());
    config.max_bytes = Some(100);
    let store = real(config);
    let error = take(&store, &bytes).expect_err("because 518 bytes do not fit");
    let text = error.to_string();
    assert!(
        text.starts_with("518 bytes are new to this store: 518 B wanted"),
        "{text}"
    );
    assert!(text.contains("leaves 100 B"), "{text}");
    assert_eq!(files(&home.path().join("root/v1/objects")), [""; 0]);
}

#[test]
fn a_damaged_object_of_the_store_is_replaced_by_the_bundles() {
    let (manifest, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    take(&store, &bytes).expect("because it is sound");
    let name = manifest.entries()[0].object.to_string();
    let path = home
        .path()
        .join(format!("root/v1/objects/{}/{name}", &name[..2]));
    std::fs::remove_file(&path).expect("because it is there");
    std::fs::write(&path, b"ALPHA").expect("because the folder is ours");
    let again = take(&store, &bytes).expect("because it is sound");
    assert_eq!((again.new_object_count, again.reused_object_count), (1, 2));
    assert!(store.verify_set(manifest.key(), DEEP, &|_| ()).is_good());
}

#[test]
fn an_export_of_a_damaged_object_breaks_off_and_no_reader_takes_it() {
    let home = folder();
    let store = real(config(home.path()));
    let manifest = set(&store, &PAYLOADS);
    let object: ObjectDigest = manifest.entries()[0].object;
    let name = object.to_string();
    let path = home
        .path()
        .join(format!("root/v1/objects/{}/{name}", &name[..2]));
    std::fs::remove_file(&path).expect("because it is there");
    std::fs::write(&path, b"ALPHA").expect("because the folder is ours");
    let draft = BundleDraft::new(&store, manifest.key()).expect("because records are sound");
    let mut bytes = Vec::new();
    let error = draft
        .write(&mut bytes, &mut |_| {})
        .expect_err("because the object is damaged");
    assert!(error.to_string().contains("is corrupt"), "{error}");
    let second = folder();
    assert!(take(&real(config(second.path())), &bytes).is_err());
}

const DAY_NS: u64 = 24 * 60 * 60 * 1_000_000_000;

/// What a gc with the usual policy would remove.
fn removed_sets(store: &Store) -> u64 {
    let report = store
        .gc(&GcOptions::default())
        .expect("because the store is this user's");
    report.plan.sets.len() as u64
}

#[test]
fn an_imported_set_is_young_for_gc_and_in_use_when_it_comes_again() {
    let (manifest, bytes) = bundle();
    let home = folder();
    let store = real(config(home.path()));
    take(&store, &bytes).expect("because it is sound");
    store.clock().sleep_ns(13 * DAY_NS);
    assert_eq!(removed_sets(&store), 0);
    assert!(store.verify_set(manifest.key(), DEEP, &|_| ()).is_good());
    store.clock().sleep_ns(2 * DAY_NS);
    assert_eq!(
        removed_sets(&store),
        1,
        "nobody has its model, and it was never used"
    );
    let again = take(&store, &bytes).expect("because it is sound");
    assert_eq!(again.outcome, SetOutcome::Created);
    assert!(store.verify_set(manifest.key(), DEEP, &|_| ()).is_good());
}

/// Writes a bundle's file on a simulated disk, as the command does.
fn to_file(sim: &SimFs, bytes: &[u8]) -> bool {
    let dir = crate::foreign_world::dir_at(sim, Path::new("/home/user"));
    FileBeside::create(sim, &dir).is_ok_and(|beside| {
        let written = beside.file().write_all_at(0, bytes).is_ok();
        written && beside.publish("set.tar").is_ok()
    })
}

#[test]
fn a_bundles_file_is_whole_or_absent_whatever_the_file_system_can() {
    for unnamed_files in [true, false] {
        let base = SimFs::new(1, Arc::new(SimClock::new()));
        base.make_dirs("/home/user", 1000, 0o755);
        base.set_abilities(unnamed_files, true);
        let sim = base.crash(Crash::Kept, 0);
        sim.restart_count();
        assert!(to_file(&sim, b"bundle"));
        let count = sim.operation_count();
        assert!(count >= 5, "only {count} operations were counted");
        for at in 0..count {
            for fault in [
                Fault::Stop { at },
                Fault::Full { at },
                Fault::Error {
                    at,
                    kind: FsErrorKind::Io,
                },
            ] {
                let sim = base.crash(Crash::Kept, 0);
                sim.restart_count();
                sim.set_fault(Some(fault));
                let reported = to_file(&sim, b"bundle");
                sim.set_fault(None);
                for crash in [Crash::Lost, Crash::Torn, Crash::LostEntries, Crash::Kept] {
                    let disk = sim.crash(crash, 7);
                    let found = disk.read("/home/user/set.tar");
                    let context = format!("{fault:?}, {crash:?}, unnamed: {unnamed_files}");
                    match found {
                        Some(found) => assert_eq!(found, b"bundle", "{context}"),
                        None => assert!(!reported, "{context}: a reported file is gone"),
                    }
                }
            }
        }
        let taken = FileBeside::create(
            &sim,
            &crate::foreign_world::dir_at(&sim, Path::new("/home/user")),
        );
        let error = taken.expect("because there is room").publish("set.tar");
        let error = error.expect_err("because the name is taken");
        assert!(matches!(error, BesideError::Taken { .. }), "{error}");
        assert_eq!(
            sim.files("/home/user").len(),
            1,
            "left behind: {:?}",
            sim.files("/home/user")
        );
    }
}
