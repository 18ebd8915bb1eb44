//! The C library `libpackhouse`: opens sets and stages, looks payloads up, maps them, says why not.

#![deny(unsafe_code)]
