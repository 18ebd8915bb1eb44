//! The command from outside: exit codes, both streams, processes.
//!
//! `cargo xtask docs` writes the snapshots and `docs/cli.md` again; review the difference.

#![forbid(unsafe_code)]

mod docs;
mod equivalence;
mod inspect;
mod model;
mod prepare;
mod plans;
mod run;
mod sandbox;
mod store;
mod usage;
