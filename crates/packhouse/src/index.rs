//! `index`: the runtime index of a set, for loaders that are not ours.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::folders;
use crate::hints;
use crate::stores::{self, short};
use packhouse_prepare::beside::FileBeside;
use packhouse_store::root::Store;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::io;
use std::path::Path;

/// Prints the index, or writes it to a file that must not be there.
pub(crate) fn index(
    store: &Store,
    digits: Option<&str>,
    output: Option<&Path>,
) -> Result<Answer, Failure> {
    let set = stores::find_set(store, digits)?;
    let manifest = store.read_set(set).map_err(|error| {
        Failure::new("cannot read the set", short(&set))
            .because(&error)
            .hint(format!("packhouse repair {}", short(&set)))
    })?;
    let bytes = manifest.render_index();
    if let Some(path) = output {
        write_new(path, &bytes).map_err(|error| {
            Failure::new("cannot write the index", path.display())
                .because(&error)
                .hint(hints::of(&error, path))
        })?;
    }
    let entries: Vec<Value> = manifest
        .entries()
        .iter()
        .map(|entry| {
            json!({
                "slot": entry.slot,
                "tensor": entry.tensor,
                "pack": entry.pack.to_string(),
                "object": entry.object.to_string(),
                "length": entry.length,
            })
        })
        .collect();
    let json = json!({
        "set": set.to_string(),
        "plan": manifest.plan(),
        "output": output.map(|path| path.display().to_string()),
        "entries": entries,
    });
    let text = match output {
        None => String::from_utf8_lossy(&bytes).into_owned(),
        Some(path) => {
            let count = manifest.entries().len();
            format!("index of {count} tensors written to {}\n", path.display())
        }
    };
    Ok(Answer::done(text, json))
}

/// Writes a file under a name that must be free: whole, or not at all.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (folder, name) = folders::split(path)?;
    let dir = folders::open(&RealFs, &folder)?;
    let beside = FileBeside::create(&RealFs, &dir).map_err(io::Error::other)?;
    let written = beside.file().write_all_at(0, bytes);
    written.map_err(io::Error::other)?;
    beside.publish(&name).map_err(io::Error::other)
}
