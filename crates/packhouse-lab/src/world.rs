//! What a lab asks of its host, as values and traits, so that every host can be played.

use crate::packet::Object;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, Fs};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A lab, and the host that it is on.
#[derive(Clone)]
pub struct Lab<'a> {
    /// The file systems.
    pub fs: &'a dyn Fs,
    /// The lab's folder.
    pub root: Dir,
    /// The user's private state folder, theirs alone: what they remember of labs is in `lab` below.
    pub state: Dir,
    /// The clocks.
    pub clock: &'a dyn Clock,
    /// The host.
    pub host: &'a dyn Host,
}

/// What only a real host can say.
pub trait Host: Send + Sync {
    /// The kernel's random name of this boot.
    fn boot_id(&self) -> Result<String, HostError>;
    /// Release and version of the kernel.
    fn kernel(&self) -> Result<String, HostError>;
    /// The model of the CPU.
    fn cpu(&self) -> Result<String, HostError>;
    /// Digest of the program that is running.
    fn analyzer(&self) -> Result<Digest, HostError>;
    /// Name and version of the second implementation that this program has.
    fn checker(&self) -> String;
    /// Bytes that nobody can foresee.
    fn random32(&self) -> Result<[u8; 32], HostError>;
    /// Finds a program by its name in a preregistration. `lab` is the lab's folder.
    fn resolve(&self, lab: &Path, program: &str) -> Result<PathBuf, HostError>;
    /// Digest of a file, by its absolute path, as it is now.
    fn content(&self, path: &Path) -> Result<Digest, HostError>;
    /// What the dynamic loader would load for a program in this environment, by ascending name and
    /// digest; of a script: its interpreter, and what would be loaded for that.
    fn objects(
        &self,
        program: &Path,
        environment: &[(OsString, OsString)],
    ) -> Result<Vec<Object>, HostError>;
    /// The commit of a Git work tree, by a folder of it.
    fn commit(&self, folder: &Path) -> Result<Commit, HostError>;
    /// Files that a process, and all that it started, have mapped executable, by ascending name and
    /// digest. Who can't be looked at, and a file whose content can't be told, is an error.
    fn mapped_objects(&self, pid: u32) -> Result<Vec<Mapped>, HostError>;
    /// The device of this host that a preregistration names, and who holds it now. `cpu` is every
    /// host's.
    fn device(&self, name: &str) -> Result<HostDevice, HostError>;
}

/// A device of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostDevice {
    /// Its model, for people.
    pub model: String,
    /// The kernel driver that has it, where it has one.
    pub driver: Option<String>,
    /// Processes that hold it for certain, each in words.
    pub holders: Vec<String>,
    /// Of whom it can't be told whether they hold it: who was not told of, and why.
    pub unknown: Vec<String>,
}

/// A file that a process has mapped executable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapped {
    /// Its name and content.
    pub object: Object,
    /// Where it is on this host.
    pub path: PathBuf,
}

/// A Git work tree as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Git's name of the commit, in hex.
    pub commit: String,
    /// What differs from it in the folder that was asked for, sorted; files that Git ignores are
    /// none.
    pub changed: Vec<String>,
}

/// A command that a session is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program's file, absolute.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working folder: the lab's.
    pub folder: PathBuf,
}

/// Why a host can't say something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It can't be asked, or its answer can't be understood.
    #[error("cannot tell {what}: {why}")]
    Unknown {
        /// What was asked.
        what: String,
        /// What stands in the way.
        why: String,
    },
    /// No such program.
    #[error("no program {program}: {why}")]
    NoProgram {
        /// The name.
        program: String,
        /// Where it was sought, and what was found.
        why: String,
    },
    /// A program's libraries can't be loaded in this environment.
    #[error("{program} would not be loaded: {why}")]
    NotLoaded {
        /// The program.
        program: String,
        /// What its loader said.
        why: String,
    },
    /// A preregistration names a device that is not here, or that can't be looked for.
    #[error("device {device}: {why}")]
    NoDevice {
        /// As the preregistration has it.
        device: String,
        /// What there is, or what stands in the way.
        why: String,
    },
    /// Git failed, which is never a clean tree.
    #[error("{folder}: git failed: {why}")]
    Git {
        /// The folder.
        folder: String,
        /// What it said.
        why: String,
    },
}

impl HostError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unknown { .. } | Self::NoDevice { .. } | Self::Git { .. } => Blame::Host,
            Self::NoProgram { .. } | Self::NotLoaded { .. } => Blame::Source,
        }
    }
}

/// The environment of every program, to which a preregistration may add.
pub const BASE_ENVIRONMENT: [(&str, &str); 3] = [
    ("LC_ALL", "C.UTF-8"),
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("TZ", "UTC"),
];
