//! The engine's column callback as the packer's source of columns.

use crate::image_types::packhouse_column;
use std::ffi::c_void;

/// The engine's callback and what it is called with.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    give: unsafe extern "C" fn(*mut c_void, u64, *mut f32, u64) -> i32,
    context: *mut c_void,
    /// Values of one column; what a target has beyond them stays zero.
    width: usize,
}

/// A callback that returned something else than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the callback returned {returned} for column {column}")]
pub struct ColumnError {
    /// The column that was asked for.
    pub column: u64,
    /// What the callback returned.
    pub returned: i32,
}

impl Columns {
    /// None when there is no callback.
    ///
    /// # Safety
    /// While this lives, the callback does what `packhouse.h` says of it, on this thread.
    pub(crate) unsafe fn new(
        give: packhouse_column,
        context: *mut c_void,
        width: usize,
    ) -> Option<Self> {
        Some(Self {
            give: give?,
            context,
            width,
        })
    }

    /// Fills a column's first values.
    pub(crate) fn fill(&self, column: u64, target: &mut [f32]) -> Result<(), ColumnError> {
        let values = &mut target[..self.width];
        let count = values.len() as u64;
        // SAFETY: the promise of `new`; the values are that long.
        let returned = unsafe { (self.give)(self.context, column, values.as_mut_ptr(), count) };
        match returned {
            0 => Ok(()),
            returned => Err(ColumnError { column, returned }),
        }
    }
}

/// Columns whose callback any threads may call at once.
pub(crate) struct ParallelColumns(Columns);

impl ParallelColumns {
    /// # Safety
    /// The promise of `Columns::new`, for any threads at once.
    pub(crate) const unsafe fn new(columns: Columns) -> Self {
        Self(columns)
    }

    pub(crate) fn fill(&self, column: u64, target: &mut [f32]) -> Result<(), ColumnError> {
        self.0.fill(column, target)
    }
}

// SAFETY: the promise of `new`: the caller set PACKHOUSE_TILE_COLUMNS_PARALLEL.
unsafe impl Sync for ParallelColumns {}
