//! Reads a source front to back through one window, so that a value costs no system call.
//!
//! Invariants: the window never holds more than the file has, nor than one field needs beyond
//! `WINDOW_BYTES`; the position never passes the end of the file or `DIRECTORY_BYTES_MAX`.

use super::error::{Field, GgufError};
use super::limits::DIRECTORY_BYTES_MAX;
use crate::source::ReadAt;

/// A position in a source.
pub(super) struct Cursor<'a> {
    source: &'a dyn ReadAt,
    length: u64,
    window: Vec<u8>,
    /// Index in the window of the next byte.
    next: usize,
    /// Position in the source of the end of the window.
    window_end: u64,
}

/// Bytes of one read.
pub(super) const WINDOW_BYTES: usize = 256 << 10;

impl<'a> Cursor<'a> {
    /// Starts at offset 0.
    pub(super) fn new(source: &'a dyn ReadAt) -> Self {
        Self {
            source,
            length: source.len(),
            window: Vec::new(),
            next: 0,
            window_end: 0,
        }
    }

    /// Position of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.window_end - wide(self.window.len() - self.next)
    }

    /// Length of the source.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Bytes between the position and the end of the source.
    pub(super) fn left(&self) -> u64 {
        self.length - self.offset()
    }

    /// Takes `count` bytes. Errors when fewer are left, when the limit of a directory is passed,
    /// and when the source can't be read.
    pub(super) fn take(&mut self, count: u64, field: &Field) -> Result<&[u8], GgufError> {
        let offset = self.offset();
        if count > self.left() {
            return Err(GgufError::Truncated {
                field: field.clone(),
                offset,
                needed: count,
                present: self.left(),
            });
        }
        let count = usize::try_from(count)
            .ok()
            .filter(|count| wide(*count) <= DIRECTORY_BYTES_MAX.saturating_sub(offset))
            .ok_or_else(|| GgufError::DirectoryTooLong {
                field: field.clone(),
                offset,
                limit: DIRECTORY_BYTES_MAX,
            })?;
        if count > self.window.len() - self.next {
            self.refill(count)?;
        }
        let start = self.next;
        self.next += count;
        Ok(&self.window[start..self.next])
    }

    /// Takes an array of `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, field: &Field) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(wide(N), field)?);
        Ok(bytes)
    }

    /// Takes a u32.
    pub(super) fn u32(&mut self, field: &Field) -> Result<u32, GgufError> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Takes a u64.
    pub(super) fn u64(&mut self, field: &Field) -> Result<u64, GgufError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Reads a window that begins at the position and has at least `count` bytes, which are there.
    fn refill(&mut self, count: usize) -> Result<(), GgufError> {
        let offset = self.offset();
        let present = usize::try_from(self.left()).unwrap_or(usize::MAX);
        let bytes = count.max(WINDOW_BYTES).min(present);
        if bytes > self.window.capacity() {
            // A new window rather than a grown one: nothing of the old one is needed.
            self.window = Vec::new();
            self.window.reserve_exact(bytes);
        }
        self.window.resize(bytes, 0);
        self.source
            .read_at(&mut self.window, offset)
            .map_err(|source| GgufError::Read {
                offset,
                bytes: wide(bytes),
                source,
            })?;
        self.next = 0;
        self.window_end = offset + wide(bytes);
        Ok(())
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).expect("because no target has a usize above 64 bits")
}
