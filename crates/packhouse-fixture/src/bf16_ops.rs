//! The operations of a draft model's context-KV precompute on bfloat16 bits, one function each.
//!
//! Specified in `docs/format/kernels.md`, section 7, which names every rounding. Invariants:
//!
//! - every operation reads and leaves bfloat16; nothing is carried over in a wider type;
//! - between those, arithmetic is binary32, rounded to nearest even after each single operation;
//! - sums run over ascending indices from +0.0; nothing is fused, split or reordered;
//! - subnormals are numbers, never flushed; the sign of a zero is kept as IEEE 754 has it;
//! - whatever rounds a NaN leaves the one NaN [`NAN`], whichever NaNs went in; what only copies
//!   (splitting heads, writing the cache) keeps all bits, NaNs' too.
//!
//! Never here: threads, SIMD, fused multiply-add, any function of a mathematical library except the
//! square root, which IEEE 754 rounds exactly. Lengths that are not what a shape says are misuse
//! and panic; positions and slots are data and give errors.

use crate::half::{bf16_from_f32, bf16_to_f32};
use packhouse_base::Blame;

/// The NaN that every rounding leaves: quiet, positive, no payload. It is what PyTorch's conversion
/// on the CPU leaves (`c10/util/BFloat16.h`, `round_to_nearest_even`).
pub const NAN: u16 = 0x7fc0;

/// Sizes of one precompute. All are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Layers of the draft model, L.
    pub layers: usize,
    /// Tokens of context, C: the width.
    pub tokens: usize,
    /// Elements of a token's context, H.
    pub hidden: usize,
    /// Key heads, and as many value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_size: usize,
}

impl Shape {
    /// Elements of all key heads of a token, and of all value heads.
    pub fn kv(&self) -> usize {
        self.kv_heads * self.head_size
    }

    /// Elements of the normed context, `[L, C, H]`.
    pub fn normed_len(&self) -> usize {
        self.layers * self.tokens * self.hidden
    }

    /// Elements of keys, and of values, `[L, C, heads, head size]`. Both together are `flat`.
    pub fn heads_len(&self) -> usize {
        self.layers * self.tokens * self.kv()
    }

    /// Bytes of the four buffers that a width needs: normed context, `flat`, keys and values that
    /// are packed, and normalised keys.
    pub fn workspace_bytes(&self) -> usize {
        let (flat, packed) = (2 * self.heads_len(), 2 * self.heads_len());
        2 * (self.normed_len() + flat + packed + self.heads_len())
    }

    /// Bytes of every layer's weights for keys and values, stacked.
    pub fn kv_weight_bytes(&self) -> usize {
        2 * self.layers * 2 * self.kv() * self.hidden
    }
}

/// Cosines and sines by position: rows of `rotary` elements, first the cosines of all pairs, then
/// their sines.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The rows, position 0 first.
    pub rows: &'a [u16],
    /// Elements of a row, and elements of each head that are rotated: even, at most a head's size.
    pub rotary: usize,
}

/// Sizes of one layer's paged cache, `[blocks, 2, block size, kv]`: keys, then values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paged {
    /// Blocks.
    pub blocks: usize,
    /// Slots of a block.
    pub block_size: usize,
    /// Elements of a slot's keys, and of its values.
    pub kv: usize,
}

impl Paged {
    /// Elements of the whole cache.
    pub fn len(&self) -> usize {
        self.blocks * 2 * self.block_size * self.kv
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why an operation refused its data. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// A position has no row in the table.
    #[error("token {token} has position {position}, the table has rows 0 to {last}")]
    Position {
        /// The token.
        token: usize,
        /// Its position.
        position: i32,
        /// The table's last row.
        last: usize,
    },
    /// A slot is not in the cache.
    #[error("token {token} has slot {slot}, the cache has -1 (none) and 0 to {last}")]
    Slot {
        /// The token.
        token: usize,
        /// Its slot.
        slot: i32,
        /// The cache's last slot.
        last: usize,
    },
    /// Two tokens have one slot; which would be left depends on who writes last.
    #[error("tokens {earlier} and {token} both have slot {slot}")]
    SharedSlot {
        /// The later token.
        token: usize,
        /// The earlier token.
        earlier: usize,
        /// Their slot.
        slot: i32,
    },
}

impl OpError {
    /// Whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Position { .. } | Self::Slot { .. } | Self::SharedSlot { .. } => Blame::Caller,
        }
    }
}

/// Rounds a binary32 value to bfloat16, to nearest even; any NaN to [`NAN`].
pub fn rounded(value: f32) -> u16 {
    if value.is_nan() {
        NAN
    } else {
        bf16_from_f32(value)
    }
}

/// Normalises rows by their root mean square: `rows` are contiguous and each as long as `weight`.
///
/// Per row, in binary32: the sum of squares; divided by the length; plus `epsilon`; square root;
/// 1 divided by that. Each element times it is rounded (N1); that times its weight is rounded (N2).
/// The two roundings are those of vLLM (`vllm/ir/ops/layernorm.py`).
///
/// # Panics
/// When `rows` are no whole rows, or a row is empty or longer than 2^24.
pub fn rms_norm(rows: &[u16], weight: &[u16], epsilon: f32) -> Vec<u16> {
    let length = weight.len();
    assert!(0 < length && length <= 1 << 24, "a row of {length}");
    assert_eq!(rows.len() % length, 0, "rows of {length}");
    let mut normed = Vec::with_capacity(rows.len());
    for row in rows.chunks_exact(length) {
        let scale = inverse_rms(row, epsilon);
        normed.extend(row.iter().zip(weight).map(|(&element, &weight)| {
            let scaled = rounded(bf16_to_f32(element) * scale);
            rounded(bf16_to_f32(scaled) * bf16_to_f32(weight))
        }));
    }
    normed
}

/// 1 divided by the root of a row's mean square plus `epsilon`, in binary32.
pub fn inverse_rms(row: &[u16], epsilon: f32) -> f32 {
    let squares = row.iter().map(|&element| {
        let element = bf16_to_f32(element);
        element * element
    });
    let sum = squares.fold(0.0_f32, |sum, square| sum + square);
    // Exact up to 2^24, which callers assert.
    let mean = sum / row.len() as f32;
    1.0 / (mean + epsilon).sqrt()
}

/// Normalises the context once per layer: `context` `[C, H]` and `weights` `[L, H]` to the normed
/// context `[L, C, H]`.
///
/// # Panics
/// When a length is not what the shape says.
pub fn norm_context(shape: &Shape, context: &[u16], weights: &[u16], epsilon: f32) -> Vec<u16> {
    assert_eq!(context.len(), shape.tokens * shape.hidden, "context");
    assert_eq!(weights.len(), shape.layers * shape.hidden, "norm weights");
    let layers = weights.chunks_exact(shape.hidden);
    layers
        .flat_map(|weight| rms_norm(context, weight, epsilon))
        .collect()
}

/// Multiplies by each layer's weights: `normed` `[L, C, H]` and `weights` `[L, 2 kv, H]` to `flat`
/// `[L, C, 2 kv]`, keys before values.
///
/// Each product and each sum is binary32, over ascending H from +0.0; the sum is rounded (M1).
///
/// # Panics
/// When a length is not what the shape says.
pub fn project(shape: &Shape, normed: &[u16], weights: &[u16]) -> Vec<u16> {
    let hidden = shape.hidden;
    assert_eq!(normed.len(), shape.normed_len(), "normed context");
    let layer_weights = 2 * shape.kv() * hidden;
    assert_eq!(weights.len(), shape.layers * layer_weights, "weights");
    let normed = wide(normed);
    let weights = wide(weights);
    let mut flat = Vec::with_capacity(2 * shape.heads_len());
    let layers = normed.chunks_exact(shape.tokens * hidden);
    for (layer, weights) in layers.zip(weights.chunks_exact(layer_weights)) {
        for token in layer.chunks_exact(hidden) {
            let columns = weights.chunks_exact(hidden);
            flat.extend(columns.map(|column| rounded(dot(token, column))));
        }
    }
    flat
}

/// The sum of products in binary32, ascending from +0.0.
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let products = left.iter().zip(right).map(|(left, right)| left * right);
    products.fold(0.0_f32, |sum, product| sum + product)
}

fn wide(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|&bits| bf16_to_f32(bits)).collect()
}

/// Adds `bias` `[L, 2 kv]` to `flat` `[L, C, 2 kv]` in place; each sum is rounded (A1).
///
/// # Panics
/// When a length is not what the shape says.
pub fn add_bias(shape: &Shape, flat: &mut [u16], bias: &[u16]) {
    let columns = 2 * shape.kv();
    assert_eq!(flat.len(), 2 * shape.heads_len(), "flat");
    assert_eq!(bias.len(), shape.layers * columns, "bias");
    let layers = flat.chunks_exact_mut(shape.tokens * columns);
    for (layer, bias) in layers.zip(bias.chunks_exact(columns)) {
        for token in layer.chunks_exact_mut(columns) {
            for (element, &bias) in token.iter_mut().zip(bias) {
                *element = rounded(bf16_to_f32(*element) + bf16_to_f32(bias));
            }
        }
    }
}

/// Copies `flat`, seen as `[L, C, 2, heads, head size]`, to `[2, L, C, heads, head size]`: all
/// keys, then all values. Bits are copied.
///
/// # Panics
/// When a length is not what the shape says.
pub fn split_heads(shape: &Shape, flat: &[u16]) -> Vec<u16> {
    assert_eq!(flat.len(), 2 * shape.heads_len(), "flat");
    let kv = shape.kv();
    let mut packed = Vec::with_capacity(flat.len());
    for half in 0..2 {
        let tokens = flat.chunks_exact(2 * kv);
        for token in tokens {
            packed.extend_from_slice(&token[half * kv..(half + 1) * kv]);
        }
    }
    packed
}

/// Normalises each key head of `keys` `[L, C, heads, head size]` by its layer's row of `weights`
/// `[L, head size]`, as [`rms_norm`] does (K1 and K2).
///
/// # Panics
/// When a length is not what the shape says.
pub fn norm_keys(shape: &Shape, keys: &[u16], weights: &[u16], epsilon: f32) -> Vec<u16> {
    assert_eq!(keys.len(), shape.heads_len(), "keys");
    assert_eq!(weights.len(), shape.layers * shape.head_size, "key weights");
    let layers = keys.chunks_exact(shape.tokens * shape.kv());
    layers
        .zip(weights.chunks_exact(shape.head_size))
        .flat_map(|(keys, weight)| rms_norm(keys, weight, epsilon))
        .collect()
}

/// Rotates `keys` `[L, C, heads, head size]` in place, each token by its position's row, the same
/// in every layer. Pairs are element `i` and `i + rotary / 2` of a head; elements from `rotary` on
/// stay.
///
/// Of a pair (x, y): `x cos` rounded (R1), minus `y sin` rounded (R2), rounded (R3); and `y cos`
/// rounded (R4), plus `x sin` rounded (R5), rounded (R6). These are the roundings of a kernel whose
/// variables are bfloat16, as vLLM's is (`csrc/pos_encoding_kernels.cu`).
///
/// # Errors
/// When a position has no row; nothing is rotated then.
///
/// # Panics
/// When a length is not what the shape says.
pub fn rotate(
    shape: &Shape,
    keys: &mut [u16],
    positions: &[i32],
    table: Table<'_>,
) -> Result<(), OpError> {
    let rotary = table.rotary;
    assert_eq!(keys.len(), shape.heads_len(), "keys");
    assert_eq!(positions.len(), shape.tokens, "positions");
    assert!(
        0 < rotary && rotary <= shape.head_size && rotary.is_multiple_of(2),
        "{rotary} rotated"
    );
    assert!(!table.rows.is_empty() && table.rows.len().is_multiple_of(rotary));
    let rows = rows_of(positions, &table)?;
    for layer in keys.chunks_exact_mut(shape.tokens * shape.kv()) {
        for (token, row) in layer.chunks_exact_mut(shape.kv()).zip(&rows) {
            for head in token.chunks_exact_mut(shape.head_size) {
                rotate_head(&mut head[..rotary], row);
            }
        }
    }
    Ok(())
}

/// The table's row of each token.
fn rows_of<'a>(positions: &[i32], table: &Table<'a>) -> Result<Vec<&'a [u16]>, OpError> {
    let rows: Vec<&[u16]> = table.rows.chunks_exact(table.rotary).collect();
    let tokens = positions.iter().enumerate().map(|(token, &position)| {
        let row = usize::try_from(position).ok().and_then(|row| rows.get(row));
        row.copied().ok_or(OpError::Position {
            token,
            position,
            last: rows.len() - 1,
        })
    });
    tokens.collect()
}

fn rotate_head(head: &mut [u16], row: &[u16]) {
    let half = head.len() / 2;
    let (cosines, sines) = row.split_at(half);
    let (left, right) = head.split_at_mut(half);
    let product = |a: u16, b: u16| bf16_to_f32(rounded(bf16_to_f32(a) * bf16_to_f32(b)));
    let pairs = left.iter_mut().zip(right);
    for ((x, y), (&cosine, &sine)) in pairs.zip(cosines.iter().zip(sines)) {
        let turned = rounded(product(*x, cosine) - product(*y, sine));
        *y = rounded(product(*y, cosine) + product(*x, sine));
        *x = turned;
    }
}

/// Writes one layer's tokens into its cache: token t's keys and values, `[C, kv]` each, go to slot
/// `slots[t]`, which is in block `slot / block size`. Slot -1 writes nothing. Bits are copied, and
/// nothing else is touched.
///
/// # Errors
/// When a slot is not in the cache, or two tokens have the same; nothing is written then.
///
/// # Panics
/// When a length is not what the sizes say.
pub fn write_cache(
    paged: &Paged,
    cache: &mut [u16],
    keys: &[u16],
    values: &[u16],
    slots: &[i32],
) -> Result<(), OpError> {
    assert!(!paged.is_empty(), "a cache of nothing");
    assert_eq!(cache.len(), paged.len(), "cache");
    assert_eq!(keys.len(), slots.len() * paged.kv, "keys");
    assert_eq!(values.len(), slots.len() * paged.kv, "values");
    let places = places_of(paged, slots)?;
    let tokens = keys
        .chunks_exact(paged.kv)
        .zip(values.chunks_exact(paged.kv));
    for ((keys, values), place) in tokens.zip(places) {
        if let Some(place) = place {
            cache[place..place + paged.kv].copy_from_slice(keys);
            let place = place + paged.block_size * paged.kv;
            cache[place..place + paged.kv].copy_from_slice(values);
        }
    }
    Ok(())
}

/// Where each token's keys begin in the cache; none for slot -1.
fn places_of(paged: &Paged, slots: &[i32]) -> Result<Vec<Option<usize>>, OpError> {
    let last = paged.blocks * paged.block_size - 1;
    let mut writers = vec![None; last + 1];
    let place = |(token, &slot): (usize, &i32)| {
        if slot == -1 {
            return Ok(None);
        }
        let index = usize::try_from(slot).ok().filter(|index| *index <= last);
        let index = index.ok_or(OpError::Slot { token, slot, last })?;
        if let Some(earlier) = writers[index].replace(token) {
            return Err(OpError::SharedSlot {
                token,
                earlier,
                slot,
            });
        }
        let (block, row) = (index / paged.block_size, index % paged.block_size);
        Ok(Some((block * 2 * paged.block_size + row) * paged.kv))
    };
    slots.iter().enumerate().map(place).collect()
}
