//! The integration tests of packhouse-store: one binary, one module per subject.

#![forbid(unsafe_code)]

mod compat;
mod concurrency;
mod crash;
mod docs;
mod fixture;
mod gc;
mod real;
mod set_crash;
mod sets;
mod state;
mod tamper;
mod vectors;
