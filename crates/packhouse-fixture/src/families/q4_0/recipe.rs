//! The weight and the inputs of the M-row fixtures, and the rows that are made for an edge.
//!
//! Specified in `docs/format/kernels.md`, sections 4.1 and 4.2. Every number is exact in binary32,
//! and so is each sum of a block's numbers, in any order.

use packhouse_layout::golden::SplitMix64;
use std::ops::RangeInclusive;

/// Blocks of a row: a remainder of three beside two for each of eight sums.
pub(super) const BLOCK_COUNT: u64 = 19;
/// Columns of the weight.
pub(super) const COLUMNS: u64 = BLOCK_COUNT * 32;
/// Rows of the weight, of which a fixture takes its first.
const ROW_COUNT: u64 = 64;

/// Rows of the weight that are made for an edge.
pub(super) const WEIGHT_EDGES: [(RangeInclusive<u64>, &str); 10] = [
    (1..=1, "zero scales"),
    (2..=2, "negative zero scales"),
    (3..=3, "subnormal scales"),
    (4..=4, "largest magnitudes"),
    (5..=5, "cancellation"),
    (6..=6, "nibbles of zero"),
    (7..=7, "zero blocks"),
    (9..=12, "long dot products"),
    (13..=20, "below a power of two"),
    (60..=60, "largest negative magnitudes"),
];

/// Rows of the inputs that are made for an edge.
pub(super) const INPUT_EDGES: [(RangeInclusive<u64>, &str); 7] = [
    (1..=1, "zeros"),
    (2..=2, "midpoints"),
    (3..=3, "cancellation"),
    (4..=4, "largest magnitudes"),
    (5..=5, "smallest magnitudes"),
    (6..=6, "one number"),
    (7..=7, "largest sums of quants"),
];

/// One block of the source.
#[derive(Clone, Copy)]
struct Block {
    scale: u16,
    quants: [u8; 16],
}

/// The weight's source: rows of Q4_0 blocks.
pub(super) fn weight(seed: u64) -> Vec<u8> {
    let mut stream = SplitMix64::new(seed);
    let mut bytes = Vec::new();
    for row in 0..ROW_COUNT {
        let mut blocks: Vec<Block> = (0..BLOCK_COUNT).map(|_| drawn_block(&mut stream)).collect();
        change_weight(row, &mut blocks);
        for block in blocks {
            bytes.extend(block.scale.to_le_bytes());
            bytes.extend(block.quants);
        }
    }
    bytes
}

fn drawn_block(stream: &mut SplitMix64) -> Block {
    let mut quants = [0; 16];
    stream.fill(&mut quants);
    let draw = stream.next();
    let exponent = 5 + (draw >> 16) % 2;
    let scale = (draw & 0x83ff) + (exponent << 10);
    Block {
        scale: u16::try_from(scale).expect("because the exponent has five bits"),
        quants,
    }
}

fn change_weight(row: u64, blocks: &mut [Block]) {
    let all = |blocks: &mut [Block], change: fn(&mut Block)| blocks.iter_mut().for_each(change);
    match row {
        1 => all(blocks, |block| block.scale = 0),
        2 => all(blocks, |block| block.scale = 0x8000),
        3 => all(blocks, |block| block.scale = block.scale & 0x83ff | 1),
        4 => all(blocks, |block| {
            block.scale = 0x7bff;
            block.quants = [0; 16];
        }),
        5 => cancel(blocks),
        6 => all(blocks, |block| block.quants = [0x88; 16]),
        7 => all(blocks, |block| {
            block.scale = 0;
            block.quants = [0; 16];
        }),
        // Nibbles of -8 to -5, so that products with a scale have more bits than a number.
        9..=12 => all(blocks, |block| {
            block.quants = block.quants.map(|byte| byte & 0x33)
        }),
        13..=20 => blocks[6].quants = [0xff; 16],
        60 => all(blocks, |block| {
            block.scale = 0xfbff;
            block.quants = [0xff; 16];
        }),
        _ => {}
    }
}

/// Each strided sum begins with two large terms that cancel where their activations are equal.
fn cancel(blocks: &mut [Block]) {
    for b in 0..8 {
        blocks[b].scale = blocks[b].scale & 0x83ff | 25 << 10;
        blocks[b + 8] = blocks[b];
        blocks[b + 8].scale ^= 0x8000;
    }
}

/// The input of a width: rows of numbers.
pub(super) fn input(seed: u64, width: u64) -> Vec<f32> {
    let mut stream = SplitMix64::new(seed.wrapping_add(width));
    let mut numbers = Vec::new();
    for row in 0..width {
        let mut blocks: Vec<[f32; 32]> = (0..BLOCK_COUNT).map(|_| drawn(&mut stream)).collect();
        change_input(row, &mut blocks);
        numbers.extend(blocks.into_iter().flatten());
    }
    numbers
}

fn drawn(stream: &mut SplitMix64) -> [f32; 32] {
    let exponent = i32::try_from(stream.next() % 2).expect("because it is a bit");
    let unit = power_of_two(-17 - exponent);
    std::array::from_fn(|_| {
        let draw = stream.next();
        let magnitude = (4096 + (draw >> 8) % 258_048) as f32 * unit;
        if draw >> 63 == 1 {
            -magnitude
        } else {
            magnitude
        }
    })
}

fn change_input(row: u64, blocks: &mut [[f32; 32]]) {
    match row {
        0 => {
            blocks[3] = quotient_block();
            blocks[4] = tie_block(4);
            blocks[5] = sum_block(5);
            blocks[6] = binade_block();
            for block in &mut blocks[7..11] {
                *block = block.map(f32::abs);
            }
            for block in blocks {
                if block.iter().sum::<f32>() < 0.0 {
                    *block = block.map(|x| -x);
                }
            }
        }
        1 => blocks.fill(std::array::from_fn(|e| if e % 2 == 1 { -0.0 } else { 0.0 })),
        2 => each(blocks, |b, block| {
            *block = if b % 3 == 2 {
                sum_block(b)
            } else {
                tie_block(b)
            };
        }),
        3 => {
            each(blocks, |_, block| {
                for e in (1..32).step_by(2) {
                    block[e] = -block[e - 1];
                }
            });
            for b in 8..blocks.len() {
                blocks[b] = blocks[b % 8];
            }
        }
        4 => each(blocks, |b, block| *block = largest_block(b)),
        5 => each(blocks, |b, block| {
            let unit = power_of_two([-16, -22, -40][b % 3]);
            *block = block.map(|x| x * unit);
        }),
        6 => each(blocks, |b, block| {
            *block = std::array::from_fn(|e| if e == b { block[e] } else { 0.0 });
        }),
        7 => each(blocks, |b, block| {
            *block = [if b % 2 == 1 { 1.0 } else { -1.0 }; 32]
        }),
        _ => {}
    }
}

fn each(blocks: &mut [[f32; 32]], change: impl Fn(usize, &mut [f32; 32])) {
    for (b, block) in blocks.iter_mut().enumerate() {
        change(b, block);
    }
}

/// The scale lies half-way between two halves, and every quant but the first between two integers.
/// By either reciprocal, of d or of what is above 127, some quants leave that place.
fn tie_block(b: usize) -> [f32; 32] {
    let d = if b % 2 == 1 { 2443.0 } else { 2381.0 } * power_of_two(-14);
    std::array::from_fn(|e| {
        let quant = ((4 * e + e / 2 + b) % 126) as f32 + 0.5;
        match e {
            0 => 127.0 * d,
            _ if e % 2 == 1 => -quant * d,
            _ => quant * d,
        }
    })
}

/// The scale is a step above the middle of two halves; the product with the reciprocal of 127 is
/// that middle. All numbers but the first are negative, so that the sum is exact in any order.
fn quotient_block() -> [f32; 32] {
    std::array::from_fn(|e| match e {
        0 => f32::from_bits(0x41fe_9ec1),
        _ => (3 + e % 3) as f32 / -4.0,
    })
}

/// The sum lies half-way between two halves.
fn sum_block(b: usize) -> [f32; 32] {
    let first = if b % 2 == 1 { 2051.0 } else { 2049.0 };
    std::array::from_fn(|e| match e {
        0 => first / 2048.0,
        29 | 30 => 0.5,
        31 => -1.0,
        _ if e % 2 == 1 => e.div_ceil(2) as f32 / 32.0,
        _ => (e / 2) as f32 / -32.0,
    })
}

/// By nibbles of 7, the product with the scale is rounded above a power of two, and what is then
/// added leads below it: a sum that is fused with the product keeps a bit more.
fn binade_block() -> [f32; 32] {
    let d = 1025.0 * power_of_two(-17);
    std::array::from_fn(|e| match e {
        0 => 127.0 * d,
        1..16 => 72.25 * d,
        _ => 71.25 * d,
    })
}

/// Scale and sum are the largest that halves have; the quants are 127, -127 and once -126.
fn largest_block(b: usize) -> [f32; 32] {
    let sign = if b % 2 == 1 { -1.0 } else { 1.0 };
    std::array::from_fn(|e| match e {
        31 => -8_253_504.0 * sign,
        _ if e % 2 == 1 => -8_319_008.0 * sign,
        _ => 8_319_008.0 * sign,
    })
}

/// A power of two among binary32's normal numbers.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent + 127).cast_unsigned() << 23)
}
