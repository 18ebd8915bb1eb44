//! What is published against what the recipe makes.

use super::{Damaged, Look};
use crate::Bag;
use crate::bag::{DATA, MANIFEST_FILE, TAG_MANIFEST_FILE, parse_list};
use packhouse_base::digest::Digest;
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, Stat};
use std::collections::BTreeMap;
use std::fmt;

/// One thing that is wrong with a published fixture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The path within the fixture's folder; empty for the folder itself.
    pub path: String,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not there.
    Missing,
    /// Nobody made it.
    Extra,
    /// It is no regular file, or no folder where one must be.
    Kind {
        /// What it is.
        actual: FileKind,
    },
    /// It belongs to somebody who is neither the user nor root.
    Owner {
        /// Who that is.
        uid: u32,
    },
    /// Others than its owner can change it.
    Writable {
        /// Its permission bits.
        mode: u32,
    },
    /// It has another length.
    Length {
        /// Bytes that the recipe makes.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// It has other bytes.
    Differs {
        /// The first that differs.
        offset: u64,
        /// What the recipe makes there.
        expected: u8,
        /// What is there.
        actual: u8,
        /// Bytes that differ.
        count: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "the folder"
        } else {
            &self.path
        };
        match &self.fault {
            Fault::Missing => write!(f, "{path} is missing"),
            Fault::Extra => write!(f, "{path} does not belong there"),
            Fault::Kind { actual } => write!(f, "{path} is {}", kind(*actual)),
            Fault::Owner { uid } => write!(f, "{path} belongs to user {uid}"),
            Fault::Writable { mode } => write!(
                f,
                "{path} has mode {mode:04o}: others than its owner can change it"
            ),
            Fault::Length { expected, actual } => {
                write!(f, "{path} has {actual} bytes, its recipe makes {expected}")
            }
            Fault::Differs {
                offset,
                expected,
                actual,
                count,
            } => write!(
                f,
                "{path}: byte {offset} is 0x{actual:02x}, its recipe makes 0x{expected:02x}; \
                 {count} differ"
            ),
        }
    }
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "a regular file",
        FileKind::Directory => "a folder",
        FileKind::Symlink => "a symlink",
        FileKind::Special => "no regular file",
    }
}

/// Why somebody else than a user and root can change something.
pub(super) fn foreign(stat: &Stat, user: u32) -> Option<Fault> {
    if ![0, user].contains(&stat.uid) {
        return Some(Fault::Owner { uid: stat.uid });
    }
    (stat.mode & 0o022 != 0).then_some(Fault::Writable { mode: stat.mode })
}

/// Looks at one fixture, for a user.
pub(super) fn look(shelf: &Dir, bag: &Bag, user: u32) -> Result<Look, FsError> {
    let unit = match shelf.stat_entry(bag.id()) {
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(Look::Absent),
        Err(error) => return Err(error),
        Ok(stat) if stat.kind != FileKind::Directory => {
            return Ok(Look::Damaged(Damaged {
                damages: vec![Damage {
                    path: String::new(),
                    fault: Fault::Kind { actual: stat.kind },
                }],
                lists_agree: false,
            }));
        }
        Ok(_) => shelf.open_dir(bag.id())?,
    };
    let found = Found::of(&unit, bag, user)?;
    if found.damages.is_empty() {
        return Ok(Look::Intact);
    }
    Ok(Look::Damaged(Damaged {
        lists_agree: found.has_other_content() && lists_agree(&found.files),
        damages: found.damages,
    }))
}

/// What was read of a unit.
struct Found {
    user: u32,
    files: BTreeMap<String, Vec<u8>>,
    damages: Vec<Damage>,
}

impl Found {
    fn of(unit: &Dir, bag: &Bag, user: u32) -> Result<Self, FsError> {
        let mut found = Self {
            user,
            files: BTreeMap::new(),
            damages: Vec::new(),
        };
        found.judge("", &unit.stat()?);
        let names = unit.list()?;
        for name in &names {
            let name = name.to_string_lossy().into_owned();
            if name == DATA {
                found.read_data(unit, bag)?;
            } else {
                found.read(unit, &name, &name, bag)?;
            }
        }
        for (path, expected) in bag.files() {
            let fault = match found.files.get(path) {
                None if found.damages.iter().any(|damage| damage.path == *path) => continue,
                None => Some(Fault::Missing),
                Some(actual) => difference(expected, actual),
            };
            if let Some(fault) = fault {
                found.add(path, fault);
            }
        }
        found
            .damages
            .sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    fn read_data(&mut self, unit: &Dir, bag: &Bag) -> Result<(), FsError> {
        let stat = unit.stat_entry(DATA)?;
        if stat.kind != FileKind::Directory {
            self.add(DATA, Fault::Kind { actual: stat.kind });
            return Ok(());
        }
        let data = unit.open_dir(DATA)?;
        self.judge(DATA, &data.stat()?);
        for name in data.list()? {
            let name = name.to_string_lossy().into_owned();
            self.read(&data, &name, &format!("{DATA}/{name}"), bag)?;
        }
        Ok(())
    }

    /// Reads a file that the recipe makes, where it has a length that may be read.
    fn read(&mut self, dir: &Dir, name: &str, path: &str, bag: &Bag) -> Result<(), FsError> {
        let Some(expected) = bag.files().get(path) else {
            self.add(path, Fault::Extra);
            return Ok(());
        };
        // A pipe would be waited for, a symlink is refused: asked before it is opened.
        let named = dir.stat_entry(name)?;
        if named.kind != FileKind::Regular {
            self.add(path, Fault::Kind { actual: named.kind });
            return Ok(());
        }
        let file = dir.open_file(name)?;
        let stat = file.stat()?;
        self.judge(path, &stat);
        let limit = (expected.len() as u64).saturating_mul(2).max(READ_AT_LEAST);
        if stat.kind == FileKind::Regular && stat.size <= limit {
            let bytes = file.read_stated(&stat, limit)?;
            self.files.insert(path.to_owned(), bytes);
        } else {
            self.add(
                path,
                Fault::Length {
                    expected: expected.len() as u64,
                    actual: stat.size,
                },
            );
        }
        Ok(())
    }

    /// Whether somebody else could change what is there.
    fn judge(&mut self, path: &str, stat: &Stat) {
        if let Some(fault) = foreign(stat, self.user) {
            self.add(path, fault);
        }
    }

    /// Whether anything is other than who may change it.
    fn has_other_content(&self) -> bool {
        let is_access = |fault: &Fault| match fault {
            Fault::Owner { .. } | Fault::Writable { .. } => true,
            Fault::Missing
            | Fault::Extra
            | Fault::Kind { .. }
            | Fault::Length { .. }
            | Fault::Differs { .. } => false,
        };
        !self.damages.iter().all(|damage| is_access(&damage.fault))
    }

    fn add(&mut self, path: &str, fault: Fault) {
        self.damages.push(Damage {
            path: path.to_owned(),
            fault,
        });
    }
}

fn difference(expected: &[u8], actual: &[u8]) -> Option<Fault> {
    if expected.len() != actual.len() {
        return Some(Fault::Length {
            expected: expected.len() as u64,
            actual: actual.len() as u64,
        });
    }
    let pairs = (0_u64..).zip(expected.iter().zip(actual));
    let mut different = pairs.filter(|(_, (expected, actual))| expected != actual);
    let (offset, (expected, actual)) = different.next()?;
    Some(Fault::Differs {
        offset,
        expected: *expected,
        actual: *actual,
        count: 1 + different.count() as u64,
    })
}

/// Whether every file is in one of the two lists with its hash, and every listed file is there.
fn lists_agree(files: &BTreeMap<String, Vec<u8>>) -> bool {
    let Some(tag_list) = files.get(TAG_MANIFEST_FILE) else {
        return false;
    };
    let list = files.get(MANIFEST_FILE).and_then(|list| parse_list(list));
    let (Some(mut listed), Some(tags)) = (list, parse_list(tag_list)) else {
        return false;
    };
    listed.extend(tags);
    let others = files.iter().filter(|(path, _)| *path != TAG_MANIFEST_FILE);
    let actual = others.map(|(path, bytes)| (path.clone(), Digest::of(bytes)));
    listed.into_iter().eq(actual)
}

/// So that a short file that became a longer one can be read and its lists compared.
const READ_AT_LEAST: u64 = 1 << 20;
