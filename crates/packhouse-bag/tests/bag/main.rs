//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod crash;
mod forms;
mod samples;
mod tampered;
mod writing;
