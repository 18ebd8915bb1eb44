//! Memory used by a parse is bounded by the bytes present, whatever a file declares.
//!
//! Apart from the other tests, as it replaces the allocator of its whole binary. Counts are per
//! thread, so that the test harness's own threads don't disturb them.

#[path = "shared/counting.rs"]
mod counting;

use counting::{parse_bounded, peak_of};

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
    let (peak, _) = peak_of(|| std::hint::black_box(Vec::<u8>::with_capacity(1 << 24)));
    assert!(peak >= 1 << 24, "the allocator does not count");

    for count in COUNTS {
        for room in [0, 100, 10_000] {
            let padded = |mut file: Vec<u8>| {
                file.resize(file.len() + room, 0);
                file
            };
            parse_bounded(&padded(header(count, 0)));
            parse_bounded(&padded(header(0, count)));
            parse_bounded(&padded(header(count, count)));
            for element in 0..14 {
                parse_bounded(&padded(array(element, count)));
            }
            let mut file = header(0, 1);
            file.extend(count.to_le_bytes());
            parse_bounded(&padded(file));
            let mut file = header(0, 1);
            put_text(&mut file, "k");
            file.extend(8u32.to_le_bytes());
            file.extend(count.to_le_bytes());
            parse_bounded(&padded(file));
            let mut file = header(1, 0);
            file.extend(count.to_le_bytes());
            parse_bounded(&padded(file));
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
        assert!(parse_bounded(&keys));

        let mut tensors = header(count, 0);
        for index in 0..count {
            // No dims, type I8, one byte padded to 32.
            put_text(&mut tensors, &format!("{index:x}"));
            tensors.extend([0, 0, 0, 0, 24, 0, 0, 0]);
            tensors.extend((index * 32).to_le_bytes());
        }
        parse_bounded(&tensors);
        tensors.resize(tensors.len().next_multiple_of(32) + count as usize * 32, 0);
        assert!(parse_bounded(&tensors));

        let mut empty_strings = array(8, count);
        empty_strings.resize(empty_strings.len() + count as usize * 8, 0);
        assert!(parse_bounded(&empty_strings));

        let mut bools = array(7, count);
        bools.resize(bools.len() + count as usize, 1);
        assert!(parse_bounded(&bools));
    }
}
