//! Ids, digests, units, limits and the canonical encoding of everything that is hashed or stored.
//!
//! Invariants:
//! - one value has one encoding (`encode` for keys, `canonical` for JSON records);
//! - nothing here reads a file, a clock or an environment.
//!
//! Formats: `docs/format/keys.md`.

#![forbid(unsafe_code)]

pub mod canonical;
pub mod digest;
pub mod encode;
pub mod ggml_type;
pub mod identity;
pub mod shown;
pub mod units;

/// Whose side a failure is on: what an error answers to `blame()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The user's own file.
    Source,
    /// Bytes that we stored.
    Store,
    /// The operating system, a disk, a device.
    Host,
    /// Misuse of an interface.
    Caller,
    /// A defect here; please report.
    Bug,
}
