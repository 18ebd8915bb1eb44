//! Integration tests of the second implementation.

#![forbid(unsafe_code)]
