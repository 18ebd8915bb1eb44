//! The words of `focused`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// What `focused` takes.
#[derive(Debug, Args)]
pub(crate) struct FocusedArgs {
    /// The build's folder: what CMake or cargo built into, or its folder of programs
    #[arg(value_name = "DIR")]
    pub(crate) build: PathBuf,
    /// An operation that test-backend-ops runs; may be repeated [default: MUL_MAT]
    #[arg(long, value_name = "OP", conflicts_with = "tests")]
    pub(crate) op: Vec<String>,
    /// The back end that must run it [default: CPU]
    #[arg(long, value_name = "NAME", conflicts_with = "tests")]
    pub(crate) backend: Option<String>,
    /// Only cases whose parameters match this regular expression of test-backend-ops
    #[arg(long, value_name = "REGEX", conflicts_with = "tests")]
    pub(crate) params: Option<String>,
    /// A file of tests to run instead (docs/format/focused.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) tests: Option<PathBuf>,
    /// A variable that tests will have; all but a few named ones are not inherited; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<OsString>,
    /// Seconds after which a test is killed, where the file of tests names none
    #[arg(long, value_name = "SECONDS", default_value_t = 1800,
        value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub(crate) timeout: u64,
    /// Take a recorded pass of the very same build, tests, fixtures, devices and environment, and
    /// run only where there is none
    #[arg(long)]
    pub(crate) reuse_pass: bool,
    /// The source's folder [default: what the build system names]
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
    /// A file of another folder that the build loads or reads, a library or data; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) with: Vec<PathBuf>,
    /// Folder of fixtures [default: PACKHOUSE_FIXTURES, else packhouse/fixtures in the cache]
    #[arg(long, value_name = "DIR")]
    pub(crate) fixtures: Option<PathBuf>,
    /// Seconds to wait for another process that runs the same
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) lock_timeout: u64,
}
