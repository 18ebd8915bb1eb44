//! The weights of the context-KV fixtures: ordinary columns, and columns made for an edge.
//!
//! Specified in `docs/format/kernels.md`, section 7. No arithmetic on numbers makes them but that
//! of the kernel itself, where an edge depends on what row 0 of every context gives.

use super::context::{MIDDLE, PROBE_SCALE, probe_row};
use super::{EPSILON, SHAPE};
use crate::bf16_ops::{NAN, Shape, norm_context, project, rms_norm, rounded};
use crate::half::bf16_to_f32;
use crate::mersenne::Draws;

/// All constant inputs that are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    /// `[L, H]`.
    pub(super) input_norm: Vec<u16>,
    /// `[L, 2 kv, H]`.
    pub(super) kv_weight: Vec<u16>,
    /// `[L, head size]`.
    pub(super) key_norm: Vec<u16>,
    /// `[L, 2 kv]`.
    pub(super) bias: Vec<u16>,
}

impl Weights {
    /// Ordinary weights of a seed.
    pub(super) fn drawn(seed: u64) -> Self {
        let draws = |index: u64| Draws::new(seed.wrapping_add(index));
        let many = |index: u64, count: usize, exponents: [u16; 2]| {
            let mut draws = draws(index);
            let numbers = (0..count).map(|_| number(&mut draws, exponents));
            numbers.collect()
        };
        Self {
            input_norm: many(0, SHAPE.layers * HIDDEN, [126, 127]),
            kv_weight: many(1, SHAPE.layers * COLUMNS * HIDDEN, [124, 126]),
            key_norm: many(2, SHAPE.layers * SHAPE.head_size, [126, 127]),
            bias: many(3, SHAPE.layers * COLUMNS, [124, 128]),
        }
    }

    /// The published weights: those of a seed, with the edges.
    pub(super) fn with_edges(seed: u64) -> Self {
        let mut weights = Self::drawn(seed);
        for layer in 0..SHAPE.layers {
            let row = layer * HIDDEN..(layer + 1) * HIDDEN;
            edge_norm(&mut weights.input_norm[row]);
        }
        let normed = weights.normed_probe();
        let layers = weights.kv_weight.chunks_exact_mut(COLUMNS * HIDDEN);
        for (layer, normed) in layers.zip(normed.chunks_exact(HIDDEN)) {
            edge_columns(layer, normed);
        }
        weights.probe_head(&mut Draws::new(KEY_SEED));
        weights.small_head(&mut Draws::new(seed.wrapping_add(4)));
        weights.edge_bias();
        weights
    }

    /// What row 0 of every context is after the first operation, layer by layer.
    fn normed_probe(&self) -> Vec<u16> {
        norm_context(&ONE_TOKEN, &probe(), &self.input_norm, EPSILON)
    }

    /// Layer 0, head 1: each key is one element of the context times one weight, the first of them
    /// far larger than the others, so that the sum of the squares depends on its order.
    fn probe_head(&mut self, draws: &mut Draws) {
        for key in 0..SHAPE.head_size {
            let column = self.column(0, SHAPE.head_size + key);
            column.fill(0);
            let exponents = if key == 0 { [138, 138] } else { [126, 126] };
            column[3 + 5 * key] = number(draws, exponents);
        }
    }

    /// Layer 1, head 1: keys so small that what is added to their mean square counts.
    fn small_head(&mut self, draws: &mut Draws) {
        for key in 0..SHAPE.head_size {
            let column = self.column(1, SHAPE.head_size + key);
            column.fill_with(|| number(draws, [112, 113]));
        }
    }

    fn column(&mut self, layer: usize, column: usize) -> &mut [u16] {
        let start = (layer * COLUMNS + column) * HIDDEN;
        &mut self.kv_weight[start..start + HIDDEN]
    }

    /// Biases that meet row 0 of every context at an edge.
    fn edge_bias(&mut self) {
        let flat = project(&ONE_TOKEN, &self.normed_probe(), &self.kv_weight);
        let layers = self.bias.chunks_exact_mut(COLUMNS);
        for (layer, (bias, flat)) in layers.zip(flat.chunks_exact(COLUMNS)).enumerate() {
            let head = &mut bias[SHAPE.head_size..2 * SHAPE.head_size];
            match layer {
                0 => head.fill(0),
                _ => head
                    .iter_mut()
                    .for_each(|bias| *bias = *bias & 0x807f | 113 << 7),
            }
            bias[ZEROS] = NEGATIVE_ZERO;
            bias[NEGATIVE_ZEROS] = NEGATIVE_ZERO;
            bias[LARGEST] = LARGEST_FINITE;
            bias[SUBNORMALS] = SMALLEST;
            for parity in [0, 1] {
                let column = ordinary_value(flat, parity);
                bias[column] = half_step(flat[column]);
            }
            bias[CANCELLED] = flat[CANCELLED] ^ NEGATIVE_ZERO;
        }
    }
}

/// The first ordinary value column whose number has this last bit.
fn ordinary_value(flat: &[u16], parity: u16) -> usize {
    let found = (ORDINARY..COLUMNS).find(|column| flat[*column] & 1 == parity);
    found.expect("because a layer has columns of both kinds")
}

/// A normed context's row 0 must have two equal elements, and one that is a power of two: the equal
/// elements of the context get one weight of at least 1, and the first other weight that can be is
/// changed so.
fn edge_norm(weights: &mut [u16]) {
    weights[0] = weights[0] & 0x807f | ONE;
    weights[MIDDLE] = weights[0];
    let context = probe();
    let ones = vec![ONE; HIDDEN];
    let scaled = rms_norm(&context, &ones, EPSILON);
    let others = scaled.iter().enumerate().skip(1);
    let others = others.filter(|(index, _)| *index != MIDDLE);
    let made = others.into_iter().find_map(|(index, scaled)| {
        let gives = |weight: &u16| {
            let product = bf16_to_f32(*scaled) * bf16_to_f32(*weight);
            rounded(product) & FRACTION == 0
        };
        let weight = (HALF..TWO).find(gives);
        weight.map(|weight| (index, weight))
    });
    let (index, weight) = made.expect("because one of 254 elements has such a weight");
    weights[index] = weight;
}

/// The columns that are made for an edge, of one layer; `normed` is row 0 of every context.
fn edge_columns(layer: &mut [u16], normed: &[u16]) {
    let mut column = |index: usize, make: &mut dyn FnMut(&mut [u16])| {
        make(&mut layer[index * HIDDEN..(index + 1) * HIDDEN]);
    };
    let cancel = &mut |weights: &mut [u16]| {
        weights[0] = LARGE;
        weights[MIDDLE] = LARGE ^ NEGATIVE_ZERO;
    };
    column(CANCELLING_KEY, cancel);
    column(CANCELLING, cancel);
    column(CANCELLING_WHOLLY, &mut |weights| {
        weights.fill(0);
        cancel(weights);
    });
    column(ZEROS, &mut |weights| weights.fill(0));
    column(NEGATIVE_ZEROS, &mut |weights| weights.fill(NEGATIVE_ZERO));
    for (index, parity) in [(MIDPOINT_DOWN, 0), (MIDPOINT_UP, 1)] {
        column(index, &mut |weights| midpoint(weights, normed, parity));
    }
    column(LARGEST, &mut |weights| {
        weights.fill(0);
        weights[0] = LARGEST_FINITE;
    });
    column(OVERFLOWING, &mut |weights| {
        for (index, weight) in weights.iter_mut().enumerate() {
            *weight = LARGEST_FINITE | if index % 3 == 2 { NEGATIVE_ZERO } else { 0 };
        }
    });
    column(SUBNORMALS, &mut |weights| {
        weights.iter_mut().for_each(|weight| *weight &= 0x8007);
    });
    column(NOT_A_NUMBER, &mut |weights| {
        weights.fill(0);
        weights[MIDDLE] = NAN | NEGATIVE_ZERO | 0x15;
    });
}

/// One weight of 1 at an element with this last bit, and one that adds half a step to it.
fn midpoint(weights: &mut [u16], normed: &[u16], parity: u16) {
    let is_power = |bits: &u16| bits & FRACTION == 0;
    let power = normed.iter().position(is_power);
    let power = power.expect("because the norm's weights were made so");
    let fits = |(index, bits): (usize, &u16)| index != power && bits & 1 == parity;
    let whole = normed.iter().enumerate().position(fits);
    let whole = whole.expect("because a row has elements of both kinds");
    weights.fill(0);
    weights[whole] = ONE;
    // A power of two divided by a power of two; the signs of both are kept by exclusive or.
    let (step, power_bits) = (half_step(normed[whole]), normed[power]);
    let exponent = (step >> 7 & 0xff) + 127 - (power_bits >> 7 & 0xff);
    weights[power] = exponent << 7 | (step ^ power_bits) & NEGATIVE_ZERO;
}

/// Half the step from a number to the next larger in magnitude, with its sign.
fn half_step(bits: u16) -> u16 {
    let exponent = (bits >> 7 & 0xff) - 8;
    bits & NEGATIVE_ZERO | exponent << 7
}

/// A number with a random sign, an exponent of this range (biased, both ends included), and a
/// random fraction.
pub(super) fn number(draws: &mut Draws, exponents: [u16; 2]) -> u16 {
    let [first, last] = exponents;
    let exponent = first + half(draws.below(u32::from(last - first) + 1));
    let bits = half(draws.below(0x100));
    (bits & 0x80) << 8 | exponent << 7 | bits & FRACTION
}

fn half(draw: u32) -> u16 {
    u16::try_from(draw).expect("because less than 65536 was asked for")
}

fn probe() -> Vec<u16> {
    probe_row(PROBE_SCALE)
}

/// The shape with one token.
const ONE_TOKEN: Shape = Shape { tokens: 1, ..SHAPE };

const HIDDEN: usize = SHAPE.hidden;

/// Columns of a layer: keys, then values.
const COLUMNS: usize = 2 * SHAPE.kv_heads * SHAPE.head_size;

/// The first value column.
const VALUES: usize = COLUMNS / 2;

// Edge columns.
const CANCELLING_KEY: usize = 1;
const ZEROS: usize = VALUES;
const NEGATIVE_ZEROS: usize = VALUES + 1;
const CANCELLING: usize = VALUES + 2;
const CANCELLING_WHOLLY: usize = VALUES + 3;
const MIDPOINT_DOWN: usize = VALUES + 4;
const MIDPOINT_UP: usize = VALUES + 5;
const LARGEST: usize = VALUES + 6;
const OVERFLOWING: usize = VALUES + 7;
const SUBNORMALS: usize = VALUES + 8;
const NOT_A_NUMBER: usize = VALUES + 9;
const CANCELLED: usize = VALUES + 10;
/// The first value column without an edge in its weights or bias but the ties of `edge_bias`.
const ORDINARY: usize = VALUES + 16;

// Bits.
const FRACTION: u16 = 0x7f;
const ONE: u16 = 0x3f80;
const HALF: u16 = 0x3f00;
const TWO: u16 = 0x4000;
const NEGATIVE_ZERO: u16 = 0x8000;
const LARGEST_FINITE: u16 = 0x7f7f;
const SMALLEST: u16 = 1;
/// 2^20.
const LARGE: u16 = 0x4980;

/// Draws the probe head; the first seed from 1 on with which every order of its sum shows.
const KEY_SEED: u64 = 11419;
