//! Room: how much a stager may write, agreed on between all stagers before the first byte.
//!
//! A reservation is a small file in the stage root that its stager holds locked; its content is the
//! count of bytes still to come. Entries are read and made under one short lock, so two stagers
//! can't both take the last room. A dead stager's entry is unlocked: the next one removes it with
//! the folder of the same digits.
//!
//! Invariants:
//! - free blocks of the file system, available memory and the tightest control group each keep
//!   `min_free_bytes` beyond what all stagers reserved; what the host can't say limits nothing;
//! - no room is taken by pre-sizing a file.
//!
//! Never: waits for a stager that is at work.

use crate::collect::remove_tree;
use crate::models::models_dir;
use crate::name::{ROOM_PREFIX, TEMP_PREFIX};
use crate::root::StageRoot;
use packhouse_base::Blame;
use packhouse_base::units;
use packhouse_sys::fs::{Dir, File, FsError, FsErrorKind, LockKind};
use packhouse_sys::memory::MemoryRoom;
use std::sync::atomic::{AtomicU64, Ordering};

/// What bounds the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Free blocks of the stage root's file system.
    FileSystem,
    /// Memory of the host.
    Memory,
    /// The limit of a control group.
    Group,
}

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageRoom {
    /// Bytes that the file system has free.
    pub free_bytes: u64,
    /// What the host says of its memory.
    pub memory: MemoryRoom,
    /// Bytes that other stagers still have to write.
    pub reserved_bytes: u64,
    /// Bytes that must stay free.
    pub min_free_bytes: u64,
}

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoomError {
    /// Too little is free.
    #[error(
        "{} wanted, {bound} has {} free, of which {} are reserved and {} stay free",
        units::bytes(*wanted_bytes), units::bytes(*free_bytes), units::bytes(room.reserved_bytes),
        units::bytes(room.min_free_bytes)
    )]
    Short {
        /// Bytes wanted.
        wanted_bytes: u64,
        /// What has too little.
        bound: Bound,
        /// Bytes that it has.
        free_bytes: u64,
        /// All that there is.
        room: StageRoom,
    },
    /// Another process held the lock for all of the timeout.
    #[error("another process held the room lock for {} ms", timeout_ns / 1_000_000)]
    Busy {
        /// How long was waited.
        timeout_ns: u64,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// Room for one stage; given back when dropped, or at death.
pub(crate) struct Reservation {
    entry: File,
    dir: Dir,
    digits: String,
    left_bytes: AtomicU64,
}

impl StageRoom {
    /// Says whether so many bytes fit. Errors with the tightest bound.
    fn admit(&self, wanted_bytes: u64) -> Result<(), RoomError> {
        let bounds = [
            (Bound::FileSystem, Some(self.free_bytes)),
            (Bound::Memory, self.memory.available_bytes),
            (Bound::Group, self.memory.group_bytes),
        ];
        let known = bounds
            .into_iter()
            .filter_map(|(bound, bytes)| Some((bytes?, bound)));
        let Some((free_bytes, bound)) = known.min_by_key(|(bytes, _)| *bytes) else {
            return Ok(());
        };
        let kept_bytes = self.reserved_bytes.saturating_add(self.min_free_bytes);
        if wanted_bytes <= free_bytes.saturating_sub(kept_bytes) {
            return Ok(());
        }
        Err(RoomError::Short {
            wanted_bytes,
            bound,
            free_bytes,
            room: *self,
        })
    }
}

impl StageRoot {
    /// Reserves room, after removing what dead stagers left.
    pub(crate) fn reserve(
        &self,
        wanted_bytes: u64,
        min_free_bytes: u64,
        memory: fn() -> MemoryRoom,
    ) -> Result<Reservation, RoomError> {
        let guard = self.lock_room()?;
        let reserved_bytes = self.sweep(false)?.reserved_bytes;
        let room = StageRoom {
            free_bytes: self.dir.fs_stat()?.free_bytes,
            memory: memory(),
            reserved_bytes,
            min_free_bytes,
        };
        room.admit(wanted_bytes)?;
        let digits = self.random_digits()?;
        let entry = self
            .dir
            .create_new(format!("{ROOM_PREFIX}{digits}"), 0o600)?;
        let reservation = Reservation {
            entry,
            dir: self.dir.clone(),
            digits,
            left_bytes: AtomicU64::new(wanted_bytes),
        };
        // Held by this process only, so a try is enough.
        if !reservation.entry.try_lock(LockKind::Exclusive, 0, 1)? {
            return Err(RoomError::Busy { timeout_ns: 0 });
        }
        reservation.write_entry(wanted_bytes)?;
        drop(guard);
        Ok(reservation)
    }

    pub(crate) fn lock_room(&self) -> Result<File, RoomError> {
        let file = self.lock_file()?;
        let (clock, range) = (self.clock.as_ref(), (ROOM_OFFSET, 1));
        if file.lock_within(clock, LockKind::Exclusive, range, ROOM_WAIT_NS)? {
            return Ok(file);
        }
        Err(RoomError::Busy {
            timeout_ns: ROOM_WAIT_NS,
        })
    }

    /// Adds up the reservations of live stagers, and removes what dead ones left; under the room
    /// lock, without which an entry that is not locked yet would look dead.
    pub(crate) fn sweep(&self, dry_run: bool) -> Result<Sweep, FsError> {
        let mut sweep = Sweep::default();
        let mut live = Vec::new();
        let names = self.dir.list()?;
        let names: Vec<&str> = names.iter().filter_map(|name| name.to_str()).collect();
        for (name, digits) in with_prefix(&names, ROOM_PREFIX) {
            let file = match self.dir.open_file(name) {
                Ok(file) => file,
                Err(error) if error.kind == FsErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if file.try_lock(LockKind::Shared, 0, 1)? {
                // The folder goes first: without an entry it would be judged the same.
                sweep.dead_names.push(name.to_owned());
                continue;
            }
            live.push(digits);
            let bytes = file.read_small(ENTRY_BYTES)?;
            let text = std::str::from_utf8(&bytes).unwrap_or_default();
            // An entry that nobody could have torn but a bug reads as nothing.
            let count: u64 = text.parse().unwrap_or(0);
            sweep.reserved_bytes = sweep.reserved_bytes.saturating_add(count);
        }
        sweep.remove_dead(&self.dir, &names, &live, dry_run)?;
        if let Some(models) = models_dir(self)? {
            let names = models.list()?;
            let names: Vec<&str> = names.iter().filter_map(|name| name.to_str()).collect();
            sweep.remove_dead(&models, &names, &live, dry_run)?;
        }
        if !dry_run {
            for name in &sweep.dead_names {
                remove_tree(&self.dir, name, false)?;
            }
        }
        Ok(sweep)
    }

    pub(crate) fn random_digits(&self) -> Result<String, FsError> {
        let mut bytes = [0u8; 16];
        self.fs.random(&mut bytes)?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// What a look at the unfinished entries found.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pub(crate) reserved_bytes: u64,
    pub(crate) temp_count: u64,
    pub(crate) temp_bytes: u64,
    dead_names: Vec<String>,
}

impl Sweep {
    /// Removes the unfinished entries of a folder whose stagers are dead.
    fn remove_dead(
        &mut self,
        dir: &Dir,
        names: &[&str],
        live: &[&str],
        dry_run: bool,
    ) -> Result<(), FsError> {
        for (name, digits) in with_prefix(names, TEMP_PREFIX) {
            if !live.contains(&digits) {
                self.temp_count += 1;
                self.temp_bytes += remove_tree(dir, name, dry_run)?;
            }
        }
        Ok(())
    }
}

impl Reservation {
    /// The name of the folder that it is for.
    pub(crate) fn temp_name(&self) -> String {
        format!("{TEMP_PREFIX}{}", self.digits)
    }

    /// Takes bytes out: they are on the file system now, and count there.
    pub(crate) fn written(&self, bytes: u64) {
        let before = self.left_bytes.fetch_sub(bytes, Ordering::AcqRel);
        // An entry that says too much keeps others out until this stager ends; that is all.
        let _ = self.write_entry(before.saturating_sub(bytes));
    }

    /// A fixed width in one write, so that a reader sees the old or the new count.
    fn write_entry(&self, left_bytes: u64) -> Result<(), FsError> {
        self.entry
            .write_all_at(0, format!("{left_bytes:020}").as_bytes())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // What stays behind is unlocked, and the next stager removes it.
        let _ = self.dir.unlink(format!("{ROOM_PREFIX}{}", self.digits));
    }
}

impl RoomError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Short { .. } | Self::Busy { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::FileSystem => "the stage's file system",
            Self::Memory => "the host's memory",
            Self::Group => "the control group's memory",
        })
    }
}

/// The byte of the lock that guards reservations.
pub(crate) const ROOM_OFFSET: u64 = 0;

const ROOM_WAIT_NS: u64 = 10_000_000_000;
const ENTRY_BYTES: u64 = 20;

fn with_prefix<'n>(
    names: &'n [&'n str],
    prefix: &'static str,
) -> impl Iterator<Item = (&'n str, &'n str)> {
    names
        .iter()
        .filter_map(move |name| Some((*name, name.strip_prefix(prefix)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(free: u64, available: Option<u64>, group: Option<u64>) -> StageRoom {
        StageRoom {
            free_bytes: free,
            memory: MemoryRoom {
                available_bytes: available,
                group_bytes: group,
            },
            reserved_bytes: 10,
            min_free_bytes: 20,
        }
    }

    #[test]
    fn each_bound_can_be_the_tightest_and_is_named() {
        assert_eq!(room(130, None, None).admit(100), Ok(()));
        let cases = [
            (room(129, Some(500), Some(500)), Bound::FileSystem),
            (room(500, Some(129), None), Bound::Memory),
            (room(500, Some(500), Some(129)), Bound::Group),
        ];
        for (room, tightest) in cases {
            let error = room.admit(100).expect_err("because one byte is missing");
            let RoomError::Short {
                bound, free_bytes, ..
            } = error
            else {
                panic!("expected a shortage, found {error:?}");
            };
            assert_eq!((bound, free_bytes), (tightest, 129));
            assert!(error_text(&room).contains("129 B free, of which 10 B are reserved and 20 B"));
        }
        assert!(room(0, None, None).admit(u64::MAX).is_err());
    }

    fn error_text(room: &StageRoom) -> String {
        room.admit(100)
            .expect_err("because one byte is missing")
            .to_string()
    }
}
