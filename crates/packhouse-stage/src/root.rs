//! The folder of stages: opened component by component, and this user's alone.
//!
//! Invariants:
//! - no component is a symlink; each may be changed by trusted owners only, root's sticky folders
//!   excepted as ancestors;
//! - the last one belongs to the effective user, mode exactly 0700, on a local file system.
//!
//! Never: changes owner or mode of a folder that was there.

use crate::name::{LOCK_FILE, MODELS_NAME, ROOM_PREFIX, StageName, TEMP_PREFIX};
use packhouse_base::Blame;
use packhouse_base::digest::SetKey;
use packhouse_store::folders::{Links, MakeModes, walk};
use packhouse_store::root::{OpenError, Owners};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::{FsKind, FsTrust};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An opened folder of stages.
pub struct StageRoot {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dir: Dir,
    /// This user, whom alone everything below must belong to.
    pub(crate) own: Owners,
    kind: FsKind,
}

/// Why a folder is not used for stages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageRootError {
    /// A component is missing, no folder, or not trusted.
    #[error("stage root: {0}")]
    Path(#[from] OpenError),
    /// Somebody else's.
    #[error("stage root: {} belongs to uid {actual}, expected {expected}", path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
        /// This process's effective user.
        expected: u32,
        /// The folder's owner.
        actual: u32,
    },
    /// Others may enter, or its owner may not.
    #[error("stage root: {} has mode {actual:04o}, expected 0700", path.display())]
    Mode {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        actual: u32,
    },
    /// Its stat proves nothing.
    #[error("stage root: {} is on {kind}, whose stat proves nothing", path.display())]
    Remote {
        /// The folder.
        path: PathBuf,
        /// The file system.
        kind: FsKind,
    },
}

impl StageRoot {
    /// Opens a stage root that is there.
    pub fn open(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        path: &Path,
        owners: &Owners,
    ) -> Result<Self, StageRootError> {
        Self::walk(fs, clock, path, owners, None)
    }

    /// Opens a stage root and makes it, and what is missing above it, with mode 0700.
    pub fn make(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        path: &Path,
        owners: &Owners,
    ) -> Result<Self, StageRootError> {
        let modes = MakeModes {
            parents: MODE,
            last: MODE,
        };
        Self::walk(fs, clock, path, owners, Some(modes))
    }

    /// The folder's path as given.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What it is on: copies on anything but a RAM file system are no copies in RAM.
    pub fn file_system(&self) -> FsKind {
        self.kind
    }

    fn walk(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        path: &Path,
        owners: &Owners,
        make: Option<MakeModes>,
    ) -> Result<Self, StageRootError> {
        let (_, dir) = walk(fs.as_ref(), owners, path, make, Links::Refuse)?;
        let stat = dir.stat().map_err(OpenError::from)?;
        let (path, uid) = (dir.path().to_owned(), fs.effective_uid());
        if stat.uid != uid {
            return Err(StageRootError::Owner {
                path,
                expected: uid,
                actual: stat.uid,
            });
        }
        if stat.mode != MODE {
            return Err(StageRootError::Mode {
                path,
                actual: stat.mode,
            });
        }
        let kind = dir.fs_stat().map_err(OpenError::from)?.kind;
        if kind.trust() == FsTrust::Remote {
            return Err(StageRootError::Remote { path, kind });
        }
        let own = Owners::only(uid);
        Ok(Self {
            fs,
            clock,
            dir,
            own,
            kind,
        })
    }

    /// The published stages, by set and rising generation. Other names are left out.
    pub(crate) fn stages(&self) -> Result<Vec<StageName>, FsError> {
        let names = self.dir.list()?;
        let mut stages: Vec<StageName> = names
            .iter()
            .filter_map(|name| StageName::parse(name.to_str()?))
            .collect();
        stages.sort_unstable();
        Ok(stages)
    }

    /// The names that are neither a stage's nor of use to stagers.
    pub(crate) fn strangers(&self) -> Result<Vec<String>, FsError> {
        let names = self.dir.list()?;
        let strange = names.iter().filter(|name| {
            let is_ours = |name: &str| {
                StageName::parse(name).is_some()
                    || name.starts_with(TEMP_PREFIX)
                    || name.starts_with(ROOM_PREFIX)
                    || name == LOCK_FILE
                    || name == MODELS_NAME
            };
            !name.to_str().is_some_and(is_ours)
        });
        Ok(strange
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    /// The newest stage of a set.
    pub(crate) fn newest(&self, set: SetKey) -> Result<Option<StageName>, FsError> {
        let stages = self.stages()?;
        Ok(stages.into_iter().rfind(|stage| stage.set == set))
    }

    /// Opens the file whose bytes are locked; each lock has a descriptor of its own.
    pub(crate) fn lock_file(&self) -> Result<File, FsError> {
        match self.dir.open_file_writable(LOCK_FILE) {
            Err(error) if error.kind == FsErrorKind::NotFound => {}
            other => return other,
        }
        match self.dir.create_new(LOCK_FILE, 0o600) {
            Err(error) if error.kind == FsErrorKind::Exists => {
                self.dir.open_file_writable(LOCK_FILE)
            }
            other => other,
        }
    }
}

impl StageRootError {
    /// Says whether there is nothing there at all, as on a host that stages nothing.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Path(OpenError::Missing { .. }))
    }

    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Path(error) => error.blame(),
            Self::Owner { .. } | Self::Mode { .. } | Self::Remote { .. } => Blame::Host,
        }
    }
}

/// Where a user's stages are when nobody says otherwise: a folder of their own in the host's RAM
/// file system.
pub fn default_root(uid: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/packhouse-{uid}"))
}

const MODE: u32 = 0o700;
