//! The words of `fingerprint`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// What `fingerprint` takes.
#[derive(Debug, Args)]
pub(crate) struct FingerprintArgs {
    /// The build's folder: what CMake or cargo built into, or its folder of programs
    #[arg(value_name = "DIR", required_unless_present = "explain")]
    pub(crate) build: Option<PathBuf>,
    /// The source's folder [default: what the build system names]
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
    /// A file of another folder that the build loads or reads, a library or data; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) with: Vec<PathBuf>,
    /// A variable that the build's programs will have, e.g. LD_LIBRARY_PATH=DIR; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<OsString>,
    /// Write the record to this new file
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Say in which facts two builds differ: each a folder, a saved file, or 8 or more digits of a
    /// fingerprint that was computed here before; --source, --with and --env are taken for folders
    #[arg(
        long,
        num_args = 2,
        value_names = ["A", "B"],
        conflicts_with_all = ["build", "save"]
    )]
    pub(crate) explain: Option<Vec<PathBuf>>,
}
