//! A small maker of evidence, written from the pages like what it tests, but with `serde_json`,
//! plain strings and figures worked out by hand. It knows one experiment and makes every record of
//! it.

mod analysis;
mod talk;

use analysis::analyse;
use packhouse_bagcheck::{Entry, Tree};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use talk::exchanges;

/// SHA-256 in hex.
pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Canonical JSON with its newline: serde_json sorts keys, and nothing here needs another escape.
pub(crate) fn line(value: &Value) -> Vec<u8> {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let fields: BTreeMap<&String, Value> = map
                    .iter()
                    .map(|(name, value)| (name, sorted(value)))
                    .collect();
                Value::Object(fields.into_iter().map(|(k, v)| (k.clone(), v)).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
            other => other.clone(),
        }
    }
    let mut text = sorted(value).to_string();
    text.push('\n');
    text.into_bytes()
}

pub(crate) const FIXTURE: &str = "tiny-f32-v1";
const LAB: &str = "the lab";
const NONCE: [u8; 32] = [7; 32];
const SALT: [u8; 32] = [9; 32];

/// Evidence with its ledger.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) tree: Tree,
    pub(crate) ledger: Vec<u8>,
}

/// Adds a file.
pub(crate) fn put(tree: &mut Tree, path: impl Into<String>, bytes: impl AsRef<[u8]>) {
    tree.insert(path.into(), Entry::file(bytes.as_ref().to_vec()));
}

/// Returns the bytes of a file.
pub(crate) fn bytes(tree: &Tree, path: &str) -> Vec<u8> {
    match &tree[path] {
        Entry::File(bytes) => bytes.to_vec(),
        other => panic!("{path} is {other:?}"),
    }
}

/// Makes the lists of a bag again, so that they fit what is in it.
pub(crate) fn close(tree: &mut Tree) {
    tree.remove("bag/manifest-sha256.txt");
    tree.remove("bag/tagmanifest-sha256.txt");
    let (mut manifest, mut total, mut count) = (String::new(), 0, 0);
    for (path, entry) in tree.iter() {
        if let (Some(name), Entry::File(bytes)) = (path.strip_prefix("bag/data/"), entry) {
            manifest += &format!("{}  data/{name}\n", sha256(bytes));
            total += bytes.len();
            count += 1;
        }
    }
    let packet = tree
        .get("bag/data/packet.json")
        .map_or_else(String::new, |entry| match entry {
            Entry::File(bytes) => sha256(bytes),
            _ => String::new(),
        });
    put(tree, "bag/manifest-sha256.txt", manifest);
    put(
        tree,
        "bag/bagit.txt",
        "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
    );
    let info = format!(
        "BagIt-Profile-Identifier: urn:packhouse:bag:v1\n\
         Bag-Software-Agent: a test\n\
         External-Identifier: {packet}\n\
         External-Description: Evidence of one packet. By itself it can't prove when its \
         preregistration was made, that no other run was held back, or what only the measured \
         programs could know.\n\
         Payload-Oxum: {total}.{count}\n"
    );
    put(tree, "bag/bag-info.txt", info);
    tags(tree);
}

/// Makes the tag manifest again.
pub(crate) fn tags(tree: &mut Tree) {
    let mut tags = String::new();
    for name in ["bag-info.txt", "bagit.txt", "manifest-sha256.txt"] {
        tags += &format!("{}  {name}\n", sha256(bytes(tree, &format!("bag/{name}"))));
    }
    put(tree, "bag/tagmanifest-sha256.txt", tags);
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Input, first and second output of a seed and width: two numbers a row.
fn tensors(seed: u64, width: u64) -> [Vec<u8>; 3] {
    let all: Vec<f32> = (0..2 * width)
        .map(|i| (1000 * width + 100 * (seed % 10) + i) as f32 + (seed / 1_000_000) as f32 * 0.5)
        .collect();
    let map = |f: fn(f32) -> f32| all.iter().map(|x| f(*x)).collect::<Vec<f32>>();
    [f32s(&all), f32s(&map(|x| x + 1.0)), f32s(&map(|x| x * 2.0))]
}

/// The seed that a drawn fixture must have: from the marker's salt, of a rehearsal from the nonce.
fn drawn_seed(kind: &str, repeat: u64) -> u64 {
    let mut bytes = match kind {
        "run" => SALT.to_vec(),
        _ => NONCE.to_vec(),
    };
    bytes.extend(FIXTURE.as_bytes());
    bytes.extend(repeat.to_le_bytes());
    let first = u64::from_str_radix(&sha256(&bytes)[..16], 16).expect("because they are digits");
    first.swap_bytes()
}

/// The files of a fixture, by path below its folder. What is in its tensors is said apart from its
/// seed, so that what is expected can be worked out by hand.
pub(crate) fn fixture(values: u64, seed: u64) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let (mut records, mut cases) = (json!({}), Vec::new());
    for width in [1, 2] {
        let roles = ["in", "first", "second"];
        for (role, bytes) in roles.iter().zip(tensors(values, width)) {
            let name = format!("{role}-{width}");
            records[&name] = json!({"dtype": "f32", "shape": [width, 2],
                "bytes": bytes.len(), "sha256": sha256(&bytes)});
            files.insert(format!("data/{name}"), bytes);
        }
        cases.push(
            json!({"width": width, "arm": "plain", "inputs": {"x": format!("in-{width}")},
            "expected": [
                {"boundary": "first", "tensor": format!("first-{width}"),
                 "tolerance": {"kind": "bit-equal"}, "why": "exact"},
                {"boundary": "second", "tensor": format!("second-{width}"),
                 "tolerance": {"kind": "ulp", "max": 1}, "why": "one rounding"}],
            "near": [], "edge_rows": []}),
        );
    }
    let boundary = |name: &str, offset: Value| {
        json!({"name": name, "storage": "both", "dtype": "f32",
            "shape": [{"widths": 1}, {"fixed": 2}], "offset": offset})
    };
    let record = json!({"schema": "packhouse/fixture/1", "id": FIXTURE, "summary": "s",
        "contract": "c", "layout": null, "parameters": {"k": 2, "seed": seed}, "tensors": records,
        "boundaries": [boundary("first", json!([])),
            boundary("second", json!([{"fixed": 2}, {"widths": 1}]))],
        "cases": cases});
    files.insert("fixture.json".to_owned(), line(&record));
    files.insert(
        "bagit.txt".to_owned(),
        b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n".to_vec(),
    );
    let list = |files: &BTreeMap<String, Vec<u8>>, is: fn(&str) -> bool| -> String {
        let lines = files.iter().filter(|(path, _)| is(path));
        lines
            .map(|(path, bytes)| format!("{}  {path}\n", sha256(bytes)))
            .collect()
    };
    let manifest = list(&files, |path| path.starts_with("data/"));
    files.insert("manifest-sha256.txt".to_owned(), manifest.into_bytes());
    let tags = list(&files, |path| !path.contains('/'));
    files.insert("tagmanifest-sha256.txt".to_owned(), tags.into_bytes());
    files
}

pub(crate) const LANE: &str = "schema = \"packhouse/lane/1\"\nid = \"lane-1\"\ntitle = \"t\"\n\
    model = \"m\"\nquantisation = \"q\"\nruntime = \"r\"\nhardware = \"h\"\npromise = \"p\"\n\
    teacher = \"none\"\nrecord_key = \"k\"\n";

pub(crate) const PREREG: &str = r#"
schema = "packhouse/prereg/1"
id = "exp-1"
lane = "lane-1"
kind = "component"
question = "q"
authorises = "a"
does_not_authorise = "d"
exclusions = []
reviewers = 1
time_budget_s = 600
case_timeout_s = 60
rehearsal_max_age_s = 86400
stop = "first-failed-leg"
[treatment]
difference = "one"
[program.control]
program = "packhouse"
arguments = ["fixture", "serve"]
environment = {}
[program.candidate]
program = "./bin/candidate"
arguments = []
environment = { MODE = "fast" }
[[frozen]]
path = "bin/module.so"
[matrix]
fixtures = ["tiny-f32-v1"]
devices = ["cpu"]
arms = ["plain"]
widths = [1, 2]
repeats = 2
promise = "bit-equal"
[[leg]]
kind = "exact"
treatment = "control"
[[leg]]
kind = "exact"
treatment = "candidate"
[[leg]]
kind = "timing"
[timing]
fixture = "tiny-f32-v1"
arm = "plain"
width = 2
epochs = 1
blocks = 6
cycles = 4
minimum_wins = 6
minimum_median_saving_ns = 25
[[rejection]]
name = "three"
fixture = "tiny-f32-v1"
arm = "plain"
width = 3
reason = "no such width"
[[gate]]
kind = "fresh-inputs"
[[gate]]
kind = "stable-pointers"
[[gate]]
kind = "poisoned"
[[gate]]
kind = "no-warnings"
[[gate]]
kind = "capture-idle"
[[gate]]
kind = "witness"
path = "kernel"
counter = "rows"
minimum = 1
[[gate]]
kind = "denial"
denies = ["network", "generation"]
"#;

fn packet() -> Value {
    let program = |name: &str, arguments: Value, environment: Value| {
        json!({"program": {"name": name, "sha256": sha256(name)},
            "objects": [{"name": "libc.so.6", "sha256": sha256("libc")}],
            "arguments": arguments, "environment": environment})
    };
    json!({"schema": "packhouse/packet/1", "experiment": "exp-1", "kind": "component",
        "lane": {"id": "lane-1", "sha256": sha256(LANE)}, "prereg": sha256(PREREG),
        "programs": {"control": program("packhouse", json!(["fixture", "serve"]), json!({})),
            "candidate": program("bin/candidate", json!([]), json!({"MODE": "fast"}))},
        "frozen": [{"path": "bin/module.so", "sha256": sha256("module")}], "commits": [],
        "fixtures": [{"id": FIXTURE, "sha256": sha256(&fixture(7, 7)["tagmanifest-sha256.txt"])}],
        "analyzer": sha256("analyzer"), "checker": "packhouse-bagcheck 0.1.0"})
}

/// Appends an entry to a ledger and returns its digest.
pub(crate) fn enter(ledger: &mut Vec<u8>, kind: &str, body: Value) -> String {
    let lines: Vec<&[u8]> = ledger.split_inclusive(|byte| *byte == b'\n').collect();
    let previous = lines
        .last()
        .map_or("0".repeat(64), |last| sha256(&last[..last.len() - 1]));
    let entry = line(
        &json!({"schema": "packhouse/ledger/1", "at_ns": 5, "boot": "b",
        "index": lines.len(), "kind": kind, "body": body, "previous": previous}),
    );
    let digest = sha256(&entry[..entry.len() - 1]);
    ledger.extend(entry);
    digest
}

fn records(tree: &mut Tree, kind: &str) {
    let packet = sha256(bytes(tree, "bag/data/packet.json"));
    let time = |ns: u64| json!({"wall_ns": 1_000_000 + ns, "steady_ns": ns});
    let mut legs = Vec::new();
    for (number, who) in [
        (0, &["control"][..]),
        (1, &["candidate"]),
        (2, &["control", "candidate"]),
    ] {
        let is_timing = number == 2;
        let programs: Vec<Value> = who
            .iter()
            .map(|treatment| {
                let is_control = *treatment == "control" || kind == "rehearsal";
                let mut objects = vec![
                    json!({"name": "libc.so.6", "sha256": sha256("libc")}),
                    json!({"name": "module.so", "sha256": sha256("module")}),
                ];
                let name = if is_control {
                    "packhouse"
                } else {
                    "bin/candidate"
                };
                let last = name.rsplit('/').next().expect("because there is one");
                objects.push(json!({"name": last, "sha256": sha256(name)}));
                objects.sort_by_key(|object| object["name"].as_str().map(str::to_owned));
                json!({"treatment": treatment, "pid": 40 + number, "objects": objects,
                    "exit": "code 0", "elapsed_ns": 9, "stderr_bytes":
                        if *treatment == "control" && number == 0 { 4 } else { 0 }})
            })
            .collect();
        legs.push(json!({"number": number, "leg": number, "device": "cpu", "status": "complete"}));
        let mut leg = legs[number].clone();
        for (name, value) in [
            ("schema", json!("packhouse/leg/1")),
            ("kind", json!(if is_timing { "timing" } else { "exact" })),
            ("started", time(1_000_000 * (1 + number as u64))),
            ("ended", time(1_000_000 * (2 + number as u64))),
            ("programs", json!(programs)),
        ] {
            leg[name] = value;
        }
        put(
            tree,
            format!("bag/data/legs/{number:02}/leg.json"),
            line(&leg),
        );
    }
    let run = json!({"schema": "packhouse/run/1", "kind": kind, "packet": packet,
        "nonce": "07".repeat(32), "status": "complete", "stage": null, "reason": null,
        "boot": "b", "host": {"kernel": "k", "cpu": "c", "file_system": "ext4"},
        "started": time(50), "ended": {"wall_ns": 6_000_003, "steady_ns": 5_000_000},
        "clock": {"forward_ns": 3, "back_ns": 0}, "legs": legs, "removed": []});
    put(tree, "bag/data/run.json", line(&run));
}

/// Makes the sealed evidence of a run that passed.
pub(crate) fn run() -> Sample {
    make("run")
}

/// Makes the evidence of a rehearsal.
pub(crate) fn rehearsal() -> Sample {
    make("rehearsal")
}

fn make(kind: &str) -> Sample {
    let mut tree = Tree::new();
    let mut ledger = Vec::new();
    let is_run = kind == "run";
    put(&mut tree, "bag/data/lane.toml", LANE);
    put(&mut tree, "bag/data/prereg.toml", PREREG);
    let packet_bytes = line(&packet());
    let packet = sha256(&packet_bytes);
    put(&mut tree, "bag/data/packet.json", packet_bytes);
    let drawn = std::iter::once(1).chain(1_000_000..1_000_006);
    let drawn = drawn.map(|repeat| {
        let folder = format!("drawn/{FIXTURE}-{repeat}");
        (folder, repeat, drawn_seed(kind, repeat))
    });
    let published = (format!("fixtures/{FIXTURE}"), 7, 7);
    for (folder, values, seed) in std::iter::once(published).chain(drawn) {
        for (name, bytes) in fixture(values, seed) {
            put(&mut tree, format!("bag/data/{folder}/{name}"), bytes);
        }
    }
    authority(&mut tree, &mut ledger, &packet, is_run);
    put(&mut tree, "bag/data/authority.jsonl", &ledger);
    let mut outputs = BTreeMap::new();
    for (number, lines) in exchanges(&mut outputs).into_iter().enumerate() {
        put(
            &mut tree,
            format!("bag/data/legs/{number:02}/exchange.jsonl"),
            lines,
        );
    }
    put(&mut tree, "bag/data/legs/00/control.stderr", "log\n");
    for (digest, bytes) in outputs {
        put(&mut tree, format!("bag/data/outputs/{digest}"), bytes);
    }
    records(&mut tree, kind);
    close(&mut tree);
    let mut sample = Sample { tree, ledger };
    analyse(&mut sample.tree, kind);
    if is_run {
        seal(&mut sample);
    } else {
        let bag = sha256(bytes(&sample.tree, "bag/tagmanifest-sha256.txt"));
        let analysis = sha256(bytes(&sample.tree, "analysis-1/analysis.json"));
        enter(
            &mut sample.ledger,
            "rehearsed",
            json!({"packet": packet, "green": true,
            "stage": null, "reason": "", "bag": bag, "analysis": analysis,
            "analyzer": sha256("analyzer"), "tampers": 9, "rejected": 9, "elapsed_ns": 1}),
        );
    }
    sample
}

/// Enters all that gives a run or a rehearsal its right, and writes the marker of a run.
fn authority(tree: &mut Tree, ledger: &mut Vec<u8>, packet: &str, is_run: bool) {
    let lab = sha256(LAB);
    enter(ledger, "genesis", json!({"lab": LAB, "id": lab}));
    enter(
        ledger,
        "lane",
        json!({"lane": "lane-1", "action": "open", "reason": "r",
        "document": sha256(LANE)}),
    );
    enter(
        ledger,
        "registered",
        json!({"packet": packet, "experiment": "exp-1",
        "lane": "lane-1", "prereg": sha256(PREREG), "treatment": "one"}),
    );
    if is_run {
        enter(
            ledger,
            "rehearsed",
            json!({"packet": packet, "green": true, "stage": null,
            "reason": "", "bag": sha256("b"), "analysis": sha256("a"),
            "analyzer": sha256("analyzer"), "tampers": 9, "rejected": 9, "elapsed_ns": 1}),
        );
        enter(
            ledger,
            "reviewed",
            json!({"packet": packet, "reviewer": "r",
            "verdict": "approve", "note": "", "rehearsal": 3}),
        );
        enter(
            ledger,
            "armed",
            json!({"packet": packet, "rehearsal": 3, "reviews": [4]}),
        );
        let nonce = "07".repeat(32);
        let body = json!({"packet": packet, "nonce": nonce, "markers": "0a".repeat(32)});
        let head = enter(ledger, "nonce", body);
        let marker = line(&json!({"schema": "packhouse/marker/2", "packet": packet,
            "nonce": nonce, "ledger": head, "lab": lab, "file_system": "ext4",
            "salt": "09".repeat(32)}));
        enter(
            ledger,
            "consumed",
            json!({"packet": packet, "nonce": nonce,
            "marker": sha256(&marker)}),
        );
        put(tree, "bag/data/marker.json", marker);
    }
}

/// Seals the analysis of the highest number and enters it.
pub(crate) fn seal(sample: &mut Sample) {
    let tree = &sample.tree;
    let number = (1..).take_while(|n| tree.contains_key(&format!("analysis-{n}/analysis.json")));
    let number = number.last().expect("because there is an analysis");
    let packet = sha256(bytes(tree, "bag/data/packet.json"));
    let bag = sha256(bytes(tree, "bag/tagmanifest-sha256.txt"));
    if number == 1 {
        enter(
            &mut sample.ledger,
            "closed",
            json!({"packet": packet, "bag": bag}),
        );
    }
    let lines: Vec<&[u8]> = sample
        .ledger
        .split_inclusive(|byte| *byte == b'\n')
        .collect();
    let last = lines.last().expect("because there are entries");
    let head = sha256(&last[..last.len() - 1]);
    let path = format!("analysis-{number}/analysis.json");
    let analysis: Value = serde_json::from_slice(&bytes(tree, &path)).expect("because it is JSON");
    let subject = |name: &str, digest: &str| json!({"name": name, "digest": {"sha256": digest}});
    let digest = sha256(bytes(tree, &path));
    let seal = line(&json!({"_type": "https://in-toto.io/Statement/v1",
        "predicateType": "urn:packhouse:seal:v1",
        "subject": [subject("packet.json", &packet), subject("bag/tagmanifest-sha256.txt", &bag),
            subject(&path, &digest)],
        "predicate": {"packet": packet, "number": number, "verdict": analysis["verdict"],
            "ledger_head": head, "analyzer": analysis["analyzer"], "lab": sha256(LAB)}}));
    let mut body = json!({"packet": packet, "verdict": analysis["verdict"], "bag": bag,
        "analysis": digest, "seal": sha256(&seal), "number": number});
    put(&mut sample.tree, format!("seal-{number}.json"), seal);
    if number == 1 {
        body["stage"] = Value::Null;
        body["reason"] = json!("");
        enter(&mut sample.ledger, "sealed", body);
    } else {
        body["analyzer"] = analysis["analyzer"].clone();
        body["why"] = json!("w");
        enter(&mut sample.ledger, "analysed", body);
    }
}
