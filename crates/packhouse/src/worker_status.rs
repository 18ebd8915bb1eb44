//! `worker status`: what became of each worker.

use crate::answer::{Answer, Column, table};
use crate::failure::Failure;
use crate::fleets::{FleetFile, Workplace};
use crate::places::Lookup;
use crate::worker_holders::{Host, Others};
use crate::worker_scope::{Scope, procfs, way_out};
use crate::worker_words::FleetArgs;
use crate::{worker_devices, worker_edits};
use packhouse_base::shown::Shown;
use packhouse_proc::fleet::WorkerName;
use packhouse_proc::group::{Doubt, Member, Unproven};
use packhouse_proc::listeners::{Listener, listeners, owners_of};
use packhouse_proc::procfs::Procfs;
use packhouse_proc::ready::health::{Health, ask, url};
use packhouse_proc::records::LoadedContent;
use packhouse_proc::runs::RunsError;
use packhouse_proc::state::observe::{Listening, Observed, Place, observe};
use packhouse_proc::state::{HealthSeen, PortSeen, ProcessSeen, Reason, State};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

/// Answers the command. A worker that can't be looked at is in the answer and says why.
pub(crate) fn status(args: &FleetArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let scope = Scope::find(args, "status", lookup)?;
    let procfs = procfs()?;
    let rows: Vec<Row> = scope
        .names
        .iter()
        .map(|name| Row::look(&scope, &procfs, name))
        .collect();
    let rows = with_holders(rows, &scope, &procfs, lookup);
    let file = scope.file.as_ref();
    Ok(Answer::done(
        text(&rows),
        json!({
            "file": file.map(|file| file.path.display().to_string()),
            "fleet": scope.fleet,
            "workers": rows.iter().map(Row::document).collect::<Vec<_>>(),
        }),
    ))
}

/// Adds who else holds the workers' devices. Devices are looked at only where there are any.
fn with_holders(
    mut rows: Vec<Row>,
    scope: &Scope,
    procfs: &Procfs,
    lookup: Lookup<'_>,
) -> Vec<Row> {
    if rows.iter().all(|row| row.devices.is_empty()) {
        return rows;
    }
    let place = Workplace::look(lookup).ok();
    let inventory = match &place {
        Some(place) => place.inventory.clone(),
        None => worker_devices::look(lookup),
    };
    if let (Some(file), Some(place)) = (&scope.file, &place) {
        for (row, name) in rows.iter_mut().zip(&scope.names) {
            row.compare(file, place, name);
        }
    }
    let host = Host::look(inventory, procfs, &scope.state);
    for row in &mut rows {
        let own = row.processes.iter().map(|(_, member)| member.key);
        row.others = host.others((&scope.fleet, &row.name), &row.devices, own);
    }
    rows
}

/// What is told of one worker.
struct Row {
    name: String,
    /// Whether the fleet file has it; `None`: no file was read.
    in_file: Option<bool>,
    place: Option<Place>,
    role: Option<String>,
    seen: Result<Observed, RunsError>,
    health: Option<Health>,
    processes: Vec<(String, Member)>,
    listening: Vec<(Listening, String)>,
    /// Where its own processes listen, when that is not its port.
    elsewhere: Vec<SocketAddr>,
    devices: Vec<String>,
    others: Others,
    strays: Vec<String>,
    /// Settings that the file has otherwise than the living run.
    edits: Vec<String>,
    edited: Option<String>,
}

impl Row {
    fn look(scope: &Scope, procfs: &Procfs, name: &WorkerName) -> Self {
        let worker = scope.declared(name);
        let file = scope.file.as_ref();
        let place = worker.map(|worker| Place {
            host: worker.host,
            port: worker.port,
            health_path: worker.health_path.clone(),
        });
        let health = RefCell::new(None);
        let ask_health = |place: &Place| {
            let answer = ask(place.host, place.port, &place.health_path, HEALTH_TIMEOUT);
            let seen = match &answer {
                Health::Good => HealthSeen::Good,
                Health::Loading | Health::Bad { .. } => HealthSeen::Bad,
                Health::Refused | Health::Silent { .. } => HealthSeen::Silent,
            };
            health.replace(Some(answer));
            seen
        };
        let seen = scope
            .runs(name)
            .map(|runs| observe(procfs, runs.as_ref(), place.as_ref(), &ask_health));
        let own = seen.as_ref().ok();
        let order = own.and_then(|seen| seen.records.order.as_ref());
        Self {
            name: name.to_string(),
            in_file: file.map(|file| file.reading.declared.contains(name)),
            place: order
                .map(packhouse_proc::state::observe::place_of)
                .or(place),
            role: order
                .map(|order| order.role.clone())
                .or_else(|| worker?.role.clone())
                .filter(|role| !role.is_empty()),
            processes: own.map(processes).unwrap_or_default(),
            listening: own.map(|seen| strangers(procfs, seen)).unwrap_or_default(),
            devices: match (order, worker) {
                (Some(order), _) => order.devices.iter().map(|found| found.id.clone()).collect(),
                (None, Some(worker)) => worker.devices.iter().map(ToString::to_string).collect(),
                (None, None) => Vec::new(),
            },
            others: Others::default(),
            strays: scope.strays(procfs, name),
            elsewhere: own.map(|seen| elsewhere(procfs, seen)).unwrap_or_default(),
            edits: Vec::new(),
            edited: None,
            health: health.into_inner(),
            seen,
        }
    }

    /// Compares what a living run was started with and what the file asks for now.
    fn compare(&mut self, file: &FleetFile, place: &Workplace<'_>, name: &WorkerName) {
        let Ok(seen) = &self.seen else {
            return;
        };
        let order = seen.records.order.as_ref();
        if let Some(order) = order.filter(|_| main_pid(seen).is_some()) {
            self.edits = worker_edits::edits(file, place, name, order);
            self.edited = worker_edits::say(file, name, &self.edits);
        }
    }

    fn cells(&self) -> Vec<String> {
        let address = self.place.as_ref();
        let address = address.map(|place| SocketAddr::new(place.host, place.port).to_string());
        let dash = || "-".to_owned();
        let devices = match self.devices.as_slice() {
            [] => dash(),
            devices => devices.join(" "),
        };
        let Ok(seen) = &self.seen else {
            let state = State::Unverifiable.to_string();
            let why = "its records can't be read".to_owned();
            let address = address.unwrap_or_else(dash);
            return vec![
                self.name.clone(),
                state,
                dash(),
                address,
                dash(),
                dash(),
                why,
            ];
        };
        vec![
            self.name.clone(),
            seen.verdict.state.to_string(),
            main_pid(seen).map_or_else(dash, |pid| pid.to_string()),
            address.unwrap_or_else(dash),
            devices,
            engine(seen).map_or_else(dash, |(path, _)| program(&path)),
            seen.verdict.sentence(),
        ]
    }

    /// What a table has no room for, one line each.
    fn notes(&self) -> Vec<String> {
        let seen = match &self.seen {
            Ok(seen) => seen,
            Err(error) => {
                let notes = std::iter::once(error.to_string()).chain(way_out(error));
                return notes.map(|note| format!("{}: {note}", self.name)).collect();
            }
        };
        let mut notes = self.strays.clone();
        if self.in_file == Some(false) {
            notes.push("not in the fleet file any more".to_owned());
        }
        notes.extend(model_in_use(seen));
        notes.extend(self.edited.clone());
        if let Some(health) = self
            .health
            .as_ref()
            .filter(|health| **health != Health::Good)
        {
            let asked = self.place.as_ref();
            let asked = asked.map(|place| url(place.host, place.port, &place.health_path));
            notes.push(format!("GET {}: {health}", asked.unwrap_or_default()));
        }
        notes.extend(self.elsewhere.iter().map(|address| {
            format!("it listens on {address}, which is not where its order puts it")
        }));
        notes.extend(lacks(seen));
        notes.extend(self.listening.iter().map(|(listening, who)| {
            let address = listening.listener.address;
            format!("{address} is held by {who}")
        }));
        let others = self.processes.iter().filter(|(part, _)| part == "other");
        notes.extend(others.map(|(_, member)| {
            format!("also of this run: pid {} ({})", member.key.pid, member.name)
        }));
        let members = seen.members.iter();
        let unproven = members.flat_map(|members| &members.unproven);
        notes.extend(unproven.map(doubtful));
        notes.extend(self.others.holders.iter().cloned());
        notes.extend(seen.faults.iter().cloned());
        let name = &self.name;
        notes
            .into_iter()
            .map(|note| format!("{name}: {note}"))
            .collect()
    }

    fn document(&self) -> Value {
        let place = self.place.as_ref();
        let mut document = json!({
            "worker": self.name,
            "in_file": self.in_file,
            "role": self.role,
            "host": place.map(|place| place.host.to_string()),
            "port": place.map(|place| place.port),
            "health": self.health.as_ref().map(ToString::to_string),
            "processes": self.processes.iter().map(process).collect::<Vec<_>>(),
            "devices_held": self.others.document(),
            "strays": self.strays,
            "listens_elsewhere": self.elsewhere.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "edited_settings": self.edits,
            "port_held_by": self.listening.iter().map(|(_, who)| who).collect::<Vec<_>>(),
        });
        let own = match &self.seen {
            Ok(seen) => observed(seen),
            Err(error) => json!({
                "state": State::Unverifiable.word(),
                "reason": "record_unreadable",
                "why": error.to_string(),
                "faults": [error.to_string()],
            }),
        };
        merge(&mut document, own);
        document
    }
}

/// What was observed, as a document.
fn observed(seen: &Observed) -> Value {
    let records = &seen.records;
    let order = records.order.as_ref();
    let members = seen.members.iter();
    let unproven = members.flat_map(|members| &members.unproven);
    json!({
        "state": seen.verdict.state.word(),
        "shown": seen.verdict.state.to_string(),
        "reason": seen.verdict.reason.word(),
        "why": seen.verdict.sentence(),
        "run": seen.number,
        "run_id": order.map(|order| order.run.to_string()),
        "ordered_wall_ns": order.map(|order| order.at.wall_ns),
        "pid": main_pid(seen),
        "port_state": port_word(seen.snapshot.port),
        "exit": records.exit.as_ref().map(|exit| exit.outcome.to_string()),
        "is_stop_begun": records.stop.is_some(),
        "is_released": records.released.is_some(),
        "ready_after_ns": records.identity.as_ref().and_then(|found| found.ready_after_ns),
        "devices": order.map(|order| {
            let devices = order.devices.iter();
            let devices = devices.map(|device| json!({"id": device.id, "name": device.name}));
            devices.collect::<Vec<_>>()
        }),
        "engine": engine(seen).map(|(path, sha256)| json!({"path": path, "sha256": sha256})),
        "libraries": records.identity.as_ref().map(|identity| identity.libraries.len()),
        "model": order.and_then(|order| order.model.as_ref()).map(|model| json!({
            "path": model.path.to_string_lossy(),
            "source": model.source.to_string_lossy(),
            "ram_copy": model.ram_copy,
            "sha256": model.sha256.map(|digest| digest.to_string()),
        })),
        "unproven": unproven.map(doubtful).collect::<Vec<_>>(),
        "faults": seen.faults,
    })
}

fn merge(target: &mut Value, source: Value) {
    if let (Value::Object(target), Value::Object(source)) = (target, source) {
        target.extend(source);
    }
}

fn text(rows: &[Row]) -> String {
    let mut cells = vec![HEAD.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(Row::cells));
    let mut text = table(&COLUMNS, &cells);
    for note in rows.iter().flat_map(Row::notes) {
        text += &format!("{}\n", Shown(&note));
    }
    text
}

/// The engine's pid, while it lives.
fn main_pid(seen: &Observed) -> Option<u32> {
    let launched = seen.records.launched.as_ref()?;
    (seen.snapshot.main == ProcessSeen::Alive).then_some(launched.worker.pid)
}

/// Which file of the model a living engine was given.
fn model_in_use(seen: &Observed) -> Option<String> {
    main_pid(seen)?;
    let model = seen.records.order.as_ref()?.model.as_ref()?;
    let (path, source) = (model.path.display(), model.source.display());
    Some(match model.ram_copy {
        true => format!("model {path}, the copy in RAM of {source}"),
        false => format!("model {path}"),
    })
}

/// Path and SHA-256 of the engine's program, as its process had it.
fn engine(seen: &Observed) -> Option<(String, String)> {
    let executable = &seen.records.identity.as_ref()?.executable;
    match &executable.content {
        LoadedContent::Hashed { sha256, .. } => Some((
            executable.path.to_string_lossy().into_owned(),
            sha256.to_string(),
        )),
        LoadedContent::Unknown { .. } => None,
    }
}

/// The run's processes with what each is to it.
fn processes(seen: &Observed) -> Vec<(String, Member)> {
    let Some(members) = &seen.members else {
        return Vec::new();
    };
    let main = seen
        .records
        .launched
        .as_ref()
        .map(|launched| launched.worker);
    let keeper = members.keeper.iter();
    let keeper = keeper.map(|member| ("keeper".to_owned(), member.clone()));
    let ours = members.ours.iter().map(|member| {
        let part = if Some(member.key) == main {
            "engine"
        } else {
            "other"
        };
        (part.to_owned(), member.clone())
    });
    keeper.chain(ours).collect()
}

fn process((part, member): &(String, Member)) -> Value {
    json!({"part": part, "pid": member.key.pid, "name": member.name})
}

/// Who else has the worker's port, in words.
fn strangers(procfs: &Procfs, seen: &Observed) -> Vec<(Listening, String)> {
    let others = seen.listening.iter().filter(|listening| !listening.is_ours);
    others
        .map(|listening| {
            let owners = listening
                .owners
                .iter()
                .map(|owner| match procfs.process(owner.pid) {
                    Ok(Some(process)) if process.key == *owner => {
                        format!("pid {} ({})", owner.pid, process.name)
                    }
                    Ok(Some(_) | None) | Err(_) => format!("pid {}", owner.pid),
                });
            let owners = owners.collect::<Vec<_>>().join(", ");
            let who = if owners.is_empty() {
                format!(
                    "a process that can't be seen, of uid {}",
                    listening.listener.uid
                )
            } else {
                owners
            };
            (listening.clone(), who)
        })
        .collect()
}

/// A process that is left alone, in words.
pub(crate) fn doubtful(unproven: &Unproven) -> String {
    let why = match unproven.why {
        Doubt::MainPid => "has the engine's old pid",
        Doubt::KeeperPid => "has the keeper's old pid",
        Doubt::SessionNumber => "is in a session of the engine's number, whose leader has ended",
        Doubt::Older => "is on record, and started before the order",
        Doubt::OtherSession => "is on record as the engine, and does not lead its session",
        Doubt::AnotherRun => "is on record, and its environment names another run",
        Doubt::NoRunId => "is on record as the engine, and its environment names no run",
        Doubt::NotAKeeper => "is on record as the keeper, and its environment is no keeper's",
    };
    let (pid, name) = (unproven.key.pid, &unproven.name);
    format!("pid {pid} ({name}) {why}: not proven to be the worker's, left alone")
}

fn port_word(port: PortSeen) -> &'static str {
    match port {
        PortSeen::Free => "free",
        PortSeen::Ours => "ours",
        PortSeen::Other => "other",
        PortSeen::Unattributed => "unattributed",
        PortSeen::Unknown => "unknown",
    }
}

/// The program's name, as much of it as a table has room for; its path and digest are in the
/// document.
fn program(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.chars().take(PROGRAM_CHARS).collect()
}

/// What a living run lacks, with what to do.
fn lacks(seen: &Observed) -> Vec<String> {
    let mut lacks = Vec::new();
    if main_pid(seen).is_some() && seen.snapshot.keeper == ProcessSeen::Gone {
        let gone = "its keeper is gone: its log is not bounded, and how it ends will not be known";
        lacks.push(gone.to_owned());
    }
    if seen.verdict.reason == Reason::NobodyWaits {
        lacks.push("to wait for it: packhouse worker start --execute".to_owned());
    }
    lacks
}

/// Where the worker's processes listen, when that is not its port.
fn elsewhere(procfs: &Procfs, seen: &Observed) -> Vec<SocketAddr> {
    let (Some(members), PortSeen::Free) = (&seen.members, seen.snapshot.port) else {
        return Vec::new();
    };
    if main_pid(seen).is_none() {
        return Vec::new();
    }
    let is_ours = |listener: &Listener| {
        let owners = owners_of(procfs, listener.inode);
        let known = owners.map(|owners| owners.known).unwrap_or_default();
        let mut ours = members.ours.iter();
        ours.any(|member| known.contains(&member.key))
    };
    // Where this can't be read, the port itself could not be, which is told.
    let all = listeners(procfs).unwrap_or_default();
    let own = all.iter().filter(|listener| is_ours(listener));
    own.map(|listener| listener.address).collect()
}

/// Keeps rows of usual values within 100 columns.
const PROGRAM_CHARS: usize = 15;
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
const HEAD: [&str; 7] = [
    "worker", "state", "pid", "address", "device", "engine", "why",
];
const COLUMNS: [Column; 7] = [
    Column::Left,
    Column::Left,
    Column::Right,
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Left,
];
