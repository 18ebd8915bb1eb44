//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod analyses;
mod campaigns;
mod crash;
mod documents;
mod maker;
mod names;
mod played;
mod tampers;
