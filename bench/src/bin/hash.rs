//! `hash [--rounds N]`: SHA-256 of 1 to 32 streams at once, for each choice of kernels that this
//! CPU has, interleaved; bytes per nanosecond (GB/s) on one core, medians with their intervals.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program: it reads its arguments and prints its table"
)]

use packhouse_bench::intervals;
use packhouse_hash::{Kernels, Sha256, update_many_with};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let rounds: usize = match (words.next().as_deref(), words.next()) {
        (None, None) => 9,
        (Some("--rounds"), Some(count)) => count.parse()?,
        _ => return Err("hash [--rounds N]".into()),
    };
    let pool = vec![0x5a_u8; STREAMS[STREAMS.len() - 1] * STREAM_BYTES];
    let choices = Kernels::all();
    let mut rates = vec![vec![Vec::new(); STREAMS.len()]; choices.len()];
    for _ in 0..rounds {
        for (column, count) in STREAMS.into_iter().enumerate() {
            for (row, (_, kernels)) in choices.iter().enumerate() {
                let inputs: Vec<&[u8]> = pool.chunks(STREAM_BYTES).take(count).collect();
                let start = Instant::now();
                run(*kernels, &inputs);
                let ns = start.elapsed().as_nanos() as f64;
                rates[row][column].push((count * STREAM_BYTES) as f64 / ns);
            }
        }
    }
    println!("| kernels | streams | GB/s | interval |\n|---|---|---|---|");
    for ((name, _), rates) in choices.iter().zip(&rates) {
        for (count, rates) in STREAMS.iter().zip(rates) {
            let median = intervals::median(rates).ok_or("no rounds")?;
            let (value, low, high) = (median.value, median.low, median.high);
            println!("| {name} | {count} | {value:.2} | {low:.2} .. {high:.2} |");
        }
    }
    Ok(())
}

fn run(kernels: Kernels, inputs: &[&[u8]]) {
    let mut streams = vec![Sha256::new(); inputs.len()];
    let mut parts: Vec<_> = streams.iter_mut().zip(inputs.iter().copied()).collect();
    update_many_with(kernels, &mut parts);
    let digests: Vec<_> = streams.into_iter().map(Sha256::finish).collect();
    std::hint::black_box(digests);
}

const STREAMS: [usize; 7] = [1, 2, 4, 8, 10, 16, 32];
/// Above every cache that one core has to itself.
const STREAM_BYTES: usize = 4 << 20;
