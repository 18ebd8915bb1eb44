//! Bytes to a reading: the tables of a fleet file from the top down.

use super::layer::{LAYER_KEYS, Layer, absolute, plain_name};
use super::mistake::{Blocks, Commands, FormFault, Reach, Wrong};
use super::name::{FleetName, WorkerName};
use super::rules;
use super::syntax::{self, Slip};
use super::table::{Located, Notes, Table, lines_before_tables, position, wrong_type};
use super::template::Template;
use super::{Backend, FLEET_BYTES_MAX, Fleet, Program, Reading, Unnamed, Worker};
use crate::devices::DeviceSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use toml::de::{DeTable, DeValue};

/// Reads a fleet file as far as it can be read.
pub(super) fn read(bytes: &[u8]) -> Reading {
    let mut notes = Notes::default();
    let text = String::from_utf8_lossy(bytes);
    let all = || Blocks {
        commands: Commands::RenderAndStart,
        workers: Reach::All,
    };
    if bytes.len() > FLEET_BYTES_MAX {
        let what = Wrong::TooLong {
            bytes: bytes.len(),
            max: FLEET_BYTES_MAX,
        };
        notes.add(0, "", what, all());
        return Reading {
            name: None,
            declared: Vec::new(),
            unnamed: Vec::new(),
            fleet: None,
            mistakes: notes.finish(""),
            top_lines: 1,
        };
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        let offset = error.valid_up_to();
        notes.add(offset, "", Wrong::NotUtf8 { offset }, all());
    }
    let (sound, slips) = syntax::sound(&text);
    for Slip { at, message } in slips {
        notes.add(at, "", Wrong::Syntax { message }, all());
    }
    let (document, _) = DeTable::parse_recoverable(&sound);
    let top = Table::new("", document.get_ref(), 0, Reach::All);
    let mut reading = top_level(&top, &text, &mut notes);
    reading.mistakes = notes.finish(&text);
    reading.top_lines = lines_before_tables(&text);
    reading
}

/// What the file says beside its workers.
struct Shared<'f> {
    engine: Engine,
    common: Layer,
    profiles: BTreeMap<&'f str, Layer>,
}

/// `[engine]`.
#[derive(Default)]
struct Engine {
    program: Option<Program>,
    /// All words but the first.
    arguments: Vec<Located<Template>>,
    /// Where the command begins.
    at: usize,
    /// Whether all words of the command could be read.
    is_whole: bool,
    packs: bool,
    working_folder: PathBuf,
}

fn top_level(top: &Table<'_>, text: &str, notes: &mut Notes) -> Reading {
    top.refuse_others(
        notes,
        &[
            "schema",
            "name",
            "backend",
            "keep_runs",
            "log_max_bytes",
            "engine",
            "common",
            "profiles",
            "worker",
        ],
    );
    schema(top, notes);
    let name = required(top, notes, "name", FleetName::parse);
    let name = name.map(|name| name.value);
    let backend = top.parsed(notes, "backend", backend);
    let keep_runs = top.number(notes, "keep_runs", 1, KEEP_RUNS_MAX);
    let log_max_bytes = top.number(notes, "log_max_bytes", LOG_BYTES_MIN, LOG_BYTES_MAX);
    let tables = worker_tables(top, notes);
    let common = top.inner(notes, "common").map(|table| {
        table.refuse_others(notes, LAYER_KEYS);
        Layer::read(&table, notes)
    });
    let shared = Shared {
        engine: engine(top, notes),
        common: common.unwrap_or_default(),
        profiles: profiles(top, notes, &tables),
    };
    let drafts: Vec<rules::Draft> = tables
        .iter()
        .map(|table| draft(table, &shared, text, notes))
        .collect();
    rules::across(&drafts, text, notes);
    let mut declared: Vec<WorkerName> = Vec::new();
    for name in drafts.iter().filter_map(|draft| draft.name.as_ref()) {
        if !declared.contains(&name.value) {
            declared.push(name.value.clone());
        }
    }
    let mut workers: Vec<Worker> = Vec::new();
    for worker in drafts.into_iter().filter_map(|draft| draft.worker) {
        if !workers.iter().any(|earlier| earlier.name == worker.name) {
            workers.push(worker);
        }
    }
    let fleet = name.clone().map(|name| Fleet {
        name,
        backend: backend.map_or(Backend::Auto, |backend| backend.value),
        keep_runs: keep_runs.map_or(KEEP_RUNS, |runs| {
            u32::try_from(runs.value).expect("because it is within limits")
        }),
        log_max_bytes: log_max_bytes.map_or(LOG_BYTES, |bytes| bytes.value),
        workers,
    });
    Reading {
        name,
        declared,
        unnamed: unnamed(top, text),
        fleet,
        mistakes: Vec::new(),
        top_lines: 0,
    }
}

fn required<T, E: Into<Wrong>>(
    table: &Table<'_>,
    notes: &mut Notes,
    key: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Option<Located<T>> {
    if table.value(key).is_none() {
        table.missing(notes, key);
    }
    table.parsed(notes, key, parse)
}

fn schema(top: &Table<'_>, notes: &mut Notes) {
    // Unknown ones may mean anything: nothing of such a file is rendered or started.
    let _ = required(top, notes, "schema", |text| match text {
        SCHEMA => Ok(()),
        other => Err(Wrong::Word {
            found: other.to_owned(),
            known: &[SCHEMA],
        }),
    });
}

fn backend(text: &str) -> Result<Backend, Wrong> {
    match text {
        "auto" => Ok(Backend::Auto),
        "systemd" => Ok(Backend::Systemd),
        "plain" => Ok(Backend::Plain),
        other => Err(Wrong::Word {
            found: other.to_owned(),
            known: &["auto", "systemd", "plain"],
        }),
    }
}

fn engine(top: &Table<'_>, notes: &mut Notes) -> Engine {
    let Some(table) = top.inner(notes, "engine") else {
        if top.value("engine").is_none() {
            top.missing(notes, "engine");
        }
        return Engine::default();
    };
    table.refuse_others(notes, &["command", "packs", "working_folder"]);
    if table.value("command").is_none() {
        table.missing(notes, "command");
    }
    let words = table.list(notes, "command", Template::parse);
    let is_whole = |words: &Located<Vec<_>>| {
        let written = table
            .value("command")
            .and_then(|value| value.get_ref().as_array());
        written.is_some_and(|written| written.len() == words.value.len())
    };
    let mut engine = Engine {
        packs: table.flag(notes, "packs").unwrap_or(false),
        working_folder: table
            .parsed(notes, "working_folder", absolute)
            .map_or_else(|| PathBuf::from("/"), |path| path.value),
        ..Engine::default()
    };
    let Some(words) = words else {
        return engine;
    };
    engine.at = words.at;
    engine.is_whole = is_whole(&words);
    let mut words = words.value.into_iter();
    match words.next().filter(|_| engine.is_whole) {
        None if engine.is_whole => table.note(notes, engine.at, "command", Wrong::Empty),
        None => {}
        Some(first) => match program(&first.value) {
            Ok(program) => engine.program = Some(program),
            Err(what) => table.note(notes, first.at, "command", what),
        },
    }
    engine.arguments = words.collect();
    engine
}

fn program(word: &Template) -> Result<Program, Wrong> {
    let form = |why| Wrong::Form {
        found: word.to_string(),
        why,
    };
    let text = word
        .literal()
        .ok_or_else(|| form(FormFault::ProgramTemplate))?;
    if text.is_empty() {
        return Err(Wrong::Empty);
    }
    if text.starts_with('/') {
        return Ok(Program::Absolute(PathBuf::from(text)));
    }
    if text.contains('/') {
        return Err(form(FormFault::RelativeProgram));
    }
    Ok(Program::OnPath(text.to_owned()))
}

/// The tables of all workers; each with its name as label, or its place where that is no name.
fn worker_tables<'f>(top: &Table<'f>, notes: &mut Notes) -> Vec<Table<'f>> {
    let Some(value) = top.value("worker") else {
        top.missing(notes, "worker");
        return Vec::new();
    };
    let at = value.span().start;
    let DeValue::Array(items) = value.get_ref() else {
        let what = wrong_type("array of tables, each [[worker]]", value.get_ref());
        top.note(notes, at, "worker", what);
        return Vec::new();
    };
    if items.is_empty() {
        top.note(notes, at, "worker", Wrong::Empty);
    }
    if items.len() > WORKERS_MAX {
        let (count, max) = (items.len(), WORKERS_MAX);
        top.note(notes, at, "worker", Wrong::Workers { count, max });
    }
    let mut tables = Vec::new();
    for (index, item) in items.iter().take(WORKERS_MAX).enumerate() {
        let label = name_of(item.get_ref()).map_or_else(|| place(index), str::to_owned);
        let reach = Reach::one(&label);
        let at = item.span().start;
        match item.get_ref() {
            DeValue::Table(table) => {
                tables.push(Table::new(format!("worker {label}"), table, at, reach));
            }
            other => top.note(notes, at, "worker", wrong_type("table", other)),
        }
    }
    tables
}

/// The name in a worker's table, where it is one.
fn name_of<'f>(item: &'f DeValue<'_>) -> Option<&'f str> {
    let name = item.get("name").and_then(|name| name.get_ref().as_str());
    name.filter(|name| WorkerName::parse(name).is_ok())
}

fn place(index: usize) -> String {
    format!("#{}", index + 1)
}

/// The workers that have no name that is one.
fn unnamed(top: &Table<'_>, text: &str) -> Vec<Unnamed> {
    let items = top.value("worker");
    let items = items.and_then(|value| value.get_ref().as_array());
    let items = items.into_iter().flatten().take(WORKERS_MAX).enumerate();
    items
        .filter(|(_, item)| name_of(item.get_ref()).is_none())
        .map(|(index, item)| Unnamed {
            label: place(index),
            line: position(text, item.span().start).0,
        })
        .collect()
}

/// The profiles. A mistake in one reaches the workers that name it.
fn profiles<'f>(
    top: &Table<'f>,
    notes: &mut Notes,
    workers: &[Table<'f>],
) -> BTreeMap<&'f str, Layer> {
    let mut profiles = BTreeMap::new();
    let Some(tables) = top.inner(notes, "profiles") else {
        return profiles;
    };
    for (name, at, value) in tables.entries() {
        let users = workers.iter().filter(|worker| {
            let profile = worker.value("profile");
            profile.and_then(|profile| profile.get_ref().as_str()) == Some(name)
        });
        let nobody = Reach::These(BTreeSet::new());
        let reach = users.fold(nobody, |all, user| all.and(user.reach().clone()));
        if let Err(what) = plain_name(name) {
            tables.note(notes, at, name, what);
        }
        if let Some(table) = tables.inner_of(notes, name, value, reach) {
            table.refuse_others(notes, LAYER_KEYS);
            profiles.insert(name, Layer::read(&table, notes));
        } else {
            profiles.insert(name, Layer::default());
        }
    }
    profiles
}

/// One worker as far as it can be read.
fn draft(table: &Table<'_>, shared: &Shared<'_>, text: &str, notes: &mut Notes) -> rules::Draft {
    table.refuse_others(notes, WORKER_KEYS);
    let name = required(table, notes, "name", WorkerName::parse);
    let role = table.parsed(notes, "role", plain_name);
    if table.value("port").is_none() {
        table.missing(notes, "port");
    }
    let port = table.number(notes, "port", 1, u64::from(u16::MAX));
    let port = port.map(|port| Located {
        at: port.at,
        value: u16::try_from(port.value).expect("because it is within limits"),
    });
    let devices = devices(table, notes);
    let profile = table.parsed(notes, "profile", |name| {
        if shared.profiles.contains_key(name) {
            return Ok(name.to_owned());
        }
        let known = shared.profiles.keys().map(|name| (*name).to_owned());
        Err(Wrong::Profile {
            name: name.to_owned(),
            known: known.collect(),
        })
    });
    let mut layer = shared.common.clone();
    let chosen = profile
        .as_ref()
        .and_then(|name| shared.profiles.get(name.value.as_str()));
    if let Some(chosen) = chosen {
        layer = layer.under(chosen);
    }
    let layer = layer.under(&Layer::read(table, notes));
    let mut arguments = shared.engine.arguments.clone();
    arguments.extend(layer.args.iter().cloned());
    let mut draft = rules::Draft {
        name,
        port,
        has_all_devices: devices.as_ref().is_some_and(|devices| {
            let written = table
                .value("device")
                .and_then(|value| value.get_ref().as_array());
            written.is_none_or(|written| written.len() == devices.len())
        }),
        devices: devices.unwrap_or_default(),
        host: layer
            .host
            .as_ref()
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |host| host.value),
        reach: table.reach().clone(),
        worker: None,
    };
    let whole = rules::Whole {
        table,
        layer: &layer,
        arguments: &arguments,
        command_at: shared.engine.at,
        is_whole: shared.engine.is_whole && (profile.is_some() || table.value("profile").is_none()),
    };
    whole.compare(&draft, notes);
    draft.worker = worker(&draft, &shared.engine, layer, &arguments, |worker| {
        worker.role = role.map(|role| role.value);
        worker.profile = profile.map(|profile| profile.value);
        worker.line = position(text, table.at()).0;
    });
    draft
}

/// The worker, where all that it can't be without is there.
fn worker(
    draft: &rules::Draft,
    engine: &Engine,
    layer: Layer,
    arguments: &[Located<Template>],
    finish: impl FnOnce(&mut Worker),
) -> Option<Worker> {
    let stop_timeouts = layer.stop_timeouts();
    // One whose model could not be read is no worker without a model.
    let is_whole = !layer.wrong.contains("model");
    let environment = layer.environment.into_iter();
    let devices = draft.devices.iter().map(|device| device.value.clone());
    let mut worker = Worker {
        name: draft.name.as_ref()?.value.clone(),
        role: None,
        profile: None,
        devices: devices.collect(),
        host: draft.host,
        port: draft.port.as_ref()?.value,
        program: engine.program.clone()?,
        arguments: arguments.iter().map(|word| word.value.clone()).collect(),
        packs: engine.packs,
        working_folder: engine.working_folder.clone(),
        model: layer.model.map(|model| model.value),
        prefer_ram_copy: layer.prefer_ram_copy.unwrap_or(true),
        threads: layer.threads,
        environment: environment
            .map(|(name, value)| (name, value.value))
            .collect(),
        inherit: layer.inherit.into_keys().collect(),
        health_path: layer.health_path.unwrap_or_else(|| HEALTH_PATH.to_owned()),
        ready_timeout_s: layer.ready_timeout_s.unwrap_or(READY_TIMEOUT_S),
        stop_timeouts,
        line: 0,
    };
    finish(&mut worker);
    (draft.has_all_devices && is_whole).then_some(worker)
}

/// A worker's devices: one text or an array of them. `None`: none could be read.
fn devices(table: &Table<'_>, notes: &mut Notes) -> Option<Vec<Located<DeviceSpec>>> {
    let Some(value) = table.value("device") else {
        table.missing(notes, "device");
        return None;
    };
    let list = match value.get_ref() {
        DeValue::Array(items) if items.is_empty() => {
            table.note(notes, value.span().start, "device", Wrong::Empty);
            return None;
        }
        DeValue::Array(_) => table.list(notes, "device", DeviceSpec::parse)?.value,
        DeValue::String(_) => vec![table.parsed(notes, "device", DeviceSpec::parse)?],
        other => {
            let what = not_a_device(other);
            table.note(notes, value.span().start, "device", what);
            return None;
        }
    };
    Some(list)
}

/// A number is what people write who think in ordinals: they are told what to write.
fn not_a_device(found: &DeValue<'_>) -> Wrong {
    if let DeValue::Integer(number) = found
        && let Err(error) = DeviceSpec::parse(number.as_str())
    {
        return error.into();
    }
    wrong_type("string or array of strings", found)
}

const SCHEMA: &str = "packhouse/fleet/1";
const WORKERS_MAX: usize = 256;
const KEEP_RUNS: u32 = 10;
const KEEP_RUNS_MAX: u64 = 1_000;
const LOG_BYTES: u64 = 64 << 20;
const LOG_BYTES_MIN: u64 = 64 << 10;
const LOG_BYTES_MAX: u64 = 1 << 40;
const HEALTH_PATH: &str = "/health";
const READY_TIMEOUT_S: u64 = 300;
const WORKER_KEYS: &[&str] = &[
    "name",
    "role",
    "device",
    "port",
    "profile",
    "host",
    "model",
    "model_sha256",
    "prefer_ram_copy",
    "threads",
    "args",
    "environment",
    "inherit",
    "health_path",
    "ready_timeout_s",
    "stop_timeouts_s",
];
