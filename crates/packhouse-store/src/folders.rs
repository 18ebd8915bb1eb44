//! Opening and making folders component by component, and the rule of trusted owners.
//!
//! Invariants:
//! - a component is opened by itself, and its owner and mode are asked of the descriptor;
//! - every component may be changed by trusted owners only, root's sticky folders excepted as
//!   ancestors;
//! - a symlink is followed by hand, where the caller follows any, in ancestors only, and only one
//!   that a trusted owner made;
//! - a folder that was made is durable in its parent before anything is made in it.
//!
//! Never: changes owner or mode of a folder that was there.

use crate::root::OpenError;
use packhouse_sys::fs::{Dir, DirAccess, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::Stat;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The owners whose files are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners(Vec<u32>);

/// Modes of folders that a walk makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MakeModes {
    /// Of the folders above the last.
    pub parents: u32,
    /// Of the last.
    pub last: u32,
}

/// What a walk does with symlinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Follows those that a trusted owner made.
    Follow,
    /// Refuses each by name.
    Refuse,
}

impl Owners {
    /// The effective user, root, and the uids that the user named.
    pub fn new(effective_uid: u32, configured: &[u32]) -> Self {
        let mut uids = vec![effective_uid, 0];
        uids.extend_from_slice(configured);
        uids.sort_unstable();
        uids.dedup();
        Self(uids)
    }

    /// One user, not even root.
    pub fn only(uid: u32) -> Self {
        Self(vec![uid])
    }

    /// Says whether an owner is trusted.
    pub fn trusts(&self, uid: u32) -> bool {
        self.0.binary_search(&uid).is_ok()
    }

    /// The owners, rising.
    pub fn uids(&self) -> &[u32] {
        &self.0
    }
}

/// Symlinks followed in one path.
pub(crate) const LINK_HOPS_MAX: u32 = 40;

/// Opens an absolute path component by component; answers the last folder's parent and itself.
///
/// Errors when a component is missing and not to be made, is no folder, or is not trusted.
pub fn walk(
    fs: &dyn Fs,
    owners: &Owners,
    path: &Path,
    make: Option<MakeModes>,
    links: Links,
) -> Result<(Dir, Dir), OpenError> {
    let mut todo = components(path).ok_or_else(|| OpenError::Relative {
        path: path.to_owned(),
    })?;
    let mut stack = vec![fs.root()?];
    let mut hops = 0;
    while let Some(name) = todo.pop_front() {
        let here = stack.last().expect("because the root stays").clone();
        judge_ancestor(&here, owners)?;
        if name == ".." {
            if stack.len() > 1 {
                stack.pop();
            }
            continue;
        }
        match here.open_dir_for(&name, DirAccess::Lookup) {
            Ok(dir) => stack.push(dir),
            Err(error) if error.kind == FsErrorKind::Symlink && links == Links::Follow => {
                hops += 1;
                if hops > LINK_HOPS_MAX {
                    return Err(OpenError::TooManyLinks {
                        path: path.to_owned(),
                    });
                }
                let target = trusted_link(&here, &name, owners)?;
                if target.is_absolute() {
                    stack.truncate(1);
                }
                for component in link_components(&target).into_iter().rev() {
                    todo.push_front(component);
                }
            }
            Err(error) if error.kind == FsErrorKind::NotFound => {
                let Some(modes) = make else {
                    return Err(OpenError::Missing { path: error.path });
                };
                let mode = if todo.is_empty() {
                    modes.last
                } else {
                    modes.parents
                };
                stack.push(make_dir(&here, &name, mode)?);
            }
            Err(error) => return Err(not_directory(&here, &name, error)),
        }
    }
    let last = stack.pop().expect("because the root stays").reopen()?;
    judge(last.stat()?, last.path(), owners)?;
    let parent = stack.pop().unwrap_or_else(|| last.clone());
    Ok((parent, last))
}

fn components(path: &Path) -> Option<VecDeque<OsString>> {
    path.is_absolute().then(|| link_components(path))
}

fn link_components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// Reads a symlink that a trusted owner made. Its folder was judged before, so only trusted owners
/// can put another in its place, and in a sticky folder only its owner and root.
fn trusted_link(dir: &Dir, name: &OsString, owners: &Owners) -> Result<PathBuf, OpenError> {
    let stat = dir.stat_entry(name)?;
    if !owners.trusts(stat.uid) {
        return Err(OpenError::Owner {
            path: dir.path().join(name),
            uid: stat.uid,
            trusted: owners.uids().to_vec(),
        });
    }
    Ok(dir.read_link(name)?)
}

fn make_dir(parent: &Dir, name: &OsString, mode: u32) -> Result<Dir, OpenError> {
    match parent.make_dir(name, mode) {
        Ok(()) => {}
        Err(error) if error.kind == FsErrorKind::Exists => {}
        Err(error) => return Err(error.into()),
    }
    parent.reopen()?.sync()?;
    Ok(parent.open_dir_for(name, DirAccess::Lookup)?)
}

fn judge_ancestor(dir: &Dir, owners: &Owners) -> Result<(), OpenError> {
    let stat = dir.stat()?;
    let sticky = stat.uid == 0 && stat.mode & 0o1000 != 0;
    if sticky {
        return Ok(());
    }
    judge(without_private_group(stat), dir.path(), owners)
}

/// Takes the group's right to write from the mode of a folder whose group is its owner's private
/// one: most distributions give each user a group of the user's own number and a umask that lets it
/// write, so `~/.cache` is 0775 there. Root's group is no private one.
fn without_private_group(stat: Stat) -> Stat {
    let private = stat.uid != 0 && stat.gid == stat.uid;
    let mode = if private {
        stat.mode & !0o020
    } else {
        stat.mode
    };
    Stat { mode, ..stat }
}

pub(crate) fn judge(stat: Stat, path: &Path, owners: &Owners) -> Result<(), OpenError> {
    if !owners.trusts(stat.uid) {
        return Err(OpenError::Owner {
            path: path.to_owned(),
            uid: stat.uid,
            trusted: owners.uids().to_vec(),
        });
    }
    if stat.mode & 0o022 != 0 {
        return Err(OpenError::Writable {
            path: path.to_owned(),
            mode: stat.mode,
        });
    }
    Ok(())
}

pub(crate) fn open_trusted(parent: &Dir, name: &str, owners: &Owners) -> Result<Dir, OpenError> {
    match parent.open_dir(name) {
        Ok(dir) => {
            judge(dir.stat()?, dir.path(), owners)?;
            Ok(dir)
        }
        Err(error) if error.kind == FsErrorKind::NotFound => {
            Err(OpenError::Missing { path: error.path })
        }
        Err(error) => Err(not_directory(parent, &OsString::from(name), error)),
    }
}

fn not_directory(parent: &Dir, name: &OsString, error: FsError) -> OpenError {
    if !matches!(error.kind, FsErrorKind::NotDirectory | FsErrorKind::Symlink) {
        return error.into();
    }
    match parent.stat_entry(name) {
        Ok(stat) => OpenError::NotDirectory {
            path: error.path,
            kind: stat.kind,
        },
        Err(error) => error.into(),
    }
}

/// Opens or makes a subfolder of a folder that was judged; never by a symlink.
///
/// Errors when it is missing and not to be made, is no folder, or is not trusted.
pub fn open_or_make(
    parent: &Dir,
    name: &str,
    mode: u32,
    owners: &Owners,
    make: bool,
) -> Result<Dir, OpenError> {
    match open_trusted(parent, name, owners) {
        Err(OpenError::Missing { .. }) if make => {
            match parent.make_dir(name, mode) {
                Ok(()) => {}
                // Another process was faster.
                Err(error) if error.kind == FsErrorKind::Exists => {}
                Err(error) => return Err(error.into()),
            }
            parent.sync()?;
            open_trusted(parent, name, owners)
        }
        other => other,
    }
}
