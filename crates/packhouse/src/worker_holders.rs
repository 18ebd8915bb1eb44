//! Who else holds the devices of a worker, for `worker status`.

use crate::worker_order::say_holders;
use packhouse_proc::devices::{DeviceSpec, Inventory};
use packhouse_proc::holders::{Context, ManagedWorker, Processes};
use packhouse_proc::identity::ProcessKey;
use packhouse_proc::managed::managed;
use packhouse_proc::procfs::Procfs;
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The host's devices, and all who may hold them, looked at once.
pub(crate) struct Host {
    inventory: Inventory,
    processes: Result<Processes, String>,
    managed: Vec<ManagedWorker>,
    own: Option<ProcessKey>,
    unknown: Vec<String>,
}

/// What is told of the devices of one worker.
#[derive(Default)]
pub(crate) struct Others {
    /// Who holds one, or may.
    pub(crate) holders: Vec<String>,
    /// What is worth knowing, and what could not be told.
    pub(crate) notes: Vec<String>,
}

impl Others {
    /// Both as a document.
    pub(crate) fn document(&self) -> Value {
        json!({"holders": self.holders, "notes": self.notes})
    }
}

impl Host {
    /// Looks at this host.
    pub(crate) fn look(inventory: Inventory, procfs: &Procfs, state: &Path) -> Self {
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let mut unknown = Vec::new();
        let workers = match managed(&fs, procfs, state) {
            Ok(found) => {
                unknown.extend(found.unreadable.iter().map(|unread| {
                    let (fleet, worker, why) = (&unread.fleet, &unread.worker, &unread.why);
                    format!("whether worker {worker} of fleet {fleet} lives is unknown: {why}")
                }));
                found.workers
            }
            Err(error) => {
                unknown.push(format!("which workers live is unknown: {error}"));
                Vec::new()
            }
        };
        Self {
            inventory,
            processes: Processes::look(procfs).map_err(|error| error.to_string()),
            managed: workers,
            own: procfs.own_key().ok(),
            unknown,
        }
    }

    /// Who but a worker itself holds its devices.
    pub(crate) fn others(
        &self,
        (fleet, worker): (&str, &str),
        devices: &[String],
        own: impl Iterator<Item = ProcessKey>,
    ) -> Others {
        let mut told = Others {
            notes: self.unknown.clone(),
            ..Others::default()
        };
        let seen = match &self.processes {
            Ok(seen) => seen,
            Err(why) => {
                told.notes
                    .push(format!("who holds its devices is unknown: {why}"));
                return told;
            }
        };
        let is_other = |other: &&ManagedWorker| other.fleet != fleet || other.worker != worker;
        let others: Vec<ManagedWorker> = self.managed.iter().filter(is_other).cloned().collect();
        let context = Context {
            inventory: &self.inventory,
            managed: &others,
            exclude: &own.chain(self.own).collect::<BTreeSet<_>>(),
        };
        for id in devices {
            let device = DeviceSpec::parse(id)
                .map_err(|error| error.to_string())
                .and_then(|spec| {
                    self.inventory
                        .find(&spec)
                        .map_err(|error| error.to_string())
                });
            let found = device.and_then(|device| {
                let found = seen.holders(&device, &context);
                found
                    .map(|found| (device, found))
                    .map_err(|error| error.to_string())
            });
            match found {
                Ok((device, found)) => {
                    say_holders(&device, &found, &mut told.holders, &mut told.notes);
                }
                Err(why) => told.notes.push(format!("who holds {id} is unknown: {why}")),
            }
        }
        told
    }
}
