//! The canary of the `records` target: its judge takes no text with marks that a shell reads, so a
//! run must fail soon.

#![no_main]

mod records_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mutant = records_oracle::Mutant::Marks;
    let verdict = records_oracle::compare(input, Some(mutant));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
