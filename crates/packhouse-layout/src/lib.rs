//! Layouts: ids, geometry, scalar packers and golden weights. This crate is the judge: plain loops,
//! no `unsafe`, no SIMD, no threads.
//!
//! A layout is a named, versioned order of a tensor's bytes for some kernels. `Layout::admit` says
//! whether it takes a tensor; what it says yes to is an `Admitted`, which knows every length and
//! where each sample group lies. `pack_scalar` and `unpack_scalar` are the layouts' definitions in
//! code; every fast packer must make the same bytes. Specified in `docs/format/layouts.md`.

#![forbid(unsafe_code)]

mod admitted;
pub mod dequant;
pub mod ggml_cpu_plan;
pub mod ggml_cpu_repack;
pub mod golden;
pub mod identity_v1;
pub mod int8_tile;
mod judge;
mod layout;
mod q4_0;
pub mod q4_0_joint_n_v1;
pub mod q4_0_reordered_v1;
pub mod q4_0_xe2_dpas_v2;
mod refusal;
pub mod stock_x86;

pub use admitted::{Admitted, GoldenWeight, Split};
pub use judge::{
    Convert, Judge, NoJudge, NoUnpack, NotInvertible, first_impossible, judge, pack_scalar,
    unpack_scalar,
};
pub use layout::{Layout, Parameter};
pub use refusal::Refusal;

/// The shape of one admitted tensor in rows, as pack records have it.
///
/// A *unit* is the smallest group of rows that can be packed alone: the sample group. Where the
/// payload is cut along rows (`ggml-cpu-repack`, `identity-v1`), unit `i` takes the source rows
/// `i * unit_rows ..` and fills the payload bytes `i * unit_bytes() ..`; in other layouts
/// `Admitted::group_payload` says where a unit lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Rows over all matrices of the tensor (ne1 * ne2 * ne3).
    pub row_count: u64,
    /// Bytes of one source row.
    pub row_bytes: u64,
    /// Rows in one unit; the last unit may have fewer.
    pub unit_rows: u64,
}

impl Geometry {
    /// Bytes of the payload in a row-cut layout; bytes of the source in all.
    pub const fn payload_bytes(&self) -> u64 {
        self.row_count * self.row_bytes
    }

    /// Bytes of one whole unit of the source.
    pub const fn unit_bytes(&self) -> u64 {
        self.unit_rows * self.row_bytes
    }

    /// Units in the tensor, a shorter last one included.
    pub const fn unit_count(&self) -> u64 {
        self.row_count.div_ceil(self.unit_rows)
    }
}
