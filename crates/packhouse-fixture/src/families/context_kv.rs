//! The fixture of the context-KV precompute, in bfloat16, with and without a bias.
//!
//! Specified in `docs/format/kernels.md`, section 7.

mod context;
mod table;
mod weights;

use super::Family;
use crate::bf16_ops::{Paged, Shape};
use crate::kernels::context_kv::{self as kernel, ContextKv, Sizes};
use crate::mersenne::Draws;
use crate::{Case, EdgeRow, Expected, Fixture, Inputs, Kernel, Tensor, Tolerance};
use context::{Context, PATTERN_WIDTHS};
use packhouse_component::{Boundary, Dtype};
use std::collections::BTreeMap;
use weights::Weights;

/// The fixtures of this module.
pub(super) const FAMILIES: &[Family] = &[Family {
    id: kernel::ID,
    generate: published,
    drawn: Some(drawn),
}];

/// With which bias a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Plain,
    Bias,
}

impl Arm {
    const ALL: [Self; 2] = [Self::Plain, Self::Bias];

    fn id(self) -> &'static str {
        match self {
            Self::Plain => Case::PLAIN,
            Self::Bias => "bias",
        }
    }
}

/// What one case is made from.
struct Recipe {
    /// Part of the names of its tensors: `w3`, `patterns-0`.
    name: String,
    arm: Arm,
    context: Context,
    positions: Vec<i32>,
    slots: Vec<i32>,
}

/// The fixture that is published.
fn published() -> Fixture {
    let mut fixture = Builder::new(&Weights::with_edges(SEED), SEED);
    for (width, position, slots) in CASES {
        for arm in Arm::ALL {
            let width = usize::from(*width);
            fixture.add(&Recipe {
                name: format!("w{width}"),
                arm,
                context: Context::with_edges(SEED + 100 * width as u64, width),
                positions: (*position..).take(width).collect(),
                slots: slots.to_vec(),
            });
        }
    }
    for (part, width) in PATTERN_WIDTHS.into_iter().enumerate() {
        let permuted = |factor: i32, modulus: i32| {
            (0..modulus).map(move |token| (factor * token + 11) % modulus)
        };
        // The widest have more tokens than the cache has slots: the first are written nowhere.
        let nowhere = width.saturating_sub(PAGED.blocks * PAGED.block_size);
        let slots = std::iter::repeat_n(-1, nowhere).chain(permuted(37, SLOT_COUNT));
        fixture.add(&Recipe {
            name: format!("w{width}"),
            arm: Arm::ALL[part % 2],
            context: Context::patterns(part),
            positions: permuted(29, POSITION_COUNT).take(width).collect(),
            slots: slots.take(width).collect(),
        });
    }
    fixture.finish()
}

/// A fixture of the same shapes from a seed: ordinary weights, contexts whose first row is
/// ordinary and whose others are made for an edge, any positions, any slots.
fn drawn(seed: u64) -> Fixture {
    let mut fixture = Builder::new(&Weights::drawn(seed), seed);
    let mut draws = Draws::new(seed.wrapping_add(5));
    for (width, _, published) in CASES {
        let width = usize::from(*width);
        let mut below = |end: i32| {
            let draw = draws.below(end.unsigned_abs());
            i32::try_from(draw).expect("because it is below an i32")
        };
        let positions = (0..width).map(|_| below(POSITION_COUNT)).collect();
        let mut slots: Vec<i32> = Vec::new();
        while slots.len() < width {
            let slot = below(SLOT_COUNT);
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        // A token that is written nowhere stays that.
        for (slot, published) in slots.iter_mut().zip(*published) {
            *slot = if *published == -1 { -1 } else { *slot };
        }
        let recipes = Arm::ALL.map(|arm| Recipe {
            name: format!("w{width}"),
            arm,
            context: Context::drawn(seed.wrapping_add(100 * width as u64), width),
            positions: Vec::clone(&positions),
            slots: slots.clone(),
        });
        recipes.iter().for_each(|recipe| fixture.add(recipe));
    }
    fixture.finish()
}

/// A fixture that grows case by case.
struct Builder {
    fixture: Fixture,
}

impl Builder {
    fn new(weights: &Weights, seed: u64) -> Self {
        let shape = |extents: &[usize]| extents.iter().map(|extent| *extent as u64).collect();
        let bf16 = |elements: &[u16], extents: &[usize]| Tensor {
            dtype: Dtype::Bf16,
            shape: shape(extents),
            bytes: kernel::bytes_of(elements),
        };
        let (layers, columns) = (SHAPE.layers, 2 * SHAPE.kv());
        let (blocks, size) = (PAGED.blocks, PAGED.block_size);
        let table = table::rows(POSITION_COUNT.unsigned_abs().into());
        let tensors = [
            (
                kernel::INPUT_NORM,
                bf16(&weights.input_norm, &[layers, SHAPE.hidden]),
            ),
            (
                kernel::KV_WEIGHT,
                bf16(&weights.kv_weight, &[layers, columns, SHAPE.hidden]),
            ),
            (kernel::BIAS, bf16(&weights.bias, &[layers, columns])),
            (
                kernel::KEY_NORM,
                bf16(&weights.key_norm, &[layers, SHAPE.head_size]),
            ),
            (kernel::TABLE, bf16(&table, &[table.len() / ROTARY, ROTARY])),
            (
                kernel::CACHE,
                bf16(
                    &vec![SENTINEL; layers * PAGED.len()],
                    &[layers, blocks, 2, size, PAGED.kv],
                ),
            ),
        ];
        let tensors = tensors.map(|(role, tensor)| (format!("{role}.bf16.bin"), tensor));
        Self {
            fixture: Fixture {
                id: kernel::ID.to_owned(),
                summary: SUMMARY.to_owned(),
                layout: None,
                contract: CONTRACT.to_owned(),
                parameters: parameters(seed),
                tensors: tensors.into(),
                boundaries: Vec::new(),
                cases: Vec::new(),
            },
        }
    }

    /// Adds a case, with what our kernel makes of it.
    fn add(&mut self, recipe: &Recipe) {
        let width = recipe.positions.len() as u64;
        let inputs = self.add_inputs(recipe);
        let boundaries = self.boundaries(width);
        let outputs = {
            let tensors = inputs.iter().map(|(role, file)| {
                let tensor = &self.fixture.tensors[file];
                (role.clone(), tensor.bytes.as_slice())
            });
            let given = Inputs {
                width,
                parameters: &self.fixture.parameters,
                tensors: &tensors.collect(),
            };
            ContextKv.run(&given).expect("because the recipe is whole")
        };
        let mut expected = Vec::new();
        for (boundary, output) in boundaries.iter().zip(outputs) {
            assert_eq!(boundary.name, output.boundary, "in their order");
            let form = boundary.form(width).expect("because a fixture is small");
            // What comes before the bias is the same in both arms.
            let tensor = match boundary.name.as_str() {
                kernel::NORMED => format!("{}-{}.bf16.bin", boundary.name, recipe.name),
                name => format!("{name}-{}-{}.bf16.bin", recipe.name, recipe.arm.id()),
            };
            let made = Tensor {
                dtype: form.dtype,
                shape: form.shape,
                bytes: output.bytes,
            };
            self.fixture.tensors.insert(tensor.clone(), made);
            expected.push(Expected {
                boundary: boundary.name.clone(),
                tensor,
                tolerance: Tolerance::BitEqual,
                why: WHY.to_owned(),
            });
        }
        self.fixture.cases.push(Case {
            width,
            arm: recipe.arm.id().to_owned(),
            inputs,
            expected,
            near: Vec::new(),
            edge_rows: edge_rows(&recipe.context.labels),
        });
        self.fixture.boundaries = boundaries;
    }

    /// Adds a case's own inputs, and says which tensors all its inputs are.
    fn add_inputs(&mut self, recipe: &Recipe) -> BTreeMap<String, String> {
        let width = recipe.positions.len() as u64;
        let i32s = |values: &[i32]| Tensor {
            dtype: Dtype::I32,
            shape: vec![width],
            bytes: values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        };
        let context = Tensor {
            dtype: Dtype::Bf16,
            shape: vec![width, SHAPE.hidden as u64],
            bytes: kernel::bytes_of(&recipe.context.elements),
        };
        let own = [
            (kernel::CONTEXT, "bf16", context),
            (kernel::POSITIONS, "i32", i32s(&recipe.positions)),
            (kernel::SLOTS, "i32", i32s(&recipe.slots)),
        ];
        let mut inputs = BTreeMap::new();
        for (role, dtype, tensor) in own {
            let file = format!("{role}-{}.{dtype}.bin", recipe.name);
            self.fixture.tensors.insert(file.clone(), tensor);
            inputs.insert(role.to_owned(), file);
        }
        let constant = CONSTANT.iter().chain(match recipe.arm {
            Arm::Plain => None,
            Arm::Bias => Some(&kernel::BIAS),
        });
        let constant = constant.map(|role| ((*role).to_owned(), format!("{role}.bf16.bin")));
        inputs.extend(constant);
        inputs
    }

    fn boundaries(&self, width: u64) -> Vec<Boundary> {
        let sizes = Sizes::of(&Inputs {
            width,
            parameters: &self.fixture.parameters,
            tensors: &BTreeMap::new(),
        });
        kernel::boundaries(&sizes.expect("because the parameters are whole"))
    }

    /// The fixture, its cases by ascending width and arm.
    fn finish(mut self) -> Fixture {
        let by_name = |case: &Case| (case.width, case.arm.clone());
        self.fixture.cases.sort_by_key(by_name);
        self.fixture
    }
}

/// The labelled rows of the normed context, whose rows are the context's, once per layer.
fn edge_rows(labels: &[String]) -> Vec<EdgeRow> {
    let rows = (0..SHAPE.layers).flat_map(|_| labels);
    let labelled = (0..).zip(rows).filter(|(_, label)| !label.is_empty());
    let edge_rows = labelled.map(|(row, label)| EdgeRow {
        row,
        of: kernel::NORMED.to_owned(),
        label: label.clone(),
    });
    edge_rows.collect()
}

fn parameters(seed: u64) -> BTreeMap<String, u64> {
    let parameters = [
        (kernel::LAYERS, SHAPE.layers as u64),
        (kernel::HIDDEN, SHAPE.hidden as u64),
        (kernel::KV_HEADS, SHAPE.kv_heads as u64),
        (kernel::HEAD_SIZE, SHAPE.head_size as u64),
        (kernel::ROTARY, ROTARY as u64),
        (kernel::POSITION_COUNT, POSITION_COUNT.unsigned_abs().into()),
        (kernel::BLOCKS, PAGED.blocks as u64),
        (kernel::BLOCK_SIZE, PAGED.block_size as u64),
        (kernel::EPSILON_BITS, EPSILON.to_bits().into()),
        ("rope_base", table::BASE),
        ("rope_factor", table::FACTOR),
        ("seed", seed),
    ];
    parameters
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// Inputs that are the same in every case, the bias apart.
const CONSTANT: [&str; 5] = [
    kernel::INPUT_NORM,
    kernel::KV_WEIGHT,
    kernel::KEY_NORM,
    kernel::TABLE,
    kernel::CACHE,
];

/// The shapes of the component, scaled down; the tokens are each case's.
const SHAPE: Shape = Shape {
    layers: 2,
    tokens: 0,
    hidden: 256,
    kv_heads: 2,
    head_size: 32,
};

/// One layer's cache.
const PAGED: Paged = Paged {
    blocks: 4,
    block_size: 16,
    kv: SHAPE.kv_heads * SHAPE.head_size,
};

/// Slots of a cache.
const SLOT_COUNT: i32 = 64;

/// Rows of the table.
const POSITION_COUNT: i32 = 72;

const ROTARY: usize = 2 * table::PAIRS;

/// -3.25: what every cache is full of before a case writes to it.
const SENTINEL: u16 = 0xc050;

/// What both norms add to the mean square: 1e-6, as binary32.
const EPSILON: f32 = 1e-6;

/// The seed of what is published.
const SEED: u64 = 750_000;

/// Width, first position, and slots: ends of the cache, over the border of two blocks, downwards,
/// and with a token that is written nowhere.
const CASES: &[(u8, i32, &[i32])] = &[
    (1, 71, &[63]),
    (2, 17, &[15, 16]),
    (3, 40, &[5, 6, 7]),
    (5, 67, &[30, 31, 32, 33, 34]),
    (8, 36, &[52, 51, 50, 49, 48, 47, 46, 45]),
    (9, 0, &[0, -1, 2, 3, 20, 4, 40, 6, 62]),
];

const SUMMARY: &str = "keys and values of every draft layer's context in bfloat16, and the paged \
                       cache, every rounding in its place";

const CONTRACT: &str = "docs/format/kernels.md, section 7. Per layer: the context is normed by its \
    root mean square (N1, N2), multiplied by the key and value weights in binary32 over ascending \
    H and rounded once (M1), where there is a bias it is added and rounded (A1), heads are split \
    into keys and values, keys are normed per head (K1, K2) and rotated by their position's row \
    (R1 to R6), and keys and values are written to their slots of a cache full of -3.25. Every \
    rounding of a NaN leaves 7fc0. Sources: the operation order of a context-KV workspace; vLLM's \
    rms_norm and rotary embedding for the roundings within an operation.";

const WHY: &str = "bit-equal: the order of every sum and every rounding are part of the contract, \
                   and all arithmetic is exactly rounded binary32";
