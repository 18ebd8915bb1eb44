//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod analyses;
mod campaigns;
mod maker;
mod played;
