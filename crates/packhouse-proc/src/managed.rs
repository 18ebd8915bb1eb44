//! The workers of this user that may live, of all fleets: what a start must not collide with.
//!
//! Invariants: a worker counts while anything of its newest run is proven to live, or while its
//! keeper holds the run; a record that can't be read is named, never taken for the absence of a
//! worker.

use crate::devices::DeviceId;
use crate::group::members;
use crate::holders::ManagedWorker;
use crate::procfs::{Procfs, ProcfsError};
use crate::records::{Launched, Order};
use crate::runs::{Run, Runs, RunsError};
use packhouse_base::Blame;
use packhouse_sys::fs::Fs;
use std::path::Path;
use std::sync::Arc;

/// The workers that may live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    /// Those whose records were read.
    pub workers: Vec<ManagedWorker>,
    /// Those whose records can't be read, and why.
    pub unreadable: Vec<Unreadable>,
}

/// A worker whose records can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its fleet.
    pub fleet: String,
    /// Its name.
    pub worker: String,
    /// Why.
    pub why: RunsError,
}

/// Why workers can't be listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedError {
    /// The folder of fleets.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// Processes.
    #[error(transparent)]
    Procfs(#[from] ProcfsError),
}

impl ManagedError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Runs(error) => error.blame(),
            Self::Procfs(error) => error.blame(),
        }
    }
}

/// Finds the workers of all fleets below a state folder that may live.
pub fn managed(fs: &Arc<dyn Fs>, procfs: &Procfs, state: &Path) -> Result<Managed, ManagedError> {
    let mut found = Managed::default();
    for fleet in Runs::fleets(fs.as_ref(), state)? {
        for worker in Runs::workers(fs.as_ref(), state, &fleet)? {
            match newest(fs, state, &fleet, &worker) {
                Ok(None) => {}
                Ok(Some((run, order, launched))) => {
                    let managed = living(procfs, &run, &order, launched.as_ref())?;
                    found.workers.extend(managed);
                }
                Err(why) => found.unreadable.push(Unreadable {
                    fleet: fleet.clone(),
                    worker,
                    why,
                }),
            }
        }
    }
    Ok(found)
}

type Newest = (Run, Order, Option<Launched>);

fn newest(
    fs: &Arc<dyn Fs>,
    state: &Path,
    fleet: &str,
    worker: &str,
) -> Result<Option<Newest>, RunsError> {
    let Some(runs) = Runs::open(Arc::clone(fs), state, fleet, worker)? else {
        return Ok(None);
    };
    let Some(run) = runs.newest()? else {
        return Ok(None);
    };
    let (order, launched) = (run.order()?, run.read()?);
    Ok(Some((run, order, launched)))
}

fn living(
    procfs: &Procfs,
    run: &Run,
    order: &Order,
    launched: Option<&Launched>,
) -> Result<Option<ManagedWorker>, ManagedError> {
    // What runs on another machine has nothing of this one.
    if order.at.boot != procfs.boot_id() {
        return Ok(None);
    }
    let keys = if order.controller.pid_namespace == procfs.pid_namespace() {
        let members = members(procfs, &order.ownership(launched))?;
        let ours = members.keeper.iter().chain(&members.ours);
        let keys: Vec<_> = ours.map(|member| member.key).collect();
        if keys.is_empty() && !run.keeper_lives()? {
            return Ok(None);
        }
        keys
    } else {
        // Its processes have no pids here: it may live unless nobody has the run.
        if run.is_held()? == Some(false) {
            return Ok(None);
        }
        let launched = launched.iter();
        launched
            .flat_map(|launched| [launched.keeper, launched.worker])
            .collect()
    };
    let devices = order.devices.iter();
    Ok(Some(ManagedWorker {
        fleet: order.fleet.clone(),
        worker: order.worker.clone(),
        keys,
        address: (order.host, order.port).into(),
        devices: devices
            .map(|device| DeviceId::recorded(&device.id))
            .collect(),
        cores: order.cores.clone(),
    }))
}
