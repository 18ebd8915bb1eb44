//! An allocator that counts, for the memory bound that the tests and the fuzz target assert.

use packhouse_container::TensorDirectory;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts live bytes of this thread and their peak.
pub(crate) struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    // Fails only when the thread is ending, and then nobody measures.
    let _ = LIVE.try_with(|live| {
        live.set(live.get().wrapping_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn remove(bytes: usize) {
    let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(bytes)));
}

// SAFETY: every call goes on to `System` with the caller's own arguments; counting does not
// allocate, as the thread locals are constants without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak of live bytes while `work` runs, what it returns included.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (PEAK.get() - before, result)
}

/// Parses a file and says whether it was accepted. Panics when that took more memory than the
/// bound.
pub(crate) fn parse_bounded(file: &[u8]) -> bool {
    let (peak, result) = peak_of(|| TensorDirectory::parse(&file));
    let allowed = PER_BYTE * file.len() + FIXED;
    assert!(
        peak <= allowed,
        "{peak} bytes of memory for {} of file",
        file.len()
    );
    result.is_ok()
}

/// Bytes of memory for each byte of a file, at most. The worst legal entry is a tensor of 25 bytes.
const PER_BYTE: usize = 16;
/// Bytes that a parse of the smallest file may use.
const FIXED: usize = 4096;
