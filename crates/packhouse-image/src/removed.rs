//! What was removed, and why: every removal is told with its size.

use packhouse_sys::fs::FsError;
use std::fmt;

/// A file that was removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its name below `v1`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Why.
    pub why: Why,
}

/// Why a file is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its owner moved to another head in this geometry, and no other owner names its key.
    Superseded,
    /// The least recently used key had to make room.
    Room,
    /// Its key was last used longer ago than allowed.
    Age {
        /// How long ago.
        unused_ns: u64,
    },
    /// No serve can use it.
    Damaged {
        /// What is wrong with it.
        reason: String,
    },
    /// A temporary file whose writer is gone.
    StaleTemp {
        /// Its age.
        age_ns: u64,
    },
    /// An owner record whose key has no file any more.
    Orphan,
    /// No owner record names its key, and for a day nobody wrote an image of it.
    Abandoned {
        /// How long ago the last one was written.
        unused_ns: u64,
    },
    /// Somebody asked for it.
    Asked,
}

/// What a removal came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// The files removed, or that would be.
    pub removed: Vec<Removed>,
    /// What could not be removed.
    pub failures: Vec<FsError>,
}

impl Removal {
    /// Bytes of the files removed, by their lengths.
    pub fn freed_bytes(&self) -> u64 {
        let bytes = self.removed.iter().map(|removed| removed.bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

impl Why {
    /// A stable word for reports.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Room => "room",
            Self::Age { .. } => "age",
            Self::Damaged { .. } => "damaged",
            Self::StaleTemp { .. } => "stale-temp",
            Self::Orphan => "orphan",
            Self::Abandoned { .. } => "abandoned",
            Self::Asked => "asked",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded => f.write_str("its owner moved to another head"),
            Self::Room => f.write_str("least recently used, to make room"),
            Self::Age { unused_ns } if is_unknown(*unused_ns) => {
                f.write_str("dated in the future, so nobody knows when it was used")
            }
            Self::Age { unused_ns } => write!(f, "not used for {} s", unused_ns / SECOND_NS),
            Self::Damaged { reason } => f.write_str(reason),
            Self::StaleTemp { age_ns } if is_unknown(*age_ns) => {
                f.write_str("temporary file that is dated in the future and has no writer")
            }
            Self::StaleTemp { age_ns } => {
                write!(f, "temporary file of {} s ago", age_ns / SECOND_NS)
            }
            Self::Orphan => f.write_str("owner record of a key without files"),
            Self::Abandoned { unused_ns } if is_unknown(*unused_ns) => {
                f.write_str("no owner record names its key, and it is dated in the future")
            }
            Self::Abandoned { unused_ns } => {
                let seconds = unused_ns / SECOND_NS;
                write!(
                    f,
                    "no owner record names its key, last written {seconds} s ago"
                )
            }
            Self::Asked => f.write_str("asked for"),
        }
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// Whether this is the age of what is dated in the future.
fn is_unknown(age_ns: u64) -> bool {
    age_ns == u64::MAX / 2
}
