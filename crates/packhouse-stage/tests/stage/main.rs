//! The integration tests of packhouse-stage: one binary, one module per subject.

#![forbid(unsafe_code)]

mod crash;
mod docs;
mod fixture;
mod life;
mod processes;
mod real;
mod roots;
mod tamper;
