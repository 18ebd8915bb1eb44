//! Source blocks of weights, before they are packed: drawn ones, and rows made for an edge.

use crate::kernels::blocks::Blocks;
use crate::mersenne::Draws;

/// What is special about a row of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    /// Nothing: scales of one size, no sub-block without a scale, all codes.
    Drawn,
    /// All bytes are 0.
    Zeros,
    /// All blocks are the same, so that opposite activations cancel.
    Cancellation,
    /// Every code and sub-scale is the largest.
    LargestCodes,
    /// And every scale too: the largest that keeps all outputs finite.
    LargestMagnitudes,
    /// Scales are the smallest and the largest subnormals, by turns.
    SubnormalScales,
    /// Scales are a half.
    Halves,
    /// Scales are below zero.
    NegativeScales,
    /// Scales are the negative zero.
    NegativeZeroScales,
}

impl RowKind {
    /// What an edge row says; `None` of drawn ones.
    pub(super) const fn label(self) -> Option<&'static str> {
        match self {
            Self::Drawn => None,
            Self::Zeros => Some("zeros"),
            Self::Cancellation => Some("cancellation"),
            Self::LargestCodes => Some("largest codes"),
            Self::LargestMagnitudes => Some("largest magnitudes"),
            Self::SubnormalScales => Some("subnormal scales"),
            Self::Halves => Some("halves"),
            Self::NegativeScales => Some("negative scales"),
            Self::NegativeZeroScales => Some("negative zero scales"),
        }
    }

    /// The kind for a type: one without signed scales has no edges of them.
    const fn of(self, blocks: Blocks) -> Self {
        match (self, blocks) {
            (Self::NegativeScales | Self::NegativeZeroScales, Blocks::Mxfp4) => Self::Drawn,
            (kind, _) => kind,
        }
    }
}

/// The kinds of the rows of both weights of a type; rows beyond are drawn.
pub(super) fn kinds(blocks: Blocks, is_edges: bool, row_count: usize) -> Vec<RowKind> {
    let special: &[(usize, RowKind)] = match is_edges {
        false => &[
            (1, RowKind::Zeros),
            (2, RowKind::Cancellation),
            (3, RowKind::LargestCodes),
            (9, RowKind::NegativeZeroScales),
        ],
        true => &[
            (1, RowKind::LargestMagnitudes),
            (2, RowKind::SubnormalScales),
            (3, RowKind::Halves),
            (4, RowKind::NegativeScales),
            (10, RowKind::NegativeZeroScales),
        ],
    };
    let mut kinds = vec![RowKind::Drawn; row_count];
    for (row, kind) in special {
        kinds[*row] = kind.of(blocks);
    }
    kinds
}

/// The blocks of one row. Every kind takes the same draws.
pub(super) fn row(blocks: Blocks, kind: RowKind, count: usize, draws: &mut Draws) -> Vec<u8> {
    let drawn: Vec<Parts> = (0..count).map(|_| Parts::draw(blocks, draws)).collect();
    let first = drawn.first().cloned();
    let row = drawn.into_iter().enumerate().flat_map(|(index, parts)| {
        let parts = match (kind, &first) {
            (RowKind::Cancellation, Some(first)) => first.clone(),
            _ => parts,
        };
        parts.edged(blocks, kind, index).bytes(blocks)
    });
    row.collect()
}

/// The fields of a block; what a type does not have is ignored.
#[derive(Clone)]
struct Parts {
    /// Binary16 bits, or the exponent of a power of two.
    scale: u16,
    minimum: u16,
    /// Scale and minimum of each sub-block.
    sub_blocks: [(u8, u8); 16],
    quants: Vec<u8>,
}

impl Parts {
    fn draw(blocks: Blocks, draws: &mut Draws) -> Self {
        let form = Form::of(blocks);
        let scale = |draws: &mut Draws| match blocks {
            Blocks::Mxfp4 => 118 + draws.below(5),
            // From 2^-7 to below 2^-5.
            Blocks::Q4K | Blocks::Q2K | Blocks::Iq4Nl => 0x2000 + draws.below(0x800),
        };
        let (largest, mut sub_blocks) = (u32::from(form.sub_largest), [(0, 0); 16]);
        let (scale, minimum) = (scale(draws) as u16, scale(draws) as u16);
        for (sub_scale, sub_minimum) in &mut sub_blocks[..form.sub_blocks] {
            *sub_scale = 1 + draws.below(largest) as u8;
            *sub_minimum = draws.below(largest + 1) as u8;
        }
        let quants = (0..form.quants).map(|_| draws.below(256) as u8);
        Self {
            scale,
            minimum,
            sub_blocks,
            quants: quants.collect(),
        }
    }

    /// The block number `index` of a row of a kind.
    fn edged(mut self, blocks: Blocks, kind: RowKind, index: usize) -> Self {
        let form = Form::of(blocks);
        let scale = match kind {
            RowKind::Drawn | RowKind::Cancellation | RowKind::LargestCodes => None,
            RowKind::Zeros => Some(0),
            RowKind::LargestMagnitudes => Some(form.scale_largest),
            RowKind::SubnormalScales => Some(form.scales_subnormal[index % 2]),
            RowKind::Halves => Some(form.scale_half),
            RowKind::NegativeScales => Some(self.scale | 0x8000),
            RowKind::NegativeZeroScales => Some(0x8000),
        };
        if let Some(scale) = scale {
            (self.scale, self.minimum) = (scale, scale);
        }
        match kind {
            RowKind::LargestCodes | RowKind::LargestMagnitudes => {
                self.sub_blocks = [(form.sub_largest, form.sub_largest); 16];
                self.quants.fill(form.quant_largest);
            }
            RowKind::Zeros => {
                self.sub_blocks = [(0, 0); 16];
                self.quants.fill(0);
            }
            RowKind::Drawn
            | RowKind::Cancellation
            | RowKind::SubnormalScales
            | RowKind::Halves
            | RowKind::NegativeScales
            | RowKind::NegativeZeroScales => {}
        }
        self
    }

    /// The block in ggml's order, as a file has it.
    fn bytes(&self, blocks: Blocks) -> Vec<u8> {
        let (scale, minimum) = (self.scale.to_le_bytes(), self.minimum.to_le_bytes());
        let mut bytes = Vec::new();
        match blocks {
            Blocks::Q4K => {
                bytes.extend(scale);
                bytes.extend(minimum);
                bytes.extend(self.six_bits());
                bytes.extend(&self.quants);
            }
            Blocks::Q2K => {
                let sub_blocks = self.sub_blocks.iter();
                bytes.extend(sub_blocks.map(|(scale, minimum)| scale | minimum << 4));
                bytes.extend(&self.quants);
                bytes.extend(scale);
                bytes.extend(minimum);
            }
            Blocks::Iq4Nl => {
                bytes.extend(scale);
                bytes.extend(&self.quants);
            }
            Blocks::Mxfp4 => {
                bytes.push(scale[0]);
                bytes.extend(&self.quants);
            }
        }
        bytes
    }

    /// Eight scales and eight minima of six bits in twelve bytes.
    fn six_bits(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for i in 0..4 {
            let ((scale, minimum), (scale_4, minimum_4)) =
                (self.sub_blocks[i], self.sub_blocks[4 + i]);
            bytes[i] = scale | scale_4 >> 4 << 6;
            bytes[4 + i] = minimum | minimum_4 >> 4 << 6;
            bytes[8 + i] = scale_4 & 15 | minimum_4 << 4;
        }
        bytes
    }
}

/// What the fields of a type may be.
struct Form {
    sub_blocks: usize,
    /// The largest scale and minimum of a sub-block.
    sub_largest: u8,
    /// Bytes of codes.
    quants: usize,
    /// The byte of codes whose values are furthest from zero.
    quant_largest: u8,
    scale_largest: u16,
    scales_subnormal: [u16; 2],
    scale_half: u16,
}

impl Form {
    const fn of(blocks: Blocks) -> Self {
        let (sub_blocks, sub_largest, quants, quant_largest) = match blocks {
            Blocks::Q4K => (8, 63, 128, 0xff),
            Blocks::Q2K => (16, 15, 64, 0xff),
            Blocks::Iq4Nl => (0, 0, 16, 0x00),
            Blocks::Mxfp4 => (0, 0, 16, 0x77),
        };
        let (scale_largest, scales_subnormal, scale_half) = match blocks {
            // 2^102 by levels of twelve by 352 codes of 127 is below 2^128.
            Blocks::Mxfp4 => (230, [0, 1], 127),
            Blocks::Q4K | Blocks::Q2K | Blocks::Iq4Nl => (0x7bff, [0x0001, 0x03ff], 0x3800),
        };
        Self {
            sub_blocks,
            sub_largest,
            quants,
            quant_largest,
            scale_largest,
            scales_subnormal,
            scale_half,
        }
    }
}
