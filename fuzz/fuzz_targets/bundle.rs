//! The bundle reader on any bytes: it agrees with a second reader on the verdict.

#![no_main]

#[expect(dead_code, reason = "the mutants are for the canaries")]
#[path = "../../crates/packhouse-prepare/tests/prepare/bundle_oracle.rs"]
mod bundle_oracle;
#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;

libfuzzer_sys::fuzz_target!(|bundle: &[u8]| {
    let (peak, _) = counting::peak_of(|| bundle_oracle::read(bundle));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    let verdict = bundle_oracle::compare(bundle, None);
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});

/// What a bundle of 64 KiB may take: its own bytes some times over, as records and their values.
const MEMORY_MAX: usize = 16 << 20;
