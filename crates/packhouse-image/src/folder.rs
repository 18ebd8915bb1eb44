//! The folder of images: opened component by component, and this user's alone.
//!
//! Invariants:
//! - every component of the path may be changed by trusted owners only, by the store's rules; what
//!   is below the root is opened from the root's descriptor, and no symlink;
//!   the root, `v1` and `v1/owners` belong to the effective user;
//! - an image is read through a descriptor whose kind, owner and mode were judged.
//!
//! Never: changes owner or mode of a folder that was there. Specified in
//! `docs/format/head-image.md`.

use crate::key::ImageName;
use crate::publish::write_small;
use crate::refusal::{Refusal, RefusalWhy};
use packhouse_base::Blame;
use packhouse_store::folders::{Links, MakeModes, open_or_make, walk};
use packhouse_store::root::{OpenError, Owners, TAG};
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, Stat};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// An opened folder of images.
#[derive(Debug)]
pub struct Folder {
    parent: Dir,
    root: Dir,
    images: Dir,
    /// `None`: a folder that was only opened has none.
    owners: Option<Dir>,
    uid: u32,
    anchored: AtomicBool,
    /// Waiting for the lock was in vain.
    busy: AtomicBool,
}

/// Why a folder is not used for images.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// A component is no folder, not trusted, or can't be opened or made.
    #[error("folder of images: {0}")]
    Path(#[from] OpenError),
    /// Somebody else's.
    #[error("folder of images: {} belongs to uid {actual}, expected {expected}", path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
        /// This process's effective user.
        expected: u32,
        /// The folder's owner.
        actual: u32,
    },
}

/// An image's file, judged by its descriptor.
#[derive(Debug)]
pub struct ImageFile {
    /// The file, for reading.
    pub file: File,
    /// Its length by fstat.
    pub bytes: u64,
    pub(crate) stat: Stat,
}

impl Folder {
    /// Opens a folder of images, and makes it and what is missing above it, with mode 0700, when
    /// `make` is set. `None`: there is none, and `make` is not set.
    ///
    /// # Errors
    /// When a component is no folder, not trusted, not this user's, or can't be made.
    pub fn open(fs: &dyn Fs, root: &Path, make: bool) -> Result<Option<Self>, FolderError> {
        let Some((parent, top)) = walk_own(fs, root, make)? else {
            return Ok(None);
        };
        let Some(images) = open_below(fs, &top, VERSION_DIR, make)? else {
            return Ok(None);
        };
        let owners = open_below(fs, &images, OWNERS_DIR, make)?;
        if make {
            tag(fs, &top);
        }
        Ok(Some(Self {
            parent,
            root: top,
            images,
            owners,
            uid: fs.effective_uid(),
            anchored: AtomicBool::new(false),
            busy: AtomicBool::new(false),
        }))
    }

    /// The root, as it was given.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// `<root>`.
    pub(crate) fn root(&self) -> &Dir {
        &self.root
    }

    /// `<root>/v1`.
    pub(crate) fn images(&self) -> &Dir {
        &self.images
    }

    /// Whether waiting for the lock was in vain, and it was not had since.
    pub(crate) fn was_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    pub(crate) fn note_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// `<root>/v1/owners`; `None` where there is none.
    pub(crate) fn owners(&self) -> Option<&Dir> {
        self.owners.as_ref()
    }

    /// Opens an image's file. `None`: there is none.
    ///
    /// # Errors
    /// When it isn't a regular file that belongs to the effective user and that nobody else can
    /// change.
    pub fn open_image(&self, name: &ImageName) -> Result<Option<ImageFile>, Refusal> {
        let name = name.to_string();
        self.open_own(&self.images, &name).map_err(|why| Refusal {
            file: self.images.path().join(name),
            why,
        })
    }

    /// Opens a file of one of the folders, by the rules of `open_image`.
    pub(crate) fn open_own(&self, dir: &Dir, name: &str) -> Result<Option<ImageFile>, RefusalWhy> {
        let file = match dir.open_file(name) {
            Ok(file) => file,
            Err(error) if error.kind == FsErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind == FsErrorKind::Symlink => {
                let actual = FileKind::Symlink;
                return Err(RefusalWhy::NotRegular { actual });
            }
            // What can't be opened at all, as a socket, is no file of ours either.
            Err(error) => match dir.stat_entry(name) {
                Ok(stat) if stat.kind != FileKind::Regular => {
                    return Err(RefusalWhy::NotRegular { actual: stat.kind });
                }
                Ok(_) | Err(_) => return Err(RefusalWhy::Unreadable(error)),
            },
        };
        let stat = file.stat().map_err(RefusalWhy::Unreadable)?;
        if stat.kind != FileKind::Regular {
            return Err(RefusalWhy::NotRegular { actual: stat.kind });
        }
        if stat.uid != self.uid {
            return Err(RefusalWhy::Owner {
                expected: self.uid,
                actual: stat.uid,
            });
        }
        if stat.mode & GROUP_OTHER_WRITE != 0 {
            return Err(RefusalWhy::Writable { actual: stat.mode });
        }
        let bytes = stat.size;
        Ok(Some(ImageFile { file, bytes, stat }))
    }

    /// Makes the entries of the folders themselves durable, once, before something is published
    /// below them: their maker may have died before it could.
    pub(crate) fn anchor(&self) -> Result<(), FsError> {
        if self.anchored.load(Ordering::Acquire) {
            return Ok(());
        }
        // The parent may be a folder that only its owner may read; it is not ours to insist.
        if let Ok(parent) = self.parent.reopen() {
            parent.sync()?;
        }
        self.root.sync()?;
        self.images.sync()?;
        self.anchored.store(true, Ordering::Release);
        Ok(())
    }
}

impl FolderError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Path(error) => error.blame(),
            Self::Owner { .. } => Blame::Host,
        }
    }
}

/// The folder of format version 1.
pub(crate) const VERSION_DIR: &str = "v1";
/// The folder of owner records.
pub(crate) const OWNERS_DIR: &str = "owners";
/// What backup programs look for.
pub(crate) const TAG_FILE: &str = "CACHEDIR.TAG";

const MODE: u32 = 0o700;
const GROUP_OTHER_WRITE: u32 = 0o022;

/// Opens or makes a folder that must be the effective user's; answers its parent and itself.
fn walk_own(fs: &dyn Fs, path: &Path, make: bool) -> Result<Option<(Dir, Dir)>, FolderError> {
    let uid = fs.effective_uid();
    let modes = make.then_some(MakeModes {
        parents: MODE,
        last: MODE,
    });
    let (parent, dir) = match walk(fs, &Owners::new(uid, &[]), path, modes, Links::Follow) {
        Ok(dirs) => dirs,
        Err(OpenError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    judge_own(&dir, uid)?;
    Ok(Some((parent, dir)))
}

/// Opens or makes a folder below one that was opened; never by a symlink.
fn open_below(
    fs: &dyn Fs,
    parent: &Dir,
    name: &str,
    make: bool,
) -> Result<Option<Dir>, FolderError> {
    let uid = fs.effective_uid();
    let dir = match open_or_make(parent, name, MODE, &Owners::new(uid, &[]), make) {
        Ok(dir) => dir,
        Err(OpenError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    judge_own(&dir, uid)?;
    Ok(Some(dir))
}

fn judge_own(dir: &Dir, uid: u32) -> Result<(), FolderError> {
    let stat = dir.stat().map_err(OpenError::from)?;
    if stat.uid != uid {
        return Err(FolderError::Owner {
            path: dir.path().to_owned(),
            expected: uid,
            actual: stat.uid,
        });
    }
    Ok(())
}

/// Puts the tag there once. It is for backup programs: images are served without it as well, and
/// the next start tries again.
fn tag(fs: &dyn Fs, root: &Dir) {
    let absent = root.stat_entry(TAG_FILE);
    if absent.is_err_and(|error| error.kind == FsErrorKind::NotFound) {
        let _ = write_small(fs, root, TAG_FILE, TAG, 0o644);
    }
}
