//! What a stock x86-64 ggml packs, from a tensor's name, type and dims alone: for showing a
//! container to people before an engine is at hand. What an engine really packs is that engine's
//! own word.
//!
//! Source: `ggml_repack_get_optimal_repack_type` and `supports_op` in `repack.cpp` of ggml 0.26.0,
//! and llama.cpp's rule that a model without `output.weight` multiplies by its token embedding.

use crate::ggml_cpu_repack::twin::{self, Twin};
use packhouse_base::ggml_type::GgmlType;

/// Rows that one packed group of the x86-64 layouts has.
pub const GROUP_ROWS: u64 = twin::GROUP_ROWS as u64;

/// The CPU features that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// AVX2.
    pub avx2: bool,
    /// AVX-512 F and BW.
    pub avx512: bool,
}

/// Why a stock build leaves a tensor in the order of its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Left {
    /// No x86-64 kernel has a packed order for the type.
    #[error("type {name} has no packed order on x86-64")]
    Type {
        /// Type name.
        name: &'static str,
    },
    /// The CPU lacks what the kernel for the packed order needs.
    #[error("packing {name} needs {feature}, which this CPU lacks")]
    Feature {
        /// Type name.
        name: &'static str,
        /// The missing feature.
        feature: &'static str,
    },
    /// Neither a matrix nor a stack of experts.
    #[error("{count} dims; only matrices and stacks of experts are multiplied")]
    Dims {
        /// Dims, without trailing ones.
        count: usize,
    },
    /// The rows do not divide.
    #[error("{rows} rows are no multiple of {GROUP_ROWS}")]
    Rows {
        /// ne1.
        rows: u64,
    },
    /// Rows are looked up in it; nothing multiplies by it.
    #[error("rows are looked up in it, nothing multiplies by it")]
    Lookup,
}

/// Tells how a stock build packs the tensor. `is_tied` says that the model has no `output.weight`.
/// Errors with the reason why it stays as it is.
pub fn choose(
    name: &str,
    ty: GgmlType,
    dims: &[u64],
    is_tied: bool,
    features: Features,
) -> Result<Twin, Left> {
    let Some(twin) = Twin::of(ty, GROUP_ROWS) else {
        return Err(Left::Type { name: ty.name() });
    };
    let count = dims
        .iter()
        .rposition(|dim| *dim != 1)
        .map_or(1, |last| last + 1);
    if count != 2 && count != 3 {
        return Err(Left::Dims { count });
    }
    let is_lookup = name == "token_embd.weight" && !is_tied;
    if is_lookup || LOOKUPS.contains(&name) {
        return Err(Left::Lookup);
    }
    if !dims[1].is_multiple_of(GROUP_ROWS) {
        return Err(Left::Rows { rows: dims[1] });
    }
    match needs(twin) {
        Need::Avx2 if !features.avx2 => Err(Left::Feature {
            name: ty.name(),
            feature: "AVX2",
        }),
        Need::Avx512 if !features.avx512 => Err(Left::Feature {
            name: ty.name(),
            feature: "AVX-512",
        }),
        Need::Avx2 | Need::Avx512 => Ok(twin),
    }
}

enum Need {
    Avx2,
    Avx512,
}

/// What stock's kernels for a packing need.
const fn needs(twin: Twin) -> Need {
    match twin {
        Twin::Q4_0 | Twin::Iq4Nl | Twin::Mxfp4 | Twin::Q4K => Need::Avx2,
        Twin::Q2K => Need::Avx512,
    }
}

/// Tensors in which rows are looked up in every architecture that has them.
const LOOKUPS: [&str; 3] = [
    "token_types.weight",
    "position_embd.weight",
    "per_layer_token_embd.weight",
];

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Features = Features {
        avx2: true,
        avx512: true,
    };

    fn ask(
        name: &str,
        ty: &str,
        dims: &[u64],
        is_tied: bool,
        features: Features,
    ) -> Result<Twin, Left> {
        let ty = GgmlType::from_name(ty).expect("because the test names known types");
        choose(name, ty, dims, is_tied, features)
    }

    #[test]
    fn a_tied_embedding_is_packed_and_a_separate_one_is_not() {
        let dims = [576, 49152];
        assert_eq!(
            ask("token_embd.weight", "Q4_0", &dims, true, ALL),
            Ok(Twin::Q4_0)
        );
        assert_eq!(
            ask("token_embd.weight", "Q4_0", &dims, false, ALL),
            Err(Left::Lookup)
        );
        assert_eq!(
            ask("output.weight", "Q4_0", &dims, false, ALL),
            Ok(Twin::Q4_0)
        );
    }

    #[test]
    fn each_reason_has_its_tensor() {
        let dims = [256, 64];
        let left = |ty, dims: &[u64], features| ask("a", ty, dims, true, features);
        assert_eq!(left("Q6_K", &dims, ALL), Err(Left::Type { name: "Q6_K" }));
        assert_eq!(left("F32", &[64], ALL), Err(Left::Type { name: "F32" }));
        assert_eq!(
            left("Q4_0", &[64, 1, 1, 1], ALL),
            Err(Left::Dims { count: 1 })
        );
        assert_eq!(
            left("Q4_0", &[64, 8, 2, 2], ALL),
            Err(Left::Dims { count: 4 })
        );
        assert_eq!(left("Q4_K", &[256, 12], ALL), Err(Left::Rows { rows: 12 }));
        assert_eq!(left("Q4_K", &[256, 8, 4], ALL), Ok(Twin::Q4K));
        let old = Features {
            avx2: true,
            avx512: false,
        };
        assert_eq!(left("IQ4_NL", &dims, old), Ok(Twin::Iq4Nl));
        let lacks = Left::Feature {
            name: "Q2_K",
            feature: "AVX-512",
        };
        assert_eq!(left("Q2_K", &dims, old), Err(lacks));
        assert_eq!(left("Q2_K", &dims, ALL), Ok(Twin::Q2K));
    }
}
