//! What a fleet file asks for now that a run was not started with.
//!
//! Only the names of settings are told: values may be secrets.

use crate::failure::quoted;
use crate::fleets::{FleetFile, Workplace};
use crate::worker_order;
use packhouse_proc::fleet::host::{Found, look};
use packhouse_proc::fleet::{Program, Worker, WorkerName};
use packhouse_proc::identity::RUN_ID_VARIABLE;
use packhouse_proc::records::Order;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The settings in which the file differs from what a run was started with; none where the file
/// does not say all of the worker, or this host has not what it needs.
pub(crate) fn edits(
    file: &FleetFile,
    place: &Workplace<'_>,
    name: &WorkerName,
    order: &Order,
) -> Vec<String> {
    file.worker(name)
        .ok()
        .and_then(|worker| compare(file, place, worker, order))
        .unwrap_or_default()
}

/// Says so in a line, with what applies them. `None`: nothing differs.
pub(crate) fn say(file: &FleetFile, name: &WorkerName, edits: &[String]) -> Option<String> {
    if edits.is_empty() {
        return None;
    }
    let (edits, file) = (edits.join(", "), quoted(&file.path));
    Some(format!(
        "the fleet file asks for something else now: {edits}; to apply it: packhouse worker stop \
         --config {file} --worker {name} --execute, then start"
    ))
}

fn compare(
    file: &FleetFile,
    place: &Workplace<'_>,
    worker: &Worker,
    order: &Order,
) -> Option<Vec<String>> {
    let host = place.host();
    let (found, _) = look(worker, &host);
    let mut found = found?;
    as_started(&mut found, worker, order);
    let rendered = found.render(worker, &host).ok()?;
    let words = worker_order::words(&rendered).ok()?;
    // With packs the first word is this program, wherever it is.
    let first = usize::from(worker.packs);
    let inherit: Vec<String> = worker.inherit.iter().cloned().collect();
    let devices = |ids: &mut dyn Iterator<Item = String>| ids.collect::<BTreeSet<_>>();
    let log_max_bytes = file.reading.fleet.as_ref()?.log_max_bytes;
    let model = worker.model.as_ref().map(|model| model.path.as_path());
    let pairs = [
        (
            "command",
            words.command.get(first..) != order.command.get(first..),
        ),
        ("cores", rendered.cores != order.cores),
        (
            "device",
            devices(&mut found.devices.iter().map(|device| device.id.to_string()))
                != devices(&mut order.devices.iter().map(|device| device.id.clone())),
        ),
        ("health_path", worker.health_path != order.health_path),
        ("host", worker.host != order.host),
        ("inherit", inherit != order.inherit),
        ("log_max_bytes", log_max_bytes != order.log_max_bytes),
        (
            "model",
            model != order.model.as_ref().map(|model| model.source.as_path()),
        ),
        ("port", worker.port != order.port),
        (
            "ready_timeout_s",
            worker.ready_timeout_s != order.ready_timeout_s,
        ),
        (
            "role",
            worker.role.as_deref().unwrap_or_default() != order.role,
        ),
        (
            "stop_timeouts_s",
            worker_order::stop_timeouts(worker.stop_timeouts) != order.stop_timeouts,
        ),
        (
            "working_folder",
            Some(&rendered.working_folder) != order.working_folder.as_ref(),
        ),
    ];
    let edited = pairs.iter().filter(|(_, is_edited)| *is_edited);
    let mut edits: Vec<String> = edited.map(|(key, _)| (*key).to_owned()).collect();
    edits.extend(variables(worker, &words.environment, order));
    edits.sort();
    Some(edits)
}

/// Whether there is a copy in RAM, and what is first on PATH, is not the file's word: both are
/// taken as they were.
fn as_started(found: &mut Found, worker: &Worker, order: &Order) {
    if let (Some(own), Some(had)) = (&worker.model, &order.model)
        && own.path == had.source
    {
        found.model = Some(had.path.clone());
    }
    let program = order.command.get(if worker.packs { 3 } else { 0 });
    if let (Program::OnPath(bare), Some(had)) = (&worker.program, program)
        && had.ends_with(&format!("/{bare}"))
    {
        found.program = PathBuf::from(had);
    }
}

/// Variables that differ by the file: what is inherited differs by who starts.
fn variables(worker: &Worker, now: &BTreeMap<String, String>, order: &Order) -> Vec<String> {
    let is_inherited = |name: &&String| {
        !worker.environment.contains_key(*name)
            && (worker.inherit.contains(*name) || order.inherit.contains(*name))
    };
    let names: BTreeSet<&String> = now.keys().chain(order.environment.keys()).collect();
    names
        .into_iter()
        .filter(|name| *name != RUN_ID_VARIABLE && !is_inherited(name))
        .filter(|name| now.get(*name) != order.environment.get(*name))
        .map(|name| format!("environment.{name}"))
        .collect()
}
