//! Owners: who serves which head, and removing what an owner left behind.
//!
//! Invariants:
//! - only images of a key that an owner's own record names are removed here, and only in the
//!   geometry of that record: two geometries of one head never evict each other;
//! - the new record is durable before a file of the old key goes, and names the old key until its
//!   files are gone, so that a crash between is made good by the next claim;
//! - a key that another record names stays; where a record can't be read, nothing is removed;
//! - an image is written only once a record names its key, so that none is nobody's.
//!
//! Never: waits longer than the lock's bound, or fails a serve: a problem is told.

use crate::folder::Folder;
use crate::key::ImageKey;
use crate::lock::{LOCK_WAIT_NS, lock};
use crate::owner::Owner;
use crate::publish::{FILE_MODE, PublishError, write_small};
use crate::record::{OwnerRecord, record_name};
use crate::removed::{Removal, Removed, Why};
use crate::stem::KeyStem;
use crate::survey::{RecordFault, Survey, is_fresh, is_named, read_record};
use crate::sweep::{Doomed, stale_temps, sweep};
use packhouse_base::Blame;
use packhouse_layout::int8_tile::TileGeometry;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, Fs, FsError};

/// Who serves what.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The owner.
    pub owner: &'a Owner,
    /// Layout and sizes of its tiles.
    pub geometry: &'a TileGeometry,
    /// The key of its images.
    pub key: &'a ImageKey,
    /// Rows of the head.
    pub vocabulary: u64,
}

/// What a claim did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// What was removed.
    pub removed: Vec<Removed>,
    /// Bytes of the record, if it was written.
    pub written_bytes: u64,
    /// What was in the way.
    pub problems: Vec<ClaimProblem>,
}

/// What was in the way of a claim. The serve goes on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClaimProblem {
    /// Another process held the lock for all of the time.
    #[error("another process held the lock of {folder} for {} ms", timeout_ns / 1_000_000)]
    Busy {
        /// The folder.
        folder: String,
        /// How long was waited.
        timeout_ns: u64,
    },
    /// A record is not believed; it evicts nothing.
    #[error(transparent)]
    Damaged(#[from] RecordFault),
    /// The owner moves on, and the record has room for one key that it left.
    #[error("owner record not written: images of key {key}, which its owner left, can't go yet")]
    Pending {
        /// The key.
        key: ImageKey,
    },
    /// The record was not written.
    #[error("owner record: {0}")]
    Publish(#[from] PublishError),
    /// The system said no.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl ClaimProblem {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Busy { .. } | Self::Pending { .. } => Blame::Host,
            Self::Damaged(fault) => fault.blame(),
            Self::Publish(error) => error.blame(),
            Self::Fs(error) => error.blame(),
        }
    }
}

/// Notes that an owner is about to write images of a key, before the first is written: from then on
/// somebody names them. What the owner served before stays, noted as what it leaves, for the claim
/// that comes once an image is there. Of no effect, without lock or write, where this is noted.
pub fn announce(folder: &Folder, fs: &dyn Fs, clock: &dyn Clock, claimant: Claimant<'_>) -> Claim {
    note(folder, fs, clock, claimant, Step::Announce)
}

/// Notes that an owner serves a key now, and removes the images of the key that it left.
pub fn claim(folder: &Folder, fs: &dyn Fs, clock: &dyn Clock, claimant: Claimant<'_>) -> Claim {
    note(folder, fs, clock, claimant, Step::Claim)
}

/// How far an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No image of its key may be there yet.
    Announce,
    /// One was published or hit.
    Claim,
}

fn note(
    folder: &Folder,
    fs: &dyn Fs,
    clock: &dyn Clock,
    claimant: Claimant<'_>,
    step: Step,
) -> Claim {
    let mut claim = Claim::default();
    let Some(owners) = folder.owners() else {
        return claim;
    };
    let own = read_record(folder, owners, &claimant.name());
    if let Ok(Some((record, stat))) = &own {
        let is_noted = match step {
            Step::Announce => record.key == *claimant.key,
            Step::Claim => claimant.is_noted(record) && is_fresh(stat, clock.wall_ns()),
        };
        if is_noted {
            return claim;
        }
    }
    let guard = match lock(folder, clock) {
        Ok(Some(guard)) => guard,
        Ok(None) => {
            claim.problems.push(ClaimProblem::Busy {
                folder: folder.path().display().to_string(),
                timeout_ns: LOCK_WAIT_NS,
            });
            return claim;
        }
        Err(error) => {
            claim.problems.push(error.into());
            return claim;
        }
    };
    if let Err(problem) = note_locked(folder, fs, clock, claimant, step, &mut claim) {
        claim.problems.push(problem);
    }
    drop(guard);
    claim
}

impl Claimant<'_> {
    fn name(&self) -> String {
        record_name(self.owner, self.geometry)
    }

    fn record(&self, leaving: Option<ImageKey>) -> OwnerRecord {
        OwnerRecord {
            owner: self.owner.clone(),
            geometry: *self.geometry,
            key: *self.key,
            leaving,
            vocabulary: self.vocabulary,
        }
    }

    fn is_noted(&self, record: &OwnerRecord) -> bool {
        *record == self.record(None)
    }
}

impl Claim {
    fn add(&mut self, removal: Removal) -> bool {
        let whole = removal.failures.is_empty();
        self.removed.extend(removal.removed);
        let failures = removal.failures.into_iter();
        self.problems.extend(failures.map(ClaimProblem::Fs));
        whole
    }

    fn write(
        &mut self,
        fs: &dyn Fs,
        owners: &Dir,
        record: &OwnerRecord,
    ) -> Result<(), ClaimProblem> {
        let bytes = record.encode();
        write_small(fs, owners, &record.name(), &bytes, FILE_MODE)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }
}

/// The survey under the lock, and whether all records in it can be believed.
struct Scene<'a> {
    folder: &'a Folder,
    survey: Survey,
    own_name: String,
    is_blind: bool,
    now_ns: i64,
}

fn note_locked(
    folder: &Folder,
    fs: &dyn Fs,
    clock: &dyn Clock,
    claimant: Claimant<'_>,
    step: Step,
    claim: &mut Claim,
) -> Result<(), ClaimProblem> {
    let Some(owners) = folder.owners() else {
        return Ok(());
    };
    folder.anchor()?;
    let now_ns = clock.wall_ns();
    let survey = Survey::take(folder, now_ns)?;
    claim.add(sweep(folder, &stale_temps(&survey, now_ns), false));
    let own_name = claimant.name();
    let is_blind = tell_damage(folder, &survey, &own_name, claim);
    let scene = Scene {
        folder,
        survey,
        own_name,
        is_blind,
        now_ns,
    };
    let own = scene.survey.records.iter();
    let own = own.clone().find(|found| found.name == scene.own_name);
    let Some((Ok(record), stat)) = own.map(|found| (&found.record, found.stat)) else {
        return claim.write(fs, owners, &claimant.record(None));
    };
    // What an earlier claim left undone comes first: the record has room for one key.
    let mut leaving = record.leaving.filter(|key| key != claimant.key);
    let is_moving = record.key != *claimant.key;
    if step == Step::Announce && is_moving && scene.has_no_image(&record.key) {
        // It was announced only: what its owner left for it is what it leaves now.
        return claim.write(fs, owners, &claimant.record(leaving));
    }
    if leaving.is_some_and(|key| scene.evict(&key, claim)) {
        leaving = None;
    }
    if is_moving {
        if let Some(key) = leaving {
            return Err(ClaimProblem::Pending { key });
        }
        leaving = Some(record.key);
        claim.write(fs, owners, &claimant.record(leaving))?;
        if step == Step::Announce {
            return Ok(());
        }
        if scene.evict(&record.key, claim) {
            leaving = None;
        }
    }
    let wanted = claimant.record(leaving);
    let is_written = claim.written_bytes > 0 && leaving.is_some();
    let is_stale = wanted != *record || !is_fresh(&stat, now_ns);
    if is_stale && !is_written {
        claim.write(fs, owners, &wanted)?;
    }
    Ok(())
}

/// Tells of the records that are not believed, and removes those of other owners that are damaged:
/// their owners write them anew, and until then they would keep others from evicting.
fn tell_damage(folder: &Folder, survey: &Survey, own_name: &str, claim: &mut Claim) -> bool {
    let mut is_blind = false;
    let mut doomed = Vec::new();
    for found in &survey.records {
        let Err(fault) = &found.record else { continue };
        claim.problems.push(fault.clone().into());
        is_blind = true;
        if found.name != own_name && fault.is_damage() {
            let reason = fault.to_string();
            doomed.push(Doomed::record(found, Why::Damaged { reason }));
        }
    }
    claim.add(sweep(folder, &doomed, false));
    is_blind
}

impl Scene<'_> {
    /// There is no image of a key, and nobody is writing one.
    fn has_no_image(&self, key: &ImageKey) -> bool {
        let stem = KeyStem::of(key);
        let images = self.survey.images.iter().map(|image| image.name);
        let young = self.survey.temps.iter().filter(|temp| temp.is_young);
        let mut names = images.chain(young.filter_map(|temp| temp.target));
        !names.any(|name| KeyStem::of_name(&name) == stem)
    }

    /// Removes the images of a key that nobody names any more; false when they must be looked at
    /// again by the next claim.
    fn evict(&self, key: &ImageKey, claim: &mut Claim) -> bool {
        let stem = KeyStem::of(key);
        if self.is_blind {
            return false;
        }
        if is_named(&self.survey.records, &stem, &self.own_name) {
            return true;
        }
        let keys = self.survey.keys(self.now_ns);
        let Some(found) = keys.get(&stem) else {
            return true;
        };
        if found.young_temp {
            return false;
        }
        let images = found.images.iter();
        let doomed: Vec<_> = images
            .map(|image| Doomed::image(image, Why::Superseded))
            .collect();
        claim.add(sweep(self.folder, &doomed, false))
    }
}
