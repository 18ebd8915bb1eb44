//! A store with a set that can be exported, and hands to look into folders and damage them.

use crate::foreign_world::{PACKERS, dir_at, hashed, model_at, model_bytes, packed};
use crate::store_fixture::{config, folder, real};
use packhouse_prepare::foreign::xe2_m6_v2::{
    self as xe2, ExportTargets, ForeignExport, ForeignExportError, ForeignImport,
    ForeignImportError, pretty,
};
use packhouse_store::container_record::ContainerRecord;
use packhouse_store::manifest::SetManifest;
use packhouse_store::root::Store;
use packhouse_sys::real::RealFs;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A store with a set, its model, and a folder for directories of the other side.
pub(crate) struct Source {
    pub(crate) home: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) manifest: SetManifest,
}

impl Source {
    pub(crate) fn new() -> Self {
        let model = model_bytes("");
        Self::with(&hashed(&model))
    }

    pub(crate) fn with(record: &ContainerRecord) -> Self {
        let home = folder();
        let store = real(config(home.path()));
        let model = model_bytes("");
        let manifest = packed(&store, &model, record);
        write(&home.path().join("model.gguf"), &model);
        make(&home.path().join("packs"));
        Self {
            home,
            store,
            manifest,
        }
    }

    pub(crate) fn packs(&self) -> PathBuf {
        self.home.path().join("packs")
    }

    pub(crate) fn export(&self) -> Result<ForeignExport, ForeignExportError> {
        self.export_and_stage(None)
    }

    /// Exports, and stages below this folder too.
    pub(crate) fn export_and_stage(
        &self,
        stage: Option<&Path>,
    ) -> Result<ForeignExport, ForeignExportError> {
        let model = model_at(&RealFs, &self.home.path().join("model.gguf"));
        let root = dir_at(&RealFs, &self.packs());
        let stage = stage.map(|path| dir_at(&RealFs, path));
        let targets = ExportTargets {
            root: &root,
            stage: stage.as_ref(),
        };
        xe2::export(
            &self.store,
            self.manifest.key(),
            &model,
            targets,
            &mut |_, _| {},
        )
    }

    pub(crate) fn exported() -> (Self, ForeignExport) {
        let source = Self::new();
        let export = source.export().expect("because nothing is in the way");
        (source, export)
    }
}

pub(crate) fn import(store: &Store, folder: &Path) -> Result<ForeignImport, ForeignImportError> {
    import_of(store, folder, None)
}

/// Imports with this model at hand.
pub(crate) fn import_of(
    store: &Store,
    folder: &Path,
    model: Option<&Path>,
) -> Result<ForeignImport, ForeignImportError> {
    let name = folder.file_name().expect("because it has a name");
    let name = name.to_str().expect("because it is plain");
    let dir = dir_at(&RealFs, folder);
    let model = model.map(|path| model_at(&RealFs, path));
    xe2::import(
        store,
        &PACKERS,
        (&dir, name),
        model.as_ref(),
        &mut |_, _| {},
    )
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).expect("because the folder is ours");
    }
    std::fs::write(path, bytes).expect("because the folder is ours");
}

pub(crate) fn make(path: &Path) {
    std::fs::create_dir(path).expect("because it is new");
}

pub(crate) fn read_json(path: &Path) -> Value {
    let bytes = std::fs::read(path).expect("because it was written");
    serde_json::from_slice(&bytes).expect("because it is JSON")
}

pub(crate) fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .expect("because it is there")
        .map(|entry| {
            let entry = entry.expect("because it can be listed");
            entry
                .file_name()
                .into_string()
                .expect("because it is plain")
        })
        .collect();
    names.sort();
    names
}

/// Sets a value at a path like `tensors.0.payload.sha256` of a JSON file.
pub(crate) fn edit(path: &Path, at: &str, value: Value) {
    let mut root = read_json(path);
    let mut place = &mut root;
    for part in at.split('.') {
        place = match part.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[part],
        };
    }
    assert_ne!(*place, value, "{at} has that value");
    *place = value;
    write(path, &pretty(&root));
}

pub(crate) fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("because it is there");
    bytes[at] ^= 1;
    write(path, &bytes);
}

pub(crate) fn remove(path: &Path) {
    std::fs::remove_file(path).expect("because it is there");
}
