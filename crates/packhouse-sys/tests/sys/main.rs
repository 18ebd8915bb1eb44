//! The one test binary of the operating-system crate.

#![forbid(unsafe_code)]

mod files;
mod locks;
