//! Devices, and the lifetime of worker processes on them: start, ready, stop, release.
//!
//! Invariants:
//! - a process is named by boot, pid namespace, pid and start time, never by a pid alone;
//! - a signal goes only to a process that is proven to be the worker's, through a pidfd;
//! - what a tool or the kernel printed is kept raw, and what could not be parsed is `unknown`,
//!   never idle.
//!
//! Never: prints, reads the environment of its own process, exits.

#![forbid(unsafe_code)]

pub mod cores;
pub mod devices;
pub mod fleet;
pub mod group;
pub mod holders;
pub mod identity;
pub mod keeper;
pub mod listeners;
pub mod locks;
pub mod logs;
pub mod managed;
pub mod masks;
pub mod pidfd;
pub mod procfs;
pub mod ready;
pub mod records;
pub mod release;
pub mod render;
pub mod runs;
pub mod start;
pub mod state;
pub mod stop;
pub mod systemd;
