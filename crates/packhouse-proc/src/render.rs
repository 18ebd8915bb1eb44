//! The exact command, environment and cores that a worker is started with.
//!
//! Invariants:
//! - nothing is inherited but what the fleet file lists;
//! - the masks follow from the worker's devices, and what the file sets agrees with them;
//! - what a shell makes of the text is what a start executes.

mod quote;

pub use quote::quoted;

use crate::cores::CpuSet;
use crate::devices::Device;
use crate::fleet::{Placeholder, Worker};
use crate::masks::own::{self, MaskError};
use packhouse_base::Blame;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What a worker is rendered with, beside itself.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The worker's devices, as found on this host.
    pub devices: &'a [Device],
    /// All devices of this host.
    pub all: &'a [Device],
    /// The engine's program, as found.
    pub program: &'a Path,
    /// The model's file: its copy in RAM or the one of the fleet file. `None`: it has no model.
    pub model: Option<&'a Path>,
    /// The environment to inherit from; only what the worker lists is taken.
    pub environment: &'a [(OsString, OsString)],
    /// The packhouse program, for workers with packs.
    pub packhouse: &'a Path,
}

/// What is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// The cores that it may run on. `None`: all.
    pub cores: Option<CpuSet>,
    /// The folder that it starts in.
    pub working_folder: PathBuf,
}

/// Why a worker can't be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The masks can't be made, or contradict what the file sets.
    #[error(transparent)]
    Mask(#[from] MaskError),
    /// A mask that the file sets is no text once it is filled.
    #[error("environment.{variable} is no text: {value:?}")]
    MaskText {
        /// The variable.
        variable: String,
        /// Its value.
        value: OsString,
    },
    /// A placeholder has no value here.
    #[error("{{{}}} has no value for this worker", .0.word())]
    NoValue(Placeholder),
    /// A path with a zero byte.
    #[error("a zero byte in {0:?}")]
    Zero(OsString),
    /// A program that `env` would take for a variable.
    #[error("a program's path can't have a `=`: {0:?}")]
    Equals(OsString),
}

impl RenderError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Mask(error) => error.blame(),
            Self::MaskText { .. } | Self::NoValue(_) | Self::Zero(_) | Self::Equals(_) => {
                Blame::Source
            }
        }
    }
}

/// Renders a worker. Errors where its masks contradict its devices or a placeholder has no value.
pub fn render(worker: &Worker, given: &Given<'_>) -> Result<Rendered, RenderError> {
    let values = Values::of(worker, given);
    let mut environment = BTreeMap::new();
    for (name, value) in given.environment {
        let is_listed = name
            .to_str()
            .is_some_and(|name| worker.inherit.contains(name));
        // Of a name that is there twice, getenv finds the first.
        if is_listed && !environment.contains_key(name) {
            environment.insert(name.clone(), value.clone());
        }
    }
    let mut users = BTreeMap::new();
    for (name, template) in &worker.environment {
        let value = template.fill(|p| values.of_placeholder(p));
        let value = value.map_err(RenderError::NoValue)?;
        if crate::masks::VARIABLES.contains(&name.as_str()) {
            let text = value.to_str().ok_or_else(|| RenderError::MaskText {
                variable: name.clone(),
                value: value.clone(),
            })?;
            users.insert(name.clone(), text.to_owned());
        }
        environment.insert(OsString::from(name), value);
    }
    let masks = own::own(given.devices, given.all)?;
    let masks = own::with_users(&masks, &users, given.devices, given.all)?;
    for (name, value) in masks {
        environment.insert(name.into(), value.into());
    }
    let mut command = Vec::new();
    if worker.packs {
        command.extend([given.packhouse.into(), "run".into(), "--".into()]);
    }
    command.push(given.program.into());
    for word in &worker.arguments {
        let word = word.fill(|p| values.of_placeholder(p));
        command.push(word.map_err(RenderError::NoValue)?);
    }
    let rendered = Rendered {
        command,
        environment,
        cores: values.core_set,
        working_folder: worker.working_folder.clone(),
    };
    rendered.refuse_unusable()?;
    Ok(rendered)
}

impl Rendered {
    /// A path may come from elsewhere than the file, where zero bytes are refused.
    fn refuse_unusable(&self) -> Result<(), RenderError> {
        let program = self
            .command
            .first()
            .filter(|word| word.as_bytes().contains(&b'='));
        if let Some(program) = program {
            return Err(RenderError::Equals(program.clone()));
        }
        let variables = self
            .environment
            .iter()
            .flat_map(|(name, value)| [name, value]);
        let folder = self.working_folder.as_os_str();
        let words = self
            .command
            .iter()
            .chain(variables)
            .map(OsString::as_os_str);
        match words
            .chain([folder])
            .find(|word| word.as_bytes().contains(&0))
        {
            Some(word) => Err(RenderError::Zero(word.to_owned())),
            None => Ok(()),
        }
    }
}

/// A text for bash that does the same, one variable and one argument a line.
impl fmt::Display for Rendered {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shell's own PATH finds both programs, not the worker's.
        write!(target, "cd {} && exec", quoted(&self.working_folder))?;
        if let Some(cores) = &self.cores {
            write!(target, " taskset -c {cores}")?;
        }
        write!(target, " env -i")?;
        for (name, value) in &self.environment {
            write!(target, " \\\n  {}={}", quoted(name), quoted(value))?;
        }
        for word in &self.command {
            write!(target, " \\\n  {}", quoted(word))?;
        }
        Ok(())
    }
}

/// The values of placeholders.
struct Values {
    model: Option<OsString>,
    host: OsString,
    port: OsString,
    name: OsString,
    core_set: Option<CpuSet>,
    cores: Option<OsString>,
    threads: Option<OsString>,
    device: OsString,
}

impl Values {
    fn of(worker: &Worker, given: &Given<'_>) -> Self {
        let own = given.devices.iter();
        let ids: Vec<&str> = own.map(|device| device.id.as_str()).collect();
        let core_set = cores(given.devices);
        let count = core_set.as_ref().map(CpuSet::count);
        let threads = worker.threads.map(|threads| threads.to_string());
        let threads = threads.or(count.map(|count| count.to_string()));
        Self {
            model: given.model.map(OsString::from),
            host: worker.host.to_string().into(),
            port: worker.port.to_string().into(),
            name: worker.name.as_str().into(),
            cores: core_set.as_ref().map(|cores| cores.to_string().into()),
            core_set,
            threads: threads.map(OsString::from),
            device: ids.join(",").into(),
        }
    }

    fn of_placeholder(&self, placeholder: Placeholder) -> Option<&OsStr> {
        match placeholder {
            Placeholder::Model => self.model.as_deref(),
            Placeholder::Host => Some(&self.host),
            Placeholder::Port => Some(&self.port),
            Placeholder::Name => Some(&self.name),
            Placeholder::Cores => self.cores.as_deref(),
            Placeholder::Threads => self.threads.as_deref(),
            Placeholder::Device => Some(&self.device),
        }
    }
}

/// The cores of all devices that are cores. `None`: none is.
fn cores(devices: &[Device]) -> Option<CpuSet> {
    use crate::devices::Vendor;
    let own = devices.iter().filter(|device| device.vendor == Vendor::Cpu);
    let sets = own.filter_map(|device| device.cores.as_ref());
    let mut all = sets.flat_map(CpuSet::iter).peekable();
    all.peek()?;
    Some(CpuSet::of(all).expect("because each core was in a set"))
}
