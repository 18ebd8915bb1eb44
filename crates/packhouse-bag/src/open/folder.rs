//! Folders that are put as a whole: made beside their place, synced, renamed.

use super::{DIR_MODE, FILE_MODE, OpenBag, WriteError};
use crate::contents::passed;
use crate::paths::split;
use crate::write_new::PART;
use packhouse_sys::fs::{Dir, FsError};
use std::collections::BTreeMap;

impl OpenBag {
    /// Refuses what may not be put, before anything is written.
    pub(super) fn folder_is_right(
        &self,
        path: &str,
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<(), WriteError> {
        let mut bytes = self.bytes;
        for (count, (name, content)) in files.iter().enumerate() {
            let path = format!("{path}/{name}");
            self.may_write(&path, content.len() as u64)?;
            let below = format!("{name}/");
            let mut behind = files.range(below.clone()..);
            if content.is_empty() {
                return Err(WriteError::Empty { path });
            }
            if behind
                .next()
                .is_some_and(|(other, _)| other.starts_with(&below))
            {
                return Err(WriteError::Taken { path });
            }
            let file_count = self.files.len() + super::TAG_FILES + count;
            if let Some(bound) = passed(content.len() as u64, bytes, file_count) {
                return Err(WriteError::Limit { path, bound });
            }
            bytes += content.len() as u64;
        }
        let path = path.to_owned();
        if files.is_empty() {
            return Err(WriteError::Empty { path });
        }
        if !self.is_free(&path) {
            return Err(WriteError::Taken { path });
        }
        Ok(())
    }

    /// Makes a folder under a path from the bag's root, with all its files.
    pub(super) fn place_folder(
        &mut self,
        path: &str,
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<(), FsError> {
        let (above, name) = split(path);
        let above = self.folder(above)?;
        above.make_dir(PART, DIR_MODE)?;
        let mut dirs = BTreeMap::from([(String::new(), above.open_dir(PART)?)]);
        for (name, content) in files {
            let (folder, name) = split(name);
            let file = below(&mut dirs, folder)?.create_new(name, FILE_MODE)?;
            file.write_all_at(0, content)?;
            file.sync()?;
        }
        for dir in dirs.values().rev() {
            dir.sync()?;
        }
        above.rename_new(PART, &above, name)
    }
}

/// The folder of that path, made where it is not there.
fn below(dirs: &mut BTreeMap<String, Dir>, path: &str) -> Result<Dir, FsError> {
    if let Some(dir) = dirs.get(path) {
        return Ok(dir.clone());
    }
    let (above, name) = split(path);
    let above = below(dirs, above)?;
    above.make_dir(name, DIR_MODE)?;
    let dir = above.open_dir(name)?;
    dirs.insert(path.to_owned(), dir.clone());
    Ok(dir)
}
