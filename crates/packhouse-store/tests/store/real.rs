//! The store on the real file system: what was tampered with there, what a cancel costs, and where
//! the bytes lie.

use crate::fixture::{Fixture, MovedClock};
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_store::object::{HowVerified, ObjectRefusal, ObjectTrust};
use packhouse_store::publish::{PublishError, PublishOptions};
use packhouse_store::root::{OpenError, Store, StoreConfig};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::real::RealFs;
use packhouse_sys::stat::FsTrust;
use std::fs::{FileTimes, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Tamper = fn(&Path);

const PAYLOAD: &[u8] = b"sixteen bytes ok";
const OTHER: &[u8] = b"other bytes: 16.";

fn digest(payload: &[u8]) -> ObjectDigest {
    ObjectDigest(Digest::of(payload))
}

fn path(fixture: &Fixture, payload: &[u8]) -> PathBuf {
    let name = digest(payload).to_string();
    fixture.v1("objects").join(&name[..2]).join(name)
}

fn publish(fixture: &Fixture, payload: &[u8]) {
    let store = &fixture.store;
    let room = store.reserve(100, 0).expect("because there is room");
    let object = store
        .publish(&room, payload, PublishOptions::default(), &|| false)
        .expect("because nothing stays in the way");
    let pending: Vec<_> = object.pending_receipt().into_iter().collect();
    let settled = store.settle(&pending);
    assert_eq!((settled.recorded_count, settled.failure), (1, None));
}

fn by_receipt(fixture: &Fixture) -> Result<HowVerified, ObjectRefusal> {
    fixture
        .store
        .object(&digest(PAYLOAD), 16, ObjectTrust::Receipt)
        .map(|object| object.how())
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("because it is ours");
}

/// Changes a byte in place and puts back mode and mtime.
fn flip(path: &Path) {
    let before = std::fs::metadata(path).expect("because it is there");
    set_mode(path, 0o644);
    let file = OpenOptions::new().write(true).open(path);
    let file = file.expect("because it is ours");
    file.write_all_at(b"S", 0).expect("because it is ours");
    let mtime = before.modified().expect("because Linux has mtime");
    let times = FileTimes::new().set_modified(mtime);
    file.set_times(times).expect("because it is ours");
    set_mode(path, before.permissions().mode());
}

#[test]
fn each_way_to_tamper_is_refused_by_its_reason_and_healed() {
    let ways: [(&str, Tamper); 8] = [
        ("corrupt", flip),
        ("length", |path| {
            set_mode(path, 0o644);
            let file = OpenOptions::new().write(true).open(path);
            let file = file.expect("because it is ours");
            file.set_len(7).expect("because it is ours");
        }),
        ("corrupt", |path| {
            let other = path.with_extension("other");
            std::fs::write(&other, OTHER).expect("because it is ours");
            std::fs::rename(other, path).expect("because it is ours");
        }),
        ("not_regular", |path| {
            std::fs::remove_file(path).expect("because it is ours");
            symlink("/dev/null", path).expect("because the name is free");
        }),
        ("not_regular", |path| {
            std::fs::remove_file(path).expect("because it is ours");
            std::fs::create_dir(path).expect("because the name is free");
        }),
        ("not_regular", |path| {
            // A pipe without a writer would hang who opens it.
            std::fs::remove_file(path).expect("because it is ours");
            let made = rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into());
            made.expect("because the name is free");
        }),
        ("writable", |path| set_mode(path, 0o464)),
        ("writable", |path| set_mode(path, 0o446)),
    ];
    let fixture = Fixture::new();
    for (index, (reason, tamper)) in ways.into_iter().enumerate() {
        publish(&fixture, PAYLOAD);
        assert_eq!(by_receipt(&fixture), Ok(HowVerified::Receipt), "{index}");
        tamper(&path(&fixture, PAYLOAD));
        let refusal = by_receipt(&fixture).expect_err("because it was tampered with");
        assert_eq!(refusal.reason(), reason, "{index}: {refusal}");
        let refusal = by_receipt(&fixture).expect_err("because it was moved");
        assert_eq!(refusal.reason(), "missing", "{index}: {refusal}");
    }
    let quarantined = std::fs::read_dir(fixture.v1("quarantine")).expect("because it is there");
    assert_eq!(quarantined.count(), ways.len());
}

#[test]
fn a_touched_object_is_hashed_once_more_and_a_linked_one_always() {
    let fixture = Fixture::new();
    publish(&fixture, PAYLOAD);
    let path = path(&fixture, PAYLOAD);
    set_mode(&path, 0o400);
    assert_eq!(by_receipt(&fixture), Ok(HowVerified::Reverified));
    fixture.clock.add_ns(3_000_000_000);
    assert_eq!(by_receipt(&fixture), Ok(HowVerified::Reverified));
    assert_eq!(by_receipt(&fixture), Ok(HowVerified::Receipt));
    std::fs::hard_link(&path, fixture.path().join("second")).expect("because it is ours");
    fixture.clock.add_ns(3_000_000_000);
    for _ in 0..2 {
        assert_eq!(by_receipt(&fixture), Ok(HowVerified::Reverified));
    }
}

#[test]
fn two_swapped_objects_are_both_corrupt() {
    let fixture = Fixture::new();
    publish(&fixture, PAYLOAD);
    publish(&fixture, OTHER);
    let (one, other) = (path(&fixture, PAYLOAD), path(&fixture, OTHER));
    let aside = fixture.path().join("aside");
    std::fs::rename(&one, &aside).expect("because it is ours");
    std::fs::rename(&other, &one).expect("because it is ours");
    std::fs::rename(&aside, &other).expect("because it is ours");
    for payload in [PAYLOAD, OTHER] {
        let refusal = fixture
            .store
            .object(&digest(payload), 16, ObjectTrust::Receipt)
            .expect_err("because it has the other's bytes");
        assert_eq!(refusal.reason(), "corrupt");
    }
}

#[test]
fn a_root_that_the_group_may_write_is_refused_by_name() {
    let fixture = Fixture::new();
    let root = fixture.path().join("root");
    set_mode(&root, 0o775);
    let config = StoreConfig::new(&root, fixture.path().join("state"));
    let clock = Arc::new(MovedClock::default());
    let refusal = Store::open(Arc::new(RealFs), clock, config).err();
    assert_eq!(
        refusal,
        Some(OpenError::Writable {
            path: root,
            mode: 0o775
        })
    );
}

#[test]
fn an_object_is_open_for_reading_only_and_has_one_name() {
    let fixture = Fixture::new();
    let room = fixture
        .store
        .reserve(100, 0)
        .expect("because there is room");
    let options = PublishOptions { drop_cache: true };
    let object = fixture
        .store
        .publish(&room, PAYLOAD, options, &|| false)
        .expect("because nothing is in the way");
    assert_eq!(object.how(), HowVerified::Published);
    assert_eq!(object.fs_trust(), FsTrust::Local);
    let fd = object.file().as_fd().expect("because it is real");
    let flags = rustix::fs::fcntl_getfl(fd).expect("because it is open");
    assert_eq!(
        flags & rustix::fs::OFlags::RWMODE,
        rustix::fs::OFlags::RDONLY
    );
    let stat = object.file().stat().expect("because it is open");
    assert_eq!((stat.mode & 0o333, stat.link_count, stat.size), (0, 1, 16));
    assert_eq!(object.identity().size, 16);
}

#[test]
fn a_batch_publishes_each_object_once() {
    let fixture = Fixture::new();
    let room = fixture
        .store
        .reserve(100, 0)
        .expect("because there is room");
    let mut batch = fixture.store.batch(&room);
    for payload in [PAYLOAD, OTHER, PAYLOAD] {
        let added = batch
            .add(payload, &|| false)
            .expect("because there is room");
        assert_eq!(added, digest(payload));
    }
    assert_eq!(batch.len(), 3);
    let objects = batch
        .finish(PublishOptions::default(), &|| false)
        .expect("because nothing is in the way");
    let digests: Vec<_> = objects.iter().map(|object| object.digest()).collect();
    assert_eq!(digests, [digest(PAYLOAD), digest(OTHER), digest(PAYLOAD)]);
    assert_eq!(objects[0].how(), HowVerified::Published);
    assert_eq!(objects[2].how(), HowVerified::Reverified);
    assert_eq!(room.left_bytes(), 52);
}

#[test]
fn a_cancel_is_seen_between_chunks_and_leaves_nothing() {
    let fixture = Fixture::new();
    let long = vec![1u8; 48 << 20];
    let room = fixture
        .store
        .reserve(64 << 20, 0)
        .expect("because there is room");
    let started_ns = RealClock.steady_ns();
    let cancel_ns = AtomicU64::new(0);
    let cancel = || {
        let now_ns = RealClock.steady_ns();
        let due = now_ns - started_ns > 20_000_000;
        if due {
            cancel_ns.store(now_ns, Ordering::Release);
        }
        due
    };
    let cancelled = fixture
        .store
        .publish(&room, &long, PublishOptions::default(), &cancel)
        .expect_err("because it takes longer than 20 ms");
    assert!(matches!(cancelled, PublishError::Cancelled { .. }));
    assert_eq!(room.left_bytes(), 64 << 20);
    let left = std::fs::read_dir(fixture.v1("objects")).expect("because it is there");
    assert_eq!(left.count(), 0);
}
