//! Which copy of a model may be used: shallow, so that no byte is hashed.
//!
//! Invariants:
//! - a copy is admitted when the receipts of all its files hold for their descriptors;
//! - a copy found by a path is admitted while the path's files are what they were when they were
//!   copied, or are not there at all: a good copy outlives its source, and no other file that has
//!   its name now;
//! - whoever names the SHA-256 that they want gets that content, whatever the source is now.
//!
//! Never: hashes, writes, falls back silently: each miss has its reason.

use crate::models::entry::{CopyProblem, Entry, entries, entries_of};
use crate::models::key::ModelKey;
use crate::models::source::{SourceFile, SourceRecordError, SourceState, read_record};
use crate::root::StageRoot;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::FsError;
use packhouse_sys::stat::FsKind;
use std::path::{Path, PathBuf};

/// Which model is wanted.
#[derive(Clone, Copy, Debug)]
pub struct ModelQuery<'a> {
    /// The source's path as it was copied: absolute, any of its shards' first.
    pub path: &'a Path,
    /// The source's files, shards in order, as they are now.
    pub files: &'a [SourceFile],
    /// SHA-256 that the first file must have.
    pub expected: Option<Digest>,
}

/// A copy that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedModel {
    /// The model.
    pub key: ModelKey,
    /// Which copy of it.
    pub generation: u64,
    /// The first file: what an engine is given.
    pub path: PathBuf,
    /// SHA-256 of the first file, by its receipt.
    pub digest: Digest,
    /// Bytes of all files.
    pub bytes: u64,
    /// All files, shards in order.
    pub files: Vec<AdmittedFile>,
    /// What the source is now.
    pub source: SourceState,
}

/// One file of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedFile {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 by its receipt.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
}

/// Why no copy is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelMiss {
    /// The path was never copied, or its copy was dropped.
    #[error("no copy of {}", path.display())]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// No copy has this content.
    #[error("no copy of a file with SHA-256 {digest}")]
    NoSuchContent {
        /// The digest wanted.
        digest: Digest,
    },
    /// What is noted of the path is damaged.
    #[error("no copy of {} can be told: {source}", path.display())]
    Record {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        source: SourceRecordError,
    },
    /// The source is not what was copied.
    #[error("{} changed since it was copied: its {field} differs", path.display())]
    SourceChanged {
        /// The source.
        path: PathBuf,
        /// The first field that differs.
        field: &'static str,
    },
    /// The source is being written, or may be.
    #[error("{} is open for writing by some process", path.display())]
    SourceWritten {
        /// The source.
        path: PathBuf,
    },
    /// Nobody can tell whether the source changed.
    #[error("{} is on {kind}, whose stat does not prove that it is unchanged", path.display())]
    SourceRemote {
        /// The source.
        path: PathBuf,
        /// The file system.
        kind: FsKind,
    },
    /// The path's copy has other content than is wanted, and so has every other.
    #[error("the copy of {} has SHA-256 {actual}, expected {expected}", path.display())]
    OtherDigest {
        /// The path.
        path: PathBuf,
        /// The digest wanted.
        expected: Digest,
        /// The copy's.
        actual: Digest,
    },
    /// The copy is there and can't be believed.
    #[error("copy {copy}: {source}")]
    Copy {
        /// Its name.
        copy: String,
        /// What is wrong with it.
        source: CopyProblem,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Finds the copy of a model by its source's path, or by the SHA-256 that is wanted.
pub fn find(root: &StageRoot, query: &ModelQuery<'_>) -> Result<AdmittedModel, ModelMiss> {
    let path = || query.path.to_owned();
    let record = match (read_record(root, query.path), query.expected) {
        (Ok(Some(record)), _) => record,
        (Ok(None) | Err(_), Some(digest)) => return find_content(root, digest),
        (Ok(None), None) => return Err(ModelMiss::Absent { path: path() }),
        (Err(source), None) => {
            let path = path();
            return Err(ModelMiss::Record { path, source });
        }
    };
    let source = record.compare(query.files)?;
    if query.expected.is_none() {
        match &source {
            SourceState::Changed { field } => {
                let (path, field) = (path(), *field);
                return Err(ModelMiss::SourceChanged { path, field });
            }
            SourceState::Written => return Err(ModelMiss::SourceWritten { path: path() }),
            SourceState::Remote { kind } => {
                let (path, kind) = (path(), *kind);
                return Err(ModelMiss::SourceRemote { path, kind });
            }
            SourceState::Unchanged
            | SourceState::Gone
            | SourceState::Unreadable { .. }
            | SourceState::NotAsked => {}
        }
    }
    let admitted = match find_key(root, record.key)? {
        Some(admitted) => AdmittedModel { source, ..admitted },
        None => return Err(ModelMiss::Absent { path: path() }),
    };
    match query.expected {
        Some(expected) if expected != admitted.digest => match find_content(root, expected) {
            Err(ModelMiss::NoSuchContent { .. }) => Err(ModelMiss::OtherDigest {
                path: path(),
                expected,
                actual: admitted.digest,
            }),
            other => other,
        },
        Some(_) | None => Ok(admitted),
    }
}

/// Finds a copy by the SHA-256 of its first file.
pub fn find_content(root: &StageRoot, digest: Digest) -> Result<AdmittedModel, ModelMiss> {
    if let Some(admitted) = find_key(root, ModelKey(digest))? {
        return Ok(admitted);
    }
    for name in entries(root)?.into_iter().rev() {
        let Ok(Some(entry)) = Entry::open(root, name) else {
            continue;
        };
        let first = entry.receipts.files.first();
        if first.is_some_and(|first| first.digest == digest)
            && let Some(admitted) = find_key(root, name.key)?
        {
            return Ok(admitted);
        }
    }
    Err(ModelMiss::NoSuchContent { digest })
}

/// The model that a path was when it was copied, whatever became of path and copy; `None` where the
/// path was never copied.
pub fn key_of(root: &StageRoot, path: &Path) -> Result<Option<ModelKey>, SourceRecordError> {
    Ok(read_record(root, path)?.map(|record| record.key))
}

/// Admits the newest copy of a model; `None` where there is none.
pub fn find_key(root: &StageRoot, key: ModelKey) -> Result<Option<AdmittedModel>, ModelMiss> {
    let Some(name) = entries_of(root, key)?.pop() else {
        return Ok(None);
    };
    let problem = |source: CopyProblem| ModelMiss::Copy {
        copy: name.to_string(),
        source,
    };
    let Some(entry) = Entry::open(root, name).map_err(problem)? else {
        return Ok(None);
    };
    admit(&entry).map(Some).map_err(problem)
}

/// Admits a copy whose files are all what their receipts say.
pub(crate) fn admit(entry: &Entry) -> Result<AdmittedModel, CopyProblem> {
    let mut files = Vec::new();
    for receipt in &entry.receipts.files {
        let object = entry.file(receipt)?;
        files.push(AdmittedFile {
            path: object.file().path().to_owned(),
            digest: receipt.digest,
            bytes: receipt.size,
        });
    }
    let first = files.first().expect("because receipts have a file");
    Ok(AdmittedModel {
        key: entry.name.key,
        generation: entry.name.generation,
        path: first.path.clone(),
        digest: first.digest,
        bytes: entry.receipts.bytes(),
        files,
        source: SourceState::NotAsked,
    })
}

impl ModelMiss {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } | Self::NoSuchContent { .. } | Self::OtherDigest { .. } => {
                Blame::Caller
            }
            Self::Record { source, .. } => source.blame(),
            Self::SourceChanged { .. } | Self::SourceWritten { .. } => Blame::Source,
            Self::SourceRemote { .. } => Blame::Host,
            Self::Copy { source, .. } => source.blame(),
            Self::Fs(error) => error.blame(),
        }
    }

    /// One word for reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Absent { .. } | Self::NoSuchContent { .. } => "absent",
            Self::Record { .. } => "record",
            Self::SourceChanged { .. } => "source_changed",
            Self::SourceWritten { .. } => "source_written",
            Self::SourceRemote { .. } => "source_remote",
            Self::OtherDigest { .. } => "other_digest",
            Self::Copy { source, .. } => source.reason(),
            Self::Fs(_) => "host",
        }
    }
}
