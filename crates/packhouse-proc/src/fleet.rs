//! Fleet files: which engine runs as a server on which device, on which port, with what settings.
//!
//! Format: `docs/format/fleet.md`. Invariants:
//! - all mistakes of a file are found in one reading, each with its place and with the commands and
//!   workers that it blocks;
//! - `status`, `stop` and `logs` are blocked by none of them;
//! - a `Worker` is complete: what profiles and common settings give it is in it.
//!
//! Never: looks at the host, except in `host`.

pub mod host;
pub mod mistake;
pub mod name;
pub mod template;

mod file;
mod layer;
mod nearest;
mod rules;
mod syntax;
mod table;

pub use host::host_problems;
pub use mistake::{Blocks, Commands, FleetCommand, Mistake, Reach, Wrong};
pub use name::{FleetName, NameError, WorkerName};
pub use template::{Placeholder, Template, TemplateError};

use crate::devices::DeviceSpec;
use packhouse_base::digest::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// A fleet: its settings and its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Its name, which is the name of its state folder.
    pub name: FleetName,
    /// What keeps its workers.
    pub backend: Backend,
    /// How many of a worker's runs are kept.
    pub keep_runs: u32,
    /// The length from which a live log loses its beginning.
    pub log_max_bytes: u64,
    /// Its workers, in the order of the file.
    pub workers: Vec<Worker>,
}

impl Fleet {
    /// The worker of that name.
    pub fn worker(&self, name: &str) -> Option<&Worker> {
        self.workers
            .iter()
            .find(|worker| worker.name.as_str() == name)
    }
}

/// What keeps workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// systemd where a user manager answers, else a session of their own.
    Auto,
    /// User units of systemd.
    Systemd,
    /// A session of their own.
    Plain,
}

impl Backend {
    /// The word in a fleet file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Systemd => "systemd",
            Self::Plain => "plain",
        }
    }
}

/// One worker with all that the file says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its name, unique in the fleet.
    pub name: WorkerName,
    /// What it is for, for people.
    pub role: Option<String>,
    /// The profile that it takes settings from.
    pub profile: Option<String>,
    /// Its devices, at least one.
    pub devices: Vec<DeviceSpec>,
    /// The address that it listens on.
    pub host: IpAddr,
    /// The port that it listens on.
    pub port: u16,
    /// The engine.
    pub program: Program,
    /// All arguments of the engine.
    pub arguments: Vec<Template>,
    /// Whether it starts under `packhouse run`, to use its packs.
    pub packs: bool,
    /// The folder that it starts in.
    pub working_folder: PathBuf,
    /// The model that it loads.
    pub model: Option<Model>,
    /// Whether a verified copy of the model in RAM is taken where there is one.
    pub prefer_ram_copy: bool,
    /// Threads, for `{threads}`.
    pub threads: Option<u32>,
    /// Variables that the file sets.
    pub environment: BTreeMap<String, Template>,
    /// Variables that it inherits where the starting process has them; no others are inherited.
    pub inherit: BTreeSet<String>,
    /// The path that says whether it is ready.
    pub health_path: String,
    /// Seconds from the start until it must be ready.
    pub ready_timeout_s: u64,
    /// How long each step of a stop waits.
    pub stop_timeouts: StopTimeouts,
    /// The line of its table in the file.
    pub line: usize,
}

/// How an engine's program is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// By an absolute path.
    Absolute(PathBuf),
    /// By a bare name, sought on PATH.
    OnPath(String),
}

/// A model's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its absolute path.
    pub path: PathBuf,
    /// The SHA-256 that it must have.
    pub sha256: Option<Digest>,
}

/// Seconds that a stop waits after each signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopTimeouts {
    /// After SIGINT.
    pub interrupt_s: u64,
    /// After SIGTERM.
    pub terminate_s: u64,
    /// After SIGKILL.
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

/// All that could be read of a fleet file, right or wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The fleet's name, where the file has a right one.
    pub name: Option<FleetName>,
    /// Every worker whose name is one, in the order of the file, once.
    pub declared: Vec<WorkerName>,
    /// Every worker without a right name, in the order of the file.
    pub unnamed: Vec<Unnamed>,
    /// What is complete: `None` without a name. Workers that are not complete are left out; those
    /// that are may still be blocked.
    pub fleet: Option<Fleet>,
    /// All mistakes, in the order of the file.
    pub mistakes: Vec<Mistake>,
    /// How many lines are before the first table: its name is on one of them.
    pub top_lines: usize,
}

/// A worker whose name is missing or no name. Mistakes call it by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Its place among the workers, as `#2`.
    pub label: String,
    /// The line of its table in the file.
    pub line: usize,
}

impl fmt::Display for Unnamed {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(target, "{} (line {})", self.label, self.line)
    }
}

impl Reading {
    /// The mistakes that block a command on a worker.
    pub fn blocking(&self, command: FleetCommand, worker: &str) -> Vec<&Mistake> {
        let mistakes = self.mistakes.iter();
        mistakes
            .filter(|mistake| mistake.blocks.include(command, worker))
            .collect()
    }

    /// The mistakes by which the fleet has no name: those of the name itself, or what is no TOML
    /// before the first table, where a name would be. None where it has one.
    pub fn against_name(&self) -> Vec<&Mistake> {
        if self.name.is_some() {
            return Vec::new();
        }
        let all = || self.mistakes.iter();
        let own: Vec<&Mistake> = all().filter(|mistake| mistake.is_of_name()).collect();
        if !own.is_empty() {
            return own;
        }
        all()
            .filter(|mistake| mistake.line <= self.top_lines && mistake.hides_keys())
            .collect()
    }
}

/// Reads a fleet file as far as it can be read. Never fails: mistakes are in the reading.
pub fn read(bytes: &[u8]) -> Reading {
    file::read(bytes)
}

/// Reads a fleet file that must be without mistakes. Errors with all of them.
pub fn parse(text: &str) -> Result<Fleet, Vec<Mistake>> {
    let reading = read(text.as_bytes());
    match reading.fleet {
        Some(fleet) if reading.mistakes.is_empty() => Ok(fleet),
        Some(_) | None => Err(reading.mistakes),
    }
}

/// The longest fleet file that is read.
pub const FLEET_BYTES_MAX: usize = 256 << 10;
