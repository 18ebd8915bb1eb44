//! Kernels to come.

use crate::Kernel;

/// The kernels of this module.
pub(super) const KERNELS: &[&dyn Kernel] = &[];
