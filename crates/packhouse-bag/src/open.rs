//! A bag that is being written, piece by piece, and closed by one rename.
//!
//! Specified in `docs/format/bag.md`, section 3.
//!
//! - `OpenBag::put` makes a whole file or none, `put_folder` a whole folder of them; `append` adds
//!   to a file and may be torn by a crash;
//! - `close` is the only way to a closed bag, and reads back what it closes;
//! - digests are of the bytes that were given, so a disk that changed them is found;
//! - after a write or sync that failed nothing more is done: `Resumed` starts from what is there,
//!   and writes all of it again.
//!
//! Never: follows a link, replaces a file of a payload that is not resumed, closes a bag twice.

mod folder;
mod resume;

use crate::contents::{Contents, ReadError, passed};
use crate::faults::{BagFault, Bound, joined};
use crate::info::{BagInfo, Oxum};
use crate::judge::{check, tag_files};
use crate::lists;
use crate::paths::{is_path, split};
use crate::write_new::{FILE_MODE, PART, write_part};
use crate::{BAG_DIR, DATA_DIR, OPEN_DIR};
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, Hasher};
use packhouse_base::shown::Shown;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use resume::Resumed;

/// What lies in a folder of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No bag.
    Absent,
    /// A bag that somebody is writing, or was writing when he stopped.
    Open,
    /// A closed bag.
    Closed,
}

/// Why a bag was not written. After `Fs` and `Poisoned` the bag can only be resumed or discarded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// An earlier write or sync failed.
    #[error("{}: an earlier write or sync of this bag failed", path.display())]
    Poisoned {
        /// The open bag.
        path: PathBuf,
    },
    /// Not a path of format 1.
    #[error("not a path of a bag: {}", Shown(path))]
    Path {
        /// The path from `data/`.
        path: String,
    },
    /// The path is taken, by a file, a folder, or a file that was put as a whole.
    #[error("{path}: is in the bag already")]
    Taken {
        /// The path from `data/`.
        path: String,
    },
    /// No such file.
    #[error("{path}: is not in the bag")]
    Absent {
        /// The path from `data/`.
        path: String,
    },
    /// No bytes: an empty file is no evidence.
    #[error("{path}: 0 bytes to put into the bag")]
    Empty {
        /// The path from `data/`.
        path: String,
    },
    /// A limit of the format would be passed.
    #[error("{path}: {bound}")]
    Limit {
        /// The path from `data/`.
        path: String,
        /// Which limit.
        bound: Bound,
    },
    /// The software's name can't stand in `bag-info.txt`.
    #[error("not 1 to 128 printable characters: {}", Shown(software))]
    Software {
        /// The name.
        software: String,
    },
    /// A bag is there already, open or closed.
    #[error("{} is there already", path.display())]
    Exists {
        /// The bag.
        path: PathBuf,
    },
    /// Both a closed and an open bag are there, which no writer leaves.
    #[error("{} holds both a closed and an open bag", path.display())]
    Both {
        /// The folder.
        path: PathBuf,
    },
    /// There is no open bag.
    #[error("{}: no open bag", path.display())]
    NotOpen {
        /// Where it would be.
        path: PathBuf,
    },
    /// What was read back is no valid bag, or an open bag holds what no bag may hold.
    #[error("{}: {}", path.display(), joined(faults))]
    Faults {
        /// The open bag.
        path: PathBuf,
        /// All that is wrong.
        faults: Vec<BagFault>,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl WriteError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Poisoned { .. } => Blame::Host,
            Self::Path { .. }
            | Self::Taken { .. }
            | Self::Absent { .. }
            | Self::Empty { .. }
            | Self::Limit { .. }
            | Self::Software { .. } => Blame::Caller,
            Self::Exists { .. }
            | Self::Both { .. }
            | Self::NotOpen { .. }
            | Self::Faults { .. } => Blame::Store,
            Self::Fs(error) => error.blame(),
        }
    }
}

/// The one writer of a bag. Dropped, it leaves the open bag as it is.
pub struct OpenBag {
    /// The folder that will hold the closed bag.
    home: Dir,
    root: Dir,
    files: BTreeMap<String, Written>,
    bytes: u64,
    /// Folders by path from the bag's root, with whether all their entries are durable.
    dirs: BTreeMap<String, Folder>,
    is_poisoned: bool,
}

struct Folder {
    dir: Dir,
    is_synced: bool,
}

struct Written {
    digest: Hasher,
    bytes: u64,
    /// The open file of one that is appended to.
    appended: Option<Appended>,
}

struct Appended {
    file: File,
    is_synced: bool,
}

/// Says which bag a folder of evidence holds. Errors with `Both` where it holds two.
pub fn look(home: &Dir) -> Result<Found, WriteError> {
    let is_there = |name: &str| match home.stat_entry(name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    match (is_there(BAG_DIR)?, is_there(OPEN_DIR)?) {
        (false, false) => Ok(Found::Absent),
        (false, true) => Ok(Found::Open),
        (true, false) => Ok(Found::Closed),
        (true, true) => Err(WriteError::Both {
            path: home.path().to_owned(),
        }),
    }
}

/// Removes an open bag, file by file, whatever is in it; absent is as good.
pub fn discard(home: &Dir) -> Result<(), FsError> {
    match home.open_dir(OPEN_DIR) {
        Err(error) if error.kind == FsErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(root) => {
            resume::empty(&root)?;
            home.remove_dir(OPEN_DIR)?;
        }
    }
    home.sync()
}

impl OpenBag {
    /// Starts a bag in a folder of evidence. Errors with `Exists` where there is one.
    pub fn create(home: &Dir) -> Result<Self, WriteError> {
        let home = home.reopen()?;
        match look(&home)? {
            Found::Absent => {}
            Found::Open => return Err(exists(&home, OPEN_DIR)),
            Found::Closed => return Err(exists(&home, BAG_DIR)),
        }
        home.make_dir(OPEN_DIR, DIR_MODE)?;
        let mut bag = Self::at(home)?;
        bag.folder(DATA_DIR)?;
        bag.sync()?;
        bag.home.sync()?;
        Ok(bag)
    }

    /// Takes up a bag that somebody stopped writing: `Resumed::open`.
    pub fn resume(home: &Dir) -> Result<Resumed, WriteError> {
        Resumed::open(home)
    }

    fn at(home: Dir) -> Result<Self, WriteError> {
        let root = home.open_dir(OPEN_DIR)?;
        let folder = Folder {
            dir: root.clone(),
            is_synced: false,
        };
        Ok(Self {
            home,
            root,
            files: BTreeMap::new(),
            bytes: 0,
            dirs: BTreeMap::from([(String::new(), folder)]),
            is_poisoned: false,
        })
    }

    /// The payload's paths, from `data/`, rising.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Says whether the payload has a file.
    pub fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Bytes of all payload files so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts a whole file into the payload. Its bytes are durable on return, its name with the next
    /// `sync`; after a crash it is whole or absent.
    pub fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.may_write(path, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Err(WriteError::Empty {
                path: path.to_owned(),
            });
        }
        if !self.is_free(path) {
            return Err(WriteError::Taken {
                path: path.to_owned(),
            });
        }
        self.guarded(|bag| bag.place(&format!("{DATA_DIR}/{path}"), bytes))?;
        self.add(path, bytes, None);
        Ok(())
    }

    /// Puts a folder of whole files, by their paths from there: after a crash all are there,
    /// or none. The folder must be new.
    pub fn put_folder(
        &mut self,
        path: &str,
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<(), WriteError> {
        self.folder_is_right(path, files)?;
        self.guarded(|bag| bag.place_folder(&format!("{DATA_DIR}/{path}"), files))?;
        for (name, bytes) in files {
            self.add(&format!("{path}/{name}"), bytes, None);
        }
        Ok(())
    }

    /// Adds bytes to a file of the payload, which the first call makes. Nothing is durable before
    /// the next `sync`. Errors with `Taken` where the file was put as a whole.
    pub fn append(&mut self, path: &str, bytes: &[u8]) -> Result<(), WriteError> {
        self.may_write(path, bytes.len() as u64)?;
        let taken = || WriteError::Taken {
            path: path.to_owned(),
        };
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.files.contains_key(path) {
            if !self.is_free(path) {
                return Err(taken());
            }
            let file = self.guarded(|bag| bag.start_file(path))?;
            let is_synced = false;
            self.add(path, &[], Some(Appended { file, is_synced }));
        }
        let written = self.files.get_mut(path).expect("because it was just made");
        let Some(appended) = &mut written.appended else {
            return Err(taken());
        };
        appended.is_synced = false;
        if let Err(error) = appended.file.write_all_at(written.bytes, bytes) {
            self.is_poisoned = true;
            return Err(error.into());
        }
        written.digest.update(bytes);
        written.bytes += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes durable whatever was put or appended so far.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.alive()?;
        self.guarded(Self::sync_all)
    }

    /// Closes the bag: lists and digests, all of it synced, read back and judged, then one rename.
    /// Returns the bag's digest. On any error the bag stays open, to be resumed or discarded.
    pub fn close(mut self, info: &BagInfo) -> Result<Digest, WriteError> {
        self.alive()?;
        if !info.is_plain() {
            return Err(WriteError::Software {
                software: info.software.clone(),
            });
        }
        let oxum = Oxum {
            bytes: self.bytes,
            files: self.files.len() as u64,
        };
        let files = std::mem::take(&mut self.files);
        let mut digests = BTreeMap::new();
        for (path, written) in files {
            digests.insert(format!("{DATA_DIR}/{path}"), written.digest.finish());
            // One that is appended to is synced here, before its descriptor goes.
            if let Some(appended) = written.appended.filter(|appended| !appended.is_synced) {
                appended.file.sync()?;
            }
        }
        let manifest = lists::render(
            digests
                .iter()
                .map(|(path, digest)| (path.as_str(), *digest)),
        );
        let tags = tag_files(info, oxum, manifest);
        let digest = Digest::of(&tags[3].1);
        for (name, bytes) in &tags {
            self.place(name, bytes)?;
        }
        self.sync_dirs()?;
        self.read_back(digest)?;
        self.home.rename_new(OPEN_DIR, &self.home, BAG_DIR)?;
        self.home.sync()?;
        Ok(digest)
    }

    /// Gives the bag up and removes it.
    pub fn discard(self) -> Result<(), WriteError> {
        Ok(discard(&self.home)?)
    }

    fn read_back(&self, digest: Digest) -> Result<(), WriteError> {
        let faulty = |faults| WriteError::Faults {
            path: self.root.path().to_owned(),
            faults,
        };
        let contents = match Contents::read(&self.root) {
            Err(ReadError::Faults { faults }) => return Err(faulty(faults)),
            Err(ReadError::Fs(error)) => return Err(error.into()),
            Ok(contents) => contents,
        };
        check(&contents).map_err(faulty)?;
        match contents.digest() {
            Some(actual) if actual != digest => Err(faulty(vec![BagFault::Digest {
                path: crate::TAG_MANIFEST_FILE.to_owned(),
                listed: digest,
                actual,
            }])),
            Some(_) | None => Ok(()),
        }
    }

    fn may_write(&self, path: &str, more: u64) -> Result<(), WriteError> {
        self.alive()?;
        let path = path.to_owned();
        if !is_path(&format!("{DATA_DIR}/{path}")) {
            return Err(WriteError::Path { path });
        }
        let before = self.files.get(&path).map(|written| written.bytes);
        let count = self.files.len() + TAG_FILES - usize::from(before.is_some());
        let all_bytes = self.bytes - before.unwrap_or(0);
        match passed(before.unwrap_or(0).saturating_add(more), all_bytes, count) {
            Some(bound) => Err(WriteError::Limit { path, bound }),
            None => Ok(()),
        }
    }

    fn alive(&self) -> Result<(), WriteError> {
        if self.is_poisoned {
            let path = self.root.path().to_owned();
            return Err(WriteError::Poisoned { path });
        }
        Ok(())
    }

    /// Says whether a new file may have this path: no file has it, is its folder or lies below it.
    fn is_free(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let is_above = |index: usize| self.files.contains_key(&path[..index]);
        let mut behind = self.files.range(below.clone()..);
        !self.files.contains_key(path)
            && !behind
                .next()
                .is_some_and(|(other, _)| other.starts_with(&below))
            && !path.match_indices('/').any(|(index, _)| is_above(index))
    }

    /// Does something with the disk; where that fails the bag is poisoned.
    fn guarded<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, FsError>,
    ) -> Result<T, WriteError> {
        let done = act(self);
        self.is_poisoned |= done.is_err();
        Ok(done?)
    }

    fn add(&mut self, path: &str, bytes: &[u8], appended: Option<Appended>) {
        let mut digest = Hasher::default();
        digest.update(bytes);
        let written = Written {
            digest,
            bytes: bytes.len() as u64,
            appended,
        };
        self.bytes += written.bytes;
        self.files.insert(path.to_owned(), written);
    }

    /// Makes a whole file under a path from the bag's root.
    fn place(&mut self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        let (folder, name) = split(path);
        let dir = self.folder(folder)?;
        write_part(&dir, PART, bytes)?;
        dir.rename_new(PART, &dir, name)
    }

    fn start_file(&mut self, path: &str) -> Result<File, FsError> {
        let path = format!("{DATA_DIR}/{path}");
        let (folder, name) = split(&path);
        self.folder(folder)?.create_new(name, FILE_MODE)
    }

    /// The folder of that path from the bag's root, made where it is not there. Its entries count
    /// as not durable from here on.
    fn folder(&mut self, path: &str) -> Result<Dir, FsError> {
        if let Some(folder) = self.dirs.get_mut(path) {
            folder.is_synced = false;
            return Ok(folder.dir.clone());
        }
        let (above, name) = split(path);
        let above = self.folder(above)?;
        match above.make_dir(name, DIR_MODE) {
            // In a bag that is resumed.
            Err(error) if error.kind == FsErrorKind::Exists => {}
            other => other?,
        }
        let dir = above.open_dir(name)?;
        let folder = Folder {
            dir: dir.clone(),
            is_synced: false,
        };
        self.dirs.insert(path.to_owned(), folder);
        Ok(dir)
    }

    fn sync_all(&mut self) -> Result<(), FsError> {
        for written in self.files.values_mut() {
            if let Some(appended) = &mut written.appended
                && !appended.is_synced
            {
                appended.file.sync()?;
                appended.is_synced = true;
            }
        }
        self.sync_dirs()
    }

    /// Syncs the folders whose entries changed, the deepest first.
    fn sync_dirs(&mut self) -> Result<(), FsError> {
        for folder in self.dirs.values_mut().rev() {
            if !folder.is_synced {
                folder.dir.sync()?;
                folder.is_synced = true;
            }
        }
        Ok(())
    }
}

fn exists(home: &Dir, name: &str) -> WriteError {
    WriteError::Exists {
        path: home.path().join(name),
    }
}

const DIR_MODE: u32 = 0o755;
/// Files beside the payload.
const TAG_FILES: usize = 4;
