//! The parsers of head-tile images on any bytes: headers, owner records and names of files. They
//! agree with a second judge, and what they read they write again byte for byte.

#![no_main]

#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;
mod image_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (peak, verdict) = counting::peak_of(|| image_oracle::compare(input, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});

/// What an input of 64 KiB may take: a copy of it, and words about it.
const MEMORY_MAX: usize = 1 << 20;
