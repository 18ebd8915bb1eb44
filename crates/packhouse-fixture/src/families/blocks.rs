//! Fixtures of blocks in the order of `ggml-cpu-repack`: `Q4_K`, `Q2_K`, `IQ4_NL`, `MXFP4`.
//!
//! - `weights`, `inputs`: what goes in, drawn or made for an edge;
//! - `near`: the exact outputs, and what a kernel of another order must keep.
//!
//! Two packed weights: `weights` of widths 1, 4, 6, 8 and 16 has edges of codes, `weights-edges` of
//! width 2 those of scales. Specified in `docs/format/kernels.md`, section 5.

mod inputs;
mod near;
#[cfg(test)]
mod tests;
mod weights;

use super::Family;
use crate::kernels::blocks::{Blocks, Case as KernelCase, GROUP_ROWS, sum};
use crate::mersenne::Draws;
use crate::{Case, EdgeRow, Expected, Fixture, Inputs, Tensor, Tolerance};
use near::Exact;
use packhouse_base::ggml_type::GgmlType;
use packhouse_component::{Boundary, Dim, Dtype};
use packhouse_layout::{Admitted, Layout, pack_scalar};
use std::collections::BTreeMap;

/// The fixtures of this module.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        id: "mul-q4_k-ggml-cpu-repack-v1",
        generate: || Recipe::published(Blocks::Q4K).fixture(),
        drawn: Some(|seed| Recipe::drawn(Blocks::Q4K, seed).fixture()),
    },
    Family {
        id: "mul-q2_k-ggml-cpu-repack-v1",
        generate: || Recipe::published(Blocks::Q2K).fixture(),
        drawn: Some(|seed| Recipe::drawn(Blocks::Q2K, seed).fixture()),
    },
    Family {
        id: "mul-iq4_nl-ggml-cpu-repack-v1",
        generate: || Recipe::published(Blocks::Iq4Nl).fixture(),
        drawn: Some(|seed| Recipe::drawn(Blocks::Iq4Nl, seed).fixture()),
    },
    Family {
        id: "mul-mxfp4-ggml-cpu-repack-v1",
        generate: || Recipe::published(Blocks::Mxfp4).fixture(),
        drawn: Some(|seed| Recipe::drawn(Blocks::Mxfp4, seed).fixture()),
    },
];

/// What a fixture is made from.
#[derive(Clone, Copy)]
struct Recipe {
    blocks: Blocks,
    seed: u64,
    /// Whether there are rows made for an edge; without them all rows are drawn.
    has_edges: bool,
}

impl Recipe {
    const fn published(blocks: Blocks) -> Self {
        let seed = match blocks {
            Blocks::Q4K => 412,
            Blocks::Q2K => 210,
            Blocks::Iq4Nl => 420,
            Blocks::Mxfp4 => 439,
        };
        Self {
            blocks,
            seed,
            has_edges: true,
        }
    }

    const fn drawn(blocks: Blocks, seed: u64) -> Self {
        Self {
            blocks,
            seed,
            has_edges: false,
        }
    }

    fn fixture(self) -> Fixture {
        let name = self.blocks.type_name().to_lowercase();
        let mut fixture = Fixture {
            id: format!("mul-{name}-ggml-cpu-repack-v1"),
            summary: format!(
                "{} times {}, straight from the packed blocks of eight rows",
                self.blocks.type_name(),
                self.blocks.activations().type_name()
            ),
            layout: Some(Layout::GgmlCpuRepack.id().to_owned()),
            contract: contract(self.blocks),
            parameters: self.parameters(),
            tensors: BTreeMap::new(),
            boundaries: self.boundaries(),
            cases: Vec::new(),
        };
        for is_edges in [false, true] {
            let file = format!("{}.{name}.bin", weights_stem(is_edges));
            fixture.tensors.insert(file, self.weights(is_edges));
        }
        for width in WIDTHS {
            self.add_case(width, &mut fixture);
        }
        fixture
    }

    /// Elements of a row: three or eleven blocks.
    const fn k(self) -> usize {
        match self.blocks {
            Blocks::Q4K | Blocks::Q2K => 3 * 256,
            Blocks::Iq4Nl | Blocks::Mxfp4 => 11 * 32,
        }
    }

    const fn block_count(self) -> usize {
        self.k() / self.blocks.elements()
    }

    fn parameters(self) -> BTreeMap<String, u64> {
        let parameters = [
            ("k", self.k() as u64),
            ("n", N as u64),
            ("seed", self.seed),
            ("unit_rows", GROUP_ROWS as u64),
        ];
        parameters
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    fn boundaries(self) -> Vec<Boundary> {
        let row_bytes = self.block_count() * self.blocks.activations().block_bytes();
        let shape = |columns: usize| [Dim::Widths(1), Dim::Fixed(columns as u64)];
        vec![
            Boundary::new(ACTIVATIONS, Dtype::U8, shape(row_bytes)),
            Boundary::new(OUTPUT, Dtype::F32, shape(N)),
        ]
    }

    /// The rows of a weight, in ggml's order.
    fn source(self, is_edges: bool) -> Vec<u8> {
        let mut draws = Draws::new(self.seed.wrapping_add(if is_edges { 2_000 } else { 1_000 }));
        let kinds = match self.has_edges {
            true => weights::kinds(self.blocks, is_edges, N),
            false => vec![weights::RowKind::Drawn; N],
        };
        let rows = kinds.into_iter();
        let rows =
            rows.flat_map(|kind| weights::row(self.blocks, kind, self.block_count(), &mut draws));
        rows.collect()
    }

    fn admitted(self) -> Admitted {
        let ty = GgmlType::from_name(self.blocks.type_name());
        let ty = ty.expect("because its types are current");
        let admitted =
            Layout::GgmlCpuRepack.admit(ty, &[self.k() as u64, N as u64], &BTreeMap::new());
        admitted.expect("because the rows are whole groups of whole blocks")
    }

    fn weights(self, is_edges: bool) -> Tensor {
        let source = self.source(is_edges);
        let mut bytes = vec![0; source.len()];
        pack_scalar(&self.admitted(), &source, &mut bytes)
            .expect("because these are types that we pack");
        let groups = N / GROUP_ROWS;
        tensor(Dtype::U8, groups, bytes)
    }

    /// Rows of activations, one by one.
    fn input(self, width: u64) -> Vec<f32> {
        let mut draws = Draws::new(self.seed.wrapping_add(width));
        let kinds = self.input_kinds(width).into_iter();
        let activations = self.blocks.activations();
        let rows =
            kinds.flat_map(|kind| inputs::row(activations, kind, self.block_count(), &mut draws));
        rows.collect()
    }

    fn input_kinds(self, width: u64) -> Vec<inputs::RowKind> {
        match self.has_edges {
            true => inputs::kinds(width, width == EDGE_WIDTH),
            false => inputs::drawn_kinds(width),
        }
    }

    fn add_case(self, width: u64, fixture: &mut Fixture) {
        let is_edges = width == EDGE_WIDTH;
        let name = self.blocks.type_name().to_lowercase();
        let weights = format!("{}.{name}.bin", weights_stem(is_edges));
        let input = format!("input-m{width}.f32.bin");
        let codes = self.blocks.activations().type_name().to_lowercase();
        let activations = format!("activations-m{width}.{codes}.bin");
        let [output, exact, bound] =
            ["output", "exact", "bound"].map(|stem| format!("{stem}-m{width}.f32.bin"));
        let rows = at(width);
        let values = self.input(width);
        fixture.tensors.insert(input.clone(), floats(rows, values));
        let inputs = [("weights", &weights), ("input", &input)];
        let tensors =
            inputs.map(|(role, file)| (role.to_owned(), &fixture.tensors[file].bytes[..]));
        let tensors = tensors.into();
        let kernel = KernelCase::of(
            self.blocks,
            &Inputs {
                width,
                parameters: &fixture.parameters,
                tensors: &tensors,
            },
        );
        let kernel = kernel.expect("because the recipe keeps its own sizes");
        let sums = kernel.each_output(sum);
        let exacts = kernel.each_output(Exact::of);
        let bounds = near::bounds(self.blocks, self.k(), &exacts);
        let quantised = tensor(Dtype::U8, rows, kernel.activations);
        fixture.cases.push(Case {
            width,
            arm: Case::PLAIN.to_owned(),
            inputs: inputs
                .map(|(role, file)| (role.to_owned(), file.clone()))
                .into(),
            expected: vec![
                expected(
                    ACTIVATIONS,
                    &activations,
                    Tolerance::BitEqual,
                    WHY_ACTIVATIONS,
                ),
                expected(OUTPUT, &output, Tolerance::BitEqual, WHY_OUTPUT),
            ],
            near: vec![expected(
                OUTPUT,
                &exact,
                Tolerance::Within {
                    tensor: bound.clone(),
                },
                WHY_NEAR,
            )],
            edge_rows: self.edge_rows(width),
        });
        let exacts = exacts.into_iter().map(Exact::rounded).collect();
        let made = [
            (activations, quantised),
            (output, floats(rows, sums)),
            (exact, floats(rows, exacts)),
            (bound, floats(rows, bounds)),
        ];
        fixture.tensors.extend(made);
    }

    fn edge_rows(self, width: u64) -> Vec<EdgeRow> {
        let mut edge_rows = Vec::new();
        let mut add = |of: &str, row: u64, label: Option<&str>| {
            edge_rows.extend(label.map(|label| EdgeRow {
                row,
                of: of.to_owned(),
                label: label.to_owned(),
            }));
        };
        if self.has_edges {
            let kinds = weights::kinds(self.blocks, width == EDGE_WIDTH, N);
            for (row, kind) in (0..).zip(kinds) {
                add("weights", row, kind.label());
            }
        }
        for (row, kind) in (0..).zip(self.input_kinds(width)) {
            add(ACTIVATIONS, row, kind.label());
            add(OUTPUT, row, kind.label());
        }
        edge_rows
    }
}

fn contract(blocks: Blocks) -> String {
    let (activations, minima) = match blocks {
        Blocks::Q4K | Blocks::Q2K => (
            "Q8_K by ggml's quantize_row_q8_K_ref",
            " Q starts at 0 and takes (f32(minima . codes) * minimum) * d in the same order; \
             output = P - Q.",
        ),
        Blocks::Iq4Nl | Blocks::Mxfp4 => (
            "Q8_0 by ggml's quantize_row_q8_0_ref",
            " output = P. MXFP4 has doubled levels and halved scales, as in ggml.",
        ),
    };
    format!(
        "activations: {activations}, row-major. Dot products within a block are exact integers, \
         sub-block scales included. All else is binary32, subnormals kept, nothing fused: P starts \
         at 0; for each block in order P = P + (f32(dot) * scale) * d, with the weights' scale and \
         the activations' d.{minima} docs/format/kernels.md, section 5."
    )
}

fn expected(boundary: &str, tensor: &str, tolerance: Tolerance, why: &str) -> Expected {
    Expected {
        boundary: boundary.to_owned(),
        tensor: tensor.to_owned(),
        tolerance,
        why: why.to_owned(),
    }
}

/// Rows of binary32 values.
fn floats(rows: usize, values: Vec<f32>) -> Tensor {
    let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
    tensor(Dtype::F32, rows, bytes)
}

/// A tensor of as many rows.
fn tensor(dtype: Dtype, rows: usize, bytes: Vec<u8>) -> Tensor {
    let (rows, elements) = (rows as u64, bytes.len() as u64 / dtype.bytes());
    Tensor {
        dtype,
        shape: vec![rows, elements / rows],
        bytes,
    }
}

const fn weights_stem(is_edges: bool) -> &'static str {
    if is_edges { "weights-edges" } else { "weights" }
}

/// A width as a length.
fn at(width: u64) -> usize {
    usize::try_from(width).expect("because widths are small")
}

/// The widths; width 2 has the weights with edges.
const WIDTHS: [u64; 6] = [1, 2, 4, 6, 8, 16];
/// The width whose weights are `weights-edges`.
const EDGE_WIDTH: u64 = 2;
/// Rows of a weight: five groups, which is no whole number of units of 16.
const N: usize = 5 * GROUP_ROWS;

const ACTIVATIONS: &str = "activations";
const OUTPUT: &str = "output";

const WHY_ACTIVATIONS: &str = "each value is quantised by itself, by a rule that leaves no choice";
const WHY_OUTPUT: &str = "integer sums are exact, and the order of the binary32 sums is declared";
const WHY_NEAR: &str = "a kernel of another order makes at most as many roundings as it has terms; \
                        each output's bound follows from their number and magnitudes";
