//! Layouts: ids, geometry and golden weights. This crate is the judge: plain loops, no `unsafe`, no
//! SIMD, no threads.
//!
//! A layout is a named, versioned order of a tensor's bytes for some kernels. Each module has its
//! id and version, `admit` (tensor to `Geometry` or a named `Refusal`), and the golden weight whose
//! packed bytes are the packer's fingerprint.

#![forbid(unsafe_code)]

pub mod ggml_cpu_repack;
pub mod golden;
pub mod stock_x86;

/// The shape of one admitted tensor under a layout whose payload is cut along rows.
///
/// A *unit* is the smallest group of rows that can be packed alone; unit `i` takes the source rows
/// `i * unit_rows ..` and fills the payload bytes `i * unit_bytes() ..`, so it is the sample group
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Rows over all matrices of the tensor (ne1 * ne2 * ne3).
    pub row_count: u64,
    /// Bytes of one source row.
    pub row_bytes: u64,
    /// Rows in one unit.
    pub unit_rows: u64,
}

impl Geometry {
    /// Bytes of the payload; equal to those of the source in every row-cut layout.
    pub const fn payload_bytes(&self) -> u64 {
        self.row_count * self.row_bytes
    }

    /// Bytes of one unit.
    pub const fn unit_bytes(&self) -> u64 {
        self.unit_rows * self.row_bytes
    }

    /// Units in the tensor.
    pub const fn unit_count(&self) -> u64 {
        self.row_count / self.unit_rows
    }
}

/// Why a layout does not take a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The layout has no packing of this type.
    #[error("type {name} has no packing in {layout}")]
    Type {
        /// Layout id.
        layout: &'static str,
        /// Type name.
        name: &'static str,
    },
    /// The number of dims is wrong, or one is zero.
    #[error("dims {dims:?} are not a matrix or a stack of matrices with rows")]
    Shape {
        /// Dims as given, ne0 first.
        dims: Vec<u64>,
    },
    /// ne1 is no multiple of the smallest unit.
    #[error("{rows} rows are no multiple of {multiple}")]
    Rows {
        /// ne1.
        rows: u64,
        /// What it must be a multiple of.
        multiple: u64,
    },
    /// ne0 is no multiple of the type's block, or the byte size overflows.
    #[error("row of {columns} elements is no whole number of {block}-element blocks")]
    Columns {
        /// ne0.
        columns: u64,
        /// Elements in a block.
        block: u64,
    },
}
