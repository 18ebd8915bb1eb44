//! What an artifact is: every file that was looked at is hashed, then everything is looked at
//! again.
//!
//! Invariants:
//! - a file is judged on the descriptor that is hashed, by its stat identity before and after;
//! - what was hashed early and changed while the rest was hashed is found by the second look, so
//!   that all of it was there at one time;
//! - a stat identity is kept only where it proves something: on a local file system, settled, of a
//!   file that nobody is known to write.
//!
//! Never: takes a file that is another one than the one looked at.

use super::artifact::FileEntry;
use super::look::{ArtifactKind, Look, LookError, Looked, Place};
use packhouse_base::digest::Digest;
use packhouse_store::hash_many::{Hashable, LANES_MAX, hash_many};
use packhouse_store::state::{STAT_SETTLE_NS, settle_wait_ns};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{File, Fs, FsError, FsErrorKind, Operation};
use packhouse_sys::stat::{FileKind, FsId, FsTrust, Stat, StatIdentity};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An artifact as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is a file or a folder.
    pub kind: ArtifactKind,
    /// What is in it, by path below it; a file is at the empty path.
    pub entries: BTreeMap<OsString, Seen>,
}

/// What was seen at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A folder.
    Folder,
    /// A file that was hashed.
    File(SeenFile),
    /// A symlink.
    Link {
        /// Its target, as it is.
        target: PathBuf,
    },
    /// A device, socket or pipe.
    Special,
    /// It could not be read.
    Unread(FsError),
    /// It changed while it was read, or anything else took its place.
    Changed {
        /// What differs.
        field: &'static str,
    },
}

/// A file that was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// Its content.
    pub content: FileEntry,
    /// Its stat identity before and after; `None` where that proves nothing.
    pub stat: Option<StatIdentity>,
}

impl Look {
    /// Hashes all files with so many threads, once a change of any would show in its stat.
    /// `progress` is told the bytes as they are hashed. Errors where the artifact is another one
    /// afterwards.
    pub fn hash(
        &self,
        fs: &dyn Fs,
        clock: &dyn Clock,
        threads: NonZeroUsize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Survey, LookError> {
        let mut entries = BTreeMap::new();
        let mut files = Vec::new();
        for (path, looked) in &self.entries {
            let seen = match looked {
                Looked::Folder(_) => Seen::Folder,
                Looked::Link(_, target) => Seen::Link {
                    target: target.clone(),
                },
                Looked::Special(_) => Seen::Special,
                Looked::Gone => Seen::Changed { field: NAME },
                Looked::Unread(error) => Seen::Unread(error.clone()),
                Looked::File(stat) => {
                    files.push((path, stat.size, (stat.device, stat.inode)));
                    continue;
                }
            };
            entries.insert(path.clone(), seen);
        }
        settle(clock, &self.entries);
        entries.extend(hash_files(&self.place, clock, files, threads, progress));
        self.look_again(fs, &mut entries)?;
        Ok(Survey {
            path: self.path.clone(),
            kind: self.kind(),
            entries,
        })
    }

    /// Whatever is not now what it was before anything was hashed has changed.
    fn look_again(
        &self,
        fs: &dyn Fs,
        entries: &mut BTreeMap<OsString, Seen>,
    ) -> Result<(), LookError> {
        let again = Look::take(fs, &self.path)?;
        if again.kind() != self.kind() || again.place.inode()? != self.place.inode()? {
            let path = self.path.clone();
            return Err(LookError::Replaced { path });
        }
        let mut change = |path: &OsString, field| {
            // A failure says more than that something changed meanwhile.
            if !matches!(entries.get(path), Some(Seen::Unread(_))) {
                entries.insert(path.clone(), Seen::Changed { field });
            }
        };
        for (path, looked) in &self.entries {
            match again.entries.get(path).map(|now| looked.difference(now)) {
                Some(None) => {}
                Some(Some(field)) => change(path, field),
                None => change(path, NAME),
            }
        }
        for path in again.entries.keys() {
            if !self.entries.contains_key(path) {
                change(path, NAME);
            }
        }
        Ok(())
    }
}

/// A file to hash: its path, length, and device and inode.
type Wanted<'a> = (&'a OsString, u64, (u64, u64));

fn hash_files(
    place: &Place,
    clock: &dyn Clock,
    mut files: Vec<Wanted<'_>>,
    threads: NonZeroUsize,
    progress: &(dyn Fn(u64) + Sync),
) -> BTreeMap<OsString, Seen> {
    // The longest first, so that no core ends with one of them.
    files.sort_by_key(|(path, bytes, _)| (Reverse(*bytes), *path));
    let count = files.len();
    let lanes = count.div_ceil(threads.get()).clamp(1, LANES_MAX);
    let queue = Mutex::new(files.into_iter());
    let seen = Mutex::new(BTreeMap::new());
    let put = |path: &OsString, what| {
        lock(&seen).insert(path.clone(), what);
    };
    let work = || {
        let next = || {
            loop {
                let (path, bytes, inode) = lock(&queue).next()?;
                match Opened::open(place, clock.wall_ns(), (path, bytes, inode)) {
                    Ok(opened) => return Some(opened),
                    Err(what) => put(path, what),
                }
            }
        };
        let done = |opened: Opened<'_>, digest| put(opened.path, opened.conclude(digest));
        hash_many(lanes, next, done, progress);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(count) {
            // A thread that is not to be had leaves its work to the others.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    seen.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is being hashed.
struct Opened<'a> {
    path: &'a OsString,
    file: File,
    before: StatIdentity,
    is_proof: bool,
    hashed_bytes: Cell<u64>,
}

impl<'a> Opened<'a> {
    fn open(place: &Place, now_ns: i64, (path, bytes, inode): Wanted<'a>) -> Result<Self, Seen> {
        let file = place.open_file(path).map_err(|error| match error.kind {
            FsErrorKind::NotFound => Seen::Changed { field: NAME },
            FsErrorKind::Symlink | FsErrorKind::NotDirectory | FsErrorKind::IsDirectory => {
                Seen::Changed { field: "kind" }
            }
            _ => Seen::Unread(error),
        })?;
        let stat = file.stat().map_err(Seen::Unread)?;
        let fields = [
            (stat.kind != FileKind::Regular, "kind"),
            ((stat.device, stat.inode) != inode, "inode"),
            (stat.size != bytes, "size"),
        ];
        if let Some((_, field)) = fields.into_iter().find(|(differs, _)| *differs) {
            return Err(Seen::Changed { field });
        }
        let before = file.identity().map_err(Seen::Unread)?;
        let kind = file.fs_stat().map_err(Seen::Unread)?.kind;
        let is_settled = settle_wait_ns(&before, now_ns).is_none();
        let is_proof =
            is_settled && kind.trust() == FsTrust::Local && file.has_writer() != Some(true);
        Ok(Self {
            path,
            file,
            before,
            is_proof,
            hashed_bytes: Cell::new(0),
        })
    }

    fn conclude(&self, digest: Result<Digest, FsError>) -> Seen {
        // Of a file that changed meanwhile, that is what is to be said.
        let after = match self.file.identity() {
            Ok(after) => after,
            Err(error) => return Seen::Unread(error),
        };
        if let Some(field) = self.before.difference(&after) {
            return Seen::Changed { field };
        }
        match digest {
            // A short read under the times of a whole file.
            Ok(_) if self.hashed_bytes.get() != self.before.size => Seen::Unread(FsError {
                operation: Operation::Read,
                path: self.file.path().to_owned(),
                kind: FsErrorKind::EndsEarly,
            }),
            Ok(digest) => Seen::File(SeenFile {
                content: FileEntry {
                    bytes: self.before.size,
                    digest,
                },
                stat: self.is_proof.then_some(self.before),
            }),
            Err(error) => Seen::Unread(error),
        }
    }
}

impl Hashable for Opened<'_> {
    fn file(&self) -> &File {
        &self.file
    }

    fn length(&self) -> u64 {
        self.before.size
    }

    fn take(&self, offset: u64, piece: &[u8]) -> Result<(), FsError> {
        self.hashed_bytes.set(offset + piece.len() as u64);
        Ok(())
    }
}

/// Waits, once for all files, until a later change of any would leave another time. What is not
/// settled then, as its time lies ahead of the clock, proves nothing.
fn settle(clock: &dyn Clock, entries: &BTreeMap<OsString, Looked>) {
    let now_ns = clock.wall_ns();
    let files = entries.values().filter_map(|looked| match looked {
        Looked::File(stat) => Some(stat),
        Looked::Folder(_)
        | Looked::Link(..)
        | Looked::Special(_)
        | Looked::Gone
        | Looked::Unread(_) => None,
    });
    let waits = files.filter_map(|stat| settle_wait_ns(&identity_of(stat), now_ns));
    if let Some(wait_ns) = waits.filter(|wait_ns| *wait_ns <= SETTLE_WAIT_MAX_NS).max() {
        clock.sleep_ns(wait_ns);
    }
}

/// As much of an identity as stat tells.
fn identity_of(stat: &Stat) -> StatIdentity {
    StatIdentity {
        file_system: FsId::Device(stat.device),
        inode: stat.inode,
        generation: None,
        size: stat.size,
        mtime_ns: stat.mtime_ns,
        ctime_ns: stat.ctime_ns,
        uid: stat.uid,
        mode: stat.mode,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const NAME: &str = "name";
/// A ctime further ahead is a clock that was set back; nobody waits for it.
const SETTLE_WAIT_MAX_NS: u64 = 2 * STAT_SETTLE_NS;
