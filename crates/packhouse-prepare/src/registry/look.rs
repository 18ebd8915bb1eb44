//! What an artifact looks like: names, kinds and stats of all that is in it; nothing is hashed yet.
//!
//! Invariants:
//! - every folder is opened by descriptor below the one it is in, and no symlink is followed, above
//!   the artifact either;
//! - what can't be looked at is an answer of its own, and never left out.
//!
//! Never: opens a file. Depth and number of entries are bounded.

use super::artifact::join;
use packhouse_base::Blame;
use packhouse_sys::fs::{Dir, DirAccess, File, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, Stat};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// Whether an artifact is one file or a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactKind {
    /// One file.
    File,
    /// A folder with all that is in it.
    Folder,
}

/// An artifact that was looked at.
pub struct Look {
    pub(super) path: PathBuf,
    pub(super) place: Place,
    pub(super) entries: BTreeMap<OsString, Looked>,
}

/// Why there was nothing to look at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// No absolute path that ends in a name.
    #[error("{} does not name a file or folder from the root on", path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// It isn't there.
    #[error("{} is not there", path.display())]
    Absent {
        /// The path, or the folder above it that is missing.
        path: PathBuf,
    },
    /// Something else has its name, or that of a folder above it.
    #[error("{} is a {kind}, expected a regular file or a folder", path.display())]
    Kind {
        /// The path, or that of the folder above it.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// More entries than a record holds.
    #[error("{} has more than {ENTRIES_MAX} entries", path.display())]
    TooMany {
        /// The artifact.
        path: PathBuf,
    },
    /// Folders in folders, deeper than any pack.
    #[error("{} is more than {DEPTH_MAX} folders deep", path.display())]
    TooDeep {
        /// The folder that is too deep.
        path: PathBuf,
    },
    /// It is not the same folder any more.
    #[error("{} was replaced while it was read", path.display())]
    Replaced {
        /// The artifact.
        path: PathBuf,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Where an artifact is opened from.
pub(super) enum Place {
    File { parent: Dir, name: OsString },
    Folder(Dir),
}

/// One entry as it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Folder(Stat),
    File(Stat),
    Link(Stat, PathBuf),
    Special(Stat),
    /// It went between being listed and being looked at.
    Gone,
    Unread(FsError),
}

impl Look {
    /// Looks at what an absolute path names. Errors where it names nothing that is an artifact.
    pub fn take(fs: &dyn Fs, path: &Path) -> Result<Self, LookError> {
        let place = Place::open(fs, path)?;
        let mut entries = BTreeMap::new();
        match &place {
            Place::File { parent, name } => {
                entries.insert(OsString::new(), Looked::at(parent, name));
            }
            Place::Folder(dir) => list(dir, OsStr::new(""), 0, &mut entries)?,
        }
        Ok(Self {
            path: path.to_owned(),
            place,
            entries,
        })
    }

    /// Whether it is a file or a folder.
    pub fn kind(&self) -> ArtifactKind {
        match self.place {
            Place::File { .. } => ArtifactKind::File,
            Place::Folder(_) => ArtifactKind::Folder,
        }
    }

    /// Whether it is what it was at an earlier look, as far as stat shows: the same names, kinds,
    /// inodes, lengths, times and targets.
    pub fn is_still(&self, earlier: &Self) -> bool {
        let mut pairs = earlier.entries.iter().zip(&self.entries);
        earlier.entries.len() == self.entries.len()
            && pairs.all(|(was, is)| was.0 == is.0 && was.1.difference(is.1).is_none())
            && matches!((earlier.place.inode(), self.place.inode()), (Ok(was), Ok(is)) if was == is)
    }

    /// Bytes to hash.
    pub fn bytes(&self) -> u64 {
        let files = self.entries.values().map(|looked| match looked {
            Looked::File(stat) => stat.size,
            Looked::Folder(_)
            | Looked::Link(..)
            | Looked::Special(_)
            | Looked::Gone
            | Looked::Unread(_) => 0,
        });
        files.fold(0, u64::saturating_add)
    }
}

impl Place {
    fn open(fs: &dyn Fs, path: &Path) -> Result<Self, LookError> {
        let path_error = || LookError::Path {
            path: path.to_owned(),
        };
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name),
                Component::RootDir => {}
                Component::CurDir | Component::ParentDir | Component::Prefix(_) => {
                    return Err(path_error());
                }
            }
        }
        let last = names.pop().filter(|_| path.is_absolute());
        let last = last.ok_or_else(path_error)?;
        let mut parent = fs.root()?;
        for name in names {
            parent = parent
                .open_dir_for(name, DirAccess::Lookup)
                .map_err(|error| unlike(&parent, name, error))?;
        }
        let stat = parent
            .stat_entry(last)
            .map_err(|error| unlike(&parent, last, error))?;
        match stat.kind {
            FileKind::Regular => Ok(Self::File {
                parent,
                name: last.to_owned(),
            }),
            FileKind::Directory => Ok(Self::Folder(
                parent
                    .open_dir(last)
                    .map_err(|error| unlike(&parent, last, error))?,
            )),
            kind @ (FileKind::Symlink | FileKind::Special) => Err(LookError::Kind {
                path: path.to_owned(),
                kind,
            }),
        }
    }

    /// Opens a file of the artifact.
    pub(super) fn open_file(&self, path: &OsStr) -> Result<File, FsError> {
        match self {
            Self::File { parent, name } => parent.open_file(name),
            Self::Folder(top) => {
                let mut dir = top.clone();
                let mut parts = path.as_bytes().split(|byte| *byte == b'/').peekable();
                while let Some(part) = parts.next() {
                    let part = OsStr::from_bytes(part);
                    if parts.peek().is_none() {
                        return dir.open_file(part);
                    }
                    dir = dir.open_dir_for(part, DirAccess::Lookup)?;
                }
                dir.open_file(path)
            }
        }
    }

    /// What tells this folder from another of its path; a file is told by its entry.
    pub(super) fn inode(&self) -> Result<Option<(u64, u64)>, FsError> {
        match self {
            Self::File { .. } => Ok(None),
            Self::Folder(dir) => dir.stat().map(|stat| Some((stat.device, stat.inode))),
        }
    }
}

impl Looked {
    fn at(dir: &Dir, name: &OsStr) -> Self {
        let stat = match dir.stat_entry(name) {
            Ok(stat) => stat,
            Err(error) => return Self::failed(error),
        };
        match stat.kind {
            FileKind::Regular => Self::File(stat),
            FileKind::Directory => Self::Folder(stat),
            FileKind::Special => Self::Special(stat),
            FileKind::Symlink => match dir.read_link(name) {
                Ok(target) => Self::Link(stat, target),
                Err(error) => Self::failed(error),
            },
        }
    }

    fn failed(error: FsError) -> Self {
        match error.kind {
            FsErrorKind::NotFound => Self::Gone,
            _ => Self::Unread(error),
        }
    }

    /// The first field in which an entry is not what it was; `None` where it is. A folder's times
    /// tell of its entries only, and those are compared one by one.
    pub(super) fn difference(&self, other: &Self) -> Option<&'static str> {
        match (self, other) {
            (Self::Folder(one), Self::Folder(other)) => same_inode(one, other),
            (Self::File(one), Self::File(other)) | (Self::Special(one), Self::Special(other)) => {
                same_inode(one, other).or_else(|| same_times(one, other))
            }
            (Self::Link(one, one_target), Self::Link(other, other_target)) => {
                let target = (one_target != other_target).then_some("target");
                target.or_else(|| same_inode(one, other))
            }
            (Self::Unread(one), Self::Unread(other)) if one == other => None,
            (Self::Gone, Self::Gone) => None,
            _ => Some("kind"),
        }
    }
}

impl ArtifactKind {
    /// The word for it in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::File, Self::Folder]
            .into_iter()
            .find(|kind| kind.word() == word)
    }
}

impl LookError {
    /// Whether it says that something else is there than an artifact, or nothing: an answer about
    /// the artifact, and no failure to look.
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Absent { .. }
            | Self::Kind { .. }
            | Self::TooMany { .. }
            | Self::TooDeep { .. } => true,
            Self::Path { .. } | Self::Replaced { .. } | Self::Fs(_) => false,
        }
    }

    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Path { .. } => Blame::Caller,
            Self::Absent { .. }
            | Self::Kind { .. }
            | Self::TooMany { .. }
            | Self::TooDeep { .. }
            | Self::Replaced { .. } => Blame::Source,
            Self::Fs(error) => error.blame(),
        }
    }
}

fn list(
    dir: &Dir,
    prefix: &OsStr,
    depth: u32,
    entries: &mut BTreeMap<OsString, Looked>,
) -> Result<(), LookError> {
    if depth > DEPTH_MAX {
        let path = dir.path().to_owned();
        return Err(LookError::TooDeep { path });
    }
    for name in dir.list()? {
        let path = join(prefix, &name);
        let looked = Looked::at(dir, &name);
        let is_folder = matches!(looked, Looked::Folder(_));
        entries.insert(path.clone(), looked);
        if entries.len() > ENTRIES_MAX {
            let path = dir.path().to_owned();
            return Err(LookError::TooMany { path });
        }
        if !is_folder {
            continue;
        }
        let inner = dir.open_dir(&name).map_err(LookError::from);
        match inner.and_then(|inner| list(&inner, &path, depth + 1, entries)) {
            Ok(()) => {}
            Err(LookError::Fs(error)) => {
                entries.insert(path, Looked::failed(error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn same_inode(one: &Stat, other: &Stat) -> Option<&'static str> {
    let differs = (one.device, one.inode) != (other.device, other.inode);
    differs.then_some("inode")
}

fn same_times(one: &Stat, other: &Stat) -> Option<&'static str> {
    let fields = [
        (one.size != other.size, "size"),
        (one.mtime_ns != other.mtime_ns, "mtime"),
        (one.ctime_ns != other.ctime_ns, "ctime"),
    ];
    let mut fields = fields.into_iter();
    fields.find_map(|(differs, field)| differs.then_some(field))
}

/// Says of what stands in the way what it is.
fn unlike(dir: &Dir, name: &OsStr, error: FsError) -> LookError {
    match error.kind {
        FsErrorKind::NotFound => LookError::Absent { path: error.path },
        FsErrorKind::NotDirectory | FsErrorKind::Symlink => match dir.stat_entry(name) {
            Ok(stat) if stat.kind != FileKind::Directory => LookError::Kind {
                path: error.path,
                kind: stat.kind,
            },
            Ok(_) | Err(_) => error.into(),
        },
        _ => error.into(),
    }
}

const ENTRIES_MAX: usize = 65_536;
const DEPTH_MAX: u32 = 64;
