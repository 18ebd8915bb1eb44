//! The values of tensors: what numbers a block's bytes stand for, in plain loops.
//!
//! - `float`: types that store numbers, and the halves that all scales are;
//! - `simple`: one scale, at most one offset, for a block's codes.
//!
//! Invariants:
//! - every value has the bits that ggml's own reference functions give it: the same operations in
//!   the same order, each rounded once; a NaN is a NaN, whose bits are nobody's;
//! - blocks do not depend on each other;
//! - no bytes are refused: each type gives every block values.
//!
//! Never quantises, and knows no shapes: a row is whole blocks. Specified in
//! `docs/format/values.md`.

mod float;
mod simple;

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
