//! Room for the images of a head, within a cap and above a floor of free space.
//!
//! Invariants:
//! - what goes is whole keys, least recently used first, and never the key that room is made for or
//!   one that somebody is writing or used within the last ten minutes: two that start at once and
//!   fit no cap together would remove each other's images for ever;
//! - when all that may go is not enough, nothing goes: a head larger than the cap thrashes nobody;
//! - what is older than the settings allow goes along, whether its room is needed or not.
//!
//! The cap is about the lengths of all images and temporary files, to the byte. The floor is about
//! what the file system says is free; a file with a second name frees nothing there. Writers that
//! make room at once may pass the cap together by what they write; the next one is held to it.

use crate::folder::Folder;
use crate::key::ImageKey;
use crate::lock::{LOCK_WAIT_NS, lock, lock_file};
use crate::removed::{Removal, Removed, Why};
use crate::settings::Settings;
use crate::stem::KeyStem;
use crate::survey::{KeyFound, MINUTE_NS, Place, Survey};
use crate::sweep::{Doomed, stale_temps, sweep};
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{FsError, FsErrorKind};
use std::collections::BTreeMap;

/// What is about to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes of all images of the key, those that are there included.
    pub set_bytes: u64,
    /// Bytes of one image.
    pub image_bytes: u64,
}

/// What making room came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What was removed.
    pub removed: Vec<Removed>,
    /// Why there is no room; nothing was removed then, unless it could only be removed in part.
    pub refused: Option<NoRoom>,
    /// What should have gone and could not be removed.
    pub failures: Vec<FsError>,
}

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The cap would be passed.
    #[error(
        "the head needs {set_bytes} bytes of images, and the cap of {cap_bytes} bytes leaves it \
         {}: {recent_bytes} are of heads used within the last {} minutes, {writing_bytes} are \
         being written",
        cap_bytes.saturating_sub(recent_bytes.saturating_add(*writing_bytes)),
        RECENT_NS / MINUTE_NS
    )]
    Cap {
        /// Bytes of all images of the key.
        set_bytes: u64,
        /// The cap.
        cap_bytes: u64,
        /// Bytes of others that stay because they were used just now.
        recent_bytes: u64,
        /// Bytes of others that stay because somebody writes them, or images of their key.
        writing_bytes: u64,
    },
    /// The free space would fall below the floor.
    #[error(
        "{wanted_bytes} bytes wanted, the disk has {free_bytes} bytes free, {evictable_bytes} more \
         could go, and {min_free_bytes} stay free"
    )]
    Free {
        /// Bytes to be written.
        wanted_bytes: u64,
        /// Bytes free.
        free_bytes: u64,
        /// Bytes that removals would free.
        evictable_bytes: u64,
        /// Bytes that stay free.
        min_free_bytes: u64,
    },
    /// Something has to go, and another process held the lock for all of the time.
    #[error("another process held the lock of {folder} for {} ms", timeout_ns / 1_000_000)]
    Busy {
        /// The folder.
        folder: String,
        /// How long was waited.
        timeout_ns: u64,
    },
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl NoRoom {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Cap { .. } | Self::Free { .. } | Self::Busy { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Makes room for the images of `keep`; what is there of them counts as theirs.
pub fn make_room(
    folder: &Folder,
    clock: &dyn Clock,
    settings: &Settings,
    keep: &ImageKey,
    wanted: Wanted,
) -> Room {
    let refuse = |refused| Room {
        refused: Some(refused),
        ..Room::default()
    };
    // Without the lock first: nearly always there is room, and nobody needs to wait.
    let choice = match plan(folder, clock, settings, keep, wanted) {
        Ok(choice) if choice.doomed.is_empty() => return Room::default(),
        Ok(choice) => choice,
        // Where nothing can be written, that is the reason, not a bound.
        Err(refused) => return refuse(unwritable(folder).map_or(refused, NoRoom::Fs)),
    };
    let _guard = match lock(folder, clock) {
        Ok(Some(guard)) => guard,
        Ok(None) | Err(_) if !choice.is_needed => return Room::default(),
        Ok(None) => {
            return refuse(NoRoom::Busy {
                folder: folder.path().display().to_string(),
                timeout_ns: LOCK_WAIT_NS,
            });
        }
        Err(error) => return refuse(error.into()),
    };
    let choice = match plan(folder, clock, settings, keep, wanted) {
        Ok(choice) => choice,
        Err(refused) => return refuse(refused),
    };
    let Removal { removed, failures } = sweep(folder, &choice.doomed, false);
    let failed = failures.first().filter(|_| choice.is_needed);
    Room {
        removed,
        refused: failed.cloned().map(NoRoom::Fs),
        failures,
    }
}

/// What the system says to a write on a file system that is mounted read-only.
fn unwritable(folder: &Folder) -> Option<FsError> {
    let error = lock_file(folder).err()?;
    (error.kind == FsErrorKind::ReadOnly).then_some(error)
}

/// Who used a key within ten minutes may be starting now.
pub(crate) const RECENT_NS: u64 = 10 * MINUTE_NS;

/// The cap when nobody says otherwise: a fifth of the file system.
const CAP_DIVISOR: u64 = 5;

/// Chooses what has to go.
fn plan(
    folder: &Folder,
    clock: &dyn Clock,
    settings: &Settings,
    keep: &ImageKey,
    wanted: Wanted,
) -> Result<Choice, NoRoom> {
    let fs = folder.images().fs_stat()?;
    let now_ns = clock.wall_ns();
    let survey = Survey::take(folder, now_ns)?;
    let bounds = Bounds {
        cap_bytes: settings.max_bytes.unwrap_or(fs.total_bytes / CAP_DIVISOR),
        free_bytes: fs.free_bytes,
        min_free_bytes: settings.min_free_bytes,
        max_age_ns: settings.max_age_ns.unwrap_or(u64::MAX),
    };
    choose(&survey, now_ns, bounds, &KeyStem::of(keep), wanted)
}

/// What has to go, or may as well.
struct Choice {
    doomed: Vec<Doomed>,
    /// Without it there is no room; otherwise it is only old.
    is_needed: bool,
}

/// Where room ends.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    cap_bytes: u64,
    free_bytes: u64,
    min_free_bytes: u64,
    max_age_ns: u64,
}

fn choose(
    survey: &Survey,
    now_ns: i64,
    bounds: Bounds,
    keep: &KeyStem,
    wanted: Wanted,
) -> Result<Choice, NoRoom> {
    let keys = survey.keys(now_ns);
    let own = keys.get(keep);
    let others_bytes = (survey.held_bytes()).saturating_sub(own.map_or(0, |key| key.bytes));
    // A file of another length will be replaced: it counts as what it is to become.
    let own = own.map_or(&[][..], |key| &key.images).iter();
    let own_bytes = own.map(|image| image.stat.size.min(wanted.image_bytes));
    let own_bytes = own_bytes.fold(0, u64::saturating_add);
    let set_bytes = wanted.set_bytes;
    let new_bytes = set_bytes.saturating_sub(own_bytes).max(wanted.image_bytes);
    // What each bound still asks for.
    let mut over_cap = (others_bytes.saturating_add(set_bytes)).saturating_sub(bounds.cap_bytes);
    let floor = bounds.min_free_bytes.saturating_add(new_bytes);
    let mut under_floor = floor.saturating_sub(bounds.free_bytes);
    let is_needed = over_cap > 0 || under_floor > 0;
    let mut doomed = Vec::new();
    let (mut gone_bytes, mut freed_bytes) = (0u64, 0u64);
    let temps = (u64::MAX, stale_temps(survey, now_ns));
    for (unused_ns, group) in
        std::iter::once(temps).chain(victims(&keys, keep, now_ns, survey.is_clear()))
    {
        let is_old = unused_ns > bounds.max_age_ns;
        if over_cap == 0 && under_floor == 0 && !is_old {
            continue;
        }
        for mut entry in group {
            if is_old && entry.why == Why::Room {
                entry.why = Why::Age { unused_ns };
            }
            let freed = if entry.stat.link_count == 1 {
                entry.stat.allocated_bytes
            } else {
                0
            };
            gone_bytes = gone_bytes.saturating_add(entry.held_bytes());
            freed_bytes = freed_bytes.saturating_add(freed);
            over_cap = over_cap.saturating_sub(entry.held_bytes());
            under_floor = under_floor.saturating_sub(freed);
            doomed.push(entry);
        }
    }
    if over_cap > 0 {
        let writing_bytes = writing_bytes(survey, &keys, keep);
        return Err(NoRoom::Cap {
            set_bytes,
            cap_bytes: bounds.cap_bytes,
            recent_bytes: (others_bytes - gone_bytes).saturating_sub(writing_bytes),
            writing_bytes,
        });
    }
    if under_floor > 0 {
        return Err(NoRoom::Free {
            wanted_bytes: new_bytes,
            free_bytes: bounds.free_bytes,
            evictable_bytes: freed_bytes,
            min_free_bytes: bounds.min_free_bytes,
        });
    }
    Ok(Choice { doomed, is_needed })
}

/// Bytes of temporary files that have a writer, and of other keys that have such a file.
fn writing_bytes(survey: &Survey, keys: &BTreeMap<KeyStem, KeyFound>, keep: &KeyStem) -> u64 {
    let young = survey.temps.iter().filter(|temp| temp.is_young);
    let temps = young.filter(|temp| temp.place == Place::Images);
    let temps = temps.map(|temp| temp.stat.size);
    let written = keys
        .iter()
        .filter(|(stem, key)| *stem != keep && key.young_temp);
    let images = written.map(|(_, key)| key.bytes);
    temps.chain(images).fold(0, u64::saturating_add)
}

/// The keys that may go, abandoned ones first, then the least recently used, each with its age and
/// its images.
fn victims<'k>(
    keys: &'k BTreeMap<KeyStem, KeyFound>,
    keep: &KeyStem,
    now_ns: i64,
    is_clear: bool,
) -> impl Iterator<Item = (u64, Vec<Doomed>)> + use<'k> {
    let may_go = keys
        .iter()
        .filter(|(stem, key)| *stem != keep && !key.young_temp)
        .filter(move |(_, key)| key.unused_ns(now_ns) >= RECENT_NS);
    let is_abandoned = move |key: &KeyFound| is_clear && key.is_abandoned(now_ns);
    let mut order: Vec<_> = may_go.collect();
    order.sort_by_key(|(stem, key)| (!is_abandoned(key), key.last_use_ns, *stem));
    order.into_iter().map(move |(_, key)| {
        let unused_ns = key.unused_ns(now_ns);
        let why = if is_abandoned(key) {
            Why::Abandoned { unused_ns }
        } else {
            Why::Room
        };
        let images = key.images.iter();
        let doomed = images.map(|image| Doomed::image(image, why.clone()));
        (unused_ns, doomed.collect())
    })
}
