//! Reads the kernel's own small files and folders: `/sys`, `/proc`, `/dev`.
//!
//! They are no files of users: nobody can swap them, and following their links is the point. So
//! they are opened by name, with a bound.

#![expect(
    clippy::disallowed_methods,
    reason = "the kernel's files have no owner to distrust, and a card can vanish at any step"
)]

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Why a file of the kernel could not be read. Absence is no error.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub(crate) struct KernelFileError {
    /// Which.
    pub(crate) path: PathBuf,
    /// Why.
    pub(crate) source: io::Error,
}

/// Reads a file without the white space around its words. `None`: there is none.
pub(crate) fn text(path: &Path) -> Result<Option<String>, KernelFileError> {
    let mut bytes = Vec::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    match there(read, path)? {
        Some(_) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
        None => Ok(None),
    }
}

/// Lists a folder's names in order. `None`: there is none.
pub(crate) fn names(path: &Path) -> Result<Option<Vec<String>>, KernelFileError> {
    let list = fs::read_dir(path).and_then(|entries| {
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    });
    there(list, path)
}

/// Where a link leads. `None`: there is none.
pub(crate) fn link(path: &Path) -> Result<Option<PathBuf>, KernelFileError> {
    there(fs::read_link(path), path)
}

/// A device node's number. `None` where there is no node, or no device.
pub(crate) fn device_number(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    let kind = metadata.file_type();
    (kind.is_char_device() || kind.is_block_device()).then(|| metadata.rdev())
}

/// Whether a file may be run by somebody.
pub(crate) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

/// Bytes that are read of a file at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Tells absence from failure. A card or process that went away between two steps is absent.
fn there<T>(result: io::Result<T>, path: &Path) -> Result<Option<T>, KernelFileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(source) => Err(KernelFileError {
            path: path.to_owned(),
            source,
        }),
    }
}

fn is_absence(error: &io::Error) -> bool {
    const GONE: [i32; 4] = [
        rustix::io::Errno::NOENT.raw_os_error(),
        rustix::io::Errno::NOTDIR.raw_os_error(),
        rustix::io::Errno::SRCH.raw_os_error(),
        rustix::io::Errno::NODEV.raw_os_error(),
    ];
    error
        .raw_os_error()
        .is_some_and(|code| GONE.contains(&code))
}
