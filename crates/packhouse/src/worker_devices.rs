//! `worker devices`: the devices of this host, and what every source said of them.

use crate::answer::{Answer, Column, table};
use crate::failure::Failure;
use crate::places::Lookup;
use packhouse_base::units;
use packhouse_proc::devices::host_tools::{HostTools, QUESTION_NS};
use packhouse_proc::devices::{Device, Inventory, Observation, Roots, SourceReport, inventory};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Answers the command. What could not be known is in the answer; only writing it can fail.
pub(crate) fn devices(lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let inventory = look(lookup);
    Ok(Answer::done(text(&inventory), document(&inventory)))
}

/// Looks at this host with the tools of the user's PATH.
pub(crate) fn look(lookup: Lookup<'_>) -> Inventory {
    inventory(&tools(lookup), &Roots::default())
}

/// The libraries and tools of this host.
pub(crate) fn tools(lookup: Lookup<'_>) -> HostTools {
    let path = lookup("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    HostTools::new(folders, QUESTION_NS)
}

/// One line for the doctor: what there is, and which sources failed.
pub(crate) fn summary(inventory: &Inventory) -> String {
    let cards = inventory
        .devices
        .iter()
        .filter(|device| device.pci.is_some() && device.parent.is_none())
        .count();
    let cores = match &inventory.online {
        Observation::Known(online) => format!("{} cores", online.count()),
        Observation::Absent | Observation::Unknown { .. } => "cores unknown".to_owned(),
    };
    let nodes = inventory
        .devices
        .iter()
        .filter(|device| device.pci.is_none());
    let silent: Vec<&str> = silent(inventory).map(|report| report.source).collect();
    let silent = match silent.as_slice() {
        [] => String::new(),
        sources => format!("; no answer from {}", sources.join(", ")),
    };
    format!(
        "{cores} on {} NUMA nodes, {cards} cards{silent}",
        nodes.count()
    )
}

fn text(inventory: &Inventory) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(inventory.devices.iter().map(row));
    let mut text = table(&COLUMNS, &rows);
    if let Observation::Known(online) = &inventory.online {
        text += &format!("cpu:{online}  the cores of this host, or any part of them\n");
    }
    for device in &inventory.devices {
        for (what, why) in [
            ("memory", device.memory.why_unknown()),
            ("processes", device.processes.why_unknown()),
        ] {
            if let Some(why) = why {
                text += &format!("unknown {what} of {}: {why}\n", device.id);
            }
        }
    }
    for report in silent(inventory) {
        let why = report.outcome.why_unknown().unwrap_or_default();
        text += &format!("no answer from {}: {why}\n", report.source);
    }
    text
}

const HEAD: [&str; 8] = [
    "device",
    "at",
    "node",
    "NUMA",
    "memory",
    "in use",
    "processes",
    "name",
];
const COLUMNS: [Column; 8] = [
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Right,
    Column::Right,
    Column::Right,
    Column::Left,
    Column::Left,
];

fn row(device: &Device) -> Vec<String> {
    let none = || "-".to_owned();
    let memory = device.memory.known();
    let node = device
        .nodes
        .last()
        .and_then(|node| node.path.file_name())
        .map(|name| name.to_string_lossy().into_owned());
    let place = match (device.pci, &device.cores) {
        (Some(pci), _) => pci.to_string(),
        (None, Some(cores)) => format!("cores {cores}"),
        (None, None) => none(),
    };
    vec![
        device.id.to_string(),
        place,
        node.unwrap_or_else(none),
        device.numa.map_or_else(none, |node| node.to_string()),
        memory
            .and_then(|memory| memory.total_bytes)
            .map_or_else(none, units::bytes),
        match &device.memory {
            Observation::Known(memory) => units::bytes(memory.used_bytes),
            Observation::Absent => none(),
            Observation::Unknown { .. } => "unknown".to_owned(),
        },
        match &device.processes {
            Observation::Known(list) if list.is_empty() => "none".to_owned(),
            Observation::Known(list) => {
                let pids: Vec<String> = list.iter().map(|user| user.pid.to_string()).collect();
                pids.join(",")
            }
            Observation::Absent => none(),
            Observation::Unknown { .. } => "unknown".to_owned(),
        },
        device.name.clone(),
    ]
}

fn silent(inventory: &Inventory) -> impl Iterator<Item = &SourceReport> {
    inventory
        .reports
        .iter()
        .filter(|report| report.outcome.why_unknown().is_some())
}

fn document(inventory: &Inventory) -> Value {
    json!({
        "online_cores": observed(&inventory.online, |cores| json!(cores.to_string())),
        "devices": inventory.devices.iter().map(device).collect::<Vec<_>>(),
        "sources": inventory.reports.iter().map(source).collect::<Vec<_>>(),
    })
}

/// A device as programs read it.
pub(crate) fn device(device: &Device) -> Value {
    json!({
        "id": device.id.as_str(),
        "vendor": device.vendor.word(),
        "name": device.name,
        "uuid": device.uuid,
        "pci": device.pci.map(|pci| pci.to_string()),
        "drm": device.drm.as_ref().map(|drm| json!({
            "card": drm.card,
            "render": drm.render,
        })),
        "nodes": device.nodes.iter().map(|node| json!({
            "path": node.path.display().to_string(),
            "rdev": node.rdev,
        })).collect::<Vec<_>>(),
        "driver": device.driver,
        "cores": device.cores.as_ref().map(ToString::to_string),
        "numa": device.numa,
        "ordinal_in_pci_order": device.ordinal_in_pci_order,
        "parent": device.parent.as_ref().map(|parent| parent.as_str()),
        "memory": observed(&device.memory, |memory| json!({
            "total_bytes": memory.total_bytes,
            "used_bytes": memory.used_bytes,
        })),
        "processes": observed(&device.processes, |list| {
            list.iter().map(|user| json!({
                "pid": user.pid,
                "used_bytes": user.used_bytes,
            })).collect()
        }),
    })
}

fn source(report: &SourceReport) -> Value {
    json!({
        "source": report.source,
        "outcome": observed(&report.outcome, |count| json!(count)),
        "version": report.raw.as_ref().and_then(|raw| raw.version.as_ref()),
        "raw": report.raw.as_ref().map(|raw| &raw.text),
    })
}

/// `known` beside the value, `absent`, or `unknown` beside the reason.
fn observed<T>(observation: &Observation<T>, value: impl FnOnce(&T) -> Value) -> Value {
    match observation {
        Observation::Known(known) => json!({"state": "known", "value": value(known)}),
        Observation::Absent => json!({"state": "absent"}),
        Observation::Unknown { why } => json!({"state": "unknown", "why": why}),
    }
}
