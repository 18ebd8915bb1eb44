//! What a fleet file asks of this host and the host has not.
//!
//! Invariants: nothing is changed, started or hashed; a file that can't be read is a problem with
//! its reason, never missing.

use super::mistake::{Blocks, Commands, FleetCommand, Reach};
use super::{Fleet, Placeholder, Program, Worker};
use crate::devices::{Device, FindError, Inventory, Vendor};
use crate::render::{self, Given, RenderError, Rendered};
use packhouse_base::Blame;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Chooses the file of a worker's model: its own, or a verified copy in RAM.
pub trait Models {
    /// The file that a start would load. `None`: the worker has no model.
    fn file(&self, worker: &Worker) -> Option<PathBuf>;
}

/// The host that workers are compared with.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// Its devices.
    pub inventory: &'a Inventory,
    /// The environment that a start would have.
    pub environment: &'a [(OsString, OsString)],
    /// The packhouse program.
    pub packhouse: &'a Path,
    /// Ports below this one are for those with privileges only.
    pub first_free_port: u16,
    /// Which file is whose model.
    pub models: &'a dyn Models,
}

/// What a worker was found to be on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The engine's program.
    pub program: PathBuf,
    /// Its devices, in the order of the file.
    pub devices: Vec<Device>,
    /// The file of its model.
    pub model: Option<PathBuf>,
}

/// One problem of a worker with this host.
#[derive(Clone, Debug)]
pub struct Problem {
    /// What is wrong.
    pub what: Lack,
    /// What can't be done because of it.
    pub blocks: Blocks,
}

/// What is wrong between a worker and the host.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Lack {
    /// A bare name that is nowhere on PATH.
    #[error("program {name:?} is in no folder of PATH ({path:?})")]
    NotOnPath {
        /// The name.
        name: String,
        /// The PATH of the worker.
        path: OsString,
    },
    /// A file or folder that can't be used.
    #[error("{what} {}: {why}", path.display())]
    File {
        /// What it is to the worker.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// Why not.
        why: FileFault,
    },
    /// A device that is not there or may not be.
    #[error(transparent)]
    Device(FindError),
    /// One device under two names.
    #[error("device {device} is also a device of {other}")]
    SharedDevice {
        /// The device.
        device: String,
        /// Who has it too.
        other: String,
    },
    /// A port for those with privileges.
    #[error("port {port} is below {first}, the first that needs no privileges")]
    LowPort {
        /// The port.
        port: u16,
        /// The first free one.
        first: u16,
    },
    /// An address that is not this host's.
    #[error("can't listen on {host}: {why}")]
    Address {
        /// The address.
        host: IpAddr,
        /// Why not.
        why: String,
    },
    /// No command line and no environment follow from the file here.
    #[error(transparent)]
    Render(RenderError),
    /// `packhouse run` would find no store.
    #[error(
        "packs need a store: the worker inherits and sets none of PACKHOUSE_STORE, XDG_CACHE_HOME \
         and HOME"
    )]
    NoStore,
}

impl Lack {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotOnPath { .. } | Self::File { .. } | Self::LowPort { .. } => Blame::Host,
            Self::Address { .. } => Blame::Host,
            Self::Device(error) => error.blame(),
            Self::SharedDevice { .. } | Self::NoStore => Blame::Source,
            Self::Render(error) => error.blame(),
        }
    }
}

/// Why a file can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// The system says no.
    Errno(Errno),
    /// Another kind of file.
    Kind(&'static str),
    /// Nothing is in it.
    Empty,
}

impl fmt::Display for FileFault {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(error) => write!(target, "{}", io::Error::from(*error)),
            Self::Kind(wanted) => write!(target, "no {wanted}"),
            Self::Empty => target.write_str("empty"),
        }
    }
}

/// All problems of a fleet's complete workers with this host, worker by worker.
pub fn host_problems(fleet: &Fleet, host: &Host<'_>) -> Vec<Problem> {
    let of_each = fleet.workers.iter().flat_map(|worker| look(worker, host).1);
    let mut problems: Vec<Problem> = of_each.collect();
    problems.extend(shared_devices(fleet, host));
    merged(problems)
}

/// Devices that two workers have under different names, or whole and in part: what only the host
/// can tell.
pub fn shared_devices(fleet: &Fleet, host: &Host<'_>) -> Vec<Problem> {
    let find = |worker: &Worker| -> Vec<Device> {
        let found = worker.devices.iter().map(|spec| host.inventory.find(spec));
        // A device that is not found is a problem of its own.
        found.collect::<Result<_, _>>().unwrap_or_default()
    };
    let mut problems = Vec::new();
    let mut earlier: Vec<(&Worker, Vec<Device>)> = Vec::new();
    for worker in &fleet.workers {
        let devices = find(worker);
        for (other, theirs) in &earlier {
            problems.extend(shared(worker, &devices, other, theirs));
        }
        earlier.push((worker, devices));
    }
    problems
}

/// One problem in place of equal ones, for the workers of all.
fn merged(problems: Vec<Problem>) -> Vec<Problem> {
    let mut merged: Vec<Problem> = Vec::new();
    for problem in problems {
        let key = |problem: &Problem| (problem.what.to_string(), problem.blocks.commands);
        match merged.iter_mut().find(|other| key(other) == key(&problem)) {
            Some(other) => {
                let workers = other.blocks.workers.clone();
                other.blocks.workers = workers.and(problem.blocks.workers);
            }
            None => merged.push(problem),
        }
    }
    merged
}

/// Looks for what a worker needs. Problems that block rendering leave nothing found.
pub fn look(worker: &Worker, host: &Host<'_>) -> (Option<Found>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut note = |commands, what| {
        let workers = Reach::one(worker.name.as_str());
        let blocks = Blocks { commands, workers };
        problems.push(Problem { what, blocks });
    };
    let program = program(worker, host.environment);
    let program = program
        .map_err(|what| note(Commands::RenderAndStart, what))
        .ok();
    let mut devices = Vec::new();
    for spec in &worker.devices {
        match host.inventory.find(spec) {
            Ok(device) => devices.push(device),
            Err(error) => note(Commands::RenderAndStart, Lack::Device(error)),
        }
    }
    if let Some(program) = &program
        && let Err(why) = usable(program, Kind::Program)
    {
        note(Commands::Start, file("program", program, why));
    }
    let model = host.models.file(worker);
    if let Some(model) = &model
        && let Err(why) = usable(model, Kind::Model)
    {
        note(Commands::Start, file("model", model, why));
    }
    if let Err(why) = usable(&worker.working_folder, Kind::Folder) {
        let what = file("working folder", &worker.working_folder, why);
        note(Commands::Start, what);
    }
    if worker.port < host.first_free_port {
        let (port, first) = (worker.port, host.first_free_port);
        note(Commands::Start, Lack::LowPort { port, first });
    }
    if let Err(error) = TcpListener::bind((worker.host, 0)) {
        let (host, why) = (worker.host, error.to_string());
        note(Commands::Start, Lack::Address { host, why });
    }
    let is_whole = devices.len() == worker.devices.len();
    let found = program.filter(|_| is_whole).map(|program| Found {
        program,
        devices,
        model,
    });
    if let Some(found) = &found {
        match found.render(worker, host) {
            Ok(rendered) if worker.packs && !has_store(&rendered) => {
                note(Commands::Start, Lack::NoStore);
            }
            Ok(_) => {}
            Err(error) => note(Commands::RenderAndStart, Lack::Render(error)),
        }
    }
    (found, problems)
}

impl Found {
    /// Renders the worker.
    pub fn render(&self, worker: &Worker, host: &Host<'_>) -> Result<Rendered, RenderError> {
        let given = Given {
            devices: &self.devices,
            all: &host.inventory.devices,
            program: &self.program,
            model: self.model.as_deref(),
            environment: host.environment,
            packhouse: host.packhouse,
        };
        render::render(worker, &given)
    }
}

impl Problem {
    /// Whether it blocks a command on a worker.
    pub fn blocks(&self, command: FleetCommand, worker: &str) -> bool {
        self.blocks.include(command, worker)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(target, "{} [{}]", self.what, self.blocks)
    }
}

/// The engine's program: the path of the file, or the first on the worker's PATH. A worker without
/// a PATH of its own has that of the start.
fn program(worker: &Worker, environment: &[(OsString, OsString)]) -> Result<PathBuf, Lack> {
    let name = match &worker.program {
        Program::Absolute(path) => return Ok(path.clone()),
        Program::OnPath(name) => name,
    };
    let own = worker.environment.get("PATH").map(|path| {
        let texts = [
            (Placeholder::Name, worker.name.to_string()),
            (Placeholder::Host, worker.host.to_string()),
            (Placeholder::Port, worker.port.to_string()),
        ];
        let value = |wanted| {
            let found = texts.iter().find(|(placeholder, _)| *placeholder == wanted);
            found.map(|(_, text)| OsStr::new(text))
        };
        // Nobody has a folder of engines per model, or per list of devices.
        path.fill(value).unwrap_or_else(|_| path.to_string().into())
    });
    let starts = || {
        let path = environment.iter().find(|(name, _)| name == "PATH");
        path.map(|(_, path)| path.clone()).unwrap_or_default()
    };
    let path = own.unwrap_or_else(starts);
    // An empty or relative entry means the working folder, where nobody put an engine on purpose.
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let mut candidates = folders.map(|folder| folder.join(name));
    candidates
        .find(|candidate| usable(candidate, Kind::Program).is_ok())
        .ok_or_else(|| Lack::NotOnPath {
            name: name.clone(),
            path,
        })
}

fn file(what: &'static str, path: &Path, why: FileFault) -> Lack {
    Lack::File {
        what,
        path: path.to_owned(),
        why,
    }
}

/// Devices of one worker that another has too, under another name or as a part.
fn shared(worker: &Worker, devices: &[Device], other: &Worker, theirs: &[Device]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for device in devices {
        // The same name twice is a mistake of the file already.
        let theirs = theirs.iter().zip(&other.devices);
        let theirs = theirs.filter(|(_, spec)| !worker.devices.contains(spec));
        for (their, _) in theirs.filter(|(their, _)| is_shared(device, their)) {
            let names = [worker, other].map(|worker| worker.name.to_string());
            problems.push(Problem {
                what: Lack::SharedDevice {
                    device: device.id.to_string(),
                    other: format!("worker {} ({})", other.name, their.id),
                },
                blocks: Blocks {
                    commands: Commands::Start,
                    workers: Reach::These(names.into()),
                },
            });
        }
    }
    problems
}

fn is_shared(left: &Device, right: &Device) -> bool {
    let cores = |device: &Device| {
        device
            .cores
            .clone()
            .filter(|_| device.vendor == Vendor::Cpu)
    };
    if let (Some(left), Some(right)) = (cores(left), cores(right)) {
        return left.intersects(&right);
    }
    left.id == right.id
        || left.parent.as_ref() == Some(&right.id)
        || right.parent.as_ref() == Some(&left.id)
}

fn has_store(rendered: &Rendered) -> bool {
    let names = ["PACKHOUSE_STORE", "XDG_CACHE_HOME", "HOME"];
    let is_set = |name| {
        let value = rendered.environment.get(OsStr::new(name));
        value.is_some_and(|value| !value.is_empty())
    };
    names.into_iter().any(is_set)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Program,
    Model,
    Folder,
}

/// Errors unless a file is of a kind and can be used so by this user.
fn usable(path: &Path, kind: Kind) -> Result<(), FileFault> {
    let flags = match kind {
        Kind::Program => OFlags::PATH,
        // A pipe is not waited for.
        Kind::Model => OFlags::RDONLY | OFlags::NONBLOCK,
        Kind::Folder => OFlags::PATH | OFlags::DIRECTORY,
    };
    let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let opened = opened.map_err(FileFault::Errno)?;
    let stat = rustix::fs::fstat(&opened).map_err(FileFault::Errno)?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    match kind {
        Kind::Program | Kind::Model if !is_regular => Err(FileFault::Kind("regular file")),
        Kind::Model if stat.st_size == 0 => Err(FileFault::Empty),
        Kind::Model => Ok(()),
        Kind::Program | Kind::Folder => {
            let flags = AtFlags::EACCESS;
            rustix::fs::accessat(rustix::fs::CWD, path, Access::EXEC_OK, flags)
                .map_err(FileFault::Errno)
        }
    }
}
