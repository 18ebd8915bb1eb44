//! Named test runs under a key.
//!
//! The key has the build's fingerprint, the digests of all fixtures, devices, commands with the
//! files that they name, environment and folder; the format's page says what it has not. A test
//! always runs, unless a pass of the very same key is asked for, is recorded, and its logs still
//! hash.
//!
//! Invariants:
//! - no case that ran is neither a pass nor a fail: it is `not executed`;
//! - a kill at any step leaves no pass;
//! - a pass is reusable only if all that was seen of what its tests loaded is a part of the
//!   fingerprint, and nothing shows that there was more.
//!
//! Never: a shell, an inherited variable that is not on the list. Format:
//! `docs/format/focused.md`.

mod environment;
mod folder;
mod host;
mod key;
mod loaded;
mod named;
mod one;
mod proof;
mod record;
mod reuse;
mod run;
mod test;
mod verdict;
mod words;

pub use environment::{Environment, INHERITED, VariableError};
pub use folder::{
    KEPT_BYTES_MAX, KEYS_KEPT, LOG_BYTES_MAX, Log, LogError, LogKind, RUNS_KEPT, Runs, RunsError,
};
pub use folder::{KeyFolder, RunFolder};
pub use host::{Host, Launch, find_program, run_child};
pub use key::{Bound, Key};
pub use loaded::Loaded;
pub use named::{NamedFile, head_of, named_file};
pub use proof::{Proof, ProofFault, Reading};
pub use record::{LoadedFile, RESULT_SCHEMA, ResultError, RunResult, TestResult};
pub use reuse::NotReused;
pub use run::{FocusedError, Order, Outcome, focused};
pub use test::{
    TESTS_BYTES_MAX, TESTS_MAX, TIMEOUT_S_MAX, Test, TestsError, backend_ops_tests, parse_tests,
};
pub use verdict::{Counts, Judged, Verdict, judge};
