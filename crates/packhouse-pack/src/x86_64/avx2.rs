//! Kernels that need AVX2.

pub(crate) mod int8_tile;
pub(crate) mod q4_0_joint_n;
pub(crate) mod q4_0_reordered;
pub(crate) mod q4_0_xe2;
pub(crate) mod repack;
