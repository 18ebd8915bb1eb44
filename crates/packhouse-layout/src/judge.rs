//! Scalar packing and unpacking: what each layout is, in code.

use crate::{
    Admitted, Layout, ggml_cpu_repack, identity_v1, int8_tile, q4_0_joint_n_v1, q4_0_reordered_v1,
    q4_0_xe2_dpas_v2,
};
use packhouse_base::Blame;

/// Code from one side to the other: the tensor, the bytes that are there, those to write.
pub type Convert = fn(&Admitted, &[u8], &mut [u8]);

/// A layout's scalar packer and its exact inverse, where `Layout::is_invertible` says that it has
/// one. Both write every byte of their last argument.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// Source to payload.
    pub pack: Convert,
    /// Payload to source.
    pub unpack: Option<Convert>,
}

/// No scalar packer makes what the engine's own packer makes of this type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{layout} of type {name} is packed by the engine only")]
pub struct NoJudge {
    /// Layout id.
    pub layout: &'static str,
    /// Type name.
    pub name: &'static str,
}

impl NoJudge {
    /// Whose side it is on: whoever asked without an engine.
    pub const fn blame(&self) -> Blame {
        Blame::Caller
    }
}

/// The layout keeps too little of its source to give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{layout} is not invertible: it rounds what it packs")]
pub struct NotInvertible {
    /// Layout id.
    pub layout: &'static str,
}

impl NotInvertible {
    /// Whose side it is on: whoever asked for what the layout does not promise.
    pub const fn blame(&self) -> Blame {
        Blame::Caller
    }
}

/// Why a payload was not unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoUnpack {
    /// Only an engine packs the type.
    #[error(transparent)]
    Judge(#[from] NoJudge),
    /// Nobody can.
    #[error(transparent)]
    Inverse(#[from] NotInvertible),
}

impl NoUnpack {
    /// Whose side it is on.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Judge(why) => why.blame(),
            Self::Inverse(why) => why.blame(),
        }
    }
}

/// Finds the scalar packer of a tensor.
///
/// # Errors
/// Where only an engine packs the type.
pub fn judge(admitted: &Admitted) -> Result<Judge, NoJudge> {
    match admitted.layout() {
        Layout::GgmlCpuRepack => ggml_cpu_repack::judge(admitted).ok_or(NoJudge {
            layout: admitted.layout().id(),
            name: admitted.ty().name(),
        }),
        Layout::Identity => Ok(identity_v1::JUDGE),
        Layout::Int8TileB8 | Layout::Int8TileRm => Ok(int8_tile::head::JUDGE),
        Layout::Q4_0JointN => Ok(q4_0_joint_n_v1::JUDGE),
        Layout::Q4_0Reordered => Ok(q4_0_reordered_v1::JUDGE),
        Layout::Q4_0Xe2DpasV2 => Ok(q4_0_xe2_dpas_v2::JUDGE),
    }
}

/// The first byte of a payload that no source packs to, as far as that shows without an inverse:
/// what can still be said of a layout that rounds. `None` of other layouts.
///
/// # Panics
/// When the length is not the tensor's.
pub fn first_impossible(admitted: &Admitted, payload: &[u8]) -> Option<u64> {
    match admitted.layout() {
        Layout::Int8TileB8 | Layout::Int8TileRm => {
            int8_tile::head::first_impossible(admitted, payload)
        }
        Layout::GgmlCpuRepack
        | Layout::Identity
        | Layout::Q4_0JointN
        | Layout::Q4_0Reordered
        | Layout::Q4_0Xe2DpasV2 => None,
    }
}

/// Packs a source tensor; writes every byte of `target`.
///
/// # Errors
/// Where only an engine packs the type.
///
/// # Panics
/// When a length is not the tensor's.
pub fn pack_scalar(admitted: &Admitted, source: &[u8], target: &mut [u8]) -> Result<(), NoJudge> {
    let judge = judge(admitted)?;
    assert_eq!(source.len() as u64, admitted.source_bytes(), "source bytes");
    assert_eq!(
        target.len() as u64,
        admitted.payload_bytes(),
        "payload bytes"
    );
    (judge.pack)(admitted, source, target);
    Ok(())
}

/// Gives the source of a payload back; writes every byte of `target`.
///
/// # Errors
/// Where only an engine packs the type, or the layout has no inverse.
///
/// # Panics
/// When a length is not the tensor's.
pub fn unpack_scalar(
    admitted: &Admitted,
    payload: &[u8],
    target: &mut [u8],
) -> Result<(), NoUnpack> {
    let unpack = judge(admitted)?.unpack.ok_or(NotInvertible {
        layout: admitted.layout().id(),
    })?;
    assert_eq!(
        payload.len() as u64,
        admitted.payload_bytes(),
        "payload bytes"
    );
    assert_eq!(target.len() as u64, admitted.source_bytes(), "source bytes");
    unpack(admitted, payload, target);
    Ok(())
}
