//! The two folders that driver and program share: inputs by digest, outputs by case.
//!
//! Invariants:
//! - what is read of an output is read once, into memory; that copy is hashed and judged, so that
//!   nothing that happens to the file later matters;
//! - an input is read again after each case, by its name;
//! - an output is believed only as a regular file with one name; no symlink is followed, no pipe
//!   waited for;
//! - the folders are private (0700), under a name that was free, and removed with everything in
//!   them when this is dropped; what a killed driver left is removed by the next, which knows it by
//!   its lock.

use crate::check::{Seen, SeenFile};
use crate::message::CaseOrder;
use packhouse_base::digest::Digest;
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind, LockKind};
use packhouse_sys::stat::FileKind;
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// The folders.
pub struct Exchange {
    parent: Dir,
    name: String,
    inputs: Dir,
    outputs: Dir,
    /// Names that were put into the inputs' folder.
    put: BTreeSet<String>,
    /// Held as long as the folders are in use.
    _lock: File,
}

impl Exchange {
    /// Makes the folders in a folder that the caller may write.
    ///
    /// # Errors
    /// As the system does.
    pub fn make(fs: &dyn Fs, parent: Dir) -> Result<Self, FsError> {
        let mut bytes = [0; 32];
        fs.random(&mut bytes)?;
        let digits = Digest::from_bytes(bytes).to_string();
        let name = format!("{PREFIX}{}", &digits[..NAME_DIGITS]);
        sweep(&parent, fs.effective_uid());
        parent.make_dir(&name, MODE_FOLDER)?;
        let made = parent.open_dir(&name).and_then(|folder| {
            let lock = folder.create_new(LOCK, MODE_LOCK)?;
            // Another driver may be looking whether this one is dead; it sees that it only begins.
            lock.lock_within(&RealClock, LockKind::Exclusive, (0, 1), LOCK_NS)?;
            folder.make_dir(INPUTS, MODE_FOLDER)?;
            folder.make_dir(OUTPUTS, MODE_FOLDER)?;
            Ok((folder.open_dir(INPUTS)?, folder.open_dir(OUTPUTS)?, lock))
        });
        match made {
            Ok((inputs, outputs, lock)) => Ok(Self {
                parent,
                name,
                inputs,
                outputs,
                put: BTreeSet::new(),
                _lock: lock,
            }),
            Err(error) => {
                let _ = remove_session(&parent, OsStr::new(&name));
                Err(error)
            }
        }
    }

    /// Absolute path of the inputs' folder, where it is UTF-8.
    pub fn inputs_path(&self) -> Option<&str> {
        self.inputs.path().to_str()
    }

    /// Absolute path of the outputs' folder, where it is UTF-8.
    pub fn outputs_path(&self) -> Option<&str> {
        self.outputs.path().to_str()
    }

    /// Puts an input there, if it is not there yet, and says its name and digest.
    ///
    /// # Errors
    /// As the system does.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(String, Digest), FsError> {
        let digest = Digest::of(bytes);
        let name = format!("{digest}.bin");
        match self.inputs.create_new(&name, MODE_INPUT) {
            Ok(file) => file.write_all_at(0, bytes)?,
            Err(error) if error.kind == FsErrorKind::Exists => {}
            Err(error) => return Err(error),
        }
        self.put.insert(name.clone());
        Ok((name, digest))
    }

    /// Names in the outputs' folder.
    ///
    /// # Errors
    /// As the system does.
    pub fn outputs(&self) -> Result<Vec<String>, FsError> {
        let names = self.outputs.list()?;
        Ok(names
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    /// Reads what a case left, and removes all of it but the inputs.
    ///
    /// # Errors
    /// As the system does; whatever a program can do there is no error but is seen.
    pub fn take(&self, order: &CaseOrder) -> Result<Seen, FsError> {
        let largest = order
            .boundaries
            .iter()
            .map(|wanted| wanted.form.bytes)
            .max();
        let mut seen = Seen::default();
        for name in self.outputs.list()? {
            let file = self.see(&name, largest.unwrap_or(0))?;
            seen.outputs
                .insert(name.to_string_lossy().into_owned(), file);
        }
        self.empty()?;
        for input in order.inputs.values() {
            let digest = self.input_digest(&input.file, input.bytes);
            seen.inputs.insert(input.file.clone(), digest);
        }
        for name in self.inputs.list()? {
            if name.to_str().is_none_or(|name| !self.put.contains(name)) {
                remove_tree(&self.inputs, &name)?;
                let name = name.to_string_lossy().into_owned();
                seen.inputs_extra.push(name);
            }
        }
        Ok(seen)
    }

    /// Empties the outputs' folder.
    ///
    /// # Errors
    /// As the system does.
    pub fn empty(&self) -> Result<(), FsError> {
        for name in self.outputs.list()? {
            remove_tree(&self.outputs, &name)?;
        }
        Ok(())
    }

    fn see(&self, name: &OsStr, bytes_max: u64) -> Result<SeenFile, FsError> {
        let file = match self.outputs.open_file(name) {
            Ok(file) => file,
            Err(error) => {
                return match error.kind {
                    FsErrorKind::Symlink => Ok(SeenFile::Other("a symlink")),
                    FsErrorKind::Permission => Ok(SeenFile::Other("a file that can't be read")),
                    FsErrorKind::NotFound => Ok(SeenFile::Other("a file that is gone again")),
                    // A socket.
                    FsErrorKind::Errno(_) => Ok(SeenFile::Other("no file")),
                    _ => Err(error),
                };
            }
        };
        let stat = file.stat()?;
        match (stat.kind, stat.link_count) {
            (FileKind::Directory, _) => Ok(SeenFile::Other("a folder")),
            (FileKind::Special | FileKind::Symlink, _) => Ok(SeenFile::Other("no regular file")),
            (FileKind::Regular, 1) if stat.size > bytes_max => {
                Ok(SeenFile::TooLong { bytes: stat.size })
            }
            (FileKind::Regular, 1) => match file.read_stated(&stat, bytes_max) {
                Ok(bytes) => Ok(SeenFile::Bytes(bytes)),
                Err(error) if error.kind == FsErrorKind::EndsEarly => {
                    Ok(SeenFile::Other("a file that is being written"))
                }
                Err(error) => Err(error),
            },
            (FileKind::Regular, _) => Ok(SeenFile::Other("a file with several names")),
        }
    }

    fn input_digest(&self, name: &str, bytes: u64) -> Option<Digest> {
        let read = self.inputs.read_small(name, bytes).ok()?;
        Some(Digest::of(&read))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // A folder in the way of nobody: its name is random.
        let _ = remove_session(&self.parent, OsStr::new(&self.name));
    }
}

/// Removes what killed drivers of a user left, as far as it can be: nothing depends on it.
pub fn sweep(parent: &Dir, uid: u32) {
    for name in parent.list().unwrap_or_default() {
        if !name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let is_ours = |folder: &Dir| folder.stat().is_ok_and(|stat| stat.uid == uid);
        let Some(folder) = parent.open_dir(&name).ok().filter(is_ours) else {
            continue;
        };
        let Ok(lock) = folder.open_file_writable(LOCK) else {
            continue;
        };
        // Whoever only begins makes the inner folders when it has the lock.
        let is_begun = folder.list().is_ok_and(|names| names == [LOCK]);
        let is_left = lock.try_lock(LockKind::Exclusive, 0, 1) == Ok(true);
        if is_left && !is_begun {
            let _ = remove_session(parent, &name);
        }
    }
}

/// Removes a session's folder. Its lock goes last: what is interrupted is done by the next driver.
fn remove_session(parent: &Dir, name: &OsStr) -> Result<(), FsError> {
    let folder = parent.open_dir(name)?;
    for inner in folder.list()?.iter().filter(|inner| *inner != LOCK) {
        remove_tree(&folder, inner)?;
    }
    remove_tree(parent, name)
}

/// Removes an entry and what is in it, however deep: folders in folders are moved up, level by
/// level, so that no depth takes more descriptors or a longer path.
fn remove_tree(parent: &Dir, name: &OsStr) -> Result<(), FsError> {
    if parent.stat_entry(name)?.kind != FileKind::Directory {
        return parent.unlink(name);
    }
    let top = parent.open_dir(name)?;
    for level in 0..LEVELS_MAX {
        let names = top.list()?;
        if names.is_empty() {
            break;
        }
        for (index, name) in names.iter().enumerate() {
            if top.stat_entry(name)?.kind == FileKind::Directory {
                flatten(&top, name, &format!("up-{level}-{index}"))?;
            } else {
                top.unlink(name)?;
            }
        }
    }
    parent.remove_dir(name)
}

/// Removes a folder, and moves the folders in it beside it.
fn flatten(top: &Dir, name: &OsStr, beside: &str) -> Result<(), FsError> {
    let folder = top.open_dir(name)?;
    for (index, inner) in folder.list()?.iter().enumerate() {
        if folder.stat_entry(inner)?.kind == FileKind::Directory {
            move_up(&folder, inner, top, &format!("{beside}-{index}"))?;
        } else {
            folder.unlink(inner)?;
        }
    }
    top.remove_dir(name)
}

/// Moves a folder to the first free name: a program may have made any.
fn move_up(from: &Dir, name: &OsStr, top: &Dir, beside: &str) -> Result<(), FsError> {
    let mut free = 0_u64;
    loop {
        match from.rename_new(name, top, format!("{beside}-{free}")) {
            Err(error) if error.kind == FsErrorKind::Exists => free += 1,
            other => return other,
        }
    }
}

const PREFIX: &str = "packhouse-component-";
const LOCK: &str = "lock";
const MODE_LOCK: u32 = 0o600;
/// How long a lock is waited for that others hold for some system calls.
const LOCK_NS: u64 = 10_000_000_000;
const INPUTS: &str = "inputs";
const OUTPUTS: &str = "outputs";
const MODE_FOLDER: u32 = 0o700;
const MODE_INPUT: u32 = 0o400;
/// Hex digits of a name: 64 bits.
const NAME_DIGITS: usize = 16;
/// How deep a program may nest folders, each in another, for them to be removed.
const LEVELS_MAX: u32 = 10_000;
