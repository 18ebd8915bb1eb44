//! The GGUF reader on any bytes: it agrees with a second parser on the verdict and the directory,
//! and uses memory in proportion to the bytes present.

#![no_main]

#[path = "../../crates/packhouse-container/tests/shared/counting.rs"]
mod counting;
#[expect(dead_code, reason = "the list of mutants is for the canaries")]
#[path = "../../crates/packhouse-container/tests/suite/oracle.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let bounded = counting::parse_bounded(file);
    assert_eq!(oracle::compare(file, None), Ok(bounded));
});
