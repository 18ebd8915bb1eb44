//! From options to a set: which store, which set.

use crate::set::entry::Mapper;
use crate::set::reader::SetReader;
use crate::set::refusal::Refusal;
use crate::settings::Trust;
use packhouse_base::digest::SetKey;
use packhouse_stage::{StageMiss, StageRoot, StagedSet};
use packhouse_store::manifest::SetManifest;
use packhouse_store::root::{Owners, Store, StoreConfig};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a set is and what its payloads must prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// The store's root, absolute.
    pub root: PathBuf,
    /// The folder of this user's private state, absolute: receipts are read and written there.
    pub state: PathBuf,
    /// Owners of the store that are trusted beside this user and root.
    pub trusted_uids: Vec<u32>,
    /// The folder of stages, absolute; `None` looks for none.
    pub stage_root: Option<PathBuf>,
    /// Which set.
    pub set: SetName,
    /// What proof a payload needs before it is mapped.
    pub trust: Trust,
    /// Fails the whole set with its first refusal; opening proves every payload then, which the
    /// trust in samples alone does not go with.
    pub strict: bool,
}

/// How a set is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetName {
    /// The store's only one.
    Only,
    /// The first digits of its key, `DIGITS_MIN` to all 64. All 64 root everything in the set.
    Digits(String),
    /// The folder of a set, `<root>/v1/sets/<set key>`; the root of the options is not used then.
    Folder(PathBuf),
}

impl SetName {
    /// Fewest digits that name a set.
    pub const DIGITS_MIN: usize = 8;

    /// Takes a text with a slash for a folder, any other for digits.
    pub fn parse(text: &str) -> Self {
        if text.contains('/') {
            Self::Folder(text.into())
        } else {
            Self::Digits(text.to_owned())
        }
    }
}

impl SetReader {
    /// Opens a set of the real file system. Errors with the reason why there is none to use; of a
    /// strict set also with the first refusal of any of its payloads.
    pub fn open(options: &OpenOptions, mapper: Arc<dyn Mapper>) -> Result<Self, Refusal> {
        Self::open_with(Arc::new(RealFs), Arc::new(RealClock), options, mapper)
    }

    /// The same on another file system and clock.
    pub fn open_with(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        options: &OpenOptions,
        mapper: Arc<dyn Mapper>,
    ) -> Result<Self, Refusal> {
        if options.strict && options.trust == Trust::Sample {
            return Err(Refusal::StrictSample);
        }
        let (root, set) = match &options.set {
            SetName::Only => (options.root.clone(), None),
            SetName::Digits(digits) => (options.root.clone(), Some(digits.clone())),
            SetName::Folder(folder) => {
                let (root, key) = split_folder(folder)?;
                (root, Some(key.to_string()))
            }
        };
        let mut config = StoreConfig::new(root, &options.state);
        config.read_only = true;
        config.trusted_uids = options.trusted_uids.clone();
        let store = Store::open(fs.clone(), clock.clone(), config);
        let store = store.map_err(|error| Refusal::Store(Box::new(error)))?;
        let key = find(&store, set.as_deref())?;
        let mut notes = Vec::new();
        if let Err(error) = store.state() {
            notes.push(Refusal::State(Box::new(error.clone())));
        }
        let now_ns = clock.wall_ns();
        let stage = match &options.stage_root {
            Some(path) => open_stage((fs, clock), path, store.owners(), key, &mut notes),
            None => None,
        };
        let manifest = match &stage {
            Some(stage) => stage.manifest().clone(),
            None => read_manifest(&store, key)?,
        };
        let reader = Self::new(store, (stage, manifest), options, mapper);
        notes.into_iter().for_each(|note| reader.note(None, note));
        if options.strict {
            reader.prove_all()?;
        }
        // A set that is used is not the first to go; a use that can't be noted costs no more.
        if let Ok(uses) = reader.store.use_log() {
            let _ = uses.note_set(key, None, now_ns);
        }
        Ok(reader)
    }
}

/// Opens the set's stage. A folder or a stage that is there and not used is noted.
fn open_stage(
    (fs, clock): (Arc<dyn Fs>, Arc<dyn Clock>),
    path: &Path,
    owners: &Owners,
    key: SetKey,
    notes: &mut Vec<Refusal>,
) -> Option<StagedSet> {
    let root = match StageRoot::open(fs, clock, path, owners) {
        Ok(root) => root,
        Err(error) if error.is_missing() => return None,
        Err(error) => {
            notes.push(Refusal::StageRoot(Box::new(error)));
            return None;
        }
    };
    match packhouse_stage::open(&root, key) {
        Ok(stage) => Some(stage),
        Err(StageMiss::Absent { .. }) => None,
        Err(miss) => {
            notes.push(Refusal::Stage(Box::new(miss)));
            None
        }
    }
}

/// Reads the manifest and proves the index by it.
fn read_manifest(store: &Store, key: SetKey) -> Result<SetManifest, Refusal> {
    let manifest = store.read_set(key).map_err(Refusal::Set)?;
    let index = store.read_index(key);
    let index = index.map_err(|source| Refusal::IndexFile { set: key, source })?;
    let proved = manifest.verify_index(&index);
    proved.map_err(|source| Refusal::Index { set: key, source })?;
    Ok(manifest)
}

/// Finds the one set that digits name; all 64 are taken as they are.
fn find(store: &Store, digits: Option<&str>) -> Result<SetKey, Refusal> {
    let name = digits.unwrap_or_default();
    if digits.is_some() {
        let is_hex = name
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hex || !(SetName::DIGITS_MIN..=64).contains(&name.len()) {
            return Err(Refusal::Name {
                name: name.to_owned(),
            });
        }
        if let Ok(key) = SetKey::parse(name) {
            return Ok(key);
        }
    }
    let sets = store.list_sets().map_err(Refusal::Sets)?;
    let mut found = sets
        .into_iter()
        .filter(|set| set.to_string().starts_with(name));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Refusal::NoSet {
            digits: name.to_owned(),
            root: store.config().root.clone(),
        }),
        (Some(first), Some(second)) => Err(Refusal::ManySets {
            digits: name.to_owned(),
            first,
            second,
        }),
    }
}

/// Takes the folder of a set apart.
fn split_folder(folder: &Path) -> Result<(PathBuf, SetKey), Refusal> {
    let refuse = || Refusal::Name {
        name: folder.display().to_string(),
    };
    let name = folder.file_name().and_then(|name| name.to_str());
    let key = SetKey::parse(name.ok_or_else(refuse)?).map_err(|_| refuse())?;
    let sets = folder.parent().filter(|sets| sets.ends_with("v1/sets"));
    let root = sets.and_then(Path::parent).and_then(Path::parent);
    Ok((root.ok_or_else(refuse)?.to_owned(), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_sets_only_where_a_store_has_its_sets() {
        let key = "ab".repeat(32);
        let split = |folder: &str| split_folder(Path::new(folder));
        let (root, set) = split(&format!("/stores/mine/v1/sets/{key}/")).expect("because it is");
        assert_eq!(
            (root.as_path(), set.to_string()),
            (Path::new("/stores/mine"), key.clone())
        );
        let folders = [
            format!("/stores/mine/v2/sets/{key}"),
            format!("/stores/mine/v1/packs/{key}"),
            format!("/stores/mine/v1/sets/{}", &key[..63]),
            format!("/stores/mine/v1/sets/{key}/manifest.json"),
            format!("v1/sets/..{key}"),
            "/".to_owned(),
            "..".to_owned(),
        ];
        for folder in folders {
            let name = Path::new(&folder).display().to_string();
            assert_eq!(split(&folder), Err(Refusal::Name { name }), "{folder}");
        }
    }
}
