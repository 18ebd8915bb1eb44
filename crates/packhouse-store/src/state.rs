//! The private state of one user for one store: receipts, source ledgers, uses, runs.
//!
//! Invariants:
//! - the folder belongs to this process' user and nobody else may enter it (0700), or it isn't
//!   used;
//! - a file is replaced whole, by a rename in its folder; every file proves itself (checksum or
//!   content name), so that a torn one after a crash reads as damaged, never as another value;
//! - nothing here is needed: a state that is absent or damaged costs hashing again.
//!
//! Never: follows a symlink, believes a file because of its name alone. Format:
//! `docs/format/state.md`.

use crate::fields::{FieldError, Fields};
use crate::inventory::{Stray, entries};
use packhouse_base::Blame;
use packhouse_sys::fs::{Dir, Fs, FsError, FsErrorKind};
use packhouse_sys::stat::{FileKind, FsId, StatIdentity};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// The opened folder `<state>/<store id>`.
#[derive(Clone)]
pub struct State {
    fs: Arc<dyn Fs>,
    dir: Dir,
}

/// Why private state can't be used or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The folder belongs to somebody else.
    #[error("{}: belongs to uid {actual}, expected {expected}", path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
        /// This process' effective uid.
        expected: u32,
        /// The folder's owner.
        actual: u32,
    },
    /// Others may enter the folder.
    #[error("{}: mode {actual:04o} lets others in, expected 0700", path.display())]
    Mode {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        actual: u32,
    },
    /// The operating system refused.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// More entries than one ledger holds.
    #[error("source ledger {}: {actual} tensors, at most {limit} are kept", path.display())]
    LedgerFull {
        /// The ledger's folder.
        path: PathBuf,
        /// The most that are kept.
        limit: usize,
        /// How many it would have.
        actual: usize,
    },
    /// A run log that is too long to be kept.
    #[error("run log of {actual} bytes, at most {limit} are kept")]
    RunTooLong {
        /// The longest that is kept.
        limit: usize,
        /// Its length.
        actual: usize,
    },
}

/// What became of a wish to remember a stat identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is remembered.
    Written,
    /// The inode changed so short a time ago that a later change could leave the same times.
    /// Ask again after `wait_ns`.
    NotYet {
        /// Nanoseconds until the identity is settled.
        wait_ns: u64,
    },
}

/// How old a ctime of whole seconds must be before its stat identity is remembered: the file system
/// may keep no more than seconds, and a later change would leave the same times.
pub const STAT_SETTLE_NS: u64 = 2_000_000_000;
/// The same where ctime has a part below a second: such file systems keep the kernel's ticks, which
/// are 1 to 10 ms apart, and `Clock::wall_ns` is the clock of those ticks.
pub const STAT_SETTLE_FINE_NS: u64 = 100_000_000;

impl State {
    /// Takes the opened folder `<state>/<store id>`. Errors unless it belongs to this user alone.
    pub fn new(fs: Arc<dyn Fs>, dir: Dir) -> Result<Self, StateError> {
        let stat = dir.stat()?;
        let expected = fs.effective_uid();
        if stat.uid != expected {
            return Err(StateError::Owner {
                path: dir.path().to_owned(),
                expected,
                actual: stat.uid,
            });
        }
        if stat.mode & OTHERS_BITS != 0 {
            return Err(StateError::Mode {
                path: dir.path().to_owned(),
                actual: stat.mode,
            });
        }
        Ok(Self { fs, dir })
    }

    /// The folder.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Opens a subfolder by its components; `None` when one is absent.
    pub(crate) fn folder(&self, components: &[&str]) -> Result<Option<Dir>, FsError> {
        let mut dir = self.dir.clone();
        for name in components {
            match dir.open_dir(name) {
                Ok(inner) => dir = inner,
                Err(error) if error.kind == FsErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(dir))
    }

    /// Opens a subfolder by its components and makes what is absent.
    pub(crate) fn folder_made(&self, components: &[&str]) -> Result<Dir, FsError> {
        let mut dir = self.dir.clone();
        for name in components {
            dir = match dir.open_dir(name) {
                Err(error) if error.kind == FsErrorKind::NotFound => {
                    match dir.make_dir(name, DIR_MODE) {
                        Ok(()) => {}
                        Err(error) if error.kind == FsErrorKind::Exists => {}
                        Err(error) => return Err(error),
                    }
                    dir.open_dir(name)?
                }
                other => other?,
            };
        }
        Ok(dir)
    }

    /// Makes the entries of a subfolder and of the folders above it durable, whoever made them.
    pub(crate) fn sync_folder(&self, components: &[&str]) -> Result<(), FsError> {
        let mut dir = self.dir.clone();
        for name in components {
            dir.sync()?;
            dir = dir.open_dir(name)?;
        }
        dir.sync()
    }

    /// Lists unfinished files in the folders of records, with the folder of each.
    pub(crate) fn temps(&self) -> Result<Vec<Stray>, FsError> {
        let mut temps = Vec::new();
        for folder in RECORD_FOLDERS {
            let Some(top) = self.folder(&[folder])? else {
                continue;
            };
            let mut dirs = vec![top.clone()];
            for (name, stat) in entries(&top)? {
                if stat.kind == FileKind::Directory {
                    dirs.push(top.open_dir(&name)?);
                }
            }
            for dir in dirs {
                let found = entries(&dir)?.into_iter().map(|(name, stat)| Stray {
                    dir: dir.clone(),
                    name,
                    stat,
                });
                temps.extend(found.filter(Stray::is_temp));
            }
        }
        Ok(temps)
    }

    /// Writes a file whole: beside, then renamed over the old one. `Durable` also syncs.
    pub(crate) fn replace(
        &self,
        dir: &Dir,
        name: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<(), FsError> {
        let temp = self.temp_name()?;
        let written = self.write_temp(dir, &temp, bytes, durability);
        let renamed = written.and_then(|()| dir.rename_over(&temp, name));
        if let Err(error) = renamed {
            // The first error is the one to report; a temp that stays is removed by gc.
            let _ = dir.unlink(&temp);
            return Err(error);
        }
        match durability {
            Durability::Durable => dir.sync(),
            Durability::Cheap => Ok(()),
        }
    }

    fn write_temp(
        &self,
        dir: &Dir,
        temp: &str,
        bytes: &[u8],
        durability: Durability,
    ) -> Result<(), FsError> {
        let file = dir.create_new(temp, FILE_MODE)?;
        file.write_all_at(0, bytes)?;
        match durability {
            Durability::Durable => file.sync(),
            Durability::Cheap => Ok(()),
        }
    }

    fn temp_name(&self) -> Result<String, FsError> {
        let mut random = [0u8; 16];
        self.fs.random(&mut random)?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{TEMP_PREFIX}{digits}"))
    }
}

/// Whether a written file must survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Synced, with its folder.
    Durable,
    /// Not synced: a torn file is found out by its checksum and costs one hash.
    Cheap,
}

impl StateError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Owner { .. } | Self::Mode { .. } => Blame::Host,
            Self::Fs(error) => error.blame(),
            Self::LedgerFull { .. } => Blame::Source,
            Self::RunTooLong { .. } => Blame::Caller,
        }
    }
}

/// How long until an identity may be remembered; `None` when it is settled.
pub fn settle_wait_ns(stat: &StatIdentity, now_ns: i64) -> Option<u64> {
    let settle_ns = match stat.ctime_ns % NS_PER_SECOND {
        0 => STAT_SETTLE_NS,
        _ => STAT_SETTLE_FINE_NS,
    };
    let age_ns = now_ns.saturating_sub(stat.ctime_ns);
    match u64::try_from(age_ns) {
        Ok(age_ns) if age_ns >= settle_ns => None,
        Ok(age_ns) => Some(settle_ns - age_ns),
        // ctime in the future: a clock was set. Settled only when the clock has passed it.
        Err(_) => Some(settle_ns.saturating_add(age_ns.unsigned_abs())),
    }
}

const NS_PER_SECOND: i64 = 1_000_000_000;

/// Lists the names of a folder that are no temporary files.
pub(crate) fn list_names(dir: &Dir) -> Result<Vec<String>, FsError> {
    let named = |name: OsString| name.into_string().ok();
    Ok(dir
        .list()?
        .into_iter()
        .filter_map(named)
        .filter(|name| !name.starts_with(TEMP_PREFIX))
        .collect())
}

/// Removes a name; an absent one is fine.
pub(crate) fn remove_name(dir: &Dir, name: &str) -> Result<(), FsError> {
    match dir.unlink(name) {
        Err(error) if error.kind == FsErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Renders a stat identity for a record.
pub fn render_stat(stat: &StatIdentity) -> Value {
    json!({
        "file_system": file_system_text(&stat.file_system),
        "inode": stat.inode,
        "generation": stat.generation,
        "size": stat.size,
        "mtime_ns": stat.mtime_ns,
        "ctime_ns": stat.ctime_ns,
        "uid": stat.uid,
        "mode": stat.mode,
    })
}

/// Takes the field `stat` of a record. Errors as `Fields` does.
pub fn take_stat(fields: &mut Fields) -> Result<StatIdentity, FieldError> {
    let mut inner = fields.object("stat")?;
    let file_system = inner.text("file_system")?;
    let stat = StatIdentity {
        file_system: parse_file_system(&file_system).ok_or_else(|| FieldError::WrongType {
            field: inner.path_of("file_system"),
            expected: "uuid: or device: and a value",
            actual: crate::fields::cut(file_system),
        })?,
        inode: inner.integer("inode")?,
        generation: inner.optional_integer32("generation")?,
        size: inner.integer("size")?,
        mtime_ns: inner.signed("mtime_ns")?,
        ctime_ns: inner.signed("ctime_ns")?,
        uid: inner.integer32("uid")?,
        mode: inner.integer32("mode")?,
    };
    inner.finish()?;
    Ok(stat)
}

/// The text of a file system's identity: `uuid:` and 32 hex digits, or `device:` and a number.
pub fn file_system_text(id: &FsId) -> String {
    match id {
        FsId::Uuid(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("uuid:{digits}")
        }
        FsId::Device(number) => format!("device:{number}"),
    }
}

/// Reads the text of a file system's identity; `None` for any other spelling.
pub fn parse_file_system(text: &str) -> Option<FsId> {
    let id = if let Some(digits) = text.strip_prefix("uuid:") {
        let number = u128::from_str_radix(digits, 16).ok()?;
        FsId::Uuid(number.to_be_bytes())
    } else {
        FsId::Device(text.strip_prefix("device:")?.parse().ok()?)
    };
    (file_system_text(&id) == text).then_some(id)
}

/// How names of unfinished files begin.
pub(crate) const TEMP_PREFIX: &str = ".tmp-";

const RECORD_FOLDERS: [&str; 4] = [
    crate::receipt::FOLDER,
    crate::ledger::FOLDER,
    crate::use_log::FOLDER,
    crate::use_log::RUNS_FOLDER,
];
const OTHERS_BITS: u32 = 0o077;
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_one_text() {
        for id in [FsId::Uuid([0xa0; 16]), FsId::Uuid([0; 16]), FsId::Device(7)] {
            assert_eq!(parse_file_system(&file_system_text(&id)), Some(id));
        }
        for wrong in [
            "uuid:0",
            "device:07",
            "device:",
            "7",
            "uuid:+0000000000000000000000000000001",
        ] {
            assert_eq!(parse_file_system(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_identity_settles_two_seconds_after_its_ctime() {
        let stat = StatIdentity {
            file_system: FsId::Device(1),
            inode: 2,
            generation: None,
            size: 3,
            mtime_ns: 0,
            ctime_ns: 10,
            uid: 0,
            mode: 0o444,
        };
        for (ctime_ns, settle_ns) in [(10, STAT_SETTLE_FINE_NS), (0, STAT_SETTLE_NS)] {
            let stat = StatIdentity { ctime_ns, ..stat };
            let settle = i64::try_from(settle_ns).expect("because it is small");
            assert_eq!(settle_wait_ns(&stat, ctime_ns + settle), None);
            assert_eq!(settle_wait_ns(&stat, ctime_ns + settle - 1), Some(1));
            assert_eq!(settle_wait_ns(&stat, ctime_ns - 7), Some(settle_ns + 7));
        }
    }
}
