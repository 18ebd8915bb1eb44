//! Memory used by a parse is bounded by the bytes present, whatever a file declares.
//!
//! Apart from the other tests, as it replaces the allocator of its whole binary. Counts are per thread,
//! so that the test harness's own threads don't disturb them.

use packhouse_container::TensorDirectory;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts live bytes of this thread and their peak.
struct Counting;

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

// SAFETY: every call goes on to `System` with the caller's own arguments; counting does not allocate,
// as the thread locals are constants without destructors.
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

/// Peak of live bytes while a file is parsed, its result included, and whether it was accepted.
fn peak(file: &[u8]) -> (usize, bool) {
    let before = LIVE.get();
    PEAK.set(before);
    let accepted = TensorDirectory::parse(&file).is_ok();
    (PEAK.get() - before, accepted)
}

/// Bytes of memory for each byte of a file, at most. The worst legal entry is a tensor of 25 bytes.
const PER_BYTE: usize = 16;
/// Bytes that a parse of the smallest file may use.
const FIXED: usize = 4096;

fn bounded(file: &[u8], what: &str) -> bool {
    let (peak, accepted) = peak(file);
    let allowed = PER_BYTE * file.len() + FIXED;
    assert!(
        peak <= allowed,
        "{what}: {peak} bytes of memory for {} of file",
        file.len()
    );
    accepted
}

fn header(tensors: u64, keys: u64) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(tensors.to_le_bytes());
    file.extend(keys.to_le_bytes());
    file
}

fn put_text(file: &mut Vec<u8>, text: &str) {
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text.as_bytes());
}

fn array(element: u32, count: u64) -> Vec<u8> {
    let mut file = header(0, 1);
    put_text(&mut file, "k");
    file.extend(9u32.to_le_bytes());
    file.extend(element.to_le_bytes());
    file.extend(count.to_le_bytes());
    file
}

const COUNTS: [u64; 9] = [
    1,
    1000,
    1 << 20,
    1 << 26,
    (1 << 26) + 1,
    1 << 40,
    1 << 60,
    1 << 63,
    u64::MAX,
];

#[test]
fn hostile_counts_use_no_memory() {
    // The canary: a parse that reserved by a declared count would be seen.
    let before = LIVE.get();
    PEAK.set(before);
    drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 24)));
    assert!(
        PEAK.get() - before >= 1 << 24,
        "the allocator does not count"
    );

    for count in COUNTS {
        for room in [0, 100, 10_000] {
            let padded = |mut file: Vec<u8>| {
                file.resize(file.len() + room, 0);
                file
            };
            bounded(&padded(header(count, 0)), "tensor count");
            bounded(&padded(header(0, count)), "metadata count");
            bounded(&padded(header(count, count)), "both counts");
            for element in 0..14 {
                bounded(&padded(array(element, count)), "array count");
            }
            let mut file = header(0, 1);
            file.extend(count.to_le_bytes());
            bounded(&padded(file), "key length");
            let mut file = header(0, 1);
            put_text(&mut file, "k");
            file.extend(8u32.to_le_bytes());
            file.extend(count.to_le_bytes());
            bounded(&padded(file), "string length");
            let mut file = header(1, 0);
            file.extend(count.to_le_bytes());
            bounded(&padded(file), "name length");
        }
    }
}

/// The files that use most memory for their size: all records as small as they can be.
#[test]
fn the_smallest_records_use_bounded_memory() {
    for count in [1u64, 100, 1025, 40_000] {
        let mut keys = header(0, count);
        for index in 0..count {
            // A u8 value under a short key.
            put_text(&mut keys, &format!("{index:x}"));
            keys.extend([0, 0, 0, 0, 7]);
        }
        assert!(bounded(&keys, "keys"));

        let mut tensors = header(count, 0);
        for index in 0..count {
            // No dims, type I8, one byte padded to 32.
            put_text(&mut tensors, &format!("{index:x}"));
            tensors.extend([0, 0, 0, 0, 24, 0, 0, 0]);
            tensors.extend((index * 32).to_le_bytes());
        }
        bounded(&tensors, "tensors without data");
        tensors.resize(tensors.len().next_multiple_of(32) + count as usize * 32, 0);
        assert!(bounded(&tensors, "tensors"));

        let mut empty_strings = array(8, count);
        empty_strings.resize(empty_strings.len() + count as usize * 8, 0);
        assert!(bounded(&empty_strings, "empty strings"));

        let mut bools = array(7, count);
        bools.resize(bools.len() + count as usize, 1);
        assert!(bounded(&bools, "bools"));
    }
}
