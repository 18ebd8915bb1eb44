//! The fixtures of the M-row contract: one weight and one set of inputs in five orders of Q4_0.
//!
//! Specified in `docs/format/kernels.md`, sections 2 to 4. What is expected is computed from the
//! weight's source rows; the packed bytes are the layouts' scalar packers'.

mod recipe;

use super::Family;
use crate::kernels::q4_0::activations::{Activations, Form};
use crate::kernels::q4_0::packed::Packed;
use crate::kernels::q4_0::{
    ACTIVATIONS, IDENTITY, INPUT, JOINT_N, MRow, OUTPUT, REORDERED, REPACK, WEIGHTS, XE2, contract,
};
use crate::{Case, EdgeRow, Expected, Fixture, Tensor, Tolerance};
use packhouse_base::ggml_type::GgmlType;
use packhouse_component::{Boundary, Dim, Dtype};
use packhouse_layout::{Layout, ggml_cpu_repack, pack_scalar, q4_0_joint_n_v1};
use recipe::{BLOCK_COUNT, COLUMNS};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The fixtures of this module.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        id: XE2.fixture(),
        generate: || fixture(&OF_XE2, SEED),
        drawn: Some(|seed| fixture(&OF_XE2, seed)),
    },
    Family {
        id: JOINT_N.fixture(),
        generate: || fixture(&OF_JOINT_N, SEED),
        drawn: Some(|seed| fixture(&OF_JOINT_N, seed)),
    },
    Family {
        id: REORDERED.fixture(),
        generate: || fixture(&OF_REORDERED, SEED),
        drawn: Some(|seed| fixture(&OF_REORDERED, seed)),
    },
    Family {
        id: IDENTITY.fixture(),
        generate: || fixture(&OF_IDENTITY, SEED),
        drawn: Some(|seed| fixture(&OF_IDENTITY, seed)),
    },
    Family {
        id: REPACK.fixture(),
        generate: || fixture(&OF_REPACK, SEED),
        drawn: Some(|seed| fixture(&OF_REPACK, seed)),
    },
];

/// The seed of what is published.
pub(crate) const SEED: u64 = 0x6d72_6f77;

/// Rows of activations, case by case.
pub(crate) const WIDTHS: [u64; 5] = [1, 4, 6, 8, 16];

/// What tells the five fixtures apart.
struct Spec {
    kernel: &'static MRow,
    layout: Layout,
    /// The layout's parameter, where it has one.
    parameter: Option<(&'static str, u64)>,
    /// Rows of the weight that are taken.
    rows: u64,
    /// What it shows, beside the contract.
    reads: &'static str,
}

static OF_XE2: Spec = Spec {
    kernel: &XE2,
    layout: Layout::Q4_0Xe2DpasV2,
    parameter: None,
    rows: 64,
    reads: "signed nibbles in tiles of 16 rows by block",
};

static OF_JOINT_N: Spec = Spec {
    kernel: &JOINT_N,
    layout: Layout::Q4_0JointN,
    parameter: Some((q4_0_joint_n_v1::N_TILE, 8)),
    rows: 61,
    reads: "tiles of 8 rows by block, the last one ragged",
};

static OF_REORDERED: Spec = Spec {
    kernel: &REORDERED,
    layout: Layout::Q4_0Reordered,
    parameter: None,
    rows: 61,
    reads: "all quants, then all scales",
};

static OF_IDENTITY: Spec = Spec {
    kernel: &IDENTITY,
    layout: Layout::Identity,
    parameter: None,
    rows: 61,
    reads: "Q4_0 blocks as a model file has them",
};

static OF_REPACK: Spec = Spec {
    kernel: &REPACK,
    layout: Layout::GgmlCpuRepack,
    parameter: Some((ggml_cpu_repack::UNIT_ROWS, 8)),
    rows: 56,
    reads: "8 rows by 8 bytes with signed nibbles",
};

fn fixture(spec: &Spec, seed: u64) -> Fixture {
    let source = recipe::weight(seed);
    let source = &source[..spec.source_bytes()];
    let mut parameters = BTreeMap::from([
        ("k".to_owned(), COLUMNS),
        ("n".to_owned(), spec.rows),
        ("seed".to_owned(), seed),
        ("splits".to_owned(), contract::SPLITS as u64),
    ]);
    parameters.extend(spec.parameters());
    let mut tensors = BTreeMap::from([(spec.weights_file(), bytes_tensor(spec.pack(source)))]);
    let cases = WIDTHS.map(|width| spec.case(width, seed, source, &mut tensors));
    Fixture {
        id: spec.kernel.fixture().to_owned(),
        summary: format!(
            "rows of activations by Q4_0, bit by bit, straight from {}",
            spec.reads
        ),
        layout: Some(spec.layout.id().to_owned()),
        contract: CONTRACT.to_owned(),
        parameters,
        tensors,
        boundaries: spec.boundaries(),
        cases: cases.into(),
    }
}

impl Spec {
    fn source_bytes(&self) -> usize {
        usize::try_from(self.rows * BLOCK_COUNT * 18).expect("because a fixture is small")
    }

    fn parameters(&self) -> BTreeMap<String, u64> {
        let pair = self.parameter.iter();
        pair.map(|(name, value)| ((*name).to_owned(), *value))
            .collect()
    }

    fn weights_file(&self) -> String {
        format!("weights.{}.bin", self.layout.id())
    }

    /// The rows of the source as the layout packs them.
    fn pack(&self, source: &[u8]) -> Vec<u8> {
        let ty = GgmlType::from_name("Q4_0").expect("because the type is current");
        let dims = [COLUMNS, self.rows];
        let admitted = self.layout.admit(ty, &dims, &self.parameters());
        let admitted = admitted.expect("because the fixture has sizes that its layout takes");
        let length = usize::try_from(admitted.payload_bytes()).expect("because it is small");
        let mut payload = vec![0; length];
        pack_scalar(&admitted, source, &mut payload).expect("because Q4_0 has a scalar packer");
        payload
    }

    fn boundaries(&self) -> Vec<Boundary> {
        let shape = match self.kernel.form {
            Form::Canonical => vec![Dim::Widths(1), Dim::Fixed(COLUMNS + 4 * BLOCK_COUNT)],
            Form::Dpas => vec![Dim::Widths(5 * BLOCK_COUNT), Dim::Fixed(8)],
        };
        let output = [Dim::Widths(1), Dim::Fixed(self.rows)];
        vec![
            Boundary::new(ACTIVATIONS, Dtype::U8, shape),
            Boundary::new(OUTPUT, Dtype::F32, output),
        ]
    }

    /// One width: makes its input and what is expected of it.
    fn case(
        &self,
        width: u64,
        seed: u64,
        source: &[u8],
        tensors: &mut BTreeMap<String, Tensor>,
    ) -> Case {
        let numbers = recipe::input(seed, width);
        let block_count = usize::try_from(BLOCK_COUNT).expect("because a fixture is small");
        let activations = Activations::of(&numbers, block_count);
        let output = contract::output(&Packed::source(source, block_count), &activations);
        let form = match self.kernel.form {
            Form::Canonical => "canonical",
            Form::Dpas => "dpas",
        };
        let input_file = format!("input-m{width}.f32.bin");
        tensors.insert(input_file.clone(), input_tensor(width, &numbers));
        let made = [
            (
                format!("activations-m{width}.{form}.bin"),
                activations.bytes(self.kernel.form),
                WHY_ACTIVATIONS,
            ),
            (
                format!("expected-m{width}.f32.bin"),
                output.iter().flat_map(|y| y.to_le_bytes()).collect(),
                WHY_OUTPUT,
            ),
        ];
        let boundaries = self.boundaries().into_iter().zip(made);
        let expected = boundaries.map(|(boundary, (file, bytes, why))| {
            tensors.insert(file.clone(), boundary_tensor(&boundary, width, bytes));
            Expected {
                boundary: boundary.name,
                tensor: file,
                tolerance: Tolerance::BitEqual,
                why: why.to_owned(),
            }
        });
        Case {
            width,
            arm: Case::PLAIN.to_owned(),
            inputs: BTreeMap::from([
                (WEIGHTS.to_owned(), self.weights_file()),
                (INPUT.to_owned(), input_file),
            ]),
            expected: expected.collect(),
            near: Vec::new(),
            edge_rows: self.edge_rows(width),
        }
    }

    /// The rows of the tables of sections 4.1 and 4.2, as far as this width and N have them.
    fn edge_rows(&self, width: u64) -> Vec<EdgeRow> {
        // A row of the other form of activations is eight bytes, not a row of the input.
        let of_inputs: &[&str] = match self.kernel.form {
            Form::Canonical => &[ACTIVATIONS, OUTPUT],
            Form::Dpas => &[OUTPUT],
        };
        let mut edge_rows = Vec::new();
        for of in of_inputs {
            edge_rows.extend(rows_of(of, &recipe::INPUT_EDGES, width));
        }
        edge_rows.extend(rows_of(WEIGHTS, &recipe::WEIGHT_EDGES, self.rows));
        edge_rows
    }
}

/// The edges of the first `count` rows.
fn rows_of<'a>(
    of: &'a str,
    edges: &'a [(RangeInclusive<u64>, &str)],
    count: u64,
) -> impl Iterator<Item = EdgeRow> + 'a {
    let rows = edges
        .iter()
        .flat_map(|(rows, label)| rows.clone().map(move |row| (row, label)));
    let rows = rows.filter(move |(row, _)| *row < count);
    rows.map(move |(row, label)| EdgeRow {
        row,
        of: of.to_owned(),
        label: (*label).to_owned(),
    })
}

fn bytes_tensor(bytes: Vec<u8>) -> Tensor {
    Tensor {
        dtype: Dtype::U8,
        shape: vec![bytes.len() as u64],
        bytes,
    }
}

fn input_tensor(width: u64, numbers: &[f32]) -> Tensor {
    Tensor {
        dtype: Dtype::F32,
        shape: vec![width, COLUMNS],
        bytes: numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn boundary_tensor(boundary: &Boundary, width: u64, bytes: Vec<u8>) -> Tensor {
    let form = boundary.form(width).expect("because a fixture is small");
    Tensor {
        dtype: form.dtype,
        shape: form.shape,
        bytes,
    }
}

const CONTRACT: &str = "docs/format/kernels.md, sections 2 and 3. Per row m and block b of 32 \
numbers x: d = max|x| / 127, q = x / d to the nearest integer, halves away from zero, by the d \
that is not rounded; s = the sum of the x; then d and s are rounded to binary16. c = 8 * (sum of \
q * d - s). term = (sum of (nibble - 8) * q * d + c) * scale. Output = 0 + S0 + S1 + ... + S7, \
where S_p = 0 + term(p) + term(p + 8) + ... over the blocks. All in binary32, every operation \
rounded once to nearest even, none fused.";

const WHY_ACTIVATIONS: &str = "each is one rounded division, and every sum is exact in any order";

const WHY_OUTPUT: &str = "dot products are exact integers, and every operation on numbers and its \
order is fixed";
