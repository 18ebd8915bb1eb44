//! The reference kernels, one table.

mod blocks;
mod context_kv;
mod int8_tile;
mod q4_0;

use crate::Kernel;

/// Every reference kernel.
pub fn all() -> impl Iterator<Item = &'static dyn Kernel> {
    [
        q4_0::KERNELS,
        blocks::KERNELS,
        int8_tile::KERNELS,
        context_kv::KERNELS,
    ]
    .into_iter()
    .flatten()
    .copied()
}
