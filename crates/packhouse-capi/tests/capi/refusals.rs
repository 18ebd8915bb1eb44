//! Each status that the library can give, provoked through C, with what its text must name.

use crate::world::{
    SPECS, World, edit, object_path, probe_at, program, publish_object, publish_record,
    publish_set, publish_with, run, set_mode, source_of, stage, strange_fingerprint, words,
};
use crate::{image_refusals, misuse};
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_store::record::{PackRecord, SampleGeometry};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const SAMPLE: (u32, u32) = (1, 0);
pub(crate) const RECEIPT: (u32, u32) = (2, 0);
const DEEP: (u32, u32) = (3, 0);
const STRICT: (u32, u32) = (2, 1);

/// Statuses that were seen.
#[derive(Default)]
pub(crate) struct Seen(BTreeSet<String>);

impl Seen {
    /// Finds the answer to a call among the probe's lines and what its text must have.
    pub(crate) fn refused(&mut self, lines: &[String], word: &str, status: &str, parts: &[&str]) {
        let wanted = format!("{word} PACKHOUSE_{status} ");
        let line = lines.iter().find(|line| line.starts_with(&wanted));
        let line = line.unwrap_or_else(|| panic!("{wanted}: {lines:#?}"));
        for part in parts {
            assert!(line.contains(part), "{part:?} in {line:?}");
        }
        self.0.insert(format!("PACKHOUSE_{status}"));
    }

    /// Notes a status that this machine has no way to.
    pub(crate) fn unexercised(&mut self, status: &str) {
        self.0.insert(format!("PACKHOUSE_{status}"));
    }
}

#[test]
fn each_status_is_provoked_through_c_and_names_what_it_is_about() {
    let mut seen = Seen::default();
    opening(&mut seen);
    damaged_sets(&mut seen);
    look_ups(&mut seen);
    contracts(&mut seen);
    records(&mut seen);
    payloads(&mut seen);
    a_payload_that_changes(&mut seen);
    stages(&mut seen);
    samples(&mut seen);
    strict_sets(&mut seen);
    the_host(&mut seen);
    packers(&mut seen);
    misuse::misuse(&mut seen);
    image_refusals::image_refusals(&mut seen);
    // A defect of ours can't be had from outside; `edge` has a test of its own.
    let known = packhouse::statuses().map(|status| status.name.to_string_lossy().into_owned());
    let known: BTreeSet<String> = known.filter(|name| name != "PACKHOUSE_BUG").collect();
    seen.0.insert("PACKHOUSE_OK".to_owned());
    assert_eq!(seen.0, known);
}

fn opening(seen: &mut Seen) {
    let world = World::new();
    let open = &["open"][..];
    let lines = world.probe_set("xyz", RECEIPT, open);
    seen.refused(&lines, "open", "SET_NAME", &["\"xyz\"", "8 to 64 digits"]);
    for folder in ["v1/sets/a", "/", "a/v1/packs/00"] {
        let lines = world.probe_set(folder, RECEIPT, open);
        seen.refused(&lines, "open", "SET_NAME", &[folder]);
    }
    let zeros = "0".repeat(64);
    let lines = world.probe_set(&zeros, RECEIPT, open);
    seen.refused(&lines, "open", "NO_SET", &[&zeros]);
    let lines = world.probe_set("00000000", RECEIPT, open);
    seen.refused(&lines, "open", "NO_SET", &["\"00000000\"", "store"]);
    let places = [world.path("nowhere"), world.path("state"), "-".into()];
    let lines = probe_at(&places, "-", RECEIPT, open);
    seen.refused(&lines, "open", "STORE_MISSING", &["nowhere is not there"]);
    assert!(!world.path("nowhere").exists(), "a reader makes no store");
    let places = ["store".into(), world.path("state"), "-".into()];
    let lines = probe_at(&places, "-", RECEIPT, open);
    seen.refused(
        &lines,
        "open",
        "STORE_UNTRUSTED",
        &["store is not an absolute path"],
    );
    set_mode(&world.path("store"), 0o777);
    let lines = world.probe(RECEIPT, open);
    seen.refused(&lines, "open", "STORE_UNTRUSTED", &["mode 0777"]);
    set_mode(&world.path("store"), 0o755);
    // State that others could write would be their word: every payload is hashed, and it is said.
    set_mode(&world.path("state"), 0o777);
    let lines = world.probe(RECEIPT, &["open", "at", "0", "map", "view", "last"]);
    seen.refused(
        &lines,
        "last",
        "STATE_REFUSED",
        &["state has mode 0777", "is hashed"],
    );
    assert!(
        lines.iter().any(|line| line.contains(" held=1 proof=3 ")),
        "{lines:#?}"
    );
    set_mode(&world.path("state"), 0o700);
    let other = publish_set(
        &world.store,
        "other-plan",
        world.manifest.entries().to_vec(),
    );
    let lines = world.probe_set("-", RECEIPT, open);
    seen.refused(
        &lines,
        "open",
        "MANY_SETS",
        &[&other.key().to_string(), &world.key()],
    );
}

fn damaged_sets(seen: &mut Seen) {
    let world = World::new();
    let (manifest, index) = (
        world.set_file("manifest.json"),
        world.set_file("runtime-index.tsv"),
    );
    set_mode(&manifest, 0o666);
    let lines = world.probe(RECEIPT, &["open"]);
    seen.refused(&lines, "open", "SET_UNTRUSTED", &["manifest.json", "0666"]);
    set_mode(&manifest, 0o444);
    edit(&index, |bytes| bytes[30] ^= 1);
    let lines = world.probe(RECEIPT, &["open"]);
    seen.refused(&lines, "open", "INDEX_CORRUPT", &[&world.key(), "line 2"]);
    std::fs::remove_file(&index).expect("because the folder is ours");
    let lines = world.probe(RECEIPT, &["open"]);
    seen.refused(
        &lines,
        "open",
        "INDEX_CORRUPT",
        &["runtime-index.tsv is not there"],
    );
    edit(&manifest, |bytes| {
        let at = bytes.windows(4).position(|part| part == b"gate");
        bytes[at.expect("because a tensor is called so")] = b'G';
    });
    let lines = world.probe(RECEIPT, &["open"]);
    seen.refused(
        &lines,
        "open",
        "MANIFEST_CORRUPT",
        &[&world.key(), "its content has key"],
    );
}

fn look_ups(seen: &mut Seen) {
    let world = World::new();
    let find = |slot: u64, last: &[&str]| {
        let contract = world.contract(slot);
        world.probe(RECEIPT, &words(&[&["open".to_owned()], &contract], last))
    };
    let lines = find(0, &["slot", "2"]);
    seen.refused(&lines, "slot", "NO_SLOT", &[&world.key(), "no slot 2"]);
    let lines = find(0, &["tensor", "gat"]);
    seen.refused(
        &lines,
        "tensor",
        "NO_TENSOR",
        &[&world.key(), "no tensor \"gat\""],
    );
    let lines = find(5, &["tensor", "twice"]);
    seen.refused(
        &lines,
        "tensor",
        "MANY_SLOTS",
        &["\"twice\"", "slot 5", "slot 6"],
    );
    let lines = world.probe(RECEIPT, &["open", "at", "0", "forge", "map"]);
    seen.refused(&lines, "map", "OTHER_ENTRY", &["slot 1", &world.key()]);
    let lines = world.probe(RECEIPT, &["open", "at", "6"]);
    seen.refused(
        &lines,
        "at",
        "TOO_MANY",
        &["slot 12 (\"future\")", "9 dims, at most 8"],
    );
    let lines = world.probe(RECEIPT, &["open", "at", "6", "counters", "last"]);
    let bytes = world.entry(12).length;
    assert!(
        lines.contains(&format!("refused PACKHOUSE_TOO_MANY 1/{bytes}")),
        "{lines:#?}"
    );
    seen.refused(&lines, "last", "TOO_MANY", &["slot 12"]);
}

/// One field of a good contract changed at a time.
fn contracts(seen: &mut Seen) {
    let world = World::new();
    let mut with = |slot: u64, at: usize, value: &str, status: &str, parts: &[&str]| {
        let mut contract = world.contract(slot);
        contract[at] = value.to_owned();
        let name = slot.to_string();
        let found = &["slot", name.as_str()][..];
        let lines = world.probe(RECEIPT, &words(&[&["open".to_owned()], &contract], found));
        let name = format!("slot {slot} (");
        seen.refused(&lines, "slot", status, &[&[name.as_str()], parts].concat());
    };
    let digest = "ab".repeat(32);
    with(
        0,
        1,
        "identity-v1",
        "LAYOUT",
        &["is q4_0-xe2-dpas-v2, expected identity-v1"],
    );
    with(0, 2, "3", "LAYOUT_VERSION", &["is 2, expected 3"]);
    with(0, 3, "8", "TYPE", &["type id is 2, expected 8"]);
    with(0, 4, "128,256", "DIMS", &["[256, 128]", "[128, 256]"]);
    with(
        1,
        5,
        "n_tile=16",
        "PARAMETERS",
        &["\"n_tile\": 8", "\"n_tile\": 16"],
    );
    with(0, 6, &digest, "SOURCE", &["SHA-256", &digest]);
    with(0, 7, &digest, "FINGERPRINT", &["fingerprint is", &digest]);
    with(9, 7, "-", "FINGERPRINT_NEEDED", &["ggml-cpu-repack"]);
}

fn records(seen: &mut Seen) {
    let world = World::new();
    let at_0 = &["open", "at", "0"][..];
    let pack = world.pack(0);
    let kept = std::fs::read(&pack).expect("because it is there");
    set_mode(&pack, 0o646);
    let lines = world.probe(RECEIPT, at_0);
    seen.refused(
        &lines,
        "at",
        "PACK_UNTRUSTED",
        &["slot 0 (\"gate\")", "0646"],
    );
    set_mode(&pack, 0o444);
    edit(&pack, |bytes| bytes[20] ^= 1);
    let lines = world.probe(RECEIPT, at_0);
    seen.refused(
        &lines,
        "at",
        "PACK_CORRUPT",
        &["slot 0 (\"gate\")", "is corrupt"],
    );
    edit(&pack, |bytes| *bytes = kept);
    let entry = world.entry(0);
    let mut record = world
        .store
        .lookup_pack(&entry.pack)
        .expect("because it is whole again");
    record.object = world.entry(4).object;
    edit(&pack, |bytes| *bytes = record.render());
    let lines = world.probe(RECEIPT, at_0);
    let objects = [entry.object.to_string(), record.object.to_string()];
    seen.refused(&lines, "at", "PACK_DISAGREES", &[&objects[0], &objects[1]]);
    std::fs::remove_file(&pack).expect("because the folder is ours");
    let lines = world.probe(RECEIPT, at_0);
    seen.refused(
        &lines,
        "at",
        "PACK_MISSING",
        &["slot 0 (\"gate\")", &entry.pack.to_string()],
    );
    // A payload shorter than its layout says: a kernel would read past its end.
    let short = identity_record(&world, [64, 4], &[7; 1000]);
    let short = publish_set(
        &world.store,
        "short",
        vec![publish_record(&world.store, 3, "short", &short)],
    );
    let lines = world.probe_set(&short.key().to_string(), RECEIPT, at_0);
    let parts = ["the payload has 1000 bytes, identity-v1 makes 1024"];
    seen.refused(&lines, "at", "PACK_DISAGREES", &parts);
}

/// A record of layout identity-v1 of type F32, of a payload that need not fit it.
fn identity_record(world: &World, dims: [u64; 2], payload: &[u8]) -> PackRecord {
    PackRecord {
        identity: PackIdentity {
            layout: "identity-v1".to_owned(),
            layout_version: 1,
            parameters: [].into(),
            fingerprint: strange_fingerprint(),
            type_id: 0,
            dims: dims.to_vec(),
            source: TensorDigest(Digest::of(payload)),
        },
        object: publish_object(&world.store, payload),
        length: payload.len() as u64,
        sample: SampleGeometry {
            unit_rows: 1,
            row_bytes: 4 * dims[0],
            row_count: dims[1],
        },
    }
}

fn payloads(seen: &mut Seen) {
    let map = &["open", "at", "0", "map"][..];
    let world = World::new();
    let (object, digest) = (world.object(0), world.entry(0).object.to_string());
    let lines = world.probe(SAMPLE, map);
    seen.refused(&lines, "map", "NOT_SAMPLED", &["slot 0 (\"gate\")"]);
    set_mode(&object, 0o446);
    let lines = world.probe(RECEIPT, map);
    seen.refused(
        &lines,
        "map",
        "OBJECT_UNTRUSTED",
        &["slot 0 (\"gate\")", &digest, "0446"],
    );
    set_mode(&object, 0o444);
    edit(&object, |bytes| bytes[77] ^= 1);
    for trust in [RECEIPT, DEEP] {
        let lines = world.probe(trust, map);
        seen.refused(
            &lines,
            "map",
            "OBJECT_CORRUPT",
            &["slot 0 (\"gate\")", &digest],
        );
    }
    edit(&object, |bytes| {
        bytes.pop();
    });
    let lines = world.probe(RECEIPT, map);
    seen.refused(
        &lines,
        "map",
        "OBJECT_CORRUPT",
        &["18431 bytes, expected 18432"],
    );
    std::fs::remove_file(&object).expect("because the folder is ours");
    let lines = world.probe(RECEIPT, map);
    seen.refused(
        &lines,
        "map",
        "OBJECT_MISSING",
        &["slot 0 (\"gate\")", &digest],
    );
}

/// A large object whose times change all the time, so that they do while it is hashed.
fn a_payload_that_changes(seen: &mut Seen) {
    let world = World::new();
    let (set, path) = large(&world);
    let is_over = AtomicBool::new(false);
    let lines = std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::File::open(&path).expect("because it is there");
            while !is_over.load(Ordering::Relaxed) {
                let now = std::time::SystemTime::now();
                file.set_modified(now).expect("because it is ours");
            }
        });
        let mut attempts =
            (0..200).map(|_| world.probe_set(&set, DEEP, &["open", "at", "0", "map"]));
        let found = attempts.find(|lines| lines.iter().any(|l| l.contains("OBJECT_CHANGED")));
        is_over.store(true, Ordering::Relaxed);
        found
    });
    let lines = lines.expect("because the object changes all the time");
    let part = "changed while it was hashed";
    seen.refused(
        &lines,
        "map",
        "OBJECT_CHANGED",
        &["slot 0 (\"large\")", part],
    );
}

/// A set with one payload of 16 MiB.
fn large(world: &World) -> (String, std::path::PathBuf) {
    let record = identity_record(world, [1 << 12, 1 << 10], &vec![3; 16 << 20]);
    let entry = publish_record(&world.store, 0, "large", &record);
    let path = object_path(&world.path("store"), &record.object);
    let set = publish_set(&world.store, "large", vec![entry]);
    (set.key().to_string(), path)
}

fn stages(seen: &mut Seen) {
    let world = World::new();
    let folder = stage(&world);
    let map = &["open", "info", "at", "0", "map", "view", "counters", "last"][..];
    let lines = world.probe(RECEIPT, map);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("staged=1 entries=8")),
        "{lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.contains(" held=1 proof=2 ")),
        "{lines:#?}"
    );
    assert!(
        !lines.iter().any(|line| line.starts_with("refused")),
        "{lines:#?}"
    );
    // A copy that was touched is not used, and the store's is: never silently.
    let copy = folder
        .join("objects")
        .join(world.entry(0).object.to_string());
    edit(&copy, |bytes| bytes[1] ^= 1);
    let lines = world.probe(RECEIPT, map);
    assert!(
        lines.iter().any(|line| line.contains(" held=1 proof=3 ")),
        "{lines:#?}"
    );
    assert!(
        lines.contains(&"refused PACKHOUSE_STAGE_REFUSED 1/18432".to_owned()),
        "{lines:#?}"
    );
    let parts = ["slot 0 (\"gate\")", "the store is used"];
    seen.refused(&lines, "last", "STAGE_REFUSED", &parts);
    let strict = world.probe(
        STRICT,
        &["open", "at", "0", "map", "at", "1", "map", "last"],
    );
    assert_eq!(
        strict
            .iter()
            .filter(|line| *line == "map PACKHOUSE_OK ")
            .count(),
        2
    );
    seen.refused(&strict, "last", "STAGE_REFUSED", &parts);
    damaged_stages(seen, &world, &folder);
}

/// A stage that is damaged as a whole, and a folder that others can reach.
fn damaged_stages(seen: &mut Seen, world: &World, folder: &Path) {
    let map = &["open", "info", "at", "0", "map", "last"][..];
    edit(&folder.join("manifest.json"), |bytes| bytes[9] ^= 1);
    let lines = world.probe(RECEIPT, map);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("staged=0 entries=8")),
        "{lines:#?}"
    );
    seen.refused(
        &lines,
        "last",
        "STAGE_REFUSED",
        &["manifest.json", "the store is used"],
    );
    set_mode(&world.path("stage"), 0o755);
    let lines = world.probe(RECEIPT, map);
    seen.refused(
        &lines,
        "last",
        "STAGE_REFUSED",
        &["stage", "0755", "the store is used"],
    );
}

fn samples(seen: &mut Seen) {
    let world = World::new();
    let file = |name: &str| world.path(name).display().to_string();
    let mut source = std::fs::read(file("gate")).expect("because it is there");
    let (short, other) = (file("short"), file("other"));
    std::fs::write(&short, &source[..5000]).expect("because it is ours");
    let sample = |at: &str, file: &str, last: &[&str]| {
        let first = [
            "open",
            "at",
            at,
            "sample",
            file,
            "18446744073709551615",
            "0",
        ];
        world.probe(RECEIPT, &[&first, last].concat())
    };
    let lines = sample("0", &short, &[]);
    seen.refused(
        &lines,
        "sample",
        "LIVE_WEIGHTS",
        &["slot 0 (\"gate\")", "2304 live bytes at 4608"],
    );
    // Row 37 of the source is another one: group 2 of 16 rows.
    source[37 * 144 + 20] ^= 0x10;
    std::fs::write(&other, source).expect("because it is ours");
    let lines = sample("0", &other, &["map"]);
    let parts = [
        "slot 0 (\"gate\")",
        "group 2 (rows 32 to 47), first in row 37",
        "payload byte",
    ];
    seen.refused(&lines, "sample", "SAMPLE_DIFFERS", &parts);
    seen.refused(&lines, "map", "SAMPLE_DIFFERS", &parts);
    let lines = sample("7", &file("stranger"), &[]);
    let theirs = strange_fingerprint().to_string();
    seen.refused(
        &lines,
        "sample",
        "OTHER_PACKER",
        &["slot 13 (\"stranger\")", &theirs],
    );
    let lines = sample("5", &file("repack"), &[]);
    seen.refused(
        &lines,
        "sample",
        "NO_PACKER",
        &["slot 9 (\"repack\")", "Q8_0"],
    );
}

fn strict_sets(seen: &mut Seen) {
    let world = World::new();
    let contract = world.contract(0);
    let lines = world.probe(
        STRICT,
        &words(
            &[&["open".to_owned()], &contract],
            &["slot", "0", "map", "slot", "3", "map", "at", "0"],
        ),
    );
    assert!(
        lines.contains(&"map PACKHOUSE_OK ".to_owned()),
        "{lines:#?}"
    );
    let parts = ["failed: set", "has no slot 3"];
    seen.refused(&lines, "map", "SET_FAILED", &parts);
    seen.refused(&lines, "at", "SET_FAILED", &parts);
    // Samples come after opening, and a strict set proves everything before.
    let lines = world.probe((SAMPLE.0, STRICT.1), &["open"]);
    let parts = ["strict", "`sample`"];
    seen.refused(&lines, "open", "STRICT_SAMPLE", &parts);
    edit(&world.object(13), |bytes| bytes[0] ^= 1);
    let lines = world.probe(STRICT, &["open"]);
    seen.refused(
        &lines,
        "open",
        "OBJECT_CORRUPT",
        &["slot 13 (\"stranger\")"],
    );
    // Without strict the other tensors serve.
    let lines = world.probe(
        RECEIPT,
        &["open", "at", "7", "map", "at", "0", "map", "counters"],
    );
    seen.refused(&lines, "map", "OBJECT_CORRUPT", &["slot 13"]);
    assert!(
        lines.contains(&"map PACKHOUSE_OK ".to_owned()),
        "{lines:#?}"
    );
    assert!(
        lines.contains(&"refused PACKHOUSE_OBJECT_CORRUPT 1/256".to_owned()),
        "{lines:#?}"
    );
}

fn the_host(seen: &mut Seen) {
    let world = World::new();
    let lines = world.probe(RECEIPT, &["open", "at", "0", "no-files", "map"]);
    seen.refused(
        &lines,
        "map",
        "HOST",
        &["slot 0 (\"gate\")", "too many open files"],
    );
    let (set, _) = large(&world);
    let limited = ["open", "at", "0", "memory", "4194304", "map"];
    let lines = world.probe_set(&set, SAMPLE, &limited);
    seen.refused(&lines, "map", "NOT_SAMPLED", &[]);
    let lines = world.probe_set(&set, RECEIPT, &limited);
    let parts = [
        "slot 0 (\"large\")",
        "16777216 bytes can't be mapped",
        "memory",
    ];
    seen.refused(&lines, "map", "NO_MEMORY", &parts);
}

fn packers(seen: &mut Seen) {
    let world = World::new();
    let mut asked = |contract: &[&str], status: &str, parts: &[&str]| {
        let lines = world.probe(RECEIPT, &[&["contract"], contract, &["lengths"]].concat());
        seen.refused(&lines, "lengths", status, parts);
    };
    let known = ["future-layout", "7"];
    asked(
        &["future-layout", "7", "24", "2", "-", "-", "-"],
        "LAYOUT_UNKNOWN",
        &known,
    );
    // A layout's name is the caller's, perhaps from a file: it forges no line of a log.
    let forged = "a\nPACKHOUSE_OK\u{1b}[31m";
    let shown = ["a\\u{a}PACKHOUSE_OK\\u{1b}[31m"];
    asked(
        &[forged, "7", "24", "2", "-", "-", "-"],
        "LAYOUT_UNKNOWN",
        &shown,
    );
    let version = ["identity-v1 version 2"];
    asked(
        &["identity-v1", "2", "0", "2", "-", "-", "-"],
        "LAYOUT_UNKNOWN",
        &version,
    );
    let rows = ["17 rows are no multiple of 16"];
    asked(
        &["q4_0-xe2-dpas-v2", "2", "2", "64,17", "-", "-", "-"],
        "NOT_ADMITTED",
        &rows,
    );
    asked(
        &["identity-v1", "1", "4", "2", "-", "-", "-"],
        "NOT_ADMITTED",
        &["type id 4"],
    );
    let engine = ["ggml-cpu-repack", "Q8_0"];
    asked(
        &["ggml-cpu-repack", "1", "8", "64,32", "-", "-", "-"],
        "NO_PACKER",
        &engine,
    );
    let repack = ["ggml-cpu-repack", "1", "2", "64,16", "-", "-", "-"];
    let needed = ["ggml-cpu-repack needs a fingerprint"];
    asked(&repack, "FINGERPRINT_NEEDED", &needed);
    packers_that_a_contract_does_not_mean(seen, &world);
}

/// A contract says which packer and which weights; neither is passed over in silence.
fn packers_that_a_contract_does_not_mean(seen: &mut Seen, world: &World) {
    let other = "ab".repeat(32);
    let (live, target) = (world.path("gate"), world.path("packed"));
    let [live, target] = [live, target].map(|path| path.display().to_string());
    let pack = ["lengths", "pack", live.as_str(), "1", target.as_str()];
    let mut contract = world.contract(0);
    contract[7].clone_from(&other);
    let lines = world.probe(RECEIPT, &words(&[&contract], &pack));
    for word in ["lengths", "pack", "unpack"] {
        seen.refused(&lines, word, "OTHER_PACKER", &["q4_0-xe2-dpas-v2", &other]);
    }
    let mut contract = world.contract(0);
    contract[6].clone_from(&other);
    let lines = world.probe(RECEIPT, &words(&[&contract], &pack));
    seen.refused(&lines, "pack", "SOURCE", &["q4_0-xe2-dpas-v2", &other]);
    seen.refused(&lines, "unpack", "SOURCE", &["q4_0-xe2-dpas-v2", &other]);
    // A head of rounded columns is packed, and no source comes of it.
    let mut contract = world.contract(0);
    contract[1] = "int8-tile-rm-v1".to_owned();
    contract[2] = "1".to_owned();
    contract[7] = "-".to_owned();
    let lines = world.probe(RECEIPT, &words(&[&contract], &pack));
    assert!(
        lines.contains(&"pack PACKHOUSE_OK ".to_owned()),
        "{lines:#?}"
    );
    let parts = ["int8-tile-rm-v1 is not invertible: it rounds what it packs"];
    seen.refused(&lines, "unpack", "NOT_INVERTIBLE", &parts);
    let mut contract = world.contract(1);
    contract[5] = "=".to_owned();
    let lines = world.probe(RECEIPT, &words(&[&contract], &["lengths"]));
    let parts = ["parameters are {}", "{\"n_tile\": 8}"];
    seen.refused(&lines, "lengths", "PARAMETERS", &parts);
}

/// Of no list of parameters the defaults are meant, in look-ups as in packing.
#[test]
fn a_contract_without_parameters_means_the_layouts_defaults_everywhere() {
    let world = World::new();
    let spec = SPECS.iter().find(|spec| spec.slot == 1);
    let spec = spec.expect("because the slot is filled");
    let source = source_of(spec);
    let tiles = [("n_tile".to_owned(), 16)].into();
    let wide = publish_with(&world.store, spec, &source, Some(tiles));
    let set = publish_set(&world.store, "wide", vec![wide]);
    let find = |set: &str, parameters: &str| {
        let mut contract = world.contract(1);
        contract[5] = parameters.to_owned();
        let open = ["open".to_owned()];
        let lines = world.probe_set(set, RECEIPT, &words(&[&open, &contract], &["slot", "1"]));
        let answer = lines.iter().find(|line| line.starts_with("slot PACKHOUSE"));
        answer.expect("because it answers").clone()
    };
    let (wide, narrow) = (set.key().to_string(), world.key());
    assert_eq!(find(&wide, "n_tile=16"), "slot PACKHOUSE_OK ");
    assert_eq!(find(&narrow, "n_tile=8"), "slot PACKHOUSE_OK ");
    assert_eq!(find(&narrow, "-"), "slot PACKHOUSE_OK ");
    let refused = [
        (&wide, "-"),
        (&wide, "="),
        (&narrow, "="),
        (&wide, "n_tile=8"),
    ];
    for (set, parameters) in refused {
        let answer = find(set, parameters);
        assert!(answer.starts_with("slot PACKHOUSE_PARAMETERS "), "{answer}");
    }
}

/// The example says why it was refused, and does not go on.
#[test]
fn the_example_prints_the_refusal() {
    let world = World::new();
    let run_on = |store: &Path, tensor: &str| {
        let mut command = Command::new(program("dot", &["dot.c"]));
        command
            .arg(store)
            .arg(world.path("state"))
            .args(["", tensor, "256", "128", "1"]);
        let output = run(&mut command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = run_on(&world.path("nowhere"), "gate");
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.starts_with("the set refused: PACKHOUSE_STORE_MISSING: the store"),
        "{said}"
    );
    let (code, said) = run_on(&world.path("store"), "plain");
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("the pack refused: PACKHOUSE_LAYOUT: slot 4 (\"plain\")"),
        "{said}"
    );
}
