//! The component protocol: how a gate asks any external program to run a case, and what it gets.
//!
//! - `form`, `matrix`: what is compared, declared once;
//! - `frame`, `json`, `message`: the bytes on the program's stdin and stdout, sans I/O;
//! - `check`: an answer against its case and the raw files, pure;
//! - `exchange`, `drive`: a program that is started, asked, and ended;
//! - `serve`: the program's side, for components that are written with this crate.
//!
//! Invariants: what was recomputed from the raw files and what only the program can know have
//! different types; an answer with any fault gives no bytes to judge.
//!
//! Never: prints, reads the environment. Specified in `docs/format/component.md`.

#![forbid(unsafe_code)]

pub mod check;
pub mod drive;
pub mod dtype;
pub mod exchange;
mod fields;
pub mod form;
pub mod frame;
pub mod json;
pub mod matrix;
pub mod message;
pub mod name;
pub mod serve;

pub use check::{Checked, Fault};
pub use dtype::Dtype;
pub use fields::MessageError;
pub use form::{Boundary, Dim, Form, FormError};
pub use matrix::{Cell, Matrix, MatrixError};
