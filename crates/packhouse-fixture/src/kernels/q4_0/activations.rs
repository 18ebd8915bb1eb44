//! Activations as Q8_1: 32 numbers as signed bytes with two halves, and the two forms in memory.
//!
//! Specified in `docs/format/kernels.md`, section 2.1. All operations are binary32, each rounded
//! once; the order of the sum is fixed.

use super::INPUT;
use crate::half::{f16_from_f32, f16_to_f32};
use crate::{Inputs, KernelError};

/// Numbers of a block.
pub(crate) const BLOCK: usize = 32;

/// How quantised activations lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Row after row: all quants, then d and s of each block as halves.
    Canonical,
    /// For Xe2's matrix engine: by block, then by row; then d and c of each as binary32.
    Dpas,
}

/// One quantised block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quantised {
    /// The quants, -127 to 127.
    pub(crate) quants: [i8; BLOCK],
    /// The scale, as bits of a half.
    pub(crate) d: u16,
    /// The sum of the numbers, as bits of a half.
    pub(crate) s: u16,
}

impl Quantised {
    /// Quantises 32 finite numbers.
    pub(crate) fn of(numbers: &[f32; BLOCK]) -> Self {
        let largest = |largest: f32, x: &f32| if x.abs() > largest { x.abs() } else { largest };
        let amax = numbers.iter().fold(0.0, largest);
        let (d, divisor) = if amax == 0.0 {
            (0.0, 1.0)
        } else {
            (amax / 127.0, amax / 127.0)
        };
        Self {
            quants: numbers.map(|x| half_away(x / divisor)),
            d: f16_from_f32(d),
            s: f16_from_f32(lane_sum(numbers)),
        }
    }

    /// The scale.
    pub(crate) fn d(&self) -> f32 {
        f16_to_f32(self.d)
    }

    /// `8 * (Q * d - s)`: what the products of signed nibbles leave out. `Q * d` is exact.
    pub(crate) fn c(&self) -> f32 {
        let sum: i32 = self.quants.iter().copied().map(i32::from).sum();
        8.0 * (sum as f32 * self.d() - f16_to_f32(self.s))
    }
}

/// To the nearest integer, halves away from zero. What is no number becomes 0.
pub(super) fn half_away(x: f32) -> i8 {
    let whole = x.trunc();
    // Exact: what is behind the point of a number is a number.
    let is_up = (x - whole).abs() >= 0.5;
    (whole + if is_up { 1.0_f32.copysign(x) } else { 0.0 }) as i8
}

/// The sum in the order of 16 lanes of two numbers, which are then halved.
pub(super) fn lane_sum(numbers: &[f32; BLOCK]) -> f32 {
    let mut lanes: [f32; BLOCK / 2] =
        std::array::from_fn(|lane| 0.0 + numbers[2 * lane] + numbers[2 * lane + 1]);
    for distance in [8, 4, 2, 1] {
        for lane in 0..distance {
            lanes[lane] += lanes[lane + distance];
        }
    }
    lanes[0]
}

/// The quantised activations of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Activations {
    block_count: usize,
    /// Row after row, block after block.
    blocks: Vec<Quantised>,
}

impl Activations {
    /// Quantises the rows of a case's input.
    ///
    /// # Errors
    /// When it is missing, or has not as many bytes as the width and the blocks say.
    pub(crate) fn of_input(inputs: &Inputs<'_>, block_count: u64) -> Result<Self, KernelError> {
        let count = block_count.saturating_mul(BLOCK as u64);
        let numbers = inputs.floats(INPUT, count.saturating_mul(inputs.width))?;
        let block_count = usize::try_from(block_count).expect("because a weight has as many");
        Ok(Self::of(&numbers, block_count))
    }

    /// Quantises rows of `block_count` blocks.
    pub(crate) fn of(numbers: &[f32], block_count: usize) -> Self {
        let blocks = numbers.as_chunks().0.iter().map(Quantised::of).collect();
        Self {
            block_count,
            blocks,
        }
    }

    /// The rows, each by its blocks.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &[Quantised]> {
        self.blocks.chunks_exact(self.block_count)
    }

    /// Their bytes in a form.
    pub(crate) fn bytes(&self, form: Form) -> Vec<u8> {
        match form {
            Form::Canonical => self.canonical(),
            Form::Dpas => self.dpas(),
        }
    }

    fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for row in self.rows() {
            for block in row {
                bytes.extend(block.quants.map(i8::cast_unsigned));
            }
            for block in row {
                bytes.extend(block.d.to_le_bytes());
                bytes.extend(block.s.to_le_bytes());
            }
        }
        bytes
    }

    fn dpas(&self) -> Vec<u8> {
        let rows: Vec<&[Quantised]> = self.rows().collect();
        let pairs = || (0..self.block_count).flat_map(|b| rows.iter().map(move |row| &row[b]));
        let mut bytes = Vec::new();
        for block in pairs() {
            bytes.extend(block.quants.map(i8::cast_unsigned));
        }
        for block in pairs() {
            bytes.extend(block.d().to_le_bytes());
            bytes.extend(block.c().to_le_bytes());
        }
        bytes
    }
}
