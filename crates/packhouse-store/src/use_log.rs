//! What this user used last: sets with the container paths they were used for, and run logs.
//!
//! One small file per (set, container path), replaced whole, so that two processes lose nothing and
//! need no lock. Invariants:
//! - a use younger than `USE_STEP_NS` is not written again: a start costs one read;
//! - a damaged file is no use and never an error of a start;
//! - run logs are bounded in number and bytes, the oldest go first.
//!
//! Never: anything of this in the store itself; the log is private. Format: `docs/format/state.md`.

use crate::fields::{FieldError, Fields, cut};
use crate::percent::{decode_path, encode_path};
use crate::root::{OpenError, Store};
use crate::state::{Durability, State, StateError, list_names, remove_name};
use packhouse_base::canonical;
use packhouse_base::digest::{Digest, SetKey};
use packhouse_sys::fs::{Dir, FsError};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The schema of a use.
pub const USE_SCHEMA: &str = "packhouse/use/1";

/// How old a use must be before it is written again.
pub const USE_STEP_NS: i64 = 60 * 60 * 1_000_000_000;

/// The most run logs kept, and the most bytes of one.
pub const RUNS_MAX: usize = 100;
/// The most bytes of one run log.
pub const RUN_BYTES_MAX: usize = 1 << 20;

/// What is known of the use of one set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetUse {
    /// When it was last used, in nanoseconds since the Unix epoch.
    pub last_use_ns: i64,
    /// The container paths it was used for, each with its last use.
    pub containers: BTreeMap<PathBuf, i64>,
}

/// All uses, with the files that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Uses by set.
    pub sets: BTreeMap<SetKey, SetUse>,
    /// Files that are no use, with the reason.
    pub refused: Vec<(PathBuf, UseRefusal)>,
}

/// Why a file is no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UseRefusal {
    /// Not of the schema.
    #[error("use: {0}")]
    Form(#[from] FieldError),
    /// The path in it isn't spelled as it would be written.
    #[error("use: container: not an encoded path: {actual:?}")]
    Path {
        /// The text present.
        actual: String,
    },
    /// Filed under another name than its content gives.
    #[error("use: filed under {expected}, its content belongs under {actual}")]
    Name {
        /// The name it is filed under.
        expected: String,
        /// The name its content gives.
        actual: String,
    },
    /// It can't be read.
    #[error("use: {0}")]
    Unreadable(#[from] FsError),
}

/// The use log of one user for one store.
#[derive(Clone)]
pub struct UseLog {
    state: State,
}

impl UseLog {
    /// The use log in a private state.
    pub fn new(state: State) -> Self {
        Self { state }
    }

    /// Notes that a set was used now, for the container at `container` (absolute) or without one.
    /// Errors as the file system does; callers go on without.
    pub fn note_set(
        &self,
        set: SetKey,
        container: Option<&Path>,
        now_ns: i64,
    ) -> Result<(), StateError> {
        let path = container.map(|path| encode_path(path.as_os_str()));
        let name = use_name(path.as_deref());
        let folder = [FOLDER, &set.to_string()];
        if let Some(dir) = self.state.folder(&folder)?
            && let Ok(last_use) = read_use(&dir, &name)
            && (0..USE_STEP_NS).contains(&now_ns.saturating_sub(last_use.last_use_ns))
        {
            return Ok(());
        }
        let dir = self.state.folder_made(&folder)?;
        let bytes = canonical::render(&json!({
            "schema": USE_SCHEMA,
            "container": path.unwrap_or_default(),
            "last_use_ns": now_ns,
        }));
        self.state.replace(&dir, &name, &bytes, Durability::Cheap)?;
        Ok(())
    }

    /// Reads all uses. Errors only when a folder can't be listed.
    pub fn read(&self) -> Result<Uses, StateError> {
        let mut uses = Uses::default();
        let Some(root) = self.state.folder(&[FOLDER])? else {
            return Ok(uses);
        };
        for folder in list_names(&root)? {
            let Ok(set) = SetKey::parse(&folder) else {
                continue;
            };
            let dir = root.open_dir(&folder)?;
            for name in list_names(&dir)? {
                match read_use(&dir, &name) {
                    Ok(found) => uses.add(set, found),
                    Err(refusal) => uses.refused.push((dir.path().join(&name), refusal)),
                }
            }
        }
        Ok(uses)
    }

    /// Forgets all uses of a set; absent ones are fine.
    pub fn forget_set(&self, set: SetKey) -> Result<(), StateError> {
        let Some(root) = self.state.folder(&[FOLDER])? else {
            return Ok(());
        };
        let name = set.to_string();
        let Some(dir) = self.state.folder(&[FOLDER, &name])? else {
            return Ok(());
        };
        for file in dir.list()? {
            dir.unlink(&file)?;
        }
        Ok(root.remove_dir(&name)?)
    }

    /// Keeps a run log (one JSON document), and drops the oldest beyond `RUNS_MAX`. Errors as the
    /// file system does, and on a log longer than `RUN_BYTES_MAX`.
    pub fn keep_run(
        &self,
        now_ns: i64,
        process_id: u32,
        document: &[u8],
    ) -> Result<PathBuf, StateError> {
        if document.len() > RUN_BYTES_MAX {
            return Err(StateError::RunTooLong {
                limit: RUN_BYTES_MAX,
                actual: document.len(),
            });
        }
        let dir = self.state.folder_made(&[RUNS_FOLDER])?;
        let digest = Digest::of(document).to_string();
        let name = format!("{:020}-{process_id}-{}.json", now_ns.max(0), &digest[..8]);
        self.state
            .replace(&dir, &name, document, Durability::Cheap)?;
        let names = list_names(&dir)?;
        let excess = names.len().saturating_sub(RUNS_MAX);
        for old in &names[..excess] {
            remove_name(&dir, old)?;
        }
        Ok(dir.path().join(name))
    }

    /// Lists the run logs, oldest first.
    pub fn runs(&self) -> Result<Vec<String>, StateError> {
        match self.state.folder(&[RUNS_FOLDER])? {
            None => Ok(Vec::new()),
            Some(dir) => Ok(list_names(&dir)?),
        }
    }
}

impl Store {
    /// This user's use log.
    pub fn use_log(&self) -> Result<UseLog, &OpenError> {
        self.state().map(|state| UseLog::new(state.clone()))
    }
}

impl Uses {
    fn add(&mut self, set: SetKey, found: OneUse) {
        let entry = self.sets.entry(set).or_default();
        entry.last_use_ns = entry.last_use_ns.max(found.last_use_ns);
        if let Some(path) = found.container {
            entry.containers.insert(path, found.last_use_ns);
        }
    }
}

struct OneUse {
    container: Option<PathBuf>,
    last_use_ns: i64,
}

fn read_use(dir: &Dir, name: &str) -> Result<OneUse, UseRefusal> {
    let bytes = dir.read_small(name, USE_BYTES_MAX)?;
    let mut fields = Fields::parse(&bytes, USE_SCHEMA)?;
    let text = fields.text("container")?;
    let last_use_ns = fields.signed("last_use_ns")?;
    fields.finish()?;
    let actual = use_name((!text.is_empty()).then_some(&text));
    if actual != name {
        return Err(UseRefusal::Name {
            expected: name.into(),
            actual,
        });
    }
    if text.is_empty() {
        return Ok(OneUse {
            container: None,
            last_use_ns,
        });
    }
    let path = decode_path(&text).ok_or_else(|| UseRefusal::Path { actual: cut(text) })?;
    Ok(OneUse {
        container: Some(path.into()),
        last_use_ns,
    })
}

/// The name of a use's file: SHA-256 of the encoded path, or `none` without a container.
fn use_name(encoded_path: Option<&str>) -> String {
    encoded_path.map_or("none".into(), |path| {
        Digest::of(path.as_bytes()).to_string()
    })
}

/// The folder of uses in a private state.
pub(crate) const FOLDER: &str = "use";

/// The folder of run logs in a private state.
pub(crate) const RUNS_FOLDER: &str = "runs";

const USE_BYTES_MAX: u64 = 64 << 10;
