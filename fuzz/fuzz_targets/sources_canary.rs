//! The canary of the `sources` target: its judge holds that no damaged text is read, so a run must
//! fail soon.

#![no_main]

#[expect(dead_code, reason = "of the devices, these are for other tests")]
#[path = "../../crates/packhouse-proc/tests/proc/cards.rs"]
mod cards;
#[path = "../../crates/packhouse-proc/tests/proc/masks/oracle.rs"]
mod oracle;
mod sources_masks;
mod sources_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mutant = sources_oracle::Mutant::Damage;
    let verdict = sources_oracle::compare(input, Some(mutant));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
