//! Fingerprints that were computed, in the user's private state: what `explain` compares with.
//!
//! Invariants:
//! - a record lies under the digest of its facts, and is replaced whole;
//! - their number is bounded; the oldest go.
//!
//! Never: needed. A fingerprint that can't be kept is computed all the same.

use super::record::{Fingerprint, RecordError};
use packhouse_base::Blame;
use packhouse_base::canonical::RECORD_BYTES_MAX;
use packhouse_base::digest::Digest;
use packhouse_store::folders::{Links, MakeModes, Owners, walk};
use packhouse_store::root::OpenError;
use packhouse_store::state::{State, StateError};
use packhouse_sys::fs::{Dir, Fs, FsError, FsErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Why kept fingerprints can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// The folder is missing or not trusted.
    #[error("private state: {0}")]
    Path(#[from] OpenError),
    /// The folder is not this user's alone.
    #[error("private state: {0}")]
    State(#[from] StateError),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// What lies there is no fingerprint.
    #[error("fingerprint {name}: {source}")]
    Record {
        /// Its file's name.
        name: String,
        /// What is wrong with it.
        source: RecordError,
    },
    /// No fingerprint begins so.
    #[error("no fingerprint that is kept begins with {prefix}")]
    Absent {
        /// The digits given.
        prefix: String,
    },
    /// More than one begins so.
    #[error("{count} fingerprints that are kept begin with {prefix}")]
    Ambiguous {
        /// The digits given.
        prefix: String,
        /// How many.
        count: usize,
    },
}

/// The fingerprints that a user computed.
pub struct KeptFingerprints {
    fs: Arc<dyn Fs>,
    dir: Dir,
}

impl KeptFingerprints {
    /// Opens them below the user's folder of private state, and makes their folder.
    pub fn make(fs: &Arc<dyn Fs>, state: &Path) -> Result<Self, KeepError> {
        let dir = folder(fs, &state.join(FOLDER))?;
        Ok(Self {
            fs: Arc::clone(fs),
            dir,
        })
    }

    /// Keeps a fingerprint. Answers how many others went because there were too many.
    pub fn keep(&self, fingerprint: &Fingerprint) -> Result<usize, KeepError> {
        let name = format!("{}{SUFFIX}", fingerprint.digest());
        replace(self.fs.as_ref(), &self.dir, &name, &fingerprint.render())?;
        Ok(prune(&self.dir, KEPT_MAX)?)
    }

    /// Finds a fingerprint by the first digits of its digest.
    pub fn find(&self, prefix: &str) -> Result<Fingerprint, KeepError> {
        let names = self.dir.list()?;
        let names = names.iter().filter_map(|name| name.to_str());
        let digits = names.filter_map(|name| name.strip_suffix(SUFFIX));
        let named: Vec<&str> = digits.filter(|name| name.starts_with(prefix)).collect();
        let prefix = prefix.to_owned();
        match named.as_slice() {
            [] => Err(KeepError::Absent { prefix }),
            [digits] => self.read(digits),
            more => Err(KeepError::Ambiguous {
                prefix,
                count: more.len(),
            }),
        }
    }

    fn read(&self, digits: &str) -> Result<Fingerprint, KeepError> {
        let name = format!("{digits}{SUFFIX}");
        let limit = u64::try_from(RECORD_BYTES_MAX).unwrap_or(u64::MAX);
        let bytes = self.dir.read_small(&name, limit)?;
        let wrong = |source| KeepError::Record {
            name: name.clone(),
            source,
        };
        let fingerprint = Fingerprint::parse(&bytes).map_err(wrong)?;
        match Digest::parse(digits) {
            Ok(expected) if expected != fingerprint.digest() => {
                let actual = fingerprint.digest();
                Err(wrong(RecordError::Digest { expected, actual }))
            }
            Ok(_) | Err(_) => Ok(fingerprint),
        }
    }
}

impl KeepError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Path(error) => error.blame(),
            Self::State(error) => error.blame(),
            Self::Fs(error) => error.blame(),
            Self::Record { .. } => Blame::Store,
            Self::Absent { .. } | Self::Ambiguous { .. } => Blame::Caller,
        }
    }
}

/// Opens a folder of private state, made where it is missing.
pub(super) fn folder(fs: &Arc<dyn Fs>, path: &Path) -> Result<Dir, KeepError> {
    let owners = Owners::new(fs.effective_uid(), &[]);
    let modes = MakeModes {
        parents: FOLDER_MODE,
        last: FOLDER_MODE,
    };
    let (_, dir) = walk(fs.as_ref(), &owners, path, Some(modes), Links::Follow)?;
    State::new(Arc::clone(fs), dir.clone())?;
    Ok(dir)
}

/// Puts a file in another one's place, whole.
pub(super) fn replace(fs: &dyn Fs, dir: &Dir, name: &str, bytes: &[u8]) -> Result<(), FsError> {
    let mut random = [0u8; 16];
    fs.random(&mut random)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let temp = format!("{TEMP_PREFIX}{digits}");
    let written = dir.create_new(&temp, 0o600).and_then(|file| {
        file.write_all_at(0, bytes)
            .and_then(|()| file.sync_content())
    });
    let renamed = written.and_then(|()| dir.rename_over(&temp, name));
    if let Err(error) = renamed {
        // The first error is the one to report.
        let _ = dir.unlink(&temp);
        return Err(error);
    }
    Ok(())
}

/// Removes the oldest files beyond a number, and what dead writers left with them.
pub(super) fn prune(dir: &Dir, kept_max: usize) -> Result<usize, FsError> {
    let names = dir.list()?;
    let surplus = names.len().saturating_sub(kept_max);
    if surplus == 0 {
        return Ok(0);
    }
    let mut aged: Vec<(i64, _)> = names
        .into_iter()
        .filter_map(|name| Some((dir.stat_entry(&name).ok()?.mtime_ns, name)))
        .collect();
    aged.sort_unstable();
    for (_, name) in aged.into_iter().take(surplus) {
        match dir.unlink(&name) {
            Err(error) if error.kind != FsErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(surplus)
}

const FOLDER: &str = "fingerprints/records";
const FOLDER_MODE: u32 = 0o700;
const SUFFIX: &str = ".json";
const TEMP_PREFIX: &str = "tmp-";
/// Fingerprints that are kept.
const KEPT_MAX: usize = 128;
