//! Which fleet and which workers a command is about: by a fleet file, or by a name alone.

use crate::failure::{Exit, Failure, quoted};
use crate::files::read_at_most;
use crate::model_source::{NoCopy, admitted_copy};
use crate::places::{self, Lookup};
use crate::run::own_binary;
use crate::worker_devices;
use crate::worker_words::{FleetArgs, FleetFileArgs};
use packhouse_proc::devices::Inventory;
use packhouse_proc::fleet::host::{Host, Models};
use packhouse_proc::fleet::{
    self, FLEET_BYTES_MAX, FleetCommand, FleetName, Mistake, Reading, Unnamed, Worker, WorkerName,
};
use packhouse_proc::render::Rendered;
use packhouse_stage::models::AdmittedModel;
use packhouse_sys::fs::Fs as _;
use packhouse_sys::real::RealFs;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A fleet file and all that could be read of it.
#[derive(Debug)]
pub(crate) struct FleetFile {
    pub(crate) path: PathBuf,
    pub(crate) reading: Reading,
}

/// A fleet by its name, and its file where it was read.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) name: FleetName,
    /// `None`: the name was given, and no file was asked for.
    pub(crate) file: Option<FleetFile>,
}

/// Reads the fleet file that is named, else the user's own. A file with mistakes is no failure; one
/// that can't be read is.
pub(crate) fn read(config: Option<&Path>, lookup: Lookup<'_>) -> Result<FleetFile, Failure> {
    let path = match config {
        Some(path) => path.to_owned(),
        None => places::fleet_file(lookup).ok_or_else(|| {
            Failure::new("no folder for the fleet file", "XDG_CONFIG_HOME is unset")
                .cause("HOME is unset too, or no absolute path")
                .hint("packhouse worker validate --config FILE")
        })?,
    };
    let bytes = read_at_most(&path, FLEET_BYTES_MAX).map_err(|error| {
        Failure::new("cannot read the fleet file", path.display())
            .because(&error)
            .hint(match config {
                Some(_) => format!("ls -l {}", quoted(&path)),
                None => "packhouse worker validate --config FILE".to_owned(),
            })
    })?;
    let reading = fleet::read(&bytes);
    Ok(FleetFile { path, reading })
}

/// Finds the fleet for commands that work from what starts recorded: by its name alone, else by its
/// file, of which no more than the name must be right.
pub(crate) fn choose(args: &FleetArgs, lookup: Lookup<'_>) -> Result<Chosen, Failure> {
    if let Some(name) = &args.fleet {
        let name = FleetName::parse(name).map_err(|error| {
            Failure::usage("not a fleet's name", name)
                .because(&error)
                .hint("packhouse worker status --help")
        })?;
        return Ok(Chosen { name, file: None });
    }
    let file = read(args.config.as_deref(), lookup)
        .map_err(|failure| failure.hint("packhouse worker status --fleet NAME"))?;
    let name = file.name()?.clone();
    Ok(Chosen {
        name,
        file: Some(file),
    })
}

impl FleetFile {
    /// The fleet's name. Fails where the file has none that is one.
    pub(crate) fn name(&self) -> Result<&FleetName, Failure> {
        self.reading.name.as_ref().ok_or_else(|| {
            let failure = Failure::new("the fleet file names no fleet", self.path.display());
            let against = self.reading.against_name();
            let others = self.reading.mistakes.len() - against.len();
            let failure = against
                .into_iter()
                .fold(failure, |failure, mistake| failure.cause(self.say(mistake)));
            let failure = match others {
                0 => failure,
                1 => failure.cause("1 other mistake, which `packhouse worker validate` names"),
                count => failure.cause(format!(
                    "{count} other mistakes, which `packhouse worker validate` lists"
                )),
            };
            failure
                .cause("status, stop and logs take its name as --fleet NAME")
                .hint(format!(
                    "packhouse worker validate --config {}",
                    quoted(&self.path)
                ))
        })
    }

    /// Adds all mistakes as causes.
    pub(crate) fn with_mistakes(&self, failure: Failure) -> Failure {
        let mistakes = self.reading.mistakes.iter();
        mistakes.fold(failure, |failure, mistake| failure.cause(self.say(mistake)))
    }

    /// One mistake with the file's path before it, as compilers do.
    pub(crate) fn say(&self, mistake: &Mistake) -> String {
        format!("{}:{mistake}", self.path.display())
    }

    /// The worker of that name. Errors with what keeps it from being complete.
    pub(crate) fn worker(&self, name: &WorkerName) -> Result<&Worker, Vec<String>> {
        let fleet = self.reading.fleet.as_ref();
        let worker = fleet.and_then(|fleet| fleet.worker(name.as_str()));
        worker.ok_or_else(|| {
            let mistakes = self.reading.mistakes.iter();
            let concerns = |mistake: &&Mistake| mistake.blocks.workers.has(name.as_str());
            mistakes
                .filter(concerns)
                .map(|mistake| self.say(mistake))
                .collect()
        })
    }

    /// What keeps a worker without a name from a command, each in a line.
    pub(crate) fn against(&self, command: FleetCommand, unnamed: &Unnamed) -> Vec<String> {
        let mistakes = self.reading.blocking(command, &unnamed.label).into_iter();
        mistakes.map(|mistake| self.say(mistake)).collect()
    }

    /// The workers without a right name, where all workers are asked for.
    pub(crate) fn unnamed(&self, args: &FleetFileArgs) -> &[Unnamed] {
        match args.worker.as_slice() {
            [] => &self.reading.unnamed,
            _ => &[],
        }
    }

    /// Says that the file names no worker, and why.
    pub(crate) fn without_workers(&self) -> Failure {
        let failure = Failure::new("the fleet file names no worker", self.path.display());
        self.with_mistakes(failure).hint(format!(
            "packhouse worker validate --config {}",
            quoted(&self.path)
        ))
    }

    /// The workers that are asked for, in the order of the file: all, or those named. A name that
    /// the file has not is an error of usage.
    pub(crate) fn workers(&self, args: &FleetFileArgs) -> Result<Vec<WorkerName>, Failure> {
        let hint = format!("packhouse worker status --config {}", quoted(&self.path));
        among(&self.reading.declared, &args.worker, &hint)
    }
}

/// The names that are asked for among those there are: all, or those given, in the order there.
/// `hint` is what shows them.
pub(crate) fn among(
    known: &[WorkerName],
    asked: &[String],
    hint: &str,
) -> Result<Vec<WorkerName>, Failure> {
    let is_known = |name: &String| known.iter().any(|known| known.as_str() == name);
    if let Some(unknown) = asked.iter().find(|name| !is_known(name)) {
        let names: Vec<&str> = known.iter().map(WorkerName::as_str).collect();
        let cause = match names.as_slice() {
            [] => "the fleet has no worker".to_owned(),
            names => format!("the fleet has {}", names.join(", ")),
        };
        return Err(Failure::usage("no such worker", unknown)
            .cause(cause)
            .hint(hint));
    }
    let is_asked =
        |name: &&WorkerName| asked.is_empty() || asked.iter().any(|asked| asked == name.as_str());
    Ok(known.iter().filter(is_asked).cloned().collect())
}

/// This host as workers would find it.
pub(crate) struct Workplace<'l> {
    lookup: Lookup<'l>,
    /// Its devices.
    pub(crate) inventory: Inventory,
    /// The environment of this process.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// This program.
    pub(crate) packhouse: PathBuf,
    first_free_port: u16,
}

impl<'l> Workplace<'l> {
    /// Looks at this host.
    pub(crate) fn look(lookup: Lookup<'l>) -> Result<Self, Failure> {
        Ok(Self {
            lookup,
            inventory: worker_devices::look(lookup),
            environment: places::whole_environment(),
            packhouse: own_binary()?,
            first_free_port: first_free_port(),
        })
    }

    /// What workers are compared with.
    pub(crate) fn host(&self) -> Host<'_> {
        Host {
            inventory: &self.inventory,
            environment: &self.environment,
            packhouse: &self.packhouse,
            first_free_port: self.first_free_port,
            models: self,
        }
    }

    /// Why a worker with packs would not start: it starts under `packhouse run`, which needs the
    /// plug-in and seeks it in the worker's own environment.
    pub(crate) fn lacks_plugin(&self, worker: &Worker, rendered: &Rendered) -> Option<String> {
        if !worker.packs {
            return None;
        }
        let lookup = |name: &str| rendered.environment.get(OsStr::new(name)).cloned();
        let failure = places::plugin(&lookup, &self.packhouse).err()?;
        Some(format!(
            "{}; packs need it: set environment.PACKHOUSE_PLUGIN in the fleet file, or list \
             \"PACKHOUSE_PLUGIN\" in inherit and export it",
            failure.headline()
        ))
    }

    /// The copy in RAM of a worker's model. `None`: it has no model, or wants no copy.
    pub(crate) fn copy(&self, worker: &Worker) -> Option<Result<AdmittedModel, NoCopy>> {
        let model = worker.model.as_ref().filter(|_| worker.prefer_ram_copy)?;
        Some(admitted_copy(&model.path, model.sha256, self.lookup))
    }
}

impl Models for Workplace<'_> {
    fn file(&self, worker: &Worker) -> Option<PathBuf> {
        let own = worker.model.as_ref()?.path.clone();
        let copy = self.copy(worker).and_then(Result::ok);
        Some(copy.map_or(own, |copy| copy.path))
    }
}

/// The first port that this user may listen on; the kernel's default where it does not say.
fn first_free_port() -> u16 {
    if RealFs.effective_uid() == 0 {
        return 0;
    }
    let said = read_at_most(
        Path::new("/proc/sys/net/ipv4/ip_unprivileged_port_start"),
        64,
    );
    let said = said.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let port = said.and_then(|text| text.trim().parse().ok());
    port.unwrap_or(1024)
}

/// How a command ends that did something for some workers and not for others.
pub(crate) fn exit(is_refused: bool) -> Exit {
    if is_refused {
        Exit::NotExecuted
    } else {
        Exit::Done
    }
}
