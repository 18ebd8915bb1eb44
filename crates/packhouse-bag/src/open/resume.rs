//! Taking up a bag that somebody stopped writing.
//!
//! What is there is what counts, and all of it is written again: after a sync that failed the
//! kernel calls pages clean that never reached the disk, and another sync of them says yes.

use super::{Found, OpenBag, WriteError, exists, look};
use crate::contents::{Contents, ReadError};
use crate::faults::BagFault;
use crate::paths::{is_name, split};
use crate::write_new::{PART, write_part};
use crate::{BAG_DIR, DATA_DIR, OPEN_DIR};
use crate::{DECLARATION_FILE, INFO_FILE, MANIFEST_FILE, TAG_MANIFEST_FILE};
use packhouse_sys::fs::{Dir, FsError};
use packhouse_sys::stat::FileKind;

/// An open bag that was found, and what had to go. Files may still be cut or removed: those that
/// its writer did not end.
pub struct Resumed {
    bag: OpenBag,
    removed: Vec<String>,
}

impl Resumed {
    /// Takes up the open bag of a folder of evidence: leftovers and files of 0 bytes go, every
    /// other file is written again and synced.
    ///
    /// Errors with `NotOpen` where there is none, with `Exists` where it was closed, with `Faults`
    /// on what no writer of a bag makes. May be tried again after any error.
    pub fn open(home: &Dir) -> Result<Self, WriteError> {
        let home = home.reopen()?;
        match look(&home)? {
            Found::Open => {}
            Found::Closed => return Err(exists(&home, BAG_DIR)),
            Found::Absent => {
                let path = home.path().join(OPEN_DIR);
                return Err(WriteError::NotOpen { path });
            }
        }
        let mut bag = OpenBag::at(home)?;
        bag.folder(DATA_DIR)?;
        let mut tidying = Tidying::default();
        tidying.folder(&bag.root, "")?;
        let path = bag.root.path().to_owned();
        if !tidying.faults.is_empty() {
            let faults = tidying.faults;
            return Err(WriteError::Faults { path, faults });
        }
        let contents = match Contents::read(&bag.root) {
            Err(ReadError::Faults { faults }) if is_only_empty(&faults) => Contents::default(),
            Err(ReadError::Faults { faults }) => {
                return Err(WriteError::Faults { path, faults });
            }
            Err(ReadError::Fs(error)) => return Err(error.into()),
            Ok(contents) => contents,
        };
        for (path, bytes) in contents.payload().files() {
            bag.write_again(path, bytes)?;
            bag.add(path, bytes, None);
        }
        bag.sync()?;
        bag.home.sync()?;
        let removed = tidying.removed;
        Ok(Self { bag, removed })
    }

    /// Files of 0 bytes that were found and removed, and those that were cut to nothing, by their
    /// paths from `data/`.
    pub fn removed(&self) -> &[String] {
        &self.removed
    }

    /// The payload's paths, from `data/`, rising.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.bag.paths()
    }

    /// Reads a payload file.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, WriteError> {
        let written = self.bag.files.get(path).ok_or_else(|| absent(path))?;
        let full = format!("{DATA_DIR}/{path}");
        let (folder, name) = split(&full);
        let dir = &self.bag.dirs.get(folder).ok_or_else(|| absent(path))?.dir;
        Ok(dir.read_small(name, written.bytes)?)
    }

    /// Keeps the first bytes of a payload file: its writer was stopped within the rest. Cut to
    /// nothing, it is removed and told. A file that is no longer than that stays as it is.
    pub fn cut(&mut self, path: &str, bytes: u64) -> Result<(), WriteError> {
        let mut content = self.read(path)?;
        if content.len() as u64 <= bytes {
            return Ok(());
        }
        if bytes == 0 {
            self.remove(path)?;
            self.removed.push(path.to_owned());
            return Ok(());
        }
        content.truncate(usize::try_from(bytes).expect("because it is less than a length"));
        self.bag.guarded(|bag| bag.write_again(path, &content))?;
        self.bag.forget(path);
        self.bag.add(path, &content, None);
        Ok(())
    }

    /// Removes a payload file that is to be written anew, and folders that hold no other.
    pub fn remove(&mut self, path: &str) -> Result<(), WriteError> {
        self.bag.alive()?;
        if !self.bag.has(path) {
            return Err(absent(path));
        }
        self.bag.forget(path);
        self.bag.guarded(|bag| bag.unlink(path))
    }

    /// The open bag, to be gone on with.
    pub fn into_bag(self) -> OpenBag {
        self.bag
    }
}

impl OpenBag {
    /// Writes a file of the payload that is there once more, in its place.
    fn write_again(&mut self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        let path = format!("{DATA_DIR}/{path}");
        let (folder, name) = split(&path);
        let dir = self.folder(folder)?;
        write_part(&dir, PART, bytes)?;
        dir.rename_over(PART, name)
    }

    fn forget(&mut self, path: &str) {
        if let Some(written) = self.files.remove(path) {
            self.bytes -= written.bytes;
        }
    }

    fn unlink(&mut self, path: &str) -> Result<(), FsError> {
        let path = format!("{DATA_DIR}/{path}");
        let (mut folder, name) = split(&path);
        self.folder(folder)?.unlink(name)?;
        while folder != DATA_DIR && self.is_empty(folder) {
            let (above, name) = split(folder);
            self.folder(above)?.remove_dir(name)?;
            self.dirs.remove(folder);
            folder = above;
        }
        Ok(())
    }

    /// Says whether no file lies in a folder of the bag.
    fn is_empty(&self, folder: &str) -> bool {
        let mut paths = self.files.keys().map(|path| format!("{DATA_DIR}/{path}"));
        !paths.any(|path| path.starts_with(&format!("{folder}/")))
    }
}

/// A walk that removes what a stopped writer left.
#[derive(Default)]
struct Tidying {
    removed: Vec<String>,
    faults: Vec<BagFault>,
}

impl Tidying {
    fn folder(&mut self, dir: &Dir, prefix: &str) -> Result<(), FsError> {
        for name in dir.list()? {
            let text = name.to_string_lossy();
            let path = format!("{prefix}{text}");
            let stat = dir.stat_entry(&name)?;
            let is_root_file = prefix.is_empty() && TAG_FILES.contains(&text.as_ref());
            if text != PART && !name.to_str().is_some_and(is_name) {
                self.faults.push(BagFault::Path { path });
                continue;
            }
            match stat.kind {
                FileKind::Directory if text == PART => {
                    empty(&dir.open_dir(&name)?)?;
                    dir.remove_dir(&name)?;
                }
                FileKind::Directory if prefix.is_empty() && text != DATA_DIR => {
                    self.faults.push(BagFault::Unlisted { path });
                }
                FileKind::Directory => {
                    let below = dir.open_dir(&name)?;
                    self.folder(&below, &format!("{path}/"))?;
                    if !prefix.is_empty() && below.list()?.is_empty() {
                        dir.remove_dir(&name)?;
                    }
                }
                FileKind::Regular if text == PART || is_root_file => dir.unlink(&name)?,
                FileKind::Regular if prefix.is_empty() => {
                    self.faults.push(BagFault::Unlisted { path });
                }
                FileKind::Regular if stat.size == 0 => {
                    dir.unlink(&name)?;
                    let below = path.strip_prefix(DATA_DIR).unwrap_or(&path);
                    self.removed.push(below.trim_start_matches('/').to_owned());
                }
                FileKind::Regular => {}
                kind @ (FileKind::Symlink | FileKind::Special) => {
                    self.faults.push(BagFault::Link { path, kind });
                }
            }
        }
        Ok(())
    }
}

/// Removes whatever is in a folder, without following links.
pub(super) fn empty(dir: &Dir) -> Result<(), FsError> {
    for name in dir.list()? {
        if dir.stat_entry(&name)?.kind == FileKind::Directory {
            empty(&dir.open_dir(&name)?)?;
            dir.remove_dir(&name)?;
        } else {
            dir.unlink(&name)?;
        }
    }
    Ok(())
}

/// Says whether nothing is wrong but that no file is there at all.
fn is_only_empty(faults: &[BagFault]) -> bool {
    let is_data =
        |fault: &BagFault| matches!(fault, BagFault::Unlisted { path } if path == DATA_DIR);
    faults.iter().all(is_data)
}

fn absent(path: &str) -> WriteError {
    let path = path.to_owned();
    WriteError::Absent { path }
}

const TAG_FILES: [&str; 4] = [
    INFO_FILE,
    DECLARATION_FILE,
    MANIFEST_FILE,
    TAG_MANIFEST_FILE,
];
