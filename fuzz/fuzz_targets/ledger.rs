//! The reader of ledgers on any bytes and on stories that are chained for it, beside bagcheck's.

#![no_main]

#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;
#[expect(dead_code, reason = "the mutant is the canary's")]
mod ledger_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (peak, verdict) = counting::peak_of(|| ledger_oracle::compare(input, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});

/// What an input of 64 KiB may take: `@0` is 64 digits, and both readers hold values of all.
const MEMORY_MAX: usize = 128 << 20;
