//! Tests of the crate from outside.

#![forbid(unsafe_code)]
