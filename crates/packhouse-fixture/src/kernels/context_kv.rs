//! The context-KV precompute: every layer's keys and values of a draft model's context, in
//! bfloat16, and its paged cache.
//!
//! Specified in `docs/format/kernels.md`, section 7. The operations are in [`crate::bf16_ops`];
//! here is only their order, and what is handed from one to the next.

use crate::bf16_ops::{
    OpError, Paged, Shape, Table, add_bias, norm_context, norm_keys, project, rotate, split_heads,
    write_cache,
};
use crate::{Inputs, Kernel, KernelError, Output};
use packhouse_component::{Boundary, Dim, Dtype};

/// The kernels of this module.
pub(super) const KERNELS: &[&dyn Kernel] = &[&ContextKv];

/// The fixture's id, and the kernel's.
pub(crate) const ID: &str = "contextkv-bf16-v1";

/// The kernel.
#[derive(Debug)]
pub(crate) struct ContextKv;

/// The sizes that a fixture's parameters give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Of the tensors.
    pub(crate) shape: Shape,
    /// Of one layer's cache.
    pub(crate) paged: Paged,
    /// Rows of the rotation table.
    pub(crate) positions: usize,
    /// Elements of a head that are rotated.
    pub(crate) rotary: usize,
    /// What is added to a mean square: the bits of a binary32.
    pub(crate) epsilon_bits: u32,
}

impl Kernel for ContextKv {
    fn id(&self) -> &'static str {
        ID
    }

    fn fixtures(&self) -> &'static [&'static str] {
        &[ID]
    }

    fn run(&self, inputs: &Inputs<'_>) -> Result<Vec<Output>, KernelError> {
        let sizes = Sizes::of(inputs)?;
        let given = Given::of(inputs, &sizes)?;
        let (shape, epsilon) = (&sizes.shape, f32::from_bits(sizes.epsilon_bits));
        let normed = norm_context(shape, &given.context, &given.input_norm, epsilon);
        let mut flat = project(shape, &normed, &given.kv_weight);
        if let Some(bias) = &given.bias {
            add_bias(shape, &mut flat, bias);
        }
        let packed = split_heads(shape, &flat);
        let (keys, values) = packed.split_at(shape.heads_len());
        let normalised = norm_keys(shape, keys, &given.key_norm, epsilon);
        let mut rotated = normalised.clone();
        let table = Table {
            rows: &given.table,
            rotary: sizes.rotary,
        };
        rotate(shape, &mut rotated, &given.positions, table)
            .map_err(|error| refused(POSITIONS, &error))?;
        let mut caches = given.cache;
        let layer = shape.tokens * shape.kv();
        let layers = rotated.chunks_exact(layer).zip(values.chunks_exact(layer));
        for (cache, (keys, values)) in caches.chunks_exact_mut(sizes.paged.len()).zip(layers) {
            write_cache(&sizes.paged, cache, keys, values, &given.slots)
                .map_err(|error| refused(SLOTS, &error))?;
        }
        let mut made: Vec<&[u16]> = vec![&normed, &flat, keys, values, &normalised, &rotated];
        made.extend(caches.chunks_exact(sizes.paged.len()));
        let outputs = boundaries(&sizes).into_iter().zip(made);
        let outputs = outputs.map(|(boundary, elements)| Output {
            boundary: boundary.name,
            bytes: bytes_of(elements),
        });
        Ok(outputs.collect())
    }
}

fn refused(role: &str, error: &OpError) -> KernelError {
    KernelError::Element {
        role: role.to_owned(),
        why: error.to_string(),
    }
}

/// What a case gives, as numbers.
struct Given {
    context: Vec<u16>,
    input_norm: Vec<u16>,
    kv_weight: Vec<u16>,
    bias: Option<Vec<u16>>,
    key_norm: Vec<u16>,
    table: Vec<u16>,
    positions: Vec<i32>,
    slots: Vec<i32>,
    cache: Vec<u16>,
}

impl Given {
    fn of(inputs: &Inputs<'_>, sizes: &Sizes) -> Result<Self, KernelError> {
        let shape = &sizes.shape;
        let bf16 = |role: &str, extents: &[usize]| {
            let bytes = inputs.bytes(role, bytes_in(extents, 2))?;
            let (elements, _) = bytes.as_chunks();
            Ok(elements
                .iter()
                .map(|bits| u16::from_le_bytes(*bits))
                .collect())
        };
        let i32s = |role: &str| {
            let bytes = inputs.bytes(role, bytes_in(&[shape.tokens], 4))?;
            let (elements, _) = bytes.as_chunks();
            Ok(elements
                .iter()
                .map(|bits| i32::from_le_bytes(*bits))
                .collect())
        };
        let columns = 2 * shape.kv();
        let bias = match inputs.tensors.contains_key(BIAS) {
            true => Some(bf16(BIAS, &[shape.layers, columns])?),
            false => None,
        };
        Ok(Self {
            context: bf16(CONTEXT, &[shape.tokens, shape.hidden])?,
            input_norm: bf16(INPUT_NORM, &[shape.layers, shape.hidden])?,
            kv_weight: bf16(KV_WEIGHT, &[shape.layers, columns, shape.hidden])?,
            bias,
            key_norm: bf16(KEY_NORM, &[shape.layers, shape.head_size])?,
            table: bf16(TABLE, &[sizes.positions, sizes.rotary])?,
            positions: i32s(POSITIONS)?,
            slots: i32s(SLOTS)?,
            cache: bf16(CACHE, &[shape.layers, sizes.paged.len()])?,
        })
    }
}

impl Sizes {
    /// The sizes of a case.
    ///
    /// # Errors
    /// When a parameter is missing, 0, or more than a kernel in memory can have.
    pub(crate) fn of(inputs: &Inputs<'_>) -> Result<Self, KernelError> {
        let size = |name: &str| size_of(name, inputs.multiple(name, 1)?);
        let shape = Shape {
            layers: size(LAYERS)?,
            tokens: size_of("width", inputs.width)?,
            hidden: size(HIDDEN)?,
            kv_heads: size(KV_HEADS)?,
            head_size: size(HEAD_SIZE)?,
        };
        let paged = Paged {
            blocks: size(BLOCKS)?,
            block_size: size(BLOCK_SIZE)?,
            kv: shape.kv(),
        };
        let rotary = inputs.multiple(ROTARY, 2)?;
        if rotary > shape.head_size as u64 {
            let expected = format!("at most {HEAD_SIZE}, {}", shape.head_size);
            return Err(wrong(ROTARY, rotary, expected));
        }
        let bits = inputs.parameter(EPSILON_BITS)?;
        let epsilon_bits = u32::try_from(bits).ok();
        let epsilon_bits = epsilon_bits.filter(|bits| f32::from_bits(*bits).is_normal());
        let expected = || "the bits of a normal binary32".to_owned();
        let sizes = Self {
            shape,
            paged,
            positions: size(POSITION_COUNT)?,
            rotary: size_of(ROTARY, rotary)?,
            epsilon_bits: epsilon_bits.ok_or_else(|| wrong(EPSILON_BITS, bits, expected()))?,
        };
        sizes.bounded()
    }

    /// Refuses sizes whose products would need more memory than a judge is worth.
    fn bounded(self) -> Result<Self, KernelError> {
        let shape = &self.shape;
        let row = (2 * shape.kv() as u64).max(shape.hidden as u64);
        let product = [shape.tokens as u64, row]
            .into_iter()
            .try_fold(shape.layers as u64, u64::checked_mul)
            .unwrap_or(u64::MAX);
        if product > ELEMENTS_MAX {
            let name = format!("{LAYERS} x width x row");
            return Err(wrong(&name, product, format!("at most {ELEMENTS_MAX}")));
        }
        Ok(self)
    }
}

/// A size of at least 1 and at most [`SIZE_MAX`], so that products of four fit 64 bits.
fn size_of(name: &str, value: u64) -> Result<usize, KernelError> {
    match usize::try_from(value) {
        Ok(size) if (1..=SIZE_MAX).contains(&value) => Ok(size),
        Ok(_) | Err(_) => Err(wrong(name, value, format!("1 to {SIZE_MAX}"))),
    }
}

fn wrong(name: &str, actual: u64, expected: String) -> KernelError {
    KernelError::Size {
        name: name.to_owned(),
        actual,
        expected,
    }
}

/// Bytes of a tensor, saturating: what doesn't fit is no length that bytes in memory have.
fn bytes_in(extents: &[usize], element_bytes: u64) -> u64 {
    let extents = extents.iter().map(|extent| *extent as u64);
    extents.fold(element_bytes, u64::saturating_mul)
}

/// The little-endian bytes of elements.
pub(crate) fn bytes_of(elements: &[u16]) -> Vec<u8> {
    let bytes = elements.iter().flat_map(|element| element.to_le_bytes());
    bytes.collect()
}

/// The boundaries, in the order in which they are made.
///
/// Keys and values share one storage, values behind all keys; rotation is in place.
pub(crate) fn boundaries(sizes: &Sizes) -> Vec<Boundary> {
    let fixed = |size: usize| Dim::Fixed(size as u64);
    let shape = &sizes.shape;
    let (layers, width) = (fixed(shape.layers), Dim::Widths(1));
    let heads = [layers, width, fixed(shape.kv_heads), fixed(shape.head_size)];
    let bf16 = |name: &str, shape: &[Dim]| Boundary::new(name, Dtype::Bf16, shape);
    let mut boundaries = vec![
        bf16(NORMED, &[layers, width, fixed(shape.hidden)]),
        bf16(FLAT, &[layers, width, fixed(2 * shape.kv())]),
        bf16(PROJECTED_K, &heads).within(PACKED, []),
        bf16(PROJECTED_V, &heads).within(PACKED, heads),
        bf16(NORMALISED_K, &heads),
        bf16(ROTATED_K, &heads).within(NORMALISED_K, []),
    ];
    let paged = &sizes.paged;
    let slots = [
        fixed(paged.blocks),
        Dim::Fixed(2),
        fixed(paged.block_size),
        fixed(paged.kv),
    ];
    boundaries.extend((0..shape.layers).map(|layer| bf16(&cache_name(layer), &slots)));
    boundaries
}

/// The boundary of a layer's cache.
pub(crate) fn cache_name(layer: usize) -> String {
    format!("cache-{layer}")
}

// Roles of inputs.
pub(crate) const CONTEXT: &str = "context";
pub(crate) const INPUT_NORM: &str = "input-norm";
pub(crate) const KV_WEIGHT: &str = "kv-weight";
pub(crate) const BIAS: &str = "bias";
pub(crate) const KEY_NORM: &str = "key-norm";
pub(crate) const TABLE: &str = "table";
pub(crate) const POSITIONS: &str = "positions";
pub(crate) const SLOTS: &str = "slots";
pub(crate) const CACHE: &str = "cache";

// Parameters.
pub(crate) const LAYERS: &str = "layers";
pub(crate) const HIDDEN: &str = "hidden";
pub(crate) const KV_HEADS: &str = "kv_heads";
pub(crate) const HEAD_SIZE: &str = "head_size";
pub(crate) const ROTARY: &str = "rotary";
pub(crate) const POSITION_COUNT: &str = "positions";
pub(crate) const BLOCKS: &str = "blocks";
pub(crate) const BLOCK_SIZE: &str = "block_size";
pub(crate) const EPSILON_BITS: &str = "epsilon_bits";

// Boundaries, and the storage of keys and values.
pub(crate) const NORMED: &str = "normed";
pub(crate) const FLAT: &str = "flat";
pub(crate) const PROJECTED_K: &str = "projected-k";
pub(crate) const PROJECTED_V: &str = "projected-v";
pub(crate) const NORMALISED_K: &str = "normalised-k";
pub(crate) const ROTATED_K: &str = "rotated-k";
const PACKED: &str = "packed";

/// The largest single size.
const SIZE_MAX: u64 = 1 << 15;

/// The most elements of one tensor of a case.
const ELEMENTS_MAX: u64 = 1 << 26;

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference draft model on one of four ranks: six layers of two key heads.
    fn reference(width: usize) -> Sizes {
        Sizes {
            shape: Shape {
                layers: 6,
                tokens: width,
                hidden: 3072,
                kv_heads: 2,
                head_size: 128,
            },
            paged: Paged {
                blocks: 4,
                block_size: 16,
                kv: 256,
            },
            positions: 64,
            rotary: 128,
            epsilon_bits: 1e-6_f32.to_bits(),
        }
    }

    /// An analyzer once demanded an offset of 0 of every tensor, and rejected a good run.
    #[test]
    fn projected_v_begins_behind_projected_k_and_all_else_at_0() {
        for (width, expected) in [(1, 1536), (8, 12288), (12, 18432)] {
            let boundaries = boundaries(&reference(width));
            assert_eq!(boundaries.len(), 6 + 6);
            for boundary in &boundaries {
                let form = boundary.form(width as u64).expect("because it is small");
                let is_v = boundary.name == PROJECTED_V;
                let offset = if is_v { expected } else { 0 };
                assert_eq!(form.storage_offset, offset, "{} at {width}", boundary.name);
            }
        }
    }

    /// The workspace: what of one storage is shared counts once.
    #[test]
    fn four_buffers_take_52224_bytes_for_each_token() {
        for (width, expected) in [(1, 52_224), (8, 417_792), (12, 626_688)] {
            let bytes = |name: &str| {
                let boundaries = boundaries(&reference(width));
                let found = boundaries.iter().find(|boundary| boundary.name == name);
                let form = found.expect("because it is one of them").form(width as u64);
                form.expect("because it is small").bytes
            };
            let packed = bytes(PROJECTED_K) + bytes(PROJECTED_V);
            let all = bytes(NORMED) + bytes(FLAT) + packed + bytes(NORMALISED_K);
            assert_eq!(all, expected);
            // By the sizes alone it is the same.
            let by_sizes = reference(width).shape.workspace_bytes();
            assert_eq!(by_sizes as u64, expected);
        }
    }

    /// What all widths take together, and the stacked weights: figures that are published.
    #[test]
    fn workspaces_of_all_widths_and_stacked_weights_take_what_is_published() {
        let all = |widths: std::ops::RangeInclusive<usize>| -> usize {
            widths
                .map(|width| reference(width).shape.workspace_bytes())
                .sum()
        };
        assert_eq!((all(1..=8), all(1..=12)), (1_880_064, 4_073_472));
        assert!((1..=12).all(|width| all(width..=width) == 52_224 * width));
        assert_eq!(reference(1).shape.kv_weight_bytes(), 18_874_368);
        assert_eq!(reference(8).shape.kv_weight_bytes(), 18_874_368);
    }
}
