//! The repository's own rules and generated documents.
//!
//! `cargo xtask tidy` judges the tree against rules that no compiler knows; `cargo xtask docs`
//! renders `docs/cli.md`, the CLI's snapshots and the C header again; `cargo xtask mutants` breaks
//! a copy of our own code, line by line, and asks the tests to notice. Tidy reads the tree, never
//! writes; each of its rules has a mutant in its own tests that must fail.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a developer's tool reads files, runs cargo and prints"
)]

mod mutants;
mod rules;
mod tree;

use std::error::Error;
use std::process::{Command, ExitCode};
use tree::Tree;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy(),
        ["docs"] => docs(),
        ["mutants"] => mutants::mutants(""),
        ["mutants", "--some", count] => mutants::some_mutants(count),
        ["mutants", part] => mutants::mutants(part),
        _ => {
            eprintln!("usage: cargo xtask tidy | docs | mutants [PART OF A NAME | --some COUNT]");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(3)
    })
}

fn tidy() -> Result<ExitCode, Box<dyn Error>> {
    let tree = Tree::load()?;
    let mut finding_count = 0;
    for (name, rule) in rules::ALL {
        for finding in rule(&tree) {
            eprintln!("tidy: {name}: {finding}");
            finding_count += 1;
        }
    }
    if finding_count > 0 {
        eprintln!("tidy: {finding_count} findings");
        return Ok(ExitCode::from(1));
    }
    println!(
        "tidy: {} files, {} rules, no finding",
        tree.files.len(),
        rules::ALL.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Runs the tests that compare generated files in the mode in which they write them: the CLI's
/// snapshots and reference, the C header and its statuses.
fn docs() -> Result<ExitCode, Box<dyn Error>> {
    let runs = [
        ["packhouse", "cli", ""],
        ["packhouse-capi", "capi", "header::"],
    ];
    for [package, test, filter] in runs {
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["test", "--quiet", "--locked", "-p", package, "--test", test])
            .arg(filter)
            .env("PACKHOUSE_BLESS", "1")
            .status()?;
        if !status.success() {
            return Ok(ExitCode::from(3));
        }
    }
    Ok(ExitCode::SUCCESS)
}
