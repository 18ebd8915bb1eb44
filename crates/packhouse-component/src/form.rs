//! What a boundary's tensor must look like at a width: declared once, shared by who makes it and
//! who judges it. Shape, stride, offset and size are derived from it, never typed twice.

use crate::Dtype;

/// One extent of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// The same at every width.
    Fixed(u64),
    /// The case's width, this many times.
    Widths(u64),
}

/// A named tensor that is compared: a boundary of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Its name, `[a-z0-9][a-z0-9_.-]{0,63}`.
    pub name: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Its shape, outermost first.
    pub shape: Vec<Dim>,
    /// Elements before its first one in its storage: a product of extents, empty for none.
    pub offset: Vec<Dim>,
}

/// A boundary at one width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Its element type.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Elements from one index to the next, per extent: contiguous.
    pub stride: Vec<u64>,
    /// Elements before its first one in its storage.
    pub storage_offset: u64,
    /// Bytes of all its elements.
    pub bytes: u64,
}
