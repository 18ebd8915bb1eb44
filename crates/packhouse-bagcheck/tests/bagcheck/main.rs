//! Integration tests of the second implementation.

#![forbid(unsafe_code)]

mod program;
mod sample;
mod tamper;
mod valid;
