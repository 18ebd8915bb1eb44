//! Fixtures to come.

use super::Family;

/// The fixtures of this module.
pub(super) const FAMILIES: &[Family] = &[];
