//! The integration tests of packhouse-prepare: one binary, one module per subject.

#![forbid(unsafe_code)]

mod xe2_m6_v2_vectors;
