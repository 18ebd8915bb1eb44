//! `mmvq-q4_0-q8_1-v1`: Q4_0 rows times Q8_1 activations, as the published recipe makes them.
//!
//! Source of every formula: the recipe in `docs/format/fixture.md`. All of it is binary64 as
//! CPython computes it; numbers are rounded to binary16 and binary32 from binary64 in one step.

use super::Family;
use crate::bound::{gamma, rounded_up};
use crate::half::f16_to_f64;
use crate::mersenne::Draws;
use crate::quantise::{Q4_0_BYTES, Q8_1_BYTES, Quantised, q4_0, q8_1};
use crate::{Case, Expected, Fixture, Tensor, Tolerance};
use packhouse_component::{Boundary, Dim, Dtype};
use std::collections::BTreeMap;

/// The fixtures of this module.
pub(super) const FAMILIES: &[Family] = &[Family {
    id: ID,
    generate,
    drawn: Some(recipe),
}];

/// The fixture's id.
pub(crate) const ID: &str = "mmvq-q4_0-q8_1-v1";

fn generate() -> Fixture {
    recipe(SEED)
}

/// Weights come from the seed itself, activations of width M from the seed plus M.
fn recipe(seed: u64) -> Fixture {
    let weights = q4_0(&drawn(seed, WEIGHT_SPAN, N));
    let mut fixture = Fixture {
        id: ID.to_owned(),
        summary: "Q4_0 rows times Q8_1 activations, five widths, data of the published recipe"
            .to_owned(),
        layout: None,
        contract: CONTRACT.to_owned(),
        parameters: [("seed", seed), ("k", K), ("n", N)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        tensors: BTreeMap::new(),
        boundaries: vec![Boundary::new(
            OUTPUT,
            Dtype::F32,
            [Dim::Widths(1), Dim::Fixed(N)],
        )],
        cases: Vec::new(),
    };
    for width in WIDTHS {
        let input = q8_1(&drawn(seed.wrapping_add(width), INPUT_SPAN, width));
        let outputs = outputs(&weights, &input);
        fixture.cases.push(case(width));
        let input = blocks(width, Q8_1_BYTES, input.bytes);
        fixture.tensors.insert(name(INPUT, width), input);
        for (stem, of) in COLUMNS {
            let bytes = outputs.iter().map(of).flat_map(f32::to_le_bytes).collect();
            let shape = vec![width, N];
            let dtype = Dtype::F32;
            let tensor = Tensor {
                dtype,
                shape,
                bytes,
            };
            fixture.tensors.insert(name(stem, width), tensor);
        }
    }
    let weights = blocks(N, Q4_0_BYTES, weights.bytes);
    fixture.tensors.insert(WEIGHTS.to_owned(), weights);
    fixture
}

fn case(width: u64) -> Case {
    let expected = |stem: &str, bound: Option<&str>, why: &str| Expected {
        boundary: OUTPUT.to_owned(),
        tensor: name(stem, width),
        tolerance: match bound {
            None => Tolerance::BitEqual,
            Some(bound) => Tolerance::Within {
                tensor: name(bound, width),
            },
        },
        why: why.to_owned(),
    };
    Case {
        width,
        arm: Case::PLAIN.to_owned(),
        inputs: [
            ("weights".to_owned(), WEIGHTS.to_owned()),
            ("input".to_owned(), name(INPUT, width)),
        ]
        .into(),
        expected: vec![expected(EXPECTED, None, WHY_EQUAL)],
        near: vec![
            expected(EXPECTED, Some(BOUND), WHY_NEAR),
            expected(SUMS, Some(SUMS_BOUND), WHY_NEAR_BY_SUMS),
        ],
        edge_rows: Vec::new(),
    }
}

/// A tensor's file, from its stem and extension.
fn name(of: &str, width: u64) -> String {
    of.replace("{}", &width.to_string())
}

/// Rows of K draws each.
fn drawn(seed: u64, span: f64, row_count: u64) -> Vec<f64> {
    let mut draws = Draws::new(seed);
    (0..row_count * K).map(|_| draws.within(span)).collect()
}

/// One output in binary64, and what its bounds are made of.
struct Row {
    /// The sum over the blocks in their order of `(weight scale * input scale) * integer dot`.
    sum: f64,
    /// The sum of the magnitudes of those terms.
    magnitude: f64,
    /// The sum where each block takes the 8 off by the stored sum of codes.
    by_sums: f64,
    /// The sum of the magnitudes of those terms.
    magnitude_by_sums: f64,
    /// The sum of the magnitudes of the two parts of each of those terms.
    parts: f64,
}

impl Row {
    /// B terms of two roundings at most, each through B - 1 sums; and the expected one's own.
    fn bound(&self) -> f32 {
        rounded_up(gamma(BLOCKS as u32 + 2) * self.magnitude)
    }

    /// Both parts of a term go through three roundings at most, the term through B - 1 sums; and
    /// the expected one's own. What a wrong term is off by in the sums is less than a fourth.
    fn bound_by_sums(&self) -> f32 {
        rounded_up(gamma(4) * self.parts + gamma(BLOCKS as u32) * self.magnitude_by_sums)
    }
}

/// A tensor of one number for each output: its name, and the number.
type Column = (&'static str, fn(&Row) -> f32);

const COLUMNS: [Column; 4] = [
    (EXPECTED, |row| rounded(row.sum)),
    (BOUND, Row::bound),
    (SUMS, |row| rounded(row.by_sums)),
    (SUMS_BOUND, Row::bound_by_sums),
];

/// A block: its codes, its scale, and the stored sum of its codes where it has one.
type Block = ([i8; 32], f64, f64);

/// For each input row, then each weight row.
fn outputs(weights: &Quantised, input: &Quantised) -> Vec<Row> {
    let rows = |quantised: &Quantised, sums: Vec<f64>| {
        let blocks = quantised.codes.as_chunks::<32>().0.iter().copied();
        let blocks = blocks.zip(quantised.scales.iter().copied()).zip(sums);
        let blocks: Vec<Block> = blocks.map(|((codes, d), sum)| (codes, d, sum)).collect();
        blocks
    };
    let stored = input.bytes.as_chunks::<36>().0.iter();
    let stored = stored.map(|block| f16_to_f64(u16::from_le_bytes([block[2], block[3]])));
    let weights = rows(weights, vec![0.0; weights.scales.len()]);
    let input = rows(input, stored.collect());
    let mut outputs = Vec::new();
    for input_row in input.chunks_exact(BLOCKS) {
        outputs.extend(
            weights
                .chunks_exact(BLOCKS)
                .map(|row| output(row, input_row)),
        );
    }
    outputs
}

fn output(weights: &[Block], input: &[Block]) -> Row {
    let mut row = Row {
        sum: 0.0,
        magnitude: 0.0,
        by_sums: 0.0,
        magnitude_by_sums: 0.0,
        parts: 0.0,
    };
    for ((w, w_scale, _), (x, x_scale, stored)) in weights.iter().zip(input) {
        let (mut dot, mut codes) = (0_i32, 0_i32);
        for (w, x) in w.iter().zip(x) {
            dot += i32::from(*w) * i32::from(*x);
            codes += i32::from(*x);
        }
        let term = (w_scale * x_scale) * f64::from(dot);
        row.sum += term;
        row.magnitude += term.abs();
        let unsigned = (w_scale * x_scale) * f64::from(dot + 8 * codes);
        let eights = 8.0 * (w_scale * stored);
        row.by_sums += unsigned - eights;
        row.magnitude_by_sums += (unsigned - eights).abs();
        row.parts += unsigned.abs() + eights.abs();
    }
    row
}

fn rounded(sum: f64) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded once, to nearest even"
    )]
    let output = sum as f32;
    output
}

/// Rows of K values in blocks of 32.
fn blocks(row_count: u64, block_bytes: u64, bytes: Vec<u8>) -> Tensor {
    Tensor {
        dtype: Dtype::U8,
        shape: vec![row_count, K / 32 * block_bytes],
        bytes,
    }
}

const CONTRACT: &str = "y[m][n] = sum over the K/32 blocks b in their order, in binary64, of \
    (dw[n][b] * dx[m][b]) * dot[m][n][b], rounded once to binary32. dw and dx are the blocks' \
    binary16 scales; dot is the sum over a block's 32 elements of (nibble - 8) * code, an integer. \
    The second half of a Q8_1 block, scale times sum of codes, is there for kernels that \
    take the 8 off by it. Products and sums are exact in binary64 here, so no order of them gives \
    other bits.";

const WHY_EQUAL: &str = "binary64 holds every product and every partial sum of this data exactly, \
    so the only rounding is the last one";

const WHY_NEAR: &str = "one binary32 term of each block's exact dot product, and any order of \
    sums: at most B + 2 roundings of the sum of the terms' magnitudes, for each output";

const WHY_NEAR_BY_SUMS: &str = "the same where each block's term takes the 8 off by the stored, \
    half-rounded sum of codes: at most 4 roundings of both parts, B of the terms";

const SEED: u64 = 270_036;
const K: u64 = 5120;
const N: u64 = 256;
const BLOCKS: usize = 160;
const WIDTHS: [u64; 5] = [1, 4, 6, 8, 16];
const WEIGHT_SPAN: f64 = 0.75;
const INPUT_SPAN: f64 = 1.25;
const OUTPUT: &str = "output";
const INPUT: &str = "input-m{}.q8_1.bin";
const EXPECTED: &str = "expected-m{}.f32.bin";
const BOUND: &str = "bound-m{}.f32.bin";
const SUMS: &str = "sums-m{}.f32.bin";
const SUMS_BOUND: &str = "sums-bound-m{}.f32.bin";
const WEIGHTS: &str = "weights.q4_0.bin";

const _: () = assert!(K == 32 * BLOCKS as u64);
