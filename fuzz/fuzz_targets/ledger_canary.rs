//! The canary of the `ledger` target: its judge takes a lane that is opened twice, so a run must
//! fail soon.

#![no_main]

mod ledger_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mutant = ledger_oracle::Mutant::LaneTwice;
    let verdict = ledger_oracle::compare(input, Some(mutant));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
