//! The C library `libpackhouse`: opens sets and stages, looks payloads up, maps them, packs, says
//! why not, and fills tiles of an int8 head. Its interface is `include/packhouse.h`; this crate is
//! that header in Rust, and no logic: `packhouse_loader::set` and `packhouse_image` have it all.
//!
//! - `types`: the header's structs and constants; `usage`: its statuses;
//! - `edge`: the rules that every call keeps; `handles`: what its opaque pointers lead to;
//!   `contract`: structs to values and back;
//! - `image_types`, `image_usage`, `image_contract`, `image_report`: the same for head tiles;
//!   `columns`: the engine's callback;
//! - `set`, `layouts`, `images`, `version`: the calls.
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

#[expect(unsafe_code, reason = "calls to a caller's function")]
mod columns;
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
#[expect(unsafe_code, reason = "structs are read through a caller's pointers")]
mod image_contract;
mod image_report;
mod image_types;
mod image_usage;
#[expect(unsafe_code, reason = "calls from C")]
mod images;
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

pub use columns::ColumnError;
pub use handles::{packhouse_images, packhouse_mapping, packhouse_serve, packhouse_set};
pub use image_types::*;
pub use image_usage::{ImageCode, TileFailure};
pub use images::*;
pub use layouts::*;
pub use set::*;
pub use types::*;
pub use usage::{Failure, OK, Status, Usage, statuses};
pub use version::*;
