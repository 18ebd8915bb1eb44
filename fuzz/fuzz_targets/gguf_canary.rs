//! The canary of the `gguf` target: its second parser is wrong on purpose, so a run must fail soon.
//! A fuzz job that can't find this would find nothing.

#![no_main]

#[expect(dead_code, reason = "one mutant is enough here")]
#[path = "../../crates/packhouse-container/tests/suite/oracle.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let mutant = oracle::Mutant::AllowsNul;
    assert!(oracle::compare(file, Some(mutant)).is_ok());
});
