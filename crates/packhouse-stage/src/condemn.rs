//! Taking out of service what was hashed and found to have other bytes than it was published with.
//!
//! Stat does not show every change: memory rots, and a write through a mapping leaves the times of
//! a file on tmpfs as they are. So what a hash found is kept: the receipts get another name, by
//! one rename in the folder that was opened, and nothing in it is believed again.
//!
//! Never: removes bytes; touches a folder of the same name that took its place.

use crate::name::{CONDEMNED_NAME, RECEIPTS_NAME};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};

/// What became of a stage or copy that was hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condemned {
    /// Nothing: no hash found other bytes.
    #[default]
    No,
    /// It was taken out of service, by this process or by another.
    Yes,
    /// It could not be, and would be used again.
    Failed(FsError),
}

/// Takes an opened folder out of service, durably.
pub(crate) fn condemn(folder: &Dir) -> Condemned {
    let renamed = match folder.rename_over(RECEIPTS_NAME, CONDEMNED_NAME) {
        // Another process was faster, or removed it.
        Err(error) if error.kind == FsErrorKind::NotFound => return Condemned::Yes,
        other => other,
    };
    match renamed.and_then(|()| folder.sync()) {
        Ok(()) => Condemned::Yes,
        Err(error) => Condemned::Failed(error),
    }
}

/// Whether a folder without receipts was taken out of service.
pub(crate) fn is_condemned(folder: &Dir) -> bool {
    folder.stat_entry(CONDEMNED_NAME).is_ok()
}
