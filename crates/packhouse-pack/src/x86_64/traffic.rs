//! Hints that bring cache lines near before they are used.
//!
//! Packing jumps between hundreds of places of the target, each in another page, faster than the
//! CPU's own prefetchers learn where it goes; without hints it waits for memory most of the time.
#![expect(unsafe_code, reason = "prefetch instructions")]

use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Payloads from here on are written past the caches where they can be: they would not stay there
/// anyway, and a line that is not read before it is written is half the traffic.
const STREAM_BYTES: usize = 1 << 20;

/// Whether a payload, or a thread's slice of one, is to be written past the caches.
pub(crate) fn is_streamed(source_bytes: usize, target: &[u8]) -> bool {
    source_bytes >= STREAM_BYTES && target.as_ptr().addr().is_multiple_of(LINE_BYTES)
}

/// Brings lines that will be read soon.
#[inline(always)]
pub(crate) fn will_read(address: *const u8, byte_count: usize) {
    for offset in (0..byte_count).step_by(LINE_BYTES) {
        // SAFETY: the instruction accesses no memory as far as programs see, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(offset).cast()) }
    }
}

/// Brings lines that will be written soon. A line that no other core has comes ready to be changed
/// even where the compiler knows of no instruction that says so.
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
    /// Bytes from `next` to the end of its piece.
    left: usize,
    piece_bytes: usize,
    /// From the end of a piece to the beginning of the next.
    gap_bytes: usize,
}

impl Ahead {
    /// Begins at the piece of the first row.
    #[inline(always)]
    pub(crate) fn new(first: *const u8, piece_bytes: usize, row_bytes: usize) -> Self {
        let gap_bytes = row_bytes - piece_bytes;
        Self {
            next: first,
            // Pieces without gaps are one.
            left: if gap_bytes == 0 {
                usize::MAX
            } else {
                piece_bytes
            },
            piece_bytes,
            gap_bytes,
        }
    }

    /// Brings the next lines, and goes on to the next piece when this one is done.
    #[inline(always)]
    pub(crate) fn bring(&mut self, line_count: usize) {
        for line in 0..line_count {
            let address = self.next.wrapping_add(line * LINE_BYTES);
            // SAFETY: the instruction accesses no memory as far as programs see, and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
        }
        let brought = line_count * LINE_BYTES;
        if brought < self.left {
            self.next = self.next.wrapping_add(brought);
            self.left -= brought;
        } else {
            self.next = self.next.wrapping_add(self.left + self.gap_bytes);
            self.left = self.piece_bytes;
        }
    }
}
