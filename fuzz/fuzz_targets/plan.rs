//! The plan parser on any bytes: what it takes comes back from its own text, selects of a small
//! model only what holds, and uses bounded memory.

#![no_main]

#[expect(dead_code, reason = "the bound of the other parser is not asked here")]
#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;
#[expect(dead_code, reason = "the mutant is for the canary")]
#[path = "../../crates/packhouse-prepare/tests/prepare/plan_oracle.rs"]
mod plan_oracle;

libfuzzer_sys::fuzz_target!(|plan: &[u8]| {
    let (peak, _) = counting::peak_of(|| plan_oracle::examine(plan, None));
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
});

/// Four times what the worst plan found takes: 64 rules, each of the largest pattern that is
/// compiled.
const MEMORY_MAX: usize = 32 << 20;
