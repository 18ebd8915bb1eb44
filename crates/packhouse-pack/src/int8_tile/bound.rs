//! The kernels of int8 tiles with the proof that they may run.

use crate::int8_tile::columns::CodeColumns;
use crate::isa::{Avx2, Avx512, IsaLevel};
use crate::kernels::{TILE_KERNELS, TileCode, TileKernels};

/// The kernels of one level.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    Scalar(TileKernels<()>),
    Avx2(Avx2, TileKernels<Avx2>),
    Avx512(Avx512, TileKernels<Avx512>),
}

impl Bound {
    /// The highest level of the table that the tokens allow.
    pub(crate) fn best(avx2: Option<Avx2>, avx512: Option<Avx512>) -> Self {
        let bind = |code: &TileCode| match code {
            TileCode::Scalar(kernels) => Some(Self::Scalar(*kernels)),
            TileCode::Avx2(kernels) => avx2.map(|token| Self::Avx2(token, *kernels)),
            TileCode::Avx512(kernels) => avx512.map(|token| Self::Avx512(token, *kernels)),
        };
        let bound = TILE_KERNELS.iter().filter_map(bind);
        let best = bound.max_by_key(Self::level);
        best.expect("because the table's scalar kernels want no proof")
    }

    pub(crate) const fn level(&self) -> IsaLevel {
        match self {
            Self::Scalar(_) => IsaLevel::Scalar,
            Self::Avx2(..) => IsaLevel::Avx2,
            Self::Avx512(..) => IsaLevel::Avx512,
        }
    }

    /// Quantises a column into chunks `distance` apart.
    pub(crate) fn quantise(&self, values: &[f32], codes: &mut [i8], distance: usize) -> f32 {
        match self {
            Self::Scalar(kernels) => (kernels.quantise)((), values, codes, distance),
            Self::Avx2(token, kernels) => (kernels.quantise)(*token, values, codes, distance),
            Self::Avx512(token, kernels) => (kernels.quantise)(*token, values, codes, distance),
        }
    }

    pub(crate) fn row_major(&self, codes: &CodeColumns, rows: &mut [&mut [i8]], streamed: bool) {
        match self {
            Self::Scalar(kernels) => (kernels.row_major)((), codes, rows, streamed),
            Self::Avx2(token, kernels) => (kernels.row_major)(*token, codes, rows, streamed),
            Self::Avx512(token, kernels) => (kernels.row_major)(*token, codes, rows, streamed),
        }
    }

    pub(crate) fn blocked(&self, codes: &CodeColumns, band: &mut [i8], streamed: bool) {
        match self {
            Self::Scalar(kernels) => (kernels.blocked)((), codes, band, streamed),
            Self::Avx2(token, kernels) => (kernels.blocked)(*token, codes, band, streamed),
            Self::Avx512(token, kernels) => (kernels.blocked)(*token, codes, band, streamed),
        }
    }
}
