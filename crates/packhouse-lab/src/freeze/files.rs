//! Frozen files: opened folder by folder beneath the lab's, never over a link.

use super::FreezeError;
use crate::name::is_relative_path;
use crate::packet::FrozenFile;
use packhouse_base::digest::{Digest, Hasher};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, Stat};

/// Every file of frozen paths, by ascending path.
pub(super) fn all(root: &Dir, paths: &[String]) -> Result<Vec<FrozenFile>, FreezeError> {
    let mut frozen = Vec::new();
    for path in paths {
        let (dir, name) = parent(root, path)?;
        let stat = dir.stat_entry(name).map_err(|error| missing(path, error))?;
        entry(&dir, name, path, stat.kind, &mut frozen, 0)?;
    }
    frozen.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(frozen)
}

/// Opens a file by its path below a folder.
pub(super) fn open_file(root: &Dir, path: &str) -> Result<File, FreezeError> {
    let (dir, name) = parent(root, path)?;
    dir.open_file(name).map_err(|error| missing(path, error))
}

/// Looks at what a path below a folder leads to, over no link.
pub(super) fn stat(root: &Dir, path: &str) -> Result<Stat, FsError> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut dir = root.clone();
    for part in folder.split('/').filter(|part| !part.is_empty()) {
        dir = dir.open_dir(part)?;
    }
    dir.stat_entry(name)
}

/// Refuses a path that leads over a link: what it means is decided elsewhere. One that is not there
/// is not this one's to tell.
pub(super) fn no_link(root: &Dir, path: &str) -> Result<(), FreezeError> {
    match stat(root, path) {
        Ok(stat) if stat.kind == FileKind::Symlink => Err(not_file(path, "a symlink")),
        Err(error) if error.kind == FsErrorKind::Symlink => Err(not_file(path, "below a symlink")),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Opens a folder by its path below a folder.
pub(super) fn open_folder(root: &Dir, path: &str) -> Result<Dir, FreezeError> {
    let mut dir = root.clone();
    for part in path.split('/') {
        dir = dir.open_dir(part).map_err(|error| missing(path, error))?;
    }
    Ok(dir)
}

fn parent<'p>(root: &Dir, path: &'p str) -> Result<(Dir, &'p str), FreezeError> {
    match path.rsplit_once('/') {
        None => Ok((root.clone(), path)),
        Some((folder, name)) => {
            let mut dir = root.clone();
            for part in folder.split('/') {
                dir = dir.open_dir(part).map_err(|error| missing(path, error))?;
            }
            Ok((dir, name))
        }
    }
}

fn entry(
    dir: &Dir,
    name: &str,
    path: &str,
    kind: FileKind,
    frozen: &mut Vec<FrozenFile>,
    depth: usize,
) -> Result<(), FreezeError> {
    let folder = |why: String| FreezeError::Folder {
        path: path.to_owned(),
        why,
    };
    match kind {
        FileKind::Regular if frozen.len() >= FILES_MAX => {
            Err(folder(format!("more than {FILES_MAX} files")))
        }
        FileKind::Regular => {
            frozen.push(FrozenFile {
                path: path.to_owned(),
                sha256: content(&dir.open_file(name)?)?,
            });
            Ok(())
        }
        FileKind::Directory if depth >= DEPTH_MAX => {
            Err(folder(format!("more than {DEPTH_MAX} folders deep")))
        }
        FileKind::Directory => {
            let dir = dir.open_dir(name)?;
            let names = dir.list()?;
            if names.is_empty() && depth == 0 {
                return Err(folder("the folder is empty".to_owned()));
            }
            for name in names {
                let is_portable = |name: &&str| is_relative_path(&format!("{path}/{name}"));
                let Some(name) = name.to_str().filter(is_portable) else {
                    return Err(folder(format!("it holds the name {name:?}")));
                };
                let stat = dir.stat_entry(name)?;
                entry(
                    &dir,
                    name,
                    &format!("{path}/{name}"),
                    stat.kind,
                    frozen,
                    depth + 1,
                )?;
            }
            Ok(())
        }
        FileKind::Symlink => Err(not_file(path, "a symlink")),
        FileKind::Special => Err(not_file(path, "a device, socket or pipe")),
    }
}

/// Hashes a file by its descriptor, and refuses one that changes meanwhile.
fn content(file: &File) -> Result<Digest, FreezeError> {
    let before = file.stat()?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let read = file.read_full_at(offset, &mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        offset += read as u64;
    }
    let after = file.stat()?;
    let same = |stat: &packhouse_sys::stat::Stat| (stat.size, stat.mtime_ns, stat.ctime_ns);
    if same(&before) != same(&after) || offset != after.size {
        return Err(FreezeError::Folder {
            path: file.path().display().to_string(),
            why: "changes while it is read".to_owned(),
        });
    }
    Ok(hasher.finish())
}

fn missing(path: &str, error: FsError) -> FreezeError {
    match error.kind {
        FsErrorKind::NotFound => FreezeError::Absent {
            path: path.to_owned(),
        },
        FsErrorKind::Symlink => not_file(path, "a symlink"),
        FsErrorKind::NotDirectory => not_file(path, "below what is no folder"),
        _ => FreezeError::Fs(error),
    }
}

fn not_file(path: &str, kind: &'static str) -> FreezeError {
    FreezeError::NotFile {
        path: path.to_owned(),
        kind,
    }
}

const PIECE_BYTES: usize = 1 << 20;
const FILES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 32;
