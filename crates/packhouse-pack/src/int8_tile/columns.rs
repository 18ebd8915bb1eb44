//! Codes of columns on their way into a tile, in an order that suits both those who make them and
//! those who put them into tiles.

/// Columns of a band of the blocked order.
pub const BAND_COLUMNS: usize = 128;

/// Most columns that are put into a row-major tile together: four cache lines of each row, which
/// takes half as long as one line at a time.
pub const STRIP_COLUMNS: usize = 256;

/// Codes of one column that lie side by side.
pub const CHUNK: usize = 64;

/// Codes of up to `STRIP_COLUMNS` columns: 64 codes of the first column, the same of the second and
/// so on, then the next 64 of each. Columns that are not written keep what they had.
///
/// Invariants, on which kernels rely:
/// - chunk `c` of column `j` has `CHUNK` codes, from `c * distance + j * CHUNK` on;
/// - there are chunks for the depth rounded up to a multiple of 64, and what is beyond the depth is
///   0;
/// - there are whole 64 columns.
#[derive(Debug)]
pub struct CodeColumns {
    bytes: Vec<i8>,
    start: usize,
    distance: usize,
    depth: usize,
    count: usize,
}

impl CodeColumns {
    /// Makes room for `count` columns of a depth, rounded up to a multiple of 64; all codes are 0.
    ///
    /// # Panics
    /// When there are more than `STRIP_COLUMNS`.
    pub fn new(depth: usize, count: usize) -> Self {
        assert!(count <= STRIP_COLUMNS, "{count} columns");
        let count = count.next_multiple_of(64);
        // One line more than there are columns: the chunks of a column would share few sets of a
        // cache if they lay a power of two apart.
        let distance = (count + 1) * CHUNK;
        let bytes = vec![0; depth.div_ceil(CHUNK) * distance + CHUNK];
        let start = bytes.as_ptr().align_offset(CHUNK).min(CHUNK);
        Self {
            bytes,
            start,
            distance,
            depth,
            count,
        }
    }

    /// Codes of a column.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Columns that there is room for.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Codes from one chunk of a column to its next.
    pub const fn distance(&self) -> usize {
        self.distance
    }

    /// All chunks of all columns.
    pub fn bytes(&self) -> &[i8] {
        &self.bytes[self.start..][..self.depth.div_ceil(CHUNK) * self.distance]
    }

    /// A column and what lies between its chunks, to be written by a quantiser.
    ///
    /// # Panics
    /// When there is no such column.
    pub fn column_mut(&mut self, index: usize) -> &mut [i8] {
        assert!(index < self.count, "column {index} of {}", self.count);
        let all = self.depth.div_ceil(CHUNK) * self.distance;
        &mut self.bytes[self.start..][..all][index * CHUNK..]
    }

    /// Makes all codes of a column 0.
    ///
    /// # Panics
    /// When there is no such column.
    pub fn clear(&mut self, index: usize) {
        let distance = self.distance;
        for chunk in self.column_mut(index).chunks_mut(distance) {
            chunk[..CHUNK].fill(0);
        }
    }

    /// Asserts that a band is as long as one of these columns, of which there are enough.
    ///
    /// # Panics
    /// When it is not, or there are not.
    pub fn assert_band(&self, band: &[i8]) {
        assert!(self.count >= BAND_COLUMNS, "columns of a band");
        let rows = self.depth.next_multiple_of(CHUNK);
        assert_eq!(band.len(), rows * BAND_COLUMNS, "band");
    }

    /// How many columns rows are for: their common length.
    ///
    /// # Panics
    /// When there are not as many rows as a column has codes, or they have columns that are not
    /// here. Rows of other lengths than the first are noticed when they are written.
    pub fn row_length(&self, rows: &[&mut [i8]]) -> usize {
        assert_eq!(rows.len(), self.depth, "rows");
        let count = rows.first().map_or(0, |row| row.len());
        assert!(count <= self.count, "columns of rows");
        count
    }
}

/// Asserts that chunks `distance` apart have room for a column's codes.
///
/// # Panics
/// When they do not, or overlap.
pub(crate) fn assert_room(count: usize, codes: &[i8], distance: usize) {
    let chunks = count.div_ceil(CHUNK);
    assert!(distance >= CHUNK, "chunks of a column");
    if let Some(last) = chunks.checked_sub(1) {
        let end = last * distance + (count - last * CHUNK);
        assert!(end <= codes.len(), "codes of a column");
    }
}

const _: () = assert!(BAND_COLUMNS.is_multiple_of(64) && STRIP_COLUMNS.is_multiple_of(64));
const _: () = assert!(BAND_COLUMNS <= STRIP_COLUMNS);
