//! Kernels of another contract: each must fail, at every width.

use super::super::IDENTITY;
use super::super::packed::{Block, Packed};
use super::{fixture, weights};
use crate::half::{f16_from_f32, f16_to_f32};

/// Quants, d and s of a block.
type Quants = ([i32; 32], f32, f32);

/// A kernel in parts, so that one of them can be wrong.
#[derive(Clone, Copy)]
struct Parts {
    /// 32 numbers to quants, d and s.
    quantise: fn(&[f32; 32]) -> Quants,
    /// A block of the weight, as a wrong reader has it.
    read: fn(&[Block], usize) -> Block,
    /// dot, sum of quants, d, s, scale.
    term: fn(f32, f32, f32, f32, f32) -> f32,
    /// Terms in the order of their blocks.
    sum: fn(&[f32]) -> f32,
}

const RIGHT: Parts = Parts {
    quantise: |x| quantise_by(x, f32::round, |x, d| x / d, rounded, sum_of),
    read: |blocks, b| blocks[b].clone(),
    term: |dot, q, d, s, scale| (dot * d + 8.0 * (q * d - s)) * scale,
    sum: |terms| split_sum(terms, |b, _| b % 8),
};

fn rounded(x: f32) -> f32 {
    f16_to_f32(f16_from_f32(x))
}

fn sum_of(x: &[f32; 32], _: &[i32; 32], _: f32) -> f32 {
    x.iter().sum()
}

fn quantise_by(
    x: &[f32; 32],
    round: fn(f32) -> f32,
    divide: fn(f32, f32) -> f32,
    to_half: fn(f32) -> f32,
    sum: fn(&[f32; 32], &[i32; 32], f32) -> f32,
) -> Quants {
    let amax = x.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
    let d = amax / 127.0;
    let divisor = if d == 0.0 { 1.0 } else { d };
    let quants = x.map(|x| round(divide(x, divisor)).clamp(-127.0, 127.0) as i32);
    (quants, to_half(d), to_half(sum(x, &quants, to_half(d))))
}

fn split_sum(terms: &[f32], split: fn(usize, usize) -> usize) -> f32 {
    let mut sums = [0.0; 8];
    for (b, term) in terms.iter().enumerate() {
        sums[split(b, terms.len())] += term;
    }
    sums.iter().fold(0.0, |y, sum| y + sum)
}

fn strided(terms: &[f32]) -> [f32; 8] {
    let mut sums = [0.0; 8];
    for (b, term) in terms.iter().enumerate() {
        sums[b % 8] += term;
    }
    sums
}

/// Output rows at a width that differ from what is expected, with parts.
fn failing_rows(parts: &Parts, case_index: usize) -> Vec<usize> {
    rows_that_differ(case_index, parts.quantise, |row, blocks| {
        let terms: Vec<f32> = (0..19)
            .map(|b| term_by(parts, row, b, &blocks[b]))
            .collect();
        (parts.sum)(&terms)
    })
}

/// Output rows at a width that differ from what is expected, given each number of the output from a
/// row of the weight and quantised activations.
fn rows_that_differ(
    case_index: usize,
    quantise: fn(&[f32; 32]) -> Quants,
    y: impl Fn(&[Block], &[Quants]) -> f32,
) -> Vec<usize> {
    let fixture = fixture(&IDENTITY);
    let case = &fixture.cases[case_index];
    let weight = Packed::source(weights(&fixture), 19);
    let rows: Vec<Vec<Block>> = (0..61).map(|row| weight.row(row).collect()).collect();
    let (input, _) = fixture.tensors[&case.inputs["input"]].bytes.as_chunks();
    let input: Vec<f32> = input.iter().map(|x| f32::from_le_bytes(*x)).collect();
    let (expected, _) = fixture.tensors[&case.expected[1].tensor].bytes.as_chunks();
    let differs = |numbers: &[f32], expected: &[[u8; 4]]| {
        let blocks: Vec<_> = numbers.as_chunks().0.iter().map(quantise).collect();
        let mut pairs = rows.iter().zip(expected);
        pairs.any(|(row, expected)| y(row, &blocks).to_le_bytes() != *expected)
    };
    let pairs = input.chunks_exact(608).zip(expected.chunks_exact(61));
    let pairs = pairs.enumerate();
    let pairs = pairs.filter(|(_, (numbers, expected))| differs(numbers, expected));
    pairs.map(|(row, _)| row).collect()
}

fn term_by(parts: &Parts, row: &[Block], b: usize, block: &Quants) -> f32 {
    let (quants, d, s) = block;
    let weight = (parts.read)(row, b);
    let pairs = weight.nibbles.iter().zip(quants);
    let dot: i32 = pairs.map(|(w, q)| i32::from(*w) * q).sum();
    let sum: i32 = quants.iter().sum();
    let scale = f16_to_f32(weight.scale);
    (parts.term)(dot as f32, sum as f32, *d, *s, scale)
}

/// The control: put together from its parts, the right kernel passes.
#[test]
fn the_right_parts_make_every_row() {
    for case in 0..5 {
        assert_eq!(failing_rows(&RIGHT, case), [0; 0]);
    }
}

fn assert_fails_at_every_width(wrong: &[(&str, Parts)]) {
    for (name, parts) in wrong {
        for case in 0..5 {
            assert_ne!(failing_rows(parts, case), [0; 0], "{name}, case {case}");
        }
    }
}

#[test]
fn another_order_of_the_sums_fails_at_every_width() {
    let by = |sum| Parts { sum, ..RIGHT };
    assert_fails_at_every_width(&[
        (
            "contiguous pieces of three",
            by(|terms| split_sum(terms, |b, _| b / 3)),
        ),
        (
            "contiguous pieces",
            by(|terms| split_sum(terms, |b, count| b * 8 / count)),
        ),
        (
            "one running sum",
            by(|terms| terms.iter().fold(0.0, |y, term| y + term)),
        ),
        ("four sums", by(|terms| split_sum(terms, |b, _| b % 4))),
        (
            "the eight sums from the last",
            by(|terms| strided(terms).iter().rev().fold(0.0, |y, sum| y + sum)),
        ),
        (
            "the eight sums in pairs",
            by(|terms| {
                let s = strided(terms);
                ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
            }),
        ),
        (
            "the eight sums halved",
            by(|terms| {
                let s = strided(terms);
                ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
            }),
        ),
        (
            "each sum from the last block",
            by(|terms| {
                let mut sums = [0.0; 8];
                for (b, term) in terms.iter().enumerate().rev() {
                    sums[b % 8] += term;
                }
                sums.iter().fold(0.0, |y, sum| y + sum)
            }),
        ),
        (
            "binary64 sums",
            by(|terms| terms.iter().copied().map(f64::from).sum::<f64>() as f32),
        ),
        (
            "sums that begin with their first terms",
            by(|terms| {
                let sum = |p: usize| terms[p..].iter().step_by(8).copied().reduce(|s, x| s + x);
                let sums = (0..8).filter_map(sum);
                sums.reduce(|y, sum| y + sum)
                    .expect("because there are terms")
            }),
        ),
        (
            "no remainder",
            by(|terms| split_sum(&terms[..16], |b, _| b % 8)),
        ),
    ]);
}

/// A compiler that may contract makes this of the loop over blocks.
#[test]
fn a_sum_that_is_fused_with_its_product_fails_at_every_width() {
    let no_scale = Parts {
        term: |dot, q, d, s, _| (RIGHT.term)(dot, q, d, s, 1.0),
        ..RIGHT
    };
    for case in 0..5 {
        let failing = rows_that_differ(case, RIGHT.quantise, |row, blocks| {
            let mut sums = [0.0_f32; 8];
            for b in 0..19 {
                let unscaled = term_by(&no_scale, row, b, &blocks[b]);
                sums[b % 8] = unscaled.mul_add(f16_to_f32(row[b].scale), sums[b % 8]);
            }
            sums.iter().fold(0.0, |y, sum| y + sum)
        });
        assert_ne!(failing, [0; 0], "case {case}");
    }
}

#[test]
fn another_term_fails_at_every_width() {
    let by = |term| Parts { term, ..RIGHT };
    assert_fails_at_every_width(&[
        (
            "unsigned nibbles",
            by(|dot, q, d, s, scale| ((dot + 8.0 * q) * d - 8.0 * s) * scale),
        ),
        (
            "a fused term",
            by(|dot, q, d, s, scale| dot.mul_add(d, 8.0 * (q * d - s)) * scale),
        ),
        (
            "a wider sum",
            by(|dot, q, d, s, scale| {
                let [dot, q, d, s] = [dot, q, d, s].map(f64::from);
                ((dot * d + 8.0 * (q * d - s)) as f32) * scale
            }),
        ),
        (
            "scale first",
            by(|dot, q, d, s, scale| dot * d * scale + 8.0 * (q * d - s) * scale),
        ),
        ("no offset", by(|dot, _, d, _, scale| dot * d * scale)),
        (
            "offset of the other sign",
            by(|dot, q, d, s, scale| (dot * d + 8.0 * (s - q * d)) * scale),
        ),
    ]);
}

#[test]
fn other_activations_fail_at_every_width() {
    let by = |quantise| Parts { quantise, ..RIGHT };
    assert_fails_at_every_width(&[
        (
            "halves to even",
            by(|x| quantise_by(x, f32::round_ties_even, |x, d| x / d, rounded, sum_of)),
        ),
        (
            "by the rounded scale",
            by(|x| quantise_by(x, f32::round, |x, d| x / rounded(d), rounded, sum_of)),
        ),
        (
            "by the reciprocal of the scale",
            by(|x| quantise_by(x, f32::round, |x, d| x * (1.0 / d), rounded, sum_of)),
        ),
        (
            "by 127 over the largest",
            by(|x| {
                let (_, d, s) = (RIGHT.quantise)(x);
                let inverse = 127.0 / x.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
                let quant = |x: f32| (x * inverse).round() as i32;
                (if d == 0.0 { [0; 32] } else { x.map(quant) }, d, s)
            }),
        ),
        (
            "a scale by the reciprocal of 127",
            by(|x| {
                let (quants, _, s) = (RIGHT.quantise)(x);
                let amax = x.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
                (quants, rounded(amax * (1.0 / 127.0)), s)
            }),
        ),
        (
            "toward zero",
            by(|x| quantise_by(x, f32::trunc, |x, d| x / d, rounded, sum_of)),
        ),
        (
            "never rounded to halves",
            by(|x| quantise_by(x, f32::round, |x, d| x / d, |x| x, sum_of)),
        ),
        (
            "halves cut",
            by(|x| quantise_by(x, f32::round, |x, d| x / d, cut, sum_of)),
        ),
        (
            "halves away from zero",
            by(|x| quantise_by(x, f32::round, |x, d| x / d, half_up, sum_of)),
        ),
        (
            "sum of the quants",
            by(|x| {
                let sum = |_: &[f32; 32], q: &[i32; 32], d: f32| q.iter().sum::<i32>() as f32 * d;
                quantise_by(x, f32::round, |x, d| x / d, rounded, sum)
            }),
        ),
    ]);
}

/// To a half toward zero.
fn cut(x: f32) -> f32 {
    let half = rounded(x);
    if half.abs() <= x.abs() {
        half
    } else {
        f16_to_f32(f16_from_f32(half) - 1)
    }
}

/// To a half, ties away from zero.
fn half_up(x: f32) -> f32 {
    let below = cut(x);
    let above = f16_to_f32(f16_from_f32(below) + 1);
    if (x - below).abs() >= (above - x).abs() {
        above
    } else {
        below
    }
}

#[test]
fn another_reading_of_the_weight_fails_at_every_width() {
    let by = |read| Parts { read, ..RIGHT };
    assert_fails_at_every_width(&[
        (
            "nibbles of a byte swapped",
            by(|blocks, b| {
                let mut block = blocks[b].clone();
                block.nibbles.rotate_left(16);
                block
            }),
        ),
        (
            "neighbouring columns",
            by(|blocks, b| {
                let mut block = blocks[b].clone();
                block
                    .nibbles
                    .chunks_exact_mut(2)
                    .for_each(|pair| pair.swap(0, 1));
                block
            }),
        ),
        (
            "numbers that are not less 8",
            by(|blocks, b| {
                let mut block = blocks[b].clone();
                block.nibbles = block.nibbles.map(|w| w + 8);
                block
            }),
        ),
        (
            "the next block's scale",
            by(|blocks, b| Block {
                scale: blocks[(b + 1) % 19].scale,
                ..blocks[b].clone()
            }),
        ),
        (
            "magnitudes of scales",
            by(|blocks, b| Block {
                scale: blocks[b].scale & 0x7fff,
                ..blocks[b].clone()
            }),
        ),
        (
            "subnormal scales flushed",
            by(|blocks, b| {
                let scale = blocks[b].scale;
                let scale = if scale & 0x7c00 == 0 { 0 } else { scale };
                Block {
                    scale,
                    ..blocks[b].clone()
                }
            }),
        ),
    ]);
}
