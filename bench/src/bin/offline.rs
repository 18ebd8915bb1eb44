//! `offline --model GGUF --work DIR [--rounds N] [--peer] [--skip-source-hash] [--out DIR]`: the
//! whole `prepare` of a Q4_0 model beside what bounds it, interleaved, in one folder:
//!
//! - `hash`: the same bytes hashed over all cores, one stream per core at a time;
//! - `write`: the same payloads written and synced;
//! - `prepare`: `packhouse prepare` into a new store;
//! - `verify`: `packhouse verify --deep` of that set, and `hash payloads` beside it;
//! - `peer`: the NumPy peer of `bench-compare`, whose payloads must have our digests.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program: it reads its arguments, writes its evidence and prints its table"
)]

use engine_tests::places;
use packhouse_base::digest::Hasher;
use packhouse_bench::{host, intervals};
use packhouse_container::{FileSource, TensorDirectory};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

/// Digests of payloads, by tensor.
type Digests = BTreeMap<String, Value>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Arguments {
    model: PathBuf,
    work: PathBuf,
    rounds: usize,
    peer: bool,
    whole: bool,
    out: PathBuf,
}

/// A tensor that the plan `xe2-q4_0` packs.
struct Matrix {
    name: String,
    columns: u64,
    rows: u64,
    offset: u64,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leg {
    Hash,
    HashPayloads,
    Write,
    Prepare,
    Peer,
}

fn main() -> Result<()> {
    let arguments = parse(std::env::args().skip(1))?;
    let matrices = matrices(&arguments.model)?;
    let payload_bytes: u64 = matrices.iter().map(|matrix| matrix.bytes).sum();
    let file_bytes = fs::metadata(&arguments.model)?.len();
    let mut evidence = json!({
        "schema": "packhouse/bench/offline/1",
        "host": host::identity(),
        "model": host::file_identity(&arguments.model)?,
        "packhouse": host::file_identity(&places::packhouse())?,
        "tensors": matrices.len(), "payload_bytes": payload_bytes, "file_bytes": file_bytes,
        "whole_file_hashed": arguments.whole,
        "file_system": host::file_system(&arguments.work)?,
    });
    let mut legs = vec![Leg::Hash, Leg::Write, Leg::Prepare, Leg::HashPayloads];
    if arguments.peer {
        legs.push(Leg::Peer);
    }
    let mut rounds = Vec::new();
    for round in 0..arguments.rounds {
        let mut figures = json!({});
        let mut payloads: Option<Digests> = None;
        for index in 0..legs.len() {
            let leg = legs[(round + index) % legs.len()];
            let made = run_leg(leg, &arguments, &matrices, &mut figures)?;
            match (&payloads, made) {
                (Some(known), Some(made)) if *known != made => {
                    return Err("the peer's payloads are not ours".into());
                }
                (_, Some(made)) => payloads = Some(made),
                (_, None) => {}
            }
        }
        eprintln!("round {round}: {figures}");
        rounds.push(figures);
        evidence["rounds"] = json!(rounds);
        fs::create_dir_all(&arguments.out)?;
        let text = serde_json::to_string_pretty(&evidence)?;
        fs::write(arguments.out.join("offline.json"), text + "\n")?;
        fs::write(arguments.out.join("offline.md"), render(&evidence))?;
    }
    println!("{}", render(&evidence));
    Ok(())
}

/// Runs a leg in a folder of its own; those that pack give the payloads' digests by tensor.
fn run_leg(
    leg: Leg,
    arguments: &Arguments,
    matrices: &[Matrix],
    figures: &mut Value,
) -> Result<Option<Digests>> {
    let folder = arguments.work.join("packhouse-bench-offline");
    fs::create_dir(&folder)?;
    let mut note = |name: &str, ns: Result<u64>| {
        figures[name] = json!(ns?);
        Ok(None)
    };
    let done = match leg {
        Leg::Hash => {
            let model = fs::metadata(&arguments.model)?.len();
            let mut ranges = ranges(matrices);
            // Once as the tensors' bytes, once for the payloads, which have as many.
            ranges.extend(ranges.clone());
            if arguments.whole {
                ranges.extend(cut(0, model));
            }
            note("hash_ns", hash(&arguments.model, ranges))
        }
        Leg::HashPayloads => note("hash_payloads_ns", hash(&arguments.model, ranges(matrices))),
        Leg::Write => note("write_ns", write(arguments, matrices, &folder)),
        Leg::Prepare => prepare(arguments, &folder, figures).map(Some),
        Leg::Peer => peer(arguments, matrices, &folder, figures).map(Some),
    };
    fs::remove_dir_all(&folder)?;
    done
}

fn ranges(matrices: &[Matrix]) -> Vec<(u64, u64)> {
    let ranges = matrices
        .iter()
        .map(|matrix| cut(matrix.offset, matrix.bytes));
    ranges.flatten().collect()
}

/// Cuts a range into pieces that cores share evenly.
fn cut(offset: u64, bytes: u64) -> Vec<(u64, u64)> {
    let pieces = (0..bytes).step_by(PIECE_BYTES);
    pieces
        .map(|at| (offset + at, (bytes - at).min(PIECE_BYTES as u64)))
        .collect()
}

/// Hashes ranges of the model over all cores; returns nanoseconds.
fn hash(model: &Path, ranges: Vec<(u64, u64)>) -> Result<u64> {
    let file = File::open(model)?;
    let cores = std::thread::available_parallelism()?;
    let work = Mutex::new(ranges.into_iter());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores.get() {
            scope.spawn(|| {
                let mut buffer = vec![0; 256 << 10];
                loop {
                    let next = work.lock().expect("because no worker panics").next();
                    let Some((offset, bytes)) = next else { break };
                    let mut hasher = Hasher::default();
                    for at in (0..bytes).step_by(buffer.len()) {
                        let count = buffer.len().min((bytes - at) as usize);
                        let piece = &mut buffer[..count];
                        file.read_exact_at(piece, offset + at)
                            .expect("because the model is there");
                        hasher.update(piece);
                    }
                    std::hint::black_box(hasher.finish());
                }
            });
        }
    });
    Ok(nanoseconds(start))
}

/// Writes each tensor's bytes to a file of its own and syncs all; returns nanoseconds.
fn write(arguments: &Arguments, matrices: &[Matrix], folder: &Path) -> Result<u64> {
    let model = File::open(&arguments.model)?;
    let mut buffer = vec![0; 4 << 20];
    let start = Instant::now();
    let mut files = Vec::new();
    for (index, matrix) in matrices.iter().enumerate() {
        let mut file = File::create_new(folder.join(index.to_string()))?;
        for at in (0..matrix.bytes).step_by(buffer.len()) {
            let count = buffer.len().min((matrix.bytes - at) as usize);
            model.read_exact_at(&mut buffer[..count], matrix.offset + at)?;
            file.write_all(&buffer[..count])?;
        }
        files.push(file);
        // A writer that waits only at the end would leave the disk idle while it copies.
        if files.len() == SYNC_FILES {
            sync(&mut files)?;
        }
    }
    sync(&mut files)?;
    File::open(folder)?.sync_all()?;
    Ok(nanoseconds(start))
}

fn sync(files: &mut Vec<File>) -> Result<()> {
    for file in files.drain(..) {
        file.sync_all()?;
    }
    Ok(())
}

/// `prepare` into a new store, `verify --deep` of it, and the same two again.
fn prepare(arguments: &Arguments, folder: &Path, figures: &mut Value) -> Result<Digests> {
    let model = arguments
        .model
        .to_str()
        .ok_or("the model's path is no UTF-8")?;
    let mut words = vec!["prepare", model, "--plan", "xe2-q4_0", "--json"];
    if !arguments.whole {
        words.push("--skip-source-hash");
    }
    let (ns, answer) = packhouse(folder, &words)?;
    figures["prepare_ns"] = json!(ns);
    figures["prepare_settle_ns"] = answer["settle_ns"].clone();
    let (ns, _) = packhouse(folder, &["verify", "--deep", "--json"])?;
    figures["verify_deep_ns"] = json!(ns);
    let (ns, _) = packhouse(folder, &["verify", "--json"])?;
    figures["verify_ns"] = json!(ns);
    let (ns, _) = packhouse(folder, &words)?;
    figures["prepare_again_ns"] = json!(ns);
    let (_, index) = packhouse(folder, &["index", "--json"])?;
    let entries = index["entries"]
        .as_array()
        .ok_or("an index without entries")?;
    let digests = entries.iter().map(|entry| {
        Some((
            entry["tensor"].as_str()?.to_owned(),
            entry["object"].clone(),
        ))
    });
    let digests: Option<BTreeMap<_, _>> = digests.collect();
    Ok(digests.ok_or("an entry without a tensor")?)
}

fn packhouse(folder: &Path, words: &[&str]) -> Result<(u64, Value)> {
    let start = Instant::now();
    let output = Command::new(places::packhouse())
        .args(words)
        .env_remove("PACKHOUSE_READONLY")
        .env("PACKHOUSE_STORE", folder.join("store"))
        .env("PACKHOUSE_MAX_BYTES", (1_u64 << 40).to_string())
        .env("XDG_STATE_HOME", folder.join("state"))
        .output()?;
    let ns = nanoseconds(start);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("packhouse {}: {said}", words.join(" ")).into());
    }
    Ok((ns, serde_json::from_slice(&output.stdout)?))
}

/// The NumPy peer, whose payloads must be ours.
fn peer(
    arguments: &Arguments,
    matrices: &[Matrix],
    folder: &Path,
    figures: &mut Value,
) -> Result<Digests> {
    let tensors: Vec<Value> = matrices
        .iter()
        .map(|matrix| {
            json!({"name": matrix.name, "offset": matrix.offset, "bytes": matrix.bytes,
                "columns": matrix.columns, "rows": matrix.rows})
        })
        .collect();
    let job = folder.join("job.json");
    let text = json!({"model": arguments.model, "target": folder, "whole": arguments.whole,
        "tensors": tensors})
    .to_string();
    fs::write(&job, text)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let start = Instant::now();
    let output = Command::new(places::target().join("bench-compare/bin/python"))
        .arg(root.join("bench-compare/peer.py"))
        .arg("prepare")
        .arg(&job)
        .output()?;
    let ns = nanoseconds(start);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    for field in ["total_ns", "pack_ns", "hash_ns"] {
        figures[format!("peer_{field}")] = answer[field].clone();
    }
    figures["peer_ns"] = json!(ns);
    let digests = answer["digests"]
        .as_object()
        .ok_or("a peer without digests")?;
    let mut digests: Digests = digests.clone().into_iter().collect();
    digests.remove("model");
    Ok(digests)
}

/// Rates and ratios, made from the evidence and never stored.
fn render(evidence: &Value) -> String {
    let empty = Vec::new();
    let rounds = evidence["rounds"].as_array().unwrap_or(&empty);
    let figure = |round: &Value, name: &str| round[name].as_f64();
    let mut text = String::from("| what | median | interval |\n|---|---|---|\n");
    let mut row = |name: &str, unit: &str, of: &dyn Fn(&Value) -> Option<f64>| {
        let values: Vec<f64> = rounds.iter().filter_map(of).collect();
        if let Some(median) = intervals::median(&values) {
            let (value, low, high) = (median.value, median.low, median.high);
            text += &format!("| {name} | {value:.3} {unit} | {low:.3} .. {high:.3} |\n");
        }
    };
    for name in [
        "hash_ns",
        "write_ns",
        "prepare_ns",
        "prepare_again_ns",
        "hash_payloads_ns",
        "verify_deep_ns",
        "verify_ns",
        "peer_ns",
        "peer_pack_ns",
        "peer_hash_ns",
    ] {
        row(name, "s", &|round| Some(figure(round, name)? / 1e9));
    }
    row("prepare / max(hash, write)", "", &|round| {
        let bound = figure(round, "hash_ns")?.max(figure(round, "write_ns")?);
        Some(figure(round, "prepare_ns")? / bound)
    });
    row("peer / prepare", "", &|round| {
        Some(figure(round, "peer_ns")? / figure(round, "prepare_ns")?)
    });
    row("hash payloads / verify --deep", "", &|round| {
        Some(figure(round, "hash_payloads_ns")? / figure(round, "verify_deep_ns")?)
    });
    text
}

fn matrices(model: &Path) -> Result<Vec<Matrix>> {
    let file = File::open(model)?;
    let directory = TensorDirectory::parse(&FileSource::new(&file)?)?;
    let admitted = directory.tensors().iter().filter(|tensor| {
        tensor.ggml_type.name() == "Q4_0" && tensor.dims.len() == 2 && tensor.dims[1] % 16 == 0
    });
    Ok(admitted
        .map(|tensor| Matrix {
            name: tensor.name.clone(),
            columns: tensor.dims[0],
            rows: tensor.dims[1],
            offset: tensor.offset,
            bytes: tensor.bytes,
        })
        .collect())
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).expect("because a leg takes no centuries")
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut arguments = Arguments {
        model: PathBuf::new(),
        work: PathBuf::new(),
        rounds: 5,
        peer: false,
        whole: true,
        out: places::target().join("bench"),
    };
    while let Some(flag) = words.next() {
        match flag.as_str() {
            "--peer" => arguments.peer = true,
            "--skip-source-hash" => arguments.whole = false,
            _ => {
                let value = words.next().ok_or_else(|| format!("no value for {flag}"))?;
                match flag.as_str() {
                    "--model" => arguments.model = fs::canonicalize(value)?,
                    "--work" => arguments.work = fs::canonicalize(value)?,
                    "--rounds" => arguments.rounds = value.parse()?,
                    "--out" => arguments.out = value.into(),
                    other => return Err(format!("unknown option: {other}").into()),
                }
            }
        }
    }
    if arguments.model.as_os_str().is_empty() || arguments.work.as_os_str().is_empty() {
        return Err("give --model GGUF and --work DIR".into());
    }
    Ok(arguments)
}

/// Bytes that one core hashes at a time.
const PIECE_BYTES: usize = 16 << 20;
/// Files written before they are synced.
const SYNC_FILES: usize = 16;
