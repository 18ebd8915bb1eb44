//! Room: how much a fill may write, agreed on between all fillers before the first byte.
//!
//! A reservation is a small file in the private state that its filler holds locked; its content is
//! the count of bytes still to come. All entries are read and made under one short lock, so two
//! fillers can't both take the last room. A dead filler's entry is unlocked: the next one removes
//! it.
//!
//! Invariants:
//! - the store's objects, the open reservations and the new one together stay within the cap;
//! - the file system keeps `min_free_bytes` free, each claim asks again;
//! - no room is taken by pre-sizing a file.
//!
//! Never: waits for a filler; a stopped one costs a refusal after the timeout.

use crate::lock::{LockError, ROOM_OFFSET};
use crate::publish::{is_full, random_hex};
use crate::root::{OpenError, Store};
use packhouse_base::Blame;
use packhouse_base::units;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, LockKind};
use packhouse_sys::stat::FileKind;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room for a fill; given back when dropped, or at death.
#[derive(Debug)]
pub struct Reservation {
    entry: File,
    dir: Dir,
    name: String,
    /// Not claimed yet.
    left_bytes: AtomicU64,
    /// Not published yet: what the entry says.
    unpublished_bytes: AtomicU64,
}

/// A part of a reservation that is being written. Dropped before `published`, it goes back.
#[derive(Debug)]
pub(crate) struct Claim<'r> {
    room: &'r Reservation,
    bytes: u64,
}

/// What the store may hold and holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Cap on the objects' bytes.
    pub cap_bytes: u64,
    /// Bytes on disk of all objects.
    pub held_bytes: u64,
    /// Bytes that other fillers still have to write.
    pub reserved_bytes: u64,
    /// Bytes that the file system has free.
    pub free_bytes: u64,
    /// Bytes that it must keep free.
    pub min_free_bytes: u64,
}

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoomError {
    /// The store's cap would be passed.
    #[error(
        "{} wanted, the store's cap of {} leaves {}",
        units::bytes(*wanted_bytes), units::bytes(room.cap_bytes), units::bytes(room.cap_left())
    )]
    Cap {
        /// Bytes wanted.
        wanted_bytes: u64,
        /// What there is.
        room: Room,
    },
    /// The file system's free space would fall below the minimum.
    #[error(
        "{} wanted, the disk has {} free beyond reservations and keeps {}",
        units::bytes(*wanted_bytes),
        units::bytes(*free_bytes),
        units::bytes(*min_free_bytes)
    )]
    Free {
        /// Bytes wanted.
        wanted_bytes: u64,
        /// Bytes free, less what others reserved.
        free_bytes: u64,
        /// Bytes that stay free.
        min_free_bytes: u64,
    },
    /// A claim beyond what was reserved.
    #[error("{wanted_bytes} bytes wanted, {left_bytes} are left of the reservation")]
    Spent {
        /// Bytes wanted.
        wanted_bytes: u64,
        /// Bytes left.
        left_bytes: u64,
    },
    /// Another filler held the lock for all of the timeout.
    #[error("another process held the room lock for {} ms", timeout_ns / 1_000_000)]
    Busy {
        /// How long was waited.
        timeout_ns: u64,
    },
    /// No lock could be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A folder is not trusted.
    #[error(transparent)]
    Folder(Box<OpenError>),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Store {
    /// Reserves room for a fill of `wanted_bytes` in all. Errors when the cap or the free space do
    /// not allow it, or when the lock is not had within `timeout_ns` (0: only tried).
    pub fn reserve(&self, wanted_bytes: u64, timeout_ns: u64) -> Result<Reservation, RoomError> {
        let guard = self
            .lock_range(ROOM_OFFSET, timeout_ns)?
            .ok_or(RoomError::Busy { timeout_ns })?;
        let dir = self.room_dir()?;
        let room = self.room_in(&dir)?;
        room.admit(wanted_bytes)?;
        let name = random_hex(self.fs.as_ref())?;
        let entry = dir.create_new(&name, 0o600)?;
        let reservation = Reservation {
            entry,
            dir,
            name,
            left_bytes: AtomicU64::new(wanted_bytes),
            unpublished_bytes: AtomicU64::new(wanted_bytes),
        };
        // Held by this process only, so a try is enough.
        if !reservation.entry.try_lock(LockKind::Exclusive, 0, 1)? {
            return Err(RoomError::Busy { timeout_ns: 0 });
        }
        reservation.write_entry(wanted_bytes)?;
        drop(guard);
        Ok(reservation)
    }

    /// Says what the store may hold and holds, without reserving. It may change at once.
    /// Errors when the lock is not had within `timeout_ns`.
    pub fn room(&self, timeout_ns: u64) -> Result<Room, RoomError> {
        let _guard = self
            .lock_range(ROOM_OFFSET, timeout_ns)?
            .ok_or(RoomError::Busy { timeout_ns })?;
        let dir = self.room_dir()?;
        self.room_in(&dir)
    }

    fn room_dir(&self) -> Result<Dir, RoomError> {
        let state = self
            .state()
            .map_err(|error| LockError::NoState(Box::new(error.clone())))?;
        Ok(state.folder_made(&[ROOM_DIR])?)
    }

    fn room_in(&self, dir: &Dir) -> Result<Room, RoomError> {
        let fs = self.objects_dir().fs_stat()?;
        Ok(Room {
            cap_bytes: self
                .config
                .max_bytes
                .unwrap_or(fs.total_bytes / CAP_DIVISOR),
            held_bytes: self.held_bytes()?,
            reserved_bytes: reserved_bytes(dir)?,
            free_bytes: fs.free_bytes,
            min_free_bytes: self.config.min_free_bytes,
        })
    }

    /// Adds up the objects' lengths.
    fn held_bytes(&self) -> Result<u64, RoomError> {
        let mut held_bytes = 0u64;
        for prefix in self.objects_dir().list()? {
            let Some(prefix) = prefix.to_str() else {
                continue;
            };
            if self.objects_dir().stat_entry(prefix)?.kind != FileKind::Directory {
                continue;
            }
            let folder = self
                .open_folder(self.objects_dir(), prefix)
                .map_err(|error| RoomError::Folder(Box::new(error)))?;
            let Some(folder) = folder else { continue };
            for name in folder.list()? {
                match folder.stat_entry(&name) {
                    Ok(stat) => held_bytes = held_bytes.saturating_add(stat.size),
                    Err(error) if error.kind == FsErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(held_bytes)
    }
}

impl Room {
    /// Bytes that the cap still leaves.
    pub fn cap_left(&self) -> u64 {
        self.cap_bytes
            .saturating_sub(self.held_bytes)
            .saturating_sub(self.reserved_bytes)
    }

    /// Bytes that the free space still leaves.
    pub fn free_left(&self) -> u64 {
        self.free_bytes
            .saturating_sub(self.reserved_bytes)
            .saturating_sub(self.min_free_bytes)
    }

    fn admit(&self, wanted_bytes: u64) -> Result<(), RoomError> {
        let room = *self;
        if wanted_bytes > self.cap_left() {
            return Err(RoomError::Cap { wanted_bytes, room });
        }
        if wanted_bytes > self.free_left() {
            return Err(RoomError::Free {
                wanted_bytes,
                free_bytes: self.free_bytes.saturating_sub(self.reserved_bytes),
                min_free_bytes: self.min_free_bytes,
            });
        }
        Ok(())
    }
}

impl Reservation {
    /// Bytes still reserved.
    pub fn left_bytes(&self) -> u64 {
        self.left_bytes.load(Ordering::Acquire)
    }

    /// Takes bytes out of the reservation, right before they are written.
    pub(crate) fn claim(&self, store: &Store, bytes: u64) -> Result<Claim<'_>, RoomError> {
        // Others fill the disk too, and know nothing of reservations.
        let free_bytes = store.objects_dir().fs_stat()?.free_bytes;
        let min_free_bytes = store.config.min_free_bytes;
        if free_bytes < min_free_bytes.saturating_add(bytes) {
            return Err(RoomError::Free {
                wanted_bytes: bytes,
                free_bytes,
                min_free_bytes,
            });
        }
        self.left_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                left.checked_sub(bytes)
            })
            .map_err(|left_bytes| RoomError::Spent {
                wanted_bytes: bytes,
                left_bytes,
            })?;
        Ok(Claim { room: self, bytes })
    }

    /// A fixed width in one write, so that a reader sees the old or the new count.
    fn write_entry(&self, left_bytes: u64) -> Result<(), FsError> {
        self.entry
            .write_all_at(0, format!("{left_bytes:020}").as_bytes())
    }
}

impl Claim<'_> {
    /// Ends the claim: the bytes are among the store's objects now.
    pub(crate) fn published(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let before = self
            .room
            .unpublished_bytes
            .fetch_sub(bytes, Ordering::AcqRel);
        // An entry that says too much keeps others out until this filler ends; that is all.
        let _ = self.room.write_entry(before - bytes);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.room.left_bytes.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // What stays behind is unlocked, and the next filler removes it.
        let _ = self.dir.unlink(&self.name);
    }
}

impl RoomError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Cap { .. } | Self::Free { .. } | Self::Busy { .. } => Blame::Host,
            Self::Spent { .. } => Blame::Caller,
            Self::Lock(error) => error.blame(),
            Self::Folder(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

impl RoomError {
    /// Says whether there is no room, as opposed to not being able to ask.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Cap { .. } | Self::Free { .. } | Self::Spent { .. } => true,
            Self::Fs(error) => is_full(error),
            Self::Busy { .. } | Self::Lock(_) | Self::Folder(_) => false,
        }
    }
}

const ROOM_DIR: &str = "room";
const CAP_DIVISOR: u64 = 5;
const ENTRY_BYTES: u64 = 20;

/// Adds up the entries of live fillers and removes those of dead ones. Under the room lock, without
/// which an entry that is not locked yet would look dead.
fn reserved_bytes(dir: &Dir) -> Result<u64, RoomError> {
    let mut reserved_bytes = 0u64;
    for name in dir.list()? {
        let file = match dir.open_file(&name) {
            Ok(file) => file,
            Err(error) if error.kind == FsErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        if file.try_lock(LockKind::Shared, 0, 1)? {
            match dir.unlink(&name) {
                Err(error) if error.kind != FsErrorKind::NotFound => return Err(error.into()),
                Ok(()) | Err(_) => continue,
            }
        }
        let bytes = file.read_small(ENTRY_BYTES)?;
        let count = std::str::from_utf8(&bytes)
            .ok()
            .and_then(|text| text.parse().ok());
        // An entry that nobody could have torn but a bug reads as nothing.
        reserved_bytes = reserved_bytes.saturating_add(count.unwrap_or(0));
    }
    Ok(reserved_bytes)
}
