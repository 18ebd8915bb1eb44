//! The canary of the `bag` target: its judge takes files of 0 bytes, so a run must fail soon.

#![no_main]

mod bag_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let verdict = bag_oracle::compare(input, Some(bag_oracle::Mutant::EmptyFile));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
