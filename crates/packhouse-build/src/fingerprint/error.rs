//! Why a build has no fingerprint.

use packhouse_base::Blame;
use std::path::PathBuf;

/// Why a build could not be identified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// The folder can't be read.
    #[error("{}: {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// A folder without any program or shared library.
    #[error("{} holds no program and no shared library", path.display())]
    NoPrograms {
        /// The folder.
        path: PathBuf,
    },
    /// More entries than a build has.
    #[error("{} holds more than {limit} entries", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// A file can't be read, or changed while it was hashed.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Git did not say what the source is.
    #[error("git {command} in {}: {why}", folder.display())]
    Git {
        /// The folder that it was asked in.
        folder: PathBuf,
        /// What it was asked.
        command: &'static str,
        /// What it said, or why it could not be asked.
        why: String,
        /// The command that it advises.
        advice: Option<String>,
    },
    /// The dynamic loader did not say what it would load.
    #[error("dynamic loader on {}: {why}", path.display())]
    Loader {
        /// The program or library.
        path: PathBuf,
        /// What it said, or why it could not be asked.
        why: String,
    },
}

impl FingerprintError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Folder { .. }
            | Self::NoPrograms { .. }
            | Self::TooMany { .. }
            | Self::File { .. } => Blame::Source,
            Self::Git { .. } | Self::Loader { .. } => Blame::Host,
        }
    }
}
