//! The files of a folder in memory, each read once: what every judge of evidence works on.
//!
//! Never: follows a link, opens a pipe, reads a file twice.

use crate::faults::FormFault;
use crate::faults::{ALL_BYTES_MAX, BagFault, Bound, FILE_BYTES_MAX, FILES_MAX, joined};
use crate::info::{BagInfo, Oxum};
use crate::paths::is_name;
use crate::{DATA_DIR, INFO_FILE, TAG_MANIFEST_FILE};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Files by their path from one folder, `/` between components: a bag, its payload, or the folder
/// that holds a bag with its analyses and seals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    files: BTreeMap<String, Arc<[u8]>>,
}

/// Why a folder was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It holds what no bag may hold: links, names that are no paths, folders without files, more
    /// than the limits.
    #[error("{}", joined(faults))]
    Faults {
        /// All of it.
        faults: Vec<BagFault>,
    },
    /// The system said no: nothing is known of the bag.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl ReadError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Faults { .. } => Blame::Store,
            Self::Fs(error) => error.blame(),
        }
    }
}

impl Contents {
    /// Takes files in memory.
    pub fn new(files: BTreeMap<String, Arc<[u8]>>) -> Self {
        Self { files }
    }

    /// Reads every file of a folder, once, whatever its mode and number of names.
    ///
    /// Errors with `Faults` on what no bag may hold, with `Fs` where something can't be read.
    pub fn read(dir: &Dir) -> Result<Self, ReadError> {
        let mut reading = Reading::default();
        reading.folder(dir, "", 0)?;
        if reading.faults.is_empty() {
            return Ok(Self::new(reading.files));
        }
        Err(ReadError::Faults {
            faults: reading.faults,
        })
    }

    /// The bytes of a file.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(AsRef::as_ref)
    }

    /// All paths, rising.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// All files by path.
    pub fn files(&self) -> &BTreeMap<String, Arc<[u8]>> {
        &self.files
    }

    /// Sets a file's bytes; for makers of evidence in memory and for tampering with it.
    pub fn insert(&mut self, path: impl Into<String>, bytes: impl Into<Arc<[u8]>>) {
        self.files.insert(path.into(), bytes.into());
    }

    /// Takes a file out.
    pub fn remove(&mut self, path: &str) -> Option<Arc<[u8]>> {
        self.files.remove(path)
    }

    /// The files of one folder, by their paths from there.
    pub fn below(&self, folder: &str) -> Self {
        let files = self.files.iter().filter_map(|(path, bytes)| {
            let rest = path.strip_prefix(folder)?.strip_prefix('/')?;
            Some((rest.to_owned(), Arc::clone(bytes)))
        });
        Self::new(files.collect())
    }

    /// The payload of a bag, by paths from `data/`.
    pub fn payload(&self) -> Self {
        self.below(DATA_DIR)
    }

    /// The bag's digest: SHA-256 of its tag manifest; `None` where there is none.
    pub fn digest(&self) -> Option<Digest> {
        self.get(TAG_MANIFEST_FILE).map(Digest::of)
    }

    /// What `bag-info.txt` says. Errors where it is missing or not of its form.
    pub fn info(&self) -> Result<(BagInfo, Oxum), FormFault> {
        BagInfo::parse(self.get(INFO_FILE).ok_or(FormFault::Missing)?)
    }
}

#[derive(Default)]
struct Reading {
    files: BTreeMap<String, Arc<[u8]>>,
    faults: Vec<BagFault>,
    bytes: u64,
}

impl Reading {
    fn folder(&mut self, dir: &Dir, prefix: &str, depth: usize) -> Result<(), FsError> {
        let names = dir.list()?;
        if names.is_empty() && depth > 0 {
            let path = prefix.trim_end_matches('/').to_owned();
            self.faults.push(BagFault::Unlisted { path });
        }
        for name in names {
            let path = format!("{prefix}{}", name.to_string_lossy());
            if !name.to_str().is_some_and(is_name) || depth >= DEPTH_MAX {
                self.faults.push(BagFault::Path { path });
                continue;
            }
            match dir.stat_entry(&name)?.kind {
                FileKind::Directory => {
                    self.folder(&dir.open_dir(&name)?, &format!("{path}/"), depth + 1)?;
                }
                FileKind::Regular => self.file(dir, &name, path)?,
                kind @ (FileKind::Symlink | FileKind::Special) => {
                    self.faults.push(BagFault::Link { path, kind });
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, dir: &Dir, name: &std::ffi::OsStr, path: String) -> Result<(), FsError> {
        let file = match dir.open_file(name) {
            Err(error) if error.kind == FsErrorKind::Symlink => {
                let kind = FileKind::Symlink;
                self.faults.push(BagFault::Link { path, kind });
                return Ok(());
            }
            other => other?,
        };
        let stat = file.stat()?;
        if stat.kind != FileKind::Regular {
            let kind = stat.kind;
            self.faults.push(BagFault::Link { path, kind });
            return Ok(());
        }
        if let Some(bound) = passed(stat.size, self.bytes, self.files.len()) {
            self.faults.push(BagFault::Limit { path, bound });
            return Ok(());
        }
        let bytes = file.read_stated(&stat, FILE_BYTES_MAX)?;
        self.bytes += bytes.len() as u64;
        self.files.insert(path, bytes.into());
        Ok(())
    }
}

/// The limit that one more file of that size would pass.
pub(crate) fn passed(size: u64, all_bytes: u64, file_count: usize) -> Option<Bound> {
    if size > FILE_BYTES_MAX {
        return Some(Bound::File);
    }
    if all_bytes.saturating_add(size) > ALL_BYTES_MAX {
        return Some(Bound::All);
    }
    (file_count >= FILES_MAX).then_some(Bound::Count)
}

/// The deepest file below a folder that is read: a bag's deepest, in a folder that holds bags.
const DEPTH_MAX: usize = crate::paths::COMPONENTS_MAX + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_may_be_reached_and_not_passed() {
        let (file, all) = (FILE_BYTES_MAX, ALL_BYTES_MAX);
        assert_eq!(passed(file, 0, 0), None);
        assert_eq!(passed(file + 1, 0, 0), Some(Bound::File));
        assert_eq!(passed(1, all - 1, 0), None);
        assert_eq!(passed(2, all - 1, 0), Some(Bound::All));
        assert_eq!(passed(1, u64::MAX, 0), Some(Bound::All));
        assert_eq!(passed(1, 0, FILES_MAX - 1), None);
        assert_eq!(passed(1, 0, FILES_MAX), Some(Bound::Count));
    }
}
