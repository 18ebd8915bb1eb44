//! The canary of the `prereg` target: its reader takes an ordinal for a device's name, so a run
//! must fail soon.

#![no_main]

mod prereg_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mutant = prereg_oracle::Mutant::Ordinals;
    let verdict = prereg_oracle::compare(input, Some(mutant));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
