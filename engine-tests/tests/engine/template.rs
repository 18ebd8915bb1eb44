//! A store that a real fill made once, for the tests that are about something else.
//!
//! It is named after the plug-in and the engine that made it, so another build makes another one.

use engine_tests::{Sandbox, places};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const PARTS: [&str; 2] = ["store", "state"];

/// Where the template of this plug-in and engine lies, or will lie.
pub(crate) fn path() -> PathBuf {
    let engine = places::engine_bin().join("libggml-cpu.so");
    let mut name = String::from("template");
    for file in [places::plugin(), engine] {
        let metadata =
            fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let changed = (metadata.mtime(), metadata.mtime_nsec(), metadata.len());
        name.push_str(&format!("-{:x}.{:x}.{:x}", changed.0, changed.1, changed.2));
    }
    places::target().join("engine-tests").join(name)
}

/// Makes the sandbox's store the template, whole or not at all, and removes older ones.
pub(crate) fn publish(sandbox: &Sandbox, template: &Path) {
    let parent = template.parent().expect("the template lies in a folder");
    for entry in fs::read_dir(parent)
        .expect("the build folder is readable")
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with("template") {
            fs::remove_dir_all(entry.path()).expect("older templates are ours");
        }
    }
    let aside = sandbox.path().join("template");
    fs::create_dir(&aside).expect("the sandbox is writable");
    for part in PARTS {
        copy(&sandbox.path().join(part), &aside.join(part));
    }
    fs::rename(&aside, template).expect("both lie in one file system");
}

/// Copies the template's parts over the sandbox's, and writes them back as a fill does: the kernel
/// counts mapped pages that are not on disk yet as dirty.
pub(crate) fn copy_into(template: &Path, sandbox: &Sandbox) {
    for part in PARTS {
        copy(&template.join(part), &sandbox.path().join(part));
    }
    let store = fs::File::open(sandbox.store()).expect("it was just copied");
    rustix::fs::syncfs(store).expect("the build folder's file system can be synced");
}

fn copy(source: &Path, target: &Path) {
    let metadata = fs::symlink_metadata(source).expect("the source is readable");
    if !metadata.is_dir() {
        fs::copy(source, target).expect("the build folder has room");
        return;
    }
    if !target.exists() {
        fs::create_dir(target).expect("the build folder is writable");
    }
    for entry in fs::read_dir(source)
        .expect("the source is readable")
        .flatten()
    {
        copy(&entry.path(), &target.join(entry.file_name()));
    }
    fs::set_permissions(target, metadata.permissions()).expect("the copy is ours");
}
