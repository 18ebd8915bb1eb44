//! `stage [--objects N] [--bytes N] [--rounds N] [--only WORD] [--binary PATH] [--out DIR]`: what
//! a hot `stage`, a shallow `stage-validate` and a shallow `verify` cost, inside and as processes;
//! and a cold stage.
//!
//! The store is in the temporary folder and the stage in `/dev/shm`, where stages are. Objects are
//! small: what is timed asks for stats, and hashes none of them.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program: it reads its arguments and clock, writes its evidence and prints its table"
)]

use packhouse_base::digest::{Digest, Fingerprint, SetKey, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_bench::host;
use packhouse_bench::intervals::median;
use packhouse_stage::{Depth, StageOptions, StageOutcome, StageRoot, Watcher};
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Owners, Store, StoreConfig};
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::Fs as _;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

type Failed = Box<dyn Error>;

struct Arguments {
    objects: u64,
    bytes: usize,
    rounds: usize,
    /// Times only the legs whose name begins so.
    only: String,
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
}

/// Where everything is; removed when dropped.
struct Folders {
    store: PathBuf,
    stage: PathBuf,
}

fn main() -> Result<(), Failed> {
    let arguments = parse(std::env::args().skip(1))?;
    let folders = Folders::make()?;
    let store = open_store(&folders.store)?;
    let set = fill(&store, &arguments)?;
    let owners = Owners::new(RealFs.effective_uid(), &[]);
    let (fs, clock) = (Arc::new(RealFs), Arc::new(RealClock));
    let root = StageRoot::make(fs, clock, &folders.stage, &owners)?;
    let mut rows = Vec::new();
    let cold_ns = timed(|| stage(&store, &root, set, false))?;
    rows.push(("stage, cold, with its wait".to_owned(), vec![cold_ns]));
    rows.push(repeat("stage, hot", &arguments, || {
        stage(&store, &root, set, true)
    })?);
    rows.push(repeat("stage-validate", &arguments, || {
        let found = packhouse_stage::validate(&root, set, Depth::Shallow, &|_| ());
        found
            .is_good()
            .then_some(())
            .ok_or("the stage is bad".into())
    })?);
    rows.push(repeat("verify", &arguments, || {
        let found = store.verify_set(set, Depth::Shallow, &|_| ());
        found.is_good().then_some(()).ok_or("the set is bad".into())
    })?);
    if let Some(binary) = &arguments.binary {
        for words in [
            &["stage"][..],
            &["stage-validate"],
            &["verify"],
            &["--version"],
        ] {
            let name = format!("process: {}", words.join(" "));
            rows.push(repeat(&name, &arguments, || run(binary, words, &folders))?);
        }
    }
    print(&rows);
    write(&arguments, &rows)
}

impl Folders {
    fn make() -> Result<Self, Failed> {
        let id = std::process::id();
        let store = std::env::temp_dir().join(format!("packhouse-bench-{id}"));
        let stage = PathBuf::from(format!("/dev/shm/packhouse-bench-{id}"));
        fs::create_dir(&store)?;
        Ok(Self { store, stage })
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.store);
        let _ = fs::remove_dir_all(&self.stage);
    }
}

fn open_store(folder: &Path) -> Result<Store, Failed> {
    let mut config = StoreConfig::new(folder.join("store"), folder.join("packhouse"));
    config.min_free_bytes = 0;
    Ok(Store::open(Arc::new(RealFs), Arc::new(RealClock), config)?)
}

/// Publishes the set whose stage is timed.
fn fill(store: &Store, arguments: &Arguments) -> Result<SetKey, Failed> {
    let mut entries = Vec::new();
    for slot in 0..arguments.objects {
        let mut payload = vec![0x5a; arguments.bytes];
        payload[..8].copy_from_slice(&slot.to_le_bytes());
        let length = payload.len() as u64;
        let room = store.reserve(length, 0)?;
        let object = store.publish(&room, &payload, PublishOptions::default(), &|| false)?;
        let record = PackRecord {
            identity: PackIdentity {
                layout: "identity-v1".into(),
                layout_version: 1,
                parameters: [].into(),
                fingerprint: Fingerprint(Digest::of(b"golden")),
                type_id: 24,
                dims: vec![length],
                source: TensorDigest(Digest::of(&payload)),
            },
            object: object.digest(),
            length,
            sample: SampleGeometry {
                unit_rows: 1,
                row_bytes: length,
                row_count: 1,
            },
        };
        store.publish_pack(&record)?;
        entries.push(ManifestEntry {
            slot,
            tensor: format!("blk.{slot}.ffn_gate.weight"),
            pack: record.key(),
            object: record.object,
            length,
        });
    }
    let manifest = SetManifest::new("bench".into(), Digest::of(b"bench"), entries)?;
    let file = ContainerFile {
        name: "bench.gguf".into(),
        size: 1,
        digest: None,
    };
    let container = ContainerRecord::new(vec![file], Admission::Skipped)?;
    store.publish_set(&manifest, &container)?;
    Ok(manifest.key())
}

fn stage(store: &Store, root: &StageRoot, set: SetKey, hot: bool) -> Result<(), Failed> {
    let quiet = Watcher {
        tell: &|_| (),
        cancel: &|| false,
    };
    let options = StageOptions {
        min_free_bytes: 0,
        ..StageOptions::default()
    };
    let staged = packhouse_stage::stage(store, root, set, &options, quiet)?;
    if hot == (staged.outcome == StageOutcome::Reused) {
        return Ok(());
    }
    Err(format!("expected another outcome than {:?}", staged.outcome).into())
}

fn run(binary: &Path, words: &[&str], folders: &Folders) -> Result<(), Failed> {
    let output = Command::new(binary)
        .args(words)
        .env("PACKHOUSE_STORE", folders.store.join("store"))
        .env("PACKHOUSE_STAGE", &folders.stage)
        .env("XDG_STATE_HOME", &folders.store)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}

fn timed(work: impl FnOnce() -> Result<(), Failed>) -> Result<u64, Failed> {
    let begun = Instant::now();
    work()?;
    Ok(u64::try_from(begun.elapsed().as_nanos())?)
}

fn repeat(
    name: &str,
    arguments: &Arguments,
    work: impl Fn() -> Result<(), Failed>,
) -> Result<(String, Vec<u64>), Failed> {
    if !name.starts_with(&arguments.only) {
        return Ok((name.to_owned(), Vec::new()));
    }
    work()?;
    let rounds = (0..arguments.rounds).map(|_| timed(&work));
    Ok((name.to_owned(), rounds.collect::<Result<_, _>>()?))
}

fn print(rows: &[(String, Vec<u64>)]) {
    println!(
        "{:<32}{:>12}{:>12}{:>12}",
        "", "median ms", "least ms", "most ms"
    );
    for (name, times) in rows.iter().filter(|(_, times)| !times.is_empty()) {
        let ms = |ns: f64| ns / 1e6;
        let values: Vec<f64> = times.iter().map(|ns| *ns as f64).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let middle = median(&values).map_or(values[0], |median| median.value);
        println!(
            "{name:<32}{:>12.3}{:>12.3}{:>12.3}",
            ms(middle),
            ms(least),
            ms(most)
        );
    }
}

fn write(arguments: &Arguments, rows: &[(String, Vec<u64>)]) -> Result<(), Failed> {
    let Some(folder) = &arguments.out else {
        return Ok(());
    };
    let legs: Vec<Value> = rows
        .iter()
        .map(|(name, times)| json!({ "name": name, "duration_ns": times }))
        .collect();
    let document = json!({
        "schema": "packhouse/bench-stage/1",
        "host": host::identity(),
        "object_count": arguments.objects,
        "object_bytes": arguments.bytes,
        "legs": legs,
    });
    fs::create_dir_all(folder)?;
    fs::write(folder.join("stage.json"), format!("{document:#}\n"))?;
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failed> {
    let mut arguments = Arguments {
        objects: 187,
        bytes: 64 << 10,
        rounds: 50,
        only: String::new(),
        binary: None,
        out: None,
    };
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--objects" => arguments.objects = value.parse()?,
            "--bytes" => arguments.bytes = value.parse::<usize>()?.max(8),
            "--rounds" => arguments.rounds = value.parse::<usize>()?.max(1),
            "--only" => arguments.only = value,
            "--binary" => arguments.binary = Some(value.into()),
            "--out" => arguments.out = Some(value.into()),
            other => return Err(format!("unknown word {other}").into()),
        }
    }
    Ok(arguments)
}
