//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod fingerprint;
mod fingerprint_files;
mod fingerprint_kept;
mod fingerprint_source;
mod fingerprint_world;
mod focused;
mod focused_crash;
mod focused_real;
mod focused_world;
