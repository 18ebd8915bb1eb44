//! Fixtures of an lm-head in int8 tiles: one head and one set of inputs in two orders.
//!
//! - `rows`: values of activations and of the head's columns, drawn or made for an edge.
//!
//! What is expected comes from one kernel each; a test takes the head's columns another way.
//! Specified in `docs/format/kernels.md`, section 6.

mod rows;
#[cfg(test)]
mod tests;

use super::Family;
use crate::kernels::int8_tile::{CODES, Case as KernelCase, OUTPUT, Order, SCALES, Term, product};
use crate::mersenne::Draws;
use crate::{Case, EdgeRow, Expected, Fixture, Inputs, Tensor, Tolerance};
use packhouse_base::ggml_type::GgmlType;
use packhouse_component::{Boundary, Dim, Dtype};
use packhouse_layout::{Layout, pack_scalar};
use rows::RowKind;
use std::collections::BTreeMap;

/// The fixtures of this module.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        id: "head-int8-tile-rm-v1",
        generate: || Recipe::published(Order::RowMajor).fixture(),
        drawn: Some(|seed| Recipe::drawn(Order::RowMajor, seed).fixture()),
    },
    Family {
        id: "head-int8-tile-b8-v1",
        generate: || Recipe::published(Order::Blocked).fixture(),
        drawn: Some(|seed| Recipe::drawn(Order::Blocked, seed).fixture()),
    },
];

/// What a fixture is made from.
#[derive(Clone, Copy)]
struct Recipe {
    order: Order,
    seed: u64,
    /// Whether there are rows made for an edge; without them all rows are drawn.
    has_edges: bool,
}

impl Recipe {
    /// Both orders have the same seed, so the same head.
    const fn published(order: Order) -> Self {
        Self {
            order,
            seed: SEED,
            has_edges: true,
        }
    }

    const fn drawn(order: Order, seed: u64) -> Self {
        Self {
            order,
            seed,
            has_edges: false,
        }
    }

    const fn layout(self) -> Layout {
        match self.order {
            Order::RowMajor => Layout::Int8TileRm,
            Order::Blocked => Layout::Int8TileB8,
        }
    }

    fn fixture(self) -> Fixture {
        let id = self.layout().id();
        let shape = |columns: u64| [Dim::Widths(1), Dim::Fixed(columns)];
        let mut fixture = Fixture {
            id: format!("head-{id}"),
            summary: "an lm-head of int8 columns times int8 activations, straight from its tiles"
                .to_owned(),
            layout: Some(id.to_owned()),
            contract: CONTRACT.to_owned(),
            parameters: self.parameters(),
            tensors: BTreeMap::from([(WEIGHTS.to_owned(), self.weights())]),
            boundaries: vec![
                Boundary::new(CODES, Dtype::I8, shape(K)),
                Boundary::new(SCALES, Dtype::F32, shape(1)),
                Boundary::new(OUTPUT, Dtype::F32, shape(N)),
            ],
            cases: Vec::new(),
        };
        for width in WIDTHS {
            self.add_case(width, &mut fixture);
        }
        fixture
    }

    /// Sizes of the tiles: two of them, the second ragged, with padding on both sides; in the
    /// blocked order two bands of 18 blocks.
    fn sizes(self) -> BTreeMap<String, u64> {
        let (kd, nd) = match self.order {
            Order::RowMajor => (1_100, 143),
            Order::Blocked => (18 * 64, 2 * 128),
        };
        let sizes = [("kd", kd), ("nd", nd), ("kpad", K + 6), ("t", T)];
        sizes.map(|(name, size)| (name.to_owned(), size)).into()
    }

    fn parameters(self) -> BTreeMap<String, u64> {
        let mut parameters = self.sizes();
        let own = [("k", K), ("n", N), ("seed", self.seed)];
        parameters.extend(own.map(|(name, value)| (name.to_owned(), value)));
        parameters
    }

    /// The head's columns, one after the other.
    fn columns(self) -> Vec<f32> {
        let mut draws = Draws::new(self.seed);
        let columns = self.column_kinds().into_iter();
        let columns = columns.flat_map(|kind| rows::values(kind, at(K), &mut draws));
        columns.collect()
    }

    fn column_kinds(self) -> Vec<RowKind> {
        let mut kinds = vec![RowKind::Drawn; at(N)];
        if self.has_edges {
            kinds[1..=COLUMN_EDGES.len()].copy_from_slice(&COLUMN_EDGES);
            // The second tile has some too.
            kinds[at(T) + 1..][..2].copy_from_slice(&COLUMN_EDGES[..2]);
        }
        kinds
    }

    fn row_kinds(self, width: u64) -> Vec<RowKind> {
        let drawn = std::iter::repeat(RowKind::Drawn);
        let edges = if self.has_edges { &ROW_EDGES[..] } else { &[] };
        let kinds = std::iter::once(RowKind::First).chain(edges.iter().copied());
        kinds.chain(drawn).take(at(width)).collect()
    }

    fn weights(self) -> Tensor {
        let ty = GgmlType::from_name("F32").expect("because its types are current");
        let admitted = self.layout().admit(ty, &[K, N], &self.sizes());
        let admitted = admitted.expect("because the sizes fit each other");
        let source: Vec<u8> = self
            .columns()
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect();
        let mut bytes = vec![0; at(admitted.payload_bytes())];
        pack_scalar(&admitted, &source, &mut bytes)
            .expect("because the layout has a scalar packer");
        tensor(Dtype::U8, N.div_ceil(T), bytes)
    }

    fn input(self, width: u64) -> Vec<f32> {
        let mut draws = Draws::new(self.seed.wrapping_add(width));
        let rows = self.row_kinds(width).into_iter();
        let rows = rows.flat_map(|kind| rows::values(kind, at(K), &mut draws));
        rows.collect()
    }

    fn add_case(self, width: u64, fixture: &mut Fixture) {
        let file = |stem: &str, dtype: &str| format!("{stem}-m{width}.{dtype}.bin");
        let (input, exact) = (file("input", "f32"), file("exact", "f32"));
        let made = [file(CODES, "i8"), file(SCALES, "f32"), file(OUTPUT, "f32")];
        fixture
            .tensors
            .insert(input.clone(), floats(width, self.input(width)));
        let inputs = [("weights", WEIGHTS), ("input", &input)];
        let tensors =
            inputs.map(|(role, file)| (role.to_owned(), &fixture.tensors[file].bytes[..]));
        let tensors = tensors.into();
        let kernel = KernelCase::of(
            self.order,
            &Inputs {
                width,
                parameters: &fixture.parameters,
                tensors: &tensors,
            },
        );
        let kernel = kernel.expect("because the recipe keeps its own sizes");
        let tensors = [
            tensor(Dtype::I8, width, kernel.codes().collect()),
            floats(width, kernel.scales().collect()),
            floats(width, kernel.each_output(product)),
        ];
        let exacts = floats(width, kernel.each_output(exact_product));
        let boundaries = [CODES, SCALES, OUTPUT].into_iter().zip(&made).zip(WHY);
        let expected = boundaries.map(|((boundary, file), why)| Expected {
            boundary: boundary.to_owned(),
            tensor: file.clone(),
            tolerance: Tolerance::BitEqual,
            why: why.to_owned(),
        });
        fixture.cases.push(Case {
            width,
            arm: Case::PLAIN.to_owned(),
            inputs: inputs
                .map(|(role, file)| (role.to_owned(), file.to_owned()))
                .into(),
            expected: expected.collect(),
            near: vec![Expected {
                boundary: OUTPUT.to_owned(),
                tensor: exact.clone(),
                tolerance: Tolerance::Ulp { max: NEAR_ULPS },
                why: WHY_NEAR.to_owned(),
            }],
            edge_rows: self.edge_rows(width),
        });
        fixture.tensors.extend(made.into_iter().zip(tensors));
        fixture.tensors.insert(exact, exacts);
    }

    fn edge_rows(self, width: u64) -> Vec<EdgeRow> {
        let labelled = |of: &str, kinds: Vec<RowKind>| {
            let rows = (0..).zip(kinds).filter_map(|(row, kind)| {
                kind.label().map(|label| EdgeRow {
                    row,
                    of: of.to_owned(),
                    label: label.to_owned(),
                })
            });
            rows.collect::<Vec<_>>()
        };
        let mut edge_rows = labelled("weights", self.column_kinds());
        for boundary in [CODES, SCALES, OUTPUT] {
            edge_rows.extend(labelled(boundary, self.row_kinds(width)));
        }
        edge_rows
    }
}

/// In binary64, rounded to binary32 at the end.
fn exact_product(term: &Term) -> f32 {
    let factors = f64::from(term.activation_scale) * f64::from(term.column_scale);
    #[expect(clippy::cast_possible_truncation, reason = "rounded to nearest even")]
    let exact = (f64::from(term.sum) * factors) as f32;
    exact
}

/// Rows of binary32 values.
fn floats(rows: u64, values: Vec<f32>) -> Tensor {
    let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
    tensor(Dtype::F32, rows, bytes)
}

/// A tensor of as many rows.
fn tensor(dtype: Dtype, rows: u64, bytes: Vec<u8>) -> Tensor {
    let elements = bytes.len() as u64 / dtype.bytes();
    Tensor {
        dtype,
        shape: vec![rows, elements / rows],
        bytes,
    }
}

/// A size as a length.
fn at(size: u64) -> usize {
    usize::try_from(size).expect("because sizes are small")
}

/// The seed of what is published.
const SEED: u64 = 508;

/// Rows of activations, case by case.
const WIDTHS: [u64; 5] = [1, 4, 6, 8, 16];
/// Depth: so many that sums of the largest codes are beyond 2^24, where binary32 has gaps.
const K: u64 = 1_090;
/// Columns of the head.
const N: u64 = 187;
/// Columns of a full tile.
const T: u64 = 140;

/// The columns behind the first of a tile.
const COLUMN_EDGES: [RowKind; 7] = [
    RowKind::Zeros,
    RowKind::Midpoints,
    RowKind::Repeated,
    RowKind::LargestCodes,
    RowKind::LargestMagnitudes,
    RowKind::Vanishing,
    RowKind::Outlier,
];

/// The rows behind the first.
const ROW_EDGES: [RowKind; 8] = [
    RowKind::Zeros,
    RowKind::Opposed,
    RowKind::Midpoints,
    RowKind::LargestCodes,
    RowKind::LargestMagnitudes,
    RowKind::SmallestMagnitudes,
    RowKind::Outlier,
    RowKind::BesideMidpoints,
];

const WEIGHTS: &str = "weights.int8-tile.bin";

const CONTRACT: &str = "each row: scale = largest / 127, or 1 where all are zeros; codes = value * \
    (127 / largest), halves away from zero, in binary32. output = (f32(sum of codes * codes) * row \
    scale) * column scale: the sum is an exact integer, each of the three steps is rounded to \
    nearest even. docs/format/kernels.md, section 6.";

const WHY: [&str; 3] = [
    "each value is quantised by itself, by a rule that leaves no choice",
    "one division",
    "the sum is exact, and the order of the two products is declared",
];

/// Three roundings move a result by less than three units, and the exact one is rounded too, by
/// half a unit at most.
const NEAR_ULPS: u32 = 3;

const WHY_NEAR: &str = "one conversion and two products of another order make three roundings, \
    each of less than one unit in the last place";
