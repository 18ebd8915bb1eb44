//! The C library `libpackhouse`: opens sets and stages, looks payloads up, maps them, packs, and
//! says why not. Its interface is `include/packhouse.h`; this crate is that header in Rust, and no
//! logic: `packhouse_loader::set` has all of it.
//!
//! - `types`: the header's structs and constants; `usage`: its statuses;
//! - `edge`: the rules that every call keeps; `handles`: what its opaque pointers lead to;
//!   `contract`: structs to values and back;
//! - `set`, `layouts`, `version`: the calls.
//!
//! Invariants:
//! - no panic leaves a call: it becomes `PACKHOUSE_BUG`;
//! - a pointer that is NULL, a struct of a wrong size and a text that is no UTF-8 are answered by a
//!   status and change nothing;
//! - there is no state but what handles lead to, and every handle is counted.
//!
//! Never: reads the environment, aborts the host, or prints, but for a defect: its panic is told by
//! the process' panic hook, which writes to standard error. Specified in `docs/design/capi.md`.

#![deny(unsafe_code)]
#![expect(non_camel_case_types, reason = "the names are the header's")]

#[expect(unsafe_code, reason = "structs are read through a caller's pointers")]
mod contract;
#[expect(
    unsafe_code,
    reason = "structs are read and filled through a caller's pointers"
)]
mod edge;
#[expect(
    unsafe_code,
    reason = "handles are counted values behind a caller's pointers"
)]
mod handles;
#[expect(unsafe_code, reason = "calls from C")]
mod layouts;
#[expect(
    unsafe_code,
    reason = "calls from C, and the mapping of what is verified"
)]
mod set;
mod types;
mod usage;
#[expect(unsafe_code, reason = "calls from C")]
mod version;

pub use handles::{packhouse_mapping, packhouse_set};
pub use layouts::*;
pub use set::*;
pub use types::*;
pub use usage::{Failure, OK, Status, Usage, statuses};
pub use version::*;
