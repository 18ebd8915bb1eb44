//! A model file as the user names it: its shards, the copy of it in RAM, its SHA-256.

use crate::failure::{Failure, quoted};
use crate::files::{open_regular, seen_stat};
use crate::places::{Lookup, Places};
use crate::stage;
use packhouse_base::digest::Digest;
use packhouse_container::shard_name;
use packhouse_stage::models::{
    self, AdmittedModel, FileDigest, FileDigestError, FileDigests, ModelMiss, ModelQuery,
    SourceFile,
};
use packhouse_stage::{StageRoot, StageRootError};
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::File;
use packhouse_sys::real::{RealFs, file_of_fd};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A model by its files' paths, whether they are there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelSource {
    /// The first file, absolute: what its copy is found by.
    pub(crate) path: PathBuf,
    /// All files, shards in order.
    pub(crate) paths: Vec<PathBuf>,
}

/// Why no copy of a model in RAM is used.
#[derive(Debug)]
pub(crate) enum NoCopy {
    /// Nothing was ever copied here.
    Nothing {
        /// The folder of stages.
        path: PathBuf,
    },
    /// The folder of stages can't be used.
    Root(StageRootError),
    /// The folder of stages can't even be named, or the model can't.
    Usage(String),
    /// No copy is admitted.
    Miss(ModelMiss),
}

impl fmt::Display for NoCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing { path } => write!(f, "nothing is copied to {}", path.display()),
            Self::Root(error) => error.fmt(f),
            Self::Usage(words) => f.write_str(words),
            Self::Miss(miss) => miss.fmt(f),
        }
    }
}

impl Error for NoCopy {}

impl ModelSource {
    /// Takes a path as the user gave it. A shard stands for all of its model.
    pub(crate) fn named(path: &Path) -> Result<Self, Failure> {
        let absolute = std::path::absolute(path)
            .map_err(|error| Failure::usage("not a model file", path.display()).because(&error))?;
        let paths = match shard_name::sibling_paths(&absolute) {
            Ok(paths) => paths,
            Err(_) => vec![absolute.clone()],
        };
        let path = paths.first().unwrap_or(&absolute).clone();
        Ok(Self { path, paths })
    }

    /// Looks at the files as they are now.
    pub(crate) fn look(&self) -> Vec<SourceFile> {
        let look = |path: &PathBuf| match open(path) {
            Ok(file) => SourceFile::Open(file),
            Err(error) => unopened(path, &error),
        };
        self.paths.iter().map(look).collect()
    }

    /// Opens all files. Errors name the first that can't be.
    pub(crate) fn open(&self) -> Result<Vec<File>, Failure> {
        let open = |path: &PathBuf| {
            open(path).map_err(|error| {
                Failure::new("cannot read the model", path.display())
                    .because(&error)
                    .hint(format!("ls -l {}", quoted(path)))
            })
        };
        self.paths.iter().map(open).collect()
    }
}

/// The copy of a model that an engine may use instead of its file: admitted by its receipts, so
/// that nothing is hashed. `expected` is the SHA-256 that the (first) file must have.
pub(crate) fn admitted_copy(
    path: &Path,
    expected: Option<Digest>,
    lookup: Lookup<'_>,
) -> Result<AdmittedModel, NoCopy> {
    let usage = |failure: Failure| NoCopy::Usage(failure.reason());
    let root = stage::root_path(None, lookup).map_err(usage)?;
    let source = ModelSource::named(path).map_err(usage)?;
    find(&open_root(&root)?, &source, expected).map_err(NoCopy::Miss)
}

/// Opens the folder of stages for looking.
pub(crate) fn open_root(path: &Path) -> Result<StageRoot, NoCopy> {
    stage::open_root(path, false).map_err(|error| match error.is_missing() {
        true => NoCopy::Nothing {
            path: path.to_owned(),
        },
        false => NoCopy::Root(error),
    })
}

/// Finds a model's copy by its source, as it is now, or by its digest.
pub(crate) fn find(
    root: &StageRoot,
    source: &ModelSource,
    expected: Option<Digest>,
) -> Result<AdmittedModel, ModelMiss> {
    let files = source.look();
    models::find(
        root,
        &ModelQuery {
            path: &source.path,
            files: &files,
            expected,
        },
    )
}

/// The digests that this user remembers; `None` where there is no private state to keep them.
pub(crate) fn digests(lookup: Lookup<'_>) -> Option<FileDigests> {
    let places = Places::find(lookup).ok()?;
    FileDigests::make(Arc::new(RealFs), Arc::new(RealClock), &places.state).ok()
}

/// The SHA-256 of a model's file: remembered where it was hashed before and did not change, else
/// hashed now. `progress` is told the bytes as they are hashed.
pub(crate) fn file_digest(
    path: &Path,
    lookup: Lookup<'_>,
    progress: &dyn Fn(u64),
    cancel: &dyn Fn() -> bool,
) -> Result<FileDigest, Failure> {
    let failure = |error: &dyn std::error::Error| {
        Failure::new("cannot hash the model", path.display())
            .because(error)
            .hint(format!("ls -l {}", quoted(path)))
    };
    let file = open(path).map_err(|error| failure(&error))?;
    let digests = digests(lookup);
    models::digest_of(digests.as_ref(), &file, progress, cancel).map_err(|error| match error {
        FileDigestError::Cancelled => Failure::new("stopped while hashing", path.display()),
        FileDigestError::Kind { .. } | FileDigestError::Changed { .. } | FileDigestError::Fs(_) => {
            failure(&error)
        }
    })
}

/// What is behind a path that could not be opened. Only a disk that can't be reached makes a source
/// unreadable: whatever else is there now is not what was copied.
fn unopened(path: &Path, error: &io::Error) -> SourceFile {
    let seen = seen_stat(path);
    match (error.kind(), error.raw_os_error(), seen) {
        (io::ErrorKind::NotFound, ..) => SourceFile::Gone,
        (_, _, Ok(None)) => SourceFile::Other { field: "kind" },
        (io::ErrorKind::PermissionDenied, _, Ok(Some(seen))) => SourceFile::Forbidden(seen),
        (_, Some(errno), _) if UNREACHABLE.contains(&errno) => SourceFile::Unreadable {
            why: error.to_string(),
        },
        (_, Some(ENOTDIR | ELOOP), _) => SourceFile::Other { field: "kind" },
        _ => SourceFile::Other { field: "access" },
    }
}

/// From Linux's `errno.h`, as on x86-64 and aarch64.
const ENOTDIR: i32 = 20;
const ELOOP: i32 = 40;
/// EIO, ENXIO, ENODEV, ENOTCONN, ESHUTDOWN, ETIMEDOUT, EHOSTDOWN, EHOSTUNREACH, ESTALE, EREMOTEIO,
/// ENOMEDIUM.
const UNREACHABLE: [i32; 11] = [5, 6, 19, 107, 108, 110, 112, 113, 116, 121, 123];

/// Opens a regular file by its path.
fn open(path: &Path) -> io::Result<File> {
    Ok(file_of_fd(open_regular(path)?.into(), path.to_owned()))
}
