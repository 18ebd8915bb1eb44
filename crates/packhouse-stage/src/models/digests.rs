//! The SHA-256 of files that this user hashed, by stat identity: so that a model that was hashed
//! once is not hashed again.
//!
//! Invariants:
//! - a digest is believed only for the very stat identity it was found for, compared field by
//!   field, on a file system whose stat proves something;
//! - one record per inode, replaced whole: a file that changed takes its predecessor's place;
//! - an identity that is not settled, or whose file somebody may be writing, is not recorded.
//!
//! Never: needed. A state that is absent or damaged costs a hash. Format:
//! `docs/format/model-copies.md`.

use crate::models::hash::hash_file;
use crate::models::source::remote_kind;
use crate::receipts::{checksum_of, seal};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_base::encode::Sequence;
use packhouse_store::fields::{FieldError, Fields};
use packhouse_store::folders::{Links, MakeModes, Owners, walk};
use packhouse_store::root::OpenError;
use packhouse_store::state::{STAT_SETTLE_NS, settle_wait_ns, take_stat};
use packhouse_store::state::{State, StateError, file_system_text, render_stat};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, StatIdentity};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The schema of a record.
pub const FILE_DIGEST_SCHEMA: &str = "packhouse/file-digest/1";

/// The digests that one user remembers.
pub struct FileDigests {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    dir: Dir,
}

/// The digest of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// How it is known.
    pub how: HowKnown,
}

/// How a digest is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowKnown {
    /// The file was hashed before and has the same stat identity.
    Receipt,
    /// It was hashed now.
    Hashed {
        /// Whether it will be known the next time.
        recorded: bool,
    },
}

/// Why digests can't be remembered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestsError {
    /// The folder is missing or not trusted.
    #[error("private state: {0}")]
    Path(#[from] OpenError),
    /// The folder is not this user's alone.
    #[error("private state: {0}")]
    State(#[from] StateError),
}

/// Why a file was not hashed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileDigestError {
    /// Something else than a regular file.
    #[error("{} is a {kind}, expected a regular file", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// It changed while it was hashed.
    #[error("{} changed while it was hashed: its {field} differs", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The first field of its stat identity that differs.
        field: &'static str,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl FileDigests {
    /// Opens the digests below a user's private state, and makes their folder.
    pub fn make(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        state: &Path,
    ) -> Result<Self, DigestsError> {
        Self::make_in(fs, clock, &state.join(FOLDER))
    }

    /// Opens digests that are kept apart from those of models, so that neither push the others
    /// out, below a user's private state, and makes their folder.
    pub fn make_for_fixtures(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        state: &Path,
    ) -> Result<Self, DigestsError> {
        Self::make_in(fs, clock, &state.join(FIXTURES_FOLDER))
    }

    fn make_in(fs: Arc<dyn Fs>, clock: Arc<dyn Clock>, path: &Path) -> Result<Self, DigestsError> {
        let owners = Owners::new(fs.effective_uid(), &[]);
        let modes = MakeModes {
            parents: FOLDER_MODE,
            last: FOLDER_MODE,
        };
        let (_, dir) = walk(fs.as_ref(), &owners, path, Some(modes), Links::Follow)?;
        State::new(Arc::clone(&fs), dir.clone())?;
        Ok(Self { fs, clock, dir })
    }

    /// The digest that a file had when its stat identity was this; `None` where nothing that can be
    /// believed is known.
    pub fn known(&self, identity: &StatIdentity) -> Option<Digest> {
        let name = record_name(identity);
        let bytes = self
            .dir
            .read_small(name.to_string(), RECORD_BYTES_MAX)
            .ok()?;
        let (stat, digest) = parse(&bytes)?.ok()?;
        (stat == *identity).then_some(digest)
    }

    /// Remembers a digest for a settled stat identity. Errors as the file system does; nothing is
    /// left behind then.
    pub fn record(&self, identity: &StatIdentity, digest: Digest) -> Result<(), FsError> {
        let name = record_name(identity).to_string();
        let temp = self.temp_name()?;
        let bytes = seal(json!({
            "schema": FILE_DIGEST_SCHEMA,
            "sha256": digest.to_string(),
            "stat": render_stat(identity),
        }));
        let written = self
            .dir
            .create_new(&temp, 0o600)
            .and_then(|file| file.write_all_at(0, &bytes));
        let renamed = written.and_then(|()| self.dir.rename_over(&temp, &name));
        if let Err(error) = renamed {
            // The first error is the one to report.
            let _ = self.dir.unlink(&temp);
            return Err(error);
        }
        self.prune()
    }

    /// Keeps the newest records and removes what dead writers left.
    fn prune(&self) -> Result<(), FsError> {
        let names = self.dir.list()?;
        if names.len() <= RECORDS_MAX {
            return Ok(());
        }
        let mut aged: Vec<(i64, _)> = names
            .into_iter()
            .filter_map(|name| Some((self.dir.stat_entry(&name).ok()?.mtime_ns, name)))
            .collect();
        aged.sort_unstable();
        let surplus = aged.len().saturating_sub(RECORDS_MAX / 2);
        for (_, name) in aged.into_iter().take(surplus) {
            match self.dir.unlink(&name) {
                Err(error) if error.kind != FsErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn temp_name(&self) -> Result<String, FsError> {
        let mut random = [0u8; 16];
        self.fs.random(&mut random)?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{}{digits}", crate::name::TEMP_PREFIX))
    }
}

/// The SHA-256 of an open file: remembered where it was hashed before, else hashed now and
/// remembered. `progress` is told the bytes as they are hashed, `cancel` asked between them.
pub fn digest_of(
    digests: Option<&FileDigests>,
    file: &File,
    progress: &dyn Fn(u64),
    cancel: &dyn Fn() -> bool,
) -> Result<FileDigest, FileDigestError> {
    let stat = file.stat()?;
    if stat.kind != FileKind::Regular {
        let (path, kind) = (file.path().to_owned(), stat.kind);
        return Err(FileDigestError::Kind { path, kind });
    }
    let before = file.identity()?;
    let digests = match remote_kind(file)? {
        Some(_) => None,
        None => digests,
    };
    let answer = |digest, how| FileDigest {
        digest,
        bytes: before.size,
        how,
    };
    let can_change = file.has_writer() == Some(true);
    if let Some(digests) = digests
        && !can_change
        && let Some(digest) = digests.known(&before)
    {
        return Ok(answer(digest, HowKnown::Receipt));
    }
    let found = hash_file(file, before.size, progress, cancel);
    // Of a file that changed meanwhile, that is what is to be said.
    unchanged(file, &before)?;
    let digest = found?.ok_or(FileDigestError::Cancelled)?;
    let recorded = match digests {
        Some(digests) if !can_change => remember(digests, file, &before, digest)?,
        Some(_) | None => false,
    };
    Ok(answer(digest, HowKnown::Hashed { recorded }))
}

/// Waits once until the identity is settled and writes it down; what can't be written is only not
/// remembered.
fn remember(
    digests: &FileDigests,
    file: &File,
    identity: &StatIdentity,
    digest: Digest,
) -> Result<bool, FileDigestError> {
    let clock = digests.clock.as_ref();
    if let Some(wait_ns) = settle_wait_ns(identity, clock.wall_ns()) {
        if wait_ns > 2 * STAT_SETTLE_NS {
            return Ok(false);
        }
        clock.sleep_ns(wait_ns);
        unchanged(file, identity)?;
    }
    let is_settled = settle_wait_ns(identity, clock.wall_ns()).is_none();
    Ok(is_settled && digests.record(identity, digest).is_ok())
}

pub(crate) fn unchanged(file: &File, before: &StatIdentity) -> Result<(), FileDigestError> {
    match before.difference(&file.identity()?) {
        None => Ok(()),
        Some(field) => Err(FileDigestError::Changed {
            path: file.path().to_owned(),
            field,
        }),
    }
}

/// `None`: torn or edited.
fn parse(bytes: &[u8]) -> Option<Result<(StatIdentity, Digest), FieldError>> {
    let mut fields = Fields::parse(bytes, FILE_DIGEST_SCHEMA).ok()?;
    let checksum = fields.digest("checksum").ok()?;
    if checksum != checksum_of(bytes) {
        return None;
    }
    Some(take(fields))
}

fn take(mut fields: Fields) -> Result<(StatIdentity, Digest), FieldError> {
    let digest = fields.digest("sha256")?;
    let stat = take_stat(&mut fields)?;
    fields.finish()?;
    Ok((stat, digest))
}

fn record_name(identity: &StatIdentity) -> Digest {
    let mut sequence = Sequence::new(NAME_TAG);
    sequence.text(&file_system_text(&identity.file_system));
    sequence.integer(identity.inode);
    sequence.finish()
}

impl DigestsError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Path(error) => error.blame(),
            Self::State(error) => error.blame(),
        }
    }
}

impl FileDigestError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Kind { .. } | Self::Changed { .. } => Blame::Source,
            Self::Cancelled => Blame::Caller,
            Self::Fs(error) => error.blame(),
        }
    }
}

const NAME_TAG: &str = "packhouse/file-digest-name/1";
const FOLDER: &str = "models";
const FIXTURES_FOLDER: &str = "fixtures";
const FOLDER_MODE: u32 = 0o700;
const RECORD_BYTES_MAX: u64 = 4096;
/// Beyond so many records the older half goes.
const RECORDS_MAX: usize = 2048;
