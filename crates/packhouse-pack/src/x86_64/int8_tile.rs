//! What the kernels of int8 tiles share.
#![expect(unsafe_code, reason = "bytes lent as codes")]

use crate::int8_tile::columns::STRIP_COLUMNS;

/// Codes of some rows of a row-major tile, gathered here so that each row is written at one go:
/// line after line of one row takes half as long as one line of many.
#[repr(align(64))]
pub(crate) struct Lines(pub(crate) [[i8; STRIP_COLUMNS]; Lines::ROWS]);

impl Lines {
    /// Rows that are gathered.
    pub(crate) const ROWS: usize = 16;
    /// Columns that there is room for.
    pub(crate) const COLUMNS: usize = STRIP_COLUMNS;

    pub(crate) const fn new() -> Self {
        Self([[0; STRIP_COLUMNS]; Self::ROWS])
    }
}

/// Lends bytes as codes.
pub(crate) fn as_codes(bytes: &mut [u8]) -> &mut [i8] {
    let length = bytes.len();
    // SAFETY: both have size and alignment 1 and any value; the borrow is handed on.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), length) }
}
