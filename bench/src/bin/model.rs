//! `model [--bytes N] [--file PATH] [--rounds N] [--cold yes] [--only WORD] [--folder DIR] [--out
//! DIR]`: what a verified copy of a model in RAM costs, beside `cp` and `sha256sum`, round by round
//! in turns; and what its look-up, its verification and its warming cost.
//!
//! The source is `--file`, or a file of that many bytes made in `--folder` (the temporary folder);
//! copies go to `/dev/shm`. Each leg of a round begins with no copy there. The source is in the
//! page cache, or with `--cold yes` in none of it.
//!
//! What the legs prove differs, so that several of the peers' are run: `cp` proves nothing, `cp`
//! and one `sha256sum` of the source is a checked source with a copy that nobody read, and `cp` and
//! `sha256sum` of both is what `model prepare` does.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program: it reads its arguments and clock, writes its evidence and prints its table"
)]

use packhouse_base::digest::Digest;
use packhouse_bench::intervals::median;
use packhouse_bench::{cache, host};
use packhouse_stage::StageRoot;
use packhouse_stage::models::{
    self, AdmittedModel, ModelFiles, ModelKey, ModelOptions, ModelOutcome, ModelQuery,
    ModelWatcher, SourceFile,
};
use packhouse_store::folders::Owners;
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::{File, Fs as _};
use packhouse_sys::real::{RealFs, file_of_fd};
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

type Failed = Box<dyn Error>;

struct Arguments {
    bytes: u64,
    file: Option<PathBuf>,
    rounds: usize,
    cold: bool,
    /// Times only the legs whose name begins so.
    only: String,
    folder: PathBuf,
    out: Option<PathBuf>,
}

/// Where everything is; what was made is removed when dropped.
struct World {
    source: PathBuf,
    made: Option<PathBuf>,
    stage: PathBuf,
    root: StageRoot,
    bytes: u64,
    cold: bool,
}

/// A leg: its name and what it does.
type Leg = (&'static str, fn(&World) -> Result<(), Failed>);

/// Legs that make a copy; before each, none is there.
const COPIES: [Leg; 7] = [
    ("model prepare", |world| prepare(world, None)),
    ("model prepare, 1 thread", |world| prepare(world, Some(1))),
    ("model prepare, 2 threads", |world| prepare(world, Some(2))),
    ("cp", |world| cp(world).map(|_| ())),
    ("cp; sha256sum SOURCE", |world| {
        cp(world)?;
        sha256sum(&world.source).map(|_| ())
    }),
    ("cp; sha256sum SOURCE COPY", |world| {
        let copy = cp(world)?;
        match sha256sum(&world.source)? == sha256sum(&copy)? {
            true => Ok(()),
            false => Err("cp made another file".into()),
        }
    }),
    (OPENSSL, |world| {
        let copy = cp(world)?;
        match openssl(&world.source)? == openssl(&copy)? {
            true => Ok(()),
            false => Err("cp made another file".into()),
        }
    }),
];

/// The peer with the fastest SHA-256 of the host; coreutils may be built without it.
const OPENSSL: &str = "cp; openssl SOURCE COPY";

/// Legs on a copy that is there.
const LOOKS: [Leg; 6] = [
    ("look-up (no hash)", |world| find(world).map(|_| ())),
    ("model prepare again", |world| {
        let outcome = prepared(world, None)?;
        match outcome {
            ModelOutcome::Reused => Ok(()),
            other => Err(format!("expected a reuse, found {other:?}").into()),
        }
    }),
    ("model verify", verify),
    ("sha256sum COPY", |world| {
        sha256sum(&find(world)?.path).map(|_| ())
    }),
    ("model warm", |world| {
        let key = find(world)?.key;
        let warmed = models::warm(&world.root, key, &|_| (), &|| false)?;
        match warmed == Some(world.bytes) {
            true => Ok(()),
            false => Err(format!("warmed {warmed:?} bytes").into()),
        }
    }),
    ("cat COPY", |world| {
        let path = find(world)?.path;
        let nowhere = fs::File::create("/dev/null")?;
        let status = Command::new("cat").arg(path).stdout(nowhere).status()?;
        succeed(status.success(), "cat")
    }),
];

fn main() -> Result<(), Failed> {
    let arguments = parse(std::env::args().skip(1))?;
    let world = World::make(&arguments)?;
    let has_openssl = has_openssl();
    let mut times: Vec<(&str, Vec<u64>)> = Vec::new();
    for (name, _) in COPIES.iter().chain(&LOOKS) {
        times.push((name, Vec::new()));
    }
    for round in 0..arguments.rounds {
        for step in 0..COPIES.len() {
            // Another leg begins each round, and every other round goes backwards, so that none
            // always follows the same one.
            let count = COPIES.len();
            let index = match round % 2 {
                0 => (round + step) % count,
                _ => (round + count - step) % count,
            };
            let (name, work) = COPIES[index];
            if name.starts_with(&arguments.only) && (has_openssl || name != OPENSSL) {
                world.clear()?;
                world.set_cache()?;
                let begun = Instant::now();
                work(&world)?;
                times[index].1.push(elapsed_ns(begun)?);
            }
        }
        world.clear()?;
        prepare(&world, None)?;
        for (index, (name, work)) in LOOKS.iter().enumerate() {
            if name.starts_with(&arguments.only) {
                let begun = Instant::now();
                work(&world)?;
                times[COPIES.len() + index].1.push(elapsed_ns(begun)?);
            }
        }
    }
    print(&world, &times);
    write(&arguments, &world, &times)
}

impl World {
    fn make(arguments: &Arguments) -> Result<Self, Failed> {
        let id = std::process::id();
        let made = match &arguments.file {
            Some(_) => None,
            None => {
                let path = arguments.folder.join(format!("packhouse-bench-{id}.gguf"));
                fill(&path, arguments.bytes)?;
                Some(path)
            }
        };
        let source = arguments.file.clone().or_else(|| made.clone());
        let source = source.ok_or("no source")?.canonicalize()?;
        let stage = PathBuf::from(format!("/dev/shm/packhouse-bench-{id}"));
        let owners = Owners::new(RealFs.effective_uid(), &[]);
        let (fs, clock) = (Arc::new(RealFs), Arc::new(RealClock));
        let root = StageRoot::make(fs, clock, &stage, &owners)?;
        let bytes = source.metadata()?.len();
        let cold = arguments.cold;
        // Its times are settled in the first leg's stead.
        std::thread::sleep(std::time::Duration::from_secs(2));
        Ok(Self {
            source,
            made,
            stage,
            root,
            bytes,
            cold,
        })
    }

    /// Removes every copy.
    fn clear(&self) -> Result<(), Failed> {
        for listing in models::list(&self.root)? {
            models::drop_model(&self.root, listing.key, 0, &|| (), &|| false)?;
        }
        match fs::remove_file(self.plain_copy()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Puts the source into the page cache, or out of it.
    fn set_cache(&self) -> Result<(), Failed> {
        let files = [self.source.clone()];
        match self.cold {
            true => Ok(cache::drop_files(&files)?),
            false => Ok(cache::warm_files(&files)?),
        }
    }

    fn plain_copy(&self) -> PathBuf {
        self.stage.join("plain")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.stage);
        if let Some(path) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

/// Bytes that repeat nowhere, as those of a model.
fn fill(path: &Path, bytes: u64) -> Result<(), Failed> {
    let mut file = std::io::BufWriter::new(fs::File::create_new(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut left = bytes;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.to_le_bytes();
        let count = usize::try_from(left.min(8))?;
        file.write_all(&word[..count])?;
        left -= count as u64;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}

fn open(world: &World) -> Result<File, Failed> {
    let file = fs::File::open(&world.source)?;
    Ok(file_of_fd(file.into(), world.source.clone()))
}

fn prepared(world: &World, threads: Option<usize>) -> Result<ModelOutcome, Failed> {
    let files = [open(world)?];
    let files = ModelFiles {
        path: &world.source,
        files: &files,
        expected: &[],
    };
    let defaults = ModelOptions::default();
    let options = ModelOptions {
        min_free_bytes: 1 << 30,
        threads: threads
            .and_then(NonZeroUsize::new)
            .unwrap_or(defaults.threads),
        ..defaults
    };
    let quiet = ModelWatcher {
        tell: &|_| (),
        cancel: &|| false,
    };
    Ok(models::prepare(&world.root, None, files, &options, quiet)?.outcome)
}

fn prepare(world: &World, threads: Option<usize>) -> Result<(), Failed> {
    match prepared(world, threads)? {
        ModelOutcome::Copied { .. } => Ok(()),
        other => Err(format!("expected a copy, found {other:?}").into()),
    }
}

fn find(world: &World) -> Result<AdmittedModel, Failed> {
    let files = [SourceFile::Open(open(world)?)];
    let query = ModelQuery {
        path: &world.source,
        files: &files,
        expected: None,
    };
    Ok(models::find(&world.root, &query)?)
}

fn verify(world: &World) -> Result<(), Failed> {
    let keys: Vec<ModelKey> = vec![find(world)?.key];
    let threads = ModelOptions::default().threads;
    let found = models::verify(&world.root, &keys, threads, &|_| ())?;
    succeed(
        found.iter().all(models::ModelVerification::is_good),
        "verify",
    )
}

fn cp(world: &World) -> Result<PathBuf, Failed> {
    let copy = world.plain_copy();
    let status = Command::new("cp").arg(&world.source).arg(&copy).status()?;
    succeed(status.success(), "cp")?;
    Ok(copy)
}

fn sha256sum(path: &Path) -> Result<Digest, Failed> {
    let output = Command::new("sha256sum").arg("--").arg(path).output()?;
    succeed(output.status.success(), "sha256sum")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(Digest::parse(text.get(..64).ok_or("no digest")?)?)
}

/// The digest that openssl prints.
fn openssl(path: &Path) -> Result<Digest, Failed> {
    let words = ["dgst", "-sha256", "-r"];
    let output = Command::new("openssl").args(words).arg(path).output()?;
    succeed(output.status.success(), "openssl")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(Digest::parse(text.get(..64).ok_or("no digest")?)?)
}

fn has_openssl() -> bool {
    let asked = Command::new("openssl").arg("version").output();
    asked.is_ok_and(|output| output.status.success())
}

fn succeed(is_done: bool, what: &str) -> Result<(), Failed> {
    match is_done {
        true => Ok(()),
        false => Err(format!("{what} failed").into()),
    }
}

fn elapsed_ns(begun: Instant) -> Result<u64, Failed> {
    Ok(u64::try_from(begun.elapsed().as_nanos())?)
}

fn print(world: &World, times: &[(&str, Vec<u64>)]) {
    let cache = if world.cold { "not in" } else { "in" };
    println!("{} bytes, {cache} the page cache", world.bytes);
    println!(
        "{:<28}{:>12}{:>12}{:>12}{:>12}",
        "", "median ms", "least ms", "most ms", "MiB/s"
    );
    for (name, times) in times.iter().filter(|(_, times)| !times.is_empty()) {
        let ms = |ns: f64| ns / 1e6;
        let values: Vec<f64> = times.iter().map(|ns| *ns as f64).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let middle = median(&values).map_or(values[0], |median| median.value);
        let rate = world.bytes as f64 / f64::from(1 << 20) / (middle / 1e9);
        println!(
            "{name:<28}{:>12.3}{:>12.3}{:>12.3}{rate:>12.0}",
            ms(middle),
            ms(least),
            ms(most)
        );
    }
}

fn write(arguments: &Arguments, world: &World, times: &[(&str, Vec<u64>)]) -> Result<(), Failed> {
    let Some(folder) = &arguments.out else {
        return Ok(());
    };
    let legs: Vec<Value> = times
        .iter()
        .map(|(name, times)| json!({ "name": name, "duration_ns": times }))
        .collect();
    let from = world.source.parent().ok_or("no folder")?;
    let document = json!({
        "schema": "packhouse/bench-model/1",
        "host": host::identity(),
        "bytes": world.bytes,
        "source_file_system": host::file_system(from)?,
        "copy_file_system": host::file_system(&world.stage)?,
        "source_in_page_cache": !world.cold,
        "legs": legs,
    });
    fs::create_dir_all(folder)?;
    fs::write(folder.join("model.json"), format!("{document:#}\n"))?;
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Failed> {
    let mut arguments = Arguments {
        bytes: 256 << 20,
        file: None,
        rounds: 5,
        cold: false,
        only: String::new(),
        folder: std::env::temp_dir(),
        out: None,
    };
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--bytes" => arguments.bytes = value.parse::<u64>()?.max(1),
            "--file" => arguments.file = Some(value.into()),
            "--rounds" => arguments.rounds = value.parse::<usize>()?.max(1),
            "--cold" => arguments.cold = value == "yes",
            "--only" => arguments.only = value,
            "--folder" => arguments.folder = value.into(),
            "--out" => arguments.out = Some(value.into()),
            other => return Err(format!("unknown word {other}").into()),
        }
    }
    Ok(arguments)
}
