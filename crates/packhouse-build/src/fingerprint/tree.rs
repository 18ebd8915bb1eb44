//! What a source folder without version control holds, folder by folder.
//!
//! Invariants:
//! - every regular file is hashed, with its name and whether it may be executed; a link stands for
//!   what it says, and is not followed;
//! - the build's own folder, folders that are marked as caches (`CACHEDIR.TAG`) and `.git` are no
//!   source.

use super::digests::Digests;
use super::disk::{self, Kind};
use super::error::FingerprintError;
use packhouse_base::encode::Sequence;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A folder's own files, not those of its subfolders.
struct Folder {
    name: String,
    files: Vec<(String, PathBuf)>,
}

/// The facts of a folder.
pub(super) fn facts(
    top: &Path,
    build: Option<&Path>,
    digests: &Digests<'_>,
) -> Result<Value, FingerprintError> {
    let folders = walk(top, build)?;
    let paths = folders.iter().flat_map(|folder| &folder.files);
    let paths: Vec<PathBuf> = paths.map(|(_, path)| path.clone()).collect();
    let seen = contents(&paths, digests)?;
    let mut named = Map::new();
    for folder in &folders {
        let mut sequence = Sequence::new(FOLDER_TAG);
        let files = folder.files.iter();
        let files = files.filter_map(|(name, path)| Some((name, seen.get(path)?)));
        let files: Vec<(&String, &Value)> = files.collect();
        sequence.list(&files, |sequence, (name, facts)| {
            sequence.text(name).text(&facts.to_string());
        });
        if !files.is_empty() {
            let facts = json!({
                "files": files.len(),
                "sha256": sequence.finish().to_string(),
            });
            named.insert(folder.name.clone(), facts);
        }
    }
    Ok(json!({ "folders": named, "kind": "tree" }))
}

/// What each of these paths is by itself, as facts: a file's content, a link's text. Pipes and the
/// like are left out.
pub(super) fn contents(
    paths: &[PathBuf],
    digests: &Digests<'_>,
) -> Result<BTreeMap<PathBuf, Value>, FingerprintError> {
    let mut seen = BTreeMap::new();
    let mut files = Vec::new();
    for path in paths {
        let wrong = |error: io::Error| FingerprintError::File {
            path: path.clone(),
            why: error.to_string(),
        };
        match disk::own_kind(path).map_err(wrong)? {
            Some(Kind::File) => files.push(path.clone()),
            Some(Kind::Link) => {
                let target = disk::link(path).map_err(wrong)?;
                seen.insert(path.clone(), json!({ "link": disk::text(target) }));
            }
            Some(Kind::Folder) => {
                seen.insert(path.clone(), json!("folder"));
            }
            Some(Kind::Special) => {}
            None => {
                seen.insert(path.clone(), json!("deleted"));
            }
        }
    }
    let contents = digests.of_all(&files)?;
    for (path, content) in files.into_iter().zip(contents) {
        let facts = json!({
            "executable": content.is_executable,
            "sha256": content.sha256.to_string(),
        });
        seen.insert(path, facts);
    }
    Ok(seen)
}

fn walk(top: &Path, build: Option<&Path>) -> Result<Vec<Folder>, FingerprintError> {
    let mut folders = Vec::new();
    let mut todo = vec![(top.to_owned(), String::from("."))];
    let mut count = 0;
    while let Some((path, name)) = todo.pop() {
        let entries = disk::entries(&path).map_err(|error| FingerprintError::Folder {
            path: path.clone(),
            why: error.to_string(),
        })?;
        count += entries.len();
        if count > ENTRIES_MAX {
            return Err(FingerprintError::TooMany {
                path: top.to_owned(),
                limit: ENTRIES_MAX,
            });
        }
        let is_cache = entries.iter().any(|entry| entry.name == CACHE_TAG_NAME);
        if is_cache && is_cache_tag(&path.join(CACHE_TAG_NAME)) {
            continue;
        }
        let mut files = Vec::new();
        for entry in entries {
            let (text, below) = (disk::text(&entry.name), path.join(&entry.name));
            // In a submodule it is a file, which names a folder elsewhere.
            if entry.name == ".git" {
                continue;
            }
            match entry.kind {
                Kind::File | Kind::Link => files.push((text, below)),
                Kind::Special => {}
                Kind::Folder if Some(below.as_path()) == build => {}
                Kind::Folder if name == "." => todo.push((below, text)),
                Kind::Folder => todo.push((below, format!("{name}/{text}"))),
            }
        }
        folders.push(Folder { name, files });
    }
    Ok(folders)
}

/// Whether a file is the mark of a cache folder, as `bford.info/cachedir` has it.
pub(super) fn is_cache_tag(path: &Path) -> bool {
    let tag = disk::read(path, CACHE_TAG_BYTES_MAX).ok().flatten();
    tag.is_some_and(|bytes| bytes.starts_with(CACHE_TAG))
}

/// The name of a cache folder's mark.
pub(super) const CACHE_TAG_NAME: &str = "CACHEDIR.TAG";
const CACHE_TAG: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
const CACHE_TAG_BYTES_MAX: u64 = 64 << 10;
const FOLDER_TAG: &str = "packhouse/fingerprint-folder/1";
const ENTRIES_MAX: usize = 1_000_000;
