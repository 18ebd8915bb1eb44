//! Codes of columns on their way into a tile: one column after the other, as the quantiser makes
//! them and as kernels read them.

/// Columns that are put into a tile together: a band of the blocked order, two cache lines of a
/// row-major row.
pub const COLUMNS: usize = 128;

/// Codes of `COLUMNS` columns. Columns that are not written keep what they had.
///
/// Invariants, on which kernels rely: columns lie `stride` bytes apart, `stride` is at least the
/// depth rounded up to a multiple of 64, and the bytes between depth and stride are 0.
#[derive(Debug)]
pub struct CodeColumns {
    bytes: Vec<i8>,
    start: usize,
    stride: usize,
    depth: usize,
}

impl CodeColumns {
    /// Makes room for columns of a depth; all codes are 0.
    pub fn new(depth: usize) -> Self {
        // An odd number of lines: columns a power of two apart would share few sets of a cache.
        let stride = (depth.div_ceil(LINE_BYTES) | 1) * LINE_BYTES;
        let bytes = vec![0; COLUMNS * stride + LINE_BYTES];
        let start = bytes.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        Self {
            bytes,
            start,
            stride,
            depth,
        }
    }

    /// Codes of a column.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Bytes from one column to the next.
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// All columns, `COLUMNS` times `stride` bytes.
    pub fn bytes(&self) -> &[i8] {
        &self.bytes[self.start..][..COLUMNS * self.stride]
    }

    /// The codes of a column, to be written.
    ///
    /// # Panics
    /// When there is no such column.
    pub fn column_mut(&mut self, index: usize) -> &mut [i8] {
        assert!(index < COLUMNS, "column {index} of {COLUMNS}");
        &mut self.bytes[self.start + index * self.stride..][..self.depth]
    }
}

const LINE_BYTES: usize = 64;

// Kernels read whole lines of 64 columns.
const _: () = assert!(COLUMNS.is_multiple_of(64));
