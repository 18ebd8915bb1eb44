//! The canary of the `bag` target: its judge takes a payload of any size for the one that is told,
//! so a run must fail soon.

#![no_main]

mod bag_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let verdict = bag_oracle::compare(input, Some(bag_oracle::Mutant::Size));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
