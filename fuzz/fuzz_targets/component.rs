//! The reader of the component protocol on any bytes: frames in any pieces, JSON beside a second
//! reader, and messages that lose nothing between being read and written.

#![no_main]

mod component_json;
mod component_oracle;
#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (peak, verdict) = counting::peak_of(|| component_oracle::compare(input, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});

/// What an input of 64 KiB may take: values several times over, of 72 bytes for two of text.
const MEMORY_MAX: usize = 32 << 20;
