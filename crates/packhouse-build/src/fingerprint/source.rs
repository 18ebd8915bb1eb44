//! What the build was made of: a git work tree where there is one, else every file of the folder.

use super::digests::Digests;
use super::disk::{self, Kind};
use super::error::FingerprintError;
use super::git::Git;
use super::tree;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The source's facts, and its top folder.
pub(super) struct Source {
    pub(super) facts: Value,
    pub(super) top: Option<PathBuf>,
}

/// Where the source should be.
pub(super) enum Named<'a> {
    /// The user says so: it must be there.
    Given(&'a Path),
    /// The build system says so: it may be on another host.
    Recorded(&'a Path),
    /// Nobody says.
    Nowhere,
}

/// Looks at the source. Errors when it can't be read, and when git fails.
pub(super) fn look(
    named: &Named<'_>,
    build: &Path,
    own: &[(OsString, OsString)],
    digests: &Digests<'_>,
) -> Result<Source, FingerprintError> {
    let unknown = |why: String| Source {
        facts: json!({ "kind": "unknown", "why": why }),
        top: None,
    };
    let (path, must_be) = match named {
        Named::Given(path) => (*path, true),
        Named::Recorded(path) => (*path, false),
        Named::Nowhere => return Ok(unknown("no build system names it".to_owned())),
    };
    let folder = real_folder(path)?;
    let Some(folder) = folder else {
        return match must_be {
            true => Err(FingerprintError::Folder {
                path: path.to_owned(),
                why: "no such folder".to_owned(),
            }),
            false => Ok(unknown(
                "the folder that the build names is not there".to_owned(),
            )),
        };
    };
    // A build in its own source is source too: nobody can tell its files apart.
    let build = Some(build).filter(|build| !folder.starts_with(build));
    let in_git = folder
        .ancestors()
        .any(|ancestor| disk::is_there(&ancestor.join(".git")));
    if in_git {
        let git = Git::find(own, &folder)?;
        let top = git.top(&folder)?;
        let below = folder.strip_prefix(&top).unwrap_or(Path::new(""));
        let is_part = below.as_os_str().is_empty() || !git.ignores(&top, below)?;
        if is_part {
            return Ok(Source {
                facts: git.facts(&top, build, digests)?,
                top: Some(top),
            });
        }
    }
    Ok(Source {
        facts: tree::facts(&folder, build, digests)?,
        top: Some(folder),
    })
}

/// A folder by its real path. `None`: there is nothing, or no folder.
pub(super) fn real_folder(path: &Path) -> Result<Option<PathBuf>, FingerprintError> {
    let wrong = |error: std::io::Error| FingerprintError::Folder {
        path: path.to_owned(),
        why: error.to_string(),
    };
    match disk::kind(path).map_err(wrong)? {
        Some(Kind::Folder) => disk::real(path).map_err(wrong),
        Some(Kind::File | Kind::Link | Kind::Special) | None => Ok(None),
    }
}
