//! Kernels of blocks in the order of `ggml-cpu-repack`, straight from packed bytes: `Q4_K` and
//! `Q2_K` times `Q8_K`, `IQ4_NL` and `MXFP4` times `Q8_0`.
//!
//! - `activations`: how the inputs are quantised; a boundary of its own;
//! - `packed`: where a row's codes and factors lie.
//!
//! Every dot product within a block is exact in integers; only what is made of it is rounded, in
//! binary32, block after block. Specified in `docs/format/kernels.md`, section 5.

mod activations;
mod packed;

pub(crate) use activations::Activations;
pub(crate) use packed::{Block, Blocks, GROUP_ROWS};

use crate::{Inputs, Kernel, KernelError, Output};

/// The kernels of this module.
pub(super) const KERNELS: &[&dyn Kernel] = &[
    &Mul {
        id: "mul-q4_k-ggml-cpu-repack",
        fixtures: &["mul-q4_k-ggml-cpu-repack-v1"],
        blocks: Blocks::Q4K,
    },
    &Mul {
        id: "mul-q2_k-ggml-cpu-repack",
        fixtures: &["mul-q2_k-ggml-cpu-repack-v1"],
        blocks: Blocks::Q2K,
    },
    &Mul {
        id: "mul-iq4_nl-ggml-cpu-repack",
        fixtures: &["mul-iq4_nl-ggml-cpu-repack-v1"],
        blocks: Blocks::Iq4Nl,
    },
    &Mul {
        id: "mul-mxfp4-ggml-cpu-repack",
        fixtures: &["mul-mxfp4-ggml-cpu-repack-v1"],
        blocks: Blocks::Mxfp4,
    },
];

/// Multiplies rows of activations with a packed matrix of one type.
struct Mul {
    id: &'static str,
    fixtures: &'static [&'static str],
    blocks: Blocks,
}

impl Kernel for Mul {
    fn id(&self) -> &'static str {
        self.id
    }

    fn fixtures(&self) -> &'static [&'static str] {
        self.fixtures
    }

    fn run(&self, inputs: &Inputs<'_>) -> Result<Vec<Output>, KernelError> {
        let case = Case::of(self.blocks, inputs)?;
        let output = case.each_output(sum);
        Ok(vec![
            Output {
                boundary: "activations".to_owned(),
                bytes: case.activations,
            },
            Output {
                boundary: "output".to_owned(),
                bytes: output.into_iter().flat_map(f32::to_le_bytes).collect(),
            },
        ])
    }
}

/// What a block of a weight row and a block of activations give: exact integers, and the factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// Codes times codes.
    pub(crate) dot: i32,
    /// Minima times codes.
    pub(crate) minimum_dot: i32,
    /// The sums of the magnitudes of what the two are sums of.
    pub(crate) magnitudes: [i32; 2],
    /// The weights' factor of the codes.
    pub(crate) scale: f32,
    /// The weights' factor of the minima.
    pub(crate) minimum: f32,
    /// The activations' factor.
    pub(crate) activation_scale: f32,
}

impl Term {
    fn of(weights: &Block, (activation_scale, codes): (f32, &[u8])) -> Self {
        let mut term = Self {
            dot: 0,
            minimum_dot: 0,
            magnitudes: [0; 2],
            scale: weights.scale,
            minimum: weights.minimum,
            activation_scale,
        };
        for (weight, code) in weights.codes.iter().zip(codes) {
            let product = weight * i32::from(code.cast_signed());
            term.dot += product;
            term.magnitudes[0] += product.abs();
        }
        for (minimum, code) in weights.minima.iter().zip(codes) {
            let product = minimum * i32::from(code.cast_signed());
            term.minimum_dot += product;
            term.magnitudes[1] += product.abs();
        }
        term
    }
}

/// The sum in binary32, block after block: products and minima apart, one subtraction at the end.
pub(crate) fn sum(terms: &[Term]) -> f32 {
    let (mut products, mut minima) = (0.0f32, 0.0f32);
    for term in terms {
        products += (term.dot as f32 * term.scale) * term.activation_scale;
        minima += (term.minimum_dot as f32 * term.minimum) * term.activation_scale;
    }
    products - minima
}

/// One case, its inputs of the lengths that the parameters say.
pub(crate) struct Case<'a> {
    blocks: Blocks,
    /// The packed groups of eight rows, one after the other.
    weights: &'a [u8],
    /// Bytes of such a group.
    group_bytes: usize,
    /// The quantised rows, one after the other.
    pub(crate) activations: Vec<u8>,
    /// Bytes of such a row.
    row_bytes: usize,
}

impl<'a> Case<'a> {
    /// Judges the lengths and quantises the activations.
    pub(crate) fn of(blocks: Blocks, inputs: &Inputs<'a>) -> Result<Self, KernelError> {
        let k = inputs.multiple("k", blocks.elements() as u64)?;
        let n = inputs.multiple("n", GROUP_ROWS as u64)?;
        let block_count = k / blocks.elements() as u64;
        let group_bytes = block_count.saturating_mul(blocks.packed_bytes() as u64);
        let weight_bytes = (n / GROUP_ROWS as u64).saturating_mul(group_bytes);
        let weights = inputs.bytes("weights", weight_bytes)?;
        let values = inputs.floats("input", inputs.width.saturating_mul(k))?;
        let activations = blocks.activations();
        Ok(Self {
            blocks,
            weights,
            group_bytes: in_memory(group_bytes),
            activations: activations.quantise(&values),
            row_bytes: in_memory(block_count) * activations.block_bytes(),
        })
    }

    /// Gives the terms of each output, in the order of the blocks, to `reduce`; outputs follow
    /// each other weight row by weight row, for each row of activations.
    pub(crate) fn each_output<T>(&self, reduce: impl Fn(&[Term]) -> T) -> Vec<T> {
        let groups = self.weights.chunks_exact(self.group_bytes);
        let rows = groups.flat_map(|group| (0..GROUP_ROWS).map(move |row| (group, row)));
        let rows: Vec<Vec<Block>> = rows.map(|(group, row)| self.row(group, row)).collect();
        let activations = self.activations.chunks_exact(self.row_bytes);
        let outputs = activations.flat_map(|activations| {
            let reduce = &reduce;
            rows.iter()
                .map(move |row| reduce(&self.terms(row, activations)))
        });
        outputs.collect()
    }

    fn row(&self, group: &[u8], row: usize) -> Vec<Block> {
        let packed = group.chunks_exact(self.blocks.packed_bytes());
        packed.map(|packed| self.blocks.read(packed, row)).collect()
    }

    fn terms(&self, row: &[Block], activations: &[u8]) -> Vec<Term> {
        let form = self.blocks.activations();
        let activations = activations.chunks_exact(form.block_bytes());
        let blocks = row.iter().zip(activations);
        let terms = blocks.map(|(weights, block)| Term::of(weights, form.read(block)));
        terms.collect()
    }
}

/// A length of something that lies in memory.
fn in_memory(length: u64) -> usize {
    usize::try_from(length).expect("because what it measures lies in memory")
}
