//! The words of the command line. Their help text is the command reference (`docs/cli.md`).

use crate::fingerprint_words::FingerprintArgs;
use crate::fixture_words::FixtureCommand;
use crate::focused_words::FocusedArgs;
use crate::image_words::ImageCommand;
use crate::lab_words::LabArgs;
use crate::model_words::ModelCommand;
use crate::registry_words::RegistryCommand;
use crate::worker_words::{GateArgs, KeepArgs, WorkerCommand};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Packs a model's weights once and maps them at every later start.
#[derive(Debug, Parser)]
#[command(name = "packhouse", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Print exactly one JSON document on stdout
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start an engine with its packs
    ///
    /// Sets the plug-in's environment and becomes the command: same process id, signals and
    /// terminal. A short-lived watcher says in one line if the engine opened a model without
    /// loading the plug-in.
    #[command(verbatim_doc_comment)]
    Run(RunArgs),
    /// Print the variables that `run` sets, for `eval "$(packhouse env)"`
    Env(PluginArgs),
    /// Show what is in a container and what a stock CPU build, or a plan, packs of it
    Inspect {
        /// A GGUF file, or the first of its shards
        model: PathBuf,
        /// One line per tensor instead of one per type
        #[arg(long)]
        tensors: bool,
        /// What this plan packs: a name from `packhouse plans`, or a plan file
        #[arg(long, value_name = "PLAN")]
        plan: Option<String>,
    },
    /// List the plans, or print one
    ///
    /// Own plans are files in packhouse/plans under XDG_CONFIG_HOME [default: ~/.config].
    Plans {
        /// A built-in plan's name, or a plan file
        plan: Option<String>,
    },
    /// List the layouts, and what packs them here
    Layouts,
    /// Make the packs of a model under a plan, or find them
    ///
    /// Reads the model once. What is there already is reused, what is damaged is made again, and
    /// a run that was stopped goes on where it was.
    Prepare(PrepareArgs),
    /// Compare a model's stored packs with what an engine packs now, bit for bit
    Equivalence(EquivalenceArgs),
    /// Compare sets with their records, or with --deep hash every object
    ///
    /// Hashing shows that an object has not changed since it was stored. Only --prove shows that
    /// it is what its source packs to: every payload is unpacked, and the SHA-256 of its source
    /// compared with the one in the pack key. It needs the packer that made the pack: packs of
    /// other packers are counted.
    Verify {
        /// Set key, 8 or more hex digits; may be left out when there is one set
        set: Option<String>,
        /// Hash every object
        #[arg(long)]
        deep: bool,
        /// Hash every object, and unpack it to see that it is what its source packs to
        #[arg(long)]
        prove: bool,
        /// Threads that hash [default: one per CPU]
        #[arg(long, value_name = "N", value_parser = thread_count)]
        threads: Option<NonZeroUsize>,
    },
    /// Hash and prove every object of a set, and make again from its model exactly what is wrong
    Repair(RepairArgs),
    /// Print the runtime index of a set
    Index {
        /// Set key, 8 or more hex digits; may be left out when there is one set
        set: Option<String>,
        /// Write it to a new file instead
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write a set as one file to carry elsewhere, or in another program's own layout
    Export(ExportArgs),
    /// Take a set from a bundle, or from another program's folder, verified on the way in
    Import(ImportArgs),
    /// Copy a set to RAM, hashed on the way, where engines look for it first
    ///
    /// A stage that is there and holds is reused: nothing is hashed. One that fails is replaced.
    Stage(StageArgs),
    /// Compare a stage with its receipts, or with --deep hash every copy
    StageValidate(StageValidateArgs),
    /// Remove stages; what is mapped stays until its users end
    Unstage(UnstageArgs),
    /// List the sets
    Ls,
    /// Show what the sets hold of the disk, own and shared
    Du,
    /// Remove what no set, pin or recent use keeps
    Gc {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        /// Also on a store that other users read (its owner only)
        #[arg(long)]
        shared: bool,
    },
    /// Hash objects again, those longest unread first, to find bit rot
    Scrub {
        /// Bytes to hash at most, e.g. 500000000 or 20GiB [default: all]
        #[arg(long, value_name = "BYTES", value_parser = byte_count)]
        budget: Option<u64>,
    },
    /// Drop a set's name; gc then removes its objects
    Rm {
        /// Set key, 8 or more hex digits
        set: String,
    },
    /// Keep a set whatever its age and use
    Pin {
        /// Set key, 8 or more hex digits; may be left out when there is one set
        set: Option<String>,
        /// The pin's name [default: the first digits of the set key]
        #[arg(long)]
        name: Option<String>,
    },
    /// Remove a pin, so that gc judges its set again
    Unpin {
        /// The pin's name, as `ls` shows it
        pin: String,
    },
    /// Make, verify and remove tiles of a model's head for engines that read files
    ///
    /// An image is a head cut into tiles of int8 codes with one scale per column, one file per
    /// tile, in a folder of its own beside the store.
    #[command(subcommand, disable_help_subcommand = true)]
    Image(ImageCommand),
    /// Keep verified copies of whole model files in RAM, and name them
    ///
    /// A copy is byte-identical: the source is hashed as it is read, the copy as it is read back.
    /// It stays good when the source's disk is unplugged, until it is dropped or the host restarts.
    #[command(subcommand, disable_help_subcommand = true)]
    Model(ModelCommand),
    /// Keep engines running as servers on devices of their own
    ///
    /// A fleet file names them. Starting and stopping are dry runs unless --execute is given.
    #[command(subcommand, disable_help_subcommand = true)]
    Worker(WorkerCommand),
    /// Make golden fixtures, and judge kernels by them row by row
    ///
    /// A fixture is inputs, and what a kernel must make of them, each with its tolerance. The same
    /// recipe makes the same bytes for ever.
    #[command(subcommand, disable_help_subcommand = true)]
    Fixture(FixtureCommand),
    /// Register packs that others made, and verify them where they lie
    ///
    /// A record binds a file or folder to the model, packer, layout and kernels that it is of.
    /// Nothing is copied.
    #[command(subcommand, disable_help_subcommand = true)]
    Registry(RegistryCommand),
    /// Identify a build by what it was made of, what it is and loads, and where it runs
    ///
    /// Its source, its programs and every library they would load, compilers, drivers, firmware
    /// and devices, as one digest. The same build in another folder has the same.
    Fingerprint(FingerprintArgs),
    /// Run named tests of a build, or find their recorded pass
    ///
    /// Every fixture is verified first. A test that ran no case is neither a pass nor a failure:
    /// ends with 3 then, with 1 when a test failed, crashed or ran out of time. A pass is recorded
    /// under the identity of everything that it hangs on, and taken for a run only with
    /// --reuse-pass.
    #[command(verbatim_doc_comment)]
    Focused(FocusedArgs),
    /// Make evidence that can't be miscounted or quietly redone
    ///
    /// An experiment is written down and frozen, rehearsed, reviewed, armed, run once and sealed.
    /// Every act is in a ledger that can only be added to. What writes says what becomes
    /// irreversible, and needs --execute.
    #[command(disable_help_subcommand = true, verbatim_doc_comment)]
    Lab(LabArgs),
    /// Show the store's state, the host's abilities and what would make it faster
    Doctor,
    /// Watch a process that became an engine (started by `run`)
    #[command(hide = true)]
    Watch(WatchArgs),
    /// Keep watch over a worker's engine (started by `worker start`)
    #[command(hide = true)]
    Keep(KeepArgs),
    /// Wait for leave, then become an engine (started by `keep`)
    #[command(hide = true)]
    Gate(GateArgs),
}

/// What `run` takes.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) plugin: PluginArgs,
    /// The engine and its own arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) engine: Vec<OsString>,
}

/// What the plug-in is told.
#[derive(Debug, Args)]
pub(crate) struct PluginArgs {
    /// How a stored pack is believed before it is mapped [default: receipt]
    #[arg(long, value_enum)]
    pub(crate) trust: Option<Trust>,
    /// Folder for one JSON report per process and load
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// Levels of trust.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Trust {
    /// Only samples: a few groups packed again from the live weights are equal
    Sample,
    /// Samples, and a receipt that fits the object's stat identity, or else a hash now
    Receipt,
    /// Samples, and a hash of every object now
    Deep,
}

impl Trust {
    /// The word in `PACKHOUSE_TRUST`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::Receipt => "receipt",
            Self::Deep => "deep",
        }
    }
}

/// What `prepare` takes.
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// A GGUF file, or the first of its shards
    pub(crate) model: PathBuf,
    /// A built-in plan's name (`packhouse plans`), or a plan file
    #[arg(long)]
    pub(crate) plan: String,
    /// Hash only the tensors that are packed, and not the whole file
    #[arg(long)]
    pub(crate) skip_source_hash: bool,
    /// Threads that hash and pack [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// SHA-256 that the file must have; once per shard, in their order
    #[arg(long, value_name = "HEX", conflicts_with = "skip_source_hash")]
    pub(crate) sha256: Vec<String>,
    /// Seconds to wait for another process that makes the same
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) lock_timeout: u64,
}

/// What `repair` takes.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Set key, 8 or more hex digits; may be left out when there is one set
    pub(crate) set: Option<String>,
    /// The model that the set was made of; where named, what rounds is packed again and compared
    /// [default: where it was used last]
    #[arg(long)]
    pub(crate) model: Option<PathBuf>,
    /// The plan that the set was made under, where that is no built-in one
    #[arg(long)]
    pub(crate) plan: Option<String>,
    /// Threads that hash and pack [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Seconds to wait for another process that makes the same
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) lock_timeout: u64,
}

/// What `export` takes.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Set key, 8 or more hex digits; may be left out when there is one set
    pub(crate) set: Option<String>,
    /// With --format: the folder that gets the set's folder; made when missing
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Write a bundle to this new file, or to stdout for `-`
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub(crate) bundle: Option<PathBuf>,
    /// Write this layout: xe2-m6-v2
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// With --format: the model that the set was made of [default: where it was used last]
    #[arg(long, requires = "format")]
    pub(crate) model: Option<PathBuf>,
    /// With --format: also write a stage, as the other program keeps in RAM, below this folder
    #[arg(long, value_name = "DIR", requires = "format")]
    pub(crate) stage: Option<PathBuf>,
}

impl ExportArgs {
    /// Whether the bundle itself goes to stdout, where then nothing else may be.
    pub(crate) fn to_stdout(&self) -> bool {
        self.bundle.as_deref() == Some(std::path::Path::new("-"))
    }
}

/// What `import` takes.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// A bundle, `-` for one on stdin, or a folder of another program
    #[arg(required_unless_present = "registered", conflicts_with = "registered")]
    pub(crate) path: Option<PathBuf>,
    /// Import this registered pack, once it proved to be as it was registered
    #[arg(long, value_name = "KEY")]
    pub(crate) registered: Option<String>,
    /// The folder's layout: xe2-m6-v2 [default: the only one]
    #[arg(long, value_name = "FORMAT", conflicts_with = "registered")]
    pub(crate) format: Option<String>,
    /// With a folder: the model that it was made of, to compare its records with; with --tensor:
    /// the model that has the tensor
    #[arg(long)]
    pub(crate) model: Option<PathBuf>,
    /// With --registered: the pack is one payload, of this tensor of the model
    #[arg(long, value_name = "NAME", requires = "registered", requires = "model")]
    pub(crate) tensor: Option<String>,
    /// With --tensor: a parameter of the layout, e.g. n_tile=8 [default: as the layout has it]
    #[arg(long, value_name = "NAME=VALUE", requires = "tensor")]
    pub(crate) parameter: Vec<String>,
}

/// What `stage` takes.
#[derive(Debug, Args)]
pub(crate) struct StageArgs {
    /// Set key, 8 or more hex digits; may be left out when there is one set
    pub(crate) set: Option<String>,
    /// Folder of stages, the user's alone [default: PACKHOUSE_STAGE, else in /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Memory that stays free, e.g. 500000000 or 2GiB [default: 8GiB]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) min_free: Option<u64>,
    /// Threads that copy and hash [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Seconds to wait for another process that stages the same
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) lock_timeout: u64,
}

/// What `stage-validate` takes.
#[derive(Debug, Args)]
pub(crate) struct StageValidateArgs {
    /// Set key, 8 or more hex digits; may be left out when one set is staged
    pub(crate) set: Option<String>,
    /// Hash every copy
    #[arg(long)]
    pub(crate) deep: bool,
    /// Folder of stages [default: PACKHOUSE_STAGE, else in /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Threads that hash [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// What `unstage` takes.
#[derive(Debug, Args)]
pub(crate) struct UnstageArgs {
    /// Set key, 8 or more hex digits; may be left out when one set is staged
    pub(crate) set: Option<String>,
    /// Every set that is staged
    #[arg(long)]
    pub(crate) all: bool,
    /// Folder of stages [default: PACKHOUSE_STAGE, else in /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

/// What `equivalence` takes.
#[derive(Debug, Args)]
pub(crate) struct EquivalenceArgs {
    /// A GGUF file, or the first of its shards
    pub(crate) model: PathBuf,
    /// Folder of the engine's libraries [default: that of the llama-server in PATH]
    #[arg(long, value_name = "DIR")]
    pub(crate) engine: Option<PathBuf>,
    /// Compare in this very process
    #[arg(long, hide = true)]
    pub(crate) here: bool,
}

/// What the watcher is told by `run`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The process to watch
    pub(crate) pid: u32,
    /// Its start time as in field 22 of its stat file
    pub(crate) start: u64,
    /// The file that the plug-in makes when it is loaded
    pub(crate) announcement: PathBuf,
}

/// Parses a number of threads: more than the largest host has would only be an error later.
pub(crate) fn thread_count(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse().ok().filter(|count| *count <= THREADS_MAX);
    count.ok_or_else(|| format!("not a whole number from 1 to {THREADS_MAX}"))
}

/// Parses `123`, `5MB`, `5MiB`, `20GiB`, and so on; errors name the text.
pub(crate) fn byte_count(text: &str) -> Result<u64, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err("a unit is one of B kB MB GB TB KiB MiB GiB TiB".to_owned()),
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| "not a whole number of bytes".to_owned())?;
    count
        .checked_mul(factor)
        .ok_or_else(|| "more than 16 EiB".to_owned())
}

const THREADS_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("because it is not 0");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_have_units_and_limits() {
        assert_eq!(byte_count("0"), Ok(0));
        assert_eq!(byte_count("20GiB"), Ok(20 << 30));
        assert_eq!(byte_count("5MB"), Ok(5_000_000));
        for wrong in ["", "GiB", "-1", "1.5GiB", "1gib", "99999999999TiB", "1 GiB"] {
            assert!(byte_count(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_grammar_holds_together() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
