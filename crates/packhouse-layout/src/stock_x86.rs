//! What a stock x86-64 ggml packs, from a tensor's name, type and dims alone: for showing a
//! container to people before an engine is at hand. What an engine really packs is that engine's
//! own word.
//!
//! Source: `ggml_repack_get_optimal_repack_type` and `supports_op` in `repack.cpp` of ggml 0.26.0,
//! and llama.cpp b11434's table of the op that each tensor is for (`llama-arch.cpp`), with its rule
//! that most models without `output.weight` multiply by their token embedding. `engine-tests`
//! compares the answers with what that engine packs.
//!
//! Where the answer is not exact it errs towards packing, which costs disk and no start: blocks
//! that predict further tokens are counted in, though the engine may not load them.

use crate::ggml_cpu_repack::twin::{self, Twin};
use packhouse_base::ggml_type::GgmlType;

/// Rows that one packed group of the x86-64 layouts has.
pub const GROUP_ROWS: u64 = twin::GROUP_ROWS as u64;

/// The CPU features that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// AVX2.
    pub avx2: bool,
    /// AVX-512 F, CD, VL, DQ and BW, which stock builds ask for together.
    pub avx512: bool,
}

impl Features {
    /// Asks this CPU. What an engine was built for may be less.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        use std::arch::is_x86_feature_detected as has;
        let avx512 = has!("avx512f") && has!("avx512cd") && has!("avx512vl");
        Self {
            avx2: has!("avx2"),
            avx512: avx512 && has!("avx512dq") && has!("avx512bw"),
        }
    }

    /// Another architecture has none of them.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Self {
        Self {
            avx2: false,
            avx512: false,
        }
    }
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
    /// Not the shape that the op on it has a packed kernel for.
    #[error("{count} dims; packed kernels take a matrix, or experts in a stack of matrices")]
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
    // Experts are multiplied by a kernel of their own, which takes a stack and no single matrix.
    let expected = if is_experts(name) { 3 } else { 2 };
    if count != expected {
        return Err(Left::Dims { count });
    }
    let is_lookup = name == "token_embd.weight" && !is_tied;
    if is_lookup || LOOKUPS.contains(&base(name)) {
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

/// Tells whether a model multiplies by its token embedding: it has no `output.weight`, and its
/// architecture (`general.architecture`) has an output at all.
pub fn is_tied(architecture: Option<&str>, has_output: bool) -> bool {
    !has_output && !architecture.is_some_and(|name| WITHOUT_OUTPUT.contains(&name))
}

/// The name without its block and its suffix: `blk.7.ffn_up_exps.weight` is `ffn_up_exps`.
fn base(name: &str) -> &str {
    let name = name.strip_suffix(".weight").unwrap_or(name);
    let block = name.find("blk.").map(|start| start + "blk.".len());
    let Some((number, base)) = block.and_then(|start| name[start..].split_once('.')) else {
        return name;
    };
    if number.bytes().all(|byte| byte.is_ascii_digit()) {
        base
    } else {
        name
    }
}

fn is_experts(name: &str) -> bool {
    let base = base(name);
    base.starts_with("ffn_") && (base.ends_with("_exps") || base.ends_with("_chexps"))
}

/// Tensors in which rows are looked up in every architecture that has them.
const LOOKUPS: [&str; 11] = [
    "token_types",
    "position_embd",
    "per_layer_token_embd",
    "attn_rel_b",
    "attn_compressor_ape",
    "indexer_compressor_ape",
    "ffn_gate_tid2eid",
    "nextn.embed_tokens",
    "markov_w1",
    "selector_predecessor",
    "selector_successor",
];

/// Architectures that look rows up in their token embedding and never load it as an output.
const WITHOUT_OUTPUT: [&str; 10] = [
    "bert",
    "modern-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "neo-bert",
    "jina-bert-v2",
    "jina-bert-v3",
    "eurobert",
    "bitnet",
    "wavtokenizer-dec",
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
        assert_eq!(
            left("Q4_K", &[256, 8, 4], ALL),
            Err(Left::Dims { count: 3 })
        );
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

    #[test]
    fn experts_are_packed_as_a_stack_and_nothing_else_is() {
        let experts = |name, dims: &[u64]| ask(name, "MXFP4", dims, false, ALL);
        for name in ["blk.3.ffn_up_exps.weight", "blk.12.ffn_gate_chexps.weight"] {
            assert_eq!(experts(name, &[256, 8, 4]), Ok(Twin::Mxfp4), "{name}");
            let one = experts(name, &[256, 8, 1]);
            assert_eq!(one, Err(Left::Dims { count: 2 }), "{name}");
        }
        for name in ["blk.3.attn_k_b.weight", "blk.3.ffn_up_shexp.weight", "exps"] {
            let stack = experts(name, &[256, 8, 4]);
            assert_eq!(stack, Err(Left::Dims { count: 3 }), "{name}");
            assert_eq!(experts(name, &[256, 8]), Ok(Twin::Mxfp4), "{name}");
        }
    }

    #[test]
    fn what_rows_are_looked_up_in_is_left_in_every_block() {
        let dims = [256, 64];
        for name in [
            "token_types.weight",
            "per_layer_token_embd.weight",
            "blk.40.nextn.embed_tokens.weight",
            "enc.blk.0.attn_rel_b.weight",
            "selector_successor.weight",
        ] {
            let left = ask(name, "Q4_0", &dims, true, ALL);
            assert_eq!(left, Err(Left::Lookup), "{name}");
        }
        for name in ["blk.40.nextn.eh_proj.weight", "blk.x.attn_rel_b.weight"] {
            let packed = ask(name, "Q4_0", &dims, true, ALL);
            assert_eq!(packed, Ok(Twin::Q4_0), "{name}");
        }
    }

    #[test]
    fn an_embedding_model_is_not_tied() {
        assert!(is_tied(Some("gemma3"), false));
        assert!(is_tied(None, false));
        assert!(!is_tied(Some("gemma3"), true));
        assert!(!is_tied(Some("nomic-bert"), false));
    }
}
