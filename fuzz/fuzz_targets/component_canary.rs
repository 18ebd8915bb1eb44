//! The canary of the `component` target: its judge takes an object that has a key twice, so a run
//! must fail soon.

#![no_main]

mod component_json;
mod component_oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mutant = component_oracle::Mutant::KeyTwice;
    let verdict = component_oracle::compare(input, Some(mutant));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
