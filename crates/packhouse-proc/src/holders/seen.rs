//! What can be seen of one process that bears on devices.
//!
//! Invariants:
//! - each thing is an answer or the reason why there is none; nothing unreadable reads as empty;
//! - a process that ended while it was looked at is no process.
//!
//! Never: judges; that is `holders`' work.

use super::engines::{self, Kind};
use crate::cores::CpuSet;
use crate::devices::fdinfo::{DrmClient, drm_clients};
use crate::identity::ProcessKey;
use crate::masks::Runtimes;
use crate::procfs::{Process, Unreadable};
use std::ffi::OsString;
use std::path::PathBuf;

/// A process as far as it can be seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) key: ProcessKey,
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) affinity: CpuSet,
    pub(super) is_below: bool,
    /// Whether it looks like an engine, and by what.
    pub(super) kind: Kind,
    /// Its open device nodes, by number, and DRM clients.
    pub(super) nodes: Result<Nodes, Unreadable>,
    /// The runtimes that it maps.
    pub(super) runtimes: Result<Runtimes, Unreadable>,
    /// Whether it only asks NVIDIA's cards how they are: it maps NVML and no memory of a card.
    pub(super) asks_only: bool,
    /// The environment that it was started with; read of engines only.
    pub(super) environment: Result<Vec<(OsString, OsString)>, Unreadable>,
}

/// The device nodes that a process has open.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    pub(super) open: Vec<(u64, PathBuf)>,
    /// The paths of all that is open below `/dev`.
    pub(super) devices: Vec<PathBuf>,
    pub(super) clients: Vec<DrmClient>,
}

impl Seen {
    /// Looks at a process; `None`: it ended.
    pub(super) fn look(process: &Process) -> Option<Self> {
        let nodes = nodes(process);
        let maps = process.mapped_files();
        let program = process.executable().map(|program| program.path);
        let command = process.command();
        if [
            nodes.as_ref().err(),
            maps.as_ref().err(),
            program.as_ref().err(),
            command.as_ref().err(),
        ]
        .contains(&Some(&Unreadable::Gone))
        {
            return None;
        }
        let libraries = maps.as_ref().ok().map(Vec::as_slice).unwrap_or_default();
        let kind = engines::kind(
            &process.name,
            program.as_deref().ok(),
            command.as_deref().unwrap_or_default(),
            libraries,
        );
        let environment = if kind.is_engine() {
            process.environment()
        } else {
            Ok(Vec::new())
        };
        Some(Self {
            key: process.key,
            name: process.name.clone(),
            uid: process.uid,
            affinity: process.affinity.clone(),
            is_below: process.is_below,
            kind,
            nodes,
            asks_only: engines::asks_only(libraries),
            runtimes: maps.map(|maps| engines::runtimes(&maps)),
            environment,
        })
    }

    /// Whether it may keep cores busy: not who only asks cards how they are.
    pub(super) fn computes_on_cores(&self) -> bool {
        match self.kind {
            Kind::Other => false,
            Kind::ByCardLibrary => !self.asks_only,
            Kind::ByCoreLibrary | Kind::ByName => true,
        }
    }

    /// Whether something of it that bears on devices could not be read.
    pub(super) fn is_partly_unreadable(&self) -> bool {
        self.nodes.is_err() || self.runtimes.is_err() || self.environment.is_err()
    }
}

fn nodes(process: &Process) -> Result<Nodes, Unreadable> {
    let mut nodes = Nodes::default();
    let mut texts = Vec::new();
    for file in process.open_files()? {
        if file.target.starts_with("/dev/dri") || file.target.starts_with("/dev/accel") {
            match process.fdinfo(file.fd) {
                Ok(text) => texts.push(text),
                // It closed the file since.
                Err(Unreadable::Closed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if file.target.starts_with("/dev") {
            nodes.devices.push(file.target.clone());
        }
        if let Some(rdev) = file.rdev {
            nodes.open.push((rdev, file.target));
        }
    }
    nodes.clients = drm_clients(texts.iter().map(String::as_str));
    Ok(nodes)
}
