//! `packhouse-bagcheck PATH [--ledger FILE] [--public-key PEM] [--json]`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(3)
}
