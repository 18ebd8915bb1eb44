//! The identity of a build: what it was made of, what it is, what it loads, and where it runs, as
//! one digest.
//!
//! Invariants:
//! - *facts* are hashed, *places* are only shown: a build at another path is the same build;
//! - what can't be known stands in the facts as unknown, with its reason; it is never left out;
//! - a file's digest is believed by a receipt only for the very stat identity it was found for;
//! - git that fails is an error, never a clean tree.
//!
//! Never: runs a program of the build. Its dynamic loader is asked what it would load. Format:
//! `docs/format/fingerprint.md`.

mod ask;
mod digests;
mod disk;
mod elf;
mod error;
mod git;
mod host;
mod keep;
mod loader;
mod names;
mod objects;
mod parts;
mod record;
mod source;
mod system;
mod tree;
mod walk;

pub use error::FingerprintError;
pub use keep::{KeepError, KeptFingerprints};
pub use parts::{LoadedObject, WorkTree, objects_of, work_tree};
pub use record::{Difference, Fingerprint, RecordError, explain};

use digests::Digests;
use packhouse_base::digest::Digest;
use packhouse_proc::devices::{Roots, Tools};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::Fs;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is to be identified.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The build's folder.
    pub build: &'a Path,
    /// The source's folder, where the build system does not name it.
    pub source: Option<&'a Path>,
    /// Files of other folders that the build's programs or tests load or read: libraries, data.
    pub with: &'a [PathBuf],
    /// The whole environment that programs of the build will run with: it decides what their
    /// dynamic loader finds.
    pub environment: &'a [(OsString, OsString)],
}

/// What the answer depends on beside the build.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// The file systems, for private state.
    pub fs: &'a Arc<dyn Fs>,
    /// The clocks.
    pub clock: &'a Arc<dyn Clock>,
    /// The user's folder of private state, where digests of files are remembered. `None`: every
    /// file is hashed.
    pub state: Option<&'a Path>,
    /// Vendors' libraries and tools.
    pub tools: &'a dyn Tools,
    /// Where the kernel's file systems are.
    pub roots: &'a Roots,
    /// The user's own environment, of which git and compilers get `PATH`, `HOME` and
    /// `XDG_CONFIG_HOME`.
    pub own: &'a [(OsString, OsString)],
}

/// Identifies a build. Errors when the folder holds no program and no library, when a file of it
/// can't be read or changes meanwhile, and when git or the dynamic loader fails.
pub fn fingerprint(
    request: &Request<'_>,
    world: &World<'_>,
) -> Result<Fingerprint, FingerprintError> {
    let folder = source::real_folder(request.build)?;
    let folder = folder.ok_or_else(|| FingerprintError::Folder {
        path: request.build.to_owned(),
        why: "no such folder".to_owned(),
    })?;
    let (top, system) = system::find(&folder)?;
    let build = walk::walk(&top)?;
    if !build.found.iter().any(|found| found.object.is_some()) {
        return Err(FingerprintError::NoPrograms { path: folder });
    }
    let digests = Digests::open(world.fs, world.clock.as_ref(), world.state, &top);
    let named = match (request.source, system.source()) {
        (Some(given), _) => source::Named::Given(given),
        (None, Some(recorded)) => source::Named::Recorded(recorded),
        (None, None) => source::Named::Nowhere,
    };
    let (with, environment, own) = (request.with, request.environment, world.own);
    let (source, objects, system_facts) = std::thread::scope(|scope| {
        // Git and the loader are waited for, each for itself.
        let source = scope.spawn(|| source::look(&named, &top, own, &digests));
        let objects = objects::facts(&top, &build, with, environment, &digests);
        let system_facts = system.facts(own, &digests);
        let source = source.join();
        (source, objects, system_facts)
    });
    let source = source.expect("because looking at the source does not panic")?;
    let (objects, system_facts) = (objects?, system_facts?);
    let mut files = BTreeMap::new();
    for path in system.files().into_iter().chain(objects.files) {
        let content = digests.of(&path)?;
        files.insert(path, content.sha256);
    }
    let facts = json!({
        "build_system": system_facts,
        "host": host::facts(world),
        "libraries": objects.libraries,
        "links": build.links,
        "names": objects.names,
        "programs": objects.programs,
        "runtimes": objects.runtimes,
        "scripts": objects.scripts,
        "source": source.facts,
        "with": objects.with,
    });
    let located = files
        .iter()
        .map(|(path, digest)| (disk::text(path), json!(digest.to_string())));
    let places = json!({
        "build": disk::text(&top),
        "files": located.collect::<Map<_, _>>(),
        "source": source.top.map(disk::text),
    });
    let identities = digests.identities();
    digests.keep()?;
    Ok(Fingerprint::new(facts, places, files).with_identities(identities))
}

/// The real path of a file and the digest of its content, hashed now: what `Fingerprint::covers` is
/// asked with. Errors when it is no regular file, can't be read, or changes meanwhile.
pub fn content_of(path: &Path, world: &World<'_>) -> Result<(PathBuf, Digest), FingerprintError> {
    let wrong = |why: String| FingerprintError::File {
        path: path.to_owned(),
        why,
    };
    let real = disk::real(path).map_err(|error| wrong(error.to_string()))?;
    let real = real.ok_or_else(|| wrong("no such file".to_owned()))?;
    let digests = Digests::open(world.fs, world.clock.as_ref(), None, &real);
    let content = digests.of(&real)?;
    Ok((real, content.sha256))
}

/// Whether a file is an ELF object without a dynamic section: as a program it loads nothing. What
/// can't be read is not.
pub fn is_static(path: &Path) -> bool {
    let object = disk::open(path).and_then(|file| elf::object(&file));
    matches!(object, Ok(Some(object)) if !object.is_dynamic && object.interpreter.is_none())
}
