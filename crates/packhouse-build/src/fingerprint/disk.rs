//! Opens what a build, its loader or git names, without waiting, and by its real path.
//!
//! They are a user's own files and a host's libraries, reached through links as the loader reaches
//! them; nothing here is trusted for its place, as everything is hashed through its descriptor.

#![expect(
    clippy::disallowed_methods,
    reason = "files of builds and hosts are found through links, as the dynamic loader finds them"
)]

use packhouse_sys::fs::File;
use packhouse_sys::real::file_of_fd;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What an entry of a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device: never opened.
    Special,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name.
    pub(super) name: OsString,
    /// What it is.
    pub(super) kind: Kind,
}

/// Opens a file for reading, through links; a pipe is not waited for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    Ok(file_of_fd(OwnedFd::from(file), path.to_owned()))
}

/// Reads a small file through links, at most `limit_bytes` of it. `None`: there is none.
pub(super) fn read(path: &Path, limit_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    match open(path) {
        Ok(file) => file
            .read_small(limit_bytes)
            .map(Some)
            .map_err(io::Error::other),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a file of the kernel, whose length it does not tell. `None`: there is none.
pub(super) fn read_kernel(path: &Path, limit_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(limit_bytes).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path without links. `None`: there is nothing.
pub(super) fn real(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::canonicalize(path) {
        Ok(path) => Ok(Some(path)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The entries of a folder, by name.
pub(super) fn entries(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = kind_of(entry.file_type()?);
        let name = entry.file_name();
        entries.push(Entry { name, kind });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// What a link says.
pub(super) fn link(path: &Path) -> io::Result<PathBuf> {
    fs::read_link(path)
}

/// Whether something has this name; a link counts, wherever it leads.
pub(super) fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// What a path is by itself: a link is a link. `None`: there is nothing.
pub(super) fn own_kind(path: &Path) -> io::Result<Option<Kind>> {
    match fs::symlink_metadata(path) {
        Ok(stat) => Ok(Some(kind_of(stat.file_type()))),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a path is, through links. `None`: there is nothing.
pub(super) fn kind(path: &Path) -> io::Result<Option<Kind>> {
    match fs::metadata(path) {
        Ok(stat) => Ok(Some(kind_of(stat.file_type()))),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A name as text: what is no UTF-8 in it stands there as `\xff`, a backslash as `\\`, so that two
/// names never have one text.
pub(super) fn text(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        text += &chunk.valid().replace('\\', "\\\\");
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text
}

fn kind_of(kind: fs::FileType) -> Kind {
    match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
        (true, _, _) => Kind::File,
        (_, true, _) => Kind::Folder,
        (_, _, true) => Kind::Link,
        (false, false, false) => Kind::Special,
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// From Linux's `fcntl.h` on x86-64 and aarch64.
const O_NONBLOCK: i32 = 0o4000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_have_texts_that_differ() {
        let names: [(&[u8], &str); 5] = [
            (b"libggml.so", "libggml.so"),
            (b"a\nb \"c\"", "a\nb \"c\""),
            (b"a\xffb", "a\\xffb"),
            (b"a\\xffb", "a\\\\xffb"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
        ];
        for (name, expected) in names {
            assert_eq!(text(OsStr::from_bytes(name)), expected);
        }
    }
}
