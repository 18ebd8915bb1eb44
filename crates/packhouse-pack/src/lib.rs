//! Packers that serve: SIMD forms of the layouts, chosen once per process from one kernel table.
//!
//! Invariants:
//! - every kernel makes the bytes of the layout's judge in `packhouse-layout`, or is a defect;
//! - a kernel writes every byte of its target and nothing else;
//! - one table (`kernels`) feeds dispatch, tests and benches;
//! - a kernel runs only with a token that detection alone can make.
//!
//! Layouts are specified in `docs/format/layouts.md`.

#![deny(unsafe_code)]

pub mod int8_tile;
mod isa;
mod kernels;
mod packers;
mod parallel;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use isa::{Avx2, Avx512, IsaLevel};
pub use kernels::{
    Code, KERNELS, KernelRow, PackHead, PackSteps, PutBand, PutRows, QuantiseColumn, TILE_KERNELS,
    TileCode, TileKernels, UnpackGroups,
};
pub use packers::{Inverse, Kernel, NoKernel, Packers};
