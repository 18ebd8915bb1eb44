//! The words of `packhouse registry`.

use crate::cli::thread_count;
use clap::{Args, Subcommand};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// One command on packs that others made.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// Bind a file or folder, where it lies, to what it was made of and by
    ///
    /// Every file is hashed and nothing is copied. Registering the same again is the same record.
    /// Refused are empty folders, links that lead out, and devices, sockets and pipes.
    #[command(verbatim_doc_comment)]
    Register(RegistryRegisterArgs),
    /// Hash registered packs where they lie, and name what is not as it was
    ///
    /// The key is made again from the record, and the model is compared too where its path is
    /// known. Ends with 1 if anything differs, and with 3 if something could not be read.
    #[command(verbatim_doc_comment)]
    Verify(RegistryVerifyArgs),
    /// List what is bound to what, and whether it still looks the same
    ///
    /// Costs stats, no hash: only `verify` shows that no byte is another one.
    #[command(verbatim_doc_comment)]
    Ls,
    /// Forget registered packs; their files stay where they are
    Rm {
        /// Registry keys, 8 or more hex digits each
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
}

/// What `registry register` takes.
#[derive(Debug, Args)]
pub(crate) struct RegistryRegisterArgs {
    /// The pack: a file, or a folder with all that is in it
    pub(crate) path: PathBuf,
    /// The model that it was made of, which is hashed; a shard stands for all of its model
    #[arg(long, value_name = "FILE", required_unless_present = "model_sha256")]
    pub(crate) model: Option<PathBuf>,
    /// SHA-256 of the model instead; once per shard, in their order
    #[arg(long, value_name = "HEX", conflicts_with = "model")]
    pub(crate) model_sha256: Vec<String>,
    /// What packed it, in a revision that changes when its output may
    #[arg(long, value_name = "TEXT")]
    pub(crate) packer_revision: String,
    /// Its layout: an id from `packhouse layouts`, or any other name
    #[arg(long, value_name = "TEXT")]
    pub(crate) layout: String,
    /// What the kernels that read it agree on with it
    #[arg(long, value_name = "TEXT")]
    pub(crate) kernel_abi: String,
    /// Threads that hash [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// What `registry verify` takes.
#[derive(Debug, Args)]
pub(crate) struct RegistryVerifyArgs {
    /// Registry keys, 8 or more hex digits each [default: every pack]
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Threads that hash [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
}
