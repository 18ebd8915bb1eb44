//! The words of `packhouse model`.

use crate::cli::{byte_count, thread_count};
use clap::{Args, Subcommand};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// One command on copies of whole models.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Copy models to RAM, hashed as they are read and read back, or find their copies
    ///
    /// A copy that is there and holds is reused: nothing is hashed. One whose file was touched is
    /// hashed before it is believed again; one with other bytes is copied anew.
    #[command(verbatim_doc_comment)]
    Prepare(ModelPrepareArgs),
    /// List the copies: what each is of, and whether it is admitted
    ///
    /// Costs stats, no hash. A copy is admitted while its files are what they were when they were
    /// hashed, and its source is what was copied, or is gone. Ends with 1 if any is not.
    #[command(verbatim_doc_comment)]
    Status(ModelSelectArgs),
    /// Hash copies in full
    Verify(ModelVerifyArgs),
    /// Bring copies to memory that the kernel moved to swap
    Warm(ModelSelectArgs),
    /// Print the paths of admitted copies, one a line
    ///
    /// Costs stats, no hash. Ends with 1, and prints no path, unless every model has a copy that
    /// holds: `packhouse model path M || echo M` is what an engine may read.
    #[command(verbatim_doc_comment)]
    Path(ModelPathArgs),
    /// Drop copies; what is mapped stays until its users end
    ///
    /// Only says what would go and who uses it, unless --execute is given. A copy in use whose
    /// source is gone is the only one, and is not dropped: ends with 3.
    #[command(verbatim_doc_comment)]
    Drop(ModelDropArgs),
}

/// Where copies are.
#[derive(Debug, Args)]
pub(crate) struct ModelFolderArgs {
    /// Folder of stages [default: PACKHOUSE_STAGE, else in /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// What `model prepare` takes.
#[derive(Debug, Args)]
pub(crate) struct ModelPrepareArgs {
    /// A model file; a shard stands for all of its model
    #[arg(required = true, value_name = "MODEL")]
    pub(crate) models: Vec<PathBuf>,
    /// SHA-256 that the file must have; once per shard, in their order
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: Vec<String>,
    #[command(flatten)]
    pub(crate) folder: ModelFolderArgs,
    /// Memory that stays free, e.g. 500000000 or 2GiB [default: 8GiB]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) min_free: Option<u64>,
    /// Threads [default: one per CPU]; with more than one, hashing has its own
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Seconds to wait for another process that copies the same
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) lock_timeout: u64,
}

/// Which copies a command is about.
#[derive(Debug, Args)]
pub(crate) struct ModelSelectArgs {
    /// Models: files as they were copied, or 8 or more digits of a key [default: every copy]
    #[arg(value_name = "MODEL")]
    pub(crate) models: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: ModelFolderArgs,
}

/// What `model verify` takes.
#[derive(Debug, Args)]
pub(crate) struct ModelVerifyArgs {
    #[command(flatten)]
    pub(crate) select: ModelSelectArgs,
    /// Threads that hash [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// What `model path` takes.
#[derive(Debug, Args)]
pub(crate) struct ModelPathArgs {
    /// A model file as it was copied, or 8 or more digits of a key
    #[arg(required = true, value_name = "MODEL")]
    pub(crate) models: Vec<PathBuf>,
    /// SHA-256 that the (first) file must have; then any copy with it will do
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: Option<String>,
    #[command(flatten)]
    pub(crate) folder: ModelFolderArgs,
}

/// What `model drop` takes.
#[derive(Debug, Args)]
pub(crate) struct ModelDropArgs {
    /// Models: files as they were copied, or 8 or more digits of a key
    #[arg(
        value_name = "MODEL",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) models: Vec<PathBuf>,
    /// Every copy
    #[arg(long)]
    pub(crate) all: bool,
    /// Really drop them
    #[arg(long)]
    pub(crate) execute: bool,
    /// Also those in use whose source is gone
    #[arg(long)]
    pub(crate) even_if_used: bool,
    #[command(flatten)]
    pub(crate) folder: ModelFolderArgs,
    /// Seconds to wait for another process that works on the same
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) lock_timeout: u64,
}
