//! The component protocol: how a gate asks any external program to run a case, and what it gets.
//!
//! Specified in `docs/format/component.md`.

#![forbid(unsafe_code)]

pub mod dtype;
pub mod form;

pub use dtype::Dtype;
pub use form::{Boundary, Dim, Form};
