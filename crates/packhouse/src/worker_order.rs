//! What `worker start` orders: the model and its digest, the devices as they are, the command and
//! environment as text, and what is in the way of it.

use crate::bar::Bar;
use crate::model_source::file_digest;
use crate::places::Lookup;
use packhouse_base::digest::Digest;
use packhouse_proc::devices::{Device, Inventory, Observation, Vendor};
use packhouse_proc::fleet::{self, Worker};
use packhouse_proc::group::strays::named_run;
use packhouse_proc::holders::{Holders, ManagedWorker};
use packhouse_proc::listeners::{collide, conflicts, listeners, owners_of};
use packhouse_proc::procfs::{Procfs, ProcfsError};
use packhouse_proc::records::{Backend, OrderDevice, OrderModel, StopTimeouts};
use packhouse_proc::render::Rendered;
use packhouse_proc::systemd::{Manager, ManagerState};
use packhouse_stage::models::AdmittedModel;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

/// Command and environment of a worker, as records hold them.
pub(crate) struct Words {
    pub(crate) command: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
}

/// Who will hold the keeper, or why it can't be who the fleet file wants.
pub(crate) fn backend(wanted: fleet::Backend) -> Result<Backend, String> {
    match wanted {
        fleet::Backend::Plain => Ok(Backend::Plain),
        fleet::Backend::Auto => match Manager::default().state() {
            ManagerState::Answers { .. } => Ok(Backend::Systemd),
            ManagerState::Silent { .. } => Ok(Backend::Plain),
        },
        fleet::Backend::Systemd => match Manager::default().state() {
            ManagerState::Answers { .. } => Ok(Backend::Systemd),
            ManagerState::Silent { why } => Err(format!(
                "backend is systemd, and no user manager answers: {why}"
            )),
        },
    }
}

/// The model that a worker is given, with its SHA-256: by the copy's receipt, or hashed. Errors
/// where it is not what the fleet file says.
pub(crate) fn model(
    worker: &Worker,
    path: &Path,
    copy: Option<&AdmittedModel>,
    lookup: Lookup<'_>,
) -> Result<Option<OrderModel>, String> {
    let Some(own) = &worker.model else {
        return Ok(None);
    };
    if let Some(copy) = copy.filter(|copy| copy.path == path) {
        return Ok(Some(OrderModel {
            source: own.path.clone(),
            path: copy.path.clone(),
            ram_copy: true,
            sha256: Some(copy.digest),
            bytes: copy.bytes,
        }));
    }
    let bar = Bar::new();
    bar.start("hash", length(path));
    let hashed = file_digest(path, lookup, &|bytes| bar.done(bytes), &|| false);
    let hashed =
        hashed.map_err(|failure| format!("{}: {}", failure.headline(), failure.reason()))?;
    as_wanted(own.sha256, hashed.digest, path)?;
    Ok(Some(OrderModel {
        source: own.path.clone(),
        path: path.to_owned(),
        ram_copy: false,
        sha256: Some(hashed.digest),
        bytes: hashed.bytes,
    }))
}

fn as_wanted(wanted: Option<Digest>, found: Digest, path: &Path) -> Result<(), String> {
    match wanted {
        Some(wanted) if wanted != found => Err(format!(
            "model {} has SHA-256 {found}, and model_sha256 is {wanted}",
            path.display()
        )),
        Some(_) | None => Ok(()),
    }
}

/// For the progress bar only.
#[expect(
    clippy::disallowed_methods,
    reason = "a length to draw, nothing to judge by"
)]
fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

/// Command and environment as text. Errors name the word that is none.
pub(crate) fn words(rendered: &Rendered) -> Result<Words, String> {
    let text = |word: &OsStr, what: &str| {
        let text = word.to_str().map(str::to_owned);
        text.ok_or_else(|| format!("{what} is not UTF-8: {}", word.display()))
    };
    let command = rendered.command.iter();
    let command: Result<_, String> = command
        .map(|word| text(word, "a word of the command"))
        .collect();
    let environment = rendered.environment.iter();
    let environment: Result<_, String> = environment
        .map(|(name, value)| {
            let name = text(name, "the name of a variable")?;
            // The value is not shown: it may be a secret.
            let value = value.to_str().map(str::to_owned);
            let value = value.ok_or_else(|| format!("the value of {name} is not UTF-8"))?;
            Ok((name, value))
        })
        .collect();
    Ok(Words {
        command: command?,
        environment: environment?,
    })
}

/// The devices as they are before the start.
pub(crate) fn devices(devices: &[Device], fresh: &Inventory) -> Vec<OrderDevice> {
    let devices = devices.iter();
    devices
        .map(|device| {
            let now = fresh.devices.iter().find(|now| now.id == device.id);
            let memory = now.map_or(&device.memory, |now| &now.memory);
            OrderDevice {
                id: device.id.to_string(),
                name: device.name.clone(),
                used_bytes: match memory {
                    Observation::Known(memory) => Some(memory.used_bytes),
                    Observation::Absent | Observation::Unknown { .. } => None,
                },
            }
        })
        .collect()
}

pub(crate) fn stop_timeouts(timeouts: fleet::StopTimeouts) -> StopTimeouts {
    StopTimeouts {
        interrupt_s: timeouts.interrupt_s,
        terminate_s: timeouts.terminate_s,
        kill_s: timeouts.kill_s,
    }
}

/// Says who holds a device or may, and what else was seen of it.
pub(crate) fn say_holders(
    device: &Device,
    found: &Holders,
    reasons: &mut Vec<String>,
    notes: &mut Vec<String>,
) {
    let id = &device.id;
    for holder in &found.holding {
        reasons.push(format!("{id} is held by {holder}"));
    }
    for holder in &found.may_hold {
        reasons.push(format!("{id} may be held by {holder}"));
    }
    notes.extend(found.notes.iter().map(ToString::to_string));
    for unknown in &found.unknown {
        notes.push(format!("{}: unknown: {unknown}", device.id));
    }
    if found.unreadable_count > 0 && device.vendor != Vendor::Cpu {
        notes.push(match found.unreadable_count {
            1 => "one process can't be looked at in full".to_owned(),
            count => format!("{count} processes can't be looked at in full"),
        });
    }
}

/// Which workers have a worker's port by record, whether they listen yet or not, each in a line.
pub(crate) fn port_promised(others: &[ManagedWorker], worker: &Worker) -> Vec<String> {
    let own = (worker.host, worker.port).into();
    let others = others.iter();
    let others = others.filter(|other| collide(other.address, own));
    let said = |other: &ManagedWorker| {
        let (name, fleet) = (&other.worker, &other.fleet);
        format!(
            "port {} is taken: worker {name} of fleet {fleet} was started for {}",
            worker.port, other.address
        )
    };
    others.map(said).collect()
}

/// Who is in the way of a worker's port, each in a line.
pub(crate) fn port_taken(procfs: &Procfs, worker: &Worker) -> Result<Vec<String>, ProcfsError> {
    let found = listeners(procfs)?;
    let mut lines = Vec::new();
    for listener in conflicts(&found, worker.host, worker.port) {
        let owners = owners_of(procfs, listener.inode)?;
        let mut names = Vec::new();
        for key in &owners.known {
            let process = procfs.process(key.pid).ok().flatten();
            let name = process.filter(|process| process.key == *key);
            // A worker of another state folder, or one whose records are gone.
            let name = name.map_or_else(String::new, |process| match named_run(&process) {
                Some(run) => format!(" ({}, of a worker's run {run})", process.name),
                None => format!(" ({})", process.name),
            });
            names.push(format!("pid {}{name}", key.pid));
        }
        if names.is_empty() {
            names.push(format!("a process of user {}", listener.uid));
        }
        lines.push(format!(
            "port {} is taken: {} listens on {}",
            worker.port,
            names.join(", "),
            listener.address
        ));
    }
    Ok(lines)
}
