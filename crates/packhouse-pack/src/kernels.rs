//! The kernel table: which code packs what at which ISA level.

use crate::int8_tile::{CodeColumns, scalar};
use crate::isa::{Avx2, Avx512, IsaLevel};
#[cfg(target_arch = "x86_64")]
use crate::x86_64::{avx2, avx512, repack};
#[cfg(target_arch = "x86_64")]
use packhouse_layout::ggml_cpu_repack;
#[cfg(target_arch = "x86_64")]
use packhouse_layout::q4_0_joint_n_v1;
use packhouse_layout::{Admitted, Layout};
use std::num::NonZeroUsize;
use std::ops::Range;

/// Packs a range of the payload's steps (`Admitted::split`) from the whole source. The two targets
/// are those steps' slices of region 0 and region 1; all lengths were asserted by the caller.
pub type PackSteps<Token> = fn(Token, &Admitted, Range<u64>, &[u8], [&mut [u8]; 2]);

/// Gives the source rows of a range of groups back from the whole payload. The target is those
/// rows' slice of the source; all lengths were asserted by the caller.
pub type UnpackGroups<Token> = fn(Token, &Admitted, Range<u64>, &[u8], &mut [u8]);

/// Packs a whole head on several threads: the whole source and the whole payload. Which column is
/// in which step depends on the head's size, so steps are no shares for threads.
pub type PackHead<Token> = fn(Token, &Admitted, &[u8], &mut [u8], NonZeroUsize);

/// Quantises one column: values to as many codes, in chunks of 64 that lie so far apart. Returns
/// its scale.
pub type QuantiseColumn<Token> = fn(Token, &[f32], &mut [i8], usize) -> f32;

/// Writes the codes of the first columns to row-major rows that have as many columns: code `i` of a
/// column to row `i`. With the flag, past the caches where rows begin at a line.
pub type PutRows<Token> = fn(Token, &CodeColumns, &mut [&mut [i8]], bool);

/// Writes all columns to the microtiles of their rows, the depth rounded up to a multiple of 64.
/// With the flag, past the caches where the band begins at a line.
pub type PutBand<Token> = fn(Token, &CodeColumns, &mut [i8], bool);

/// One row of the kernel table.
#[derive(Clone, Copy, Debug)]
pub struct KernelRow {
    /// The layout it makes.
    pub layout: Layout,
    /// The one type it takes; `None` for all that the layout takes.
    pub type_name: Option<&'static str>,
    /// Parameters it is written for, by name; others may have any value.
    pub parameters: &'static [(&'static str, u64)],
    /// The code and the level it needs.
    pub code: Code,
}

/// A packer with the token that it wants, and its inverse where the layout has one.
#[derive(Clone, Copy, Debug)]
pub enum Code {
    /// The layout's judge, if it has one for the type.
    Judge,
    /// Needs AVX2.
    Avx2(PackSteps<Avx2>, Option<UnpackGroups<Avx2>>),
    /// Needs AVX-512 F, BW and VL.
    Avx512(PackSteps<Avx512>, Option<UnpackGroups<Avx512>>),
    /// A packer of whole heads, which has no inverse and needs AVX2.
    HeadAvx2(PackHead<Avx2>),
    /// The same with AVX-512 F, BW and VL.
    HeadAvx512(PackHead<Avx512>),
}

impl Code {
    /// The level that the code needs.
    pub const fn level(&self) -> IsaLevel {
        match self {
            Self::Judge => IsaLevel::Scalar,
            Self::Avx2(..) | Self::HeadAvx2(_) => IsaLevel::Avx2,
            Self::Avx512(..) | Self::HeadAvx512(_) => IsaLevel::Avx512,
        }
    }
}

impl KernelRow {
    /// Whether the row is of this layout, type and parameters.
    pub fn takes(&self, admitted: &Admitted) -> bool {
        let of_parameters = |(name, value): &(&str, u64)| {
            let given = admitted.parameters().get(*name);
            given.is_some_and(|given| given == value)
        };
        self.layout == admitted.layout()
            && self
                .type_name
                .is_none_or(|name| name == admitted.ty().name())
            && self.parameters.iter().all(of_parameters)
    }
}

const fn judge(layout: Layout) -> KernelRow {
    KernelRow {
        layout,
        type_name: None,
        parameters: &[],
        code: Code::Judge,
    }
}

/// Heads of all types that have values.
#[cfg(target_arch = "x86_64")]
const fn head(layout: Layout, code: Code) -> KernelRow {
    KernelRow {
        layout,
        type_name: None,
        parameters: &[],
        code,
    }
}

/// Twins of what stock x86-64 builds pack, by unit size; there is none for 4 rows.
#[cfg(target_arch = "x86_64")]
const fn twins_avx2<F: repack::Form>(unit: &'static [(&'static str, u64)]) -> KernelRow {
    KernelRow {
        layout: Layout::GgmlCpuRepack,
        type_name: Some(F::TYPE_NAME),
        parameters: unit,
        code: Code::Avx2(avx2::repack::pack::<F>, Some(avx2::repack::unpack::<F>)),
    }
}

#[cfg(target_arch = "x86_64")]
const fn twins_avx512<F: repack::Form>(unit: &'static [(&'static str, u64)]) -> KernelRow {
    KernelRow {
        layout: Layout::GgmlCpuRepack,
        type_name: Some(F::TYPE_NAME),
        parameters: unit,
        code: Code::Avx512(avx512::repack::pack::<F>, Some(avx512::repack::unpack::<F>)),
    }
}

#[cfg(target_arch = "x86_64")]
const ROWS_16: &[(&str, u64)] = &[(ggml_cpu_repack::UNIT_ROWS, 16)];
#[cfg(target_arch = "x86_64")]
const ROWS_8: &[(&str, u64)] = &[(ggml_cpu_repack::UNIT_ROWS, 8)];

#[cfg(target_arch = "x86_64")]
const fn q4_0(layout: Layout, parameters: &'static [(&'static str, u64)], code: Code) -> KernelRow {
    KernelRow {
        layout,
        type_name: Some("Q4_0"),
        parameters,
        code,
    }
}

/// The tile that registry packs have.
#[cfg(target_arch = "x86_64")]
const TILE_8: &[(&str, u64)] = &[(q4_0_joint_n_v1::N_TILE, 8)];

/// Every kernel. The highest level that the CPU has and that takes the tensor serves.
pub static KERNELS: &[KernelRow] = &[
    judge(Layout::GgmlCpuRepack),
    judge(Layout::Identity),
    judge(Layout::Int8TileB8),
    judge(Layout::Int8TileRm),
    judge(Layout::Q4_0JointN),
    judge(Layout::Q4_0Reordered),
    judge(Layout::Q4_0Xe2DpasV2),
    #[cfg(target_arch = "x86_64")]
    head(
        Layout::Int8TileB8,
        Code::HeadAvx2(avx2::int8_tile::pack_head),
    ),
    #[cfg(target_arch = "x86_64")]
    head(
        Layout::Int8TileB8,
        Code::HeadAvx512(avx512::int8_tile::pack_head),
    ),
    #[cfg(target_arch = "x86_64")]
    head(
        Layout::Int8TileRm,
        Code::HeadAvx2(avx2::int8_tile::pack_head),
    ),
    #[cfg(target_arch = "x86_64")]
    head(
        Layout::Int8TileRm,
        Code::HeadAvx512(avx512::int8_tile::pack_head),
    ),
    #[cfg(target_arch = "x86_64")]
    q4_0(
        Layout::Q4_0JointN,
        TILE_8,
        Code::Avx2(avx2::q4_0_joint_n::pack, Some(avx2::q4_0_joint_n::unpack)),
    ),
    #[cfg(target_arch = "x86_64")]
    q4_0(
        Layout::Q4_0JointN,
        TILE_8,
        Code::Avx512(
            avx512::q4_0_joint_n::pack,
            Some(avx512::q4_0_joint_n::unpack),
        ),
    ),
    #[cfg(target_arch = "x86_64")]
    q4_0(
        Layout::Q4_0Reordered,
        &[],
        Code::Avx2(
            avx2::q4_0_reordered::pack,
            Some(avx2::q4_0_reordered::unpack),
        ),
    ),
    #[cfg(target_arch = "x86_64")]
    q4_0(
        Layout::Q4_0Reordered,
        &[],
        Code::Avx512(
            avx512::q4_0_reordered::pack,
            Some(avx512::q4_0_reordered::unpack),
        ),
    ),
    #[cfg(target_arch = "x86_64")]
    q4_0(
        Layout::Q4_0Xe2DpasV2,
        &[],
        Code::Avx2(avx2::q4_0_xe2::pack, Some(avx2::q4_0_xe2::unpack)),
    ),
    #[cfg(target_arch = "x86_64")]
    q4_0(
        Layout::Q4_0Xe2DpasV2,
        &[],
        Code::Avx512(avx512::q4_0_xe2::pack, Some(avx512::q4_0_xe2::unpack)),
    ),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Q4_0>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Q4_0>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Iq4Nl>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Iq4Nl>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Mxfp4>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Mxfp4>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Q4K>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Q4K>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Q2K>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx2::<repack::Q2K>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Q4_0>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Q4_0>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Iq4Nl>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Iq4Nl>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Mxfp4>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Mxfp4>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Q4K>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Q4K>(ROWS_8),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Q2K>(ROWS_16),
    #[cfg(target_arch = "x86_64")]
    twins_avx512::<repack::Q2K>(ROWS_8),
];

/// The kernels of int8 tiles at one level, with the token that they want.
#[derive(Clone, Copy, Debug)]
pub enum TileCode {
    /// Plain loops.
    Scalar(TileKernels<()>),
    /// Needs AVX2.
    Avx2(TileKernels<Avx2>),
    /// Needs AVX-512 F, BW and VL.
    Avx512(TileKernels<Avx512>),
}

/// What packs int8 tiles.
#[derive(Clone, Copy, Debug)]
pub struct TileKernels<Token> {
    /// Values to codes.
    pub quantise: QuantiseColumn<Token>,
    /// Codes to a row-major tile.
    pub row_major: PutRows<Token>,
    /// Codes to a blocked tile.
    pub blocked: PutBand<Token>,
}

impl TileCode {
    /// The level that the code needs.
    pub const fn level(&self) -> IsaLevel {
        match self {
            Self::Scalar(_) => IsaLevel::Scalar,
            Self::Avx2(_) => IsaLevel::Avx2,
            Self::Avx512(_) => IsaLevel::Avx512,
        }
    }
}

/// The kernels of int8 tiles. The highest level that the CPU has serves.
pub static TILE_KERNELS: &[TileCode] = &[
    TileCode::Scalar(scalar::KERNELS),
    #[cfg(target_arch = "x86_64")]
    TileCode::Avx2(avx2::int8_tile::KERNELS),
    #[cfg(target_arch = "x86_64")]
    TileCode::Avx512(avx512::int8_tile::KERNELS),
];
