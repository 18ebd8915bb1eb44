//! The words of `packhouse model`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// One command on copies of whole models.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Print the paths of admitted copies, one a line
    ///
    /// Costs stats, no hash. Ends with 1, and prints no path, unless every model has a copy that
    /// holds: `packhouse model path M || echo M` is what an engine may read.
    #[command(verbatim_doc_comment)]
    Path(ModelPathArgs),
}

/// Which models a command is about.
#[derive(Debug, Args)]
pub(crate) struct ModelFolderArgs {
    /// Folder of stages [default: PACKHOUSE_STAGE, else in /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// What `model path` takes.
#[derive(Debug, Args)]
pub(crate) struct ModelPathArgs {
    /// A model file, or 8 or more digits of its SHA-256
    #[arg(required = true, value_name = "MODEL")]
    pub(crate) models: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: ModelFolderArgs,
}
