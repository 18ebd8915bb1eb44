//! The canary of the `bundle` target: its second reader takes objects whose bytes are others, so a
//! run must fail soon.

#![no_main]

#[expect(dead_code, reason = "one mutant is enough here")]
#[path = "../../crates/packhouse-prepare/tests/prepare/bundle_oracle.rs"]
mod bundle_oracle;

libfuzzer_sys::fuzz_target!(|bundle: &[u8]| {
    let mutant = bundle_oracle::Mutant::OtherObjects;
    let verdict = bundle_oracle::compare(bundle, Some(mutant));
    assert!(verdict.is_ok(), "readers disagree: {verdict:?}");
});
