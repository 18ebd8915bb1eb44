//! The canary of the `fleet` target: its judge holds that no mistake stands behind the last letter
//! of a line, so a run must fail soon.

#![no_main]

#[expect(dead_code, reason = "of the devices, these are for other tests")]
#[path = "../../crates/packhouse-proc/tests/proc/cards.rs"]
mod cards;
mod fleet_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mutant = fleet_oracle::Mutant::Column;
    let verdict = fleet_oracle::compare(input, Some(mutant));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
