//! Who uses a copy of a model: which processes have one of its files open or mapped.

use crate::files::seen_stat;
use crate::places::{Lookup, Places};
use crate::stage;
use packhouse_proc::managed::managed;
use packhouse_proc::procfs::{Process, Procfs};
use packhouse_stage::models::ModelListing;
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of one copy: by their folder, and by name and inode where another path leads there, as
/// in a container.
pub(crate) struct Wanted {
    folder: PathBuf,
    inodes: BTreeSet<(OsString, u64)>,
}

/// All processes whose files could be read.
pub(crate) struct Users {
    processes: Vec<Process>,
    /// Which process is of which worker of which fleet.
    workers: BTreeMap<u32, String>,
    /// Why it is not known who uses a copy, if so.
    pub(crate) problem: Option<String>,
}

impl Wanted {
    /// Looks at the files of a copy as they are now.
    pub(crate) fn of(root: &Path, copy: &ModelListing) -> Self {
        let name = format!("{}.{}", copy.key, copy.generation);
        let folder = stage::real(root).join("models").join(name);
        let inode = |name: &String| {
            let seen = seen_stat(&folder.join("files").join(name)).ok().flatten()?;
            Some((OsString::from(name), seen.inode))
        };
        let inodes = copy.files.iter().filter_map(inode).collect();
        Self { folder, inodes }
    }

    fn has(&self, process: &Process) -> bool {
        let mapped = process.mapped_files().unwrap_or_default();
        let is_mapped = mapped.iter().any(|file| {
            let name = file.path.file_name().unwrap_or_default();
            let is_inode = || self.inodes.contains(&(name.to_owned(), file.inode));
            file.path.starts_with(&self.folder) || is_inode()
        });
        let is_open = || {
            let open = process.open_files().unwrap_or_default();
            let mut open = open.iter();
            open.any(|file| file.target.starts_with(&self.folder))
        };
        is_mapped || is_open()
    }
}

impl Users {
    /// Looks at all processes once. This one is no user.
    pub(crate) fn look(lookup: Lookup<'_>) -> Self {
        let mut users = Self {
            processes: Vec::new(),
            workers: BTreeMap::new(),
            problem: None,
        };
        let looked = Procfs::new(Path::new("/proc")).and_then(|procfs| {
            let processes = procfs.processes()?.shown;
            Ok((procfs, processes))
        });
        let (procfs, processes) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                users.problem = Some(error.to_string());
                return users;
            }
        };
        let is_other = |process: &Process| process.key.pid != std::process::id();
        users.processes = processes.into_iter().filter(is_other).collect();
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let state = Places::find(lookup).map(|places| places.state);
        // Without its name a worker's engine is a process like others.
        let found = state
            .ok()
            .and_then(|state| managed(&fs, &procfs, &state).ok());
        for worker in found.map(|found| found.workers).unwrap_or_default() {
            for key in &worker.keys {
                let name = format!("worker {} of fleet {}", worker.worker, worker.fleet);
                users.workers.insert(key.pid, name);
            }
        }
        users
    }

    /// Those that use one of these files, in words for people.
    pub(crate) fn of(&self, wanted: &Wanted) -> Vec<String> {
        let users = self.processes.iter().filter(|process| wanted.has(process));
        let say = |process: &Process| {
            let (pid, name) = (process.key.pid, &process.name);
            match self.workers.get(&pid) {
                Some(worker) => format!("{worker} (pid {pid}, {name})"),
                None => format!("pid {pid} ({name})"),
            }
        };
        users.map(say).collect()
    }
}
