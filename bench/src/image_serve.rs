//! What a start costs with head images: off, cold and warm, and what a warm start is made of.
//!
//! Both tiles of a head are served by the library as an engine would be. In each round every leg
//! packs (off), packs and writes into an empty folder (cold), and reads what it wrote (warm, from
//! the page cache); then the same files are read, hashed and copied alone, on as many threads.
//! The bytes on disk are asserted.

use crate::intervals::median;
use packhouse_base::ggml_type::GgmlType;
use packhouse_image::{
    Dtype, HEADER_BYTES, Head, HeadDigest, Images, Mode, Owner, Serve, Settings,
};
use packhouse_layout::dequant::dequantise;
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::{FillParallel, Gather};
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

type Failed = Box<dyn Error>;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where images go; in a folder of its own, which is removed.
    pub folder: PathBuf,
    /// Rounds.
    pub rounds: u64,
    /// Threads, one leg each.
    pub threads: Vec<NonZeroUsize>,
    /// Orders, one leg each.
    pub orders: Vec<TileOrder>,
    /// Hidden size: a multiple of 32.
    pub depth: u64,
    /// Columns of a tile.
    pub columns: u64,
    /// Columns of the head.
    pub vocabulary: u64,
}

/// One way to serve, and the nanoseconds of its parts, by round.
struct Leg {
    geometry: TileGeometry,
    threads: NonZeroUsize,
    parts: BTreeMap<&'static str, Vec<u64>>,
}

/// Everything that is read and written.
struct Memory {
    stored: Vec<u8>,
    values: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    file: Vec<u8>,
    copied: Vec<u8>,
}

/// Runs all legs, interleaved. Returns the evidence and its table.
///
/// # Errors
/// Whatever the system says, sizes that make no tile, and what was not served as it had to be.
pub fn run(plan: &Plan) -> Result<(Value, String), Failed> {
    let folder = std::path::absolute(&plan.folder)?;
    fs::create_dir_all(&folder)?;
    let root = folder.join(format!("image-bench-{}", std::process::id()));
    let done = measure(plan, &root);
    let _ = fs::remove_dir_all(&root);
    let (legs, file_bytes) = done?;
    let stored_bytes = plan.vocabulary * row_bytes(plan.depth);
    let evidence = json!({
        "depth": plan.depth,
        "columns": plan.columns,
        "vocabulary": plan.vocabulary,
        "stored_bytes": stored_bytes,
        "image_bytes": file_bytes,
        "legs": legs.iter().map(Leg::evidence).collect::<Vec<_>>(),
    });
    Ok((evidence, render(&legs, file_bytes, stored_bytes)))
}

fn measure(plan: &Plan, root: &Path) -> Result<(Vec<Leg>, u64), Failed> {
    let mut legs = Vec::new();
    for order in &plan.orders {
        let sizes = TileSizes {
            kd: plan.depth,
            nd: plan.columns,
            kpad: plan.depth,
            t: plan.columns,
        };
        let geometry = TileGeometry::new(*order, sizes)?;
        legs.extend(plan.threads.iter().map(|threads| Leg {
            geometry,
            threads: *threads,
            parts: BTreeMap::new(),
        }));
    }
    let mut memory = Memory::new(plan)?;
    let mut bytes = 0;
    let count = u64::try_from(legs.len())?;
    for round in 0..plan.rounds {
        for turn in 0..count {
            let index = usize::try_from((round + turn) % count)?;
            bytes = legs[index].run(plan, root, &mut memory)?;
        }
    }
    Ok((legs, bytes))
}

impl Memory {
    fn new(plan: &Plan) -> Result<Self, Failed> {
        let (depth, row_bytes) = (
            usize::try_from(plan.depth)?,
            usize::try_from(row_bytes(plan.depth))?,
        );
        let vocabulary = usize::try_from(plan.vocabulary)?;
        let mut stored = vec![0; vocabulary * row_bytes];
        SplitMix64::new(20_261_129).fill(&mut stored);
        for block in stored.chunks_exact_mut(18) {
            // A scale of an ordinary size; quants stay random.
            block[1] = 0x20 | (block[1] & 0x83);
        }
        let mut values = vec![0.0; vocabulary * depth];
        for (row, values) in stored.chunks(row_bytes).zip(values.chunks_mut(depth)) {
            dequantise(q4_0(), row, values)?;
        }
        let code_bytes = usize::try_from(plan.depth * plan.columns)?;
        let scales = usize::try_from(plan.columns)?;
        let file_bytes = HEADER_BYTES + code_bytes + 4 * scales;
        Ok(Self {
            stored,
            values,
            codes: vec![1; code_bytes],
            scales: vec![1.0; scales],
            file: vec![1; file_bytes],
            copied: vec![1; file_bytes],
        })
    }
}

impl Leg {
    /// One round; returns the bytes of the images.
    fn run(&mut self, plan: &Plan, root: &Path, memory: &mut Memory) -> Result<u64, Failed> {
        let (stored, values) = (
            std::mem::take(&mut memory.stored),
            std::mem::take(&mut memory.values),
        );
        let done = self.serve_all(plan, root, memory, (&stored, &values));
        (memory.stored, memory.values) = (stored, values);
        done?;
        let files = image_files(root)?;
        let bytes = self.read_alone(&files, memory)?;
        fs::remove_dir_all(root)?;
        Ok(bytes)
    }

    fn serve_all(
        &mut self,
        plan: &Plan,
        root: &Path,
        memory: &mut Memory,
        (stored, values): (&[u8], &[f32]),
    ) -> Result<(), Failed> {
        let depth = usize::try_from(plan.depth)?;
        let row_bytes = usize::try_from(row_bytes(plan.depth))?;
        let from_stored = |column: u64, target: &mut [f32]| {
            let row = &stored[column as usize * row_bytes..][..row_bytes];
            dequantise(q4_0(), row, target).map_err(|error| error.to_string())
        };
        let from_values = |column: u64, target: &mut [f32]| {
            target.copy_from_slice(&values[column as usize * depth..][..depth]);
            Ok(())
        };
        if root.exists() {
            fs::remove_dir_all(root)?;
        }
        for (name, mode, fill) in [
            (
                "off, Q4_0",
                Mode::Off,
                &from_stored as &FillParallel<'_, String>,
            ),
            ("off, F32", Mode::Off, &from_values),
            ("cold", Mode::ReadWrite, &from_stored),
            ("warm", Mode::ReadWrite, &from_stored),
        ] {
            let mut settings = Settings::new();
            settings.mode = mode;
            settings.threads = self.threads;
            settings.max_bytes = Some(u64::MAX);
            settings.min_free_bytes = 0;
            self.serve(name, plan, root, settings, stored, fill, memory)?;
        }
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one start, and all that it needs"
    )]
    fn serve(
        &mut self,
        name: &'static str,
        plan: &Plan,
        root: &Path,
        settings: Settings,
        stored: &[u8],
        fill: &FillParallel<'_, String>,
        memory: &mut Memory,
    ) -> Result<(), Failed> {
        let is_on = settings.mode != Mode::Off;
        let start = Instant::now();
        let (fs, clock) = (Arc::new(RealFs), Arc::new(RealClock));
        let images = Images::open(fs, clock, Some(root), settings);
        // As a process that begins: no fingerprint is known yet.
        let packers = Arc::new(Packers::detect());
        let fingerprint_start = Instant::now();
        if is_on {
            packers.tile_fingerprint(self.geometry.order());
        }
        let fingerprint_ns = ns_since(fingerprint_start);
        let dtype = Dtype::new("Q4_0")?;
        let digest_start = Instant::now();
        // What is off needs no digest.
        let hashed: &[u8] = if is_on { stored } else { &[] };
        let digest = HeadDigest::of(
            plan.vocabulary,
            plan.depth,
            false,
            &dtype,
            &[hashed],
            self.threads,
        );
        let head_hash_ns = ns_since(digest_start);
        let head = Head {
            vocabulary: plan.vocabulary,
            width: plan.depth,
            tied: false,
            dtype,
            digest,
        };
        let owner = Owner::new("bench")?;
        let mut serve = images.serve(packers, head, self.geometry, owner)?;
        for tile in 0..serve.tile_count() {
            let gather = Gather::Parallel(fill);
            serve
                .tile(
                    tile,
                    plan.depth,
                    gather,
                    &mut memory.codes,
                    &mut memory.scales,
                )
                .map_err(|error| error.to_string())?;
        }
        let all_ns = ns_since(start);
        self.note(
            name,
            &serve,
            &[
                ("all", all_ns),
                ("fingerprint", fingerprint_ns),
                ("head hash", head_hash_ns),
            ],
        )
    }

    /// Keeps what a start took, when it did what it had to.
    fn note(&mut self, name: &str, serve: &Serve, timed: &[(&str, u64)]) -> Result<(), Failed> {
        let (counters, tiles) = (serve.counters(), serve.tile_count());
        let expected = match name {
            "warm" => (tiles, 0, 0),
            "cold" => (0, tiles, tiles),
            _ => (0, tiles, 0),
        };
        let actual = (
            counters.tiles_hit,
            counters.tiles_packed,
            counters.tiles_written,
        );
        if actual != expected {
            return Err(format!("{name}: {}", serve.line()).into());
        }
        let counted = [
            ("read and hash", counters.read_ns),
            ("sample", counters.sample_ns),
            ("pack", counters.pack_ns),
            ("write", counters.write_ns),
        ];
        for (part, ns) in timed.iter().chain(&counted) {
            if let Some(part) = part_name(name, part) {
                self.parts.entry(part).or_default().push(*ns);
            }
        }
        Ok(())
    }

    /// Reads, hashes and copies the same files; asserts their bytes.
    fn read_alone(&mut self, files: &[PathBuf], memory: &mut Memory) -> Result<u64, Failed> {
        let file_bytes = memory.file.len() as u64;
        let (mut read_ns, mut hash_ns, mut copy_ns, mut bytes) = (0, 0, 0, 0);
        let piece = memory.file.len().div_ceil(self.threads.get());
        let dtype = Dtype::new("Q4_0")?;
        for path in files {
            let length = fs::metadata(path)?.len();
            if length != file_bytes {
                return Err(format!("{}: {length} bytes, not {file_bytes}", path.display()).into());
            }
            bytes += length;
            let file = File::open(path)?;
            let start = Instant::now();
            thread::scope(|scope| {
                let pieces = (0u64..).zip(memory.file.chunks_mut(piece));
                let read = |(index, target): (u64, &mut [u8])| {
                    let mut at = index * piece as u64;
                    // Pieces that stay in a cache, as those that are hashed.
                    target.chunks_mut(1 << 18).try_for_each(|target| {
                        at += target.len() as u64;
                        file.read_exact_at(target, at - target.len() as u64)
                    })
                };
                let threads: Vec<_> = pieces
                    .map(|piece| scope.spawn(move || read(piece)))
                    .collect();
                threads
                    .into_iter()
                    .try_for_each(|thread| match thread.join() {
                        Ok(read) => read,
                        Err(panic) => std::panic::resume_unwind(panic),
                    })
            })?;
            read_ns += ns_since(start);
            let start = Instant::now();
            let digest = HeadDigest::of(1, 1, false, &dtype, &[&memory.file], self.threads);
            hash_ns += ns_since(start);
            std::hint::black_box(digest);
            let start = Instant::now();
            thread::scope(|scope| {
                let targets = memory.copied.chunks_mut(piece);
                for (target, source) in targets.zip(memory.file.chunks(piece)) {
                    scope.spawn(move || target.copy_from_slice(source));
                }
            });
            copy_ns += ns_since(start);
        }
        for (part, ns) in [
            ("files: read alone", read_ns),
            ("files: BLAKE3 alone", hash_ns),
            ("files: memcpy", copy_ns),
        ] {
            self.parts.entry(part).or_default().push(ns);
        }
        Ok(bytes)
    }

    fn evidence(&self) -> Value {
        json!({
            "layout": self.geometry.order().layout().id(),
            "threads": self.threads.get(),
            "ns": self.parts,
        })
    }
}

/// Parts that a start has.
fn part_name(start: &str, part: &str) -> Option<&'static str> {
    let known = [
        "off, Q4_0: all",
        "off, F32: all",
        "cold: all",
        "cold: fingerprint",
        "cold: head hash",
        "cold: pack",
        "cold: write",
        "warm: all",
        "warm: fingerprint",
        "warm: head hash",
        "warm: read and hash",
        "warm: sample",
    ];
    let name = format!("{start}: {part}");
    known.into_iter().find(|known| *known == name)
}

fn image_files(root: &Path) -> Result<Vec<PathBuf>, Failed> {
    let files = crate::cache::files_below(root).into_iter();
    let files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "phti"))
        .collect();
    match files.is_empty() {
        true => Err("no image was written".into()),
        false => Ok(files),
    }
}

/// Rates are of the images' bytes, or of the stored head's where that is hashed.
fn render(legs: &[Leg], image_bytes: u64, stored_bytes: u64) -> String {
    let mut lines = vec![
        "| layout, threads | part | ms: median (interval) | range | GB/s |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for leg in legs {
        let (layout, threads) = (leg.geometry.order().layout().id(), leg.threads);
        for (part, ns) in &leg.parts {
            let ms: Vec<f64> = ns.iter().map(|ns| *ns as f64 / 1e6).collect();
            let Some(all) = median(&ms) else { continue };
            let range = ms
                .iter()
                .copied()
                .fold((f64::MAX, 0.0f64), |(low, high), ms| {
                    (low.min(ms), high.max(ms))
                });
            let bytes = if part.ends_with("head hash") {
                stored_bytes
            } else {
                image_bytes
            };
            // A start's parts that are no pass over bytes have no rate.
            let has_rate = !part.ends_with("fingerprint") && !part.ends_with("sample");
            let rate = if has_rate {
                format!("{:.2}", bytes as f64 / 1e6 / all.value)
            } else {
                String::new()
            };
            lines.push(format!(
                "| {layout}, {threads} | {part} | {:.1} ({:.1}-{:.1}) | {:.1}-{:.1} | {rate} |",
                all.value, all.low, all.high, range.0, range.1,
            ));
        }
    }
    lines.join("\n")
}

const fn row_bytes(depth: u64) -> u64 {
    depth / 32 * 18
}

fn q4_0() -> GgmlType {
    GgmlType::from_name("Q4_0").expect("because Q4_0 is current")
}

fn ns_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
