//! Hints that bring cache lines near before they are used.
//!
//! Packing jumps between hundreds of places of the target, each in another page, faster than the
//! CPU's own prefetchers learn where it goes; without hints it waits for memory most of the time.
#![expect(unsafe_code, reason = "prefetch instructions")]

use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Brings lines that will be read soon.
#[inline(always)]
pub(crate) fn will_read(address: *const u8, byte_count: usize) {
    for offset in (0..byte_count).step_by(LINE_BYTES) {
        // SAFETY: the instruction accesses no memory as far as programs see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(offset).cast()) }
    }
}

/// Brings lines that will be written soon, ready to be changed.
#[inline(always)]
pub(crate) fn will_write(address: *const u8, byte_count: usize) {
    for offset in (0..byte_count).step_by(LINE_BYTES) {
        // SAFETY: the instruction accesses no memory as far as programs see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(address.wrapping_add(offset).cast()) }
    }
}

/// Brings equal pieces of consecutive rows into the second cache, a few lines at a time.
pub(crate) struct Ahead {
    next: *const u8,
    piece_end: *const u8,
    piece_bytes: usize,
    row_bytes: usize,
}

impl Ahead {
    /// Begins at the piece of the first row.
    #[inline(always)]
    pub(crate) fn new(first: *const u8, piece_bytes: usize, row_bytes: usize) -> Self {
        Self {
            next: first,
            piece_end: first.wrapping_add(piece_bytes),
            piece_bytes,
            row_bytes,
        }
    }

    /// Brings the next lines.
    #[inline(always)]
    pub(crate) fn bring(&mut self, line_count: usize) {
        for _ in 0..line_count {
            // SAFETY: the instruction accesses no memory as far as programs see, and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.next.cast()) }
            self.next = self.next.wrapping_add(LINE_BYTES);
            if self.next >= self.piece_end {
                self.piece_end = self.piece_end.wrapping_add(self.row_bytes);
                self.next = self.piece_end.wrapping_sub(self.piece_bytes);
            }
        }
    }
}
