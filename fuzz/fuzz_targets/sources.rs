//! The parsers of what kernels, tools and libraries say of cards and processes, on any bytes: they
//! agree with second judges, and one wrong byte never makes fewer users.

#![no_main]

#[expect(dead_code, reason = "of the devices, these are for other tests")]
#[path = "../../crates/packhouse-proc/tests/proc/cards.rs"]
mod cards;
#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;
#[path = "../../crates/packhouse-proc/tests/proc/masks/oracle.rs"]
mod oracle;
mod sources_masks;
#[expect(dead_code, reason = "the mutant is for the canary")]
mod sources_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (peak, verdict) = counting::peak_of(|| sources_oracle::compare(input, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});

/// What an input of 64 KiB may take: a JSON list of numbers is 32 times its text, and the judge has
/// one of its own.
const MEMORY_MAX: usize = 16 << 20;
