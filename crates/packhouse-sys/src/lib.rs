//! The operating system as traits, so that every crash, full disk and odd file system can be played.
//!
//! - `fs`: folders and files by descriptor; `stat`: what a descriptor says about itself;
//! - `clock`: the two clocks and waiting; `real`: the versions that talk to Linux.
//!
//! Invariants:
//! - no operation follows a symlink: a path is opened component by component;
//! - no operation overwrites a file but `Dir::rename_over`, which the store uses for private state
//!   only;
//! - unsafe code is in `os` (three system calls that `rustix` lacks) and in the map module.
//!
//! Never: prints, reads the environment, exits.

#![deny(unsafe_code)]

pub mod clock;
pub mod fs;
mod os;
pub mod real;
pub mod stat;
