//! Collecting: what is old, too much, damaged or left over; and removing what somebody asks to.
//!
//! Invariants:
//! - the choice is made before the first removal, so a dry run tells the same list;
//! - temporary files that have a writer stay, and so do the images of a key that has one, unless
//!   somebody asks by name for these to go;
//! - what is none of ours by its name stays and is told, whatever it is; a file of an image's name
//!   that no serve can use goes, whichever format it was written in;
//! - what the system would not let be read stays and is told.
//!
//! Removing a name is harmless to who has the file open.

use crate::folder::Folder;
use crate::lock::{LOCK_WAIT_NS, lock};
use crate::removed::{Removal, Why};
use crate::stem::KeyStem;
use crate::survey::{DAY_NS, KeyFound, Stray, Survey, age_ns};
use crate::sweep::{Doomed, stale_temps, sweep};
use crate::verify::{ImageFault, judge_header};
use packhouse_base::Blame;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::FsError;
use std::collections::{BTreeMap, BTreeSet};

/// What a collection keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of images and temporary files. `None`: no bound.
    pub max_bytes: Option<u64>,
    /// Keys and records last used longer ago than this go. `None`: age alone removes nothing.
    pub max_age_ns: Option<u64>,
}

/// What a collection did, or would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collected {
    /// What was removed, and what could not be.
    pub removal: Removal,
    /// Bytes of images and temporary files before.
    pub held_bytes: u64,
    /// Bytes by which what had to stay passes the bound.
    pub over_bytes: u64,
    /// Images that the system would not let be read; they stay.
    pub unread: Vec<ImageFault>,
    /// What is none of ours; it stays.
    pub strays: Vec<Stray>,
}

/// Which images are asked to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// Those of the one key that begins with these hex digits, 8 to 64 of them.
    Key(&'a str),
    /// All.
    All,
}

/// Why nothing was collected or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// Not the beginning of a key.
    #[error("key {text:?}: expected 8 to 32 lower-case hex digits")]
    Prefix {
        /// What was given.
        text: String,
    },
    /// No image and no owner record has this key.
    #[error("no image of key {text}")]
    Absent {
        /// What was given.
        text: String,
    },
    /// More than one key begins so.
    #[error("key {text} is the beginning of {}", keys.join(", "))]
    Ambiguous {
        /// What was given.
        text: String,
        /// The keys.
        keys: Vec<String>,
    },
    /// Another process held the lock for all of the time.
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

impl CollectError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Prefix { .. } | Self::Absent { .. } | Self::Ambiguous { .. } => Blame::Caller,
            Self::Busy { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Removes what is stale, damaged, abandoned, too old or too much, in this order, or only says
/// what. Of too much, the least recently used keys go.
///
/// # Errors
/// When the lock is not had or the folder can't be listed; nothing was removed then.
pub fn collect(
    folder: &Folder,
    clock: &dyn Clock,
    limits: Limits,
    dry_run: bool,
) -> Result<Collected, CollectError> {
    locked(folder, clock, dry_run, || {
        let now_ns = clock.wall_ns();
        let survey = Survey::take(folder, now_ns)?;
        let mut choice = Choice::new(&survey, now_ns);
        choice.leftovers(folder);
        choice.abandoned();
        choice.old(limits.max_age_ns);
        choice.too_much(limits.max_bytes);
        choice.orphans(limits.max_age_ns.unwrap_or(u64::MAX).min(ORPHAN_NS));
        let (held_bytes, kept_bytes) = (survey.held_bytes(), choice.kept_bytes);
        let over_bytes = limits
            .max_bytes
            .map_or(0, |max| kept_bytes.saturating_sub(max));
        Ok(Collected {
            removal: sweep(folder, &choice.doomed, dry_run),
            held_bytes,
            over_bytes,
            unread: choice.unread,
            strays: survey.strays.clone(),
        })
    })
}

/// Removes the images of a key, or all, with the owner records that name them and what dead writers
/// left, or only says what.
///
/// # Errors
/// When no key or more than one is meant, the lock is not had, or the folder can't be listed;
/// nothing was removed then.
pub fn remove(
    folder: &Folder,
    clock: &dyn Clock,
    selection: Selection<'_>,
    dry_run: bool,
) -> Result<Removal, CollectError> {
    locked(folder, clock, dry_run, || {
        let now_ns = clock.wall_ns();
        let survey = Survey::take(folder, now_ns)?;
        let stem = match selection {
            Selection::Key(prefix) => Some(meant(&survey, prefix)?),
            Selection::All => None,
        };
        let is_meant = |other: &KeyStem| stem.as_ref().is_none_or(|stem| stem == other);
        let images = survey.images.iter();
        let images = images.filter(|found| is_meant(&KeyStem::of_name(&found.name)));
        let mut doomed: Vec<_> = images
            .map(|found| Doomed::image(found, Why::Asked))
            .collect();
        let records = survey.records.iter().filter(|found| match &found.record {
            Ok(record) => is_meant(&KeyStem::of(&record.key)),
            Err(_) => stem.is_none(),
        });
        doomed.extend(records.map(|found| Doomed::record(found, Why::Asked)));
        doomed.extend(stale_temps(&survey, now_ns));
        Ok(sweep(folder, &doomed, dry_run))
    })
}

/// A dry run changes nothing, so it needs no lock, and makes no file to lock.
fn locked<T>(
    folder: &Folder,
    clock: &dyn Clock,
    dry_run: bool,
    work: impl FnOnce() -> Result<T, CollectError>,
) -> Result<T, CollectError> {
    if dry_run {
        return work();
    }
    let _guard = lock(folder, clock)?.ok_or(CollectError::Busy {
        folder: folder.path().display().to_string(),
        timeout_ns: LOCK_WAIT_NS,
    })?;
    work()
}

/// The one key that begins so.
fn meant(survey: &Survey, prefix: &str) -> Result<KeyStem, CollectError> {
    let text = || prefix.to_owned();
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if !(PREFIX_MIN..=PREFIX_MAX).contains(&prefix.len()) || !prefix.bytes().all(is_hex) {
        return Err(CollectError::Prefix { text: text() });
    }
    let images = survey
        .images
        .iter()
        .map(|found| KeyStem::of_name(&found.name));
    let records = survey
        .records
        .iter()
        .filter_map(|found| found.record.as_ref().ok());
    let stems = images.chain(records.map(|record| KeyStem::of(&record.key)));
    let stems: BTreeSet<_> = stems
        .filter(|stem| stem.text().starts_with(prefix))
        .collect();
    let mut stems = stems.into_iter();
    match (stems.next(), stems.next()) {
        (None, _) => Err(CollectError::Absent { text: text() }),
        (Some(stem), None) => Ok(stem),
        (Some(first), Some(second)) => {
            let all = [first, second].into_iter().chain(stems);
            Err(CollectError::Ambiguous {
                text: text(),
                keys: all.map(|stem| stem.to_string()).collect(),
            })
        }
    }
}

const PREFIX_MIN: usize = 8;
const PREFIX_MAX: usize = 32;

/// A record whose key has no file is of no use to anybody after 30 days.
const ORPHAN_NS: u64 = 30 * DAY_NS;

/// What goes, chosen step by step; each step sees what the ones before it left.
struct Choice<'s> {
    survey: &'s Survey,
    now_ns: i64,
    /// What is left of the keys.
    keys: BTreeMap<KeyStem, KeyFound>,
    kept_bytes: u64,
    doomed: Vec<Doomed>,
    unread: Vec<ImageFault>,
}

impl<'s> Choice<'s> {
    fn new(survey: &'s Survey, now_ns: i64) -> Self {
        Self {
            survey,
            now_ns,
            keys: survey.keys(now_ns),
            kept_bytes: survey.held_bytes(),
            doomed: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Stale temporary files, and what no serve can use.
    fn leftovers(&mut self, folder: &Folder) {
        for temp in stale_temps(self.survey, self.now_ns) {
            self.doom_held(temp);
        }
        let mut damaged = Vec::new();
        for key in self.keys.values_mut().filter(|key| !key.young_temp) {
            key.images
                .retain(|image| match judge_header(folder, &image.name) {
                    Ok(_) => true,
                    Err(fault) if fault.is_damage() => {
                        let reason = fault.to_string();
                        damaged.push(Doomed::image(image, Why::Damaged { reason }));
                        false
                    }
                    Err(fault) => {
                        self.unread.push(fault);
                        true
                    }
                });
        }
        damaged.into_iter().for_each(|image| self.doom_held(image));
        self.keys.retain(|_, key| !key.images.is_empty());
        for found in &self.survey.records {
            let Err(fault) = &found.record else { continue };
            if fault.is_damage() {
                let reason = fault.to_string();
                self.doomed
                    .push(Doomed::record(found, Why::Damaged { reason }));
            }
        }
    }

    /// Keys that no record names. Where a record can't be read, nobody can say which those are.
    fn abandoned(&mut self) {
        if !self.survey.is_clear() {
            return;
        }
        for stem in self.by_last_use() {
            let key = &self.keys[&stem];
            if key.is_abandoned(self.now_ns) {
                let unused_ns = key.unused_ns(self.now_ns);
                self.doom_key(&stem, &Why::Abandoned { unused_ns });
            }
        }
    }

    fn old(&mut self, max_age_ns: Option<u64>) {
        let Some(max_age_ns) = max_age_ns else { return };
        for stem in self.by_last_use() {
            let unused_ns = self.keys[&stem].unused_ns(self.now_ns);
            if unused_ns > max_age_ns {
                self.doom_key(&stem, &Why::Age { unused_ns });
            }
        }
    }

    fn too_much(&mut self, max_bytes: Option<u64>) {
        let Some(max_bytes) = max_bytes else { return };
        for stem in self.by_last_use() {
            if self.kept_bytes <= max_bytes {
                break;
            }
            self.doom_key(&stem, &Why::Room);
        }
    }

    /// Records of keys that have no file left, when they are old.
    fn orphans(&mut self, max_age_ns: u64) {
        for found in &self.survey.records {
            let Ok(record) = &found.record else { continue };
            let is_old = age_ns(&found.stat, self.now_ns) > max_age_ns;
            if is_old && !self.keys.contains_key(&KeyStem::of(&record.key)) {
                self.doomed.push(Doomed::record(found, Why::Orphan));
            }
        }
    }

    /// The keys that may go, least recently used first.
    fn by_last_use(&self) -> Vec<KeyStem> {
        let may_go = self.keys.iter().filter(|(_, key)| !key.young_temp);
        let mut order: Vec<_> = may_go.map(|(stem, key)| (key.last_use_ns, stem)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, stem)| stem.clone()).collect()
    }

    fn doom_key(&mut self, stem: &KeyStem, why: &Why) {
        let Some(key) = self.keys.remove(stem) else {
            return;
        };
        for image in &key.images {
            self.doom_held(Doomed::image(image, why.clone()));
        }
    }

    fn doom_held(&mut self, entry: Doomed) {
        self.kept_bytes = self.kept_bytes.saturating_sub(entry.held_bytes());
        self.doomed.push(entry);
    }
}
