//! The readers of bags, seals and signatures on any bytes: they agree with a second judge, and
//! take no more memory than what they are given allows.

#![no_main]

mod bag_oracle;
#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (peak, verdict) = counting::peak_of(|| bag_oracle::compare(input, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});

/// What an input of 64 KiB may take: both judges' words about each of its paths.
const MEMORY_MAX: usize = 64 << 20;
