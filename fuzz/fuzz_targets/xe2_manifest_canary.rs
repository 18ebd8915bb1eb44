//! The canary of the `xe2_manifest` target: its judge expects another offset, so a run must fail
//! soon.

#![no_main]

#[path = "../../crates/packhouse-prepare/tests/prepare/xe2_oracle.rs"]
mod xe2_oracle;

libfuzzer_sys::fuzz_target!(|manifest: &[u8]| {
    xe2_oracle::examine(manifest, Some(xe2_oracle::Mutant::MovesOffset));
});
