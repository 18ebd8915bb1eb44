//! Verifies a sealed evidence bag offline, by a second implementation.

#![forbid(unsafe_code)]
