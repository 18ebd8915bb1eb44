//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod analyses;
mod campaigns;
mod crash;
mod desk;
mod documents;
mod freezing;
mod maker;
mod markers;
mod names;
mod played;
mod probe;
mod tampers;
