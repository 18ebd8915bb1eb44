//! The canary of the `image` target: its second judge takes reserved bytes that are not zero, so a
//! run must fail soon.

#![no_main]

mod image_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mutant = image_oracle::Mutant::Reserved;
    let verdict = image_oracle::compare(input, Some(mutant));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
