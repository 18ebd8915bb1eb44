//! Kernels of x86-64, by ISA level. The only modules of this crate with unsafe code: one function
//! with target features per kernel, called by one safe door that asserts every length.

pub(crate) mod avx2;
pub(crate) mod avx512;
mod int8_tile;
mod q4_0;
mod q4_0_joint_n;
mod q4_0_reordered;
mod q4_0_xe2;
pub(crate) mod repack;
mod tiles;
mod traffic;
