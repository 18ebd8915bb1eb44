//! Kernels of `mmvq-q4_0-q8_1-v1`: Q8_1 blocks times Q4_0 in each of its orders.
//!
//! Specified in `docs/format/fixture.md`, the recipe. Each reads packed weights where they lie and
//! uses neither a packer's code nor the generator's.

use super::q4_0::packed::{Block, Order, Packed};
use crate::families::mmvq::ID;
use crate::half::f16_to_f64;
use crate::{Inputs, Kernel, KernelError, Output};

/// The kernels of this module.
pub(super) const KERNELS: &[&dyn Kernel] = &[
    &Mmvq {
        id: "mmvq-q4_0-q8_1",
        layout: "identity-v1",
        order: Order::Rows,
    },
    &Mmvq {
        id: "mmvq-q4_0-q8_1-xe2-dpas-v2",
        layout: "q4_0-xe2-dpas-v2",
        order: Order::Xe2,
    },
    &Mmvq {
        id: "mmvq-q4_0-q8_1-joint-n-v1",
        layout: "q4_0-joint-n-v1",
        order: Order::JointN,
    },
    &Mmvq {
        id: "mmvq-q4_0-q8_1-reordered-v1",
        layout: "q4_0-reordered-v1",
        order: Order::Reordered,
    },
    &Mmvq {
        id: "mmvq-q4_0-q8_1-ggml-cpu-repack",
        layout: "ggml-cpu-repack",
        order: Order::Repack8,
    },
];

/// The kernel of one order.
#[derive(Debug)]
struct Mmvq {
    id: &'static str,
    layout: &'static str,
    order: Order,
}

impl Kernel for Mmvq {
    fn id(&self) -> &'static str {
        self.id
    }

    fn fixtures(&self) -> &'static [&'static str] {
        &[ID]
    }

    fn packs(&self) -> Option<&'static str> {
        Some(self.layout)
    }

    fn run(&self, inputs: &Inputs<'_>) -> Result<Vec<Output>, KernelError> {
        let weights = Packed::open(self.order, inputs)?;
        let rows = activations(inputs, weights.block_count())?;
        let columns = weights.row_count();
        let mut output = vec![0.0_f32; rows.len() * columns];
        for column in 0..columns {
            let blocks: Vec<Block> = weights.row(column).collect();
            for (row, activations) in rows.iter().enumerate() {
                output[row * columns + column] = sum(&blocks, activations);
            }
        }
        Ok(vec![Output {
            boundary: "output".to_owned(),
            bytes: output.iter().flat_map(|y| y.to_le_bytes()).collect(),
        }])
    }
}

/// One block of activations, 36 bytes: scale, scale times sum, codes.
#[derive(Clone, Copy)]
struct Activation {
    scale: f64,
    codes: [i8; 32],
}

fn activations(inputs: &Inputs<'_>, block_count: u64) -> Result<Vec<Vec<Activation>>, KernelError> {
    let missing = || KernelError::Missing {
        role: INPUT.to_owned(),
    };
    let bytes = inputs.tensors.get(INPUT).copied().ok_or_else(missing)?;
    let row_bytes = block_count.saturating_mul(BLOCK_BYTES as u64);
    let expected = row_bytes.saturating_mul(inputs.width);
    let actual = bytes.len() as u64;
    if actual != expected {
        return Err(KernelError::Length {
            role: INPUT.to_owned(),
            expected,
            actual,
        });
    }
    let block = |block: &[u8; BLOCK_BYTES]| Activation {
        scale: f16_to_f64(u16::from_le_bytes([block[0], block[1]])),
        codes: std::array::from_fn(|index| block[CODES + index].cast_signed()),
    };
    let blocks: Vec<Activation> = bytes.as_chunks().0.iter().map(block).collect();
    let row_blocks = usize::try_from(block_count).expect("because the weights are in memory");
    Ok(blocks
        .chunks_exact(row_blocks)
        .map(<[Activation]>::to_vec)
        .collect())
}

/// Binary64, block after block; rounded once.
fn sum(weights: &[Block], activations: &[Activation]) -> f32 {
    let mut sum = 0.0_f64;
    for (weight, activation) in weights.iter().zip(activations) {
        let pairs = weight.nibbles.iter().zip(&activation.codes);
        let dot: i32 = pairs.map(|(w, x)| i32::from(*w) * i32::from(*x)).sum();
        sum += f16_to_f64(weight.scale) * activation.scale * f64::from(dot);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded once, to nearest even"
    )]
    let sum = sum as f32;
    sum
}

const INPUT: &str = "input";
const BLOCK_BYTES: usize = 36;
const CODES: usize = 4;
