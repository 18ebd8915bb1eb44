//! Moving damaged or foreign entries out of the way, so that the next publish can take their name.
//!
//! Invariants:
//! - an entry is moved by one rename that replaces nothing; readers that have it open keep it;
//! - what was moved is the very file that was judged; another one that took its name meanwhile is
//!   moved back.
//!
//! Never: removes or changes what it moves.

use crate::publish::random_hex;
use crate::root::{Base, Store};
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use std::path::PathBuf;

/// What became of an entry that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is in quarantine now.
    To(PathBuf),
    /// It, or its name, was gone already.
    Gone,
    /// It stays: the store was opened read-only.
    ReadOnly,
    /// It stays: it could not be moved.
    Failed(FsErrorKind),
    /// It stays: nobody tried.
    NotTried,
}

impl Moved {
    /// Says whether a publish may find the name free.
    pub(crate) fn name_is_free(&self) -> bool {
        match self {
            Self::To(_) | Self::Gone => true,
            Self::ReadOnly | Self::Failed(_) | Self::NotTried => false,
        }
    }
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::To(path) => write!(f, "moved to {}", path.display()),
            Self::Gone => f.write_str("it is gone already"),
            Self::ReadOnly => f.write_str("left in place, the store is read-only"),
            Self::Failed(kind) => write!(f, "left in place, moving it failed: {kind}"),
            Self::NotTried => f.write_str("left in place"),
        }
    }
}

impl Store {
    /// Moves `<base>/<aa>/<name>` to quarantine. `judged` is the descriptor that was refused; none
    /// for a symlink, which is never opened.
    pub(crate) fn quarantine(&self, base: Base, name: &str, judged: Option<&File>) -> Moved {
        if self.config.read_only {
            return Moved::ReadOnly;
        }
        let Some(prefix) = name.get(..2) else {
            return Moved::NotTried;
        };
        match self.open_prefix(base, prefix) {
            Ok(Some(folder)) => self.quarantine_entry(&folder, name, judged),
            Ok(None) => Moved::Gone,
            Err(_) => Moved::Failed(FsErrorKind::Permission),
        }
    }

    /// Moves an entry of any of the store's folders to quarantine.
    pub fn quarantine_entry(&self, folder: &Dir, name: &str, judged: Option<&File>) -> Moved {
        if self.config.read_only {
            return Moved::ReadOnly;
        }
        match self.move_aside(folder, name, judged) {
            Ok(Some(path)) => Moved::To(path),
            Ok(None) => Moved::Gone,
            Err(error) if error.kind == FsErrorKind::NotFound => Moved::Gone,
            Err(error) => Moved::Failed(error.kind),
        }
    }

    fn move_aside(
        &self,
        folder: &Dir,
        name: &str,
        judged: Option<&File>,
    ) -> Result<Option<PathBuf>, FsError> {
        let target_dir = self.quarantine_dir();
        let target = format!("{name}.{}", random_hex(self.fs.as_ref())?);
        folder.rename_new(name, target_dir, &target)?;
        if let Some(judged) = judged {
            let (judged, moved) = (judged.stat()?, target_dir.stat_entry(&target)?);
            if (judged.device, judged.inode) != (moved.device, moved.inode) {
                // Somebody healed the name between our judgement and the rename.
                match target_dir.rename_new(&target, folder, name) {
                    // Healed twice: the one that is there is as good.
                    Err(error) if error.kind == FsErrorKind::Exists => {}
                    other => other?,
                }
                return Ok(None);
            }
        }
        folder.sync()?;
        target_dir.sync()?;
        Ok(Some(target_dir.path().join(target)))
    }
}
