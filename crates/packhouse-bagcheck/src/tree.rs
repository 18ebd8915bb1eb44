//! A folder as values.
//!
//! * Names are never followed: a link is an entry of its own kind, and a finding later.
//! * What can't be read at all (permission, I/O, too large) is an error and not a finding.

#![expect(
    clippy::disallowed_methods,
    reason = "this crate stands alone and has no other way to read a folder"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What lies under each path; paths are relative, with `/`, and of files and odd things only: a
/// folder is there by what is in it, but an empty one is an entry.
pub type Tree = BTreeMap<String, Entry>;

/// One thing of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file, with its bytes.
    File(Arc<[u8]>),
    /// A symbolic link, with its target.
    Link(String),
    /// A folder without entries.
    EmptyFolder,
    /// Anything else: a device, a pipe, a socket; or a name that isn't UTF-8. With words.
    Other(String),
}

impl Entry {
    /// Makes a file.
    pub fn file(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::File(bytes.into())
    }
}

/// Why a folder can't be read.
#[derive(Debug)]
pub struct ReadError {
    /// The path that couldn't be read.
    pub path: PathBuf,
    /// Why.
    pub cause: std::io::Error,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}: {}", self.path.display(), self.cause)
    }
}

impl std::error::Error for ReadError {}

/// Reads a folder with all that is below it. Links are entries and are never followed, but the root
/// may be reached through one. Errors when anything can't be read, or is larger than 8 GiB in all.
pub fn read(root: &Path) -> Result<Tree, ReadError> {
    let mut tree = Tree::new();
    let mut left = BYTES_MAX;
    read_folder(root, "", &mut tree, &mut left)?;
    Ok(tree)
}

/// Returns whether a folder has anything of a bag, or of a packet's folder, at its top. So that
/// another folder, of whatever size, is not read and called a broken bag. Errors when it can't be
/// listed.
pub fn has_evidence(root: &Path) -> Result<bool, ReadError> {
    let failed = |cause| ReadError {
        path: root.to_owned(),
        cause,
    };
    for entry in std::fs::read_dir(root).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        let is_beside = name.starts_with("analysis-") || name.starts_with("seal-");
        if is_beside || TOP.contains(&&*name) {
            return Ok(true);
        }
    }
    Ok(false)
}

const TOP: [&str; 7] = [
    "bag",
    "bag.open",
    "bag-info.txt",
    "bagit.txt",
    "data",
    "manifest-sha256.txt",
    "tagmanifest-sha256.txt",
];

/// Most bytes of a tree: all of it is held in memory.
const BYTES_MAX: u64 = 8 << 30;

fn read_folder(
    folder: &Path,
    prefix: &str,
    tree: &mut Tree,
    left: &mut u64,
) -> Result<(), ReadError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |cause| ReadError { path, cause }
    };
    let mut is_empty = true;
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        is_empty = false;
        let entry = entry.map_err(failed(folder))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(failed(&path))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            let shown = format!("{prefix}{}", name.to_string_lossy());
            tree.insert(shown, Entry::Other("a name that is not UTF-8".to_owned()));
            continue;
        };
        let key = format!("{prefix}{name}");
        if kind.is_dir() {
            read_folder(&path, &format!("{key}/"), tree, left)?;
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&path).map_err(failed(&path))?;
            tree.insert(key, Entry::Link(target.to_string_lossy().into_owned()));
        } else if kind.is_file() {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(&path).map_err(failed(&path))?;
            let read = file.take(*left + 1).read_to_end(&mut bytes);
            let length = read.map_err(failed(&path))? as u64;
            *left = left.checked_sub(length).ok_or_else(|| ReadError {
                path: path.clone(),
                cause: std::io::Error::other(format!("more than {BYTES_MAX} bytes in all")),
            })?;
            tree.insert(key, Entry::file(bytes));
        } else {
            tree.insert(key, Entry::Other("no regular file".to_owned()));
        }
    }
    if is_empty && !prefix.is_empty() {
        tree.insert(prefix.trim_end_matches('/').to_owned(), Entry::EmptyFolder);
    }
    Ok(())
}
