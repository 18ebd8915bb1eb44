//! How images are used.

use std::num::NonZeroUsize;

/// What may be done with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No file is opened, read or written.
    Off,
    /// Images are read; nothing is written, removed or touched.
    ReadOnly,
    /// Images are read, written, and removed to keep within bounds.
    ReadWrite,
}

/// How an intact image is compared with the weights held now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Eight columns: both ends, and six between that rotate with the seed.
    Sample,
    /// Every byte: the whole tile is packed again. For doubt and CI, as it saves no time and takes
    /// memory for two more tiles.
    Full,
}

/// How images are used; nothing in it is part of any identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What may be done with files.
    pub mode: Mode,
    /// How an intact image is compared.
    pub check: Check,
    /// Cap on the bytes of all images in the folder. `None`: a fifth of the file system.
    pub max_bytes: Option<u64>,
    /// Free space of the file system that is never used.
    pub min_free_bytes: u64,
    /// Images last used longer ago than this are removed. `None`: age alone removes none.
    pub max_age_ns: Option<u64>,
    /// Threads that read, hash and pack.
    pub threads: NonZeroUsize,
    /// Rotates the samples. `None`: another one is drawn at each start, as it should be but in
    /// tests; `Images::seed` has it.
    pub seed: Option<u64>,
}

impl Settings {
    /// Read and write, samples, the default cap and free space, one thread, a seed that is drawn.
    pub const fn new() -> Self {
        Self {
            mode: Mode::ReadWrite,
            check: Check::Sample,
            max_bytes: None,
            min_free_bytes: MIN_FREE_BYTES,
            max_age_ns: None,
            threads: NonZeroUsize::MIN,
            seed: None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

/// Free space that is never used when nobody says otherwise.
pub use packhouse_store::root::MIN_FREE_BYTES;
