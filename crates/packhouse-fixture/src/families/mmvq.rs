//! `mmvq-q4_0-q8_1-v1`: Q4_0 rows times Q8_1 activations, as the published recipe makes them.
//!
//! Source of every formula: the recipe in `docs/format/fixture.md`. All of it is binary64 as
//! CPython computes it; numbers are rounded to binary16 and binary32 from binary64 in one step.

use super::Family;
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
        let (input_name, expected_name) = (
            format!("input-m{width}.q8_1.bin"),
            format!("expected-m{width}.f32.bin"),
        );
        let output = product(&weights, &input);
        fixture.cases.push(case(width, &input_name, &expected_name));
        let input = blocks(width, Q8_1_BYTES, input.bytes);
        fixture.tensors.insert(input_name, input);
        fixture.tensors.insert(
            expected_name,
            Tensor {
                dtype: Dtype::F32,
                shape: vec![width, N],
                bytes: output,
            },
        );
    }
    let weights = blocks(N, Q4_0_BYTES, weights.bytes);
    fixture.tensors.insert(WEIGHTS.to_owned(), weights);
    fixture
}

fn case(width: u64, input: &str, expected: &str) -> Case {
    let expected = |tolerance, why: &str| Expected {
        boundary: OUTPUT.to_owned(),
        tensor: expected.to_owned(),
        tolerance,
        why: why.to_owned(),
    };
    Case {
        width,
        arm: Case::PLAIN.to_owned(),
        inputs: [("weights", WEIGHTS), ("input", input)]
            .map(|(role, name)| (role.to_owned(), name.to_owned()))
            .into(),
        expected: vec![expected(Tolerance::BitEqual, WHY_EQUAL)],
        near: vec![expected(
            Tolerance::Nmse {
                max_log2: NEAR_LOG2,
            },
            WHY_NEAR,
        )],
        edge_rows: Vec::new(),
    }
}

/// Rows of K draws each.
fn drawn(seed: u64, span: f64, row_count: u64) -> Vec<f64> {
    let mut draws = Draws::new(seed);
    (0..row_count * K).map(|_| draws.within(span)).collect()
}

/// For each input row, then each weight row: binary64 sums over the blocks in their order of
/// `(weight scale * input scale) * integer dot`, rounded to binary32.
fn product(weights: &Quantised, input: &Quantised) -> Vec<u8> {
    let rows = |quantised: &Quantised| {
        let blocks = quantised.codes.as_chunks::<32>().0.iter().copied();
        let blocks: Vec<([i8; 32], f64)> = blocks.zip(quantised.scales.iter().copied()).collect();
        blocks
    };
    let (weights, input) = (rows(weights), rows(input));
    let mut bytes = Vec::new();
    for input_row in input.chunks_exact(BLOCKS) {
        for weight_row in weights.chunks_exact(BLOCKS) {
            let mut sum = 0.0_f64;
            for ((w, w_scale), (x, x_scale)) in weight_row.iter().zip(input_row) {
                let dot: i32 = w
                    .iter()
                    .zip(x)
                    .map(|(w, x)| i32::from(*w) * i32::from(*x))
                    .sum();
                sum += (w_scale * x_scale) * f64::from(dot);
            }
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounded once, to nearest even"
            )]
            let output = sum as f32;
            bytes.extend(output.to_le_bytes());
        }
    }
    bytes
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

const WHY_NEAR: &str = "any order of binary32 sums, with or without the half-rounded sums of \
    codes: the worst case of their errors, all of one sign, over this data";

const SEED: u64 = 270_036;
const K: u64 = 5120;
const N: u64 = 256;
const BLOCKS: usize = 160;
const WIDTHS: [u64; 5] = [1, 4, 6, 8, 16];
const WEIGHT_SPAN: f64 = 0.75;
const INPUT_SPAN: f64 = 1.25;
const NEAR_LOG2: i32 = -15;
const OUTPUT: &str = "output";
const WEIGHTS: &str = "weights.q4_0.bin";

const _: () = assert!(K == 32 * BLOCKS as u64);
