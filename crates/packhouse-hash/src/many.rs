//! Several streams at once: which lanes run how far.

use crate::BLOCK_BYTES;
use crate::compress::{Kernels, LANES};
use crate::stream::Sha256;

/// Returns the SHA-256 of each input.
pub fn digest_many(inputs: &[&[u8]]) -> Vec<[u8; 32]> {
    let mut streams = vec![Sha256::new(); inputs.len()];
    let mut parts: Vec<_> = streams.iter_mut().zip(inputs.iter().copied()).collect();
    Sha256::update_many(&mut parts);
    streams.into_iter().map(Sha256::finish).collect()
}

/// `Sha256::update_many` with chosen kernels.
pub fn update_many_with(kernels: Kernels, parts: &mut [(&mut Sha256, &[u8])]) {
    let mut runs: Vec<Run<'_>> = Vec::with_capacity(parts.len());
    for (stream, bytes) in parts.iter_mut() {
        let blocks = stream.take(kernels, bytes);
        if !blocks.is_empty() {
            runs.push(Run {
                state: &mut stream.state,
                blocks,
            });
        }
    }
    // The longest first, so that lanes stay filled as long as they can.
    runs.sort_by_key(|run| std::cmp::Reverse(run.blocks.len()));
    let mut waiting = runs.into_iter();
    let mut active: Vec<Run<'_>> = Vec::with_capacity(LANES);
    loop {
        active.extend(waiting.by_ref().take(LANES - active.len()));
        let Some(bytes) = active.iter().map(|run| run.blocks.len()).min() else {
            break;
        };
        step(kernels, &mut active, bytes);
        active.retain(|run| !run.blocks.is_empty());
    }
}

/// What is left of one stream.
struct Run<'b> {
    state: &'b mut [u32; 8],
    /// Whole blocks.
    blocks: &'b [u8],
}

/// Compresses the first `bytes` of each run.
fn step(kernels: Kernels, active: &mut [Run<'_>], bytes: usize) {
    debug_assert!(bytes.is_multiple_of(BLOCK_BYTES));
    if active.len() >= WIDE_MIN && kernels.is_wide() {
        let mut lanes = active.iter_mut();
        let mut states = [[0; 8]; LANES];
        let mut blocks: [&[u8]; LANES] = [&active_first(lanes.as_slice())[..bytes]; LANES];
        for ((state, block), run) in states.iter_mut().zip(&mut blocks).zip(lanes.by_ref()) {
            (*state, *block) = (*run.state, &run.blocks[..bytes]);
        }
        kernels.compress_wide(&mut states, &blocks);
        for (run, state) in active.iter_mut().zip(states) {
            *run.state = state;
        }
    } else {
        for pair in active.chunks_mut(2) {
            match pair {
                [one, other] => {
                    let blocks = [&one.blocks[..bytes], &other.blocks[..bytes]];
                    kernels.compress_pair([&mut *one.state, &mut *other.state], blocks);
                }
                rest => {
                    for run in rest {
                        kernels.compress(run.state, &run.blocks[..bytes]);
                    }
                }
            }
        }
    }
    for run in active {
        run.blocks = &run.blocks[bytes..];
    }
}

/// The blocks of the first run: idle lanes compress them too, and what they make is dropped.
fn active_first<'b>(active: &[Run<'b>]) -> &'b [u8] {
    active.first().map_or(&[], |run| run.blocks)
}

/// Streams from which on sixteen lanes, some of them idle, are faster than pairs. Measured by
/// `bench/src/bin/hash.rs`: sixteen lanes have 2.1 times the rate of one stream, pairs 1.4 times.
const WIDE_MIN: usize = 11;
