//! The reference kernels, one table.

pub(crate) mod blocks;
pub(crate) mod context_kv;
pub(crate) mod int8_tile;
mod mmvq;
pub(crate) mod q4_0;

use crate::Kernel;

/// Every reference kernel.
pub fn all() -> impl Iterator<Item = &'static dyn Kernel> {
    [
        mmvq::KERNELS,
        q4_0::KERNELS,
        blocks::KERNELS,
        int8_tile::KERNELS,
        context_kv::KERNELS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Finds the kernel that runs a fixture.
pub fn of_fixture(id: &str) -> Option<&'static dyn Kernel> {
    all().find(|kernel| kernel.fixtures().contains(&id))
}
