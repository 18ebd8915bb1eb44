//! What lies in the store's folders, by name and stat only: for gc, scrub and survey.
//!
//! Invariants:
//! - nothing is opened but folders of trusted owners, nothing is hashed;
//! - an entry that vanishes while it is listed is not there;
//! - a name that is no content name is a stray, never an object.
//!
//! Never: judges a file that is used later; that is `object` and `pack`.

use crate::root::Store;
use crate::small::SmallRefusal;
use crate::state::TEMP_PREFIX;
use packhouse_base::digest::{Digest, ObjectDigest, PackKey};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, Stat};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Files by content name, and what else is there.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) objects: BTreeMap<ObjectDigest, Stat>,
    pub(crate) packs: BTreeMap<PackKey, Stat>,
    pub(crate) strays: Vec<Stray>,
}

/// An entry that is no object, pack or set.
#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) dir: Dir,
    pub(crate) name: String,
    pub(crate) stat: Stat,
}

impl Stray {
    /// Whether it is an unfinished file of ours.
    pub(crate) fn is_temp(&self) -> bool {
        self.name.starts_with(TEMP_PREFIX) && self.stat.kind == FileKind::Regular
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }
}

impl Store {
    /// Lists objects, packs, and strays in their folders and in the folder of pins.
    pub(crate) fn inventory(&self) -> Result<Inventory, SmallRefusal> {
        let mut inventory = Inventory::default();
        let objects = self.two_level(self.objects_dir(), &mut inventory.strays)?;
        inventory.objects = objects
            .into_iter()
            .map(|(d, s)| (ObjectDigest(d), s))
            .collect();
        let packs = self.two_level(self.packs_dir(), &mut inventory.strays)?;
        inventory.packs = packs.into_iter().map(|(d, s)| (PackKey(d), s)).collect();
        for (name, stat) in entries(self.pins_dir())? {
            let stray = Stray {
                dir: self.pins_dir().clone(),
                name,
                stat,
            };
            if stray.is_temp() {
                inventory.strays.push(stray);
            }
        }
        Ok(inventory)
    }

    /// Lists `<base>/<aa>/<64 hex digits>`.
    fn two_level(
        &self,
        base: &Dir,
        strays: &mut Vec<Stray>,
    ) -> Result<BTreeMap<Digest, Stat>, SmallRefusal> {
        let mut found = BTreeMap::new();
        for (prefix, stat) in entries(base)? {
            if stat.kind != FileKind::Directory {
                strays.push(Stray {
                    dir: base.clone(),
                    name: prefix,
                    stat,
                });
                continue;
            }
            let Some(dir) = self.open_folder(base, &prefix)? else {
                continue;
            };
            for (name, stat) in entries(&dir)? {
                match Digest::parse(&name) {
                    Ok(digest) if name.starts_with(&prefix) && stat.kind == FileKind::Regular => {
                        found.insert(digest, stat);
                    }
                    Ok(_) | Err(_) => strays.push(Stray {
                        dir: dir.clone(),
                        name,
                        stat,
                    }),
                }
            }
        }
        Ok(found)
    }
}

/// Lists a folder's entries that have a UTF-8 name, each with its lstat.
pub(crate) fn entries(dir: &Dir) -> Result<Vec<(String, Stat)>, FsError> {
    let mut found = Vec::new();
    for name in dir.list()? {
        let Ok(name) = name.into_string() else {
            continue;
        };
        match dir.stat_entry(&name) {
            Ok(stat) => found.push((name, stat)),
            Err(error) if error.kind == FsErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Seconds between a file's last change of the inode and now; 0 when that lies ahead.
pub(crate) fn age_s(stat: &Stat, now_ns: i64) -> u64 {
    seconds_since(stat.ctime_ns, now_ns)
}

/// Whole seconds from one time to another; 0 when it lies ahead.
pub(crate) fn seconds_since(then_ns: i64, now_ns: i64) -> u64 {
    u64::try_from(now_ns.saturating_sub(then_ns)).unwrap_or(0) / 1_000_000_000
}
