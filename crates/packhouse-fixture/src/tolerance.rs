//! How near a kernel's row must come to the expected one. Judged row by row, never once for all.

use crate::Tensor;
use std::collections::BTreeMap;

/// A bound on each element of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Every bit.
    BitEqual,
    /// Each element at most this many representable values away.
    Ulp {
        /// Largest distance.
        max: u32,
    },
    /// Each element at most as far away as a tensor of the fixture says.
    Within {
        /// Its file name: binary32, of the expected tensor's shape, nothing negative in it. Where
        /// it is zero only the same number passes.
        tensor: String,
    },
}

/// A tolerance with what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit<'f> {
    /// As [`Tolerance::BitEqual`].
    BitEqual,
    /// As [`Tolerance::Ulp`].
    Ulp {
        /// Largest distance.
        max: u32,
    },
    /// As [`Tolerance::Within`].
    Within {
        /// Largest distance of each element, binary32.
        bounds: &'f Tensor,
    },
}

impl Tolerance {
    /// What it says, with the tensor that it names; none where there is no such tensor.
    pub fn limit<'f>(&self, tensors: &'f BTreeMap<String, Tensor>) -> Option<Limit<'f>> {
        match self {
            Self::BitEqual => Some(Limit::BitEqual),
            Self::Ulp { max } => Some(Limit::Ulp { max: *max }),
            Self::Within { tensor } => {
                let bounds = tensors.get(tensor)?;
                Some(Limit::Within { bounds })
            }
        }
    }

    /// The tensor that it names.
    pub(crate) fn tensor(&self) -> Option<&String> {
        match self {
            Self::BitEqual | Self::Ulp { .. } => None,
            Self::Within { tensor } => Some(tensor),
        }
    }
}
