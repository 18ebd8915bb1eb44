//! Set layouts that others defined: a store's set is written in them, and read back once proven.
//!
//! Invariants:
//! - what is written is what the other side's reader accepts, field by field;
//! - what is read is believed only after every payload's inverse transform hashes to the source
//!   tensor's SHA-256, whatever the other side's receipts say.
//!
//! Never: follows a path that a foreign file names without its grammar, links a file into two
//! places. Formats: `docs/format/xe2-m6-v2.md`.

pub mod xe2_m6_v2;

/// A foreign set layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignFormat {
    /// The Xe2 M-row verifier's pack set, revisions 2 and 3.
    Xe2M6V2,
}

impl ForeignFormat {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Xe2M6V2];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xe2M6V2 => "xe2-m6-v2",
        }
    }

    /// Finds one by name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}
