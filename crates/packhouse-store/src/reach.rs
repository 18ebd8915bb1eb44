//! Does a path exist, which file is there, and can others reach it? Asked of the file system by
//! descriptor, for gc.
//!
//! Invariants:
//! - symlinks are followed by hand, a bounded number of them;
//! - "unknown" is its own answer: what can't be told is never taken as absent or as private.

use packhouse_sys::fs::{Dir, DirAccess, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, Stat, StatIdentity};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path};

/// Whether a path leads to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existence {
    /// It does.
    Exists,
    /// A component of it isn't there.
    Absent,
    /// It can't be told: no permission, an I/O error, too many symlinks.
    Unknown,
}

/// What walking a path found.
struct Walked {
    existence: Existence,
    /// Whether every folder on the way lets others than its owner search it.
    open_to_others: bool,
    /// The folder and name of the regular file that the path leads to.
    file: Option<(Dir, OsString)>,
}

/// Says whether an absolute path leads to something.
pub(crate) fn existence(fs: &dyn Fs, path: &Path) -> Existence {
    walk(fs, path).map_or(Existence::Unknown, |walked| walked.existence)
}

/// The stat identity of the regular file that an absolute path leads to; `None` where there is none
/// or it can't be opened.
pub(crate) fn identity(fs: &dyn Fs, path: &Path) -> Option<StatIdentity> {
    let (dir, name) = walk(fs, path).ok()?.file?;
    dir.open_file(name).ok()?.identity().ok()
}

/// Says whether users other than the owner can reach a folder; true where it can't be told.
pub(crate) fn others_reach(fs: &dyn Fs, path: &Path) -> bool {
    match walk(fs, path) {
        Ok(walked) => walked.open_to_others || walked.existence != Existence::Exists,
        Err(_) => true,
    }
}

fn walk(fs: &dyn Fs, path: &Path) -> Result<Walked, FsError> {
    let mut walked = Walked {
        existence: Existence::Exists,
        open_to_others: true,
        file: None,
    };
    let mut todo = parts(path);
    let mut stack = vec![fs.root()?];
    let mut hops = 0;
    while let Some(name) = todo.pop_front() {
        let here: Dir = stack.last().expect("because the root stays").clone();
        if name == ".." {
            if stack.len() > 1 {
                stack.pop();
            }
            continue;
        }
        let stat = match here.stat_entry(&name) {
            Ok(stat) => stat,
            Err(error) if is_absence(&error) => {
                walked.existence = Existence::Absent;
                return Ok(walked);
            }
            Err(error) => return Err(error),
        };
        match stat.kind {
            FileKind::Directory => {
                walked.open_to_others &= lets_others_in(&stat);
                stack.push(here.open_dir_for(&name, DirAccess::Lookup)?);
            }
            FileKind::Symlink if hops < LINK_HOPS_MAX => {
                hops += 1;
                let target = here.read_link(&name)?;
                if target.is_absolute() {
                    stack.truncate(1);
                }
                let mut next = parts(&target);
                next.append(&mut todo);
                todo = next;
            }
            FileKind::Symlink => {
                walked.existence = Existence::Unknown;
                return Ok(walked);
            }
            FileKind::Regular | FileKind::Special => {
                if !todo.is_empty() {
                    walked.existence = Existence::Absent;
                } else if stat.kind == FileKind::Regular {
                    walked.file = Some((here, name));
                }
                return Ok(walked);
            }
        }
    }
    Ok(walked)
}

/// Whether others than its owner may search a folder. A group of the owner's own number is the
/// user's private group, as most distributions make it for home folders.
fn lets_others_in(stat: &Stat) -> bool {
    let group = stat.mode & GROUP_SEARCH != 0 && stat.gid != stat.uid;
    group || stat.mode & OTHERS_SEARCH != 0
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

fn is_absence(error: &FsError) -> bool {
    matches!(
        error.kind,
        FsErrorKind::NotFound | FsErrorKind::NotDirectory
    )
}

const GROUP_SEARCH: u32 = 0o010;
const OTHERS_SEARCH: u32 = 0o001;
const LINK_HOPS_MAX: u32 = 40;
