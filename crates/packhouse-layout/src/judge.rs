//! Scalar packing and unpacking: what each layout is, in code.

use crate::{
    Admitted, Layout, ggml_cpu_repack, identity_v1, q4_0_joint_n_v1, q4_0_reordered_v1,
    q4_0_xe2_dpas_v2,
};
use packhouse_base::Blame;

/// A layout's scalar packer and its exact inverse. Both write every byte of their last argument.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// Source to payload.
    pub pack: fn(&Admitted, &[u8], &mut [u8]),
    /// Payload to source.
    pub unpack: fn(&Admitted, &[u8], &mut [u8]),
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
        Layout::Q4_0JointN => Ok(q4_0_joint_n_v1::JUDGE),
        Layout::Q4_0Reordered => Ok(q4_0_reordered_v1::JUDGE),
        Layout::Q4_0Xe2DpasV2 => Ok(q4_0_xe2_dpas_v2::JUDGE),
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
/// Where only an engine packs the type.
///
/// # Panics
/// When a length is not the tensor's.
pub fn unpack_scalar(
    admitted: &Admitted,
    payload: &[u8],
    target: &mut [u8],
) -> Result<(), NoJudge> {
    let judge = judge(admitted)?;
    assert_eq!(
        payload.len() as u64,
        admitted.payload_bytes(),
        "payload bytes"
    );
    assert_eq!(target.len() as u64, admitted.source_bytes(), "source bytes");
    (judge.unpack)(admitted, payload, target);
    Ok(())
}
