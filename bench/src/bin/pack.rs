//! `pack [--rounds N] [--threads N] [--offset N] [--layouts ID,...] [--levels NAME,...]
//! [--peer PYTHON] [--out DIR]`: packers in memory against memcpy of the same bytes, interleaved;
//! their evidence file and their table. The target begins `offset` bytes after the beginning of a
//! cache line.
//!
//! Per round each packer runs right after a memcpy of its source into its target, and only ratios
//! within such a pair are compared. Source and target were touched before; they are each as large
//! as one feed-forward matrix of a 27B model, more than a core's own caches hold. With `--peer` the
//! NumPy peer of `bench-compare` packs the same shapes in each round, to the same bytes.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program: it reads its arguments and clock, writes its evidence and prints its table"
)]

use packhouse_base::ggml_type::GgmlType;
use packhouse_bench::host;
use packhouse_bench::intervals::median;
use packhouse_bench::peer::Peer;
use packhouse_layout::ggml_cpu_repack::twin::Twin;
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::{IsaLevel, Kernel, Packers};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

/// The gate, up and down matrices of a 27B model.
const SHAPES: [[u64; 2]; 2] = [[5120, 17408], [17408, 5120]];

const LINE_BYTES: usize = 64;

struct Arguments {
    rounds: usize,
    threads: NonZeroUsize,
    offset: usize,
    layouts: Vec<Layout>,
    levels: Vec<IsaLevel>,
    peer: Option<PathBuf>,
    out: Option<PathBuf>,
}

/// One packer on one tensor, and what it took in each round.
struct Leg {
    kernel: Kernel,
    memcpy_ns: Vec<u64>,
    pack_ns: Vec<u64>,
    unpack_ns: Vec<u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = parse(std::env::args().skip(1))?;
    let mut legs = legs(&arguments)?;
    let largest = |bytes: fn(&Admitted) -> u64| {
        let bytes = legs.iter().map(|leg| bytes(leg.kernel.admitted())).max();
        usize::try_from(bytes.unwrap_or(0))
    };
    let mut source = vec![0; largest(Admitted::source_bytes)?];
    // A payload that is mapped begins at a page, so the bench's begins at a cache line.
    let mut target = vec![1; largest(Admitted::payload_bytes)? + 2 * LINE_BYTES];
    let target_at = target.as_ptr().align_offset(LINE_BYTES) + arguments.offset;
    let mut back = vec![1; source.len()];
    SplitMix64::new(20_250_117).fill(&mut source);
    let leg_count = legs.len();
    let mut peers = peers(&arguments)?;
    for round in 0..arguments.rounds {
        for turn in 0..leg_count {
            let leg = &mut legs[(round + turn) % leg_count];
            run(
                leg,
                arguments.threads,
                &source,
                &mut target[target_at..],
                &mut back,
            )?;
        }
        peers.iter_mut().try_for_each(Peer::run)?;
    }
    let table = [render(&legs), render_peers(&legs, &peers)].concat();
    println!("{table}");
    if let Some(out) = &arguments.out {
        fs::create_dir_all(out)?;
        let evidence = json!({
            "schema": "packhouse/bench/pack/1",
            "host": host::identity(),
            "threads": arguments.threads.get(),
            "legs": legs.iter().map(evidence).collect::<Vec<_>>(),
            "peers": peers
                .iter()
                .map(|peer| json!({"dims": peer.admitted().dims(), "pack_ns": peer.pack_ns}))
                .collect::<Vec<_>>(),
        });
        let text = serde_json::to_string_pretty(&evidence)?;
        fs::write(out.join("pack.json"), text + "\n")?;
        fs::write(out.join("pack.md"), table + "\n")?;
    }
    Ok(())
}

fn legs(arguments: &Arguments) -> Result<Vec<Leg>, Box<dyn Error>> {
    let mut legs = Vec::new();
    for layout in &arguments.layouts {
        let types = types(*layout).into_iter();
        for (ty, dims) in types.flat_map(|ty| SHAPES.map(|dims| (ty, dims))) {
            let admitted = layout.admit(ty, &dims, &BTreeMap::new())?;
            for level in &arguments.levels {
                let Some(packers) = Packers::at(*level) else {
                    println!("SKIP: this CPU has no {}", level.name());
                    continue;
                };
                match packers.kernel(&admitted) {
                    Ok(kernel) if kernel.level() == *level => legs.push(Leg {
                        kernel,
                        memcpy_ns: Vec::new(),
                        pack_ns: Vec::new(),
                        unpack_ns: Vec::new(),
                    }),
                    // A lower level's kernel serves, and has its own leg.
                    Ok(_) => {}
                    Err(none) => println!("SKIP: {none}"),
                }
            }
        }
    }
    Ok(legs)
}

fn peers(arguments: &Arguments) -> Result<Vec<Peer>, Box<dyn Error>> {
    let Some(python) = &arguments.peer else {
        return Ok(Vec::new());
    };
    let peer = |dims: [u64; 2]| {
        let admitted = Layout::Q4_0Xe2DpasV2.admit(Twin::Q4_0.ty(), &dims, &BTreeMap::new())?;
        Peer::new(python, admitted)
    };
    SHAPES.into_iter().map(peer).collect()
}

/// All types that the twins pack, and Q4_0 in every other layout.
fn types(layout: Layout) -> Vec<GgmlType> {
    if layout == Layout::GgmlCpuRepack {
        Twin::ALL.map(Twin::ty).to_vec()
    } else {
        vec![Twin::Q4_0.ty()]
    }
}

fn run(
    leg: &mut Leg,
    threads: NonZeroUsize,
    source: &[u8],
    target: &mut [u8],
    back: &mut [u8],
) -> Result<(), Box<dyn Error>> {
    let admitted = leg.kernel.admitted();
    let source = &source[..usize::try_from(admitted.source_bytes())?];
    let target = &mut target[..usize::try_from(admitted.payload_bytes())?];
    let back = &mut back[..source.len()];
    leg.memcpy_ns.push(timed(|| {
        let common = source.len().min(target.len());
        target[..common].copy_from_slice(&source[..common]);
    }));
    leg.pack_ns
        .push(timed(|| leg.kernel.pack_parallel(source, target, threads)));
    let inverse = leg.kernel.inverse()?;
    leg.unpack_ns
        .push(timed(|| inverse.unpack_parallel(target, back, threads)));
    if source == back {
        Ok(())
    } else {
        Err(format!("{} does not give its source back", name(leg)).into())
    }
}

fn timed(work: impl FnOnce()) -> u64 {
    let start = Instant::now();
    work();
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn name(leg: &Leg) -> String {
    let admitted = leg.kernel.admitted();
    let [columns, rows] = [admitted.dims()[0], admitted.dims()[1]];
    let (layout, level) = (admitted.layout().id(), leg.kernel.level().name());
    let type_name = admitted.ty().name();
    format!("{layout} {type_name} {columns}x{rows} {level}")
}

fn evidence(leg: &Leg) -> Value {
    let admitted = leg.kernel.admitted();
    json!({
        "layout": admitted.layout().id(),
        "type": admitted.ty().name(),
        "dims": admitted.dims(),
        "level": leg.kernel.level().name(),
        "source_bytes": admitted.source_bytes(),
        "payload_bytes": admitted.payload_bytes(),
        "memcpy_ns": leg.memcpy_ns,
        "pack_ns": leg.pack_ns,
        "unpack_ns": leg.unpack_ns,
    })
}

/// Rates are of source bytes; ratios are rates over memcpy's.
fn render(legs: &[Leg]) -> String {
    let mut lines = vec![
        "| layout, shape, level | memcpy GB/s | pack GB/s | pack / memcpy | unpack / memcpy |"
            .to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for leg in legs {
        let bytes = leg.kernel.admitted().source_bytes() as f64;
        let rate = |all: &[u64]| {
            let rates: Vec<f64> = all.iter().map(|ns| bytes / *ns as f64).collect();
            median(&rates).map_or_else(String::new, |rate| format!("{:.2}", rate.value))
        };
        let ratio = |all: &[u64]| {
            let pairs = leg.memcpy_ns.iter().zip(all);
            let ratios: Vec<f64> = pairs
                .map(|(memcpy, own)| *memcpy as f64 / *own as f64)
                .collect();
            median(&ratios).map_or_else(String::new, |ratio| {
                format!("{:.2} ({:.2}-{:.2})", ratio.value, ratio.low, ratio.high)
            })
        };
        lines.push(format!(
            "| {} | {} | {} | {} | {} |",
            name(leg),
            rate(&leg.memcpy_ns),
            rate(&leg.pack_ns),
            ratio(&leg.pack_ns),
            ratio(&leg.unpack_ns)
        ));
    }
    lines.join("\n")
}

/// How many times as long the peer takes as each of our packers of its tensor.
fn render_peers(legs: &[Leg], peers: &[Peer]) -> String {
    let mut lines = Vec::new();
    for peer in peers {
        let alike = legs
            .iter()
            .filter(|leg| leg.kernel.admitted() == peer.admitted());
        for leg in alike {
            let pairs = peer.pack_ns.iter().zip(&leg.pack_ns);
            let ratios: Vec<f64> = pairs
                .map(|(peer, own)| *peer as f64 / *own as f64)
                .collect();
            if let Some(ratio) = median(&ratios) {
                let (value, low, high) = (ratio.value, ratio.low, ratio.high);
                let name = name(leg);
                lines.push(format!(
                    "\n\nNumPy / {name}: {value:.1} ({low:.1}-{high:.1})"
                ));
            }
        }
    }
    lines.concat()
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments {
        rounds: 15,
        threads: NonZeroUsize::MIN,
        offset: 0,
        layouts: vec![
            Layout::Q4_0Xe2DpasV2,
            Layout::Q4_0JointN,
            Layout::Q4_0Reordered,
            Layout::GgmlCpuRepack,
        ],
        levels: vec![IsaLevel::Avx2, IsaLevel::Avx512],
        peer: None,
        out: None,
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or_else(|| format!("no value for {flag}"))?;
        let no = |what: &str, name: &str| format!("no such {what}: {name}");
        let list = value.split(',');
        match flag.as_str() {
            "--rounds" => arguments.rounds = value.parse()?,
            "--threads" => arguments.threads = value.parse()?,
            "--offset" => arguments.offset = value.parse::<usize>()?.min(LINE_BYTES - 1),
            "--peer" => arguments.peer = Some(value.into()),
            "--out" => arguments.out = Some(value.into()),
            "--layouts" => {
                let layouts = list.map(|id| Layout::from_id(id).ok_or_else(|| no("layout", id)));
                arguments.layouts = layouts.collect::<Result<_, _>>()?;
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
