//! Commands over a store: made here by the store's own publish, damaged by hand.
//!
//! Payloads and names are fixed, so keys and snapshots are too.

use crate::sandbox::Sandbox;
use packhouse_base::digest::{Digest, Fingerprint, SetKey, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) const FIRST: [&[u8]; 3] = [b"alpha payload", b"beta payload", b"gamma payload"];
pub(crate) const SECOND: [&[u8]; 2] = [b"alpha payload", b"delta payload"];

pub(crate) fn open(sandbox: &Sandbox) -> Store {
    let root = sandbox.path("home/.cache/packhouse");
    let mut config = StoreConfig::new(root, sandbox.path("home/.local/state/packhouse"));
    config.min_free_bytes = 0;
    Store::open(Arc::new(RealFs), Arc::new(PastClock), config).expect("because home is ours")
}

/// A clock that no file's times have passed yet, so that nothing made here gets a receipt however
/// slow the machine is.
struct PastClock;

impl Clock for PastClock {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns() - 3_600_000_000_000
    }

    fn steady_ns(&self) -> u64 {
        RealClock.steady_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        RealClock.sleep_ns(duration_ns);
    }
}

fn publish(store: &Store, slot: u64, payload: &[u8]) -> ManifestEntry {
    let length = payload.len() as u64;
    let room = store
        .reserve(length, 1_000_000_000)
        .expect("because payloads are tiny");
    let object = store
        .publish(&room, payload, PublishOptions::default(), &|| false)
        .expect("because nothing is in the way");
    let record = PackRecord {
        identity: PackIdentity {
            layout: "identity-v1".into(),
            layout_version: 1,
            parameters: BTreeMap::new(),
            fingerprint: Fingerprint(Digest::of(b"golden")),
            type_id: 24,
            dims: vec![length],
            source: TensorDigest(Digest::of(payload)),
        },
        object: object.digest(),
        length,
        sample: SampleGeometry {
            unit_rows: 1,
            row_bytes: length,
            row_count: 1,
        },
    };
    store
        .publish_pack(&record)
        .expect("because its object is there");
    let tensor = format!("blk.{slot}.ffn_up.weight");
    ManifestEntry {
        slot,
        tensor,
        pack: record.key(),
        object: record.object,
        length,
    }
}

pub(crate) fn set(store: &Store, model: &str, payloads: &[&[u8]]) -> SetKey {
    let entries = (0..)
        .zip(payloads)
        .map(|(slot, bytes)| publish(store, slot, bytes))
        .collect();
    let plan = Digest::of(b"plan");
    let manifest =
        SetManifest::new("ggml-cpu".into(), plan, entries).expect("because slots differ");
    let file = ContainerFile {
        name: model.into(),
        size: 10,
        digest: None,
    };
    let record = ContainerRecord::new(vec![file], Admission::Skipped).expect("because it is plain");
    store
        .publish_set(&manifest, &record)
        .expect("because its packs are there");
    manifest.key()
}

pub(crate) fn object_path(sandbox: &Sandbox, payload: &[u8]) -> PathBuf {
    let name = Digest::of(payload).to_string();
    sandbox.path(&format!(
        "home/.cache/packhouse/v1/objects/{}/{name}",
        &name[..2]
    ))
}

/// Changes an object behind the store's back.
pub(crate) fn damage(sandbox: &Sandbox, payload: &[u8]) {
    let path = object_path(sandbox, payload);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
}

#[test]
fn without_a_store_there_is_nothing_to_list_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    sandbox.session(
        "store-none",
        &[
            &["ls"],
            &["ls", "--json"],
            &["verify"],
            &["gc"],
            &["rm", "0123456789"],
            &["pin"],
        ],
    );
    assert_eq!(std::fs::read_dir(sandbox.path("home")).unwrap().count(), 0);
}

#[test]
fn no_home_folder_is_said_with_the_variables_that_are_unset() {
    Sandbox::new().session_with("store-no-home", &[&["ls"], &["doctor"]], |command| {
        command.env_remove("HOME");
    });
    Sandbox::new().session_with("store-relative", &[&["ls"]], |command| {
        command.env("PACKHOUSE_STORE", "store");
    });
}

#[test]
fn two_sets_are_listed_pinned_verified_and_removed() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox);
    let first = set(&store, "first.gguf", &FIRST).to_string();
    let second = set(&store, "second.gguf", &SECOND).to_string();
    let (first, second) = (&first[..8], &second[..8]);
    sandbox.session(
        "store-life",
        &[
            &["ls"],
            &["verify"],
            &["verify", first],
            &["verify", first, "--json"],
            &["verify", first, "--threads", "2"],
            &["verify", "1234567"],
            &["verify", "0123456789"],
            &["verify", "NOTHEXADECIMAL"],
            &["pin", first, "--name", "keep"],
            &["pin", second, "--name", "keep"],
            &["pin", second, "--name", "../keep"],
            &["ls"],
            &["rm", first],
            &["unpin", "keep"],
            &["unpin", "keep"],
            // Receipts may be written from here on, so trust is shown above only.
            &["verify", first, "--deep", "--threads", "2"],
            &["rm", first],
            &["rm", second],
            &["ls", "--json"],
            &["scrub"],
        ],
    );
}

#[test]
fn a_damaged_object_is_a_negative_answer_and_said_per_tensor() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    damage(&sandbox, FIRST[1]);
    std::fs::remove_file(object_path(&sandbox, FIRST[2])).unwrap();
    let verify = |words: &[&str]| {
        let output = sandbox.command(words).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (exit, said) = verify(&["verify", "--deep"]);
    assert_eq!(exit, Some(1), "{said}");
    assert!(
        said.contains("blk.1.ffn_up.weight") && said.contains("blk.2.ffn_up.weight"),
        "{said}"
    );
    assert!(!said.contains("blk.0.ffn_up.weight"), "{said}");
    assert!(
        said.contains("1 of 3 tensors good, 2 bad; 3 objects hashed"),
        "{said}"
    );
    // It went to quarantine, so from now on even the shallow look tells.
    let (exit, said) = verify(&["verify", "--json"]);
    assert_eq!(exit, Some(1), "{said}");
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        document["bad_tensors"][0]["reason"], "quarantined",
        "{said}"
    );
    assert_eq!(document["bad_tensors"][1]["reason"], "missing", "{said}");
}

#[test]
fn a_scrub_that_finds_damage_is_a_negative_answer() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    damage(&sandbox, FIRST[0]);
    let output = sandbox.command(&["scrub"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("3 of 3 objects hashed") && said.contains("1 damaged"),
        "{said}"
    );
}

#[test]
fn a_budget_bounds_a_scrub_and_one_object_is_always_hashed() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    let output = sandbox
        .command(&["scrub", "--budget", "1B", "--json"])
        .output()
        .unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&document["hashed_count"], &document["left_count"]),
        (&1.into(), &2.into())
    );
}

#[test]
fn gc_says_what_it_would_remove_before_it_does() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox);
    set(&store, "first.gguf", &FIRST);
    let before = std::fs::metadata(object_path(&sandbox, FIRST[0]))
        .unwrap()
        .len();
    let collect = |words: &[&str], max_bytes: &str| {
        let mut command = sandbox.command(words);
        let output = command
            .env("PACKHOUSE_MAX_BYTES", max_bytes)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // What is young stays even above the cap, and that is said.
    let said = collect(&["gc", "--dry-run", "--shared"], "0");
    assert!(
        said.contains("would remove") && said.contains("38 B above the cap"),
        "{said}"
    );
    let after = std::fs::metadata(object_path(&sandbox, FIRST[0]))
        .unwrap()
        .len();
    assert_eq!(before, after);
    let said = collect(&["gc", "--shared", "--json"], "1000000");
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["sets_count"], 0, "{said}");
    assert_eq!(document["objects_count"], 0, "{said}");
}

#[test]
fn a_read_only_store_is_listed_and_not_changed() {
    let sandbox = Sandbox::new();
    let key = set(&open(&sandbox), "first.gguf", &FIRST).to_string();
    let run = |words: &[&str]| {
        let output = sandbox
            .command(words)
            .env("PACKHOUSE_READONLY", "1")
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(run(&["ls"]), (Some(0), String::new()));
    assert_eq!(run(&["verify", "--deep"]), (Some(0), String::new()));
    for words in [&["rm", &key[..8]][..], &["gc", "--shared"], &["pin"]] {
        let (exit, said) = run(words);
        assert_eq!(exit, Some(3), "{said}");
        assert!(said.contains("was opened read-only"), "{said}");
    }
}

#[test]
fn a_store_that_others_can_write_is_refused_with_the_folder_and_what_helps() {
    let sandbox = Sandbox::new();
    set(&open(&sandbox), "first.gguf", &FIRST);
    let root = sandbox.path("home/.cache/packhouse");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
    sandbox.session("store-writable", &[&["ls"], &["verify"]]);
}

#[test]
fn doctor_and_du_name_what_there_is() {
    let sandbox = Sandbox::new();
    let store = open(&sandbox);
    set(&store, "first.gguf", &FIRST);
    set(&store, "second.gguf", &SECOND);
    let say = |words: &[&str]| {
        let output = sandbox.command(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = say(&["doctor"]);
    for name in [
        "plug-in",
        "store id",
        "file system",
        "fs-verity",
        "huge pages",
        "kernel",
    ] {
        assert!(said.contains(name), "{said}");
    }
    assert!(
        said.contains(sandbox.path("libggml-packhouse.so").to_str().unwrap()),
        "{said}"
    );
    let document: serde_json::Value = serde_json::from_str(&say(&["doctor", "--json"])).unwrap();
    assert_eq!(document["store"]["survey"]["object_count"], 4);
    let document: serde_json::Value = serde_json::from_str(&say(&["du", "--json"])).unwrap();
    let bytes = |payloads: &[&[u8]]| payloads.iter().map(|bytes| bytes.len()).sum::<usize>();
    assert_eq!(
        document["object_bytes"],
        bytes(&[FIRST[0], FIRST[1], FIRST[2], SECOND[1]])
    );
    assert_eq!(document["shared_bytes"], bytes(&FIRST[..1]));
    assert!(say(&["du"]).contains("of no set"));
}
