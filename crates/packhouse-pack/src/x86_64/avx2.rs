//! Kernels that need AVX2.

pub(crate) mod q4_0_xe2;
pub(crate) mod repack;
