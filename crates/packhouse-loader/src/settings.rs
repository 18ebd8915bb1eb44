//! What the user chose.

use std::path::PathBuf;

/// Settings of a loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The store's root; `None` when no place is known, as without a home folder.
    pub root: Option<PathBuf>,
    /// The folder of private state; `None` as above.
    pub state: Option<PathBuf>,
    /// Read packs, write none.
    pub read_only: bool,
    /// What proof a payload needs.
    pub trust: Trust,
    /// Cap on the store's objects, in bytes; `None` is the store's default.
    pub bytes_max: Option<u64>,
    /// The folder of stages, absolute; `None` looks for none.
    pub stage: Option<PathBuf>,
}

/// What proof a payload needs before it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Samples packed again from live weights are equal; the object itself is not hashed.
    Sample,
    /// A receipt, or a hash now; and samples.
    Receipt,
    /// A hash now; and samples.
    Deep,
}
