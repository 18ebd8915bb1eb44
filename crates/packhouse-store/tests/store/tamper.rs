//! What somebody else does to a store: each is refused or verified again with its own reason, and
//! the next publish heals it.
//!
//! The simulator plays the owners that a test can't become; `real.rs` repeats on the real file
//! system what it can.

use crate::fixture::identity;
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_sim::{SimClock, SimFs};
use packhouse_store::object::{HowVerified, ObjectRefusal, ObjectTrust, VerifiedObject};
use packhouse_store::pack::{PackRefusal, PublishPackError};
use packhouse_store::publish::{PublishError, PublishOptions, SmallOutcome};
use packhouse_store::quarantine::Moved;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{OpenError, Store, StoreConfig};
use packhouse_sys::clock::Clock;
use packhouse_sys::stat::{FileKind, FsKind, FsTrust};
use std::sync::Arc;

const ROOT: &str = "/home/user/store";
const STATE: &str = "/home/user/state";
const PAYLOAD: &[u8] = b"sixteen bytes ok";
const OTHER: &[u8] = b"other bytes: 16.";

/// A store with one object that has a receipt.
struct Bench {
    sim: SimFs,
    store: Store,
}

impl Bench {
    fn new() -> Self {
        let sim = SimFs::new(5, Arc::new(SimClock::new()));
        let store = open(&sim).expect("because the folder is this user's");
        let bench = Self { sim, store };
        bench.publish(PAYLOAD);
        bench.publish(OTHER);
        bench
    }

    /// Publishes and records the receipt.
    fn publish(&self, payload: &[u8]) -> VerifiedObject {
        let room = self
            .store
            .reserve(payload.len() as u64, 0)
            .expect("because the disk is empty");
        let object = self
            .store
            .publish(&room, payload, PublishOptions::default(), &|| false)
            .expect("because whatever is in the way is moved");
        let pending: Vec<_> = object.pending_receipt().into_iter().collect();
        let settled = self.store.settle(&pending);
        assert_eq!(settled.failure, None);
        object
    }

    fn object(&self, payload: &[u8], trust: ObjectTrust) -> Result<HowVerified, ObjectRefusal> {
        self.store
            .object(&digest(payload), payload.len() as u64, trust)
            .map(|object| object.how())
    }

    fn by_receipt(&self) -> Result<HowVerified, ObjectRefusal> {
        self.object(PAYLOAD, ObjectTrust::Receipt)
    }

    /// The refused entry is in quarantine, reads say missing, and a publish brings it back.
    fn assert_heals(&self, refusal: &ObjectRefusal) {
        let moved = match refusal {
            ObjectRefusal::NotRegular { moved, .. }
            | ObjectRefusal::Owner { moved, .. }
            | ObjectRefusal::Writable { moved, .. }
            | ObjectRefusal::Length { moved, .. }
            | ObjectRefusal::Corrupt { moved, .. } => moved,
            ObjectRefusal::Missing { .. }
            | ObjectRefusal::Changed { .. }
            | ObjectRefusal::Buffer { .. }
            | ObjectRefusal::Folder { .. }
            | ObjectRefusal::Fs { .. } => panic!("{refusal}"),
        };
        assert!(matches!(moved, Moved::To(_)), "{refusal}");
        let missing = self.by_receipt().expect_err("because it was moved");
        assert!(matches!(missing, ObjectRefusal::Missing { .. }));
        self.publish(PAYLOAD);
        assert_eq!(self.by_receipt(), Ok(HowVerified::Receipt));
    }
}

fn open(sim: &SimFs) -> Result<Store, OpenError> {
    let mut config = StoreConfig::new(ROOT, STATE);
    config.trusted_uids = vec![7];
    Store::open(Arc::new(sim.clone()), sim.clock(), config)
}

fn digest(payload: &[u8]) -> ObjectDigest {
    ObjectDigest(Digest::of(payload))
}

fn path(payload: &[u8]) -> String {
    let name = digest(payload).to_string();
    format!("{ROOT}/v1/objects/{}/{name}", &name[..2])
}

fn record(payload: &[u8]) -> PackRecord {
    PackRecord {
        identity: identity(payload),
        object: digest(payload),
        length: payload.len() as u64,
        sample: SampleGeometry {
            unit_rows: 1,
            row_bytes: payload.len() as u64,
            row_count: 1,
        },
    }
}

fn pack_path(record: &PackRecord) -> String {
    let name = record.key().to_string();
    format!("{ROOT}/v1/packs/{}/{name}", &name[..2])
}

#[test]
fn an_object_left_alone_comes_by_receipt_and_deep_is_deep() {
    let bench = Bench::new();
    assert_eq!(bench.by_receipt(), Ok(HowVerified::Receipt));
    let deep = bench.object(PAYLOAD, ObjectTrust::Deep);
    assert_eq!(deep, Ok(HowVerified::Deep));
}

#[test]
fn a_flipped_byte_with_restored_mtime_is_corrupt() {
    let bench = Bench::new();
    bench.sim.edit(path(PAYLOAD), |bytes| bytes[3] ^= 1);
    let refusal = bench.by_receipt().expect_err("because a byte differs");
    let mut flipped = PAYLOAD.to_vec();
    flipped[3] ^= 1;
    assert!(matches!(
        &refusal,
        ObjectRefusal::Corrupt { digest: expected, actual, .. }
            if *expected == digest(PAYLOAD) && *actual == Digest::of(&flipped)
    ));
    bench.assert_heals(&refusal);
}

#[test]
fn bit_rot_that_no_stat_shows_is_found_by_deep_only() {
    let bench = Bench::new();
    bench.sim.rot(path(PAYLOAD), |bytes| bytes[0] ^= 0x80);
    assert_eq!(bench.by_receipt(), Ok(HowVerified::Receipt));
    let refusal = bench
        .object(PAYLOAD, ObjectTrust::Deep)
        .expect_err("because a bit differs");
    assert_eq!(refusal.reason(), "corrupt");
    bench.assert_heals(&refusal);
}

#[test]
fn a_replaced_file_is_hashed_again_and_refused_when_it_differs() {
    let bench = Bench::new();
    bench.sim.replace(path(PAYLOAD), PAYLOAD, 0o444);
    assert_eq!(bench.by_receipt(), Ok(HowVerified::Reverified));
    bench.sim.replace(path(PAYLOAD), OTHER, 0o444);
    let refusal = bench.by_receipt().expect_err("because the bytes differ");
    assert_eq!(refusal.reason(), "corrupt");
    bench.assert_heals(&refusal);
}

#[test]
fn a_truncated_object_is_corrupt_by_its_length() {
    for length in [0, 15, 17] {
        let bench = Bench::new();
        bench
            .sim
            .edit(path(PAYLOAD), |bytes| bytes.resize(length, 0));
        let refusal = bench.by_receipt().expect_err("because it is shorter");
        assert!(matches!(
            refusal,
            ObjectRefusal::Length { expected: 16, actual, .. } if actual == length as u64
        ));
        assert!(refusal.to_string().contains("corrupt"), "{refusal}");
        bench.assert_heals(&refusal);
    }
}

#[test]
fn a_symlink_or_folder_in_its_place_is_never_followed() {
    let bench = Bench::new();
    bench.sim.replace("/home/user/elsewhere", PAYLOAD, 0o444);
    bench
        .sim
        .symlink(path(PAYLOAD), "/home/user/elsewhere", 1000);
    let refusal = bench.by_receipt().expect_err("because it is a symlink");
    assert!(matches!(
        refusal,
        ObjectRefusal::NotRegular {
            kind: FileKind::Symlink,
            ..
        }
    ));
    bench.assert_heals(&refusal);
    bench.sim.remove(path(PAYLOAD));
    bench.sim.make_dirs(path(PAYLOAD), 1000, 0o755);
    let refusal = bench.by_receipt().expect_err("because it is a folder");
    assert!(matches!(
        refusal,
        ObjectRefusal::NotRegular {
            kind: FileKind::Directory,
            ..
        }
    ));
    bench.assert_heals(&refusal);
}

#[test]
fn a_publish_moves_a_folder_and_a_symlink_out_of_its_way() {
    let bench = Bench::new();
    for occupy in [
        (|sim: &SimFs| sim.make_dirs(path(PAYLOAD), 1000, 0o755)) as fn(&SimFs),
        |sim: &SimFs| sim.symlink(path(PAYLOAD), "/nowhere", 1000),
        |sim: &SimFs| sim.replace(path(PAYLOAD), OTHER, 0o444),
    ] {
        bench.sim.remove(path(PAYLOAD));
        occupy(&bench.sim);
        bench.publish(PAYLOAD);
        assert_eq!(bench.by_receipt(), Ok(HowVerified::Receipt));
    }
}

#[test]
fn a_mode_that_lets_others_write_is_refused_and_a_harmless_one_verified_again() {
    let bench = Bench::new();
    bench.sim.set_mode(path(PAYLOAD), 0o644);
    assert_eq!(bench.by_receipt(), Ok(HowVerified::Reverified));
    for mode in [0o464, 0o446] {
        bench.sim.set_mode(path(PAYLOAD), mode);
        let refusal = bench.by_receipt().expect_err("because others may write");
        assert!(matches!(refusal, ObjectRefusal::Writable { mode: m, .. } if m == mode));
        bench.assert_heals(&refusal);
    }
}

#[test]
fn an_owner_must_be_trusted() {
    let bench = Bench::new();
    bench.sim.set_owner(path(PAYLOAD), 7);
    assert_eq!(bench.by_receipt(), Ok(HowVerified::Reverified));
    bench.sim.set_owner(path(PAYLOAD), 1001);
    let refusal = bench.by_receipt().expect_err("because 1001 is a stranger");
    assert!(matches!(
        &refusal,
        ObjectRefusal::Owner { uid: 1001, trusted, .. } if *trusted == [0, 7, 1000]
    ));
    bench.assert_heals(&refusal);
}

#[test]
fn two_swapped_objects_are_both_corrupt() {
    let bench = Bench::new();
    bench.sim.swap(path(PAYLOAD), path(OTHER));
    for payload in [PAYLOAD, OTHER] {
        let refusal = bench
            .object(payload, ObjectTrust::Receipt)
            .expect_err("because it has the other's bytes");
        assert_eq!(refusal.reason(), "corrupt");
        bench.publish(payload);
        let healed = bench.object(payload, ObjectTrust::Receipt);
        assert_eq!(healed, Ok(HowVerified::Receipt));
    }
}

#[test]
fn an_object_with_a_second_name_is_hashed_at_each_use() {
    let bench = Bench::new();
    bench.sim.hard_link(path(PAYLOAD), "/home/user/second");
    bench.sim.clock().sleep_ns(10_000_000_000);
    for _ in 0..2 {
        assert_eq!(bench.by_receipt(), Ok(HowVerified::Reverified));
    }
    // Once it has one name again, it is verified once and then comes by receipt.
    bench.sim.remove("/home/user/second");
    bench.sim.set_mode(path(PAYLOAD), 0o400);
    bench.sim.clock().sleep_ns(10_000_000_000);
    assert_eq!(bench.by_receipt(), Ok(HowVerified::Reverified));
    assert_eq!(bench.by_receipt(), Ok(HowVerified::Receipt));
}

#[test]
fn the_wrong_length_is_told_from_the_wrong_bytes_and_from_missing() {
    let bench = Bench::new();
    let missing = bench
        .store
        .object(&digest(b"never published"), 15, ObjectTrust::Receipt)
        .expect_err("because nobody published it");
    assert_eq!(missing.reason(), "missing");
}

#[test]
fn a_young_object_gets_its_receipt_only_when_its_ctime_is_old_enough() {
    let bench = Bench::new();
    let payload = b"a young object";
    let room = bench.store.reserve(100, 0).expect("because there is room");
    let object = bench
        .store
        .publish(&room, payload, PublishOptions::default(), &|| false)
        .expect("because there is room");
    let pending = object.pending_receipt().expect("because the disk is local");
    let early = bench.store.settle_due(&[pending]);
    assert_eq!(early.young, [pending]);
    assert!(early.wait_ns > 1_900_000_000 && early.wait_ns <= 2_000_000_000);
    assert_eq!(
        bench.object(payload, ObjectTrust::Receipt),
        Ok(HowVerified::Reverified)
    );
    let settled = bench.store.settle(&[pending]);
    assert_eq!((settled.recorded_count, settled.young.len()), (1, 0));
    assert_eq!(
        bench.object(payload, ObjectTrust::Receipt),
        Ok(HowVerified::Receipt)
    );
    // What changed in between gets none.
    bench.sim.set_mode(path(payload), 0o400);
    assert_eq!(bench.store.settle(&[pending]).changed_count, 1);
    // A clock that was set back is not waited for.
    bench.sim.clock().advance_ns(-3_600_000_000_000);
    let object = bench
        .store
        .object(&digest(payload), payload.len() as u64, ObjectTrust::Deep)
        .expect("because its bytes are right");
    let pending = object.pending_receipt().expect("because the disk is local");
    let before_ns = bench.sim.clock().wall_ns();
    assert_eq!(bench.store.settle(&[pending]).young, [pending]);
    assert!(bench.sim.clock().wall_ns() - before_ns < 1_000_000_000);
}

#[test]
fn stat_on_a_remote_file_system_proves_nothing() {
    for kind in [FsKind::Nfs, FsKind::Fuse, FsKind::NineP, FsKind::Unknown(1)] {
        let bench = Bench::new();
        bench.sim.set_kind(kind);
        let object = bench
            .store
            .object(&digest(PAYLOAD), 16, ObjectTrust::Receipt)
            .expect("because its bytes are right");
        assert_eq!(object.how(), HowVerified::Reverified);
        assert_eq!(object.fs_trust(), FsTrust::Remote);
        assert_eq!(object.pending_receipt(), None);
        let mut private = vec![0; 16];
        object
            .read_into(&mut private)
            .expect("because it is intact");
        assert_eq!(private, PAYLOAD);
        bench.sim.rot(path(PAYLOAD), |bytes| bytes[0] ^= 1);
        let refusal = object.read_into(&mut private);
        assert!(matches!(refusal, Err(ObjectRefusal::Corrupt { .. })));
        let refusal = object.read_into(&mut private[..15]);
        assert!(matches!(
            refusal,
            Err(ObjectRefusal::Buffer {
                expected: 16,
                actual: 15,
                ..
            })
        ));
    }
}

#[test]
fn a_read_only_store_is_used_and_never_changed() {
    let bench = Bench::new();
    bench.sim.set_read_only(true);
    let mut config = StoreConfig::new(ROOT, STATE);
    config.read_only = true;
    let open = || {
        Store::open(
            Arc::new(bench.sim.clone()),
            bench.sim.clock(),
            config.clone(),
        )
    };
    let store = open().expect("because it is there");
    let used = store
        .object(&digest(PAYLOAD), 16, ObjectTrust::Receipt)
        .map(|object| object.how());
    assert_eq!(used, Ok(HowVerified::Receipt));
    let pack = store.publish_pack(&record(PAYLOAD));
    assert!(matches!(
        pack,
        Err(PublishPackError::Publish(PublishError::ReadOnly { .. }))
    ));
    bench.sim.edit(path(PAYLOAD), |bytes| bytes[0] ^= 1);
    let refusal = store
        .object(&digest(PAYLOAD), 16, ObjectTrust::Receipt)
        .expect_err("because a bit differs");
    assert!(matches!(
        refusal,
        ObjectRefusal::Corrupt {
            moved: Moved::ReadOnly,
            ..
        }
    ));
    bench.sim.remove(format!("{ROOT}/v1/id"));
    assert!(matches!(open(), Err(OpenError::Missing { .. })));
}

#[test]
fn a_shared_store_of_a_trusted_owner_is_verified_once_by_each_user() {
    const SHARED: &str = "/srv/store";
    let sim = SimFs::new(9, Arc::new(SimClock::new()));
    sim.make_dirs("/srv", 0, 0o755);
    sim.make_dirs(SHARED, 7, 0o755);
    sim.make_dirs("/home/owner", 7, 0o700);
    let open = |uid: u32, state: &str, read_only: bool| {
        sim.set_uid(uid);
        let mut config = StoreConfig::new(SHARED, state);
        config.trusted_uids = vec![7];
        config.read_only = read_only;
        Store::open(Arc::new(sim.clone()), sim.clock(), config)
    };
    let owner = open(7, "/home/owner/state", false).expect("because it is the owner's");
    let room = owner.reserve(16, 0).expect("because the disk is empty");
    owner
        .publish(&room, PAYLOAD, PublishOptions::default(), &|| false)
        .expect("because the disk is empty");
    sim.clock().sleep_ns(10_000_000_000);
    let user = open(1000, STATE, true).expect("because the owner is trusted");
    let how = || {
        user.object(&digest(PAYLOAD), 16, ObjectTrust::Receipt)
            .map(|object| object.how())
    };
    assert_eq!(how(), Ok(HowVerified::Reverified));
    assert_eq!(how(), Ok(HowVerified::Receipt));
    // Whoever does not trust the owner uses nothing of it.
    sim.set_uid(1000);
    let config = StoreConfig::new(SHARED, STATE);
    let refusal = Store::open(Arc::new(sim.clone()), sim.clock(), config).err();
    assert!(matches!(refusal, Some(OpenError::Owner { uid: 7, .. })));
}

#[test]
fn a_read_only_disk_is_a_named_refusal() {
    let bench = Bench::new();
    bench.sim.set_read_only(true);
    let store = open(&bench.sim).expect("because nothing has to be made");
    let refused = store
        .reserve(10, 0)
        .expect_err("because nothing can be written");
    assert!(
        refused.to_string().contains("read-only file system"),
        "{refused}"
    );
}

#[test]
fn folders_must_belong_to_trusted_owners_alone() {
    let aa = path(PAYLOAD)[..ROOT.len() + "/v1/objects/aa".len()].to_owned();
    let bench = Bench::new();
    bench.sim.set_mode(&aa, 0o775);
    let refusal = bench.by_receipt().expect_err("because the group may write");
    assert!(matches!(refusal, ObjectRefusal::Folder { .. }));
    assert!(refusal.to_string().contains(&aa), "{refusal}");
    assert!(refusal.to_string().contains("0775"), "{refusal}");
    bench.sim.set_mode(&aa, 0o755);
    for folder in ["/home", "/home/user", ROOT, &format!("{ROOT}/v1")] {
        bench.sim.set_owner(folder, 1001);
        let refusal = open(&bench.sim).err().expect("because 1001 is a stranger");
        assert!(
            matches!(&refusal, OpenError::Owner { path, uid: 1001, .. }
                if path.to_str() == Some(folder)),
            "{refusal}"
        );
        bench.sim.set_owner(folder, 1000);
        for mode in [0o775, 0o757, 0o1777] {
            bench.sim.set_group(folder, 100);
            bench.sim.set_mode(folder, mode);
            let refusal = open(&bench.sim).err().expect("because others may write");
            assert!(
                matches!(&refusal, OpenError::Writable { path, mode: m }
                    if path.to_str() == Some(folder) && *m == mode),
                "{refusal}"
            );
        }
        bench.sim.set_mode(folder, 0o755);
    }
    open(&bench.sim)
        .map(|_| ())
        .expect("because all is well again");
}

#[test]
fn a_private_group_may_write_to_an_ancestor_but_not_to_the_store() {
    let bench = Bench::new();
    bench.sim.set_mode("/home/user", 0o775);
    open(&bench.sim)
        .map(|_| ())
        .expect("because group 1000 is user 1000's own");
    bench.sim.set_mode("/home", 0o775);
    bench.sim.set_owner("/home", 0);
    let refusal = open(&bench.sim)
        .err()
        .expect("because root's group is not private");
    assert!(matches!(refusal, OpenError::Writable { .. }), "{refusal}");
    bench.sim.set_mode("/home", 0o755);
    bench.sim.set_mode(ROOT, 0o775);
    let refusal = open(&bench.sim)
        .err()
        .expect("because the store is the user's alone");
    assert!(matches!(refusal, OpenError::Writable { .. }), "{refusal}");
}

#[test]
fn only_roots_sticky_folders_may_be_shared_ancestors() {
    let sim = SimFs::new(6, Arc::new(SimClock::new()));
    let open = |root: &str| {
        let config = StoreConfig::new(root, STATE);
        Store::open(Arc::new(sim.clone()), sim.clock(), config).map(|_| ())
    };
    open("/tmp/mine").expect("because /tmp is root's and sticky");
    assert!(matches!(open("/tmp"), Err(OpenError::Writable { .. })));
    sim.make_dirs("/tmp/theirs", 1001, 0o755);
    assert!(matches!(open("/tmp/theirs"), Err(OpenError::Owner { .. })));
    sim.make_dirs("/scratch", 1001, 0o1777);
    assert!(matches!(
        open("/scratch/mine"),
        Err(OpenError::Owner { .. })
    ));
    assert!(matches!(open("relative"), Err(OpenError::Relative { .. })));
}

#[test]
fn a_symlink_in_the_path_is_followed_when_a_trusted_owner_made_it() {
    let sim = SimFs::new(6, Arc::new(SimClock::new()));
    let open = |root: &str| {
        let config = StoreConfig::new(root, STATE);
        Store::open(Arc::new(sim.clone()), sim.clock(), config).map(|store| store.id())
    };
    let id = open("/home/user/disk/store").expect("because all is this user's");
    sim.symlink("/home/user/link", "disk/../../user/disk", 1000);
    assert_eq!(open("/home/user/link/store"), Ok(id));
    sim.symlink("/tmp/link", "/home/user/disk", 1001);
    assert!(matches!(
        open("/tmp/link/store"),
        Err(OpenError::Owner { uid: 1001, .. })
    ));
    sim.symlink("/home/user/loop", "loop", 1000);
    assert!(matches!(
        open("/home/user/loop/store"),
        Err(OpenError::TooManyLinks { .. })
    ));
    // Below the root nothing is followed.
    sim.remove("/home/user/disk/store/v1/packs");
    sim.symlink("/home/user/disk/store/v1/packs", "/tmp", 1000);
    assert!(matches!(
        open("/home/user/disk/store"),
        Err(OpenError::NotDirectory {
            kind: FileKind::Symlink,
            ..
        })
    ));
}

#[test]
fn a_state_folder_that_others_may_enter_is_not_used() {
    let bench = Bench::new();
    bench
        .sim
        .set_mode(format!("{STATE}/{}", bench.store.id()), 0o750);
    let store = open(&bench.sim).expect("because the store itself is sound");
    let error = store.state().err().expect("because the group may enter");
    assert!(error.to_string().contains("0750"), "{error}");
    let object = store
        .object(&digest(PAYLOAD), 16, ObjectTrust::Receipt)
        .expect("because its bytes are right");
    assert_eq!(object.how(), HowVerified::Reverified);
    assert!(store.reserve(1, 0).is_err());
    assert!(store.try_lock_pack(&record(PAYLOAD).key()).is_err());
}

#[test]
fn a_damaged_id_is_drawn_anew() {
    let bench = Bench::new();
    for edit in [
        (|bytes: &mut Vec<u8>| bytes.truncate(5)) as fn(&mut Vec<u8>),
        |bytes: &mut Vec<u8>| bytes[0] = b'Z',
        |bytes: &mut Vec<u8>| bytes.extend(b"more"),
    ] {
        let before = open(&bench.sim).expect("because it is sound").id();
        bench.sim.edit(format!("{ROOT}/v1/id"), edit);
        let after = open(&bench.sim).expect("because the id is drawn anew").id();
        assert_ne!(before, after);
    }
}

#[test]
fn an_edited_record_is_corrupt_and_published_again() {
    let bench = Bench::new();
    let record = record(PAYLOAD);
    let key = record.key();
    let published = bench.store.publish_pack(&record);
    assert_eq!(published, Ok(SmallOutcome::Created));
    assert_eq!(bench.store.publish_pack(&record), Ok(SmallOutcome::Equal));
    let path = pack_path(&record);
    let damages: [fn(&SimFs, &str); 7] = [
        |sim, path| sim.edit(path, |bytes| bytes[5] ^= 1),
        |sim, path| sim.edit(path, |bytes| bytes.truncate(40)),
        |sim, path| sim.edit(path, Vec::clear),
        |sim, path| sim.edit(path, |bytes| bytes.resize(1 << 20, b' ')),
        |sim, path| sim.set_mode(path, 0o664),
        |sim, path| sim.set_owner(path, 1001),
        |sim, path| sim.symlink(path, "/nowhere", 1000),
    ];
    for damage in damages {
        damage(&bench.sim, &path);
        let refusal = bench
            .store
            .lookup_pack(&key)
            .expect_err("because of the damage");
        assert_ne!(refusal.reason(), "missing", "{refusal}");
        let published = bench.store.publish_pack(&record);
        assert_eq!(published, Ok(SmallOutcome::Created));
        // Also where nobody looked first.
        damage(&bench.sim, &path);
        let published = bench.store.publish_pack(&record);
        assert!(published.is_ok(), "{published:?}");
        assert_eq!(bench.store.lookup_pack(&key), Ok(record.clone()));
    }
}

#[test]
fn a_record_under_another_key_is_corrupt() {
    let bench = Bench::new();
    let (one, other) = (record(PAYLOAD), record(OTHER));
    for record in [&one, &other] {
        bench
            .store
            .publish_pack(record)
            .expect("because the object is there");
    }
    bench.sim.swap(pack_path(&one), pack_path(&other));
    let refusal = bench.store.lookup_pack(&one.key());
    assert!(matches!(refusal, Err(PackRefusal::Corrupt { .. })));
}

#[test]
fn a_pack_needs_its_object() {
    let bench = Bench::new();
    let published = bench.store.publish_pack(&record(b"never published"));
    assert!(matches!(published, Err(PublishPackError::Object { .. })));
}

#[test]
fn two_intact_payloads_of_one_identity_refuse_the_layout_by_name() {
    let bench = Bench::new();
    let theirs = record(PAYLOAD);
    let ours = PackRecord {
        object: digest(OTHER),
        ..theirs.clone()
    };
    bench
        .store
        .publish_pack(&theirs)
        .expect("because the object is there");
    let error = bench
        .store
        .publish_pack(&ours)
        .expect_err("because both objects are intact");
    assert!(matches!(
        &error,
        PublishPackError::NotDeterministic { layout, theirs: t, ours: o, .. }
            if layout == "identity-v1" && *t == digest(PAYLOAD) && *o == digest(OTHER)
    ));
    // A damaged object of theirs goes to quarantine with its record; ours takes the key.
    bench.sim.edit(path(PAYLOAD), |bytes| bytes[0] ^= 1);
    assert_eq!(bench.store.publish_pack(&ours), Ok(SmallOutcome::Created));
    assert_eq!(bench.store.lookup_pack(&ours.key()), Ok(ours.clone()));
    let refusal = bench.by_receipt().expect_err("because it was moved");
    assert_eq!(refusal.reason(), "missing");
    // A damaged object of ours is refused, and theirs stays.
    bench.publish(PAYLOAD);
    bench.sim.edit(path(PAYLOAD), |bytes| bytes[0] ^= 1);
    let error = bench.store.publish_pack(&theirs);
    assert!(matches!(error, Err(PublishPackError::Object { .. })));
    assert_eq!(bench.store.lookup_pack(&ours.key()), Ok(ours));
}

#[test]
fn room_is_agreed_on_between_fillers_and_given_back() {
    let sim = SimFs::new(8, Arc::new(SimClock::new()));
    sim.set_total_bytes(1_000_000);
    let mut config = StoreConfig::new(ROOT, STATE);
    config.min_free_bytes = 100_000;
    let open = |config: &StoreConfig| {
        Store::open(Arc::new(sim.clone()), sim.clock(), config.clone())
            .expect("because the folder is this user's")
    };
    let (one, other) = (open(&config), open(&config));
    // 20 % of the file system.
    let first = one.reserve(150_000, 0).expect("because the cap is 200000");
    let refused = other
        .reserve(60_000, 0)
        .expect_err("because 50000 are left");
    assert!(
        refused
            .to_string()
            .contains("cap of 195.3 KiB leaves 48.8 KiB"),
        "{refused}"
    );
    let second = other.reserve(50_000, 0).expect("because 50000 are left");
    drop(first);
    drop(
        other
            .reserve(150_000, 0)
            .expect("because it was given back"),
    );
    drop(second);
    config.max_bytes = Some(950_000);
    let one = open(&config);
    let refused = one
        .reserve(920_000, 0)
        .expect_err("because 100000 stay free");
    assert!(
        refused.to_string().contains("free beyond reservations"),
        "{refused}"
    );
    // A filler that died leaves an entry that nobody holds.
    let dead = one.reserve(500_000, 0).expect("because there is room");
    let after = sim.crash(packhouse_sim::Crash::Kept, 1);
    drop(dead);
    let store = Store::open(Arc::new(after.clone()), after.clock(), config)
        .expect("because the folder is this user's");
    assert_eq!(store.room(0).map(|room| room.reserved_bytes), Ok(0));
    store
        .reserve(800_000, 0)
        .map(|_| ())
        .expect("because the dead hold no room");
}

#[test]
fn a_cancelled_publish_leaves_nothing_and_gives_its_room_back() {
    let bench = Bench::new();
    let long = vec![7; 13 << 20];
    let room = bench
        .store
        .reserve(14 << 20, 0)
        .expect("because there is room");
    let files = bench.sim.files(ROOT);
    for chunks in 0..5u32 {
        let asked = std::cell::Cell::new(0);
        let cancel = || {
            asked.set(asked.get() + 1);
            asked.get() > chunks
        };
        let cancelled = bench
            .store
            .publish(&room, &long, PublishOptions::default(), &cancel)
            .expect_err("because it was cancelled");
        let expected_bytes = (u64::from(chunks) * (4 << 20)).min(13 << 20);
        assert!(matches!(
            cancelled,
            PublishError::Cancelled { written_bytes, total_bytes }
                if written_bytes == expected_bytes && total_bytes == 13 << 20
        ));
        assert_eq!(bench.sim.files(ROOT), files);
        assert_eq!(room.left_bytes(), 14 << 20);
    }
}
