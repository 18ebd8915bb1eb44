//! A small file beside a bag: whole or absent, durable, written once.
//!
//! Never: replaces a file.

use crate::paths::is_name;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;
use std::path::PathBuf;

/// How a file came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was made now.
    Created,
    /// It was there with the same bytes.
    Equal,
}

/// Why a file was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteNewError {
    /// Not a name of format 1.
    #[error("not a name of a file of evidence: {}", Shown(name))]
    Name {
        /// The name.
        name: String,
    },
    /// There are no bytes to write: an empty file is no evidence.
    #[error("{name}: 0 bytes to write")]
    Empty {
        /// The name.
        name: String,
    },
    /// The name holds something else.
    #[error("{} is there already and is not what is to be written", path.display())]
    Conflict {
        /// The file.
        path: PathBuf,
        /// Digest of the bytes to write.
        expected: Digest,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl WriteNewError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Name { .. } | Self::Empty { .. } => Blame::Bug,
            Self::Conflict { .. } => Blame::Store,
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Writes a file that must not be there, or be there with these very bytes, and makes it and its
/// name durable. After a crash it is whole or absent.
pub fn write_new(dir: &Dir, name: &str, bytes: &[u8]) -> Result<Outcome, WriteNewError> {
    let name = name.to_owned();
    if !is_name(&name) {
        return Err(WriteNewError::Name { name });
    }
    if bytes.is_empty() {
        return Err(WriteNewError::Empty { name });
    }
    // Its entries are synced below, for which look-up alone is not enough.
    let dir = &dir.reopen()?;
    if is_there(dir, &name, bytes)? {
        return Ok(Outcome::Equal);
    }
    let part = format!("{PART}-{name}");
    let written = write_part(dir, &part, bytes);
    let placed = written.and_then(|()| dir.rename_new(&part, dir, &name));
    match placed {
        Ok(()) => {
            dir.sync()?;
            Ok(Outcome::Created)
        }
        Err(error) => {
            // What is left is removed by the next writer of this name, if not now.
            let _ = dir.unlink(&part);
            if error.kind == FsErrorKind::Exists && is_there(dir, &name, bytes)? {
                return Ok(Outcome::Equal);
            }
            Err(error.into())
        }
    }
}

/// Opens a folder, which is made durably where it is not there.
pub fn open_or_make_dir(dir: &Dir, name: &str) -> Result<Dir, FsError> {
    let dir = dir.reopen()?;
    match dir.make_dir(name, 0o755) {
        Err(error) if error.kind == FsErrorKind::Exists => {}
        other => other?,
    }
    // Also where it was there: whoever made it may have stopped before.
    dir.sync()?;
    dir.open_dir(name)
}

/// Writes a temporary file, whole and synced. A leftover of the same name goes first.
pub(crate) fn write_part(dir: &Dir, part: &str, bytes: &[u8]) -> Result<(), FsError> {
    match dir.unlink(part) {
        Err(error) if error.kind != FsErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = dir.create_new(part, FILE_MODE)?;
    file.write_all_at(0, bytes)?;
    file.sync()
}

/// Says whether the name holds these bytes, durably. Errors where it holds anything else.
fn is_there(dir: &Dir, name: &str, bytes: &[u8]) -> Result<bool, WriteNewError> {
    let conflict = || WriteNewError::Conflict {
        path: dir.path().join(name),
        expected: Digest::of(bytes),
    };
    let file = match dir.open_file(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind == FsErrorKind::Symlink => return Err(conflict()),
        Err(error) => return Err(error.into()),
        Ok(file) => file,
    };
    let stat = file.stat()?;
    let length = bytes.len() as u64;
    if stat.kind != FileKind::Regular || stat.size != length {
        return Err(conflict());
    }
    if file.read_stated(&stat, length)? != bytes {
        return Err(conflict());
    }
    file.sync()?;
    dir.sync()?;
    Ok(true)
}

/// How the names of temporary files begin; no path of a bag does.
pub(crate) const PART: &str = ".part";
/// Read-only, against slips; nobody relies on it.
pub(crate) const FILE_MODE: u32 = 0o444;
