//! The values of tensors: what numbers a block's bytes stand for, in plain loops.
//!
//! - `float`: types that store numbers, and the halves that most scales are;
//! - `simple`: one scale, and at most one offset, for a block's codes;
//! - `k`: scales of sub-blocks, themselves scaled; `six_bits`: some of those;
//! - `few`: codes that are digits or name one of few levels;
//! - `iq`: codes that name a point of a grid; `grids`: the grids.
//!
//! Invariants:
//! - every value has the bits that ggml's own reference functions give it: the same operations in
//!   the same order, each rounded once; a NaN is a NaN, whose bits are nobody's;
//! - blocks do not depend on each other;
//! - no bytes are refused: each type gives every block values.
//!
//! Never quantises, and knows no shapes: a row is whole blocks. Specified in
//! `docs/format/values.md`.

mod few;
mod float;
mod grids;
mod iq;
mod k;
mod simple;
pub(crate) mod six_bits;

use packhouse_base::Blame;
use packhouse_base::ggml_type::GgmlType;

/// A type's bytes stand for no float values here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("type {name} has no float values")]
pub struct NoValues {
    /// Type name.
    pub name: &'static str,
}

impl NoValues {
    /// Whose side it is on: whoever asked for values of such a tensor.
    pub const fn blame(&self) -> Blame {
        Blame::Caller
    }
}

/// Tells whether a type's blocks have values.
pub fn has_values(ty: GgmlType) -> bool {
    reader(ty).is_some()
}

/// Reads the values of whole blocks; writes every value of `target`.
///
/// # Errors
/// Where the type has no values.
///
/// # Panics
/// When `source` is no whole number of blocks, or `target` is not as long as their values.
pub fn dequantise(ty: GgmlType, source: &[u8], target: &mut [f32]) -> Result<(), NoValues> {
    let read = reader(ty).ok_or(NoValues { name: ty.name() })?;
    let block_count = source.len() as u64 / ty.block_bytes();
    assert_eq!(
        source.len() as u64,
        block_count * ty.block_bytes(),
        "source bytes"
    );
    assert_eq!(
        target.len() as u64,
        block_count * ty.block_elements(),
        "target values"
    );
    read(source, target);
    Ok(())
}

/// Reads whole blocks of one type.
type Reader = fn(&[u8], &mut [f32]);

fn reader(ty: GgmlType) -> Option<Reader> {
    let reader: Reader = match ty.name() {
        "F32" => |source, target| blocks(source, target, float::f32),
        "F16" => |source, target| blocks(source, target, float::f16),
        "BF16" => |source, target| blocks(source, target, float::bf16),
        "F64" => |source, target| blocks(source, target, float::f64),
        "Q1_0" => |source, target| blocks(source, target, simple::q1_0),
        "Q2_0" => |source, target| blocks(source, target, simple::q2_0),
        "Q4_0" => |source, target| blocks(source, target, simple::q4_0),
        "Q4_1" => |source, target| blocks(source, target, simple::q4_1),
        "Q5_0" => |source, target| blocks(source, target, simple::q5_0),
        "Q5_1" => |source, target| blocks(source, target, simple::q5_1),
        "Q8_0" => |source, target| blocks(source, target, simple::q8_0),
        "Q2_K" => |source, target| blocks(source, target, k::q2_k),
        "Q3_K" => |source, target| blocks(source, target, k::q3_k),
        "Q4_K" => |source, target| blocks(source, target, k::q4_k),
        "Q5_K" => |source, target| blocks(source, target, k::q5_k),
        "Q6_K" => |source, target| blocks(source, target, k::q6_k),
        "Q8_K" => |source, target| blocks(source, target, k::q8_k),
        "TQ1_0" => |source, target| blocks(source, target, few::tq1_0),
        "TQ2_0" => |source, target| blocks(source, target, few::tq2_0),
        "MXFP4" => |source, target| blocks(source, target, few::mxfp4),
        "NVFP4" => |source, target| blocks(source, target, few::nvfp4),
        "IQ4_NL" => |source, target| blocks(source, target, few::iq4_nl),
        "IQ4_XS" => |source, target| blocks(source, target, few::iq4_xs),
        "IQ1_S" => |source, target| blocks(source, target, iq::iq1_s),
        "IQ1_M" => |source, target| blocks(source, target, iq::iq1_m),
        "IQ2_XXS" => |source, target| blocks(source, target, iq::iq2_xxs),
        "IQ2_XS" => |source, target| blocks(source, target, iq::iq2_xs),
        "IQ2_S" => |source, target| blocks(source, target, iq::iq2_s),
        "IQ3_XXS" => |source, target| blocks(source, target, iq::iq3_xxs),
        "IQ3_S" => |source, target| blocks(source, target, iq::iq3_s),
        _ => return None,
    };
    Some(reader)
}

/// Reads block after block of `B` bytes and `E` values. Inlined with its `read`, so that each type
/// is one loop.
#[inline]
fn blocks<const B: usize, const E: usize>(
    source: &[u8],
    target: &mut [f32],
    read: impl Fn(&[u8; B], &mut [f32; E]),
) {
    let (source, _) = source.as_chunks();
    let (target, _) = target.as_chunks_mut();
    for (block, values) in source.iter().zip(target) {
        read(block, values);
    }
}
