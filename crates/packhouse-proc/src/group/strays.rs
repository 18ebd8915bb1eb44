//! Processes of workers whose records are gone: they are told of, and nobody signals them.

use crate::identity::{ProcessKey, RUN_ID_VARIABLE, RunId};
use crate::procfs::{Process, Procfs, ProcfsError};
use std::collections::BTreeSet;
use std::path::Path;

/// A process whose environment names a run that no record knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// What names it.
    pub key: ProcessKey,
    /// Its name.
    pub name: String,
    /// The run that it names.
    pub run: RunId,
}

/// Finds the processes of runs that are not `known`, which have a file below a worker's folder
/// open, removed or not, as an engine its log, or are among those `on_port`. Others may be of
/// another state folder.
pub fn strays(
    procfs: &Procfs,
    folder: &Path,
    known: &BTreeSet<RunId>,
    on_port: &BTreeSet<ProcessKey>,
) -> Result<Vec<Stray>, ProcfsError> {
    let own = procfs.own_key()?;
    let mut found = Vec::new();
    for process in procfs.processes()?.shown {
        if process.key == own || process.is_kernel_thread {
            continue;
        }
        if let Some(run) = named_run(&process)
            && !known.contains(&run)
            && (on_port.contains(&process.key) || has_open_below(&process, folder))
        {
            found.push(Stray {
                key: process.key,
                name: process.name.clone(),
                run,
            });
        }
    }
    found.sort_by_key(|stray| stray.key.pid);
    Ok(found)
}

/// The run that a process' environment names, where it can be read.
pub fn named_run(process: &Process) -> Option<RunId> {
    let environment = process.environment().ok()?;
    let named = environment
        .iter()
        .find(|(name, _)| name == RUN_ID_VARIABLE)?;
    named.1.to_str()?.parse().ok()
}

fn has_open_below(process: &Process, folder: &Path) -> bool {
    // One that can't be asked is not known to be of this worker.
    let files = process.open_files().unwrap_or_default();
    files.iter().any(|file| file.target.starts_with(folder))
}
