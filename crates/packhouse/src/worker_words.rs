//! The words of `packhouse worker`, and of the two hidden commands that stand between it and an
//! engine.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// One command on workers.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the devices of this host by the names that a fleet file takes
    ///
    /// What a source could not say is shown as unknown, never as idle. With --json the raw text
    /// of every source is kept beside what was read from it.
    Devices,
    /// Compare a fleet file with its format and with this host
    ///
    /// Names every mistake with its line, and which commands and workers it blocks.
    Validate(FleetFileArgs),
    /// Show each worker's state, process, port, devices and engine
    ///
    /// Works from what a start recorded: it needs no valid fleet file, model or engine.
    Status(FleetArgs),
    /// Print the exact environment and command of each worker, quoted for a shell
    Render(FleetFileArgs),
    /// Start workers and wait until they are ready; without --execute only say what would happen
    ///
    /// Refuses when a worker runs already, when its port is taken, or when another process holds
    /// or may hold one of its devices. A worker that is refused does not stop the others. One that
    /// was launched before and not waited for to its end is waited for again. Ends with 3 when a
    /// worker was refused, else with 1 when one is not ready.
    Start(WorkerStartArgs),
    /// Stop workers and wait until what they held is free; without --execute only say so
    ///
    /// Signals only what is proven to be a worker's process. Works from what a start recorded: it
    /// needs no valid fleet file, model or engine.
    Stop(WorkerStopArgs),
    /// Print what a worker's engine wrote in a start
    Logs(WorkerLogsArgs),
}

/// Which workers of which fleet file.
#[derive(Debug, Args)]
pub(crate) struct FleetFileArgs {
    /// Fleet file [default: packhouse/fleet.toml under XDG_CONFIG_HOME, else under ~/.config]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A worker's name; may be given again [default: every worker]
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Vec<String>,
}

/// Which workers of which fleet, by its file or by what starts recorded.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// Fleet file [default: packhouse/fleet.toml under XDG_CONFIG_HOME, else under ~/.config]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The fleet's name, where its file is not at hand or not valid
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub(crate) fleet: Option<String>,
    /// A worker's name; may be given again [default: every worker]
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Vec<String>,
}

/// What `worker start` takes.
#[derive(Debug, Args)]
pub(crate) struct WorkerStartArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetFileArgs,
    /// Start, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
    /// Seconds to wait for another process that works on the same worker or device
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) lock_timeout: u64,
}

/// What `worker stop` takes.
#[derive(Debug, Args)]
pub(crate) struct WorkerStopArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Stop, and do not only say what would happen
    #[arg(long)]
    pub(crate) execute: bool,
    /// Seconds to wait for another process that works on the same worker
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) lock_timeout: u64,
}

/// What `worker logs` takes.
#[derive(Debug, Args)]
pub(crate) struct WorkerLogsArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Number of the start [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) run: Option<u32>,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    pub(crate) lines: Option<NonZeroUsize>,
}

/// What the keeper is told by a start.
#[derive(Debug, Args)]
pub(crate) struct KeepArgs {
    /// Folder of the run
    pub(crate) folder: PathBuf,
}

/// What the gate is told by the keeper.
#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Cores to run on, e.g. 0-3,8
    #[arg(long, value_name = "LIST")]
    pub(crate) cores: Option<String>,
    /// The engine and its own arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) engine: Vec<OsString>,
}
