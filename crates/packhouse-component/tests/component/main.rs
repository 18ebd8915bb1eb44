//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod checks;
mod messages;
mod samples;
mod sessions;
