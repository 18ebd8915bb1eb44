//! The reader of fleet files on any bytes: it agrees with a second judge about what is right, each
//! mistake stands in the text, and what is right is rendered or refused with a reason.

#![no_main]

#[expect(dead_code, reason = "of the devices, these are for other tests")]
#[path = "../../crates/packhouse-proc/tests/proc/cards.rs"]
mod cards;
#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;
#[expect(dead_code, reason = "the mutant is for the canary")]
mod fleet_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (peak, verdict) = counting::peak_of(|| fleet_oracle::compare(input, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});

/// What an input of 64 KiB may take: values and their places, and the mistakes about them.
const MEMORY_MAX: usize = 64 << 20;
