//! SHA-256: of one stream by the `sha2` crate, and of two equally long ones at once.

#![deny(unsafe_code)]
