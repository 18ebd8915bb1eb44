//! A store's files as a vandal sees them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// All objects of the store at `root`, largest first and then by name.
pub fn objects(root: &Path) -> Vec<PathBuf> {
    let mut paths = files(&root.join("v1/objects"));
    paths.sort_by_key(|path| (std::cmp::Reverse(length(path)), path.clone()));
    paths
}

/// All pack records.
pub fn packs(root: &Path) -> Vec<PathBuf> {
    files(&root.join("v1/packs"))
}

/// Files in `objects` and `packs` whose name is no digest: what an interrupted publish left.
pub fn strays(root: &Path) -> Vec<PathBuf> {
    let is_digest = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut all = files(&root.join("v1/objects"));
    all.extend(packs(root));
    all.into_iter().filter(|path| !is_digest(path)).collect()
}

/// All bytes of all files below `folder`.
pub fn bytes(folder: &Path) -> u64 {
    files(folder).iter().map(|path| length(path)).sum()
}

/// Flips one bit in the middle, restoring mode and modification time.
pub fn flip_byte(path: &Path) {
    keeping_times(path, || {
        let file = writable(path);
        let at = length(path) / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)
            .expect("the object has bytes");
        file.write_all_at(&[byte[0] ^ 0x10], at)
            .expect("the vandal may write");
    });
}

/// Cuts the second half off.
pub fn truncate(path: &Path) {
    let half = length(path) / 2;
    keeping_times(path, || {
        writable(path).set_len(half).expect("the vandal may write")
    });
}

/// Exchanges two files' names.
pub fn swap(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    fs::rename(one, &aside).expect("the vandal may rename");
    fs::rename(other, one).expect("the vandal may rename");
    fs::rename(&aside, other).expect("the vandal may rename");
}

/// Sets the permission bits.
pub fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the vandal may chmod");
}

/// A file's length.
pub fn length(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |metadata| metadata.len())
}

/// A file's inode number.
pub fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("it exists").ino()
}

/// Runs `change` and puts the modification time back.
pub fn keeping_times(path: &Path, change: impl FnOnce()) {
    let metadata = fs::metadata(path).expect("it exists");
    let times = fs::FileTimes::new()
        .set_modified(metadata.modified().expect("Linux has it"))
        .set_accessed(metadata.accessed().expect("Linux has it"));
    change();
    let mode = metadata.permissions();
    writable(path)
        .set_times(times)
        .expect("the vandal may set times");
    fs::set_permissions(path, mode).expect("the vandal may chmod");
}

fn writable(path: &Path) -> File {
    let mode = fs::metadata(path).expect("it exists").permissions().mode();
    chmod(path, mode | 0o200);
    File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the vandal may write")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found.sort();
    found
}
