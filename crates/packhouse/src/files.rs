//! Opens what a user or an engine names, without waiting and only when it is a regular file.

#![expect(
    clippy::disallowed_methods,
    reason = "the CLI opens what the user names"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file for reading. Errors on anything else; a pipe is not waited for.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok(file)
}

/// From Linux's `fcntl.h` on x86-64 and aarch64.
const O_NONBLOCK: i32 = 0o4000;
