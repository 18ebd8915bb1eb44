//! Head tiles: `image pack` measures the packer, `image serve` a start with images.
//!
//! `image serve --folder DIR [--rounds N] [--threads N,...] [--orders rm|b8,...] [--depth H]
//! [--columns T] [--vocabulary N] [--busy N] [--out DIR]`: see `packhouse_bench::image_serve`. With
//! `--busy` so many threads of another process compute all the while.
//!
//! `image pack [--rounds N] [--threads N,...] [--orders rm|b8,...] [--levels NAME,...]
//! [--gathers copy|serial|none,...] [--depth H] [--columns T] [--offset N] [--out DIR]`: one tile
//! from f32 columns in memory against memcpy, interleaved; the evidence file and its table.
//!
//! Per round each packer runs right after a memcpy on as many threads that reads and writes as many
//! bytes in all: 4 H T read and H T written by the packer, so 2.5 H T copied. Only ratios within
//! such a pair are compared. The source is whole, 448 MiB for the default tile, and so is not in
//! the caches of any CPU of today when it comes round again. With the gather `serial` the calling
//! thread alone copies columns; with `none` no column is filled but for one value, which is what
//! the packer costs without a source. The target begins `offset` bytes after the beginning of a
//! cache line.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program: it reads its arguments and clock, writes its evidence and prints its table"
)]

use packhouse_bench::host;
use packhouse_bench::image_serve::{self, Plan};
use packhouse_bench::intervals::median;
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_pack::int8_tile::Gather;
use packhouse_pack::{IsaLevel, Packers};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

const LINE_BYTES: usize = 64;

struct Arguments {
    rounds: usize,
    threads: Vec<NonZeroUsize>,
    orders: Vec<TileOrder>,
    levels: Vec<IsaLevel>,
    gathers: Vec<Columns>,
    depth: u64,
    columns: u64,
    offset: usize,
    out: Option<PathBuf>,
}

/// How a column is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Columns {
    /// From the source.
    Copied,
    /// The same, on the calling thread only.
    Serial,
    /// With one value.
    None,
}

/// One way to pack, and what it took in each round.
struct Leg {
    packers: Packers,
    geometry: TileGeometry,
    threads: NonZeroUsize,
    columns: Columns,
    memcpy_ns: Vec<u64>,
    pack_ns: Vec<u64>,
}

/// Everything that legs read and write.
struct Memory {
    source: Vec<f32>,
    copied: Vec<f32>,
    codes: Vec<i8>,
    codes_at: usize,
    scales: Vec<f32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("pack") => pack(&parse(words)?),
        Some("serve") => serve(words),
        Some("busy") => busy(words.next().ok_or("how many threads?")?.parse()?),
        Some(other) => Err(format!("no such part: {other}").into()),
        None => Err("which part? pack or serve".into()),
    }
}

/// Computes on so many threads until standard input ends, as it does when who asked is gone.
fn busy(threads: usize) -> Result<(), Box<dyn Error>> {
    for _ in 0..threads {
        thread::spawn(|| {
            let mut stream = SplitMix64::new(0);
            loop {
                std::hint::black_box(stream.next());
            }
        });
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn serve(mut words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let mut plan = Plan {
        folder: PathBuf::new(),
        rounds: 7,
        threads: [1, 2].into_iter().filter_map(NonZeroUsize::new).collect(),
        orders: vec![TileOrder::RowMajor, TileOrder::Blocked],
        depth: 4096,
        columns: 28672,
        vocabulary: 32000,
    };
    let (mut busy_threads, mut out) = (0usize, None::<PathBuf>);
    while let Some(flag) = words.next() {
        let value = words.next().ok_or_else(|| format!("no value for {flag}"))?;
        let list = value.split(',');
        match flag.as_str() {
            "--folder" => plan.folder = value.into(),
            "--rounds" => plan.rounds = value.parse()?,
            "--threads" => plan.threads = list.map(str::parse).collect::<Result<_, _>>()?,
            "--orders" => plan.orders = list.map(order_of).collect::<Result<_, _>>()?,
            "--depth" => plan.depth = value.parse()?,
            "--columns" => plan.columns = value.parse()?,
            "--vocabulary" => plan.vocabulary = value.parse()?,
            "--busy" => busy_threads = value.parse()?,
            "--out" => out = Some(value.into()),
            other => return Err(format!("unknown option: {other}").into()),
        }
    }
    if plan.folder.as_os_str().is_empty() {
        return Err("which folder? --folder DIR".into());
    }
    let host = host::identity();
    let other = (busy_threads > 0).then(|| {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        let command = command.arg("busy").arg(busy_threads.to_string());
        command.stdin(Stdio::piped()).spawn()
    });
    let other = other.transpose()?;
    let done = image_serve::run(&plan);
    if let Some(mut other) = other {
        other.kill()?;
        other.wait()?;
    }
    let (run, table) = done?;
    println!("{table}");
    if let Some(out) = out {
        fs::create_dir_all(&out)?;
        let evidence = json!({
            "schema": "packhouse/bench/image-serve/1",
            "host": host,
            "file_system": host::file_system(&plan.folder)?,
            "busy_threads": busy_threads,
            "run": run,
        });
        let name = if busy_threads > 0 {
            "image-serve-busy"
        } else {
            "image-serve"
        };
        let text = serde_json::to_string_pretty(&evidence)?;
        fs::write(out.join(format!("{name}.json")), text + "\n")?;
        fs::write(out.join(format!("{name}.md")), table + "\n")?;
    }
    Ok(())
}

fn order_of(name: &str) -> Result<TileOrder, String> {
    match name {
        "rm" => Ok(TileOrder::RowMajor),
        "b8" => Ok(TileOrder::Blocked),
        other => Err(format!("no such order: {other}")),
    }
}

fn pack(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut legs = legs(arguments)?;
    let mut memory = Memory::new(arguments)?;
    let leg_count = legs.len();
    for round in 0..arguments.rounds {
        for turn in 0..leg_count {
            legs[(round + turn) % leg_count].run(&mut memory)?;
        }
    }
    let table = render(&legs);
    println!("{table}");
    if let Some(out) = &arguments.out {
        fs::create_dir_all(out)?;
        let evidence = json!({
            "schema": "packhouse/bench/image-pack/1",
            "host": host::identity(),
            "offset": arguments.offset,
            "legs": legs.iter().map(Leg::evidence).collect::<Vec<_>>(),
        });
        let text = serde_json::to_string_pretty(&evidence)?;
        fs::write(out.join("image-pack.json"), text + "\n")?;
        fs::write(out.join("image-pack.md"), table + "\n")?;
    }
    Ok(())
}

fn legs(arguments: &Arguments) -> Result<Vec<Leg>, Box<dyn Error>> {
    let mut legs = Vec::new();
    for columns in &arguments.gathers {
        let orders = arguments.orders.iter();
        let ways =
            orders.flat_map(|order| arguments.levels.iter().map(move |level| (order, level)));
        for (order, level) in ways {
            for threads in &arguments.threads {
                let Some(packers) = Packers::at(*level) else {
                    println!("SKIP: this CPU has no {}", level.name());
                    continue;
                };
                let sizes = TileSizes {
                    kd: arguments.depth,
                    nd: arguments.columns,
                    kpad: arguments.depth,
                    t: arguments.columns,
                };
                legs.push(Leg {
                    packers,
                    geometry: TileGeometry::new(*order, sizes)?,
                    threads: *threads,
                    columns: *columns,
                    memcpy_ns: Vec::new(),
                    pack_ns: Vec::new(),
                });
            }
        }
    }
    Ok(legs)
}

impl Memory {
    fn new(arguments: &Arguments) -> Result<Self, Box<dyn Error>> {
        let (depth, columns) = (
            usize::try_from(arguments.depth)?,
            usize::try_from(arguments.columns)?,
        );
        let mut stream = SplitMix64::new(20_261_129);
        let value = |draw: u64| (draw >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let values = (0..depth * columns).map(|_| value(stream.next()));
        let source: Vec<f32> = values.collect();
        let codes = vec![1; depth * columns + 2 * LINE_BYTES];
        // A tile on a device begins at a page, so the bench's begins at a cache line.
        let codes_at = codes.as_ptr().align_offset(LINE_BYTES) + arguments.offset;
        Ok(Self {
            copied: vec![1.0; depth * columns * 5 / 8],
            source,
            codes,
            codes_at,
            scales: vec![1.0; columns],
        })
    }
}

impl Leg {
    fn run(&mut self, memory: &mut Memory) -> Result<(), Box<dyn Error>> {
        let threads = self.threads.get();
        self.memcpy_ns.push(timed(|| {
            let count = memory.copied.len();
            let piece = count.div_ceil(threads);
            let targets = memory.copied.chunks_mut(piece);
            let mut pairs = targets.zip(memory.source[..count].chunks(piece));
            thread::scope(|scope| {
                let here = pairs.next();
                for (target, source) in pairs {
                    scope.spawn(|| target.copy_from_slice(source));
                }
                if let Some((target, source)) = here {
                    target.copy_from_slice(source);
                }
            });
        }));
        let depth = usize::try_from(self.geometry.kpad())?;
        let source = std::mem::take(&mut memory.source);
        let mut scales = std::mem::take(&mut memory.scales);
        let copy = |column: u64, values: &mut [f32]| {
            values.copy_from_slice(&source[column as usize * depth..][..depth]);
            Ok::<(), Infallible>(())
        };
        let none = |column: u64, values: &mut [f32]| {
            values[0] = column as f32;
            Ok::<(), Infallible>(())
        };
        let mut serial = copy;
        let gather = match self.columns {
            Columns::Copied => Gather::Parallel(&copy),
            Columns::Serial => Gather::Serial(&mut serial),
            Columns::None => Gather::Parallel(&none),
        };
        let all = 0..self.geometry.t();
        let codes = &mut memory.codes[memory.codes_at..][..source.len()];
        self.pack_ns.push(timed(|| {
            let packed = self.packers.pack_tile(
                &self.geometry,
                all,
                gather,
                codes,
                &mut scales,
                self.threads,
            );
            match packed {
                Ok(sum) => std::hint::black_box(sum),
                Err(never) => match never {},
            };
        }));
        memory.source = source;
        memory.scales = scales;
        Ok(())
    }

    fn name(&self) -> String {
        let order = self.geometry.order().layout().id();
        let (depth, columns) = (self.geometry.kpad(), self.geometry.t());
        let (level, threads) = (self.packers.tile_level().name(), self.threads);
        let gather = name(self.columns);
        format!("{order} {depth}x{columns} {level} {threads} thread(s), gather {gather}")
    }

    fn evidence(&self) -> Value {
        json!({
            "layout": self.geometry.order().layout().id(),
            "depth": self.geometry.kpad(),
            "columns": self.geometry.t(),
            "level": self.packers.tile_level().name(),
            "threads": self.threads.get(),
            "gather": name(self.columns),
            "memcpy_ns": self.memcpy_ns,
            "pack_ns": self.pack_ns,
        })
    }
}

fn timed(work: impl FnOnce()) -> u64 {
    let start = Instant::now();
    work();
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Rates are of half the bytes that are read and written; the ratio is of rates.
fn render(legs: &[Leg]) -> String {
    let mut lines = vec![
        "| layout, tile, level | ms | GB/s | memcpy GB/s | pack / memcpy |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for leg in legs {
        let bytes = (leg.geometry.kpad() * leg.geometry.t()) as f64 * 2.5;
        let of = |values: Vec<f64>| median(&values);
        let all = |f: &dyn Fn(f64) -> f64, ns: &[u64]| {
            let value = of(ns.iter().map(|ns| f(*ns as f64)).collect());
            value.map_or_else(String::new, |value| format!("{:.2}", value.value))
        };
        let pairs = leg.memcpy_ns.iter().zip(&leg.pack_ns);
        let ratios = pairs.map(|(memcpy, own)| *memcpy as f64 / *own as f64);
        let ratio = of(ratios.collect()).map_or_else(String::new, |ratio| {
            format!("{:.2} ({:.2}-{:.2})", ratio.value, ratio.low, ratio.high)
        });
        lines.push(format!(
            "| {} | {} | {} | {} | {ratio} |",
            leg.name(),
            all(&|ns| ns / 1e6, &leg.pack_ns),
            all(&|ns| bytes / ns, &leg.pack_ns),
            all(&|ns| bytes / ns, &leg.memcpy_ns),
        ));
    }
    lines.join("\n")
}

const fn name(columns: Columns) -> &'static str {
    match columns {
        Columns::Copied => "copy",
        Columns::Serial => "serial",
        Columns::None => "none",
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments {
        rounds: 7,
        threads: [1, 2].into_iter().filter_map(NonZeroUsize::new).collect(),
        orders: vec![TileOrder::RowMajor, TileOrder::Blocked],
        levels: IsaLevel::ALL.to_vec(),
        gathers: vec![Columns::Copied, Columns::Serial],
        depth: 4096,
        columns: 28672,
        offset: 0,
        out: None,
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or_else(|| format!("no value for {flag}"))?;
        let no = |what: &str, name: &str| format!("no such {what}: {name}");
        let list = value.split(',');
        match flag.as_str() {
            "--rounds" => arguments.rounds = value.parse()?,
            "--threads" => arguments.threads = list.map(str::parse).collect::<Result<_, _>>()?,
            "--depth" => arguments.depth = value.parse()?,
            "--columns" => arguments.columns = value.parse()?,
            "--offset" => arguments.offset = value.parse::<usize>()?.min(LINE_BYTES - 1),
            "--out" => arguments.out = Some(value.into()),
            "--orders" => {
                arguments.orders = list.map(order_of).collect::<Result<_, _>>()?;
            }
            "--gathers" => {
                let gathers = [Columns::Copied, Columns::Serial, Columns::None];
                let gathers = list.map(|word| {
                    let found = gathers.into_iter().find(|gather| name(*gather) == word);
                    found.ok_or_else(|| no("gather", word))
                });
                arguments.gathers = gathers.collect::<Result<_, _>>()?;
            }
            "--levels" => {
                let levels =
                    list.map(|name| IsaLevel::from_name(name).ok_or_else(|| no("level", name)));
                arguments.levels = levels.collect::<Result<_, _>>()?;
            }
            other => return Err(format!("unknown option: {other}").into()),
        }
    }
    Ok(arguments)
}
