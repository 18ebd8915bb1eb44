//! The records of workers' runs on any bytes: what is read is written again byte for byte, and no
//! field can be left out, added or be none of its kind.

#![no_main]

#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;
#[expect(dead_code, reason = "the mutant is for the canary")]
mod records_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (peak, verdict) = counting::peak_of(|| records_oracle::compare(input, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});

/// What an input of 64 KiB may take: lists of small objects, several times over.
const MEMORY_MAX: usize = 64 << 20;
