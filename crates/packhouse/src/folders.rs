//! Opens folders that a user names, as the library takes them: component by component.
//!
//! The user's own symlinks are resolved first, once; below the folder none is followed.

use packhouse_sys::fs::{Dir, DirAccess, Fs, FsError};
use std::io;
use std::path::{Component, Path, PathBuf};

/// Opens a folder. Errors as the system does.
pub(crate) fn open(fs: &dyn Fs, path: &Path) -> io::Result<Dir> {
    let resolved = resolve(path)?;
    walk(fs, &resolved).map_err(io::Error::other)
}

/// Opens a folder, and makes it where only its last component is missing.
pub(crate) fn open_or_make(fs: &dyn Fs, path: &Path) -> io::Result<Dir> {
    match open(fs, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let (parent, name) = split(path)?;
    let parent = open(fs, &parent)?;
    parent.make_dir(&name, 0o755).map_err(io::Error::other)?;
    parent.sync().map_err(io::Error::other)?;
    parent.open_dir(&name).map_err(io::Error::other)
}

/// Splits a path into the folder that it is in and its last component, which must be a name.
pub(crate) fn split(path: &Path) -> io::Result<(PathBuf, String)> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path does not end in a plain name",
        )
    })?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    Ok((parent.to_owned(), name.to_owned()))
}

/// The path with all its symlinks resolved.
#[expect(
    clippy::disallowed_methods,
    reason = "the CLI resolves the symlinks in what the user names"
)]
pub(crate) fn resolve(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

fn walk(fs: &dyn Fs, path: &Path) -> Result<Dir, FsError> {
    let mut dir = fs.root()?;
    for component in path.components() {
        if let Component::Normal(name) = component {
            dir = dir.open_dir_for(name, DirAccess::Lookup)?;
        }
    }
    dir.reopen()
}
