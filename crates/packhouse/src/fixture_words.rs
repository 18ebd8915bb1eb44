//! The words of `packhouse fixture`.

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// One command on golden fixtures.
#[derive(Debug, Subcommand)]
pub(crate) enum FixtureCommand {
    /// List the fixtures: what each shows, and whether it is published and intact
    Ls(FixtureSelectArgs),
    /// Make fixtures from their recipes and publish each as one folder, or find them
    ///
    /// What is there and intact is reused. What is damaged is set aside and made again.
    #[command(verbatim_doc_comment)]
    Prepare(FixturePrepareArgs),
    /// Compare published fixtures with their lists of hashes, and with their recipes byte for byte
    ///
    /// Ends with 1 when one is damaged or not published.
    #[command(verbatim_doc_comment)]
    Verify(FixtureSelectArgs),
    /// Feed fixtures to kernels and judge every row of what they give
    ///
    /// The kernels are our own scalar ones, straight from packed bytes, or after `--` any program
    /// that speaks the component protocol. Inputs come from the recipes, so nothing need be
    /// published. Ends with 1 when a row fails.
    #[command(verbatim_doc_comment)]
    Run(FixtureRunArgs),
    /// Answer as a component on stdin and stdout with our own kernels, to compare another with
    Serve(FixtureServeArgs),
}

/// Which fixtures, in which folder.
#[derive(Debug, Args)]
pub(crate) struct FixtureSelectArgs {
    /// Ids of fixtures, as `packhouse fixture ls` lists them [default: all]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Folder of fixtures [default: PACKHOUSE_FIXTURES, else packhouse/fixtures in the cache]
    #[arg(long, value_name = "DIR")]
    pub(crate) fixtures: Option<PathBuf>,
}

/// What `fixture prepare` takes.
#[derive(Debug, Args)]
pub(crate) struct FixturePrepareArgs {
    #[command(flatten)]
    pub(crate) select: FixtureSelectArgs,
    /// Seconds to wait for another process that publishes fixtures
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) lock_timeout: u64,
}

/// What `fixture run` takes.
#[derive(Debug, Args)]
pub(crate) struct FixtureRunArgs {
    /// Ids of fixtures, as `packhouse fixture ls` lists them [default: all]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Only fixtures whose weights are in this layout; may be given again
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Vec<String>,
    /// Only cases of this width; may be given again
    #[arg(long, value_name = "ROWS")]
    pub(crate) width: Vec<u64>,
    /// What is promised: each fixture's own tolerance, or to be near the exact result
    #[arg(long, value_enum, default_value = "exact")]
    pub(crate) promise: Promise,
    /// Times that a program is asked each case
    #[arg(long, value_name = "N", default_value_t = 1, requires = "program")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) repeats: u64,
    /// Seconds that a program may take for each answer
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        requires = "program",
        value_parser = clap::value_parser!(u64).range(1..=604_800)
    )]
    pub(crate) timeout: u64,
    /// Draw the cases of an earlier session again, to look at a failure: its challenge
    #[arg(long, value_name = "HEX", requires = "program")]
    pub(crate) challenge: Option<String>,
    /// A program that speaks the component protocol, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// What a kernel promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Promise {
    /// The fixture's own tolerance, most often every bit
    Exact,
    /// Another order of sums: near the exact result, where the fixture has one
    Near,
}

impl From<Promise> for packhouse_fixture::Promise {
    fn from(promise: Promise) -> Self {
        match promise {
            Promise::Exact => Self::Exact,
            Promise::Near => Self::Near,
        }
    }
}

/// What `fixture serve` takes.
#[derive(Debug, Args)]
pub(crate) struct FixtureServeArgs {
    /// Ids of fixtures to offer [default: all]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
}
