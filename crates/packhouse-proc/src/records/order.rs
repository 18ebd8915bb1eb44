//! `order.json`: what a start is about to do, written before anything runs.

use super::table::Table;
use super::{Launched, Record, Timestamp};
use crate::cores::CpuSet;
use crate::group::Ownership;
use crate::identity::{ProcessKey, RunId, is_machine_id};
use crate::procfs::Procfs;
use packhouse_base::digest::Digest;
use packhouse_store::fields::FieldError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// The intent of one start: everything that a keeper needs, and all that a stop needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Names this run for ever; the worker and all that it starts carry it in their environment.
    pub run: RunId,
    /// The fleet's name.
    pub fleet: String,
    /// The worker's name.
    pub worker: String,
    /// What the fleet file says the worker is for.
    pub role: String,
    /// When, and in which boot.
    pub at: Timestamp,
    /// Clock ticks from boot to the order: no process of the run started before.
    pub at_ticks: u64,
    /// The machine on which it was given; `None` where it has no id. Another boot of this machine
    /// is over, one of another machine is not.
    pub machine: Option<String>,
    /// The process that gave the order.
    pub controller: ProcessKey,
    /// The version of packhouse that gave it.
    pub version: String,
    /// Who holds the keeper.
    pub backend: Backend,
    /// The engine's words; the first is an absolute path.
    pub command: Vec<String>,
    /// The engine's whole environment, the run's own variable included.
    pub environment: BTreeMap<String, String>,
    /// Names that may be inherited from the controller: the allow-list.
    pub inherit: Vec<String>,
    /// Where the engine starts; `/` when absent.
    pub working_folder: Option<PathBuf>,
    /// Cores to which the engine is pinned.
    pub cores: Option<CpuSet>,
    /// The devices that it is for.
    pub devices: Vec<OrderDevice>,
    /// The address that it listens on.
    pub host: IpAddr,
    /// The port.
    pub port: u16,
    /// The path that answers when it is ready.
    pub health_path: String,
    /// How long readiness is waited for.
    pub ready_timeout_s: u64,
    /// How long each signal of a stop is waited for.
    pub stop_timeouts: StopTimeouts,
    /// Bytes of log that are kept.
    pub log_max_bytes: u64,
    /// The model, where the fleet file names one.
    pub model: Option<OrderModel>,
    /// Memory of the machine that could be had before the start.
    pub available_bytes: Option<u64>,
}

/// Who holds the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Nobody: it is a session of its own.
    Plain,
    /// A unit of the user's systemd.
    Systemd,
}

/// A device of a worker, as it was before the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderDevice {
    /// Its canonical id.
    pub id: String,
    /// What its vendor calls it.
    pub name: String,
    /// Memory in use before the start: what a stop waits to see again. `None`: not observable.
    pub used_bytes: Option<u64>,
}

/// A model file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderModel {
    /// The file that the fleet file names.
    pub source: PathBuf,
    /// The file that the engine is given: the source, or its RAM copy.
    pub path: PathBuf,
    /// Whether that is an admitted RAM copy.
    pub ram_copy: bool,
    /// SHA-256 of the whole file; `None` for a model of several files.
    pub sha256: Option<Digest>,
    /// Its length.
    pub bytes: u64,
}

/// How long each step of a stop is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopTimeouts {
    /// After SIGINT to the main process.
    pub interrupt_s: u64,
    /// After SIGTERM to the whole group.
    pub terminate_s: u64,
    /// After SIGKILL to the whole group.
    pub kill_s: u64,
}

impl Default for StopTimeouts {
    fn default() -> Self {
        Self {
            interrupt_s: 30,
            terminate_s: 15,
            kill_s: 10,
        }
    }
}

impl Backend {
    /// The word in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Systemd => "systemd",
        }
    }
}

impl Order {
    /// Whether it was given on another machine, whose processes can't be seen from here. One boot
    /// is one machine, whatever ids its containers have.
    pub fn is_of_another_machine(&self, procfs: &Procfs) -> bool {
        self.at.boot != procfs.boot_id() && self.machine.as_deref() != procfs.machine_id()
    }

    /// What the records say about the run's processes.
    pub fn ownership(&self, launched: Option<&Launched>) -> Ownership {
        Ownership {
            boot: self.controller.boot,
            pid_namespace: self.controller.pid_namespace,
            main: launched.map(|launched| launched.worker),
            keeper: launched.map(|launched| launched.keeper),
            run: self.run,
            session: launched.map(|launched| launched.session),
            cgroup: launched.and_then(|launched| launched.cgroup.clone()),
            started_after_ticks: self.at_ticks,
        }
    }
}

impl Record for Order {
    const FILE: &'static str = "order.json";
    const SCHEMA: &'static str = "packhouse/worker-order/1";

    fn to_value(&self) -> Value {
        json!({
            "available_bytes": self.available_bytes,
            "at": self.at.to_value(),
            "at_ticks": self.at_ticks,
            "backend": self.backend.word(),
            "command": self.command,
            "controller": self.controller.to_value(),
            "cores": self.cores.as_ref().map(ToString::to_string),
            "devices": self.devices.iter().map(OrderDevice::to_value).collect::<Vec<_>>(),
            "environment": self.environment,
            "fleet": self.fleet,
            "health_path": self.health_path,
            "host": self.host.to_string(),
            "inherit": self.inherit,
            "log_max_bytes": self.log_max_bytes,
            "machine": self.machine,
            "model": self.model.as_ref().map(OrderModel::to_value),
            "port": self.port,
            "ready_timeout_s": self.ready_timeout_s,
            "role": self.role,
            "run": self.run.to_string(),
            "schema": Self::SCHEMA,
            "stop_timeouts_s": self.stop_timeouts.to_value(),
            "version": self.version,
            "worker": self.worker,
            "working_folder": self.working_folder.as_ref().map(|path| path.to_string_lossy()),
        })
    }

    fn from_table(table: &mut Table) -> Result<Self, FieldError> {
        let backend = table.text("backend")?;
        let backend = match backend.as_str() {
            "plain" => Backend::Plain,
            "systemd" => Backend::Systemd,
            other => return Err(table.wrong("backend", "plain or systemd", &json!(other))),
        };
        let devices = table.tables("devices")?.into_iter();
        let command = table.texts("command")?;
        if command.is_empty() {
            return Err(table.wrong("command", "at least one word", &json!([])));
        }
        Ok(Self {
            run: table.run("run")?,
            fleet: table.text("fleet")?,
            worker: table.text("worker")?,
            role: table.text("role")?,
            at: Timestamp::take(table, "at")?,
            at_ticks: table.integer("at_ticks")?,
            machine: table.optional("machine", take_machine)?,
            controller: table.key("controller")?,
            version: table.text("version")?,
            backend,
            command,
            environment: table.text_map("environment")?,
            inherit: table.texts("inherit")?,
            working_folder: table.optional_text("working_folder")?.map(PathBuf::from),
            cores: table.optional("cores", Table::cores)?,
            devices: devices.map(OrderDevice::take).collect::<Result<_, _>>()?,
            host: table.parsed("host", "an IP address")?,
            port: table.narrow("port", "a port")?,
            health_path: table.text("health_path")?,
            ready_timeout_s: table.integer("ready_timeout_s")?,
            stop_timeouts: StopTimeouts::take(table)?,
            log_max_bytes: table.integer("log_max_bytes")?,
            model: table.optional("model", OrderModel::take)?,
            available_bytes: table.optional("available_bytes", Table::integer)?,
        })
    }
}

fn take_machine(table: &mut Table, field: &str) -> Result<String, FieldError> {
    let text = table.text(field)?;
    if is_machine_id(&text) {
        return Ok(text);
    }
    Err(table.wrong(field, "a machine id of 32 hex digits", &json!(text)))
}

impl OrderDevice {
    fn to_value(&self) -> Value {
        json!({"id": self.id, "name": self.name, "used_bytes": self.used_bytes})
    }

    fn take(mut table: Table) -> Result<Self, FieldError> {
        let device = Self {
            id: table.text("id")?,
            name: table.text("name")?,
            used_bytes: table.optional("used_bytes", Table::integer)?,
        };
        table.finish()?;
        Ok(device)
    }
}

impl OrderModel {
    pub(crate) fn to_value(&self) -> Value {
        json!({
            "bytes": self.bytes,
            "path": self.path.to_string_lossy(),
            "ram_copy": self.ram_copy,
            "sha256": self.sha256.map(|digest| digest.to_string()),
            "source": self.source.to_string_lossy(),
        })
    }

    pub(crate) fn take(table: &mut Table, field: &str) -> Result<Self, FieldError> {
        let mut inner = table.table(field)?;
        let model = Self {
            source: inner.text("source")?.into(),
            path: inner.text("path")?.into(),
            ram_copy: inner.boolean("ram_copy")?,
            sha256: inner.optional("sha256", Table::digest)?,
            bytes: inner.integer("bytes")?,
        };
        inner.finish()?;
        Ok(model)
    }
}

impl StopTimeouts {
    pub(crate) fn to_value(self) -> Value {
        json!({
            "interrupt": self.interrupt_s,
            "kill": self.kill_s,
            "terminate": self.terminate_s,
        })
    }

    pub(crate) fn take(table: &mut Table) -> Result<Self, FieldError> {
        let mut inner = table.table("stop_timeouts_s")?;
        let timeouts = Self {
            interrupt_s: inner.integer("interrupt")?,
            terminate_s: inner.integer("terminate")?,
            kill_s: inner.integer("kill")?,
        };
        inner.finish()?;
        Ok(timeouts)
    }
}
