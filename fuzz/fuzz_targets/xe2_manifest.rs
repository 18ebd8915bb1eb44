//! The reader of foreign set manifests on any bytes: what it takes says what the JSON says, and
//! comes back from its own text.

#![no_main]

#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;
#[path = "../../crates/packhouse-prepare/tests/prepare/xe2_oracle.rs"]
mod xe2_oracle;

libfuzzer_sys::fuzz_target!(|manifest: &[u8]| {
    let (peak, _) = counting::peak_of(|| xe2_oracle::examine(manifest, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
});

/// What a manifest of 64 KiB may take: JSON values of a few dozen bytes per byte.
const MEMORY_MAX: usize = 32 << 20;
