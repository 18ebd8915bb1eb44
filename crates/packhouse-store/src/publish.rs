//! Making bytes visible: whole or not at all, durably, once.
//!
//! Every publish here is the same proof: a file without a name beside its place, written and
//! hashed, synced, linked without replacing anything, its folder synced. A crash at any step leaves
//! nothing, or the whole.
//!
//! Invariants:
//! - what is hashed is what was given to write, chunk by chunk, or the whole buffer before
//!   (`payload`);
//! - nothing is overwritten: a taken name is read and judged;
//! - after a failed write or sync the temporary file is given up;
//! - a cancelled publish ends within one chunk: write-out runs along, so no sync is long.
//!
//! Never: replaces a file. Format: `docs/format/store.md`.

use crate::object::{HowVerified, ObjectRefusal, ObjectTrust, VerifiedObject};
use crate::payload::Payload;
use crate::reserve::{Claim, Reservation, RoomError};
use crate::root::{Base, OpenError, Store};
use crate::state::TEMP_PREFIX;
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, Hasher, ObjectDigest};
use packhouse_sys::fs::{Dir, File, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::FsKind;
use std::path::PathBuf;

mod stream;

pub use stream::StreamError;

/// What a publish does beside publishing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishOptions {
    /// Drop the object from the page cache afterwards.
    pub drop_cache: bool,
}

/// How a small file came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallOutcome {
    /// It was made now.
    Created,
    /// It was there with the same bytes.
    Equal,
}

/// Why bytes were not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The caller cancelled.
    #[error("publish cancelled after {written_bytes} of {total_bytes} bytes")]
    Cancelled {
        /// Bytes written by then.
        written_bytes: u64,
        /// Bytes to write.
        total_bytes: u64,
    },
    /// The store was opened read-only.
    #[error("{} was opened read-only", path.display())]
    ReadOnly {
        /// The store's root.
        path: PathBuf,
    },
    /// The room reserved does not hold the bytes.
    #[error(transparent)]
    Room(#[from] RoomError),
    /// The name holds other bytes.
    #[error("{} holds {actual}, expected {expected}", path.display())]
    Conflict {
        /// The file.
        path: PathBuf,
        /// Digest of the bytes to publish.
        expected: Digest,
        /// Digest of the bytes there.
        actual: Digest,
    },
    /// Something unusable sits under the name and comes back as often as it is moved away.
    #[error("{} can't be taken: {refusal}", path.display())]
    Occupied {
        /// The object's path.
        path: PathBuf,
        /// What is wrong with what is there.
        refusal: Box<ObjectRefusal>,
    },
    /// Another file has the name right after it was linked.
    #[error("{} was replaced while it was published", path.display())]
    Replaced {
        /// The object's path.
        path: PathBuf,
    },
    /// A folder is not trusted or can't be made.
    #[error(transparent)]
    Folder(Box<OpenError>),
    /// The system said no: no space, quota, read-only, no permission, EIO.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Many objects on their way: written one by one, then synced, linked and their folders synced at
/// once. Dropped before `finish`, it leaves nothing.
pub struct Batch<'s> {
    store: &'s Store,
    room: &'s Reservation,
    written: Vec<Written<'s>>,
}

impl Store {
    /// Publishes an object: temporary file, write and hash, sync, link, sync folder.
    ///
    /// `cancel` is asked before each chunk of 4 MiB and before each sync. Errors leave nothing
    /// behind. Bytes that are there already are verified and used.
    pub fn publish(
        &self,
        room: &Reservation,
        bytes: &[u8],
        options: PublishOptions,
        cancel: &dyn Fn() -> bool,
    ) -> Result<VerifiedObject, PublishError> {
        let written = self.write_object(room, bytes, None, cancel)?;
        written.temp.file.sync()?;
        let (object, folder) = self.link_object(&written)?;
        folder.sync()?;
        let object = match object {
            Linked::New => self.reopen_published(&written, &folder)?,
            Linked::Found(object) => object,
        };
        if options.drop_cache {
            // Advice only: the object is published whatever comes of it.
            let _ = object.file().drop_cache();
        }
        written.claim.published();
        Ok(object)
    }

    /// Starts a batch within reserved room.
    pub fn batch<'s>(&'s self, room: &'s Reservation) -> Batch<'s> {
        Batch {
            store: self,
            room,
            written: Vec::new(),
        }
    }

    /// Publishes a small file of the store (a pack, manifest, index, container record, pin).
    /// Errors with `Conflict` where the name holds other bytes.
    pub fn publish_small(
        &self,
        dir: &Dir,
        name: &str,
        bytes: &[u8],
    ) -> Result<SmallOutcome, PublishError> {
        self.writable()?;
        self.anchor()?;
        publish_small(self.fs.as_ref(), dir, name, bytes)
    }

    pub(crate) fn writable(&self) -> Result<(), PublishError> {
        if self.config.read_only {
            return Err(PublishError::ReadOnly {
                path: self.config.root.clone(),
            });
        }
        Ok(())
    }

    /// Writes a temporary file; hashes the bytes, unless that was done with this very buffer.
    fn write_object<'r>(
        &self,
        room: &'r Reservation,
        bytes: &[u8],
        hashed: Option<ObjectDigest>,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Written<'r>, PublishError> {
        self.writable()?;
        self.anchor()?;
        let total_bytes = bytes.len() as u64;
        let claim = room.claim(self, total_bytes)?;
        let temp = Temp::create(self.fs.as_ref(), self.objects_dir(), 0o444)?;
        let kind = temp.file.fs_stat()?.kind;
        let mut hasher = Hasher::default();
        let mut written_bytes = 0;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            if cancel() {
                return Err(PublishError::Cancelled {
                    written_bytes,
                    total_bytes,
                });
            }
            temp.file.write_all_at(written_bytes, chunk)?;
            if hashed.is_none() {
                hasher.update(chunk);
            }
            let chunk_bytes = chunk.len() as u64;
            pace(&temp.file, kind, written_bytes, chunk_bytes)?;
            written_bytes += chunk_bytes;
        }
        if cancel() {
            return Err(PublishError::Cancelled {
                written_bytes,
                total_bytes,
            });
        }
        Ok(Written {
            temp,
            claim,
            digest: hashed.unwrap_or_else(|| ObjectDigest(hasher.finish())),
            length: total_bytes,
        })
    }

    /// Gives a synced temporary file its content name. A taken name is verified and used; one that
    /// is refused goes to quarantine and the name is tried again.
    fn link_object(&self, written: &Written<'_>) -> Result<(Linked, Dir), PublishError> {
        let name = written.digest.to_string();
        let folder = self.make_prefix(Base::Objects, &name[..2])?;
        let mut attempts = 0;
        loop {
            match written.temp.link_to(&folder, &name) {
                Ok(()) => return Ok((Linked::New, folder)),
                Err(error) if error.kind == FsErrorKind::Exists => {}
                Err(error) => return Err(error.into()),
            }
            match self.object(&written.digest, written.length, ObjectTrust::Receipt) {
                Ok(object) => return Ok((Linked::Found(object), folder)),
                Err(refusal) => {
                    attempts += 1;
                    if attempts == LINK_ATTEMPTS || !refusal.name_is_free() {
                        return Err(PublishError::Occupied {
                            path: folder.path().join(&name),
                            refusal: Box::new(refusal),
                        });
                    }
                }
            }
        }
    }

    /// Opens a linked object anew for reading only, and proves that it is the file just written.
    fn reopen_published(
        &self,
        written: &Written<'_>,
        folder: &Dir,
    ) -> Result<VerifiedObject, PublishError> {
        let file = folder.open_file(written.digest.to_string())?;
        let ours = written.temp.file.identity()?;
        if ours != file.identity()? {
            return Err(PublishError::Replaced {
                path: file.path().to_owned(),
            });
        }
        let how = HowVerified::Published;
        Ok(VerifiedObject::new(
            written.digest,
            written.length,
            how,
            file,
        )?)
    }
}

impl Batch<'_> {
    /// Writes one object and answers its digest; it is not visible before `finish`.
    pub fn add(
        &mut self,
        bytes: &[u8],
        cancel: &dyn Fn() -> bool,
    ) -> Result<ObjectDigest, PublishError> {
        let written = self.store.write_object(self.room, bytes, None, cancel)?;
        let digest = written.digest;
        self.written.push(written);
        Ok(digest)
    }

    /// Writes one object that was hashed already; it is not visible before `finish`.
    pub fn add_payload<B: AsRef<[u8]>>(
        &mut self,
        payload: &Payload<B>,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), PublishError> {
        let (bytes, digest) = (payload.bytes(), payload.digest());
        let written = self
            .store
            .write_object(self.room, bytes, Some(digest), cancel)?;
        self.written.push(written);
        Ok(())
    }

    /// How many objects wait for `finish`. Each holds one descriptor.
    pub fn len(&self) -> usize {
        self.written.len()
    }

    /// Whether no object waits.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Syncs, links, and syncs the folders; answers the objects in the order of `add`.
    ///
    /// Errors leave each object either whole or absent.
    pub fn finish(
        self,
        options: PublishOptions,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Vec<VerifiedObject>, PublishError> {
        let total_bytes = self.written.iter().map(|written| written.length).sum();
        let mut synced_bytes = 0;
        for written in &self.written {
            if cancel() {
                return Err(PublishError::Cancelled {
                    written_bytes: synced_bytes,
                    total_bytes,
                });
            }
            written.temp.file.sync()?;
            synced_bytes += written.length;
        }
        let mut linked = Vec::with_capacity(self.written.len());
        let mut folders: Vec<Dir> = Vec::new();
        for written in &self.written {
            let (object, folder) = self.store.link_object(written)?;
            if folders.iter().all(|known| known.path() != folder.path()) {
                folders.push(folder.clone());
            }
            linked.push((object, folder));
        }
        for folder in &folders {
            folder.sync()?;
        }
        let mut objects = Vec::with_capacity(linked.len());
        for (written, (object, folder)) in self.written.into_iter().zip(linked) {
            let object = match object {
                Linked::New => self.store.reopen_published(&written, &folder)?,
                Linked::Found(object) => object,
            };
            if options.drop_cache {
                let _ = object.file().drop_cache();
            }
            written.claim.published();
            objects.push(object);
        }
        Ok(objects)
    }
}

/// Publishes a small file in any folder: temporary file, write, sync, link, sync folder. Errors
/// with `Conflict` where the name holds other bytes.
pub fn publish_small(
    fs: &dyn Fs,
    dir: &Dir,
    name: &str,
    bytes: &[u8],
) -> Result<SmallOutcome, PublishError> {
    let temp = Temp::create(fs, dir, 0o444)?;
    temp.file.write_all_at(0, bytes)?;
    temp.file.sync()?;
    let outcome = match temp.link_to(dir, name) {
        Ok(()) => SmallOutcome::Created,
        Err(error) if error.kind == FsErrorKind::Exists => {
            equal_or_conflict(dir, name, bytes)?;
            SmallOutcome::Equal
        }
        Err(error) => return Err(error.into()),
    };
    dir.sync()?;
    Ok(outcome)
}

impl PublishError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Cancelled { .. } | Self::ReadOnly { .. } => Blame::Caller,
            Self::Room(error) => error.blame(),
            Self::Conflict { .. } => Blame::Store,
            Self::Occupied { refusal, .. } => refusal.blame(),
            Self::Replaced { .. } => Blame::Host,
            Self::Folder(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }

    /// Says whether the cap, the quota or the disk has no room left, so that a fill should stop.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Room(error) => error.is_full(),
            Self::Fs(error) => is_full(error),
            Self::Folder(error) => error.as_fs().is_some_and(is_full),
            Self::Cancelled { .. }
            | Self::ReadOnly { .. }
            | Self::Conflict { .. }
            | Self::Occupied { .. }
            | Self::Replaced { .. } => false,
        }
    }
}

/// Says whether a system call failed for lack of space.
pub(crate) fn is_full(error: &FsError) -> bool {
    matches!(
        error.kind,
        FsErrorKind::NoSpace | FsErrorKind::TooLarge | FsErrorKind::Quota
    )
}

impl From<OpenError> for PublishError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Fs(error) => Self::Fs(error),
            other => Self::Folder(Box::new(other)),
        }
    }
}

const CHUNK_BYTES: usize = 4 << 20;
/// How much may be dirty where write-out of a range does nothing.
const SYNC_BYTES: u64 = 16 << 20;
const LINK_ATTEMPTS: u32 = 3;

enum Linked {
    New,
    Found(VerifiedObject),
}

/// A temporary file whose bytes were all written and hashed; not synced yet.
struct Written<'r> {
    temp: Temp,
    claim: Claim<'r>,
    digest: ObjectDigest,
    length: u64,
}

/// A file that is not published yet. Dropped, it is gone.
pub(crate) struct Temp {
    pub(crate) file: File,
    name: TempName,
}

enum TempName {
    Unnamed,
    Named { dir: Dir, name: String },
}

impl Temp {
    /// Makes an unnamed file, or one with a random name where the file system has none such.
    pub(crate) fn create(fs: &dyn Fs, dir: &Dir, mode: u32) -> Result<Self, FsError> {
        match dir.create_unnamed(mode) {
            Ok(file) => Ok(Self {
                file,
                name: TempName::Unnamed,
            }),
            Err(error) if error.kind == FsErrorKind::Unsupported => {
                Self::create_named(fs, dir, mode)
            }
            Err(error) => Err(error),
        }
    }

    fn create_named(fs: &dyn Fs, dir: &Dir, mode: u32) -> Result<Self, FsError> {
        let name = format!("{TEMP_PREFIX}{}", random_hex(fs)?);
        let file = dir.create_new(&name, mode)?;
        let dir = dir.clone();
        Ok(Self {
            file,
            name: TempName::Named { dir, name },
        })
    }

    /// Gives the file a name that must be free.
    pub(crate) fn link_to(&self, target: &Dir, target_name: &str) -> Result<(), FsError> {
        match &self.name {
            TempName::Unnamed => target.link(&self.file, target_name),
            TempName::Named { dir, name } => match dir.rename_new(name, target, target_name) {
                Err(error) if error.kind == FsErrorKind::Unsupported => {
                    target.link(&self.file, target_name)
                }
                other => other,
            },
        }
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if let TempName::Named { dir, name } = &self.name {
            // After a rename there is no such name; else gc takes what stays behind.
            let _ = dir.unlink(name);
        }
    }
}

/// Keeps the dirty pages, and so the last sync, small: the chunk just written goes out while the
/// next is hashed, and the one before it is waited for.
fn pace(file: &File, kind: FsKind, offset: u64, chunk_bytes: u64) -> Result<(), FsError> {
    if !kind.writes_out() {
        if (offset + chunk_bytes).is_multiple_of(SYNC_BYTES) {
            file.sync_content()?;
        }
        return Ok(());
    }
    file.write_out(offset, chunk_bytes, false)?;
    match offset.checked_sub(CHUNK_BYTES as u64) {
        Some(before) => file.write_out(before, CHUNK_BYTES as u64, true),
        None => Ok(()),
    }
}

pub(crate) fn random_hex(fs: &dyn Fs) -> Result<String, FsError> {
    let mut bytes = [0u8; 16];
    fs.random(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn equal_or_conflict(dir: &Dir, name: &str, bytes: &[u8]) -> Result<(), PublishError> {
    let file = dir.open_file(name)?;
    let actual = hash_all(&file)?;
    let expected = Digest::of(bytes);
    if actual != expected {
        return Err(PublishError::Conflict {
            path: file.path().to_owned(),
            expected,
            actual,
        });
    }
    Ok(())
}

fn hash_all(file: &File) -> Result<Digest, FsError> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 64 << 10];
    let mut offset = 0;
    loop {
        let filled = file.read_full_at(offset, &mut buffer)?;
        hasher.update(&buffer[..filled]);
        offset += filled as u64;
        if filled < buffer.len() {
            return Ok(hasher.finish());
        }
    }
}
