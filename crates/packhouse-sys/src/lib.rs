//! The operating system as traits, so that every crash, full disk and odd file system can be
//! played.
//!
//! - `fs`: folders and files by descriptor; `stat`: what a descriptor says about itself;
//! - `clock`: the two clocks and waiting; `real`: the versions that talk to Linux;
//! - `map`: address space that an engine reads; `read_map`: read-only bytes at an own address;
//!   `source_map`: the file behind a pointer.
//!
//! Invariants:
//! - no operation follows a symlink: a path is opened component by component;
//! - no operation overwrites a file but `Dir::rename_over`, which the store uses for private state
//!   only;
//! - unsafe code is in `os`, `signal` and `thread` (system calls that `rustix` lacks), in `map`,
//!   `read_map` and `source_map`.
//!
//! Never: prints, reads the environment, exits.

#![deny(unsafe_code)]

pub mod child;
pub mod clock;
mod error;
pub mod fs;
#[expect(
    unsafe_code,
    reason = "address space is given and taken by raw pointer"
)]
pub mod map;
pub mod memory;
mod os;
#[expect(unsafe_code, reason = "mappings are made and unmade by raw pointer")]
pub mod read_map;
pub mod real;
#[expect(unsafe_code, reason = "sigaction has no safe wrapper")]
pub mod signal;
#[expect(unsafe_code, reason = "mincore, and madvise on an engine's mapping")]
pub mod source_map;
pub mod spawn;
pub mod stat;
#[expect(unsafe_code, reason = "thread priorities have no safe wrapper")]
pub mod thread;
