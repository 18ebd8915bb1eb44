//! Removing files, each told with its size.
//!
//! Invariants:
//! - an entry that is not the one that was judged any more is left alone;
//! - a removal that fails is told and stops nothing.

use crate::folder::Folder;
use crate::removed::{Removal, Removed, Why};
use crate::survey::{ImageFound, Place, RecordFound, Survey, TempFound, age_ns};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::Stat;
use std::collections::BTreeSet;

/// A file to be removed.
#[derive(Clone, Debug)]
pub(crate) struct Doomed {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) stat: Stat,
    pub(crate) why: Why,
}

impl Doomed {
    pub(crate) fn image(found: &ImageFound, why: Why) -> Self {
        Self {
            place: Place::Images,
            name: found.name.to_string(),
            stat: found.stat,
            why,
        }
    }

    pub(crate) fn record(found: &RecordFound, why: Why) -> Self {
        Self {
            place: Place::Owners,
            name: found.name.clone(),
            stat: found.stat,
            why,
        }
    }

    pub(crate) fn temp(found: &TempFound, now_ns: i64) -> Self {
        Self {
            place: found.place,
            name: found.name.clone(),
            stat: found.stat,
            why: Why::StaleTemp {
                age_ns: age_ns(&found.stat, now_ns),
            },
        }
    }

    /// What its removal takes from the bytes that the cap is about.
    pub(crate) fn held_bytes(&self) -> u64 {
        match self.place {
            Place::Images => self.stat.size,
            Place::Root | Place::Owners => 0,
        }
    }

    fn removed(&self) -> Removed {
        Removed {
            name: self.place.below(&self.name),
            bytes: self.stat.size,
            why: self.why.clone(),
        }
    }
}

/// The temporary files that nobody will finish.
pub(crate) fn stale_temps(survey: &Survey, now_ns: i64) -> Vec<Doomed> {
    let stale = survey.temps.iter().filter(|temp| !temp.is_young);
    stale.map(|temp| Doomed::temp(temp, now_ns)).collect()
}

/// Removes files, durably, or only says which.
pub(crate) fn sweep(folder: &Folder, doomed: &[Doomed], dry_run: bool) -> Removal {
    let mut removal = Removal::default();
    let mut changed = BTreeSet::new();
    for entry in doomed {
        if dry_run {
            removal.removed.push(entry.removed());
            continue;
        }
        let Some(dir) = place_dir(folder, entry.place) else {
            continue;
        };
        match remove(dir, entry) {
            Ok(true) => {
                removal.removed.push(entry.removed());
                changed.insert(entry.place);
            }
            Ok(false) => {}
            Err(error) => removal.failures.push(error),
        }
    }
    for place in changed {
        let synced = place_dir(folder, place).map_or(Ok(()), Dir::sync);
        removal.failures.extend(synced.err());
    }
    removal
}

fn place_dir(folder: &Folder, place: Place) -> Option<&Dir> {
    match place {
        Place::Root => Some(folder.root()),
        Place::Images => Some(folder.images()),
        Place::Owners => folder.owners(),
    }
}

/// Removes an entry; false when it is gone, or another one has its name by now.
fn remove(dir: &Dir, entry: &Doomed) -> Result<bool, FsError> {
    let is_gone = |kind| kind == FsErrorKind::NotFound;
    let now = match dir.stat_entry(&entry.name) {
        Err(error) if is_gone(error.kind) => return Ok(false),
        other => other?,
    };
    if (now.inode, now.mtime_ns) != (entry.stat.inode, entry.stat.mtime_ns) {
        return Ok(false);
    }
    match dir.unlink(&entry.name) {
        Err(error) if is_gone(error.kind) => Ok(false),
        other => other.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_sim::{SimClock, SimFs};
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn an_entry_that_another_file_took_since_it_was_judged_is_left_alone() {
        let sim = SimFs::new(1, Arc::new(SimClock::new()));
        let folder = Folder::open(&sim, Path::new("/home/user/images"), true);
        let folder = folder.expect("because nobody is in the way");
        let folder = folder.expect("because it is made");
        let paths = [1, 2].map(|key| format!("/home/user/images/v1/{key:032x}-t00000.phti"));
        for path in &paths {
            sim.replace(path, b"judged", 0o400);
        }
        let survey = Survey::take(&folder, 0).expect("because it can be listed");
        let images = survey.images.iter();
        let doomed: Vec<_> = images
            .map(|image| Doomed::image(image, Why::Room))
            .collect();
        sim.replace(&paths[0], b"published since", 0o400);
        let removal = sweep(&folder, &doomed, false);
        let removed: Vec<_> = removal
            .removed
            .iter()
            .map(|removed| &removed.name)
            .collect();
        assert_eq!(removed, [&format!("{:032x}-t00000.phti", 2)]);
        assert_eq!(
            sim.read(&paths[0]).as_deref(),
            Some(b"published since".as_slice())
        );
        assert_eq!((sim.read(&paths[1]), removal.failures), (None, Vec::new()));
    }
}
