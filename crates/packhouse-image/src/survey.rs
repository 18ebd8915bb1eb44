//! What lies in the folder: images, owner records, temporary files, and what is none of ours.
//!
//! Invariants: each name is exactly one of these; what is none of ours is listed and never removed.
//!
//! Never: reads an image. Owner records are small and are read.

use crate::folder::{Folder, OWNERS_DIR, TAG_FILE, VERSION_DIR};
use crate::key::ImageName;
use crate::publish::temp_target;
use crate::record::{OwnerRecord, RECORD_BYTES_MAX, RecordRefusal, is_record_name};
use crate::refusal::RefusalWhy;
use crate::stem::KeyStem;
use packhouse_base::Blame;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind, LockKind};
use packhouse_sys::stat::{FileKind, Stat};
use std::collections::BTreeMap;

/// Why an owner record is not believed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordFault {
    /// Its file is not read.
    #[error("owner record {name}: {why}")]
    File {
        /// Its name below `v1`.
        name: String,
        /// What is wrong with its file.
        why: RefusalWhy,
    },
    /// Its bytes are no record.
    #[error("owner record {name}: {refusal}")]
    Content {
        /// Its name below `v1`.
        name: String,
        /// What is wrong with its bytes.
        refusal: RecordRefusal,
    },
}

/// A name that is none of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Its name below the root.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Its length.
    pub bytes: u64,
}

/// What lies in the folder.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) images: Vec<ImageFound>,
    pub(crate) temps: Vec<TempFound>,
    pub(crate) records: Vec<RecordFound>,
    pub(crate) strays: Vec<Stray>,
}

/// An entry with an image's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageFound {
    pub(crate) name: ImageName,
    pub(crate) stat: Stat,
}

/// An entry with a temporary file's name.
#[derive(Clone, Debug)]
pub(crate) struct TempFound {
    pub(crate) place: Place,
    pub(crate) name: String,
    /// The image that it was to become.
    pub(crate) target: Option<ImageName>,
    pub(crate) stat: Stat,
    /// Whether somebody is writing it.
    pub(crate) is_young: bool,
}

/// An entry with an owner record's name.
#[derive(Clone, Debug)]
pub(crate) struct RecordFound {
    pub(crate) name: String,
    pub(crate) stat: Stat,
    pub(crate) record: Result<OwnerRecord, RecordFault>,
}

/// Which folder an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The root, where only the tag is written.
    Root,
    /// `v1`.
    Images,
    /// `v1/owners`.
    Owners,
}

/// What belongs to one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyFound {
    pub(crate) images: Vec<ImageFound>,
    /// Lengths of the images.
    pub(crate) bytes: u64,
    /// Newest change of its images and of the records that name it; `NEVER_NS` where each of them
    /// is dated in the future.
    pub(crate) last_use_ns: i64,
    /// Somebody is writing an image of it.
    pub(crate) young_temp: bool,
    /// A record names it, as the head that is served or as one that is left.
    pub(crate) is_named: bool,
}

impl Place {
    /// An entry's name below `v1`.
    pub(crate) fn below(self, name: &str) -> String {
        match self {
            Self::Root => format!("../{name}"),
            Self::Images => name.to_owned(),
            Self::Owners => format!("{OWNERS_DIR}/{name}"),
        }
    }
}

impl Survey {
    /// Lists the folder. An entry that is gone by the time it is looked at is left out.
    pub(crate) fn take(folder: &Folder, now_ns: i64) -> Result<Self, FsError> {
        let mut survey = Self::default();
        for (name, stat) in entries(folder.images())? {
            survey.add_image_entry(name, stat);
        }
        if let Some(owners) = folder.owners() {
            for (name, stat) in entries(owners)? {
                survey.add_owner_entry(folder, owners, name, stat)?;
            }
        }
        for (name, stat) in entries(folder.root())? {
            survey.add_root_entry(name, stat);
        }
        survey.judge_temps(folder, now_ns);
        Ok(survey)
    }

    /// Lengths of all images and their temporary files: what the cap is about.
    pub(crate) fn held_bytes(&self) -> u64 {
        let images = self.images.iter().map(|found| found.stat.size);
        let temps = self
            .temps
            .iter()
            .filter(|found| found.place == Place::Images);
        let temps = temps.map(|found| found.stat.size);
        images.chain(temps).fold(0, u64::saturating_add)
    }

    /// What belongs to each key that has an image.
    pub(crate) fn keys(&self, now_ns: i64) -> BTreeMap<KeyStem, KeyFound> {
        let mut keys: BTreeMap<KeyStem, KeyFound> = BTreeMap::new();
        for image in &self.images {
            let key = keys.entry(KeyStem::of_name(&image.name)).or_default();
            let first = key.images.is_empty();
            key.images.push(*image);
            key.bytes = key.bytes.saturating_add(image.stat.size);
            let used_ns = believed_ns(&image.stat, now_ns);
            key.last_use_ns = if first {
                used_ns
            } else {
                key.last_use_ns.max(used_ns)
            };
        }
        for found in &self.records {
            let Ok(record) = &found.record else { continue };
            if let Some(key) = keys.get_mut(&KeyStem::of(&record.key)) {
                key.is_named = true;
                key.last_use_ns = key.last_use_ns.max(believed_ns(&found.stat, now_ns));
            }
            let left = record.leaving.as_ref().map(KeyStem::of);
            if let Some(key) = left.and_then(|stem| keys.get_mut(&stem)) {
                key.is_named = true;
            }
        }
        for temp in self.temps.iter().filter(|temp| temp.is_young) {
            let stem = temp.target.as_ref().map(KeyStem::of_name);
            if let Some(key) = stem.and_then(|stem| keys.get_mut(&stem)) {
                key.young_temp = true;
            }
        }
        keys
    }

    /// Whether every record says which keys it names.
    pub(crate) fn is_clear(&self) -> bool {
        self.records.iter().all(|found| found.record.is_ok())
    }

    /// Finds out which temporary files have a writer.
    fn judge_temps(&mut self, folder: &Folder, now_ns: i64) {
        for temp in &mut self.temps {
            let dir = match temp.place {
                Place::Root => Some(folder.root()),
                Place::Images => Some(folder.images()),
                Place::Owners => folder.owners(),
            };
            temp.is_young = dir.is_some_and(|dir| has_writer(dir, temp, now_ns));
        }
    }

    fn add_root_entry(&mut self, name: String, stat: Stat) {
        let is_folder = stat.kind == FileKind::Directory;
        if !is_folder && temp_target(&name) == Some(TAG_FILE) {
            self.temps.push(TempFound {
                place: Place::Root,
                name,
                target: None,
                stat,
                is_young: true,
            });
        } else if name != VERSION_DIR && name != TAG_FILE {
            self.add_stray("", &name, stat);
        }
    }

    fn add_image_entry(&mut self, name: String, stat: Stat) {
        let is_folder = stat.kind == FileKind::Directory;
        if let Some(target) = temp_target(&name).filter(|_| !is_folder) {
            let target = ImageName::parse(target);
            self.temps.push(TempFound {
                place: Place::Images,
                name,
                target,
                stat,
                is_young: true,
            });
        } else if let Some(name) = ImageName::parse(&name).filter(|_| !is_folder) {
            self.images.push(ImageFound { name, stat });
        } else if name != OWNERS_DIR && name != crate::lock::LOCK_FILE {
            self.add_stray("v1/", &name, stat);
        }
    }

    fn add_owner_entry(
        &mut self,
        folder: &Folder,
        owners: &Dir,
        name: String,
        stat: Stat,
    ) -> Result<(), FsError> {
        let is_folder = stat.kind == FileKind::Directory;
        if !is_folder && temp_target(&name).is_some() {
            self.temps.push(TempFound {
                place: Place::Owners,
                name,
                target: None,
                stat,
                is_young: true,
            });
        } else if !is_folder && is_record_name(&name) {
            let record = match read_record(folder, owners, &name) {
                Ok(Some((record, _))) => Ok(record),
                Ok(None) => return Ok(()),
                Err(fault) => Err(fault),
            };
            self.records.push(RecordFound { name, stat, record });
        } else {
            self.add_stray("v1/owners/", &name, stat);
        }
        Ok(())
    }

    fn add_stray(&mut self, place: &str, name: &str, stat: Stat) {
        self.strays.push(Stray {
            name: format!("{place}{name}"),
            kind: stat.kind,
            bytes: stat.size,
        });
    }
}

impl KeyFound {
    /// How long ago the key was used; 0 where its time is within the next day.
    pub(crate) fn unused_ns(&self, now_ns: i64) -> u64 {
        u64::try_from(now_ns.saturating_sub(self.last_use_ns)).unwrap_or(0)
    }

    /// No record names it, and for a day nobody wrote an image of it: its owner left it without
    /// noting so, as one does that another process of its own moved to another head meanwhile.
    pub(crate) fn is_abandoned(&self, now_ns: i64) -> bool {
        !self.is_named && !self.young_temp && self.unused_ns(now_ns) >= DAY_NS
    }
}

impl RecordFault {
    /// Whether the record is wrong; otherwise the system would not let it be read.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Content { .. } => true,
            Self::File { why, .. } => {
                !matches!(why, RefusalWhy::Unreadable(error) if error.blame() != Blame::Store)
            }
        }
    }

    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::File { .. } if !self.is_damage() => Blame::Host,
            Self::File { .. } | Self::Content { .. } => Blame::Store,
        }
    }
}

/// Reads an owner record. `None`: there is none.
pub(crate) fn read_record(
    folder: &Folder,
    owners: &Dir,
    name: &str,
) -> Result<Option<(OwnerRecord, Stat)>, RecordFault> {
    let refuse_file = |why| RecordFault::File {
        name: format!("{OWNERS_DIR}/{name}"),
        why,
    };
    let Some(own) = folder.open_own(owners, name).map_err(refuse_file)? else {
        return Ok(None);
    };
    let bytes = own.file.read_stated(&own.stat, RECORD_BYTES_MAX);
    let bytes = bytes.map_err(|error| refuse_file(RefusalWhy::Unreadable(error)))?;
    let refuse = |refusal| RecordFault::Content {
        name: format!("{OWNERS_DIR}/{name}"),
        refusal,
    };
    let record = OwnerRecord::parse(&bytes).map_err(refuse)?;
    let expected = record.name();
    if expected != name {
        return Err(refuse(RecordRefusal::Name { expected }));
    }
    Ok(Some((record, own.stat)))
}

/// Whether any of the records that can be read names a key, but for one record.
pub(crate) fn is_named(records: &[RecordFound], stem: &KeyStem, but: &str) -> bool {
    records.iter().any(|found| {
        let named = found.record.as_ref().map(|record| KeyStem::of(&record.key));
        found.name != but && named.as_ref() == Ok(stem)
    })
}

/// How old an entry is; 0 where its time is within the next day. A time further ahead is of a clock
/// that was wrong, so nothing is known of its age but that it must not count as young for years.
pub(crate) fn age_ns(stat: &Stat, now_ns: i64) -> u64 {
    u64::try_from(now_ns.saturating_sub(believed_ns(stat, now_ns))).unwrap_or(0)
}

/// Whether a record's time says that it was written within the last hour. Clocks of one host and
/// its file servers differ by less than that.
pub(crate) fn is_fresh(stat: &Stat, now_ns: i64) -> bool {
    stat.mtime_ns.abs_diff(now_ns) < HOUR_NS
}

/// An hour: a use is noted this often, and where files can't be locked a temporary file younger
/// than this has a writer.
pub(crate) const HOUR_NS: u64 = 3_600_000_000_000;
/// A minute: a temporary file younger than this has a writer that may not have locked it yet.
pub(crate) const MINUTE_NS: u64 = HOUR_NS / 60;
/// A day: so far may a time be ahead and be believed.
pub(crate) const DAY_NS: u64 = 24 * HOUR_NS;
/// The last use of what nobody can say it of: before all others.
pub(crate) const NEVER_NS: i64 = i64::MIN;

/// When an entry was changed, unless that is more than a day ahead.
fn believed_ns(stat: &Stat, now_ns: i64) -> i64 {
    let is_ahead = stat.mtime_ns > now_ns && stat.mtime_ns.abs_diff(now_ns) > DAY_NS;
    if is_ahead { NEVER_NS } else { stat.mtime_ns }
}

/// Whether somebody is writing a temporary file: its writer has it locked until it is done or dead.
fn has_writer(dir: &Dir, temp: &TempFound, now_ns: i64) -> bool {
    let age_ns = age_ns(&temp.stat, now_ns);
    if age_ns < MINUTE_NS {
        return true;
    }
    let is_free = dir.open_file(&temp.name).and_then(|file| {
        let is_free = file.try_lock(LockKind::Shared, 0, 1)?;
        // Closing would not do it where the host forks meanwhile.
        file.unlock(0, 1)?;
        Ok(is_free)
    });
    match is_free {
        Ok(is_free) => !is_free,
        Err(_) => age_ns < HOUR_NS,
    }
}

fn entries(dir: &Dir) -> Result<Vec<(String, Stat)>, FsError> {
    let mut entries = Vec::new();
    for name in dir.list()? {
        match dir.stat_entry(&name) {
            Ok(stat) => entries.push((name.to_string_lossy().into_owned(), stat)),
            Err(error) if error.kind == FsErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}
