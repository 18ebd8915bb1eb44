//! The canary of the `plan` target: its renderer is wrong on purpose, so a run must fail soon.

#![no_main]

#[path = "../../crates/packhouse-prepare/tests/prepare/plan_oracle.rs"]
mod plan_oracle;

libfuzzer_sys::fuzz_target!(|plan: &[u8]| {
    plan_oracle::examine(plan, Some(plan_oracle::Mutant::LowersSummary));
});
