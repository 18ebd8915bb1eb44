//! A store of format 1 as it was when the format was frozen, checked in under `tests/compat/v1`:
//! every later build reads all of it, and writes the same bytes.
//!
//! `root` is a store with a set, a pin and container records; `state` is the private state beside
//! it. When the format changes there is a `v2` beside this one, and this one stays.

use crate::fixture::{Fixture, container};
use packhouse_base::digest::{Digest, ObjectDigest, SetKey, TensorDigest};
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::ledger::{SourceLedger, SourceRange};
use packhouse_store::receipt::Receipt;
use packhouse_store::root::{Store, StoreConfig};
use packhouse_store::verify::Depth;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use packhouse_sys::stat::{FsId, StatIdentity};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/v1");
const PLAN: &str = "identity";
const PAYLOADS: [&[u8]; 3] = [b"first payload", b"second payload", b"first payload"];
const NOW_NS: i64 = 1_700_000_000_000_000_000;

fn stat() -> StatIdentity {
    StatIdentity {
        file_system: FsId::Uuid([0xab; 16]),
        inode: 4242,
        generation: Some(7),
        size: 1 << 20,
        mtime_ns: 1_600_000_000_123_456_789,
        ctime_ns: 1_600_000_001_123_456_789,
        uid: 1000,
        mode: 0o444,
    }
}

fn receipt() -> Receipt {
    Receipt {
        object: ObjectDigest(Digest::of(PAYLOADS[0])),
        stat: stat(),
        verified_ns: NOW_NS,
    }
}

fn ledger() -> SourceLedger {
    let range = |offset| SourceRange {
        offset,
        length: 4096,
    };
    let tensors = BTreeMap::from([
        (range(4096), TensorDigest(Digest::of(b"a"))),
        (range(8192), TensorDigest(Digest::of(b"b"))),
    ]);
    SourceLedger::new(stat(), Digest::of(b"directory"), tensors)
}

fn hashed_container() -> ContainerRecord {
    let files = ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"]
        .map(|name| ContainerFile {
            name: name.into(),
            size: 1 << 20,
            digest: Some(Digest::of(name.as_bytes())),
        })
        .to_vec();
    ContainerRecord::new(files, Admission::Hashed).expect("because each file has its digest")
}

fn model_path() -> &'static Path {
    Path::new("/models/odd %\u{e9}.gguf")
}

/// Writes everything that format 1 has.
fn write_all(store: &Fixture) -> SetKey {
    let set = store.key_of(PLAN, &PAYLOADS);
    let because = "because nothing is in the way";
    store
        .store
        .add_container_record(set, &hashed_container())
        .expect(because);
    store.store.pin("kept", set).expect(because);
    let receipts = store.store.receipts().expect(because);
    receipts.record(&receipt()).expect(because);
    let sources = store.store.sources().expect(because);
    sources.extend(&ledger(), NOW_NS).expect(because);
    let uses = store.store.use_log().expect(because);
    uses.note_set(set, Some(model_path()), NOW_NS)
        .expect(because);
    uses.note_set(set, None, NOW_NS + 1).expect(because);
    uses.keep_run(NOW_NS, 77, b"{\"tensors\":3}\n")
        .expect(because);
    set
}

/// Every file below a folder by its path, without locks and the store's random id in any path.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let id = std::fs::read_to_string(folder.join("root/v1/id")).expect("because it is a store");
    let mut found = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(&next).expect("because it is a folder") {
            let path = entry.expect("because it can be read").path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).expect("because it is below");
            let name = name
                .to_str()
                .expect("because it is UTF-8")
                .replace(id.trim(), "ID");
            if !name.ends_with("lock") && !name.ends_with("locks") && name != "root/v1/id" {
                let bytes = std::fs::read(&path).expect("because it can be read");
                found.insert(name.into(), bytes);
            }
        }
    }
    found
}

/// Copies the checked-in store to where its modes can be what a store's are.
fn copy_checked_in() -> tempfile::TempDir {
    let target = tempfile::tempdir().expect("because a temporary folder can be made");
    let mut todo = vec![PathBuf::from(CHECKED_IN)];
    while let Some(next) = todo.pop() {
        let below = next.strip_prefix(CHECKED_IN).expect("because it is below");
        let folder = target.path().join(below);
        std::fs::create_dir_all(&folder).expect("because it is ours");
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&folder, mode).expect("because it is ours");
        for entry in std::fs::read_dir(&next).expect("because it is a folder") {
            let path = entry.expect("because it can be read").path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let copy = folder.join(path.file_name().expect("because it is a file"));
            std::fs::copy(&path, &copy).expect("because both are ours");
            let mode = std::fs::Permissions::from_mode(0o444);
            std::fs::set_permissions(&copy, mode).expect("because it is ours");
        }
    }
    target
}

#[test]
fn a_store_of_format_1_is_read_whole() {
    let folder = copy_checked_in();
    let path = folder.path();
    let config = StoreConfig::new(path.join("root"), path.join("state"));
    let store = Store::open(Arc::new(RealFs), Arc::new(RealClock), config);
    let store = store.expect("because it is a store of format 1");
    // First: whoever proves an object that is 100 ms old writes a receipt of its own.
    let receipts = store.receipts().expect("because state is there");
    assert_eq!(receipts.find_for(receipt().object, &stat()), Ok(receipt()));
    let sets = store.list_sets().expect("because they can be listed");
    let [set] = sets[..] else {
        panic!("{sets:?}");
    };
    let deep = Depth::Deep {
        threads: NonZeroUsize::MIN,
    };
    let found = store.verify_set(set, deep, &|_| ());
    assert!(found.is_good(), "{found:?}");
    assert_eq!(
        (found.plan.as_deref(), found.tensors.len()),
        (Some(PLAN), 3)
    );
    let records = store
        .read_container_records(set)
        .expect("because they are there");
    assert_eq!((records.records.len(), records.refused.len()), (2, 0));
    assert!(records.records.contains(&hashed_container()));
    assert!(records.records.contains(&container("model.gguf")));
    let pins = store.pins().expect("because they can be listed");
    assert_eq!((pins.sets.get("kept"), pins.refused.len()), (Some(&set), 0));
    let sources = store.sources().expect("because state is there");
    let ledger_found = sources.lookup(&stat()).expect("because it was written");
    assert_eq!(
        (ledger_found.ledger, ledger_found.refused),
        (ledger(), vec![])
    );
    let log = store.use_log().expect("because state is there");
    let uses = log.read().expect("because it can be listed");
    assert_eq!(
        (uses.sets[&set].last_use_ns, uses.refused.len()),
        (NOW_NS + 1, 0)
    );
    assert!(uses.sets[&set].containers.contains_key(model_path()));
    assert_eq!(log.runs().expect("because it can be listed").len(), 1);
}

#[test]
fn today_the_same_bytes_are_written() {
    let fixture = Fixture::new();
    write_all(&fixture);
    let (expected, actual) = (files(Path::new(CHECKED_IN)), files(fixture.path()));
    if expected == actual {
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compat-v1");
    // What an earlier run left there has another id.
    let _ = std::fs::remove_dir_all(&target);
    for (name, bytes) in &actual {
        let id = fixture.store.id().to_string();
        let path = target.join(
            name.to_str()
                .expect("because it is UTF-8")
                .replace("ID", &id),
        );
        std::fs::create_dir_all(path.parent().expect("because it has one")).expect("ours");
        std::fs::write(path, bytes).expect("because target/ is writable");
    }
    std::fs::copy(fixture.v1("id"), target.join("root/v1/id")).expect("because it is there");
    let differs = |name: &&PathBuf| expected.get(*name) != actual.get(*name);
    let names: std::collections::BTreeSet<_> = expected.keys().chain(actual.keys()).collect();
    let names: Vec<_> = names.into_iter().filter(differs).collect();
    panic!(
        "format 1 is frozen; these differ, see {}: {names:?}",
        target.display()
    );
}
